//! Floods that leave threads nothing, and the watchdog that notices.
//!
//! A storm of interrupts is one that each send the next: the processor raises them itself, so they come without delay whatever the host does. It
//! ends when it was noticed. Timers that take more time than there is are softirqs, so they show what the quota is good for; but a busy
//! host lets them come late. So that is looked at with instructions as the clock only (`softirq_flood.clock=instructions`).

use super::{HANG_NS, Outcome, Test, check, fail};
use ::sched::softirq::{self, Softirq};
use ::sched::{Builder, Completion, softirq_budget, starvation, timer};
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use machine::cpu::{self, CpuId, CpuSet};
use machine::{boot, interrupt, ipi, time};
use sync::Once;

pub(crate) const TESTS: &[Test] = &[
    Test { name: "starvation::storm_of_interrupts_is_noticed", run: storm_of_interrupts_is_noticed },
    Test { name: "starvation::forced_quota_gives_threads_time", run: forced_quota_gives_threads_time },
    Test { name: "starvation::quota_keeps_it_away", run: quota_keeps_it_away },
];

/// What each interrupt of a storm takes: long beside what it takes to come.
const STORM_WORK_NS: u64 = 500_000;
/// When a storm ends that is not noticed.
static STORM_END_NS: AtomicU64 = AtomicU64::new(0);
/// Starvations of the processor before the storm.
static STARVATIONS: AtomicU64 = AtomicU64::new(0);
static INTERRUPTS: AtomicU64 = AtomicU64::new(0);
static STORM: Once<Option<interrupt::Vector>> = Once::new();

fn work(nanoseconds: u64) {
    let end_ns = time::now_ns() + nanoseconds;
    while time::now_ns() < end_ns {
        cpu::relax();
    }
}

/// Until it was noticed, or should have been.
fn storm_goes_on(stormed: CpuId) -> bool {
    starvation::count(stormed) == STARVATIONS.load(Ordering::Relaxed)
        && time::now_ns() < STORM_END_NS.load(Ordering::Relaxed)
}

/// An interrupt of the storm: works, and raises a softirq and the next one.
fn storm(_: usize) {
    work(STORM_WORK_NS);
    INTERRUPTS.fetch_add(1, Ordering::Relaxed);
    let this = cpu::current();
    if let Some(Some(vector)) = STORM.get()
        && storm_goes_on(this)
    {
        softirq::raise(Softirq::Tasklet);
        ipi::send_vector(this, *vector);
    }
}

fn storm_of_interrupts_is_noticed() -> Outcome {
    let Some(vector) = *STORM.call_once(|| interrupt::allocate_vector(storm, 0)) else {
        fail!("no vector is free")
    };
    let stormed = cpu::online().iter().last().unwrap_or(CpuId::BOOT);
    let before = starvation::count(stormed);
    STARVATIONS.store(before, Ordering::Relaxed);
    STORM_END_NS.store(time::now_ns() + HANG_NS / 2, Ordering::Relaxed);
    let usual = softirq_budget::quota_percent();
    softirq_budget::set_quota_percent(100);
    let done = Arc::new(Completion::new());
    let signal = done.clone();
    let builder = Builder { affinity: CpuSet::only(stormed), ..Builder::new("program") };
    let program = ::sched::spawn(
        builder,
        Box::new(move || {
            ipi::send_vector(stormed, vector);
            // A storm leaves it an instruction now and then: it must not come to its end by that.
            while storm_goes_on(stormed) {
                cpu::relax();
            }
            signal.complete();
        }),
    );
    let is_done = program.is_ok() && done.wait_deadline(time::now_ns() + HANG_NS);
    let forced = softirq_budget::quota_percent();
    softirq_budget::set_quota_percent(usual);
    check!(is_done, "the program never got to its end");
    let interrupts = INTERRUPTS.swap(0, Ordering::Relaxed);
    check!(starvation::count(stormed) > before, "a storm of {interrupts} interrupts was not noticed");
    check!(forced == FORCED_PERCENT, "the quota is {forced} %");
    log::info!("a storm was noticed after {interrupts} interrupts");
    Ok(())
}

/// Timers, what each takes, and how soon it is due again: twice as much as there is.
const TIMERS: usize = 100;
const WORK_NS: u64 = 20_000;
const PERIOD_NS: u64 = 1_000_000;
/// How long a flood lasts that is not to be noticed.
const FLOOD_NS: u64 = 1_500_000_000;
/// What the quota forced upon softirqs is.
const FORCED_PERCENT: u64 = 50;

static FLOODING: AtomicBool = AtomicBool::new(false);
static CALLBACKS: AtomicU64 = AtomicU64::new(0);

fn flooding_timer() -> Result<Arc<timer::Timer>, super::Failure> {
    let own: Arc<Once<Weak<timer::Timer>>> = Arc::new(Once::new());
    let again = own.clone();
    let timer = timer::Timer::new(Box::new(move || {
        work(WORK_NS);
        CALLBACKS.fetch_add(1, Ordering::Relaxed);
        if FLOODING.load(Ordering::Relaxed)
            && let Some(timer) = again.get().and_then(Weak::upgrade)
        {
            timer.arm(time::now_ns() + PERIOD_NS);
        }
    }));
    let Ok(timer) = timer else { fail!("no memory for a timer") };
    own.call_once(|| Arc::downgrade(&timer));
    Ok(timer)
}

/// What was seen of a flood.
struct Seen {
    starvations: u64,
    /// What interrupts took of the flooded processor, in percent.
    taken_percent: u64,
    callbacks: u64,
}

/// Floods a processor until `is_over`, which is told for how long the flood has lasted. Who looks is a thread there, and starves
/// with the others.
fn flood(is_over: fn(u64) -> bool) -> Result<Seen, super::Failure> {
    let flooded = cpu::online().iter().last().unwrap_or(CpuId::BOOT);
    let timers = (0..TIMERS).map(|_| flooding_timer()).collect::<Result<Vec<_>, _>>()?;
    let (done, taken_percent) = (Arc::new(Completion::new()), Arc::new(AtomicU64::new(0)));
    let (signal, percent, started) = (done.clone(), taken_percent.clone(), timers.clone());
    let (starvations, callbacks) = (starvation::count(flooded), CALLBACKS.load(Ordering::Relaxed));
    let builder = Builder { affinity: CpuSet::only(flooded), ..Builder::new("program") };
    let watcher = ::sched::spawn(
        builder,
        Box::new(move || {
            let (start_ns, start_cycles) = (time::now_ns(), time::cycles());
            let start_taken = interrupt::cycles_taken();
            FLOODING.store(true, Ordering::Relaxed);
            for (index, timer) in started.iter().enumerate() {
                timer.arm(start_ns + index as u64 * PERIOD_NS / TIMERS as u64);
            }
            while !is_over(time::now_ns() - start_ns) {
                cpu::relax();
            }
            let taken = interrupt::cycles_taken() - start_taken;
            percent.store(taken * 100 / (time::cycles() - start_cycles).max(1), Ordering::Relaxed);
            FLOODING.store(false, Ordering::Relaxed);
            signal.complete();
        }),
    );
    if watcher.is_err() {
        fail!("no memory for a thread");
    }
    let is_done = done.wait_deadline(time::now_ns() + HANG_NS);
    FLOODING.store(false, Ordering::Relaxed);
    timers.iter().for_each(|timer| _ = timer.cancel());
    check!(is_done, "the program never got to its end");
    Ok(Seen {
        starvations: starvation::count(flooded) - starvations,
        taken_percent: taken_percent.load(Ordering::Relaxed),
        callbacks: CALLBACKS.load(Ordering::Relaxed) - callbacks,
    })
}

/// Whether instructions are the clock.
fn counts_instructions() -> bool {
    boot::info().option("softirq_flood.clock") == Some("instructions")
}

/// A flood that a quota would bound, without one, until it is noticed; then with what is forced upon it.
fn forced_quota_gives_threads_time() -> Outcome {
    if !counts_instructions() {
        return Ok(());
    }
    let usual = softirq_budget::quota_percent();
    softirq_budget::set_quota_percent(100);
    let without =
        flood(|lasted_ns| softirq_budget::quota_percent() == FORCED_PERCENT || lasted_ns > HANG_NS / 2);
    let forced = softirq_budget::quota_percent();
    let with = flood(|lasted_ns| lasted_ns > FLOOD_NS);
    softirq_budget::set_quota_percent(usual);
    let (without, with) = (without?, with?);
    log::info!(
        "timers' interrupts took {} % until they were noticed, {} % with a quota of {forced} %",
        without.taken_percent,
        with.taken_percent
    );
    check!(without.starvations > 0, "a flood of {} callbacks was not noticed", without.callbacks);
    check!(forced == FORCED_PERCENT, "the quota is {forced} %");
    check!(with.starvations == 0, "{} starvations with a quota of {forced} %", with.starvations);
    Ok(())
}

/// The same flood with the usual quota.
fn quota_keeps_it_away() -> Outcome {
    if !counts_instructions() {
        return Ok(());
    }
    let seen = flood(|lasted_ns| lasted_ns > FLOOD_NS)?;
    log::info!("{} callbacks' interrupts took {} % with a quota", seen.callbacks, seen.taken_percent);
    check!(seen.callbacks > 0, "there was no flood");
    check!(seen.starvations == 0, "{} starvations", seen.starvations);
    Ok(())
}
