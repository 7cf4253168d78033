//! The `starling` command.
#![forbid(unsafe_code)]

fn main() {}
