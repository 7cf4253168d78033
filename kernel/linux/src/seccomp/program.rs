//! Programs that decide about system calls: classic BPF as seccomp(2) takes it.
//!
//! A program is checked once, when a thread installs it: it has no loops, ends in a return, reads only what is there, and never a word of its memory that
//! it has not written. So a run ends, and can't fail.

use alloc::vec::Vec;

use memory::fallible;

use crate::abi::FilterInstruction as Instruction;
use crate::errno::Errno;

/// Instructions of a program at most.
pub(super) const LENGTH_MAX: usize = 4096;
/// Words of memory that a program has.
const MEMORY_WORDS: usize = 16;

/// A word of what a program is told.
const WORD: u32 = 4;
/// `struct seccomp_data` in words: number, architecture, instruction pointer, six arguments.
pub(super) const DATA_WORDS: usize = 16;
const DATA_BYTES: u32 = DATA_WORDS as u32 * WORD;
/// What can be known of a call before it is made.
const NUMBER_WORD: usize = 0;
const ARCHITECTURE_WORD: usize = 1;

const LD_W_ABS: u16 = 0x20;
const LD_W_LEN: u16 = 0x80;
const LDX_W_LEN: u16 = 0x81;
const LD_IMM: u16 = 0x00;
const LDX_IMM: u16 = 0x01;
const LD_MEM: u16 = 0x60;
const LDX_MEM: u16 = 0x61;
const ST: u16 = 0x02;
const STX: u16 = 0x03;
const RET_K: u16 = 0x06;
const RET_A: u16 = 0x16;
const TAX: u16 = 0x07;
const TXA: u16 = 0x87;
const ALU: u16 = 0x04;
const JMP: u16 = 0x05;
const CLASS: u16 = 0x07;
const OPERATION: u16 = 0xf0;
const BY_X: u16 = 0x08;

const ADD: u16 = 0x00;
const SUB: u16 = 0x10;
const MUL: u16 = 0x20;
const DIV: u16 = 0x30;
const OR: u16 = 0x40;
const AND: u16 = 0x50;
const LSH: u16 = 0x60;
const RSH: u16 = 0x70;
const NEG: u16 = 0x80;
const XOR: u16 = 0xa0;

const JA: u16 = 0x00;
const JEQ: u16 = 0x10;
const JGT: u16 = 0x20;
const JGE: u16 = 0x30;
const JSET: u16 = 0x40;

/// A program that was checked.
pub(super) struct Program(Vec<Instruction>);

impl Program {
    /// Checks a program.
    ///
    /// # Errors
    /// EINVAL; ENOMEM.
    pub(super) fn new(instructions: Vec<Instruction>) -> Result<Self, Errno> {
        let length = instructions.len();
        if length == 0 || length > LENGTH_MAX {
            return Err(Errno::EINVAL);
        }
        let sound =
            instructions.iter().enumerate().all(|(at, instruction)| is_sound(*instruction, length - at - 1));
        let ends = matches!(instructions[length - 1].code, RET_K | RET_A);
        if !sound || !ends || !reads_what_it_wrote(&instructions)? {
            return Err(Errno::EINVAL);
        }
        Ok(Self(instructions))
    }

    /// What it is made of.
    pub(super) fn instructions(&self) -> &[Instruction] {
        &self.0
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// What it says of a call.
    pub(super) fn run(&self, data: &[u32; DATA_WORDS]) -> u32 {
        self.interpret(|word| Some(data[word])).unwrap_or(0)
    }

    /// What it says of all calls with this number, if it looks at nothing else.
    pub(super) fn run_for_number(&self, number: u32, architecture: u32) -> Option<u32> {
        self.interpret(|word| match word {
            NUMBER_WORD => Some(number),
            ARCHITECTURE_WORD => Some(architecture),
            _ => None,
        })
    }

    /// `None`: a word that is not known was looked at.
    #[inline(always)]
    fn interpret(&self, data: impl Fn(usize) -> Option<u32>) -> Option<u32> {
        let (mut a, mut x, mut memory) = (0u32, 0u32, [0u32; MEMORY_WORDS]);
        let mut next = 0;
        // A program that was checked comes to a return before its end.
        while let Some(&Instruction { code, if_true, if_false, constant }) = self.0.get(next) {
            next += 1;
            let place = constant as usize;
            match code {
                LD_W_ABS => a = data(place / WORD as usize)?,
                LD_W_LEN => a = DATA_BYTES,
                LDX_W_LEN => x = DATA_BYTES,
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
        OR => a | operand,
        AND => a & operand,
        LSH => a.wrapping_shl(operand),
        RSH => a.wrapping_shr(operand),
        XOR => a ^ operand,
        _ => a.wrapping_neg(),
    })
}

/// Whether an instruction is one that there is, with `behind` more after it.
fn is_sound(instruction: Instruction, behind: usize) -> bool {
    let Instruction { code, if_true, if_false, constant } = instruction;
    match code {
        LD_W_ABS => constant.is_multiple_of(WORD) && constant < DATA_BYTES,
        LD_W_LEN | LDX_W_LEN | LD_IMM | LDX_IMM | RET_K | RET_A | TAX | TXA => true,
        LD_MEM | LDX_MEM | ST | STX => (constant as usize) < MEMORY_WORDS,
        _ if code & CLASS == ALU && code & !(CLASS | BY_X | OPERATION) == 0 => match code & OPERATION {
            ADD | SUB | MUL | OR | AND | XOR => true,
            DIV => code & BY_X != 0 || constant != 0,
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
fn reads_what_it_wrote(instructions: &[Instruction]) -> Result<bool, Errno> {
    // Words that are written whichever way an instruction was come to.
    let mut written = fallible::try_vec_of(!0u16, instructions.len() + 1).map_err(|_| Errno::ENOMEM)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const fn code(code: u16, constant: u32) -> Instruction {
        Instruction { code, if_true: 0, if_false: 0, constant }
    }

    const fn jump(code: u16, constant: u32, if_true: u8, if_false: u8) -> Instruction {
        Instruction { code: JMP | code, if_true, if_false, constant }
    }

    fn result(instructions: &[Instruction]) -> Option<u32> {
        let mut data = [0; DATA_WORDS];
        data.iter_mut().enumerate().for_each(|(word, value)| *value = word as u32 * 10);
        Program::new(instructions.to_vec()).ok().map(|program| program.run(&data))
    }

    #[test]
    fn programs_compute() {
        let by_x = |operation, a, x| {
            result(&[code(LDX_IMM, x), code(LD_IMM, a), code(ALU | operation | BY_X, 0), code(RET_A, 0)])
        };
        let by_constant = |operation, a, constant| {
            result(&[code(LD_IMM, a), code(ALU | operation, constant), code(RET_A, 0)])
        };
        for (operation, a, operand, expected) in [
            (ADD, u32::MAX, 3, 2),
            (SUB, 1, 2, u32::MAX),
            (MUL, 1 << 20, 1 << 13, 0),
            (DIV, 17, 5, 3),
            (OR, 5, 6, 7),
            (AND, 5, 6, 4),
            (XOR, 5, 6, 3),
            (LSH, 1, 31, 1 << 31),
            (RSH, 1 << 31, 30, 2),
        ] {
            assert_eq!(
                (by_x(operation, a, operand), by_constant(operation, a, operand)),
                (Some(expected), Some(expected))
            );
        }
        assert_eq!(by_x(DIV, 17, 0), Some(0));
        assert_eq!(by_x(LSH, 3, 33), Some(6));
        assert_eq!(by_constant(NEG, 1, 0), Some(u32::MAX));
        assert_eq!(result(&[code(LD_W_ABS, 60), code(RET_A, 0)]), Some(150));
        assert_eq!(
            result(&[code(LD_W_LEN, 0), code(TAX, 0), code(LD_IMM, 0), code(TXA, 0), code(RET_A, 0)]),
            Some(64)
        );
        let stored =
            [code(LD_IMM, 7), code(ST, 15), code(LDX_MEM, 15), code(STX, 0), code(LD_MEM, 0), code(RET_A, 0)];
        assert_eq!(result(&stored), Some(7));
    }

    #[test]
    fn jumps_go_where_they_say() {
        for (operation, a, constant, expected) in [
            (JEQ, 5, 5, 1),
            (JEQ, 5, 6, 2),
            (JGT, 6, 5, 1),
            (JGT, 5, 5, 2),
            (JGE, 5, 5, 1),
            (JGE, 4, 5, 2),
            (JSET, 6, 2, 1),
            (JSET, 6, 1, 2),
        ] {
            let program = [code(LD_IMM, a), jump(operation, constant, 1, 0), code(RET_K, 2), code(RET_K, 1)];
            assert_eq!(result(&program), Some(expected));
        }
        assert_eq!(result(&[code(JMP | JA, 1), code(RET_K, 1), code(RET_K, 2)]), Some(2));
    }

    #[test]
    fn what_could_go_wrong_is_refused() {
        let end = code(RET_K, 0);
        let bad: [&[Instruction]; 17] = [
            &[],
            &[code(LD_IMM, 0)],
            &[code(LD_W_ABS, 64), end],
            &[code(LD_W_ABS, 2), end],
            &[code(LD_W_ABS | 0x08, 0), end],
            &[code(LD_MEM, 3), end],
            &[code(ST, 16), end],
            &[code(ALU | DIV, 0), end],
            &[code(ALU | LSH, 32), end],
            &[code(ALU | 0x90, 2), end],
            &[code(JMP | JA, 1), end],
            &[code(JMP | JA, u32::MAX), end],
            &[jump(JEQ, 0, 1, 0), end],
            &[jump(JEQ, 0, 0, 255), end],
            &[jump(JEQ, 0, 1, 0), code(ST, 0), code(LD_MEM, 0), end],
            &[code(0xffff, 0), end],
            &[code(0x30, 0), end],
        ];
        for program in bad {
            assert!(Program::new(program.to_vec()).is_err(), "{program:?}");
        }
        assert!(Program::new(vec![end; LENGTH_MAX + 1]).is_err());
        assert!(Program::new(vec![end; LENGTH_MAX]).is_ok());
        let both_ways = [jump(JEQ, 0, 1, 0), code(ST, 0), code(ST, 0), code(LD_MEM, 0), end];
        assert!(Program::new(both_ways.to_vec()).is_ok());
    }

    #[test]
    fn whatever_is_taken_comes_to_an_end() {
        const CODES: [u16; 24] = [
            LD_W_ABS,
            LD_W_LEN,
            LDX_W_LEN,
            LD_IMM,
            LDX_IMM,
            LD_MEM,
            LDX_MEM,
            ST,
            STX,
            RET_K,
            RET_A,
            TAX,
            TXA,
            JMP | JA,
            JMP | JEQ,
            JMP | JGT | BY_X,
            JMP | JGE,
            JMP | JSET | BY_X,
            ALU | ADD,
            ALU | DIV,
            ALU | DIV | BY_X,
            ALU | LSH | BY_X,
            ALU | RSH,
            ALU | NEG,
        ];
        let mut state = 1u64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut taken = 0;
        for _ in 0..200_000 {
            let length = 1 + draw(12);
            let instruction = |_| Instruction {
                code: if draw(50) == 0 {
                    draw(1 << 16) as u16
                } else {
                    CODES[draw(CODES.len() as u64) as usize]
                },
                if_true: draw(6) as u8,
                if_false: draw(6) as u8,
                constant: if draw(4) == 0 {
                    draw(1 << 32) as u32
                } else {
                    draw(18) as u32 * if draw(2) == 0 { 4 } else { 1 }
                },
            };
            let mut instructions: Vec<_> = (0..length).map(instruction).collect();
            instructions.push(code(RET_A, 0));
            let Ok(program) = Program::new(instructions) else { continue };
            taken += 1;
            let data = [7; DATA_WORDS];
            let result = program.run(&data);
            assert!(program.run_for_number(7, 7).is_none_or(|known| known == result));
        }
        assert!(taken > 1000, "{taken} programs were sound");
    }

    #[test]
    fn what_a_number_comes_to_is_known_if_nothing_else_is_looked_at() {
        let program = [code(LD_W_ABS, 0), jump(JEQ, 7, 0, 1), code(LD_W_ABS, 16), code(RET_A, 0)];
        let program = Program::new(program.to_vec()).expect("it is sound");
        assert_eq!(program.run_for_number(7, 0), None);
        assert_eq!(program.run_for_number(8, 0), Some(8));
    }
}
