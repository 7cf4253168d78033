//! Calls about which another process decides.

use linux_raw_sys::general as abi;

use crate::children::Part;
use crate::machine_under_test::exhaust;
use crate::program::{Program, numbers};

const NEW_LISTENER: u64 = 8;
const SET_FILTER: u64 = 1;
const RECEIVE: u64 = 0xc050_2100;
const SEND: u64 = 0xc018_2101;
const ADD: u64 = 0x4018_2103;
const AS_ANSWER: u64 = 2;

/// A filter that has somebody else decide about one call.
fn listen(program: &mut Program<'_>, call: u64) -> u64 {
    let step = |code: u64, jumps: u64, value: u64| code | jumps << 16 | value << 32;
    let code = program.words(&[
        step(0x20, 0, 0),
        // The next one, or the one behind it.
        step(0x15, 1 << 8, call),
        step(0x06, 0, 0x7fc0_0000),
        step(0x06, 0, 0x7fff_0000),
    ]);
    let filter = program.words(&[4, code]);
    program.must(abi::__NR_seccomp, &[SET_FILTER, NEW_LISTENER, filter])
}

/// Receives the next question; returns its number.
fn receive(program: &mut Program<'_>, listener: u64) -> u64 {
    let room = program.room(80);
    program.put_at(room, &[0; 80]);
    program.must(abi::__NR_ioctl, &[listener, RECEIVE, room]);
    u64::from_le_bytes(program.get(room))
}

#[test]
fn deciding() {
    exhaust("decisions about calls", 15, |program| {
        let listener = listen(program, numbers::ASKED);
        program.cast(Part::Ask, [0; 3]);
        let child = program.must(abi::__NR_fork, &[]);
        let id = receive(program, listener);
        let added = program.words(&[id, listener << 32, 0]);
        program.must(abi::__NR_ioctl, &[listener, ADD, added]);
        let answer = program.words(&[id, 0, 0]);
        program.must(abi::__NR_ioctl, &[listener, SEND, answer]);
        let id = receive(program, listener);
        let added = program.words(&[id, AS_ANSWER | listener << 32, 0]);
        program.must(abi::__NR_ioctl, &[listener, ADD, added]);
        program.must(abi::__NR_wait4, &[child, 0, 0, 0]);
        program.must(abi::__NR_close, &[listener]);
    });
}

#[test]
fn nobody_decides_any_more() {
    exhaust("supervisors that leave", 10, |program| {
        let listener = listen(program, numbers::ASKED);
        program.cast(Part::Ask, [0; 3]);
        let child = program.must(abi::__NR_fork, &[]);
        receive(program, listener);
        // The child has it as well, which gets ENOSYS when both are gone.
        program.must(abi::__NR_close, &[listener]);
        program.must(abi::__NR_kill, &[child, abi::SIGKILL.into()]);
        program.must(abi::__NR_wait4, &[child, 0, 0, 0]);
    });
}
