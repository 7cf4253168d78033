//! Who called whom on a kernel stack, from the chain of frame pointers.
//!
//! The kernel is built with frame pointers: each frame holds the caller's frame pointer and, above it, the return
//! address. The walk believes nothing: it reads only mapped kernel memory, goes only upwards, and ends after
//! `WALK_MAX` frames, at the first word that is not code, or at a frame pointer of 0 (the bottom of a stack).
//!
//! Printed, a frame that repeats itself (recursion) takes one line and a count, so that a stack that overflowed shows
//! who began the recursion.

use crate::backend;
use crate::context::{KernelContext, SAVED_FRAME_OFFSET};
use crate::symbols;
use core::fmt;

/// Most frames listed by [`Backtrace::addresses`], and most lines printed.
pub const FRAMES_MAX: usize = 64;
/// Most frames looked at for printing: more than the largest stack holds of frames of 128 bytes.
const WALK_MAX: usize = 4096;
/// Farthest that a caller's frame lies above its callee's: the biggest stack.
const STACK_BYTES_MAX: usize = 1 << 20;

/// The calls on a stack, innermost first. Printing it gives one line for each.
#[derive(Clone, Copy, Debug)]
pub struct Backtrace {
    /// Where execution stands, if known.
    instruction: Option<usize>,
    /// Its frame pointer.
    frame: usize,
}

impl Backtrace {
    /// From the place of the call on.
    #[inline(always)]
    pub fn here() -> Backtrace {
        Backtrace { instruction: None, frame: backend::backtrace::frame_pointer() }
    }

    /// From an instruction and its frame pointer on.
    pub fn from_registers(instruction: u64, frame_pointer: u64) -> Backtrace {
        Backtrace { instruction: Some(instruction as usize), frame: frame_pointer as usize }
    }

    /// From the place on where a thread that does not run was switched away from.
    pub fn of_suspended(context: &KernelContext) -> Backtrace {
        Backtrace { instruction: None, frame: context.stack_pointer().as_u64() as usize + SAVED_FRAME_OFFSET }
    }

    /// From the place on where a thread was switched away from with that stack pointer.
    pub fn of_stack_pointer(stack_pointer: u64) -> Backtrace {
        Backtrace { instruction: None, frame: (stack_pointer as usize).wrapping_add(SAVED_FRAME_OFFSET) }
    }

    /// The code addresses, innermost first: where execution stands, then return addresses.
    pub fn addresses(&self) -> impl Iterator<Item = usize> + use<> {
        self.walk().take(FRAMES_MAX)
    }

    fn walk(&self) -> impl Iterator<Item = usize> + use<> {
        let mut frame = self.frame;
        let callers = core::iter::from_fn(move || {
            let [next, address] = backend::backtrace::read_frame(frame)?;
            let goes_up = next == 0 || (next > frame && next - frame <= STACK_BYTES_MAX);
            frame = if goes_up { next } else { 0 };
            backend::backtrace::is_code(address).then_some(address)
        });
        self.instruction.into_iter().chain(callers).take(WALK_MAX)
    }
}

/// Each address with the number of times that it follows itself.
fn collapse(addresses: impl Iterator<Item = usize>) -> impl Iterator<Item = (usize, usize)> {
    let mut addresses = addresses.peekable();
    core::iter::from_fn(move || {
        let address = addresses.next()?;
        let mut repeats = 0;
        while addresses.next_if_eq(&address).is_some() {
            repeats += 1;
        }
        Some((address, repeats))
    })
}

impl fmt::Display for Backtrace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (address, repeats)) in collapse(self.walk()).take(FRAMES_MAX).enumerate() {
            // A return address may be the first of the next function; the call is before it.
            let inside = if index == 0 && self.instruction.is_some() { address } else { address - 1 };
            match symbols::resolve(inside) {
                Some(symbol) => writeln!(formatter, "  {address:#x} {symbol}")?,
                None => writeln!(formatter, "  {address:#x}")?,
            }
            if repeats > 0 {
                writeln!(formatter, "  ... {repeats} more times")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_frames_are_counted() {
        let lines: Vec<_> = collapse([7, 5, 5, 5, 9, 5, 2, 2].into_iter()).collect();
        assert_eq!(lines, [(7, 0), (5, 2), (9, 0), (5, 0), (2, 1)]);
        assert_eq!(collapse(core::iter::empty()).next(), None);
    }
}
