//! Clustered objects: one name, a representative for each CPU (specs/k42-linux-api.md §11b, d, g).
//!
//! # How a call finds its representative
//! An object has an entry at the same index of every CPU's *local table*. A call loads its CPU's entry and calls the
//! representative that it leads to: no lock, no shared line written (the *hit*). An empty entry is a *miss*: the object's
//! root, found through the *global table*, says which representative serves this CPU ([`Root::handle_miss`]) and the entry is
//! filled. Entries are only a cache, and may be emptied at any time.
//!
//! Roots: [`Single`] (one representative for all) and [`Distributed`] (one for each k CPUs: the clustering factor).
//!
//! # Swapping
//! An object's root can be exchanged for another implementation of the same interface while calls are in flight:
//! - *forward*: all entries are emptied. New calls miss, are counted, and go to the old root's representatives directly.
//!   A grace period later the calls that began before have ended: each call is a read section.
//! - *block*: the object's lock is held, so that new calls wait, until no counted call is left.
//! - *transfer*: the state moves from the old root to the new one in a format that one offers and the other accepts.
//!   Then the lock is released: waiting calls go to the new root.
//!
//! An [`adaptive`](Clustered::try_adaptive) object begins with a single representative, becomes distributed at the first
//! miss of a second CPU, and single again when only one CPU used it for a while ([`sweep`]).
//!
//! # Deleting
//! Entries are emptied, the representatives dropped after a grace period. A call through an [`ObjectId`] that is left
//! answers [`Deleted`]: numbers of objects are never used again.
//!
//! # Rules
//! - Calls run with preemption off: they do not sleep, and do not call the same object again.
//! - A representative takes no lock that somebody may hold while calling the object.
//! - Not from hard interrupt handlers.
//!
//! Locking: each object's lock covers its phase, root and entries; it is taken on misses and changes only.
//! `tests/models.rs` has the protocol of miss, swap and deletion as a model.

mod adapt;
mod count;
mod object;
mod root;
mod swap;
mod table;

pub use adapt::{Shape, enabled, set_adaptive_hook, set_enabled, sweep};
pub use count::Count;
pub use object::{Clustered, Deleted, ObjectId};
pub use root::{Distributed, Format, Make, Root, Single, State};
pub use swap::SwapError;
pub use table::{LOCAL_TABLE_BYTES, LOCAL_TABLE_SHIFT, LocalTable, Report, report, set_table_source};

#[cfg(test)]
mod tests;
