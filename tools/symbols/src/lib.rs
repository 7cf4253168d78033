//! Makes a bootable kernel image from a linked kernel: the loadable segments, and in the segment that the linker script
//! reserves, the table of function names that panic reports use. Everything else (debug sections, the symbol table) is
//! left out, because the emulator would read it at every start; the linked file stays what debuggers use.
//!
//! Layout of the table, all little-endian (read by the kernel in `machine::symbols`):
//!
//! | field | bytes |
//! |---|---|
//! | magic `STARSYM2` | 8 |
//! | bytes of the whole table | 8 |
//! | functions | 4 |
//! | codes | 4 |
//! | of each 32 functions by ascending address: address of the first minus base of the kernel, offset of its text | 8 each |
//! | of each code what it means: a character and 0xffff, or the codes that it stands for | 4 each |
//! | of each function its text: bytes to the next function (0 for the last), seven bits a byte and the lowest first; bytes of the name; the name's codes | |
//!
//! A code below 0xc0 is one byte, another one two: 0xc0 and its high byte, and its low byte. The names repeat each other in
//! long parts, so most codes stand for pairs of codes that are often side by side (`codes`): the names then take a fifth
//! of what they are long, and each can still be read alone.
#![forbid(unsafe_code)]

mod codes;
mod image;
mod table;

use std::fmt;

/// Where the kernel is linked; addresses in the table count from here.
pub const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;

/// Why the file is not a kernel that this crate can work on.
#[derive(Debug)]
pub enum Error {
    /// Not an ELF file, or a damaged one.
    Elf(object::Error),
    /// No segment starts where the table belongs.
    NoRoomForTable,
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Elf(error) => write!(formatter, "not a linked kernel: {error}"),
            Error::NoRoomForTable => formatter.write_str("the linker script reserves no segment for symbols"),
        }
    }
}

impl std::error::Error for Error {}

impl From<object::Error> for Error {
    fn from(error: object::Error) -> Error {
        Error::Elf(error)
    }
}

/// Address and length of what has that name in a linked kernel.
pub fn find(linked: &[u8], name: &str) -> Option<(u64, u64)> {
    use object::{Object, ObjectSymbol};
    let file = object::File::parse(linked).ok()?;
    let symbol = file.symbols().find(|symbol| symbol.name() == Ok(name))?;
    Some((symbol.address(), symbol.size()))
}

/// The bootable image of a linked kernel.
///
/// # Errors
/// When the file is not a kernel linked with this project's linker script.
pub fn bootable_image(linked: &[u8]) -> Result<Vec<u8>, Error> {
    let table = table::build(linked)?;
    image::write(linked, &table)
}
