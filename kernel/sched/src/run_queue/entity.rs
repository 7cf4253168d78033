//! What a run queue knows of a thread.
//!
//! All fields but the counters are written under the lock of the run queue that the thread belongs to
//! (`Thread::cpu`), or by the one waker that claimed it while it belongs to none. They are atomics only so that
//! the thread can be shared; every access is relaxed and costs what a plain one does.

use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

use intrusive_collections::RBTreeAtomicLink;

use super::Reservation;
use crate::control;
use crate::policy::{self, Nice, Policy, WEIGHT_NORMAL};
use crate::urgency::Urgency;

/// A thread that sleeps within this time of waking another one hands over to it: to run the other one elsewhere, at the
/// same time, would gain less than waking a halted CPU takes.
const HANDOVER_NS: u64 = 100_000;
/// So often in a row, and it will probably do so again.
const HANDOVER_LIKELY: u8 = 2;
/// A habit that is older than this is not stronger.
const HANDOVER_MAX: u8 = 8;

/// The scheduling entity of a thread.
pub(crate) struct Entity {
    /// Links the thread into a run queue's tree while it is runnable and not running.
    pub(super) link: RBTreeAtomicLink,
    /// Order in the tree: virtual runtime (ns at weight 1024), or real-time rank.
    key: AtomicU64,
    /// Virtual runtime relative to its queue's, while it belongs to none. This and the next two are others' for threads with a
    /// reservation, see `reservation`.
    lag: AtomicI64,
    /// The queue that it left last, by its address, and that one's virtual time then.
    left_queue: AtomicUsize,
    left_virtual_ns: AtomicU64,
    weight: AtomicU32,
    /// Encoded policy and nice value with which it competes.
    policy: AtomicU16,
    /// Its own: `policy` is the same while nothing is lent to it.
    own_policy: AtomicU16,
    /// See [`crate::urgency`].
    lent: AtomicU8,
    /// Whether `link` is in a tree.
    queued: AtomicBool,
    /// When the running thread's account was last brought up to date.
    started_ns: AtomicU64,
    runtime_ns: AtomicU64,
    /// What a real-time thread had run when it slept last, or became one.
    slept_at_ns: AtomicU64,
    /// How much of its turn a round-robin thread has used: all of it, when it is more than fits.
    turn_used_ns: AtomicU32,
    /// When the thread woke another one, if it has not slept since; else 0. Written by the CPU that runs it.
    woke_ns: AtomicU64,
    /// How much its past says that it sleeps soon after it has woken another one. Written likewise.
    handover: AtomicU8,
    /// How often it was switched to.
    pub(crate) switches: AtomicU64,
    /// The group that it shares a weight and a quota with; see [`control`].
    pub(crate) group: control::Slot,
    /// How often it lost its CPU though it could have gone on. Written by the CPU that runs it.
    pub(crate) preemptions: AtomicU64,
}

impl Entity {
    pub(crate) fn new(policy: Policy, nice: Nice) -> Self {
        let entity = Self {
            link: RBTreeAtomicLink::new(),
            key: AtomicU64::new(0),
            lag: AtomicI64::new(0),
            left_queue: AtomicUsize::new(0),
            left_virtual_ns: AtomicU64::new(0),
            weight: AtomicU32::new(WEIGHT_NORMAL as u32),
            policy: AtomicU16::new(0),
            own_policy: AtomicU16::new(0),
            lent: AtomicU8::new(Urgency::LEAST.bits()),
            queued: AtomicBool::new(false),
            started_ns: AtomicU64::new(0),
            runtime_ns: AtomicU64::new(0),
            slept_at_ns: AtomicU64::new(0),
            turn_used_ns: AtomicU32::new(0),
            woke_ns: AtomicU64::new(0),
            handover: AtomicU8::new(0),
            switches: AtomicU64::new(0),
            group: control::Slot::empty(),
            preemptions: AtomicU64::new(0),
        };
        entity.own_policy.store(encoded(policy, nice), Ordering::Relaxed);
        entity.compete();
        entity
    }

    /// Changes its own policy; the thread must not be counted in a queue's load meanwhile.
    pub(crate) fn set_policy(&self, policy: Policy, nice: Nice) {
        debug_assert!(
            (policy == Policy::Deadline) == (self.own_policy() == Policy::Deadline),
            "see `set_terms`"
        );
        self.own_policy.store(encoded(policy, nice), Ordering::Relaxed);
        self.compete();
    }

    /// As [`Entity::set_policy`], with the terms of a reservation or without: to one, from one, or to another one.
    pub(crate) fn set_terms(&self, policy: Policy, nice: Nice, terms: Option<Reservation>) {
        debug_assert_eq!(policy == Policy::Deadline, terms.is_some());
        match terms {
            Some(terms) => self.set_reservation(terms),
            None => self.end_reservation(),
        }
        self.own_policy.store(encoded(policy, nice), Ordering::Relaxed);
        self.compete();
    }

    /// Changes what is lent to it; the thread must not be counted in a queue's load meanwhile.
    pub(crate) fn set_lent(&self, urgency: Urgency) {
        self.lent.store(urgency.bits(), Ordering::Relaxed);
        self.compete();
    }

    pub(crate) fn lent(&self) -> Urgency {
        Urgency::from_bits(self.lent.load(Ordering::Relaxed))
    }

    /// Has it compete with the more urgent of its own policy and what is lent.
    fn compete(&self) {
        let (policy, nice) = self.lent().lent_to(self.own_policy(), self.own_nice());
        self.policy.store(encoded(policy, nice), Ordering::Relaxed);
        self.weight.store(policy::weight(policy, nice) as u32, Ordering::Relaxed);
    }

    /// The policy that programs have given it.
    pub(crate) fn own_policy(&self) -> Policy {
        policy_of(self.own_policy.load(Ordering::Relaxed))
    }

    /// The nice value that programs have given it.
    pub(crate) fn own_nice(&self) -> Nice {
        nice_of(self.own_policy.load(Ordering::Relaxed))
    }

    /// The policy with which it competes.
    #[inline]
    pub(crate) fn policy(&self) -> Policy {
        policy_of(self.policy.load(Ordering::Relaxed))
    }

    /// Whether it goes before all fair threads: `policy().is_realtime()` without decoding.
    #[inline(always)]
    pub(crate) fn is_realtime(&self) -> bool {
        const FIRST_REALTIME_KIND: u16 = 3;
        self.policy.load(Ordering::Relaxed) & KIND >= FIRST_REALTIME_KIND
    }

    /// The nice value with which it competes.
    pub(crate) fn nice(&self) -> Nice {
        nice_of(self.policy.load(Ordering::Relaxed))
    }

    /// Nanoseconds it has run, up to its last account.
    pub(crate) fn runtime_ns(&self) -> u64 {
        self.runtime_ns.load(Ordering::Relaxed)
    }

    /// When its account was last brought up to date, while it runs.
    pub(crate) fn started_ns(&self) -> u64 {
        self.started_ns.load(Ordering::Relaxed)
    }

    pub(super) fn set_started_ns(&self, now_ns: u64) {
        self.started_ns.store(now_ns, Ordering::Relaxed);
    }

    pub(super) fn add_runtime(&self, nanoseconds: u64) {
        self.runtime_ns.store(self.runtime_ns() + nanoseconds, Ordering::Relaxed);
    }

    /// Whether the thread, which is about to wake another one, will probably sleep soon after.
    #[inline(always)]
    pub(crate) fn hands_over(&self) -> bool {
        self.handover.load(Ordering::Relaxed) >= HANDOVER_LIKELY
    }

    /// The running thread has woken another one. If it had done so before and not slept since, it is none that hands over.
    #[inline(always)]
    pub(crate) fn note_wake(&self, now_ns: u64) {
        if self.woke_ns.load(Ordering::Relaxed) != 0 {
            self.handover.store(self.handover.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
        }
        self.woke_ns.store(now_ns, Ordering::Relaxed);
    }

    /// The running thread sleeps.
    #[inline(always)]
    pub(crate) fn note_sleep(&self, now_ns: u64) {
        let woke_ns = self.woke_ns.load(Ordering::Relaxed);
        if woke_ns != 0 {
            let before = self.handover.load(Ordering::Relaxed);
            let soon = now_ns.saturating_sub(woke_ns) < HANDOVER_NS;
            self.handover
                .store(if soon { (before + 1).min(HANDOVER_MAX) } else { before / 2 }, Ordering::Relaxed);
            self.woke_ns.store(0, Ordering::Relaxed);
        }
    }

    /// A real-time thread comes from a sleep, or a thread becomes one.
    pub(super) fn begin_realtime(&self) {
        self.slept_at_ns.store(self.runtime_ns(), Ordering::Relaxed);
    }

    /// What a real-time thread had run when it slept last.
    pub(crate) fn slept_at_ns(&self) -> u64 {
        self.slept_at_ns.load(Ordering::Relaxed)
    }

    /// How much of its turn a round-robin thread has used.
    pub(super) fn turn_used_ns(&self) -> u64 {
        self.turn_used_ns.load(Ordering::Relaxed).into()
    }

    pub(super) fn set_turn_used_ns(&self, nanoseconds: u64) {
        self.turn_used_ns.store(u32::try_from(nanoseconds).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn key(&self) -> u64 {
        self.key.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(super) fn set_key(&self, key: u64) {
        self.key.store(key, Ordering::Relaxed);
    }

    /// The queue that it left last, by its address, and that one's virtual time then.
    #[inline(always)]
    pub(super) fn left(&self) -> (usize, u64) {
        (self.left_queue.load(Ordering::Relaxed), self.left_virtual_ns.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(super) fn set_left(&self, queue: usize, virtual_ns: u64) {
        self.left_queue.store(queue, Ordering::Relaxed);
        self.left_virtual_ns.store(virtual_ns, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn lag(&self) -> i64 {
        self.lag.load(Ordering::Relaxed)
    }

    pub(super) fn set_lag(&self, lag: i64) {
        self.lag.store(lag, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn weight(&self) -> u64 {
        u64::from(self.weight.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub(crate) fn is_queued(&self) -> bool {
        self.queued.load(Ordering::Relaxed)
    }

    pub(super) fn set_queued(&self, queued: bool) {
        self.queued.store(queued, Ordering::Relaxed);
    }

    /// Real time to virtual time.
    #[inline(always)]
    pub(super) fn virtual_ns(&self, real_ns: u64) -> u64 {
        match self.weight() {
            WEIGHT_NORMAL => real_ns,
            weight => real_ns * WEIGHT_NORMAL / weight,
        }
    }
}

/// The bits of [`encoded`] that tell policies apart.
const KIND: u16 = 7;

/// One word of a policy (three bits), its priority (seven) and a nice value (six).
fn encoded(policy: Policy, nice: Nice) -> u16 {
    let kind = match policy {
        Policy::Normal => 0,
        Policy::Batch => 1,
        Policy::Idle => 2,
        Policy::Fifo(_) => 3,
        Policy::RoundRobin(_) => 4,
        Policy::Deadline => 5,
    };
    kind | u16::from(policy.priority() & 0x7f) << 3 | ((nice.value() + 20) as u16) << 10
}

#[inline(always)]
fn policy_of(encoded: u16) -> Policy {
    let priority = (encoded >> 3) as u8 & 0x7f;
    match encoded & KIND {
        0 => Policy::Normal,
        1 => Policy::Batch,
        2 => Policy::Idle,
        3 => Policy::Fifo(priority),
        4 => Policy::RoundRobin(priority),
        _ => Policy::Deadline,
    }
}

fn nice_of(encoded: u16) -> Nice {
    Nice::clamped(i32::from(encoded >> 10) - 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sleeps_soon_after_waking_others_hands_over_until_it_does_not() {
        let entity = Entity::new(Policy::Normal, Nice::default());
        for round in 0..20 {
            assert_eq!(entity.hands_over(), round >= HANDOVER_LIKELY);
            entity.note_wake(1_000_000);
            entity.note_sleep(1_000_000 + HANDOVER_NS / 2);
        }
        for _ in 0..3 {
            entity.note_wake(2_000_000);
            entity.note_sleep(2_000_000 + HANDOVER_NS);
        }
        assert!(!entity.hands_over(), "it goes on computing");
        for _ in 0..20 {
            entity.note_sleep(3_000_000);
        }
        assert!(!entity.hands_over(), "it sleeps, but wakes nobody before");
        (0..20).for_each(|_| entity.note_wake(4_000_000));
        assert!(!entity.hands_over(), "it wakes one after the other");
    }

    #[test]
    fn policy_survives_its_encoding() {
        for policy in [
            Policy::Normal,
            Policy::Batch,
            Policy::Idle,
            Policy::Fifo(99),
            Policy::RoundRobin(1),
            Policy::Deadline,
        ] {
            for nice in [Nice::MIN, Nice::default(), Nice::MAX] {
                let entity = Entity::new(policy, nice);
                assert_eq!((entity.policy(), entity.nice()), (policy, nice));
                assert_eq!(entity.is_realtime(), policy.is_realtime());
            }
        }
    }
}
