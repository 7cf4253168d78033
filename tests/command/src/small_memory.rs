//! More is written to a disk, and read from it, than there is memory: pages go when they have been written, and nobody is ended for want of memory.

use std::fs::{self, File};

use crate::case::starling;
use crate::disks::{e2fsck, said, successful, text};

/// What is promised.
pub(crate) const NAME: &str = "a program writes and reads more than there is memory for";

const MEMORY: &str = "48M";
const DISK_BYTES: u64 = 256 << 20;
/// 144 MiB are written, three times the memory. Then all of the disk is read, past the file system.
const SCRIPT: &str = r#"
set -e
mkdir -p /m /tmp
dd if=/dev/urandom of=/tmp/part bs=64k count=64 2> /dev/null
parts=$(for number in $(seq 36); do echo /tmp/part; done)
right=$(cat $parts | md5sum)
mount -t ext4 /dev/vda /m
cat $parts > /m/file
[ "$(md5sum < /m/file)" = "$right" ] || { echo 'it was written wrong'; exit 1; }
umount /m
[ $(wc -c < /dev/vda) = 268435456 ] || { echo 'the disk was not read'; exit 1; }
mount -t ext4 /dev/vda /m
[ "$(md5sum < /m/file)" = "$right" ] || { echo 'it came back wrong'; exit 1; }
umount /m
grep oom_kill /proc/vmstat
"#;

/// Runs it on one processor and on four.
pub(crate) fn check() -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(text)?;
    for cpus in ["1", "4"] {
        let disk = folder.path().join("disk");
        let _ = fs::remove_file(&disk);
        File::create(&disk).and_then(|file| file.set_len(DISK_BYTES)).map_err(text)?;
        successful("mke2fs", &["-q", "-F", "-t", "ext4"], &disk)?;
        let output = starling()
            .args(["--cpus", cpus, "--memory", MEMORY, "--timeout", "300"])
            .args(["--disk", &disk.display().to_string()])
            .args(["--", "sh", "-c", SCRIPT])
            .output()
            .map_err(text)?;
        if !output.status.success() || output.stdout != b"oom_kill 0\n" || !output.stderr.is_empty() {
            return Err(format!("{cpus} processors: {}", said(&output)));
        }
        e2fsck("-fn", &disk, 0)?;
    }
    Ok(())
}
