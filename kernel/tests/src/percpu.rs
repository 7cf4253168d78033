//! Tests of per-CPU allocation (`test=percpu`), under the names of the sheet's checks.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::alloc::Layout;
use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use ::memory::per_cpu::{
    self, CHUNK_BYTES, CHUNK_SHIFT, Counter, PerCpuBox, PerCpuError, PerCpuRef, Put, exercise, usage,
};
use ::sched::{Builder, Completion};
use machine::cpu::{self, CpuSet};
use machine::time;

use super::{Failure, HANG_NS, Outcome, Test, check, fail};

pub(crate) const TESTS: &[Test] = &[
    Test { name: "percpu_test::best_fit", run: best_fit },
    Test { name: "percpu_test::isomorphic_addresses", run: isomorphic_addresses },
    Test { name: "percpu_test::zeroed_and_aligned_1_to_64", run: zeroed_and_aligned },
    Test { name: "percpu_test::sizes_8192_accepted_8193_refused", run: sizes_are_limited },
    Test { name: "percpu_test::list_sorted_after_each_of_100000_operations", run: list_stays_sorted },
    Test { name: "percpu_test::utilisation", run: utilisation },
    Test { name: "percpu_test::blocks_have_frames_for_cpus_that_exist", run: frames_follow_cpus },
    Test { name: "percpu_test::slab_heads_lie_in_blocks", run: slab_heads },
    Test { name: "percpu_test::counters_are_exact_under_load", run: counters_are_exact },
    Test { name: "percpu_test::bigref_torture", run: || bigref_torture(10, 20_000) },
];

/// The sheet's full numbers.
pub(crate) const LONG: &[Test] =
    &[Test { name: "percpu_long::bigref_torture", run: || bigref_torture(100, 1_000_000) }];

fn layout(bytes: usize, align: usize) -> Result<Layout, Failure> {
    Layout::from_size_align(bytes, align)
        .map_err(|_| Failure::new(format_args!("{bytes} at {align} is no layout")))
}

fn best_fit() -> Outcome {
    match exercise::best_fit() {
        Ok(places) => check!(places == [5, 8, 0, 12], "objects went to {places:?}"),
        Err(error) => fail!("{error:?}"),
    }
    Ok(())
}

fn isomorphic_addresses() -> Outcome {
    for bytes in [1, 8, 24, 100, 4096, CHUNK_BYTES] {
        match exercise::distances(layout(bytes, 8)?) {
            Ok(distances) => {
                for (index, distance) in distances.into_iter().enumerate() {
                    check!(
                        distance == index << CHUNK_SHIFT,
                        "the copy of CPU {index} is {distance} from the cookie"
                    );
                }
            }
            Err(error) => fail!("{error:?} for {bytes} bytes"),
        }
    }
    Ok(())
}

/// Runs the workout; memory and blocks have to be as before in the end. Others may allocate or free meanwhile; but who loses memory loses it
/// every time.
fn work_out(plan: &exercise::Plan) -> Result<exercise::Outcome, Failure> {
    const ATTEMPTS: u32 = 5;
    let mut attempt = 1;
    loop {
        // What others have given up is freed before, not meanwhile.
        ::sync::rcu::synchronize();
        ::sync::rcu::barrier();
        let before = usage();
        let outcome = match exercise::random_operations(plan) {
            Ok(outcome) => outcome,
            Err(reason) => fail!("{reason}"),
        };
        let after = usage();
        if (before.blocks, before.objects) == (after.blocks, after.objects) {
            return Ok(outcome);
        }
        check!(attempt < ATTEMPTS, "{before:?} before, {after:?} after");
        attempt += 1;
    }
}

fn zeroed_and_aligned() -> Outcome {
    for align in [1, 2, 4, 8, 16, 32, 64] {
        check!(exercise::distances(layout(24, align)?).is_ok(), "no object aligned to {align}");
    }
    let refused = exercise::distances(layout(24, 128)?);
    check!(refused == Err(PerCpuError::Alignment), "an alignment of 128: {refused:?}");
    work_out(&exercise::Plan {
        operations: 4_000,
        objects: 200,
        bytes_step: 1,
        bytes_max: 1024,
        seed: 7,
        check_every: 16,
    })
    .map(drop)
}

fn sizes_are_limited() -> Outcome {
    let fits = exercise::distances(layout(8192, 8)?);
    check!(fits.is_ok(), "8192 bytes: {fits:?}");
    let too_large = exercise::distances(layout(8193, 8)?);
    check!(too_large == Err(PerCpuError::TooLarge), "8193 bytes: {too_large:?}");
    let empty = exercise::distances(layout(0, 8)?);
    check!(empty == Err(PerCpuError::Empty), "0 bytes: {empty:?}");
    Ok(())
}

fn list_stays_sorted() -> Outcome {
    work_out(&exercise::Plan {
        operations: 100_000,
        objects: 100,
        bytes_step: 1,
        bytes_max: 512,
        seed: 11,
        check_every: 1,
    })
    .map(drop)
}

fn utilisation() -> Outcome {
    let plan = exercise::Plan {
        operations: 20_000,
        objects: 1000,
        bytes_step: 8,
        bytes_max: 128,
        seed: 3,
        check_every: 256,
    };
    let outcome = work_out(&plan)?;
    log::info!(
        "per-CPU blocks: {} thousandths in use, {} blocks",
        outcome.utilisation_permille,
        outcome.blocks_max
    );
    check!(outcome.utilisation_permille >= 900, "{outcome:?}");
    Ok(())
}

fn frames_follow_cpus() -> Outcome {
    let Ok(blocks) = per_cpu::blocks() else { fail!("no memory for the report") };
    for block in &blocks {
        for (index, pair) in block.frames.chunks(2).enumerate() {
            let expected = index < cpu::count() || index == cpu::MAX_CPUS;
            check!(
                pair.iter().all(|&frame| (frame != 0) == expected),
                "section {index} of block {:#x} has frames {pair:?}",
                block.start
            );
        }
    }
    Ok(())
}

fn slab_heads() -> Outcome {
    // 58 classes of the heap have a head each; objects of others come on top.
    let usage = usage();
    check!(usage.objects >= 58 && usage.used_bytes > 8192, "{usage:?}");
    Ok(())
}

/// A thread on each CPU; returns when all have run the body.
pub(super) fn on_each_cpu(body: impl Fn() + Send + Sync + 'static) -> Outcome {
    let body = Arc::new(body);
    let mut all = Vec::new();
    for cpu in cpu::online().iter() {
        let done = Arc::new(Completion::new());
        all.push(done.clone());
        let body = body.clone();
        let builder = Builder { affinity: CpuSet::only(cpu), ..Builder::new("percpu") };
        let thread = ::sched::spawn(
            builder,
            alloc::boxed::Box::new(move || {
                body();
                drop(body);
                done.complete();
            }),
        );
        check!(thread.is_ok(), "no memory for a thread");
    }
    for done in all {
        check!(done.wait_deadline(time::now_ns() + HANG_NS), "a thread did not end in time");
    }
    Ok(())
}

fn counters_are_exact() -> Outcome {
    const ADDITIONS: i64 = 100_000;
    let counter = Arc::new(Counter::new(Counter::BATCH));
    let Ok(seen) = PerCpuBox::<AtomicU64>::try_zeroed() else { fail!("no memory") };
    let seen = Arc::new(seen);
    let (counted, noted) = (counter.clone(), seen.clone());
    on_each_cpu(move || {
        for _ in 0..ADDITIONS {
            counted.increment();
        }
        noted.with_local(|seen| seen.fetch_add(1, Ordering::Relaxed));
    })?;
    let expected = ADDITIONS * cpu::online().count() as i64;
    check!(counter.exact() == expected, "{} instead of {expected}", counter.exact());
    let error = (counter.approximate() - expected).abs();
    check!(error <= counter.error_max(), "the approximate value is {error} off");
    check!(
        seen.iter().all(|seen| seen.load(Ordering::Relaxed) == 1),
        "a thread ran on another CPU: {seen:?}"
    );
    Ok(())
}

/// All CPUs take and give back references while one disowns; the last one is told exactly once.
fn bigref_torture(rounds: u32, operations: u32) -> Outcome {
    for round in 0..rounds {
        let count = Arc::new(PerCpuRef::new());
        let (lasts, negatives) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
        count.spread();
        let cpus = cpu::online().count();
        (0..cpus).for_each(|_| count.get());
        let started = Arc::new(AtomicU64::new(0));
        let (used, told, below, ready) = (count.clone(), lasts.clone(), negatives.clone(), started.clone());
        // The disowner is the thread of one of the CPUs, at another point of its work in each round.
        let disowner = round as usize % cpus;
        let moment = operations / (2 + round % 7);
        on_each_cpu(move || {
            ready.fetch_add(1, Ordering::Relaxed);
            for operation in 0..operations {
                used.get();
                if used.put() == Put::Last {
                    below.fetch_add(1, Ordering::Relaxed);
                }
                if operation == moment && cpu::current().index() == disowner && used.disown() == Put::Last {
                    told.fetch_add(1, Ordering::Relaxed);
                }
            }
            if used.put() == Put::Last {
                told.fetch_add(1, Ordering::Relaxed);
            }
        })?;
        let (lasts, early) = (lasts.load(Ordering::Relaxed), negatives.load(Ordering::Relaxed));
        check!(
            lasts == 1 && early == 0,
            "round {round}: the end was told {lasts} times, {early} times too early"
        );
        check!(count.value() == 0, "round {round}: {} references are left", count.value());
    }
    Ok(())
}
