//! What is left behind to find a request in the services' own logs.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use cobalt_core::{
    ids::InstanceId,
    nova::BlockMigration,
    runtime::{
        args::{LogArgs, LogFormat},
        telemetry,
    },
};
use cobalt_openstack::{NovaClient, testing::Reply};
use serde_json::{Value, json};

use super::{connected, quick};

/// A log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// The lines that name a request, without their time.
    fn requests(&self) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let fields = ["level", "call", "operation", "status", "request_id"];
        let ours = lines.filter(|line| line.get("operation").is_some());
        ours.map(|line| fields.iter().map(|field| ((*field).to_owned(), line[field].clone())).collect()).collect()
    }
}

#[tokio::test]
async fn the_request_id_of_a_success_is_in_the_log() {
    let log = Log::default();
    let args = LogArgs { log_level: "debug".into(), log_format: LogFormat::Json, otlp_endpoint: None };
    let writer = log.clone();
    let _guard = tracing::subscriber::set_default(telemetry::subscriber(&args, move || writer.clone()).unwrap());
    let (cloud, nova, _) = connected(quick()).await;
    let action = "/compute/v2.1/servers/s1/action";
    cloud.on("GET", "/compute/v2.1/os-aggregates", [Reply::json(r#"{"aggregates": []}"#)]);
    cloud.on("POST", action, [Reply::status(202), Reply::json(r#"{"output": ""}"#)]);
    nova.aggregates().await.unwrap();
    nova.live_migrate(&InstanceId::from("s1"), None, BlockMigration::Auto).await.unwrap();
    nova.console_output(&InstanceId::from("s1"), 1).await.unwrap();
    let line = |level: &str, call: &str, operation: &str, status: u16, id: &str| json!({"level": level, "call": call, "operation": operation, "status": status, "request_id": id});
    assert_eq!(
        log.requests(),
        [
            line("DEBUG", "aggregates", "list aggregates", 200, "req-2"),
            line("INFO", "live_migrate", "live-migrate server s1 to any host", 202, "req-3"),
            line("DEBUG", "console_output", "get console of server s1", 200, "req-4"),
        ]
    );
}
