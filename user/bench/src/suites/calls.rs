//! `calls`: what single system calls cost.

use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io;
use std::os::unix::fs::FileExt;

use bench::measure::Suite;
use bench::signal;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, SeekFrom};
use rustix::time::ClockId;

const SUITE: Suite = Suite::new("calls");
/// Bytes of a page.
const PAGE: usize = 4096;

/// Runs the suite.
pub(crate) fn run() {
    trivial();
    SUITE.group(["read_zero_1", "write_null_1"], devices);
    SUITE.group(["stat", "open_close", "fstat", "pread_4k", "lseek"], paths);
    SUITE.group(["dup_close", "fcntl"], descriptors);
    SUITE.group(["sigaction", "signal_delivery"], signals);
    clocks();
}

fn repeat(count: u64, mut body: impl FnMut()) {
    for _ in 0..count {
        body();
    }
}

fn trivial() {
    SUITE.time("getppid", |count| {
        repeat(count, || {
            black_box(rustix::process::getppid());
        });
    });
    SUITE.time("sched_yield", |count| repeat(count, rustix::thread::sched_yield));
}

fn devices() -> io::Result<()> {
    let zero = File::open("/dev/zero")?;
    let null = OpenOptions::new().write(true).open("/dev/null")?;
    let mut byte = [0];
    SUITE.time("read_zero_1", |count| {
        repeat(count, || assert_eq!(rustix::io::read(&zero, &mut byte), Ok(1)));
    });
    SUITE.time("write_null_1", |count| {
        repeat(count, || assert_eq!(rustix::io::write(&null, b"x"), Ok(1)));
    });
    Ok(())
}

fn paths() -> io::Result<()> {
    let path = "/tmp/bench-calls";
    fs::write(path, [1; PAGE])?;
    SUITE.time("stat", |count| {
        repeat(count, || {
            black_box(rustix::fs::statat(CWD, path, AtFlags::empty()).expect("it was just written"));
        });
    });
    SUITE.time("open_close", |count| {
        repeat(count, || {
            drop(rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).expect("it was just written"));
        });
    });
    let file = File::open(path)?;
    SUITE.time("fstat", |count| {
        repeat(count, || {
            black_box(rustix::fs::fstat(&file).expect("it is open"));
        });
    });
    let mut page = [0; PAGE];
    SUITE.time("pread_4k", |count| {
        repeat(count, || assert_eq!(file.read_at(&mut page, 0).ok(), Some(PAGE)));
    });
    SUITE.time("lseek", |count| {
        repeat(count, || assert_eq!(rustix::fs::seek(&file, SeekFrom::Start(1)), Ok(1)));
    });
    fs::remove_file(path)
}

fn descriptors() -> io::Result<()> {
    let file = File::open("/dev/null")?;
    SUITE.time("dup_close", |count| {
        repeat(count, || drop(rustix::io::dup(&file).expect("descriptors are left")));
    });
    SUITE.time("fcntl", |count| {
        repeat(count, || {
            black_box(rustix::fs::fcntl_getfl(&file).expect("it is open"));
        });
    });
    Ok(())
}

fn signals() -> io::Result<()> {
    signal::install()?;
    SUITE.time("sigaction", |count| repeat(count, || signal::install().expect("it worked before")));
    let own = rustix::process::getpid();
    let before = signal::handled();
    let mut sent = 0;
    SUITE.time("signal_delivery", |count| {
        repeat(count, || {
            rustix::process::kill_process(own, rustix::process::Signal::USR1).expect("it is our own process");
        });
        sent += count;
    });
    assert_eq!(signal::handled() - before, sent, "signals were lost");
    Ok(())
}

fn clocks() {
    SUITE.time("clock_gettime", |count| {
        repeat(count, || {
            black_box(rustix::time::clock_gettime(ClockId::Monotonic));
        });
    });
}
