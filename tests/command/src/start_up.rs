//! The time from the start of QEMU to the command's first instruction, as `--boot-trace` tells it.

use std::process::Stdio;

use crate::case::starling;

/// Boots measured; the one in the middle counts.
const BOOTS: usize = 11;

/// A machine and its limit.
#[derive(Debug)]
pub(crate) struct Measurement {
    /// What is promised.
    pub(crate) name: &'static str,
    machine: &'static str,
    limit_ms: f64,
}

/// What is measured.
pub(crate) fn measurements() -> [Measurement; 2] {
    [
        Measurement { name: "start-up on microvm takes at most 80 ms", machine: "microvm", limit_ms: 80.0 },
        Measurement { name: "start-up on q35 takes at most 200 ms", machine: "q35", limit_ms: 200.0 },
    ]
}

impl Measurement {
    /// Boots, prints all times, and compares the median with the limit.
    pub(crate) fn run(&self) -> Result<(), String> {
        let mut times = (0..BOOTS).map(|_| self.boot()).collect::<Result<Vec<_>, _>>()?;
        times.sort_by(f64::total_cmp);
        let median = times[BOOTS / 2];
        println!("{}: median {median:.1} ms of {times:.1?}", self.machine);
        if median <= self.limit_ms { Ok(()) } else { Err(format!("{median:.1} ms")) }
    }

    fn boot(&self) -> Result<f64, String> {
        let options =
            ["--machine", self.machine, "--cpus", "2", "--timeout", "60", "--boot-trace", "--", "true"];
        let output =
            starling().args(options).stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&output.stderr);
        let line = text.lines().find_map(|line| line.strip_prefix("first user instruction"));
        let time = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        time.ok_or_else(|| format!("no boot trace: {text}"))
    }
}
