//! What a comparison came to: for each topic and number of processors, how many invocations were equal, and of how many.

use std::fmt;

use crate::list::Invocation;

/// How many were equal, of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    equal: u32,
    total: u32,
}

impl Cell {
    const fn add(&mut self, other: Self) {
        self.equal += other.equal;
        self.total += other.total;
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&format!("{}/{}", self.equal, self.total))
    }
}

/// A row for each topic, and a column for each number of processors.
#[derive(Debug)]
pub(crate) struct Table {
    cpus: Vec<u32>,
    rows: Vec<(String, Vec<Cell>)>,
}

impl Table {
    pub(crate) const fn new(cpus: Vec<u32>) -> Self {
        Self { cpus, rows: Vec::new() }
    }

    /// Counts one; a number of processors that is none of the table's is not shown.
    pub(crate) fn count(&mut self, one: &Invocation, cpus: u32, equal: bool) {
        let place = self.rows.iter().position(|(topic, _)| *topic == one.topic).unwrap_or_else(|| {
            self.rows.push((one.topic.clone(), vec![Cell::default(); self.cpus.len()]));
            self.rows.len() - 1
        });
        if let Some(column) = self.cpus.iter().position(|&known| known == cpus) {
            self.rows[place].1[column].add(Cell { equal: equal.into(), total: 1 });
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sums = vec![Cell::default(); self.cpus.len()];
        write!(formatter, "{:<12}", "equal, of")?;
        for cpus in &self.cpus {
            write!(formatter, "{:>10}", format!("cpus {cpus}"))?;
        }
        writeln!(formatter)?;
        for (topic, cells) in &self.rows {
            write!(formatter, "{topic:<12}")?;
            for (cell, sum) in cells.iter().zip(&mut sums) {
                write!(formatter, "{cell:>10}")?;
                sum.add(*cell);
            }
            writeln!(formatter)?;
        }
        write!(formatter, "{:<12}", "all")?;
        sums.iter().try_for_each(|sum| write!(formatter, "{sum:>10}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list;

    #[test]
    fn equal_ones_are_counted_by_topic_and_processors() {
        let mut all = Vec::new();
        list::parse("git", "[one]\ntrue\n[two]\ntrue\n", &mut all).expect("a list");
        list::parse("text", "[three]\ntrue\n", &mut all).expect("a list");
        let mut table = Table::new(vec![1, 2]);
        for one in &all {
            table.count(one, 1, true);
            table.count(one, 2, one.name != "two");
        }
        let lines: Vec<String> = table.to_string().lines().map(str::to_owned).collect();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&lines[1]), ["git", "2/2", "1/2"]);
        assert_eq!(words(&lines[2]), ["text", "1/1", "1/1"]);
        assert_eq!(words(&lines[3]), ["all", "3/3", "2/3"]);
    }
}
