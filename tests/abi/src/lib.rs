//! What harnesses that run programs in the guest have in common: [`stream`] reads what the runner inside (`user/separate/runner.c`) reports,
//! [`mod@difference`] says what two outputs differ in, [`tally`] counts, and [`known`] is the list of what may differ.
#![forbid(unsafe_code)]

pub mod difference;
pub mod known;
pub mod stream;
pub mod tally;
