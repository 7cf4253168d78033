//! Frames that the host (`starling run`) sends to the guest.

use crate::FrameError;
use crate::wire::{Reader, Writer};

/// A frame from host to guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostFrame<'a> {
    /// Bytes for the command's standard input, within the credit given.
    Stdin(&'a [u8]),
    /// The standard input has ended.
    StdinEof,
    /// Bytes typed at the terminal, within the credit given.
    TtyInput(&'a [u8]),
    /// The terminal's size.
    Window {
        /// Lines.
        rows: u16,
        /// Characters in a line.
        columns: u16,
    },
    /// A signal for the command's process.
    Signal(u8),
    /// Write back what is to be written and power off.
    Terminate,
    /// Nobody reads what the command writes to this output any more: further writes by the guest's programs fail
    /// with `EPIPE` and raise `SIGPIPE`, as on a pipe whose reader has gone. The value is the kind byte of the
    /// guest frame that no longer arrives anywhere ([`crate::GuestFrame::STDOUT`] or [`crate::GuestFrame::STDERR`]).
    OutputClosed(u8),
    /// The last frame in this stream, in answer to the guest's; the next ones come in the other one.
    Moved,
}

impl<'a> HostFrame<'a> {
    /// Kind byte of [`HostFrame::Stdin`].
    pub const STDIN: u8 = 0x81;
    /// Kind byte of [`HostFrame::StdinEof`].
    pub const STDIN_EOF: u8 = 0x82;
    /// Kind byte of [`HostFrame::TtyInput`].
    pub const TTY_INPUT: u8 = 0x83;
    /// Kind byte of [`HostFrame::Window`].
    pub const WINDOW: u8 = 0x84;
    /// Kind byte of [`HostFrame::Signal`].
    pub const SIGNAL: u8 = 0x85;
    /// Kind byte of [`HostFrame::Terminate`].
    pub const TERMINATE: u8 = 0x86;
    /// Kind byte of [`HostFrame::OutputClosed`].
    pub const OUTPUT_CLOSED: u8 = 0x87;
    /// Kind byte of [`HostFrame::Moved`].
    pub const MOVED: u8 = 0x88;

    /// The frame of `kind` with this payload.
    ///
    /// # Errors
    /// A [`FrameError`] when the kind is unknown or the payload does not fit it.
    pub fn decode(kind: u8, payload: &'a [u8]) -> Result<Self, FrameError> {
        let mut fields = Reader::new(kind, payload);
        let frame = match kind {
            Self::STDIN => Self::Stdin(fields.remainder()),
            Self::STDIN_EOF => Self::StdinEof,
            Self::TTY_INPUT => Self::TtyInput(fields.remainder()),
            Self::WINDOW => Self::Window { rows: fields.u16()?, columns: fields.u16()? },
            Self::SIGNAL => match fields.u8()? {
                signal @ 1..=64 => Self::Signal(signal),
                _ => return Err(FrameError::BadValue(kind)),
            },
            Self::TERMINATE => Self::Terminate,
            Self::OUTPUT_CLOSED => match fields.u8()? {
                output @ (crate::GuestFrame::STDOUT | crate::GuestFrame::STDERR) => {
                    Self::OutputClosed(output)
                }
                _ => return Err(FrameError::BadValue(kind)),
            },
            Self::MOVED => Self::Moved,
            _ => return Err(FrameError::UnknownKind(kind)),
        };
        fields.finish(frame)
    }

    /// The frame's kind byte.
    #[must_use]
    pub const fn kind(&self) -> u8 {
        match self {
            Self::Stdin(_) => Self::STDIN,
            Self::StdinEof => Self::STDIN_EOF,
            Self::TtyInput(_) => Self::TTY_INPUT,
            Self::Window { .. } => Self::WINDOW,
            Self::Signal(_) => Self::SIGNAL,
            Self::Terminate => Self::TERMINATE,
            Self::OutputClosed(_) => Self::OUTPUT_CLOSED,
            Self::Moved => Self::MOVED,
        }
    }

    /// Writes the frame to the front of `out` and returns its length.
    ///
    /// # Errors
    /// [`FrameError::NoRoom`] when `out` is too small ([`crate::MAX_FRAME`] always suffices),
    /// [`FrameError::TooLong`] when the payload is over the limit.
    pub fn encode(&self, out: &mut [u8]) -> Result<usize, FrameError> {
        let mut frame = Writer::new(self.kind(), out);
        match *self {
            Self::Stdin(bytes) | Self::TtyInput(bytes) => frame.put(bytes)?,
            Self::StdinEof | Self::Terminate | Self::Moved => {}
            Self::Window { rows, columns } => {
                frame.put(&rows.to_le_bytes())?;
                frame.put(&columns.to_le_bytes())?;
            }
            Self::Signal(value) | Self::OutputClosed(value) => frame.put(&[value])?,
        }
        frame.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Deframer, MAX_FRAME};

    #[test]
    fn every_frame_survives_the_wire() {
        for frame in [
            HostFrame::Stdin(b"in"),
            HostFrame::StdinEof,
            HostFrame::TtyInput(b"\x03"),
            HostFrame::Window { rows: 24, columns: 80 },
            HostFrame::Signal(15),
            HostFrame::Terminate,
            HostFrame::OutputClosed(2),
            HostFrame::Moved,
        ] {
            let mut bytes = [0; MAX_FRAME];
            let length = frame.encode(&mut bytes).expect("the frame fits");
            let mut deframer = Deframer::new();
            let (_, found) = deframer.feed(&bytes[..length]).expect("well formed");
            let (kind, payload) = found.expect("a whole frame");
            assert_eq!(HostFrame::decode(kind, payload), Ok(frame));
        }
    }

    #[test]
    fn malformed_payloads_are_errors() {
        assert_eq!(HostFrame::decode(0x82, b"x"), Err(FrameError::WrongLength(0x82)));
        assert_eq!(HostFrame::decode(0x84, &[1, 2, 3]), Err(FrameError::WrongLength(0x84)));
        assert_eq!(HostFrame::decode(0x85, &[0]), Err(FrameError::BadValue(0x85)));
        assert_eq!(HostFrame::decode(0x85, &[65]), Err(FrameError::BadValue(0x85)));
        assert_eq!(HostFrame::decode(0x87, &[4]), Err(FrameError::BadValue(0x87)));
        assert_eq!(HostFrame::decode(0x88, b"x"), Err(FrameError::WrongLength(0x88)));
        assert_eq!(HostFrame::decode(0x01, b""), Err(FrameError::UnknownKind(0x01)));
    }
}
