//! Pairs of calls on pipes, sockets, and what waits for events.

use std::io;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};

use super::{Operation, Pair, call};

/// The pairs.
pub(super) const PAIRS: [Pair; 11] = [
    Pair::processes("pipe", |_| pipe()),
    Pair::threads("pipe_threads", |_| pipe()),
    Pair::processes("pipe_make_close", |_| Ok(call(|| drop(rustix::pipe::pipe().expect("room"))))),
    Pair::processes("socketpair", |_| socketpair()),
    Pair::threads("socketpair_threads", |_| socketpair()),
    Pair::processes("poll", |_| poll()),
    Pair::threads("poll_threads", |_| poll()),
    Pair::processes("epoll_wait", |_| epoll_wait()),
    Pair::processes("eventfd", |_| eventfd()),
    Pair::threads("eventfd_threads", |_| eventfd()),
    Pair::processes("timerfd_settime", |_| timerfd()),
];

fn pipe() -> io::Result<Operation> {
    let (output, input) = rustix::pipe::pipe()?;
    let mut byte = [0];
    Ok(call(move || {
        assert_eq!(rustix::io::write(&input, b"x"), Ok(1));
        assert_eq!(rustix::io::read(&output, &mut byte), Ok(1));
    }))
}

fn socketpair() -> io::Result<Operation> {
    let (first, second) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None)?;
    let mut byte = [0];
    Ok(call(move || {
        assert_eq!(rustix::io::write(&first, b"x"), Ok(1));
        assert_eq!(rustix::io::read(&second, &mut byte), Ok(1));
    }))
}

/// No waiting.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

fn poll() -> io::Result<Operation> {
    let (output, input) = rustix::pipe::pipe()?;
    Ok(call(move || {
        let mut both = [PollFd::new(&output, PollFlags::IN), PollFd::new(&input, PollFlags::OUT)];
        assert_eq!(rustix::event::poll(&mut both, Some(&NOW)), Ok(1));
    }))
}

fn epoll_wait() -> io::Result<Operation> {
    let event = rustix::event::eventfd(1, EventfdFlags::empty())?;
    let instance = epoll::create(epoll::CreateFlags::empty())?;
    epoll::add(&instance, &event, epoll::EventData::new_u64(1), epoll::EventFlags::IN)?;
    let mut events = Vec::with_capacity(4);
    Ok(call(move || {
        // The instance holds the file, but not the descriptor.
        let _ = &event;
        let found = epoll::wait(&instance, rustix::buffer::spare_capacity(&mut events), Some(&NOW));
        assert_eq!(found, Ok(1));
        events.clear();
    }))
}

fn eventfd() -> io::Result<Operation> {
    let event = rustix::event::eventfd(0, EventfdFlags::empty())?;
    let mut number = [0; 8];
    Ok(call(move || {
        assert_eq!(rustix::io::write(&event, &1_u64.to_ne_bytes()), Ok(8));
        assert_eq!(rustix::io::read(&event, &mut number), Ok(8));
    }))
}

fn timerfd() -> io::Result<Operation> {
    let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::empty())?;
    let later = Itimerspec { it_interval: NOW, it_value: Timespec { tv_sec: 1000, tv_nsec: 0 } };
    Ok(call(move || {
        _ = rustix::time::timerfd_settime(&timer, TimerfdTimerFlags::empty(), &later).expect("a time");
    }))
}
