//! `starling trace locks`: what locks and atomic operations each system call of a command takes.
//!
//! The kernel that counts locks (`--build counted`) tells at its end, in its log, how many each call took and of which classes; the
//! plugin counts atomic read-modify-writes of the kernel by the same calls. Locks that interrupts take are not counted, their atomic
//! operations are, which is why means of many calls say more than one call.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::Args;

use super::ceilings::{self, Ceilings};
use super::plugin;
use crate::bench::fresh_disk::FreshDisk;
use crate::bench::guest_image::{self, Program};
use crate::failure::{Context, Failure, Outcome};
use crate::image::Initramfs;
use crate::machine::{Build, Kernel, Repository};
use crate::progress::Progress;

/// What the kernel's lines start with.
const MARK: &str = "lock-trace ";
/// The kernel's table that tells the plugin what call a processor is in.
const MARKS: &str = "STARLING_CALL_MARKS";
/// Where the kernel's names of calls are.
const CALLS: &str = "kernel/linux/src/table.rs";
/// Linux' numbers have a place each; Starling's own come after them.
const LINUX_PLACES: usize = 512;
const FIRST_NATIVE: usize = 0x1000;
/// What belongs to the kernel's log.
const LOG: [&str; 2] = ["[ ", MARK];

/// Report how many locks and atomic operations each system call of a command takes.
#[derive(Args, Debug)]
#[command(after_help = "\
Without COMMAND: `probes locks`, which makes single calls on cached, uncontended objects. With --check the exit status is 1 if one
of them takes more than user/bench/locks.txt says.")]
pub(super) struct LocksArguments {
    /// Root file system, as of `starling run`
    image: Option<PathBuf>,

    /// The command to run in the guest and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,

    /// Number of processors
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: u32,

    /// Compare `probes locks` with what is allowed; the last line is `N passed, N failed`
    #[arg(long, conflicts_with_all = ["command", "image"])]
    check: bool,
}

/// What a call took, in all.
#[derive(Debug, Default, PartialEq, Eq)]
struct Call {
    number: usize,
    calls: u64,
    locks: u64,
    most: u64,
    classes: Vec<(u64, String)>,
}

/// Runs the command, prints the table, and returns the exit status.
///
/// # Errors
/// When the machine cannot be had.
pub(super) fn trace(arguments: &LocksArguments) -> Outcome<u8> {
    let progress = Progress::new();
    let repository = Repository::find()?;
    let ceilings = if arguments.check { Some(ceilings::read(&repository)?) } else { None };
    let run = run(arguments, &repository, &progress)?;
    let calls =
        parse(&run.log).map_err(|line| Failure::ours(format!("the kernel's log: what is {line}?")))?;
    if calls.is_empty() {
        return Err(Failure::ours("the kernel told no counts"));
    }
    let names = names(&repository)?;
    print(&calls, &run.atomics, &names);
    match ceilings {
        Some(ceilings) => Ok(check(&ceilings, &run, &calls, &names)),
        None => Ok(run.status),
    }
}

struct Run {
    status: u8,
    /// What the command printed, if it is to be looked at.
    output: String,
    log: String,
    /// Atomic operations by place.
    atomics: BTreeMap<usize, u64>,
}

fn run(arguments: &LocksArguments, repository: &Repository, progress: &Progress) -> Outcome<Run> {
    let kernel = Kernel::build_as(Build::Counted, repository, progress)?;
    let library = plugin::library(repository)?;
    let (address, length) = marks(&kernel)?;
    let directory = tempfile::tempdir().context(|| "a directory for what is counted".into())?;
    let file = directory.path().join("atomics");
    let program = std::env::current_exe().context(|| "this program".into())?;
    let mut starling = Command::new(program);
    starling.args(["run", "--verbose", "--accel", "tcg", "--timeout", "900", "--kernel-arg", "trace-locks"]);
    starling.args(["--cpus", &arguments.cpus.to_string()]).arg("--kernel").arg(&kernel.image);
    starling.arg("--qemu-plugin").arg(format!(
        "file={},out={},marks={address:x}+{length:x}",
        library.display(),
        file.display()
    ));
    let own;
    let disk;
    if arguments.command.is_empty() {
        disk = FreshDisk::make()?;
        starling.arg("--disk").arg(&disk.disk.file);
        own = Initramfs::build(
            &guest_image::tree(Program::Probes, repository, progress)?,
            None,
            &Progress::silent(),
        )?;
        rustix::io::fcntl_setfd(&own.file, rustix::io::FdFlags::empty()).context(|| "the image".into())?;
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&own.file);
        starling.arg(format!("/dev/fd/{descriptor}")).args(["--", "/probes", "locks"]);
    } else {
        starling.args(&arguments.image).arg("--").args(&arguments.command);
    }
    progress.finish();
    starling.stdin(Stdio::null()).stderr(Stdio::piped()).stdout(Stdio::piped());
    let end = starling.output().context(|| "starling run".into())?;
    let output = String::from_utf8_lossy(&end.stdout).into_owned();
    print!("{output}");
    let log = String::from_utf8_lossy(&end.stderr).into_owned();
    let of_the_command = |line: &&str| !LOG.iter().any(|start| line.starts_with(start));
    log.lines().filter(of_the_command).for_each(|line| eprintln!("{line}"));
    let atomics = fs::read_to_string(&file).context(|| "what the plugin counted".into())?;
    let pair = |line: &str| {
        let (place, count) = line.split_once(' ')?;
        Some((place.parse().ok()?, count.parse().ok()?))
    };
    let status = end.status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    Ok(Run { status, output, log, atomics: atomics.lines().filter_map(pair).collect() })
}

/// Address and length of the kernel's table.
fn marks(kernel: &Kernel) -> Outcome<(u64, u64)> {
    let bytes = fs::read(&kernel.symbols).context(|| kernel.symbols.display().to_string())?;
    symbols::find(&bytes, MARKS).ok_or_else(|| Failure::ours(format!("the kernel has no {MARKS}")))
}

/// The calls in the kernel's log.
fn parse(log: &str) -> Result<Vec<Call>, String> {
    let mut calls: Vec<Call> = Vec::new();
    for line in log.lines().filter_map(|line| line.trim_end().strip_prefix(MARK)) {
        understand(line, &mut calls).ok_or_else(|| line.to_owned())?;
    }
    Ok(calls)
}

/// A line about a call, or about a class of locks that it took.
fn understand(line: &str, calls: &mut Vec<Call>) -> Option<()> {
    match line.split_once(' ')? {
        ("call", numbers) => {
            let numbers: Option<Vec<u64>> = numbers.split(' ').map(|word| word.parse().ok()).collect();
            let [number, count, locks, most] = numbers?[..] else { return None };
            calls.push(Call { number: number as usize, calls: count, locks, most, classes: Vec::new() });
        }
        ("class", rest) => {
            let (count, name) = rest.split_once(' ')?;
            calls.last_mut()?.classes.push((count.parse().ok()?, name.to_owned()));
        }
        _ => return None,
    }
    Some(())
}

/// Names of calls by number, read off the kernel's table.
fn names(repository: &Repository) -> Outcome<BTreeMap<usize, String>> {
    let text = fs::read_to_string(repository.root().join(CALLS)).context(|| CALLS.into())?;
    let name = |line: &str| {
        let (number, rest) = line.trim().split_once(' ')?;
        let (name, rest) = rest.split_once('(')?;
        rest.contains("= ").then_some(())?;
        Some((number.parse().ok()?, name.to_owned()))
    };
    Ok(text.lines().filter_map(name).collect())
}

const fn place(number: usize) -> usize {
    if number < FIRST_NATIVE { number } else { LINUX_PLACES + number - FIRST_NATIVE }
}

fn atomics_per_call(call: &Call, atomics: &BTreeMap<usize, u64>) -> f64 {
    atomics.get(&place(call.number)).copied().unwrap_or(0) as f64 / call.calls as f64
}

fn print(calls: &[Call], atomics: &BTreeMap<usize, u64>, names: &BTreeMap<usize, String>) {
    println!(
        "{:24} {:>8} {:>10} {:>6} {:>12}  locks by class",
        "call", "calls", "locks/call", "most", "atomics/call"
    );
    for call in calls {
        let name = names.get(&call.number).map_or_else(|| call.number.to_string(), Clone::clone);
        let mut classes = call.classes.clone();
        classes.sort_by(|one, two| two.cmp(one));
        let classes: Vec<_> = classes
            .iter()
            .take(6)
            .map(|(count, class)| format!("{class} {:.2}", *count as f64 / call.calls as f64))
            .collect();
        println!(
            "{name:24} {:>8} {:>10.2} {:>6} {:>12.2}  {}",
            call.calls,
            call.locks as f64 / call.calls as f64,
            call.most,
            atomics_per_call(call, atomics),
            classes.join(", ")
        );
    }
}

/// Compares with what is allowed; returns the exit status.
fn check(ceilings: &Ceilings, run: &Run, calls: &[Call], names: &BTreeMap<usize, String>) -> u8 {
    let (mut passed, mut failed) = (0, 0);
    let mut judge = |what: String, good: bool| {
        if good {
            passed += 1;
        } else {
            println!("FAILED: {what}");
            failed += 1;
        }
    };
    for (name, most) in &ceilings.locks {
        let found = run.output.lines().find_map(|line| {
            line.trim()
                .strip_prefix("locks ")?
                .strip_prefix(name.as_str())?
                .strip_prefix(' ')?
                .split(' ')
                .next()
        });
        let found: Option<f64> = found.and_then(|number| number.parse().ok());
        // On average: a switch to another thread may take a lock now and then.
        let good = found.is_some_and(|found| found <= *most as f64 + 0.25);
        judge(format!("{name} takes {found:?} locks, not at most {most}"), good);
    }
    for (name, most) in &ceilings.atomics {
        let call = calls.iter().find(|call| names.get(&call.number) == Some(name));
        let found = call.map(|call| atomics_per_call(call, &run.atomics));
        let good = found.is_some_and(|found| found <= *most as f64 + 0.5);
        judge(format!("{name} takes {found:?} atomic operations, not at most {most}"), good);
    }
    println!("{passed} passed, {failed} failed");
    u8::from(failed > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_their_classes_are_read_off_the_log() {
        let log = "[ 0.1] INFO x\nlock-trace call 1 10 20 3\r\nlock-trace class 20 file position:mutex\nlock-trace call 39 1 0 0\n";
        let calls = parse(log).expect("good");
        assert_eq!(calls.len(), 2);
        assert_eq!((calls[0].calls, calls[0].locks, calls[0].most), (10, 20, 3));
        assert_eq!(calls[0].classes, [(20, "file position:mutex".to_owned())]);
        assert_eq!(parse("lock-trace what").expect_err("nonsense"), "what");
    }

    #[test]
    fn own_calls_have_places_after_those_of_linux() {
        assert_eq!((place(1), place(4097)), (1, 513));
    }
}
