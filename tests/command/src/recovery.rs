//! Errors on the way to disks while programs write to them: QEMU's monitor has ports and devices note fatal errors, the bus is reset, and the programs never
//! hear of it. All requests take their time, so that some are under way whenever that happens.

use std::fs::File;

use crate::devices::Machine;
use crate::disks::text;
use crate::images;

/// What is promised.
pub(crate) const NAME: &str = "disks recover from fatal errors on their links while programs write to them";

const DISK_BYTES: u64 = 16 << 20;
/// What is written in each round: small enough for several in a second of a throttled disk.
const ROUND_KIB: u32 = 512;
/// Errors of each kind for each disk.
const ERRORS: u32 = 3;
/// Disks by serial number, with where they are.
const DISKS: [(&str, &str); 4] = [
    ("nvmedisk", "nvme,bus=rp0"),
    ("virtiodisk", "virtio-blk-pci,disable-legacy=on,aer=on,bus=rp1,id=virtio0"),
    // Its neighbour's driver knows nothing of recovery.
    ("lostdisk", "virtio-blk-pci,disable-legacy=on,aer=on,bus=rp2,addr=0.0,multifunction=on,id=virtio1"),
    ("otherdisk", "virtio-blk-pci,disable-legacy=on"),
];
const PORTS: [&str; 3] = ["rp0", "rp1", "rp2"];
const NEIGHBOUR: &str = "virtio-rng-pci,disable-legacy=on,bus=rp2,addr=0.1";

/// Writes one of two patterns to a disk, has it written, forgets it and compares, until told to stop.
const WRITER: &str = "writer() { \
    while [ ! -e /tmp/stop ]; do for p in a b; do \
    dd if=/tmp/$p of=$1 bs=64k conv=notrunc,fsync 2> /tmp/why-$2 || break 2; echo 3 > /proc/sys/vm/drop_caches; \
    { head -c $(stat -c %s /tmp/$p) $1 | cmp - /tmp/$p; } > /tmp/why-$2 2>&1 || break 2; echo >> /tmp/rounds-$2; done; done; \
    if [ -e /tmp/stop ]; then echo fine; else echo failed; cat /tmp/why-$2; fi > /tmp/ended-$2; }";

/// The device file of the disk with this serial number.
fn disk(name: &str) -> String {
    format!("$(dirname $(grep -l {name} /sys/block/*/serial) | sed s,/sys/block,/dev,)")
}

/// Waits for two more rounds of each writer: the one may have been nearly over.
fn go_on(machine: &mut Machine) -> Result<(), String> {
    for (name, _) in DISKS {
        let rounds = machine.guest(&format!("cat /tmp/rounds-{name} | wc -l"))?;
        let rounds: u32 = rounds.trim().parse().map_err(text)?;
        let enough = rounds + 2;
        machine.until(
            &format!("[ -e /tmp/ended-{name} ] && cat /tmp/ended-{name}; [ $(cat /tmp/rounds-{name} | wc -l) -ge {enough} ] && echo yes"),
            "yes",
        )?;
    }
    Ok(())
}

/// How many recoveries have ended so.
fn outcomes(machine: &mut Machine, outcome: &str, count: u32) -> Result<(), String> {
    machine.until(&format!("dmesg | grep -c 'AER: device recovery {outcome}'"), &format!("{count}"))
}

/// Errors of each kind while all write, and then one that can't be recovered from.
pub(crate) fn check() -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(text)?;
    let root = folder.path().join("root");
    images::make_folder_with_busybox(&root).map_err(text)?;
    let mut arguments: Vec<String> =
        ["--machine", "q35", "--cpus", "2", "--timeout", "600", "--kernel-arg", "devices=first"]
            .map(String::from)
            .into();
    for (number, port) in PORTS.iter().enumerate() {
        let chassis = number + 1;
        arguments.push("--device".into());
        arguments.push(format!("ioh3420,id={port},chassis={chassis},slot={chassis}"));
    }
    for (name, device) in DISKS {
        let path = folder.path().join(name);
        File::create(&path).and_then(|file| file.set_len(DISK_BYTES)).map_err(text)?;
        let drive =
            format!("if=none,id={name},format=raw,throttling.bps-total=4194304,file={}", path.display());
        arguments.extend(["--qemu-arg=-drive".into(), format!("--qemu-arg={drive}")]);
        arguments.extend(["--device".into(), format!("{device},drive={name},serial={name}")]);
    }
    arguments.extend(["--device".into(), NEIGHBOUR.into()]);
    let mut machine = Machine::with(&arguments, &root)?;
    machine.guest(&format!(
        "mkdir -p /tmp; for p in a b; do dd if=/dev/urandom of=/tmp/$p bs=1k count={ROUND_KIB} 2> /dev/null; done; {WRITER}"
    ))?;
    for (name, _) in DISKS {
        machine.guest(&format!("> /tmp/rounds-{name}; writer {} {name} &", disk(name)))?;
    }
    go_on(&mut machine)?;
    let mut successes = 0;
    // An NVMe controller of QEMU's reports no errors: those of its link are the port's.
    for error in ["rp0 DLP", "virtio0 DLP", "rp1 DLP", "virtio0 POISON_TLP"] {
        for _ in 0..ERRORS {
            machine.monitor(&format!("pcie_aer_inject_error {error}"))?;
            successes += 1;
            outcomes(&mut machine, "successful", successes)?;
            go_on(&mut machine)?;
        }
    }
    let resets = ERRORS * 3;
    machine.until("dmesg | grep -c 'the bus behind it was reset'", &format!("{resets}"))?;
    // What is behind that port has no way back, which its program hears of, and nobody else.
    machine.monitor("pcie_aer_inject_error virtio1 DLP")?;
    outcomes(&mut machine, "failed", 1)?;
    machine.until("head -n 1 /tmp/ended-lostdisk", "failed")?;
    machine.until("grep -q 'Input/output error' /tmp/ended-lostdisk && echo yes", "yes")?;
    machine.guest("echo > /tmp/stop")?;
    for (name, _) in DISKS.iter().filter(|(name, _)| *name != "lostdisk") {
        machine.until(&format!("cat /tmp/ended-{name}"), "fine")?;
    }
    outcomes(&mut machine, "successful", successes)
}
