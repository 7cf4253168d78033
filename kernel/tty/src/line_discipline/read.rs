//! What a program reads from the terminal.

use super::{BUFFER_BYTES, LineDiscipline};
use crate::termios::{Control, DISABLED};

/// What a read took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Bytes copied.
    pub count: usize,
    /// In canonical mode: the line is over (or there is none), so the read is, too.
    pub line_ended: bool,
}

impl LineDiscipline {
    /// Copies readable bytes into `into`, in canonical mode at most one line. A line that is only an
    /// end-of-file character gives zero bytes, as does an empty buffer: ask [`Self::is_readable`] first.
    pub fn read(&mut self, into: &mut [u8]) -> Taken {
        if self.is_canonical() {
            self.read_line(into)
        } else {
            Taken { count: self.read_raw(into), line_ended: false }
        }
    }

    fn read_raw(&mut self, into: &mut [u8]) -> usize {
        let count = into.len().min(self.buffered());
        for byte in &mut into[..count] {
            *byte = self.byte(self.tail);
            self.tail += 1;
        }
        self.canonical = self.tail;
        count
    }

    fn read_line(&mut self, into: &mut [u8]) -> Taken {
        let mut count = 0;
        while self.tail != self.canonical {
            let byte = self.byte(self.tail);
            let delimiter = self.is_delimiter(self.tail);
            let end_of_file = delimiter && byte == DISABLED;
            // An end-of-file character right behind what was asked for is consumed with it, so that
            // it does not look like the end of the file to the next read.
            if count == into.len() && !end_of_file {
                return Taken { count, line_ended: false };
            }
            if delimiter {
                self.clear_delimiter(self.tail);
            }
            self.tail += 1;
            if !end_of_file {
                into[count] = byte;
                count += 1;
            }
            if delimiter {
                break;
            }
        }
        Taken { count, line_ended: true }
    }

    /// Whether a read would return something now (or report an end of file). `for_poll` asks for
    /// VMIN bytes outside canonical mode when VTIME is zero, as poll does on Linux.
    pub fn is_readable(&self, for_poll: bool) -> bool {
        if self.is_canonical() {
            return self.canonical != self.tail;
        }
        let minimum = usize::from(self.termios.character(Control::Minimum));
        let timed = self.termios.character(Control::Time) != 0;
        let needed = if for_poll && !timed && minimum > 0 { minimum } else { 1 };
        self.buffered() >= needed.min(BUFFER_BYTES - 1)
    }

    /// Bytes that can be read now (FIONREAD): in canonical mode those of complete lines.
    pub fn readable_bytes(&self) -> usize {
        if !self.is_canonical() {
            return self.buffered();
        }
        (self.tail..self.canonical)
            .filter(|&position| !(self.is_delimiter(position) && self.byte(position) == DISABLED))
            .count()
    }
}
