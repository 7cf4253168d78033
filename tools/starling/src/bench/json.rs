//! The figures as JSON.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::environment;
use super::figures::{Figures, Summary};
use crate::cache;
use crate::failure::Outcome;

/// Writes the file, whole or not at all.
///
/// # Errors
/// When it cannot be written.
pub(super) fn write(path: &Path, figures: &Figures) -> Outcome<()> {
    let value = value(figures);
    cache::publish(path, format!("{value:#}\n").as_bytes())
}

/// All that was measured, and where.
fn value(figures: &Figures) -> Value {
    let tests: Vec<Value> = figures
        .tests
        .iter()
        .map(|test| {
            let mut object = Map::new();
            object.insert("suite".into(), test.suite.clone().into());
            object.insert("name".into(), test.name.clone().into());
            object.insert("unit".into(), test.unit.clone().into());
            for system in figures.systems.iter().map(String::as_str).chain(figures.further(&test.suite)) {
                let value = test.summary(system).map_or(Value::Null, summary);
                object.insert(system.into(), value);
            }
            object.insert("ratio".into(), figures.ratio(test).map_or(Value::Null, summary));
            if !test.unsupported.is_empty() {
                object.insert("unsupported".into(), json!(test.unsupported));
            }
            Value::Object(object)
        })
        .collect();
    let means: Map<String, Value> = figures
        .suites()
        .into_iter()
        .filter_map(|suite| Some((suite.to_owned(), figures.geometric_mean(suite)?.into())))
        .collect();
    json!({ "tests": tests, "geomean": means, "environment": environment::json(figures) })
}

fn summary(summary: Summary) -> Value {
    json!({ "median": summary.median, "min": summary.min, "max": summary.max })
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::example;
    use super::*;

    #[test]
    fn values_ratios_and_means_are_there() {
        let value = value(&example());
        let test = &value["tests"][0];
        assert_eq!(test["suite"], "calls");
        assert_eq!(test["name"], "getppid");
        assert_eq!(test["unit"], "ns");
        assert_eq!(test["starling"]["median"], 50.0);
        assert_eq!(test["linux"]["max"], 100.0);
        assert_eq!(test["ratio"]["min"], 0.4);
        assert_eq!(value["geomean"]["calls"], 1.0);
        assert_eq!(value["environment"]["cpus"], 2);
    }

    #[test]
    fn what_a_system_did_not_run_is_null_with_a_reason() {
        let mut figures = example();
        figures.add_unsupported("linux", "calls", "stack", "cycles", "no such thing");
        let value = value(&figures);
        let test = &value["tests"][2];
        assert!(test["linux"].is_null() && test["ratio"].is_null());
        assert_eq!(test["unsupported"]["linux"], "no such thing");
    }
}
