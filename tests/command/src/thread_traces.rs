//! `./starling trace threads` in the guest: a program of ours whose events are known by construction, Debian's Python, and a level that is changed while a program runs.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::disks::{said, successful, text};

/// What is promised.
pub(crate) const NAME: &str = "traces of threads count what programs do with their objects";

const CPUS: [&str; 2] = ["1", "4"];
const EXAMPLES: [&str; 2] = ["counts", "floods"];

/// The columns of some objects' rows in the statistics, and of functions'.
const ROWS: [(&str, &[&str]); 12] = [
    ("contended", &["2", "1", "1"]),
    ("recursive", &["3", "0", "0"]),
    ("of_child", &["7", "0", "0"]),
    ("condition", &["2", "1", "1", "1"]),
    ("never", &["1", "0", "0", "0"]),
    ("barrier", &["15", "5"]),
    ("semaphore", &["3", "1", "1", "1"]),
    ("rwlock", &["3", "1", "0", "1"]),
    ("spin", &["10", "0", "0"]),
    ("/counts-of-threads", &["4", "4"]),
    ("pthread_create", &["8", "0"]),
    ("fork", &["1", "0"]),
];

/// Python's locks are semaphores: each is taken and given 400 times by four threads.
const PYTHON: &str = "
import threading
lock = threading.Lock()
def work():
    for i in range(100):
        with lock: pass
threads = [threading.Thread(target=work) for i in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
";
const PYTHON_THREADS: u64 = 4;
const PYTHON_LOCKS_MIN: u64 = 400;

fn trace(words: &[&str]) -> Command {
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../starling"));
    command.args(["trace", "threads"]).args(words);
    command
}

fn record(file: &str, cpus: &str, options: &[&str], command: &[&str]) -> Result<Output, String> {
    let mut starling =
        trace(&["-o", file, "--root", "/", "--memory", "1G", "--cpus", cpus, "--timeout", "280"]);
    starling.args(options).arg("--").args(command).output().map_err(text)
}

fn report(words: &[&str]) -> Result<String, String> {
    let output = trace(words).output().map_err(text)?;
    if output.status.success() { String::from_utf8(output.stdout).map_err(text) } else { Err(said(&output)) }
}

/// The words of the row whose last one is the name.
fn row<'a>(statistics: &'a str, name: &str) -> Result<Vec<&'a str>, String> {
    let mut rows = statistics.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.find(|row| row.last() == Some(&name)).ok_or_else(|| format!("no {name} in\n{statistics}"))
}

/// Records on one processor and on several.
pub(crate) fn check() -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(text)?;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../user/threads/examples");
    let place = |name: &str| folder.path().join(name).display().to_string();
    for example in EXAMPLES {
        let source = sources.join(example).with_extension("c");
        successful("cc", &["-O1", "-std=gnu11", "-pthread", "-o", &place(example)], &source)?;
    }
    for cpus in CPUS {
        counts(&place, cpus).map_err(|what| format!("{cpus} processors: {what}"))?;
    }
    python(&place)?;
    level(&place)
}

fn counts(place: &impl Fn(&str) -> String, cpus: &str) -> Result<(), String> {
    let (file, names) = (place("trace"), place("names"));
    let output = record(&file, cpus, &[], &[&place("counts")])?;
    if output.status.code() != Some(5) {
        return Err(said(&output));
    }
    fs::write(&names, &output.stdout).map_err(text)?;
    let statistics = report(&["stat", "--aliases", &names, &file])?;
    for (name, columns) in ROWS {
        let row = row(&statistics, name)?;
        // Objects have their process first.
        let found =
            if name.contains('_') && !name.contains("of_") || name == "fork" { &row[..] } else { &row[1..] };
        if !found.starts_with(columns) {
            return Err(format!("{name}: {row:?}, not {columns:?}"));
        }
    }
    if statistics.contains("never finished") || !statistics.contains("exit 5") {
        return Err(statistics);
    }
    Ok(())
}

fn python(place: &impl Fn(&str) -> String) -> Result<(), String> {
    let file = place("trace");
    let output = record(&file, "2", &["--level", "THREAD_ALL,SEM_ALL"], &["python3", "-c", PYTHON])?;
    if !output.status.success() {
        return Err(said(&output));
    }
    let statistics = report(&["stat", &file])?;
    let calls = |name: &str| row(&statistics, name)?[0].parse::<u64>().map_err(text);
    if calls("pthread_create")? != PYTHON_THREADS || calls("sem_post")? < PYTHON_LOCKS_MIN {
        return Err(statistics);
    }
    Ok(())
}

/// Of two runs of a program that begins untraced the second is traced.
fn level(place: &impl Fn(&str) -> String) -> Result<(), String> {
    let (file, program) = (place("trace"), place("floods"));
    let script = format!("{program} 2 50; /starling-threads/record level MUTEX_ALL; {program} 2 30");
    let output = record(&file, "2", &["--level", "NONE"], &["sh", "-c", &script])?;
    if !output.status.success() {
        return Err(said(&output));
    }
    let view = report(&["view", "--raw", "--event", "MUTEX_TAKEN", &file])?;
    let taken = view.lines().count();
    if taken == 60 { Ok(()) } else { Err(format!("{taken} records of mutexes, not 60")) }
}
