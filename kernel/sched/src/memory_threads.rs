//! What crate `memory` needs threads and sleeping for: its background work, and the waiters of its locks.
//!
//! - `kstackd` refills the stash of stack frames, frees the stacks of ended threads and trims those of sleeping ones,
//!   now and then also those of threads that compute.
//! - `kswapd` reclaims memory when little is free, and sees to it that the heap does not keep much more than it uses.
//!
//! Both are asked for in any context, also with a run queue locked. So the request is a flag and a softirq, which wakes
//! the thread once the locks are gone.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, Ordering};

use machine::cpu::{self, CpuSet};
use machine::time;
use memory::{OutOfMemory, charge, kstack, parking, reclaim};

use crate::WaitQueue;
use crate::policy::Nice;
use crate::softirq::{self, Softirq};
use crate::thread::Builder;
use crate::work::Work;

/// A thread that works when it is asked to.
struct Servant {
    asked: AtomicBool,
    queue: WaitQueue,
}

impl Servant {
    const fn new() -> Self {
        Self { asked: AtomicBool::new(false), queue: WaitQueue::new() }
    }

    fn ask(&self) {
        self.asked.store(true, Ordering::Release);
        softirq::raise(Softirq::Sched);
    }

    fn wake_if_asked(&self) {
        if self.asked.load(Ordering::Relaxed) {
            self.queue.wake_all();
        }
    }

    /// Sleeps until asked or until the deadline. Kernel threads get no attention: this does not count as load.
    /// Returns whether it was asked.
    fn await_request(&self, deadline_ns: Option<u64>) -> bool {
        self.queue
            .wait_interruptible_deadline(|| self.asked.swap(false, Ordering::Acquire), deadline_ns)
            .is_ok()
    }
}

static STACKS: Servant = Servant::new();
static RECLAIM: Servant = Servant::new();

/// Waiters of the memory layer's locks sleep in one of these, by the lock's address.
const PARKING_LOTS: usize = 64;
static PARKED: [WaitQueue; PARKING_LOTS] = [const { WaitQueue::new() }; PARKING_LOTS];

fn lot(key: usize) -> &'static WaitQueue {
    const MIX: usize = 0x9e37_79b9_7f4a_7c15;
    &PARKED[key.wrapping_mul(MIX) >> (usize::BITS - PARKING_LOTS.ilog2())]
}

/// Registers with crate `memory`. Once, at start-up.
pub(crate) fn initialize() {
    softirq::register(Softirq::Sched, || {
        STACKS.wake_if_asked();
        kstack::refill_if_wanted();
        RECLAIM.wake_if_asked();
    });
    parking::set_hooks(parking::Hooks {
        wait: |key, while_true| lot(key).wait_while(while_true),
        wake: |key| lot(key).wake_all(),
    });
    kstack::set_service_wakeup(|| STACKS.ask());
    kstack::set_kill_hook(crate::dispatch::abandon_current);
    kstack::set_name_hook(write_own_name);
    kstack::set_refill_request(|| softirq::raise_unhurried(Softirq::Sched));
    #[cfg(target_os = "none")]
    kstack::set_park_hooks(crate::dispatch::leave_parked, crate::dispatch::finish_parked_switch);
    reclaim::set_wakeup(|| RECLAIM.ask());
    charge::set_hold_back(|| crate::thread::current().note_held_back());
}

/// Writes the running thread's name, if that is the thread with this number and its name is not being changed.
fn write_own_name(id: u64, out: &mut dyn core::fmt::Write) -> core::fmt::Result {
    let thread = crate::thread::current();
    match thread.try_name() {
        Some(name) if thread.id() == id => {
            name.as_bytes().utf8_chunks().try_for_each(|chunk| out.write_str(chunk.valid()))
        }
        _ => Ok(()),
    }
}

/// Starts the threads. Once, at start-up.
///
/// # Errors
/// [`OutOfMemory`].
pub(crate) fn start() -> Result<(), OutOfMemory> {
    // They must run when memory is short, so their stacks do not grow, and they do not queue behind a thousand programs.
    let builder = |name| Builder { pinned_stack: true, nice: Nice::MIN, ..Builder::new(name) };
    crate::spawn(builder("kstackd"), Box::new(serve_stacks))?;
    crate::spawn(builder("kswapd"), Box::new(serve_reclaim))?;
    Ok(())
}

const SECOND_NS: u64 = 1_000_000_000;

fn serve_stacks() {
    let mut trimmed_ns = time::now_ns();
    loop {
        let period_ns = u64::from(kstack::trim_secs()) * SECOND_NS;
        STACKS.await_request((period_ns != 0).then(|| trimmed_ns + period_ns));
        kstack::service();
        let now_ns = time::now_ns();
        if period_ns != 0 && now_ns >= trimmed_ns + period_ns {
            trimmed_ns = now_ns;
            kstack::trim();
            trim_running();
        }
    }
}

/// Trims the stacks that are in use: goes to each CPU in question, where the thread that runs is preempted meanwhile.
fn trim_running() {
    let own = crate::thread::current();
    for cpu in cpu::online().iter() {
        if let Some(stack) = kstack::untrimmed_on(cpu) {
            own.set_affinity(CpuSet::only(cpu));
            kstack::trim_one(stack);
        }
    }
    own.set_affinity(CpuSet::ALL);
}

fn serve_reclaim() {
    // A second after many objects were freed it is looked at what the heap keeps of them.
    let mut tidy_ns = None;
    let mut ending = None;
    loop {
        RECLAIM.await_request(tidy_ns);
        reclaim::reclaim_until_high();
        // Their files may wait for somebody who makes memory free. Without a place for this work it is asked again the next time.
        ending = ending.or_else(|| Work::prepare(|()| reclaim::end_spaces()).ok());
        if ending.is_some()
            && reclaim::wants_spaces_ended()
            && let Some(work) = ending.take()
        {
            work.queue(());
        }
        let now_ns = time::now_ns();
        if tidy_ns.is_some_and(|due_ns| due_ns <= now_ns) {
            tidy_ns = None;
            reclaim::tidy();
        }
        if tidy_ns.is_none() && reclaim::wants_tidying() {
            tidy_ns = Some(now_ns + SECOND_NS);
        }
    }
}
