//! Submission rings.

use linux_raw_sys::general as abi;

use crate::machine_under_test::exhaust;
use crate::program::{ARENA, PAGE, Program};

const SETUP: u32 = 425;
const ENTER: u32 = 426;
const REGISTER: u32 = 427;
const ENTRIES: u64 = 8;
const GET_EVENTS: u64 = 1;
/// Where the words of the parameters are.
const ARRAY_OFFSET: u64 = 40 + 24;
const COMPLETIONS_OFFSET: u64 = 80 + 20;
const MAP_SHARED: u64 = 1;
const READ_WRITE: u64 = 3;
const ENTRIES_AT: u64 = 0x1000_0000;

/// Operations.
const NOP: u8 = 0;
const SYNC: u8 = 3;
const POLL_ADD: u8 = 6;
const TIMEOUT: u8 = 11;
const CANCEL: u8 = 14;
const READ: u8 = 22;
const PROVIDE_BUFFERS: u8 = 31;

struct Ring {
    descriptor: u64,
    rings: u64,
    entries: u64,
    array: u64,
    completions: u64,
    tail: u32,
    head: u32,
}

impl Ring {
    fn new(program: &mut Program<'_>) -> Self {
        let parameters = program.bytes(&[0; 120]);
        let descriptor = program.must(SETUP, &[ENTRIES, parameters]);
        let array = u64::from(program.word(parameters + ARRAY_OFFSET));
        let completions = u64::from(program.word(parameters + COMPLETIONS_OFFSET));
        let map = |program: &mut Program<'_>, offset| {
            program.must(abi::__NR_mmap, &[0, PAGE, READ_WRITE, MAP_SHARED, descriptor, offset])
        };
        let rings = map(program, 0);
        let entries = map(program, ENTRIES_AT);
        Self { descriptor, rings, entries, array, completions, tail: 0, head: 0 }
    }

    fn submit(
        &mut self,
        program: &mut Program<'_>,
        operation: u8,
        descriptor: i32,
        words: [u64; 2],
        length: u32,
    ) {
        let mut entry = [0_u8; 64];
        entry[0] = operation;
        entry[4..8].copy_from_slice(&descriptor.to_le_bytes());
        entry[8..16].copy_from_slice(&words[0].to_le_bytes());
        entry[16..24].copy_from_slice(&words[1].to_le_bytes());
        entry[24..28].copy_from_slice(&length.to_le_bytes());
        if operation == POLL_ADD {
            entry[28] = 1;
        }
        entry[32] = operation;
        program.put_at(self.entries, &entry);
        program.put_at(self.rings + self.array + u64::from(self.tail % ENTRIES as u32) * 4, &[0; 4]);
        self.tail += 1;
        program.put_at(self.rings + 64, &self.tail.to_le_bytes());
        assert_eq!(program.must(ENTER, &[self.descriptor, 1, 0, 0]), 1);
    }

    /// The outcome of the last request for an operation; those of others are passed over.
    fn outcome(&mut self, program: &mut Program<'_>, operation: u8) -> i32 {
        loop {
            program.must(ENTER, &[self.descriptor, 0, 1, GET_EVENTS]);
            let at = self.rings + self.completions + u64::from(self.head % (2 * ENTRIES as u32)) * 16;
            self.head += 1;
            let (ended, result) = (program.word(at), program.word(at + 8) as i32);
            program.put_at(self.rings + 128, &self.head.to_le_bytes());
            if ended == operation.into() {
                return result;
            }
        }
    }

    /// Submits until it is not memory that is missing; how that ended.
    fn must(
        &mut self,
        program: &mut Program<'_>,
        operation: u8,
        descriptor: i32,
        words: [u64; 2],
        length: u32,
    ) -> i32 {
        loop {
            self.submit(program, operation, descriptor, words, length);
            match self.outcome(program, operation) {
                // Also for want of a worker.
                result if result == -(abi_errno::ENOMEM) || result == -(abi_errno::EAGAIN) => {}
                result => return result,
            }
        }
    }
}

mod abi_errno {
    pub(super) const EAGAIN: i32 = 11;
    pub(super) const ENOMEM: i32 = 12;
}

#[test]
fn requests_that_wait_and_that_do_not() {
    exhaust("submission rings", 30, |program| {
        let mut ring = Ring::new(program);
        assert_eq!(ring.must(program, NOP, 0, [0; 2], 0), 0);
        let pair = program.room(8);
        program.must(abi::__NR_pipe2, &[pair, 0]);
        let (reader, writer) = (program.word(pair), program.word(pair + 4));
        // A worker, and a pipe that tells.
        ring.submit(program, POLL_ADD, reader as i32, [0; 2], 0);
        program.must(abi::__NR_write, &[writer.into(), ARENA, 3]);
        let told = ring.outcome(program, POLL_ADD);
        assert!(told == 1 || told == -abi_errno::ENOMEM || told == -abi_errno::EAGAIN, "told {told}");
        assert_eq!(ring.must(program, READ, reader as i32, [u64::MAX, ARENA], 16), 3);
        let path = program.text("/tmp/of_ring");
        let create_and_write = 0o102;
        let file = program.must(abi::__NR_openat, &[-100_i64 as u64, path, create_and_write, 0o644]);
        assert_eq!(ring.must(program, SYNC, file as i32, [0; 2], 0), 0);
        let late = program.words(&[1000, 0]);
        ring.submit(program, TIMEOUT, 0, [0, late], 1);
        let found = ring.must(program, CANCEL, 0, [0, u64::from(TIMEOUT)], 0);
        // Not there, if there was no memory for it.
        assert!(found == 0 || found == -2, "found {found}");
        assert_eq!(ring.must(program, PROVIDE_BUFFERS, 4, [0, ARENA], 16), 0);
        program.must(abi::__NR_close, &[file]);
        program.must(abi::__NR_unlink, &[path]);
    });
}

#[test]
fn what_is_registered() {
    exhaust("registrations of rings", 20, |program| {
        let ring = Ring::new(program);
        let files = program.words(&[u64::MAX, u64::MAX]);
        program.must(REGISTER, &[ring.descriptor, 2, files, 4]);
        let buffers = program.words(&[ARENA, PAGE]);
        program.must(REGISTER, &[ring.descriptor, 0, buffers, 1]);
        let personality = program.must(REGISTER, &[ring.descriptor, 9, 0, 0]);
        program.must(REGISTER, &[ring.descriptor, 10, 0, personality]);
        let counter = program.must(abi::__NR_eventfd2, &[0, 0]);
        let number = program.words(&[counter]);
        program.must(REGISTER, &[ring.descriptor, 4, number, 1]);
        program.must(REGISTER, &[ring.descriptor, 5, 0, 0]);
        let four_of_group_7 = program.words(&[ARENA, 4 | 7 << 32, 0, 0, 0]);
        program.must(REGISTER, &[ring.descriptor, 22, four_of_group_7, 1]);
        program.must(REGISTER, &[ring.descriptor, 23, four_of_group_7, 1]);
    });
}
