//! `/dev/kmsg`: the kernel log, a record at a time.
//!
//! Each open file has its own place in the log. A read gives one record, `priority,number,microseconds,-;text`, and waits for
//! the next one at the end.
//!
//! # Who may read
//! The log tells of addresses and devices what nobody else needs to know: while it is restricted (`kernel.dmesg_restrict`), as it is at first and on Debian's
//! kernel, only who may administer it reads it. This is asked when the device is opened for more than writing, and by syslog(2).
//!
//! # Waking up
//! Lines may be logged where nobody can be woken: with interrupts off, under any lock. So the log only raises a softirq, which
//! wakes who waits, and does that only when somebody has said since the last time that he looks (`AWAITED`). Who waits says so
//! and then looks at the log; the log gets its record and then looks at the flag: one of them sees the other.

use alloc::vec::Vec;
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, Ordering, fence};

use machine::log_ring::{self, Cursor};
use memory::buffer::{Sink, Source};
use sched::WaitQueue;
use sched::softirq::{self, Softirq};
use sync::SpinLock;
use vfs::credentials::{Capabilities, caller_has};
use vfs::file::{FileFeatures, FileOperations, OpenFile, SeekFrom};
use vfs::{Error, PollEvents, PollList, PollTable, Result, allocation};

/// Facility and level of a line that says nothing of its own: a program's warning.
const DEFAULT_PRIORITY: u8 = 1 << 3 | 4;

/// Whether somebody waits for the next record.
static AWAITED: AtomicBool = AtomicBool::new(false);
/// Whether only who may administer the log may read it.
static RESTRICTED: AtomicBool = AtomicBool::new(true);
static READERS: WaitQueue = WaitQueue::new();
static POLLERS: PollList = PollList::new();

/// Lets new records wake those who wait for them. Once, at start-up.
pub(crate) fn listen() {
    softirq::register(Softirq::High, || {
        READERS.wake_all();
        POLLERS.notify(PollEvents::INPUT);
    });
    log_ring::set_listener(|| {
        // The record is there before the look at the flag; pairs with the fence in `is_there`.
        fence(Ordering::SeqCst);
        if AWAITED.load(Ordering::Relaxed) && AWAITED.swap(false, Ordering::Relaxed) {
            softirq::raise(Softirq::High);
        }
    });
}

/// Whether only who may administer the log may read it.
pub fn is_log_restricted() -> bool {
    // Relaxed: a setting.
    RESTRICTED.load(Ordering::Relaxed)
}

/// Sets that.
pub fn restrict_log(restricted: bool) {
    RESTRICTED.store(restricted, Ordering::Relaxed);
}

/// Whether the program that the kernel works for may administer the log.
pub fn administers_log() -> bool {
    caller_has(Capabilities::SYSLOG) || caller_has(Capabilities::SYS_ADMIN)
}

/// Whether there is a record at or after the cursor; if not, the next one wakes those who wait.
fn is_there(cursor: &Cursor) -> bool {
    if log_ring::has(cursor) {
        return true;
    }
    AWAITED.store(true, Ordering::Relaxed);
    // The flag is set before the second look; pairs with the fence in the listener.
    fence(Ordering::SeqCst);
    log_ring::has(cursor)
}

/// Waits until there is a record at or after the cursor.
///
/// # Errors
/// `EINTR`.
pub fn wait_for_message(cursor: &Cursor) -> Result<()> {
    READERS.wait_interruptible(|| is_there(cursor)).map_err(|_| Error::Interrupted)
}

/// Whether there is a record at or after the cursor; who polls is told when the next one comes.
pub fn poll_message(cursor: &Cursor, table: Option<&mut PollTable<'_>>) -> bool {
    if let Some(table) = table {
        table.register(&POLLERS);
    }
    is_there(cursor)
}

/// An open `/dev/kmsg`.
pub(crate) struct Messages {
    cursor: SpinLock<Cursor>,
}

impl Messages {
    pub(crate) fn new() -> Self {
        Self { cursor: SpinLock::named("reader of messages", log_ring::first()) }
    }
}

/// What the text of a record looks like to readers: control characters and backslashes as `\xNN`.
fn write_escaped(text: &[u8], out: &mut vfs::text::Text) {
    for &byte in text {
        if !(0x20..0x7f).contains(&byte) || byte == b'\\' {
            let _ = write!(out, "\\x{byte:02x}");
        } else {
            out.push_bytes(&[byte]);
        }
    }
}

/// Splits `<N>text` into priority and text.
fn split_priority(line: &str) -> (u8, &str) {
    let split = line.strip_prefix('<').and_then(|rest| rest.split_once('>'));
    match split.and_then(|(number, text)| Some((number.parse::<u8>().ok()?, text))) {
        // Facility 0 is the kernel's own.
        Some((priority, text)) if priority >> 3 == 0 => (priority | DEFAULT_PRIORITY & !7, text),
        Some((priority, text)) => (priority, text),
        None => (DEFAULT_PRIORITY, line),
    }
}

impl FileOperations for Messages {
    fn features(&self) -> FileFeatures {
        FileFeatures::SEEKABLE | FileFeatures::POLLABLE
    }

    fn poll(&self, file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        if !file.flags().readable() {
            return PollEvents::ERROR;
        }
        let cursor = *self.cursor.lock();
        if !poll_message(&cursor, table) {
            PollEvents::empty()
        } else if log_ring::first().sequence() > cursor.sequence() {
            // Lines were lost, as the next read will say.
            PollEvents::INPUT | PollEvents::ERROR | PollEvents::PRIORITY
        } else {
            PollEvents::INPUT
        }
    }

    fn read(&self, file: &OpenFile, _position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        let mut cursor = *self.cursor.lock();
        if !log_ring::has(&cursor) {
            if file.non_block() {
                return Err(Error::WouldBlock);
            }
            wait_for_message(&cursor)?;
        }
        let wanted = cursor.sequence();
        let mut bytes: Vec<u8> = allocation::filled(0, log_ring::TEXT_MAX)?;
        let Some(record) = log_ring::read(&mut cursor, &mut bytes) else { return Err(Error::WouldBlock) };
        if record.sequence != wanted {
            // Lines were lost: the reader hears it once, and goes on with the oldest.
            *self.cursor.lock() = log_ring::first();
            return Err(Error::BrokenPipe);
        }
        let mut text = vfs::text::Text::new();
        let _ = write!(text, "{},{},{},-;", record.priority, record.sequence, record.time_us);
        write_escaped(&bytes[..record.length], &mut text);
        text.push_bytes(b"\n");
        let line = text.finish()?;
        if line.len() > sink.remaining() {
            return Err(Error::Invalid);
        }
        *self.cursor.lock() = cursor;
        Ok(sink.write(&line)?)
    }

    fn write(&self, _file: &OpenFile, _position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        let length = source.remaining();
        if length > log_ring::TEXT_MAX {
            return Err(Error::Invalid);
        }
        let mut bytes = allocation::filled(0, length)?;
        if source.read(&mut bytes)? != length {
            return Err(Error::BadAddress);
        }
        // What is not text is not logged; the writer need not care.
        if let Ok(line) = core::str::from_utf8(&bytes) {
            let (priority, text) = split_priority(line.trim_end_matches('\n'));
            log_ring::append(priority, machine::time::now_ns() / 1000, format_args!("{text}"));
        }
        Ok(length)
    }

    fn seek(&self, _file: &OpenFile, _current: u64, target: SeekFrom) -> Result<u64> {
        *self.cursor.lock() = match target {
            SeekFrom::Start(0) | SeekFrom::Data(0) => log_ring::first(),
            SeekFrom::End(0) => log_ring::end(),
            SeekFrom::Start(_) | SeekFrom::End(_) | SeekFrom::Data(_) => return Err(Error::IllegalSeek),
            SeekFrom::Current(_) | SeekFrom::Hole(_) => return Err(Error::Invalid),
        };
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_may_begin_with_its_priority() {
        assert_eq!(split_priority("<3>bad"), (1 << 3 | 3, "bad"));
        assert_eq!(split_priority("<30>of a daemon"), (30, "of a daemon"));
        assert_eq!(split_priority("plain"), (DEFAULT_PRIORITY, "plain"));
        assert_eq!(split_priority("<x>odd"), (DEFAULT_PRIORITY, "<x>odd"));
    }
}
