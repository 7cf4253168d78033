//! `starling run` against a stand-in for QEMU: streams, exit statuses, signals, credit and time limits.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// `starling run` with the stand-in as QEMU, an image that needs no BusyBox, and a kernel that is not looked at.
fn starling(options: &[&str], command: &[&str]) -> Command {
    let image = concat!(env!("CARGO_MANIFEST_DIR"), "/stand-in");
    let kernel = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let mut starling = Command::new(env!("CARGO_BIN_EXE_starling"));
    starling.env("STARLING_QEMU", env!("CARGO_BIN_EXE_stand-in-qemu"));
    starling
        .args(["run", "--accel", "tcg", "--kernel", kernel])
        .args(options)
        .arg(image)
        .arg("--")
        .args(command);
    starling.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    starling
}

fn run(options: &[&str], command: &[&str]) -> Output {
    starling(options, command).output().expect("starling starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

fn signal(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(pid, signal).expect("the child is there");
}

/// The rest of what a child writes, and its status.
fn finish(mut child: Child, mut reader: impl Read) -> (String, ExitStatus) {
    let mut rest = String::new();
    reader.read_to_string(&mut rest).expect("text");
    (rest, child.wait().expect("the child ends"))
}

#[test]
fn exit_status_is_the_commands() {
    for status in [0, 1, 42, 124, 255] {
        let output = run(&[], &["exit", &status.to_string()]);
        assert_eq!(output.status.code(), Some(status));
        assert_eq!((text(&output.stdout), text(&output.stderr)), ("", ""));
    }
}

#[test]
fn death_by_signal_is_128_and_its_number() {
    assert_eq!(run(&[], &["kill", "9"]).status.code(), Some(137));
    assert_eq!(run(&[], &["kill", "11"]).status.code(), Some(139));
}

#[test]
fn command_that_does_not_start_has_a_status_that_says_why() {
    for (errno, message, status, line) in [
        ("2", "/bin/x: not found", 127, "starling: /bin/x: not found\n"),
        ("13", "/etc", 126, "starling: /etc: Permission denied\n"),
        ("8", "", 126, "starling: fail: Exec format error\n"),
        (
            "2",
            "workdir /x: No such file or directory",
            125,
            "starling: workdir /x: No such file or directory\n",
        ),
        ("20", "workdir /etc/passwd", 125, "starling: workdir /etc/passwd: Not a directory\n"),
    ] {
        let output = run(&[], &["fail", errno, message]);
        assert_eq!(output.status.code(), Some(status), "{message}");
        assert_eq!(text(&output.stderr), line);
    }
}

#[test]
fn streams_are_separate_and_whole() {
    let output = run(&[], &["print", "out\n\u{e4}", "err", "20000"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout), "out\n\u{e4}".repeat(20_000));
    assert_eq!(text(&output.stderr), "err".repeat(20_000));
}

/// What a command prints that is given these bytes and ends well.
fn given(command: &[&str], bytes: &[u8]) -> Vec<u8> {
    let mut child = starling(&[], command).stdin(Stdio::piped()).spawn().expect("starling starts");
    let mut input = child.stdin.take().expect("piped");
    let sent = bytes.to_vec();
    let writer = std::thread::spawn(move || input.write_all(&sent).expect("taken"));
    let output = child.wait_with_output().expect("ends");
    writer.join().expect("all was taken");
    assert_eq!(output.status.code(), Some(0));
    output.stdout
}

#[test]
fn input_arrives_whole_within_its_credit() {
    let bytes: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let output = given(&["cat"], &bytes);
    assert!(output == bytes, "what goes in comes out");
}

#[test]
fn link_moves_without_losing_or_swapping_frames() {
    let bytes: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    let output = given(&["move"], &bytes);
    let expected = [&b"one\ntwo\nthree\n"[..], &bytes].concat();
    assert!(output == expected, "the first stream, then the second");
}

#[test]
fn panic_is_heard_after_the_link_has_moved() {
    let output = run(&[], &["move", "panic"]);
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(text(&output.stdout), "one\ntwo\nthree\n");
    assert!(text(&output.stderr).contains("all is lost"));
}

#[test]
fn signals_follow_the_link_back_and_what_was_lost_is_sent_again() {
    let mut child = starling(&[], &["move", "back"]).spawn().expect("starling starts");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    while line != "ready\n" {
        line.clear();
        assert_ne!(output.read_line(&mut line).expect("the link has moved"), 0);
    }
    // The stand-in loses its second stream with it.
    signal(&child, Signal::USR1);
    for expected in ["ready\n", "signal 10\n"] {
        line.clear();
        output.read_line(&mut line).expect("told");
        assert_eq!(line, expected);
    }
    signal(&child, Signal::TERM);
    let (rest, status) = finish(child, output);
    assert_eq!((rest.as_str(), status.code()), ("signal 15\n", Some(128 + 15)));
}

#[test]
fn link_that_may_not_move_is_our_fault() {
    let output = run(&["--link", "serial"], &["move"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).ends_with("starling: the guest has moved the host link to nowhere\n"));
}

#[test]
fn no_more_than_the_credit_is_sent() {
    let mut child = starling(&[], &["greedy"]).stdin(Stdio::piped()).spawn().expect("starling starts");
    let mut input = child.stdin.take().expect("piped");
    // Ends when starling does, because the pipe is never taken to its end.
    let writer = std::thread::spawn(move || input.write_all(&[0; 1 << 20]).is_err());
    let mut errors = BufReader::new(child.stderr.take().expect("piped"));
    errors.read_line(&mut String::new()).expect("all credit is used");
    signal(&child, Signal::USR1);
    let output = child.stdout.take().expect("piped");
    let (rest, status) = finish(child, output);
    assert_eq!((rest.as_str(), status.code()), ("16384\n", Some(0)));
    assert!(writer.join().expect("ends"), "the rest was not taken");
}

#[test]
fn signals_reach_the_command() {
    let mut child = starling(&[], &["signals"]).spawn().expect("starling starts");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("ready");
    for (number, one) in [(1, Signal::HUP), (2, Signal::INT), (10, Signal::USR1)] {
        signal(&child, one);
        line.clear();
        output.read_line(&mut line).expect("told");
        assert_eq!(line, format!("signal {number}\n"));
    }
    // The third signal that asks for an end would end the session, so the child's own end comes with it.
    signal(&child, Signal::TERM);
    let (_, status) = finish(child, output);
    assert_eq!(status.code(), Some(128 + 15));
}

#[test]
fn third_request_ends_a_deaf_command() {
    let mut child = starling(&[], &["deaf"]).spawn().expect("starling starts");
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("ready");
    for _ in 0..2 {
        signal(&child, Signal::INT);
        output.read_line(&mut line).expect("told");
    }
    signal(&child, Signal::INT);
    let (_, status) = finish(child, output);
    assert_eq!(status.code(), Some(130));
}

#[test]
fn signal_ends_a_guest_that_is_still_booting() {
    let mut child = starling(&["--verbose"], &["silent"]).spawn().expect("starling starts");
    let mut errors = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    errors.read_line(&mut line).expect("the kernel has started");
    assert_eq!(line, "the kernel log\n");
    signal(&child, Signal::TERM);
    let (_, status) = finish(child, errors);
    assert_eq!(status.code(), Some(143));
}

#[test]
fn timeout_has_a_status_of_its_own() {
    for command in ["silent", "deaf"] {
        let output = run(&["--timeout", "0.3"], &[command]);
        assert_eq!(output.status.code(), Some(124));
        assert_eq!(text(&output.stderr), "starling: timed out after 0.3 s\n");
    }
}

#[test]
fn timeout_ends_a_session_whose_output_nobody_takes() {
    let child = starling(&["--timeout", "0.5"], &["yes"]).spawn().expect("starling starts");
    let mut child = child;
    // The pipe stays open and unread.
    assert_eq!(child.wait().expect("ends").code(), Some(124));
}

#[test]
fn command_learns_that_nobody_reads() {
    let mut child = starling(&[], &["yes"]).spawn().expect("starling starts");
    let mut output = child.stdout.take().expect("piped");
    output.read_exact(&mut [0; 100]).expect("some output");
    drop(output);
    assert_eq!(child.wait().expect("ends").code(), Some(128 + 13));
}

#[test]
fn kernel_log_is_shown_when_asked_for_or_when_there_is_a_bug() {
    assert_eq!(text(&run(&[], &["exit", "0"]).stderr), "");
    assert_eq!(text(&run(&["--verbose"], &["exit", "0"]).stderr), "the kernel log\n");
    let output = run(&[], &["bug"]);
    assert_eq!(output.status.code(), Some(0), "the kernel lives on");
    assert!(text(&output.stderr).contains("the kernel log\n"));
    assert!(text(&output.stderr).contains("BUG: something is wrong\n"));
    assert!(text(&output.stderr).contains("starling: the kernel reports a bug: something is wrong\n"));
}

#[test]
fn panic_is_our_fault() {
    let output = run(&[], &["panic"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("kernel panic: all is lost\n"));
    assert!(text(&output.stderr).ends_with("starling: the kernel panicked\n"));
}

#[test]
fn guest_that_goes_wrong_is_our_fault() {
    let output = run(&[], &["babble"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("broke the host link protocol: unknown frame kind 0x55"));
    let output = run(&[], &["die"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).ends_with("starling: qemu-system-x86_64: no such thing\n"));
}

#[test]
fn request_says_what_the_options_say() {
    let options =
        ["--env", "A=1", "--env", "A=2", "--env", "FROM_HOST", "--workdir", "/tmp", "--user", "7:8"];
    let output =
        starling(&options, &["request", "two words", ""]).env("FROM_HOST", "yes").output().expect("runs");
    let lines: Vec<_> = text(&output.stdout).lines().collect();
    for line in
        ["arg=request", "arg=two words", "arg=", "env=A=2", "env=FROM_HOST=yes", "env=HOME=/", "workdir=/tmp"]
    {
        assert!(lines.contains(&line), "{line} is in {lines:?}");
    }
    assert!(lines.contains(&"user=7:8") && lines.contains(&"tty=0") && lines.contains(&"hostname=starling"));
    assert!(!lines.contains(&"env=A=1"));
}

#[test]
fn boot_trace_is_a_table_on_standard_error() {
    let output = run(&["--boot-trace"], &["trace"]);
    assert_eq!(text(&output.stdout), "");
    let names: Vec<_> =
        text(&output.stderr).lines().map(|line| line.split("  ").next().unwrap_or("")).collect();
    assert_eq!(names, ["boot trace", "QEMU and firmware", "memory", "first user instruction"]);
}

#[test]
fn bad_usage_is_one_line_and_125() {
    for options in [
        &["--cpus", "0"][..],
        &["--cpus", "65"],
        &["--memory", "1M"],
        &["--memory", "lots"],
        &["--machine", "pdp11"],
        &["--timeout", "-1"],
        &["--workdir", "relative"],
        &["--env", "=x"],
        &["--no-such-option"],
        &["--user", "nobody-knows"],
        &["-it"],
        &["second-image"],
    ] {
        let output = run(options, &["exit", "0"]);
        assert_eq!(output.status.code(), Some(125), "{options:?}");
        assert_eq!(text(&output.stderr).lines().count(), 1, "{options:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).starts_with("starling: "), "{options:?}: {}", text(&output.stderr));
    }
}

#[test]
fn missing_qemu_is_one_line() {
    let output = starling(&[], &["exit", "0"]).env("STARLING_QEMU", "/nonexistent").output().expect("runs");
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(text(&output.stderr).lines().count(), 1, "{}", text(&output.stderr));
}
