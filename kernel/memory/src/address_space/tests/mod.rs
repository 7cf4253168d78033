//! Address spaces against simple models.

mod against_model;
mod counted;
mod cow;
mod files;
mod fork_windows;
mod huge;
mod injection;
mod limits;
mod mapping;
mod model;
mod pager;
mod pooled;
mod race;
mod remapping;
mod shared_tables;

use super::*;
use crate::file_cache::{CacheKind, FileCache};
use crate::frame::Purpose;
use crate::local;
use crate::region::FileMapping;
use core::sync::atomic::Ordering;
use machine::address::{PAGE_SIZE, UserAddr};
use machine::fault::{Access, FaultError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const PAGE: u64 = PAGE_SIZE as u64;
/// Half of the tests' pages lie below this boundary of 1 GiB, half above: tables of all levels meet here.
const BOUNDARY: u64 = 0x4000_0000;
const READ_WRITE: Protection = Protection::READ.union(Protection::WRITE);

fn at(address: u64) -> UserAddr {
    UserAddr::new(address)
}

fn space() -> Arc<AddressSpace> {
    AddressSpace::new().expect("memory")
}

fn put(space: &AddressSpace, address: u64, value: u8) -> Result<(), FaultError> {
    space.write_remote(at(address), &[value]).map(|count| assert_eq!(count, 1))
}

fn get(space: &AddressSpace, address: u64) -> Result<u8, FaultError> {
    let mut byte = [0];
    space.read_remote(at(address), &mut byte).map(|_| byte[0])
}

fn file(pages: u64) -> Arc<FileCache> {
    let cache = Arc::new(FileCache::new(CacheKind::File));
    cache.truncate(pages * PAGE).expect("a small file");
    cache
}

fn mapping(cache: &Arc<FileCache>) -> Arc<FileMapping> {
    Arc::new(FileMapping::new(cache.clone(), None))
}

/// Frames that this thread's processor counts as used for user memory.
fn user_frames() -> [i64; 4] {
    crate::file_cache::tests::drop_unseen();
    let purposes = [Purpose::Anonymous, Purpose::FileCache, Purpose::Shmem, Purpose::PageTable];
    local::local(|cpu| {
        purposes.map(|purpose| cpu.frames.counters.used[purpose as usize].load(Ordering::Relaxed))
    })
}

/// Truncation looks at all address spaces there are, so these tests run one at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a test on this thread's processor and checks that it leaves no frame behind.
fn without_leaks(test: impl FnOnce()) {
    let _alone = alone();
    // Brings up what lives for ever.
    drop(space());
    check_leaks(test);
}

fn check_leaks(test: impl FnOnce()) {
    let before = user_frames();
    test();
    assert_eq!(user_frames(), before, "frames for private pages, files, shared memory and tables");
}
