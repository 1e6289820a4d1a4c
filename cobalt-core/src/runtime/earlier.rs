//! Flags of earlier programs, so that their manifests keep working.

use clap::{ArgAction, Args as ClapArgs};

use super::args::{LogArgs, LogFormat};

/// Where they stand in a help text.
pub const HEADING: &str = "Flags of earlier programs";

/// Accepted for the sake of existing manifests. Those with a meaning here say which.
#[derive(ClapArgs, Clone, Debug, Default)]
#[group(skip)]
pub struct EarlierArgs {
    /// No effect: metrics are served without TLS and without a login. Choose an address that only the scraper reaches
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_name = "BOOL", help_heading = HEADING)]
    pub metrics_secure: Option<bool>,

    /// No effect: what is served is HTTP/1.1
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_name = "BOOL", help_heading = HEADING)]
    pub enable_http2: Option<bool>,

    /// Means `--log-format human --log-level debug`
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set, value_name = "BOOL", help_heading = HEADING)]
    pub zap_devel: Option<bool>,

    /// Means `--log-format`: `json`, or `console` for lines for people
    #[arg(long, value_name = "ENCODER", help_heading = HEADING)]
    pub zap_encoder: Option<String>,

    /// Means `--log-level`: `debug`, `info`, `error`, `panic`, or a number (above zero means `debug`)
    #[arg(long, value_name = "LEVEL", help_heading = HEADING)]
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
            log = LogArgs { log_format: LogFormat::Human, log_level: "debug".into() };
        }
        match self.zap_encoder.as_deref() {
            Some("json") => log.log_format = LogFormat::Json,
            Some("console") => log.log_format = LogFormat::Human,
            _ => {}
        }
        match self.zap_log_level.as_deref() {
            Some("info" | "0") => log.log_level = "info".into(),
            Some("error" | "panic") => log.log_level = "error".into(),
            Some(_) => log.log_level = "debug".into(), // `debug`, and every number above zero
            None => {}
        }
        log
    }
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
}
