//! The book and the pages at the top: what they link to is there, and every page of the book can be found.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn markdown_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("readable").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// The targets of `[text](target)` links that are files: no web pages, no places in the same page.
fn links(text: &str) -> Vec<&str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')').map(|(target, _)| target));
    let files = targets.filter(|target| !target.contains("://") && !target.starts_with('#'));
    files.map(|target| target.split('#').next().unwrap_or(target)).collect()
}

#[test]
fn links_lead_somewhere() {
    for page in [markdown_files(&root()), markdown_files(&root().join("docs/src"))].concat() {
        let text = fs::read_to_string(&page).expect("readable");
        for link in links(&text) {
            let target = page.parent().expect("a folder").join(link);
            assert!(target.exists(), "{} links to {link}, which is not there", page.display());
        }
    }
}

#[test]
fn every_page_is_in_the_summary() {
    let source = root().join("docs/src");
    let summary = fs::read_to_string(source.join("SUMMARY.md")).expect("readable");
    for page in markdown_files(&source) {
        let name = page.file_name().and_then(|name| name.to_str()).expect("a name");
        let listed = name == "SUMMARY.md" || links(&summary).contains(&name);
        assert!(listed, "docs/src/{name} is not in docs/src/SUMMARY.md");
    }
}
