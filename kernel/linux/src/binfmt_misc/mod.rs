//! Programs of other formats: files that an interpreter executes because of how they begin or end, as somebody has registered.
//!
//! A rule (`rule`) is one line as it is written to `/proc/sys/fs/binfmt_misc/register`; `registry` has those that count, and `file_system` shows them.
//! `execve` asks the registry before it looks whether a file is a script or ELF (`exec::interpreter`).

mod file_system;
mod registry;
pub(crate) mod rule;

pub use file_system::BINFMT_MISC;
pub(crate) use registry::find;
