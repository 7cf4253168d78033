//! Starling's side: one VM runs many cases; a VM that stops or hangs is replaced.
//!
//! States of a batch: *running* (frames arrive) → *ended* (the runner finished) | *stalled* (no byte for the running
//! case's limit and a grace period; the VM is killed) | *dead* (the VM ended by itself in the middle). In the last two
//! the case that had started has failed, and the cases that never started run in a new VM. A VM that reports nothing at
//! all ends the batch: there is no kernel to test.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::arguments::Arguments;
use crate::cases::{Case, Kind};
use crate::image::Place;
use abi_tests::stream::{self, Outcome, Report};

/// How long a VM may take over a case's own limit.
const GRACE: Duration = Duration::from_secs(120);

/// How long the first case may take to start: the command builds the kernel when its source has changed.
const START_GRACE: Duration = Duration::from_secs(900);

/// How long the last bytes of a VM that has ended may take. Somebody whom nobody could end may hold the pipes open.
const LAST_BYTES: Duration = Duration::from_secs(30);

/// Lines of the VM's standard error that are shown when a case has failed.
const KEPT_LINES: usize = 60;

/// Runs the cases and hands each outcome over as soon as its VM has ended.
pub(crate) fn run(
    place: &Place,
    arguments: &Arguments,
    cpus: u32,
    cases: &[Case],
    mut judge: impl FnMut(&Case, Option<&Outcome>) -> bool,
) -> Result<(), String> {
    for _ in 0..arguments.repeat {
        let (alone, together): (Vec<_>, Vec<_>) = cases.iter().partition(|case| case.alone);
        let mut waiting: Vec<&Case> = together;
        while !waiting.is_empty() {
            let report = boot(place, arguments, cpus, &waiting)?;
            let reached = |case: &&&Case| {
                report.outcomes.contains_key(&case.name) || report.unfinished.as_deref() == Some(&case.name)
            };
            let done: Vec<&Case> = waiting.iter().filter(reached).copied().collect();
            let good = done.iter().filter(|case| judge(case, report.outcomes.get(&case.name))).count();
            if good < done.len() {
                show_log(&report.log);
            }
            if done.is_empty() {
                waiting.iter().for_each(|case| _ = judge(case, None));
                show_log(&report.log);
                break;
            }
            waiting.retain(|case| !done.iter().any(|other| other.name == case.name));
        }
        for case in alone {
            let report = boot(place, arguments, cpus, &[case])?;
            if !judge(case, report.outcomes.get(&case.name)) {
                show_log(&report.log);
            }
        }
    }
    Ok(())
}

/// What the machine said last, the kernel's log and the progress of guest cases, and before that the warnings and errors of the kernel until then.
fn show_log(log: &str) {
    let lines: Vec<&str> = log.lines().collect();
    let (before, last) = lines.split_at(lines.len().saturating_sub(KEPT_LINES));
    let is_report = |line: &&&str| line.contains("] WARN ") || line.contains("] ERROR ");
    for line in before.iter().filter(is_report).take(KEPT_LINES).chain(last) {
        eprintln!("    | {line}");
    }
}

/// Boots one VM with these cases and waits for its end.
fn boot(place: &Place, arguments: &Arguments, cpus: u32, cases: &[&Case]) -> Result<Report, String> {
    let mut command = command(place, arguments, cpus, cases);
    let started = Instant::now();
    let mut child = command.spawn().map_err(|error| format!("{:?}: {error}", command.get_program()))?;
    let (out, out_reader) = collect(child.stdout.take().expect("stdout is piped"));
    let (err, err_reader) = collect(child.stderr.take().expect("stderr is piped"));
    let limit = |name: &str| {
        let seconds = cases.iter().find(|case| case.name == name).map_or(0, |case| case.patience_seconds());
        Duration::from_secs(u64::from(seconds)) + GRACE
    };
    let (mut seen, mut last) = (0, Instant::now());
    let mut stalled = false;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|error| format!("waiting for the VM: {error}"))? {
            break status;
        }
        let bytes = out.lock().expect("the reader does not panic").clone();
        if bytes.len() != seen {
            (seen, last) = (bytes.len(), Instant::now());
        }
        let running = stream::read(&bytes).unfinished;
        if last.elapsed() > running.as_deref().map_or(if seen == 0 { START_GRACE } else { GRACE }, limit) {
            stalled = true;
            stop(&mut child);
        }
        thread::sleep(Duration::from_millis(50));
    };
    // The readers end when the VM's last process has closed its end of the pipes. The frames that are still in there count: without
    // them the last case would be taken for one that did not end.
    let until = Instant::now() + LAST_BYTES;
    while !(out_reader.is_finished() && err_reader.is_finished()) && Instant::now() < until {
        thread::sleep(Duration::from_millis(5));
    }
    let mut report = stream::read(&out.lock().expect("the reader does not panic"));
    report.log = String::from_utf8_lossy(&err.lock().expect("the reader does not panic")).into_owned();
    let seconds = started.elapsed().as_secs_f32();
    eprintln!(
        "abi-tests: VM with {cpus} CPUs: {} of {} cases, {seconds:.1} s",
        report.outcomes.len(),
        cases.len()
    );
    if stalled || report.unfinished.is_some() || report.outcomes.is_empty() {
        let what = if stalled { "hung" } else { "ended" };
        let name = report.unfinished.as_deref().unwrap_or("(no case)");
        eprintln!(
            "abi-tests: the VM {what} in {name}: status {:?}, signal {:?}",
            status.code(),
            status.signal()
        );
    }
    Ok(report)
}

/// `./starling run ... IMAGE -- /abi/runner NAME...`, in a process group of its own.
fn command(place: &Place, arguments: &Arguments, cpus: u32, cases: &[&Case]) -> Command {
    let program = arguments.starling.clone().unwrap_or_else(|| place.root().join("starling"));
    let memory =
        cases.iter().find_map(|case| case.memory.clone()).unwrap_or_else(|| arguments.memory.clone());
    let mut command = Command::new(program);
    command.args(["run", "--verbose"]).arg("--cpus").arg(cpus.to_string()).arg("--memory").arg(memory);
    if let Some(machine) = &arguments.machine {
        command.arg("--machine").arg(machine);
    }
    let small = cases.iter().all(|case| case.alone && case.kind == Kind::Guest);
    command
        .arg(if small { place.small_image() } else { place.image() })
        .arg("--")
        .arg("/abi/runner")
        .args(cases.iter().map(|case| &case.name));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    command
}

/// Reads a stream to its end in the background.
fn collect(mut stream: impl Read + Send + 'static) -> (Arc<Mutex<Vec<u8>>>, JoinHandle<()>) {
    let bytes = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::clone(&bytes);
    let reader = thread::spawn(move || {
        let mut chunk = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut chunk) {
            shared.lock().expect("no reader panics").extend_from_slice(&chunk[..count]);
        }
    });
    (bytes, reader)
}

/// Ends the VM and everything the command has started.
fn stop(child: &mut Child) {
    let group = format!("-{}", child.id());
    for signal in ["-TERM", "-KILL"] {
        // A group that is gone already is what is wanted.
        let _ = Command::new("kill").args([signal, "--", &group]).stderr(Stdio::null()).status();
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until && matches!(child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(20));
        }
    }
}
