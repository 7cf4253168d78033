//! Processor time of groups (`cpu.stat`): nothing is counted while processes run. What a group has used is what its members say when somebody
//! asks, less what they had used before they came, and what those took along who have left.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use vfs::Result;

use crate::freezer;
use crate::group::Group;
use crate::membership::Membership;
use crate::programs;

/// Time in user mode and in the kernel, in nanoseconds.
pub(crate) type Times = (u64, u64);

/// What those have used who are no members any more, and groups below that are gone.
#[derive(Default)]
pub(crate) struct Ended {
    user_ns: AtomicU64,
    system_ns: AtomicU64,
    /// What was told last: a member that leaves while others are asked is missed once, and time does not go back.
    told_user_ns: AtomicU64,
    told_system_ns: AtomicU64,
}

impl Ended {
    pub(crate) fn add(&self, times: Times) {
        self.user_ns.fetch_add(times.0, Ordering::Relaxed);
        self.system_ns.fetch_add(times.1, Ordering::Relaxed);
    }

    pub(crate) fn add_group(&self, other: &Ended) {
        self.add(other.times());
    }

    fn times(&self) -> Times {
        (self.user_ns.load(Ordering::Relaxed), self.system_ns.load(Ordering::Relaxed))
    }

    fn tell(&self, times: Times) -> Times {
        let highest = |told: &AtomicU64, now: u64| told.fetch_max(now, Ordering::Relaxed).max(now);
        (highest(&self.told_user_ns, times.0), highest(&self.told_system_ns, times.1))
    }
}

/// What a process had used when it came into its group.
pub(crate) struct Before {
    user_ns: AtomicU64,
    system_ns: AtomicU64,
}

impl Before {
    pub(crate) const fn new() -> Self {
        Self { user_ns: AtomicU64::new(0), system_ns: AtomicU64::new(0) }
    }

    pub(crate) fn set(&self, times: Times) {
        self.user_ns.store(times.0, Ordering::Relaxed);
        self.system_ns.store(times.1, Ordering::Relaxed);
    }

    /// What it has used since.
    pub(crate) fn since(&self, now: Times) -> Times {
        let (user, system) = (self.user_ns.load(Ordering::Relaxed), self.system_ns.load(Ordering::Relaxed));
        (now.0.saturating_sub(user), now.1.saturating_sub(system))
    }
}

impl Membership {
    /// It has come from a group, and had used so much when it left.
    pub(crate) fn change_account(&self, from: &Group, used: Times) {
        if !from.is_root() {
            from.ended.add(self.before.since(used));
        }
        self.before.set(used);
    }
}

/// What a group and those below have used.
pub(crate) fn of(group: &Arc<Group>) -> Result<Times> {
    if group.is_root() {
        return Ok(programs::get().map_or((0, 0), |programs| programs.processor_time_ns()));
    }
    let (mut user, mut system) = (0, 0);
    let mut add = |times: Times| {
        user += times.0;
        system += times.1;
    };
    for group in freezer::subtree(group)? {
        add(group.ended.times());
        for member in freezer::members(&group)? {
            add(member.membership().before.since(member.processor_time_ns()));
        }
    }
    Ok(group.ended.tell((user, system)))
}
