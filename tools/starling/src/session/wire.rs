//! One of the streams that carry the host link: bytes on their way to the guest, and frames that arrive in pieces.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use hostlink_protocol::{Deframer, FrameError, HostFrame, MAX_FRAME};
use rustix::event::PollFlags;

use super::log::{self, Drained};

/// How long bytes of an unfinished frame are left to gather.
const GATHER: Duration = Duration::from_micros(300);

/// See the theory of this file.
#[derive(Debug)]
pub(super) struct Wire {
    stream: UnixStream,
    is_open: bool,
    /// QEMU writes each byte by itself.
    is_slow: bool,
    deframer: Box<Deframer>,
    to_guest: VecDeque<u8>,
    /// The stream is left alone until then.
    gathering: Option<Instant>,
}

impl Wire {
    /// A stream with nothing on it.
    pub(super) fn new(stream: UnixStream, is_slow: bool) -> Self {
        let (deframer, to_guest) = (Box::default(), VecDeque::new());
        Self { stream, is_open: true, is_slow, deframer, to_guest, gathering: None }
    }

    /// Whether QEMU has not closed it.
    pub(super) const fn is_open(&self) -> bool {
        self.is_open
    }

    /// What to poll.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// What to wait for; nothing from the guest if nobody takes that.
    pub(super) fn interest(&self, is_taken: bool) -> PollFlags {
        let mut interest = PollFlags::empty();
        if self.is_open {
            interest.set(PollFlags::IN, is_taken && self.gathering.is_none());
            interest.set(PollFlags::OUT, !self.to_guest.is_empty());
        }
        interest
    }

    /// Until when it is left alone.
    pub(super) const fn gathering(&self) -> Option<Instant> {
        self.gathering
    }

    /// Time has passed.
    pub(super) fn look_again(&mut self) {
        self.gathering.take_if(|end| Instant::now() >= *end);
    }

    /// Bytes that wait for the guest.
    pub(super) fn waiting(&self) -> usize {
        self.to_guest.len()
    }

    /// Puts a frame behind what waits.
    ///
    /// # Errors
    /// When it can't be encoded.
    pub(super) fn send(&mut self, frame: HostFrame<'_>) -> Result<(), FrameError> {
        let mut bytes = [0; MAX_FRAME];
        let length = frame.encode(&mut bytes)?;
        self.to_guest.extend(&bytes[..length]);
        Ok(())
    }

    /// Drops what waits: nobody takes it.
    pub(super) fn forget(&mut self) {
        self.to_guest.clear();
    }

    /// Writes what the guest takes now.
    pub(super) fn send_waiting(&mut self) {
        let (front, _) = self.to_guest.as_slices();
        match (&self.stream).write(front) {
            Ok(count) => drop(self.to_guest.drain(..count)),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            // That QEMU has gone is seen when reading, after all that it had to say.
            Err(_) => self.to_guest.clear(),
        }
    }

    /// Reads what has come. At its end the stream is open no more.
    pub(super) fn read(&mut self) -> Vec<u8> {
        match log::drain(&mut &self.stream) {
            Drained::Bytes(bytes) => bytes,
            Drained::Nothing => Vec::new(),
            Drained::End => {
                self.is_open = false;
                Vec::new()
            }
        }
    }

    /// What takes frames apart, while the frames are carried out.
    pub(super) fn take_deframer(&mut self) -> Box<Deframer> {
        std::mem::take(&mut self.deframer)
    }

    /// Gives it back.
    pub(super) fn put_deframer(&mut self, deframer: Box<Deframer>) {
        let is_inside = self.is_slow && deframer.is_inside_frame();
        self.gathering = is_inside.then(|| Instant::now() + GATHER);
        self.deframer = deframer;
    }
}
