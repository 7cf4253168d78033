//! What moves RCU forward: while a CPU has callbacks, its [`Softirq::Rcu`] runs every `PERIOD_NS`, and after
//! `PATIENCE` rounds without progress urges the grace period. A CPU without callbacks does nothing, but for the report of grace periods
//! that have lasted too long, which its clock's interrupt looks for.
//!
//! Callbacks that take longer than a softirq may, or all of them with `rcu.cb=kthread`, are run by the CPU's thread `rcuc/N`, an ordinary
//! thread: it can be preempted between two chunks of callbacks, and takes no more of the CPU than a program. If it falls behind, producers
//! are slowed.
//!
//! Producers are slowed where they may sleep (`rcu::pace`); threads that free memory must not be, nor `rcuc`, for whom they would wait.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use machine::backtrace::Backtrace;
use machine::cpu::{self, CpuId, CpuSet};
use machine::{boot, interrupt, preempt, time, whereabouts};
use memory::OutOfMemory;
use sync::rcu::{self, Rest};
use sync::{PerCpu, per_cpu};

use crate::softirq::{self, Softirq};
use crate::thread::{Builder, Thread, current};
use crate::timer::{self, Node};
use crate::wait;

/// Between two looks at the grace period.
const PERIOD_NS: u64 = 2_000_000;
/// Looks before silent CPUs are asked.
const PATIENCE: u32 = 2;
/// The part of memory that may wait for grace periods, on all CPUs together, before producers are slowed.
const MEMORY_SHARE: u64 = 8;

struct Driver {
    timer: Node,
    rounds: AtomicU32,
    /// This CPU's `rcuc`, null before it exists.
    thread: AtomicPtr<Thread>,
    /// Whether there are callbacks for the thread. Set by the CPU's softirq, cleared by the thread.
    has_work: AtomicBool,
    /// Whether a grace period has lasted too long. Set by the CPU's clock, cleared by its softirq.
    sees_stall: AtomicBool,
}

static DRIVERS: PerCpu<Driver> = per_cpu!(Driver {
    timer: Node::raising(Softirq::Rcu),
    rounds: AtomicU32::new(0),
    thread: AtomicPtr::new(core::ptr::null_mut()),
    has_work: AtomicBool::new(false),
    sees_stall: AtomicBool::new(false),
});

/// Connects RCU with softirqs and threads. Once, at start-up.
pub(crate) fn initialize() {
    for name in rcu::parameters::OPTIONS {
        if let Some(value) = boot::info().option(name)
            && !rcu::parameters::set_option(name, value)
        {
            log::warn!("{name}={value} on the command line makes no sense");
        }
    }
    let memory_bytes = memory::frame::total_frames() * machine::address::PAGE_SIZE as u64;
    rcu::set_bytes_limit(memory_bytes / MEMORY_SHARE / cpu::count().max(1) as u64);
    softirq::register(Softirq::Rcu, run);
    rcu::set_request_hook(|| softirq::raise(Softirq::Rcu));
    rcu::set_wait_hook(sleep_until_done);
    rcu::set_may_wait_hook(may_wait);
}

/// Has this CPU's softirq report a grace period that has lasted too long. In the handler of the clock's interrupt.
#[inline]
pub(crate) fn look_for_stalls(now_ns: u64) {
    if rcu::stall_is_due(now_ns) {
        DRIVERS.of(cpu::current()).sees_stall.store(true, Ordering::Relaxed);
        softirq::raise(Softirq::Rcu);
    }
}

fn run() {
    let driver = DRIVERS.of(cpu::current());
    if driver.sees_stall.load(Ordering::Relaxed) {
        driver.sees_stall.store(false, Ordering::Relaxed);
        report_stalls();
    }
    let rest = rcu::serve();
    match rest {
        Rest::More => softirq::raise(Softirq::Rcu),
        Rest::ForThread if !wake_thread(driver) => softirq::raise(Softirq::Rcu),
        Rest::ForThread | Rest::Nothing => {}
    }
    if rcu::pending() == 0 {
        driver.rounds.store(0, Ordering::Relaxed);
        return;
    }
    if rest == Rest::Nothing && driver.rounds.fetch_add(1, Ordering::Relaxed) >= PATIENCE {
        rcu::force();
    }
    if driver.timer.is_idle() {
        // SAFETY: the node is in a static.
        unsafe { driver.timer.arm(time::now_ns() + PERIOD_NS) };
    }
}

fn wake_thread(driver: &Driver) -> bool {
    let thread = driver.thread.load(Ordering::Acquire);
    driver.has_work.store(true, Ordering::Relaxed);
    // SAFETY: an `rcuc` never ends.
    unsafe { thread.as_ref() }.map(Thread::wake).is_some()
}

/// Makes this CPU's `rcuc`.
///
/// # Errors
/// [`OutOfMemory`].
pub(crate) fn start_thread(cpu: CpuId) -> Result<(), OutOfMemory> {
    let driver = DRIVERS.of(cpu);
    if !driver.thread.load(Ordering::Relaxed).is_null() {
        return Ok(());
    }
    let name = crate::thread::numbered_name("rcuc/", cpu.index());
    // It frees memory when that is short, so its stack does not grow.
    let builder = Builder { name, affinity: CpuSet::only(cpu), pinned_stack: true, ..Builder::new("") };
    let new = builder.prepare(Box::new(move || thread_body(DRIVERS.of(cpu))))?;
    let thread = new.thread().clone();
    driver.thread.store(alloc::sync::Arc::into_raw(thread).cast_mut(), Ordering::Release);
    new.start();
    Ok(())
}

fn thread_body(driver: &Driver) {
    loop {
        let _woken = wait::block_uninterruptible_idle(|| driver.has_work.swap(false, Ordering::Relaxed));
        while rcu::serve_in_thread() {
            if preempt::need_resched() {
                crate::dispatch::schedule();
            }
        }
    }
}

/// Whether the running thread may wait for grace periods: whoever runs callbacks or reclaims memory must not.
fn may_wait() -> bool {
    let thread = current();
    let driver = DRIVERS.of(thread.cpu());
    !core::ptr::eq(&raw const *thread, driver.thread.load(Ordering::Relaxed))
}

fn sleep_until_done(done: &dyn Fn() -> bool) {
    /// A grace period takes as long as the longest atomic section; most end within this.
    const NAP_NS: u64 = 50_000;
    while !done() {
        timer::sleep_until_uninterruptible(time::now_ns() + NAP_NS);
    }
}

/// Says which CPUs hold up grace periods that have lasted too long, and asks them where they are.
#[cold]
fn report_stalls() {
    let now_ns = time::now_ns();
    for kind in rcu::Kind::ALL {
        if let Some(stall) = rcu::find_stall(kind, now_ns) {
            log::error!(
                "rcu: {} grace period {} has lasted {} ms; it waits for CPUs {:?}",
                kind.name(),
                stall.number,
                stall.age_ns / 1_000_000,
                stall.holdouts
            );
            stall.deaf.iter().for_each(show_other_stack);
        }
    }
    // The interrupt that they get has them print.
    rcu::force();
}

/// Prints where this CPU is, if it was asked to because it holds up a grace period. In the handler of an interrupt.
pub(crate) fn show_stack_if_wanted() {
    if rcu::wants_own_stack() {
        show_stack();
    }
}

/// Prints where a CPU is that takes no interrupts.
fn show_other_stack(cpu: CpuId) {
    match whereabouts::ask(cpu) {
        Some(calls) => log::error!("rcu: CPU {cpu} keeps interrupts off\n{calls}"),
        None => log::error!("rcu: CPU {cpu} does not run"),
    }
}

#[cold]
#[inline(never)]
fn show_stack() {
    let (this, thread) = (cpu::current(), current());
    let name = thread.try_name();
    let name = name.as_ref().map_or("?", |name| core::str::from_utf8(name.as_bytes()).unwrap_or("?"));
    let place = interrupt::interrupted_code();
    let backtrace = place.unwrap_or_else(Backtrace::here);
    let mode = if place.is_some() { "the kernel" } else { "user mode or idle" };
    log::error!("rcu: CPU {this} runs {name} in {mode}\n{backtrace}");
}
