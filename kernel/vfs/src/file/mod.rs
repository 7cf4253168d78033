//! Open files.

mod descriptor;
mod open_file;
mod operations;
mod regular;
mod transfer;

pub use descriptor::{
    DESCRIPTORS_MAX, Descriptor, DescriptorFlags, DescriptorTable, Descriptors, FileRef, ReservedDescriptor,
};
pub use open_file::{FileOwner, OpenFile, SeekFrom};
pub(crate) use open_file::{PreparedFile, UNWATCHED};
pub use operations::{FileFeatures, FileMappingKind, FileOperations, NoOperations, RangeSteps};
pub(crate) use regular::{SIZE_MAX, take_privileges, write_cache_piece};
pub use regular::{read_cache, seek_cache, write_cache};
pub use transfer::{ReadDirectory, TRANSFER_MAX};
