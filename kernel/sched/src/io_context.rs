//! Whose a thread's transfers are, and how urgent: its I/O context.
//!
//! What shares out a disk needs to know whose each transfer is, and threads may be one for it (`CLONE_IO`). So transfers carry an *owner*, a number
//! that never comes again: that of the thread, or of the one that first needed the context which the thread shares. Nobody who has
//! kept an owner's number can take another thread for it when that one has ended, and nothing needs to be told of the end.
//!
//! A thread has no context at first, and most never have one: it is made when a priority is set, or inherited with one, and stays until
//! the thread is gone. Then transfers are as urgent as the thread itself: see [`IoPriority::of`]. Which of all this a child gets, `IoSlot::inherited` says.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU16, Ordering};

use memory::OutOfMemory;
use sync::Once;

use crate::policy::{Nice, Policy};

/// What counts first of an I/O priority, from the most urgent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IoClass {
    /// Before all others.
    RealTime,
    /// As nearly all are.
    BestEffort,
    /// When nobody else wants the disk.
    Idle,
}

/// How urgent transfers are: the word of `ioprio_set(2)`, a class in bits 13 to 15 and a level below.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoPriority(u16);

impl IoPriority {
    /// As the thread's policy and nice value say.
    pub const UNSET: IoPriority = IoPriority(0);
    /// Levels of a class.
    pub const LEVELS: u16 = 8;

    const CLASS_SHIFT: u32 = 13;
    const REAL_TIME: u16 = 1;
    const BEST_EFFORT: u16 = 2;
    const IDLE: u16 = 3;

    /// The word as programs write it; whether it is one, they who take it from programs look.
    pub const fn from_word(word: u16) -> Self {
        Self(word)
    }

    /// The word as programs read it.
    pub const fn word(self) -> u16 {
        self.0
    }

    /// A level of a class.
    pub const fn new(class: IoClass, level: u16) -> Self {
        let class = match class {
            IoClass::RealTime => Self::REAL_TIME,
            IoClass::BestEffort => Self::BEST_EFFORT,
            IoClass::Idle => Self::IDLE,
        };
        Self((class << Self::CLASS_SHIFT) | (level % Self::LEVELS))
    }

    /// Whether a class was chosen.
    pub const fn is_set(self) -> bool {
        self.0 >> Self::CLASS_SHIFT != 0
    }

    /// The class, of which there is one even if none was chosen.
    pub const fn class(self) -> IoClass {
        match self.0 >> Self::CLASS_SHIFT {
            Self::REAL_TIME => IoClass::RealTime,
            Self::IDLE => IoClass::Idle,
            _ => IoClass::BestEffort,
        }
    }

    /// What a thread has that chose none: the class by its policy, the level by its nice value.
    pub fn of(policy: Policy, nice: Nice) -> Self {
        let class = match policy {
            Policy::Idle => IoClass::Idle,
            policy if policy.is_realtime() => IoClass::RealTime,
            _ => IoClass::BestEffort,
        };
        // 40 nice values share 8 levels.
        Self::new(class, (nice.value() - Nice::MIN.value()) as u16 / 5)
    }
}

/// See the theory of this file.
pub struct IoContext {
    owner: u64,
    /// Written by anybody who may.
    priority: AtomicU16,
}

impl IoContext {
    fn new(owner: u64, priority: IoPriority) -> Result<Arc<Self>, OutOfMemory> {
        memory::fallible::try_arc(Self { owner, priority: AtomicU16::new(priority.word()) })
    }

    fn priority(&self) -> IoPriority {
        IoPriority(self.priority.load(Ordering::Relaxed))
    }
}

/// A thread's I/O context, if it has one.
#[derive(Default)]
pub struct IoSlot(Once<Arc<IoContext>>);

impl IoSlot {
    /// A slot that has that context already.
    pub(crate) fn with(context: Option<Arc<IoContext>>) -> Self {
        let slot = Self::default();
        if let Some(context) = context {
            slot.0.call_once(|| context);
        }
        slot
    }

    /// The owner of transfers of the thread with this number.
    pub(crate) fn owner(&self, thread: u64) -> u64 {
        self.0.get().map_or(thread, |context| context.owner)
    }

    /// The priority that was set or inherited.
    pub(crate) fn priority(&self) -> IoPriority {
        self.0.get().map_or(IoPriority::UNSET, |context| context.priority())
    }

    /// Sets the priority of all who share the context, which is made if there is none.
    pub(crate) fn set_priority(&self, thread: u64, priority: IoPriority) -> Result<(), OutOfMemory> {
        let context = match self.0.get() {
            Some(context) => context,
            None => {
                let fresh = IoContext::new(thread, priority)?;
                self.0.call_once(|| fresh)
            }
        };
        context.priority.store(priority.word(), Ordering::Relaxed);
        Ok(())
    }

    /// What a child begins with: the same context if it `shares` it; else one of its own if a priority is set, of which it is told the
    /// number `owner` is, that nobody else has; else none.
    pub(crate) fn inherited(&self, shares: bool, owner: u64) -> Result<Option<Arc<IoContext>>, OutOfMemory> {
        match self.0.get() {
            Some(context) if shares => Ok(Some(context.clone())),
            Some(context) if context.priority().is_set() => {
                IoContext::new(owner, context.priority()).map(Some)
            }
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_chose_nothing_is_as_urgent_as_it_runs() {
        let of = |policy, nice| IoPriority::of(policy, Nice::clamped(nice));
        assert_eq!(of(Policy::Normal, 0), IoPriority::new(IoClass::BestEffort, 4));
        assert_eq!(of(Policy::Batch, -20), IoPriority::new(IoClass::BestEffort, 0));
        assert_eq!(of(Policy::Normal, 19), IoPriority::new(IoClass::BestEffort, 7));
        assert_eq!(of(Policy::Fifo(3), 0), IoPriority::new(IoClass::RealTime, 4));
        assert_eq!(of(Policy::Idle, 0), IoPriority::new(IoClass::Idle, 4));
        assert_eq!(IoPriority::UNSET.class(), IoClass::BestEffort);
    }

    #[test]
    fn who_shares_a_context_shares_owner_and_priority() {
        let parent = IoSlot::default();
        assert!(parent.inherited(true, 8).unwrap().is_none(), "there is nothing to share yet");
        let urgent = IoPriority::new(IoClass::RealTime, 2);
        parent.set_priority(7, urgent).unwrap();
        let thread = IoSlot::with(parent.inherited(true, 8).unwrap());
        assert_eq!((thread.owner(8), thread.priority()), (7, urgent));
        let idle = IoPriority::new(IoClass::Idle, 0);
        thread.set_priority(8, idle).unwrap();
        assert_eq!(parent.priority(), idle);
    }

    #[test]
    fn who_does_not_share_inherits_the_priority_alone() {
        let parent = IoSlot::default();
        let urgent = IoPriority::new(IoClass::RealTime, 2);
        parent.set_priority(7, urgent).unwrap();
        let child = IoSlot::with(parent.inherited(false, 8).unwrap());
        assert_eq!((child.owner(8), child.priority()), (8, urgent));
        child.set_priority(8, IoPriority::UNSET).unwrap();
        assert_eq!(parent.priority(), urgent);
        assert!(child.inherited(false, 9).unwrap().is_none(), "what was taken back is not inherited");
    }
}
