//! Tests of clustered objects in the kernel (`test=clustered`): misses, deletion and swaps under load on all CPUs.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use ::sched::{Completion, timer};
use ::sync::clustered::{
    Clustered, Count, Deleted, Distributed, Format, Make, Root, Shape, Single, State, SwapError, enabled,
};
use machine::cpu::{self, CpuId, CpuSet};
use machine::time;

use super::{Failure, HANG_NS, Outcome, Test, check, fail, kit};

pub(crate) const TESTS: &[Test] = &[
    Test { name: "clustered::each_cpu_misses_once", run: each_cpu_misses_once },
    Test { name: "clustered::clusters_share_a_representative", run: clusters_share },
    Test { name: "clustered::calls_of_a_deleted_object_fail", run: deleted_objects_fail },
    Test { name: "clustered::swaps_under_load", run: || swaps_under_load(1_000) },
    Test { name: "clustered::becomes_distributed_and_single_again", run: adapts },
    Test { name: "clustered::count_is_exact_under_load", run: count_is_exact },
];

/// The sheet's full numbers.
pub(crate) const LONG: &[Test] =
    &[Test { name: "clustered_long::swaps_100000_under_load", run: || swaps_under_load(100_000) }];

/// The interface of the test's objects: something to count with.
struct Cell {
    value: AtomicI64,
}

struct Cells;

impl Make<Cell> for Cells {
    fn make(&self, _alone: bool) -> Option<Arc<Cell>> {
        Some(Arc::new(Cell { value: AtomicI64::new(0) }))
    }

    fn take(&self, from: &Cell, state: &mut Option<State>) {
        let before = state.take().and_then(|state| state.downcast::<i64>().ok()).map_or(0, |sum| *sum);
        *state = Some(Box::new(before + from.value.swap(0, Ordering::Relaxed)));
    }

    fn put(&self, into: &Cell, state: State) {
        if let Ok(value) = state.downcast::<i64>() {
            into.value.fetch_add(*value, Ordering::Relaxed);
        }
    }

    fn format(&self) -> Option<Format> {
        Some(Format::of::<i64>())
    }
}

fn root(shape: Shape, factor: usize) -> Option<Arc<dyn Root<Cell>>> {
    Some(match shape {
        Shape::Single => Arc::new(Single::try_new(Cells)?),
        Shape::Distributed => Arc::new(Distributed::try_new(factor, Cells)?),
    })
}

fn object(shape: Shape, factor: usize) -> Result<Arc<Clustered<Cell>>, Failure> {
    match root(shape, factor).and_then(|root| Clustered::try_new("test", root)) {
        Some(object) => Ok(Arc::new(object)),
        None => fail!("no memory for an object"),
    }
}

fn sum(object: &Clustered<Cell>) -> i64 {
    let mut sum = 0;
    object.for_each_representative(|cell| sum += cell.value.load(Ordering::Relaxed));
    sum
}

/// Starts a thread on each CPU of the set.
fn start(
    cpus: CpuSet,
    body: impl Fn(CpuId) + Send + Sync + 'static,
) -> Result<Vec<Arc<Completion>>, Failure> {
    let body = Arc::new(body);
    let mut all = Vec::new();
    for cpu in cpus.iter() {
        let body = body.clone();
        all.push(kit::spawn(kit::on(CpuSet::only(cpu)), move || body(cpu))?.1);
    }
    Ok(all)
}

fn join(all: &[Arc<Completion>]) -> Outcome {
    all.iter().try_for_each(|done| kit::join(done))
}

fn each_cpu_misses_once() -> Outcome {
    let object = object(Shape::Distributed, 1)?;
    let called = object.clone();
    join(&start(cpu::online(), move |_| {
        for _ in 0..1_000 {
            called.call(|cell| cell.value.fetch_add(1, Ordering::Relaxed));
        }
    })?)?;
    let (report, cpus) = (object.report(), cpu::online().count());
    check!(report.misses == cpus as u64, "{report:?}");
    check!(sum(&object) == 1_000 * cpus as i64, "{} calls arrived", sum(&object));
    check!(report.representatives == if enabled() { cpus } else { 1 }, "{report:?}");
    Ok(())
}

fn clusters_share() -> Outcome {
    let object = object(Shape::Distributed, 2)?;
    let called = object.clone();
    join(&start(cpu::online(), move |_| called.call(|_| ()))?)?;
    let (report, cpus) = (object.report(), cpu::online().count());
    check!(report.representatives == if enabled() { cpus.div_ceil(2) } else { 1 }, "{report:?}");
    Ok(())
}

/// All CPUs call objects by their ids while these are deleted and made anew.
fn deleted_objects_fail() -> Outcome {
    const OBJECTS: u64 = 2_000;
    let current = Arc::new(::sync::SpinLock::new(object(Shape::Distributed, 1)?.id()));
    let stop = Arc::new(AtomicBool::new(false));
    let refused = Arc::new(AtomicU64::new(0));
    let threads = {
        let (current, stop, refused) = (current.clone(), stop.clone(), refused.clone());
        start(cpu::online(), move |_| {
            while !stop.load(Ordering::Relaxed) {
                // Its own statement: the call is made without the lock.
                let id = *current.lock();
                for _ in 0..64 {
                    if id.call(|cell| cell.value.fetch_add(1, Ordering::Relaxed)) == Err(Deleted) {
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                }
                ::sched::yield_now();
            }
        })?
    };
    for _ in 0..OBJECTS {
        let object = object(Shape::Distributed, 1)?;
        *current.lock() = object.id();
        ::sched::yield_now();
        let calls = object.id().call(|cell| cell.value.load(Ordering::Relaxed));
        check!(calls.is_ok(), "an object that lives answers as if it were deleted");
    }
    stop.store(true, Ordering::Relaxed);
    join(&threads)?;
    let id = *current.lock();
    check!(id.call(|_| ()) == Err(Deleted), "the last object answers although it was deleted");
    log::info!(
        "{OBJECTS} objects deleted under load; {} calls came too late",
        refused.load(Ordering::Relaxed)
    );
    Ok(())
}

/// The root is exchanged again and again while all CPUs call: no call is lost, none is made twice, none hangs.
fn swaps_under_load(swaps: u32) -> Outcome {
    let object = object(Shape::Single, 1)?;
    let stop = Arc::new(AtomicBool::new(false));
    let calls = Arc::new(AtomicI64::new(0));
    let threads = {
        let (object, stop, calls) = (object.clone(), stop.clone(), calls.clone());
        start(cpu::online(), move |_| {
            let mut own = 0;
            while !stop.load(Ordering::Relaxed) {
                object.call(|cell| cell.value.fetch_add(1, Ordering::Relaxed));
                own += 1;
                if own % 64 == 0 {
                    ::sched::yield_now();
                }
            }
            calls.fetch_add(own, Ordering::Relaxed);
        })?
    };
    let factors = [1, 2, 4];
    for round in 0..swaps {
        let shape = if round % 2 == 0 { Shape::Distributed } else { Shape::Single };
        let Some(root) = root(shape, factors[round as usize / 2 % factors.len()]) else { fail!("no memory") };
        match object.swap(root) {
            Ok(()) => {}
            Err(SwapError::Busy | SwapError::NoCommonFormat | SwapError::Deleted) => {
                fail!("swap {round} failed")
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    join(&threads)?;
    let (report, calls) = (object.report(), calls.load(Ordering::Relaxed));
    check!(sum(&object) == calls, "{calls} calls were made, {} arrived", sum(&object));
    check!(report.swaps == u64::from(swaps), "{report:?}");
    log::info!("{swaps} swaps under {calls} calls, {} of them forwarded", report.forwarded);
    Ok(())
}

fn wait_for(what: &str, condition: impl Fn() -> bool) -> Outcome {
    let limit_ns = time::now_ns() + HANG_NS;
    while !condition() {
        check!(time::now_ns() < limit_ns, "{what}: never");
        timer::sleep_until_uninterruptible(time::now_ns() + 10_000_000);
    }
    Ok(())
}

fn adapts() -> Outcome {
    let Some(object) = Clustered::try_adaptive("test", |shape| root(shape, 1)) else { fail!("no memory") };
    let object = Arc::new(object);
    object.call(|cell| cell.value.fetch_add(1, Ordering::Relaxed));
    check!(!object.report().distributed, "distributed with one user");
    let called = object.clone();
    join(&start(cpu::online(), move |_| {
        called.call(|cell| cell.value.fetch_add(1, Ordering::Relaxed));
    })?)?;
    if cpu::online().count() == 1 || !enabled() {
        check!(!object.report().distributed, "distributed although it must not be");
        return Ok(());
    }
    // By the number of swaps: this thread may not get to look while the object is distributed.
    wait_for("distributed after a second CPU's miss", || object.report().swaps >= 1)?;
    wait_for("single again when nobody uses it", || {
        let report = object.report();
        report.swaps >= 2 && !report.distributed
    })?;
    check!(sum(&object) == cpu::online().count() as i64 + 1, "{} calls arrived", sum(&object));
    Ok(())
}

fn count_is_exact() -> Outcome {
    const ADDITIONS: i64 = 50_000;
    let count = Arc::new(Count::new(&"test"));
    let counted = count.clone();
    join(&start(cpu::online(), move |_| {
        for number in 0..ADDITIONS {
            counted.add(1);
            if number % 64 == 0 {
                ::sched::yield_now();
            }
        }
    })?)?;
    let expected = ADDITIONS * cpu::online().count() as i64;
    check!(count.value() == expected, "{} instead of {expected}", count.value());
    Ok(())
}
