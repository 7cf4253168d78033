//! Runs steps one after the other, shows how each went, and adds up.
//!
//! What a step prints is kept in a file and shown only when it fails. Each step is a process group of its own, so that a step that takes
//! too long, or is interrupted, ends with all that it has started.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::extract::extract;
use super::step::Step;
use super::tally::Tally;
use crate::failure::{Context, Failure, Outcome, STATUS_SIGNAL_BASE};
use crate::progress::Progress;

/// More than this of a failing step's output is not shown, only its end.
const SHOWN: usize = 256 << 10;
/// More than this is not even read: a step that prints so much has failed in a loop.
const READ: u64 = 256 << 20;

/// Runs the steps and returns the exit status: 0 when nothing failed. What failed is named once more at the end, where whoever keeps only
/// the last lines finds it.
///
/// # Errors
/// When a step cannot be started.
pub(super) fn run(steps: Vec<Step>) -> Outcome<u8> {
    let total = steps.len();
    let mut sum = Tally::default();
    let start = Instant::now();
    let mut failures = String::new();
    for (number, step) in (1..).zip(steps) {
        let position = format!("[{number:2}/{total}]");
        let name = step.name.clone();
        let (tally, output) = show(&position, step)?;
        sum.add(tally);
        if tally.failed > 0 {
            failures += &format!("failed: {position} {name}\n{}", extract(&output));
        }
    }
    print!("{failures}");
    println!("all steps took {}", duration(start.elapsed()));
    println!("{} passed, {} failed", sum.passed, sum.failed);
    Ok(u8::from(sum.failed > 0))
}

/// Runs a step, prints how it went, and returns its counts and what it printed.
fn show(position: &str, mut step: Step) -> Outcome<(Tally, String)> {
    let start = Instant::now();
    let progress = Progress::new();
    progress.say(&format!("{position} {}", step.name));
    let (output, success) = execute(&mut step)?;
    progress.finish();
    let tally = (step.tally)(&output, success);
    let verdict = if tally.failed == 0 { "ok" } else { "FAILED" };
    let Tally { passed, failed } = tally;
    let mut out = std::io::stdout().lock();
    let shown = if tally.failed == 0 { "" } else { end_of(&output) };
    let line_end = if shown.is_empty() || shown.ends_with('\n') { "" } else { "\n" };
    // Each line is on its way before the next step starts, also when standard output is a file.
    write!(
        out,
        "{position} {:<40} {verdict:<6} {passed:>5} passed {failed:>3} failed {:>9}\n{shown}{line_end}",
        step.name,
        duration(start.elapsed())
    )
    .and_then(|()| out.flush())
    .context(|| "standard output".into())?;
    Ok((tally, output))
}

/// Runs a step's command to its end and returns what it printed and whether its exit status was 0.
fn execute(step: &mut Step) -> Outcome<(String, bool)> {
    let doing = || format!("step {}", step.name);
    let mut file = tempfile::tempfile().context(doing)?;
    let end = |file: &File| file.try_clone().map(Stdio::from);
    step.command.stdin(Stdio::null());
    step.command.stdout(end(&file).context(doing)?).stderr(end(&file).context(doing)?);
    step.command.process_group(0);
    let interruption = interruption().context(doing)?;
    let mut child = step.command.spawn().context(doing)?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let group = group.ok_or_else(|| Failure::ours(format!("{}: no process number", doing())))?;
    let end = wait(group, &interruption, step.limit).context(doing)?;
    if end != End::ByItself {
        kill_process_group(group, Signal::KILL).context(doing)?;
    }
    let status = child.wait().context(doing)?;
    if end == End::Interrupted {
        return Err(Failure::with_status(STATUS_SIGNAL_BASE + SIGINT as u8, "interrupted"));
    }
    let in_time = end == End::ByItself;
    let mut bytes = Vec::new();
    file.rewind().and_then(|()| file.take(READ).read_to_end(&mut bytes)).context(doing)?;
    let mut output = String::from_utf8_lossy(&bytes).into_owned();
    if !in_time {
        output.push_str(&format!("\nended after {}\n", duration(step.limit)));
    }
    Ok((output, in_time && status.success()))
}

/// How the waiting for a step has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    ByItself,
    TooLate,
    Interrupted,
}

/// Becomes readable when this program is to end.
fn interruption() -> std::io::Result<UnixStream> {
    let (reader, writer) = UnixStream::pair()?;
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
    }
    Ok(reader)
}

/// Waits for the end of a process.
fn wait(pid: Pid, interruption: &UnixStream, limit: Duration) -> std::io::Result<End> {
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut events = [PollFd::new(&process, PollFlags::IN), PollFd::new(interruption, PollFlags::IN)];
        match rustix::event::poll(&mut events, Some(&timeout)) {
            Ok(0) => return Ok(End::TooLate),
            Ok(_) if events[0].revents().is_empty() => return Ok(End::Interrupted),
            Ok(_) => return Ok(End::ByItself),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The last lines of a long output.
fn end_of(output: &str) -> &str {
    let start = output.len().saturating_sub(SHOWN);
    if start == 0 {
        return output;
    }
    let line = output.as_bytes()[start..]
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(output.len(), |end| start + end + 1);
    &output[line..]
}

fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 {
        format!("{:.1} s", time.as_secs_f64())
    } else {
        format!("{}:{:02} min", seconds / 60, seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tally;
    use super::*;
    use std::process::Command;

    fn shell(script: &str) -> Step {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Step::new("a step", command, tally::whole)
    }

    #[test]
    fn output_and_status_are_kept() {
        let (output, success) = execute(&mut shell("echo out; echo err >&2")).expect("runs");
        assert_eq!((output.as_str(), success), ("out\nerr\n", true));
        assert!(!execute(&mut shell("exit 3")).expect("runs").1);
    }

    #[test]
    fn step_that_hangs_is_ended_and_failed() {
        let mut step = shell("exec sleep 1000").within(Duration::from_millis(50));
        let (output, success) = execute(&mut step).expect("runs");
        assert!(!success && output.contains("ended after 0.1 s"), "{output}");
    }

    #[test]
    fn step_that_hangs_ends_with_what_it_has_started() {
        let mut step = shell("sleep 1000 & echo $!; exec sleep 1000").within(Duration::from_millis(300));
        let (output, _) = execute(&mut step).expect("runs");
        let pid = output.lines().next().expect("a process number").to_owned();
        // It ends at once, but not before the signal has reached it; a zombie has ended.
        let lives = || {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            status.contains("State:") && !status.contains("State:\tZ")
        };
        while lives() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn long_output_is_shown_from_its_end_in_whole_lines() {
        let output = "\u{e4}\n".repeat(SHOWN);
        assert!(end_of(&output).len() <= SHOWN && end_of(&output).starts_with('\u{e4}'));
        assert_eq!(end_of("short"), "short");
    }
}
