//! What kernel and server agree on in the first exchange.

use bitflags::bitflags;

use super::{Body, Decoder, Malformed};

/// The protocol's version.
pub const MAJOR: u32 = 7;
/// What this side speaks of it.
pub const MINOR: u32 = 37;
/// The oldest that a server may speak: before, messages had other lengths.
pub const MINOR_MIN: u32 = 12;
/// From here on several files can be forgotten at a time.
pub const MINOR_BATCH_FORGET: u32 = 16;
/// Pages that a server has read ahead, if it likes.
const READ_AHEAD_BYTES: u32 = 128 << 10;
/// The least that a write may have.
const WRITE_BYTES_MIN: u32 = 4096;
/// Pages of a request without [`Flags::MAX_PAGES`], and the most with it.
const PAGES: u16 = 32;
const PAGES_MAX: u16 = 256;

bitflags! {
    /// What a side can do, or wants.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct Flags: u64 {
        /// Reads may be under way beside each other.
        const ASYNC_READ = 1 << 0;
        /// Opening truncates.
        const OPEN_TRUNCATES = 1 << 3;
        /// Writes may have more than a page.
        const BIG_WRITES = 1 << 5;
        /// The server applies the mask of new files.
        const NO_MASK = 1 << 6;
        /// Replies may be spliced to the device.
        const SPLICE_WRITE = 1 << 7;
        /// Pages of replies may be given away: they are copied all the same.
        const SPLICE_MOVE = 1 << 8;
        /// Requests may be spliced from the device.
        const SPLICE_READ = 1 << 9;
        /// Pages of files that were modified elsewhere are given up.
        const INVALIDATE_BY_TIME = 1 << 12;
        /// Direct transfers may be under way beside each other.
        const ASYNC_DIRECT = 1 << 15;
        /// Files need not be opened.
        const NO_OPEN = 1 << 17;
        /// Look-ups in one directory may be under way beside each other.
        const PARALLEL_LOOKUPS = 1 << 18;
        /// After an abort the device says so.
        const ABORT_ERROR = 1 << 21;
        /// The server says how many pages a request may have.
        const MAX_PAGES = 1 << 22;
        /// Where symbolic links lead to may be kept.
        const KEEP_LINKS = 1 << 23;
        /// Directories need not be opened.
        const NO_OPEN_DIRECTORY = 1 << 24;
        /// Pages are given up when the server says so only.
        const INVALIDATE_EXPLICITLY = 1 << 25;
        /// The flags have 64 bits.
        const EXTENDED = 1 << 30;
    }
}

/// What was agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement {
    /// The minor version that both speak.
    pub minor: u32,
    /// What both can, and the server wants.
    pub flags: Flags,
    /// Bytes of a write at most.
    pub write_bytes: u32,
    /// Pages of a request at most.
    pub pages: u16,
    /// Requests that nobody waits for, at a time, if the server says.
    pub background: Option<u16>,
    /// From how many of those on it counts as congested.
    pub congestion: Option<u16>,
}

/// What the first request says.
#[must_use]
pub fn request() -> Body {
    let flags = Flags::all().bits();
    let words = [MAJOR, MINOR, READ_AHEAD_BYTES, flags as u32, (flags >> 32) as u32];
    Body::new().u32s(&words).u32s(&[0; 11])
}

/// What the server answered; None if it speaks another protocol.
///
/// # Errors
/// [`Malformed`].
pub fn reply(bytes: &[u8]) -> Result<Option<Agreement>, Malformed> {
    let mut values = Decoder::new(bytes);
    let (major, minor) = (values.u32()?, values.u32()?);
    if major != MAJOR || minor < MINOR_MIN {
        return Ok(None);
    }
    let (_read_ahead, low) = (values.u32()?, values.u32()?);
    let (background, congestion, write_bytes) = (values.u16()?, values.u16()?, values.u32()?);
    // Servers of before minor 23 say no more.
    let _granularity = values.u32().unwrap_or(0);
    let pages = values.u16().unwrap_or(0);
    let _alignment = values.u16().unwrap_or(0);
    let high = values.u32().unwrap_or(0);
    let mut flags = Flags::from_bits_truncate(low.into());
    if flags.contains(Flags::EXTENDED) {
        flags |= Flags::from_bits_truncate(u64::from(high) << 32);
    }
    let pages = if flags.contains(Flags::MAX_PAGES) { pages.clamp(1, PAGES_MAX) } else { PAGES };
    let said = |number: u16| (number != 0).then_some(number);
    Ok(Some(Agreement {
        minor: minor.min(MINOR),
        flags,
        write_bytes: write_bytes.max(WRITE_BYTES_MIN),
        pages,
        background: said(background),
        congestion: said(congestion),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(words: &[u32]) -> Result<Option<Agreement>, Malformed> {
        reply(&Body::new().u32s(words).finish().expect("memory"))
    }

    #[test]
    fn the_request_has_the_length_of_the_protocol() {
        assert_eq!(request().finish().expect("memory").len(), 64);
    }

    #[test]
    fn what_a_server_wants_counts_as_far_as_it_is_known() {
        let flags = (Flags::MAX_PAGES | Flags::BIG_WRITES).bits() as u32 | 1 << 16;
        let agreed = answer(&[7, 38, 0, flags, 5 << 16 | 9, 1 << 20, 1, 1000, 0]).expect("whole");
        let agreed = agreed.expect("the same protocol");
        assert_eq!((agreed.minor, agreed.pages, agreed.write_bytes), (MINOR, 256, 1 << 20));
        assert_eq!(agreed.flags, Flags::MAX_PAGES | Flags::BIG_WRITES);
        assert_eq!((agreed.background, agreed.congestion), (Some(9), Some(5)));
        let short = answer(&[7, 19, 0, 0, 0, 0]).expect("whole").expect("the same protocol");
        assert_eq!((short.pages, short.write_bytes, short.background), (32, 4096, None));
    }

    #[test]
    fn other_protocols_and_pieces_are_refused() {
        assert_eq!(answer(&[8, 37]), Ok(None));
        assert_eq!(answer(&[7, 5]), Ok(None));
        assert_eq!(answer(&[7]), Err(Malformed));
        assert_eq!(answer(&[7, 31, 0, 0, 0]), Err(Malformed));
    }
}
