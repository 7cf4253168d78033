//! What callers say to an address space.

use super::pager::PagerId;
use crate::region::{FileMapping, SpecialMapping};
use alloc::sync::Arc;
use bitflags::bitflags;
use machine::address::UserAddr;

bitflags! {
    /// What a program may do with a page.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Protection: u32 {
        /// Load.
        const READ = 1;
        /// Store. The processor cannot forbid loads from such pages.
        const WRITE = 2;
        /// Fetch instructions. The processor cannot forbid loads from such pages.
        const EXECUTE = 4;
    }
}

bitflags! {
    /// How a mapping is made.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MapFlags: u32 {
        /// Stores reach the object, and everybody who maps it (MAP_SHARED).
        const SHARED = 1 << 0;
        /// At this address, in the place of what is there (MAP_FIXED).
        const FIXED = 1 << 1;
        /// At this address, and only if nothing is there (MAP_FIXED_NOREPLACE).
        const FIXED_NO_REPLACE = 1 << 2;
        /// Grows when the page below is touched (MAP_GROWSDOWN).
        const GROWS_DOWN = 1 << 3;
        /// Make all pages present now (MAP_POPULATE).
        const POPULATE = 1 << 4;
        /// Does not count as committed memory, in modes 0 and 1 (MAP_NORESERVE).
        const NO_RESERVE = 1 << 5;
        /// Keep all pages present (MAP_LOCKED).
        const LOCKED = 1 << 6;
        /// The stack of the main thread (shown as `[stack]`).
        const STACK = 1 << 7;
        /// With POPULATE: only map what is cached already (MAP_NONBLOCK).
        const NON_BLOCK = 1 << 8;
        /// The kernel's own mapping: mmap_min_addr and limits don't apply.
        const KERNEL = 1 << 9;
        /// In the second GiB, where no place is named (MAP_32BIT).
        const SECOND_GIB = 1 << 10;
        /// Huge pages of the pool (MAP_HUGETLB). What shows a file of such pages has them without saying so.
        const POOLED = 1 << 11;
    }
}

/// What a mapping shows.
#[derive(Clone)]
pub enum MapBacking {
    /// Zeros until written.
    Anonymous,
    /// A file, from the request's offset on.
    File(Arc<FileMapping>),
    /// Frames of the kernel's.
    Special(Arc<SpecialMapping>),
    /// What a program provides.
    Paged(PagerId),
}

/// A request for a mapping, as by mmap(2).
#[derive(Clone)]
pub struct MapRequest {
    /// Wanted address; 0 when the caller does not care.
    pub address: UserAddr,
    /// Bytes; rounded up to whole pages.
    pub length: u64,
    /// What is allowed at first.
    pub protection: Protection,
    /// What mprotect may ever allow (a shared mapping of a file opened for reading: no WRITE).
    pub maximum: Protection,
    /// How.
    pub flags: MapFlags,
    /// What.
    pub backing: MapBacking,
    /// Where in the file, in bytes; a multiple of the page size.
    pub offset: u64,
}

impl MapRequest {
    /// Private anonymous memory anywhere.
    pub fn anonymous(length: u64, protection: Protection) -> MapRequest {
        MapRequest {
            address: UserAddr::default(),
            length,
            protection,
            maximum: Protection::all(),
            flags: MapFlags::empty(),
            backing: MapBacking::Anonymous,
            offset: 0,
        }
    }

    /// The same at a fixed address, in the place of what is there.
    #[must_use]
    pub fn at(self, address: UserAddr) -> MapRequest {
        MapRequest { address, flags: self.flags | MapFlags::FIXED, ..self }
    }

    /// The same with these flags too.
    #[must_use]
    pub fn with(self, flags: MapFlags) -> MapRequest {
        MapRequest { flags: self.flags | flags, ..self }
    }

    /// A private mapping of a file.
    pub fn private_file(
        file: Arc<FileMapping>,
        offset: u64,
        length: u64,
        protection: Protection,
    ) -> MapRequest {
        MapRequest { backing: MapBacking::File(file), offset, ..MapRequest::anonymous(length, protection) }
    }
}

bitflags! {
    /// Flags of mremap(2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RemapFlags: u32 {
        /// MREMAP_MAYMOVE.
        const MAY_MOVE = 1;
        /// MREMAP_FIXED.
        const FIXED = 2;
        /// MREMAP_DONTUNMAP.
        const DONT_UNMAP = 4;
    }
}

bitflags! {
    /// Flags of mlockall(2).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LockAllFlags: u32 {
        /// MCL_CURRENT.
        const CURRENT = 1;
        /// MCL_FUTURE.
        const FUTURE = 2;
        /// MCL_ONFAULT.
        const ON_FAULT = 4;
    }
}

/// What madvise(2) is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Undoes SEQUENTIAL and RANDOM.
    Normal,
    /// References will be in random order.
    Random,
    /// References will be in sequential order.
    Sequential,
    /// Will be needed soon.
    WillNeed,
    /// The pages may be dropped now.
    DontNeed,
    /// As DONTNEED, for locked pages too.
    DontNeedLocked,
    /// The pages may be dropped when memory is short.
    Free,
    /// Punch a hole into the shared object.
    Remove,
    /// The child of a fork shall not have the range.
    DontFork,
    /// Undoes DONTFORK.
    DoFork,
    /// The child of a fork shall have zeros here.
    WipeOnFork,
    /// Undoes WIPEONFORK.
    KeepOnFork,
    /// Leave out of core dumps.
    DontDump,
    /// Undoes DONTDUMP.
    DoDump,
    /// Looked for equal pages (accepted, no effect).
    Mergeable,
    /// Undoes MERGEABLE.
    Unmergeable,
    /// Huge pages wanted.
    HugePage,
    /// No huge pages.
    NoHugePage,
    /// Not needed soon (a hint without effect as long as there is no swap).
    Cold,
    /// Reclaim now (a hint).
    PageOut,
    /// Make present for reading.
    PopulateRead,
    /// Make present for writing.
    PopulateWrite,
    /// Make huge pages of what is there.
    Collapse,
}

/// Flags of msync(2) that matter below the personality.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// MS_ASYNC: nothing to wait for.
    Asynchronous,
    /// MS_SYNC: written when the call returns.
    Synchronous,
    /// MS_INVALIDATE alone: fails where pages are locked.
    Invalidate,
}

/// Limits of a process that matter here, in bytes (`u64::MAX`: none).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// RLIMIT_AS.
    pub address_space: u64,
    /// RLIMIT_DATA.
    pub data: u64,
    /// RLIMIT_STACK.
    pub stack: u64,
    /// RLIMIT_MEMLOCK; `u64::MAX` too for a caller with CAP_IPC_LOCK.
    pub locked: u64,
}

impl Limits {
    /// No limit.
    pub const NONE: Limits =
        Limits { address_space: u64::MAX, data: u64::MAX, stack: u64::MAX, locked: u64::MAX };
}
