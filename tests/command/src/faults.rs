//! Disks that fail under an ext4: QEMU's driver `blkdebug` fails reads and writes of chosen sectors, and flushes, and a disk is pulled out
//! in the midst of writes. Programs see the error, the machine goes on, and another disk never notices.
//!
//! Each machine has two disks: `/m` is on the one that fails, `/n` on the other. Afterwards the image is sound, once its journal is replayed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::case::starling;
use crate::devices::Machine;
use crate::disks::{Check, e2fsck, said, successful, text};
use crate::images;

/// What is promised.
pub(crate) const CHECKS: [(&str, Check); 6] = [
    ("a write that fails is an error of fsync, and no more", || faulty(&FAILING_WRITE)),
    ("a read that fails is an error of read, and no more", || faulty(&FAILING_READ)),
    ("a directory that can't be read is an error of what lies in it", || faulty(&FAILING_DIRECTORY)),
    ("a flush that fails is an error of fsync, and the last commit", || faulty(&FAILING_FLUSH)),
    ("a journal that can't be written makes the file system one for reading", || faulty(&FAILING_JOURNAL)),
    ("a disk is pulled out while programs write to it", pulled_out),
];

/// What fails.
enum Failing {
    /// Transfers of a block of a file, as `debugfs` knows it.
    Block {
        /// `read` or `write`.
        kind: &'static str,
        file: &'static str,
        /// Which of its blocks.
        index: usize,
    },
    /// All flushes but the first ones: so many.
    Flushes(u32),
}

struct Fault {
    failing: Failing,
    script: &'static str,
    /// What the script prints.
    printed: &'static str,
}

const DISK_BYTES: u64 = 16 << 20;
const VICTIM_BYTES: usize = 64 << 10;
/// Both disks are mounted; afterwards the other one has its file, and both are unmounted.
const BEFORE: &str = "mount -t ext4 /dev/$1 /m && mount -t ext4 /dev/$2 /n && cd /m && ";
const AFTER: &str =
    "; echo fine > /n/file && sync -f /n/file && cat /n/file; cd /; umount /m; umount /n; echo end";

const FAILING_WRITE: Fault = Fault {
    failing: Failing::Block { kind: "write", file: "/victim", index: 5 },
    script: "dd if=/dev/zero of=victim bs=4k count=16 conv=notrunc,fsync 2>&1 | grep -o 'Input/output error'; \
        dd if=/dev/zero of=other bs=4k count=16 conv=fsync 2>/dev/null && echo other; mv other another && sync && ls another",
    printed: "Input/output error\nother\nanother\nfine\nend\n",
};
const FAILING_READ: Fault = Fault {
    failing: Failing::Block { kind: "read", file: "/victim", index: 5 },
    script: "cat victim 2>&1 >/dev/null | grep -o 'Input/output error'; head -c 4096 victim | wc -c; cat folder/inside; \
        echo new > new && cat new",
    printed: "Input/output error\n4096\ninside\nnew\nfine\nend\n",
};
const FAILING_DIRECTORY: Fault = Fault {
    failing: Failing::Block { kind: "read", file: "/folder", index: 0 },
    script: "for name in inside other; do cat folder/$name 2>&1 | grep -o 'Input/output error'; done; \
        echo x 2>&1 > folder/new | grep -o 'Input/output error'; \
        wc -c < victim; echo new > new && cat new",
    printed: "Input/output error\nInput/output error\nInput/output error\n65536\nnew\nfine\nend\n",
};
/// Mounting takes some flushes, each `fsync` one or two.
const FAILING_FLUSH: Fault = Fault {
    failing: Failing::Flushes(40),
    // Each round makes the file longer, so that its `fsync` is a commit: where only times change, and not even those within a step of their clock, it is a
    // flush, which fails alone.
    script: "i=0; while echo >> victim; dd if=/dev/zero of=victim bs=4k count=16 conv=notrunc,fsync 2> /tmp/why; do i=$((i+1)); [ $i -lt 100 ] || break; done; \
        [ $i -gt 5 ] && grep -o 'Input/output error' /tmp/why; echo x 2>&1 > more | grep -o 'Read-only file system'; cat folder/inside",
    printed: "Input/output error\nRead-only file system\ninside\nfine\nend\n",
};
const FAILING_JOURNAL: Fault = Fault {
    failing: Failing::Block { kind: "write", file: "<8>", index: 40 },
    script: "for i in $(seq 100); do echo $i > file$i && sync -f file$i || break; done 2>/dev/null; [ $i -lt 100 ] && echo stopped; \
        echo x 2>&1 > more | grep -o 'Read-only file system'; touch more 2>&1 | grep -o 'Read-only file system'; cat folder/inside",
    printed: "stopped\nRead-only file system\nRead-only file system\ninside\nfine\nend\n",
};

/// The guest's image and two disks.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn make() -> Result<Self, String> {
        let place = Self { folder: tempfile::tempdir().map_err(text)? };
        images::make_folder_with_busybox(&place.path("root")).map_err(text)?;
        for folder in ["m", "n"] {
            fs::create_dir(place.path("root").join(folder)).map_err(text)?;
        }
        let contents = place.path("contents");
        fs::create_dir_all(contents.join("folder")).map_err(text)?;
        fs::write(contents.join("folder/inside"), "inside\n").map_err(text)?;
        fs::write(contents.join("victim"), vec![b'v'; VICTIM_BYTES]).map_err(text)?;
        let contents = contents.display().to_string();
        for disk in ["failing", "other"] {
            File::create(place.path(disk)).and_then(|file| file.set_len(DISK_BYTES)).map_err(text)?;
            let options = ["-q", "-F", "-t", "ext4", "-b", "4096", "-d", &contents];
            successful("mke2fs", &options, &place.path(disk))?;
        }
        Ok(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The first sector of a block of a file.
    fn sector(&self, file: &str, index: usize) -> Result<u64, String> {
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        let request = format!("blocks {file}");
        let mut debugfs = Command::new("debugfs");
        let output = debugfs
            .env("PATH", path)
            .args(["-R", &request])
            .arg(self.path("failing"))
            .output()
            .map_err(text)?;
        let blocks = String::from_utf8_lossy(&output.stdout);
        let block = blocks.split_whitespace().nth(index).and_then(|word| word.parse::<u64>().ok());
        Ok(block.ok_or_else(|| format!("blocks of {file}: {blocks}"))? * 8)
    }

    /// Settings of `blkdebug`.
    fn rules(&self, failing: &Failing) -> Result<String, String> {
        match *failing {
            Failing::Block { kind, file, index } => {
                let sector = self.sector(file, index)?;
                Ok(format!(
                    ",inject-error.0.event=none,inject-error.0.iotype={kind},inject-error.0.sector={sector},inject-error.0.errno=5"
                ))
            }
            // Each flush leads from one state to the next.
            Failing::Flushes(sound) => {
                let steps = (1..=sound).map(|state| {
                    let (rule, next) = (format!(",set-state.{}", state - 1), state + 1);
                    format!("{rule}.event=flush_to_disk{rule}.state={state}{rule}.new_state={next}")
                });
                let rule = ",inject-error.0";
                let error = format!(
                    "{rule}.event=flush_to_disk{rule}.iotype=flush{rule}.state={}{rule}.errno=5",
                    sound + 1
                );
                Ok(steps.collect::<String>() + &error)
            }
        }
    }
}

fn word(path: &Path) -> String {
    path.display().to_string()
}

/// Machines, the devices that are the disks, what QEMU is to do of errors besides, and what the disks are called.
const MACHINES: [(&str, &str, &str, [&str; 2]); 3] = [
    ("microvm", "virtio-blk-device", ",werror=report,rerror=report", ["vda", "vdb"]),
    ("q35", "virtio-blk-pci,disable-legacy=on", ",werror=report,rerror=report", ["vda", "vdb"]),
    // It reports them always.
    ("q35", "nvme", "", ["nvme0n1", "nvme1n1"]),
];

/// Runs the script on a disk that fails, on each machine; then the disk is well again.
fn faulty(fault: &Fault) -> Result<(), String> {
    for (machine, device, errors, names) in MACHINES {
        let place = Place::make()?;
        let rules = place.rules(&fault.failing)?;
        let failing = word(&place.path("failing"));
        let words = [
            "-blockdev".into(),
            format!("driver=blkdebug,node-name=faults,image.driver=file,image.filename={failing}{rules}"),
            "-blockdev".into(),
            "driver=raw,node-name=failing,file=faults".into(),
            "-device".into(),
            format!("{device},drive=failing,serial=failing{errors}"),
            "-blockdev".into(),
            format!("driver=file,node-name=other,filename={}", word(&place.path("other"))),
            "-device".into(),
            format!("{device},drive=other,serial=other"),
            "-global".into(),
            "virtio-mmio.force-legacy=false".into(),
        ];
        let script = format!("{BEFORE}{}{AFTER}", fault.script);
        let output = starling()
            .args(["--verbose", "--machine", machine, "--cpus", "2", "--timeout", "100"])
            .args(words.map(|word| format!("--qemu-arg={word}")))
            .args(["--kernel-arg", "devices=first"])
            .arg(place.path("root"))
            .args(["--", "sh", "-c", &script, "sh"])
            .args(names)
            .output()
            .map_err(text)?;
        if !output.status.success() || output.stdout != fault.printed.as_bytes() {
            return Err(format!("{machine}, {device}: {}", said(&output)));
        }
        e2fsck("-p", &place.path("failing"), 1)?;
        e2fsck("-fn", &place.path("failing"), 0)?;
        e2fsck("-fn", &place.path("other"), 0)?;
    }
    Ok(())
}

fn pulled_out() -> Result<(), String> {
    let place = Place::make()?;
    let drive =
        |name: &str| format!("--qemu-arg=if=none,id={name},format=raw,file={}", word(&place.path(name)));
    let arguments = [
        "--machine".into(),
        "q35".into(),
        "--cpus".into(),
        "2".into(),
        "--timeout".into(),
        "300".into(),
        "--device".into(),
        "pcie-root-port,id=rp0,chassis=1,slot=1".into(),
        "--qemu-arg=-drive".into(),
        drive("failing"),
        "--device".into(),
        "virtio-blk-pci,disable-legacy=on,drive=failing,bus=rp0,id=disk0,serial=failing".into(),
        "--qemu-arg=-drive".into(),
        drive("other"),
        "--device".into(),
        "virtio-blk-pci,disable-legacy=on,drive=other,serial=other".into(),
        "--kernel-arg".into(),
        "devices=first".into(),
    ];
    let mut machine = Machine::with(&arguments, &place.path("root"))?;
    let disk =
        |name: &str| format!("$(dirname $(grep -l {name} /sys/block/*/serial) | sed s,/sys/block,/dev,)");
    machine.guest(&format!("mount -t ext4 {} /m && mount -t ext4 {} /n", disk("failing"), disk("other")))?;
    // Writers that go on until they see an error, one that also syncs.
    machine.guest(
        "(while dd if=/dev/zero of=/m/a bs=64k count=64; do :; done; echo ended > /tmp/a) > /tmp/why-a 2>&1 & \
        (while dd if=/dev/zero of=/m/b bs=4k count=4 conv=fsync; do :; done; echo ended > /tmp/b) > /tmp/why-b 2>&1 & \
        (while [ ! -e /tmp/stop ]; do cp /bin/busybox /n/copy && sync -f /n/copy || break; done; echo ended > /tmp/n) &",
    )?;
    machine.guest("sleep 0.5")?;
    machine.unplug("disk0")?;
    machine.monitor_line("DEVICE_DELETED")?;
    machine.until("cat /tmp/a /tmp/b | wc -l", "2")?;
    machine.until(
        "tail -n 1 /tmp/why-b | grep -c -E 'Input/output error|No such device|Read-only file system'",
        "1",
    )?;
    machine.guest("ls -l /m; cat /m/folder/inside; umount /m")?;
    machine.until("grep -c ' /m ' /proc/mounts", "0")?;
    machine.guest("echo > /tmp/stop")?;
    machine.until("cat /tmp/n", "ended")?;
    machine.until("cmp /bin/busybox /n/copy && echo same", "same")?;
    machine
        .monitor(&format!("drive_add 0 if=none,id=again,format=raw,file={}", word(&place.path("failing"))))?;
    machine
        .monitor("device_add virtio-blk-pci,disable-legacy=on,drive=again,bus=rp0,id=disk1,serial=again")?;
    machine.until("ls /sys/block/*/serial | xargs grep -c -h again | grep -c 1", "1")?;
    machine.until(&format!("mount -t ext4 {} /m && cat /m/folder/inside", disk("again")), "inside")?;
    machine.until(
        "echo new > /m/new && sync -f /m/new && cat /m/new; umount /m /n; grep -c ext4 /proc/mounts",
        "new\n0",
    )?;
    drop(machine);
    e2fsck("-fn", &place.path("failing"), 0)?;
    e2fsck("-fn", &place.path("other"), 0)
}
