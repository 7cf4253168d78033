//! The program behind `starling trace`: calls to look into, where it does not matter how long they take.
//!
//! `probes SUITE...` prints lines as `bench` does.
//!
//! * [`locks`]: locks taken by single calls
//! * [`sharing`]: pairs of calls that commute, for the checker of shared cache lines

mod locks;
mod sharing;

use std::io;
use std::process::ExitCode;

/// Runs a suite by its name.
fn run(name: &str) -> io::Result<()> {
    match (name.strip_prefix("sharing"), name) {
        (Some(words), _) => sharing::run(words.trim_start_matches('=')),
        (None, "locks") => locks::run(),
        _ => Err(io::Error::other("no such suite")),
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args();
    // Started by the pair that executes a program.
    if arguments.next().is_some_and(|name| name.ends_with(bench::process::NOTHING)) {
        return ExitCode::SUCCESS;
    }
    println!("bench started");
    for suite in arguments {
        if let Err(error) = run(&suite) {
            println!("bench {suite} failed: {error}");
            return ExitCode::FAILURE;
        }
    }
    println!("bench done");
    ExitCode::SUCCESS
}
