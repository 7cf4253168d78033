//! `starling check`: will this program run? It runs on the host, traced, and what it asks of the kernel is looked up in the table of what Starling has.
//!
//! * [`table`]: the kernel's table
//! * [`arguments`]: what flags and commands are called
//! * [`trace`]: the program
//!
//! A program that finds a call missing may do without, and one that finds it there may go on to others: what is told is what this run used.

mod arguments;
mod table;
mod trace;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

use clap::Args;

use crate::failure::Outcome;
use arguments::{ARGUMENTS, Argument, Place};
use table::{Call, Table};
use trace::Made;

/// The exit status when something is missing.
const STATUS_MISSING: u8 = 1;

/// Run a program on this machine and say what it uses that Starling lacks.
#[derive(Args, Debug)]
#[command(after_help = "\
The program and its children run as usual; the report comes on standard error when the last of them has ended. The exit status is 0 if Starling has all that
was used, 1 if it lacks something, 126 or 127 if the program cannot be started, 125 for a fault of starling.")]
pub(crate) struct CheckArguments {
    /// Name also the calls that Starling has
    #[arg(long)]
    all: bool,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// Runs the program, prints what it lacks, and returns the exit status.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn check(arguments: &CheckArguments) -> Outcome<u8> {
    let mut findings = Findings::new();
    let status = trace::run(&arguments.command, |made| findings.look_at(made))?;
    eprint!("{}", findings.report(arguments.all, status));
    Ok(if findings.missing.is_empty() { 0 } else { STATUS_MISSING })
}

/// What was found so far.
#[derive(Debug)]
struct Findings {
    table: Table,
    /// What Starling has, by name.
    present: BTreeMap<String, u64>,
    /// What it lacks: by the call's number, and the name of the flag.
    missing: BTreeMap<(u64, String), u64>,
}

impl Findings {
    fn new() -> Self {
        Self { table: Table::of_the_kernel(), present: BTreeMap::new(), missing: BTreeMap::new() }
    }

    fn look_at(&mut self, made: &Made) {
        let mut lacks = |what: String| *self.missing.entry((made.number, what)).or_default() += 1;
        if made.narrow {
            return lacks("of a 32-bit program".into());
        }
        let Some(call) = self.table.get(made.number) else { return lacks(String::new()) };
        let mut whole = true;
        for argument in ARGUMENTS.iter().filter(|argument| argument.calls.contains(&call.name.as_str())) {
            for name in missing_names(call, argument, made) {
                whole = false;
                lacks(name);
            }
        }
        if whole {
            *self.present.entry(call.name.clone()).or_default() += 1;
        }
    }

    fn report(&self, all: bool, status: u8) -> String {
        let mut text = String::new();
        let mut line = |count: &u64, call: &str, what: &str| {
            text += &format!("{count:>9}  {call}{}{what}\n", if what.is_empty() { "" } else { ": " });
        };
        if all {
            self.present.iter().for_each(|(name, count)| line(count, name, ""));
        }
        for ((number, what), count) in &self.missing {
            match self.table.get(*number) {
                Some(call) => line(count, &call.name, what),
                None => line(count, &format!("call {number}"), what),
            }
        }
        let calls: BTreeSet<_> = self.missing.keys().map(|(number, _)| number).collect();
        let known = self.present.len();
        let verdict = match calls.len() {
            0 => format!("Starling has all of the {known} calls"),
            1 => "Starling lacks something of 1 call".into(),
            count => format!("Starling lacks something of {count} calls"),
        };
        let end =
            if status == 0 { String::new() } else { format!("; the program's exit status is {status}") };
        format!("{text}starling check: {verdict} that the program made{end}\n")
    }
}

/// The names in an argument that the call lacks.
fn missing_names(call: &Call, argument: &Argument, made: &Made) -> Vec<String> {
    if argument.when.is_some_and(|(register, value)| made.registers[register] & 0xffff_ffff != value) {
        return Vec::new();
    }
    let value = match argument.place {
        Place::Register(number) => Some(made.registers[number]),
        Place::Memory(number, offset, bytes) => {
            made.memory(made.registers[number].wrapping_add(offset), bytes)
        }
    };
    // A wrong address is the program's business.
    let Some(value) = value else { return Vec::new() };
    let mut names = argument.names_in(value);
    let is_of_this_kind =
        |only: &&BTreeSet<String>| argument.names.iter().any(|(name, _)| only.contains(*name));
    match call.has_only.iter().find(is_of_this_kind) {
        Some(only) => names.retain(|name| !only.contains(name)),
        None => names.retain(|name| call.lacks.contains(name)),
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(number: u64, registers: [u64; 6]) -> Made {
        Made { process: nix::unistd::Pid::from_raw(0), number, registers, narrow: false }
    }

    fn report(calls: &[(u64, [u64; 6])]) -> String {
        let mut findings = Findings::new();
        calls.iter().for_each(|(number, registers)| findings.look_at(&made(*number, *registers)));
        findings.report(false, 0)
    }

    #[test]
    fn a_call_that_is_there_is_not_told() {
        assert_eq!(
            report(&[(0, [0; 6]), (1, [0; 6])]),
            "starling check: Starling has all of the 2 calls that the program made\n"
        );
    }

    #[test]
    fn calls_that_are_not_there_are_told_by_number() {
        let text = report(&[(134, [0; 6]), (134, [0; 6])]);
        assert_eq!(
            text,
            "        2  call 134\nstarling check: Starling lacks something of 1 call that the program made\n"
        );
    }

    #[test]
    fn families_of_sockets_that_are_not_there_are_told() {
        let text = report(&[(41, [29, 1, 0, 0, 0, 0]), (41, [1, 1, 0, 0, 0, 0])]);
        assert!(text.starts_with("        1  socket: AF_CAN\n"), "{text}");
    }

    #[test]
    fn the_exit_status_is_told() {
        assert!(Findings::new().report(false, 3).ends_with("; the program's exit status is 3\n"));
    }
}
