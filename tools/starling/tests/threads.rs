//! `starling trace threads --host`: traces of programs whose events are known by construction, on this machine. The same in the guest is a case of
//! `tests/command`.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const STATUS_OURS: i32 = 125;

/// A directory with one of the examples.
struct Place {
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Place {
    fn with(example: &str) -> Self {
        Self::compiled(example, &[])
    }

    fn compiled(example: &str, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("there is room");
        let program = folder.path().join(example);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../user/threads/examples").join(example);
        let mut compiler = Command::new("cc");
        compiler.args(["-O1", "-std=gnu11", "-pthread"]).args(options);
        compiler.arg("-o").arg(&program).arg(source.with_extension("c"));
        assert!(compiler.status().expect("there is a compiler").success());
        Self { folder, program }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Records the example with these words, into the file `trace`.
    fn record(&self, options: &[&str], words: &[&str]) -> Output {
        let mut starling = starling();
        starling.args(["--host", "-o"]).arg(self.file("trace")).args(options);
        starling.arg("--").arg(&self.program).args(words).output().expect("it runs")
    }

    /// What a report on the trace prints.
    fn report(&self, words: &[&str]) -> String {
        let (what, options) = words.split_first().expect("there is one");
        let output = starling().arg(what).arg(self.file("trace")).args(options).output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("it is text")
    }

    /// A number of the statistics for programs.
    fn number(&self, name: &str) -> u64 {
        let statistics: serde_json::Value =
            serde_json::from_str(&self.report(&["stat", "--json"])).expect("it is JSON");
        statistics[name].as_u64().expect("it is a number")
    }
}

fn starling() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_starling"));
    command.args(["trace", "threads"]);
    command
}

fn event_names(view: &str) -> Vec<&str> {
    view.lines().filter_map(|line| line.split(' ').next()?.split(':').nth(1)).collect()
}

#[test]
fn the_papers_barrier_has_its_events_in_their_order_and_a_drawing() {
    let place = Place::with("barrier");
    assert_eq!(place.record(&[], &[]).status.code(), Some(3));
    let view = place.report(&["view", "--raw"]);
    let names = event_names(&view);
    let begin = names.iter().position(|name| *name == "START_USER_FUNC").expect("it is there");
    assert_eq!(names[begin + 1..begin + 4], ["BARRIER_INIT_IN", "BARRIER_INIT", "BARRIER_INIT_OUT"]);
    assert!(place.report(&["view"]).contains("leaves function pthread_barrier_init."));
    let drawing = place.report(&["paje"]);
    let count = |event: &str| drawing.lines().filter(|line| line.starts_with(event)).count();
    // Creation, the barrier and the join; each arrow has two ends.
    assert_eq!((count("7 "), count("8 ")), (3, 3), "{drawing}");
    let chrome: serde_json::Value = serde_json::from_str(&place.report(&["chrome"])).expect("it is JSON");
    assert!(chrome["traceEvents"].as_array().is_some_and(|events| events.len() > 6));
}

#[test]
fn every_use_of_every_kind_of_object_is_counted() {
    let place = Place::with("counts");
    let output = place.record(&[], &[]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    fs::write(place.file("names"), &output.stdout).expect("there is room");
    let names = place.file("names").display().to_string();
    let statistics = place.report(&["stat", "--aliases", &names]);
    let row = |name: &str, columns: usize| -> Vec<u64> {
        let line = statistics.lines().find(|line| line.split_whitespace().last() == Some(name));
        let line = line.unwrap_or_else(|| panic!("{name} is not in\n{statistics}"));
        line.split_whitespace().skip(1).take(columns).map(|word| word.parse().expect("a number")).collect()
    };
    assert_eq!(row("contended", 3), [2, 1, 1]);
    assert_eq!(row("recursive", 3), [3, 0, 0]);
    assert_eq!(row("of_child", 3), [7, 0, 0]);
    assert_eq!(row("guard", 1), [4]);
    assert_eq!(row("condition", 4), [2, 1, 1, 1]);
    assert_eq!(row("never", 4), [1, 0, 0, 0]);
    assert_eq!(row("barrier", 2), [15, 5]);
    assert_eq!(row("semaphore", 4), [3, 1, 1, 1]);
    assert_eq!(row("rwlock", 4), [3, 1, 0, 1]);
    assert_eq!(row("spin", 3), [10, 0, 0]);
    let function = |name: &str| {
        let line = statistics
            .lines()
            .find(|line| line.split_whitespace().last() == Some(name))
            .expect("it was called");
        line.split_whitespace().next().map(str::to_owned)
    };
    assert_eq!(function("pthread_create").as_deref(), Some("8"));
    assert_eq!(function("pthread_setspecific").as_deref(), Some("3"));
    let ends = |word: &str| {
        statistics.lines().filter(|line| line.split_whitespace().rev().nth(1) == Some(word)).count()
    };
    assert_eq!((ends("joined"), ends("cancelled"), ends("detached")), (6, 1, 1), "{statistics}");
    // The mutex was held for 20 ms while it was waited for.
    let line =
        statistics.lines().find(|line| line.ends_with(" contended")).filter(|line| !line.contains("taken"));
    let waiting: f64 = line.and_then(|line| line.split_whitespace().nth(4)?.parse().ok()).expect("a time");
    assert!(waiting >= 20.0, "{waiting} ms");
    assert_eq!(place.number("skipped_bytes") + place.number("lost_bytes"), 0);
}

#[test]
fn parent_and_child_are_told_apart() {
    let place = Place::with("counts");
    place.record(&[], &[]);
    let view = place.report(&["view", "--raw", "--event", "PROCESS_INIT"]);
    let pids: Vec<_> = view.lines().filter_map(|line| line.split(" : ").nth(1)).collect();
    let [parent, child] = pids[..] else { panic!("{view}") };
    let of_child = place.report(&["view", "--raw", "--pid", child]);
    assert_eq!(event_names(&of_child).iter().filter(|name| **name == "MUTEX_TAKEN").count(), 7);
    assert!(of_child.lines().all(|line| line.split(" : ").nth(1) == Some(child)));
    let forks = place.report(&["view", "--raw", "--pid", parent, "--event", "PROCESS_FORK_OUT"]);
    assert!(forks.trim_end().ends_with(&format!(" : {child}")), "{forks}");
}

#[test]
fn levels_choose_what_is_recorded() {
    let place = Place::with("counts");
    place.record(&["--level", "MUTEX_IO"], &[]);
    let view = place.report(&["view", "--raw"]);
    let others = |name: &&&str| {
        !name.starts_with("MUTEX_")
            && !matches!(**name, "PROCESS_INIT" | "PROCESS_EXIT" | "PROCESS_ENDED" | "CLOCK")
    };
    let names = event_names(&view);
    assert_eq!(names.iter().find(others), None);
    assert!(names.contains(&"MUTEX_LOCK_IN") && !names.contains(&"MUTEX_TAKEN"));
    place.record(&["--level", "NONE"], &[]);
    let view = place.report(&["view", "--raw"]);
    assert!(event_names(&view).iter().all(|name| matches!(*name, "CLOCK" | "PROCESS_ENDED")), "{view}");
    let refused = place.record(&["--level", "MUTEXES"], &[]);
    assert_eq!(refused.status.code(), Some(STATUS_OURS));
}

#[test]
fn a_small_buffer_loses_nothing() {
    let place = Place::with("floods");
    let output = place.record(&["--buffer", "4k"], &["4", "2000"]);
    assert!(output.status.success(), "{output:?}");
    let view = place.report(&["view", "--raw", "--event", "MUTEX_TAKEN"]);
    assert_eq!(view.lines().count(), 4 * 2000);
    assert_eq!(place.number("skipped_bytes") + place.number("lost_bytes"), 0);
}

#[test]
fn threads_stand_still_while_the_file_takes_nothing_and_are_stopped_in_the_end() {
    let place = Place::with("floods");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place.file("trace"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .expect("there is room");
    // A reader that never reads.
    let reader = fs::OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(place.file("trace"));
    let output = place.record(&["--buffer", "64k", "--patience", "500"], &["8", "0"]);
    assert_eq!(output.status.code(), Some(STATUS_OURS));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("threads stand still") && said.contains("is lost"), "{said}");
    drop(reader);
}

#[test]
fn a_program_that_is_killed_or_crashes_leaves_all_that_it_had_told() {
    let place = Place::with("floods");
    for (end, status) in [("kill", 128 + 9), ("crash", 128 + 11)] {
        let output = place.record(&["--limit", "4m"], &["3", "0", end]);
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        let view = place.report(&["view", "--raw", "--event", "START_USER_FUNC"]);
        assert_eq!(view.lines().count(), 4);
        let statistics = place.report(&["stat"]);
        assert!(statistics.contains(&format!("signal {}", status - 128)), "{statistics}");
    }
}

#[test]
fn a_program_that_is_linked_statically_runs_and_is_said_not_to_be_recorded() {
    const MESSAGE: &str = "nothing was recorded";
    let place = Place::compiled("barrier", &["-static"]);
    let output = place.record(&[], &[]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains(MESSAGE), "{output:?}");
    assert!(!place.report(&["view", "--raw"]).contains("START_USER_FUNC"));
    let output = Place::with("barrier").record(&[], &[]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains(MESSAGE), "{output:?}");
    // What can't be executed is another matter.
    let place = Place::with("barrier");
    fs::remove_file(&place.program).expect("it is there");
    let output = place.record(&[], &[]);
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    assert!(!String::from_utf8_lossy(&output.stderr).contains(MESSAGE), "{output:?}");
}

#[test]
fn cancellation_at_any_time_leaves_whole_records_only() {
    let place = Place::with("cancels");
    let output = place.record(&[], &["30"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(place.number("skipped_bytes") + place.number("lost_bytes"), 0);
    let dead = place.report(&["view", "--raw", "--event", "THREAD_STATE_DEAD"]);
    assert_eq!(dead.lines().count(), 30);
}

#[test]
fn of_a_long_trace_the_last_part_can_be_kept() {
    let place = Place::with("floods");
    place.record(&["--last", "200k"], &["2", "20000"]);
    let size = fs::metadata(place.file("trace")).expect("it is there").len();
    assert!((60_000..=210_000).contains(&size), "{size}");
    let view = place.report(&["view", "--raw"]);
    // What is at the end is there, what was at the beginning is not.
    let names = event_names(&view);
    assert!(names.contains(&"PROCESS_ENDED") && !names.contains(&"PROCESS_INIT"));
    assert!(!place.file("trace.before").exists());
    place.report(&["stat"]);
}

#[test]
fn a_file_that_is_cut_off_is_read_up_to_there() {
    let place = Place::with("counts");
    place.record(&[], &[]);
    let whole = fs::read(place.file("trace")).expect("it is there");
    let records = place.number("records");
    fs::write(place.file("trace"), &whole[..whole.len() - 70]).expect("there is room");
    let left = place.number("records");
    assert!(left < records && left + 4 >= records, "{left} of {records}");
    fs::write(place.file("trace"), &whole[..100]).expect("there is room");
    let output = starling().arg("view").arg(place.file("trace")).output().expect("it runs");
    assert_eq!(output.status.code(), Some(STATUS_OURS));
}
