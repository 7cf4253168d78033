//! The disk with an ext4 that some suites need, as the host's side of the benchmarks makes one for the boot.
//!
//! Where instructions are counted, the clock jumps while everybody waits for a device. So there it is a disk in memory,
//! which both kernels have by the same words on their command lines, and which is filled from a file of the boot archive.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::measure;

const DISK: &str = "/dev/vda";
const DISK_IN_MEMORY: &str = "/dev/ram0";
/// Those of its blocks that are not zero.
const BLOCKS: &str = "/disk.blocks";
const PLACE_BYTES: usize = 8;
const BLOCK_BYTES: usize = 4096;
/// How long it may take to be found.
const PATIENCE: Duration = Duration::from_secs(20);

/// Makes a directory and mounts the disk there, which is waited for.
///
/// # Errors
/// When there is no disk with a file system, or the directory cannot be made.
pub fn attach(directory: &str) -> io::Result<()> {
    fs::create_dir(directory)?;
    let disk = if measure::counts_instructions() {
        fill_disk_in_memory()?;
        DISK_IN_MEMORY
    } else {
        wait_for_disk()?;
        DISK
    };
    Ok(mount(disk, directory, "ext4", MountFlags::empty(), None)?)
}

fn wait_for_disk() -> io::Result<()> {
    let start = Instant::now();
    while !Path::new(DISK).exists() {
        if start.elapsed() > PATIENCE {
            return Err(io::ErrorKind::NotFound.into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Writes what the host's side has left of a new file system to the disk in memory: where a block goes, in eight bytes, and the block.
fn fill_disk_in_memory() -> io::Result<()> {
    let blocks = fs::read(BLOCKS)?;
    let disk = File::options().write(true).open(DISK_IN_MEMORY)?;
    for record in blocks.chunks_exact(PLACE_BYTES + BLOCK_BYTES) {
        let (place, block) = record.split_at(PLACE_BYTES);
        let place = place.iter().rev().fold(0, |place, byte| place << 8 | u64::from(*byte));
        disk.write_all_at(block, place)?;
    }
    disk.sync_all()
}

/// Has nothing of any file be in memory, and nothing wait to be written.
///
/// # Errors
/// When the kernel does not know how.
pub fn forget() -> io::Result<()> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3")
}

/// Writes back what is left, and unmounts.
///
/// # Errors
/// When a file is open still.
pub fn detach(directory: &str) -> io::Result<()> {
    rustix::fs::sync();
    Ok(unmount(directory, UnmountFlags::empty())?)
}
