//! Pseudo-terminals and the controlling terminal.

use linux_raw_sys::general as abi;

use crate::children::Part;
use crate::machine_under_test::exhaust;
use crate::program::{ARENA, PAGE, Program};

const SET_LOCK: u64 = 0x4004_5431;
const GET_NUMBER: u64 = 0x8004_5430;
const SET_CONTROLLING: u64 = 0x540e;

/// Both ends of a pseudo-terminal, and the address of the slave's name.
struct Pair {
    master: u64,
    slave: u64,
    name: u64,
}

/// How terminals are opened.
const FLAGS: u64 = (abi::O_RDWR | abi::O_NOCTTY) as u64;

fn open_pair(program: &mut Program) -> Pair {
    let path = program.text("/dev/pts/ptmx");
    let master = program.must(abi::__NR_open, &[path, FLAGS, 0]);
    let number = program.words(&[0]);
    program.must(abi::__NR_ioctl, &[master, SET_LOCK, number]);
    program.must(abi::__NR_ioctl, &[master, GET_NUMBER, number]);
    let name = format!("/dev/pts/{}", program.word(number));
    let name = program.text(&name);
    let slave = program.must(abi::__NR_open, &[name, FLAGS, 0]);
    Pair { master, slave, name }
}

#[test]
fn a_pair_from_its_opening_to_its_hang_up() {
    exhaust("pseudo-terminals", 20, |program| {
        let Pair { master, slave, name } = open_pair(program);
        program.must(abi::__NR_write, &[slave, ARENA, 100]);
        let text = program.text("line\n");
        program.must(abi::__NR_write, &[master, text, 5]);
        assert_eq!(program.must(abi::__NR_read, &[slave, ARENA + PAGE, 100]), 5);
        let poll = program.words(&[master | 1 << 32]);
        assert_eq!(program.must(abi::__NR_poll, &[poll, 1, u64::MAX]), 1);
        let second = program.must(abi::__NR_open, &[name, FLAGS, 0]);
        program.must(abi::__NR_close, &[second]);
        program.must(abi::__NR_close, &[master]);
        assert_eq!(program.must(abi::__NR_read, &[slave, ARENA + PAGE, 100]), 0);
    });
}

#[test]
fn a_controlling_terminal() {
    exhaust("the controlling terminal", 25, |program| {
        let Pair { master, slave, .. } = open_pair(program);
        program.must(abi::__NR_ioctl, &[slave, SET_CONTROLLING, 0]);
        program.cast(Part::Pause, [0; 3]);
        let child = program.must(abi::__NR_fork, &[]);
        let interrupt = program.bytes(&[3]);
        let mask = program.words(&[1 << (abi::SIGINT - 1)]);
        program.must(abi::__NR_rt_sigprocmask, &[0, mask, 0, 8]);
        program.must(abi::__NR_write, &[master, interrupt, 1]);
        let status = program.room(4);
        program.must(abi::__NR_wait4, &[child, status, 0, 0]);
        assert_eq!(program.word(status), abi::SIGINT);
    });
}
