//! What `/proc` and `/sys` show: a directory for each process, and the state of the system.
//!
//! | module | what it shows |
//! |---|---|
//! | `root` | who fills which entry of the roots |
//! | `process` | the directory of a process: names, kinds, who may look |
//! | `stat`, `status`, `maps`, `mounts`, `entries` | its files |
//! | `memory_files` | its memory as files: `mem`, `pagemap` |
//! | `places` | its links: `cwd`, `exe`, `root`, name spaces |
//! | `descriptors`, `map_files` | its open files, and those that it has mapped |
//! | `timers` | its POSIX timers |
//! | `attributes` | what a security module would say of it |
//! | `processors`, `processor_model` | what the processors are and do |
//! | `memory_numbers` | the state of memory |
//! | `lists` | drivers, file systems and the like |
//! | `settings` | `/proc/sys` |
//! | `kernel_objects` | `/sys` |
//! | `stack_test` | `/dev/kstack_test` |
//!
//! Nothing is formatted with a spin lock held, and never two locks are held at once: texts grow in memory that may have to be
//! reclaimed first.

mod activity;
mod attributes;
mod descriptors;
mod entries;
pub(crate) use entries::trimmed;
mod kernel_objects;
mod lists;
mod locks;
mod map_files;
mod maps;
mod memory_files;
mod memory_numbers;
mod mounts;
mod places;
pub(crate) mod process;
mod processor_model;
mod processors;
pub mod profile;
mod provoke_crash;
mod provoke_flood;
mod root;
mod settings;
mod sockets;
mod stack_test;
mod stat;
mod status;
mod time_offsets;
mod timers;
mod user_maps;

pub use root::{register, register_devices};
