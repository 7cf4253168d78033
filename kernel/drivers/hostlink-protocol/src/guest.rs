//! Frames that the guest (the kernel) sends to the host.

use crate::wire::{Reader, Writer};
use crate::{BootRecords, Channel, FrameError};

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitKind {
    /// It called `exit` with this status.
    Exited(u8),
    /// This signal killed it.
    Killed(u8),
}

/// A frame from guest to host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestFrame<'a> {
    /// The first frame, sent before the first user instruction.
    Hello {
        /// The protocol version the kernel speaks.
        version: u16,
        /// Nanoseconds since the kernel was entered.
        nanoseconds: u64,
    },
    /// Bytes of the command's standard output.
    Stdout(&'a [u8]),
    /// Bytes of the command's standard error.
    Stderr(&'a [u8]),
    /// Bytes that the guest's terminal prints (interactive mode).
    Tty(&'a [u8]),
    /// The host may send that many more bytes on an input channel.
    Credit {
        /// The input channel.
        channel: Channel,
        /// How many more bytes.
        bytes: u32,
    },
    /// The command ended. The last frame: the host then ends the virtual machine.
    Exit(ExitKind),
    /// The command could not be executed.
    StartFailed {
        /// Linux errno.
        errno: u16,
        /// What could not be done, UTF-8.
        text: &'a [u8],
    },
    /// The kernel reports a bug of its own, UTF-8; the full report is on the log.
    Bug(&'a [u8]),
    /// Moments of the boot.
    BootTrace(BootRecords<'a>),
    /// The first user instruction of the command is about to be executed.
    FirstUser {
        /// Nanoseconds since the kernel was entered.
        nanoseconds: u64,
    },
    /// The last frame in this stream; the next ones come in the other one, and the host is to send there too.
    Moved,
    /// The second stream is gone. The guest is back on the first, and listens there: the host is to send there too.
    Back {
        /// How many frames of the host's the guest has received in the second.
        heard: u32,
    },
}

impl<'a> GuestFrame<'a> {
    /// Kind byte of [`GuestFrame::Hello`].
    pub const HELLO: u8 = 0x01;
    /// Kind byte of [`GuestFrame::Stdout`].
    pub const STDOUT: u8 = 0x02;
    /// Kind byte of [`GuestFrame::Stderr`].
    pub const STDERR: u8 = 0x03;
    /// Kind byte of [`GuestFrame::Tty`].
    pub const TTY: u8 = 0x04;
    /// Kind byte of [`GuestFrame::Credit`].
    pub const CREDIT: u8 = 0x05;
    /// Kind byte of [`GuestFrame::Exit`].
    pub const EXIT: u8 = 0x06;
    /// Kind byte of [`GuestFrame::StartFailed`].
    pub const START_FAILED: u8 = 0x07;
    /// Kind byte of [`GuestFrame::Bug`].
    pub const BUG: u8 = 0x08;
    /// Kind byte of [`GuestFrame::BootTrace`].
    pub const BOOT_TRACE: u8 = 0x09;
    /// Kind byte of [`GuestFrame::FirstUser`].
    pub const FIRST_USER: u8 = 0x0a;
    /// Kind byte of [`GuestFrame::Moved`].
    pub const MOVED: u8 = 0x0b;
    /// Kind byte of [`GuestFrame::Back`].
    pub const BACK: u8 = 0x0c;

    /// The frame of `kind` with this payload.
    ///
    /// # Errors
    /// A [`FrameError`] when the kind is unknown or the payload does not fit it.
    pub fn decode(kind: u8, payload: &'a [u8]) -> Result<Self, FrameError> {
        let mut fields = Reader::new(kind, payload);
        let frame = match kind {
            Self::HELLO => Self::Hello { version: fields.u16()?, nanoseconds: fields.u64()? },
            Self::STDOUT => Self::Stdout(fields.remainder()),
            Self::STDERR => Self::Stderr(fields.remainder()),
            Self::TTY => Self::Tty(fields.remainder()),
            Self::CREDIT => {
                let channel = Channel::from_kind(fields.u8()?).ok_or(FrameError::BadValue(kind))?;
                Self::Credit { channel, bytes: fields.u32()? }
            }
            Self::EXIT => {
                let (how, value) = (fields.u8()?, fields.u8()?);
                Self::Exit(match how {
                    0 => ExitKind::Exited(value),
                    1 => ExitKind::Killed(value),
                    _ => return Err(FrameError::BadValue(kind)),
                })
            }
            Self::START_FAILED => Self::StartFailed { errno: fields.u16()?, text: fields.remainder() },
            Self::BUG => Self::Bug(fields.remainder()),
            Self::BOOT_TRACE => Self::BootTrace(BootRecords::decode(fields.remainder())?),
            Self::FIRST_USER => Self::FirstUser { nanoseconds: fields.u64()? },
            Self::MOVED => Self::Moved,
            Self::BACK => Self::Back { heard: fields.u32()? },
            _ => return Err(FrameError::UnknownKind(kind)),
        };
        fields.finish(frame)
    }

    /// The frame's kind byte.
    #[must_use]
    pub const fn kind(&self) -> u8 {
        match self {
            Self::Hello { .. } => Self::HELLO,
            Self::Stdout(_) => Self::STDOUT,
            Self::Stderr(_) => Self::STDERR,
            Self::Tty(_) => Self::TTY,
            Self::Credit { .. } => Self::CREDIT,
            Self::Exit(_) => Self::EXIT,
            Self::StartFailed { .. } => Self::START_FAILED,
            Self::Bug(_) => Self::BUG,
            Self::BootTrace(_) => Self::BOOT_TRACE,
            Self::FirstUser { .. } => Self::FIRST_USER,
            Self::Moved => Self::MOVED,
            Self::Back { .. } => Self::BACK,
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
            Self::Hello { version, nanoseconds } => {
                frame.put(&version.to_le_bytes())?;
                frame.put(&nanoseconds.to_le_bytes())?;
            }
            Self::Stdout(bytes) | Self::Stderr(bytes) | Self::Tty(bytes) | Self::Bug(bytes) => {
                frame.put(bytes)?
            }
            Self::Credit { channel, bytes } => {
                frame.put(&[channel.kind()])?;
                frame.put(&bytes.to_le_bytes())?;
            }
            Self::Exit(ExitKind::Exited(status)) => frame.put(&[0, status])?,
            Self::Exit(ExitKind::Killed(signal)) => frame.put(&[1, signal])?,
            Self::StartFailed { errno, text } => {
                frame.put(&errno.to_le_bytes())?;
                frame.put(text)?;
            }
            Self::BootTrace(records) => frame.put(records.as_bytes())?,
            Self::FirstUser { nanoseconds } => frame.put(&nanoseconds.to_le_bytes())?,
            Self::Moved => {}
            Self::Back { heard } => frame.put(&heard.to_le_bytes())?,
        }
        frame.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BootRecord, Deframer, MAX_FRAME, MAX_PAYLOAD};

    fn round_trip(frame: GuestFrame<'_>) {
        let mut bytes = [0; MAX_FRAME];
        let length = frame.encode(&mut bytes).expect("the frame fits");
        let mut deframer = Deframer::new();
        let (used, found) = deframer.feed(&bytes[..length]).expect("well formed");
        assert_eq!(used, length);
        let (kind, payload) = found.expect("a whole frame");
        assert_eq!(GuestFrame::decode(kind, payload), Ok(frame));
    }

    #[test]
    fn every_frame_survives_the_wire() {
        let mut records = [0; 64];
        let length = BootRecord { nanoseconds: 5, name: b"memory" }.encode(&mut records).expect("fits");
        for frame in [
            GuestFrame::Hello { version: 1, nanoseconds: u64::MAX },
            GuestFrame::Stdout(b"out"),
            GuestFrame::Stderr(b""),
            GuestFrame::Tty(&[0x1b; MAX_PAYLOAD]),
            GuestFrame::Credit { channel: Channel::Stdin, bytes: 7 },
            GuestFrame::Credit { channel: Channel::TtyInput, bytes: u32::MAX },
            GuestFrame::Exit(ExitKind::Exited(255)),
            GuestFrame::Exit(ExitKind::Killed(9)),
            GuestFrame::StartFailed { errno: 2, text: b"/bin/nothing" },
            GuestFrame::Bug(b"page fault"),
            GuestFrame::BootTrace(BootRecords::decode(&records[..length]).expect("one record")),
            GuestFrame::FirstUser { nanoseconds: 12_345_678 },
            GuestFrame::Moved,
            GuestFrame::Back { heard: 70_000 },
        ] {
            round_trip(frame);
        }
    }

    #[test]
    fn malformed_payloads_are_errors() {
        assert_eq!(GuestFrame::decode(0x7f, b""), Err(FrameError::UnknownKind(0x7f)));
        assert_eq!(GuestFrame::decode(0x01, b"short"), Err(FrameError::WrongLength(0x01)));
        assert_eq!(GuestFrame::decode(0x06, &[0, 1, 2]), Err(FrameError::WrongLength(0x06)));
        assert_eq!(GuestFrame::decode(0x06, &[2, 1]), Err(FrameError::BadValue(0x06)));
        assert_eq!(GuestFrame::decode(0x05, &[0x82, 1, 0, 0, 0]), Err(FrameError::BadValue(0x05)));
        assert_eq!(GuestFrame::decode(0x0b, b"x"), Err(FrameError::WrongLength(0x0b)));
        assert_eq!(GuestFrame::decode(0x0c, b""), Err(FrameError::WrongLength(0x0c)));
        assert_eq!(GuestFrame::decode(0x09, &[1, 2, 3]), Err(FrameError::WrongLength(0x09)));
    }

    #[test]
    fn encoding_never_overruns_the_buffer() {
        assert_eq!(GuestFrame::Stdout(b"abc").encode(&mut [0; 5]), Err(FrameError::NoRoom));
        assert_eq!(GuestFrame::Stdout(b"").encode(&mut [0; 2]), Err(FrameError::NoRoom));
        let long = [0; MAX_PAYLOAD + 1];
        let mut out = [0; MAX_FRAME + 1];
        assert_eq!(GuestFrame::Stdout(&long).encode(&mut out), Err(FrameError::TooLong(MAX_PAYLOAD + 1)));
    }
}
