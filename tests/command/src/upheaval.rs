//! All at once, on the ports of two disks: programs transfer, drivers are unbound and bound, functions are reset and looked for, a slot's power goes off and on, errors are injected, and
//! everybody looks at `/sys`. On one processor, whose threads take turns at any instruction: with several, QEMU 7.2 ends by itself now and then when one reaches a device's registers while another one changes
//! which there are (an assertion in `msix.c`, or a signal). What programs are told then is not looked at; afterwards both disks work, and a third one has never noticed.

use std::fs::File;

use crate::devices::Machine;
use crate::disks::text;
use crate::images;

/// What is promised.
pub(crate) const NAME: &str =
    "drivers, functions, ports and errors come and go at once, and all work afterwards";

const DISK_BYTES: u64 = 8 << 20;
/// Disks by serial number, with where they are.
const DISKS: [(&str, &str); 3] = [
    ("onvirtio", "virtio-blk-pci,disable-legacy=on,aer=on,bus=rp0"),
    ("onnvme", "nvme,bus=rp1"),
    ("otherdisk", "virtio-blk-pci,disable-legacy=on,bus=rp2"),
];

/// What goes on at once; each ends after so many rounds.
const LOOPS: [(&str, &str); 9] = [
    ("virtio's driver", "echo $a > $drivers/virtio-pci/unbind; echo $a > $drivers/virtio-pci/bind"),
    ("nvme's driver", "echo $b > $drivers/nvme/unbind; echo $b > $drivers/nvme/bind"),
    ("resets", "echo 1 > $devices/$a/reset; echo 1 > $devices/$b/reset"),
    (
        "looks for functions",
        "echo 1 > /sys/bus/pci/rescan; echo 1 > $devices/$b/remove; echo 1 > /sys/bus/pci/rescan",
    ),
    ("a slot", "echo 0 > /sys/bus/pci/slots/1/power; echo 1 > /sys/bus/pci/slots/1/power"),
    (
        "errors",
        "inject $a '\\020\\000\\000\\000'; inject $b '\\020\\000\\000\\000'; inject $a '\\000\\020\\000\\000'",
    ),
    ("a port's driver", "echo $p > $drivers/pcieport/unbind; echo $p > $drivers/pcieport/bind"),
    (
        "looks at files",
        "ls -lR /sys/bus /sys/devices /sys/block; cat /proc/bus/pci/devices /proc/interrupts $devices/*/config",
    ),
    (
        "transfers",
        "for n in $(cd /sys/block; ls -d vd* nvme*); do [ -b /dev/$n ] && [ $n != $o ] && head -c 1000000 /dev/$n; done | cat",
    ),
];

/// The function behind a port that is a disk, and what programs claim of it.
const PROGRAMS: &str = "devices=/sys/bus/pci/devices; drivers=/sys/bus/pci/drivers; \
    place() { basename $(cd -P $(dirname $(grep -l $1 /sys/block/*/serial)); while [ ! -e vendor ]; do cd ..; done; pwd -P); }; \
    inject() { bus=${1#*:}; printf \"\\\\x${bus%%:*}\\\\000\\\\000\\\\000$2\" > /tmp/error; head -c 20 /dev/zero >> /tmp/error; dd if=/tmp/error of=/dev/aer_inject bs=28 2> /dev/null; }; \
    repeat() { i=0; while [ $i -lt $1 ]; do eval \"$2\"; i=$((i + 1)); done > /dev/null 2>&1; echo ended > \"/tmp/ended-$3\"; }; \
    verify() { while [ ! -e /tmp/stop ]; do for p in p q; do dd if=/tmp/$p of=$1 bs=64k conv=notrunc,fsync 2> /tmp/why || break 2; echo 3 > /proc/sys/vm/drop_caches; \
    { head -c $(stat -c %s /tmp/$p) $1 | cmp - /tmp/$p; } > /tmp/why 2>&1 || break 2; done; done; \
    if [ -e /tmp/stop ]; then echo fine; else echo failed; cat /tmp/why; fi > /tmp/ended-verify; }";

/// The name of the disk with this serial number.
fn disk(name: &str) -> String {
    format!("$(basename $(dirname $(grep -l {name} /sys/block/*/serial)))")
}

/// So many rounds of each.
pub(crate) fn check(rounds: usize) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(text)?;
    let root = folder.path().join("root");
    images::make_folder_with_busybox(&root).map_err(text)?;
    let mut arguments: Vec<String> =
        ["--machine", "q35", "--cpus", "1", "--timeout", "3000", "--kernel-arg", "devices=first"]
            .map(String::from)
            .into();
    for (number, (name, device)) in DISKS.iter().enumerate() {
        let (path, chassis) = (folder.path().join(name), number + 1);
        File::create(&path).and_then(|file| file.set_len(DISK_BYTES)).map_err(text)?;
        let drive = format!("if=none,id={name},format=raw,file={}", path.display());
        arguments.extend(["--qemu-arg=-drive".into(), format!("--qemu-arg={drive}")]);
        arguments
            .extend(["--device".into(), format!("ioh3420,id=rp{number},chassis={chassis},slot={chassis}")]);
        arguments.extend(["--device".into(), format!("{device},drive={name},serial={name}")]);
    }
    let mut machine = Machine::with(&arguments, &root)?;
    machine.guest("for p in p q; do dd if=/dev/urandom of=/tmp/$p bs=64k count=8 2> /dev/null; done")?;
    machine.guest(PROGRAMS)?;
    machine
        .guest("a=$(place onvirtio); b=$(place onnvme); p=$(basename $(dirname $(realpath $devices/$b)))")?;
    machine.guest(&format!("o={}; verify /dev/$o &", disk("otherdisk")))?;
    for (index, (name, what)) in LOOPS.iter().enumerate() {
        machine.guest(&format!("repeat {rounds} \"{}\" {index} & # {name}", what.replace('$', "\\$")))?;
    }
    for (index, (name, _)) in LOOPS.iter().enumerate() {
        machine.until(&format!("cat /tmp/ended-{index}"), "ended").map_err(|why| format!("{name}: {why}"))?;
    }
    machine.guest("echo > /tmp/stop")?;
    machine.until("cat /tmp/ended-verify", "fine")?;
    // Whatever came last, all can be had back.
    machine.guest("echo $p > $drivers/pcieport/bind; for s in /sys/bus/pci/slots/*; do echo 1 > $s/power; done; echo 1 > /sys/bus/pci/rescan")?;
    for (name, _) in DISKS {
        machine.guest("for f in $a $b; do echo $f > /sys/bus/pci/drivers_probe; done")?;
        machine.until(&format!("cat /sys/block/{}/serial", disk(name)), name)?;
        machine.until(
            &format!("n=/dev/{}; dd if=/tmp/p of=$n bs=64k conv=notrunc,fsync 2> /dev/null; echo 3 > /proc/sys/vm/drop_caches; head -c 524288 $n | cmp - /tmp/p && echo same", disk(name)),
            "same",
        )?;
    }
    Ok(())
}
