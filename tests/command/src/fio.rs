//! Debian's `fio`, unmodified: four processes at a time write files of an ext4 and verify the checksum of each block that they read, in order and at
//! random places, through the page cache and around it. The scheduler of the disk changes all the time. The host's `e2fsck` looks at the image afterwards.

use std::fs::{self, File};
use std::path::Path;

use crate::case::starling;
use crate::disks::{said, successful, text};
use crate::images;

/// What is promised.
pub(crate) const NAME: &str = "fio verifies what four processes wrote to an ext4, and e2fsck finds nothing";

/// Machines, with their numbers of processors, and what is said of the disk's kind.
const MACHINES: [(&str, &str, &str); 6] = [
    ("microvm", "1", ""),
    ("microvm", "2", ""),
    ("q35", "4", ""),
    ("q35", "1", ":nvme"),
    ("microvm", "2", ":nvme"),
    ("q35", "4", ":nvme"),
];
const DISK_BYTES: u64 = 256 << 20;
/// All ways, one after the other. `fio` says how often it failed, and with what.
const SCRIPT: &str = r#"
set -e
disk=/dev/vda; [ -e $disk ] || disk=/dev/nvme0n1
mkdir -p /m /tmp
mount -t ext4 $disk /m
# fio looks for the disk below /sys/block.
for link in /sys/block/*; do cat $link/size > /dev/null; done
chooser() {
    queue=/sys/block/${disk#/dev/}/queue
    until [ -e /tmp/stop ]; do echo mq-deadline > $queue/scheduler; usleep 20000; echo none > $queue/scheduler; usleep 20000; done
}
chooser & chooser=$!
for direct in 0 1; do
    for way in write randwrite rw randrw; do
        case $way in *rand*) block=4k ;; *) block=64k ;; esac
        fio --name=$way-$direct --directory=/m --rw=$way --bs=$block --direct=$direct --size=4m --numjobs=4 --ioengine=psync \
            --verify=crc32c --verify_fatal=1 --group_reporting --output=/tmp/said 2>> /tmp/complaints || { cat /tmp/said; exit 1; }
        grep -q 'err= 0' /tmp/said || { cat /tmp/said; exit 1; }
        rm -f /m/*-$direct.*
        fio --name=list-$way-$direct --directory=/m --rw=$way --bs=$block --direct=$direct --size=2m --numjobs=4 --ioengine=libaio --iodepth=16 --iodepth_batch=8 \
            --fsync=64 --verify=crc32c --verify_fatal=1 --group_reporting --output=/tmp/said 2>> /tmp/complaints || { cat /tmp/said; exit 1; }
        grep -q 'err= 0' /tmp/said || { cat /tmp/said; exit 1; }
        rm -f /m/*-$direct.*
    done
    fio --name=synced-$direct --directory=/m --rw=randwrite --bs=4k --direct=$direct --size=1m --numjobs=4 --ioengine=sync --fsync=16 \
        --verify=crc32c --verify_fatal=1 --group_reporting --output=/tmp/said 2>> /tmp/complaints || { cat /tmp/said; exit 1; }
done
touch /tmp/stop
wait $chooser
# It looks at all files below /sys/block, and those of a scheduler go while it does.
if grep -v '^stat: No such file' /tmp/complaints; then exit 1; fi
umount /m
echo verified
"#;

/// Runs all ways on all machines.
pub(crate) fn check() -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(text)?;
    let root = folder.path().join("root");
    images::make_folder_with_busybox(&root).map_err(text)?;
    images::add_program(&root, "fio").map_err(text)?;
    for machine in MACHINES {
        on_machine(folder.path(), &root, machine)?;
    }
    Ok(())
}

fn on_machine(folder: &Path, root: &Path, machine: (&str, &str, &str)) -> Result<(), String> {
    let (machine, cpus, kind) = machine;
    let disk = folder.join("disk");
    let _ = fs::remove_file(&disk);
    File::create(&disk).and_then(|file| file.set_len(DISK_BYTES)).map_err(text)?;
    successful("mke2fs", &["-q", "-F", "-t", "ext4"], &disk)?;
    let output = starling()
        .args(["--machine", machine, "--cpus", cpus, "--memory", "1G", "--timeout", "900"])
        .args(["--disk", &format!("{}{kind}", disk.display())])
        .arg(root)
        .args(["--", "sh", "-c", SCRIPT])
        .output()
        .map_err(text)?;
    if !output.status.success() || output.stdout != b"verified\n" || !output.stderr.is_empty() {
        return Err(format!("{machine} with {cpus} processors{kind}: {}", said(&output)));
    }
    successful("e2fsck", &["-f", "-n"], &disk)
}
