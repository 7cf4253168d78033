//! The figures as JSON.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::figures::{Figures, Summary};
use crate::cache;
use crate::failure::Outcome;

/// Writes the file, whole or not at all.
///
/// # Errors
/// When it cannot be written.
pub(super) fn write(path: &Path, figures: &Figures) -> Outcome<()> {
    let value = value(figures);
    cache::replace(path, |file| {
        serde_json::to_writer_pretty(&mut *file, &value)?;
        std::io::Write::write_all(file, b"\n")
    })
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
            for system in figures.systems.iter().map(String::as_str).chain(test.further(figures)) {
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
    json!({ "tests": tests, "geomean": means, "environment": environment(figures) })
}

fn summary(summary: Summary) -> Value {
    json!({ "median": summary.median, "min": summary.min, "max": summary.max })
}

/// The machine that all ran on.
pub(super) fn environment(figures: &Figures) -> Value {
    json!({
        "machine": figures.boot.machine.name(),
        "accelerator": figures.boot.accelerator.name(),
        "cpus": figures.boot.cpus,
        "memory_mib": figures.boot.memory >> 20,
        "runs": figures.runs,
        "systems": figures.systems,
        "host_processors": crate::run::host_processors(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::example;
    use super::*;

    #[test]
    fn values_ratios_and_means_are_there() {
        let value = value(&example());
        let test = &value["tests"][0];
        assert_eq!(test["name"], "getppid");
        assert_eq!(test["starling"]["median"], 50.0);
        assert_eq!(test["linux"]["max"], 100.0);
        assert_eq!(test["ratio"]["min"], 0.4);
        assert_eq!(value["geomean"]["calls"], 1.0);
        assert_eq!(value["environment"]["cpus"], 2);
    }
}
