//! Images in files, made and judged by Debian's `e2fsprogs`.
#![allow(dead_code, reason = "each test program uses its part")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use block::{Driver, Queue, RamDisk, Volume};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A name in the folder for temporary files that nobody else uses.
fn fresh(name: &str) -> PathBuf {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("starling-ext4-{}-{number}-{name}", std::process::id()))
}

/// An empty folder.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let path = fresh(name);
    fs::create_dir(&path).expect("temporary files can be made");
    path
}

/// A device in memory with these contents.
pub(crate) fn disk_of(bytes: &[u8]) -> Arc<RamDisk> {
    Arc::new(RamDisk::from_bytes(bytes).expect("there is memory"))
}

/// The contents of such a device.
pub(crate) fn bytes_of(disk: &RamDisk) -> Vec<u8> {
    let mut bytes = vec![0; disk.limits().sectors as usize * 512];
    disk.read_at(0, &mut bytes);
    bytes
}

/// The whole of a device.
pub(crate) fn volume_on(disk: Arc<RamDisk>) -> Volume {
    Volume::whole(Queue::new(disk).expect("a sound device"))
}

/// Both.
pub(crate) fn volume_of(bytes: Vec<u8>) -> Volume {
    volume_on(disk_of(&bytes))
}

/// An image in a file that goes with it.
pub(crate) struct Image(PathBuf);

impl Drop for Image {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

fn command(program: &str) -> Command {
    // Debian keeps them where ordinary users do not look.
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(program);
    command.env("PATH", path).env("MKE2FS_DEVICE_SECTSIZE", "512");
    command
}

impl Image {
    /// Makes one with `mke2fs`, filled from a folder.
    pub(crate) fn make(options: &[&str], bytes: u64, from: Option<&Path>) -> Self {
        let image = Self(fresh("image"));
        let mut mke2fs = command("mke2fs");
        mke2fs.args(["-q", "-F"]).args(options);
        if let Some(from) = from {
            mke2fs.arg("-d").arg(from);
        }
        mke2fs.arg(&image.0).arg(format!("{}k", bytes >> 10));
        let output = mke2fs.output().expect("mke2fs is missing: apt-get install e2fsprogs");
        assert!(output.status.success(), "mke2fs {options:?}: {}", String::from_utf8_lossy(&output.stderr));
        image
    }

    /// Runs a program of e2fsprogs on it; what it prints.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = command(program).args(arguments).arg(&self.0).output().expect("e2fsprogs are installed");
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a program that judges it: whether it was content, and what it said.
    pub(crate) fn run_to_end(&self, program: &str, arguments: &[&str]) -> (bool, String) {
        let output = command(program).args(arguments).arg(&self.0).output().expect("e2fsprogs are installed");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), said + &String::from_utf8_lossy(&output.stderr))
    }

    /// The same for those that repair, and say so by their status.
    pub(crate) fn run_unchecked(&self, program: &str, arguments: &[&str]) {
        drop(command(program).args(arguments).arg(&self.0).output().expect("e2fsprogs are installed"));
    }

    /// Has `e2fsck` make indexes for directories that are large enough.
    pub(crate) fn optimise_directories(&self) {
        self.run_unchecked("e2fsck", &["-fyD"]);
        self.run("e2fsck", &["-fn"]);
    }

    /// Runs commands of `debugfs`, for writing.
    pub(crate) fn debugfs(&self, commands: &[String]) {
        let mut debugfs = command("debugfs");
        debugfs.arg("-w").arg(&self.0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut running = debugfs.spawn().expect("e2fsprogs are installed");
        let input = running.stdin.take().expect("it was asked for");
        writeln!(&input, "{}", commands.join("\n")).expect("debugfs reads");
        drop(input);
        assert!(running.wait().expect("debugfs ends").success());
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        fs::read(&self.0).expect("the image")
    }

    /// Changes them.
    pub(crate) fn set_bytes(&self, bytes: &[u8]) {
        fs::write(&self.0, bytes).expect("the image");
    }

    /// It as a device in memory.
    pub(crate) fn volume(&self) -> Volume {
        volume_of(self.bytes())
    }
}

/// Numbers that are the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// One below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}
