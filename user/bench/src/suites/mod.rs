//! The suites, a file each.

mod apps;
mod calls;
mod disk_files;
mod events;
mod files;
mod memory;
mod process;
mod scale;
mod threads;
mod unixbench;

use std::io;

/// Runs a suite by its name.
///
/// # Errors
/// When there is none of this name, or what all its tests need cannot be had.
pub(crate) fn run(name: &str) -> io::Result<()> {
    bench::measure::forget_reports();
    match name {
        // The start itself was the test.
        "boot" => memory::after_boot(),
        "apps" => apps::run()?,
        "calls" => {
            calls::run();
            events::run();
        }
        "files" => files::run()?,
        "files-ext4" => disk_files::run()?,
        "memory" => memory::run(),
        "process" => process::run()?,
        "scale" => scale::run()?,
        "threads" => threads::run(),
        "unixbench" => unixbench::run(),
        _ => return Err(io::Error::other("no such suite")),
    }
    Ok(())
}
