//! Where and of what figures were taken: without it they say little later.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::figures::Figures;
use crate::failure::Outcome;
use crate::machine::{Repository, qemu_program};

/// What does not follow from the options.
#[derive(Clone, Debug, Default)]
pub(super) struct Environment {
    /// The commit that was measured, marked with `+` when the sources differed from it.
    pub(super) commit: String,
    /// What it was compared with, in words.
    pub(super) opponent: String,
    /// QEMU's version.
    pub(super) qemu: String,
    /// The compiler's version.
    pub(super) rustc: String,
    /// Processors of the host.
    pub(super) host_processors: u32,
    /// Runnable threads of the host, on average over the minute before the end.
    pub(super) host_load: String,
}

impl Environment {
    /// Looks around.
    ///
    /// # Errors
    /// When there is no QEMU.
    pub(super) fn look(repository: &Repository, opponent: String) -> Outcome<Self> {
        let git = |arguments: &[&str]| {
            said(Command::new("git").current_dir(repository.root()).args(arguments)).unwrap_or_default()
        };
        let changed =
            !git(&["status", "--porcelain", "--untracked-files=no", "--", ":!docs", ":!user/bench/*.txt"])
                .is_empty();
        let mark = if changed { "+" } else { "" };
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Ok(Self {
            commit: format!("{}{mark}", git(&["rev-parse", "--short=12", "HEAD"])),
            opponent,
            qemu: version(&said(Command::new(qemu_program()?).arg("--version")).unwrap_or_default()),
            rustc: version(&said(Command::new("rustc").arg("--version")).unwrap_or_default()),
            host_processors: crate::run::host_processors(),
            host_load: load.split(' ').next().unwrap_or_default().into(),
        })
    }
}

/// The first line of what a command prints.
fn said(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
}

/// The first word that is a version.
pub(super) fn version(line: &str) -> String {
    let is_version =
        |word: &&str| word.contains('.') && word.starts_with(|first: char| first.is_ascii_digit());
    line.split([' ', '(', ')']).find(is_version).unwrap_or("unknown").into()
}

/// All of it for the JSON file.
pub(super) fn json(figures: &Figures) -> Value {
    let boot = figures.boot;
    let environment = &figures.environment;
    json!({
        "machine": boot.machine.name(),
        "accelerator": boot.accelerator.name(),
        "cpus": boot.cpus,
        "memory_mib": boot.memory >> 20,
        "runs": figures.runs,
        "systems": figures.systems,
        "commit": environment.commit,
        "against": environment.opponent,
        "qemu": environment.qemu,
        "rustc": environment.rustc,
        "host_processors": environment.host_processors,
        "host_load": environment.host_load,
        "failures": figures.failures,
    })
}

/// All of it as a sentence.
pub(super) fn sentence(figures: &Figures) -> String {
    let boot = figures.boot;
    let Environment { commit, opponent, qemu, rustc, host_processors, host_load } = &figures.environment;
    let count = |number: u32, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let against = if opponent.is_empty() { String::new() } else { format!(" against {opponent}, in turns") };
    format!(
        "Commit {commit}{against}, {} of each; {} with {} and {} MiB under {}; QEMU {qemu}, rustc {rustc}; a host with {} and a load of \
         {host_load}.",
        count(figures.runs, "run"),
        boot.machine.name(),
        count(boot.cpus, "processor"),
        boot.memory >> 20,
        boot.accelerator.name(),
        count(*host_processors, "processor"),
    )
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::example;
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_say() {
        assert_eq!(version("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)"), "7.2.22");
        assert_eq!(version("rustc 1.95.0 (59807616e 2026-04-14)"), "1.95.0");
        assert_eq!(version("no idea"), "unknown");
    }

    #[test]
    fn sentence_says_what_and_where() {
        let mut figures = example();
        figures.environment.commit = "abc".into();
        figures.environment.opponent = "Linux 6.1".into();
        let text = sentence(&figures);
        assert!(text.starts_with(
            "Commit abc against Linux 6.1, in turns, 3 runs of each; q35 with 2 processors and 1024 MiB"
        ));
    }
}
