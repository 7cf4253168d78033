//! Serial ports at their ISA addresses.

use super::port;
use crate::uart::{PORTS_MAX, Register};
use core::arch::asm;

const BASES: [u16; PORTS_MAX] = [0x3f8, 0x2f8, 0x3e8, 0x2e8];

fn address(index: usize, register: Register) -> u16 {
    BASES[index] + register as u16
}

/// Whether a port answers: its scratch register remembers, and its status is not that of an empty bus.
pub(crate) fn exists(index: usize) -> bool {
    [0x5a, 0xa5].iter().all(|pattern| {
        write(index, Register::Scratch, *pattern);
        read(index, Register::Scratch) == *pattern
    })
}

#[inline(always)]
pub(crate) fn read(index: usize, register: Register) -> u8 {
    // SAFETY: a serial port's registers, which reach no memory.
    unsafe { port::read_u8(address(index, register)) }
}

#[inline(always)]
pub(crate) fn write(index: usize, register: Register, value: u8) {
    // SAFETY: as for `read`.
    unsafe { port::write_u8(address(index, register), value) };
}

/// One string instruction: under a hypervisor that is one exit for all bytes.
#[inline]
pub(crate) fn write_burst(index: usize, bytes: &[u8]) {
    // SAFETY: the data register of a serial port; the instruction reads exactly the slice.
    unsafe {
        asm!("rep outsb", in("dx") address(index, Register::Data), inout("rsi") bytes.as_ptr() => _,
            inout("rcx") bytes.len() => _, options(nostack, preserves_flags, readonly));
    }
}
