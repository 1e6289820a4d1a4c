//! Columns of custom resources, from the `additionalPrinterColumns` of their definition.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
use super::builtin::{CREATED, NAME};
use super::jsonpath::Path;

/// The printer columns of one version of a definition.
#[derive(Debug, Clone)]
pub(crate) struct Printer(Vec<Column>);

#[derive(Debug, Clone)]
struct Column {
    definition: Value,
    kind: Kind,
    /// Absent if the text is no path; such a column stays empty.
    path: Option<Path>,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Text,
    Integer,
    Number,
    Boolean,
    Date,
    Other,
}

impl Printer {
    /// Reads the columns of a version of a definition; without any, objects have an age.
    pub(crate) fn new(version: &Value) -> Self {
        match version["additionalPrinterColumns"].as_array() {
            Some(columns) if !columns.is_empty() => Self(columns.iter().map(Column::new).collect()),
            _ => Self(vec![Column::new(&json!({
                "name": "Age",
                "type": "date",
                "description": CREATED,
                "jsonPath": ".metadata.creationTimestamp",
            }))]),
        }
    }

    /// The column definitions; the name always comes first.
    pub(super) fn definitions(&self) -> Vec<Value> {
        let name = json!({"name": "Name", "type": "string", "format": "name", "description": NAME, "priority": 0});
        std::iter::once(name).chain(self.0.iter().map(|column| column.definition.clone())).collect()
    }

    /// The cells of an object; what it does not have is null.
    pub(super) fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        std::iter::once(name.into()).chain(self.0.iter().map(|column| column.cell(object, now))).collect()
    }
}

impl Column {
    fn new(column: &Value) -> Self {
        let text = |field: &str| column[field].as_str().unwrap_or_default();
        let path = text("jsonPath");
        let description = match text("description") {
            "" => format!("Custom resource definition column (in JSONPath format): {path}"),
            own => own.to_owned(),
        };
        let kind = match text("type") {
            "string" => Kind::Text,
            "integer" => Kind::Integer,
            "number" => Kind::Number,
            "boolean" => Kind::Boolean,
            "date" => Kind::Date,
            _ => Kind::Other,
        };
        let definition = json!({
            "name": text("name"),
            "type": text("type"),
            "format": text("format"),
            "description": description,
            "priority": column["priority"].as_i64().unwrap_or(0),
        });
        Self { definition, kind, path: Path::parse(path) }
    }

    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let Some(found) = self.path.as_ref().and_then(|path| path.first(object)) else {
            return Value::Null;
        };
        match self.kind {
            Kind::Text => match found {
                Value::String(text) => text.as_str().into(),
                Value::Null => "<no value>".into(),
                other => other.to_string().into(),
            },
            #[allow(clippy::cast_possible_truncation)]
            Kind::Integer => match (found.as_i64(), found.as_f64()) {
                (Some(whole), _) => whole.into(),
                // A cast from float saturates, as it must here.
                (None, Some(float)) => (float as i64).into(),
                _ => Value::Null,
            },
            Kind::Number => found.as_number().map_or(Value::Null, |n| n.clone().into()),
            Kind::Boolean => found.as_bool().map_or(Value::Null, Value::from),
            Kind::Date => found.as_str().map_or(Value::Null, |text| age::since(Some(text), now).into()),
            Kind::Other => Value::Null,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_another_type_than_its_column_is_left_out() {
        let printer = Printer::new(&json!({"additionalPrinterColumns": [
            {"name": "I", "type": "integer", "jsonPath": ".v"},
            {"name": "B", "type": "boolean", "jsonPath": ".v"},
            {"name": "S", "type": "string", "jsonPath": ".v"},
            {"name": "D", "type": "date", "jsonPath": ".v"},
            {"name": "broken", "type": "string", "jsonPath": "[["},
        ]}));
        let now = Timestamp::UNIX_EPOCH;
        let cells = |v: Value| printer.cells(&json!({"metadata": {"name": "x"}, "v": v}), now);
        assert_eq!(cells(json!(2.9)), [json!("x"), json!(2), json!(null), json!("2.9"), json!(null), json!(null)]);
        assert_eq!(cells(json!(true))[1..4], [json!(null), json!(true), json!("true")]);
        assert_eq!(cells(json!(["a"]))[3], json!("[\"a\"]"));
        assert_eq!(cells(json!("never"))[4], json!("<invalid>"));
    }

    #[test]
    fn without_columns_there_is_the_age() {
        let printer = Printer::new(&json!({}));
        let object = json!({"metadata": {"name": "x", "creationTimestamp": "1970-01-01T00:00:00Z"}});
        assert_eq!(printer.cells(&object, Timestamp::UNIX_EPOCH), [json!("x"), json!("0s")]);
    }
}
