//! Uncompressing, into memory whose size is given: what does not fit is damage.
//!
//! | module | compression | what it needs beside its output |
//! |---|---|---|
//! | `gzip` | zlib streams | 11 KiB for each processor, four at most, allocated at the mount |
//! | `xz` | xz streams | 40 KiB and a dictionary of a block's size, allocated at the mount |
//! | `zstd` | Zstandard frames | 2 MiB and some blocks' sizes at most, kept |
//! | lz4 | plain blocks | nothing |
//!
//! Of xz and Zstandard there is one decompressor for each mount, which its users take turns with.

mod gzip;
mod xz;
mod zstd;

use crate::superblock::Compression;
use crate::{Error, Result};

/// See the theory of this file.
pub(crate) enum Inflater {
    Gzip(gzip::Inflater),
    Lz4,
    Xz(xz::Inflater),
    Zstd(zstd::Inflater),
}

/// What is said of bytes that are no sound compression of anything.
const fn damaged() -> Error {
    Error::Corrupted("compressed bytes", 0)
}

impl Inflater {
    /// For images of this compression, whose blocks have so many bytes at most.
    pub(crate) fn new(compression: Compression, block_bytes: usize) -> Result<Self> {
        Ok(match compression {
            Compression::Gzip => Self::Gzip(gzip::Inflater::new()?),
            Compression::Lz4 => Self::Lz4,
            Compression::Xz => Self::Xz(xz::Inflater::new(block_bytes)?),
            Compression::Zstd => Self::Zstd(zstd::Inflater::new(block_bytes)?),
        })
    }

    /// Uncompresses `bytes` into `out`; returns how many bytes came out.
    ///
    /// # Errors
    /// Damage, or more than `out` holds. No memory.
    pub(crate) fn inflate(&self, bytes: &[u8], out: &mut [u8]) -> Result<usize> {
        match self {
            Self::Gzip(inflater) => inflater.inflate(bytes, out),
            Self::Lz4 => lz4_flex::block::decompress_into(bytes, out).map_err(|_| damaged()),
            Self::Xz(inflater) => inflater.inflate(bytes, out),
            Self::Zstd(inflater) => inflater.inflate(bytes, out),
        }
    }
}
