//! Mounts, places in the tree of mounts, and name spaces.

mod attach;
mod change;
mod copy;
mod describe;
mod detached;
mod group;
mod namespace;
mod path;
mod pivot;
mod point;
pub mod policy;
mod propagate;
mod settings;
mod tree;
mod unmount;

pub use attach::MountSource;
pub use change::{mount_max, set_mount_max};
pub use describe::MountDescription;
pub use group::Propagation;
pub use namespace::MountNamespace;
pub use path::{Path, PathPrefix};
pub use point::{Companion, Mount};
pub use settings::AttributeChange;
