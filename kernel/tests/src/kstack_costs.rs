//! What kernel stacks cost: a growth fault in cycles, and a thread's life in nanoseconds. Under QEMU with `-icount shift=0` a
//! nanosecond is an instruction, so the figures can be repeated exactly; `kstack=fixed` and `kstack=lend` give those to
//! compare with.

use alloc::sync::Arc;
use alloc::vec::Vec;

use ::machine::cpu::CpuSet;
use ::machine::{console, time};
use ::memory::kstack::{self, geometry};
use ::sync::SpinLock;

use super::kstack::{await_that, join, spawn};
use super::{Outcome, Test, check};

pub(crate) const TESTS: &[Test] = &[Test { name: "kstack_costs::table", run: table }];

/// Threads that each touch a whole window of this many pages.
const DESCENTS: usize = 8;
const PAGES: u32 = 100;
const THREADS: u64 = 1000;

fn table() -> Outcome {
    let cycles = Arc::new(SpinLock::new(Vec::new()));
    let second = Arc::new(SpinLock::new(Vec::new()));
    for _ in 0..DESCENTS {
        let (first_touches, second_touches) = (cycles.clone(), second.clone());
        // Not the last one's stack with all its pages.
        kstack::free_unused();
        let (thread, done) = spawn(geometry::MAX_PAGES as usize, CpuSet::ALL, move || {
            let touch = || (1..PAGES).filter_map(kstack::touch_beneath).collect::<Vec<u64>>();
            let samples = touch();
            first_touches.lock().extend(samples);
            let samples = touch();
            second_touches.lock().extend(samples);
        })?;
        join(&done);
        await_that(|| Arc::strong_count(&thread) == 1);
    }
    print("first touch of a stack page", &mut cycles.lock());
    print("second touch", &mut second.lock());
    let samples = cycles.lock().len();
    check!(samples == DESCENTS * (PAGES as usize - 1), "{samples} pages were touched");
    for (name, depth) in [("one page", 100), ("three pages", 9000)] {
        let start = time::now_ns();
        for _ in 0..THREADS {
            let (_thread, done) = spawn(0, CpuSet::ALL, move || {
                assert!(kstack::exercise(depth, kstack::Exercise::Recurse, &mut || {}));
            })?;
            join(&done);
        }
        let spent = (time::now_ns() - start) / THREADS;
        console::print(format_args!("cost of a thread from start to end, stack of {name}: {spent} ns\n"));
    }
    Ok(())
}

/// Prints the least and the middle one.
fn print(name: &str, samples: &mut [u64]) {
    samples.sort_unstable();
    let (Some(least), Some(middle)) = (samples.first(), samples.get(samples.len() / 2)) else { return };
    let to_ns = |cycles: u64| cycles * 1_000_000 / (time::cycles_per_second() / 1000).max(1);
    console::print(format_args!(
        "cost of the {name}: least {least} cycles ({} ns), median {middle} cycles ({} ns), {} samples\n",
        to_ns(*least),
        to_ns(*middle),
        samples.len()
    ));
}
