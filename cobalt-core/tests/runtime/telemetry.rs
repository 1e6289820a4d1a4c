//! Log lines as they come out.

use std::{
    io::Write,
    sync::{Arc, Mutex},
};

use cobalt_core::{
    Error,
    runtime::{
        args::{LogArgs, LogFormat},
        metrics::Metrics,
        queue::{self, Next, Queue},
        shutdown::Shutdown,
        telemetry,
    },
};
use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

fn logged(args: &LogArgs) -> String {
    let lines = Lines::default();
    let subscriber = telemetry::subscriber(args, lines.clone()).unwrap();
    tracing::subscriber::with_default(subscriber, || {
        tracing::info!(node = "node-1", "created");
        tracing::debug!("not shown at info");
    });
    String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
}

#[test]
fn json_lines_carry_the_fields() {
    let text = logged(&LogArgs { log_format: LogFormat::Json, log_level: "info".into(), otlp_endpoint: None });
    let line: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
    assert_eq!(
        (&line["level"], &line["message"], &line["node"]),
        (&"INFO".into(), &"created".into(), &"node-1".into())
    );
}

#[test]
fn human_lines_are_readable() {
    let text = logged(&LogArgs { log_format: LogFormat::Human, log_level: "info".into(), otlp_endpoint: None });
    assert!(text.contains("INFO") && text.contains("created") && text.contains("node-1"), "{text}");
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn a_bad_filter_is_named() {
    let args = LogArgs { log_format: LogFormat::Json, log_level: "cobalt=loud".into(), otlp_endpoint: None };
    let error = telemetry::subscriber(&args, std::io::sink).err().unwrap();
    assert_eq!(error.to_string(), "parse log filter \"cobalt=loud\" (--log-level or RUST_LOG)");
}

#[tokio::test]
async fn what_a_pass_logs_names_the_queue_and_its_key() {
    let lines = Lines::default();
    let args = LogArgs { log_format: LogFormat::Json, log_level: "info".into(), otlp_endpoint: None };
    let _guard = tracing::subscriber::set_default(telemetry::subscriber(&args, lines.clone()).unwrap());
    let queue = Queue::new("hypervisors", Arc::new(Metrics::new()));
    queue.add("node-1".to_owned());
    let stop = Shutdown::new();
    let end = stop.clone();
    queue::run(&queue, 1, stop, move |_: String| {
        let end = end.clone();
        async move {
            tracing::info!("in the pass");
            end.trigger();
            Ok::<_, Error>(Next::Wait)
        }
    })
    .await;
    let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    let line: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(line["message"], "in the pass");
    assert_eq!((&line["span"]["name"], &line["span"]["queue"]), (&"reconcile".into(), &"hypervisors".into()), "{line}");
    assert_eq!(line["span"]["key"], "node-1");
}
