//! Steps that look at the sources: formatting, lints, documentation and the project's own policies.

use std::process::Command;

use super::step::Step;
use super::tally;
use crate::failure::Outcome;
use crate::machine::{Repository, kernel_packages};

/// The policy checks, each a program of its own under `tools/`.
const POLICIES: [&str; 3] = ["check-layering", "check-unsafe", "check-licences"];

/// The steps of this group.
pub(super) fn steps(repository: &Repository) -> Outcome<Vec<Step>> {
    let kernel: Vec<String> =
        kernel_packages(repository)?.into_iter().flat_map(|package| ["--package".into(), package]).collect();
    let mut formatting = repository.cargo("fmt");
    formatting.args(["--all", "--check", "--", "--color", "never"]);
    let mut host_lints = repository.cargo("clippy");
    host_lints.args(["--quiet", "--workspace", "--all-targets", "--", "--deny", "warnings"]);
    let mut bare_lints = repository.bare_cargo("clippy");
    bare_lints.arg("--quiet").args(&kernel).args(["--", "--deny", "warnings"]);
    let mut steps = vec![
        Step::new("formatting", formatting, tally::whole),
        Step::new("lints on the host", host_lints, tally::whole),
        Step::new("lints on the bare machine", bare_lints, tally::whole),
        Step::new(
            "documentation on the host",
            documentation(repository.cargo("doc"), &["--workspace".into()]),
            tally::whole,
        ),
        Step::new(
            "documentation on the bare machine",
            documentation(repository.bare_cargo("doc"), &kernel),
            tally::whole,
        ),
    ];
    steps.extend(POLICIES.map(|policy| {
        let mut check = repository.cargo("run");
        check.args(["--quiet", "--package", policy]);
        Step::new(policy.replace('-', " "), check, tally::whole)
    }));
    Ok(steps)
}

fn documentation(mut cargo: Command, packages: &[String]) -> Command {
    cargo
        .args(["--quiet", "--no-deps", "--document-private-items"])
        .args(packages)
        .env("RUSTDOCFLAGS", "--deny warnings");
    cargo
}
