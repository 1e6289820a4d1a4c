//! Cells of a pod, which has no single field for what people want to know of it.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
use super::cells::{items, or_none, text};

pub(super) fn cells(name: Value, age: Value, object: &Value, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let summary = Summary::of(object);
    let mut restarts = summary.restarts.to_string();
    if let (true, Some(last)) = (summary.restarts > 0, summary.last_restart) {
        restarts = format!("{restarts} ({} ago)", age::since(Some(last), now));
    }
    let gates = items(&spec["readinessGates"]).count();
    let gates = if gates == 0 {
        "<none>".to_owned()
    } else {
        let open = |gate: &&Value| {
            let condition = items(&status["conditions"]).find(|c| c["type"] == gate["conditionType"]);
            condition.is_some_and(|c| c["status"] == "True")
        };
        format!("{}/{gates}", items(&spec["readinessGates"]).filter(open).count())
    };
    vec![
        name,
        json!(format!("{}/{}", summary.ready, summary.total)),
        json!(summary.state),
        json!(restarts),
        age,
        json!(or_none(text(status, "/podIP"))),
        json!(or_none(text(spec, "/nodeName"))),
        json!(or_none(text(status, "/nominatedNodeName"))),
        json!(gates),
    ]
}

struct Summary<'a> {
    state: String,
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<&'a str>,
}

impl<'a> Summary<'a> {
    fn of(object: &'a Value) -> Self {
        let status = &object["status"];
        let sidecars: Vec<&str> = items(&object["spec"]["initContainers"])
            .filter(|container| container["restartPolicy"] == "Always")
            .filter_map(|container| container["name"].as_str())
            .collect();
        let mut state = text(status, "/phase").to_owned();
        if let Some(reason) = status["reason"].as_str().filter(|reason| !reason.is_empty()) {
            reason.clone_into(&mut state);
        }
        if items(&status["conditions"]).any(|c| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated") {
            "SchedulingGated".clone_into(&mut state);
        }
        let mut summary = Self {
            state,
            ready: 0,
            total: items(&object["spec"]["containers"]).count() + sidecars.len(),
            restarts: 0,
            last_restart: None,
        };
        if !summary.initializing(object, &sidecars) {
            summary.running(status);
        }
        if !text(object, "/metadata/deletionTimestamp").is_empty() {
            let lost = status["reason"] == "NodeLost";
            if lost {
                "Unknown".clone_into(&mut summary.state);
            } else if !matches!(text(status, "/phase"), "Succeeded" | "Failed") {
                "Terminating".clone_into(&mut summary.state);
            }
        }
        summary
    }

    fn count_restart(&mut self, container: &'a Value) {
        self.restarts += container["restartCount"].as_i64().unwrap_or(0);
        let ended = container.pointer("/lastState/terminated/finishedAt").and_then(Value::as_str);
        // RFC 3339 in UTC sorts as text.
        self.last_restart = self.last_restart.max(ended);
    }

    /// Whether the pod has not got past its init containers; if so its state says which one it is at.
    fn initializing(&mut self, object: &'a Value, sidecars: &[&str]) -> bool {
        let all = items(&object["spec"]["initContainers"]).count();
        for (index, container) in items(&object["status"]["initContainerStatuses"]).enumerate() {
            self.count_restart(container);
            let sidecar = container["name"].as_str().is_some_and(|name| sidecars.contains(&name));
            let (terminated, waiting) = (&container["state"]["terminated"], text(container, "/state/waiting/reason"));
            if terminated.is_object() && terminated["exitCode"].as_i64().unwrap_or(0) == 0 {
                continue;
            }
            if sidecar && container["started"] == true {
                self.ready += usize::from(container["ready"] == true);
                continue;
            }
            self.state = if terminated.is_object() {
                format!("Init:{}", ended(terminated))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{index}/{all}")
            };
            return true;
        }
        false
    }

    fn running(&mut self, status: &'a Value) {
        self.restarts = 0;
        let mut runs = false;
        let containers: Vec<&Value> = items(&status["containerStatuses"]).collect();
        for container in containers.into_iter().rev() {
            self.count_restart(container);
            let terminated = &container["state"]["terminated"];
            let waiting = text(container, "/state/waiting/reason");
            if !waiting.is_empty() {
                waiting.clone_into(&mut self.state);
            } else if terminated.is_object() {
                self.state = ended(terminated);
            } else if container["ready"] == true && container["state"]["running"].is_object() {
                runs = true;
                self.ready += 1;
            }
        }
        // A container that is done does not make a pod look done while others still run.
        if self.state == "Completed" && runs {
            let ready = items(&status["conditions"]).any(|c| c["type"] == "Ready" && c["status"] == "True");
            (if ready { "Running" } else { "NotReady" }).clone_into(&mut self.state);
        }
    }
}

fn ended(terminated: &Value) -> String {
    match (text(terminated, "/reason"), terminated["signal"].as_i64().unwrap_or(0)) {
        ("", 0) => format!("ExitCode:{}", terminated["exitCode"].as_i64().unwrap_or(0)),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(object: &Value) -> Vec<Value> {
        cells(json!("p"), json!("1s"), object, Timestamp::UNIX_EPOCH)[1..4].to_vec()
    }

    #[test]
    fn a_pod_nobody_runs_is_pending_and_then_terminating() {
        let mut pod = json!({"metadata": {}, "spec": {"containers": [{"name": "c"}]}, "status": {"phase": "Pending"}});
        assert_eq!(shown(&pod), [json!("0/1"), json!("Pending"), json!("0")]);
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(shown(&pod)[1], "Terminating");
    }

    #[test]
    fn the_state_of_a_pod_is_that_of_its_containers() {
        let pod = |state: Value| {
            json!({"metadata": {}, "spec": {"containers": [{"name": "c"}]}, "status": {"phase": "Running",
                "containerStatuses": [{"name": "c", "ready": true, "restartCount": 3, "state": state}]}})
        };
        assert_eq!(shown(&pod(json!({"running": {}}))), [json!("1/1"), json!("Running"), json!("3")]);
        assert_eq!(shown(&pod(json!({"waiting": {"reason": "CrashLoopBackOff"}})))[1], "CrashLoopBackOff");
        assert_eq!(shown(&pod(json!({"terminated": {"exitCode": 7}})))[1], "ExitCode:7");
        let starting = json!({"metadata": {}, "spec": {"containers": [{}], "initContainers": [{"name": "a"}, {"name": "b"}]},
            "status": {"phase": "Pending", "initContainerStatuses": [
                {"name": "a", "state": {"terminated": {"exitCode": 0}}}, {"name": "b", "state": {"running": {}}}]}});
        assert_eq!(shown(&starting)[1], "Init:1/2");
    }
}
