//! Filters as their users see them.

use alloc::sync::Arc;

use vfs::Error;

use super::machine::code::*;
use super::{Filter, Instruction, Slot};

const fn code(code: u16, constant: u32) -> Instruction {
    Instruction { code, if_true: 0, if_false: 0, constant }
}

fn filter(instructions: &[Instruction]) -> Result<Filter, Error> {
    Filter::new(instructions.to_vec())
}

/// What is left in A after some instructions.
fn outcome(instructions: &[Instruction], packet: &[u8]) -> u32 {
    let mut program = instructions.to_vec();
    program.push(code(RET_A, 0));
    Filter::new(program).unwrap().run(packet)
}

#[test]
fn loads_read_the_message_and_end_the_program_behind_it() {
    let packet = [1, 2, 3, 4, 0x65, 6, 7, 8];
    for (instruction, expected) in [
        (code(LD_W_ABS, 0), 0x0102_0304),
        (code(LD_W_ABS, 4), 0x6506_0708),
        (code(LD_H_ABS, 6), 0x0708),
        (code(LD_B_ABS, 7), 8),
        (code(LD_W_ABS, -0x10_0000_i32 as u32), 0x0102_0304),
        (code(LD_W_LEN, 0), 8),
        (code(LD_W_ABS, 5), 0),
        (code(LD_H_ABS, 7), 0),
        (code(LD_B_ABS, 8), 0),
        (code(LD_B_ABS, u32::MAX - 0x20_0000), 0),
        (code(LD_B_ABS, -0x10_0000_i32 as u32 + 8), 0),
    ] {
        // A program that ends early does not come to what stands behind.
        let after = [instruction, code(ALU | OR, 0)];
        assert_eq!(outcome(&after, &packet), expected, "{instruction:?}");
    }
    let ends = [code(LD_IMM, 9), code(LD_B_ABS, 8), code(LD_IMM, 9)];
    assert_eq!(outcome(&ends, &packet), 0);
    let relative = |load, x, constant| outcome(&[code(LDX_IMM, x), code(load, constant)], &packet);
    assert_eq!(relative(LD_W_IND, 2, 1), 0x0465_0607);
    assert_eq!(relative(LD_H_IND, 5, 0), 0x0607);
    assert_eq!(relative(LD_B_IND, u32::MAX, 2), 2);
    assert_eq!(relative(LD_B_IND, 7, 1), 0);
    // What is known besides is known by its place only.
    assert_eq!(relative(LD_W_IND, 0, -0x1000_i32 as u32 + 36), 0);
    let header = |place| outcome(&[code(LDX_B_MSH, place), code(TXA, 0)], &packet);
    assert_eq!((header(4), header(8)), (20, 0));
    assert_eq!(outcome(&[code(LDX_W_LEN, 0), code(TXA, 0)], &packet), 8);
    assert_eq!(outcome(&[code(LD_IMM, 17), code(ALU | MOD, 5)], &packet), 2);
    assert_eq!(outcome(&[code(LD_IMM, 17), code(ALU | MOD | BY_X, 5), code(LD_IMM, 3)], &packet), 0);
}

#[test]
fn what_is_known_besides_is_zero_or_ends_the_program() {
    const OTHER: u32 = -0x1000_i32 as u32;
    let packet = [0; 4];
    for what in [0, 4, 20, 24, 32, 44, 48, 52, 60] {
        assert_eq!(outcome(&[code(LD_IMM, 7), code(LD_W_ABS, OTHER + what)], &packet), 0, "{what}");
    }
    for what in [8, 28] {
        let program = [code(LD_IMM, 7), code(LD_H_ABS, OTHER + what), code(LD_IMM, 9)];
        assert_eq!(outcome(&program, &packet), 7, "{what}");
    }
    assert_eq!(outcome(&[code(LD_IMM, 7), code(LDX_IMM, 5), code(LD_B_ABS, OTHER + 40)], &packet), 2);
    let random = || outcome(&[code(LD_W_ABS, OTHER + 56)], &packet);
    assert!(random() != random() || random() != random());
    for (place, sound) in [(OTHER + 64, false), (OTHER + 2, false), (u32::MAX, false), (OTHER - 1, true)] {
        assert_eq!(filter(&[code(LD_W_ABS, place), code(RET_A, 0)]).is_ok(), sound, "{place:#x}");
    }
}

#[test]
fn attributes_are_found_by_type_also_in_others() {
    const FIND: u32 = -0x1000_i32 as u32 + 12;
    const FIND_NESTED: u32 = -0x1000_i32 as u32 + 16;
    let mut packet = Vec::new();
    // Type 1 with 5 bytes; type 2 with one of type 3 and one of type 1; type 1 again, with a flag.
    for (length, kind, bytes) in [(9u16, 1u16, 8), (16, 2, 0), (4, 3, 0), (8, 1, 4), (4, 0x8001, 0)] {
        packet.extend(length.to_ne_bytes());
        packet.extend(kind.to_ne_bytes());
        packet.extend(std::iter::repeat_n(0, bytes));
    }
    let look = |place, from, kind, packet: &[u8]| {
        outcome(&[code(LDX_IMM, kind), code(LD_IMM, from), code(LD_W_ABS, place)], packet)
    };
    assert_eq!(look(FIND, 0, 2, &packet), 12);
    assert_eq!(look(FIND, 12, 1, &packet), 28);
    assert_eq!(look(FIND, 0, 3, &packet), 0);
    assert_eq!(look(FIND_NESTED, 12, 3, &packet), 16);
    assert_eq!(look(FIND_NESTED, 12, 1, &packet), 20);
    assert_eq!(look(FIND_NESTED, 12, 2, &packet), 0);
    for from in [29, 32, u32::MAX] {
        assert_eq!((look(FIND, from, 1, &packet), look(FIND_NESTED, from, 1, &packet)), (0, 0));
    }
    // Lengths that lead nowhere.
    assert_eq!(look(FIND, 0, 1, &[0; 16]), 0);
    assert_eq!(look(FIND, 0, 0x101, &[255, 255, 1, 1]), 0);
    assert_eq!(look(FIND_NESTED, 0, 0, &[255, 255, 1, 1]), 0);
    assert_eq!(look(FIND, 0, 1, &[]), 0);
}

#[test]
fn a_lock_keeps_the_filter() {
    let slot = Slot::new();
    let made = |kept| Arc::new(filter(&[code(RET_K, kept)]).unwrap());
    assert_eq!(slot.detach(), Err(Error::NotFound));
    assert_eq!(slot.kept([0; 9].as_slice()), Some(9));
    slot.attach(made(4)).unwrap();
    assert_eq!(slot.kept([0; 9].as_slice()), Some(4));
    assert_eq!(slot.kept([0; 3].as_slice()), Some(3));
    slot.attach(made(0)).unwrap();
    assert_eq!(slot.kept([0; 9].as_slice()), None);
    assert_eq!(slot.kept([].as_slice()), None);
    slot.set_locked(false).unwrap();
    slot.set_locked(true).unwrap();
    slot.set_locked(true).unwrap();
    assert_eq!(slot.set_locked(false), Err(Error::NotPermitted));
    assert_eq!(slot.attach(made(4)), Err(Error::NotPermitted));
    assert_eq!(slot.detach(), Err(Error::NotPermitted));
    assert_eq!(slot.kept([0; 9].as_slice()), None);
}
