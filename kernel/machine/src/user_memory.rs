//! Access to the memory of the running user program.
//!
//! Every function checks that the whole range lies in the user half, then accesses it with
//! instructions that are allowed to fault: a missing page is brought in by the address space (which
//! may sleep), and what can't be resolved ends in [`Fault`]. With preemption or interrupts disabled
//! nothing is brought in: a page that is not mapped is a [`Fault`] at once, so callers in atomic
//! sections retry outside of them.
//!
//! The accesses are as racy as user memory is: nothing read twice is trusted to be the same.

use core::mem::MaybeUninit;
use core::ops::ControlFlow;

use zerocopy::FromBytes;

use crate::address::{USER_END, UserAddr};
#[cfg(not(target_os = "none"))]
use crate::backend::user_memory as raw;
#[cfg(target_os = "none")]
use crate::backend::user_memory as raw;
use crate::fault::Fault;

/// A copy that stopped early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// Bytes copied before the fault.
    pub copied: usize,
}

impl From<Partial> for Fault {
    fn from(_: Partial) -> Self {
        Fault
    }
}

/// Why a string could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StringError {
    /// A byte before the terminator is not readable.
    Fault,
    /// No terminator within the buffer.
    TooLong,
}

#[inline]
pub(crate) fn check(address: UserAddr, bytes: usize) -> Result<usize, Fault> {
    let start = address.as_usize();
    match start.checked_add(bytes) {
        Some(end) if end <= USER_END => Ok(start),
        _ => Err(Fault),
    }
}

/// Copies from user memory, as far as it goes.
///
/// # Errors
/// [`Partial`] with the number of bytes that could be copied.
#[inline]
pub fn read_partial(into: &mut [u8], from: UserAddr) -> Result<(), Partial> {
    let start = check(from, into.len()).map_err(|Fault| Partial { copied: 0 })?;
    // SAFETY: `into` is writable for its length; the user range was checked to lie in the user half,
    // where faults are fixed up.
    let left = unsafe { raw::copy_in(into.as_mut_ptr(), start, into.len()) };
    if left == 0 { Ok(()) } else { Err(Partial { copied: into.len() - left }) }
}

/// Copies from user memory.
///
/// # Errors
/// [`Fault`] when any byte is not readable; `into` then holds an unspecified mixture.
#[inline]
pub fn read(into: &mut [u8], from: UserAddr) -> Result<(), Fault> {
    Ok(read_partial(into, from)?)
}

/// Copies a value from user memory.
///
/// # Errors
/// [`Fault`] when any byte is not readable.
#[inline]
pub fn read_value<T: FromBytes>(from: UserAddr) -> Result<T, Fault> {
    let start = check(from, size_of::<T>())?;
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the value is writable; the user range was checked to lie in the user half, where faults are fixed up.
    let left = unsafe { raw::copy_in(value.as_mut_ptr().cast(), start, size_of::<T>()) };
    if left != 0 {
        return Err(Fault);
    }
    // SAFETY: all bytes have been written, and any bytes make a value of the type.
    Ok(unsafe { value.assume_init() })
}

/// Copies to user memory, as far as it goes.
///
/// # Errors
/// [`Partial`] with the number of bytes that could be copied.
#[inline]
pub fn write_partial(to: UserAddr, from: &[u8]) -> Result<(), Partial> {
    let start = check(to, from.len()).map_err(|Fault| Partial { copied: 0 })?;
    // SAFETY: `from` is readable for its length; the user range was checked to lie in the user half,
    // where faults are fixed up.
    let left = unsafe { raw::copy_out(start, from.as_ptr(), from.len()) };
    if left == 0 { Ok(()) } else { Err(Partial { copied: from.len() - left }) }
}

/// Copies to user memory.
///
/// # Errors
/// [`Fault`] when any byte is not writable; the bytes before it may have been written.
#[inline]
pub fn write(to: UserAddr, from: &[u8]) -> Result<(), Fault> {
    Ok(write_partial(to, from)?)
}

/// Writes zeros to user memory.
///
/// # Errors
/// [`Partial`] with the number of bytes that could be written.
#[inline]
pub fn zero(to: UserAddr, bytes: usize) -> Result<(), Partial> {
    let start = check(to, bytes).map_err(|Fault| Partial { copied: 0 })?;
    // SAFETY: the user range was checked to lie in the user half, where faults are fixed up.
    let left = unsafe { raw::zero(start, bytes) };
    if left == 0 { Ok(()) } else { Err(Partial { copied: bytes - left }) }
}

/// Reads a zero-terminated string into `into`; returns its length without the terminator. Bytes of
/// `into` beyond the terminator are unspecified.
///
/// # Errors
/// [`StringError`].
pub fn read_string(into: &mut [u8], from: UserAddr) -> Result<usize, StringError> {
    let room = into.len().min(USER_END.saturating_sub(from.as_usize()));
    // SAFETY: `into` is writable for `room` bytes; the user range lies in the user half.
    match unsafe { raw::copy_string(into.as_mut_ptr(), from.as_usize(), room) } {
        raw::FAULT => Err(StringError::Fault),
        raw::UNTERMINATED if room < into.len() => Err(StringError::Fault),
        raw::UNTERMINATED => Err(StringError::TooLong),
        length => Ok(length as usize),
    }
}

/// Reads an aligned 32-bit word atomically.
///
/// # Errors
/// [`Fault`]; also for an unaligned address.
#[inline]
pub fn load_u32(from: UserAddr) -> Result<u32, Fault> {
    let start = check_word(from)?;
    // SAFETY: the aligned word lies in the user half, where faults are fixed up.
    word(unsafe { raw::load_u32(start) })
}

/// Stores an aligned 32-bit word atomically.
///
/// # Errors
/// [`Fault`]; also for an unaligned address.
pub fn store_u32(to: UserAddr, value: u32) -> Result<(), Fault> {
    check_word(to)?;
    write(to, &value.to_ne_bytes())
}

/// Replaces an aligned 32-bit word if it equals `old`; returns what it was.
///
/// # Errors
/// [`Fault`]; also for an unaligned address.
#[inline]
pub fn compare_exchange_u32(at: UserAddr, old: u32, new: u32) -> Result<u32, Fault> {
    let start = check_word(at)?;
    // SAFETY: the aligned word lies in the user half, where faults are fixed up.
    word(unsafe { raw::compare_exchange_u32(start, old, new) })
}

/// Replaces an aligned 32-bit word by `operation` of it, atomically; returns what it was. Gives up
/// after [`MAX_UPDATE_TRIES`] lost races, which only a program fighting itself can cause.
///
/// # Errors
/// [`Fault`]; also for an unaligned address.
pub fn update_u32(at: UserAddr, operation: impl Fn(u32) -> u32) -> Result<ControlFlow<u32>, Fault> {
    let mut old = load_u32(at)?;
    for _ in 0..MAX_UPDATE_TRIES {
        let seen = compare_exchange_u32(at, old, operation(old))?;
        if seen == old {
            return Ok(ControlFlow::Break(old));
        }
        old = seen;
    }
    Ok(ControlFlow::Continue(()))
}

/// Lost races after which [`update_u32`] reports [`ControlFlow::Continue`] so that the caller can
/// look at its signals and try again.
pub const MAX_UPDATE_TRIES: usize = 128;

fn check_word(address: UserAddr) -> Result<usize, Fault> {
    let start = check(address, 4)?;
    if start.is_multiple_of(4) { Ok(start) } else { Err(Fault) }
}

fn word(result: u64) -> Result<u32, Fault> {
    u32::try_from(result).map_err(|_| Fault)
}
