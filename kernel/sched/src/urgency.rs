//! How urgent a thread is, and urgency that is lent.
//!
//! A thread that holds what a more urgent one waits for should compete as that one would: else whatever is between the two in urgency keeps both
//! from going on (priority inversion). So a thread has a policy and a nice value of its *own*, which programs set and see, and an urgency that others
//! *lend* it. The run queues know only what it competes with: the more urgent of the two. Who waits for whom, and so how much is lent, is the
//! business of the layer that knows the locks (futexes with priority inheritance); [`Thread::lend`] is told the result.
//!
//! Urgency is a total order: `SCHED_IDLE` is below the fair threads, which are ordered by nice value, and these are below the real-time ones, which are
//! ordered by priority, and below those with a reservation, which are equal. Nobody is lent a reservation: who is lent the urgency of one runs before all
//! other real-time threads, and after those that have one. A fair thread that is lent real-time urgency runs as `SCHED_FIFO` does: it has no turns. One that takes turns goes on
//! taking turns, among its new equals. A fair thread that is lent fair urgency gets the weight of the lender's nice value.
//!
//! Both are written with the thread's run queue locked ([`crate::balance::change_entity`]).

use crate::policy::{Nice, Policy};
use crate::thread::Thread;

/// How urgent a thread is. The greater, the more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Urgency(u8);

/// Above `SCHED_IDLE` come nice values 19 to −20: 1 to 40.
const NICE_LEVELS: u8 = 40;

impl Urgency {
    /// No more than any thread has.
    pub const LEAST: Urgency = Urgency(0);

    /// That of a policy and a nice value.
    pub const fn of(policy: Policy, nice: Nice) -> Urgency {
        match policy {
            Policy::Idle => Urgency(0),
            Policy::Normal | Policy::Batch => Urgency((20 - nice.value()) as u8),
            Policy::Fifo(_) | Policy::RoundRobin(_) | Policy::Deadline => {
                Urgency(NICE_LEVELS + policy.priority())
            }
        }
    }

    /// What a thread of this policy and nice value competes with when this is lent to it.
    pub(crate) const fn lent_to(self, policy: Policy, nice: Nice) -> (Policy, Nice) {
        if self.0 <= Urgency::of(policy, nice).0 {
            return (policy, nice);
        }
        match self.0.checked_sub(NICE_LEVELS) {
            None | Some(0) => {
                let policy = if matches!(policy, Policy::Batch) { Policy::Batch } else { Policy::Normal };
                (policy, Nice::clamped(20 - self.0 as i32))
            }
            Some(priority) if matches!(policy, Policy::RoundRobin(_)) => (Policy::RoundRobin(priority), nice),
            Some(priority) => (Policy::Fifo(priority), nice),
        }
    }

    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u8) -> Urgency {
        Urgency(bits)
    }
}

impl Thread {
    /// How urgent it is by itself.
    pub fn own_urgency(&self) -> Urgency {
        Urgency::of(self.policy(), self.nice())
    }

    /// Lends it this urgency instead of what it was lent before.
    pub fn lend(&self, urgency: Urgency) {
        if self.entity.lent() != urgency {
            crate::balance::change_entity(self, |entity| entity.set_lent(urgency));
        }
    }

    /// The policy that it competes with, which is more than its own while it is lent urgency.
    pub fn effective_policy(&self) -> Policy {
        self.entity.policy()
    }

    /// The nice value that it competes with.
    pub fn effective_nice(&self) -> Nice {
        self.entity.nice()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgency_orders_policies_as_the_run_queue_does() {
        let ordered = [
            (Policy::Idle, Nice::MIN),
            (Policy::Normal, Nice::MAX),
            (Policy::Batch, Nice::default()),
            (Policy::Normal, Nice::MIN),
            (Policy::Fifo(1), Nice::MAX),
            (Policy::RoundRobin(99), Nice::default()),
            (Policy::Deadline, Nice::MAX),
        ];
        assert!(
            ordered
                .windows(2)
                .all(|pair| { Urgency::of(pair[0].0, pair[0].1) < Urgency::of(pair[1].0, pair[1].1) })
        );
    }

    #[test]
    fn what_is_lent_never_makes_a_thread_less_urgent() {
        let policies = [
            Policy::Normal,
            Policy::Batch,
            Policy::Idle,
            Policy::Fifo(7),
            Policy::RoundRobin(50),
            Policy::Deadline,
        ];
        for policy in policies {
            for nice in [-20, -3, 0, 19] {
                let nice = Nice::clamped(nice);
                for bits in 0..=NICE_LEVELS + Policy::PRIORITY_DEADLINE {
                    let (lent_policy, lent_nice) = Urgency(bits).lent_to(policy, nice);
                    let own = Urgency::of(policy, nice);
                    assert_eq!(Urgency::of(lent_policy, lent_nice), own.max(Urgency(bits)));
                }
            }
        }
    }

    #[test]
    fn who_takes_turns_goes_on_taking_turns() {
        let urgent = Urgency::of(Policy::Fifo(60), Nice::default());
        assert_eq!(urgent.lent_to(Policy::RoundRobin(5), Nice::MAX).0, Policy::RoundRobin(60));
        assert_eq!(urgent.lent_to(Policy::Normal, Nice::MAX), (Policy::Fifo(60), Nice::MAX));
    }
}
