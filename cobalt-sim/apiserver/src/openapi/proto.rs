//! The older document in protobuf, for clients that read nothing else.
//!
//! Only what such clients look at is written: schemas with their extensions, and the operations with their
//! parameters. The field numbers are those of gnostic's `OpenAPIv2.proto`.

use serde_json::{Map, Value};

/// A message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(u8::try_from(number & 0x7f).unwrap_or_default() | 0x80);
            number >>= 7;
        }
        self.0.push(u8::try_from(number).unwrap_or_default());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn text(&mut self, field: u64, value: Option<&Value>) {
        if let Some(text) = value.and_then(Value::as_str) {
            self.bytes(field, text.as_bytes());
        }
    }

    fn flag(&mut self, field: u64, value: bool) {
        self.varint(field << 3);
        self.varint(value.into());
    }

    fn message(&mut self, field: u64, message: &Message) {
        self.bytes(field, &message.0);
    }

    /// A name and a message, which is how the format writes the entry of a map.
    fn entry(&mut self, field: u64, name: &str, value: &Message) {
        let mut entry = Message::default();
        entry.bytes(1, name.as_bytes());
        entry.message(2, value);
        self.message(field, &entry);
    }

    fn extensions(&mut self, field: u64, map: &Map<String, Value>) {
        for (name, value) in map.iter().filter(|(name, _)| name.starts_with("x-")) {
            self.entry(field, name, &any(value));
        }
    }
}

/// JSON is YAML, and YAML is how the format carries what it does not know.
fn any(value: &Value) -> Message {
    let mut any = Message::default();
    any.bytes(2, value.to_string().as_bytes());
    any
}

fn entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// The document as bytes.
pub(super) fn encode(document: &Value) -> Vec<u8> {
    let mut info = Message::default();
    info.text(1, document["info"].get("title"));
    info.text(2, document["info"].get("version"));
    let mut paths = Message::default();
    for (path, item) in entries(&document["paths"]) {
        paths.entry(2, path, &path_item(item));
    }
    let mut definitions = Message::default();
    for (name, definition) in entries(&document["definitions"]) {
        definitions.entry(1, name, &schema(definition));
    }
    let mut message = Message::default();
    message.text(1, document.get("swagger"));
    message.message(2, &info);
    message.message(8, &paths);
    message.message(9, &definitions);
    message.0
}

fn path_item(item: &Value) -> Message {
    let mut message = Message::default();
    for (method, field) in [("get", 2), ("put", 3), ("post", 4), ("delete", 5), ("patch", 8)] {
        let Some(operation) = item.get(method).and_then(Value::as_object) else { continue };
        let mut own = Message::default();
        for parameter in operation.get("parameters").and_then(Value::as_array).into_iter().flatten() {
            let mut query = Message::default();
            query.text(2, parameter.get("in"));
            query.text(4, parameter.get("name"));
            query.text(6, parameter.get("type"));
            // A parameter is one of two things, of which one is one of four.
            let wrapped = [3, 2, 1].into_iter().fold(query, |inner, field| {
                let mut outer = Message::default();
                outer.message(field, &inner);
                outer
            });
            own.message(8, &wrapped);
        }
        own.extensions(13, operation);
        message.message(field, &own);
    }
    message
}

fn schema(schema: &Value) -> Message {
    let mut message = Message::default();
    let Some(map) = schema.as_object() else { return message };
    message.text(1, map.get("$ref"));
    message.text(2, map.get("format"));
    message.text(3, map.get("title"));
    message.text(4, map.get("description"));
    message.text(13, map.get("pattern"));
    for name in map.get("required").and_then(Value::as_array).into_iter().flatten() {
        message.text(19, Some(name));
    }
    for value in map.get("enum").and_then(Value::as_array).into_iter().flatten() {
        message.message(20, &any(value));
    }
    match map.get("additionalProperties") {
        None => {}
        Some(Value::Bool(allowed)) => {
            let mut item = Message::default();
            item.flag(2, *allowed);
            message.message(21, &item);
        }
        Some(other) => {
            let mut item = Message::default();
            item.message(1, &self::schema(other));
            message.message(21, &item);
        }
    }
    if map.contains_key("type") {
        let mut item = Message::default();
        item.text(1, map.get("type"));
        message.message(22, &item);
    }
    if let Some(items) = map.get("items") {
        let mut item = Message::default();
        item.message(1, &self::schema(items));
        message.message(23, &item);
    }
    if map.get("properties").is_some_and(Value::is_object) {
        let mut properties = Message::default();
        for (name, property) in entries(&schema["properties"]) {
            properties.entry(1, name, &self::schema(property));
        }
        message.message(25, &properties);
    }
    message.extensions(31, map);
    message
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_is_written_as_the_format_wants_it() {
        let encoded = schema(&json!({"type": "string", "description": "d", "required": ["a"], "x-k": [1]})).0;
        let expected: &[u8] = &[
            0x22, 1, b'd', // description
            0x9a, 1, 1, b'a', // required
            0xb2, 1, 8, 0x0a, 6, b's', b't', b'r', b'i', b'n', b'g', // type
            0xfa, 1, 12, 0x0a, 3, b'x', b'-', b'k', 0x12, 5, 0x12, 3, b'[', b'1', b']', // extension
        ];
        assert_eq!(encoded, expected);
    }

    #[test]
    fn long_pieces_have_long_lengths() {
        let mut message = Message::default();
        message.bytes(1, &[0; 300]);
        assert_eq!(message.0[..3], [0x0a, 0xac, 0x02]);
    }
}
