//! CEL as Kubernetes speaks it: which functions exist, how values convert, what is refused before it runs.

mod check;
pub(super) mod convert;
pub(super) mod cost;
mod functions;
mod types;

use std::sync::{Arc, LazyLock};

use cel::{Env, ExecutionError, Program, extensions};

pub(super) use self::check::Scope;

static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    // The names do not clash, which the tests of this module show; an extension that could not be added would
    // leave its functions unknown, and rules that use them refused.
    let added = [
        env.add_extension(extensions::strings),
        env.add_extension(extensions::lists),
        env.add_extension(extensions::math),
        env.add_extension(functions::extension),
    ];
    debug_assert!(added.iter().all(Result::is_ok), "{added:?}");
    Arc::new(env)
});

/// The environment all rules share.
pub(super) fn env() -> Arc<Env> {
    Arc::clone(&ENV)
}

/// A compiled expression and what is known of it.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) program: Program,
    /// It looks at `oldSelf`.
    pub(super) uses_old: bool,
    /// It cannot be a rule.
    pub(super) no_bool: bool,
    /// How deep it nests: the interpreter recurses, with large frames.
    pub(super) depth: usize,
    /// The most it can cost on values of its schema.
    pub(super) cost: u64,
}

/// The most that one evaluation may cost.
const CALL_LIMIT: u64 = 1_000_000;

impl Compiled {
    /// What an evaluation with these variables costs at most; `None` if that is too much to begin.
    pub(super) fn affordable(&self, variables: &[(&str, &cel::Value)]) -> Option<u64> {
        let known = variables.iter().map(|(name, value)| (*name, cost::Known::Values(vec![value]))).collect();
        Some(cost::estimate(self.program.expression(), known)).filter(|cost| *cost <= CALL_LIMIT)
    }
}

/// What cel-go says of an evaluation that costs too much.
pub(super) const TOO_EXPENSIVE: &str = "operation cancelled: actual cost limit exceeded";

/// The longest expression that is looked at.
const MAX_LENGTH: usize = 16 * 1024;
/// The deepest expression that is accepted.
const MAX_DEPTH: usize = 200;
/// Up to this depth an expression runs on the stack of its caller.
const SHALLOW: usize = 12;
/// Room for the parser and the interpreter at the limits above, in unoptimised builds too.
const DEEP_STACK: usize = 128 * 1024 * 1024;

/// Compiles an expression. The error is the compiler's report.
pub(super) fn compile(source: &str, scope: &Scope<'_>) -> Result<Compiled, String> {
    if source.len() > MAX_LENGTH {
        return Err(format!("ERROR: <input>:1:1: expression is longer than {MAX_LENGTH} bytes"));
    }
    // The parser needs tens of kilobytes of stack for each level of nesting.
    on_deep_stack(|| {
        let program = ENV.compile(source).map_err(|errors| report(&errors.to_string()))?;
        let findings = check::check(&program, source, scope)?;
        if findings.depth > MAX_DEPTH {
            return Err(format!("ERROR: <input>:1:1: expression recursion limit exceeded: {MAX_DEPTH}"));
        }
        let known = ["self", "oldSelf"].map(|name| (name, cost::Known::Schema(scope.node)));
        let cost = cost::estimate(program.expression(), known.into());
        Ok(Compiled { program, uses_old: findings.uses_old, no_bool: findings.no_bool, depth: findings.depth, cost })
    })
    .unwrap_or_else(|| Err("ERROR: <input>:1:1: the compiler could not be started".to_owned()))
}

/// A report of the parser as cel-go lays it out.
fn report(errors: &str) -> String {
    errors.replace("\n| ", "\n | ")
}

/// Runs `work` with a stack that suits expressions of this depth; `None` when there is no memory for it.
pub(super) fn on_stack_for<T: Send>(depth: usize, work: impl FnOnce() -> T + Send) -> Option<T> {
    if depth <= SHALLOW { Some(work()) } else { on_deep_stack(work) }
}

fn on_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(DEEP_STACK).spawn_scoped(scope, work).ok()?;
        thread.join().ok()
    })
}

/// Whether a source contains a name as a whole word.
pub(super) fn mentions(source: &str, name: &str) -> bool {
    source.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
}

/// A run-time failure in the words of cel-go.
pub(super) fn describe(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::IndexOutOfBounds(index) => format!("index out of bounds: {}", convert::shown(index)),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod cost_tests;
#[cfg(test)]
mod tests;
