//! A virtio balloon: QEMU asks for memory and gives it back through its monitor; a guest in need takes it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::case::starling;

/// What is promised.
pub(crate) const NAME: &str = "a virtio balloon grows and shrinks, and gives memory back in need";

/// How long something may take to happen.
const PATIENCE: Duration = Duration::from_secs(300);
/// Sizes that the host asks for, in MiB, of a machine with 256.
const SIZES: [u32; 3] = [100, 200, 80];
/// What the guest fills then: more than the last size leaves.
const GUEST: &str =
    "echo ready; read line; head -c 100000000 /dev/zero > /tmp/full && echo filled; read line";

fn text(error: impl ToString) -> String {
    error.to_string()
}

/// What QEMU answers to a command of its monitor.
pub(crate) fn ask(monitor: &Path, command: &str) -> Result<String, String> {
    const PROMPT: &[u8] = b"(qemu) ";
    let mut stream = UnixStream::connect(monitor).map_err(text)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(text)?;
    let mut answer = Vec::new();
    for line in ["", command] {
        if !line.is_empty() {
            answer.clear();
            stream.write_all(format!("{line}\n").as_bytes()).map_err(text)?;
        }
        while !answer.ends_with(PROMPT) || (!line.is_empty() && !answer.contains(&b'\n')) {
            let mut bytes = [0; 512];
            let count = stream.read(&mut bytes).map_err(text)?;
            if count == 0 {
                return Err("QEMU's monitor has ended".into());
            }
            answer.extend_from_slice(&bytes[..count]);
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The balloon's size, as QEMU knows it.
fn size(monitor: &Path) -> Result<u32, String> {
    let answer = ask(monitor, "info balloon")?;
    let digits = answer.split_once("actual=").ok_or_else(|| format!("no size in {answer:?}"))?.1;
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().map_err(text)
}

fn check_with(monitor: &Path, told: &mut dyn BufRead, guest: &mut dyn Write) -> Result<(), String> {
    let mut wait_for = |wanted: &str| {
        let mut line = String::new();
        told.read_line(&mut line).map_err(text)?;
        if line.trim() == wanted { Ok(()) } else { Err(format!("it says {line:?}, not {wanted:?}")) }
    };
    wait_for("ready")?;
    for wanted in SIZES {
        ask(monitor, &format!("balloon {wanted}"))?;
        let until = Instant::now() + PATIENCE;
        while size(monitor)? != wanted {
            if Instant::now() > until {
                return Err(format!("the balloon leaves {} MiB, not {wanted}", size(monitor)?));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    guest.write_all(b"fill\n").map_err(text)?;
    wait_for("filled")?;
    let left = size(monitor)?;
    if left <= SIZES[2] { Err(format!("it leaves {left} MiB to a guest in need")) } else { Ok(()) }
}

/// Boots a machine.
pub(crate) fn check() -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(text)?;
    let monitor = folder.path().join("monitor");
    let words = [
        "-device".into(),
        "virtio-balloon-pci,deflate-on-oom=on".into(),
        "-monitor".into(),
        format!("unix:{},server=on,wait=off", monitor.display()),
    ];
    let mut command = starling();
    command.args(["--machine", "q35", "--cpus", "2", "--memory", "256M", "--timeout", "150"]);
    for word in words {
        command.args(["--qemu-arg", &word]);
    }
    let mut child = command
        .args(["--kernel-arg", "devices=first", "--", "sh", "-c", GUEST])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(text)?;
    let mut told = BufReader::new(child.stdout.take().ok_or("no output")?);
    let mut guest = child.stdin.take().ok_or("no input")?;
    let outcome = check_with(&monitor, &mut told, &mut guest);
    if outcome.is_err() {
        // It may wait for what will not come.
        let _ = child.kill();
    }
    drop(guest);
    child.wait().map_err(text)?;
    outcome
}
