//! Names of the kernel's functions, for reports.

mod name;
mod table;

use core::fmt;

pub use name::Name;
pub use table::Table;

/// A place in the kernel's code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// The function.
    pub name: Name,
    /// Bytes from its start.
    pub offset: usize,
    /// Bytes from its start to the next function's.
    pub size: usize,
}

impl fmt::Display for Symbol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}+{:#x}", &*self.name, self.offset)
    }
}

/// The function that contains an address; None outside of the kernel's code, or without a symbol table.
pub fn resolve(address: usize) -> Option<Symbol> {
    crate::backend::symbols::resolve(address)
}
