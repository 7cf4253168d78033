//! The table of function names.

use crate::codes::{Codes, Meaning};
use crate::{Error, KERNEL_BASE};
use object::{Object, ObjectSymbol, SymbolKind};
use std::collections::BTreeMap;

/// First word of a table.
const MAGIC: &[u8; 8] = b"STARSYM2";
const HEADER_BYTES: usize = 24;
/// Functions that are found together, and then one after the other.
const BLOCK_FUNCTIONS: usize = 32;
/// Codes below this one are one byte.
const TWO_BYTES: u16 = 0xc0;
/// Longest name kept: what the kernel has room for when it reports, and codes fit a length of one byte.
const NAME_BYTES_MAX: usize = 255;

/// Builds the table of a linked kernel.
pub(crate) fn build(linked: &[u8]) -> Result<Vec<u8>, Error> {
    Ok(encode(&functions(linked)?))
}

/// The functions by address, relative to the base of the kernel.
fn functions(linked: &[u8]) -> Result<BTreeMap<u32, String>, Error> {
    let file = object::File::parse(linked)?;
    let mut functions = BTreeMap::new();
    for symbol in file.symbols() {
        let is_code = symbol.kind() == SymbolKind::Text
            || (symbol.kind() == SymbolKind::Unknown && symbol.address() != 0 && symbol.size() == 0);
        let offset = symbol.address().checked_sub(KERNEL_BASE).and_then(|offset| u32::try_from(offset).ok());
        let (true, Some(offset), Ok(name)) = (is_code, offset, symbol.name()) else { continue };
        if name.is_empty() || name.starts_with('$') || name.starts_with(".L") {
            continue;
        }
        // Functions proper win over assembler labels at the same address.
        if symbol.kind() == SymbolKind::Text || !functions.contains_key(&offset) {
            functions.insert(offset, readable(name));
        }
    }
    Ok(functions)
}

/// The name as it stands in the source, without the compiler's hash.
fn readable(name: &str) -> String {
    let mut text = format!("{:#}", rustc_demangle::demangle(name));
    let mut end = text.len().min(NAME_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

fn encode(functions: &BTreeMap<u32, String>) -> Vec<u8> {
    let addresses: Vec<u32> = functions.keys().copied().collect();
    let names: Vec<&str> = functions.values().map(String::as_str).collect();
    let codes = Codes::of(&names);
    let text_start = HEADER_BYTES + 8 * addresses.len().div_ceil(BLOCK_FUNCTIONS) + 4 * codes.meanings.len();
    let mut blocks = Vec::new();
    let mut text = Vec::new();
    for (index, (&address, row)) in addresses.iter().zip(&codes.rows).enumerate() {
        if index % BLOCK_FUNCTIONS == 0 {
            blocks.extend([address, (text_start + text.len()) as u32]);
        }
        push_number(&mut text, addresses.get(index + 1).map_or(0, |next| next - address));
        push_name(&mut text, row);
    }
    let mut table = Vec::with_capacity(text_start + text.len());
    table.extend_from_slice(MAGIC);
    table.extend_from_slice(&((text_start + text.len()) as u64).to_le_bytes());
    table.extend_from_slice(&(addresses.len() as u32).to_le_bytes());
    table.extend_from_slice(&(codes.meanings.len() as u32).to_le_bytes());
    table.extend(blocks.iter().flat_map(|word| word.to_le_bytes()));
    let halves = codes.meanings.iter().flat_map(|meaning| match *meaning {
        Meaning::Character(character) => [u16::from(character), 0xffff],
        Meaning::Pair(first, second) => [first, second],
    });
    table.extend(halves.flat_map(u16::to_le_bytes));
    assert_eq!(table.len(), text_start);
    table.extend_from_slice(&text);
    table
}

/// Appends a number, seven bits a byte, the lowest first.
fn push_number(text: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        text.push(number as u8 | 0x80);
        number >>= 7;
    }
    text.push(number as u8);
}

/// Appends a name with its length; the end of one that takes more than a byte can tell is left out.
fn push_name(text: &mut Vec<u8>, row: &[u16]) {
    let length_at = text.len();
    text.push(0);
    for &code in row {
        let [high, low] = code.to_be_bytes();
        let bytes = if code < TWO_BYTES { vec![low] } else { vec![TWO_BYTES as u8 + high, low] };
        if text.len() - length_at - 1 + bytes.len() > usize::from(u8::MAX) {
            break;
        }
        text.extend_from_slice(&bytes);
    }
    text[length_at] = (text.len() - length_at - 1) as u8;
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::symbols::Table;

    #[test]
    fn the_kernel_finds_each_function_by_each_of_its_addresses() {
        let functions: BTreeMap<u32, String> = (0..1000_u32)
            .map(|number| {
                (
                    0x20_0000 + number * number,
                    format!("<vfs::file::F{} as sync::rcu::Free>::f{number}", number % 37),
                )
            })
            .collect();
        let bytes = encode(&functions);
        let header = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!(Table::bytes([header(0), header(8)]), Some(bytes.len()));
        let table = Table::new(&bytes);
        assert_eq!(table.resolve(0x1f_ffff), None);
        for (number, (address, name)) in functions.iter().enumerate() {
            let size = if number == 999 { 0 } else { 2 * number + 1 };
            for offset in [0, size.saturating_sub(1)] {
                let symbol = table.resolve(address + offset as u32).unwrap();
                assert_eq!((&*symbol.name, symbol.offset, symbol.size), (name.as_str(), offset, size));
            }
        }
        let plain: usize = functions.values().map(String::len).sum();
        assert!(bytes.len() < plain / 3, "{} of {plain}", bytes.len());
    }

    #[test]
    fn deep_pairs_and_strange_characters_can_be_read() {
        let long = "x".repeat(NAME_BYTES_MAX);
        let mut functions: BTreeMap<u32, String> =
            (0..64).map(|number| (number * 16, long.clone())).collect();
        functions.insert(2000, "f\u{e4}".to_owned());
        functions.insert(3000, (1..128).map(char::from).collect());
        let bytes = encode(&functions);
        let table = Table::new(&bytes);
        assert_eq!(&*table.resolve(63 * 16).unwrap().name, long);
        assert_eq!(&*table.resolve(2001).unwrap().name, "f?");
        assert_eq!(&*table.resolve(3001).unwrap().name, functions[&3000]);
    }

    #[test]
    fn hash_and_overlength_are_cut_off() {
        assert_eq!(
            readable("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"),
            "core::fmt::Write::write_fmt"
        );
        assert_eq!(readable(&"x".repeat(300)).len(), NAME_BYTES_MAX);
    }
}
