//! What the scheduler keeps for each CPU.

use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use machine::cpu::{self, CpuId, CpuSet};
use machine::ipi::{self, Ipi};
use machine::preempt;
use sync::{IrqSpinLock, PerCpu, per_cpu};

use crate::run_queue::{NO_SLICE_END, RunQueue};
use crate::thread::Thread;

/// Run the dispatcher.
pub(crate) const REQUEST_RESCHEDULE: u32 = 1;
/// Look at the deadlines again: a slice has begun.
pub(crate) const REQUEST_ARM: u32 = 2;

/// Bits of a rank in [`Cpu::occupancy`]: the highest is 101.
const RANK_BITS: u32 = 8;

/// One CPU's scheduling data.
pub(crate) struct Cpu {
    pub(crate) queue: IrqSpinLock<RunQueue>,
    /// Copy of the queue's thread count, for others to look at without locking. Written under the queue's lock.
    pub(crate) running: AtomicU32,
    /// Copy of [`RunQueue::crowd`] above 8 bits of [`RunQueue::rank`]. Written under the queue's lock.
    occupancy: AtomicU32,
    /// Copy of the queue's slice end, for arming the timer. Written under the queue's lock.
    pub(crate) slice_end_ns: AtomicU64,
    /// What other CPUs want this one to do. They set bits, it takes them.
    pub(crate) requests: AtomicU32,
    /// How many [`WakeBatch`]es are open. Written by this CPU only; an interrupt that nests restores it.
    batches: AtomicU32,
    /// CPUs that get their interrupt at the end of the outermost batch. Written by this CPU and its interrupts.
    deferred: cpu::AtomicCpuSet,
    /// The thread that was just switched away from. Written by this CPU during a switch.
    pub(crate) previous: AtomicPtr<Thread>,
    /// The thread whose user registers were loaded last; for comparison only. Written by this CPU.
    pub(crate) registers_owner: AtomicPtr<Thread>,
    /// Threads whose uninterruptible sleep began here minus those that a waker on this CPU ended.
    pub(crate) uninterruptible: AtomicU32,
    /// Switches made. Written by this CPU.
    pub(crate) switches: AtomicU64,
    /// Cycles spent in user mode. Written by this CPU.
    pub(crate) user_cycles: AtomicU64,
}

static CPUS: PerCpu<Cpu> = per_cpu!(Cpu {
    queue: IrqSpinLock::new(RunQueue::new()),
    running: AtomicU32::new(0),
    occupancy: AtomicU32::new(0),
    slice_end_ns: AtomicU64::new(NO_SLICE_END),
    requests: AtomicU32::new(0),
    batches: AtomicU32::new(0),
    deferred: cpu::AtomicCpuSet::new(CpuSet::EMPTY),
    previous: AtomicPtr::new(core::ptr::null_mut()),
    registers_owner: AtomicPtr::new(core::ptr::null_mut()),
    uninterruptible: AtomicU32::new(0),
    switches: AtomicU64::new(0),
    user_cycles: AtomicU64::new(0),
});

impl Cpu {
    /// That CPU's data.
    #[inline(always)]
    pub(crate) fn of(cpu: CpuId) -> &'static Cpu {
        CPUS.of(cpu)
    }

    /// This CPU's data; the caller cannot migrate.
    #[inline(always)]
    pub(crate) fn this() -> &'static Cpu {
        CPUS.this()
    }

    /// The data of all CPUs that may have any.
    pub(crate) fn all() -> impl Iterator<Item = &'static Cpu> {
        CPUS.iter()
    }

    /// Those that get their interrupt at the end of this CPU's batch.
    #[cfg(test)]
    pub(crate) fn deferred_cpus(&self) -> CpuSet {
        self.deferred.load(Ordering::Relaxed)
    }

    /// How unwelcome another fair thread is here; see [`RunQueue::crowd`].
    pub(crate) fn crowd(&self) -> u32 {
        self.occupancy.load(Ordering::Relaxed) >> RANK_BITS
    }

    /// How urgent the running thread is; see [`RunQueue::rank`].
    pub(crate) fn rank(&self) -> u32 {
        self.occupancy.load(Ordering::Relaxed) & ((1 << RANK_BITS) - 1)
    }

    /// This CPU starts, and looks at its queue next: what others have asked for until now is done by that, and the interrupts that told it
    /// of it may never come.
    pub(crate) fn forget_requests(&self) {
        // Acquire: as in the handler of the request.
        self.requests.swap(0, Ordering::Acquire);
    }

    /// Publishes what others may know of the queue without its lock; under that lock.
    #[inline(always)]
    pub(crate) fn publish(&self, queue: &RunQueue) {
        self.running.store(queue.count(), Ordering::Relaxed);
        self.occupancy.store(queue.crowd() << RANK_BITS | queue.rank(), Ordering::Relaxed);
        self.slice_end_ns.store(queue.slice_end_ns(), Ordering::Relaxed);
    }
}

/// Asks a CPU to do something soon; directly if it is this one. The caller cannot migrate.
pub(crate) fn request(target: CpuId, what: u32) {
    if target == cpu::current() {
        if what & REQUEST_RESCHEDULE != 0 {
            preempt::set_need_resched(true);
        }
        if what & REQUEST_ARM != 0 {
            crate::deadline::arm();
        }
        return;
    }
    // Release: the handler sees what the caller did before. One interrupt serves all bits that it finds.
    let before = Cpu::of(target).requests.fetch_or(what, Ordering::Release);
    if before & what != what {
        let this = Cpu::this();
        if this.batches.load(Ordering::Relaxed) == 0 {
            ipi::send(target, Ipi::Reschedule);
        } else {
            this.deferred.insert(target, Ordering::Relaxed);
        }
    }
}

/// While it lives, wake-ups by this CPU interrupt no other one; they all do at its end. Make it before locking what the woken threads
/// will want: sending an interrupt takes long, in a virtual machine more than all the rest, and who is woken by it would find the
/// lock held. Preemption is off meanwhile.
#[must_use = "the batch ends when this is dropped"]
pub struct WakeBatch {
    _preemption: preempt::PreemptGuard,
}

impl WakeBatch {
    /// Begins a batch, or continues the one that there is.
    #[inline]
    pub fn begin() -> Self {
        let batch = Self { _preemption: preempt::disable() };
        let batches = &Cpu::this().batches;
        batches.store(batches.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        batch
    }
}

impl Drop for WakeBatch {
    #[inline]
    fn drop(&mut self) {
        let this = Cpu::this();
        let open = this.batches.load(Ordering::Relaxed) - 1;
        this.batches.store(open, Ordering::Relaxed);
        // An interrupt that comes from here on sends its own.
        if open == 0 && !this.deferred.load(Ordering::Relaxed).is_empty() {
            send_deferred(this);
        }
    }
}

#[cold]
#[inline(never)]
fn send_deferred(this: &Cpu) {
    for target in this.deferred.load(Ordering::Relaxed).iter() {
        this.deferred.remove(target, Ordering::Relaxed);
        ipi::send(target, Ipi::Reschedule);
    }
}

/// The CPUs that run their idle thread: a hint for placing threads. A waker that takes a CPU's bit has it for itself.
pub(crate) static IDLE: cpu::AtomicCpuSet = cpu::AtomicCpuSet::new(CpuSet::EMPTY);
