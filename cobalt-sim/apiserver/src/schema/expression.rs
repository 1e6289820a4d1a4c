//! CEL expressions over named values of any type: what admission policies are written in.

use cel::{Context, Value as Cel};
use serde_json::Value;

use super::cel::{self as expressions, Compiled, Scope, convert};
use super::node::Node;

/// A compiled expression.
#[derive(Debug)]
pub(crate) struct Expression {
    compiled: Compiled,
    source: String,
}

/// The values an expression can name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Variables(Vec<(&'static str, Cel)>);

impl Variables {
    /// Adds a value.
    pub(crate) fn add(&mut self, name: &'static str, value: &Value) {
        self.0.push((name, convert::any(value)));
    }

    /// Replaces a map by one of results of other expressions.
    pub(crate) fn set_results(&mut self, name: &'static str, results: &[(String, Cel)]) {
        let map = results.iter().map(|(key, value)| (cel::objects::Key::from(key.as_str()), value.clone()));
        let map = Cel::Map(cel::objects::Map { map: std::sync::Arc::new(map.collect()) });
        self.0.retain(|(known, _)| *known != name);
        self.0.push((name, map));
    }
}

impl Expression {
    /// Compiles an expression that may use these names and the functions of this server. The error is the
    /// compiler's report.
    pub(crate) fn compile(source: &str, names: &[&str]) -> Result<Self, String> {
        let node = Node::default();
        let scope = Scope { node: &node, resource: false, optional_old: false, names };
        let compiled = expressions::compile(source, &scope)?;
        Ok(Self { compiled, source: source.trim().to_owned() })
    }

    /// The text it was compiled from.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// Evaluates it. The error says why that failed.
    pub(crate) fn evaluate(&self, variables: &Variables) -> Result<Cel, String> {
        let run = || {
            let known: Vec<(&str, &Cel)> = variables.0.iter().map(|(name, value)| (*name, value)).collect();
            if self.compiled.affordable(&known).is_none() {
                return Err(expressions::TOO_EXPENSIVE.to_owned());
            }
            let mut context = Context::with_env(expressions::env());
            for (name, value) in &variables.0 {
                context.add_variable_from_value(*name, value.clone());
            }
            self.compiled.program.execute(&context).map_err(|error| expressions::describe(&error))
        };
        expressions::on_stack_for(self.compiled.depth, run)
            .unwrap_or_else(|| Err("the interpreter could not be started".to_owned()))
    }

    /// Evaluates a condition.
    pub(crate) fn holds(&self, variables: &Variables) -> Result<bool, String> {
        match self.evaluate(variables)? {
            Cel::Bool(holds) => Ok(holds),
            _ => Err("the expression is not a condition".to_owned()),
        }
    }

    /// Evaluates a text.
    pub(crate) fn text(&self, variables: &Variables) -> Option<String> {
        match self.evaluate(variables) {
            Ok(Cel::String(text)) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
            _ => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_expression_sees_its_variables_and_nothing_else() {
        let mut variables = Variables::default();
        variables.add("object", &json!({"metadata": {"name": "a"}}));
        let expression = Expression::compile("object.metadata.name == 'a'", &["object"]).unwrap();
        assert_eq!(expression.holds(&variables), Ok(true));
        let expression = Expression::compile("object.spec.x == 1", &["object"]).unwrap();
        assert_eq!(expression.holds(&variables), Err("no such key: spec".to_owned()));
        for unknown in ["self.x == 1", "authorizer.allowed()", "oldObject == null"] {
            let report = Expression::compile(unknown, &["object"]).unwrap_err();
            assert!(report.contains("undeclared reference"), "{report}");
        }
    }
}
