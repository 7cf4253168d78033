//! A step of `starling test`.

use std::process::Command;
use std::time::Duration;

use super::tally::Tally;

/// A step gets this long unless it says otherwise: a clean build of everything, and all unit tests, on a slow machine with other things to
/// do fit. It tells a hang, and no more: all steps together take a quarter of it where nothing else runs.
const USUAL_LIMIT: Duration = Duration::from_secs(3600);

/// A command to run and how to read its result.
#[derive(Debug)]
pub(super) struct Step {
    /// What is shown, and what filters look at.
    pub(super) name: String,
    /// What is run.
    pub(super) command: Command,
    /// Reads the tally off the command's output, given whether its exit status was 0.
    pub(super) tally: fn(output: &str, success: bool) -> Tally,
    /// How long the command may take.
    pub(super) limit: Duration,
}

impl Step {
    /// A step with the usual time limit.
    pub(super) fn new(name: impl Into<String>, command: Command, tally: fn(&str, bool) -> Tally) -> Self {
        Self { name: name.into(), command, tally, limit: USUAL_LIMIT }
    }

    /// The step with another time limit.
    pub(super) const fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }
}
