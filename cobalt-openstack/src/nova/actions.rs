//! What is done to one server, as bodies.

use cobalt_core::{
    Error as Seam, Result,
    ids::{HostName, InstanceId},
    nova::{BlockMigration, NewServer, NewVolume},
};
use http::Method;
use serde_json::{Value, json};

use super::{Nova, segment};
use crate::session::Call;

/// An action on a server.
pub(super) fn call(name: &'static str, operation: String, id: &InstanceId, body: Value, version: &'static str) -> Call {
    let path = format!("/servers/{}/action", segment(id.as_str()));
    let mut call = Nova::call(name, operation, Method::POST, path, version);
    call.body = Some(body);
    call
}

pub(super) fn live_migration(target: Option<&HostName>, block: BlockMigration) -> Value {
    let block = match block {
        BlockMigration::Auto => json!("auto"),
        BlockMigration::Yes => json!(true),
        BlockMigration::No => json!(false),
    };
    json!({"os-migrateLive": {"host": target.map(HostName::as_str), "block_migration": block}})
}

pub(super) fn new_server(server: &NewServer) -> Value {
    let networks = server.network.as_ref().map_or_else(|| json!("none"), |network| json!([{"uuid": network}]));
    let mut body = json!({"name": server.name, "flavorRef": server.flavor, "networks": networks});
    if let Some(zone) = &server.availability_zone {
        body["availability_zone"] = zone.as_str().into();
    }
    match &server.volume {
        None => body["imageRef"] = server.image.as_str().into(),
        Some(NewVolume { size_gb, kind }) => {
            let mut disk = json!({
                "boot_index": 0, "uuid": server.image, "source_type": "image", "destination_type": "volume",
                "volume_size": size_gb, "delete_on_termination": true,
            });
            if let Some(kind) = kind {
                disk["volume_type"] = kind.as_str().into();
            }
            body["block_device_mapping_v2"] = json!([disk]);
        }
    }
    json!({"server": body})
}

/// Nova answers 400 for a migration that is not running and for a host that is not cleaned up yet: states, not mistakes,
/// and they may have been different when the caller looked.
pub(super) fn a_state_is_a_conflict<T>(answer: Result<T>) -> Result<T> {
    match answer {
        Err(Seam::Refused { operation, reason, cause }) => Err(Seam::Conflict { operation, reason, cause }),
        other => other,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_server_boots_from_its_image_or_from_a_new_volume() {
        let mut server = NewServer {
            name: "smoke".into(),
            flavor: "1".into(),
            image: "i".into(),
            network: None,
            availability_zone: Some("nova:hv-1".into()),
            volume: None,
        };
        let body = new_server(&server);
        assert_eq!(body["server"]["imageRef"], "i");
        assert_eq!(body["server"]["networks"], "none");
        assert_eq!(body["server"]["availability_zone"], "nova:hv-1");
        server.volume = Some(NewVolume { size_gb: 64, kind: Some("premium".into()) });
        server.network = Some("n".into());
        let body = new_server(&server);
        assert!(body["server"].get("imageRef").is_none());
        let disk = &body["server"]["block_device_mapping_v2"][0];
        assert_eq!((disk["volume_size"].as_u64(), disk["volume_type"].as_str()), (Some(64), Some("premium")));
        assert_eq!(body["server"]["networks"][0]["uuid"], "n");
    }

    #[test]
    fn the_host_of_a_live_migration_is_named_or_null() {
        assert_eq!(
            live_migration(None, BlockMigration::Auto),
            json!({"os-migrateLive": {"host": null, "block_migration": "auto"}})
        );
        let host = HostName::from("hv-1.example");
        assert_eq!(
            live_migration(Some(&host), BlockMigration::No),
            json!({"os-migrateLive": {"host": "hv-1.example", "block_migration": false}})
        );
    }
}
