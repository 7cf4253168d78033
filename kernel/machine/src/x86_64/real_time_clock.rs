//! The battery-backed clock, read once at start-up.

use super::port;

const INDEX: u16 = 0x70;
const DATA: u16 = 0x71;
const STATUS_A: u8 = 0x0a;
const STATUS_B: u8 = 0x0b;
const UPDATING: u8 = 1 << 7;
const BINARY: u8 = 1 << 2;
const HOURS_24: u8 = 1 << 1;
/// Most polls for the end of an update; one takes under 2 ms.
const POLLS_MAX: u32 = 10_000;
/// Most attempts to read the same time twice.
const ATTEMPTS_MAX: u32 = 4;

fn register(index: u8) -> u8 {
    // SAFETY: the clock's index and data ports, used by the boot processor only.
    unsafe {
        port::write_u8(INDEX, index);
        port::read_u8(DATA)
    }
}

/// Seconds since 1970; None where there is no such clock.
pub(crate) fn read_seconds() -> Option<u64> {
    for _ in 0..POLLS_MAX {
        if register(STATUS_A) & UPDATING == 0 {
            break;
        }
    }
    let mut last = read_fields();
    for _ in 0..ATTEMPTS_MAX {
        let again = read_fields();
        if again == last {
            return decode(last, register(STATUS_B));
        }
        last = again;
    }
    None
}

/// Second, minute, hour, day, month, year.
fn read_fields() -> [u8; 6] {
    [0, 2, 4, 7, 8, 9].map(register)
}

fn decode(fields: [u8; 6], mode: u8) -> Option<u64> {
    let afternoon = mode & HOURS_24 == 0 && fields[2] & 0x80 != 0;
    let mut fields = fields;
    fields[2] &= 0x7f;
    if mode & BINARY == 0 {
        fields = fields.map(|value| (value >> 4) * 10 + (value & 0xf));
    }
    if mode & HOURS_24 == 0 {
        fields[2] = fields[2] % 12 + if afternoon { 12 } else { 0 };
    }
    let [second, minute, hour, day, month, year] = fields.map(u64::from);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let days = days_since_1970(2000 + year, month, day);
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar; the year starts in March, so that the leap day is last.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    days - 719_468
}
