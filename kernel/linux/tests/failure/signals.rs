//! Signals that wait, timers, futexes.

use linux_raw_sys::general as abi;

use crate::children::Part;
use crate::machine_under_test::exhaust;
use crate::program::{ARENA, PAGE, Program};

const BLOCK: u64 = 0;
const REAL_TIME: u64 = 40;
const NETLINK: u64 = 16;
const RAW: u64 = 3;

/// Blocks all signals that can be blocked; the address of the mask.
fn block_all(program: &mut Program<'_>) -> u64 {
    let mask = program.words(&[u64::MAX]);
    program.must(abi::__NR_rt_sigprocmask, &[BLOCK, mask, 0, 8]);
    mask
}

#[test]
fn queueing_signals() {
    exhaust("queued signals", 5, |program| {
        let mask = block_all(program);
        let mut queued = 0;
        for number in 0..20_u64 {
            let information = program.words(&[REAL_TIME, 0xffff_ffff, 0, number]);
            program.must(abi::__NR_rt_sigqueueinfo, &[2, REAL_TIME, information]);
            queued += 1;
        }
        program.must(abi::__NR_tgkill, &[2, 2, abi::SIGUSR1.into()]);
        let information = program.room(128);
        let no_time = program.words(&[0, 0]);
        while program.call(abi::__NR_rt_sigtimedwait.into(), &[mask, information, no_time, 8]).is_ok() {
            queued -= 1;
        }
        // An ordinary signal is never lost, and a queued one that was not refused neither.
        assert_eq!(queued, -1);
    });
}

#[test]
fn timers_of_a_process() {
    exhaust("timers", 10, |program| {
        let mask = block_all(program);
        let identity = program.room(8);
        let mut timers = Vec::new();
        for _ in 0..10 {
            let event = program.words(&[7, REAL_TIME, 0, 0, 0, 0, 0, 0]);
            program.must(abi::__NR_timer_create, &[1, event, identity]);
            timers.push(u64::from(program.word(identity)));
        }
        let times = program.words(&[0, 1_000_000, 0, 1_000_000]);
        for &timer in &timers {
            program.must(abi::__NR_timer_settime, &[timer, 0, times, 0]);
        }
        let information = program.room(128);
        for _ in 0..20 {
            program.must(abi::__NR_rt_sigtimedwait, &[mask, information, 0, 8]);
        }
        program.must(abi::__NR_timer_delete, &[timers[3]]);
        let alarm = program.words(&[0, 0, 0, 1000]);
        program.must(abi::__NR_setitimer, &[0, alarm, 0]);
        program.must(abi::__NR_timer_getoverrun, &[timers[0]]);
    });
}

#[test]
fn notices_of_message_queues() {
    const THREAD: u64 = 2 << 32;
    exhaust("notices of message queues", 10, |program| {
        let name = program.text("told");
        let flags = u64::from(abi::O_RDWR | abi::O_CREAT);
        let queue = program.must(abi::__NR_mq_open, &[name, flags, 0o600, 0]);
        let socket = program.must(abi::__NR_socket, &[NETLINK, RAW, 0]);
        let cookie = program.room(32);
        let event = program.words(&[cookie, THREAD | socket, 0, 0, 0, 0, 0, 0]);
        program.must(abi::__NR_mq_notify, &[queue, event]);
        program.must(abi::__NR_mq_timedsend, &[queue, ARENA, 5, 0, 0]);
        let told = program.must(abi::__NR_recvfrom, &[socket, cookie, 32, 0, 0, 0]);
        assert_eq!(told, 32, "what has its place is not lost");
        program.must(abi::__NR_mq_notify, &[queue, event]);
        program.must(abi::__NR_mq_notify, &[queue, 0]);
        program.must(abi::__NR_mq_notify, &[queue, event]);
        program.must(abi::__NR_close, &[socket]);
        program.must(abi::__NR_close, &[queue]);
        program.must(abi::__NR_mq_unlink, &[name]);
    });
}

#[test]
fn waiting_on_futexes() {
    exhaust("futexes", 30, |program| {
        let word = program.words(&[0]);
        let other = program.words(&[0]);
        let flags = u64::from(
            abi::CLONE_VM | abi::CLONE_FS | abi::CLONE_FILES | abi::CLONE_SIGHAND | abi::CLONE_THREAD,
        );
        program.cast(Part::WaitOnFutex, [word, 0, 0]);
        for _ in 0..3 {
            program.must(abi::__NR_clone, &[flags, ARENA + PAGE, 0, 0, 0]);
        }
        let time = program.words(&[0, 1_000_000]);
        program.must(abi::__NR_nanosleep, &[time, 0]);
        let (requeue, wake) = (3, 1);
        let all = i32::MAX as u64;
        let woken = program.must(abi::__NR_futex, &[word, requeue, 1, all, other]);
        assert_eq!(woken, 3, "one woken, two moved");
        assert_eq!(program.must(abi::__NR_futex, &[other, wake, all]), 2);
        program.must(abi::__NR_nanosleep, &[time, 0]);
        let vector: Vec<u64> = (0..50).flat_map(|_| [0, other, 2]).collect();
        let vector = program.words(&vector);
        let deadline = program.words(&[0, 1]);
        let timed_out = program.call(abi::__NR_futex_waitv.into(), &[vector, 50, 0, deadline, 1]);
        assert_eq!(timed_out, Err(linux::errno::Errno::ETIMEDOUT));
    });
}

#[test]
fn locks_with_priority_inheritance() {
    exhaust("locks with priority inheritance", 10, |program| {
        let word = program.words(&[0]);
        let flags = u64::from(
            abi::CLONE_VM | abi::CLONE_FS | abi::CLONE_FILES | abi::CLONE_SIGHAND | abi::CLONE_THREAD,
        );
        program.must(abi::__NR_futex, &[word, abi::FUTEX_LOCK_PI.into()]);
        program.cast(Part::TakeLock, [word, 0, 0]);
        for _ in 0..3 {
            program.must(abi::__NR_clone, &[flags, ARENA + PAGE, 0, 0, 0]);
        }
        let time = program.words(&[0, 1_000_000]);
        program.must(abi::__NR_nanosleep, &[time, 0]);
        // Each of them ends with the lock, which the next one has from it then.
        program.must(abi::__NR_futex, &[word, abi::FUTEX_UNLOCK_PI.into()]);
        program.must(abi::__NR_nanosleep, &[time, 0]);
    });
}

#[test]
fn shared_futexes() {
    exhaust("futexes between processes", 20, |program| {
        let shared = program.must(abi::__NR_mmap, &[0, PAGE, 3, 0x21, u64::MAX, 0]);
        program.put_at(shared, &[0]);
        program.cast(Part::WaitOnFutex, [shared, 0, 0]);
        program.must(abi::__NR_fork, &[]);
        let time = program.words(&[0, 1_000_000]);
        program.must(abi::__NR_nanosleep, &[time, 0]);
        assert_eq!(program.must(abi::__NR_futex, &[shared, 1, 5]), 1);
        program.must(abi::__NR_wait4, &[u64::MAX, 0, 0, 0]);
    });
}

#[test]
fn handlers() {
    exhaust("handlers", 5, |program| {
        let action = program.words(&[0x40_0000, 0x400_0000, 0x40_0000, 0]);
        program.must(abi::__NR_rt_sigaction, &[abi::SIGUSR1.into(), action, 0, 8]);
        program.cast(Part::End, [0; 3]);
        program.must(abi::__NR_fork, &[]);
        program.must(abi::__NR_wait4, &[u64::MAX, 0, 0, 0]);
        let stack = program.words(&[ARENA + PAGE, 0, 2 * PAGE]);
        program.must(abi::__NR_sigaltstack, &[stack, 0]);
    });
}
