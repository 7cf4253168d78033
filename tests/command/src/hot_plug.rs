//! Disks that are pulled out and put back by QEMU's monitor while programs write to them: a virtio disk and an NVMe controller behind ports of their own, both at once,
//! each with an ext4 and, behind that, sectors that are written raw. Requests take their time, so that some are under way whenever a disk goes.
//!
//! Programs get an error and end. What `fsync` has promised on the ext4 is there when the disk is back. A third disk, behind a port like the others, is written and compared
//! all the time, while the buses are looked at for new devices again and again, and never notices. In the end memory is back where it was.

use std::fs::{self, File};
use std::path::Path;

use crate::devices::Machine;
use crate::disks::{e2fsck, successful, text};
use crate::images;

/// What is promised.
pub(crate) const NAME: &str = "disks are pulled out and put back while programs write to them";

/// The two disks that come and go, by serial number, with what QEMU calls their models.
const DISKS: [(&str, &str); 2] =
    [("pulledvirtio", "virtio-blk-pci,disable-legacy=on"), ("pullednvme", "nvme")];
/// The one that stays.
const OTHER: &str = "otherdisk";
/// An ext4 has so much of a disk; raw sectors follow.
const FILE_SYSTEM_BYTES: u64 = 16 << 20;
const DISK_BYTES: u64 = 32 << 20;
const BYTES_PER_SECOND: u32 = 4 << 20;
/// Rounds before memory is looked at the first time: they make what is kept.
const FIRST_ROUNDS: usize = 2;
/// How much less memory may be free in the end: an object lost in each of fifty rounds is more.
const LOST_KB_MAX: i64 = 512;

/// What programs may be told: of a transfer, of opening a device that is gone, of opening a file of an ext4 whose journal is.
const ERRORS: [&str; 3] = ["Input/output error", "No such device", "Read-only file system"];

/// Programs in the guest. Names of devices are nodes of their own: a program that opens one after its disk has gone must not make a file.
const PROGRAMS: &str = "\
raw() { while dd if=/tmp/pattern of=/nodes/$1 bs=64k seek=256 conv=notrunc,fsync 2> /tmp/why-raw-$1; do echo >> /tmp/raw-$1; done; echo ended > /tmp/end-raw-$1; }
files() { i=1; while echo $i | dd of=/m-$1/n$((i % 2)) conv=fsync 2> /tmp/why-files-$1; do echo $i > /tmp/synced-$1; i=$((i + 1)); done; echo ended > /tmp/end-files-$1; }
other() { while [ ! -e /tmp/stop ]; do for p in pattern pattern2; do \
dd if=/tmp/$p of=$1 bs=64k conv=notrunc,fsync 2> /tmp/why-other || break 2; echo 3 > /proc/sys/vm/drop_caches; \
{ head -c $(stat -c %s /tmp/$p) $1 | cmp - /tmp/$p; } > /tmp/why-other 2>&1 || break 2; done; done; \
if [ -e /tmp/stop ]; then echo fine; else echo failed; cat /tmp/why-other; fi > /tmp/end-other; }
rescan() { while [ ! -e /tmp/stop ]; do echo 1 > /sys/bus/pci/rescan; done; echo ended > /tmp/end-rescan; }
newest() { cat /m-$1/n0 /m-$1/n1 | sort -n | tail -n 1; }";

/// The directory of the disk with this serial number, in `/sys/block`.
fn directory(name: &str) -> String {
    format!("$(dirname $(grep -l {name} /sys/block/*/serial))")
}

fn arguments(folder: &Path, cpus: &str) -> Vec<String> {
    let mut arguments: Vec<String> =
        ["--machine", "q35", "--cpus", cpus, "--timeout", "3000", "--kernel-arg", "devices=first"]
            .map(String::from)
            .into();
    let mut add = |option: &str, word: String| match option {
        "--device" => arguments.extend([option.into(), word]),
        _ => arguments.extend([format!("--qemu-arg={option}"), format!("--qemu-arg={word}")]),
    };
    let names = DISKS.map(|(name, _)| name).into_iter().chain([OTHER]);
    for (number, name) in names.enumerate() {
        let (path, chassis) = (folder.join(name), number + 1);
        add("-object", format!("throttle-group,id=slow-{name},x-bps-total={BYTES_PER_SECOND}"));
        add("-blockdev", format!("driver=file,node-name=file-{name},filename={}", path.display()));
        add(
            "-blockdev",
            format!("driver=throttle,node-name=node-{name},throttle-group=slow-{name},file=file-{name}"),
        );
        add("--device", format!("pcie-root-port,id=rp{number},chassis={chassis},slot={chassis}"));
    }
    let other = DISKS.len();
    add(
        "--device",
        format!("virtio-blk-pci,disable-legacy=on,drive=node-{OTHER},serial={OTHER},bus=rp{other}"),
    );
    arguments
}

/// Puts the disks in, mounts their ext4s, which have what was promised, and begins to write.
fn put_in(machine: &mut Machine, round: usize) -> Result<(), String> {
    for (number, (name, model)) in DISKS.iter().enumerate() {
        machine.monitor(&format!(
            "device_add {model},drive=node-{name},serial={name},bus=rp{number},id=disk{number}-{round}"
        ))?;
    }
    for (name, _) in DISKS {
        machine.until(&format!("cat {}/serial", directory(name)), name)?;
        let make_node =
            format!("rm -f /nodes/{name}; mknod /nodes/{name} b $(tr : ' ' < {}/dev)", directory(name));
        machine.guest(&make_node)?;
        machine.until(
            &format!("mount -t ext4 /nodes/{name} /m-{name} && cat /m-{name}/folder/inside"),
            "inside",
        )?;
        let promised = format!("[ $(newest {name}) -ge $(cat /tmp/synced-{name}) ] && echo yes");
        machine.until(&promised, "yes")?;
        machine.guest(&format!(
            "rm -f /tmp/raw-{name} /tmp/end-*-{name}; echo 0 > /tmp/synced-{name}; raw {name} & files {name} &"
        ))?;
    }
    for (name, _) in DISKS {
        machine.until(&format!("[ $(cat /tmp/synced-{name}) -gt 0 ] && echo yes"), "yes")?;
    }
    Ok(())
}

/// Pulls both out: the programs end with an error, and nothing is left.
fn pull_out(machine: &mut Machine, round: usize) -> Result<(), String> {
    for number in 0..DISKS.len() {
        machine.unplug(&format!("disk{number}-{round}"))?;
    }
    for number in 0..DISKS.len() {
        machine.deleted(&format!("disk{number}-{round}"))?;
    }
    for (name, _) in DISKS {
        machine.until(&format!("cat /tmp/end-raw-{name} /tmp/end-files-{name}"), "ended\nended")?;
        for program in ["raw", "files"] {
            let why = machine.guest(&format!("cat /tmp/why-{program}-{name}"))?;
            if !ERRORS.iter().any(|error| why.contains(error)) {
                return Err(format!("{program} on {name} ended with {why:?}"));
            }
        }
        machine.until(&format!("umount /m-{name}; grep -c ' /m-{name} ' /proc/mounts"), "0")?;
        machine.until(&format!("ls /sys/block/*/serial | xargs grep -l {name} | wc -l"), "0")?;
    }
    Ok(())
}

fn begin_other(machine: &mut Machine) -> Result<(), String> {
    machine.guest("rm -f /tmp/stop /tmp/end-other /tmp/end-rescan")?;
    machine.guest(
        "other $(dirname $(grep -l otherdisk /sys/block/*/serial) | sed s,/sys/block,/dev,) & rescan &",
    )?;
    Ok(())
}

fn end_other(machine: &mut Machine) -> Result<(), String> {
    machine.guest("echo > /tmp/stop")?;
    machine.until("cat /tmp/end-other /tmp/end-rescan", "fine\nended")
}

/// So many rounds, on so many processors. QEMU 7.2 may end by itself, though rarely, when one processor reaches a device's registers while another one changes which there are.
pub(crate) fn check(rounds: usize, cpus: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(text)?;
    let root = folder.path().join("root");
    images::make_folder_with_busybox(&root).map_err(text)?;
    fs::create_dir(root.join("nodes")).map_err(text)?;
    let contents = folder.path().join("contents");
    fs::create_dir_all(contents.join("folder")).map_err(text)?;
    fs::write(contents.join("folder/inside"), "inside\n").map_err(text)?;
    for number in ["n0", "n1"] {
        fs::write(contents.join(number), "0\n").map_err(text)?;
    }
    let contents = contents.display().to_string();
    for (name, _) in DISKS {
        fs::create_dir(root.join(format!("m-{name}"))).map_err(text)?;
        let path = folder.path().join(name);
        let file = File::create(&path).map_err(text)?;
        file.set_len(FILE_SYSTEM_BYTES).map_err(text)?;
        successful("mke2fs", &["-q", "-F", "-t", "ext4", "-d", &contents], &path)?;
        file.set_len(DISK_BYTES).map_err(text)?;
    }
    File::create(folder.path().join(OTHER)).and_then(|file| file.set_len(DISK_BYTES)).map_err(text)?;
    let mut machine = Machine::with(&arguments(folder.path(), cpus), &root)?;
    machine.guest(
        "for p in pattern pattern2; do dd if=/dev/urandom of=/tmp/$p bs=64k count=16 2> /dev/null; done",
    )?;
    machine.guest(PROGRAMS)?;
    for (name, _) in DISKS {
        machine.guest(&format!("echo 0 > /tmp/synced-{name}"))?;
    }
    begin_other(&mut machine)?;
    let mut before = 0;
    for round in 0..FIRST_ROUNDS + rounds {
        if round == FIRST_ROUNDS {
            end_other(&mut machine)?;
            before = machine.free_kb_without_caches()?;
            begin_other(&mut machine)?;
        }
        let done = put_in(&mut machine, round).and_then(|()| pull_out(&mut machine, round));
        if let Err(why) = done {
            let log = machine.guest("dmesg | tail -n 20; grep . /sys/bus/pci/slots/*/[ap]*")?;
            return Err(format!("round {round}: {why}: {log}"));
        }
    }
    end_other(&mut machine)?;
    machine.memory_comes_back(before, LOST_KB_MAX)?;
    drop(machine);
    for (name, _) in DISKS {
        e2fsck("-p", &folder.path().join(name), 1)?;
        e2fsck("-fn", &folder.path().join(name), 0)?;
    }
    Ok(())
}
