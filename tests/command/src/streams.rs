//! What carries the command's streams: much of it, to readers that take none for a while, and when it goes away.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::balloon::ask;
use crate::case::{Case, starling};

/// A check, true if it passes.
type Check = fn() -> Result<(), String>;

/// What is promised, and takes long.
pub(crate) const CHECKS: [(&str, Check); 7] = [
    ("a hundred megabytes of input have the sum that the host sees", sum_of_input),
    ("what nobody reads yet keeps the command waiting, and is whole", output_that_waits),
    ("streams end when the console that carries them goes away", console_goes_away),
    ("a terminal is hung up when the console that carries it goes away under a flood", terminal_goes_away),
    ("keys reach a terminal under a flood, whoever lets it go on", keys_under_a_flood),
    ("signals reach a command whose console has gone away", signal_after_loss),
    ("what is typed at a terminal whose console has gone away interrupts the command", interrupt_after_loss),
];

/// Has the input come out twice.
const ALL_THREE: &str = "tee /tmp/copy >&2; cat /tmp/copy";
const MACHINES: [&str; 2] = ["microvm", "q35"];
const INPUT_BYTES: usize = 100_000_000;
/// More than all that lies between the two ends of a pipe through the guest.
const WAITING_BYTES: usize = 30_000_000;
const PIECE_BYTES: usize = 1 << 16;
const SECONDS: &str = "600";

fn text(error: impl ToString) -> String {
    error.to_string()
}

/// The short cases: each way that the streams can take, on each machine.
pub(crate) fn cases() -> Vec<Case> {
    let bytes: Vec<u8> = Pattern::default().take(200_000).collect();
    let mut cases: Vec<Case> = Vec::new();
    for machine in MACHINES {
        for cpus in ["1", "2"] {
            let name =
                format!("bytes go through the console of a {machine} with {cpus} processors unchanged");
            let case = Case::script(name, ALL_THREE).with(&["--machine", machine, "--cpus", cpus]);
            cases.push(case.input(bytes.clone()).prints(bytes.clone()).errors_are(&bytes));
        }
    }
    let few = &bytes[..20_000];
    let serial = Case::script("bytes go through the serial port unchanged", ALL_THREE);
    cases.push(serial.with(&["--link", "serial"]).input(few).prints(few).errors_are(few));
    let kept = "until [ -e /dev/virtio-ports/starling.link ]; do usleep 10000; done; \
        cat /dev/virtio-ports/starling.link 2>&1 | grep -o 'resource busy'";
    cases.push(
        Case::script("the port that carries the streams is not for programs", kept).prints("resource busy\n"),
    );
    cases
}

/// Bytes without a period that buffers have.
#[derive(Clone)]
struct Pattern(u32);

impl Default for Pattern {
    fn default() -> Self {
        Self(1)
    }
}

impl Iterator for Pattern {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        Some((self.0 >> 24) as u8)
    }
}

/// Writes so much of the pattern, counting what was taken.
fn feed(mut into: impl Write, total: usize, taken: &AtomicUsize) -> Result<(), String> {
    let mut pattern = Pattern::default();
    let mut left = total;
    while left > 0 {
        let piece: Vec<u8> = pattern.by_ref().take(left.min(PIECE_BYTES)).collect();
        into.write_all(&piece).map_err(text)?;
        left -= piece.len();
        taken.fetch_add(piece.len(), Ordering::Relaxed);
    }
    Ok(())
}

fn piped(mut command: Command) -> Result<Child, String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(text)
}

/// What a program prints that is fed with the bytes.
fn fed(command: Command) -> Result<String, String> {
    let mut child = piped(command)?;
    let input = child.stdin.take().ok_or("no input")?;
    std::thread::scope(|scope| {
        let feeder = scope.spawn(|| feed(input, INPUT_BYTES, &AtomicUsize::new(0)));
        let output = child.wait_with_output().map_err(text)?;
        feeder.join().map_err(|_| "the feeder panicked")??;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    })
}

fn sum_of_input() -> Result<(), String> {
    let mut guest = starling();
    guest.args(["--timeout", SECONDS, "--", "md5sum"]);
    let (found, expected) = (fed(guest)?, fed(Command::new("md5sum"))?);
    if found == expected { Ok(()) } else { Err(format!("the guest sees {found:?}, the host {expected:?}")) }
}

/// The host's reader begins when nothing moves any more: then the guest's writer waits, and so does who feeds it.
fn output_that_waits() -> Result<(), String> {
    let mut guest = starling();
    guest.args(["--timeout", SECONDS, "--", "cat"]);
    let mut child = piped(guest)?;
    let input = child.stdin.take().ok_or("no input")?;
    let mut output = child.stdout.take().ok_or("no output")?;
    let taken = AtomicUsize::new(0);
    let outcome = std::thread::scope(|scope| {
        let feeder = scope.spawn(|| feed(input, WAITING_BYTES, &taken));
        let mut before = usize::MAX;
        while taken.load(Ordering::Relaxed) == 0 || taken.load(Ordering::Relaxed) != before {
            before = taken.load(Ordering::Relaxed);
            std::thread::sleep(Duration::from_secs(2));
        }
        let waiting = !feeder.is_finished();
        let mut found = Vec::new();
        output.read_to_end(&mut found).map_err(text)?;
        feeder.join().map_err(|_| "the feeder panicked")??;
        match found.iter().copied().eq(Pattern::default().take(WAITING_BYTES)) {
            _ if !waiting => Err("all of it is somewhere, and nobody has read any".into()),
            true => Ok(()),
            false => Err(format!("{} bytes come out, or others than went in", found.len())),
        }
    });
    child.wait().map_err(text)?;
    outcome
}

/// Unplugs the port while the command waits for input, which ends then; what it prints is a broken pipe, and its status is told.
fn console_goes_away() -> Result<(), String> {
    const GUEST: &str = "echo ready; read line; trap '' PIPE; echo lost 2>/dev/null && exit 1; exit 7";
    for machine in MACHINES {
        let folder = tempfile::tempdir().map_err(text)?;
        let monitor = folder.path().join("monitor");
        let option = format!("--qemu-arg=unix:{},server=on,wait=off", monitor.display());
        let mut guest = starling();
        guest.args(["--machine", machine, "--timeout", "120", "--kernel-arg", "devices=first"]);
        guest.args(["--qemu-arg=-monitor", &option, "--", "sh", "-c", GUEST]);
        let mut child = piped(guest)?;
        let mut line = String::new();
        let mut told = BufReader::new(child.stdout.take().ok_or("no output")?);
        told.read_line(&mut line).map_err(text)?;
        let answer = ask(&monitor, "device_del starling.link");
        if answer.is_err() {
            let _ = child.kill();
        }
        let status = child.wait().map_err(text)?;
        answer?;
        if (line.as_str(), status.code()) != ("ready\n", Some(7)) {
            return Err(format!("on a {machine} it says {line:?} and ends with {status}"));
        }
    }
    Ok(())
}

/// Unplugs the port while nobody reads what floods the terminal. The command dies of the hang-up, and that is told.
fn terminal_goes_away() -> Result<(), String> {
    for machine in MACHINES {
        let folder = tempfile::tempdir().map_err(text)?;
        let monitor = folder.path().join("monitor");
        let option = format!("--qemu-arg=unix:{},server=on,wait=off", monitor.display());
        let mut guest = starling();
        guest.args(["-t", "--machine", machine, "--cpus", "2", "--timeout", "120"]);
        guest.args(["--kernel-arg", "devices=first", "--qemu-arg=-monitor", &option]);
        // What floods may end of a failed write before the signal comes; the shell does not.
        guest.args(["--", "sh", "-c", "echo ready; yes; sleep 1000"]);
        let mut child = piped(guest)?;
        let mut line = String::new();
        let mut told = BufReader::new(child.stdout.take().ok_or("no output")?);
        told.read_line(&mut line).map_err(text)?;
        // The flood has all of the room by then, or is about to.
        std::thread::sleep(Duration::from_secs(2));
        let answer = ask(&monitor, "device_del starling.link");
        if answer.is_err() {
            let _ = child.kill();
        }
        told.read_to_end(&mut Vec::new()).map_err(text)?;
        let status = child.wait().map_err(text)?;
        answer?;
        if status.code() != Some(129) {
            return Err(format!("on a {machine} it ends with {status}"));
        }
    }
    Ok(())
}

/// What `starling run` says when the console is gone and it sends on the serial port.
const GONE: &str = "signals still reach the command";

/// Reads lines until one has this in it.
fn wait_for(lines: &mut impl BufRead, part: &str) -> Result<(), String> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line).map_err(text)? == 0 {
            return Err(format!("it never says {part:?}"));
        }
        if String::from_utf8_lossy(&line).contains(part) {
            return Ok(());
        }
    }
}

/// Unplugs the port, and sends a signal when the host has heard of that.
fn signal_after_loss() -> Result<(), String> {
    const GUEST: &str = "trap 'exit 9' USR1; echo ready; while :; do usleep 10000; done";
    for machine in MACHINES {
        let folder = tempfile::tempdir().map_err(text)?;
        let monitor = folder.path().join("monitor");
        let option = format!("--qemu-arg=unix:{},server=on,wait=off", monitor.display());
        let mut guest = starling();
        guest.args(["--machine", machine, "--timeout", "300", "--kernel-arg", "devices=first"]);
        guest.args(["--qemu-arg=-monitor", &option, "--", "sh", "-c", GUEST]).stderr(Stdio::piped());
        let mut child = piped(guest)?;
        let mut told = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut said = BufReader::new(child.stderr.take().ok_or("no errors")?);
        let outcome = wait_for(&mut told, "ready")
            .and_then(|()| ask(&monitor, "device_del starling.link").map(drop))
            .and_then(|()| wait_for(&mut said, GONE))
            .and_then(|()| {
                Command::new("kill").args(["-USR1", &child.id().to_string()]).status().map_err(text)
            });
        if outcome.is_err() {
            let _ = child.kill();
        }
        let status = child.wait().map_err(text)?;
        outcome?;
        if status.code() != Some(9) {
            return Err(format!("on a {machine} it ends with {status}"));
        }
    }
    Ok(())
}

/// Unplugs the port of a command that outlives the hang-up of its terminal, which `script` makes, and types `^C`.
fn interrupt_after_loss() -> Result<(), String> {
    for machine in MACHINES {
        let folder = tempfile::tempdir().map_err(text)?;
        let monitor = folder.path().join("monitor");
        let program = folder.path().join("command");
        std::fs::write(
            &program,
            "trap \"\" HUP; trap \"exit 7\" INT; echo ready; while :; do usleep 10000; done",
        )
        .map_err(text)?;
        let guest = starling();
        let options = format!(
            "-it --machine {machine} --timeout 300 --kernel-arg devices=first --qemu-arg=-monitor --qemu-arg=unix:{},server=on,wait=off -- sh -c \"$(cat {})\"",
            monitor.display(),
            program.display()
        );
        let mut command = Command::new("script");
        command.args([
            "-q",
            "-e",
            "-c",
            &format!("{} run {options}", guest.get_program().display()),
            "/dev/null",
        ]);
        let mut child = piped(command)?;
        let mut keyboard = child.stdin.take().ok_or("no input")?;
        let mut screen = BufReader::new(child.stdout.take().ok_or("no output")?);
        let outcome = wait_for(&mut screen, "ready")
            .and_then(|()| ask(&monitor, "device_del starling.link").map(drop))
            .and_then(|()| wait_for(&mut screen, GONE))
            .and_then(|()| keyboard.write_all(b"\x03").map_err(text));
        if outcome.is_err() {
            let _ = child.kill();
        }
        let status = child.wait().map_err(text)?;
        outcome?;
        if status.code() != Some(7) {
            return Err(format!("on a {machine} it ends with {status}"));
        }
    }
    Ok(())
}

/// Types ^S, ^Q and at last ^C, on a terminal that `script` makes, while the command prints without an end.
fn keys_under_a_flood() -> Result<(), String> {
    const KEYS: &[u8] = b"\x13\x11\x13\x11\x13\x11\x03";
    for link in ["virtio", "serial"] {
        let guest = starling();
        let options = format!("-it --cpus 2 --timeout 120 --link {link} -- sh -c 'echo ready; exec yes'");
        let mut command = Command::new("script");
        command.args([
            "-q",
            "-e",
            "-c",
            &format!("{} run {options}", guest.get_program().display()),
            "/dev/null",
        ]);
        let mut child = piped(command)?;
        let mut keyboard = child.stdin.take().ok_or("no input")?;
        let mut screen = child.stdout.take().ok_or("no output")?;
        let mut seen = Vec::new();
        let mut piece = [0; 4096];
        // So much that the flood is there.
        while seen.len() < 4 * piece.len() {
            let count = screen.read(&mut piece).map_err(text)?;
            if count == 0 {
                break;
            }
            seen.extend_from_slice(&piece[..count]);
        }
        let typed = std::thread::spawn(move || {
            // Apart, so that what one key brings about is there when the next one comes.
            for key in KEYS {
                std::thread::sleep(Duration::from_millis(300));
                if keyboard.write_all(&[*key]).is_err() {
                    break;
                }
            }
            keyboard
        });
        std::io::copy(&mut screen, &mut std::io::sink()).map_err(text)?;
        drop(typed.join().map_err(|_| "the typist panicked")?);
        let status = child.wait().map_err(text)?;
        if status.code() != Some(130) {
            let seen = String::from_utf8_lossy(&seen[..seen.len().min(200)]).into_owned();
            return Err(format!("on {link} it ends with {status} after {seen:?}"));
        }
    }
    Ok(())
}
