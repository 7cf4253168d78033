//! Standard output and standard error of the tool: what the guest has written and the host has not yet taken.
//!
//! The descriptors are shared with whoever started us, so they stay in blocking mode. To never block all the same, a
//! write happens only after `poll` has said that there is room, and is at most [`PIECE`] bytes, which is what a pipe that
//! polls writable takes without blocking (`PIPE_BUF`).

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::stdio::{stderr, stdout};

/// Bytes written at a time.
const PIECE: usize = 4096;
/// With more than this waiting, the guest is kept from writing more.
const FULL: usize = 1 << 20;

/// Which of the two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Error,
}

/// A stream and the bytes that wait for it.
#[derive(Debug)]
pub(super) struct Output {
    stream: Stream,
    waiting: VecDeque<u8>,
    state: State,
}

/// Whether anybody reads the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Its reader has gone: what is written is dropped.
    Closed,
}

impl Output {
    /// A stream with nothing waiting.
    pub(super) const fn new(stream: Stream) -> Self {
        Self { stream, waiting: VecDeque::new(), state: State::Open }
    }

    /// Which stream it is.
    pub(super) const fn stream(&self) -> Stream {
        self.stream
    }

    /// Drops what waits and whatever comes.
    pub(super) fn give_up(&mut self) {
        self.waiting.clear();
        self.state = State::Closed;
    }

    /// The descriptor to poll for room.
    pub(super) fn descriptor(&self) -> BorrowedFd<'static> {
        match self.stream {
            Stream::Out => stdout(),
            Stream::Error => stderr(),
        }
    }

    /// Appends bytes, unless the stream is closed.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        if self.state == State::Open {
            self.waiting.extend(bytes);
        }
    }

    /// Whether there are bytes to write.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether so much waits that the guest must wait too.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.len() >= FULL
    }

    /// Writes a piece. True when the stream's reader turned out to be gone.
    ///
    /// # Errors
    /// When the stream cannot be written for another reason, such as a full disk.
    pub(super) fn write_piece(&mut self) -> Result<bool, Errno> {
        let (front, _) = self.waiting.as_slices();
        let piece = &front[..front.len().min(PIECE)];
        match rustix::io::write(self.descriptor(), piece) {
            Ok(count) => {
                self.waiting.drain(..count);
                Ok(false)
            }
            Err(Errno::INTR | Errno::AGAIN) => Ok(false),
            Err(error) => {
                self.waiting.clear();
                self.state = State::Closed;
                // A terminal that has gone away is a reader that has gone away.
                if matches!(error, Errno::PIPE | Errno::IO | Errno::CONNRESET) {
                    Ok(true)
                } else {
                    Err(error)
                }
            }
        }
    }
}

#[cfg(test)]
impl Output {
    /// The bytes that wait, for tests.
    pub(super) fn into_waiting(self) -> Vec<u8> {
        self.waiting.into()
    }
}
