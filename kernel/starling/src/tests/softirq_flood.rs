//! A flood of softirqs and timers on one processor, and how long a thread there, an ordinary one as programs have, is away.
//!
//! The host may take the processor away for any time, which the clock counts as well. So what is bounded in every flood is the work that softirqs did
//! while the program was away: each piece of it takes some time by the clock, and what the host takes only lessens their number. With
//! instructions as the clock (`softirq_flood.clock=instructions` says so) the host has no say, and the time itself is bounded.

use super::{HANG_NS, Outcome, Test, check, fail};
use ::sched::softirq::{self, Softirq};
use ::sched::{Builder, Completion, softirq_budget, timer};
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use machine::cpu::{self, CpuSet};
use machine::{boot, time};

pub(crate) const TESTS: &[Test] = &[
    Test { name: "softirq_flood::program_is_never_away_for_20_ms", run: program_is_never_away_for_20_ms },
    Test { name: "softirq_flood::quota_bounds_what_interrupts_take", run: quota_bounds_what_interrupts_take },
];

const MILLISECOND_NS: u64 = 1_000_000;
/// How long a flood lasts in one attempt.
const FLOOD_NS: u64 = 100 * MILLISECOND_NS;
/// What each softirq of the flood takes.
const WORK_NS: u64 = 20_000;

/// Whether the flood goes on.
static FLOODING: AtomicBool = AtomicBool::new(false);
static SOFTIRQS: AtomicU64 = AtomicU64::new(0);

fn work() {
    let end_ns = time::now_ns() + WORK_NS;
    while time::now_ns() < end_ns {
        cpu::relax();
    }
    SOFTIRQS.fetch_add(1, Ordering::Relaxed);
}

/// A softirq that raises itself.
fn raise_again() {
    work();
    if FLOODING.load(Ordering::Relaxed) {
        softirq::raise(Softirq::NetworkReceive);
    }
}

/// A timer that is due again at once: an interrupt and a softirq each time.
fn restless_timer() -> Result<Arc<timer::Timer>, super::Failure> {
    let own: Arc<sync::Once<Weak<timer::Timer>>> = Arc::new(sync::Once::new());
    let again = own.clone();
    let timer = timer::Timer::new(Box::new(move || {
        work();
        if let Some(timer) = again.get().and_then(Weak::upgrade)
            && FLOODING.load(Ordering::Relaxed)
        {
            timer.arm(time::now_ns());
        }
    }));
    let Ok(timer) = timer else { fail!("no memory for a timer") };
    own.call_once(|| Arc::downgrade(&timer));
    Ok(timer)
}

/// What a thread on the flooded processor noticed.
struct Seen {
    /// Its longest time away.
    gap_ns: u64,
    /// The most that softirqs worked while it was away once.
    worked_ns: u64,
    /// Its share of the time, in percent.
    share: u64,
    softirqs: u64,
}

/// Floods a processor and watches from there.
fn flood() -> Result<Seen, super::Failure> {
    softirq::register(Softirq::NetworkReceive, raise_again);
    let timer = restless_timer()?;
    let (gap_ns, own_ns) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let most = Arc::new(AtomicU64::new(0));
    let most_in_a_row = most.clone();
    let done = Arc::new(Completion::new());
    let (gap, own, signal, started) = (gap_ns.clone(), own_ns.clone(), done.clone(), timer.clone());
    let before = SOFTIRQS.load(Ordering::Relaxed);
    let target = cpu::online().iter().last().map_or(CpuSet::ALL, CpuSet::only);
    let builder = Builder { affinity: target, ..Builder::new("program") };
    let watcher = ::sched::spawn(
        builder,
        Box::new(move || {
            /// Longer looks from one reading of the clock to the next were spent elsewhere.
            const AWAY_NS: u64 = 10_000;
            FLOODING.store(true, Ordering::Relaxed);
            softirq::raise(Softirq::NetworkReceive);
            started.arm(time::now_ns());
            let start_ns = time::now_ns();
            let mut last_ns = start_ns;
            let mut last_softirqs = SOFTIRQS.load(Ordering::Relaxed);
            while last_ns < start_ns + FLOOD_NS {
                let now_ns = time::now_ns();
                gap.fetch_max(now_ns - last_ns, Ordering::Relaxed);
                if now_ns - last_ns < AWAY_NS {
                    own.fetch_add(now_ns - last_ns, Ordering::Relaxed);
                }
                last_ns = now_ns;
                let softirqs = SOFTIRQS.load(Ordering::Relaxed);
                most_in_a_row.fetch_max(softirqs - last_softirqs, Ordering::Relaxed);
                last_softirqs = softirqs;
            }
            FLOODING.store(false, Ordering::Relaxed);
            signal.complete();
        }),
    );
    if watcher.is_err() {
        fail!("no memory for a thread");
    }
    check!(done.wait_deadline(time::now_ns() + HANG_NS), "the program never got to its end");
    timer.cancel();
    Ok(Seen {
        gap_ns: gap_ns.load(Ordering::Relaxed),
        worked_ns: most.load(Ordering::Relaxed) * WORK_NS,
        share: own_ns.load(Ordering::Relaxed) * 100 / FLOOD_NS,
        softirqs: SOFTIRQS.load(Ordering::Relaxed) - before,
    })
}

fn program_is_never_away_for_20_ms() -> Outcome {
    const LIMIT_NS: u64 = 20 * MILLISECOND_NS;
    const FLOODS: usize = 10;
    let counts_instructions = boot::info().option("softirq_flood.clock") == Some("instructions");
    for flood_number in 0..FLOODS {
        let seen = flood()?;
        check!(seen.softirqs > 100, "{} softirqs are no flood", seen.softirqs);
        check!(
            seen.worked_ns <= LIMIT_NS,
            "flood {flood_number}: softirqs worked for {} ns in a row",
            seen.worked_ns
        );
        check!(
            !counts_instructions || seen.gap_ns <= LIMIT_NS,
            "flood {flood_number}: away for {} ns",
            seen.gap_ns
        );
        log::info!(
            "flood of {} softirqs: away for {} us, of which they worked {} us; {} % of the time left",
            seen.softirqs,
            seen.gap_ns / 1_000,
            seen.worked_ns / 1_000,
            seen.share
        );
    }
    Ok(())
}

/// The flood with and without a quota, for comparison.
fn quota_bounds_what_interrupts_take() -> Outcome {
    let usual = softirq_budget::quota_percent();
    let with = flood()?;
    softirq_budget::set_quota_percent(100);
    let without = flood();
    softirq_budget::set_quota_percent(usual);
    let without = without?;
    log::info!(
        "program under the flood: with a quota {} % of the time, away {} us; without {} %, {} us",
        with.share,
        with.gap_ns / 1_000,
        without.share,
        without.gap_ns / 1_000
    );
    Ok(())
}
