//! `starling test`: everything that must hold before a change lands, as a list of steps.
//!
//! A [`step::Step`] is a command and a way to read a tally off its output. One file a group of steps: [`source`] looks at the
//! sources, [`hosted`] runs on the host, [`kernel`] in virtual machines, [`instructions`] counts what calls cost,
//! [`sharing`] looks for cache lines that they share, [`programs`] compares programs with Linux.
//! [`runner`] runs them in order and adds up.

mod extract;
mod hosted;
mod instructions;
mod kernel;
mod locks;
mod programs;
mod runner;
mod sharing;
mod source;
mod step;
mod tally;

use clap::Args;

use crate::failure::{Failure, Outcome};
use crate::machine::Repository;
use step::Step;

/// Check everything: sources, unit tests, the kernel in virtual machines, programs against Linux.
#[derive(Args, Debug)]
#[command(after_help = "The last line is `N passed, N failed`. The exit status is 1 if anything failed.")]
pub(crate) struct TestArguments {
    /// Run also what takes long: many repetitions, fuzzing, torture
    #[arg(long)]
    long: bool,

    /// How long messages between threads, and the tree of forks, are stressed with --long
    #[arg(long, value_name = "SECONDS", default_value_t = 1200)]
    stress_seconds: u64,

    /// Show the names of the steps and run none
    #[arg(long)]
    list: bool,

    /// Run only steps whose name contains one of these
    filter: Vec<String>,
}

/// Runs the steps that the arguments choose and returns the exit status.
///
/// # Errors
/// When a step cannot be started, or no step is chosen.
pub(crate) fn test(arguments: &TestArguments) -> Outcome<u8> {
    let repository = Repository::find()?;
    let stress_seconds = arguments.long.then_some(arguments.stress_seconds);
    let groups = [
        source::steps(&repository)?,
        hosted::steps(&repository, arguments.long),
        kernel::steps(&repository, stress_seconds)?,
        locks::steps(&repository, arguments.long)?,
        instructions::steps(&repository)?,
        sharing::steps(&repository)?,
        programs::steps(&repository, stress_seconds),
    ];
    let chosen = |step: &Step| {
        arguments.filter.is_empty() || arguments.filter.iter().any(|word| step.name.contains(word.as_str()))
    };
    let steps: Vec<_> = groups.into_iter().flatten().filter(chosen).collect();
    if steps.is_empty() {
        return Err(Failure::ours("no step has such a name: see starling test --list"));
    }
    if arguments.list {
        steps.iter().for_each(|step| println!("{}", step.name));
        return Ok(0);
    }
    runner::run(steps)
}
