//! ERASE, WERASE and KILL: taking characters back, on the line and on the screen.

use super::{LineDiscipline, is_continuation, is_control};
use crate::termios::{Control, InputFlags, LocalFlags};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    Character,
    Word,
    Line,
}

impl LineDiscipline {
    /// Handles one of the three erasing characters.
    pub(super) fn erase(&mut self, byte: u8, out: &mut dyn FnMut(u8)) {
        if self.head == self.canonical {
            return;
        }
        let extent = if self.termios.is(Control::Erase, byte) {
            Extent::Character
        } else if self.termios.is(Control::WordErase, byte) {
            Extent::Word
        } else {
            Extent::Line
        };
        if extent == Extent::Line && self.forget_line(byte, out) {
            return;
        }
        let mut seen_word = false;
        while self.head != self.canonical {
            let Some(start) = self.last_character() else { break };
            let first = self.byte(start);
            if extent == Extent::Word {
                let word = first.is_ascii_alphanumeric() || first == b'_' || first >= 0x80;
                if seen_word && !word {
                    break;
                }
                seen_word |= word;
            }
            let end = core::mem::replace(&mut self.head, start);
            if self.has(LocalFlags::ECHO) {
                self.show_erased(extent, start, end, out);
            }
            if extent == Extent::Character {
                break;
            }
        }
        if self.head == self.canonical && self.has(LocalFlags::ECHO) {
            self.finish_erasing(out);
        }
    }

    /// KILL where the line is not rubbed out on the screen; true if that is the case.
    fn forget_line(&mut self, byte: u8, out: &mut dyn FnMut(u8)) -> bool {
        if !self.has(LocalFlags::ECHO) {
            self.head = self.canonical;
            return true;
        }
        if self.termios.local.contains(LocalFlags::ECHOK | LocalFlags::ECHOKE | LocalFlags::ECHOE) {
            return false;
        }
        self.head = self.canonical;
        self.finish_erasing(out);
        self.echo(byte, out);
        if self.has(LocalFlags::ECHOK) {
            self.output(b'\n', out);
        }
        true
    }

    /// Start of the last character of the edited line; None if only part of one is there.
    fn last_character(&self) -> Option<u64> {
        let mut position = self.head - 1;
        if self.termios.input.contains(InputFlags::IUTF8) {
            while is_continuation(self.byte(position)) && position != self.canonical {
                position -= 1;
            }
            if is_continuation(self.byte(position)) {
                return None;
            }
        }
        Some(position)
    }

    fn show_erased(&mut self, extent: Extent, start: u64, end: u64, out: &mut dyn FnMut(u8)) {
        let first = self.byte(start);
        if self.has(LocalFlags::ECHOPRT) {
            if !core::mem::replace(&mut self.erasing, true) {
                self.output(b'\\', out);
            }
            self.echo(first, out);
            for position in start + 1..end {
                self.output(self.byte(position), out);
            }
        } else if extent == Extent::Character && !self.has(LocalFlags::ECHOE) {
            self.echo(self.termios.character(Control::Erase), out);
        } else if first == b'\t' {
            self.rub_out_tab(out);
        } else {
            let shown_as_control = is_control(first) && self.has(LocalFlags::ECHOCTL);
            if shown_as_control {
                self.rub_out(out);
            }
            if !is_control(first) || shown_as_control {
                self.rub_out(out);
            }
        }
    }

    fn rub_out(&mut self, out: &mut dyn FnMut(u8)) {
        for byte in *b"\x08 \x08" {
            self.output(byte, out);
        }
    }

    /// Moves back over a tab: as far as it had moved, which depends on what stands before it.
    fn rub_out_tab(&mut self, out: &mut dyn FnMut(u8)) {
        let mut columns = 0;
        let mut after_tab = false;
        let mut position = self.head;
        while position != self.canonical {
            position -= 1;
            let byte = self.byte(position);
            if byte == b'\t' {
                after_tab = true;
                break;
            }
            if is_control(byte) {
                columns += if self.has(LocalFlags::ECHOCTL) { 2 } else { 0 };
            } else if !is_continuation(byte) {
                columns += 1;
            }
        }
        if !after_tab {
            columns += self.line_start_column;
        }
        for _ in 0..8 - columns % 8 {
            self.output(8, out);
        }
    }

    /// Ends a run of ECHOPRT erasures.
    pub(super) fn finish_erasing(&mut self, out: &mut dyn FnMut(u8)) {
        if core::mem::take(&mut self.erasing) {
            self.output(b'/', out);
        }
    }
}
