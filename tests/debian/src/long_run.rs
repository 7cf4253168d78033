//! A long run: stressors of all kinds beside compilers, on Starling alone (`tests/debian/long_run.sh`). It must end without a report of the kernel, nothing may
//! fail, and what there was before must be there afterwards.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::thread;

use crate::disk::text;
use crate::machine::Machine;

/// Of the free memory before, the part that may be missing afterwards: caches of the kernel's allocators.
const MEMORY_SHARE: u64 = 200;
/// Lines of the kernel's log that are quoted.
const QUOTED: usize = 60;

/// Runs it, shows what it says, and returns what is wrong.
pub(crate) fn run(machine: &Machine<'_>, minutes: u32) -> Result<Vec<String>, String> {
    let minutes = minutes.to_string();
    let mut child =
        machine.command("3G", ["/bin/bash", "/abi/long_run.sh", &minutes]).spawn().map_err(text)?;
    let mut errors = child.stderr.take().ok_or("no standard error")?;
    let log = thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = errors.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let mut said = String::new();
    for line in BufReader::new(child.stdout.take().ok_or("no standard output")?).split(b'\n') {
        let line = String::from_utf8_lossy(&line.map_err(text)?).into_owned();
        println!("    {line}");
        said.push_str(&line);
        said.push('\n');
    }
    let status = child.wait().map_err(text)?;
    let log = log.join().map_err(|_| "the log was not read")?;
    let mut complaints = judge(&said, &log);
    if !status.success() {
        complaints.push(format!("the machine ended with {status}"));
    }
    Ok(complaints)
}

/// What is wrong with a run, from what it said and what the kernel reported meanwhile.
fn judge(said: &str, log: &str) -> Vec<String> {
    let (mut has_panicked, mut in_report) = (false, false);
    // Behind a panic, and behind some reports, stands where it was: such a run may not come again.
    let reports = log.lines().filter(|line| {
        has_panicked |= line.contains("panicked");
        in_report = if line.starts_with('[') { is_report(line) } else { in_report };
        has_panicked || in_report
    });
    let mut complaints: Vec<_> = reports.take(QUOTED).map(|line| format!("report: {line}")).collect();
    let of = |kind: &'static str| said.lines().filter_map(move |line| line.strip_prefix(kind));
    complaints.extend(of("=failed ").map(|what| format!("failed: {what}")));
    complaints.extend(
        of("=missed ").filter(|line| !is_explained(line)).map(|line| format!("not explained: {line}")),
    );
    let (before, after) = (state(of("=state before ")), state(of("=state after ")));
    if before.is_empty() || before.len() != after.len() {
        complaints.push("it did not come to its end".into());
    }
    for (name, was) in before {
        let Some(&is) = after.get(name) else { continue };
        let differs = match name {
            "MemFree" => is + was / MEMORY_SHARE < was,
            // Parts of the memory that is looked at as a whole.
            "Slab" | "PageTables" | "KernelStack" | "Shmem" => false,
            // One that was about to end when it began may have ended.
            _ => is > was,
        };
        if differs {
            complaints.push(format!("{name}: {was} before, {is} after"));
        }
    }
    match of("=compiled ").next().and_then(|counts| counts.split_once(' ')) {
        Some((good, "0")) if good != "0" => {}
        other => complaints.push(format!("compiled right and wrong: {other:?}")),
    }
    complaints
}

/// Names and numbers of a state.
fn state<'a>(lines: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, u64> {
    lines
        .filter_map(|line| line.rsplit_once(' '))
        .filter_map(|(name, number)| Some((name, number.parse().ok()?)))
        .collect()
}

/// Whether a line of the log is more than an information: `[ SECONDS] LEVEL PLACE: TEXT`.
fn is_report(line: &str) -> bool {
    let level = line.split_once("] ").and_then(|(_, rest)| rest.split(' ').next());
    matches!(level, Some("WARN" | "ERROR"))
}

/// Whether a line of `missing_syscalls` says why: number, count, name and reason.
fn is_explained(line: &str) -> bool {
    line.split(' ').nth(3).is_some_and(|reason| !reason.is_empty())
}

#[cfg(test)]
mod tests {
    use super::judge;

    const LOG: &str = "[    0.006825] INFO  starling_kernel::start: Starling on 4 processors\n";
    const GOOD: &str = "=state before MemFree 1000000\n=state before Slab 100\n=state before objects of System V 3\n\
        stress-ng --class os: status 3 at 100 s\n=compiled 8 0\n\
        =state after MemFree 996000\n=state after Slab 900\n=state after objects of System V 3\n\
        =missed 154 7 modify_ldt there are none\n";

    #[test]
    fn a_good_run_has_no_complaints() {
        assert!(judge(GOOD, LOG).is_empty(), "{:?}", judge(GOOD, LOG));
    }

    #[test]
    fn each_fault_has_its_complaint() {
        let faults = [
            ("after MemFree 996000", "after MemFree 994000", "MemFree: 1000000 before, 994000 after"),
            (
                "after objects of System V 3",
                "after objects of System V 4",
                "objects of System V: 3 before, 4 after",
            ),
            ("=compiled 8 0", "=compiled 8 1", "compiled right and wrong: Some((\"8\", \"1\"))"),
            ("=compiled 8 0", "=compiled 0 0", "compiled right and wrong: Some((\"0\", \"0\"))"),
            ("=compiled 8 0", "=compiled 8 0\n=failed os (mmap)", "failed: os (mmap)"),
            ("modify_ldt there are none", "modify_ldt", "not explained: 154 7 modify_ldt"),
            ("=state after Slab 900\n", "", "it did not come to its end"),
        ];
        for (good, bad, complaint) in faults {
            assert_eq!(judge(&GOOD.replace(good, bad), LOG), [complaint]);
        }
        let report = "[ 2340.233889] WARN  memory::frame: lost\n";
        assert_eq!(
            judge(GOOD, &(LOG.to_owned() + report)),
            ["report: [ 2340.233889] WARN  memory::frame: lost"]
        );
        let report =
            "[ 2839.111823] ERROR sched::rcu_driver: rcu: CPU 1 runs idle in the kernel\n  #1 a_function\n";
        assert_eq!(judge(GOOD, &(LOG.to_owned() + report + LOG + "no report\n")).len(), 2);
        let report = "kernel panic on processor 3: panicked at a.rs:1:5:\n  #1 some_function\n";
        assert_eq!(judge(GOOD, &(LOG.to_owned() + report)).len(), 2);
        assert_eq!(judge("", LOG).len(), 2);
    }
}
