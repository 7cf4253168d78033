//! Programs that decide about system calls: classic BPF as seccomp(2) takes it.
//!
//! The machine is the one that runs filters of sockets ([`net::bpf::machine`]); what a program reads is what is known of a call. It is checked once, when a
//! thread installs it.

use alloc::vec::Vec;

pub(super) use net::bpf::machine::LENGTH_MAX;
use net::bpf::machine::code::{ALU, BY_X, LD_W_ABS, LDX_W_LEN, MOD};
use net::bpf::machine::{self, Instruction, Loaded};

use crate::errno::Errno;

/// A word of what a program is told.
const WORD: u32 = 4;
/// `struct seccomp_data` in words: number, architecture, instruction pointer, six arguments.
pub(super) const DATA_WORDS: usize = 16;
const DATA_BYTES: u32 = DATA_WORDS as u32 * WORD;
/// What can be known of a call before it is made.
const NUMBER_WORD: usize = 0;
const ARCHITECTURE_WORD: usize = 1;

/// A program that was checked.
pub(super) struct Program(Vec<Instruction>);

impl Program {
    /// Checks a program.
    ///
    /// # Errors
    /// EINVAL; ENOMEM.
    pub(super) fn new(instructions: Vec<Instruction>) -> Result<Self, Errno> {
        // Of what the machine can do there is no remainder for these programs.
        let is_known = |instruction: &Instruction| instruction.code & !BY_X != ALU | MOD;
        if !machine::is_sound(&instructions, is_load)? || !instructions.iter().all(is_known) {
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
        machine::interpret(&self.0, |Instruction { code, constant, .. }, _, _| match code {
            LD_W_ABS => data(constant as usize / WORD as usize).map_or(Loaded::Unknown, Loaded::A),
            LDX_W_LEN => Loaded::X(DATA_BYTES),
            _ => Loaded::A(DATA_BYTES),
        })
    }
}

/// Whether there is such a load of what is known of a call.
fn is_load(Instruction { code, constant, .. }: Instruction) -> bool {
    code == LD_W_ABS && constant.is_multiple_of(WORD) && constant < DATA_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use net::bpf::machine::code::*;

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
