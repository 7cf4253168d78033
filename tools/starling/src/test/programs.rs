//! Steps that run programs in the guest: the command's promises, and programs compared with the host's Linux.

use std::time::Duration;

use super::step::Step;
use super::tally;
use crate::machine::Repository;

/// How long the long campaign may take.
const LONG_LIMIT: Duration = Duration::from_secs(3 * 3600);

/// Machines, numbers of CPUs and memory for short bouts of the fuzzers; the long ones are programs of the campaign.
const ENEMIES: [(&str, &str, &str); 3] =
    [("q35", "8", "512M"), ("q35", "1", "64M"), ("microvm", "2", "128M")];

/// Programs in C, Go and Rust that exercise threads hard.
const THREADED: [&str; 9] = [
    "=clone_flags",
    "=exec_threads",
    "=futex_ops",
    "=go_goroutines",
    "=memory_threads",
    "=process_stress",
    "=pthread_life",
    "=pthread_sync",
    "=rust_threads",
];
/// How often they are run, each time on a new machine: what loses one wake-up in a thousand hangs in one of these.
const REPETITIONS: u32 = 100;

/// Processors that fork at a time, for so long as messages are stressed.
const FORKING_CPUS: u32 = 8;

/// The steps of this group; with the long ones, whose tree of forks goes on for so many seconds, if a number is given.
pub(super) fn steps(repository: &Repository, stress_seconds: Option<u64>) -> Vec<Step> {
    let long = stress_seconds.is_some();
    let step = |name: &str, package: &str| {
        let mut tests = repository.cargo("run");
        tests.args(["--quiet", "--package", package, "--"]);
        if long {
            tests.arg("--long");
        }
        let step = Step::new(name, tests, tally::closing_line);
        if long { step.within(LONG_LIMIT) } else { step }
    };
    let mut steps = vec![step("the command", "command-tests"), step("programs", "abi-tests")];
    if long {
        steps.push(step("Debian's programs", "debian-tests"));
        steps.push(repetitions(repository));
        steps.extend(ENEMIES.map(|machine| enemies(repository, machine)));
    }
    steps.extend(stress_seconds.map(|seconds| fork_tree(repository, seconds)));
    steps
}

/// Programs with threads again and again: none may hang, and each must print every time what it prints on the host.
fn repetitions(repository: &Repository) -> Step {
    let mut tests = repository.cargo("run");
    tests.args(["--quiet", "--package", "abi-tests", "--", "--cpus", "4"]);
    tests.args(["--repeat", &REPETITIONS.to_string()]).args(THREADED);
    Step::new(format!("programs with threads {REPETITIONS} times"), tests, tally::closing_line)
        .within(LONG_LIMIT)
}

/// Families of processes that fork, store and leave, for a long time: each must find in its memory what it has stored.
fn fork_tree(repository: &Repository, seconds: u64) -> Step {
    let mut tests = repository.cargo("run");
    tests.args(["--quiet", "--package", "abi-tests", "--", "--machine", "q35"]);
    tests.args(["--cpus", &FORKING_CPUS.to_string(), "--seconds", &seconds.to_string(), "=fork_tree"]);
    let name = format!("fork tree for {seconds} s with {FORKING_CPUS} CPUs");
    Step::new(name, tests, tally::closing_line).within(LONG_LIMIT + Duration::from_secs(seconds))
}

/// Hostile programs on a machine that the other campaigns do not use; as root and as nobody, with new seeds every time.
fn enemies(repository: &Repository, (machine, cpus, memory): (&str, &str, &str)) -> Step {
    let mut tests = repository.cargo("run");
    tests.args([
        "--quiet",
        "--package",
        "abi-tests",
        "--",
        "--machine",
        machine,
        "--cpus",
        cpus,
        "--memory",
        memory,
    ]);
    tests.args(["--repeat", "3", "=fuzz", "=elf_mutations"]);
    Step::new(format!("enemies on {machine} with {cpus} CPUs and {memory}"), tests, tally::closing_line)
}
