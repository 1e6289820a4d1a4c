//! A controller as users write them.

use std::sync::Arc;
use std::time::Duration;

use cobalt_apiserver::{ApiServer, Verb};
use futures::StreamExt;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::watcher;
use kube::{Api, Client, CustomResource, CustomResourceExt, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::support::{client, soon};

#[derive(CustomResource, Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[kube(group = "t.example.com", version = "v1", kind = "Widget", namespaced, status = "WidgetStatus")]
struct WidgetSpec {
    size: u32,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
struct WidgetStatus {
    doubled: u32,
}

async fn reconcile(widget: Arc<Widget>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let api: Api<Widget> = Api::default_namespaced(client.as_ref().clone());
    let status = json!({
        "apiVersion": "t.example.com/v1", "kind": "Widget",
        "status": {"doubled": widget.spec.size * 2},
    });
    let params = PatchParams::apply("doubler").force();
    api.patch_status(&widget.name_any(), &params, &Patch::Apply(&status)).await?;
    Ok(Action::await_change())
}

#[tokio::test]
async fn a_controller_brings_two_hundred_objects_to_their_state_and_then_rests() {
    let server = ApiServer::start();
    let definitions = Api::all(client(&server, "setup"));
    definitions.create(&PostParams::default(), &Widget::crd()).await.unwrap();
    server.settle().await;
    let widgets: Api<Widget> = Api::default_namespaced(client(&server, "setup"));
    for i in 0..200 {
        let widget = Widget::new(&format!("w{i}"), WidgetSpec { size: i });
        widgets.create(&PostParams::default(), &widget).await.unwrap();
    }
    let own = client(&server, "controller");
    let controller = Controller::new(Api::<Widget>::default_namespaced(own.clone()), watcher::Config::default()).run(
        reconcile,
        |_, _, _| Action::requeue(Duration::from_secs(1)),
        Arc::new(own),
    );
    let task = tokio::spawn(controller.for_each(|_| async {}));
    let done = |list: &[Widget]| {
        list.len() == 200 && list.iter().all(|w| w.status.as_ref().is_some_and(|s| s.doubled == w.spec.size * 2))
    };
    soon("all statuses", async {
        while !done(&widgets.list(&ListParams::default()).await.unwrap().items) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    // Each object was written once; the controller's own events ended in patches that changed nothing.
    let patches = server.counters().sum(|k| k.client == "controller" && k.verb == Verb::Patch);
    assert_eq!(patches.writes, 200);
    task.abort();
}
