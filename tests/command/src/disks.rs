//! Disks of the machine: the kernel's own tests of them, an ext4 image made by Debian's `mke2fs` that the guest writes and the host's `e2fsck`
//! looks at.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::case::starling;

/// A check.
pub(crate) type Check = fn() -> Result<(), String>;

/// What is promised, in every run.
pub(crate) const CHECKS: [(&str, Check); 2] = [
    ("disks are read and written by every processor, and go and come back in the midst of it", kernel_tests),
    ("an ext4 image of mke2fs is written, and e2fsck finds nothing", written_image),
];

/// Machines, with their numbers of processors, and what is said of the disk's kind.
const MACHINES: [(&str, &str, &str); 7] = [
    ("microvm", "1", ""),
    ("microvm", "4", ""),
    ("q35", "2", ""),
    ("q35", "4", ""),
    ("q35", "1", ":nvme"),
    ("q35", "4", ":nvme"),
    ("microvm", "2", ":nvme"),
];
/// Bytes of the disk that the kernel's tests overwrite, and of images.
const DISK_BYTES: u64 = 64 << 20;
/// Writes files of many kinds and sizes, moves and removes some.
const WRITE: &str = "set -e; disk=/dev/vda; [ -e $disk ] || disk=/dev/nvme0n1; mkdir /m; mount -t ext4 $disk /m; cd /m; mkdir -p a/b/c; \
    for i in $(seq 300); do echo file $i > a/f$i; done; dd if=/dev/zero of=a/big bs=64k count=100 2>/dev/null; \
    cp -r /bin a/b/c/bin; ln a/f1 hard; ln -s a/f2 soft; mv a/f3 moved; for i in $(seq 100 200); do rm a/f$i; done; \
    head -c 100 a/big > a/short; sync; cd /; umount /m; mount -t ext4 $disk /m; cat /m/hard /m/soft /m/moved; \
    ls /m/a | wc -l; cmp /bin/busybox /m/a/b/c/bin/busybox; umount /m";
const WRITTEN: &str = "file 1\nfile 2\nfile 3\n201\n";

pub(crate) fn text(error: impl ToString) -> String {
    error.to_string()
}

pub(crate) fn successful(program: &str, arguments: &[&str], file: &Path) -> Result<(), String> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let output = Command::new(program).env("PATH", path).args(arguments).arg(file).output().map_err(text)?;
    if output.status.success() { Ok(()) } else { Err(format!("{program} {arguments:?}: {}", said(&output))) }
}

/// Runs `e2fsck`, whose status may have these bits: 1 if it may repair.
pub(crate) fn e2fsck(option: &str, file: &Path, allowed: i32) -> Result<(), String> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let output = Command::new("e2fsck").env("PATH", path).arg(option).arg(file).output().map_err(text)?;
    match output.status.code() {
        Some(status) if status & !allowed == 0 => Ok(()),
        _ => Err(format!("e2fsck {option}: {}", said(&output))),
    }
}

pub(crate) fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}, {:?}, {:?}", output.status, text(&output.stdout), text(&output.stderr))
}

/// A disk of zeroes, or a file system.
fn disk(folder: &Path, with_file_system: bool) -> Result<std::path::PathBuf, String> {
    let path = folder.join("disk");
    fs::File::create(&path).and_then(|file| file.set_len(DISK_BYTES)).map_err(text)?;
    if with_file_system {
        successful("mke2fs", &["-q", "-F", "-t", "ext4"], &path)?;
    }
    Ok(path)
}

fn kernel_tests() -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(text)?;
    let disk = disk(folder.path(), false)?.display().to_string();
    for (machine, cpus, kind) in MACHINES {
        let output = starling()
            .args(["--verbose", "--machine", machine, "--cpus", cpus, "--timeout", "100"])
            .args(["--disk", &format!("{disk}{kind}"), "--kernel-arg", "test=machine_disk", "--", "true"])
            .output()
            .map_err(text)?;
        let log = String::from_utf8_lossy(&output.stderr);
        if !log.contains("tests: 6 passed, 0 failed") {
            return Err(format!("{machine} with {cpus} processors{kind}: {}", said(&output)));
        }
    }
    Ok(())
}

fn written_image() -> Result<(), String> {
    for (machine, cpus, kind) in MACHINES {
        let folder = tempfile::tempdir().map_err(text)?;
        let disk = disk(folder.path(), true)?;
        let output = starling()
            .args(["--machine", machine, "--cpus", cpus, "--timeout", "100"])
            .args(["--disk", &format!("{}{kind}", disk.display()), "--", "sh", "-c", WRITE])
            .output()
            .map_err(text)?;
        if !output.status.success() || output.stdout != WRITTEN.as_bytes() {
            return Err(format!("{machine} with {cpus} processors{kind}: {}", said(&output)));
        }
        successful("e2fsck", &["-f", "-n"], &disk)?;
    }
    Ok(())
}
