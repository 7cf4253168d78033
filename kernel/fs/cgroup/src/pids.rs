//! The controller `pids`: how many threads there may be.
//!
//! What counts are threads that live, and processes that were not waited for. Each group counts what is in it and below, whether the controller is
//! handed on or not, so that a limit that comes later finds the count; moving processes into a group is never refused.

use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use memory::per_cpu::Counter;

use crate::group::Group;
use crate::notice::Notice;

/// The greatest limit that can be written; beyond it there can be no process numbers.
pub(crate) const LIMIT_MAX: u64 = 1 << 22;

/// A group's count.
pub(crate) struct Pids {
    current: Counter,
    max: AtomicI64,
    /// Forks refused to members.
    denied: AtomicU64,
    /// Of `pids.events`.
    pub(crate) events: Notice,
}

/// A limit was reached.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Pids {
    pub(crate) fn new() -> Self {
        Self {
            current: Counter::new(Counter::BATCH),
            max: AtomicI64::new(i64::MAX),
            denied: AtomicU64::new(0),
            events: Notice::default(),
        }
    }

    /// How many there are.
    pub(crate) fn current(&self) -> u64 {
        self.current.exact().max(0).unsigned_abs()
    }

    /// The limit, if there is one.
    pub(crate) fn max(&self) -> Option<u64> {
        match self.max.load(Ordering::Relaxed) {
            i64::MAX => None,
            max => Some(max.unsigned_abs()),
        }
    }

    pub(crate) fn set_max(&self, max: Option<u64>) {
        let max = max.and_then(|max| i64::try_from(max).ok()).unwrap_or(i64::MAX);
        self.max.store(max, Ordering::Relaxed);
    }

    pub(crate) fn denied(&self) -> u64 {
        self.denied.load(Ordering::Relaxed)
    }
}

/// Counts one thread in a group and those above, if their limits permit.
pub(crate) fn claim(group: &Group) -> Result<(), Full> {
    for (index, above) in group.limited().enumerate() {
        let pids = &above.pids;
        if !pids.current.try_add(1, pids.max.load(Ordering::Relaxed)) {
            group.limited().take(index).for_each(|counted| counted.pids.current.decrement());
            return Err(Full);
        }
    }
    Ok(())
}

/// Counts threads that come from elsewhere, whatever the limit.
pub(crate) fn add(group: &Group, threads: u32) {
    group.limited().for_each(|above| above.pids.current.add(i64::from(threads)));
}

/// Takes threads off the count.
pub(crate) fn release(group: &Group, threads: u32) {
    group.limited().for_each(|above| above.pids.current.add(-i64::from(threads)));
}

/// Whether one more thread would exceed a limit.
pub(crate) fn is_full(group: &Group) -> bool {
    group.limited().any(|above| above.pids.max().is_some_and(|max| above.pids.current() >= max))
}

/// A fork was refused to a member: the nearest group that the controller was handed on to is told.
pub(crate) fn deny(group: &Group) {
    let counted =
        group.limited().find(|above| above.available().contains(crate::controllers::Controllers::PIDS));
    if let Some(group) = counted {
        group.pids.denied.fetch_add(1, Ordering::Relaxed);
        crate::interface::report_change(group, crate::interface::PIDS_EVENTS);
        group.pids.events.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    #[test]
    fn a_limit_holds_for_all_below() {
        let outer = tree::make(tree::root(), b"pids", (0, 0), |group| Ok(group.clone())).expect("memory");
        let inner = tree::make(&outer, b"inner", (0, 0), |group| Ok(group.clone())).expect("memory");
        outer.pids.set_max(Some(2));
        assert_eq!(claim(&inner), Ok(()));
        assert!(!is_full(&inner));
        assert_eq!(claim(&outer), Ok(()));
        assert!(is_full(&inner));
        assert_eq!(claim(&inner), Err(Full));
        assert_eq!((inner.pids.current(), outer.pids.current()), (1, 2), "what was refused is not counted");
        add(&inner, 3);
        assert_eq!(outer.pids.current(), 5, "moving is not refused");
        release(&inner, 4);
        release(&outer, 1);
        assert_eq!((inner.pids.current(), outer.pids.current()), (0, 0));
        tree::remove(&inner).expect("empty");
        tree::remove(&outer).expect("empty");
    }
}
