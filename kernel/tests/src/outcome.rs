//! What a test ends with.

use core::fmt::{self, Write};

/// Longest text of a failure; more is cut off.
const TEXT_BYTES: usize = 200;

/// Why a test failed. Holds its text without allocating, because memory may be what is tested.
pub(crate) struct Failure {
    text: [u8; TEXT_BYTES],
    length: usize,
}

/// Nothing, or why the test failed.
pub(crate) type Outcome = Result<(), Failure>;

impl Failure {
    pub(crate) fn new(arguments: fmt::Arguments<'_>) -> Failure {
        let mut failure = Failure { text: [0; TEXT_BYTES], length: 0 };
        // Running out of room cuts the text off.
        let _ = failure.write_fmt(arguments);
        failure
    }
}

impl Write for Failure {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            *self.text.get_mut(self.length).ok_or(fmt::Error)? = byte;
            self.length += 1;
        }
        Ok(())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(core::str::from_utf8(&self.text[..self.length]).unwrap_or("(not text)"))
    }
}

/// Ends the test with a formatted reason.
macro_rules! fail {
    ($($argument:tt)*) => {
        return Err($crate::Failure::new(format_args!($($argument)*)))
    };
}

/// Ends the test with a reason unless the condition holds.
macro_rules! check {
    ($condition:expr, $($argument:tt)*) => {
        if !$condition {
            $crate::fail!($($argument)*);
        }
    };
}

pub(crate) use {check, fail};
