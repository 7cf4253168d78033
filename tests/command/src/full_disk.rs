//! A disk that is full: whoever writes to it is told, by `write`, `fsync` or a signal for who stores into a mapping, and nobody else notices. What is deleted can be used again.

use std::fs::{self, File};

use crate::case::starling;
use crate::disks::{e2fsck, said, successful, text};
use crate::images;

/// What is promised.
pub(crate) const NAME: &str = "a full disk is an error of who writes to it, and of nobody else";

/// Machines, with their numbers of processors, what is said of the disks' kind, and what they are called.
const MACHINES: [(&str, &str, &str, [&str; 2]); 2] =
    [("microvm", "2", "", ["vda", "vdb"]), ("q35", "4", ":nvme", ["nvme0n1", "nvme1n1"])];
const DISK_BYTES: u64 = 16 << 20;

/// `$1` and `$2` are the disks.
const SCRIPT: &str = r#"
fail() { echo "$@"; exit 1; }
full() { grep -q 'No space left on device' /tmp/why || fail "$1: $(cat /tmp/why)"; }
mkdir -p /m /n /tmp
mount -t ext4 $1 /m && mount -t ext4 $2 /n || exit 1
# Buffered, without and with somebody who waits for the disk: told by write or fsync, whichever knows first.
dd if=/dev/zero of=/m/full bs=64k 2> /tmp/why && fail 'the disk is never full'
full write
dd if=/dev/zero of=/m/more bs=4k count=64 conv=fsync 2> /tmp/why && fail 'there is room for more'
full fsync
# Stored into a mapping of a file that has no blocks yet: nobody to return an error to.
fio --name=mapped --directory=/m --rw=write --bs=4k --size=1m --fallocate=none --ioengine=mmap > /tmp/why 2>&1 && fail 'mapped pages have room'
grep -q -e 'signal=7' -e 'No space left on device' /tmp/why || fail "mapped: $(cat /tmp/why)"
# What there was can be read, and written over.
[ $(head -c 65536 /m/full | wc -c) = 65536 ] || fail 'what was written is not there'
dd if=/dev/zero of=/m/full bs=64k count=1 conv=notrunc,fsync 2> /tmp/why || fail "in place: $(cat /tmp/why)"
# The other disk has room.
cp /bin/busybox /n/copy && sync -f /n/copy || fail 'the other disk'
# And so has this one when something is deleted.
rm -f /m/full /m/more /m/mapped*
cp /bin/busybox /m/copy && sync -f /m/copy || fail 'no room again'
umount /m /n
mount -t ext4 $1 /m && mount -t ext4 $2 /n || exit 1
cmp /bin/busybox /m/copy && cmp /bin/busybox /n/copy || exit 1
umount /m /n
echo end
"#;

/// Runs the script on all machines.
pub(crate) fn check() -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(text)?;
    let root = folder.path().join("root");
    images::make_folder_with_busybox(&root).map_err(text)?;
    images::add_program(&root, "fio").map_err(text)?;
    for (machine, cpus, kind, names) in MACHINES {
        let disks = ["full", "other"].map(|name| folder.path().join(name));
        let mut command = starling();
        command.args(["--machine", machine, "--cpus", cpus, "--memory", "256M", "--timeout", "300"]);
        for disk in &disks {
            let _ = fs::remove_file(disk);
            File::create(disk).and_then(|file| file.set_len(DISK_BYTES)).map_err(text)?;
            successful("mke2fs", &["-q", "-F", "-t", "ext4"], disk)?;
            command.args(["--disk", &format!("{}{kind}", disk.display())]);
        }
        let nodes = names.map(|name| format!("/dev/{name}"));
        let output =
            command.arg(&root).args(["--", "sh", "-c", SCRIPT, "sh"]).args(nodes).output().map_err(text)?;
        if !output.status.success() || output.stdout != b"end\n" {
            return Err(format!("{machine}{kind}: {}", said(&output)));
        }
        for disk in &disks {
            e2fsck("-fn", disk, 0)?;
        }
    }
    Ok(())
}
