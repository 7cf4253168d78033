//! The mmap family: thin wrappers over [`memory::address_space`].

use alloc::sync::Arc;

use ::memory::address_space::{
    AddressSpace, Advice, Limits, LockAllFlags, MapBacking, MapError, MapFlags, MapRequest, Protection,
    RemapFlags, SyncMode,
};
use ::memory::region::{FileMapping, RegionFlags};
use machine::address::{PAGE_SIZE, UserAddr};
use vfs::file_flags::FileFlags;
use vfs::{Capabilities, FileMappingKind};

use crate::credentials::identity::Credentials;
use crate::credentials::inspection::Inspector;
use crate::errno::{Errno, SysResult};
use crate::exec::persona::Persona;
use crate::process::limits::Resource;
use crate::process::process::Process;
use crate::process::thread::Thread;
use crate::task::Task;
use crate::user_pointer::{UserPointer, read_bytes};

const PAGE: u64 = PAGE_SIZE as u64;

/// The errno of a refused mapping operation.
pub fn errno_of(error: MapError) -> Errno {
    match error {
        MapError::OutOfMemory => Errno::ENOMEM,
        MapError::InvalidArgument => Errno::EINVAL,
        MapError::Exists => Errno::EEXIST,
        MapError::AccessDenied => Errno::EACCES,
        MapError::TooMuchLocked => Errno::EAGAIN,
        MapError::NotPermitted => Errno::EPERM,
        MapError::Busy => Errno::EBUSY,
        MapError::BadAddress => Errno::EFAULT,
        MapError::NoFile => Errno::EBADF,
        MapError::InputOutput => Errno::EIO,
        MapError::Overflow => Errno::EOVERFLOW,
    }
}

/// The limits of a process that its address space enforces.
pub fn limits_of(process: &Process, credentials: &Credentials) -> Limits {
    let locked = match credentials.has(Capabilities::IPC_LOCK) {
        true => u64::MAX,
        false => process.limit(Resource::LockedMemory),
    };
    Limits {
        address_space: process.limit(Resource::AddressSpace),
        data: process.limit(Resource::Data),
        stack: process.limit(Resource::Stack),
        locked,
    }
}

/// Greatest resident size, for getrusage.
pub fn peak_resident_kib(space: &AddressSpace) -> i64 {
    (space.usage().peak_resident_pages * PAGE / 1024) as i64
}

fn protection(bits: u32) -> Result<Protection, Errno> {
    // PROT_SEM has no meaning on x86.
    const SEM: u32 = 8;
    Protection::from_bits(bits & !SEM).ok_or(Errno::EINVAL)
}

mod map_flag {
    pub(super) const TYPE: u32 = 0xf;
    pub(super) const SHARED: u32 = 1;
    pub(super) const PRIVATE: u32 = 2;
    pub(super) const SHARED_VALIDATE: u32 = 3;
    pub(super) const FIXED: u32 = 0x10;
    pub(super) const ANONYMOUS: u32 = 0x20;
    pub(super) const GROWSDOWN: u32 = 0x100;
    pub(super) const LOCKED: u32 = 0x2000;
    pub(super) const NORESERVE: u32 = 0x4000;
    pub(super) const POPULATE: u32 = 0x8000;
    pub(super) const NONBLOCK: u32 = 0x1_0000;
    pub(super) const STACK: u32 = 0x2_0000;
    pub(super) const HUGETLB: u32 = 0x4_0000;
    pub(super) const FIXED_NOREPLACE: u32 = 0x10_0000;
    pub(super) const BELOW_2_GIB: u32 = 0x40;
    /// Which huge pages, for those two sizes that the processor knows.
    pub(super) const HUGE_SIZES: u32 = (21 << 26) | (30 << 26);
    /// Accepted without effect: what old programs still pass.
    pub(super) const IGNORED: u32 = 0x800 | 0x1000 | STACK;
}

fn map_flags(flags: u32) -> Result<MapFlags, Errno> {
    let mut out = MapFlags::empty();
    match flags & map_flag::TYPE {
        map_flag::SHARED => out |= MapFlags::SHARED,
        map_flag::PRIVATE => {}
        map_flag::SHARED_VALIDATE => {
            let known = map_flag::TYPE
                | map_flag::FIXED
                | map_flag::ANONYMOUS
                | map_flag::GROWSDOWN
                | map_flag::LOCKED
                | map_flag::NORESERVE
                | map_flag::POPULATE
                | map_flag::NONBLOCK
                | map_flag::HUGETLB
                | map_flag::FIXED_NOREPLACE
                | map_flag::BELOW_2_GIB
                | map_flag::HUGE_SIZES
                | map_flag::IGNORED;
            if flags & !known != 0 {
                return Err(Errno::EOPNOTSUPP);
            }
            out |= MapFlags::SHARED;
        }
        _ => return Err(Errno::EINVAL),
    }
    if flags & (map_flag::HUGETLB | map_flag::ANONYMOUS) == map_flag::HUGETLB | map_flag::ANONYMOUS {
        check_huge_size(flags).map_err(|size| match size {
            HugeSize::None => Errno::EINVAL,
            HugeSize::Empty => Errno::ENOMEM,
        })?;
        out |= MapFlags::POOLED;
    }
    for (bit, flag) in [
        (map_flag::FIXED, MapFlags::FIXED),
        (map_flag::FIXED_NOREPLACE, MapFlags::FIXED_NO_REPLACE),
        (map_flag::GROWSDOWN, MapFlags::GROWS_DOWN),
        (map_flag::LOCKED, MapFlags::LOCKED),
        (map_flag::NORESERVE, MapFlags::NO_RESERVE),
        (map_flag::POPULATE, MapFlags::POPULATE),
        (map_flag::NONBLOCK, MapFlags::NON_BLOCK),
        (map_flag::BELOW_2_GIB, MapFlags::SECOND_GIB),
    ] {
        out.set(flag, flags & bit != 0);
    }
    Ok(out)
}

/// Why there are no huge pages of a size.
pub enum HugeSize {
    /// The processor knows none of that size.
    None,
    /// It does, and the pool of them is empty and stays so.
    Empty,
}

/// Checks the size of huge pages in flags that ask for some: as a power of two, or 0, in the uppermost six bits.
///
/// # Errors
/// Why there are none.
pub fn check_huge_size(flags: u32) -> Result<(), HugeSize> {
    match flags >> 26 {
        0 | 21 => Ok(()),
        30 => Err(HugeSize::Empty),
        _ => Err(HugeSize::None),
    }
}

/// Whether memory with this protection can be executed as well, because the thread's domain says so.
fn reading_executes(task: &Task, protection: Protection) -> bool {
    protection.contains(Protection::READ) && task.thread.persona().contains(Persona::READ_IMPLIES_EXECUTE)
}

/// Maps memory or a file.
#[inline(never)]
pub fn mmap(
    task: &mut Task,
    address: u64,
    length: u64,
    protection_bits: u32,
    flags: u32,
    descriptor: i32,
    offset: u64,
) -> SysResult {
    if !offset.is_multiple_of(PAGE) || length == 0 {
        return Err(Errno::EINVAL);
    }
    let mut request = MapRequest {
        address: UserAddr::new(address),
        length,
        // Unlike mprotect, mmap ignores bits that it does not know.
        protection: Protection::from_bits_truncate(protection_bits),
        maximum: Protection::all(),
        flags: map_flags(flags)?,
        backing: MapBacking::Anonymous,
        offset: 0,
    };
    if reading_executes(task, request.protection) {
        request.protection |= Protection::EXECUTE;
    }
    if flags & map_flag::ANONYMOUS == 0 {
        let wants_execution = protection_bits & Protection::EXECUTE.bits() != 0;
        if flags & map_flag::HUGETLB != 0 && !has_huge_pages(task, descriptor)? {
            return Err(Errno::EINVAL);
        }
        attach_file(task, &mut request, descriptor, offset, wants_execution)?;
        if let MapBacking::File(mapping) = &request.backing
            && mapping.cache().is_huge()
        {
            return map_huge_file(task, request, descriptor);
        }
    }
    task.address_space.map(request).map(|address| address.as_usize()).map_err(errno_of)
}

/// Whether a file has huge pages.
fn has_huge_pages(task: &Task, descriptor: i32) -> Result<bool, Errno> {
    let file = task.usable_file(descriptor)?;
    let mapping = file.operations().mapping(&file);
    Ok(matches!(mapping, Ok(FileMappingKind::Pages(cache)) if cache.is_huge()))
}

/// Maps a file of huge pages, which may become longer by that.
#[inline(never)]
fn map_huge_file(task: &Task, request: MapRequest, descriptor: i32) -> SysResult {
    let file = task.usable_file(descriptor)?;
    let cache = match &request.backing {
        MapBacking::File(mapping) => mapping.cache().clone(),
        _ => return Err(Errno::EINVAL),
    };
    let address = task.address_space.map(request).map_err(errno_of)?;
    file.inode().set_size(cache.size());
    Ok(address.as_usize())
}

/// Checks that the file may be mapped so, and makes it what the request shows.
#[inline(never)]
fn attach_file(
    task: &Task,
    request: &mut MapRequest,
    descriptor: i32,
    offset: u64,
    bits_want_execution: bool,
) -> Result<(), Errno> {
    let file = task.usable_file(descriptor)?;
    let shared = request.flags.contains(MapFlags::SHARED);
    file.check_readable().map_err(|_| Errno::EACCES)?;
    // What is mapped can be stored to anywhere.
    if shared && file.check_writable().is_ok() && file.inode().file_flags().contains(FileFlags::APPEND_ONLY) {
        return Err(Errno::EACCES);
    }
    if shared && file.check_writable().is_err() {
        if request.protection.contains(Protection::WRITE) {
            return Err(Errno::EACCES);
        }
        request.maximum -= Protection::WRITE;
    }
    if shared && tmpfs::memory_file::check_writable_mapping(&file).is_err() {
        if request.protection.contains(Protection::WRITE) {
            return Err(Errno::EPERM);
        }
        request.maximum -= Protection::WRITE;
    }
    if !crate::exec::open::allows_execution(&file) {
        if bits_want_execution {
            return Err(Errno::EPERM);
        }
        request.protection -= Protection::EXECUTE;
        request.maximum -= Protection::EXECUTE;
    }
    offset.checked_add(request.length).filter(|end| *end <= i64::MAX as u64).ok_or(Errno::EOVERFLOW)?;
    let (kind, offset) = file.operations().mapping_at(&file, offset, request.length)?;
    match kind {
        FileMappingKind::Pages(cache) => {
            let object = crate::exec::mapped_object(&file)?;
            let mapping = FileMapping::new(cache, Some(object));
            let mapping: Arc<FileMapping> =
                ::memory::fallible::try_arc(mapping).map_err(|_| Errno::ENOMEM)?;
            request.backing = MapBacking::File(mapping);
            request.offset = offset;
        }
        FileMappingKind::Zeroes => request.backing = MapBacking::Anonymous,
    }
    Ok(())
}

/// Removes mappings.
pub fn munmap(task: &mut Task, address: u64, length: u64) -> SysResult {
    task.address_space.unmap(UserAddr::new(address), length).map(|()| 0).map_err(errno_of)
}

/// `PROT_GROWSDOWN`: from the beginning of the region, which must be one that grows.
const GROWS_DOWN: u32 = 0x0100_0000;
/// `PROT_GROWSUP`: up to the end of one that grows upwards, of which there is none.
const GROWS_UP: u32 = 0x0200_0000;

/// Changes what is allowed.
pub fn mprotect(task: &mut Task, address: u64, length: u64, bits: u32) -> SysResult {
    let grows = bits & (GROWS_DOWN | GROWS_UP);
    let (address, length) = match grows {
        0 => (address, length),
        _ if grows == GROWS_DOWN | GROWS_UP || !address.is_multiple_of(PAGE) => return Err(Errno::EINVAL),
        _ if length == 0 => return Ok(0),
        _ => {
            protection(bits & !grows)?;
            whole_stack(task, address, length, grows)?
        }
    };
    let mut wanted = protection(bits & !grows)?;
    if reading_executes(task, wanted) {
        wanted |= Protection::EXECUTE;
    }
    task.address_space.protect(UserAddr::new(address), length, wanted).map(|()| 0).map_err(errno_of)
}

/// A range, extended to the beginning of the region that it is in or before.
#[inline(never)]
fn whole_stack(task: &Task, address: u64, length: u64, grows: u32) -> Result<(u64, u64), Errno> {
    let end = length.checked_next_multiple_of(PAGE).and_then(|length| address.checked_add(length));
    let end = end.ok_or(Errno::ENOMEM)?;
    let region = task.address_space.region_at_or_after(UserAddr::new(address)).ok_or(Errno::ENOMEM)?;
    let is_beyond = if grows == GROWS_DOWN { region.start() >= end } else { region.start() > address };
    match region.flags().contains(RegionFlags::GROWS_DOWN) {
        _ if is_beyond => Err(Errno::ENOMEM),
        true if grows == GROWS_DOWN => Ok((region.start(), end - region.start())),
        _ => Err(Errno::EINVAL),
    }
}

/// Protection keys are not supported; key -1 makes this mprotect.
pub fn pkey_mprotect(task: &mut Task, address: u64, length: u64, bits: u32, key: i32) -> SysResult {
    if key != -1 {
        return Err(Errno::EINVAL);
    }
    mprotect(task, address, length, bits)
}

/// Keys for protection: the processor has none.
pub fn pkey_alloc(_task: &mut Task, flags: u64, rights: u64) -> SysResult {
    /// `PKEY_DISABLE_ACCESS`, `PKEY_DISABLE_WRITE`
    const RIGHTS: u64 = 1 | 2;
    if flags != 0 || rights & !RIGHTS != 0 { Err(Errno::EINVAL) } else { Err(Errno::ENOSPC) }
}

/// None was given out.
pub fn pkey_free(_task: &mut Task, _key: i32) -> SysResult {
    Err(Errno::EINVAL)
}

/// Resizes or moves a mapping.
pub fn mremap(
    task: &mut Task,
    old: u64,
    old_length: u64,
    new_length: u64,
    flags: u32,
    new: u64,
) -> SysResult {
    let flags = RemapFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
    task.address_space
        .remap(UserAddr::new(old), old_length, new_length, flags, UserAddr::new(new))
        .map(|address| address.as_usize())
        .map_err(errno_of)
}

/// Has a part of a shared mapping show the file from another page on.
pub fn remap_file_pages(
    task: &mut Task,
    start: u64,
    length: u64,
    protection: u64,
    page: u64,
    flags: u32,
) -> SysResult {
    if protection != 0 {
        return Err(Errno::EINVAL);
    }
    let may_wait = flags & map_flag::NONBLOCK == 0;
    let start = UserAddr::new(start);
    task.address_space.remap_file_pages(start, length, page, may_wait).map(|()| 0).map_err(errno_of)
}

/// Moves the end of the heap.
pub fn brk(task: &mut Task, end: u64) -> SysResult {
    Ok(task.address_space.set_break(UserAddr::new(end)).as_usize())
}

pub(crate) fn advice(number: i32) -> Option<Advice> {
    Some(match number {
        0 => Advice::Normal,
        1 => Advice::Random,
        2 => Advice::Sequential,
        3 => Advice::WillNeed,
        4 => Advice::DontNeed,
        8 => Advice::Free,
        9 => Advice::Remove,
        10 => Advice::DontFork,
        11 => Advice::DoFork,
        12 => Advice::Mergeable,
        13 => Advice::Unmergeable,
        14 => Advice::HugePage,
        15 => Advice::NoHugePage,
        16 => Advice::DontDump,
        17 => Advice::DoDump,
        18 => Advice::WipeOnFork,
        19 => Advice::KeepOnFork,
        20 => Advice::Cold,
        21 => Advice::PageOut,
        22 => Advice::PopulateRead,
        23 => Advice::PopulateWrite,
        24 => Advice::DontNeedLocked,
        25 => Advice::Collapse,
        _ => return None,
    })
}

/// Tells what a range will be used for.
pub fn madvise(task: &mut Task, address: u64, length: u64, number: i32) -> SysResult {
    let advice = advice(number).ok_or(Errno::EINVAL)?;
    task.address_space.advise(UserAddr::new(address), length, advice).map(|()| 0).map_err(errno_of)
}

/// Writes shared pages back.
pub fn msync(task: &mut Task, address: u64, length: u64, flags: u32) -> SysResult {
    const ASYNC: u32 = 1;
    const INVALIDATE: u32 = 2;
    const SYNC: u32 = 4;
    if flags & !(ASYNC | INVALIDATE | SYNC) != 0 || flags & (ASYNC | SYNC) == ASYNC | SYNC {
        return Err(Errno::EINVAL);
    }
    let mode = match flags & SYNC {
        0 if flags & INVALIDATE != 0 => SyncMode::Invalidate,
        0 => SyncMode::Asynchronous,
        _ => SyncMode::Synchronous,
    };
    let invalidate = flags & INVALIDATE != 0;
    task.address_space.sync(UserAddr::new(address), length, mode, invalidate).map(|()| 0).map_err(errno_of)
}

/// Says which pages are in memory.
#[inline(never)]
pub fn mincore(task: &mut Task, address: u64, length: u64, out: u64) -> SysResult {
    const CHUNK: usize = 256;
    let pages = length.div_ceil(PAGE);
    let mut done = 0;
    if !address.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    while done < pages {
        if task.thread.is_killed() {
            return Err(Errno::EINTR);
        }
        let count = (pages - done).min(CHUNK as u64) as usize;
        let mut chunk = [0; CHUNK];
        let mut at = 0;
        let start = UserAddr::new(address.wrapping_add(done * PAGE));
        let report = |resident: bool| {
            if let Some(place) = chunk.get_mut(at) {
                *place = resident.into();
            }
            at += 1;
        };
        task.address_space.resident(start, count as u64 * PAGE, report).map_err(errno_of)?;
        crate::user_pointer::write_bytes(out.wrapping_add(done), &chunk[..count])?;
        done += count as u64;
    }
    Ok(0)
}

/// Keeps pages in memory.
pub fn mlock(task: &mut Task, address: u64, length: u64) -> SysResult {
    mlock2(task, address, length, 0)
}

/// Keeps pages in memory, at once or when touched.
pub fn mlock2(task: &mut Task, address: u64, length: u64, flags: u32) -> SysResult {
    const ON_FAULT: u32 = 1;
    if flags & !ON_FAULT != 0 {
        return Err(Errno::EINVAL);
    }
    may_lock(task)?;
    task.address_space
        .lock(UserAddr::new(address), length, flags & ON_FAULT != 0)
        .map(|()| 0)
        .map_err(errno_of)
}

fn may_lock(task: &Task) -> Result<(), Errno> {
    let limit = task.process().limit(Resource::LockedMemory);
    if limit == 0 && !task.credentials.has(Capabilities::IPC_LOCK) { Err(Errno::EPERM) } else { Ok(()) }
}

/// Undoes mlock.
pub fn munlock(task: &mut Task, address: u64, length: u64) -> SysResult {
    task.address_space.unlock(UserAddr::new(address), length).map(|()| 0).map_err(errno_of)
}

/// Keeps all pages in memory.
pub fn mlockall(task: &mut Task, flags: u32) -> SysResult {
    let flags = LockAllFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
    if flags.is_empty() || flags == LockAllFlags::ON_FAULT {
        return Err(Errno::EINVAL);
    }
    may_lock(task)?;
    let threads = task.process().threads()?;
    task.address_space.lock_all(flags).map_err(errno_of)?;
    lock_kernel_stacks(&threads, true);
    Ok(0)
}

/// A program that locks its memory wants no delays by page faults: its threads' kernel stacks get all their pages, too.
/// Threads that it makes later share the fate of the one that makes them.
fn lock_kernel_stacks(threads: &[Arc<Thread>], locked: bool) {
    for thread in threads {
        if let Some(kernel) = thread.kernel_thread() {
            kernel.set_stack_locked(locked);
        }
    }
}

/// Undoes mlockall.
pub fn munlockall(task: &mut Task) -> SysResult {
    // Without memory for the list they stay locked: the call cannot fail.
    lock_kernel_stacks(&task.process().threads().unwrap_or_default(), false);
    task.address_space.unlock_all().map(|()| 0).map_err(errno_of)
}

fn other_space(task: &Task, pid: i32) -> Result<Arc<AddressSpace>, Errno> {
    let process = u32::try_from(pid).ok().and_then(|pid| task.find_process_of(pid)).ok_or(Errno::ESRCH)?;
    if Arc::ptr_eq(&process, task.process()) {
        return Ok(task.address_space.clone());
    }
    Inspector::attaching(task).inspect(&process, || process.address_space())?.ok_or(Errno::ESRCH)
}

/// Copies from another process.
pub fn process_vm_readv(
    task: &mut Task,
    pid: i32,
    local: u64,
    local_count: u64,
    remote: u64,
    remote_count: u64,
    flags: u64,
) -> SysResult {
    transfer(task, pid, (local, local_count), (remote, remote_count), flags, false)
}

/// Copies to another process.
pub fn process_vm_writev(
    task: &mut Task,
    pid: i32,
    local: u64,
    local_count: u64,
    remote: u64,
    remote_count: u64,
    flags: u64,
) -> SysResult {
    transfer(task, pid, (local, local_count), (remote, remote_count), flags, true)
}

#[inline(never)]
fn transfer(
    task: &Task,
    pid: i32,
    local: (u64, u64),
    remote: (u64, u64),
    flags: u64,
    write: bool,
) -> SysResult {
    const VECTORS_MAX: u64 = 1024;
    if flags != 0 || local.1 > VECTORS_MAX || remote.1 > VECTORS_MAX {
        return Err(Errno::EINVAL);
    }
    let read =
        |list: (u64, u64)| UserPointer::<crate::abi::IoVector>::new(list.0).read_vector(list.1 as usize);
    let (local, remote) = (read(local)?, read(remote)?);
    let space = other_space(task, pid)?;
    let mut bounce = ::memory::fallible::try_vec_of(0u8, PAGE_SIZE).map_err(|_| Errno::ENOMEM)?;
    let mut done = 0usize;
    let (mut from, mut at) = (0, 0u64);
    for mut piece in remote {
        while piece.length > 0 {
            while from < local.len() && at >= local[from].length {
                (from, at) = (from + 1, 0);
            }
            let Some(mine) = local.get(from) else { return Ok(done) };
            let count = piece.length.min(mine.length - at).min(PAGE) as usize;
            let address = mine.base.wrapping_add(at);
            let copied = copy_piece(&space, UserAddr::new(piece.base), address, &mut bounce[..count], write);
            match copied {
                Ok(0) | Err(_) => return if done > 0 { Ok(done) } else { Err(Errno::EFAULT) },
                Ok(count) => {
                    done += count;
                    at += count as u64;
                    piece.base += count as u64;
                    piece.length -= count as u64;
                }
            }
        }
    }
    Ok(done)
}

fn copy_piece(
    space: &AddressSpace,
    remote: UserAddr,
    local: u64,
    bounce: &mut [u8],
    write: bool,
) -> Result<usize, Errno> {
    if write {
        read_bytes(local, bounce)?;
        return space.write_remote(remote, bounce).map_err(|_| Errno::EFAULT);
    }
    let count = space.read_remote(remote, bounce).map_err(|_| Errno::EFAULT)?;
    crate::user_pointer::write_bytes(local, &bounce[..count])?;
    Ok(count)
}

/// Memory of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// All of it.
    pub total_bytes: u64,
    /// Not in use.
    pub free_bytes: u64,
    /// In tmpfs files and shared mappings.
    pub shared_bytes: u64,
}

/// How much memory there is.
pub fn totals() -> Totals {
    let memory = ::memory::statistics::memory();
    Totals { total_bytes: memory.total_kib() * 1024, free_bytes: memory.free_kib() * 1024, shared_bytes: 0 }
}
