//! Machines that are killed while programs write to an ext4: what was made to last is there.
//!
//! The program `records` (`user/records`) writes and acknowledges records in the guest until QEMU is killed, at a random moment. The image is then
//! judged twice: `e2fsck` replays the journal of a copy; a second machine mounts the image itself, and its program checks each record.
//!
//! What QEMU was told to write survives QEMU, whether it was flushed or not. So other runs have QEMU log all writes and flushes, and the program
//! `power_failures` of crate `ext4` rebuilds from the log what a disk that loses its cache may have, at any moment.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use records::{MARK_BYTES, MARKS_AT};

use crate::case::starling;
use crate::disks::{e2fsck, said, successful, text};
use crate::images;

/// What is promised: the name, and the check with its numbers of rounds in short and in long.
pub(crate) const CHECKS: [(&str, Check, Rounds); 2] = [
    ("records on an ext4 outlive QEMU", killed_rounds, Rounds { short: 3, long: 300 }),
    ("records on an ext4 outlive a disk that loses its cache", logged_rounds, Rounds { short: 1, long: 12 }),
];

/// How often something is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    /// For every change.
    pub(crate) short: u64,
    /// When there is time.
    pub(crate) long: u64,
}

/// A check, which does so many rounds.
pub(crate) type Check = fn(u64) -> Result<(), String>;

const TARGET: &str = "x86_64-unknown-linux-gnu";
const WRITERS: usize = 3;
/// Options of `mke2fs`: as it would by itself, and with blocks and a journal so small that it goes round many times.
const FILE_SYSTEMS: [&[&str]; 4] = [
    &["-t", "ext4"],
    &["-t", "ext4", "-b", "1024", "-J", "size=1"],
    &["-t", "ext3", "-b", "1024", "-J", "size=1"],
    &["-t", "ext4", "-b", "4096", "-J", "size=4"],
];
const MACHINES: [(&str, &str); 4] = [("microvm", "2"), ("q35", "2"), ("microvm", "1"), ("q35", "4")];
const FILE_SYSTEM_BYTES: u64 = 24 << 20;
/// Behind the file system is room for marks.
const DISK_BYTES: u64 = 97 << 20;
/// Records until the kill.
const RECORDS_MAX: u64 = 150;
/// Records in a log, and what is rebuilt from it.
const LOGGED_RECORDS: u64 = 250;
const POINTS: (u64, u64) = (25, 100);
/// How many machines run at a time.
const AT_A_TIME: usize = 2;

/// The image of the guest, and a place for disks.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn make() -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(text)?;
        let root = folder.path().join("root");
        images::make_folder_with_busybox(&root).map_err(text)?;
        fs::create_dir(root.join("m")).map_err(text)?;
        fs::copy(program()?, root.join("bin/records")).map_err(text)?;
        Ok(Self { folder })
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    fn file(&self, name: &str, round: u64) -> PathBuf {
        self.folder.path().join(format!("{name}{round}"))
    }
}

fn workspace() -> PathBuf {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../..").into()
}

fn cargo(words: &[&str]) -> Command {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(workspace()).args(words);
    cargo
}

/// Builds the guest's program. It is static.
fn program() -> Result<PathBuf, String> {
    let mut cargo =
        cargo(&["build", "--quiet", "--profile", "tool", "--package", "records", "--target", TARGET]);
    cargo.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS", "-C target-feature=+crt-static");
    let output = cargo.output().map_err(text)?;
    if !output.status.success() {
        return Err(format!("the program records: {}", said(&output)));
    }
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from);
    Ok(target.join(TARGET).join("tool/records"))
}

/// One run of a machine that is killed.
struct Round {
    number: u64,
    machine: (&'static str, &'static str),
    options: &'static [&'static str],
    disk: PathBuf,
    /// What the kernel and QEMU say.
    log: PathBuf,
}

impl Round {
    fn make(place: &Place, number: u64) -> Result<Self, String> {
        let options = FILE_SYSTEMS[number as usize % FILE_SYSTEMS.len()];
        let machine = MACHINES[number as usize / 2 % MACHINES.len()];
        let round = Self {
            number,
            machine,
            options,
            disk: place.file("disk", number),
            log: place.file("log", number),
        };
        File::create(&round.disk).and_then(|file| file.set_len(FILE_SYSTEM_BYTES)).map_err(text)?;
        successful("mke2fs", &[&["-q", "-F"], options].concat(), &round.disk)?;
        fs::copy(&round.disk, place.file("start", number)).map_err(text)?;
        File::options()
            .write(true)
            .open(&round.disk)
            .and_then(|disk| disk.set_len(DISK_BYTES))
            .map_err(text)?;
        Ok(round)
    }

    /// What is done in the guest until it is killed.
    fn script(&self) -> String {
        format!("mount -t ext4 /dev/vda /m && exec records write /m {} {WRITERS} /dev/vda", self.number)
    }

    /// The records that were acknowledged, by the marks on the disk. What is printed comes later, so there may be more than were seen.
    fn marks(&self, seen: &Records) -> Result<Records, String> {
        let disk = File::open(&self.disk).map_err(text)?;
        let mut records = [None; WRITERS];
        for (writer, record) in records.iter_mut().enumerate() {
            let mut mark = [0; 8];
            disk.read_exact_at(&mut mark, MARKS_AT + writer as u64 * MARK_BYTES).map_err(text)?;
            *record = u64::from_le_bytes(mark).checked_sub(1);
            if *record < seen[writer] {
                return Err(format!(
                    "the mark of writer {writer} is {record:?}, but {:?} was seen",
                    seen[writer]
                ));
            }
        }
        Ok(records)
    }

    fn starling(&self) -> Result<Command, String> {
        let mut starling = starling();
        starling.args([
            "--verbose",
            "--machine",
            self.machine.0,
            "--cpus",
            self.machine.1,
            "--timeout",
            "200",
        ]);
        let log = File::options().create(true).append(true).open(&self.log).map_err(text)?;
        starling.stderr(log).stdin(Stdio::null());
        Ok(starling)
    }

    /// Adds what happened to the reason, and keeps what is needed to look for it.
    fn failed(&self, why: &str) -> String {
        let kept =
            std::env::temp_dir().join(format!("starling-crash-{}-{}", std::process::id(), self.number));
        let copy = |from: &Path, extension| fs::copy(from, kept.with_extension(extension));
        let writes = self.disk.with_file_name(format!("writes{}", self.number));
        let start = self.disk.with_file_name(format!("start{}", self.number));
        let copied =
            copy(&self.log, "log").and_then(|_| copy(&self.disk, "disk")).and_then(|_| copy(&start, "start"));
        if writes.exists()
            && let Err(error) = copy(&writes, "writes")
        {
            return format!("round {}: {why}; {error}", self.number);
        }
        let note = copied.map_or_else(|error| error.to_string(), |_| kept.display().to_string());
        format!(
            "round {} on {:?} with {:?}: {why}; kept as {note}.*",
            self.number, self.machine, self.options
        )
    }
}

/// The last record of each writer, as far as anything was seen of it.
type Records = [Option<u64>; WRITERS];

/// Reads acknowledgements until `wanted` of them, waits a little, kills the machine, and reads the rest.
fn run_and_kill(mut starling: Command, wanted: u64, pause: Duration) -> Result<Records, String> {
    let mut child = starling.stdout(Stdio::piped()).spawn().map_err(text)?;
    let output = child.stdout.take().ok_or("no standard output")?;
    let result = read_and_kill(&child, BufReader::new(output), wanted, pause);
    // Ends what is still there, if something went wrong.
    let _ = child.kill();
    child.wait().map_err(text)?;
    result
}

fn read_and_kill(
    child: &Child,
    output: impl BufRead,
    wanted: u64,
    pause: Duration,
) -> Result<Records, String> {
    let mut records = [None; WRITERS];
    let mut seen = 0;
    let mut killed = false;
    for line in output.lines() {
        let line = line.map_err(text)?;
        // The last line may have been cut off, and even "1 12" of "1 123" would be true.
        let Some((writer, record)) = line.split_once(' ') else { continue };
        let (Ok(writer), Ok(record)) = (writer.parse::<usize>(), record.parse::<u64>()) else { continue };
        *records.get_mut(writer).ok_or_else(|| format!("the guest says {line}"))? = Some(record);
        seen += 1;
        if seen >= wanted && !killed {
            killed = true;
            std::thread::sleep(pause);
            kill_machine(child.id())?;
        }
    }
    if killed { Ok(records) } else { Err(format!("the guest has ended after {seen} records")) }
}

/// Kills QEMU: whoever stands at the ends of the tree of processes below the command.
fn kill_machine(command: u32) -> Result<(), String> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").map_err(text)?.flatten() {
        let Ok(status) = fs::read_to_string(entry.path().join("stat")) else { continue };
        // Behind the name, which may have anything in it: state, parent.
        let parent =
            status.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse::<u32>().ok());
        let process = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        parents.extend(process.zip(parent));
    }
    let mut tree = vec![command];
    let mut at = 0;
    while let Some(&process) = tree.get(at) {
        tree.extend(parents.iter().filter(|(_, parent)| *parent == process).map(|(child, _)| *child));
        at += 1;
    }
    let is_leaf = |process: &&u32| !parents.iter().any(|(_, parent)| parent == *process);
    let leaves: Vec<_> = tree.iter().skip(1).filter(is_leaf).map(u32::to_string).collect();
    if leaves.is_empty() {
        return Err("there is no QEMU to kill".into());
    }
    let status = Command::new("kill").arg("-KILL").args(&leaves).status().map_err(text)?;
    if status.success() { Ok(()) } else { Err(format!("kill {leaves:?}: {status}")) }
}

/// Numbers that differ between rounds, the same in every run.
fn random(round: u64, below: u64) -> u64 {
    let mixed = (round + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 33) % below
}

fn killed_rounds(rounds: u64) -> Result<(), String> {
    let place = Place::make()?;
    let total = at_a_time(rounds, |number| {
        let round = Round::make(&place, number)?;
        let records = killed(&place, &round).map_err(|why| round.failed(&why))?;
        fs::remove_file(&round.disk)
            .and_then(|()| fs::remove_file(place.file("start", number)))
            .map_err(text)?;
        Ok(records)
    })?;
    println!("{rounds} machines were killed after {total} records");
    Ok(())
}

/// Does the rounds, a few at a time, and adds up what they return.
fn at_a_time(rounds: u64, round: impl Fn(u64) -> Result<u64, String> + Sync) -> Result<u64, String> {
    let next = AtomicUsize::new(0);
    let result = Mutex::new(Ok(0));
    let lock = || result.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed) as u64;
                    if number >= rounds || lock().is_err() {
                        return;
                    }
                    let one = round(number);
                    let mut all = lock();
                    *all = all.clone().and_then(|all: u64| Ok(all + one?));
                }
            });
        }
    });
    result.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn killed(place: &Place, round: &Round) -> Result<u64, String> {
    let mut first = round.starling()?;
    first.arg("--disk").arg(&round.disk).arg(place.root()).args(["--", "sh", "-c", &round.script()]);
    let wanted = 1 + random(round.number, RECORDS_MAX);
    let pause = Duration::from_micros(random(round.number + 1000, 30_000));
    let records = round.marks(&run_and_kill(first, wanted, pause)?)?;
    let copy = place.file("copy", round.number);
    fs::copy(&round.disk, &copy).map_err(text)?;
    e2fsck("-p", &copy, 1)?;
    e2fsck("-fn", &copy, 0)?;
    // Both replays must have kept the records.
    for disk in [&round.disk, &copy] {
        let mut second = round.starling()?;
        let seen =
            records.iter().enumerate().filter_map(|(writer, last)| Some(format!("{writer}:{}", (*last)?)));
        let check = format!("records check /m {} {}", round.number, seen.collect::<Vec<_>>().join(" "));
        let script = format!("mount -t ext4 /dev/vda /m && {check} && echo more > /m/more && umount /m");
        second.arg("--disk").arg(disk).arg(place.root()).args(["--", "sh", "-c", &script]);
        let output = second.output().map_err(text)?;
        if !output.status.success() {
            let log = fs::read_to_string(&round.log).map_err(text)?;
            let last = log.lines().rev().find(|line| line.contains("records:")).unwrap_or_default();
            return Err(format!("{}: {last}", said(&output)));
        }
        e2fsck("-fn", disk, 0)?;
    }
    fs::remove_file(copy).map_err(text)?;
    Ok(records.iter().flatten().sum())
}

fn logged_rounds(rounds: u64) -> Result<(), String> {
    let place = Place::make()?;
    let points = if rounds == 1 { POINTS.0 } else { POINTS.1 };
    let records = at_a_time(rounds, |number| {
        let round = Round::make(&place, number)?;
        let records = logged(&place, &round, points).map_err(|why| round.failed(&why))?;
        fs::remove_file(&round.disk)
            .and_then(|()| fs::remove_file(place.file("start", number)))
            .map_err(text)?;
        Ok(records)
    })?;
    println!("power failed at {} moments of writing {records} records", points * rounds);
    Ok(())
}

fn logged(place: &Place, round: &Round, points: u64) -> Result<u64, String> {
    let (start, writes) = (place.file("start", round.number), place.file("writes", round.number));
    File::create(&writes).map_err(text)?;
    let node = |name: &str, path: &Path| format!("driver=file,node-name={name},filename={}", path.display());
    let device =
        if round.machine.0 == "q35" { "virtio-blk-pci,disable-legacy=on" } else { "virtio-blk-device" };
    let words = [
        "-blockdev".into(),
        node("data", &round.disk),
        "-blockdev".into(),
        node("writes", &writes),
        "-blockdev".into(),
        "driver=blklogwrites,node-name=logged,file=data,log=writes".into(),
        "-device".into(),
        format!("{device},drive=logged"),
        "-global".into(),
        "virtio-mmio.force-legacy=false".into(),
    ];
    let mut starling = round.starling()?;
    starling
        .args(words.iter().map(|word| format!("--qemu-arg={word}")))
        .args(["--kernel-arg", "devices=first"]);
    starling.arg(place.root()).args(["--", "sh", "-c", &round.script()]);
    let records = round.marks(&run_and_kill(starling, LOGGED_RECORDS, Duration::ZERO)?)?;
    let mut tool = cargo(&["run", "--quiet", "--package", "ext4", "--example", "power_failures", "--"]);
    tool.args([&start, &writes])
        .args([round.number, WRITERS as u64, points].map(|number| number.to_string()));
    let output = tool.output().map_err(text)?;
    if !output.status.success() {
        // The log of writes is kept with the rest: only with it can the moment be looked at again.
        return Err(said(&output));
    }
    fs::remove_file(&writes).map_err(text)?;
    Ok(records.iter().flatten().sum())
}
