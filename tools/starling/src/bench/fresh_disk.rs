//! A disk with a new ext4, as Debian's `mke2fs` makes it, for one boot.

use std::fs::File;
use std::process::{Command, Stdio};

use crate::failure::{Context, Failure, Outcome};
use crate::run::{Disk, DiskModel};

/// Its size. The file is sparse.
const BYTES: u64 = 1 << 30;
/// Nothing is left for the kernel to do in the background: Linux would fill the tables of inodes while it is measured.
const OPTIONS: [&str; 6] = ["-q", "-F", "-t", "ext4", "-E", "lazy_itable_init=0,lazy_journal_init=0"];

/// A disk that goes with this.
#[derive(Debug)]
pub(crate) struct FreshDisk {
    /// The disk.
    pub(crate) disk: Disk,
    _directory: tempfile::TempDir,
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
}
