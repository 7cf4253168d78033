//! A disk in memory: for tests, and for images that come with the boot archive.
//!
//! Sectors that were never written read as zeros and take no memory; memory is taken in chunks as they are written.

use alloc::vec::Vec;
use core::ops::Range;

use memory::fallible;
use sync::SpinLock;

use crate::bio::{Operation, SECTOR_BYTES};
use crate::driver::{Driver, Limits};
use crate::request::Request;
use crate::{Error, Result};

/// What is allocated at a time.
const CHUNK_BYTES: usize = 16 << 10;
const CHUNK_SECTORS: u64 = (CHUNK_BYTES / SECTOR_BYTES) as u64;

/// See the theory of this file.
pub struct RamDisk {
    limits: Limits,
    chunks: SpinLock<Vec<Option<Vec<u8>>>>,
}

impl RamDisk {
    /// A disk of zeros.
    pub fn new(sectors: u64) -> Result<Self> {
        let mut limits = Limits::of_size(sectors);
        limits.discard_sectors_max = 1 << 22;
        limits.zeroes_sectors_max = 1 << 22;
        Self::with_limits(limits)
    }

    /// A disk of zeros that pretends to have these limits.
    pub fn with_limits(limits: Limits) -> Result<Self> {
        let count =
            usize::try_from(limits.sectors.div_ceil(CHUNK_SECTORS)).map_err(|_| Error::OutOfMemory)?;
        Ok(Self { limits, chunks: SpinLock::new(fallible::try_vec_of(None, count)?) })
    }

    /// A disk with these contents, filled up with zeros to whole sectors.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let disk = Self::new(bytes.len().div_ceil(SECTOR_BYTES) as u64)?;
        disk.write_at(0, bytes)?;
        Ok(disk)
    }

    /// The bytes from a sector on.
    ///
    /// # Panics
    /// When they reach beyond the disk.
    pub fn read_at(&self, sector: u64, into: &mut [u8]) {
        self.read_parts(sector, into.len(), |range, bytes| match bytes {
            Some(bytes) => into[range].copy_from_slice(bytes),
            None => into[range].fill(0),
        });
    }

    /// Calls `each` with the parts of some bytes from a sector on: where in them, and what is there; `None`: zeros. It runs under a spin lock.
    fn read_parts(&self, sector: u64, length: usize, mut each: impl FnMut(Range<usize>, Option<&[u8]>)) {
        for_each_part(sector, length, |chunk, offset, range| {
            let bytes = &self.chunks.lock()[chunk];
            each(range.clone(), bytes.as_ref().map(|bytes| &bytes[offset..offset + range.len()]));
            Ok(())
        })
        .expect("reading takes no memory");
    }

    /// Changes bytes from a sector on.
    ///
    /// # Panics
    /// When they reach beyond the disk.
    pub fn write_at(&self, sector: u64, from: &[u8]) -> Result<()> {
        self.write_parts(sector, from.len(), |range, bytes| bytes.copy_from_slice(&from[range]))
    }

    /// Calls `each` with the parts of some bytes from a sector on: where in them, and what is to be changed. It runs under a spin lock.
    fn write_parts(
        &self,
        sector: u64,
        length: usize,
        mut each: impl FnMut(Range<usize>, &mut [u8]),
    ) -> Result<()> {
        for_each_part(sector, length, |chunk, offset, range| {
            let mut fresh = None;
            loop {
                let mut chunks = self.chunks.lock();
                if chunks[chunk].is_none() {
                    chunks[chunk] = fresh.take();
                }
                if let Some(bytes) = &mut chunks[chunk] {
                    let count = range.len();
                    each(range, &mut bytes[offset..offset + count]);
                    return Ok(());
                }
                drop(chunks);
                // The disk is full: trying again would not help.
                fresh = Some(fallible::try_vec_of(0, CHUNK_BYTES).map_err(|_| Error::NoSpace)?);
            }
        })
    }

    /// Zeroes sectors; whole chunks give their memory back.
    fn zero(&self, sector: u64, sectors: u64) -> Result<()> {
        let bytes = usize::try_from(sectors).map_err(|_| Error::Invalid)? * SECTOR_BYTES;
        for_each_part(sector, bytes, |chunk, offset, range| {
            let mut chunks = self.chunks.lock();
            if range.len() == CHUNK_BYTES {
                let former = chunks[chunk].take();
                drop(chunks);
                drop(former);
            } else if let Some(bytes) = &mut chunks[chunk] {
                bytes[offset..offset + range.len()].fill(0);
            }
            Ok(())
        })
    }

    /// Does what the request asks for, without completing it.
    pub(crate) fn perform(&self, request: &mut Request) -> Result<()> {
        let mut sector = request.sector();
        match request.operation() {
            Operation::Flush => return Ok(()),
            Operation::Discard | Operation::WriteZeroes => return self.zero(sector, request.sectors()),
            Operation::Read | Operation::Write => {}
        }
        let reads = request.operation() == Operation::Read;
        for segment in request.segments_mut() {
            let length = segment.len();
            if reads {
                self.read_parts(sector, length, |range, bytes| match bytes {
                    Some(bytes) => segment.copy_in(range.start, bytes),
                    None => {
                        let end = range.end;
                        for at in range.step_by(SECTOR_BYTES) {
                            segment.copy_in(at, &[0; SECTOR_BYTES][..SECTOR_BYTES.min(end - at)]);
                        }
                    }
                });
            } else {
                self.write_parts(sector, length, |range, bytes| segment.copy_out(range.start, bytes))?;
            }
            sector += (length / SECTOR_BYTES) as u64;
        }
        Ok(())
    }
}

/// Calls `each` with chunk, offset in it and range of the buffer for each chunk that a transfer touches.
fn for_each_part(
    sector: u64,
    bytes: usize,
    mut each: impl FnMut(usize, usize, Range<usize>) -> Result<()>,
) -> Result<()> {
    let mut position = usize::try_from(sector).map_err(|_| Error::Invalid)? * SECTOR_BYTES;
    let mut done = 0;
    while done < bytes {
        let offset = position % CHUNK_BYTES;
        let length = (CHUNK_BYTES - offset).min(bytes - done);
        each(position / CHUNK_BYTES, offset, done..done + length)?;
        done += length;
        position += length;
    }
    Ok(())
}

impl Driver for RamDisk {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn submit(&self, _cpu: usize, mut request: Request) -> core::result::Result<(), Request> {
        let outcome = self.perform(&mut request);
        request.complete(outcome);
        Ok(())
    }
}

/// Disks in memory of those sizes that the kernel's command line asks for, as Linux' `brd` has them: `brd.rd_nr=` says how many (none if it is
/// missing), `brd.rd_size=` how many KiB each has. They are `/dev/ram0` and so on.
///
/// # Errors
/// No memory.
pub fn attach_wanted() -> Result<()> {
    /// Linux' usual size.
    const USUAL_KIB: u64 = 16384;
    let option = |name| machine::boot::info().option(name).and_then(|value| value.parse::<u64>().ok());
    let sectors = option("brd.rd_size").unwrap_or(USUAL_KIB).saturating_mul(1024 / SECTOR_BYTES as u64);
    for _ in 0..option("brd.rd_nr").unwrap_or(0).min(u64::from(DISKS_MAX)) {
        let queue = crate::Queue::new(fallible::try_arc(RamDisk::new(sectors)?)?)?;
        let description = crate::disk::Description {
            family: crate::disk::RAM,
            parent: fallible::try_string("/devices/virtual")?,
            serial: alloc::string::String::new(),
            removable: false,
        };
        crate::disk::attach(description, queue)?;
    }
    Ok(())
}

/// Disks in memory at most: as many minor numbers as Linux has for them.
const DISKS_MAX: u32 = 256;
