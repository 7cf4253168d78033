//! What moves RCU forward: while a CPU has callbacks, its [`Softirq::Rcu`] runs every `PERIOD_NS`, and after
//! `PATIENCE` rounds without progress hurries the grace period. A CPU without callbacks does nothing.

use core::sync::atomic::{AtomicU32, Ordering};

use machine::{cpu, time};
use sync::{PerCpu, per_cpu, rcu};

use crate::softirq::{self, Softirq};
use crate::timer::{self, Node};

/// Between two looks at the grace period.
const PERIOD_NS: u64 = 2_000_000;
/// Looks before silent CPUs are asked.
const PATIENCE: u32 = 2;
/// Callbacks run at a time, so that they do not hold up threads (specs/scalability.md §M2).
const BATCH: u32 = 32;

struct Driver {
    timer: Node,
    rounds: AtomicU32,
}

static DRIVERS: PerCpu<Driver> =
    per_cpu!(Driver { timer: Node::raising(Softirq::Rcu), rounds: AtomicU32::new(0) });

/// Connects RCU with softirqs and threads. Once, at start-up.
pub(crate) fn initialize() {
    softirq::register(Softirq::Rcu, run);
    rcu::set_request_hook(|| softirq::raise(Softirq::Rcu));
    rcu::set_wait_hook(sleep_until_done);
}

fn run() {
    let driver = DRIVERS.of(cpu::current());
    if rcu::invoke(BATCH) {
        softirq::raise(Softirq::Rcu);
        return;
    }
    if rcu::pending() == 0 {
        driver.rounds.store(0, Ordering::Relaxed);
        return;
    }
    if driver.rounds.fetch_add(1, Ordering::Relaxed) >= PATIENCE {
        rcu::force();
    }
    if driver.timer.is_idle() {
        // SAFETY: the node is in a static.
        unsafe { driver.timer.arm(time::now_ns() + PERIOD_NS) };
    }
}

fn sleep_until_done(done: &dyn Fn() -> bool) {
    /// A grace period takes as long as the longest atomic section; most end within this.
    const NAP_NS: u64 = 50_000;
    while !done() {
        timer::sleep_until_uninterruptible(time::now_ns() + NAP_NS);
    }
}
