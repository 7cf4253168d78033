//! The memory of a process as files: `mem` (its bytes, at their addresses) and `pagemap` (eight bytes for each page).
//!
//! Who may look is checked when the file is opened; what is shown stays the memory that the process had then, also when it
//! executes another program: once that is gone, there is nothing to read. Bytes go through a page of kernel memory, since
//! both sides may have to be faulted in.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::num::{IntErrorKind, ParseIntError};

use machine::address::{PAGE_SHIFT, PAGE_SIZE, UserAddr};
use memory::address_space::{AddressSpace, MapBacking, PresentPage};
use memory::buffer::{Sink, Source};
use memory::region::RegionFlags;
use vfs::file::{FileFeatures, FileOperations};
use vfs::{Capabilities, Error, OpenFile, Result, SeekFrom};

use super::process::Subject;
use crate::terminal::calling_thread;

/// The address space, as long as a program runs in it.
struct Memory(Weak<AddressSpace>);

impl Memory {
    fn of(subject: &Subject) -> Result<Memory> {
        let space = subject.process()?.address_space();
        Ok(Memory(space.as_ref().map_or_else(Weak::new, Arc::downgrade)))
    }
}

/// A seek that knows no end: addresses are positions.
fn seek(current: u64, target: SeekFrom) -> Result<u64> {
    match target {
        SeekFrom::Start(offset) => Ok(offset.cast_unsigned()),
        SeekFrom::Current(offset) => Ok(current.wrapping_add_signed(offset)),
        _ => Err(Error::Invalid),
    }
}

fn page_buffer() -> Result<Vec<u8>> {
    vfs::allocation::filled(0, PAGE_SIZE)
}

/// How far to go in one step: not beyond the page of the position.
fn step(position: u64, left: usize) -> usize {
    (PAGE_SIZE - position as usize % PAGE_SIZE).min(left)
}

/// An open `mem`.
struct Bytes(Memory);

/// `mem`
pub(super) fn bytes(subject: &Subject) -> Result<Arc<dyn FileOperations>> {
    subject.inspect_attaching(|| Ok(()))?;
    let file: Arc<dyn FileOperations> = vfs::allocation::arc(Bytes(Memory::of(subject)?))?;
    Ok(file)
}

impl FileOperations for Bytes {
    fn features(&self) -> FileFeatures {
        FileFeatures::SEEKABLE
    }

    fn read(&self, _file: &OpenFile, position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        let Some(space) = self.0.0.upgrade() else { return Ok(0) };
        let mut buffer = page_buffer()?;
        let mut done = 0;
        while !sink.is_full() {
            let count = step(*position, sink.remaining());
            let Ok(read) = space.read_remote(UserAddr::new(*position), &mut buffer[..count]) else {
                return if done > 0 { Ok(done) } else { Err(Error::Io) };
            };
            let taken = sink.write(&buffer[..read])?;
            *position += taken as u64;
            done += taken;
        }
        Ok(done)
    }

    fn write(&self, _file: &OpenFile, position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        let Some(space) = self.0.0.upgrade() else { return Ok(0) };
        let mut buffer = page_buffer()?;
        let mut done = 0;
        while !source.is_empty() {
            let count = step(*position, source.remaining());
            let taken = source.read(&mut buffer[..count])?;
            let Ok(written) = space.write_forced(UserAddr::new(*position), &buffer[..taken]) else {
                return if done > 0 { Ok(done) } else { Err(Error::Io) };
            };
            *position += written as u64;
            done += written;
        }
        Ok(done)
    }

    fn seek(&self, _file: &OpenFile, current: u64, target: SeekFrom) -> Result<u64> {
        seek(current, target)
    }
}

/// Writing `clear_refs`: pages count as unused from here on (1: all, 2: those without a file, 3: those of files), or the peak of memory is that of now (5).
/// 4 is accepted: whether a page was written to is not kept, as on a Linux that is built so.
pub(super) fn clear_references(subject: &Subject, bytes: &[u8]) -> Result<()> {
    const WITHOUT_FILE: i32 = 2;
    const OF_FILES: i32 = 3;
    const SOFT_DIRTY: i32 = 4;
    const PEAK: i32 = 5;
    let text = core::str::from_utf8(bytes).map_err(|_| Error::Invalid)?;
    let what: i32 = text.trim().parse().map_err(|error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => Error::Range,
        _ => Error::Invalid,
    })?;
    if !(1..=PEAK).contains(&what) {
        return Err(Error::Invalid);
    }
    let Some(space) = subject.process()?.address_space() else { return Ok(()) };
    match what {
        SOFT_DIRTY => {}
        PEAK => space.forget_peak(),
        _ => space.for_each_region(|region| {
            let shared = region.flags().intersects(RegionFlags::SHARED | RegionFlags::POOLED);
            let is_of_file = shared || matches!(region.backing(), MapBacking::File(_));
            if what != if is_of_file { WITHOUT_FILE } else { OF_FILES } {
                space.forget_references(region);
            }
        }),
    }
    Ok(())
}

/// Bytes of an entry of `pagemap`.
const ENTRY_BYTES: usize = size_of::<u64>();
const ENTRY_PRESENT: u64 = 1 << 63;
const ENTRY_FILE: u64 = 1 << 61;
const ENTRY_EXCLUSIVE: u64 = 1 << 56;

/// An open `pagemap`.
struct PageMap {
    memory: Memory,
    /// Whether who opened it may see the numbers of frames.
    shows_frames: bool,
}

/// `pagemap`
pub(super) fn page_map(subject: &Subject) -> Result<Arc<dyn FileOperations>> {
    let shows_frames =
        calling_thread().is_some_and(|thread| thread.credentials().has(Capabilities::SYS_ADMIN));
    let file: Arc<dyn FileOperations> =
        vfs::allocation::arc(PageMap { memory: Memory::of(subject)?, shows_frames })?;
    Ok(file)
}

fn entry_of(page: Option<PresentPage>, shows_frames: bool) -> u64 {
    let Some(page) = page else { return 0 };
    let mut entry = ENTRY_PRESENT;
    if page.of_file {
        entry |= ENTRY_FILE;
    }
    if page.exclusive {
        entry |= ENTRY_EXCLUSIVE;
    }
    if shows_frames { entry | page.frame_number } else { entry }
}

impl FileOperations for PageMap {
    fn features(&self) -> FileFeatures {
        FileFeatures::SEEKABLE
    }

    fn read(&self, _file: &OpenFile, position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        const END: u64 = (machine::address::USER_END as u64 >> PAGE_SHIFT) * ENTRY_BYTES as u64;
        if !position.is_multiple_of(ENTRY_BYTES as u64) || !sink.remaining().is_multiple_of(ENTRY_BYTES) {
            return Err(Error::Invalid);
        }
        let Some(space) = self.memory.0.upgrade() else { return Ok(0) };
        let mut buffer = page_buffer()?;
        let mut done = 0;
        while !sink.is_full() && *position < END {
            let count = step(*position, sink.remaining());
            for (index, entry) in buffer[..count].chunks_exact_mut(ENTRY_BYTES).enumerate() {
                let page = *position / ENTRY_BYTES as u64 + index as u64;
                let present = space.present_page(UserAddr::new(page << PAGE_SHIFT));
                entry.copy_from_slice(&entry_of(present, self.shows_frames).to_ne_bytes());
            }
            let taken = sink.write(&buffer[..count])?;
            *position += taken as u64;
            done += taken;
        }
        Ok(done)
    }

    fn seek(&self, _file: &OpenFile, current: u64, target: SeekFrom) -> Result<u64> {
        seek(current, target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_absent_pages_are_zero_and_frames_are_for_the_privileged() {
        let page = PresentPage { frame_number: 0x123, of_file: true, exclusive: false };
        assert_eq!(entry_of(None, true), 0);
        assert_eq!(entry_of(Some(page), true), ENTRY_PRESENT | ENTRY_FILE | 0x123);
        assert_eq!(entry_of(Some(page), false), ENTRY_PRESENT | ENTRY_FILE);
    }

    #[test]
    fn steps_end_at_pages() {
        assert_eq!(step(0x1ff0, 100), 16);
        assert_eq!(step(0x2000, 100), 100);
        assert_eq!(step(0x2000, 5000), PAGE_SIZE);
    }
}
