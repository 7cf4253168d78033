//! The `starling` command: builds, runs and tests the kernel.
//!
//! `./starling` at the top of the repository builds this program and starts it. Where to start reading:
//!
//! * [`run`]: `starling run`, from options to exit status
//! * [`image`]: root file systems, from whatever form they come in to an initramfs
//! * [`store`]: `starling image`, images kept by name
//! * [`linux`]: `starling linux`, the same on Debian's kernel
//! * [`machine`]: the kernel's build, the accelerator, QEMU
//! * [`session`]: the loop between the host's streams and the guest
//! * [`mod@check`]: `starling check`, what a program uses that Starling lacks
//! * [`mod@test`]: `starling test`, a list of steps
//! * [`mod@bench`]: `starling bench`, the kernel measured against Linux
//! * [`mod@plot`]: `starling plot`, drawings of what the kernel recorded
//! * [`mod@trace`]: `starling trace`, what the kernel does inside a call
#![forbid(unsafe_code)]

mod bench;
mod cache;
mod check;
mod failure;
mod image;
mod linux;
mod machine;
mod plot;
mod progress;
mod run;
mod session;
mod store;
mod test;
mod trace;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use crate::failure::{Failure, Outcome, STATUS_OURS};

/// Runs Linux programs on the Starling kernel.
#[derive(Parser, Debug)]
#[command(name = "starling", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Run(Box<run::RunArguments>),
    Image(store::ImageArguments),
    Linux(linux::LinuxArguments),
    Check(check::CheckArguments),
    Test(test::TestArguments),
    Bench(bench::BenchArguments),
    Plot(plot::PlotArguments),
    Trace(trace::TraceArguments),
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return usage(&error),
    };
    let result = match arguments.command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Image(arguments) => store::image(&arguments),
        Command::Linux(arguments) => linux::linux(&arguments),
        Command::Check(arguments) => check::check(&arguments),
        Command::Test(arguments) => test::test(&arguments),
        Command::Bench(arguments) => bench::bench(&arguments),
        Command::Plot(arguments) => plot::plot(&arguments),
        Command::Trace(arguments) => trace::trace(&arguments),
    };
    exit_code(result)
}

fn exit_code(result: Outcome<u8>) -> ExitCode {
    match result {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            eprintln!("starling: {failure}");
            ExitCode::from(failure.status)
        }
    }
}

/// Help that was asked for, or one line about what is wrong.
fn usage(error: &clap::Error) -> ExitCode {
    let asked_for = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if asked_for || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // A closed standard output is no reason to fail.
        let _ = error.print();
        return if asked_for { ExitCode::SUCCESS } else { ExitCode::from(STATUS_OURS) };
    }
    let text = error.render().to_string();
    let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
    let names = Arguments::command()
        .get_subcommands()
        .map(|command| command.get_name().to_owned())
        .collect::<Vec<_>>();
    let named = std::env::args().nth(1).filter(|word| names.contains(word));
    let command = named.map_or_else(String::new, |name| format!(" {name}"));
    exit_code(Err(Failure::ours(format!("{first} (see starling{command} --help)"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Arguments::command().debug_assert();
    }
}
