//! Pages of a file: their way to and from the server.
//!
//! A run of pages is one message. The server may transfer less than that (at a file's end, or because it wants to): what is left of the run is then
//! transferred by the mount's thread, since who is told of a transfer's end may not wait for another.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use machine::address::PAGE_SIZE;
use memory::file_cache::{CacheError, FileRepresentative, PageRun};
use vfs::{Error, Result, allocation};

use super::file::File;
use super::instance::Instance;
use crate::transport::{Data, Piece};

/// The pages of a file.
pub(super) struct Pages {
    pub(super) instance: Arc<Instance>,
    pub(super) file: Arc<File>,
}

/// A run of which a part was transferred.
pub(super) struct Rest {
    file: Arc<File>,
    run: PageRun,
    done: usize,
    bytes: usize,
    writes: bool,
}

fn error_of(error: Error) -> CacheError {
    match error {
        Error::OutOfMemory => CacheError::OutOfMemory,
        Error::NoSpace | Error::Quota => CacheError::NoSpace,
        Error::FileTooLarge => CacheError::TooBig,
        Error::ReadOnly => CacheError::ReadOnly,
        Error::NoDevice => CacheError::NoDevice,
        _ => CacheError::InputOutput,
    }
}

/// The bytes from `start` to `end` of a run.
fn pieces(run: &PageRun, start: usize, end: usize) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    allocation::reserve(&mut pieces, run.pages())?;
    let mut at = start;
    while at < end {
        let (page, offset) = (at / PAGE_SIZE, at % PAGE_SIZE);
        let bytes = (PAGE_SIZE - offset).min(end - at);
        pieces.push(Piece { frame: run.frames()[page].clone(), offset, bytes });
        at += bytes;
    }
    Ok(pieces)
}

/// What the server does not have is zeroes.
fn zero(run: &PageRun, start: usize) {
    let mut at = start;
    while at < run.pages() * PAGE_SIZE {
        let (page, offset) = (at / PAGE_SIZE, at % PAGE_SIZE);
        run.frames()[page].zero_range(offset, PAGE_SIZE - offset);
        at += PAGE_SIZE - offset;
    }
}

impl Rest {
    fn offset(&self) -> u64 {
        self.run.first() * PAGE_SIZE as u64
    }

    /// So many more bytes were transferred. None: that is all.
    fn advance(mut self, outcome: Result<usize>) -> Option<Self> {
        match outcome {
            Err(error) => self.run.complete(Err(error_of(error))),
            Ok(0) if self.writes => self.run.complete(Err(CacheError::InputOutput)),
            Ok(count) => {
                self.done += count;
                let end = self.offset() + self.done as u64;
                if self.writes {
                    self.file.wrote_up_to(end);
                }
                let is_over = count == 0 || (!self.writes && end >= self.run.cache().size());
                if self.done < self.bytes && !is_over {
                    return Some(self);
                }
                if !self.writes {
                    zero(&self.run, self.done);
                }
                self.run.complete(Ok(()));
            }
        }
        None
    }

    /// Transfers it, waiting for the server.
    pub(super) fn finish(self) {
        let mut rest = Some(self);
        while let Some(next) = rest {
            let moved = next.step();
            rest = next.advance(moved);
        }
    }

    fn step(&self) -> Result<usize> {
        let client = &self.file.client;
        let way = if self.writes { self.file.writer()? } else { self.file.reader()? };
        let end = self.bytes.min(self.done + way.transfer_bytes);
        let pieces = pieces(&self.run, self.done, end)?;
        let offset = self.offset() + self.done as u64;
        if self.writes {
            client.write_frames(way.fid.number(), offset, pieces)
        } else {
            client.read_frames(way.fid.number(), offset, pieces)
        }
    }
}

impl Pages {
    /// Begins to transfer the first `bytes` of a run.
    fn transfer(&self, run: PageRun, bytes: usize, writes: bool) {
        let way = if writes { self.file.writer() } else { self.file.reader() };
        let way = match way {
            Ok(way) => way,
            Err(error) => return run.complete(Err(error_of(error))),
        };
        let data = match pieces(&run, 0, bytes.min(way.transfer_bytes)) {
            Ok(pieces) if writes => Data::Sent(pieces),
            Ok(pieces) => Data::Received(pieces),
            Err(error) => return run.complete(Err(error_of(error))),
        };
        let offset = run.first() * PAGE_SIZE as u64;
        let rest = Rest { file: self.file.clone(), run, done: 0, bytes, writes };
        let (instance, kept) = (self.instance.clone(), way.clone());
        self.file.client.begin_transfer(way.fid.number(), offset, data, move |outcome| {
            if let Some(rest) = rest.advance(outcome) {
                instance.transfer_rest(rest);
            }
            drop(kept);
        });
    }
}

impl FileRepresentative for Pages {
    fn fill(&self, pages: PageRun) {
        let bytes = pages.pages() * PAGE_SIZE;
        self.transfer(pages, bytes, false);
    }

    fn write_back(&self, pages: PageRun) {
        let left = pages.cache().size().saturating_sub(pages.first() * PAGE_SIZE as u64);
        let bytes = (pages.pages() * PAGE_SIZE).min(usize::try_from(left).unwrap_or(usize::MAX));
        if bytes == 0 || self.file.gone.load(Relaxed) {
            return pages.complete(Ok(()));
        }
        self.transfer(pages, bytes, true);
    }
}
