//! The machine of classic BPF: which instructions there are, what makes a program sound, and how one runs.
//!
//! A program is checked once. It has no loops, ends in a return, and reads no word of its memory that it has not written. So a run ends, and can't fail.
//! Instructions that read something outside of the machine are checked and carried out by its user.

use alloc::vec::Vec;

use vfs::{Result, allocation};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Instructions of a program at most.
pub const LENGTH_MAX: usize = 4096;
/// Words of memory that a program has.
const MEMORY_WORDS: usize = 16;

/// An instruction (`struct sock_filter`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Instruction {
    /// What to do.
    pub code: u16,
    /// Instructions that a jump passes over if its condition holds.
    pub if_true: u8,
    /// The same if it doesn't.
    pub if_false: u8,
    /// An operand.
    pub constant: u32,
}

const _: () = assert!(size_of::<Instruction>() == 8);

/// Codes of instructions, and what they are made of.
#[allow(missing_docs, reason = "the names are the manual's")]
pub mod code {
    pub const LD_W_ABS: u16 = 0x20;
    pub const LD_H_ABS: u16 = 0x28;
    pub const LD_B_ABS: u16 = 0x30;
    pub const LD_W_IND: u16 = 0x40;
    pub const LD_H_IND: u16 = 0x48;
    pub const LD_B_IND: u16 = 0x50;
    pub const LD_W_LEN: u16 = 0x80;
    pub const LDX_W_LEN: u16 = 0x81;
    pub const LDX_B_MSH: u16 = 0xb1;
    pub const LD_IMM: u16 = 0x00;
    pub const LDX_IMM: u16 = 0x01;
    pub const LD_MEM: u16 = 0x60;
    pub const LDX_MEM: u16 = 0x61;
    pub const ST: u16 = 0x02;
    pub const STX: u16 = 0x03;
    pub const RET_K: u16 = 0x06;
    pub const RET_A: u16 = 0x16;
    pub const TAX: u16 = 0x07;
    pub const TXA: u16 = 0x87;
    pub const ALU: u16 = 0x04;
    pub const JMP: u16 = 0x05;
    pub(super) const CLASS: u16 = 0x07;
    pub const OPERATION: u16 = 0xf0;
    pub const BY_X: u16 = 0x08;

    pub const ADD: u16 = 0x00;
    pub const SUB: u16 = 0x10;
    pub const MUL: u16 = 0x20;
    pub const DIV: u16 = 0x30;
    pub const OR: u16 = 0x40;
    pub const AND: u16 = 0x50;
    pub const LSH: u16 = 0x60;
    pub const RSH: u16 = 0x70;
    pub const NEG: u16 = 0x80;
    pub const MOD: u16 = 0x90;
    pub const XOR: u16 = 0xa0;

    pub const JA: u16 = 0x00;
    pub const JEQ: u16 = 0x10;
    pub const JGT: u16 = 0x20;
    pub const JGE: u16 = 0x30;
    pub const JSET: u16 = 0x40;
}
use code::*;

/// What an instruction comes to that reads something outside of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// A value for register A.
    A(u32),
    /// A value for register X.
    X(u32),
    /// The program ends and returns this.
    End(u32),
    /// It can't be known.
    Unknown,
}

/// Runs a sound program. `load` carries out what reads something outside of the machine; it is told the registers A and X. `None`: it did not know.
#[inline(always)]
pub fn interpret(
    instructions: &[Instruction],
    mut load: impl FnMut(Instruction, u32, u32) -> Loaded,
) -> Option<u32> {
    let (mut a, mut x, mut memory) = (0u32, 0u32, [0u32; MEMORY_WORDS]);
    let mut next = 0;
    // A program that was checked comes to a return before its end.
    while let Some(&instruction) = instructions.get(next) {
        let Instruction { code, if_true, if_false, constant } = instruction;
        next += 1;
        let place = constant as usize;
        match code {
            LD_W_ABS | LD_H_ABS | LD_B_ABS | LD_W_IND | LD_H_IND | LD_B_IND | LD_W_LEN | LDX_W_LEN
            | LDX_B_MSH => match load(instruction, a, x) {
                Loaded::A(value) => a = value,
                Loaded::X(value) => x = value,
                Loaded::End(result) => return Some(result),
                Loaded::Unknown => return None,
            },
            LD_IMM => a = constant,
            LDX_IMM => x = constant,
            LD_MEM => a = memory[place % MEMORY_WORDS],
            LDX_MEM => x = memory[place % MEMORY_WORDS],
            ST => memory[place % MEMORY_WORDS] = a,
            STX => memory[place % MEMORY_WORDS] = x,
            RET_K => return Some(constant),
            RET_A => return Some(a),
            TAX => x = a,
            TXA => a = x,
            _ => {
                let operand = if code & BY_X != 0 { x } else { constant };
                if code & CLASS == JMP {
                    next += match jumps(code & OPERATION, a, operand) {
                        None => place,
                        Some(true) => if_true.into(),
                        Some(false) => if_false.into(),
                    };
                } else {
                    // A division by zero ends a program, and says 0.
                    let Some(value) = computed(code & OPERATION, a, operand) else { return Some(0) };
                    a = value;
                }
            }
        }
    }
    Some(0)
}

/// Whether a jump is taken; `None`: it is one without condition.
fn jumps(operation: u16, a: u32, operand: u32) -> Option<bool> {
    match operation {
        JEQ => Some(a == operand),
        JGT => Some(a > operand),
        JGE => Some(a >= operand),
        JSET => Some(a & operand != 0),
        _ => None,
    }
}

/// The result of an operation; `None`: a division by zero.
fn computed(operation: u16, a: u32, operand: u32) -> Option<u32> {
    Some(match operation {
        ADD => a.wrapping_add(operand),
        SUB => a.wrapping_sub(operand),
        MUL => a.wrapping_mul(operand),
        DIV => return a.checked_div(operand),
        MOD => return a.checked_rem(operand),
        OR => a | operand,
        AND => a & operand,
        LSH => a.wrapping_shl(operand),
        RSH => a.wrapping_shr(operand),
        XOR => a ^ operand,
        _ => a.wrapping_neg(),
    })
}

/// Whether a program may be run. `is_load` says of instructions that the machine does not know alone whether there are such ones.
///
/// # Errors
/// `ENOMEM`.
pub fn is_sound(instructions: &[Instruction], is_load: impl Fn(Instruction) -> bool) -> Result<bool> {
    let length = instructions.len();
    if length == 0 || length > LENGTH_MAX {
        return Ok(false);
    }
    let exist = instructions
        .iter()
        .enumerate()
        .all(|(at, instruction)| exists(*instruction, length - at - 1) || is_load(*instruction));
    let ends = matches!(instructions[length - 1].code, RET_K | RET_A);
    Ok(exist && ends && reads_what_it_wrote(instructions)?)
}

/// Whether an instruction is one that there is, with `behind` more after it.
fn exists(instruction: Instruction, behind: usize) -> bool {
    let Instruction { code, if_true, if_false, constant } = instruction;
    match code {
        LD_W_LEN | LDX_W_LEN | LD_IMM | LDX_IMM | RET_K | RET_A | TAX | TXA => true,
        LD_MEM | LDX_MEM | ST | STX => (constant as usize) < MEMORY_WORDS,
        _ if code & CLASS == ALU && code & !(CLASS | BY_X | OPERATION) == 0 => match code & OPERATION {
            ADD | SUB | MUL | OR | AND | XOR => true,
            DIV | MOD => code & BY_X != 0 || constant != 0,
            LSH | RSH => code & BY_X != 0 || constant < u32::BITS,
            NEG => code & BY_X == 0,
            _ => false,
        },
        _ if code & CLASS == JMP && code & !(CLASS | BY_X | OPERATION) == 0 => match code & OPERATION {
            JA => code & BY_X == 0 && (constant as usize) < behind,
            JEQ | JGT | JGE | JSET => usize::from(if_true) < behind && usize::from(if_false) < behind,
            _ => false,
        },
        _ => false,
    }
}

/// Whether each word of memory is written, on all ways, before it is read. Jumps lead forwards and were checked.
fn reads_what_it_wrote(instructions: &[Instruction]) -> Result<bool> {
    // Words that are written whichever way an instruction was come to.
    let mut written: Vec<u16> = allocation::filled(!0, instructions.len() + 1)?;
    written[0] = 0;
    for (at, instruction) in instructions.iter().enumerate() {
        let mut now = written[at];
        let word = 1u16 << (instruction.constant as usize % MEMORY_WORDS);
        match instruction.code {
            ST | STX => now |= word,
            LD_MEM | LDX_MEM if now & word == 0 => return Ok(false),
            RET_K | RET_A => continue,
            code if code & CLASS == JMP => {
                let ways = match code & OPERATION {
                    JA => [instruction.constant as usize; 2],
                    _ => [instruction.if_true.into(), instruction.if_false.into()],
                };
                ways.iter().for_each(|way| written[at + 1 + way] &= now);
                continue;
            }
            _ => {}
        }
        written[at + 1] &= now;
    }
    Ok(true)
}
