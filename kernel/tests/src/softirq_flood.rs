//! A flood of softirqs and timers on one processor, and how long a thread there, an ordinary one as programs have, is away.
//!
//! The host may take the processor away for any time, which the clock counts as well. So what is bounded in every flood is the work that softirqs did
//! in a row while the program was away: each piece of it takes some time by the clock, and what the host takes meanwhile only lessens
//! their number. If it takes the very time that was the program's, the program is not seen to run, but the softirqs pause: that ends the row, too; and for
//! as long as they paused the next row may last longer, because that time counts as the program's, and it is the others' turn. With
//! instructions as the clock (`softirq_flood.clock=instructions` says so) the host has no say, and the time itself is bounded.

use super::{HANG_NS, Outcome, Test, check, fail};
use ::sched::softirq::{self, Softirq};
use ::sched::{Builder, Completion, softirq_budget, timer};
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use machine::cpu::{self, CpuId, CpuSet};
use machine::{boot, time};

pub(crate) const TESTS: &[Test] = &[
    Test { name: "softirq_flood::program_is_never_away_for_20_ms", run: program_is_never_away_for_20_ms },
    Test { name: "softirq_flood::quota_bounds_what_interrupts_take", run: quota_bounds_what_interrupts_take },
];

const MILLISECOND_NS: u64 = 1_000_000;
/// How long a flood lasts at the least.
const FLOOD_NS: u64 = 100 * MILLISECOND_NS;
/// Softirqs that a flood has at the least. The host may have taken the processor away for most of the time, so it lasts until then.
const SOFTIRQS_MIN: u64 = 100;
/// What each softirq of the flood takes.
const WORK_NS: u64 = 20_000;

/// Whether the flood goes on.
static FLOODING: AtomicBool = AtomicBool::new(false);
static SOFTIRQS: AtomicU64 = AtomicU64::new(0);

/// Softirqs since the program was last seen to run, or they last paused; how long they had paused by then and have not worked since; what they
/// worked in a row beyond that at the most; and when the last one ended. All written on the flooded processor.
static IN_A_ROW: AtomicU64 = AtomicU64::new(0);
static PAUSED_NS: AtomicU64 = AtomicU64::new(0);
static MOST_WORKED_NS: AtomicU64 = AtomicU64::new(0);
static LAST_END_NS: AtomicU64 = AtomicU64::new(0);

/// The program runs, or the softirqs have paused.
fn end_row() {
    let worked_ns = IN_A_ROW.swap(0, Ordering::Relaxed) * WORK_NS;
    PAUSED_NS.store(PAUSED_NS.load(Ordering::Relaxed).saturating_sub(worked_ns), Ordering::Relaxed);
}

fn work() {
    /// No softirq ran for so long: another thread had the processor. Softirqs that follow each other are some microseconds apart.
    const PAUSE_NS: u64 = MILLISECOND_NS;
    let start_ns = time::now_ns();
    let pause_ns = start_ns - LAST_END_NS.load(Ordering::Relaxed);
    if pause_ns >= PAUSE_NS {
        end_row();
        PAUSED_NS.fetch_add(pause_ns, Ordering::Relaxed);
    }
    while time::now_ns() < start_ns + WORK_NS {
        cpu::relax();
    }
    let in_a_row = IN_A_ROW.fetch_add(1, Ordering::Relaxed) + 1;
    let beyond_ns = (in_a_row * WORK_NS).saturating_sub(PAUSED_NS.load(Ordering::Relaxed));
    MOST_WORKED_NS.fetch_max(beyond_ns, Ordering::Relaxed);
    SOFTIRQS.fetch_add(1, Ordering::Relaxed);
    LAST_END_NS.store(time::now_ns(), Ordering::Relaxed);
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
    /// The most that softirqs worked in a row while it was away, beyond the time that they had left it before.
    worked_ns: u64,
    /// Its share of the time, in percent.
    share: u64,
    softirqs: u64,
    /// How often softirqs had used up their quota.
    refusals: u64,
}

/// Floods a processor and watches from there.
fn flood() -> Result<Seen, super::Failure> {
    softirq::register(Softirq::NetworkReceive, raise_again);
    let timer = restless_timer()?;
    let (gap_ns, own_ns) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let all_ns = Arc::new(AtomicU64::new(0));
    let all = all_ns.clone();
    let done = Arc::new(Completion::new());
    let (gap, own, signal, started) = (gap_ns.clone(), own_ns.clone(), done.clone(), timer.clone());
    let before = SOFTIRQS.load(Ordering::Relaxed);
    let flooded = cpu::online().iter().last().unwrap_or(CpuId::BOOT);
    let refused = || softirq::refusals(flooded);
    let refused_before = refused();
    let builder = Builder { affinity: CpuSet::only(flooded), ..Builder::new("program") };
    let watcher = ::sched::spawn(
        builder,
        Box::new(move || {
            /// Longer looks from one reading of the clock to the next were spent elsewhere.
            const AWAY_NS: u64 = 10_000;
            IN_A_ROW.store(0, Ordering::Relaxed);
            MOST_WORKED_NS.store(0, Ordering::Relaxed);
            PAUSED_NS.store(0, Ordering::Relaxed);
            LAST_END_NS.store(time::now_ns(), Ordering::Relaxed);
            FLOODING.store(true, Ordering::Relaxed);
            softirq::raise(Softirq::NetworkReceive);
            started.arm(time::now_ns());
            let start_ns = time::now_ns();
            let mut last_ns = start_ns;
            let softirqs = || SOFTIRQS.load(Ordering::Relaxed) - before;
            while last_ns < start_ns + FLOOD_NS
                || (softirqs() <= SOFTIRQS_MIN && last_ns < start_ns + HANG_NS / 2)
            {
                let now_ns = time::now_ns();
                gap.fetch_max(now_ns - last_ns, Ordering::Relaxed);
                if now_ns - last_ns < AWAY_NS {
                    own.fetch_add(now_ns - last_ns, Ordering::Relaxed);
                }
                last_ns = now_ns;
                end_row();
            }
            FLOODING.store(false, Ordering::Relaxed);
            all.store(last_ns - start_ns, Ordering::Relaxed);
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
        worked_ns: MOST_WORKED_NS.load(Ordering::Relaxed),
        share: own_ns.load(Ordering::Relaxed) * 100 / all_ns.load(Ordering::Relaxed),
        softirqs: SOFTIRQS.load(Ordering::Relaxed) - before,
        refusals: refused() - refused_before,
    })
}

/// Whether instructions are the clock, so that the host has no say.
fn counts_instructions() -> bool {
    boot::info().option("softirq_flood.clock") == Some("instructions")
}

fn program_is_never_away_for_20_ms() -> Outcome {
    const LIMIT_NS: u64 = 20 * MILLISECOND_NS;
    const FLOODS: usize = 10;
    let counts_instructions = counts_instructions();
    for flood_number in 0..FLOODS {
        let seen = flood()?;
        check!(seen.softirqs > SOFTIRQS_MIN, "{} softirqs are no flood", seen.softirqs);
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

/// The flood with and without a quota: with it softirqs are refused, and with instructions as the clock the program has more of the time.
fn quota_bounds_what_interrupts_take() -> Outcome {
    let usual = softirq_budget::quota_percent();
    let with = flood()?;
    softirq_budget::set_quota_percent(100);
    let without = flood();
    softirq_budget::set_quota_percent(usual);
    let without = without?;
    log::info!(
        "program under the flood: with a quota {} % of the time, away {} us, {} refusals; without {} %, {} us, {} refusals",
        with.share,
        with.gap_ns / 1_000,
        with.refusals,
        without.share,
        without.gap_ns / 1_000,
        without.refusals
    );
    check!(without.refusals == 0, "{} softirqs were refused without a quota", without.refusals);
    if counts_instructions() {
        check!(with.refusals > 0, "none of {} softirqs was refused", with.softirqs);
        check!(
            with.share > without.share,
            "the program had {} % of the time with a quota, {} % without",
            with.share,
            without.share
        );
    }
    Ok(())
}
