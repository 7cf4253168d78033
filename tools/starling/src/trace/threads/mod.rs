//! `starling trace threads`: what the threads of a program do with each other, as its library's functions say.
//!
//! * [`record`]: the command, in the guest or on this machine, under `user/threads/record.c`
//! * [`mod@file`]: the file that comes of it
//! * [`filter`]: which of its records are wanted
//! * [`view`]: they as text, for people and for programs
//! * [`replay`]: what they make of threads and objects; [`model`]: the states, counts and times that come of it
//! * [`statistics`]: counts and times as tables; [`names`]: what threads and objects are called
//! * [`paje`], [`chrome`]: drawings for Pajé and for the viewers of browsers

mod chrome;
mod file;
mod filter;
mod model;
mod names;
mod paje;
mod record;
mod replay;
mod statistics;
mod view;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::failure::{Context, Outcome};
use file::Trace;
use model::Model;
use names::Names;

/// Record what the threads of a command do with each other: creation and ends, mutexes, condition variables, barriers, semaphores, and so on.
#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
The exit status is the command's, or 125 when it was stopped because the file takes no records. In the guest, /starling-threads/record level LEVEL
changes what is recorded while the command runs."
)]
pub(super) struct ThreadsArguments {
    #[command(subcommand)]
    report: Option<Report>,

    #[command(flatten)]
    record: record::RecordArguments,
}

/// What is made of a recorded file.
#[derive(Subcommand, Debug)]
enum Report {
    /// The records as text, a line each
    View(view::ViewArguments),
    /// Counts and times of threads, objects and functions
    Stat(statistics::StatisticsArguments),
    /// A file for viewers of Pajé's format
    Paje(DrawingArguments),
    /// A file for viewers of Chrome's format (JSON)
    Chrome(DrawingArguments),
}

#[derive(Args, Debug)]
struct DrawingArguments {
    /// What was recorded
    file: PathBuf,

    #[command(flatten)]
    names: names::NameArguments,
}

/// Records a command, or reports on what was recorded; returns the exit status.
///
/// # Errors
/// When the command can't be started, or the file is none.
pub(super) fn threads(arguments: &ThreadsArguments) -> Outcome<u8> {
    let Some(report) = &arguments.report else { return record::record(&arguments.record) };
    let mut text = Vec::new();
    match report {
        Report::View(arguments) => view::view(arguments, &mut text),
        Report::Stat(arguments) => statistics::statistics(arguments, &mut text),
        Report::Paje(arguments) => draw(arguments, &mut text, paje::write),
        Report::Chrome(arguments) => draw(arguments, &mut text, chrome::write),
    }?;
    match io::stdout().write_all(&text) {
        // Who reads the beginning only is content with it.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        other => other.context(|| "standard output".into()).map(|()| 0),
    }
}

fn draw(
    arguments: &DrawingArguments,
    text: &mut Vec<u8>,
    write: impl Fn(&Model, &Names, &mut Vec<u8>) -> io::Result<()>,
) -> Outcome<()> {
    let trace = Trace::read(&arguments.file)?;
    let model = replay::replay(&trace);
    let names = Names::new(&model, &arguments.names)?;
    write(&model, &names, text).context(|| "the drawing".into())
}
