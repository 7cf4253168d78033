//! `signalfd`: signals that are read.
//!
//! Signals belong to the personality: it implements [`SignalSource`], and always answers for the thread that asks. This
//! file only holds the set that is watched.

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use memory::buffer::Sink;
use sync::Once;

use crate::file::{FileFeatures, FileOperations, OpenFile};
use crate::flags::OpenFlags;
use crate::poll::{PollEvents, PollTable};
use crate::{Error, Result, allocation, anonymous};

/// Bytes of a `struct signalfd_siginfo`.
pub const RECORD_BYTES: usize = 128;

/// The pending signals of the calling thread. Sets have bit n − 1 for signal n.
pub trait SignalSource: Send + Sync {
    /// Takes a pending signal of the set off the thread's or its process's queue.
    fn take(&self, set: u64) -> Option<[u8; RECORD_BYTES]>;

    /// Whether a signal of the set is pending.
    fn is_pending(&self, set: u64) -> bool;

    /// Waits until a signal of the set, which may change meanwhile, is pending; `EINTR` when another one has to be handled.
    fn wait(&self, set: &AtomicU64) -> Result<()>;

    /// Registers with the list that is notified when signals arrive for the thread or its process.
    fn register(&self, table: &mut PollTable<'_>);
}

static SOURCE: Once<&'static dyn SignalSource> = Once::new();

/// Sets where signals come from; once, at start-up.
pub fn set_source(source: &'static dyn SignalSource) {
    SOURCE.call_once(|| source);
}

/// A watched set.
pub struct SignalFile {
    set: AtomicU64,
}

/// `signalfd4` with descriptor −1. The caller has taken SIGKILL and SIGSTOP out of the set.
pub fn create(set: u64, flags: OpenFlags) -> Result<Arc<OpenFile>> {
    let file = allocation::arc(SignalFile { set: AtomicU64::new(set) })?;
    let flags = (flags & OpenFlags::NON_BLOCK) | OpenFlags::READ_WRITE;
    OpenFile::anonymous(anonymous::shared_inode()?, file, flags)
}

impl SignalFile {
    /// The object behind an open file. Fails with `EINVAL`.
    pub fn of(file: &OpenFile) -> Result<&Self> {
        file.object::<Self>().ok_or(Error::Invalid)
    }

    /// `signalfd4` with an existing descriptor. Who reads it or polls is to look again.
    pub fn set(&self, set: u64) {
        self.set.store(set, Ordering::Release);
    }
}

impl FileOperations for SignalFile {
    fn features(&self) -> FileFeatures {
        FileFeatures::POLLABLE | FileFeatures::SEEK_IGNORED
    }

    fn read(&self, file: &OpenFile, _position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        if sink.remaining() < RECORD_BYTES {
            return Err(Error::Invalid);
        }
        let source = SOURCE.get().ok_or(Error::Invalid)?;
        let mut done = 0;
        while sink.remaining() >= RECORD_BYTES {
            match source.take(self.set.load(Ordering::Acquire)) {
                Some(record) => done += sink.write(&record)?,
                None if done > 0 => break,
                None if file.non_block() => return Err(Error::WouldBlock),
                None => source.wait(&self.set)?,
            }
        }
        Ok(done)
    }

    fn poll(&self, _file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        let Some(source) = SOURCE.get() else { return PollEvents::empty() };
        if let Some(table) = table {
            source.register(table);
        }
        if source.is_pending(self.set.load(Ordering::Acquire)) {
            PollEvents::INPUT
        } else {
            PollEvents::empty()
        }
    }

    fn describe(&self, _file: &OpenFile, out: &mut dyn fmt::Write) -> fmt::Result {
        out.write_str("anon_inode:[signalfd]")
    }

    fn information(&self, _file: &OpenFile, out: &mut dyn fmt::Write) -> fmt::Result {
        writeln!(out, "sigmask:\t{:016x}", self.set.load(Ordering::Relaxed))
    }
}
