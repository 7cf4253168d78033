//! Clustered objects on a hosted machine: threads are CPUs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use super::root::{Make, State};
use super::*;

struct Cell(AtomicI64);

struct Cells;

impl Make<Cell> for Cells {
    fn make(&self, _alone: bool) -> Option<Arc<Cell>> {
        Some(Arc::new(Cell(AtomicI64::new(0))))
    }
    fn take(&self, from: &Cell, state: &mut Option<State>) {
        let sum = state.take().map_or(0, |state| *state.downcast::<i64>().unwrap());
        *state = Some(Box::new(sum + from.0.swap(0, Ordering::Relaxed)));
    }
    fn put(&self, into: &Cell, state: State) {
        into.0.fetch_add(*state.downcast::<i64>().unwrap(), Ordering::Relaxed);
    }
    fn format(&self) -> Option<Format> {
        Some(Format::of::<i64>())
    }
}

fn single() -> Arc<dyn Root<Cell>> {
    Arc::new(Single::try_new(Cells).unwrap())
}

fn distributed(factor: usize) -> Arc<dyn Root<Cell>> {
    Arc::new(Distributed::try_new(factor, Cells).unwrap())
}

fn sum(object: &Clustered<Cell>) -> i64 {
    let mut sum = 0;
    object.for_each_representative(|cell| sum += cell.0.load(Ordering::Relaxed));
    sum
}

#[test]
fn only_the_first_call_misses() {
    let object = Clustered::try_new("test", single()).unwrap();
    for _ in 0..10 {
        object.call(|cell| cell.0.fetch_add(1, Ordering::Relaxed));
    }
    // A host thread may move between processors only where it says so.
    assert_eq!((object.report().misses, sum(&object)), (1, 10));
}

#[test]
fn each_cluster_has_its_representative() {
    let object = Arc::new(Clustered::try_new("test", distributed(1)).unwrap());
    let other = object.clone();
    let addresses = [
        object.call(|cell| (&raw const *cell).addr()),
        std::thread::spawn(move || other.call(|cell| (&raw const *cell).addr())).join().unwrap(),
    ];
    assert_ne!(addresses[0], addresses[1]);
    let all = Arc::new(Clustered::try_new("test", distributed(machine::cpu::MAX_CPUS)).unwrap());
    let other = all.clone();
    assert_eq!(
        all.call(|cell| (&raw const *cell).addr()),
        std::thread::spawn(move || other.call(|cell| (&raw const *cell).addr())).join().unwrap()
    );
}

#[test]
fn a_deleted_object_says_so() {
    let object = Clustered::try_new("test", single()).unwrap();
    let id = object.id();
    assert_eq!(id.call(|cell| cell.0.fetch_add(1, Ordering::Relaxed)), Ok(0));
    drop(object);
    assert_eq!(id.call(|_| ()), Err(Deleted));
    // The entry is another object's now; its number is not.
    let _next = Clustered::try_new("test", single()).unwrap();
    assert_eq!(id.call(|_| ()), Err(Deleted));
}

#[test]
fn state_moves_with_a_swap() {
    let object = Clustered::try_new("test", single()).unwrap();
    object.call(|cell| cell.0.store(7, Ordering::Relaxed));
    object.swap(distributed(1)).unwrap();
    object.call(|cell| cell.0.fetch_add(1, Ordering::Relaxed));
    object.swap(single()).unwrap();
    assert_eq!((sum(&object), object.report().swaps), (8, 2));
}

#[test]
fn roots_without_a_common_format_are_not_swapped() {
    struct Stubborn;
    impl Root<Cell> for Stubborn {
        fn handle_miss(&self, _cpu: machine::cpu::CpuId) -> Arc<Cell> {
            Arc::new(Cell(AtomicI64::new(0)))
        }
        fn visit(&self, _visit: &mut dyn FnMut(&Cell)) {}
        fn is_distributed(&self) -> bool {
            false
        }
    }
    let object = Clustered::try_new("test", single()).unwrap();
    object.call(|cell| cell.0.store(7, Ordering::Relaxed));
    assert_eq!(object.swap(Arc::new(Stubborn)), Err(SwapError::NoCommonFormat));
    assert_eq!(sum(&object), 7);
}

#[test]
fn no_call_is_lost_while_roots_are_swapped() {
    let object = Arc::new(Clustered::try_new("test", single()).unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    let callers: Vec<_> = (0..2)
        .map(|_| {
            let (object, stop) = (object.clone(), stop.clone());
            std::thread::spawn(move || {
                let mut calls = 0;
                while !stop.load(Ordering::Relaxed) {
                    object.call(|cell| cell.0.fetch_add(1, Ordering::Relaxed));
                    calls += 1;
                    machine::cpu::relax();
                }
                calls
            })
        })
        .collect();
    let swaps = if cfg!(miri) { 4 } else { 200 };
    for round in 0..swaps {
        object.swap(if round % 2 == 0 { distributed(1) } else { single() }).unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    let calls: i64 = callers.into_iter().map(|caller| caller.join().unwrap()).sum();
    assert_eq!(sum(&object), calls);
}

#[test]
fn a_count_is_exact_whoever_counts() {
    let count = Arc::new(Count::new(&"test"));
    let counters: Vec<_> = (0..2)
        .map(|_| {
            let count = count.clone();
            std::thread::spawn(move || {
                for _ in 0..2_000 {
                    count.add(1);
                    machine::cpu::relax();
                }
            })
        })
        .collect();
    counters.into_iter().for_each(|counter| counter.join().unwrap());
    assert_eq!(count.value(), 4_000);
}
