//! The table of function names in the kernel image.
//!
//! `tools/symbols` writes it and documents its layout. Reports are made in the worst of states, so nothing here trusts the
//! table's numbers, allocates, or recurses: a damaged table has names that are wrong or none, and every loop has an end.
//!
//! A name is a row of *codes*. Each stands for a character or for two other codes, so one code may be a whole path. To
//! spell one, the second of its two waits on a small stack while the first is spelled.

use super::{Name, Symbol};

/// First word of a table.
const MAGIC: u64 = u64::from_le_bytes(*b"STARSYM2");
/// Magic, bytes, functions, codes.
const HEADER_BYTES: usize = 24;
/// Bytes of a block's entry: address of its first function, offset of its text.
const BLOCK_BYTES: usize = 8;
/// Functions in a block.
const BLOCK_FUNCTIONS: usize = 32;
/// Bytes of a code's meaning.
const CODE_BYTES: usize = 4;
/// Second half of the meaning of a code that is a character.
const CHARACTER: u16 = 0xffff;
/// First byte of a code of two bytes, at least; smaller ones are codes of one byte.
const TWO_BYTES: u8 = 0xc0;
/// Codes that wait while others are spelled: the tool nests none deeper.
const DEPTH_MAX: usize = 32;
/// Longest table believed: the limit of the whole image.
const TABLE_BYTES_MAX: u64 = 4 << 20;

/// A table of function names.
#[derive(Clone, Copy, Debug)]
pub struct Table<'a>(&'a [u8]);

impl<'a> Table<'a> {
    /// Bytes of the table that starts with this; None if none does.
    pub fn bytes(start: [u64; 2]) -> Option<usize> {
        let [magic, bytes] = start;
        (magic == MAGIC && (HEADER_BYTES as u64..=TABLE_BYTES_MAX).contains(&bytes)).then_some(bytes as usize)
    }

    /// The table in these bytes, which [`Table::bytes`] has counted.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn half(&self, offset: usize) -> Option<u16> {
        let bytes = self.0.get(offset..offset.checked_add(2)?)?;
        bytes.try_into().ok().map(u16::from_le_bytes)
    }

    fn word(&self, offset: usize) -> Option<u32> {
        let bytes = self.0.get(offset..offset.checked_add(4)?)?;
        bytes.try_into().ok().map(u32::from_le_bytes)
    }

    /// The function that contains what is so many bytes behind the base of the kernel.
    pub fn resolve(&self, target: u32) -> Option<Symbol> {
        let functions = self.word(16)? as usize;
        let blocks = functions.div_ceil(BLOCK_FUNCTIONS);
        let block = |index: usize| HEADER_BYTES + BLOCK_BYTES * index;
        let (mut low, mut high) = (0, blocks);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.word(block(middle))? <= target { low = middle + 1 } else { high = middle }
        }
        let index = low.checked_sub(1)?;
        let mut start = self.word(block(index))?;
        let mut text = Text { table: *self, offset: self.word(block(index) + 4)? as usize };
        for _ in 0..BLOCK_FUNCTIONS.min(functions - BLOCK_FUNCTIONS * index) {
            let size = text.number()?;
            let length = usize::from(text.byte()?);
            let end = start.checked_add(size)?;
            // The last function of all has no end.
            if target < end || size == 0 {
                let name = text.name(length)?;
                return Some(Symbol { name, offset: (target - start) as usize, size: size as usize });
            }
            text.offset = text.offset.checked_add(length)?;
            start = end;
        }
        None
    }

    /// Appends what a code stands for; None if it is none, or the name is too long.
    fn spell(&self, code: u16, name: &mut Name) -> Option<()> {
        let meanings = HEADER_BYTES + BLOCK_BYTES * (self.word(16)? as usize).div_ceil(BLOCK_FUNCTIONS);
        let mut waiting = [0; DEPTH_MAX];
        let mut count = 0;
        let mut code = code;
        // Each code of two adds one to the stack and each character takes one away: characters are limited, and so is the stack.
        loop {
            if u32::from(code) >= self.word(20)? {
                return None;
            }
            let meaning = meanings + CODE_BYTES * usize::from(code);
            let (first, second) = (self.half(meaning)?, self.half(meaning + 2)?);
            if second == CHARACTER {
                if !name.push(u8::try_from(first).ok()?) {
                    return None;
                }
                let Some(left) = usize::checked_sub(count, 1) else { return Some(()) };
                count = left;
                code = waiting[left];
            } else {
                *waiting.get_mut(count)? = second;
                count += 1;
                code = first;
            }
        }
    }
}

/// A place in the functions' sizes and names.
struct Text<'a> {
    table: Table<'a>,
    offset: usize,
}

impl Text<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.table.0.get(self.offset)?;
        self.offset += 1;
        Some(byte)
    }

    /// A number of up to five bytes, seven bits each, the lowest first.
    fn number(&mut self) -> Option<u32> {
        let mut number = 0;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.byte()?;
            number |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// The name in the next bytes.
    fn name(&mut self, length: usize) -> Option<Name> {
        let end = self.offset.checked_add(length)?;
        let mut name = Name::empty();
        while self.offset < end {
            let first = self.byte()?;
            let code = match first.checked_sub(TWO_BYTES) {
                None => u16::from(first),
                Some(high) => u16::from_be_bytes([high, self.byte()?]),
            };
            self.table.spell(code, &mut name)?;
        }
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// `ab` at 16, `abab` at 48: codes 0 = a, 1 = b, 2 = ab.
    fn table() -> Vec<u8> {
        let mut table = Vec::from(*b"STARSYM2");
        table.extend(0_u64.to_le_bytes());
        table.extend([2_u32, 3, 16, 44].iter().flat_map(|word| word.to_le_bytes()));
        table.extend([0x61, CHARACTER, 0x62, CHARACTER, 0, 1].iter().flat_map(|half| half.to_le_bytes()));
        assert_eq!(table.len(), 44);
        table.extend([32, 2, 0, 1, 0, 3, 2, TWO_BYTES, 2]);
        let bytes = table.len() as u64;
        table[8..16].copy_from_slice(&bytes.to_le_bytes());
        table
    }

    #[test]
    fn a_name_is_spelled_of_codes_of_one_and_two_bytes() {
        let bytes = table();
        assert_eq!(Table::bytes([MAGIC, bytes.len() as u64]), Some(bytes.len()));
        assert_eq!(Table::bytes([MAGIC + 1, bytes.len() as u64]), None);
        let table = Table::new(&bytes);
        let found = |target| table.resolve(target).map(|symbol| (std::format!("{symbol}"), symbol.size));
        assert_eq!(found(15), None);
        assert_eq!(found(16), Some(("ab+0x0".into(), 32)));
        assert_eq!(found(47), Some(("ab+0x1f".into(), 32)));
        assert_eq!(found(50), Some(("abab+0x2".into(), 0)));
    }

    #[test]
    fn a_damaged_table_has_an_end() {
        let whole = table();
        for position in 16..whole.len() {
            for value in 0..=255 {
                let mut damaged = whole.clone();
                damaged[position] = value;
                for target in [0, 16, 40, 60, u32::MAX] {
                    Table::new(&damaged).resolve(target);
                }
            }
            Table::new(&whole[..position]).resolve(50);
        }
        // A code of itself twice: the stack is full at once.
        let mut endless = whole;
        endless[40..44].copy_from_slice(&[2, 0, 2, 0]);
        assert!(Table::new(&endless).resolve(50).is_none());
    }
}
