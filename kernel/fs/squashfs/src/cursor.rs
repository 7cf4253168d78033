//! Reading metadata: a stream of bytes in blocks, which begins anywhere in one and goes on into the next.

use crate::file_system::FileSystem;
use crate::superblock::{u16_at, u32_at};
use crate::{Error, Result};

/// A place in the stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    /// Where the block begins on the device.
    block: u64,
    offset: usize,
}

impl Cursor {
    /// From a block's place, and an offset in what is in it.
    pub(crate) fn new(block: u64, offset: usize) -> Self {
        Self { block, offset }
    }

    /// From a reference relative to a table: its upper 48 bits are the block's place, the lower 16 the offset.
    pub(crate) fn of_reference(table: u64, reference: u64) -> Result<Self> {
        let block = table.checked_add(reference >> 16).ok_or(Error::Corrupted("a reference", reference))?;
        Ok(Self { block, offset: (reference & 0xffff) as usize })
    }

    /// Fills `out`.
    pub(crate) fn read(&mut self, system: &FileSystem, out: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < out.len() {
            done += self.step(system, out.len() - done, |bytes| {
                out[done..done + bytes.len()].copy_from_slice(bytes);
            })?;
        }
        Ok(())
    }

    /// Goes on without looking.
    pub(crate) fn skip(&mut self, system: &FileSystem, count: usize) -> Result<()> {
        let mut done = 0;
        while done < count {
            done += self.step(system, count - done, |_| {})?;
        }
        Ok(())
    }

    /// Up to `most` bytes of the block, at least one.
    fn step(&mut self, system: &FileSystem, most: usize, take: impl FnOnce(&[u8])) -> Result<usize> {
        let block = system.store.metadata(self.block)?;
        let rest = block.bytes.get(self.offset..).unwrap_or_default();
        // Right behind the last byte is where the next block begins.
        if rest.is_empty() && self.offset != block.bytes.len() {
            return Err(Error::Corrupted("an offset in a block of metadata", self.block));
        }
        let count = rest.len().min(most);
        take(&rest[..count]);
        self.offset += count;
        if self.offset == block.bytes.len() {
            *self = Self { block: block.next, offset: 0 };
        }
        Ok(count)
    }

    pub(crate) fn array<const N: usize>(&mut self, system: &FileSystem) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read(system, &mut bytes)?;
        Ok(bytes)
    }

    pub(crate) fn u16(&mut self, system: &FileSystem) -> Result<u16> {
        Ok(u16_at(&self.array::<2>(system)?, 0))
    }

    pub(crate) fn u32(&mut self, system: &FileSystem) -> Result<u32> {
        Ok(u32_at(&self.array::<4>(system)?, 0))
    }
}
