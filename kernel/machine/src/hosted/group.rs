//! A group of hosted processors: what one test sees as its machine.
//!
//! The group's mutex guards who is halted. A processor halts only while it has nothing pending, checked under the
//! mutex; whoever makes something pending notifies under the mutex. So no wake-up is lost. The last processor to
//! halt moves the clock to the earliest deadline, if there is one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use super::processor::{self, NEVER, PROCESSORS, lock};
use crate::cpu::{CpuId, CpuSet};

/// Payload of the unwinding that ends a processor's idle loop when its machine is dropped.
struct Stop;

pub(super) struct Group {
    /// Bit n: processor n belongs to the group.
    members: AtomicU64,
    clock_ns: AtomicU64,
    stopping: AtomicBool,
    /// How many members are halted.
    halted: Mutex<u32>,
    changed: Condvar,
}

impl Group {
    pub(super) fn new() -> Self {
        Self {
            members: AtomicU64::new(0),
            clock_ns: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            halted: Mutex::new(0),
            changed: Condvar::new(),
        }
    }

    pub(super) fn join(&self, index: u32) {
        self.members.fetch_or(1 << index, Ordering::SeqCst);
    }

    pub(super) fn leave(&self, index: u32) {
        self.members.fetch_and(!(1 << index), Ordering::SeqCst);
    }

    pub(super) fn members(&self) -> CpuSet {
        CpuSet::from_bits(self.members.load(Ordering::SeqCst))
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.clock_ns.load(Ordering::SeqCst)
    }

    pub(super) fn advance(&self, nanoseconds: u64) {
        self.clock_ns.fetch_add(nanoseconds, Ordering::SeqCst);
        self.notify();
    }

    /// Wakes the halted members so that they look for what is pending.
    pub(super) fn notify(&self) {
        let _halted = lock(&self.halted);
        self.changed.notify_all();
    }

    /// Waits until something is pending for the processor.
    pub(super) fn halt(&self, index: u32) {
        let mut halted = lock(&self.halted);
        while !self.has_pending(index) {
            if self.stopping.load(Ordering::SeqCst) {
                drop(halted);
                std::panic::resume_unwind(Box::new(Stop));
            }
            *halted += 1;
            if *halted as usize == self.members().count() && self.jump_to_next_deadline() {
                self.changed.notify_all();
            } else {
                halted = self.changed.wait(halted).unwrap_or_else(PoisonError::into_inner);
            }
            *halted -= 1;
        }
    }

    pub(super) fn has_pending(&self, index: u32) -> bool {
        let processor = &PROCESSORS[index as usize];
        processor.pending_ipis.load(Ordering::SeqCst) != 0
            || processor.deadline_ns.load(Ordering::SeqCst) <= self.now_ns()
    }

    /// All members are halted: time passes until the first deadline. False when there is none, or when a member was
    /// notified and only its host thread has not run yet.
    fn jump_to_next_deadline(&self) -> bool {
        if self.members().iter().any(|cpu| self.has_pending(cpu.index() as u32)) {
            return false;
        }
        let deadlines =
            self.members().iter().map(|cpu| PROCESSORS[cpu.index()].deadline_ns.load(Ordering::SeqCst));
        match deadlines.min() {
            Some(deadline_ns) if deadline_ns != NEVER => {
                self.clock_ns.fetch_max(deadline_ns, Ordering::SeqCst);
                true
            }
            _ => false,
        }
    }
}

/// Additional processors for the caller's group; they stop when this is dropped.
pub struct Machine {
    group: Arc<Group>,
    threads: Vec<JoinHandle<()>>,
    cpus: CpuSet,
    first: CpuId,
}

impl Machine {
    /// Gives the calling host thread's group `count` processors in all; the new ones call `entry`, which must end in
    /// a loop that halts when there is nothing to do (the scheduler's idle loop).
    pub fn boot(count: usize, entry: fn(CpuId)) -> Machine {
        let group = processor::group();
        let (ready, is_ready) = channel();
        let threads = (1..count)
            .map(|_| {
                let (group, ready) = (group.clone(), ready.clone());
                std::thread::spawn(move || {
                    let index = processor::claim(group);
                    ready.send(()).expect("the booting thread waits for all processors");
                    let body = std::panic::AssertUnwindSafe(|| entry(CpuId::from_index(index as usize)));
                    if let Err(payload) = std::panic::catch_unwind(body)
                        && !payload.is::<Stop>()
                    {
                        std::panic::resume_unwind(payload);
                    }
                })
            })
            .collect();
        for _ in 1..count {
            is_ready.recv().expect("every processor claims its number");
        }
        let first = CpuId::from_index(processor::index() as usize);
        Machine { cpus: group.members(), group, threads, first }
    }

    /// The processors of the group.
    pub fn cpus(&self) -> CpuSet {
        self.cpus
    }

    /// The processor of that place: 0 is the one that booted the machine, whatever its number, the others follow.
    pub fn cpu(&self, place: usize) -> CpuId {
        let others = self.cpus.iter().filter(|&cpu| cpu != self.first);
        std::iter::once(self.first).chain(others).nth(place).expect("the machine has that many processors")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.group.stopping.store(true, Ordering::SeqCst);
        self.group.notify();
        let mut failed = false;
        for thread in self.threads.drain(..) {
            failed |= thread.join().is_err();
        }
        self.group.stopping.store(false, Ordering::SeqCst);
        assert!(!failed || std::thread::panicking(), "a hosted processor panicked");
    }
}
