//! Steps that run on the host: the unit tests of all crates, the kernel's on its hosted machine.
//!
//! With `--long` also what no processor shows by running: the models of lock-free code in all interleavings (loom), the unsafe
//! parts in an interpreter that knows the language's rules (Miri), a million hostile inputs for each parser, ten thousand hostile devices for each driver, and an ext4 whose power
//! fails at every moment and whose images are damaged in every way.

use std::process::Command;
use std::time::Duration;

use super::step::Step;
use super::tally;
use crate::machine::Repository;

/// How long each of the long steps may take.
const LONG_LIMIT: Duration = Duration::from_secs(2 * 3600);
/// Inputs that each parser gets.
const HOSTILE_INPUTS: u32 = 1_000_000;
/// Packages with parsers of what may be hostile; their tests have the word in their names.
const PARSERS: [&str; 5] = ["hostlink-protocol", "linux", "tmpfs", "starling-tool", "block"];
/// What the variables that name the rounds of hostile devices are set to: rings and queues have as many, drivers a hundredth.
const HOSTILE_DEVICES: u32 = 1_000_000;
/// Packages with models, and where in them.
const MODELS: [(&str, &[&str]); 4] = [
    (
        "sync",
        &[
            "--test",
            "models",
            "--test",
            "clustered_models",
            "--test",
            "table_models",
            "--test",
            "local_read_models",
        ],
    ),
    ("memory", &["--test", "per_cpu_models"]),
    ("sched", &["--lib", "models"]),
    ("block", &["--test", "models"]),
];
/// Unsafe code that Miri can follow, by package and names of tests: what neither switches stacks nor needs the gigabytes of the
/// hosted machine's memory.
const INTERPRETED: [(&str, &[&str]); 3] = [
    ("sync", &[]),
    ("memory", &["fallible::", "number_stack::", "parking::", "per_cpu::", "page_index::"]),
    ("sched", &["state::"]),
];

/// The steps of this group.
pub(super) fn steps(repository: &Repository, long: bool) -> Vec<Step> {
    let mut tests = repository.cargo("test");
    tests.args(["--workspace", "--no-fail-fast"]);
    let mut steps = vec![Step::new("unit tests", tests, tally::cargo)];
    if long {
        steps.extend(MODELS.map(|(package, names)| models(repository, package, names)));
        steps.extend(INTERPRETED.map(|(package, names)| interpreted(repository, package, names)));
        steps.push(hostile_input(repository));
        steps.push(hostile_devices(repository));
        steps.push(endured(repository));
    }
    steps
}

fn models(repository: &Repository, package: &str, names: &[&str]) -> Step {
    let mut tests = repository.cargo("test");
    tests.args(["--release", "--package", package]).args(names);
    // Everything is compiled anew under this flag; a folder of its own keeps the other builds.
    tests.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", repository.target_directory().join("loom"));
    Step::new(format!("models of {package}"), tests, tally::cargo_with_tests).within(LONG_LIMIT)
}

/// A shell command, because what is missing is installed first; if it can't be, that is the step's failure.
fn interpreted(repository: &Repository, package: &str, names: &[&str]) -> Step {
    const SCRIPT: &str = "rustup run nightly cargo miri --version ||
        rustup toolchain install nightly --profile minimal --component miri --component rust-src || exit 1
        package=$1; shift
        exec rustup run nightly cargo miri test --package $package --lib -- $*";
    let mut tests = Command::new("sh");
    tests.current_dir(repository.root()).args(["-c", SCRIPT, "miri", package]).args(names);
    tests.env("CARGO_TARGET_DIR", repository.target_directory().join("miri"));
    // The hosted machine asks the host for the time and for entropy.
    tests.env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-permissive-provenance");
    Step::new(format!("{package} under Miri"), tests, tally::cargo_with_tests).within(LONG_LIMIT)
}

fn hostile_input(repository: &Repository) -> Step {
    let mut tests = repository.cargo("test");
    tests.args(["--profile", "tool", "--no-fail-fast"]);
    PARSERS.iter().for_each(|package| _ = tests.args(["--package", package]));
    tests.args(["--", "hostile"]).env("PROPTEST_CASES", HOSTILE_INPUTS.to_string());
    Step::new("hostile input", tests, tally::cargo_with_tests).within(LONG_LIMIT)
}

/// Drivers with devices that do anything, on the hosted machine.
fn hostile_devices(repository: &Repository) -> Step {
    let mut tests = repository.cargo("test");
    tests.args(["--profile", "tool", "--no-fail-fast", "--package", "virtio", "--package", "nvme"]);
    tests.args(["--", "hostile"]);
    for variable in ["VIRTIO_FUZZ_ROUNDS", "NVME_FUZZ_ROUNDS"] {
        tests.env(variable, HOSTILE_DEVICES.to_string());
    }
    Step::new("hostile devices", tests, tally::cargo_with_tests).within(LONG_LIMIT)
}

/// What the other tests of file systems do for seconds.
fn endured(repository: &Repository) -> Step {
    let mut tests = repository.cargo("test");
    tests.args(["--profile", "tool", "--no-fail-fast", "--package", "ext4", "--package", "overlay"]);
    tests.args(["--package", "squashfs", "--", "--ignored"]);
    Step::new("file systems in full", tests, tally::cargo_with_tests).within(LONG_LIMIT)
}
