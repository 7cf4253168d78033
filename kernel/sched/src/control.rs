//! What groups of threads may have of the processors: a weight against each other, and a quota of a period.
//!
//! # Weights
//! Run queues stay flat: a thread of a group has a place of its own among all, but its virtual time runs as fast as its part of the group's weight says. On each
//! CPU a group knows the weights of what is runnable in it there (`Books`): of its threads, and of the groups below that have any. A thread's part is its
//! weight by that load, times the group's weight; so on upwards. What is runnable in the groups changes under the run queue's lock, which is
//! why the loads are plain stores; a weight that changes counts from the next time that the group has its first runnable thread on a CPU.
//!
//! # Quotas
//! A group has used what its threads and those below ran in a period. When that is more than the quota, it is *held back* until a period begins in which it has some again:
//! what was used too much is taken off the next ones. Its threads are told to look ([`Thread::must_look`]), and wait on their way to user mode, in
//! [`wait_for_quota`]: who holds a lock in the kernel is never stopped there. Time is looked at when a thread is switched and at the end of its slice, which is short while
//! there is a quota (`SLICE_NS`).
//!
//! Threads in no group cost a look at a null pointer.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use machine::cpu::CpuId;
use machine::time;
use memory::per_cpu::PerCpuBox;
use sync::{IrqSpinLock, rcu};

use crate::policy::{self, Nice, Policy, WEIGHT_NORMAL};
use crate::thread::{Thread, current};
use crate::{WaitError, block_interruptible};

/// The weight that a group has unless another is set: it counts as much as one thread of nice 0.
pub const WEIGHT_DEFAULT: u32 = 100;
/// The longest slice of a thread whose group has a quota: by that, times the number of CPUs, a group can exceed it within a period.
const SLICE_NS: u64 = 5_000_000;
/// The shortest one.
const SLICE_MINIMUM_NS: u64 = 500_000;
/// No quota.
const UNLIMITED: u64 = u64::MAX;

/// A group of threads that compete for processors.
pub struct Group {
    parent: Option<Arc<Group>>,
    weight: AtomicU32,
    /// What is runnable in it on each CPU. Written under that CPU's queue's lock.
    books: Option<PerCpuBox<Books>>,
    /// Whether there is a quota: `period` need not be looked at without.
    is_limited: AtomicBool,
    period: IrqSpinLock<Period>,
}

#[derive(Default)]
struct Books {
    load: AtomicU64,
    /// What it counts in the load of the group above.
    counted: AtomicU64,
}

/// A quota, and what was used of it.
struct Period {
    quota_ns: u64,
    period_ns: u64,
    start_ns: u64,
    used_ns: u64,
    /// Since when it is held back.
    held_since_ns: Option<u64>,
    statistics: QuotaStatistics,
}

/// What `cpu.stat` shows of a quota.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaStatistics {
    /// Periods in which something ran.
    pub periods: u64,
    /// Those of them in which it was held back.
    pub held: u64,
    /// For how long, altogether.
    pub held_ns: u64,
}

impl Period {
    /// Begins the period that it is now.
    fn roll(&mut self, now_ns: u64) {
        let passed = now_ns.saturating_sub(self.start_ns) / self.period_ns;
        if passed == 0 {
            return;
        }
        self.start_ns += passed * self.period_ns;
        if self.used_ns > 0 {
            self.statistics.periods += passed.min(1 + self.used_ns / self.quota_ns);
        }
        self.used_ns = self.used_ns.saturating_sub(passed.saturating_mul(self.quota_ns));
        if self.used_ns < self.quota_ns
            && let Some(since_ns) = self.held_since_ns.take()
        {
            self.statistics.held_ns += now_ns.saturating_sub(since_ns);
        } else if self.held_since_ns.is_some() {
            self.statistics.held += 1;
        }
    }

    /// Something ran. Whether it is held back now.
    fn charge(&mut self, ran_ns: u64, now_ns: u64) -> bool {
        if self.quota_ns == UNLIMITED {
            return false;
        }
        self.roll(now_ns);
        self.used_ns += ran_ns;
        if self.used_ns >= self.quota_ns && self.held_since_ns.is_none() {
            self.held_since_ns = Some(now_ns);
            self.statistics.held += 1;
        }
        self.held_since_ns.is_some()
    }

    /// When the next period begins, if it is held back until then at least.
    fn held_until(&mut self, now_ns: u64) -> Option<u64> {
        if self.quota_ns == UNLIMITED {
            return None;
        }
        self.roll(now_ns);
        self.held_since_ns.map(|_| self.start_ns + self.period_ns)
    }
}

impl Group {
    /// The period unless another is set.
    pub const PERIOD_NS: u64 = 100_000_000;

    /// A group below another one, or at the top.
    pub fn new(parent: Option<Arc<Group>>) -> Self {
        Self {
            parent,
            weight: AtomicU32::new(WEIGHT_DEFAULT),
            // Without memory for its books its threads compete as those of no group do.
            books: PerCpuBox::try_new(|_| Books::default()).ok(),
            is_limited: AtomicBool::new(false),
            period: IrqSpinLock::named(
                "quota of processor time",
                Period {
                    quota_ns: UNLIMITED,
                    period_ns: Self::PERIOD_NS,
                    start_ns: 0,
                    used_ns: 0,
                    held_since_ns: None,
                    statistics: QuotaStatistics::default(),
                },
            ),
        }
    }

    fn upwards(&self) -> impl Iterator<Item = &Group> {
        core::iter::successors(Some(self), |group| group.parent.as_deref())
    }

    /// Its weight against others.
    pub fn weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed)
    }

    /// Changes that.
    pub fn set_weight(&self, weight: u32) {
        self.weight.store(weight.max(1), Ordering::Relaxed);
    }

    /// The quota, if there is one, and the period.
    pub fn quota_ns(&self) -> (Option<u64>, u64) {
        let period = self.period.lock();
        (Some(period.quota_ns).filter(|&quota| quota != UNLIMITED), period.period_ns)
    }

    /// Changes both; a period begins.
    pub fn set_quota_ns(&self, quota_ns: Option<u64>, period_ns: u64) {
        let mut period = self.period.lock();
        period.quota_ns = quota_ns.unwrap_or(UNLIMITED).max(1);
        period.period_ns = period_ns.max(1);
        period.start_ns = time::now_ns();
        period.used_ns = 0;
        if let Some(since_ns) = period.held_since_ns.take() {
            period.statistics.held_ns += period.start_ns.saturating_sub(since_ns);
        }
        self.is_limited.store(quota_ns.is_some(), Ordering::Relaxed);
    }

    /// What became of the quota so far.
    pub fn quota_statistics(&self) -> QuotaStatistics {
        let mut period = self.period.lock();
        if period.quota_ns != UNLIMITED {
            period.roll(time::now_ns());
        }
        period.statistics
    }

    /// What a thread's weight comes to among all on a CPU.
    fn effective(&self, weight: u64, cpu: CpuId) -> u64 {
        self.upwards().fold(weight, |weight, group| {
            let Some(books) = &group.books else { return weight };
            let load = books.get_on(cpu).load.load(Ordering::Relaxed).max(weight);
            weight * group.share() / load.max(1)
        })
    }

    /// Its weight as threads have it.
    fn share(&self) -> u64 {
        u64::from(self.weight()) * WEIGHT_NORMAL / u64::from(WEIGHT_DEFAULT)
    }

    /// A thread of the group becomes runnable on a CPU, under that one's queue's lock.
    fn enter(&self, weight: u64, cpu: CpuId) {
        let mut weight = weight;
        for group in self.upwards() {
            let Some(books) = &group.books else { return };
            let books = books.get_on(cpu);
            let before = books.load.load(Ordering::Relaxed);
            books.load.store(before + weight, Ordering::Relaxed);
            if before != 0 {
                return;
            }
            weight = group.share();
            books.counted.store(weight, Ordering::Relaxed);
        }
    }

    /// It is not any more.
    fn leave(&self, weight: u64, cpu: CpuId) {
        let mut weight = weight;
        for group in self.upwards() {
            let Some(books) = &group.books else { return };
            let books = books.get_on(cpu);
            let before = books.load.load(Ordering::Relaxed);
            debug_assert!(before >= weight, "what leaves a group was in its load");
            let after = before.saturating_sub(weight);
            books.load.store(after, Ordering::Relaxed);
            if after != 0 {
                return;
            }
            weight = books.counted.load(Ordering::Relaxed);
        }
    }

    /// When the group or one above has a quota again, if it is held back.
    fn held_until(&self, now_ns: u64) -> Option<u64> {
        let limited = self.upwards().filter(|group| group.is_limited.load(Ordering::Relaxed));
        limited.filter_map(|group| group.period.lock().held_until(now_ns)).max()
    }
}

/// The group that a thread is in, as its entity has it.
pub(crate) type Slot = rcu::ArcSlot<Group>;

/// A thread of a group becomes runnable on a CPU, or stops being so, under that one's queue's lock.
#[cold]
#[inline(never)]
pub(crate) fn count(slot: &Slot, weight: u64, cpu: CpuId, enters: bool) {
    let guard = rcu::read();
    let Some(group) = slot.peek(&guard) else { return };
    if enters {
        group.enter(weight, cpu);
    } else {
        group.leave(weight, cpu);
    }
}

/// Virtual time of what a thread of a group ran.
#[cold]
#[inline(never)]
pub(crate) fn virtual_ns(slot: &Slot, weight: u64, cpu: CpuId, real_ns: u64) -> u64 {
    let guard = rcu::read();
    let effective = slot.peek(&guard).map_or(weight, |group| group.effective(weight, cpu));
    // A group of the least weight with many threads must not make time stand still.
    real_ns.saturating_mul(WEIGHT_NORMAL) / effective.max(1)
}

/// The running thread, which is in a group, has run. It is told to look if the group is held back.
#[cold]
#[inline(never)]
pub(crate) fn charge(thread: &Thread, ran_ns: u64, now_ns: u64) {
    let guard = rcu::read();
    let Some(group) = thread.entity.group.peek(&guard) else { return };
    let limited = group.upwards().filter(|group| group.is_limited.load(Ordering::Relaxed));
    // All are charged, whichever of them holds it back.
    let held = limited.filter(|group| group.period.lock().charge(ran_ns, now_ns)).count();
    if held > 0 {
        thread.note_held_back();
    }
}

/// How long a thread of a group may run before its time is looked at, if there is a quota.
#[cold]
#[inline(never)]
pub(crate) fn slice_ns(slot: &Slot) -> Option<u64> {
    let guard = rcu::read();
    let group = slot.peek(&guard)?;
    let limited = group.upwards().filter(|group| group.is_limited.load(Ordering::Relaxed));
    limited
        .map(|group| {
            let period = group.period.lock();
            period.quota_ns.saturating_sub(period.used_ns).clamp(SLICE_MINIMUM_NS, SLICE_NS)
        })
        .min()
}

/// On the way to user mode: sleeps while the calling thread's group is held back. False if attention is wanted before that is over.
pub fn wait_for_quota() -> bool {
    loop {
        let until_ns = {
            let guard = rcu::read();
            let group = current().entity.group.peek(&guard);
            group.and_then(|group| group.held_until(time::now_ns()))
        };
        let Some(until_ns) = until_ns else { return true };
        if block_interruptible(|| false, Some(until_ns)) == Err(WaitError::Interrupted) {
            return false;
        }
    }
}

/// The weight of a group that competes as a thread of this nice value does.
pub fn weight_of_nice(nice: i32) -> Option<u32> {
    let in_range = (Nice::MIN.value()..=Nice::MAX.value()).contains(&nice);
    let weight = || policy::weight(Policy::Normal, Nice::clamped(nice)) * u64::from(WEIGHT_DEFAULT);
    in_range.then(|| ((weight() + WEIGHT_NORMAL / 2) / WEIGHT_NORMAL).max(1) as u32)
}

/// The nice value whose weight is nearest.
pub fn nice_of_weight(weight: u32) -> i32 {
    let distance = |nice: &i32| weight_of_nice(*nice).unwrap_or(0).abs_diff(weight);
    (Nice::MIN.value()..=Nice::MAX.value()).min_by_key(distance).unwrap_or(0)
}

impl Thread {
    /// Whether it is in a group.
    pub fn has_processor_group(&self) -> bool {
        !self.entity.group.is_empty()
    }

    /// Moves it to a group, or out of any. What is returned refers to the former one: to be dropped without locks.
    #[must_use = "to be dropped without locks"]
    pub fn set_processor_group(&self, group: Option<Arc<Group>>) -> Option<rcu::Replaced<Group>> {
        let mut former = None;
        crate::balance::change_entity(self, |entity| former = entity.group.replace(group));
        former
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: CpuId = CpuId::BOOT;

    fn group(parent: Option<&Arc<Group>>, weight: u32) -> Arc<Group> {
        let group = Group::new(parent.cloned());
        group.set_weight(weight);
        Arc::new(group)
    }

    #[test]
    fn threads_share_their_groups_weight() {
        let (light, heavy) = (group(None, 100), group(None, 300));
        light.enter(1024, CPU);
        heavy.enter(1024, CPU);
        assert_eq!(heavy.effective(1024, CPU), 3 * light.effective(1024, CPU));
        heavy.enter(1024, CPU);
        heavy.enter(1024, CPU);
        assert_eq!(heavy.effective(1024, CPU), light.effective(1024, CPU), "three share what one had");
        light.leave(1024, CPU);
        (0..3).for_each(|_| heavy.leave(1024, CPU));
        heavy.enter(2048, CPU);
        assert_eq!(heavy.effective(2048, CPU), 3072, "nothing is left of who was there before");
        heavy.leave(2048, CPU);
    }

    #[test]
    fn groups_share_the_weight_of_the_one_above() {
        let top = group(None, 100);
        let (one, other) = (group(Some(&top), 100), group(Some(&top), 100));
        one.enter(1024, CPU);
        assert_eq!(one.effective(1024, CPU), 1024);
        other.enter(1024, CPU);
        assert_eq!(one.effective(1024, CPU), 512);
        one.set_weight(300);
        one.leave(1024, CPU);
        assert_eq!(
            other.effective(1024, CPU),
            1024,
            "a weight that has changed is taken off as it was put on"
        );
        other.leave(1024, CPU);
    }

    #[test]
    fn what_was_used_too_much_is_taken_off_the_next_periods() {
        let limited = group(None, 100);
        limited.set_quota_ns(Some(20), 100);
        let mut period = limited.period.lock();
        period.start_ns = 1000;
        assert!(!period.charge(19, 1010));
        assert_eq!(period.held_until(1010), None);
        assert!(period.charge(26, 1050));
        assert_eq!(period.held_until(1060), Some(1100));
        assert_eq!(period.held_until(1150), Some(1200), "25 are owed, and a period has 20");
        assert_eq!(period.held_until(1210), None);
        assert_eq!(period.used_ns, 5);
        assert_eq!(period.statistics.held_ns, 160);
        assert_eq!(period.statistics.held, 2);
    }
}
