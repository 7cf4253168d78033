//! What `/proc/stat`, `/proc/loadavg`, `/proc/uptime` and `/proc/schedstat` show.

use core::sync::atomic::{AtomicU64, Ordering};

use machine::cpu::{self, CpuId};
use machine::time;
use sync::{PerCpuCounter, SeqLock};

use crate::cpu::Cpu;
use crate::softirq;

static FORKS: PerCpuCounter = PerCpuCounter::new();

pub(crate) fn count_fork() {
    FORKS.increment();
}

pub(crate) fn initialize() {}

/// Threads started since boot.
pub fn forks() -> u64 {
    FORKS.sum() as u64
}

/// How a CPU has spent its time since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In user mode.
    pub user_ns: u64,
    /// In the kernel, for threads.
    pub system_ns: u64,
    /// Without a runnable thread.
    pub idle_ns: u64,
    /// In softirqs (part of what the interrupted thread or idling was charged).
    pub softirq_ns: u64,
    /// Switches between threads.
    pub switches: u64,
}

/// How a CPU has spent its time.
pub fn cpu_time(of: CpuId) -> CpuTime {
    let cpu = Cpu::of(of);
    let now_ns = time::now_ns();
    let idle_ns = {
        let mut queue = cpu.queue.lock();
        queue.update_current(now_ns);
        queue.idle_ns()
    };
    let user_ns = cycles_to_ns(cpu.user_cycles.load(Ordering::Relaxed));
    CpuTime {
        user_ns,
        system_ns: now_ns.saturating_sub(idle_ns + user_ns),
        idle_ns,
        softirq_ns: softirq::busy_ns(of),
        switches: cpu.switches.load(Ordering::Relaxed),
    }
}

/// Threads that run or are runnable.
pub fn runnable() -> u32 {
    cpu::online().iter().map(|cpu| Cpu::of(cpu).running.load(Ordering::Relaxed)).sum()
}

/// Threads in uninterruptible sleep.
pub fn uninterruptible() -> u32 {
    // The counts of single CPUs may be negative: only the sum means something.
    Cpu::all()
        .fold(0_u32, |sum, cpu| sum.wrapping_add(cpu.uninterruptible.load(Ordering::Relaxed)))
        .cast_signed()
        .max(0) as u32
}

pub(crate) fn cycles_to_ns(cycles: u64) -> u64 {
    let per_second = time::cycles_per_second().max(1);
    (u128::from(cycles) * 1_000_000_000 / u128::from(per_second)) as u64
}

/// Bits behind the point of load averages.
pub const LOAD_SHIFT: u32 = 11;
const LOAD_ONE: u64 = 1 << LOAD_SHIFT;
/// Between two samples.
const LOAD_PERIOD_NS: u64 = 5_000_000_000;
/// exp(−5 s / 1 min), 5 min, 15 min.
const LOAD_DECAY: [u64; 3] = [1884, 2014, 2037];

static NEXT_SAMPLE_NS: AtomicU64 = AtomicU64::new(LOAD_PERIOD_NS);
/// Written now and then by who switches, read by anybody, all three of the same moment. Taken under the lock of a run queue, too, which interrupts take.
static LOAD: SeqLock<[u64; 3]> = SeqLock::new([0; 3]);

/// Takes the samples of the load that are due. Called at switches: while there is none, nothing runs and the load is what it was.
#[inline(always)]
pub(crate) fn sample_load(now_ns: u64) {
    if now_ns >= NEXT_SAMPLE_NS.load(Ordering::Relaxed) {
        take_samples(now_ns);
    }
}

#[cold]
fn take_samples(now_ns: u64) {
    /// Samples caught up with after a long rest: the load has decayed to nothing by then.
    const CATCH_UP_MAX: u64 = 1_000;
    let due_ns = NEXT_SAMPLE_NS.load(Ordering::Relaxed);
    let missed = now_ns.saturating_sub(due_ns) / LOAD_PERIOD_NS;
    let next_ns = due_ns + (missed + 1) * LOAD_PERIOD_NS;
    if NEXT_SAMPLE_NS.compare_exchange(due_ns, next_ns, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        return;
    }
    let active = u64::from(runnable() + uninterruptible()) * LOAD_ONE;
    LOAD.update(|averages| {
        for (load, decay) in averages.iter_mut().zip(LOAD_DECAY) {
            for _ in 0..missed.min(CATCH_UP_MAX) {
                *load = *load * decay / LOAD_ONE;
            }
            *load = (*load * decay + active * (LOAD_ONE - decay)) / LOAD_ONE;
        }
    });
}

/// The load averages over 1, 5 and 15 minutes, in units of 1/2^[`LOAD_SHIFT`].
pub fn load_averages() -> [u64; 3] {
    sample_load(time::now_ns());
    LOAD.read()
}
