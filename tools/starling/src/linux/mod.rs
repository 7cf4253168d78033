//! `starling linux`: a command on Debian's own kernel, in a virtual machine like that of `starling run`, with the same disk as its root. What programs do on
//! Starling can be compared with it.
//!
//! * [`kernel`]: where the kernel and its modules come from
//! * [`start`]: the initial file system, which mounts the disk and becomes the command
//!
//! The command is process 1. It prints on a serial port that is a pipe for it; the kernel has another one, on which it says at the end how process 1
//! ended, and that is the exit status. What the command writes to its disk is thrown away.

pub(crate) mod kernel;
mod start;

use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use clap::Args;

use crate::failure::{Context, Failure, Outcome, STATUS_SIGNAL_BASE, STATUS_TIMEOUT};
use crate::image::Initramfs;
use crate::machine::{base_arguments, bound_to_parent, disk_arguments, qemu_program};
use crate::progress::Progress;
use crate::run::{AcceleratorChoice, Disk, DiskModel, MachineKind};

/// Linux's command line: the kernel says what it has to say on the second port, and a panic ends QEMU. Process 1 that ends is one.
const KERNEL_ARGUMENTS: &str = "console=ttyS1 quiet loglevel=1 mitigations=off panic=-1 reboot=t";
/// What is in the line that says how process 1 ended, before its status as wait(2) has it.
const EXIT_CODE: &str = "exitcode=0x";
/// How often is looked whether the machine has ended.
const PAUSE: Duration = Duration::from_millis(20);

/// Run a command on Debian's kernel in the same virtual machine, to compare with.
#[derive(Args, Debug)]
#[command(after_help = "\
Output and errors come on standard output; standard input is empty. The exit status is the command's. The kernel is Debian's linux-image-cloud-amd64,
downloaded with apt-get and unpacked into the cache; STARLING_LINUX names another one.")]
pub(crate) struct LinuxArguments {
    /// The root: a file with an ext4, as starling image disk makes it. It stays as it is
    disk: PathBuf,

    /// Number of processors [default: the host's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: Option<u32>,

    /// Memory, with a suffix b, k, m or g
    #[arg(short, long, value_name = "SIZE", default_value = "512M", value_parser = crate::run::memory_size)]
    memory: u64,

    /// What executes the guest's instructions
    #[arg(long, value_enum, default_value = "auto")]
    accel: AcceleratorChoice,

    /// End the run after that time with status 124
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,

    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Runs the command and returns the exit status.
///
/// # Errors
/// When the kernel cannot be had, or the machine does not come to its end.
pub(crate) fn linux(arguments: &LinuxArguments) -> Outcome<u8> {
    let progress = Progress::new();
    let kernel = kernel::find(&progress)?;
    let tree = start::tree(&arguments.command, kernel::modules(&progress)?, &progress)?;
    let image = Initramfs::build(&tree, None, &progress)?;
    rustix::io::fcntl_setfd(&image.file, rustix::io::FdFlags::empty()).context(|| "the image".into())?;
    let accelerator = crate::run::accelerator(arguments.accel, &progress)?;
    progress.finish();
    // QEMU takes what a relative name has before a colon for a protocol.
    let doing = || format!("image {}", arguments.disk.display());
    let disk = Disk {
        file: arguments.disk.canonicalize().context(doing)?,
        read_only: false,
        model: DiskModel::Virtio,
    };
    let said = tempfile::NamedTempFile::new().context(|| "the kernel's console".into())?;
    let qemu = qemu_program()?;
    let cpus = arguments.cpus.unwrap_or_else(crate::run::host_processors);
    let mut command = bound_to_parent(&qemu);
    command.args(base_arguments(MachineKind::Q35.options(), accelerator, cpus, arguments.memory));
    command.args(["-snapshot", "-serial", "stdio", "-serial"]).arg(format!("file:{}", said.path().display()));
    command.arg("-kernel").arg(&kernel).arg("-initrd").arg(format!("/dev/fd/{}", image.file.as_raw_fd()));
    command.args(disk_arguments(&disk, "disk0", true)).args(["-append", KERNEL_ARGUMENTS]);
    let mut child = command.stdin(Stdio::null()).spawn().context(|| qemu.display().to_string())?;
    let end = arguments.timeout.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    while child.try_wait().context(|| "waiting for QEMU".into())?.is_none() {
        if end.is_some_and(|end| Instant::now() >= end) {
            // It may have ended meanwhile.
            let _ = child.kill();
            child.wait().context(|| "waiting for QEMU".into())?;
            return Err(Failure::with_status(STATUS_TIMEOUT, "timed out"));
        }
        std::thread::sleep(PAUSE);
    }
    let said = std::fs::read(said.path()).context(|| "the kernel's console".into())?;
    let said = String::from_utf8_lossy(&said);
    exit_status(&said)
        .ok_or_else(|| Failure::ours(format!("Linux did not come to the command's end: {said}")))
}

/// The status that the kernel's last words tell, as that of a command.
fn exit_status(said: &str) -> Option<u8> {
    let digits = said.rsplit_once(EXIT_CODE)?.1.get(..8)?;
    let [signal, status, ..] = u32::from_str_radix(digits, 16).ok()?.to_le_bytes();
    Some(match signal & 0x7f {
        0 => status,
        signal => STATUS_SIGNAL_BASE.saturating_add(signal),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_last_words_tell_the_status() {
        let said = |code: &str| {
            exit_status(&format!(
                "Kernel panic - not syncing: Attempted to kill init! exitcode=0x{code} ]---"
            ))
        };
        assert_eq!(said("00000700"), Some(7));
        assert_eq!(said("0000000b"), Some(139));
        assert_eq!(said("00000000"), Some(0));
        assert_eq!(exit_status("nothing"), None);
        assert_eq!(exit_status("exitcode=0x12"), None, "cut off");
    }
}
