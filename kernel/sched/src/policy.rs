//! Scheduling policies and the weights behind nice values.

/// A nice value, −20 (most CPU time) to 19 (least).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nice(i8);

impl Nice {
    /// The lowest nice value: the most CPU time.
    pub const MIN: Nice = Nice(-20);
    /// The highest nice value: the least CPU time.
    pub const MAX: Nice = Nice(19);

    /// The nice value nearest to the number.
    pub const fn clamped(value: i32) -> Nice {
        Nice(if value < -20 {
            -20
        } else if value > 19 {
            19
        } else {
            value as i8
        })
    }

    /// The number.
    pub const fn value(self) -> i32 {
        self.0 as i32
    }
}

/// How a thread competes for its CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Fair share by nice value (SCHED_OTHER).
    #[default]
    Normal,
    /// Fair share, but does not preempt when it wakes up (SCHED_BATCH).
    Batch,
    /// Only what others leave (SCHED_IDLE).
    Idle,
    /// Real time, priority 1 to 99, runs until it sleeps (SCHED_FIFO).
    Fifo(u8),
    /// Real time, priority 1 to 99, takes turns with its equals (SCHED_RR).
    RoundRobin(u8),
    /// Before all others, for the time that it has reserved (SCHED_DEADLINE); see `run_queue/reservation.rs`.
    Deadline,
}

impl Policy {
    /// Above all real-time priorities.
    pub const PRIORITY_DEADLINE: u8 = 100;

    /// The real-time priority, 0 for the fair policies.
    #[inline]
    pub const fn priority(self) -> u8 {
        match self {
            Policy::Fifo(priority) | Policy::RoundRobin(priority) => priority,
            Policy::Deadline => Self::PRIORITY_DEADLINE,
            Policy::Normal | Policy::Batch | Policy::Idle => 0,
        }
    }

    /// Whether the thread goes before all fair ones.
    #[inline]
    pub const fn is_realtime(self) -> bool {
        self.priority() != 0
    }
}

/// What a thread adds to the crowd of its CPU: how unwelcome others are there. A real-time thread leaves fair ones next to
/// nothing while it runs; one that takes only what others leave is in nobody's way.
pub(crate) const fn crowd(policy: Policy) -> u32 {
    match policy {
        Policy::Normal | Policy::Batch => 1,
        Policy::Idle => 0,
        Policy::Fifo(_) | Policy::RoundRobin(_) | Policy::Deadline => 4,
    }
}

/// Rank of an idle CPU among those that run something.
pub(crate) const RANK_NOBODY: u32 = 0;

/// How urgent a running thread is, for finding the CPU that a real-time thread disturbs least.
pub(crate) const fn rank(policy: Policy) -> u32 {
    match policy {
        Policy::Idle => 1,
        Policy::Normal | Policy::Batch => 2,
        Policy::Fifo(_) | Policy::RoundRobin(_) | Policy::Deadline => 2 + policy.priority() as u32,
    }
}

/// Weight of nice 0; virtual time runs at the rate of real time there.
pub(crate) const WEIGHT_NORMAL: u64 = 1024;
/// Weight under [`Policy::Idle`].
const WEIGHT_IDLE: u64 = 3;

/// Weight of a nice value: each step is 25 % more or less, so that between two threads it is worth about 10 % of
/// the CPU. 1024 × 1.25^−nice, rounded.
const fn weight_of_nice(nice: Nice) -> u64 {
    const SCALE_BITS: u32 = 20;
    let mut scaled = WEIGHT_NORMAL << SCALE_BITS;
    let mut step = nice.value();
    while step > 0 {
        scaled = scaled * 4 / 5;
        step -= 1;
    }
    while step < 0 {
        scaled = scaled * 5 / 4;
        step += 1;
    }
    (scaled + (1 << (SCALE_BITS - 1))) >> SCALE_BITS
}

const WEIGHTS: [u64; 40] = {
    let mut weights = [0; 40];
    let mut index = 0;
    while index < 40 {
        weights[index] = weight_of_nice(Nice::clamped(index as i32 - 20));
        index += 1;
    }
    weights
};

/// The weight with which a fair thread's virtual time advances.
pub(crate) fn weight(policy: Policy, nice: Nice) -> u64 {
    match policy {
        Policy::Idle => WEIGHT_IDLE,
        _ => WEIGHTS[(nice.value() + 20) as usize],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nice_steps_are_a_quarter() {
        assert_eq!(weight(Policy::Normal, Nice::default()), 1024);
        assert_eq!(weight(Policy::Normal, Nice::clamped(1)), 819);
        assert_eq!(weight(Policy::Normal, Nice::clamped(-1)), 1280);
        assert_eq!(weight(Policy::Normal, Nice::MAX), 15);
        assert_eq!(weight(Policy::Normal, Nice::clamped(-100)), 88_818);
    }

    #[test]
    fn only_real_time_policies_have_a_priority() {
        assert_eq!(Policy::Fifo(5).priority(), 5);
        assert!(!Policy::Batch.is_realtime());
    }
}
