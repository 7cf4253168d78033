//! syslog(2) and `/proc/kmsg`: the kernel log as lines `<priority>[seconds.microseconds] text`.
//!
//! Both read destructively from one place that is the system's; reading all, which `dmesg` does, begins at the oldest line
//! after the last clearing.

use alloc::sync::Arc;
use alloc::vec::Vec;

use machine::log_ring::{self, Cursor, Record};
use memory::buffer::Sink;
use sync::SpinLock;
use vfs::generated::{File, Node};
use vfs::text::Text;
use vfs::{FileFeatures, FileOperations, Inode, OpenFile, OpenFlags, PollEvents, PollTable};

use crate::errno::{Errno, SysResult};
use crate::file::transfer::user_range;
use crate::task::Task;

/// What syslog(2) does.
mod action {
    pub(super) const CLOSE: u32 = 0;
    pub(super) const OPEN: u32 = 1;
    pub(super) const READ: u32 = 2;
    pub(super) const READ_ALL: u32 = 3;
    pub(super) const READ_CLEAR: u32 = 4;
    pub(super) const CLEAR: u32 = 5;
    pub(super) const CONSOLE_OFF: u32 = 6;
    pub(super) const CONSOLE_ON: u32 = 7;
    pub(super) const CONSOLE_LEVEL: u32 = 8;
    pub(super) const SIZE_UNREAD: u32 = 9;
    pub(super) const SIZE_BUFFER: u32 = 10;
}

/// Where destructive reading stands.
static UNREAD: SpinLock<Cursor> = SpinLock::named("unread messages", Cursor::START);
/// Where reading all begins.
static CLEARED: SpinLock<Cursor> = SpinLock::named("cleared messages", Cursor::START);

fn check_privilege() -> Result<(), Errno> {
    if devfs::administers_log() { Ok(()) } else { Err(Errno::EPERM) }
}

/// The next line and the place after it.
fn next_line(mut cursor: Cursor, text: &mut [u8]) -> Result<Option<(Vec<u8>, Cursor)>, Errno> {
    let Some(record) = log_ring::read(&mut cursor, text) else { return Ok(None) };
    let text = &text[..record.length.min(text.len())];
    Ok(Some((line_of(&record, text)?, cursor)))
}

fn line_of(record: &Record, text: &[u8]) -> Result<Vec<u8>, Errno> {
    use core::fmt::Write;
    let mut line = Text::new();
    let (seconds, rest) = (record.time_us / 1_000_000, record.time_us % 1_000_000);
    let _ = write!(line, "<{}>[{seconds:5}.{rest:06}] ", record.priority);
    line.push_bytes(text);
    line.push_bytes(b"\n");
    Ok(line.finish()?)
}

fn text_buffer() -> Result<Vec<u8>, Errno> {
    memory::fallible::try_vec_of(0, log_ring::TEXT_MAX).map_err(|_| Errno::ENOMEM)
}

/// Reads lines nobody has read yet; waits for one.
fn read_unread(sink: &mut Sink<'_>, non_block: bool) -> Result<usize, Errno> {
    let cursor = *UNREAD.lock();
    if !log_ring::has(&cursor) {
        if non_block {
            return Err(Errno::EAGAIN);
        }
        devfs::wait_for_message(&cursor)?;
    }
    let mut text = text_buffer()?;
    let mut done = 0;
    loop {
        let before = *UNREAD.lock();
        let Some((mut line, after)) = next_line(before, &mut text)? else { break };
        if line.len() > sink.remaining() {
            if done > 0 {
                break;
            }
            // A buffer that no line fits into gets what it holds.
            line.truncate(sink.remaining());
        }
        {
            let mut unread = UNREAD.lock();
            if *unread != before {
                // Somebody else read this one.
                continue;
            }
            *unread = after;
        }
        match sink.write(&line) {
            Ok(written) => done += written,
            Err(_) if done > 0 => break,
            Err(_) => return Err(Errno::EFAULT),
        }
    }
    Ok(done)
}

/// Bytes of all lines from the cursor on.
fn size_from(mut cursor: Cursor) -> Result<usize, Errno> {
    let mut text = text_buffer()?;
    let mut bytes = 0;
    while let Some((line, after)) = next_line(cursor, &mut text)? {
        bytes += line.len();
        cursor = after;
    }
    Ok(bytes)
}

/// Reads the latest lines that fit.
fn read_all(sink: &mut Sink<'_>) -> Result<usize, Errno> {
    let mut text = text_buffer()?;
    let mut cursor = *CLEARED.lock();
    let mut bytes = size_from(cursor)?;
    while bytes > sink.remaining()
        && let Some((line, after)) = next_line(cursor, &mut text)?
    {
        bytes = bytes.saturating_sub(line.len());
        cursor = after;
    }
    let mut done = 0;
    while let Some((line, after)) = next_line(cursor, &mut text)? {
        // Lines may have come since the size was taken.
        if line.len() > sink.remaining() {
            break;
        }
        match sink.write(&line) {
            Ok(written) => done += written,
            Err(_) if done > 0 => break,
            Err(_) => return Err(Errno::EFAULT),
        }
        cursor = after;
    }
    Ok(done)
}

/// Reads and controls the kernel log.
#[inline(never)]
pub fn syslog(_task: &mut Task, kind: u32, buffer: u64, length: i32) -> SysResult {
    let only_looks = kind == action::READ_ALL || kind == action::SIZE_BUFFER;
    if !only_looks || devfs::is_log_restricted() {
        check_privilege()?;
    }
    match kind {
        action::CLOSE | action::OPEN | action::CONSOLE_OFF | action::CONSOLE_ON => Ok(0),
        action::READ | action::READ_ALL | action::READ_CLEAR => {
            let length = usize::try_from(length).map_err(|_| Errno::EINVAL)?;
            if buffer == 0 {
                return Err(Errno::EINVAL);
            }
            if length == 0 {
                return Ok(0);
            }
            let (address, length) = user_range(buffer, length)?;
            let mut sink = Sink::user(address, length);
            if kind == action::READ {
                return read_unread(&mut sink, false);
            }
            let read = read_all(&mut sink)?;
            if kind == action::READ_CLEAR {
                *CLEARED.lock() = log_ring::end();
            }
            Ok(read)
        }
        action::CLEAR => {
            *CLEARED.lock() = log_ring::end();
            Ok(0)
        }
        action::CONSOLE_LEVEL if (1..=8).contains(&length) => Ok(0),
        action::SIZE_UNREAD => {
            let unread = *UNREAD.lock();
            size_from(unread)
        }
        action::SIZE_BUFFER => Ok(log_ring::BYTES),
        _ => Err(Errno::EINVAL),
    }
}

/// `/proc/kmsg`.
struct Messages;

impl File for Messages {
    fn show(&self, _out: &mut Text) -> vfs::Result<()> {
        Ok(())
    }

    fn open(&self, _inode: &Arc<Inode>, _flags: OpenFlags) -> vfs::Result<Option<Arc<dyn FileOperations>>> {
        check_privilege().map_err(|_| vfs::Error::NotPermitted)?;
        let messages: Arc<dyn FileOperations> = vfs::allocation::arc(Messages)?;
        Ok(Some(messages))
    }
}

impl FileOperations for Messages {
    fn features(&self) -> FileFeatures {
        FileFeatures::POLLABLE
    }

    fn poll(&self, _file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        let unread = *UNREAD.lock();
        if devfs::poll_message(&unread, table) { PollEvents::INPUT } else { PollEvents::empty() }
    }

    fn read(&self, file: &OpenFile, _position: &mut u64, sink: &mut Sink<'_>) -> vfs::Result<usize> {
        read_unread(sink, file.non_block()).map_err(|errno| match errno {
            Errno::EAGAIN => vfs::Error::WouldBlock,
            Errno::EFAULT => vfs::Error::BadAddress,
            Errno::ENOMEM => vfs::Error::OutOfMemory,
            _ => vfs::Error::Interrupted,
        })
    }
}

/// Makes `/proc/kmsg`. Once, at start-up.
pub(crate) fn register() -> vfs::Result<()> {
    procfs::add("kmsg", Node::file(0o400, vfs::allocation::arc(Messages)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_look_as_on_linux() {
        let record = Record { sequence: 3, time_us: 1_000_042, priority: 6, length: 5 };
        assert_eq!(line_of(&record, b"hello"), Ok(b"<6>[    1.000042] hello\n".to_vec()));
    }

    #[test]
    fn what_was_logged_is_read_as_lines() {
        log_ring::append(4, 7, format_args!("one of mine"));
        let mut bytes = memory::fallible::try_vec_of(0, 100_000).expect("memory");
        let read = read_all(&mut Sink::kernel(&mut bytes)).expect("a log");
        let text = core::str::from_utf8(&bytes[..read]).expect("text");
        assert!(text.contains("<4>[    0.000007] one of mine\n"));
    }
}
