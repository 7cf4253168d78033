//! A machine whose memory accesses are recorded: the emulator with the plugin of `tools/qemu-plugin`.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::failure::{Context, Failure, Outcome};
use crate::image::{Initramfs, Tree};
use crate::machine::{Kernel, Repository};
use crate::progress::Progress;

/// The plugin's package, and the library that cargo makes of it.
const PACKAGE: &str = "qemu-plugin";
const LIBRARY: &str = "libqemu_plugin.so";
/// Seconds that a machine may run. One that records is ten times as slow as one that does not.
const LIMIT: &str = "900";

/// What a recorded run left behind.
#[derive(Debug)]
pub(super) struct Recording {
    /// What the program printed.
    pub(super) output: String,
    /// What the plugin wrote.
    pub(super) accesses: String,
}

/// Builds the plugin, if it is not up to date.
///
/// # Errors
/// When it does not build.
pub(super) fn library(repository: &Repository) -> Outcome<PathBuf> {
    let mut cargo = repository.cargo("build");
    cargo.args(["--quiet", "--profile", "tool", "--package", PACKAGE]);
    let output = cargo.stdin(Stdio::null()).output().context(|| "cargo".into())?;
    if !output.status.success() {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        return Err(Failure::ours("the plugin for QEMU does not build"));
    }
    Ok(repository.target_directory().join("tool").join(LIBRARY))
}

/// The machine that is recorded.
#[derive(Debug)]
pub(super) struct Recorded<'a> {
    /// What it boots.
    pub(super) kernel: &'a Kernel,
    /// Words of its command line.
    pub(super) kernel_arguments: &'a [String],
    /// Its image.
    pub(super) tree: &'a Tree,
    /// Its processors.
    pub(super) cpus: u32,
}

/// Boots a machine, runs a command of the image in it and records what happens between the markers.
///
/// # Errors
/// When the machine cannot be started, or the command fails.
pub(super) fn record(
    repository: &Repository,
    machine: &Recorded<'_>,
    command: &[&str],
    progress: &Progress,
) -> Outcome<Recording> {
    let library = library(repository)?;
    let Recorded { kernel, kernel_arguments, tree, cpus } = machine;
    let image = Initramfs::build(tree, None, &Progress::silent())?;
    rustix::io::fcntl_setfd(&image.file, rustix::io::FdFlags::empty()).context(|| "the image".into())?;
    let directory = tempfile::tempdir().context(|| "a directory for what is recorded".into())?;
    let file = directory.path().join("accesses");
    progress.say("recording");
    let program = std::env::current_exe().context(|| "this program".into())?;
    let mut starling = Command::new(program);
    // Instructions as the clock: what is recorded does not depend on how busy the host is.
    starling.args(["run", "--accel", "icount", "--timeout", LIMIT, "--cpus", &cpus.to_string()]);
    starling.arg("--qemu-plugin").arg(format!("file={},out={}", library.display(), file.display()));
    for word in *kernel_arguments {
        starling.args(["--kernel-arg", word]);
    }
    starling.arg("--kernel").arg(&kernel.image);
    starling.arg(format!("/dev/fd/{}", image.file.as_raw_fd())).arg("--").args(command);
    let output = starling.stdin(Stdio::null()).output().context(|| "starling run".into())?;
    progress.finish();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        eprint!("{text}{}", String::from_utf8_lossy(&output.stderr));
        return Err(Failure::ours(format!("{} failed", command.join(" "))));
    }
    let accesses = fs::read_to_string(&file).context(|| "what the plugin recorded".into())?;
    Ok(Recording { output: text, accesses })
}
