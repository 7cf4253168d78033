//! A request on its way: which memory the controller reaches for it.
//!
//! A command names the pages of its data: the first from some byte on, all others from their start, all but the last to their end. What lies in page frames so is reached where it
//! is. All else is copied to and from pieces of its own. The first page is named in the command, the second too if there are no more; else there is
//! the address of a list of the others, for which each slot has room.

use alloc::vec::Vec;

use block::{Memory, Operation, Request, SECTOR_BYTES};
use device::dma::Buffer;
use machine::address::PAGE_SIZE;
use memory::{OutOfMemory, fallible};

use crate::queue::QueueMemory;

/// Sectors of a request at most.
pub(crate) const SECTORS_MAX: u32 = 1024;
/// Bytes of a slot's list: a page for each 4 KiB, and one more since the first may begin anywhere, but that is not in the list.
pub(crate) const LIST_BYTES: usize = SECTORS_MAX as usize * SECTOR_BYTES / PAGE_SIZE * 8;
/// Bytes of memory that is copied to and from in one piece.
const COPY_BYTES: usize = 32 << 10;

/// See the theory of this file.
pub(crate) struct Transfer {
    request: Request,
    /// What the controller reaches instead of the request's memory; empty if that is reached itself.
    copies: Vec<Buffer>,
}

/// Whether the request's memory can be named as it is.
fn is_in_pages(request: &Request) -> bool {
    let last = request.segment_count().saturating_sub(1);
    request.segments().enumerate().all(|(index, segment)| {
        let (memory, offset, length) = segment.parts();
        let starts_well = index == 0 || offset == 0;
        let ends_well = index == last || offset + length == PAGE_SIZE;
        matches!(memory, Memory::Frame(_)) && starts_well && ends_well
    })
}

fn make_copies(bytes: usize) -> Result<Vec<Buffer>, OutOfMemory> {
    let mut copies = fallible::try_vec(bytes.div_ceil(COPY_BYTES))?;
    for at in (0..bytes).step_by(COPY_BYTES) {
        copies.push(Buffer::allocate(COPY_BYTES.min(bytes - at))?);
    }
    Ok(copies)
}

impl Transfer {
    /// Finds or makes the memory that the controller will reach.
    ///
    /// # Errors
    /// The request, when there is no memory for that.
    pub(crate) fn prepare(request: Request) -> Result<Self, Request> {
        if !request.operation().has_data() || is_in_pages(&request) {
            return Ok(Self { request, copies: Vec::new() });
        }
        let bytes = request.sectors() as usize * SECTOR_BYTES;
        let Ok(copies) = make_copies(bytes) else { return Err(request) };
        if request.operation() == Operation::Write {
            let mut at = 0;
            let mut sector = [0; SECTOR_BYTES];
            for segment in request.segments() {
                for offset in (0..segment.len()).step_by(SECTOR_BYTES) {
                    segment.copy_out(offset, &mut sector);
                    copies[at / COPY_BYTES].write(at % COPY_BYTES, &sector);
                    at += SECTOR_BYTES;
                }
            }
        }
        Ok(Self { request, copies })
    }

    /// What is asked for.
    pub(crate) fn request(&self) -> &Request {
        &self.request
    }

    /// That, to end it otherwise.
    pub(crate) fn into_request(self) -> Request {
        self.request
    }

    /// Calls with the address of each page, in order.
    fn for_each_page(&self, mut visit: impl FnMut(u64)) {
        if self.copies.is_empty() {
            for segment in self.request.segments() {
                let (memory, offset, _) = segment.parts();
                if let Memory::Frame(frame) = memory {
                    visit(frame.physical().as_u64() + offset as u64);
                }
            }
            return;
        }
        let mut left = self.request.sectors() as usize * SECTOR_BYTES;
        for copy in &self.copies {
            let bytes = left.min(COPY_BYTES);
            (0..bytes).step_by(PAGE_SIZE).for_each(|at| visit(copy.physical().as_u64() + at as u64));
            left -= bytes;
        }
    }

    /// The two words of a command that say where its data is; `lists` at `offset` is for what does not fit in.
    pub(crate) fn name_pages(&self, lists: &impl QueueMemory, offset: usize) -> [u64; 2] {
        let (mut first, mut second, mut count) = (0, 0, 0);
        self.for_each_page(|page| {
            match count {
                0 => first = page,
                1 => second = page,
                _ => {}
            }
            if count > 0 {
                let at = (count - 1) * 8;
                assert!(at < LIST_BYTES, "the limits keep requests small enough");
                lists.write_u64(offset + at, page);
            }
            count += 1;
        });
        [first, if count > 2 { lists.address().as_u64() + offset as u64 } else { second }]
    }

    /// Tells those who wait.
    pub(crate) fn complete(mut self, outcome: block::Result<()>) {
        if outcome.is_ok() && self.request.operation() == Operation::Read && !self.copies.is_empty() {
            let mut at = 0;
            let mut sector = [0; SECTOR_BYTES];
            for segment in self.request.segments_mut() {
                for offset in (0..segment.len()).step_by(SECTOR_BYTES) {
                    self.copies[at / COPY_BYTES].read(at % COPY_BYTES, &mut sector);
                    segment.copy_in(offset, &sector);
                    at += SECTOR_BYTES;
                }
            }
        }
        self.request.complete(outcome);
    }
}

#[cfg(test)]
#[path = "transfer_tests.rs"]
mod tests;
