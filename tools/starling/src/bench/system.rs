//! A system that is compared, and one boot of it with the benchmark program.
//!
//! Starling is booted by `starling run`, which speaks the host link with it. Linux gets the same initramfs; the benchmark program is
//! its initial program and prints on the serial console. Both run with the same processor, memory and firmware.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::failure::{Context, Failure, Outcome};
use crate::image::{Initramfs, Tree};
use crate::machine::{Accelerator, base_arguments, bound_to_parent, disk_arguments, qemu_program};
use crate::progress::Progress;
use crate::run::{Disk, MachineKind};

/// A boot that takes longer has failed.
pub(super) const LIMIT: Duration = Duration::from_secs(1800);
/// And one that prints nothing for so long: the slowest test takes seconds where nothing else runs.
const SILENCE: Duration = Duration::from_secs(300);
/// What the benchmark program's lines start with.
const MARK: &str = "bench ";
/// The last line of a suite that has come to its end.
const DONE: &str = "bench done";

/// What kind of kernel it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// This project's.
    Starling,
    /// Debian's.
    Linux,
}

/// One of the compared.
#[derive(Clone, Debug)]
pub(super) struct System {
    /// How it is called in the tables.
    pub(super) name: String,
    /// What it is.
    pub(super) kind: Kind,
    /// What QEMU loads.
    pub(super) kernel: PathBuf,
    /// Words for its command line.
    pub(super) arguments: Vec<String>,
}

impl System {
    /// A system without further arguments.
    pub(super) fn new(name: &str, kind: Kind, kernel: PathBuf) -> Self {
        Self { name: name.into(), kind, kernel, arguments: Vec::new() }
    }

    /// The same with a word more on its command line, under another name.
    pub(super) fn with_kernel_argument(&self, name: &str, word: &str) -> Self {
        let mut other = self.clone();
        other.name = name.into();
        other.arguments.push(word.into());
        other
    }
}

/// The machine that all are booted on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Boot {
    /// Kind of machine.
    pub(super) machine: MachineKind,
    /// What executes instructions.
    pub(super) accelerator: Accelerator,
    /// Number of processors.
    pub(super) cpus: u32,
    /// Bytes of memory.
    pub(super) memory: u64,
}

impl Boot {
    /// It as options of `starling run`.
    pub(super) fn options(&self) -> Vec<String> {
        let Self { machine, accelerator, cpus, memory } = self;
        let memory = format!("{}M", memory >> 20);
        let words = [
            "--machine",
            machine.name(),
            "--accel",
            accelerator.name(),
            "--cpus",
            &cpus.to_string(),
            "--memory",
            &memory,
        ];
        words.map(str::to_owned).into()
    }
}

/// What a boot gave.
#[derive(Debug)]
pub(super) struct Output {
    /// The benchmark program's lines.
    pub(super) lines: Vec<String>,
    /// From the start of QEMU to the arrival of the first of them.
    pub(super) first_line: Duration,
    /// From the start of QEMU to the first user instruction, if the system can tell.
    pub(super) first_instruction: Option<Duration>,
}

impl Output {
    /// What is wrong with a boot that should have come to its end; nothing if it has.
    pub(super) fn defect(&self) -> Option<String> {
        match self.lines.last().map(String::as_str) {
            Some(DONE) => None,
            Some(line) => Some(format!("it did not come to its end; its last line: {line}")),
            None => Some("it did not start the benchmark program".into()),
        }
    }
}

/// Boots a system with these suites and returns what the benchmark program printed; how it ended is the caller's to judge.
///
/// # Errors
/// When QEMU cannot be started.
pub(super) fn run(boot: &Boot, system: &System, tree: &Tree, suites: &[&str]) -> Outcome<Output> {
    run_within(boot, system, &Load { tree, suites, disk: None }, LIMIT)
}

/// As [`run`], with a disk.
///
/// # Errors
/// When QEMU cannot be started.
pub(super) fn run_with_disk(
    boot: &Boot,
    system: &System,
    tree: &Tree,
    suites: &[&str],
    disk: &Disk,
) -> Outcome<Output> {
    run_within(boot, system, &Load { tree, suites, disk: Some(disk) }, LIMIT)
}

/// What a machine gets beside its kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load<'a> {
    /// The image.
    pub(super) tree: &'a Tree,
    /// The program's arguments.
    pub(super) suites: &'a [&'a str],
    /// A disk, which both get alike.
    pub(super) disk: Option<&'a Disk>,
}

/// As [`run`], with a limit of its own.
///
/// # Errors
/// When QEMU cannot be started.
pub(super) fn run_within(boot: &Boot, system: &System, load: &Load<'_>, limit: Duration) -> Outcome<Output> {
    match system.kind {
        Kind::Starling => run_starling(boot, system, load, limit),
        Kind::Linux => run_linux(boot, system, load, limit),
    }
}

fn run_starling(boot: &Boot, system: &System, load: &Load<'_>, limit: Duration) -> Outcome<Output> {
    let Load { tree, suites, disk } = *load;
    let image = Initramfs::build(tree, None, &Progress::silent())?;
    rustix::io::fcntl_setfd(&image.file, rustix::io::FdFlags::empty()).context(|| "the image".into())?;
    let program = std::env::current_exe().context(|| "this program".into())?;
    let mut command = Command::new(program);
    command.args(["run", "--boot-trace"]).args(boot.options());
    command.args(["--timeout", &limit.as_secs().to_string()]).arg("--kernel").arg(&system.kernel);
    for word in &system.arguments {
        command.args(["--kernel-arg", word]);
    }
    if let Some(disk) = disk {
        command.arg("--disk").arg(&disk.file);
    }
    command.arg(format!("/dev/fd/{}", image.file.as_raw_fd())).args(["--", "/bench"]).args(suites);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context(|| "starling run".into())?;
    let trace = child.stderr.take().map(|stream| {
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = BufReader::new(stream).read_to_string(&mut text);
            text
        })
    });
    let lines = collect(child, limit + Duration::from_secs(10))?;
    let text = trace.and_then(|thread| thread.join().ok()).unwrap_or_default();
    Ok(Output {
        lines: lines.into_iter().map(|(_, line)| line).collect(),
        first_line: moment(&text, "first output").unwrap_or_default(),
        first_instruction: moment(&text, "first user instruction"),
    })
}

/// A moment of the boot trace by its name.
fn moment(trace: &str, name: &str) -> Option<Duration> {
    let rest = trace.lines().find_map(|line| line.strip_prefix(name))?;
    let milliseconds: f64 = rest.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_secs_f64(milliseconds / 1e3))
}

fn run_linux(boot: &Boot, system: &System, load: &Load<'_>, limit: Duration) -> Outcome<Output> {
    let Load { tree, suites, disk } = *load;
    let image = Initramfs::build(tree, None, &Progress::silent())?;
    rustix::io::fcntl_setfd(&image.file, rustix::io::FdFlags::empty()).context(|| "the image".into())?;
    let qemu = qemu_program()?;
    let mut command = bound_to_parent(&qemu);
    command.args(base_arguments(boot.machine.options(), boot.accelerator, boot.cpus, boot.memory));
    command.args(["-serial", "stdio", "-kernel"]).arg(&system.kernel);
    command.arg("-initrd").arg(format!("/dev/fd/{}", image.file.as_raw_fd()));
    if let Some(disk) = disk {
        command.args(disk_arguments(disk, "disk0", boot.machine == MachineKind::Q35));
    }
    let mut words: Vec<OsString> = LINUX_ARGUMENTS.split(' ').map(OsString::from).collect();
    words.extend(system.arguments.iter().map(OsString::from));
    words.push("--".into());
    words.extend(suites.iter().map(OsString::from));
    command.arg("-append").arg(words.join(" ".as_ref()));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let started = Instant::now();
    let child = command.spawn().context(|| qemu.display().to_string())?;
    let lines = collect(child, limit)?;
    let first_line = lines.first().map_or(Duration::ZERO, |(when, _)| *when - started);
    Ok(Output {
        lines: lines.into_iter().map(|(_, line)| line).collect(),
        first_line,
        first_instruction: None,
    })
}

/// Linux's command line: nothing is printed but by the program, and a panic or a reboot ends QEMU.
const LINUX_ARGUMENTS: &str =
    "console=ttyS0 quiet loglevel=1 mitigations=off panic=-1 reboot=t rdinit=/bench";

/// Reads the benchmark program's lines, with the times of their arrival, until the process ends or the time is up.
pub(super) fn collect(mut child: Child, limit: Duration) -> Outcome<Vec<(Instant, String)>> {
    let stream = child.stdout.take().ok_or_else(|| Failure::ours("no standard output"))?;
    let (sender, receiver) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut stream = BufReader::new(stream);
        let mut line = Vec::new();
        while stream.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            let text = String::from_utf8_lossy(&line).trim().to_owned();
            // The console may have printed something on the same line before.
            if let Some(start) = text.find(MARK)
                && sender.send((Instant::now(), text[start..].to_owned())).is_err()
            {
                return;
            }
            line.clear();
        }
    });
    let end = Instant::now() + limit;
    let mut lines = Vec::new();
    let patience = || end.saturating_duration_since(Instant::now()).min(SILENCE);
    while let Ok(line) = receiver.recv_timeout(patience()) {
        lines.push(line);
    }
    // It has ended already, or it is to end now.
    let _ = child.kill();
    child.wait().context(|| "waiting for QEMU".into())?;
    let _ = reader.join();
    Ok(lines)
}

/// Bytes of a file.
///
/// # Errors
/// When it is not there.
pub(super) fn file_size(path: &Path) -> Outcome<u64> {
    Ok(std::fs::metadata(path).context(|| path.display().to_string())?.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_found_in_the_trace() {
        let trace = "boot trace                           at ms   took ms\nfirst user instruction               40.25      2.00\n";
        assert_eq!(moment(trace, "first user instruction"), Some(Duration::from_micros(40_250)));
        assert_eq!(moment(trace, "first output"), None);
    }
}
