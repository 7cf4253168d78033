//! The kernel log: kept in memory, and shown when the user asks for it or the kernel has a bug to report.

use std::collections::VecDeque;
use std::io::{self, Read};

use super::output::Output;

/// Bytes of log that are kept; a kernel that prints more loses the oldest.
const KEPT: usize = 4 << 20;

/// The log of one virtual machine.
#[derive(Debug)]
pub(super) struct Log {
    kept: VecDeque<u8>,
    shown: bool,
    /// The terminal is raw: a new line needs a carriage return.
    raw: bool,
}

impl Log {
    /// An empty log. `shown`: whatever arrives is shown.
    pub(super) const fn new(shown: bool, raw: bool) -> Self {
        Self { kept: VecDeque::new(), shown, raw }
    }

    /// Takes what has arrived.
    pub(super) fn append(&mut self, bytes: &[u8], output: &mut Output) {
        let surplus = (self.kept.len() + bytes.len()).saturating_sub(KEPT).min(self.kept.len());
        self.kept.drain(..surplus);
        self.kept.extend(bytes);
        if self.shown {
            show(bytes, self.raw, output);
        }
    }

    /// Shows all that was kept, and from now on whatever arrives.
    pub(super) fn show(&mut self, output: &mut Output) {
        if !self.shown {
            self.shown = true;
            show(self.kept.make_contiguous(), self.raw, output);
        }
    }

    /// What was kept.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.kept.into()
    }
}

/// Appends a text to an output, line ends as its terminal needs them.
pub(super) fn show(text: &[u8], raw: bool, output: &mut Output) {
    if !raw {
        return output.append(text);
    }
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_suffix(b"\n") {
            Some(line) => {
                output.append(line.strip_suffix(b"\r").unwrap_or(line));
                output.append(b"\r\n");
            }
            None => output.append(line),
        }
    }
}

/// Reads what a pipe holds without blocking.
#[derive(Debug)]
pub(super) enum Drained {
    /// Some bytes.
    Bytes(Vec<u8>),
    /// Nothing now.
    Nothing,
    /// The writer has gone.
    End,
}

/// Reads once from a descriptor in non-blocking mode.
pub(super) fn drain(reader: &mut impl Read) -> Drained {
    let mut buffer = [0; 16_384];
    match reader.read(&mut buffer) {
        Ok(0) => Drained::End,
        Ok(count) => Drained::Bytes(buffer[..count].to_vec()),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
            Drained::Nothing
        }
        Err(_) => Drained::End,
    }
}

#[cfg(test)]
mod tests {
    use super::super::output::Stream;
    use super::*;

    #[test]
    fn oldest_bytes_are_lost_first() {
        let mut output = Output::new(Stream::Error);
        let mut log = Log::new(false, false);
        log.append(b"first", &mut output);
        log.append(&vec![b'x'; KEPT], &mut output);
        log.append(b"last", &mut output);
        let kept = log.into_bytes();
        assert_eq!(kept.len(), KEPT);
        assert!(kept.starts_with(b"x") && kept.ends_with(b"last"));
        assert!(!output.is_waiting());
    }

    #[test]
    fn showing_starts_with_what_was_kept() {
        let mut output = Output::new(Stream::Error);
        let mut log = Log::new(false, true);
        log.append(b"one\ntwo\n", &mut output);
        assert!(!output.is_waiting());
        log.show(&mut output);
        log.append(b"three\r\n", &mut output);
        log.show(&mut output);
        assert_eq!(output.into_waiting(), b"one\r\ntwo\r\nthree\r\n");
    }
}
