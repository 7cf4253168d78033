//! I/O schedulers chosen while disks are busy, and what is counted for partitions.
//!
//! Three processes write random bytes to partitions and to what is behind them, have them written to the disk, and compare what the disk gives back,
//! until the scheduler was changed back and forth a hundred times.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::case::starling;
use crate::disks::{said, text};
use crate::images;

/// What is promised.
pub(crate) const NAME: &str = "the scheduler of a busy disk is changed a hundred times, and nothing is lost";

/// Machines, with their numbers of processors, and what is said of the disk's kind.
const MACHINES: [(&str, &str, &str); 4] =
    [("q35", "2", ""), ("q35", "4", ":nvme"), ("microvm", "4", ""), ("q35", "1", ":nvme")];
/// So many of them suffice when there is little time.
const SHORT: usize = 2;
const DISK_BYTES: u64 = 64 << 20;
/// First sectors and sizes of the partitions.
const PARTITIONS: [(u32, u32); 2] = [(2048, 32_768), (34_816, 32_768)];

const SCRIPT: &str = r#"
set -e
fail() { echo "$@"; exit 1; }
is() { [ "$(cat $queue/$1)" = "$2" ] || fail "$1 is $(cat $queue/$1), not $2"; }
disk=vda; p=""; [ -e /dev/$disk ] || { disk=nvme0n1; p=p; }
queue=/sys/block/$disk/queue
is scheduler '[none] mq-deadline'
[ ! -e $queue/iosched ] || fail 'none has settings'
echo mq-deadline > $queue/scheduler
is scheduler 'none [mq-deadline]'
for setting in read_expire=500 write_expire=5000 writes_starved=2 fifo_batch=16 front_merges=1 prio_aging_expire=10000; do
    is iosched/${setting%=*} ${setting#*=}
    echo 3 > $queue/iosched/${setting%=*}
    is iosched/${setting%=*} $([ $setting = front_merges=1 ] && echo 1 || echo 3)
    echo -5 > $queue/iosched/${setting%=*}
    is iosched/${setting%=*} 0
    if echo x 2>/dev/null > $queue/iosched/${setting%=*}; then fail "$setting may be no number"; fi
    echo ${setting#*=} > $queue/iosched/${setting%=*}
done
if echo bfq 2>/tmp/why > $queue/scheduler; then fail 'there is bfq'; fi
grep -q 'Invalid argument' /tmp/why || fail "$(cat /tmp/why)"
is scheduler 'none [mq-deadline]'
echo none > $queue/scheduler

# Device, first block of 64 KiB.
writer() {
    dd if=/dev/urandom of=/tmp/$2 bs=64k count=16 2>/dev/null
    round=0
    while [ ! -e /tmp/stop ] || [ $round -lt 2 ]; do
        round=$((round + 1))
        dd if=/tmp/$2 of=/dev/$1 bs=4k seek=$(($2 * 16)) conv=notrunc,fsync 2>/dev/null
        echo 1 > /proc/sys/vm/drop_caches
        dd if=/dev/$1 bs=64k skip=$2 count=16 2>/dev/null | cmp - /tmp/$2 || exit 1
        # Other bytes each time.
        dd if=/dev/urandom of=/tmp/$2 bs=4k count=2 seek=$((round % 200)) conv=notrunc 2>/dev/null
    done
}
# Of different classes, so that each is held back by others at times.
ionice -c 1 -n 0 sh -c 'ionice' | grep -q 'realtime: prio 0' || fail 'no priority'
(ionice -c 3 -p $(exec sh -c 'echo $PPID'); writer $disk${p}1 0) & first=$!
(ionice -c 1 -n 3 -p $(exec sh -c 'echo $PPID'); writer $disk${p}2 32) & second=$!
writer $disk 550 & third=$!
for turn in $(seq 50); do
    echo mq-deadline > $queue/scheduler
    echo none > $queue/scheduler
done
echo mq-deadline > $queue/scheduler
touch /tmp/stop
for writer in $first $second $third; do wait $writer || fail "writer $writer failed"; done
is scheduler 'none [mq-deadline]'

# Column of a device: sectors written.
written() { awk -v name=$1 '$3 == name { print $10 }' /proc/diskstats; }
for part in 1 2; do
    [ $(written $disk$p$part) -ge 4096 ] || fail "partition $part: $(cat /proc/diskstats)"
    [ "$(awk '{ print $7 }' /sys/block/$disk/$disk$p$part/stat)" = $(written $disk$p$part) ] || fail "stat of $part"
    [ "$(awk '{ print $9 }' /sys/block/$disk/$disk$p$part/stat)" = 0 ] || fail "$part has something under way"
done
[ $(written $disk) -ge $(($(written $disk${p}1) + $(written $disk${p}2) + 4096)) ] || fail "$(cat /proc/diskstats)"
echo end
"#;

/// Runs the script on machines, all of them if there is time.
pub(crate) fn check(long: bool) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(text)?;
    let root = folder.path().join("root");
    images::make_folder_with_busybox(&root).map_err(text)?;
    MACHINES[..if long { MACHINES.len() } else { SHORT }].iter().try_for_each(|machine| {
        on_machine(folder.path(), &root, machine).map_err(|why| format!("{machine:?}: {why}"))
    })
}

/// A disk with a table of DOS's kind.
fn make_disk(path: &Path) -> std::io::Result<()> {
    let _ = fs::remove_file(path);
    let disk = File::create(path)?;
    disk.set_len(DISK_BYTES)?;
    disk.write_all_at(&[0x55, 0xaa], 510)?;
    for (index, (start, sectors)) in PARTITIONS.into_iter().enumerate() {
        let mut entry = [0; 16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..].copy_from_slice(&sectors.to_le_bytes());
        disk.write_all_at(&entry, 446 + 16 * index as u64)?;
    }
    Ok(())
}

fn on_machine(folder: &Path, root: &Path, machine: &(&str, &str, &str)) -> Result<(), String> {
    let (kind, cpus, disk_kind) = *machine;
    let disk = folder.join("disk");
    make_disk(&disk).map_err(text)?;
    let output = starling()
        .args(["--machine", kind, "--cpus", cpus, "--memory", "256M", "--timeout", "600"])
        .args(["--disk", &format!("{}{disk_kind}", disk.display())])
        .arg(root)
        .args(["--", "sh", "-c", SCRIPT])
        .output()
        .map_err(text)?;
    if output.status.success() && output.stdout == b"end\n" && output.stderr.is_empty() {
        return Ok(());
    }
    Err(said(&output))
}
