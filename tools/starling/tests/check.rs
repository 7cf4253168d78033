//! `starling check` with programs that it starts.

use std::process::{Command, Output};

fn check(words: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_starling")).arg("check").args(words).output();
    let Output { status, stdout, stderr } = output.expect("runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn a_program_and_its_children_run_as_usual_and_are_watched() {
    let script = "echo first; (mkdir /proc/nothing 2> /dev/null; exit 3); echo second $?";
    let (status, out, report) = check(&["--all", "/bin/sh", "-c", script]);
    assert_eq!((status, out.as_str()), (Some(0), "first\nsecond 3\n"), "{report}");
    let calls: Vec<_> = report.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert!(calls.contains(&"wait4"), "the program's own: {report}");
    assert!(calls.contains(&"mkdir"), "its child's: {report}");
    let verdict = report.lines().last().expect("a line");
    assert!(verdict.starts_with("starling check: Starling has all of the "), "{verdict}");
}

#[test]
fn what_starling_lacks_is_named_and_is_the_status() {
    let (status, _, report) = check(&["/usr/bin/perl", "-e", "syscall(321, 0, 0, 0); exit 7"]);
    assert_eq!(status, Some(1), "{report}");
    assert!(report.lines().any(|line| line.trim_start() == "1  call 321"), "{report}");
    assert!(
        report.ends_with("lacks something of 1 call that the program made; the program's exit status is 7\n"),
        "{report}"
    );
}

#[test]
fn what_cannot_be_started_is_told_by_the_status() {
    assert_eq!(check(&["/no/such/program"]).0, Some(127));
    assert_eq!(check(&["/etc/passwd"]).0, Some(126));
}
