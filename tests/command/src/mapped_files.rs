//! Files that are larger than memory, mapped: Debian's `fio`, unmodified, stores into mappings of them and verifies what it reads through mappings.

use std::fs::{self, File};

use crate::case::starling;
use crate::disks::{said, successful, text};
use crate::images;

/// What is promised.
pub(crate) const NAME: &str = "programs map files larger than memory, read and write";

const MEMORY: &str = "256M";
const DISK_BYTES: u64 = 768 << 20;
/// 512 MiB are written through mappings, by two processes, and read again in order and at random places.
const SCRIPT: &str = r#"
set -e
mkdir -p /m /tmp
mount -t ext4 /dev/vda /m
for link in /sys/block/*; do cat $link/size > /dev/null; done
fio --name=mapped --directory=/m --rw=write --bs=64k --size=256m --numjobs=2 --ioengine=mmap \
    --verify=crc32c --verify_fatal=1 --group_reporting --output=/tmp/said || { cat /tmp/said; exit 1; }
grep -q 'err= 0' /tmp/said || { cat /tmp/said; exit 1; }
fio --name=mapped --directory=/m --rw=randread --bs=64k --size=256m --numjobs=2 --ioengine=mmap \
    --verify=crc32c --verify_fatal=1 --group_reporting --output=/tmp/said || { cat /tmp/said; exit 1; }
grep -q 'err= 0' /tmp/said || { cat /tmp/said; exit 1; }
umount /m
echo verified
"#;

/// Runs it on one processor and on four.
pub(crate) fn check() -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(text)?;
    let root = folder.path().join("root");
    images::make_folder_with_busybox(&root).map_err(text)?;
    images::add_program(&root, "fio").map_err(text)?;
    for cpus in ["1", "4"] {
        let disk = folder.path().join("disk");
        let _ = fs::remove_file(&disk);
        File::create(&disk).and_then(|file| file.set_len(DISK_BYTES)).map_err(text)?;
        successful("mke2fs", &["-q", "-F", "-t", "ext4"], &disk)?;
        let output = starling()
            .args(["--cpus", cpus, "--memory", MEMORY, "--timeout", "1200"])
            .args(["--disk", &disk.display().to_string()])
            .arg(&root)
            .args(["--", "sh", "-c", SCRIPT])
            .output()
            .map_err(text)?;
        if !output.status.success() || output.stdout != b"verified\n" || !output.stderr.is_empty() {
            return Err(format!("{cpus} processors: {}", said(&output)));
        }
        successful("e2fsck", &["-f", "-n"], &disk)?;
    }
    Ok(())
}
