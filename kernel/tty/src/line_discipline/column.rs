//! Output processing (OPOST) and the column it keeps, for program output and echo alike.

use super::{LineDiscipline, is_continuation, is_control};
use crate::termios::{LocalFlags, OutputFlags};

const TAB_COLUMNS: u32 = 8;

impl LineDiscipline {
    /// Sends one byte of output through output processing.
    pub fn output(&mut self, byte: u8, out: &mut dyn FnMut(u8)) {
        let flags = self.termios.output;
        if !flags.contains(OutputFlags::OPOST) {
            out(byte);
            return;
        }
        match byte {
            b'\n' => {
                if flags.contains(OutputFlags::ONLRET) {
                    self.column = 0;
                }
                if flags.contains(OutputFlags::ONLCR) {
                    self.column = 0;
                    out(b'\r');
                }
                self.line_start_column = self.column;
                out(b'\n');
            }
            b'\r' if flags.contains(OutputFlags::ONOCR) && self.column == 0 => {}
            b'\r' if flags.contains(OutputFlags::OCRNL) => {
                if flags.contains(OutputFlags::ONLRET) {
                    self.column = 0;
                    self.line_start_column = 0;
                }
                out(b'\n');
            }
            b'\r' => {
                self.column = 0;
                self.line_start_column = 0;
                out(b'\r');
            }
            b'\t' => {
                let spaces = TAB_COLUMNS - self.column % TAB_COLUMNS;
                self.column = self.column.wrapping_add(spaces);
                if flags.contains(OutputFlags::XTABS) {
                    (0..spaces).for_each(|_| out(b' '));
                } else {
                    out(b'\t');
                }
            }
            8 => {
                self.column = self.column.saturating_sub(1);
                out(8);
            }
            _ => {
                if !is_control(byte) && !is_continuation(byte) {
                    self.column = self.column.wrapping_add(1);
                }
                let upper = flags.contains(OutputFlags::OLCUC);
                out(if upper { byte.to_ascii_uppercase() } else { byte });
            }
        }
    }

    /// Bytes that [`Self::output`] may produce for one byte at most.
    pub const MAX_EXPANSION: usize = TAB_COLUMNS as usize;

    /// Echoes one byte of input, control characters as ^X where ECHOCTL says so.
    pub(super) fn echo(&mut self, byte: u8, out: &mut dyn FnMut(u8)) {
        if self.has(LocalFlags::ECHOCTL) && is_control(byte) && byte != b'\t' {
            self.output(b'^', out);
            self.output(byte ^ 0x40, out);
        } else {
            self.output(byte, out);
        }
    }

    /// Remembers where on the screen the edited line starts, at its first character.
    pub(super) fn note_line_start(&mut self) {
        if self.head == self.canonical {
            self.line_start_column = self.column;
        }
    }
}
