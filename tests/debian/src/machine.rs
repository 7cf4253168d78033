//! A machine with the disk: Starling's, or one with Debian's kernel. It runs invocations one after the other; one that stops or hangs costs what was running,
//! and the rest go on in a new one.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use abi_tests::stream::{self, Outcome, Report};

use crate::disk::text;
use crate::list::Invocation;

/// How long a machine may say nothing beyond what the running invocation may take.
const GRACE: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(50);
/// Lines of a machine's errors that are shown when it did not come to its end.
const SHOWN_LINES: usize = 40;

/// Has Starling's kernel built, by running the least on it: no machine's patience is spent on that later.
pub(crate) fn build(starling: &Path) -> Result<(), String> {
    let status = Command::new(starling).args(["run", "--", "true"]).stdin(Stdio::null()).status();
    if status.map_err(text)?.success() {
        Ok(())
    } else {
        Err("the kernel was not built, or does not run".into())
    }
}

/// A kernel and a number of processors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine<'a> {
    pub(crate) starling: &'a Path,
    pub(crate) disk: &'a Path,
    pub(crate) linux: bool,
    pub(crate) cpus: u32,
}

impl Machine<'_> {
    /// Runs these, and hands each outcome over as soon as it is there, so that what interrupts a long run costs little; nothing, if the machine stopped or
    /// hung meanwhile.
    pub(crate) fn run(
        &self,
        invocations: &[&Invocation],
        mut take: impl FnMut(&Invocation, Option<&Outcome>),
    ) -> Result<(), String> {
        let mut waiting = invocations.to_vec();
        while !waiting.is_empty() {
            let before = waiting.len();
            let report = self.boot(&mut waiting, &mut take)?;
            if waiting.is_empty() {
                break;
            }
            show(&report.log);
            let stopped = waiting.iter().position(|one| report.unfinished.as_deref() == Some(&one.name));
            match stopped {
                Some(place) => take(waiting.remove(place), None),
                // It did not even begin with one.
                None if waiting.len() == before => waiting.drain(..).for_each(|one| take(one, None)),
                None => {}
            }
        }
        Ok(())
    }

    /// A command in the guest. Bound to this process, as QEMU is to the command: when it is killed, no virtual machine stays behind.
    pub(crate) fn command<'a>(&self, memory: &str, words: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(self.starling);
        if self.linux {
            command.arg("linux");
        } else {
            command.args(["run", "--verbose", "--machine", "q35", "--rw", "--qemu-arg=-snapshot"]);
        }
        command.args(["--memory", memory, "--cpus", &self.cpus.to_string()]).arg(self.disk);
        command.arg("--").args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs those that wait in one machine, until it ends: those it has an outcome for wait no more.
    fn boot(
        &self,
        waiting: &mut Vec<&Invocation>,
        take: &mut impl FnMut(&Invocation, Option<&Outcome>),
    ) -> Result<Report, String> {
        let invocations = waiting.clone();
        let names = invocations.iter().map(|one| one.name.as_str());
        let mut child = self.command("2G", ["/abi/runner"].into_iter().chain(names)).spawn().map_err(text)?;
        let out = collect(child.stdout.take().ok_or("no standard output")?);
        let log = collect(child.stderr.take().ok_or("no standard error")?);
        let limit = |name: &str| {
            let running = invocations.iter().find(|one| one.name == name);
            GRACE + Duration::from_secs(running.map_or(0, |one| one.limit_seconds().into()))
        };
        let mut hand_over = |report: &Report| {
            waiting.retain(|one| {
                let outcome = report.outcomes.get(&one.name);
                if outcome.is_some() {
                    take(one, outcome);
                }
                outcome.is_none()
            });
        };
        let (mut seen, mut last) = (0, Instant::now());
        let mut patience = GRACE;
        while child.try_wait().map_err(text)?.is_none() {
            let bytes = out.bytes();
            if bytes.len() != seen {
                (seen, last) = (bytes.len(), Instant::now());
                let report = stream::read(&bytes);
                hand_over(&report);
                patience = report.unfinished.map_or(GRACE, |name| limit(&name));
            }
            if last.elapsed() > patience {
                eprintln!("debian-tests: the machine says nothing any more");
                child.kill().map_err(text)?;
            }
            thread::sleep(PAUSE);
        }
        let mut report = stream::read(&out.finish());
        hand_over(&report);
        report.log = String::from_utf8_lossy(&log.finish()).into_owned();
        Ok(report)
    }
}

fn show(log: &str) {
    let lines: Vec<_> = log.lines().collect();
    for line in &lines[lines.len().saturating_sub(SHOWN_LINES)..] {
        eprintln!("    | {line}");
    }
}

/// What comes from a pipe, read in the background.
struct Collected {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: thread::JoinHandle<()>,
}

impl Collected {
    fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().expect("the reader does not panic").clone()
    }

    /// All of it: the machine has ended, and the pipe has no other writer.
    fn finish(self) -> Vec<u8> {
        // It cannot panic.
        let _ = self.reader.join();
        self.bytes.lock().map(|bytes| bytes.clone()).unwrap_or_default()
    }
}

fn collect(mut stream: impl Read + Send + 'static) -> Collected {
    let bytes = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::clone(&bytes);
    let reader = thread::spawn(move || {
        let mut chunk = [0; 65536];
        while let Ok(count @ 1..) = stream.read(&mut chunk) {
            shared.lock().expect("nobody panics with it").extend_from_slice(&chunk[..count]);
        }
    });
    Collected { bytes, reader }
}
