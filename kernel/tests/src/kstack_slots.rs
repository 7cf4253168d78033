//! Tests of what slots of kernel stacks need besides their pages: page tables and descriptors come and go with a crowd.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use ::machine::cpu::CpuSet;
use ::machine::time;
use ::memory::frame::Purpose;
use ::memory::kstack::{self, Exercise, KernelStack};
use ::memory::statistics;
use ::sched::{Completion, RunState};

use super::kstack::{await_that, join, on_all_processors, spawn, usable_bytes};
use super::{Outcome, Test, check};

pub(crate) const TESTS: &[Test] = &[
    Test { name: "kstack_slots::a_crowd_gives_its_tables_back", run: tables_come_back },
    Test { name: "kstack_slots::a_stack_in_the_midst_keeps_its_chunk", run: one_stack_stays },
    Test { name: "kstack_slots::readers_and_trims_race_with_giving_back", run: readers_race },
];

/// Slots of a chunk, and chunks without a stack that are kept.
const CHUNK_SLOTS: u64 = 64;
const EMPTY_KEPT: u64 = 8;
/// Frames that the table of chunks may take meanwhile, and threads that start.
const TABLE_FRAMES: u64 = 4;

/// Pages of a window that takes one slot, two, four, and eight.
const WINDOWS: [usize; 4] = [4, 31, 63, 127];

fn used(purpose: Purpose) -> u64 {
    statistics::memory().used(purpose)
}

/// Slots that have descriptors, and frames used for page tables and by the kernel for its own.
type Needs = (u64, u64, u64);

fn needs() -> Needs {
    (kstack::statistics().slots, used(Purpose::PageTable), used(Purpose::Kernel))
}

/// Makes what nobody uses free until no more is needed than `at_most`, unless it stays: kstackd may be at it at the same time.
fn settled(at_most: Needs) -> Needs {
    let limit_ns = time::now_ns() + super::HANG_NS;
    loop {
        kstack::free_unused();
        let now = needs();
        if (now.0 <= at_most.0 && now.1 <= at_most.1 && now.2 <= at_most.2) || time::now_ns() > limit_ns {
            return now;
        }
        ::sched::timer::sleep_until_uninterruptible(time::now_ns() + 1_000_000);
    }
}

fn crowd(stacks: usize) -> Result<Vec<KernelStack>, super::Failure> {
    (0..stacks)
        .map(|number| {
            KernelStack::allocate(WINDOWS[number % WINDOWS.len()])
                .map_err(|_| super::Failure::new(format_args!("no memory for stack {number}")))
        })
        .collect()
}

fn tables_come_back() -> Outcome {
    const STACKS: usize = 2000;
    // 15 slots for every four stacks; two frames of page tables and one of descriptors for 64 of them.
    const CHUNKS: u64 = STACKS as u64 * 15 / 4 / CHUNK_SLOTS;
    kstack::free_unused();
    let before = needs();
    // What kept chunks have; and the table of chunks itself, which stays.
    let at_most = (
        before.0 + EMPTY_KEPT * CHUNK_SLOTS,
        before.1 + 2 * EMPTY_KEPT + TABLE_FRAMES,
        before.2 + EMPTY_KEPT + TABLE_FRAMES,
    );
    for _ in 0..3 {
        let stacks = crowd(STACKS)?;
        for (number, stack) in stacks.iter().enumerate() {
            let pages = stack.window().pages as usize;
            check!(pages == WINDOWS[number % WINDOWS.len()], "stack {number} has {pages} pages");
        }
        let most = needs();
        check!(most.0 >= CHUNKS * CHUNK_SLOTS, "{before:?} became {most:?}");
        drop(stacks);
        let after = settled(at_most);
        let is_back = after.0 <= at_most.0 && after.1 <= at_most.1 && after.2 <= at_most.2;
        check!(is_back, "{before:?} before, {most:?} at most, {after:?} after");
    }
    Ok(())
}

fn one_stack_stays() -> Outcome {
    const STACKS: usize = 1500;
    // Kept and retired stacks are there no more, so the sleeper's lies in the midst.
    kstack::free_unused();
    let lower = crowd(STACKS)?;
    let go_on = Arc::new(Completion::new());
    let (waited, whole) = (go_on.clone(), Arc::new(AtomicBool::new(false)));
    let told = whole.clone();
    let (sleeper, done) = spawn(0, CpuSet::ALL, move || {
        waited.wait();
        let depth = usable_bytes(kstack::parameters().pages as usize);
        told.store(kstack::exercise(depth, Exercise::Recurse, &mut || ()), Relaxed);
    })?;
    await_that(|| sleeper.state() == RunState::Uninterruptible);
    drop((lower, crowd(STACKS)?));
    kstack::free_unused();
    // What is around it is given out again; the sleeper finds its pages, and grows.
    let again = crowd(STACKS)?;
    go_on.complete();
    join(&done);
    check!(whole.load(Relaxed), "the sleeper's stack was changed");
    drop(again);
    kstack::free_unused();
    super::kstack::no_fault_without_frame()
}

/// Counts what is written.
struct Count(usize);

impl fmt::Write for Count {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

fn readers_race() -> Outcome {
    const ROUNDS: usize = 6;
    const STACKS: usize = 700;
    let stop = Arc::new(AtomicBool::new(false));
    let looks = Arc::new(AtomicUsize::new(0));
    let mut readers = Vec::new();
    for reader in 0..2 {
        let (stop, looks) = (stop.clone(), looks.clone());
        readers.push(spawn(0, CpuSet::ALL, move || {
            while !stop.load(Relaxed) {
                if reader == 0 {
                    let mut count = Count(0);
                    kstack::write_report(&mut count).expect("a count takes all");
                    assert!(count.0 > 0 && kstack::statistics().stacks > 0);
                } else {
                    kstack::trim();
                    kstack::for_each_stack(&mut |stack| assert!(stack.range.0 < stack.range.1, "{stack:?}"));
                }
                looks.fetch_add(1, Relaxed);
                ::sched::yield_now();
            }
        })?);
    }
    let outcome = on_all_processors(|cpu| {
        for round in 0..ROUNDS {
            let stacks: Vec<_> =
                (0..STACKS).map(|number| WINDOWS[(number + round + cpu) % WINDOWS.len()]).collect();
            let stacks: Vec<_> =
                stacks.into_iter().map_while(|pages| KernelStack::allocate(pages).ok()).collect();
            assert!(stacks.len() == STACKS, "memory for {} stacks", stacks.len());
            drop(stacks);
            kstack::free_unused();
        }
    });
    stop.store(true, Relaxed);
    readers.iter().for_each(|(_, done)| join(done));
    outcome?;
    check!(looks.load(Relaxed) > 0, "nobody looked");
    super::kstack::no_fault_without_frame()
}
