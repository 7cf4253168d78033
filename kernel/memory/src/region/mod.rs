//! Regions: ranges of an address space with one protection and one backing object, and the tree they live in.

mod backing;
mod flags;
mod model;
mod tree;

pub use backing::{FileMapping, MappedObject, SpecialMapping};
pub use flags::RegionFlags;
pub use model::Region;
pub(crate) use tree::{RegionTree, STACK_GUARD_BYTES};
