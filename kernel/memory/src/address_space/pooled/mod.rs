//! Regions of huge pages from the pool ([`crate::huge_pool`]): `MAP_HUGETLB`, files of such pages, System V segments of them.
//!
//! # Places
//! Such a region (`RegionFlags::POOLED`) has a *place* for each of its pages, where another one has the link to a leaf table, and never a table of its own. So whatever
//! would change single entries finds none that it may change, and the calls that cut regions are refused within a page.
//!
//! ```text
//!          ┌─────── renewed: there is one to promise again ───────┐
//! empty ── first access: the promised page, if there was one ──> mapped ── it goes ──> used ── access: an unpromised page ──> mapped
//!                                                                   └── given to who was promised one ──> lost: accesses end in SIGBUS
//! ```
//!
//! A page of a file leaves an empty place when it goes: what was promised for it is the file's, or the region's still, which has no page of its own yet. What is allowed is in
//! the link alone, which `mprotect` changes; a link that allows nothing is hidden, as an entry would be.
//!
//! # Private pages
//! After a fork both sides map the same page, without stores. Who stores takes a copy of 2 MiB; the last one to have it just stores. A child
//! was promised nothing (`RegionFlags::PROMISED` is not inherited): if there is no page for its copy, it gets SIGBUS. If there is none for who was promised his pages, those that
//! others share with him are taken from them, so that he is the last one.
//!
//! # Locks
//! Places change with `change` held. A page that leaves its place is let go after `regions` was held for writing: who found its table under the region lock
//! is through with it then, as with a table that is replaced.

mod change;
mod fault;
mod promise;

pub(super) use change::{grant, zap};
pub(super) use promise::{end, promised, round};
