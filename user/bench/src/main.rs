//! The benchmarks behind `starling bench`: one static program, the same bytes on Starling and on Linux.
//!
//! `bench [short] SUITE...` runs suites, with `short` in short samples, and prints a line for each test:
//!
//! ```text
//! bench SUITE NAME UNIT VALUE
//! bench SUITE NAME unsupported REASON
//! ```
//!
//! between `bench started` and `bench done`.
//! Smaller values are better in every test. As process 1 (on Linux, where it is the initial program) it prepares the machine,
//! runs the suites in a child, and switches the machine off: see [`init`].
//!
//! [`suites`] is what is measured; how a value is found is in the library. What is traced and not timed is another program, `probes`.

mod init;
mod suites;

use std::process::ExitCode;

use bench::{measure, process};

/// The first byte that the machine prints: what the start-up time is measured to.
fn announce() {
    println!("bench started");
}

fn main() -> ExitCode {
    let mut arguments = std::env::args();
    // Started by the tests of program execution.
    let name = arguments.next().unwrap_or_default();
    if name.ends_with(process::NOTHING) {
        return ExitCode::SUCCESS;
    }
    if name.ends_with(process::AGAIN) {
        return process::execute_again(arguments.next());
    }
    let suites: Vec<String> = arguments.collect();
    if std::process::id() == 1 {
        return init::run(&suites);
    }
    if suites == ["shell"] {
        return init::become_shell();
    }
    // Where instructions are counted, addresses are always the same; this takes effect in the next program.
    if suites.iter().any(|word| word == "short") && process::fix_addresses() {
        process::start_again(&suites);
    }
    announce();
    for suite in &suites {
        if suite == "short" {
            measure::take_short_samples();
            continue;
        }
        if let Err(error) = suites::run(suite) {
            println!("bench {suite} failed: {error}");
            return ExitCode::FAILURE;
        }
    }
    println!("bench done");
    ExitCode::SUCCESS
}
