//! gzip: a zlib stream for each block.
//!
//! What the algorithm needs beside its output is allocated once for each use at a time, and kept.

use alloc::boxed::Box;
use alloc::vec::Vec;

use memory::fallible;
use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};
use sync::SpinLock;

use super::damaged;
use crate::Result;

/// Kept when nobody uses them.
const IDLE_MAX: usize = 4;

/// See the theory of this file.
pub(crate) struct Inflater {
    idle: SpinLock<Vec<Box<DecompressorOxide>>>,
}

impl Inflater {
    pub(super) fn new() -> Result<Self> {
        Ok(Self { idle: SpinLock::named("idle decompressors", fallible::try_vec(IDLE_MAX)?) })
    }

    #[inline(never)]
    fn make() -> Result<Box<DecompressorOxide>> {
        Ok(fallible::try_box(DecompressorOxide::new())?)
    }

    /// Uncompresses `bytes` into `out`; returns how many bytes came out.
    ///
    /// # Errors
    /// Damage, or more than `out` holds.
    pub(super) fn inflate(&self, bytes: &[u8], out: &mut [u8]) -> Result<usize> {
        let idle = self.idle.lock().pop();
        let mut state = match idle {
            Some(state) => state,
            None => Self::make()?,
        };
        state.init();
        let flags = inflate_flags::TINFL_FLAG_PARSE_ZLIB_HEADER
            | inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
        let (status, _, written) = decompress(&mut state, bytes, out, 0, flags);
        let mut idle = self.idle.lock();
        if idle.len() < IDLE_MAX {
            idle.push(state);
        }
        drop(idle);
        if status == TINFLStatus::Done { Ok(written) } else { Err(damaged()) }
    }
}
