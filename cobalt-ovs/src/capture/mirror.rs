//! A copy of a port's packets on a port that has a device.
//!
//! A port of DPDK or vhost-user has no device to listen on. The switch then copies what passes there to an internal port
//! of the same bridge, made for this and removed with it. All of it is rows of the configuration database; these are the
//! operations for one transaction each, for whoever holds the connection:
//!
//! 1. at the start of the program, and before each capture: [`find`] what an earlier run left behind, [`remove`] it;
//! 2. [`start`], and wait for the device named in it; [`bring_up`](super::bring_up) the device and capture on it;
//! 3. [`find`] and [`remove`] again, however the capture ended;
//! 4. now and then: [`remove`] what [`is_over`], whoever made it.
//!
//! What is ours is told by [`TAG`] in `external_ids`, so that a crash between the steps leaves nothing that the next run
//! would not recognize. A mirror or a port without it is never touched. A program that is killed may have no next run;
//! so each mirror says by [`UNTIL`] when its capture is over, and from then on any program may remove it.

use jiff::Timestamp;
use serde_json::{Value, json};

/// The key in `external_ids` of every row made here. Its value says who made it.
pub const TAG: &str = "cobalt-capture";
/// The key of the moment when the capture is over, in seconds since 1970.
pub const UNTIL: &str = "cobalt-capture-until";

/// A mirror to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mirror<'a> {
    /// The bridge's name.
    pub bridge: &'a str,
    /// The mirrored port's name, for people who look at the database meanwhile.
    pub port: &'a str,
    /// The mirrored port's row.
    pub port_uuid: &'a str,
    /// Who makes it: the value of [`TAG`]. Programs with different values do not remove each other's before its time.
    pub owner: &'a str,
    /// When its capture is certainly over.
    pub until: Timestamp,
    /// Told apart from other mirrors of the same owner by this number.
    pub number: u32,
}

impl Mirror<'_> {
    /// The internal port, and its device: at most 15 bytes.
    pub fn device(&self) -> String {
        format!("cobalt{:08x}", self.number)
    }
}

fn tag(mirror: &Mirror<'_>) -> Value {
    let until = mirror.until.as_second().to_string();
    json!(["map", [[TAG, mirror.owner], [UNTIL, until], ["cobalt-capture-port", mirror.port]]])
}

/// Whether a row is ours and its capture is over, by its [`TAG`] and its [`UNTIL`]. One of ours without a moment that can
/// be read is, too: it would stay for ever, and each packet be copied.
pub fn is_over(tag: Option<&str>, until: Option<&str>, now: Timestamp) -> bool {
    let until = until.and_then(|until| until.parse::<i64>().ok());
    tag.is_some() && until.is_none_or(|until| until < now.as_second())
}

/// The operations that make the mirror. They fail, and change nothing, if the mirrored port is not there any more.
///
/// ```
/// use cobalt_core::jiff::{SignedDuration, Timestamp};
/// use cobalt_ovs::capture::mirror::{Mirror, start};
///
/// let mirror = Mirror {
///     bridge: "br-int",
///     port: "vhu0",
///     port_uuid: "25f3b329-8895-45e1-85ba-873ca3de001d",
///     owner: "cobalt-ovs-agent",
///     until: Timestamp::now() + SignedDuration::from_secs(60),
///     number: 7,
/// };
/// let operations = start(&mirror);
/// assert_eq!(mirror.device(), "cobalt00000007");
/// assert!(operations.iter().all(|operation| operation["op"].is_string()));
/// ```
pub fn start(mirror: &Mirror<'_>) -> Vec<Value> {
    let device = mirror.device();
    let external_ids = tag(mirror);
    let mirrored = json!(["uuid", mirror.port_uuid]);
    vec![
        json!({
            "op": "wait", "table": "Port", "where": [["_uuid", "==", mirrored]], "columns": ["name"],
            "until": "==", "rows": [{"name": mirror.port}], "timeout": 0,
        }),
        json!({
            "op": "insert", "table": "Interface", "uuid-name": "capture_interface",
            "row": {"name": device, "type": "internal", "external_ids": external_ids},
        }),
        json!({
            "op": "insert", "table": "Port", "uuid-name": "capture_port",
            "row": {"name": device, "interfaces": ["named-uuid", "capture_interface"], "external_ids": external_ids},
        }),
        json!({
            "op": "insert", "table": "Mirror", "uuid-name": "capture_mirror",
            "row": {
                "name": device, "select_src_port": mirrored, "select_dst_port": mirrored,
                "output_port": ["named-uuid", "capture_port"], "external_ids": external_ids,
            },
        }),
        json!({
            "op": "mutate", "table": "Bridge", "where": [["name", "==", mirror.bridge]],
            "mutations": [
                ["ports", "insert", ["named-uuid", "capture_port"]],
                ["mirrors", "insert", ["named-uuid", "capture_mirror"]],
            ],
        }),
        reconfigure(),
    ]
}

/// So that somebody who waits for the switch to take up a change waits for this one, too.
fn reconfigure() -> Value {
    json!({"op": "mutate", "table": "Open_vSwitch", "where": [], "mutations": [["next_cfg", "+=", 1]]})
}

/// The operations that find what `owner` has made: mirrors first, then ports.
pub fn find(owner: &str) -> Vec<Value> {
    ["Mirror", "Port"].iter().map(|table| ours(table, owner)).collect()
}

fn ours(table: &str, owner: &str) -> Value {
    json!({
        "op": "select", "table": table, "columns": ["_uuid"],
        "where": [["external_ids", "includes", ["map", [[TAG, owner]]]]],
    })
}

/// What [`find`] found, from the results of its transaction; nothing in what is no such result.
pub fn found(results: &[Value]) -> Found {
    let rows = |index: usize| {
        let rows = results.get(index).and_then(|result| result["rows"].as_array());
        let uuid = |row: &Value| row["_uuid"].get(1)?.as_str().map(str::to_owned);
        rows.into_iter().flatten().filter_map(uuid).collect()
    };
    Found { mirrors: rows(0), ports: rows(1) }
}

/// Rows that are ours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Of the table `Mirror`.
    pub mirrors: Vec<String>,
    /// Of the table `Port`.
    pub ports: Vec<String>,
}

impl Found {
    /// Whether there is nothing to remove.
    pub fn is_empty(&self) -> bool {
        self.mirrors.is_empty() && self.ports.is_empty()
    }
}

/// The operations that remove it from whatever bridges it is in: the database drops rows that nobody refers to. `None`
/// if there is nothing to do, so that nothing is written.
pub fn remove(found: &Found) -> Option<Vec<Value>> {
    if found.is_empty() {
        return None;
    }
    let set = |uuids: &[String]| json!(["set", uuids.iter().map(|uuid| json!(["uuid", uuid])).collect::<Vec<_>>()]);
    let mutations = json!([["mirrors", "delete", set(&found.mirrors)], ["ports", "delete", set(&found.ports)]]);
    Some(vec![json!({"op": "mutate", "table": "Bridge", "where": [], "mutations": mutations}), reconfigure()])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_device_fits_the_kernel() {
        let mirror =
            Mirror { bridge: "b", port: "p", port_uuid: "u", owner: "o", until: Timestamp::MAX, number: u32::MAX };
        assert!(mirror.device().len() <= 15);
    }

    #[test]
    fn every_row_that_is_made_carries_the_tag_and_its_time() {
        let until = Timestamp::from_second(1_800_000_000).unwrap();
        let mirror = Mirror { bridge: "br-int", port: "vhu0", port_uuid: "u", owner: "agent", until, number: 1 };
        let inserted: Vec<_> = start(&mirror).into_iter().filter(|operation| operation["op"] == "insert").collect();
        assert_eq!(inserted.len(), 3);
        for operation in inserted {
            assert_eq!(operation["row"]["external_ids"][1][0], json!([TAG, "agent"]), "{operation}");
            assert_eq!(operation["row"]["external_ids"][1][1], json!([UNTIL, "1800000000"]), "{operation}");
        }
    }

    #[test]
    fn ours_is_over_after_its_time_or_without_one_and_others_never_are() {
        let now = Timestamp::from_second(1000).unwrap();
        for (tag, until, over) in [
            (Some("anybody"), Some("1000"), false),
            (Some("anybody"), Some("999"), true),
            (Some("anybody"), Some("soon"), true),
            (Some("anybody"), None, true),
            (None, Some("1"), false),
            (None, None, false),
        ] {
            assert_eq!(is_over(tag, until, now), over, "{tag:?} {until:?}");
        }
    }

    #[test]
    fn what_is_found_is_removed_and_nothing_else() {
        let results = [
            json!({"rows": [{"_uuid": ["uuid", "m1"]}]}),
            json!({"rows": [{"_uuid": ["uuid", "p1"]}, {"_uuid": ["uuid", "p2"]}, {"odd": 1}]}),
        ];
        let found = found(&results);
        assert_eq!(found, Found { mirrors: vec!["m1".into()], ports: vec!["p1".into(), "p2".into()] });
        let operations = remove(&found).unwrap();
        assert_eq!(operations[0]["mutations"][1][2], json!(["set", [["uuid", "p1"], ["uuid", "p2"]]]));
        assert_eq!(operations[0]["op"], "mutate");
    }

    #[test]
    fn where_nothing_is_found_nothing_is_written() {
        assert_eq!(remove(&found(&[])), None);
        assert_eq!(remove(&found(&[json!({"error": "no"}), json!(null)])), None);
    }
}
