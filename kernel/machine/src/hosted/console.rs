//! The console of a hosted machine is standard error.

use std::io::Write;

pub(crate) fn write_bytes(bytes: &[u8]) {
    // A test's output that can't be written is of no use to anybody.
    let _ = std::io::stderr().write_all(bytes);
}

pub(crate) fn read_byte() -> Option<u8> {
    None
}

pub(crate) fn take_break() -> bool {
    false
}

pub(crate) fn interrupt_on_input() {}
