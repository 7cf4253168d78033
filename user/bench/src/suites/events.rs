//! `calls`, second part: waiting for events, and messages between processes and threads.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::{EventfdFlags, PollFd, PollFlags, epoll, eventfd, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::Pid;
use rustix::thread::futex;

use bench::measure::Suite;
use bench::process::{fork, wait};

const SUITE: Suite = Suite::new("calls");
/// Numbers of descriptors that are waited for.
const DESCRIPTORS: [usize; 2] = [10, 500];
/// Bytes of one transfer in the tests of bandwidth.
const BLOCK: usize = 64 << 10;

/// Runs the suite.
pub(crate) fn run() {
    for count in DESCRIPTORS {
        SUITE.group(["select", "poll", "epoll"].map(|call| format!("{call}_{count}")), || waiting_for(count));
    }
    SUITE.single("eventfd_write_read", event_counter);
    SUITE.single("futex_wake_wait_pair", futex_pair);
    SUITE.single("pipe_latency", || latency("pipe_latency", [rustix::pipe::pipe()?, rustix::pipe::pipe()?]));
    SUITE.single("pipe_bandwidth_64k", || bandwidth("pipe_bandwidth_64k", rustix::pipe::pipe()?));
    SUITE.single("unix_latency", || latency("unix_latency", [two_sockets()?, two_sockets()?]));
    SUITE.single("unix_bandwidth_64k", || bandwidth("unix_bandwidth_64k", two_sockets()?));
}

fn two_sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None)?)
}

/// `select`, `poll` and `epoll_wait` on many pipes, of which the last one is readable.
fn waiting_for(count: usize) -> io::Result<()> {
    let pipes: Vec<_> = (0..count).map(|_| rustix::pipe::pipe()).collect::<Result<_, _>>()?;
    if let Some((_, writer)) = pipes.last() {
        rustix::io::write(writer, b"x")?;
    }
    select_among(count, &pipes);
    let mut entries: Vec<_> = pipes.iter().map(|(reader, _)| PollFd::new(reader, PollFlags::IN)).collect();
    SUITE.time(format_args!("poll_{count}"), |repetitions| {
        for _ in 0..repetitions {
            assert_eq!(poll(&mut entries, None), Ok(1));
        }
    });
    let instance = epoll::create(epoll::CreateFlags::empty())?;
    for (reader, _) in &pipes {
        epoll::add(&instance, reader, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
    }
    let mut events = Vec::with_capacity(8);
    SUITE.time(format_args!("epoll_{count}"), |repetitions| {
        for _ in 0..repetitions {
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            assert_eq!(epoll::wait(&instance, room, None), Ok(1));
        }
    });
    Ok(())
}

fn select_among(count: usize, pipes: &[(OwnedFd, OwnedFd)]) {
    let descriptors: Vec<RawFd> = pipes.iter().map(|(reader, _)| reader.as_raw_fd()).collect();
    let highest = descriptors.iter().copied().max().unwrap_or(0);
    if usize::try_from(highest).is_ok_and(|highest| highest >= libc::FD_SETSIZE) {
        SUITE.unsupported(format_args!("select_{count}"), "descriptors beyond the set's size");
        return;
    }
    // SAFETY: all-zero is the empty set of descriptors.
    let mut all: libc::fd_set = unsafe { std::mem::zeroed() };
    for descriptor in descriptors {
        // SAFETY: the descriptor is below FD_SETSIZE, as was just checked, and the set is ours.
        unsafe { libc::FD_SET(descriptor, &raw mut all) };
    }
    SUITE.time(format_args!("select_{count}"), |repetitions| {
        for _ in 0..repetitions {
            let mut set = all;
            let none = std::ptr::null_mut();
            // SAFETY: the set is a local copy that outlives the call, and the other pointers may be null.
            let ready = unsafe { libc::select(highest + 1, &raw mut set, none, none, none.cast()) };
            assert_eq!(ready, 1, "one pipe is readable");
        }
    });
}

fn event_counter() -> io::Result<()> {
    let counter = eventfd(0, EventfdFlags::empty())?;
    let mut value = [0; 8];
    SUITE.time("eventfd_write_read", |count| {
        for _ in 0..count {
            assert_eq!(rustix::io::write(&counter, &1_u64.to_ne_bytes()), Ok(8));
            assert_eq!(rustix::io::read(&counter, &mut value), Ok(8));
        }
    });
    Ok(())
}

/// Two threads wake each other in turns; the time is that of a turn there and back.
fn futex_pair() -> io::Result<()> {
    SUITE.time("futex_wake_wait_pair", |count| {
        let turn = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| (0..count).for_each(|_| pass(&turn, 1, 0)));
            (0..count).for_each(|_| pass_first(&turn));
        });
    });
    Ok(())
}

/// Waits until it is `own` turn and gives it to `next`.
fn pass(turn: &AtomicU32, own: u32, next: u32) {
    let flags = futex::Flags::PRIVATE;
    loop {
        let now = turn.load(Ordering::Acquire);
        if now == own {
            break;
        }
        // A wake-up or another value: both are looked at in the next round.
        let _ = futex::wait(turn, flags, now, None);
    }
    turn.store(next, Ordering::Release);
    futex::wake(turn, flags, 1).expect("the futex is valid");
}

/// Gives the turn to the other thread and waits until it is back.
fn pass_first(turn: &AtomicU32) {
    let flags = futex::Flags::PRIVATE;
    turn.store(1, Ordering::Release);
    futex::wake(turn, flags, 1).expect("the futex is valid");
    while turn.load(Ordering::Acquire) != 0 {
        let _ = futex::wait(turn, flags, 1, None);
    }
}

/// A byte goes to another process and comes back: lmbench's `lat_pipe` and `lat_unix`.
fn latency(
    test: &str,
    [(there_out, there_in), (back_out, back_in)]: [(OwnedFd, OwnedFd); 2],
) -> io::Result<()> {
    let child = fork(|| echo(&there_out, &back_in))?;
    // Without these, a child that ends too soon is an error here, instead of a wait without end.
    drop((there_out, back_in));
    let mut byte = [0];
    SUITE.time(test, |count| {
        for _ in 0..count {
            assert_eq!(rustix::io::write(&there_in, b"x"), Ok(1));
            assert_eq!(rustix::io::read(&back_out, &mut byte), Ok(1));
        }
    });
    finish(child, &there_in)
}

/// Sends every byte back until a zero byte comes.
fn echo(input: &OwnedFd, output: &OwnedFd) {
    let mut byte = [0];
    while rustix::io::read(input, &mut byte) == Ok(1) && byte != [0] {
        rustix::io::write(output, &byte).expect("the parent reads");
    }
}

fn finish(child: Pid, input: &OwnedFd) -> io::Result<()> {
    rustix::io::write(input, &[0])?;
    wait(child)
}

/// Blocks go to another process: the time of one block, when the other one has it.
fn bandwidth(test: &str, (output, input): (OwnedFd, OwnedFd)) -> io::Result<()> {
    let (done_out, done_in) = rustix::pipe::pipe()?;
    let child = fork(|| swallow(&output, &done_in))?;
    drop((output, done_in));
    let mut block = vec![1; BLOCK];
    let mut byte = [0];
    SUITE.time(test, |count| {
        for number in 0..count {
            // The last block of a sample asks for an answer, so that the sample ends when all has arrived.
            block[0] = if number + 1 == count { 2 } else { 1 };
            write_all(&input, &block);
        }
        assert_eq!(rustix::io::read(&done_out, &mut byte), Ok(1));
    });
    block[0] = 0;
    write_all(&input, &block);
    wait(child)
}

fn write_all(output: &OwnedFd, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let count = rustix::io::write(output, bytes).expect("the child reads");
        bytes = &bytes[count..];
    }
}

/// Takes blocks until one starts with 0, and answers those that start with 2.
fn swallow(output: &OwnedFd, done: &OwnedFd) {
    let mut block = vec![0; BLOCK];
    loop {
        let mut filled = 0;
        while filled < BLOCK {
            match rustix::io::read(output, &mut block[filled..]) {
                Ok(count) if count > 0 => filled += count,
                end => panic!("the parent is gone: {end:?}"),
            }
        }
        match block[0] {
            0 => return,
            2 => assert_eq!(rustix::io::write(done, b"x"), Ok(1)),
            _ => {}
        }
    }
}
