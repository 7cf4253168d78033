//! Reading and writing through the cache.
//!
//! A read looks a batch of pages up under one hold of the index and copies them without any lock; holes read as zeros
//! and stay holes. A write holds `change`: it is atomic to other writes, and a page that truncation has just taken away, or
//! the zeros beyond the size, can't come back with old bytes. The program's buffer may lie in a mapping of the same file:
//! a fault takes `change` only to clear the file's tail, which the write has done before it copies.

use super::cache::{CacheError, FileCache, MAX_FILE_BYTES, TAIL_UNCLEAN, frame_of, page_of, within_page};
use super::lookup::{Found, Intent};
use crate::buffer::{Sink, Source};
use crate::frame::{Frame, Zeroed};
use arrayvec::ArrayVec;
use core::ops::ControlFlow;
use core::sync::atomic::Ordering;
use machine::address::PAGE_SIZE;

/// Pages of a read that are looked up at once.
const READ_PAGES: usize = 8;

impl FileCache {
    /// Reads from `offset` until the sink is full or the file ends; returns the bytes read.
    ///
    /// # Errors
    /// Only when nothing was read: the reason why.
    pub fn read_at(&self, offset: u64, sink: &mut Sink<'_>) -> Result<usize, CacheError> {
        let mut done = 0;
        loop {
            let position = offset.saturating_add(done as u64);
            let left = self.size().saturating_sub(position).min(sink.remaining() as u64);
            if left == 0 {
                return Ok(done);
            }
            match self.read_batch(position, left, sink) {
                Ok((bytes, true)) => done += bytes,
                Ok((bytes, false)) => return Ok(done + bytes),
                Err(error) => return if done > 0 { Ok(done) } else { Err(error) },
            }
        }
    }

    /// Reads up to [`READ_PAGES`] pages. Also says whether to go on.
    fn read_batch(&self, position: u64, left: u64, sink: &mut Sink<'_>) -> Result<(usize, bool), CacheError> {
        let first = page_of(position);
        let end = page_of(position + left - 1).min(first + READ_PAGES as u64 - 1) + 1;
        let mut frames: ArrayVec<Option<Frame>, READ_PAGES> = ArrayVec::new();
        if end - first == 1 {
            frames.push(self.cached(first));
        } else {
            let index = self.index.read();
            let _ = index.visit(first, end, None, |page, word| {
                while frames.len() < (page - first) as usize {
                    frames.push(None);
                }
                frames.push(frame_of(word));
                ControlFlow::<()>::Continue(())
            });
        }
        let mut done = 0;
        for page in first..end {
            let start = within_page(position + done as u64);
            let count = (PAGE_SIZE - start).min((left - done as u64) as usize);
            let mut frame = frames.get_mut((page - first) as usize).and_then(Option::take);
            if frame.is_none() && self.has_representative() {
                frame = match self.page(page, Intent::Read, true) {
                    Ok(frame) => Some(frame),
                    Err(error) => return if done > 0 { Ok((done, false)) } else { Err(error) },
                };
            }
            let copied = match &frame {
                Some(frame) => sink.write_frame(frame, start, count),
                None => sink.write_zeros(count),
            };
            match copied {
                Ok(bytes) if bytes == count => done += bytes,
                Ok(bytes) => return Ok((done + bytes, false)),
                Err(fault) => return if done > 0 { Ok((done, false)) } else { Err(fault.into()) },
            }
        }
        Ok((done, true))
    }

    /// Writes all of the source at `offset`, extending the file if need be; returns the bytes written.
    ///
    /// # Errors
    /// Only when nothing was written: the reason why.
    pub fn write_at(&self, offset: u64, source: &mut Source<'_>) -> Result<usize, CacheError> {
        let _change = self.change.lock();
        self.write_locked(offset, source)
    }

    /// Writes all of the source at the end of the file; returns where that was, and the bytes written.
    ///
    /// # Errors
    /// As [`FileCache::write_at`].
    pub fn append(&self, source: &mut Source<'_>) -> Result<(u64, usize), CacheError> {
        let _change = self.change.lock();
        let offset = self.size();
        Ok((offset, self.write_locked(offset, source)?))
    }

    /// Writes with `change` held.
    fn write_locked(&self, offset: u64, source: &mut Source<'_>) -> Result<usize, CacheError> {
        if source.is_empty() {
            return Ok(0);
        }
        if offset >= MAX_FILE_BYTES {
            return Err(CacheError::TooBig);
        }
        let extends = offset.saturating_add(source.remaining() as u64) > self.size();
        if extends && self.tail_may_show() || self.flags.load(Ordering::Relaxed) & TAIL_UNCLEAN != 0 {
            self.clean_tail();
        }
        self.write_pages(offset, source)
    }

    /// Writes page by page; the size follows.
    fn write_pages(&self, offset: u64, source: &mut Source<'_>) -> Result<usize, CacheError> {
        let mut done = 0;
        let limit = MAX_FILE_BYTES.saturating_sub(offset).min(source.remaining() as u64);
        while (done as u64) < limit {
            let position = offset + done as u64;
            let start = within_page(position);
            let count = (PAGE_SIZE - start).min((limit - done as u64) as usize);
            match self.write_page(page_of(position), start, count, source) {
                Ok(bytes) => {
                    done += bytes;
                    if offset + done as u64 > self.size() {
                        // Release: whoever sees the size sees the bytes.
                        self.size.store(offset + done as u64, Ordering::Release);
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

    /// Writes within one page.
    fn write_page(
        &self,
        page: u64,
        start: usize,
        count: usize,
        source: &mut Source<'_>,
    ) -> Result<usize, CacheError> {
        let frame = match self.look_up(page) {
            Found::Present(frame) => {
                self.mark_dirty(page)?;
                frame
            }
            Found::Absent if count == PAGE_SIZE => return self.write_new_page(page, source),
            Found::Absent | Found::Filling => self.page(page, Intent::Write, true)?,
        };
        Ok(source.read_frame(&frame, start, count)?)
    }

    /// Writes a whole page that is not in memory: the frame is filled before anybody can see it, so it need not be
    /// cleared or brought in first.
    fn write_new_page(&self, page: u64, source: &mut Source<'_>) -> Result<usize, CacheError> {
        let frame = Frame::allocate(self.purpose(), Zeroed::No)?;
        let copied = source.read_frame(&frame, 0, PAGE_SIZE)?;
        if copied < PAGE_SIZE {
            // What was not copied keeps its old bytes, so this piece takes the long way.
            let old = self.page(page, Intent::Write, true)?;
            copy_part(&frame, &old, copied);
            return Ok(copied);
        }
        if self.offer(page, &frame)? {
            self.mark_dirty(page)?;
        } else {
            self.page(page, Intent::Write, true)?.copy_from(&frame);
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
