//! Mounts, places in the tree of mounts, and name spaces.

mod attach;
mod change;
mod namespace;
mod path;
mod point;

pub use attach::MountSource;
pub use change::Propagation;
pub use namespace::{MountDescription, MountNamespace};
pub use path::{Path, PathPrefix};
pub use point::Mount;
