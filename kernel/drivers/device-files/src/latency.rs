//! `/dev/cpu_dma_latency`: how late a processor may be, in microseconds, as Linux's `pm_qos_interface` describes it.
//!
//! Who has the device open makes a request, at first one for nothing. A write of four bytes sets it to that number; one of another length, to the hexadecimal
//! number that the text is: -1 takes the request back, and what is below means nothing and changes nothing. A read gives the smallest of all requests. The last
//! close takes the request back.
//!
//! Processors halt by `HLT` alone, which every one of them leaves at once, so there is no deeper sleep that a request would have to forbid, as on Linux without a
//! driver for such sleeps.
//!
//! Invariant: [`REQUESTS`] holds, sorted, the value of each open file, which changes only while that list is locked.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicI32, Ordering};

use memory::buffer::{Sink, Source};
use memory::fallible;
use sched::Mutex;
use vfs::attributes::{DeviceNumber, FileKind};
use vfs::device::DeviceDriver;
use vfs::file::{FileFeatures, FileOperations, OpenFile, SeekFrom};
use vfs::flags::OpenFlags;
use vfs::inode::Inode;
use vfs::{Error, Result};

const NAME: &str = "cpu_dma_latency";
const MAJOR: u32 = 10;
/// Among those for dynamic use.
const MINOR: u32 = 125;
/// What there is without a request: 2,000 seconds.
const UNLIMITED: i32 = 2_000_000_000;
/// Instead of a value: no request.
const NONE: i32 = -1;
const NUMBER_BYTES: usize = size_of::<i32>();
/// What is looked at of a text: a sign, as many digits as the number has bits, and the end of a line.
const TEXT_BYTES: usize = 34;
const RADIX: u32 = 16;

static REQUESTS: Mutex<Vec<i32>> = Mutex::named("requests for latencies of processors", Vec::new());

struct Driver;

/// One who has it open.
struct Request {
    /// Written while [`REQUESTS`] is locked.
    value: AtomicI32,
}

/// Makes the device. Once, at start-up, before /dev is first mounted.
pub(crate) fn register() {
    static DRIVER: Driver = Driver;
    let kind = FileKind::CharacterDevice;
    vfs::device::register(kind, MAJOR, MINOR..=MINOR, &DRIVER);
    let number = DeviceNumber::new(MAJOR, MINOR);
    devfs::nodes::add(devfs::nodes::Node { path: NAME, kind, number, mode: 0o600 });
}

impl DeviceDriver for Driver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn open(
        &self,
        _number: DeviceNumber,
        _inode: &Arc<Inode>,
        _flags: OpenFlags,
    ) -> Result<Arc<dyn FileOperations>> {
        let mut requests = REQUESTS.lock();
        fallible::try_reserve(&mut requests, 1)?;
        let request = fallible::try_empty_arc()?;
        insert(&mut requests, UNLIMITED);
        Ok(request.fill(Request { value: AtomicI32::new(UNLIMITED) }))
    }
}

/// Adds one, for which there is room.
fn insert(requests: &mut Vec<i32>, value: i32) {
    debug_assert!(requests.len() < requests.capacity(), "there is room");
    let place = requests.partition_point(|&other| other < value);
    requests.insert(place, value);
}

/// Takes one away.
fn remove(requests: &mut Vec<i32>, value: i32) {
    let place = requests.binary_search(&value).expect("the value of an open file is in the list");
    requests.remove(place);
}

impl Request {
    fn set(&self, wanted: i32) {
        let value = match wanted {
            NONE => UNLIMITED,
            0.. => wanted,
            _ => return,
        };
        let mut requests = REQUESTS.lock();
        remove(&mut requests, self.value.load(Ordering::Relaxed));
        insert(&mut requests, value);
        self.value.store(value, Ordering::Relaxed);
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        remove(&mut REQUESTS.lock(), self.value.load(Ordering::Relaxed));
    }
}

/// The number that a text is: up to a zero byte, with a sign, `0x` and the end of a line, or without.
fn parse(text: &[u8]) -> Result<i32> {
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let (negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let digits = match text {
        [b'0', b'x' | b'X', rest @ ..] => rest,
        _ => text,
    };
    if digits.is_empty() {
        return Err(Error::Invalid);
    }
    let mut number = 0_i64;
    for &digit in digits {
        let digit = char::from(digit).to_digit(RADIX).ok_or(Error::Invalid)?;
        number = number.saturating_mul(RADIX.into()).saturating_add(digit.into());
    }
    i32::try_from(if negative { -number } else { number }).map_err(|_| Error::Range)
}

impl FileOperations for Request {
    fn features(&self) -> FileFeatures {
        FileFeatures::SEEKABLE
    }

    fn read(&self, _file: &OpenFile, position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        let value = REQUESTS.lock().first().copied().unwrap_or(UNLIMITED).to_ne_bytes();
        let start = usize::try_from(*position).unwrap_or(NUMBER_BYTES).min(NUMBER_BYTES);
        let end = NUMBER_BYTES.min(start + sink.remaining());
        let count = sink.write(&value[start..end]).map_err(|_| Error::BadAddress)?;
        *position += count as u64;
        Ok(count)
    }

    fn write(&self, _file: &OpenFile, _position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        let count = source.remaining();
        let mut bytes = [0; TEXT_BYTES];
        let used = count.min(TEXT_BYTES);
        if source.read(&mut bytes[..used])? < used {
            return Err(Error::BadAddress);
        }
        let value = match <[u8; NUMBER_BYTES]>::try_from(&bytes[..used]) {
            Ok(number) => i32::from_ne_bytes(number),
            Err(_) => parse(&bytes[..used])?,
        };
        self.set(value);
        source.skip(count - used);
        Ok(count)
    }

    /// It stays where it is.
    fn seek(&self, _file: &OpenFile, current: u64, _target: SeekFrom) -> Result<u64> {
        Ok(current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_hexadecimal_numbers() {
        let good: [(&[u8], i32); 7] = [
            (b"0x00000010", 16),
            (b"10", 16),
            (b"7\n", 7),
            (b"-5", -5),
            (b"+6", 6),
            (b"12\x0034", 18),
            (b"7fffffff", i32::MAX),
        ];
        for (text, number) in good {
            assert_eq!(parse(text), Ok(number), "{}", text.escape_ascii());
        }
        for text in [&b""[..], b"\n", b"zz", b"0x", b"  3", b"3 ", b"1\n\n", b"--1", b"0x-1"] {
            assert_eq!(parse(text), Err(Error::Invalid), "{}", text.escape_ascii());
        }
        for text in [&b"80000000"[..], b"-80000001", b"0x123456789", b"ffffffffffffffffffffffffffffffff"] {
            assert_eq!(parse(text), Err(Error::Range), "{}", text.escape_ascii());
        }
    }

    #[test]
    fn the_smallest_request_comes_first() {
        let mut requests = Vec::with_capacity(3);
        [70, UNLIMITED, 50].into_iter().for_each(|value| insert(&mut requests, value));
        assert_eq!(requests, [50, 70, UNLIMITED]);
        remove(&mut requests, 50);
        assert_eq!(requests.first(), Some(&70));
    }
}
