//! Shows on a terminal what takes longer than a moment. Everywhere else nothing is shown where standard error
//! belongs to the command that is being run, and plain lines where it does not.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often the line is drawn.
const DRAW_INTERVAL: Duration = Duration::from_millis(120);

/// A line that says what is being done, on terminals only. It vanishes when it is dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Says it in plain lines instead.
    plain: bool,
}

impl Progress {
    /// A line on standard error if that is a terminal.
    pub(crate) fn new() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::silent();
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(
            ProgressStyle::with_template("{spinner} {msg} {elapsed:.dim}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        Self { bar, plain: false }
    }

    /// The same, and plain lines if standard error is no terminal: for a command that takes long and is all ours.
    pub(crate) fn with_lines() -> Self {
        let mut progress = Self::new();
        progress.plain = !std::io::stderr().is_terminal();
        progress
    }

    /// A line that is never shown.
    pub(crate) fn silent() -> Self {
        Self { bar: ProgressBar::hidden(), plain: false }
    }

    /// Shows what is being done.
    pub(crate) fn say(&self, what: &str) {
        if self.plain {
            eprintln!("{what}");
            return;
        }
        self.bar.set_message(what.to_owned());
        self.bar.enable_steady_tick(DRAW_INTERVAL);
    }

    /// Takes the line away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}
