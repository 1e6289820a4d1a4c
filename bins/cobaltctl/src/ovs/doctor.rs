//! What is wrong, from wherever it is asked.

use std::process::ExitCode;

use cobalt_core::agent::ovs::endpoints::wire::{Diagnosis, PortAnswer, Severity, StaleFlows};
use serde::Serialize;

use super::{Doctor, Ending, Output, OvsError, agent, ending, http, local, print, say, stale};

/// What is wrong with the switch, or with a port.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Answer {
    Switch(Diagnosis),
    Port(Box<PortAnswer>),
}

impl Answer {
    fn diagnosis(&self) -> &Diagnosis {
        match self {
            Self::Switch(diagnosis) => diagnosis,
            Self::Port(answer) => &answer.diagnosis,
        }
    }
}

/// An answer, and what a look for stale flows found where somebody asked for one.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Looked {
    #[serde(flatten)]
    pub(super) answer: Answer,
    #[serde(rename = "staleFlows", skip_serializing_if = "Option::is_none")]
    pub(super) stale: Option<StaleFlows>,
}

pub(super) async fn run(args: Doctor) -> Ending {
    let place = &args.place;
    let port = args.port.as_deref();
    let looked = if place.local {
        local::doctor(place, port, args.stale_flows.then_some(&args.certificates)).await?
    } else {
        remote(&args).await?
    };
    say(&match place.output {
        Output::Json => print::json(&looked)?,
        Output::Table => {
            let text = match &looked.answer {
                Answer::Switch(diagnosis) => print::diagnosis(diagnosis),
                Answer::Port(answer) => print::port(answer),
            };
            text + &looked.stale.as_ref().map(print::stale_flows).unwrap_or_default()
        }
    })?;
    let critical = looked.answer.diagnosis().findings.iter().any(|finding| finding.severity == Severity::Critical);
    match looked.stale.and_then(|stale| stale.unknown) {
        Some(why) => {
            print::tell(&format!("nobody can tell which flows are stale: {why}"));
            // Half of what was asked has no answer; bad news is worth more words.
            Ok(if critical { ending(false) } else { ExitCode::FAILURE })
        }
        None => Ok(ending(!critical)),
    }
}

async fn remote(args: &Doctor) -> Result<Looked, OvsError> {
    let stale = if args.stale_flows { Some(stale::look(&agent(&args.place).await?).await?) } else { None };
    let agent = agent(&args.place).await?;
    let answer = match &args.port {
        None => Answer::Switch(agent.get("/v1/doctor").await?),
        Some(port) => Answer::Port(Box::new(agent.get(&format!("/v1/ports/{}", http::segment(port))).await?)),
    };
    Ok(Looked { answer, stale })
}
