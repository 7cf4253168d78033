//! `starling plot`: what the kernel recorded, as a drawing.
//!
//! [`events`] reads the records, [`figures`] makes series of them, [`panel`] draws one series against time as SVG.

mod events;
mod figures;
mod panel;

use std::fs;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::failure::{Context, Outcome};

/// Draw what the kernel recorded, as SVG.
#[derive(Args, Debug)]
pub(crate) struct PlotArguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Grace periods, batches of callbacks and softirqs over time, from /proc/starling/rcu_trace.csv
    Rcu(RcuArguments),
}

#[derive(Args, Debug)]
struct RcuArguments {
    /// The records, as the kernel writes them
    records: PathBuf,

    /// Where the drawing goes
    #[arg(short, long)]
    output: PathBuf,
}

/// Draws what the arguments say and returns the exit status.
///
/// # Errors
/// When a file cannot be read or written, or holds something else.
pub(crate) fn plot(arguments: &PlotArguments) -> Outcome<u8> {
    let What::Rcu(files) = &arguments.what;
    let text = fs::read_to_string(&files.records).context(|| files.records.display().to_string())?;
    let events = events::parse(&text).context(|| files.records.display().to_string())?;
    let drawing = figures::draw(&events);
    fs::write(&files.output, drawing).context(|| files.output.display().to_string())?;
    println!("{}", figures::summary(&events));
    Ok(0)
}
