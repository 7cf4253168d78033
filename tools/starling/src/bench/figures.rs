//! Values of many runs, and what follows from them.

use std::collections::BTreeMap;

use super::environment::Environment;
use super::system::{Boot, System};
use crate::failure::{Failure, Outcome};
use crate::machine::Accelerator;

/// A value that varies by more than this part of its median is marked.
const MARKED_SPREAD: f64 = 0.15;

/// Everything that was measured.
#[derive(Debug)]
pub(super) struct Figures {
    /// The machine that all ran on.
    pub(super) boot: Boot,
    /// Names of the compared, Starling first.
    pub(super) systems: Vec<String>,
    /// Runs of each.
    pub(super) runs: u32,
    /// Tests in the order in which they were first seen.
    pub(super) tests: Vec<Test>,
    /// What went wrong, a line each: boots that did not come to their end.
    pub(super) failures: Vec<String>,
    /// Where all was measured.
    pub(super) environment: Environment,
    /// The run that values are being taken of.
    run: u32,
}

/// One test.
#[derive(Debug)]
pub(super) struct Test {
    /// Its suite.
    pub(super) suite: String,
    /// Its name.
    pub(super) name: String,
    /// What its values are counted in.
    pub(super) unit: String,
    /// The values of each system by run.
    values: BTreeMap<String, BTreeMap<u32, f64>>,
    /// Why a system does not run it.
    pub(super) unsupported: BTreeMap<String, String>,
}

/// A median and the extremes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Summary {
    /// The middle one of the values, or the mean of the two in the middle.
    pub(super) median: f64,
    /// The smallest.
    pub(super) min: f64,
    /// The largest.
    pub(super) max: f64,
}

impl Summary {
    fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let upper = sorted.len() / 2;
        let median = f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[upper]);
        Some(Self { median, min, max })
    }

    /// How far the extremes are apart, as a part of the median.
    pub(super) fn spread(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.max - self.min) / self.median.abs() }
    }

    /// Whether the spread is so large that the value has to be marked.
    pub(super) fn is_unsteady(&self) -> bool {
        self.spread() > MARKED_SPREAD
    }
}

impl Figures {
    /// Nothing is measured yet.
    pub(super) fn new(boot: Boot, systems: &[System], runs: u32) -> Self {
        let systems = systems.iter().map(|system| system.name.clone()).collect();
        Self {
            boot,
            systems,
            runs,
            tests: Vec::new(),
            failures: Vec::new(),
            environment: Environment::default(),
            run: 0,
        }
    }

    /// What is added from now on belongs to this run. Values of the same run are compared with each other.
    pub(super) const fn begin_run(&mut self, run: u32) {
        self.run = run;
    }

    /// A boot has failed, and how.
    pub(super) fn add_failure(&mut self, line: String) {
        self.failures.push(line);
    }

    /// Takes the lines that the benchmark program printed.
    ///
    /// # Errors
    /// When one of them is none of its lines.
    pub(super) fn add_lines(&mut self, system: &str, lines: &[String]) -> Outcome<()> {
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["bench", suite, test, "unsupported", ..] => {
                    self.add_unsupported(system, suite, test, "", &words[4..].join(" "));
                }
                ["bench", suite, test, unit, value] => {
                    let value = value.parse().map_err(|_| Failure::ours(format!("no number: {line}")))?;
                    self.add(system, suite, test, unit, value);
                }
                ["bench", suite, "failed:", ..] => {
                    self.add_failure(format!("{system}: {suite}: {}", words[3..].join(" ")));
                }
                ["bench", "started" | "done"] => {}
                _ => return Err(Failure::ours(format!("{system}: {line}"))),
            }
        }
        Ok(())
    }

    /// Takes one value.
    pub(super) fn add(&mut self, system: &str, suite: &str, test: &str, unit: &str, value: f64) {
        let (test, unit, value) = match (test, unit, self.boot.accelerator) {
            // The only one of which more is better: what counts is how much of the machine's memory is gone.
            ("memory_free_after_boot", unit, _) => {
                ("memory_used_after_boot", unit, self.memory_kib() - value)
            }
            // The clock's nanosecond is an instruction.
            (test, "ns", Accelerator::Icount) => (test, INSTRUCTIONS, value),
            usual => (usual.0, usual.1, value),
        };
        let run = self.run;
        self.test(suite, test, unit).values.entry(system.into()).or_default().insert(run, value);
    }

    /// A system cannot run a test, and why.
    pub(super) fn add_unsupported(&mut self, system: &str, suite: &str, test: &str, unit: &str, why: &str) {
        self.test(suite, test, unit).unsupported.insert(system.into(), why.into());
    }

    fn test(&mut self, suite: &str, name: &str, unit: &str) -> &mut Test {
        let known = self.tests.iter().position(|test| test.suite == suite && test.name == name);
        let index = known.unwrap_or_else(|| {
            self.tests.push(Test {
                suite: suite.into(),
                name: name.into(),
                unit: unit.into(),
                values: BTreeMap::new(),
                unsupported: BTreeMap::new(),
            });
            self.tests.len() - 1
        });
        let test = &mut self.tests[index];
        if test.unit.is_empty() {
            test.unit = unit.into();
        }
        test
    }

    /// The one that Starling is compared with.
    pub(super) fn opponent(&self) -> Option<&str> {
        self.systems.get(1).map(String::as_str)
    }

    /// Names of the suites in order.
    pub(super) fn suites(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for test in &self.tests {
            if !names.contains(&test.suite.as_str()) {
                names.push(&test.suite);
            }
        }
        names
    }

    /// Starling's value by the opponent's, run by run, of one test.
    pub(super) fn ratio(&self, test: &Test) -> Option<Summary> {
        self.ratio_to(test, self.opponent()?)
    }

    /// Starling's value by another system's, run by run, of one test.
    pub(super) fn ratio_to(&self, test: &Test, other: &str) -> Option<Summary> {
        let (own, other) = (test.values.get(&self.systems[0])?, test.values.get(other)?);
        let ratios = own.iter().filter_map(|(run, own)| Some(own / other.get(run)?));
        Summary::of(ratios.filter(|ratio| ratio.is_finite()))
    }

    /// Systems that ran a suite beside the two that are compared.
    pub(super) fn further(&self, suite: &str) -> Vec<&str> {
        let tests = self.tests.iter().filter(|test| test.suite == suite);
        let names = tests.flat_map(|test| test.values.keys());
        let mut further: Vec<&str> =
            names.filter(|name| !self.systems.contains(name)).map(String::as_str).collect();
        further.sort_unstable();
        further.dedup();
        further
    }

    fn memory_kib(&self) -> f64 {
        (self.boot.memory >> 10) as f64
    }

    /// The geometric mean of a suite's ratios.
    pub(super) fn geometric_mean(&self, suite: &str) -> Option<f64> {
        let tests = self.tests.iter().filter(|test| test.suite == suite);
        let logarithms: Vec<f64> =
            tests.filter_map(|test| Some(self.ratio(test)?.median.max(f64::MIN_POSITIVE).ln())).collect();
        let count = logarithms.len();
        (count > 0).then(|| (logarithms.iter().sum::<f64>() / count as f64).exp())
    }
}

/// The unit of tests under `--icount`.
pub(super) const INSTRUCTIONS: &str = "instructions";

impl Test {
    /// What a system's runs gave.
    pub(super) fn summary(&self, system: &str) -> Option<Summary> {
        Summary::of(self.values.get(system)?.values().copied())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::system::Kind;
    use crate::run::MachineKind;

    /// Two tests of two systems.
    pub(in super::super) fn example() -> Figures {
        let boot =
            Boot { machine: MachineKind::Q35, accelerator: Accelerator::Tcg, cpus: 2, memory: 1 << 30 };
        let system = |name| System::new(name, Kind::Linux, "kernel".into());
        let mut figures = Figures::new(boot, &[system("starling"), system("linux")], 3);
        for (run, (own, other)) in (1..).zip([(50.0, 100.0), (60.0, 100.0), (40.0, 100.0)]) {
            figures.begin_run(run);
            figures.add("starling", "calls", "getppid", "ns", own);
            figures.add("linux", "calls", "getppid", "ns", other);
        }
        for name in ["starling", "linux"] {
            let value = if name == "linux" { "4" } else { "8" };
            let lines = ["bench started".into(), format!("bench calls stat ns {value}"), "bench done".into()];
            figures.add_lines(name, &lines).expect("its lines");
        }
        figures
    }

    #[test]
    fn ratios_are_taken_run_by_run() {
        let figures = example();
        let ratio = figures.ratio(&figures.tests[0]).expect("both ran it");
        assert_eq!(ratio, Summary { median: 0.5, min: 0.4, max: 0.6 });
        assert!(ratio.is_unsteady());
        assert_eq!(figures.ratio(&figures.tests[1]).map(|ratio| ratio.median), Some(2.0));
        assert_eq!(figures.geometric_mean("calls"), Some(1.0));
        assert_eq!(figures.geometric_mean("memory"), None);
    }

    #[test]
    fn median_of_an_even_number_is_between() {
        let summary = Summary::of([4.0, 1.0, 2.0, 3.0]).expect("values");
        assert_eq!(summary, Summary { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(Summary::of([]), None);
    }

    #[test]
    fn what_one_system_does_not_support_has_no_ratio() {
        let mut figures = example();
        let line = "bench calls unix_latency unsupported Function not implemented".to_owned();
        figures.add_lines("starling", &[line]).expect("its line");
        figures.add("linux", "calls", "unix_latency", "ns", 5.0);
        let test = figures.tests.last().expect("it was added");
        assert_eq!(figures.ratio(test), None);
        assert_eq!(test.unsupported["starling"], "Function not implemented");
        assert_eq!(test.unit, "ns");
        assert!(figures.add_lines("linux", &["bench calls lseek ns many".into()]).is_err());
    }

    #[test]
    fn a_run_that_one_system_did_not_finish_is_not_compared() {
        let mut figures = example();
        figures.begin_run(4);
        figures.add("linux", "calls", "getppid", "ns", 1.0);
        let ratio = figures.ratio(&figures.tests[0]).expect("the others count");
        assert_eq!(ratio, Summary { median: 0.5, min: 0.4, max: 0.6 });
    }

    #[test]
    fn free_memory_is_turned_into_used_memory() {
        let mut figures = example();
        figures
            .add_lines("linux", &["bench boot memory_free_after_boot KiB 1000000".into()])
            .expect("its line");
        let test = figures.tests.last().expect("it was added");
        assert_eq!(test.name, "memory_used_after_boot");
        assert_eq!(test.summary("linux").map(|summary| summary.median), Some(48_576.0));
    }

    #[test]
    fn counted_instructions_are_called_so() {
        let mut figures = example();
        figures.boot.accelerator = Accelerator::Icount;
        figures.add("starling", "calls", "lseek", "ns", 300.0);
        assert_eq!(figures.tests.last().map(|test| test.unit.as_str()), Some(INSTRUCTIONS));
    }

    #[test]
    fn suite_that_failed_is_told_and_others_count() {
        let mut figures = example();
        let lines = ["bench files failed: No space left on device".into(), "bench files stat ns 3".into()];
        figures.add_lines("linux", &lines).expect("its lines");
        assert_eq!(figures.failures, ["linux: files: No space left on device"]);
    }
}
