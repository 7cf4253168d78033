//! Reservations: threads that are sure of so much time in each period (`SCHED_DEADLINE`).
//!
//! Those that are runnable are ordered by their deadlines, the earliest first, before all others: earliest deadline first. That meets all deadlines
//! while no thread runs for longer than it said. What keeps it to that is the *constant bandwidth server* (Abeni and Buttazzo, 1998): a thread has a budget and an absolute
//! deadline, and
//! - what it runs is taken off the budget ([`Entity::spend`]). When that is used up it is filled again, and the deadline is put off by a period: the thread's part of
//!   the CPU stays what was reserved, however much it wants;
//! - when it wakes, both stay what they are, unless the deadline has passed or the rest of the budget until then would be a greater part of the CPU than was reserved
//!   ([`Entity::begin_activation`]). Then the budget is full, and the deadline one of now.
//!
//! A thread whose deadline is further away than a new one would be has used up more than its time: it is *held back* until that is no longer so. It waits for that on its
//! way to user mode ([`crate::admission::wait_for_period`]): who holds a lock in the kernel goes on there, with its later deadline.
//!
//! Whether all can have what they want is decided when they ask (`admission`).
//!
//! A thread with a reservation has no virtual time. So the fields that are about that hold the reservation: `lag` the budget, `left_*` its terms.
//! The key is the deadline, which makes these threads the first of the real-time ones: of priority 100, so to speak, whose bits in a key are zero.

use super::Entity;

/// The terms of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reservation {
    runtime_ns: u32,
    deadline_ns: u32,
    period_ns: u32,
}

/// In what holds the period: the budget was filled before its time, and nothing of it has been used since.
const FILLED_EARLY: usize = 1 << 32;
/// A budget before the first activation.
const FRESH: i64 = i64::MIN;

impl Reservation {
    /// The least runtime.
    const RUNTIME_LEAST_NS: u64 = 1 << 10;
    /// The shortest period …
    const PERIOD_LEAST_NS: u64 = 100_000;
    /// … and the longest, as on Linux unless that is set to something else.
    const PERIOD_MOST_NS: u64 = 4_194_304_000;
    /// Bits behind the point of [`Reservation::share`].
    pub(crate) const SHARE_BITS: u32 = 20;

    /// So much runtime in each period, and in each before that time of it has passed. A period of 0 is as long as the deadline. `None` if they are not in that order, or out of range.
    pub fn new(runtime_ns: u64, deadline_ns: u64, period_ns: u64) -> Option<Self> {
        let period_ns = if period_ns == 0 { deadline_ns } else { period_ns };
        let ordered =
            Self::RUNTIME_LEAST_NS <= runtime_ns && runtime_ns <= deadline_ns && deadline_ns <= period_ns;
        if !ordered || !(Self::PERIOD_LEAST_NS..=Self::PERIOD_MOST_NS).contains(&period_ns) {
            return None;
        }
        // The longest period fits.
        Some(Self {
            runtime_ns: runtime_ns as u32,
            deadline_ns: deadline_ns as u32,
            period_ns: period_ns as u32,
        })
    }

    /// Time in each period.
    pub fn runtime_ns(self) -> u64 {
        self.runtime_ns.into()
    }

    /// When it has that, from the beginning of a period.
    pub fn deadline_ns(self) -> u64 {
        self.deadline_ns.into()
    }

    /// How long a period is.
    pub fn period_ns(self) -> u64 {
        self.period_ns.into()
    }

    /// What part of a CPU it is.
    pub(crate) fn share(self) -> u64 {
        (self.runtime_ns() << Self::SHARE_BITS) / self.period_ns()
    }
}

impl Entity {
    /// The terms of a thread that has a reservation.
    pub(crate) fn reservation(&self) -> Reservation {
        let (period, terms) = self.left();
        Reservation { runtime_ns: terms as u32, deadline_ns: (terms >> 32) as u32, period_ns: period as u32 }
    }

    /// Gives it a reservation, from its next activation on. Its policy is changed as well.
    pub(super) fn set_reservation(&self, terms: Reservation) {
        self.set_left(terms.period_ns as usize, terms.runtime_ns() | terms.deadline_ns() << 32);
        self.set_lag(FRESH);
    }

    /// It has none any more: it has neither slept nor had more than others.
    pub(super) fn end_reservation(&self) {
        self.set_left(0, 0);
        self.set_lag(0);
    }

    /// Whether the terms are new, and its deadline not of them.
    pub(super) fn is_fresh(&self) -> bool {
        self.lag() == FRESH
    }

    /// What is left of the budget.
    pub(super) fn budget_ns(&self) -> u64 {
        self.lag().max(0).cast_unsigned()
    }

    /// What is left of the budget, and the deadline.
    pub(crate) fn budget_and_deadline_ns(&self) -> (u64, u64) {
        (self.budget_ns(), self.key())
    }

    /// It has become runnable.
    pub(super) fn begin_activation(&self, now_ns: u64) {
        let terms = self.reservation();
        let until_deadline_ns = self.key().saturating_sub(now_ns);
        let fits = || {
            let wanted = u128::from(self.budget_ns()) * u128::from(terms.deadline_ns);
            wanted <= u128::from(terms.runtime_ns) * u128::from(until_deadline_ns)
        };
        let keeps =
            !self.is_fresh() && until_deadline_ns > 0 && (self.left().0 & FILLED_EARLY != 0 || fits());
        if !keeps {
            self.fill(terms, now_ns + terms.deadline_ns());
        }
    }

    fn fill(&self, terms: Reservation, deadline_ns: u64) {
        self.set_filled_early(false);
        self.set_key(deadline_ns);
        self.set_lag(terms.runtime_ns().cast_signed());
    }

    fn set_filled_early(&self, early: bool) {
        let (period, terms) = self.left();
        self.set_left(if early { period | FILLED_EARLY } else { period & !FILLED_EARLY }, terms);
    }

    /// It has run so long. Returns whether that has it held back from now on.
    pub(super) fn spend(&self, ran_ns: u64, now_ns: u64) -> bool {
        let terms = self.reservation();
        if !self.is_held_back(now_ns) {
            self.set_filled_early(false);
        }
        let left_ns = self.lag().saturating_sub(ran_ns.min(i64::MAX as u64).cast_signed());
        self.set_lag(left_ns);
        let is_used_up = left_ns <= 0;
        if is_used_up {
            let periods = left_ns.unsigned_abs() / terms.runtime_ns() + 1;
            self.set_lag(left_ns + (periods * terms.runtime_ns()).cast_signed());
            self.set_key(self.key() + periods * terms.period_ns());
            self.set_filled_early(true);
            if self.key() <= now_ns {
                // It came to run too late for that: what it did not have is not made up for.
                self.fill(terms, now_ns + terms.deadline_ns());
            }
        }
        is_used_up && self.is_held_back(now_ns)
    }

    /// It gives up what is left of its budget. Returns as [`Entity::spend`] does.
    pub(super) fn give_up_budget(&self, now_ns: u64) -> bool {
        // What was filled early is the next period's.
        let rest_ns = if self.is_held_back(now_ns) { 0 } else { self.budget_ns() };
        self.spend(rest_ns, now_ns)
    }

    /// Until when it is held back, if that is not over.
    pub(crate) fn held_until_ns(&self) -> u64 {
        self.key().saturating_sub(self.reservation().deadline_ns())
    }

    fn is_held_back(&self, now_ns: u64) -> bool {
        now_ns < self.held_until_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Nice, Policy};

    const MS: u64 = 1_000_000;

    fn entity(runtime: u64, deadline: u64, period: u64) -> Entity {
        let entity = Entity::new(Policy::Deadline, Nice::default());
        entity.set_reservation(Reservation::new(runtime, deadline, period).expect("terms in range"));
        entity
    }

    #[test]
    fn terms_are_in_order_and_in_range() {
        assert_eq!(Reservation::new(1024, 100_000, 0).map(Reservation::period_ns), Some(100_000));
        assert!(Reservation::new(4_194_304_000, 4_194_304_000, 4_194_304_000).is_some());
        for (runtime, deadline, period) in [
            (1023, 100_000, 100_000),
            (2000, 1999, 100_000),
            (2000, 100_001, 100_000),
            (2000, 99_999, 0),
            (2000, 3000, 4_194_304_001),
            (0, 0, 0),
            (u64::MAX, u64::MAX, u64::MAX),
        ] {
            assert_eq!(Reservation::new(runtime, deadline, period), None);
        }
        let terms = entity(MS, 5 * MS, 10 * MS).reservation();
        assert_eq!((terms.runtime_ns(), terms.deadline_ns(), terms.period_ns()), (MS, 5 * MS, 10 * MS));
        assert_eq!(terms.share(), (1 << Reservation::SHARE_BITS) / 10);
    }

    #[test]
    fn who_has_used_up_its_budget_is_held_back_until_its_next_period() {
        let entity = entity(2 * MS, 5 * MS, 10 * MS);
        entity.begin_activation(100 * MS);
        assert_eq!((entity.key(), entity.budget_ns()), (105 * MS, 2 * MS));
        assert!(!entity.spend(MS, 101 * MS));
        assert!(entity.spend(MS, 102 * MS));
        assert_eq!((entity.key(), entity.held_until_ns()), (115 * MS, 110 * MS));
        // Woken a little too late, it has the deadline that it would have had.
        entity.begin_activation(110 * MS + 7);
        assert_eq!((entity.key(), entity.budget_ns()), (115 * MS, 2 * MS));
        assert!(!entity.spend(MS, 111 * MS));
        // An overrun is taken off the next budgets.
        assert!(entity.spend(4 * MS, 115 * MS));
        assert!(!entity.spend(MS / 2, 116 * MS), "it is told once");
        entity.set_lag(MS.cast_signed());
        assert_eq!((entity.key(), entity.budget_ns()), (135 * MS, MS));
    }

    #[test]
    fn who_wakes_early_keeps_its_deadline_unless_the_rest_is_too_much_for_it() {
        let entity = entity(2 * MS, 10 * MS, 10 * MS);
        entity.begin_activation(0);
        entity.spend(MS, MS);
        entity.begin_activation(3 * MS);
        assert_eq!((entity.key(), entity.budget_ns()), (10 * MS, MS), "1 ms of 7 is less than a fifth");
        entity.begin_activation(6 * MS);
        assert_eq!((entity.key(), entity.budget_ns()), (16 * MS, 2 * MS), "1 ms of 4 is more");
        entity.begin_activation(50 * MS);
        assert_eq!((entity.key(), entity.budget_ns()), (60 * MS, 2 * MS), "the deadline has passed");
    }

    #[test]
    fn who_yields_gives_up_the_rest_of_its_budget_and_no_more() {
        let entity = entity(2 * MS, 10 * MS, 10 * MS);
        entity.begin_activation(0);
        entity.spend(MS, MS);
        assert!(entity.give_up_budget(MS));
        assert_eq!((entity.key(), entity.held_until_ns()), (20 * MS, 10 * MS));
        assert!(!entity.give_up_budget(2 * MS), "it is held back already");
        assert_eq!((entity.key(), entity.budget_ns()), (20 * MS, 2 * MS));
    }

    #[test]
    fn nobody_has_more_than_was_reserved_however_it_sleeps_and_wakes() {
        for seed in 1..200_u64 {
            let entity = entity(2 * MS, 8 * MS, 10 * MS);
            let mut random = seed;
            let mut next = |most: u64| {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) % most
            };
            let (mut now, mut used) = (0, 0);
            entity.begin_activation(now);
            while now < 1_000 * MS {
                let ran = next(MS / 2);
                now += ran;
                used += ran;
                entity.spend(ran, now);
                let held = now < entity.held_until_ns();
                if held || next(3) == 0 {
                    now = if held { entity.held_until_ns() + next(1000) } else { now + next(4 * MS) };
                    entity.begin_activation(now);
                }
            }
            // A budget for each period, one at each end, and what it ran beyond.
            assert!(used <= (now / (10 * MS) + 2) * 2 * MS + MS / 2, "{used} of {now} with seed {seed}");
        }
    }
}
