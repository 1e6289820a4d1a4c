//! Glance: images.

use http::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    answer::{Answer, Refusal},
    call::Call,
};

pub(super) const ROUTES: &[&str] = &["GET /image/v2/images", "GET /image/v2/images/{}"];

pub(super) async fn answer(route: &'static str, call: &Call<'_>) -> Result<Answer, Refusal> {
    let images: Vec<(Uuid, String)> = call
        .world(call.api.test_bed.faults(), "image_named", |state| {
            // The newest first, which is Glance's own order too.
            Ok(state.nova.images.iter().rev().map(|image| (image.id, image.name.clone())).collect())
        })
        .await?;
    let mut images = images.into_iter().map(|(id, name)| show(&id.to_string(), &name));
    match route {
        "GET /image/v2/images" => {
            let one_of = |value: &Value, key: &str| {
                let value = value[key].as_str().unwrap_or_default();
                // `in:` makes a list of what follows.
                call.query.get(key).is_none_or(|wanted| match wanted.strip_prefix("in:") {
                    Some(list) => list.split(',').any(|item| item.trim_matches('"') == value),
                    None => wanted == value,
                })
            };
            let meant = |image: &Value| ["id", "name", "status"].iter().all(|key| one_of(image, key));
            let found: Vec<Value> = images.filter(meant).collect();
            Ok(Answer::ok(&json!({"images": found, "first": "/v2/images", "schema": "/v2/schemas/images"})))
        }
        "GET /image/v2/images/{}" => {
            let wanted = call.parameter(0);
            let found = images.find(|image| image["id"] == wanted);
            let missing = || Refusal::missing(format!("No image found with ID {wanted}"));
            Ok(Answer::ok(&found.ok_or_else(missing)?))
        }
        other => Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, other)),
    }
}

fn show(id: &str, name: &str) -> Value {
    json!({
        "id": id, "name": name, "status": "active", "visibility": "public", "protected": false, "os_hidden": false,
        "container_format": "bare", "disk_format": "qcow2", "min_disk": 0, "min_ram": 0, "size": 21_430_272, "tags": [],
        "self": format!("/v2/images/{id}"), "file": format!("/v2/images/{id}/file"), "schema": "/v2/schemas/image",
    })
}
