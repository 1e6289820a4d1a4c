//! Writes inputs of the `request` target: the recorded requests, a few in a file, so that each file tells a story.
//!
//! `cargo run --manifest-path fuzz/Cargo.toml --bin corpus_of_requests fuzz/corpus/request`

use std::path::Path;

use serde_json::Value;

const WIRE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../cobalt-sim/apiserver/tests/wire");
/// Requests in a file.
const TOGETHER: usize = 12;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let target = std::env::args().nth(1).ok_or("usage: corpus_of_requests DIRECTORY")?;
    std::fs::create_dir_all(&target)?;
    for entry in std::fs::read_dir(WIRE)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        let text = std::fs::read_to_string(&path)?;
        let records = text.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
        let requests: Vec<String> = records.iter().filter_map(request).collect();
        for (number, chunk) in requests.chunks(TOGETHER).enumerate() {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            std::fs::write(Path::new(&target).join(format!("{name}-{number}")), chunk.join("\n----\n"))?;
        }
    }
    Ok(())
}

/// A record as the target reads it.
fn request(record: &Value) -> Option<String> {
    let request = &record["request"];
    let (method, path) = (request["method"].as_str()?, request["path"].as_str()?);
    let media = request["headers"]["Content-Type"].as_str().or(request["headers"]["Accept"].as_str());
    let body = match &request["body"] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    Some(format!("{method} {path} {}\n{body}", media.unwrap_or("application/json").replace(' ', "")))
}
