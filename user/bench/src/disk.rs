//! The disk with an ext4 that some suites need, as the host's side of the benchmarks makes one for the boot.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

const DISK: &str = "/dev/vda";
/// How long it may take to be found.
const PATIENCE: Duration = Duration::from_secs(20);

/// Makes a directory and mounts the disk there, which is waited for.
///
/// # Errors
/// When there is no disk with a file system, or the directory cannot be made.
pub fn attach(directory: &str) -> io::Result<()> {
    std::fs::create_dir(directory)?;
    let start = Instant::now();
    while !Path::new(DISK).exists() {
        if start.elapsed() > PATIENCE {
            return Err(io::ErrorKind::NotFound.into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(mount(DISK, directory, "ext4", MountFlags::empty(), None)?)
}

/// Writes back what is left, and unmounts.
///
/// # Errors
/// When a file is open still.
pub fn detach(directory: &str) -> io::Result<()> {
    rustix::fs::sync();
    Ok(unmount(directory, UnmountFlags::empty())?)
}
