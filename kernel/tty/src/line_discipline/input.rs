//! Bytes coming in from the terminal: signals, flow control, line ends, echo.

use super::{BUFFER_BYTES, LineDiscipline};
use crate::termios::{Control, DISABLED, InputFlags, LocalFlags};

/// A signal for the foreground process group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminalSignal {
    /// INTR: SIGINT.
    Interrupt,
    /// QUIT: SIGQUIT.
    Quit,
    /// SUSP: SIGTSTP.
    Suspend,
}

/// What a received byte asks the terminal to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Send this signal.
    pub signal: Option<TerminalSignal>,
    /// Throw queued output away (a signal without NOFLSH).
    pub flush_output: bool,
    /// There is something new to read.
    pub readable: bool,
    /// Output was stopped or started.
    pub flow_changed: bool,
}

impl LineDiscipline {
    /// Takes one byte from the terminal; echo leaves through `out`.
    pub fn receive(&mut self, byte: u8, out: &mut dyn FnMut(u8)) -> Received {
        let mut byte = byte;
        if self.termios.input.contains(InputFlags::ISTRIP) {
            byte &= 0x7f;
        }
        if self.termios.input.contains(InputFlags::IUCLC) && self.has(LocalFlags::IEXTEN) {
            byte = byte.to_ascii_lowercase();
        }
        if self.has(LocalFlags::EXTPROC) {
            return self.store(byte);
        }
        if core::mem::take(&mut self.literal_next) {
            return self.ordinary(byte, out);
        }
        let mut restarted = false;
        if self.stopped && self.termios.input.contains(InputFlags::IXON | InputFlags::IXANY) {
            self.stopped = false;
            restarted = true;
        }
        let mut received = self.special(byte, out);
        received.flow_changed |= restarted;
        received
    }

    fn special(&mut self, byte: u8, out: &mut dyn FnMut(u8)) -> Received {
        if self.termios.input.contains(InputFlags::IXON) {
            for (control, stopped) in [(Control::Start, false), (Control::Stop, true)] {
                if self.termios.is(control, byte) {
                    self.stopped = stopped;
                    return Received { flow_changed: true, ..Received::default() };
                }
            }
        }
        if self.has(LocalFlags::ISIG)
            && let Some(signal) = self.signal_of(byte)
        {
            return self.raise(signal, byte, out);
        }
        let byte = match byte {
            b'\r' if self.termios.input.contains(InputFlags::IGNCR) => return Received::default(),
            b'\r' if self.termios.input.contains(InputFlags::ICRNL) => b'\n',
            b'\n' if self.termios.input.contains(InputFlags::INLCR) => b'\r',
            other => other,
        };
        if self.is_canonical() { self.canonical_byte(byte, out) } else { self.ordinary(byte, out) }
    }

    fn signal_of(&self, byte: u8) -> Option<TerminalSignal> {
        [
            (Control::Interrupt, TerminalSignal::Interrupt),
            (Control::Quit, TerminalSignal::Quit),
            (Control::Suspend, TerminalSignal::Suspend),
        ]
        .into_iter()
        .find_map(|(control, signal)| self.termios.is(control, byte).then_some(signal))
    }

    fn raise(&mut self, signal: TerminalSignal, byte: u8, out: &mut dyn FnMut(u8)) -> Received {
        let flush = !self.has(LocalFlags::NOFLSH);
        if flush {
            self.flush_input();
        }
        let restarted = core::mem::take(&mut self.stopped);
        if self.has(LocalFlags::ECHO) {
            self.echo(byte, out);
        }
        Received { signal: Some(signal), flush_output: flush, readable: false, flow_changed: restarted }
    }

    fn canonical_byte(&mut self, byte: u8, out: &mut dyn FnMut(u8)) -> Received {
        let extended = self.has(LocalFlags::IEXTEN);
        let termios = self.termios;
        if termios.is(Control::Erase, byte)
            || termios.is(Control::Kill, byte)
            || (extended && termios.is(Control::WordErase, byte))
        {
            self.erase(byte, out);
            return Received::default();
        }
        if extended && termios.is(Control::LiteralNext, byte) {
            self.literal_next = true;
            if self.has(LocalFlags::ECHO) {
                self.finish_erasing(out);
                if self.has(LocalFlags::ECHOCTL) {
                    self.output(b'^', out);
                    self.output(8, out);
                }
            }
            return Received::default();
        }
        if extended && self.has(LocalFlags::ECHO) && termios.is(Control::Reprint, byte) {
            self.reprint(byte, out);
            return Received::default();
        }
        if byte == b'\n' {
            if self.has(LocalFlags::ECHO) || self.has(LocalFlags::ECHONL) {
                self.finish_erasing(out);
                self.output(b'\n', out);
            }
            return self.end_line(b'\n');
        }
        if termios.is(Control::EndOfFile, byte) {
            return self.end_line(DISABLED);
        }
        if termios.is(Control::EndOfLine, byte) || (extended && termios.is(Control::EndOfLine2, byte)) {
            if self.has(LocalFlags::ECHO) {
                self.note_line_start();
                self.echo(byte, out);
            }
            return self.end_line(byte);
        }
        self.ordinary(byte, out)
    }

    fn ordinary(&mut self, byte: u8, out: &mut dyn FnMut(u8)) -> Received {
        // One slot is kept so that a full line can still be ended.
        let full = self.buffered() >= BUFFER_BYTES - 1;
        if full {
            if self.termios.input.contains(InputFlags::IMAXBEL) {
                self.output(7, out);
            }
            return Received::default();
        }
        if self.has(LocalFlags::ECHO) {
            self.finish_erasing(out);
            if byte == b'\n' {
                self.output(b'\n', out);
            } else {
                self.note_line_start();
                self.echo(byte, out);
            }
        }
        self.store(byte)
    }

    fn store(&mut self, byte: u8) -> Received {
        if self.buffered() >= BUFFER_BYTES - 1 {
            return Received::default();
        }
        self.put(byte);
        Received { readable: !self.is_canonical(), ..Received::default() }
    }

    fn end_line(&mut self, byte: u8) -> Received {
        if self.buffered() >= BUFFER_BYTES {
            return Received::default();
        }
        self.set_delimiter(self.head);
        self.put(byte);
        self.canonical = self.head;
        Received { readable: true, ..Received::default() }
    }

    fn put(&mut self, byte: u8) {
        let at = self.head as usize % BUFFER_BYTES;
        self.buffer[at] = byte;
        self.head += 1;
    }

    fn reprint(&mut self, byte: u8, out: &mut dyn FnMut(u8)) {
        self.finish_erasing(out);
        self.echo(byte, out);
        self.output(b'\n', out);
        for position in self.canonical..self.head {
            self.echo(self.byte(position), out);
        }
    }
}
