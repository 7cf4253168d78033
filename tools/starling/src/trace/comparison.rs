//! The same pairs of calls on several kernels, in numbers that do not depend on how busy the host is.
//!
//! Two numbers for each pair: cache lines that one side writes and the other one touches, and atomic read-modify-writes of a call.
//! Both are the median over the rounds, so that an interrupt in a few of them, or a batch that is fetched for many calls, counts for nothing.

use std::fmt::Write as _;

use super::conflict;
use super::window::Window;

/// What a pair came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    lines: u64,
    atomics: u64,
}

/// What one kernel did.
#[derive(Clone, Debug)]
pub(super) struct Column {
    name: String,
    pairs: Vec<(String, Counts)>,
}

impl Column {
    /// A kernel by its name.
    pub(super) fn new(name: String) -> Self {
        Self { name, pairs: Vec::new() }
    }

    /// A pair and its rounds.
    pub(super) fn add(&mut self, pair: &str, rounds: &[[&Window; 2]]) {
        let lines = rounds.iter().map(|round| conflict::lines(round) as u64);
        let atomics = rounds.iter().flatten().map(|window| window.atomics());
        let counts = Counts { lines: median(lines.collect()), atomics: median(atomics.collect()) };
        self.pairs.push((pair.to_owned(), counts));
    }

    fn counts(&self, pair: &str) -> Option<Counts> {
        self.pairs.iter().find(|(name, _)| name == pair).map(|(_, counts)| *counts)
    }
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

/// All as a table in Markdown: the pairs of the last kernel, and the sums of those that all have made.
pub(super) fn table(columns: &[Column]) -> String {
    let mut out = String::from("| pair |");
    for what in ["shared lines", "atomics"] {
        columns.iter().for_each(|column| _ = write!(out, " {what}, {} |", column.name));
    }
    let _ = write!(out, "\n|---|{}\n", "---:|".repeat(2 * columns.len()));
    let mut sums = vec![Counts { lines: 0, atomics: 0 }; columns.len()];
    for (pair, _) in columns.last().map_or(&[][..], |column| &column.pairs) {
        let counts: Vec<_> = columns.iter().map(|column| column.counts(pair)).collect();
        if let Some(all) = counts.iter().copied().collect::<Option<Vec<_>>>() {
            for (sum, counts) in sums.iter_mut().zip(all) {
                sum.lines += counts.lines;
                sum.atomics += counts.atomics;
            }
        }
        let _ = writeln!(out, "| `{pair}` |{}", cells(&counts));
    }
    let sums: Vec<_> = sums.into_iter().map(Some).collect();
    let _ = writeln!(out, "| all that each has made |{}", cells(&sums));
    out
}

fn cells(counts: &[Option<Counts>]) -> String {
    let cell = |number: Option<u64>| number.map_or_else(|| " - |".into(), |number| format!(" {number} |"));
    let lines = counts.iter().map(|counts| cell(counts.map(|counts| counts.lines)));
    lines.chain(counts.iter().map(|counts| cell(counts.map(|counts| counts.atomics)))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::window::{Access, Kind};
    use super::*;

    fn window(processor: usize, kind: Kind, line: u64) -> Window {
        Window { processor, accesses: vec![Access { kind, line, address: 0, code: 0, count: 3 }] }
    }

    #[test]
    fn table_has_a_column_for_each_kernel_and_a_row_for_each_pair() {
        let (first, second) = (window(0, Kind::Atomic, 1), window(1, Kind::Atomic, 1));
        let own = window(1, Kind::Write, 2);
        let mut before = Column::new("abc".into());
        before.add("open", &[[&first, &second]]);
        let mut now = Column::new("now".into());
        now.add("open", &[[&first, &own]]);
        now.add("new", &[[&own, &own]]);
        let table = table(&[before, now]);
        let rows: Vec<&str> = table.lines().collect();
        assert_eq!(rows[0], "| pair | shared lines, abc | shared lines, now | atomics, abc | atomics, now |");
        assert_eq!(rows[2], "| `open` | 1 | 0 | 3 | 3 |");
        assert_eq!(rows[3], "| `new` | - | 1 | - | 0 |");
        assert_eq!(rows[4], "| all that each has made | 1 | 0 | 3 | 3 |");
    }

    #[test]
    fn a_few_disturbed_rounds_do_not_count() {
        assert_eq!(median(vec![0, 7, 0, 0]), 0);
        assert_eq!(median(Vec::new()), 0);
    }
}
