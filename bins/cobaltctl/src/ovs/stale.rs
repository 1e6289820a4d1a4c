//! Having an agent look for stale flows, which takes longer than one answer.

use std::time::Duration;

use cobalt_core::agent::ovs::endpoints::wire::StaleFlows;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::{OvsError, http::Agent, print::tell};

/// Two dumps of very many flows, half a minute apart, and a look that was under way already.
const LIMIT: Duration = Duration::from_secs(600);
/// Between two questions whether it is done.
const PAUSE: Duration = Duration::from_secs(2);

/// Asks for a look and waits for what it finds.
pub(super) async fn look(agent: &Agent) -> Result<StaleFlows, OvsError> {
    let asked: StaleFlows = agent.post("/v1/stale-flows", &Value::Null).await?;
    let wanted = wanted(&asked);
    tell("the host looks for stale flows; this may take a minute");
    let deadline = Instant::now() + LIMIT;
    loop {
        let now: StaleFlows = agent.get("/v1/stale-flows").await?;
        if now.looks >= wanted {
            return Ok(now);
        }
        if Instant::now() > deadline {
            return Err(OvsError::Timeout { what: "wait for a look for stale flows".into(), limit: LIMIT });
        }
        sleep(PAUSE).await;
    }
}

/// Which look is ours: the next, or the one after that which is under way.
fn wanted(asked: &StaleFlows) -> u64 {
    asked.looks.saturating_add(if asked.looking { 2 } else { 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_was_under_way_is_not_the_one_that_was_asked_for() {
        let stands = |looking| StaleFlows { looking, looks: 3, at: None, flows: None, cookies: vec![], unknown: None };
        assert_eq!((wanted(&stands(false)), wanted(&stands(true))), (4, 5));
    }
}
