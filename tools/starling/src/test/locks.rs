//! Steps about locks: their order, on a kernel that checks it, and, on one that counts them, how many of them a call takes and what
//! `/proc/lock_stat` says.

use std::process::Command;
use std::time::Duration;

use super::step::Step;
use super::tally;
use crate::failure::{Context, Outcome};
use crate::machine::Repository;

/// The checking kernel is slower than the usual one; before it runs, it may have to be built.
const LIMIT: Duration = Duration::from_secs(3600);
/// Numbers of processors for the kernel's own tests.
const CPUS: [&str; 2] = ["2", "4"];
/// Programs that take many locks in many ways.
const PROGRAMS: [&str; 17] = [
    "=busybox",
    "=clone_flags",
    "=epoll_basic",
    "=exec_threads",
    "=fork_tree",
    "=futex_ops",
    "=inotify_events",
    "=memory_threads",
    "=mounts",
    "=pipe_splice",
    "=process_stress",
    "=pthread_sync",
    "=race_unix",
    "=signal_basic",
    "=unix_datagrams",
    "=unix_socketpair",
    "=unix_streams",
];

/// The steps of this group.
///
/// # Errors
/// When this program does not know where it is.
pub(super) fn steps(repository: &Repository, long: bool) -> Outcome<Vec<Step>> {
    let program = std::env::current_exe().context(|| "this program".into())?;
    let starling = |words: &[&str]| {
        let mut starling = Command::new(&program);
        starling.current_dir(repository.root()).args(words);
        starling
    };
    let kernel_tests = |build: &str, cpus: &str, chosen: &str| {
        let mut tests = starling(&["run", "--build", build, "--verbose", "--cpus", cpus]);
        tests.args(["--timeout", "1200", "--kernel-arg", chosen, "--", "/bin/true"]);
        tests
    };
    let mut steps: Vec<_> = CPUS
        .iter()
        .map(|cpus| {
            let tests = kernel_tests("checked", cpus, "test=all");
            Step::new(format!("order of locks in kernel tests with {cpus} CPUs"), tests, tally::kernel_log)
                .within(LIMIT)
        })
        .collect();
    let mut programs = repository.cargo("run");
    programs.env("STARLING_BUILD", "checked").args([
        "--quiet",
        "--package",
        "abi-tests",
        "--",
        "--cpus",
        "4",
    ]);
    if !long {
        programs.args(PROGRAMS);
    }
    steps.push(Step::new("order of locks in programs", programs, tally::closing_line).within(LIMIT));
    steps.push(
        Step::new("locks per call", starling(&["trace", "locks", "--check"]), tally::closing_line)
            .within(LIMIT),
    );
    // The kernel of the step before.
    let tests = kernel_tests("counted", "2", "test=lock_stat");
    steps.push(Step::new("statistics of locks", tests, tally::kernel_log).within(LIMIT));
    Ok(steps)
}
