//! Locks on real processors: how long they are waited for, and what operations on memory cost.
//!
//! `locks::lockbench` (specs/scalability.md §J38): N threads on N processors take one lock again as soon as they have released
//! it, which is the worst case for a lock that can be overtaken. Printed is the longest wait beside (N − 1) × C, what a queue
//! that is strictly first come, first served would give on N processors that all run. That nobody starves is what is
//! tested: all threads get their share, and the lock itself asserts that the head of its queue is overtaken
//! [`sync::OVERTAKES_MAX`] times and some at most.
//!
//! With instructions as the clock the threads stay away instead for (N − 1) × C between two acquisitions, which is the condition
//! under which the paper has that as the bound S_max of a wait: it is tested then that no wait is longer.
//!
//! `locks::opcost` prints what the paper's table 1 has, on this machine.

use super::kit::{self, join};
use super::{Outcome, Test, check, counts_instructions, fail};
use ::sched::Completion;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hint::black_box;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use machine::cpu::{self, CpuId, CpuSet};
use machine::time;
use sync::{OVERTAKES_MAX, SpinLock};

pub(crate) const TESTS: &[Test] =
    &[Test { name: "locks::lockbench", run: lockbench }, Test { name: "locks::opcost", run: opcost }];

/// Most processors that contend.
const CONTENDERS_MAX: usize = 8;
/// Acquisitions that each of them needs.
const ACQUISITIONS: u64 = 1_000;
/// And if they stay apart.
const ACQUISITIONS_APART: u64 = 50;
/// Turns of the loop inside the critical section.
const SECTION_TURNS: u64 = 100;

const fn needed(apart: bool) -> u64 {
    if apart { ACQUISITIONS_APART } else { ACQUISITIONS }
}

#[derive(Default)]
struct Bench {
    lock: SpinLock<u64>,
    ready: AtomicU64,
    /// Threads that have what they need; they go on until all have.
    done: AtomicU64,
    longest_section_ns: AtomicU64,
    longest_wait_ns: AtomicU64,
    /// Most acquisitions by others during one wait.
    most_passed: AtomicU64,
    most_taken: AtomicU64,
}

impl Bench {
    /// The longest that a thread waits if all others go first, once each.
    fn spin_bound_ns(&self, contenders: u64) -> u64 {
        self.longest_section_ns.load(Ordering::Relaxed) * (contenders - 1)
    }

    /// Takes the lock until all have had it often enough; `apart`: and stays away for a while after each time.
    fn contend(&self, contenders: u64, apart: bool) {
        self.ready.fetch_add(1, Ordering::SeqCst);
        while self.ready.load(Ordering::SeqCst) < contenders {
            cpu::relax();
        }
        let mut taken = 0;
        while self.done.load(Ordering::Relaxed) < contenders {
            let (start_ns, count_before) = (time::now_ns(), COUNT.load(Ordering::Relaxed));
            let mut guard = self.lock.lock();
            let (entered_ns, count) = (time::now_ns(), COUNT.load(Ordering::Relaxed));
            COUNT.store(count + 1, Ordering::Relaxed);
            for turn in 0..SECTION_TURNS {
                *guard = black_box(guard.wrapping_add(turn));
                if apart && turn % 10 == 0 {
                    // With instructions as the clock this is where the others run, and find the lock taken.
                    cpu::relax();
                }
            }
            let left_ns = time::now_ns();
            drop(guard);
            self.longest_section_ns.fetch_max(left_ns - entered_ns, Ordering::Relaxed);
            self.longest_wait_ns.fetch_max(entered_ns - start_ns, Ordering::Relaxed);
            self.most_passed.fetch_max(count - count_before, Ordering::Relaxed);
            taken += 1;
            if taken == needed(apart) {
                self.done.fetch_add(1, Ordering::Relaxed);
            }
            while apart && time::now_ns() < left_ns + self.spin_bound_ns(contenders) {
                cpu::relax();
            }
        }
        self.most_taken.fetch_max(taken, Ordering::Relaxed);
    }
}

/// Acquisitions so far. Written by the lock's holder.
static COUNT: AtomicU64 = AtomicU64::new(0);

fn spawn_on(cpu: CpuId, body: impl FnOnce() + Send + 'static) -> Result<Arc<Completion>, super::Failure> {
    Ok(kit::spawn(kit::on(CpuSet::only(cpu)), body)?.1)
}

fn lockbench() -> Outcome {
    let all: Vec<CpuId> = cpu::online().iter().take(CONTENDERS_MAX).collect();
    for contenders in 2..=all.len() {
        let apart = counts_instructions();
        let (longest_ns, bound_ns, most_passed) = contest(&all[..contenders], apart)?;
        if apart {
            check!(longest_ns > 0, "N {contenders}: nobody has waited");
            check!(most_passed < contenders as u64, "N {contenders}: passed by {most_passed} acquisitions");
            check!(
                longest_ns <= bound_ns * 110 / 100,
                "N {contenders}: {longest_ns} ns, S_max {bound_ns} ns"
            );
        }
    }
    Ok(())
}

/// Has these processors contend; returns the longest wait, what bounds it if the threads stay apart, and how many acquisitions by others a
/// wait lasted at most.
fn contest(cpus: &[CpuId], apart: bool) -> Result<(u64, u64, u64), super::Failure> {
    let (bench, contenders) = (Arc::new(Bench::default()), cpus.len() as u64);
    let mut threads = Vec::new();
    for cpu in cpus {
        let bench = bench.clone();
        threads.push(spawn_on(*cpu, move || bench.contend(contenders, apart))?);
    }
    for thread in &threads {
        join(thread)?;
    }
    let number = |value: &AtomicU64| value.load(Ordering::Relaxed);
    let (longest_ns, bound_ns) = (number(&bench.longest_wait_ns), bench.spin_bound_ns(contenders));
    let most_passed = number(&bench.most_passed);
    log::info!(
        "lockbench: N {contenders}{}, C {} ns, (N-1)*C {bound_ns} ns, longest wait {longest_ns} ns, passed by {most_passed} acquisitions; \
         {} acquisitions of the one who had most, {} of the one who had least; a queue's head is overtaken at most {} times",
        if apart { " apart" } else { "" },
        number(&bench.longest_section_ns),
        number(&bench.most_taken),
        needed(apart),
        u64::from(OVERTAKES_MAX) + 2 * (contenders - 1),
    );
    Ok((longest_ns, bound_ns, most_passed))
}

/// Operations measured in a row.
const OPERATIONS: u64 = 20_000;
/// Transfers of a cache line measured in a row.
const TRANSFERS: u32 = 2_000;
/// Bytes walked through: in the second cache, and beyond all.
const CACHED_BYTES: usize = 128 << 10;
const UNCACHED_BYTES: usize = 16 << 20;
const LINE_BYTES: usize = 64;

/// Nanoseconds for each of `count` operations, in hundredths.
fn cost(count: u64, body: impl FnOnce()) -> u64 {
    let start_ns = time::now_ns();
    body();
    (time::now_ns() - start_ns) * 100 / count
}

fn print(what: &str, hundredths: Option<u64>) {
    match hundredths {
        Some(cost) => log::info!("opcost: {what:42} {:>8}.{:02} ns", cost / 100, cost % 100),
        None => log::info!("opcost: {what:42} needs two processors"),
    }
}

fn opcost() -> Outcome {
    let word = AtomicU32::new(0);
    let lock = SpinLock::named("operation cost", 0_u32);
    print("instruction", Some(instruction()));
    print("clock cycle", Some(100_000_000_000 / time::cycles_per_second().max(1)));
    print("second-level cache hit", Some(walk(CACHED_BYTES)?));
    print(
        "atomic increment",
        Some(cost(OPERATIONS, || (0..OPERATIONS).for_each(|_| _ = word.fetch_add(1, Ordering::Relaxed)))),
    );
    print(
        "cmpxchg atomic increment",
        Some(cost(OPERATIONS, || {
            for _ in 0..OPERATIONS {
                let now = word.load(Ordering::Relaxed);
                let _ = word.compare_exchange(now, now.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
            }
        })),
    );
    print(
        "atomic increment with cache transfer",
        transfer(|word, _| _ = word.fetch_add(1, Ordering::AcqRel))?,
    );
    print("main memory", Some(walk(UNCACHED_BYTES)?));
    print("CPU-local lock", Some(cost(OPERATIONS, || (0..OPERATIONS).for_each(|_| *lock.lock() += 1))));
    print(
        "cmpxchg blind cache transfer",
        transfer(|word, now| {
            let _ = word.compare_exchange(now, now + 1, Ordering::AcqRel, Ordering::Relaxed);
        })?,
    );
    print(
        "cmpxchg cache transfer and invalidate",
        transfer(|word, _| {
            let now = word.load(Ordering::Acquire);
            let _ = word.compare_exchange(now, now + 1, Ordering::AcqRel, Ordering::Relaxed);
        })?,
    );
    Ok(())
}

/// A register's addition; the loop adds eight in a row.
fn instruction() -> u64 {
    let mut sum = black_box(1_u64);
    let step = black_box(3_u64);
    cost(OPERATIONS * 8, || {
        for _ in 0..OPERATIONS {
            for _ in 0..8 {
                sum = sum.rotate_left(1) ^ step;
            }
        }
        black_box(sum);
    })
}

/// A load from memory of that size, each from where the one before says.
fn walk(bytes: usize) -> Result<u64, super::Failure> {
    /// Prime to the number of lines, so that the walk meets all of them.
    const STRIDE: usize = 4097;
    let (lines, words) = (bytes / LINE_BYTES, LINE_BYTES / size_of::<u32>());
    let Ok(mut next) = memory::fallible::try_vec_of(0_u32, bytes / size_of::<u32>()) else {
        fail!("no memory to walk through")
    };
    for line in 0..lines {
        next[line * words] = ((line + STRIDE) % lines * words) as u32;
    }
    let mut at = 0;
    (0..lines).for_each(|_| at = next[at] as usize);
    let cost = cost(OPERATIONS, || {
        for _ in 0..OPERATIONS {
            at = next[at] as usize;
        }
        black_box(at);
    });
    Ok(cost)
}

/// One change of a word by each of two processors in turn.
fn transfer(change: fn(&AtomicU32, u32)) -> Result<Option<u64>, super::Failure> {
    let mut cpus = cpu::online().iter();
    let (Some(one), Some(two)) = (cpus.next(), cpus.next()) else { return Ok(None) };
    let word = Arc::new(AtomicU32::new(0));
    let start_ns = time::now_ns();
    let mut threads = Vec::new();
    for (parity, cpu) in [(0, one), (1, two)] {
        let word = word.clone();
        threads.push(spawn_on(cpu, move || {
            loop {
                let now = word.load(Ordering::Acquire);
                if now >= TRANSFERS {
                    break;
                }
                if now % 2 == parity {
                    change(&word, now);
                } else {
                    cpu::relax();
                }
            }
        })?);
    }
    for thread in &threads {
        join(thread)?;
    }
    Ok(Some((time::now_ns() - start_ns) * 100 / u64::from(TRANSFERS)))
}
