//! shmget, shmat, shmdt, shmctl.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use ::memory::address_space::{
    CommitMode, Commitment, MapBacking, MapError, MapFlags, MapRequest, Protection, commit_mode,
};
use ::memory::file_cache::{CacheError, CacheKind, FileCache, MAX_FILE_BYTES};
use ::memory::huge_pool::HUGE_PAGE_BYTES;
use machine::address::{PAGE_SIZE, UserAddr};
use vfs::Capabilities;

use super::limits::{self, PageClaim};
use super::segment::Segment;
use crate::abi::{IpcPermissions, SharedMemoryLimits, SharedMemoryStatus, SharedMemoryTotals};
use crate::credentials::account::LockedMemory;
use crate::errno::{Errno, SysResult};
use crate::memory::{HugeSize, check_huge_size, errno_of};
use crate::process::limits::Resource;
use crate::sysv::permissions::{MODE_BITS, Permissions, READ, WRITE};
use crate::sysv::space::IpcSpace;
use crate::task::Task;
use crate::user_pointer::UserPointer;

const PAGE: u64 = PAGE_SIZE as u64;
/// All may execute.
const EXECUTE: u32 = 0o111;

mod get_flag {
    pub(super) const HUGE_PAGES: i32 = 0o4000;
    pub(super) const NO_RESERVE: i32 = 0o1_0000;
}

mod attach_flag {
    pub(super) const READ_ONLY: i32 = 0o1_0000;
    pub(super) const ROUND: i32 = 0o2_0000;
    pub(super) const REMAP: i32 = 0o4_0000;
    pub(super) const EXECUTE: i32 = 0o10_0000;
}

mod command {
    pub(super) const REMOVE: i32 = 0;
    pub(super) const SET: i32 = 1;
    pub(super) const STATUS: i32 = 2;
    pub(super) const LIMITS: i32 = 3;
    pub(super) const LOCK: i32 = 11;
    pub(super) const UNLOCK: i32 = 12;
    pub(super) const STATUS_OF_PLACE: i32 = 13;
    pub(super) const TOTALS: i32 = 14;
    pub(super) const STATUS_OF_ANY_PLACE: i32 = 15;
}

/// Finds the segment with a key, or makes one.
#[inline(never)]
pub fn shmget(task: &mut Task, key: i32, bytes: u64, flags: i32) -> SysResult {
    let space = task.ipc_space();
    let limit = space.memory_limits.segments_max.load(Ordering::Relaxed) as usize;
    let check = |segment: &Segment| {
        if segment.bytes() < bytes {
            return Err(Errno::EINVAL);
        }
        segment.permissions().check(&task.credentials, task.ipc_space().owner(), flags as u32 & MODE_BITS)?;
        Ok(segment.id())
    };
    space.segments.find_or_make(key, flags, limit, check, || make(task, key, bytes, flags))
}

fn make(task: &Task, key: i32, bytes: u64, flags: i32) -> Result<Arc<Segment>, Errno> {
    if bytes < limits::LEAST_BYTES || bytes > task.ipc_space().memory_limits.bytes_max.load(Ordering::Relaxed)
    {
        return Err(Errno::EINVAL);
    }
    let pages = bytes.div_ceil(PAGE);
    if pages.checked_mul(PAGE).is_none() {
        return Err(Errno::ENOSPC);
    }
    let claim = PageClaim::new(pages, task.weak_ipc_space()).ok_or(Errno::ENOSPC)?;
    if flags & get_flag::HUGE_PAGES != 0 {
        check_huge_pages(task, pages, flags)?;
        return make_of_huge_pages(task, key, bytes, flags, claim);
    }
    if bytes > MAX_FILE_BYTES {
        return Err(Errno::EINVAL);
    }
    let promised = flags & get_flag::NO_RESERVE == 0 || commit_mode() == CommitMode::Never;
    let commitment = match promised {
        true => Some(Commitment::new(pages).map_err(errno_of)?),
        false => None,
    };
    let permissions = Permissions::new(&task.credentials, flags as u32);
    let cache = FileCache::with_size(CacheKind::SharedMemory, bytes).map_err(|_| Errno::EINVAL)?;
    Segment::new(key, bytes, permissions, claim, commitment, cache)
}

/// A segment of huge pages, which are promised to it now.
fn make_of_huge_pages(
    task: &Task,
    key: i32,
    bytes: u64,
    flags: i32,
    claim: PageClaim,
) -> Result<Arc<Segment>, Errno> {
    let rounded = bytes.checked_next_multiple_of(HUGE_PAGE_BYTES).ok_or(Errno::EINVAL)?;
    let cache = FileCache::of_huge_pages(rounded, None).map_err(|error| match error {
        CacheError::OutOfMemory => Errno::ENOMEM,
        _ => Errno::EINVAL,
    })?;
    if flags & get_flag::NO_RESERVE == 0 {
        cache.promise_all().map_err(|_| Errno::ENOMEM)?;
    }
    let permissions = Permissions::new(&task.credentials, flags as u32);
    Segment::new(key, bytes, permissions, claim, None, cache)
}

/// Whether there are huge pages of that size, and the caller may keep so much in memory.
fn check_huge_pages(task: &Task, pages: u64, flags: i32) -> Result<(), Errno> {
    let size = check_huge_size(flags as u32);
    if matches!(size, Err(HugeSize::None)) {
        return Err(Errno::EINVAL);
    }
    if !may_keep_in_memory(task, pages) {
        return Err(Errno::EPERM);
    }
    size.map_err(|_| Errno::ENOMEM)
}

fn may_keep_in_memory(task: &Task, pages: u64) -> bool {
    claim_locked(task, pages).is_some()
}

/// Counts pages that the caller wants to keep in memory, unless they are too many.
fn claim_locked(task: &Task, pages: u64) -> Option<LockedMemory> {
    let limit = match task.credentials.has(Capabilities::IPC_LOCK) {
        true => u64::MAX,
        false => task.process().limit(Resource::LockedMemory) / PAGE,
    };
    LockedMemory::claim(&task.credentials.account, pages, limit)
}

/// Attaches a segment.
#[inline(never)]
pub fn shmat(task: &mut Task, id: i32, address: u64, flags: i32) -> SysResult {
    let given = |flag: i32| flags & flag != 0;
    let mut address = address;
    let mut map = MapFlags::SHARED;
    if id < 0 {
        return Err(Errno::EINVAL);
    }
    if address == 0 {
        if given(attach_flag::REMAP) {
            return Err(Errno::EINVAL);
        }
    } else {
        if !address.is_multiple_of(PAGE) {
            address &= !(PAGE - 1);
            if !given(attach_flag::ROUND) || address == 0 && given(attach_flag::REMAP) {
                return Err(Errno::EINVAL);
            }
        }
        map |= if given(attach_flag::REMAP) { MapFlags::FIXED } else { MapFlags::FIXED_NO_REPLACE };
    }
    let mut protection = Protection::READ;
    let mut maximum = Protection::all();
    let mut wanted = READ;
    if given(attach_flag::READ_ONLY) {
        maximum -= Protection::WRITE;
    } else {
        protection |= Protection::WRITE;
        wanted |= WRITE;
    }
    if given(attach_flag::EXECUTE) {
        protection |= Protection::EXECUTE;
        wanted |= EXECUTE;
    }
    let segment = task.ipc_space().segments.by_id(id)?;
    segment.permissions().check(&task.credentials, task.ipc_space().owner(), wanted)?;
    if map.contains(MapFlags::FIXED_NO_REPLACE) && address.checked_add(segment.bytes()).is_none() {
        return Err(Errno::EINVAL);
    }
    // Dropped after the mapping has its region, or will never have one.
    let _hold = segment.hold()?;
    let request = MapRequest {
        address: UserAddr::new(address),
        length: segment.bytes(),
        protection,
        maximum,
        flags: map,
        backing: MapBacking::File(segment.mapping()?),
        offset: 0,
    };
    match task.address_space.map(request) {
        Ok(address) => Ok(address.as_usize()),
        Err(MapError::Exists) => Err(Errno::EINVAL),
        Err(error) => Err(errno_of(error)),
    }
}

/// Detaches what was attached at an address.
pub fn shmdt(task: &mut Task, address: u64) -> SysResult {
    task.address_space.detach(UserAddr::new(address)).map(|()| 0).map_err(errno_of)
}

/// Asks about segments, changes and removes them.
#[inline(never)]
pub fn shmctl(task: &mut Task, id: i32, command: i32, buffer: u64) -> SysResult {
    if command < 0 || id < 0 {
        return Err(Errno::EINVAL);
    }
    let space = task.ipc_space();
    match command {
        command::LIMITS => {
            UserPointer::new(buffer).write(&limits_for_user(space))?;
            Ok(space.segments.highest_place().unwrap_or(0))
        }
        command::TOTALS => {
            UserPointer::new(buffer).write(&totals(space))?;
            Ok(space.segments.highest_place().unwrap_or(0))
        }
        command::STATUS => {
            let segment = task.ipc_space().segments.by_id(id)?;
            segment.permissions().check(&task.credentials, task.ipc_space().owner(), READ)?;
            UserPointer::new(buffer).write(&segment.status(space.segments.key_of(id), task.viewer()))?;
            Ok(0)
        }
        command::STATUS_OF_PLACE | command::STATUS_OF_ANY_PLACE => {
            let (segment, key, id) = space.segments.by_place(id)?;
            if command == command::STATUS_OF_PLACE {
                segment.permissions().check(&task.credentials, task.ipc_space().owner(), READ)?;
            }
            UserPointer::new(buffer).write(&segment.status(key, task.viewer()))?;
            Ok(id as usize)
        }
        command::SET => {
            let new: SharedMemoryStatus = UserPointer::new(buffer).read()?;
            set(task, id, &new.permissions)
        }
        command::REMOVE => {
            let segment = task.ipc_space().segments.by_id(id)?;
            segment.permissions().check_control(&task.credentials, task.ipc_space().owner())?;
            segment.doom();
            Ok(0)
        }
        command::LOCK | command::UNLOCK => lock(task, id, command == command::LOCK),
        _ => Err(Errno::EINVAL),
    }
}

fn set(task: &Task, id: i32, new: &IpcPermissions) -> SysResult {
    let segment = task.ipc_space().segments.by_id(id)?;
    let mut state = segment.state.lock();
    state.permissions.check_control(&task.credentials, task.ipc_space().owner())?;
    state.permissions.set(new, task.credentials.space())?;
    drop(state);
    segment.note_change();
    Ok(0)
}

fn lock(task: &Task, id: i32, keep: bool) -> SysResult {
    let segment = task.ipc_space().segments.by_id(id)?;
    if !task.credentials.has_in(task.ipc_space().owner(), Capabilities::IPC_LOCK) {
        segment.permissions().check_owner(&task.credentials)?;
        if keep && task.process().limit(Resource::LockedMemory) == 0 {
            return Err(Errno::EPERM);
        }
    }
    if keep {
        segment.lock(|pages| claim_locked(task, pages))?;
    } else {
        segment.unlock();
    }
    Ok(0)
}

fn limits_for_user(space: &IpcSpace) -> SharedMemoryLimits {
    let limits = &space.memory_limits;
    let segments = limits.segments_max.load(Ordering::Relaxed);
    SharedMemoryLimits {
        bytes_max: limits.bytes_max.load(Ordering::Relaxed),
        bytes_least: limits::LEAST_BYTES,
        segments_max: segments,
        attachments_max: segments,
        pages_max: limits.pages_max.load(Ordering::Relaxed),
        ..Default::default()
    }
}

fn totals(space: &IpcSpace) -> SharedMemoryTotals {
    let mut resident = 0;
    space.segments.for_each(|segment, _, _| resident += segment.resident_pages());
    SharedMemoryTotals {
        segments: space.segments.count() as i32,
        pages: space.memory_limits.pages(),
        resident,
        ..Default::default()
    }
}
