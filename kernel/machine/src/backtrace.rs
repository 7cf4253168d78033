//! Who called whom on a kernel stack, from the chain of frame pointers.
//!
//! The kernel is built with frame pointers: each frame holds the caller's frame pointer and, above it, the return
//! address. The walk believes nothing: it reads only mapped kernel memory, goes only upwards, and ends after
//! [`FRAMES_MAX`] frames, at the first word that is not code, or at a frame pointer of 0 (the bottom of a stack).

use crate::backend;
use crate::symbols;
use core::fmt;

/// Most frames reported; deep recursion repeats itself.
pub const FRAMES_MAX: usize = 64;
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

    /// The code addresses, innermost first: where execution stands, then return addresses.
    pub fn addresses(&self) -> impl Iterator<Item = usize> + use<> {
        let mut frame = self.frame;
        let callers = core::iter::from_fn(move || {
            let [next, address] = backend::backtrace::read_frame(frame)?;
            let goes_up = next == 0 || (next > frame && next - frame <= STACK_BYTES_MAX);
            frame = if goes_up { next } else { 0 };
            backend::backtrace::is_code(address).then_some(address)
        });
        self.instruction.into_iter().chain(callers).take(FRAMES_MAX)
    }
}

impl fmt::Display for Backtrace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, address) in self.addresses().enumerate() {
            // A return address may be the first of the next function; the call is before it.
            let inside = if index == 0 && self.instruction.is_some() { address } else { address - 1 };
            match symbols::resolve(inside) {
                Some(symbol) => writeln!(formatter, "  {address:#x} {symbol}")?,
                None => writeln!(formatter, "  {address:#x}")?,
            }
        }
        Ok(())
    }
}
