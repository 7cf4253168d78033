//! Core dumps (core(5)): a process that a signal ends leaves a file, or gives a program, its memory and registers as an ELF file.
//!
//! - `gathering`: all threads stop and leave their registers;
//! - `pattern`: where it goes, and under which name;
//! - `segments`: what of each mapping is written;
//! - `notes`: what debuggers want to know besides memory;
//! - `output`: the file or pipe, its limit, and its holes;
//! - `dump`: from the signal to the end of the file.

mod dump;
pub(crate) mod gathering;
mod notes;
mod output;
pub(crate) mod pattern;
mod segments;

pub(crate) use dump::dump;
pub(crate) use segments::FILTER_DEFAULT;
