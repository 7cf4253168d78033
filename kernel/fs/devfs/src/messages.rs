//! `/dev/kmsg`: the kernel log, a record at a time.
//!
//! Each open file has its own place in the log. A read gives one record, `priority,number,microseconds,-;text`, and waits for
//! the next one at the end. Lines may be logged where nobody can be woken (with interrupts off, under any lock), so who
//! waits looks for new ones a few times a second.

use alloc::vec::Vec;
use core::fmt::Write;

use machine::log_ring::{self, Cursor};
use memory::buffer::{Sink, Source};
use sched::{WaitError, WaitQueue};
use sync::SpinLock;
use vfs::file::{FileFeatures, FileOperations, OpenFile, SeekFrom};
use vfs::{Error, Result, allocation};

/// How often a waiting reader looks.
const LOOK_NS: u64 = 100_000_000;
/// Facility and level of a line that says nothing of its own: a program's warning.
const DEFAULT_PRIORITY: u8 = 1 << 3 | 4;

/// Waits until there is a record at or after the cursor.
///
/// # Errors
/// `EINTR`.
pub fn wait_for_message(cursor: &Cursor) -> Result<()> {
    static NOBODY_WAKES: WaitQueue = WaitQueue::new();
    while !log_ring::has(cursor) {
        let deadline_ns = machine::time::now_ns() + LOOK_NS;
        let waited = NOBODY_WAKES.wait_interruptible_deadline(|| log_ring::has(cursor), Some(deadline_ns));
        if waited == Err(WaitError::Interrupted) {
            return Err(Error::Interrupted);
        }
    }
    Ok(())
}

/// An open `/dev/kmsg`.
pub(crate) struct Messages {
    cursor: SpinLock<Cursor>,
}

impl Messages {
    pub(crate) fn new() -> Self {
        Self { cursor: SpinLock::new(log_ring::first()) }
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
        FileFeatures::SEEKABLE
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
