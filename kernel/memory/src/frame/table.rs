//! The kernel's table of frame metadata, and which parts of it exist.
//!
//! The metadata of frame *n* lies at `FRAME_METADATA_BASE + 32·n`. A chunk of 1024 frames (4 MiB) needs 8 pages of it.
//! They are mapped and zeroed when the chunk is brought up and never go away. A bit map of the chunks that have
//! theirs makes it possible to ask about any physical address.
//!
//! Locking: chunks are brought up under the pool's lock; the bit map is read by anyone.

use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Release},
};

use super::metadata::{Metadata, Table};
use super::number::{CHUNK_FRAMES, FrameNumber, MAX_SECTIONS, SECTION_CHUNKS};

/// Pages of metadata of a chunk.
pub(crate) const CHUNK_METADATA_PAGES: u32 = (CHUNK_FRAMES as usize * size_of::<Metadata>() / 4096) as u32;

/// For each section of 128 MiB a bit for each of its chunks that has metadata.
static PRESENT: [AtomicU32; MAX_SECTIONS as usize] = [const { AtomicU32::new(0) }; MAX_SECTIONS as usize];

/// Whether the chunk's metadata exists.
pub(crate) fn chunk_is_present(chunk: u32) -> bool {
    let (section, bit) = (chunk / SECTION_CHUNKS, chunk % SECTION_CHUNKS);
    // Acquire: pairs with the Release in `set_chunk_present`; the mapping and the zeroes are seen with the bit.
    PRESENT.get(section as usize).is_some_and(|chunks| chunks.load(Acquire) & (1 << bit) != 0)
}

/// Notes that the chunk's metadata is mapped and zeroed. Called under the pool's lock.
pub(crate) fn set_chunk_present(chunk: u32) {
    let (section, bit) = (chunk / SECTION_CHUNKS, chunk % SECTION_CHUNKS);
    PRESENT[section as usize].fetch_or(1 << bit, Release);
}

/// How many frames of files have more than one holder: their cache, and programs that map them, or who is using them at this moment.
pub(crate) fn shared_file_frames() -> u64 {
    let mut found = 0;
    for section in 0..MAX_SECTIONS {
        if PRESENT[section as usize].load(Acquire) == 0 {
            continue;
        }
        for chunk in (section * SECTION_CHUNKS..(section + 1) * SECTION_CHUNKS)
            .filter(|&chunk| chunk_is_present(chunk))
        {
            let frames = chunk * CHUNK_FRAMES..(chunk + 1) * CHUNK_FRAMES;
            found +=
                frames.filter(|&frame| metadata(FrameNumber::new(frame)).is_shared_file()).count() as u64;
        }
    }
    found
}

/// The kernel's table.
#[derive(Clone, Copy)]
pub(crate) struct KernelTable;

impl Table for KernelTable {
    #[inline]
    fn at(&self, frame: FrameNumber) -> &Metadata {
        debug_assert!(chunk_is_present(frame.chunk()), "{frame:?} has no metadata yet");
        // SAFETY: the frame lies in a chunk that has been brought up: numbers come from the allocator, or from an
        // address that was checked against the bit map. So its metadata is mapped, zeroed at first, and consists of
        // atomics only, which may be shared; it is never unmapped.
        unsafe { &*base().add(frame.index() as usize) }
    }
}

#[cfg(target_os = "none")]
#[inline]
fn base() -> *const Metadata {
    core::ptr::with_exposed_provenance(machine::address::FRAME_METADATA_BASE)
}

#[cfg(not(target_os = "none"))]
fn base() -> *const Metadata {
    super::hosted::metadata()
}

/// The metadata of a frame, for the kernel's table.
#[inline]
pub(crate) fn metadata(frame: FrameNumber) -> &'static Metadata {
    static TABLE: KernelTable = KernelTable;
    TABLE.at(frame)
}
