//! Reading and writing through the cache.
//!
//! A read copies each page under an RCU guard, with no lock, no reference and no atomic operation: what is read by many processors at a
//! time is written by none. The guard keeps it from sleeping, so a page of the program's buffer that is not there ends the copy; the
//! rest is copied from a page that is kept by a reference. Holes read as zeros and stay holes. A write holds `change`: it is atomic to other writes, and a page that truncation has just taken away, or
//! the zeros beyond the size, can't come back with old bytes. The program's buffer may lie in a mapping of the same file:
//! a fault takes `change` only to clear the file's tail, which the write has done before it copies.

use super::cache::{CacheError, FileCache, MAX_FILE_BYTES, TAIL_UNCLEAN, borrow_frame, page_of, within_page};
use super::lookup::{Found, Intent, Reserved, Tagged};
use super::variant;
use crate::buffer::{Sink, Source};
use crate::frame::{Frame, Zeroed};
use core::sync::atomic::Ordering;
use machine::address::PAGE_SIZE;
use sync::rcu;

/// Any home takes files of so many bytes.
const SMALL_BYTES: u64 = i32::MAX as u64;

/// Bytes of one page.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) page: u64,
    pub(super) start: usize,
    pub(super) count: usize,
}

impl FileCache {
    /// Reads from `offset` until the sink is full or the file ends; returns the bytes read.
    ///
    /// # Errors
    /// Only when nothing was read: the reason why.
    pub fn read_at(&self, offset: u64, sink: &mut Sink<'_>) -> Result<usize, CacheError> {
        self.read_until(offset, u64::MAX, sink)
    }

    /// The same, at most up to the byte at `end`.
    ///
    /// # Errors
    /// As [`FileCache::read_at`].
    pub fn read_up_to(&self, offset: u64, end: u64, sink: &mut Sink<'_>) -> Result<usize, CacheError> {
        self.read_until(offset, end, sink)
    }

    #[inline(always)]
    fn read_until(&self, offset: u64, end: u64, sink: &mut Sink<'_>) -> Result<usize, CacheError> {
        if let Some(choice) = variant::chosen() {
            return self.read_as_chosen(choice, offset, sink);
        }
        let mut done = 0;
        // Whether the program's buffer was there so far.
        let mut is_mapped = true;
        loop {
            let position = offset.saturating_add(done as u64);
            let left = self.size().min(end).saturating_sub(position).min(sink.remaining() as u64);
            if left == 0 {
                return Ok(done);
            }
            let start = within_page(position);
            let count = (PAGE_SIZE - start).min(left as usize);
            let step = Piece { page: page_of(position), start, count };
            let found = if is_mapped { self.read_unreferenced(step, sink) } else { None };
            let copied = found.unwrap_or(0);
            done += copied;
            if copied == count {
                continue;
            }
            match self.read_rest(Piece { start: start + copied, count: count - copied, ..step }, sink) {
                Ok(bytes) => {
                    done += bytes;
                    // Where a byte of the buffer was missing, the next ones probably are, too.
                    is_mapped &= found.is_none();
                    if copied + bytes < count {
                        return Ok(done);
                    }
                }
                Err(error) => return if done > 0 { Ok(done) } else { Err(error) },
            }
        }
    }

    /// Copies a piece of a page, as far as the program's buffer is there; returns the bytes, or None if the page is not.
    #[inline]
    fn read_unreferenced(&self, piece: Piece, sink: &mut Sink<'_>) -> Option<usize> {
        let guard = rcu::read();
        let place = self.index.find(piece.page, &guard)?;
        let frame = borrow_frame(place.word())?;
        variant::count(1, 0);
        let copied = sink.write_frame(&frame, piece.start, piece.count);
        drop(guard);
        Some(copied.unwrap_or(0))
    }

    /// The same with a reference, of a page that may have to be brought in, to a buffer that may.
    #[inline(never)]
    pub(super) fn read_rest(&self, piece: Piece, sink: &mut Sink<'_>) -> Result<usize, CacheError> {
        let frame = match self.look_up(piece.page) {
            Found::Present(frame) => Some(frame),
            Found::Absent if !self.has_representative() => None,
            Found::Absent | Found::Filling => Some(self.page(piece.page, Intent::Read, true)?),
        };
        Ok(match &frame {
            Some(frame) => sink.write_frame(frame, piece.start, piece.count)?,
            None => sink.write_zeros(piece.count)?,
        })
    }

    /// Writes all of the source at `offset`, extending the file if need be; returns the bytes written.
    ///
    /// # Errors
    /// Only when nothing was written: the reason why.
    pub fn write_at(&self, offset: u64, source: &mut Source<'_>) -> Result<usize, CacheError> {
        let _change = self.change.lock();
        self.write_locked(offset, u64::MAX, source)
    }

    /// The same, at most so many bytes.
    ///
    /// # Errors
    /// As [`FileCache::write_at`].
    pub fn write_some(&self, offset: u64, most: u64, source: &mut Source<'_>) -> Result<usize, CacheError> {
        let _change = self.change.lock();
        self.write_locked(offset, most, source)
    }

    /// The same, and not beyond the end of the file: its size stays, whoever changes it meanwhile.
    ///
    /// # Errors
    /// As [`FileCache::write_at`].
    pub fn write_within(&self, offset: u64, most: u64, source: &mut Source<'_>) -> Result<usize, CacheError> {
        let _change = self.change.lock();
        match most.min(self.size().saturating_sub(offset)) {
            0 => Ok(0),
            most => self.write_locked(offset, most, source),
        }
    }

    /// Writes all of the source at the end of the file; returns where that was, and the bytes written.
    ///
    /// # Errors
    /// As [`FileCache::write_at`].
    pub fn append(&self, source: &mut Source<'_>) -> Result<(u64, usize), CacheError> {
        let _change = self.change.lock();
        let offset = self.size();
        Ok((offset, self.write_locked(offset, u64::MAX, source)?))
    }

    /// Writes with `change` held.
    fn write_locked(&self, offset: u64, most: u64, source: &mut Source<'_>) -> Result<usize, CacheError> {
        if source.is_empty() {
            return Ok(0);
        }
        if offset >= MAX_FILE_BYTES {
            return Err(CacheError::TooBig);
        }
        let mut most = most.min(source.remaining() as u64);
        let extends = offset.saturating_add(most) > self.size();
        if extends && offset.saturating_add(most) > SMALL_BYTES {
            most = self.most_of_large(offset, most)?;
        }
        if extends && (self.has_representative() || self.tail_may_show())
            || self.flags.load(Ordering::Relaxed) & TAIL_UNCLEAN != 0
        {
            self.prepare_growth()?;
        }
        self.write_pages(offset, most, source)
    }

    /// How much of a large file's growth its home can take.
    #[cold]
    fn most_of_large(&self, offset: u64, most: u64) -> Result<u64, CacheError> {
        let bytes_max = self.backing().map_or(MAX_FILE_BYTES, |backing| backing.representative.bytes_max());
        if offset >= bytes_max { Err(CacheError::TooBig) } else { Ok(most.min(bytes_max - offset)) }
    }

    /// Writes page by page; the size follows.
    fn write_pages(&self, offset: u64, most: u64, source: &mut Source<'_>) -> Result<usize, CacheError> {
        let mut done = 0;
        let limit = MAX_FILE_BYTES.saturating_sub(offset).min(most);
        while (done as u64) < limit {
            let position = offset + done as u64;
            let start = within_page(position);
            let count = (PAGE_SIZE - start).min((limit - done as u64) as usize);
            let mut held = None;
            match self.write_page(Piece { page: page_of(position), start, count }, source, &mut held) {
                Ok(bytes) => {
                    done += bytes;
                    if offset + done as u64 > self.size() {
                        // Release: whoever sees the size sees the bytes.
                        self.size.store(offset + done as u64, Ordering::Release);
                    }
                    if let Some(frame) = held {
                        // After the size: what is beyond it is not written back.
                        self.mark_changed(page_of(position), &frame);
                    }
                    if bytes < count {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Writes within one page. `held` gets a page that may have been written back meanwhile.
    fn write_page(
        &self,
        piece: Piece,
        source: &mut Source<'_>,
        held: &mut Option<Frame>,
    ) -> Result<usize, CacheError> {
        let copied = self.write_unreferenced(piece, source);
        if copied == piece.count {
            return Ok(copied);
        }
        let Piece { page, start, count } = piece;
        let (start, count) = (start + copied, count - copied);
        let frame = match self.look_up(page) {
            Found::Absent if count == PAGE_SIZE => return self.write_new_page(page, source, held),
            Found::Present(frame) if self.mark_dirty(page, &frame)? => frame,
            Found::Present(_) | Found::Absent | Found::Filling => self.page(page, Intent::Write, true)?,
        };
        let read = source.read_frame(&frame, start, count);
        if self.has_representative() {
            *held = Some(frame);
        }
        match read {
            Ok(bytes) => Ok(copied + bytes),
            Err(_) if copied > 0 => Ok(copied),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Copies into a page that is in memory, as far as the program's buffer is there; returns the bytes. Nothing where somebody must
    /// know of it.
    #[inline]
    fn write_unreferenced(&self, piece: Piece, source: &mut Source<'_>) -> usize {
        if self.has_representative() {
            return 0;
        }
        let guard = rcu::read();
        // `change` is held, and pages without another home go only under it: this one stays.
        let Some(place) = self.index.find(piece.page, &guard) else { return 0 };
        let Some(frame) = borrow_frame(place.word()) else { return 0 };
        variant::count(1, 0);
        let copied = source.read_frame(&frame, piece.start, piece.count);
        drop(guard);
        copied.unwrap_or(0)
    }

    /// Writes a whole page that is not in memory: the frame is filled before anybody can see it, so it need not be
    /// cleared or brought in first.
    fn write_new_page(
        &self,
        page: u64,
        source: &mut Source<'_>,
        held: &mut Option<Frame>,
    ) -> Result<usize, CacheError> {
        let reserved = match self.backing() {
            Some(backing) => Some((backing, Reserved::new(backing, page)?)),
            None => None,
        };
        let frame = Frame::allocate(self.purpose(), Zeroed::No)?;
        let copied = source.read_frame(&frame, 0, PAGE_SIZE)?;
        if copied < PAGE_SIZE {
            // What was not copied keeps its old bytes, so this piece takes the long way.
            let old = self.page(page, Intent::Write, true)?;
            copy_part(&frame, &old, copied);
            *held = Some(old);
            return Ok(copied);
        }
        if self.offer(page, &frame)? {
            if let Some((backing, reserved)) = reserved {
                if self.tag_dirty(backing, page, &frame) == Tagged::Now {
                    reserved.keep();
                }
                *held = Some(frame);
            }
        } else {
            let other = self.page(page, Intent::Write, true)?;
            other.copy_from(&frame);
            *held = Some(other);
        }
        Ok(copied)
    }
}

/// Copies the first bytes of a frame through a small buffer.
#[inline(never)]
fn copy_part(from: &Frame, to: &Frame, count: usize) {
    let mut buffer = [0; 256];
    let mut done = 0;
    while done < count {
        let now = (count - done).min(buffer.len());
        from.read(done, &mut buffer[..now]);
        to.write(done, &buffer[..now]);
        done += now;
    }
}
