//! Zstandard: a frame for each block.
//!
//! The library allocates without asking. How much is bounded by the window that a frame may have, which is checked before, and by the sizes of what is in a
//! frame's block: that much memory must be free, else there is none.

use alloc::boxed::Box;

use memory::fallible;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use ruzstd::io::Read;
use sched::Mutex;

use super::damaged;
use crate::store::METADATA_BYTES;
use crate::{Error, Result};

/// What a decompressor takes at most besides its window: 0.8 MiB of sequences, twice while they grow; literals and contents of a block, 128 KiB each, twice.
const WORK_BYTES: usize = 2 << 20;
/// The window takes at most so many times its size: rounded up, with a block behind it, old and new while it grows.
const WINDOWS: usize = 4;

/// See the theory of this file.
pub(crate) struct Inflater {
    decoder: Mutex<Box<FrameDecoder>>,
    /// Must be free or reclaimable before it begins: twice what is needed, since others allocate, too.
    free_bytes: usize,
}

impl Inflater {
    pub(super) fn new(block_bytes: usize) -> Result<Self> {
        let window_bytes = block_bytes.max(METADATA_BYTES);
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(window_bytes as u64);
        let decoder = Mutex::named("zstd decompressor", fallible::try_box(decoder)?);
        Ok(Self { decoder, free_bytes: 2 * (WORK_BYTES + WINDOWS * window_bytes) })
    }

    /// Whether what the library allocates will be there. A hosted machine's memory is its process's.
    fn is_room(&self) -> bool {
        let available_kib = || memory::statistics::memory().available_kib();
        !cfg!(target_os = "none") || available_kib() >= (self.free_bytes >> 10) as u64
    }

    pub(super) fn inflate(&self, bytes: &[u8], out: &mut [u8]) -> Result<usize> {
        let mut decoder = self.decoder.lock();
        if !self.is_room() {
            return Err(Error::OutOfMemory);
        }
        let mut rest = bytes;
        decoder.reset(&mut rest).map_err(|_| damaged())?;
        let mut written = 0;
        loop {
            // Each block has a header, so this comes to an end.
            let ended = decoder
                .decode_blocks(&mut rest, BlockDecodingStrategy::UptoBlocks(1))
                .map_err(|_| damaged())?;
            written += decoder.read(&mut out[written..]).map_err(|_| damaged())?;
            match (ended, decoder.can_collect()) {
                (true, 0) => return Ok(written),
                (false, 0) => {}
                // What comes out does not fit.
                _ => return Err(damaged()),
            }
        }
    }
}
