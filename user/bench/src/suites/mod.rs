//! The suites, a file each.

mod calls;
mod events;
mod files;
mod memory;
mod process;
mod scale;
mod threads;
mod unixbench;

use std::io;

pub(crate) use calls::install as install_handler;

/// Runs a suite by its name.
///
/// # Errors
/// When there is none of this name, or what all its tests need cannot be had.
pub(crate) fn run(name: &str) -> io::Result<()> {
    crate::measure::forget_reports();
    if let Some(words) = name.strip_prefix("sharing") {
        return crate::sharing::run(words.trim_start_matches('='));
    }
    match name {
        // The start itself was the test.
        "boot" => memory::after_boot(),
        "calls" => {
            calls::run();
            events::run();
        }
        "files" => files::run()?,
        "locks" => crate::locks::run()?,
        "memory" => memory::run(),
        "process" => process::run()?,
        "scale" => scale::run()?,
        "threads" => threads::run(),
        "unixbench" => unixbench::run(),
        _ => return Err(io::Error::other("no such suite")),
    }
    Ok(())
}
