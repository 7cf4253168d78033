//! Pipes, epoll, and the other files that have no name.

use linux::errno::Errno;
use linux_raw_sys::general as abi;

use crate::children::Part;
use crate::machine_under_test::exhaust;
use crate::program::{ARENA, PAGE, Program};

/// A pipe's two descriptors.
fn pipe(program: &mut Program<'_>) -> (u64, u64) {
    let pair = program.room(8);
    program.must(abi::__NR_pipe2, &[pair, 0]);
    (program.word(pair).into(), program.word(pair + 4).into())
}

#[test]
fn pipes_and_splices() {
    exhaust("pipes", 15, |program| {
        let (reader, writer) = pipe(program);
        let (second_reader, second_writer) = pipe(program);
        let data = program.bytes(&[7; 64]);
        assert_eq!(program.must(abi::__NR_write, &[writer, ARENA, 5000]), 5000);
        assert_eq!(program.must(abi::__NR_write, &[writer, data, 64]), 64);
        let set_size = 1031;
        program.must(abi::__NR_fcntl, &[writer, set_size, 1 << 20]);
        assert_eq!(program.must(abi::__NR_tee, &[reader, second_writer, 100, 0]), 100);
        assert_eq!(program.must(abi::__NR_splice, &[reader, 0, second_writer, 0, 4000, 0]), 4000);
        let ranges = program.words(&[ARENA, PAGE, ARENA + PAGE, 100]);
        assert_eq!(program.must(abi::__NR_vmsplice, &[second_writer, ranges, 2, 0]), PAGE + 100);
        let target = ARENA + 2 * PAGE;
        assert_eq!(program.must(abi::__NR_read, &[second_reader, target, 4100]), 4100);
        assert_eq!(program.must(abi::__NR_read, &[reader, target, 5000]), 1064);
        for descriptor in [reader, writer, second_reader, second_writer] {
            program.must(abi::__NR_close, &[descriptor]);
        }
    });
}

#[test]
fn many_descriptors() {
    exhaust("a growing table of descriptors", 12, |program| {
        let (reader, _writer) = pipe(program);
        let limits = program.words(&[4096, 4096]);
        program.must(abi::__NR_prlimit64, &[0, abi::RLIMIT_NOFILE.into(), limits, 0]);
        program.must(abi::__NR_dup2, &[reader, 500]);
        program.must(abi::__NR_dup3, &[reader, 3000, abi::O_CLOEXEC.into()]);
        program.must(abi::__NR_fcntl, &[reader, abi::F_DUPFD.into(), 4000]);
        program.must(abi::__NR_close_range, &[500, 600, 0]);
        program.cast(Part::End, [0; 3]);
        program.must(abi::__NR_fork, &[]);
        program.must(abi::__NR_wait4, &[u64::MAX, 0, 0, 0]);
        // CLOSE_RANGE_UNSHARE
        program.must(abi::__NR_close_range, &[0, 2500, 2]);
        assert_eq!(program.open_descriptors(), 2);
    });
}

#[test]
fn waiting_with_epoll() {
    exhaust("epoll", 20, |program| {
        let epoll = program.must(abi::__NR_epoll_create1, &[0]);
        let mut ends = Vec::new();
        for number in 0..12_u64 {
            let (reader, writer) = pipe(program);
            let event = program.bytes(&[1, 0, 0, 0, number as u8, 0, 0, 0, 0, 0, 0, 0]);
            program.must(abi::__NR_epoll_ctl, &[epoll, abi::EPOLL_CTL_ADD.into(), reader, event]);
            ends.push((reader, writer));
        }
        let again = program.bytes(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        program.refused(
            abi::__NR_epoll_ctl,
            &[epoll, abi::EPOLL_CTL_ADD.into(), ends[0].0, again],
            Errno::EEXIST,
        );
        program.must(abi::__NR_write, &[ends[5].1, ARENA, 1]);
        let events = program.room(12 * 4);
        assert_eq!(program.must(abi::__NR_epoll_wait, &[epoll, events, 4, u64::MAX]), 1);
        assert_eq!(program.word(events + 4), 5);
        let outer = program.must(abi::__NR_epoll_create1, &[0]);
        program.must(abi::__NR_epoll_ctl, &[outer, abi::EPOLL_CTL_ADD.into(), epoll, again]);
        assert_eq!(program.must(abi::__NR_epoll_wait, &[outer, events, 4, 0]), 1);
        program.must(abi::__NR_epoll_ctl, &[epoll, abi::EPOLL_CTL_DEL.into(), ends[5].0, 0]);
        program.must(abi::__NR_close, &[ends[1].0]);
        assert_eq!(program.must(abi::__NR_epoll_wait, &[outer, events, 4, 0]), 0);
    });
}

#[test]
fn waiting_with_poll_and_select() {
    exhaust("poll and select", 12, |program| {
        let mut list = Vec::new();
        let mut last = (0, 0);
        for _ in 0..20 {
            last = pipe(program);
            list.push(last.0 | u64::from(abi::POLLIN) << 32);
        }
        let list = program.words(&list);
        assert_eq!(program.must(abi::__NR_poll, &[list, 20, 5]), 0);
        program.cast(Part::Write, [last.1, ARENA, 1]);
        program.must(abi::__NR_fork, &[]);
        assert_eq!(program.must(abi::__NR_poll, &[list, 20, u64::MAX]), 1);
        let set = program.words(&[1 << last.0]);
        let count = last.0 + 1;
        assert_eq!(program.must(abi::__NR_select, &[count, set, 0, 0, 0]), 1);
        program.must(abi::__NR_wait4, &[u64::MAX, 0, 0, 0]);
    });
}

#[test]
fn counters_timers_and_signals_as_files() {
    exhaust("eventfd, timerfd, signalfd", 12, |program| {
        let counter = program.must(abi::__NR_eventfd2, &[3, 0]);
        let value = program.room(8);
        assert_eq!(program.must(abi::__NR_read, &[counter, value, 8]), 8);
        assert_eq!(program.word(value), 3);
        let timer = program.must(abi::__NR_timerfd_create, &[1, 0]);
        let times = program.words(&[0, 1000, 0, 1000]);
        program.must(abi::__NR_timerfd_settime, &[timer, 0, times, 0]);
        assert_eq!(program.must(abi::__NR_read, &[timer, value, 8]), 8);
        let mask = program.words(&[1 << (abi::SIGUSR1 - 1)]);
        program.must(abi::__NR_rt_sigprocmask, &[0, mask, 0, 8]);
        let signals = program.must(abi::__NR_signalfd4, &[u64::MAX, mask, 8, 0]);
        program.must(abi::__NR_kill, &[2, abi::SIGUSR1.into()]);
        let information = program.room(128);
        assert_eq!(program.must(abi::__NR_read, &[signals, information, 128]), 128);
        assert_eq!(program.word(information), abi::SIGUSR1);
    });
}

#[test]
fn watching_files() {
    exhaust("inotify", 15, |program| {
        let watcher = program.must(abi::__NR_inotify_init1, &[abi::O_NONBLOCK.into()]);
        let directory = program.text("/tmp");
        let all = abi::IN_ALL_EVENTS.into();
        let watch = program.must(abi::__NR_inotify_add_watch, &[watcher, directory, all]);
        let path = program.text("/tmp/a file with a long name that needs memory of its own");
        let flags = u64::from(abi::O_CREAT | abi::O_RDWR);
        let file = program.must(abi::__NR_open, &[path, flags, 0o600]);
        program.must(abi::__NR_write, &[file, ARENA, 10]);
        program.must(abi::__NR_unlink, &[path]);
        program.must(abi::__NR_close, &[file]);
        let events = program.room(2048);
        assert!(program.must(abi::__NR_read, &[watcher, events, 2048]) > 0);
        program.must(abi::__NR_inotify_rm_watch, &[watcher, watch]);
    });
}
