//! Partition tables.

mod gpt;
mod mbr;
mod table;

pub use table::{PARTITIONS_MAX, Partition, Scheme, Table, scan};
