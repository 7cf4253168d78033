//! Entries into the kernel debugger from outside: a break on the serial line, and the button.
//!
//! QEMU's monitor sends them, while all processors of the guest idle. The dialogue's other end is a script.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Stdio};

use crate::balloon::ask;
use crate::case::starling;
use crate::disks::text;
use crate::images::Images;

/// Numbers of processors that are stopped.
pub(crate) const ENTERED: [u32; 3] = [2, 4, 8];

/// An entry: what is promised, the monitor's command, and what the debugger says of it.
pub(crate) struct Entry {
    name: &'static str,
    command: &'static str,
    says: &'static str,
}

/// What is promised.
const ENTRIES: [Entry; 2] = [
    Entry {
        name: "a break on the serial line enters the debugger",
        command: "chardev-send-break log",
        says: "(Breakpoint)",
    },
    Entry { name: "the button enters the debugger", command: "nmi", says: "(Button)" },
];

/// Each with each number of processors.
pub(crate) fn all() -> impl Iterator<Item = (&'static Entry, u32)> {
    ENTRIES.iter().flat_map(|entry| ENTERED.map(|cpus| (entry, cpus)))
}

const GUEST: &str = "echo ready; read line; echo after";

/// Reads up to a line with this in it.
fn wait_for(what: &str, lines: &mut dyn BufRead) -> Result<(), String> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line).map_err(text)? == 0 {
            return Err(format!("the machine does not say {what}"));
        }
        if String::from_utf8_lossy(&line).contains(what) {
            return Ok(());
        }
    }
}

fn enter(entry: &Entry, monitor: &Path, machine: &mut Child) -> Result<(), String> {
    let mut told = BufReader::new(machine.stdout.take().ok_or("no output")?);
    let mut dialogue = BufReader::new(machine.stderr.take().ok_or("no messages")?);
    let mut guest = machine.stdin.take().ok_or("no input")?;
    wait_for("ready", &mut told)?;
    ask(monitor, entry.command)?;
    wait_for(entry.says, &mut dialogue)?;
    wait_for("> continue", &mut dialogue)?;
    guest.write_all(b"go on\n").map_err(text)?;
    wait_for("after", &mut told)?;
    // To the end, so that nobody writes to what is closed.
    dialogue.read_to_end(&mut Vec::new()).map_err(text).map(drop)
}

impl Entry {
    /// What is promised with so many processors.
    pub(crate) fn name(&self, cpus: u32) -> String {
        format!("{}, with {cpus} CPUs", self.name)
    }

    /// Boots a machine and enters the debugger.
    pub(crate) fn check(&self, images: &Images, cpus: u32) -> Result<(), String> {
        let folder = tempfile::tempdir().map_err(text)?;
        let monitor = folder.path().join("monitor");
        let mut command = starling();
        command.args(["--cpus", &cpus.to_string(), "--timeout", "300"]);
        command.arg(format!("--debugger={}", images.path("look.kdb").display()));
        command.args([
            "--qemu-arg=-monitor",
            &format!("--qemu-arg=unix:{},server=on,wait=off", monitor.display()),
        ]);
        command.args(["--", "sh", "-c", GUEST]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut machine = command.spawn().map_err(text)?;
        let outcome = enter(self, &monitor, &mut machine);
        if outcome.is_err() {
            // It may wait for what will not come.
            let _ = machine.kill();
        }
        let status = machine.wait().map_err(text)?;
        outcome?;
        if status.success() { Ok(()) } else { Err(format!("the machine ended with {status}")) }
    }
}
