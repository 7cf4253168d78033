//! Sets of processors as text, in the two forms of Linux's files: a bit mask in words of 32 bits, and a list of ranges.

use core::fmt::{self, Write};

use super::{CpuId, CpuSet, MAX_CPUS};

/// Bits of a word of a mask.
const WORD_BITS: usize = 32;

/// Why a text names no set of processors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NoSet {
    /// It is neither a mask nor a list.
    Malformed,
    /// It names a processor that no machine has here.
    OutOfRange,
}

impl CpuSet {
    /// Writes ranges: `0-2,5`.
    ///
    /// # Errors
    /// What the sink says.
    pub fn write_list(self, out: &mut dyn Write) -> fmt::Result {
        let mut numbers = self.iter().map(CpuId::index).peekable();
        let mut comma = "";
        while let Some(start) = numbers.next() {
            let mut end = start;
            while let Some(next) = numbers.next_if(|&next| next == end + 1) {
                end = next;
            }
            match start == end {
                true => write!(out, "{comma}{start}")?,
                false => write!(out, "{comma}{start}-{end}")?,
            }
            comma = ",";
        }
        Ok(())
    }

    /// Writes a bit mask in words of 32 bits, the highest first, as wide as `count` processors need.
    ///
    /// # Errors
    /// What the sink says.
    pub fn write_mask(self, count: usize, out: &mut dyn Write) -> fmt::Result {
        let bits = self.bits();
        if count <= WORD_BITS {
            let digits = count.max(1).div_ceil(4);
            return write!(out, "{bits:0digits$x}");
        }
        let digits = (count - WORD_BITS).div_ceil(4);
        write!(out, "{:0digits$x},{:08x}", bits >> WORD_BITS, bits & u64::from(u32::MAX))
    }

    /// The set that ranges name. An empty list is the empty set.
    ///
    /// # Errors
    /// See [`NoSet`].
    pub fn parse_list(text: &str) -> Result<CpuSet, NoSet> {
        let mut set = CpuSet::EMPTY;
        for range in text.split(',').filter(|range| !range.is_empty()) {
            let (start, end) = range.split_once('-').unwrap_or((range, range));
            let (start, end) = (number(start)?, number(end)?);
            if start > end {
                return Err(NoSet::Malformed);
            }
            set = set.union(CpuSet::first(end + 1).difference(CpuSet::first(start)));
        }
        Ok(set)
    }

    /// The set that a bit mask names: hexadecimal words of up to 32 bits with commas between them.
    ///
    /// # Errors
    /// See [`NoSet`].
    pub fn parse_mask(text: &str) -> Result<CpuSet, NoSet> {
        let mut bits = 0_u64;
        for word in text.split(',') {
            let is_word = (1..=WORD_BITS / 4).contains(&word.len())
                && word.bytes().all(|byte| byte.is_ascii_hexdigit());
            let word = u32::from_str_radix(word, 16).ok().filter(|_| is_word).ok_or(NoSet::Malformed)?;
            if bits >> (MAX_CPUS - WORD_BITS) != 0 {
                return Err(NoSet::OutOfRange);
            }
            bits = bits << WORD_BITS | u64::from(word);
        }
        Ok(CpuSet::from_bits(bits))
    }
}

fn number(text: &str) -> Result<usize, NoSet> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number {
        return Err(NoSet::Malformed);
    }
    text.parse().ok().filter(|number| *number < MAX_CPUS).ok_or(NoSet::OutOfRange)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(bits: u64) -> String {
        let mut text = String::new();
        CpuSet::from_bits(bits).write_list(&mut text).unwrap();
        text
    }

    fn mask(bits: u64, count: usize) -> String {
        let mut text = String::new();
        CpuSet::from_bits(bits).write_mask(count, &mut text).unwrap();
        text
    }

    #[test]
    fn lists_are_ranges_and_are_read_back() {
        for (bits, text) in [(0, ""), (1, "0"), (0b1011_0111, "0-2,4-5,7"), (u64::MAX, "0-63")] {
            assert_eq!(list(bits), text);
            assert_eq!(CpuSet::parse_list(text), Ok(CpuSet::from_bits(bits)));
        }
        assert_eq!(CpuSet::parse_list("3,1,1-2"), Ok(CpuSet::from_bits(0b1110)));
        for text in ["2-1", "a", "1-", "-1", "1 2", "+1", "1-2-3"] {
            assert_eq!(CpuSet::parse_list(text), Err(NoSet::Malformed), "{text}");
        }
        for text in ["64", "0-64", "99999999999999999999"] {
            assert_eq!(CpuSet::parse_list(text), Err(NoSet::OutOfRange), "{text}");
        }
    }

    #[test]
    fn masks_are_as_wide_as_the_machine_and_are_read_back() {
        let cases = [
            (3, 2, "3"),
            (1, 8, "01"),
            (0xffff_ffff, 32, "ffffffff"),
            (1 << 32 | 5, 33, "1,00000005"),
            (u64::MAX, 64, "ffffffff,ffffffff"),
        ];
        for (bits, count, text) in cases {
            assert_eq!(mask(bits, count), text);
            assert_eq!(CpuSet::parse_mask(text), Ok(CpuSet::from_bits(bits)));
        }
        assert_eq!(CpuSet::parse_mask("0,0,1"), Ok(CpuSet::from_bits(1)));
        for text in ["", "g", "0x1", ",1", "1,", "123456789", "+1"] {
            assert_eq!(CpuSet::parse_mask(text), Err(NoSet::Malformed), "{text}");
        }
        assert_eq!(CpuSet::parse_mask("1,0,0"), Err(NoSet::OutOfRange));
    }
}
