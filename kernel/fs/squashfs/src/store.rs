//! Bytes of the device, and blocks of metadata and of data in memory.
//!
//! Blocks are counted, immutable values, found by their place on the device. When a cache has reached its bound, those go that were not used since the last
//! time; if all were, one goes in any case.

use alloc::sync::Arc;
use alloc::vec::Vec;

use block::{SECTOR_BYTES, Volume};
use hashbrown::{DefaultHashBuilder, HashMap};
use memory::fallible;
use sync::SpinLock;

use crate::inflate::Inflater;
use crate::superblock::{Superblock, u16_at};
use crate::{Error, Result};

/// Most bytes of a block of metadata, uncompressed.
pub(crate) const METADATA_BYTES: usize = 8192;
/// A block of metadata that is not compressed.
const METADATA_PLAIN: u16 = 0x8000;
/// A block of data that is not compressed.
const DATA_PLAIN: u32 = 1 << 24;

/// Blocks of metadata kept: 2 MiB.
const METADATA_MAX: usize = 256;
/// Bytes of data kept: what a fragment's or block's other users will ask for next.
const DATA_BYTES_MAX: usize = 1 << 20;

/// A block's bytes.
pub(crate) type Bytes = Arc<Vec<u8>>;

/// A block of metadata, and the place behind it.
#[derive(Clone)]
pub(crate) struct Metadata {
    pub(crate) bytes: Bytes,
    pub(crate) next: u64,
}

struct Kept<V> {
    value: V,
    used: bool,
}

/// Blocks by their place.
struct Cache<V> {
    blocks: SpinLock<HashMap<u64, Kept<V>, DefaultHashBuilder>>,
    max: usize,
}

impl<V: Clone> Cache<V> {
    fn new(name: &'static str, max: usize) -> Result<Self> {
        let mut blocks = HashMap::default();
        // Nothing is allocated under the lock: a table that is at most half full is cleaned of what was removed where it is.
        blocks.try_reserve(2 * max + 2).map_err(|_| Error::OutOfMemory)?;
        Ok(Self { blocks: SpinLock::named(name, blocks), max })
    }

    fn get(&self, place: u64) -> Option<V> {
        self.blocks.lock().get_mut(&place).map(|kept| {
            kept.used = true;
            kept.value.clone()
        })
    }

    fn keep(&self, place: u64, value: V) {
        let mut gone = None;
        let mut blocks = self.blocks.lock();
        if blocks.len() >= self.max {
            let unused = blocks.iter().find(|(_, kept)| !kept.used).map(|(place, _)| *place);
            for kept in blocks.values_mut() {
                kept.used = false;
            }
            let victim = unused.or_else(|| blocks.keys().next().copied());
            gone = victim.and_then(|victim| blocks.remove(&victim));
        }
        let before = blocks.insert(place, Kept { value, used: true });
        drop(blocks);
        drop((gone, before));
    }
}

/// See the theory of this file.
pub(crate) struct Store {
    volume: Volume,
    /// Bytes of the image.
    bytes: u64,
    block_bytes: usize,
    inflater: Inflater,
    metadata: Cache<Metadata>,
    data: Cache<Bytes>,
}

/// Reads any bytes of a volume.
pub(crate) fn read_bytes(volume: &Volume, place: u64, length: usize) -> Result<Vec<u8>> {
    let unit = (volume.queue().limits().logical_block_bytes as u64).max(SECTOR_BYTES as u64);
    let start = place / unit * unit;
    let end = (place + length as u64).div_ceil(unit) * unit;
    let most = volume.bytes_max() as u64 / unit * unit;
    let inside = (place - start) as usize;
    if end - start <= most {
        let mut bytes = volume.read(start / SECTOR_BYTES as u64, (end - start) as usize)?;
        bytes.drain(..inside);
        bytes.truncate(length);
        return Ok(bytes);
    }
    let mut bytes = fallible::try_vec((end - start) as usize)?;
    let mut position = start;
    while position < end {
        let piece = (end - position).min(most);
        bytes.extend_from_slice(&volume.read(position / SECTOR_BYTES as u64, piece as usize)?);
        position += piece;
    }
    bytes.drain(..inside);
    bytes.truncate(length);
    Ok(bytes)
}

impl Store {
    pub(crate) fn new(volume: &Volume, superblock: &Superblock) -> Result<Self> {
        let block_bytes = superblock.block_bytes as usize;
        Ok(Self {
            volume: volume.clone(),
            bytes: superblock.bytes,
            block_bytes,
            inflater: Inflater::new(superblock.compression, block_bytes)?,
            metadata: Cache::new("squashfs metadata", METADATA_MAX)?,
            data: Cache::new("squashfs data", (DATA_BYTES_MAX / block_bytes).max(2))?,
        })
    }

    /// Bytes of the image as they are.
    pub(crate) fn raw(&self, place: u64, length: usize) -> Result<Vec<u8>> {
        let end = place.checked_add(length as u64);
        if end.is_none_or(|end| end > self.bytes) {
            return Err(Error::Corrupted("a place outside of the image", place));
        }
        read_bytes(&self.volume, place, length)
    }

    /// The block of metadata at a place; it is not empty.
    pub(crate) fn metadata(&self, place: u64) -> Result<Metadata> {
        if let Some(block) = self.metadata.get(place) {
            return Ok(block);
        }
        let block = self.read_metadata(place)?;
        self.metadata.keep(place, block.clone());
        Ok(block)
    }

    #[inline(never)]
    fn read_metadata(&self, place: u64) -> Result<Metadata> {
        let header = u16_at(&self.raw(place, 2)?, 0);
        let length = usize::from(header & !METADATA_PLAIN);
        if length == 0 || length > METADATA_BYTES {
            return Err(Error::Corrupted("the length of a block of metadata", place));
        }
        let raw = self.raw(place + 2, length)?;
        let bytes = if header & METADATA_PLAIN != 0 { raw } else { self.inflate(&raw, METADATA_BYTES)? };
        if bytes.is_empty() {
            return Err(Error::Corrupted("an empty block of metadata", place));
        }
        Ok(Metadata { bytes: fallible::try_arc(bytes)?, next: place + 2 + length as u64 })
    }

    fn inflate(&self, raw: &[u8], most: usize) -> Result<Vec<u8>> {
        let mut bytes = fallible::try_vec_of(0, most)?;
        let length = self.inflater.inflate(raw, &mut bytes)?;
        bytes.truncate(length);
        Ok(bytes)
    }

    /// A block of data; `size` is as in a file's list of blocks, and not 0.
    pub(crate) fn data(&self, place: u64, size: u32) -> Result<Bytes> {
        if let Some(bytes) = self.data.get(place) {
            return Ok(bytes);
        }
        let length = (size & !DATA_PLAIN) as usize;
        if length == 0 || length > self.block_bytes {
            return Err(Error::Corrupted("the size of a block", place));
        }
        let raw = self.raw(place, length)?;
        let bytes = if size & DATA_PLAIN != 0 { raw } else { self.inflate(&raw, self.block_bytes)? };
        let bytes = fallible::try_arc(bytes)?;
        self.data.keep(place, bytes.clone());
        Ok(bytes)
    }

    /// Bytes that a block takes on the device.
    pub(crate) fn data_length(size: u32) -> u64 {
        u64::from(size & !DATA_PLAIN)
    }
}
