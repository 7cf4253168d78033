//! Hardware breakpoints of a tracee: the debug registers in `struct user`.
//!
//! They are the processor's while the tracee runs in user mode, and only then: what the kernel reads or writes for it is not noticed. They go when another
//! program is executed, or the tracer lets go.

use machine::address::USER_END;
use machine::user::DebugRegisters;

use super::tracee::State;
use crate::errno::Errno;

const STATUS: usize = 6;
const CONTROL: usize = 7;

/// A debug register.
pub(super) fn get(state: &State, number: usize) -> u64 {
    let Some(registers) = &state.debug else { return 0 };
    match number {
        STATUS => registers.hits,
        CONTROL => registers.control,
        _ => registers.addresses.get(number).copied().unwrap_or(0),
    }
}

/// Changes a debug register.
///
/// # Errors
/// EIO, EINVAL, ENOMEM.
pub(super) fn set(state: &mut State, number: usize, value: u64) -> Result<(), Errno> {
    let mut new = state.debug.as_deref().copied().unwrap_or_default();
    match number {
        STATUS => new.hits = value,
        CONTROL => new.control = value,
        number => {
            let address = new.addresses.get_mut(number).ok_or(Errno::EIO)?;
            if value >= USER_END as u64 {
                return Err(Errno::EINVAL);
            }
            *address = value;
        }
    }
    if (0..DebugRegisters::COUNT).any(|index| !is_sound(&new, index)) {
        return Err(Errno::EINVAL);
    }
    match &mut state.debug {
        Some(registers) => **registers = new,
        None => state.debug = Some(memory::fallible::try_box(new).map_err(|_| Errno::ENOMEM)?),
    }
    Ok(())
}

/// Whether a breakpoint is off, or one that the processor has.
fn is_sound(registers: &DebugRegisters, index: usize) -> bool {
    const EXECUTE: u64 = 0b00;
    const PORTS: u64 = 0b10;
    if registers.control >> (2 * index) & 0b11 == 0 {
        return true;
    }
    let condition = registers.control >> (16 + 4 * index) & 0b1111;
    let bytes: u64 = match condition >> 2 {
        0b00 => 1,
        0b01 => 2,
        0b11 => 4,
        _ => 8,
    };
    let is_aligned = registers.addresses[index].is_multiple_of(bytes);
    match condition & 0b11 {
        PORTS => false,
        EXECUTE => bytes == 1,
        _ => is_aligned,
    }
}
