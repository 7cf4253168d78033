//! The superblock: 1,024 bytes, 1,024 bytes from the beginning.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(crate) const SUPERBLOCK_AT: usize = 1024;
pub(crate) const SUPERBLOCK_BYTES: usize = 1024;
pub(crate) const MAGIC: u16 = 0xef53;

/// See the theory of this file.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawSuperblock {
    pub(crate) inodes_count: U32,
    pub(crate) blocks_count_low: U32,
    pub(crate) reserved_blocks_low: U32,
    pub(crate) free_blocks_low: U32,
    pub(crate) free_inodes: U32,
    pub(crate) first_data_block: U32,
    pub(crate) log_block_size: U32,
    pub(crate) log_cluster_size: U32,
    pub(crate) blocks_per_group: U32,
    pub(crate) clusters_per_group: U32,
    pub(crate) inodes_per_group: U32,
    pub(crate) mount_time: U32,
    pub(crate) write_time: U32,
    pub(crate) mount_count: U16,
    pub(crate) max_mount_count: U16,
    pub(crate) magic: U16,
    pub(crate) state: U16,
    pub(crate) errors: U16,
    pub(crate) minor_revision: U16,
    pub(crate) last_check: U32,
    pub(crate) check_interval: U32,
    pub(crate) creator: U32,
    pub(crate) revision: U32,
    pub(crate) reserved_user: U16,
    pub(crate) reserved_group: U16,
    pub(crate) first_inode: U32,
    pub(crate) inode_size: U16,
    pub(crate) group_number: U16,
    pub(crate) compatible: U32,
    pub(crate) incompatible: U32,
    pub(crate) read_only_compatible: U32,
    pub(crate) uuid: [u8; 16],
    pub(crate) volume_name: [u8; 16],
    pub(crate) last_mounted: [u8; 64],
    pub(crate) algorithm: U32,
    pub(crate) preallocate: [u8; 2],
    pub(crate) reserved_descriptor_blocks: U16,
    pub(crate) journal_uuid: [u8; 16],
    pub(crate) journal_inode: U32,
    pub(crate) journal_device: U32,
    pub(crate) last_orphan: U32,
    pub(crate) hash_seed: [U32; 4],
    pub(crate) default_hash: u8,
    pub(crate) journal_backup_type: u8,
    pub(crate) descriptor_size: U16,
    pub(crate) default_mount_options: U32,
    pub(crate) first_meta_group: U32,
    pub(crate) made_time: U32,
    pub(crate) journal_blocks: [U32; 17],
    pub(crate) blocks_count_high: U32,
    pub(crate) reserved_blocks_high: U32,
    pub(crate) free_blocks_high: U32,
    pub(crate) min_extra_size: U16,
    pub(crate) want_extra_size: U16,
    pub(crate) flags: U32,
    pub(crate) raid_stride: U16,
    pub(crate) mmp_interval: U16,
    pub(crate) mmp_block: U64,
    pub(crate) raid_stripe_width: U32,
    pub(crate) log_groups_per_flex: u8,
    pub(crate) checksum_type: u8,
    pub(crate) padding: U16,
    pub(crate) written_kib: U64,
    pub(crate) rest_a: [u8; 0x270 - 0x180],
    pub(crate) checksum_seed: U32,
    pub(crate) rest_b: [u8; 0x3fc - 0x274],
    pub(crate) checksum: U32,
}

const _: () = assert!(size_of::<RawSuperblock>() == SUPERBLOCK_BYTES);

/// Names are hashed with bytes as the machine that made it had them: without a sign.
pub(crate) const FLAG_UNSIGNED_HASH: u32 = 2;
