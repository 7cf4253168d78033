//! The kernel log in memory: the latest lines, for `dmesg`, `/dev/kmsg` and debuggers.
//!
//! # Structure
//! A ring of bytes. A record is a head (length, level, time) and its text; the oldest ones make room for new ones. Positions
//! count all bytes ever written, so a reader's [`Cursor`] stays meaningful, and one whose record is gone continues at the
//! oldest there is. A text longer than [`TEXT_MAX`] is cut.
//!
//! # Locking
//! One flag, taken with interrupts off. A line may be logged anywhere, also while this very processor is in the middle of
//! another one (a panic, a non-maskable interrupt), so nobody waits for ever: who does not get the flag loses the line here; it
//! is still on the console.

use crate::hook::Hook;
use core::cell::UnsafeCell;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicBool, Ordering};

/// Bytes of the log: some eight hundred lines.
pub const BYTES: usize = 64 << 10;
/// Longest text of a record.
pub const TEXT_MAX: usize = 976;
/// Length (2 bytes), level (1), not used (5), microseconds since boot (8).
const HEAD_BYTES: usize = 16;
/// Longest wait for another processor's record, in spins.
const SPINS_MAX: u32 = 1_000_000;

struct Contents {
    bytes: [u8; BYTES],
    /// Positions of the oldest record and of the end.
    first: u64,
    end: u64,
    /// Numbers of the oldest record and of the next one.
    first_sequence: u64,
    next_sequence: u64,
}

struct Ring {
    busy: AtomicBool,
    contents: UnsafeCell<Contents>,
}

// SAFETY: the contents are only reached in `with`, by the one who set `busy`.
unsafe impl Sync for Ring {}

static RING: Ring = Ring {
    busy: AtomicBool::new(false),
    contents: UnsafeCell::new(Contents {
        bytes: [0; BYTES],
        first: 0,
        end: 0,
        first_sequence: 0,
        next_sequence: 0,
    }),
};

/// A place in the log: before one of its records, or at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    position: u64,
    sequence: u64,
}

impl Cursor {
    /// Before everything.
    pub const START: Self = Self { position: 0, sequence: 0 };

    /// The number of the record it stands before; numbers never repeat.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }
}

/// What is known of a record besides its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its number.
    pub sequence: u64,
    /// When it was written, in microseconds since boot.
    pub time_us: u64,
    /// Facility and level as in syslog(3): `facility << 3 | level`.
    pub priority: u8,
    /// Bytes of its text.
    pub length: usize,
}

/// Runs `body` with the ring; `None` when it can't be had.
fn with<R>(body: impl FnOnce(&mut Contents) -> R) -> Option<R> {
    let guard = crate::interrupt::disable();
    let mut spins = 0;
    while RING.busy.swap(true, Ordering::Acquire) {
        spins += 1;
        if spins > SPINS_MAX {
            return None;
        }
        crate::cpu::relax();
    }
    // SAFETY: `busy` was clear and is set now: nobody else is here until it is cleared below.
    let result = body(unsafe { &mut *RING.contents.get() });
    // Release: the next one's Acquire orders it after these accesses.
    RING.busy.store(false, Ordering::Release);
    drop(guard);
    Some(result)
}

impl Contents {
    fn copy_out(&self, position: u64, into: &mut [u8]) {
        for (index, byte) in into.iter_mut().enumerate() {
            *byte = self.bytes[(position as usize + index) % BYTES];
        }
    }

    fn copy_in(&mut self, position: u64, from: &[u8]) {
        for (index, &byte) in from.iter().enumerate() {
            self.bytes[(position as usize + index) % BYTES] = byte;
        }
    }

    /// Length, priority and time of the record at a position.
    fn head(&self, position: u64) -> (usize, u8, u64) {
        let mut head = [0; HEAD_BYTES];
        self.copy_out(position, &mut head);
        let [low, high, priority, _, _, _, _, _, time @ ..] = head;
        (u16::from_le_bytes([low, high]).into(), priority, u64::from_le_bytes(time))
    }

    /// Drops old records until `bytes` more fit.
    fn make_room(&mut self, bytes: usize) {
        debug_assert!(bytes <= BYTES);
        while self.end + bytes as u64 > self.first + BYTES as u64 {
            let (length, _, _) = self.head(self.first);
            self.first += (HEAD_BYTES + length) as u64;
            self.first_sequence += 1;
        }
    }

    fn settle(&self, cursor: &mut Cursor) {
        if cursor.sequence < self.first_sequence {
            *cursor = Cursor { position: self.first, sequence: self.first_sequence };
        }
    }
}

/// Writes text behind the end; what is beyond [`TEXT_MAX`] is dropped.
struct Appender<'a> {
    contents: &'a mut Contents,
    length: usize,
}

impl Write for Appender<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let part = &text.as_bytes()[..text.len().min(TEXT_MAX - self.length)];
        self.contents.copy_in(self.contents.end + (HEAD_BYTES + self.length) as u64, part);
        self.length += part.len();
        Ok(())
    }
}

static LISTENER: Hook = Hook::new();

/// Sets what is called after each new record, in whatever context it was logged: under any lock, with interrupts off, in a
/// non-maskable interrupt.
pub fn set_listener(listener: fn()) {
    LISTENER.set(listener);
}

/// Adds a record.
pub fn append(priority: u8, time_us: u64, text: fmt::Arguments<'_>) {
    with(|contents| {
        contents.make_room(HEAD_BYTES + TEXT_MAX);
        let mut appender = Appender { contents, length: 0 };
        let _ = appender.write_fmt(text);
        let length = appender.length;
        let mut head = [0; HEAD_BYTES];
        head[..2].copy_from_slice(&(length as u16).to_le_bytes());
        head[2] = priority;
        head[8..].copy_from_slice(&time_us.to_le_bytes());
        contents.copy_in(contents.end, &head);
        contents.end += (HEAD_BYTES + length) as u64;
        contents.next_sequence += 1;
    });
    LISTENER.call();
}

/// The oldest record.
pub fn first() -> Cursor {
    with(|contents| Cursor { position: contents.first, sequence: contents.first_sequence })
        .unwrap_or_default()
}

/// The end: what is logged from now on.
pub fn end() -> Cursor {
    with(|contents| Cursor { position: contents.end, sequence: contents.next_sequence }).unwrap_or_default()
}

/// Whether there is a record at or after the cursor.
pub fn has(cursor: &Cursor) -> bool {
    with(|contents| cursor.sequence < contents.next_sequence).unwrap_or(false)
}

/// Copies the text of the record at the cursor, as much as fits, and moves the cursor behind it. A record that is
/// gone is replaced by the oldest one, which its number tells.
pub fn read(cursor: &mut Cursor, text: &mut [u8]) -> Option<Record> {
    with(|contents| {
        contents.settle(cursor);
        if cursor.sequence >= contents.next_sequence {
            return None;
        }
        let (length, priority, time_us) = contents.head(cursor.position);
        let copied = length.min(text.len());
        contents.copy_out(cursor.position + HEAD_BYTES as u64, &mut text[..copied]);
        let record = Record { sequence: cursor.sequence, time_us, priority, length };
        cursor.position += (HEAD_BYTES + length) as u64;
        cursor.sequence += 1;
        Some(record)
    })
    .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_records_stay_and_a_late_reader_starts_at_the_oldest() {
        let start = end();
        append(6, 12, format_args!("line {}", 1));
        append(4, 13, format_args!("{}", "x".repeat(2000)));
        let mut cursor = start;
        let mut text = [0; 64];
        let record = read(&mut cursor, &mut text).unwrap();
        assert_eq!((record.time_us, record.priority, &text[..record.length]), (12, 6, &b"line 1"[..]));
        assert_eq!(read(&mut cursor, &mut text).unwrap().length, TEXT_MAX);
        assert!(!has(&cursor));
        for number in 0..2000 {
            append(6, number, format_args!("a line that is one of many, number {number}"));
        }
        let mut late = start;
        let oldest = read(&mut late, &mut text).unwrap();
        assert!(oldest.sequence > start.sequence());
        assert!(text.starts_with(b"a line that is one of many"));
        let mut count = 1;
        while let Some(record) = read(&mut late, &mut text) {
            assert_eq!(record.sequence, oldest.sequence + count);
            count += 1;
        }
        assert!(count > 500 && count < 2000);
    }
}
