//! The terminal line discipline (`N_TTY`), as a pure state machine.
//!
//! Bytes from the terminal go in at [`LineDiscipline::receive`]; what the program reads comes out of
//! [`LineDiscipline::read`]; what is to be shown (echo, and the program's output after output
//! processing) leaves through the `out` closure of the calls. Signals and flow control are returned,
//! not acted upon, so that all of this runs and is tested without a terminal.
//!
//! The input buffer holds, from `tail` to `head`: complete lines up to `canonical`, then the line
//! being edited. In canonical mode only bytes below `canonical` can be read; each line ends at a byte
//! whose bit in `delimiters` is set. An end-of-file character is stored as a zero byte with its bit
//! set, and is consumed without being delivered. Positions count all bytes ever received.
//!
//! Invariant: `tail <= canonical <= head <= tail + BUFFER_BYTES`; outside canonical mode
//! `canonical` is meaningless and kept at `tail`.

mod column;
mod erase;
mod input;
mod read;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use memory::OutOfMemory;
use memory::fallible::try_vec_of;

use crate::termios::{LocalFlags, Termios};

pub use input::{Received, TerminalSignal};
pub use read::Taken;

/// Bytes of input that a terminal buffers, as on Linux: the longest line is one less.
pub const BUFFER_BYTES: usize = 4096;

const DELIMITER_WORDS: usize = BUFFER_BYTES / 64;

/// Input buffer, edit state and column of one terminal.
pub struct LineDiscipline {
    termios: Termios,
    buffer: Box<[u8]>,
    delimiters: Box<[u64]>,
    tail: u64,
    canonical: u64,
    head: u64,
    column: u32,
    line_start_column: u32,
    literal_next: bool,
    erasing: bool,
    stopped: bool,
}

impl LineDiscipline {
    /// A discipline with the initial attributes.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new() -> Result<Self, OutOfMemory> {
        Ok(Self {
            termios: Termios::initial(),
            buffer: try_vec_of(0, BUFFER_BYTES)?.into_boxed_slice(),
            delimiters: try_vec_of(0, DELIMITER_WORDS)?.into_boxed_slice(),
            tail: 0,
            canonical: 0,
            head: 0,
            column: 0,
            line_start_column: 0,
            literal_next: false,
            erasing: false,
            stopped: false,
        })
    }

    /// The attributes.
    pub fn termios(&self) -> &Termios {
        &self.termios
    }

    /// Changes the attributes. What was being edited becomes readable when canonical mode ends; what
    /// was buffered becomes one line when it begins.
    pub fn set_termios(&mut self, termios: Termios) {
        let toggled = self.termios.local.symmetric_difference(termios.local).contains(LocalFlags::ICANON);
        self.termios = termios;
        if !toggled {
            return;
        }
        self.delimiters.fill(0);
        self.erasing = false;
        self.literal_next = false;
        self.canonical = self.tail;
        if self.is_canonical() && self.head != self.tail {
            self.set_delimiter(self.head - 1);
            self.canonical = self.head;
        }
    }

    /// Whether output is held back by STOP or TCOOFF.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Holds output back, or lets it go.
    pub fn set_stopped(&mut self, stopped: bool) {
        self.stopped = stopped;
    }

    /// Throws all buffered input away.
    pub fn flush_input(&mut self) {
        self.tail = self.head;
        self.canonical = self.head;
        self.delimiters.fill(0);
        self.erasing = false;
        self.literal_next = false;
    }

    /// Bytes that may be received now without loss. In canonical mode with no complete line there is
    /// always room: characters beyond the longest line are dropped so that it can still be ended.
    pub fn room(&self) -> usize {
        let free = BUFFER_BYTES - 1 - self.buffered().min(BUFFER_BYTES - 1);
        if free == 0 && self.is_canonical() && self.canonical == self.tail { 1 } else { free }
    }

    fn buffered(&self) -> usize {
        (self.head - self.tail) as usize
    }

    fn is_canonical(&self) -> bool {
        self.termios.local.contains(LocalFlags::ICANON)
    }

    fn has(&self, flag: LocalFlags) -> bool {
        self.termios.local.contains(flag)
    }

    fn byte(&self, position: u64) -> u8 {
        self.buffer[position as usize % BUFFER_BYTES]
    }

    fn is_delimiter(&self, position: u64) -> bool {
        let at = position as usize % BUFFER_BYTES;
        self.delimiters[at / 64] & (1 << (at % 64)) != 0
    }

    fn set_delimiter(&mut self, position: u64) {
        let at = position as usize % BUFFER_BYTES;
        self.delimiters[at / 64] |= 1 << (at % 64);
    }

    fn clear_delimiter(&mut self, position: u64) {
        let at = position as usize % BUFFER_BYTES;
        self.delimiters[at / 64] &= !(1 << (at % 64));
    }
}

/// Whether the byte is a control character that ECHOCTL shows as ^X.
fn is_control(byte: u8) -> bool {
    byte < 0x20 || byte == 0x7f
}

/// Whether the byte continues a UTF-8 sequence.
fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}
