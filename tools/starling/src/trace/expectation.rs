//! Pairs that are known to share cache lines, and why: a table in the book, which is read here, so that it cannot become untrue
//! unnoticed. What is not in it must be free of shared lines.

use std::collections::BTreeMap;
use std::fs;

use crate::failure::{Context, Failure, Outcome};
use crate::machine::Repository;

/// The page with the table.
const PAGE: &str = "docs/src/scalability.md";
/// The lines before and after it.
const START: &str = "<!-- pairs that share -->";
const END: &str = "<!-- end of pairs -->";

/// Pairs that may share, by name, and how many kinds of lines at most.
pub(super) type Known = BTreeMap<String, usize>;

/// Reads the table.
///
/// # Errors
/// When it is not there.
pub(super) fn read(repository: &Repository) -> Outcome<Known> {
    let path = repository.root().join(PAGE);
    let text = fs::read_to_string(&path).context(|| path.display().to_string())?;
    parse(&text).ok_or_else(|| Failure::ours(format!("{PAGE}: no table between {START} and {END}")))
}

/// Lines `| pair | number | reason |` between the marks; others are the table's head.
fn parse(page: &str) -> Option<Known> {
    let table = page.split_once(START)?.1.split_once(END)?.0;
    let row = |line: &str| {
        let mut cells = line.trim().trim_matches('|').split('|').map(str::trim);
        let name = cells.next()?.trim_matches('`');
        Some((name.to_owned(), cells.next()?.parse().ok()?))
    };
    Some(table.lines().filter_map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_of_the_book_is_read() {
        let page = format!(
            "# x\n{START}\n\n| pair | lines | why |\n|---|---|---|\n| `open` | 2 | a count |\n{END}\n| `no` | 1 | x |\n"
        );
        assert_eq!(parse(&page), Some(Known::from([("open".into(), 2)])));
        assert_eq!(parse("nothing"), None);
    }
}
