//! Errors on the way to disks while programs write to them: QEMU's monitor has ports and devices note fatal errors, the bus is reset, and the programs never
//! hear of it. All requests take their time, so that some are under way whenever that happens.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::devices::Machine;
use crate::disks::text;
use crate::images;

/// What is promised.
pub(crate) const NAME: &str = "disks recover from fatal errors on their links while programs write to them";

const DISK_BYTES: u64 = 16 << 20;
/// How long something may take to happen.
const PATIENCE: Duration = Duration::from_secs(300);
/// What is written in each round: small enough for several in a second of a throttled disk.
const ROUND_KIB: u32 = 512;
/// Errors of each kind for each disk.
const ERRORS: u32 = 3;
/// Disks by serial number, with where they are.
const DISKS: [(&str, &str); 4] = [
    ("nvmedisk", "nvme,bus=rp0"),
    ("virtiodisk", "virtio-blk-pci,disable-legacy=on,aer=on,bus=rp1,id=virtio0"),
    // Its neighbours' drivers take their devices anew.
    ("lostdisk", "virtio-blk-pci,disable-legacy=on,aer=on,bus=rp2,addr=0.0,multifunction=on,id=virtio1"),
    ("otherdisk", "virtio-blk-pci,disable-legacy=on"),
];
const PORTS: [&str; 3] = ["rp0", "rp1", "rp2"];
/// Other functions of that device.
const NEIGHBOURS: [&str; 5] = [
    "virtio-rng-pci,disable-legacy=on,bus=rp2,addr=0.1",
    "virtio-balloon-pci,disable-legacy=on,bus=rp2,addr=0.2",
    "virtio-serial-pci,disable-legacy=on,bus=rp2,addr=0.3,id=serial",
    "virtserialport,bus=serial.0,chardev=stream,name=stream",
    "virtio-9p-pci,disable-legacy=on,bus=rp2,addr=0.4,fsdev=shared,mount_tag=shared",
];
/// Bytes that the balloon leaves.
const LEFT_BYTES: u32 = 448 << 20;

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

/// Random bytes come, the host hears what is written, files are shared, and the balloon is as large as the host wants it.
fn neighbours_work(machine: &mut Machine, stream: &Path, word: &str) -> Result<(), String> {
    machine.until("head -c 16 /dev/hwrng | wc -c", "16")?;
    machine.until("[ -e /dev/virtio-ports/stream ] && echo yes", "yes")?;
    machine.guest(&format!("echo {word} > /dev/virtio-ports/stream"))?;
    machine.guest("mkdir -p /shared; mount -t 9p -o trans=virtio,version=9p2000.L shared /shared")?;
    machine.until("cat /shared/file", "shared")?;
    machine.monitor(&format!("balloon {}", LEFT_BYTES >> 20))?;
    let start = Instant::now();
    loop {
        let balloon = machine.execute("{\"execute\": \"query-balloon\"}")?;
        let heard = fs::read_to_string(stream).map_err(text)?;
        if balloon.contains(&format!(" {LEFT_BYTES}}}")) && heard.lines().any(|line| line == word) {
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            return Err(format!("{word}: the balloon leaves {balloon}, the host has heard {heard:?}"));
        }
        machine.guest("sleep 0.2")?;
    }
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
    let (shared, stream) = (folder.path().join("shared"), folder.path().join("stream"));
    fs::create_dir(&shared).and_then(|()| fs::write(shared.join("file"), "shared\n")).map_err(text)?;
    for word in [
        "-fsdev",
        &format!("local,id=shared,security_model=none,path={}", shared.display()),
        "-chardev",
        &format!("file,id=stream,path={}", stream.display()),
    ] {
        arguments.push(format!("--qemu-arg={word}"));
    }
    for neighbour in NEIGHBOURS {
        arguments.extend(["--device".into(), neighbour.into()]);
    }
    let mut machine = Machine::with(&arguments, &root)?;
    machine.guest(&format!(
        "mkdir -p /tmp; for p in a b; do dd if=/dev/urandom of=/tmp/$p bs=1k count={ROUND_KIB} 2> /dev/null; done; {WRITER}"
    ))?;
    for (name, _) in DISKS {
        machine.guest(&format!("> /tmp/rounds-{name}; writer {} {name} &", disk(name)))?;
    }
    go_on(&mut machine)?;
    neighbours_work(&mut machine, &stream, "before")?;
    let names = machine.guest("ls /dev")?;
    let mut successes = 0;
    // An NVMe controller of QEMU's reports no errors: those of its link are the port's.
    for error in ["rp0 DLP", "virtio0 DLP", "rp1 DLP", "virtio0 POISON_TLP", "virtio1 DLP"] {
        for _ in 0..ERRORS {
            machine.monitor(&format!("pcie_aer_inject_error {error}"))?;
            successes += 1;
            outcomes(&mut machine, "successful", successes)?;
            go_on(&mut machine)?;
        }
    }
    let resets = ERRORS * 4;
    machine.until("dmesg | grep -c 'the bus behind it was reset'", &format!("{resets}"))?;
    // A program may ask for the same, of one function. It is not said to be an error's.
    for (name, _) in &DISKS[..2] {
        for round in 1..=ERRORS {
            let function = format!(
                "$(cd -P $(dirname $(grep -l {name} /sys/block/*/serial)); while [ ! -e reset ]; do cd ..; done; pwd -P)"
            );
            machine.until(&format!("echo 1 > {function}/reset && echo done"), "done")?;
            machine.until(
                &format!("dmesg | grep -c \"$(basename {function}): reset by flr\""),
                &round.to_string(),
            )?;
            go_on(&mut machine)?;
        }
    }
    // What programs had open of the neighbours is at its end; what they open next works.
    machine.until("cat /shared/file 2>&1 | grep -c 'Input/output error'", "1")?;
    machine.guest("umount /shared")?;
    neighbours_work(&mut machine, &stream, "after")?;
    let names_after = machine.guest("ls /dev")?;
    if names_after != names {
        return Err(format!("{names_after} are not {names}"));
    }
    // One that does not answer where it should has no way back, and nothing on its link has. Its programs hear of it, and nobody else.
    machine.guest("printf '\\0\\0\\0\\0' | dd of=$(dirname $(grep -l 0x1044 /sys/bus/pci/devices/*/device))/config bs=1 seek=32 2> /dev/null")?;
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
