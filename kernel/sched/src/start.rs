//! Starting the scheduler on each CPU.
//!
//! The boot CPU calls [`initialize`]: its boot code becomes an ordinary thread that may sleep, and the CPU gets an idle thread.
//! Application processors call [`enter_application_processor`]: their boot code becomes their idle thread.
//! On the hosted machine a host thread becomes a thread of its CPU by its first use of the scheduler.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use machine::cpu::{self, CpuId, CpuSet};
use machine::ipi::{self, Ipi};
use machine::{interrupt, preempt, time};
use sync::{Once, PerCpu, per_cpu};

use crate::cpu::Cpu;
use crate::thread::{Builder, Thread, ThreadRef};
use crate::{
    clustered_sweep, deadline, dispatch, idle, memory_threads, rcu_driver, softirq, statistics, timer, work,
};

/// Idle threads take interrupts and softirqs on other stacks; their own holds a few frames.
const IDLE_STACK_PAGES: usize = 2;

/// The idle thread of each CPU whose boot code became an ordinary thread; null for others and before it exists.
static IDLE_THREADS: PerCpu<AtomicPtr<Thread>> = per_cpu!(AtomicPtr::new(core::ptr::null_mut()));
static HOOKS: Once<()> = Once::new();
/// Whether the threads that exist once have been started.
static HELPERS: AtomicBool = AtomicBool::new(false);

/// Starts the scheduler on the boot CPU; the caller becomes a thread bound to it.
///
/// # Panics
/// When there is no memory for the first threads.
pub fn initialize() {
    set_hooks();
    let thread = start_cpu_with_thread("boot");
    debug_assert_eq!(thread.cpu(), cpu::current());
    start_helpers();
}

/// Starts the scheduler on an application processor; the caller becomes its idle thread.
pub fn enter_application_processor() -> ! {
    // It may come before the boot CPU: a deadline or request that finds no handler would be the last one that this CPU gets.
    set_hooks();
    let this = cpu::current();
    let thread = Thread::adopt_current("idle", CpuSet::only(this));
    let pointer = Arc::into_raw(thread).cast_mut();
    // SAFETY: idle threads are never freed.
    begin(unsafe { &*pointer }, pointer);
    interrupt::enable();
    if softirq::start_thread(this).and_then(|()| rcu_driver::start_thread(this)).is_err() {
        log::warn!("no memory for the threads of CPU {this}");
    }
    idle::run()
}

/// Connects the scheduler with what is below, by whichever processor comes first; the others wait.
fn set_hooks() {
    HOOKS.call_once(|| {
        preempt::set_schedule_hook(dispatch::preempt_hook);
        interrupt::set_exit_hook(softirq::interrupt_exit);
        ipi::set_handler(Ipi::Reschedule, dispatch::reschedule_interrupt);
        time::set_handler(deadline::interrupt);
        softirq::register(softirq::Softirq::Timer, timer::run_due);
        sync::remote::initialize();
        softirq::initialize();
        sync::classes::set_finder(locks_of);
        rcu_driver::initialize();
        memory_threads::initialize();
        statistics::initialize();
        clustered_sweep::initialize();
    });
}

/// What is kept of locks for the thread of that word.
fn locks_of(thread_word: usize) -> &'static sync::classes::ThreadLocks {
    // SAFETY: the word of a CPU that has been started is the address of its running thread, which is alive for as long as it runs.
    &unsafe { &*(thread_word as *const Thread) }.locks
}

fn start_helpers() {
    let this = cpu::current();
    softirq::start_thread(this).expect("memory for the boot CPU's threads");
    rcu_driver::start_thread(this).expect("memory for the boot CPU's threads");
    work::start();
    if !HELPERS.swap(true, Ordering::Relaxed) {
        memory_threads::start().expect("memory for the boot CPU's threads");
    }
}

/// The running context becomes a thread of this CPU, which gets an idle thread.
fn start_cpu_with_thread(name: &str) -> ThreadRef {
    let this = cpu::current();
    let thread = Thread::adopt_current(name, CpuSet::only(this));
    // The reference that every thread holds to itself.
    let _ = Arc::into_raw(thread.clone());
    let idle = idle_thread(this);
    begin(&thread, idle);
    thread
}

/// This CPU's idle thread, made if there is none.
fn idle_thread(this: CpuId) -> *const Thread {
    let slot = IDLE_THREADS.of(this);
    let existing = slot.load(Ordering::Acquire);
    if !existing.is_null() {
        return existing;
    }
    let affinity = CpuSet::only(this);
    let builder =
        Builder { affinity, stack_pages: IDLE_STACK_PAGES, pinned_stack: true, ..Builder::new("idle") };
    let new = builder.allocate(Box::new(|| idle::run())).expect("memory for an idle thread");
    let idle = Arc::into_raw(new.into_idle()).cast_mut();
    slot.store(idle, Ordering::Release);
    idle
}

fn begin(current: &Thread, idle: *const Thread) {
    assert!(HOOKS.get().is_some(), "a processor that nobody hears would lose its first interrupts");
    let _interrupts = interrupt::disable();
    let cpu = Cpu::of(cpu::current());
    // On the host, a machine that is gone may have left this CPU idle, with a turn, a deadline and requests; and threads may have been
    // queued here since the new machine has it.
    idle::leave();
    deadline::reset();
    cpu.forget_requests();
    cpu::set_thread_word(core::ptr::from_ref(current) as usize);
    let mut queue = cpu.queue.lock();
    queue.start(current, idle, time::now_ns());
    cpu.publish(&queue);
    drop(queue);
    deadline::arm();
}

/// Runs a new thread's body. On the host a panic in it is printed and ends the process: it would otherwise unwind off the stack.
pub(crate) fn run_body(body: Box<dyn FnOnce() + Send>) {
    #[cfg(target_os = "none")]
    body();
    #[cfg(not(target_os = "none"))]
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_err() {
        eprintln!("a kernel thread panicked; see above");
        std::process::abort();
    }
}

/// On the host, makes the calling host thread a thread of its CPU if it is none yet.
#[inline(always)]
pub(crate) fn ensure_started() {
    #[cfg(not(target_os = "none"))]
    let _thread = crate::thread::current();
}

/// A host thread uses the scheduler for the first time.
#[cfg(not(target_os = "none"))]
#[cold]
#[inline(never)]
pub(crate) fn adopt_host_thread() -> usize {
    set_hooks();
    let thread = start_cpu_with_thread("host");
    start_helpers();
    Arc::as_ptr(&thread) as usize
}
