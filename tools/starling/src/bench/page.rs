//! The figures as tables in a page of the book, between two marks; what is around them stays. Times and instruction counts have
//! places of their own.

use std::fs;
use std::path::Path;

use super::figures::Figures;
use super::{environment, table};
use crate::cache;
use crate::failure::{Context, Failure, Outcome};
use crate::machine::Accelerator;

/// The line after the tables.
const END: &str = "<!-- end of figures -->";

/// The line before the tables.
const fn start(accelerator: Accelerator) -> &'static str {
    match accelerator {
        Accelerator::Icount => "<!-- instruction figures -->\n",
        Accelerator::Kvm | Accelerator::Tcg => "<!-- figures -->\n",
    }
}

/// The page before and after its figures of this kind.
///
/// # Errors
/// When it is not there or has no such marks.
pub(super) fn read(path: &Path, accelerator: Accelerator) -> Outcome<(String, String)> {
    let text = fs::read_to_string(path).context(|| path.display().to_string())?;
    let start = start(accelerator);
    let around = split(&text, start).map(|(before, after)| (before.to_owned(), after.to_owned()));
    around.ok_or_else(|| {
        Failure::ours(format!("{}: has no lines `{}` and `{END}`", path.display(), start.trim()))
    })
}

fn split<'a>(text: &'a str, start: &str) -> Option<(&'a str, &'a str)> {
    let start = text.find(start)? + start.len();
    let end = start + text[start..].find(END)?;
    Some((&text[..start], &text[end..]))
}

/// Writes the page with these figures.
///
/// # Errors
/// As [`read`], and when the page cannot be written.
pub(super) fn write(path: &Path, figures: &Figures) -> Outcome<()> {
    let (before, after) = read(path, figures.boot.accelerator)?;
    let tables = table::markdown(figures);
    let failures: String = figures.failures.iter().map(|failure| format!("- failed: {failure}\n")).collect();
    let text = format!("{before}\n{}\n{failures}\n{tables}{after}", environment::sentence(figures));
    cache::publish(path, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::example;
    use super::*;

    const START: &str = start(Accelerator::Tcg);

    #[test]
    fn figures_replace_those_before_and_the_rest_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("page.md");
        fs::write(&path, format!("# Title\n{START}old\n{END}\nthe end\n")).expect("written");
        write(&path, &example()).expect("it has the marks");
        write(&path, &example()).expect("and keeps them");
        let text = fs::read_to_string(&path).expect("it is there");
        assert!(text.starts_with("# Title\n") && text.ends_with("\nthe end\n") && !text.contains("old"));
        assert_eq!(text.matches("| getppid |").count(), 1);
    }

    #[test]
    fn page_without_marks_is_refused() {
        assert_eq!(split("# Title\n", START), None);
        assert_eq!(split(END, START), None);
    }
}
