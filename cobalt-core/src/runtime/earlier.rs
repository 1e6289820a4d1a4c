//! Flags of earlier programs, so that their manifests keep working.

use clap::{ArgAction, Args as ClapArgs, builder::BoolishValueParser};

use super::args::{LogArgs, LogFormat};

/// Where they stand in a help text.
pub const HEADING: &str = "Flags of earlier programs";

/// Accepted for the sake of existing manifests. Those with a meaning here say which.
#[derive(ClapArgs, Clone, Debug, Default)]
#[group(skip)]
pub struct EarlierArgs {
    /// No effect: metrics are served without TLS and without a login. Choose an address that only the scraper reaches
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = BoolishValueParser::new(), value_name = "BOOL", help_heading = HEADING)]
    pub metrics_secure: Option<bool>,

    /// No effect: what is served is HTTP/1.1
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = BoolishValueParser::new(), value_name = "BOOL", help_heading = HEADING)]
    pub enable_http2: Option<bool>,

    /// Means `--log-format human --log-level debug`
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_parser = BoolishValueParser::new(), value_name = "BOOL", help_heading = HEADING)]
    pub zap_devel: Option<bool>,

    /// Means `--log-format`: `json`, or `console` for lines for people
    #[arg(long, value_name = "ENCODER", value_parser = encoder, help_heading = HEADING)]
    pub zap_encoder: Option<String>,

    /// Means `--log-level`: `debug`, `info`, `error`, `panic`, or a number (above zero means `debug`)
    #[arg(long, value_name = "LEVEL", value_parser = level, help_heading = HEADING)]
    pub zap_log_level: Option<String>,

    /// No effect: stack traces are not logged
    #[arg(long, value_name = "LEVEL", help_heading = HEADING)]
    pub zap_stacktrace_level: Option<String>,

    /// No effect: times are logged in RFC 3339
    #[arg(long, value_name = "ENCODING", help_heading = HEADING)]
    pub zap_time_encoding: Option<String>,
}

impl EarlierArgs {
    /// How to log, with those of the flags that were given on top.
    pub fn log(&self, args: &LogArgs) -> LogArgs {
        let mut log = args.clone();
        if self.zap_devel == Some(true) {
            (log.log_format, log.log_level) = (LogFormat::Human, "debug".into());
        }
        match self.zap_encoder.as_deref() {
            Some("json") => log.log_format = LogFormat::Json,
            Some(_) => log.log_format = LogFormat::Human,
            None => {}
        }
        match self.zap_log_level.as_deref() {
            Some("info" | "0") => log.log_level = "info".into(),
            Some("error" | "panic") => log.log_level = "error".into(),
            Some(_) => log.log_level = "debug".into(), // `debug`, and every number above zero
            None => {}
        }
        log
    }

    /// Tells of a flag whose wish is not fulfilled, though somebody may rely on it. To be called once there is a log.
    pub fn warn(&self) {
        if self.metrics_secure == Some(true) {
            tracing::warn!("--metrics-secure has no effect: metrics are served without TLS and without a login");
        }
    }
}

/// A level as earlier programs took it.
fn level(text: &str) -> Result<String, String> {
    let word = text.to_lowercase();
    let known = ["debug", "info", "error", "panic"].contains(&word.as_str());
    if known || word.parse::<u32>().is_ok() {
        Ok(word)
    } else {
        Err("expected debug, info, error, panic or a number".into())
    }
}

fn encoder(text: &str) -> Result<String, String> {
    if ["json", "console"].contains(&text) { Ok(text.to_owned()) } else { Err("expected json or console".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_that_mean_something_change_the_log() {
        let earlier = |devel, encoder: &str, level: &str| EarlierArgs {
            zap_devel: devel,
            zap_encoder: Some(encoder.to_owned()).filter(|text| !text.is_empty()),
            zap_log_level: Some(level.to_owned()).filter(|text| !text.is_empty()),
            ..EarlierArgs::default()
        };
        for (given, format, level) in [
            (EarlierArgs::default(), LogFormat::Json, "info"),
            (earlier(Some(true), "", ""), LogFormat::Human, "debug"),
            (earlier(Some(false), "", ""), LogFormat::Json, "info"),
            (earlier(Some(true), "json", "error"), LogFormat::Json, "error"),
            (earlier(None, "console", "2"), LogFormat::Human, "debug"),
        ] {
            let log = given.log(&LogArgs::default());
            assert_eq!((log.log_format, log.log_level.as_str()), (format, level), "{given:?}");
        }
    }

    #[derive(clap::Parser, Debug)]
    struct Line {
        #[command(flatten)]
        earlier: EarlierArgs,
    }

    fn given(flag: &str) -> Result<EarlierArgs, String> {
        let parsed = <Line as clap::Parser>::try_parse_from(["program", flag]);
        parsed.map(|line| line.earlier).map_err(|error| error.to_string())
    }

    #[test]
    fn values_are_those_that_earlier_programs_took() {
        for (value, expected) in
            [("1", true), ("t", true), ("True", true), ("0", false), ("F", false), ("false", false)]
        {
            let read = given(&format!("--metrics-secure={value}")).map(|earlier| earlier.metrics_secure);
            assert_eq!(read, Ok(Some(expected)), "{value}");
        }
        for (level, expected) in
            [("debug", "debug"), ("Info", "info"), ("error", "error"), ("panic", "error"), ("3", "debug")]
        {
            let read = given(&format!("--zap-log-level={level}")).map(|it| it.log(&LogArgs::default()).log_level);
            assert_eq!(read.as_deref(), Ok(expected), "{level}");
        }
    }

    #[test]
    fn a_value_that_none_of_them_took_is_named() {
        for (flag, words) in [
            (
                "--zap-log-level=verbose",
                ["verbose", "--zap-log-level", "expected debug, info, error, panic or a number"],
            ),
            ("--zap-log-level=-1", ["-1", "--zap-log-level", "expected debug"]),
            ("--zap-encoder=xml", ["xml", "--zap-encoder", "expected json or console"]),
            ("--metrics-secure=perhaps", ["perhaps", "--metrics-secure", "boolean"]),
        ] {
            let refused = given(flag).expect_err(flag);
            assert!(words.iter().all(|word| refused.contains(word)), "{refused}");
        }
    }
}
