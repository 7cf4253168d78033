//! What goes wrong on our side, and the exit status that says so.
//!
//! As with `docker run`, statuses 125 to 127 are ours and everything else is the command's: 125 for a fault of the
//! tool or its usage, 126 for a command that cannot be executed, 127 for one that does not exist. A [`Failure`] is
//! one line on standard error and one of these statuses.

use std::fmt;

/// Exit status for bad usage and for faults that are ours.
pub(crate) const STATUS_OURS: u8 = 125;
/// Exit status when the command cannot be executed.
pub(crate) const STATUS_NOT_EXECUTABLE: u8 = 126;
/// Exit status when the command does not exist.
pub(crate) const STATUS_NOT_FOUND: u8 = 127;
/// Exit status when `--timeout` ran out.
pub(crate) const STATUS_TIMEOUT: u8 = 124;
/// A command killed by signal n has the exit status of this plus n, as in every shell.
pub(crate) const STATUS_SIGNAL_BASE: u8 = 128;

/// A failure with its exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The exit status of the tool.
    pub(crate) status: u8,
    message: String,
}

/// The result of everything that can fail here.
pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    /// A fault of ours or of the usage: status 125.
    pub(crate) fn ours(message: impl Into<String>) -> Self {
        Self { status: STATUS_OURS, message: message.into() }
    }

    /// A failure with another status.
    pub(crate) fn with_status(status: u8, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }
}

impl fmt::Display for Failure {
    /// One line, whatever was put in.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = self.message.split(['\n', '\r']).map(str::trim).filter(|line| !line.is_empty());
        f.write_str(words.next().unwrap_or("failed"))?;
        words.try_for_each(|line| write!(f, ": {line}"))
    }
}

/// Says what was being done when an operation failed.
pub(crate) trait Context<T> {
    /// Turns the error into a [`Failure`] that starts with what `doing` says.
    fn context(self, doing: impl FnOnce() -> String) -> Outcome<T>;
}

impl<T, E: fmt::Display> Context<T> for Result<T, E> {
    fn context(self, doing: impl FnOnce() -> String) -> Outcome<T> {
        self.map_err(|error| {
            // "No such file or directory (os error 2)" says the same thing twice.
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or(&text);
            Failure::ours(format!("{}: {text}", doing()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_is_one_line() {
        assert_eq!(Failure::ours("first\n\n  second\n").to_string(), "first: second");
    }

    #[test]
    fn context_names_the_operation_and_drops_the_error_number() {
        let error = std::io::Error::from_raw_os_error(2);
        let failure = Err::<(), _>(error).context(|| "image x".into()).expect_err("is an error");
        assert_eq!(failure.to_string(), "image x: No such file or directory");
        assert_eq!(failure.status, 125);
    }
}
