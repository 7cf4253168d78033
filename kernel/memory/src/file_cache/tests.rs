//! File caches against plain byte vectors.

use super::*;
use crate::buffer::{Sink, Source};
use crate::fallible;
use crate::frame::{Frame, Purpose, Zeroed};
use crate::per_cpu::Shared;
use core::sync::atomic::{AtomicU64, Ordering};
use machine::address::PAGE_SIZE;
use proptest::prelude::*;
use sync::rcu;

const PAGE: u64 = PAGE_SIZE as u64;

fn read(cache: &FileCache, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0xaa; length];
    let count = cache.read_at(offset, &mut Sink::kernel(&mut bytes)).expect("kernel buffers don't fault");
    bytes.truncate(count);
    bytes
}

/// Has RCU drop what this thread, as a processor, has left to it: frames that have left an index.
pub(crate) fn drop_unseen() {
    let _no_migration = machine::preempt::disable();
    while rcu::pending() > 0 {
        rcu::quiescent();
        rcu::force();
        rcu::invoke(64);
        machine::cpu::relax();
    }
}

fn used(purpose: Purpose) -> i64 {
    drop_unseen();
    crate::local::local(|cpu| cpu.frames.counters.used[purpose as usize].load(Ordering::Relaxed))
}

#[derive(Clone, Debug)]
enum Operation {
    Write { offset: u64, length: usize, value: u8 },
    Append { length: usize, value: u8 },
    Read { offset: u64, length: usize },
    Truncate { size: u64 },
    Punch { offset: u64, length: u64 },
    Allocate { offset: u64, length: u64 },
    Seek { offset: u64 },
}

/// Offsets near page boundaries, and far apart.
fn offset() -> impl Strategy<Value = u64> {
    (prop_oneof![4 => 0..4_u64, 1 => 60..70_u64], prop_oneof![Just(0), Just(1), Just(PAGE - 1), 0..PAGE])
        .prop_map(|(page, within)| page * PAGE + within)
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![0..10_usize, PAGE_SIZE - 2..PAGE_SIZE + 3, 0..5 * PAGE_SIZE]
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (offset(), length(), any::<u8>())
            .prop_map(|(offset, length, value)| Operation::Write { offset, length, value }),
        1 => (length(), any::<u8>()).prop_map(|(length, value)| Operation::Append { length, value }),
        3 => (offset(), length()).prop_map(|(offset, length)| Operation::Read { offset, length }),
        2 => offset().prop_map(|size| Operation::Truncate { size }),
        1 => (offset(), length()).prop_map(|(offset, length)| Operation::Punch { offset, length: length as u64 }),
        1 => (offset(), 0..3 * PAGE).prop_map(|(offset, length)| Operation::Allocate { offset, length }),
        1 => offset().prop_map(|offset| Operation::Seek { offset }),
    ]
}

fn put(model: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if !bytes.is_empty() {
        model.resize(model.len().max(offset + bytes.len()), 0);
        model[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
}

fn pattern(length: usize, value: u8) -> Vec<u8> {
    (0..length).map(|index| value.wrapping_add(index as u8)).collect()
}

fn apply(cache: &FileCache, model: &mut Vec<u8>, operation: Operation) {
    match operation {
        Operation::Write { offset, length, value } => {
            let bytes = pattern(length, value);
            assert_eq!(cache.write_at(offset, &mut Source::kernel(&bytes)), Ok(length));
            put(model, offset as usize, &bytes);
        }
        Operation::Append { length, value } => {
            let bytes = pattern(length, value);
            let end = model.len();
            assert_eq!(cache.append(&mut Source::kernel(&bytes)), Ok((end as u64, length)));
            put(model, end, &bytes);
        }
        Operation::Read { offset, length } => {
            let start = (offset as usize).min(model.len());
            let end = (offset as usize + length).min(model.len());
            assert_eq!(read(cache, offset, length), &model[start..end.max(start)]);
        }
        Operation::Truncate { size } => {
            cache.truncate(size).expect("a small file");
            model.resize(size as usize, 0);
        }
        Operation::Punch { offset, length } => {
            cache.punch_hole(offset..offset + length).expect("memory");
            let end = (offset + length).min(model.len() as u64) as usize;
            if (offset as usize) < end {
                model[offset as usize..end].fill(0);
            }
        }
        Operation::Allocate { offset, length } => {
            cache.allocate(offset..offset + length).expect("memory");
        }
        Operation::Seek { offset } => {
            let data = cache.next_data(offset);
            let hole = cache.next_hole(offset);
            assert_eq!(hole.is_some(), (offset as usize) < model.len());
            let until = data.unwrap_or(model.len() as u64) as usize;
            let skipped = model.get(offset as usize..until).unwrap_or(&[]);
            assert!(skipped.iter().all(|&byte| byte == 0), "what is before the data is zero");
            if let Some(hole) = hole {
                assert!(hole >= offset && hole <= model.len() as u64);
            }
        }
    }
}

proptest! {
    #[test]
    fn cache_agrees_with_a_vector(steps in prop::collection::vec(operation(), 1..60)) {
        let before = used(Purpose::FileCache);
        let cache = FileCache::new(CacheKind::File);
        let mut model = Vec::new();
        for operation in steps {
            apply(&cache, &mut model, operation);
            prop_assert_eq!(cache.size(), model.len() as u64);
        }
        prop_assert_eq!(read(&cache, 0, model.len() + 1), model);
        prop_assert_eq!(used(Purpose::FileCache) - before, cache.resident_pages() as i64);
        drop(cache);
        prop_assert_eq!(used(Purpose::FileCache), before);
    }
}

#[test]
fn holes_cost_nothing_and_read_as_zeros() {
    let cache = FileCache::new(CacheKind::SharedMemory);
    cache.truncate(1 << 40).unwrap();
    assert_eq!(read(&cache, 1 << 39, 5), [0; 5]);
    assert_eq!(cache.resident_pages(), 0);
    cache.write_at((1 << 40) - 1, &mut Source::kernel(b"x")).unwrap();
    assert_eq!(cache.resident_pages(), 1);
    assert_eq!(cache.next_data(0), Some((1 << 40) - PAGE));
    assert_eq!((cache.next_hole(0), cache.next_hole((1 << 40) - 1)), (Some(0), Some(1 << 40)));
}

#[test]
fn sizes_beyond_the_limit_are_refused() {
    let cache = FileCache::new(CacheKind::File);
    assert_eq!(cache.truncate(1 << 63), Err(CacheError::TooBig));
    assert_eq!(cache.write_at(MAX_FILE_BYTES, &mut Source::kernel(b"x")), Err(CacheError::TooBig));
    assert_eq!(cache.write_at(MAX_FILE_BYTES - 1, &mut Source::kernel(b"xy")), Ok(1));
    assert_eq!(cache.size(), MAX_FILE_BYTES);
}

#[test]
fn adopted_frames_are_not_copied_and_their_tail_is_cleared_before_it_shows() {
    let frames: Vec<Frame> = (0..2_u8)
        .map(|number| {
            let frame = Frame::allocate(Purpose::Kernel, Zeroed::No).unwrap();
            frame.write(0, &[number + 1; PAGE_SIZE]);
            frame
        })
        .collect();
    let second = frames[1].clone();
    let cache = FileCache::new(CacheKind::SharedMemory);
    cache.adopt(PAGE + 100, frames).unwrap();
    assert_eq!(read(&cache, PAGE, 200), [2; 100]);
    let mut byte = [0];
    second.read(100, &mut byte);
    assert_eq!(byte, [2], "nothing is written to the frame as long as nobody can see the tail");
    assert!(cache.mappable(1).is_none() && cache.mappable(0).is_some());
    let frame = cache.frame(1, Intent::Read).unwrap().unwrap();
    assert_eq!(frame.physical(), second.physical());
    second.read(100, &mut byte);
    assert_eq!(byte, [0]);
    assert!(cache.mappable(1).is_some());
}

#[test]
fn growing_an_adopted_file_shows_zeros() {
    let frame = Frame::allocate(Purpose::Kernel, Zeroed::No).unwrap();
    frame.write(0, &[7; PAGE_SIZE]);
    let cache = FileCache::new(CacheKind::SharedMemory);
    cache.adopt(10, [frame]).unwrap();
    cache.write_at(20, &mut Source::kernel(b"z")).unwrap();
    assert_eq!(read(&cache, 8, 20), [7, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, b'z']);
}

#[derive(Default)]
struct Budget {
    left: AtomicU64,
}

impl PageBudget for Budget {
    fn charge(&self, pages: u64) -> bool {
        self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(pages)).is_ok()
    }

    fn charge_regardless(&self, pages: u64) {
        self.left.fetch_sub(pages, Ordering::SeqCst);
    }

    fn release(&self, pages: u64) {
        self.left.fetch_add(pages, Ordering::SeqCst);
    }
}

#[test]
fn adopted_frames_count_in_the_budget() {
    let budget = Shared::try_new(Budget { left: AtomicU64::new(3) }).unwrap();
    let cache = FileCache::with_budget(CacheKind::SharedMemory, budget.clone().into_budget());
    let frames = [0, 1].map(|_| Frame::allocate(Purpose::Kernel, Zeroed::No).unwrap());
    cache.adopt(2 * PAGE, frames).unwrap();
    assert_eq!(budget.left.load(Ordering::SeqCst), 1);
    cache.truncate(0).unwrap();
    assert_eq!(budget.left.load(Ordering::SeqCst), 3);
}

#[test]
fn a_budget_limits_pages_and_gets_them_back() {
    let budget = Shared::try_new(Budget { left: AtomicU64::new(3) }).unwrap();
    let cache = FileCache::with_budget(CacheKind::SharedMemory, budget.clone().into_budget());
    let bytes = vec![1; 5 * PAGE_SIZE];
    assert_eq!(cache.write_at(0, &mut Source::kernel(&bytes)), Ok(3 * PAGE_SIZE));
    assert_eq!(cache.write_at(4 * PAGE, &mut Source::kernel(b"x")), Err(CacheError::NoSpace));
    cache.punch_hole(0..PAGE).unwrap();
    assert_eq!(budget.left.load(Ordering::SeqCst), 1);
    assert_eq!(cache.write_at(4 * PAGE, &mut Source::kernel(b"x")), Ok(1));
    drop(cache);
    assert_eq!(budget.left.load(Ordering::SeqCst), 3);
}

#[test]
fn failed_allocations_leave_a_consistent_cache() {
    fallible::exhaust("file cache", || {
        let before = used(Purpose::FileCache);
        // Its memory is not what is tested.
        let Ok(budget) = Shared::try_new(Budget { left: AtomicU64::new(100) }) else { return };
        let cache = FileCache::with_budget(CacheKind::File, budget.clone().into_budget());
        for offset in [5, 70 * PAGE, 5000 * PAGE, 3 * PAGE] {
            let insist = || cache.write_at(offset, &mut Source::kernel(&[3; PAGE_SIZE]));
            let written = insist().or_else(|error| {
                assert_eq!(error, CacheError::OutOfMemory);
                insist()
            });
            let done = written.expect("fails only once");
            if done < PAGE_SIZE {
                // A write that was cut short goes on where it stopped.
                let rest = vec![3; PAGE_SIZE - done];
                cache.write_at(offset + done as u64, &mut Source::kernel(&rest)).expect("fails only once");
            }
            assert_eq!(read(&cache, offset, PAGE_SIZE), [3; PAGE_SIZE]);
        }
        assert_eq!(used(Purpose::FileCache) - before, cache.resident_pages() as i64);
        assert_eq!(budget.left.load(Ordering::SeqCst), 100 - cache.resident_pages());
        drop(cache);
        assert_eq!(used(Purpose::FileCache), before);
    });
}

#[test]
fn readers_and_writers_of_one_file_do_not_disturb_each_other() {
    let cache = FileCache::new(CacheKind::File);
    cache.truncate(64 * PAGE).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let cache = &cache;
            scope.spawn(move || {
                for round in 0..200_u64 {
                    let offset = (round % 20 * 3 + thread) * PAGE;
                    let bytes = [round as u8; 100];
                    assert_eq!(cache.write_at(offset, &mut Source::kernel(&bytes)), Ok(100));
                    assert_eq!(read(cache, offset, 100), bytes);
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..50 {
                cache.punch_hole(60 * PAGE..63 * PAGE).unwrap();
                assert_eq!(read(&cache, 60 * PAGE, 10), [0; 10]);
            }
        });
    });
}
