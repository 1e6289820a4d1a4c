//! `cargo xtask bench`: runs the programs of `cobalt-benches`, which print one figure per line, and its criterion
//! benches, whose times become figures here.

use std::collections::BTreeMap;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::cli::BenchArguments;
use crate::workspace::{self, cargo};

const PACKAGE: &str = "cobalt-benches";

pub(crate) fn run(arguments: &BenchArguments) -> Result<ExitCode> {
    let benches = benches(&workspace::metadata()?);
    if arguments.list {
        for name in benches.keys() {
            println!("{name}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = |name: &String| arguments.name.as_ref().is_none_or(|only| only == name);
    if let (Some(name), false) = (&arguments.name, benches.keys().any(wanted)) {
        let known: Vec<&str> = benches.keys().map(String::as_str).collect();
        bail!("there is no bench {name}; there are: {}", known.join(", "));
    }
    if arguments.name.is_none() {
        eprintln!("== all of them, in release builds: many minutes; name one to run only that (--list shows them)");
    }
    let mut figures = Vec::new();
    for (name, kind) in benches.iter().filter(|(name, _)| wanted(name)) {
        // Progress goes to the standard error: with --json the standard output is for figures alone.
        eprintln!("== {name}");
        for figure in measure(name, *kind)? {
            if arguments.json {
                println!("{}", figure.to_json());
            }
            figures.push(figure);
        }
    }
    if !arguments.json {
        print!("{}", table(&figures));
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A program that prints figures.
    Program,
    /// A criterion bench.
    Criterion,
}

/// Everything of the benches package that measures, in alphabetical order.
fn benches(metadata: &Value) -> BTreeMap<String, Kind> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let package = packages.into_iter().find(|package| package["name"] == PACKAGE && package["source"].is_null());
    let targets = package.and_then(|package| package["targets"].as_array()).into_iter().flatten();
    let bench = |target: &Value| {
        let kind = match target["kind"][0].as_str()? {
            "bin" => Kind::Program,
            "bench" => Kind::Criterion,
            _ => return None,
        };
        Some((target["name"].as_str()?.to_owned(), kind))
    };
    targets.filter_map(bench).collect()
}

fn measure(name: &str, kind: Kind) -> Result<Vec<Figure>> {
    match kind {
        Kind::Program => {
            let text = output_of(name, cargo(["run", "--quiet", "--release", "--package", PACKAGE, "--bin", name]))?;
            let lines = text.lines().filter(|line| !line.trim().is_empty());
            lines.map(|line| Figure::parse(line).with_context(|| format!("bench {name} printed `{line}`"))).collect()
        }
        Kind::Criterion => {
            let mut command = cargo(["bench", "--quiet", "--package", PACKAGE, "--bench", name, "--"]);
            command.args(["--output-format", "bencher"]);
            let text = output_of(name, command)?;
            let figures: Vec<Figure> = text.lines().filter_map(|line| Figure::of_criterion(name, line)).collect();
            if figures.is_empty() {
                bail!("bench {name} printed no time");
            }
            Ok(figures)
        }
    }
}

fn output_of(name: &str, mut command: Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("bench {name} failed ({})", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("bench {name} printed something that is no text"))
}

/// One measured number.
#[derive(Debug, PartialEq)]
struct Figure {
    name: String,
    value: f64,
    unit: String,
    /// The peer or the bound it is compared with, if there is one.
    against: Option<String>,
    /// Peer divided by ours; none where ours is zero.
    ratio: Option<f64>,
}

impl Figure {
    fn parse(line: &str) -> Result<Figure> {
        let value: Value = serde_json::from_str(line).context("a figure is one JSON object per line")?;
        let object = value.as_object().context("a figure is a JSON object")?;
        if let Some(other) =
            object.keys().find(|key| !["name", "value", "unit", "against", "ratio"].contains(&key.as_str()))
        {
            bail!("a figure has no `{other}`");
        }
        let field = |key: &str| object.get(key).with_context(|| format!("a figure has `{key}`"));
        let text = |key: &str| {
            let text = field(key)?.as_str().filter(|text| !text.is_empty());
            text.map(str::to_owned).with_context(|| format!("`{key}` is a text"))
        };
        let number = |key: &str| field(key)?.as_f64().with_context(|| format!("`{key}` is a number"));
        let given = |key: &str| Ok::<_, anyhow::Error>(!field(key)?.is_null());
        let against = given("against")?.then(|| text("against")).transpose()?;
        let ratio = given("ratio")?.then(|| number("ratio")).transpose()?;
        if ratio.is_some() && against.is_none() {
            bail!("a `ratio` is against something");
        }
        Ok(Figure { name: text("name")?, value: number("value")?, unit: text("unit")?, against, ratio })
    }

    /// Reads a line such as `test decide and bodies ... bench:      12,345 ns/iter (+/- 67)`.
    fn of_criterion(bench: &str, line: &str) -> Option<Figure> {
        let (name, rest) = line.strip_prefix("test ")?.split_once(" ... bench:")?;
        let (value, _) = rest.trim_start().split_once(" ns/iter")?;
        let value = value.replace(',', "").parse().ok()?;
        let name = format!("{bench}.{}", name.trim().replace([' ', '/'], "_"));
        Some(Figure { name, value, unit: "ns".to_owned(), against: None, ratio: None })
    }

    fn to_json(&self) -> String {
        let Figure { name, value, unit, against, ratio } = self;
        json!({"name": name, "value": value, "unit": unit, "against": against, "ratio": ratio}).to_string()
    }
}

fn table(figures: &[Figure]) -> String {
    let width = figures.iter().map(|figure| figure.name.len()).max().unwrap_or(0);
    let row = |figure: &Figure| {
        let comparison = match (&figure.against, figure.ratio) {
            (Some(against), Some(ratio)) => format!("  {ratio:.2} × against {against}"),
            (Some(against), None) => format!("  against {against}"),
            (None, _) => String::new(),
        };
        format!("{:<width$}  {:>14.3} {}{comparison}\n", figure.name, figure.value, figure.unit)
    };
    figures.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_exactly_the_five_fields() {
        let full = r#"{"name":"list","value":1.5,"unit":"ms","against":"kubectl","ratio":3.0}"#;
        let figure = Figure::parse(full).expect("a figure");
        assert_eq!(figure.ratio, Some(3.0));
        let zero = r#"{"name":"writes","value":0,"unit":"","against":"a promise","ratio":null}"#;
        assert!(Figure::parse(zero).is_err(), "a unit is a text");
        let zero = zero.replace(r#""unit":"""#, r#""unit":"writes""#);
        assert_eq!(Figure::parse(&zero).expect("a figure").ratio, None);
        let alone = r#"{"name":"rss","value":12,"unit":"MiB","against":null,"ratio":null}"#;
        assert_eq!(Figure::parse(alone).expect("a figure").against, None);
        for bad in [
            "not json",
            "[]",
            r#"{"name":"x","value":"1","unit":"ms","against":null,"ratio":null}"#,
            r#"{"name":"x","value":1,"unit":"ms"}"#,
            r#"{"name":"x","value":1,"unit":"ms","against":null,"ratio":2}"#,
            r#"{"name":"x","value":1,"unit":"ms","against":null,"ratio":null,"note":"n"}"#,
            r#"{"name":"","value":1,"unit":"ms","against":null,"ratio":null}"#,
        ] {
            assert!(Figure::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_benches_are_the_programs_and_the_criterion_benches_of_the_package() {
        let metadata = json!({"packages": [
            {"name": "other", "source": null, "targets": [{"name": "no", "kind": ["bin"]}]},
            {"name": "cobalt-benches", "source": null, "targets": [
                {"name": "cobalt_benches", "kind": ["lib"]},
                {"name": "watch", "kind": ["bin"]},
                {"name": "apply", "kind": ["bench"]},
            ]},
        ]});
        let expected = [("apply".to_owned(), Kind::Criterion), ("watch".to_owned(), Kind::Program)];
        assert_eq!(benches(&metadata), expected.into());
    }

    #[test]
    fn a_time_of_criterion_becomes_a_figure() {
        let line = "test decide and bodies ... bench:      12,345 ns/iter (+/- 67)";
        let figure = Figure::of_criterion("decide", line).expect("a figure");
        assert_eq!((figure.name.as_str(), figure.value), ("decide.decide_and_bodies", 12_345.0));
        assert_eq!(Figure::parse(&figure.to_json()).expect("a figure"), figure);
        assert_eq!(Figure::of_criterion("decide", "running 2 tests"), None);
    }

    #[test]
    fn the_table_shows_the_comparison() {
        let figure = Figure {
            name: "list".into(),
            value: 1.5,
            unit: "ms".into(),
            against: Some("kubectl".into()),
            ratio: Some(3.0),
        };
        assert_eq!(table(&[figure]), "list           1.500 ms  3.00 × against kubectl\n");
    }
}
