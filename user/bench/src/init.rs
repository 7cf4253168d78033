//! What an initial program must do on Linux before and after the suites: file systems, a console, and the end of the machine.

use std::ffi::{CString, OsStr};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, reboot};

/// The kind of each file system and its directory.
const FILE_SYSTEMS: [(&str, &str); 4] =
    [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys"), ("tmpfs", "/tmp")];

/// Prepares the machine, runs the suites in a child, and reboots, which ends QEMU.
pub(crate) fn run(suites: &[String]) -> ExitCode {
    // The kernel has opened the console for its first program, so that nothing has to be prepared for the first line. Where a shell is to
    // print it, it is the shell that does.
    if suites != ["shell"] {
        crate::announce();
    }
    if let Err(error) = prepare().and_then(|()| run_suites(suites)) {
        println!("bench failed: {error}");
    }
    // Only returns when it fails; then the kernel panics, because its process 1 ends, and that is seen.
    let _ = reboot(RebootCommand::Restart);
    ExitCode::FAILURE
}

/// Modules of this kernel, in the order of their names.
const MODULES: &str = "/modules";

/// Loads what is in the kernel's own package and not in its image, with the options that the command line has for it, as `modprobe` does. A module for
/// another processor refuses; what is missing then, the suite will notice.
fn load_modules() -> io::Result<()> {
    let Ok(entries) = fs::read_dir(MODULES) else { return Ok(()) };
    let words = fs::read_to_string("/proc/cmdline")?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    files.sort();
    for file in files {
        let options = CString::new(options(&file, &words)).unwrap_or_default();
        let _ = rustix::system::finit_module(fs::File::open(file)?, &options, 0);
    }
    Ok(())
}

/// What a command line says to the module of a file that is called `NUMBER-NAME.ko`: the words `NAME.OPTION=VALUE`, without the name.
fn options(file: &Path, words: &str) -> String {
    let stem = file.file_stem().and_then(OsStr::to_str).unwrap_or_default();
    let name = stem.split_once('-').map_or(stem, |(_, name)| name);
    let own = |word| str::strip_prefix(word, name)?.strip_prefix('.');
    words.split_whitespace().filter_map(own).collect::<Vec<_>>().join(" ")
}

fn prepare() -> io::Result<()> {
    for (kind, directory) in FILE_SYSTEMS {
        fs::create_dir_all(directory)?;
        mount(kind, directory, kind, MountFlags::empty(), None)?;
    }
    let console = OpenOptions::new().read(true).write(true).open("/dev/console")?;
    rustix::stdio::dup2_stdin(console.as_fd())?;
    rustix::stdio::dup2_stdout(console.as_fd())?;
    rustix::stdio::dup2_stderr(console.as_fd())?;
    load_modules()
}

fn run_suites(suites: &[String]) -> io::Result<()> {
    let mut command = if suites == ["shell"] {
        shell()
    } else {
        let mut program = Command::new("/proc/self/exe");
        program.arg0("bench").args(suites);
        program
    };
    let status = command.status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(status.to_string())) }
}

/// A shell that prints what this program would.
fn shell() -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "echo bench started; echo bench done"]);
    command
}

/// Becomes that shell.
pub(crate) fn become_shell() -> ExitCode {
    let error = shell().exec();
    println!("bench failed: {error}");
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_gets_what_is_meant_for_it() {
        let words = "console=ttyS0 brd.rd_nr=1 ext4.x=2 brd.rd_size=64 -- /bench";
        assert_eq!(options(Path::new("/modules/07-brd.ko"), words), "rd_nr=1 rd_size=64");
        assert_eq!(options(Path::new("/modules/08-virtio_blk.ko"), words), "");
    }
}
