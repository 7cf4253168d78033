//! The per-CPU allocator and what stands on it, on the host.

use std::alloc::Layout;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use machine::cpu::{CpuId, MAX_CPUS};

use super::exercise::{self, Plan};
use super::{
    CHUNK_BYTES, CHUNK_SHIFT, Counter, PerCpuBox, PerCpuError, PerCpuRef, Put, Quota, Shared, SharedOwner,
    usage,
};

/// Blocks are the machine's; a test that counts them must be alone.
static ALONE: Mutex<()> = Mutex::new(());

pub(super) fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn layout(bytes: usize, align: usize) -> Layout {
    Layout::from_size_align(bytes, align).unwrap()
}

#[test]
fn copies_lie_a_chunk_apart() {
    let _alone = alone();
    let boxed = PerCpuBox::<AtomicU64>::try_zeroed().unwrap();
    for index in 0..MAX_CPUS {
        let address = (&raw const *boxed.get_on(CpuId::from_index(index))).addr();
        assert_eq!(address, boxed.cookie() + (index << CHUNK_SHIFT));
    }
}

#[test]
fn sizes_and_alignments_are_limited() {
    let _alone = alone();
    assert_eq!(exercise::distances(layout(0, 1)), Err(PerCpuError::Empty));
    assert_eq!(exercise::distances(layout(CHUNK_BYTES + 1, 1)), Err(PerCpuError::TooLarge));
    assert_eq!(exercise::distances(layout(8, 128)), Err(PerCpuError::Alignment));
    assert!(exercise::distances(layout(CHUNK_BYTES, 64)).is_ok());
}

#[test]
fn values_are_made_and_dropped_once_for_each_cpu() {
    let _alone = alone();
    static DROPPED: AtomicU32 = AtomicU32::new(0);
    struct Noisy(usize);
    impl Drop for Noisy {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
    let boxed = PerCpuBox::try_new(|cpu| Noisy(cpu.index())).unwrap();
    assert!(boxed.iter().map(|noisy| noisy.0).eq(0..MAX_CPUS));
    drop(boxed);
    assert_eq!(DROPPED.load(Ordering::Relaxed), MAX_CPUS as u32);
}

#[test]
fn failures_leave_nothing_behind() {
    let _alone = alone();
    let before = usage();
    crate::fallible::exhaust("per-CPU object", || drop(exercise::distances(layout(CHUNK_BYTES, 8))));
    let after = usage();
    assert_eq!((before.blocks, before.objects), (after.blocks, after.objects));
}

#[test]
fn the_smallest_free_region_is_used() {
    let _alone = alone();
    assert_eq!(exercise::best_fit(), Ok([5, 8, 0, 12]));
}

fn run(plan: Plan) -> exercise::Outcome {
    let before = usage();
    // Miri takes a thousand times as long.
    let operations = if cfg!(miri) { 40 } else { plan.operations };
    let outcome = exercise::random_operations(&Plan { operations, ..plan }).unwrap();
    let after = usage();
    assert_eq!((before.blocks, before.objects), (after.blocks, after.objects), "all blocks go in the end");
    outcome
}

#[test]
fn random_sizes_and_alignments_keep_the_blocks_in_order() {
    let _alone = alone();
    run(Plan { operations: 5_000, objects: 200, bytes_step: 1, bytes_max: 1024, seed: 1, check_every: 1 });
}

#[test]
fn objects_of_random_words_pack_well() {
    let _alone = alone();
    let plan =
        Plan { operations: 20_000, objects: 1000, bytes_step: 8, bytes_max: 128, seed: 3, check_every: 64 };
    let outcome = run(plan);
    assert!(cfg!(miri) || outcome.utilisation_permille >= 900, "{outcome:?}");
}

#[test]
fn counter_is_approximate_and_exact() {
    let _alone = alone();
    let counter = Counter::new(16);
    for _ in 0..100 {
        counter.increment();
    }
    assert_eq!(counter.exact(), 100);
    assert_eq!(counter.approximate(), 96);
    assert!((counter.exact() - counter.approximate()).abs() < counter.error_max());
    counter.add(-101);
    assert_eq!((counter.approximate(), counter.exact()), (-1, -1));
    // Near the limit and far from it.
    assert!(!counter.try_add(1, -1) && counter.try_add(1, 0) && !counter.try_add(i64::MAX, 5));
    assert!(counter.try_add(5, 1_000_000) && !counter.try_add(1, 5));
    assert_eq!(counter.exact(), 5);
}

#[test]
fn counter_without_memory_counts_all_the_same() {
    let _alone = alone();
    crate::fallible::inject(0);
    let counter = Counter::new(16);
    crate::fallible::disarm();
    counter.add(3);
    assert_eq!((counter.approximate(), counter.exact(), counter.error_max()), (3, 3, 0));
}

#[test]
fn reference_count_spreads_and_gathers() {
    let _alone = alone();
    let count = PerCpuRef::new();
    count.get();
    count.spread();
    assert!(!count.is_gathered());
    count.get();
    assert_eq!(count.value(), 3);
    // Down to nothing in the cells: nobody is told while it is spread.
    assert_eq!([count.put(), count.put()], [Put::Others; 2]);
    assert_eq!(count.value(), 1);
    assert_eq!(count.disown(), Put::Last);
}

#[test]
fn the_last_reference_is_given_back_once() {
    let _alone = alone();
    let (rounds, operations) = if cfg!(miri) { (2, 20) } else { (20, 2_000) };
    for _ in 0..rounds {
        let count = Arc::new(PerCpuRef::new());
        let lasts = Arc::new(AtomicI64::new(0));
        count.spread();
        let users: Vec<_> = (0..3)
            .map(|_| {
                count.get();
                let (count, lasts) = (count.clone(), lasts.clone());
                std::thread::spawn(move || {
                    for _ in 0..operations {
                        count.get();
                        assert_eq!(count.put(), Put::Others);
                    }
                    lasts.fetch_add(i64::from(count.put() == Put::Last), Ordering::Relaxed);
                })
            })
            .collect();
        lasts.fetch_add(i64::from(count.disown() == Put::Last), Ordering::Relaxed);
        users.into_iter().for_each(|user| user.join().unwrap());
        assert_eq!((lasts.load(Ordering::Relaxed), count.value()), (1, 0));
    }
}

#[test]
fn shared_object_is_dropped_with_its_last_handle() {
    let _alone = alone();
    let dropped = Arc::new(());
    let first = Shared::try_new(dropped.clone()).unwrap();
    Shared::spread(&first);
    let second = first.clone();
    let third = std::thread::spawn(move || second.clone()).join().unwrap();
    assert!(Shared::is_spread(&first) && Shared::ptr_eq(&first, &third));
    assert!(Shared::gather(&first));
    assert_eq!(Shared::count(&first), 2);
    drop(third);
    assert_eq!(Arc::strong_count(&dropped), 2);
    drop(first);
    assert_eq!(Arc::strong_count(&dropped), 1);
}

#[test]
fn quota_is_exact_at_its_limit() {
    let _alone = alone();
    for limit in [1, 10, Quota::BATCH, 1000] {
        let quota = Quota::try_new(limit).unwrap();
        assert!((0..limit).all(|_| quota.take(1)));
        assert!(!quota.take(1));
        assert_eq!(quota.used(), limit);
        quota.give_back(1);
        assert!(quota.take(1) && !quota.take(1));
        quota.give_back(limit);
        assert_eq!(quota.used(), 0);
        assert!(quota.take(limit) && !quota.take(1));
    }
}

#[test]
fn quota_finds_what_other_cpus_keep() {
    let _alone = alone();
    let quota = Quota::try_new(2000).unwrap();
    assert!(quota.take(1));
    // Another CPU has taken a batch beyond its need.
    quota.spare.iter().last().unwrap().store(Quota::BATCH, Ordering::Relaxed);
    quota.taken.fetch_add(Quota::BATCH, Ordering::Relaxed);
    assert_eq!(quota.used(), 1);
    assert!(quota.take(1999) && !quota.take(1));
    assert_eq!(quota.used(), 2000);
}

#[test]
fn quota_limit_changes_only_to_what_is_in_use_at_least() {
    let _alone = alone();
    let quota = Quota::try_new(0).unwrap();
    assert!(quota.take(500));
    assert!(!quota.set_limit(499) && quota.limit() == 0);
    assert!(quota.set_limit(500) && !quota.take(1));
    quota.take_regardless(7);
    assert_eq!((quota.used(), quota.limit()), (507, 507));
    assert!(quota.set_limit(0) && quota.take(1_000_000));
}

#[test]
fn quota_is_never_exceeded_and_nothing_is_lost() {
    let _alone = alone();
    let operations = if cfg!(miri) { 50 } else { 20_000 };
    let quota = Arc::new(Quota::try_new(100).unwrap());
    let held = Arc::new(AtomicI64::new(0));
    let users: Vec<_> = (1..4)
        .map(|amount| {
            let (quota, held) = (quota.clone(), held.clone());
            std::thread::spawn(move || {
                for _ in 0..operations {
                    if quota.take(amount * 11) {
                        assert!(
                            held.fetch_add(amount as i64 * 11, Ordering::SeqCst) + amount as i64 * 11 <= 100
                        );
                        held.fetch_sub(amount as i64 * 11, Ordering::SeqCst);
                        quota.give_back(amount * 11);
                    }
                }
            })
        })
        .collect();
    users.into_iter().for_each(|user| user.join().unwrap());
    assert_eq!(quota.used(), 0);
    assert!(quota.take(100) && !quota.take(1));
}

#[test]
fn object_ends_after_its_owner_with_its_last_handle() {
    let _alone = alone();
    for handle_outlives_grace_period in [false, true] {
        let dropped = Arc::new(());
        let owner = SharedOwner::try_new(dropped.clone()).unwrap();
        let handle = (*owner).clone();
        assert!(Shared::is_spread(&handle));
        drop(owner);
        let kept = handle_outlives_grace_period.then(|| handle.clone());
        drop(handle);
        for _ in 0..2 {
            sync::rcu::synchronize();
            let _pinned = machine::preempt::disable();
            sync::rcu::invoke(u32::MAX);
        }
        assert_eq!(Arc::strong_count(&dropped), if kept.is_some() { 2 } else { 1 });
        drop(kept);
        assert_eq!(Arc::strong_count(&dropped), 1);
    }
}
