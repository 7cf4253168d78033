//! execve and execveat: another program in the same process.
//!
//! `arguments` copies what the caller passes, `interpreter` finds what executes a file that is no program itself, `image` builds the new memory, `stack` its first stack page, `calls` goes from
//! one to the other: everything that can fail is done before the old program is given up (the point of no return).

mod arguments;
mod calls;
mod image;
mod interpreter;
mod mapped;
pub mod open;
pub(crate) mod persona;
mod stack;

pub use arguments::Arguments;
pub use calls::{execute_first, execve, execveat};
pub use mapped::{MappedFile, mapped_object};
pub use persona::personality;
pub(crate) use stack::AUXILIARY_PAIRS;
