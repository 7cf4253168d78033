//! The table of function names.

use crate::{Error, KERNEL_BASE};
use object::{Object, ObjectSymbol, SymbolKind};
use std::collections::BTreeMap;

/// First word of a table.
const MAGIC: &[u8; 8] = b"STARSYM1";
/// Longest name kept: its length is one byte.
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
    let mut names = Vec::new();
    let mut name_offsets = Vec::new();
    for name in functions.values() {
        name_offsets.push(names.len() as u32);
        names.push(name.len() as u8);
        names.extend_from_slice(name.as_bytes());
    }
    let bytes = 24 + 8 * functions.len() + names.len();
    let mut table = Vec::with_capacity(bytes);
    table.extend_from_slice(MAGIC);
    table.extend_from_slice(&(bytes as u64).to_le_bytes());
    table.extend_from_slice(&(functions.len() as u32).to_le_bytes());
    table.extend_from_slice(&[0; 4]);
    table.extend(functions.keys().flat_map(|address| address.to_le_bytes()));
    table.extend(name_offsets.iter().flat_map(|offset| offset.to_le_bytes()));
    table.extend_from_slice(&names);
    assert_eq!(table.len(), bytes);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_holds_addresses_in_order_and_their_names() {
        let functions = BTreeMap::from([(0x30, "second".to_owned()), (0x10, "first".to_owned())]);
        let table = encode(&functions);
        assert_eq!(&table[..8], MAGIC);
        assert_eq!(table[8..16], (table.len() as u64).to_le_bytes());
        assert_eq!(table[24..32], [0x10, 0, 0, 0, 0x30, 0, 0, 0]);
        assert_eq!(&table[40..], b"\x05first\x06second");
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
