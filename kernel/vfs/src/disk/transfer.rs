//! Runs of pages on their way to and from a device.

use alloc::vec::Vec;

use block::{Bio, BioFlags, Memory, Operation, SECTOR_BYTES, Segment, Volume};
use machine::address::PAGE_SIZE;
use memory::fallible;
use memory::file_cache::{CacheError, PageRun};

/// Sectors of a page.
pub const PAGE_SECTORS: u64 = (PAGE_SIZE / SECTOR_BYTES) as u64;

/// What a file's user is told of a device's error.
pub fn error_of(error: block::Error) -> CacheError {
    match error {
        block::Error::OutOfMemory => CacheError::OutOfMemory,
        block::Error::NoSpace => CacheError::NoSpace,
        block::Error::NoDevice => CacheError::NoDevice,
        block::Error::ReadOnly => CacheError::ReadOnly,
        _ => CacheError::InputOutput,
    }
}

impl From<block::Error> for crate::Error {
    fn from(error: block::Error) -> Self {
        match error {
            block::Error::Busy => Self::Busy,
            block::Error::Invalid => Self::Invalid,
            block::Error::NotSupported => Self::NotSupported,
            other => error_of(other).into(),
        }
    }
}

/// Transfers the pages of a run, which lie in one piece from `sector` on, and ends the run afterwards. `bytes` of it are on the device: the
/// last page may be a part of one, at the device's end. May return before the transfer has ended.
pub fn submit(
    volume: &Volume,
    operation: Operation,
    sector: u64,
    bytes: usize,
    mut run: PageRun,
    flags: BioFlags,
) {
    let most = pages_max(volume);
    let (mut sector, mut bytes) = (sector, bytes);
    while run.pages() > most {
        let front = run.split(most);
        submit_one(volume, operation, sector, most * PAGE_SIZE, front, flags);
        sector += most as u64 * PAGE_SECTORS;
        bytes -= most * PAGE_SIZE;
    }
    submit_one(volume, operation, sector, bytes, run, flags);
}

/// The pages that one transfer may have.
pub fn pages_max(volume: &Volume) -> usize {
    let limits = volume.queue().limits();
    limits.segments_max.min(limits.sectors_max as usize / PAGE_SECTORS as usize).max(1)
}

fn submit_one(
    volume: &Volume,
    operation: Operation,
    sector: u64,
    bytes: usize,
    run: PageRun,
    flags: BioFlags,
) {
    match bio(operation, sector, bytes, &run, flags) {
        // Without memory for the completion the run is dropped, which says so.
        Ok(bio) => match bio.on_done(move |bio, outcome| complete(bio, run, outcome)) {
            Ok(bio) => volume.submit(bio),
            Err(error) => log::debug!("a transfer of pages waits for memory: {error}"),
        },
        Err(error) => run.complete(Err(error_of(error))),
    }
}

/// Ends a run. The bio's references go first: who waits for the pages may want to give them up.
fn complete(bio: Bio, run: PageRun, outcome: block::Result<()>) {
    drop(bio);
    run.complete(outcome.map_err(error_of));
}

/// A bio for the pages of a run, at most [`pages_max`]; as [`submit`] has it.
///
/// # Errors
/// No memory.
pub fn bio(
    operation: Operation,
    sector: u64,
    bytes: usize,
    run: &PageRun,
    flags: BioFlags,
) -> block::Result<Bio> {
    let mut segments: Vec<Segment> = fallible::try_vec(run.pages())?;
    let mut left = bytes;
    for frame in run.frames() {
        let length = left.min(PAGE_SIZE);
        segments.push(Segment::new(Memory::Frame(frame.clone()), 0, length)?);
        left -= length;
    }
    Bio::new(operation, sector, segments, flags)
}
