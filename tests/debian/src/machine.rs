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

/// How long a machine may say nothing beyond what the running invocation may take. The kernel may have to be built first.
const GRACE: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(50);
/// Lines of a machine's errors that are shown when it did not come to its end.
const SHOWN_LINES: usize = 40;

/// A kernel and a number of processors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine<'a> {
    pub(crate) starling: &'a Path,
    pub(crate) disk: &'a Path,
    pub(crate) linux: bool,
    pub(crate) cpus: u32,
}

impl Machine<'_> {
    /// Runs these, and hands each outcome over when its machine has ended; nothing, if the machine stopped or hung while it ran.
    pub(crate) fn run(
        &self,
        invocations: &[&Invocation],
        mut take: impl FnMut(&Invocation, Option<&Outcome>),
    ) -> Result<(), String> {
        let mut waiting = invocations.to_vec();
        while !waiting.is_empty() {
            let report = self.boot(&waiting)?;
            let is_over = |one: &&&Invocation| {
                report.outcomes.contains_key(&one.name) || report.unfinished.as_deref() == Some(&one.name)
            };
            let over: Vec<_> = waiting.iter().filter(is_over).copied().collect();
            if over.len() < waiting.len() || over.iter().any(|one| !report.outcomes.contains_key(&one.name)) {
                show(&report.log);
            }
            if over.is_empty() {
                waiting.iter().for_each(|one| take(one, None));
                return Ok(());
            }
            over.iter().for_each(|one| take(one, report.outcomes.get(&one.name)));
            waiting.retain(|one| !over.iter().any(|other| other.name == one.name));
        }
        Ok(())
    }

    fn command(&self, invocations: &[&Invocation]) -> Command {
        let mut command = Command::new(self.starling);
        if self.linux {
            command.arg("linux");
        } else {
            command.args(["run", "--verbose", "--machine", "q35", "--rw", "--qemu-arg=-snapshot"]);
        }
        command.args(["--memory", "2G", "--cpus", &self.cpus.to_string()]).arg(self.disk);
        command.args(["--", "/abi/runner"]).args(invocations.iter().map(|one| &one.name));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn boot(&self, invocations: &[&Invocation]) -> Result<Report, String> {
        let mut child = self.command(invocations).spawn().map_err(text)?;
        let out = collect(child.stdout.take().ok_or("no standard output")?);
        let log = collect(child.stderr.take().ok_or("no standard error")?);
        let limit = |name: &str| {
            let running = invocations.iter().find(|one| one.name == name);
            GRACE + Duration::from_secs(running.map_or(0, |one| one.limit_seconds().into()))
        };
        let (mut seen, mut last) = (0, Instant::now());
        while child.try_wait().map_err(text)?.is_none() {
            let count = out.bytes().len();
            if count != seen {
                (seen, last) = (count, Instant::now());
            }
            let patience = stream::read(&out.bytes()).unfinished.map_or(GRACE, |name| limit(&name));
            if last.elapsed() > patience {
                eprintln!("debian-tests: the machine says nothing any more");
                child.kill().map_err(text)?;
            }
            thread::sleep(PAUSE);
        }
        let mut report = stream::read(&out.finish());
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
