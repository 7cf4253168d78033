//! A disk with a new ext4, as Debian's `mke2fs` makes it, for one boot.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use crate::failure::{Context, Failure, Outcome};
use crate::run::{Disk, DiskModel};

/// Its size. The file is sparse.
const BYTES: u64 = 1 << 30;
/// Its blocks.
const BLOCK_BYTES: usize = 4096;
/// What is read of it at a time.
const PIECE_BYTES: usize = 1 << 20;
/// Nothing is left for the kernel to do in the background: Linux would fill the tables of inodes while it is measured.
const OPTIONS: [&str; 6] = ["-q", "-F", "-t", "ext4", "-E", "lazy_itable_init=0,lazy_journal_init=0"];

/// A disk that goes with this.
#[derive(Debug)]
pub(crate) struct FreshDisk {
    /// The disk.
    pub(crate) disk: Disk,
    _directory: tempfile::TempDir,
}

/// What the command line of both kernels says for a disk of that size in memory: Linux' `brd` reads it, and Starling does.
pub(super) fn words_for_memory() -> [String; 2] {
    ["brd.rd_nr=1".into(), format!("brd.rd_size={}", BYTES >> 10)]
}

impl FreshDisk {
    /// Makes one.
    ///
    /// # Errors
    /// Without `mke2fs`, or room for it.
    pub(crate) fn make() -> Outcome<Self> {
        let doing = || "a disk with an ext4".to_owned();
        let directory = tempfile::tempdir().context(doing)?;
        let file = directory.path().join("disk");
        File::create(&file).and_then(|file| file.set_len(BYTES)).context(doing)?;
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        let mut command = Command::new("mke2fs");
        let output = command
            .env("PATH", path)
            .args(OPTIONS)
            .arg(&file)
            .stdin(Stdio::null())
            .output()
            .context(doing)?;
        if !output.status.success() {
            return Err(Failure::ours(format!("mke2fs: {}", String::from_utf8_lossy(&output.stderr))));
        }
        let disk = Disk { file, read_only: false, model: DiskModel::Virtio };
        Ok(Self { disk, _directory: directory })
    }

    /// Those of its blocks that are not zero, as the benchmark program reads them: where a block goes, in eight bytes, and the block.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn blocks(&self) -> Outcome<Vec<u8>> {
        let doing = || "reading the disk with an ext4".to_owned();
        let file = File::open(&self.disk.file).context(doing)?;
        let mut found = Vec::new();
        let mut piece = vec![0; PIECE_BYTES];
        for place in (0..BYTES).step_by(PIECE_BYTES) {
            file.read_exact_at(&mut piece, place).context(doing)?;
            for (number, block) in piece.chunks_exact(BLOCK_BYTES).enumerate() {
                if block.iter().any(|byte| *byte != 0) {
                    found.extend((place + (number * BLOCK_BYTES) as u64).to_le_bytes());
                    found.extend_from_slice(block);
                }
            }
        }
        Ok(found)
    }
}
