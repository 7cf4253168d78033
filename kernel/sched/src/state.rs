//! The sleep/wake protocol.
//!
//! States of a thread, one atomic word:
//!
//! | state | meaning | on a run queue or running |
//! |---|---|---|
//! | RUNNING | runs or is runnable | yes |
//! | PREPARING | runs and has announced that it will sleep | yes |
//! | BLOCKED | sleeps | no |
//! | WAKING | a waker is bringing it to a run queue | no |
//! | MOVING | runnable, and on its way to a CPU of its affinity | no |
//! | INSPECTED | sleeps, and somebody looks at its stack | no |
//! | DEAD | never runs again | no |
//!
//! PREPARING and BLOCKED come in two kinds: interruptible (attention wakes it) and uninterruptible.
//!
//! Transitions:
//! - RUNNING → PREPARING: the thread itself, [`StateWord::prepare`], before it checks its condition;
//! - PREPARING → RUNNING: the thread itself when the condition holds ([`StateWord::cancel`]), or a waker
//!   ([`StateWord::claim_wake`]): then the thread stays on its CPU and no run queue is touched;
//! - PREPARING → BLOCKED: the dispatcher, under the run-queue lock ([`StateWord::block`]);
//! - BLOCKED → WAKING: exactly one waker wins; it alone then enqueues the thread, which makes it RUNNING;
//! - BLOCKED → INSPECTED ([`StateWord::begin_inspection`]) → BLOCKED ([`StateWord::end_inspection`]). A waker that comes in between
//!   only leaves a mark, and the inspector wakes the thread in its stead;
//! - RUNNING → MOVING: the dispatcher ([`StateWord::begin_move`]), which enqueues the thread elsewhere after the switch;
//! - RUNNING → DEAD: the thread itself.
//!
//! Why no wake-up is lost: the sleeper stores PREPARING and then reads its condition; the waker makes the condition
//! true and then reads the state, each with a sequentially consistent fence in between. So either the sleeper sees the condition or the
//! waker sees PREPARING or BLOCKED. A preempted thread that is PREPARING is not blocked: only a voluntary switch does that.

#[cfg(not(all(loom, test)))]
use core::sync::atomic::{AtomicU32, Ordering, fence};
#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicU32, Ordering, fence};

const RUNNING: u32 = 0;
const PREPARING: u32 = 1;
const BLOCKED: u32 = 2;
const WAKING: u32 = 3;
const DEAD: u32 = 4;
/// Like WAKING, on the way from a CPU that its affinity no longer allows.
const MOVING: u32 = 5;
/// Like BLOCKED, but only who looks at it may let it go on.
const INSPECTED: u32 = 6;
const KIND: u32 = 0xff;
/// With INSPECTED: it has been woken.
const WOKEN: u32 = 0x200;
const INTERRUPTIBLE: u32 = 0x100;

/// What a thread is doing, as others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Runs or is runnable.
    Running,
    /// Sleeps and can be woken by a signal.
    Sleeping,
    /// Sleeps and cannot be interrupted.
    Uninterruptible,
    /// Has ended.
    Dead,
}

/// What a waker has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeClaim {
    /// Nothing: the thread is not asleep, or not in the way asked for.
    Nothing,
    /// Nothing more: the thread had not gone to sleep yet and won't.
    Kept,
    /// Enqueue it: this waker alone does. Says whether it slept uninterruptibly.
    Enqueue {
        /// Whether the sleep was uninterruptible.
        uninterruptible: bool,
    },
}

/// Whether a thread can be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Inspection {
    /// It sleeps until the inspection ends.
    Begun,
    /// Somebody else looks at it, or it was just woken.
    Again,
    /// It runs or is about to, or is dead.
    Awake,
}

/// The state word of one thread.
pub(crate) struct StateWord(AtomicU32);

impl StateWord {
    /// A new thread: as if a waker had claimed it, for its first enqueueing.
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(WAKING))
    }

    /// A thread that runs already.
    pub(crate) fn running() -> Self {
        Self(AtomicU32::new(RUNNING))
    }

    /// Announces a sleep; called by the thread itself, before it checks what it waits for.
    #[inline]
    pub(crate) fn prepare(&self, interruptible: bool) {
        debug_assert_ne!(
            self.0.load(Ordering::Relaxed) & KIND,
            BLOCKED,
            "only a running thread prepares to sleep"
        );
        let flag = if interruptible { INTERRUPTIBLE } else { 0 };
        self.0.store(PREPARING | flag, Ordering::Relaxed);
        // The announcement is before the check of the condition; pairs with the fence in `claim_wake`.
        fence(Ordering::SeqCst);
    }

    /// Takes the announcement back.
    #[inline]
    pub(crate) fn cancel(&self) {
        // A waker's PREPARING → RUNNING may come at the same time; both mean RUNNING.
        self.0.store(RUNNING, Ordering::Relaxed);
    }

    /// A voluntary switch: goes to sleep unless woken meanwhile. Under the run-queue lock. Returns whether the
    /// thread leaves the run queue, and if so whether uninterruptibly.
    #[inline]
    pub(crate) fn block(&self) -> Option<Blocked> {
        let state = self.0.load(Ordering::Relaxed);
        match state & KIND {
            PREPARING => {
                let blocked = BLOCKED | (state & INTERRUPTIBLE);
                // Release: what the thread did before is visible to its waker.
                self.0.compare_exchange(state, blocked, Ordering::Release, Ordering::Relaxed).ok()?;
                Some(Blocked { uninterruptible: state & INTERRUPTIBLE == 0, dead: false })
            }
            DEAD => Some(Blocked { uninterruptible: false, dead: true }),
            _ => None,
        }
    }

    /// Tries to wake the thread; `interruptible_only` leaves uninterruptible sleeps alone.
    #[inline]
    pub(crate) fn claim_wake(&self, interruptible_only: bool) -> WakeClaim {
        // The condition that the waker made true is before the look at the state.
        fence(Ordering::SeqCst);
        let mut state = self.0.load(Ordering::Relaxed);
        loop {
            if interruptible_only && state & INTERRUPTIBLE == 0 {
                return WakeClaim::Nothing;
            }
            let (new, claim) = match state & KIND {
                PREPARING => (RUNNING, WakeClaim::Kept),
                BLOCKED => (WAKING, WakeClaim::Enqueue { uninterruptible: state & INTERRUPTIBLE == 0 }),
                INSPECTED if state & WOKEN == 0 => (state | WOKEN, WakeClaim::Kept),
                _ => return WakeClaim::Nothing,
            };
            // Acquire: pairs with the Release in `block`.
            match self.0.compare_exchange_weak(state, new, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return claim,
                Err(now) => state = now,
            }
        }
    }

    /// Keeps a sleeping thread asleep while the caller looks at it. Not for long: other inspectors spin.
    pub(crate) fn begin_inspection(&self) -> Inspection {
        let state = self.0.load(Ordering::Relaxed);
        match state & KIND {
            // Acquire: pairs with the Release in `block`; what the thread did before is seen.
            BLOCKED => {
                let held = INSPECTED | (state & INTERRUPTIBLE);
                match self.0.compare_exchange(state, held, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => Inspection::Begun,
                    Err(_) => Inspection::Again,
                }
            }
            INSPECTED => Inspection::Again,
            _ => Inspection::Awake,
        }
    }

    /// Ends what [`StateWord::begin_inspection`] began. If the thread was woken meanwhile the caller enqueues it.
    pub(crate) fn end_inspection(&self) -> WakeClaim {
        let state = self.0.load(Ordering::Relaxed);
        debug_assert_eq!(state & KIND, INSPECTED, "only its inspector lets a thread go");
        let uninterruptible = state & INTERRUPTIBLE == 0;
        let asleep = BLOCKED | (state & INTERRUPTIBLE);
        // Release: the looks at the thread are before whoever wakes it; Acquire: pairs with the marking waker's.
        if state & WOKEN == 0
            && self.0.compare_exchange(state, asleep, Ordering::Release, Ordering::Relaxed).is_ok()
        {
            return WakeClaim::Nothing;
        }
        self.0.swap(WAKING, Ordering::AcqRel);
        WakeClaim::Enqueue { uninterruptible }
    }

    /// A thread that stays runnable leaves its run queue for another CPU. Under the run-queue lock. False if it
    /// has announced a sleep: then it moves when it wakes.
    pub(crate) fn begin_move(&self) -> bool {
        self.0.compare_exchange(RUNNING, MOVING, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    pub(crate) fn is_moving(&self) -> bool {
        self.0.load(Ordering::Relaxed) == MOVING
    }

    /// The waker has put the thread on a run queue; under that queue's lock.
    #[inline]
    pub(crate) fn enqueued(&self) {
        debug_assert!(
            matches!(self.0.load(Ordering::Relaxed), WAKING | MOVING),
            "only who has claimed the thread enqueues it"
        );
        self.0.store(RUNNING, Ordering::Relaxed);
    }

    /// The thread ends; called by itself.
    pub(crate) fn die(&self) {
        self.0.store(DEAD, Ordering::Relaxed);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.0.load(Ordering::Relaxed) == DEAD
    }

    pub(crate) fn get(&self) -> RunState {
        let state = self.0.load(Ordering::Relaxed);
        match state & KIND {
            DEAD => RunState::Dead,
            BLOCKED | INSPECTED if state & INTERRUPTIBLE != 0 => RunState::Sleeping,
            BLOCKED | INSPECTED => RunState::Uninterruptible,
            _ => RunState::Running,
        }
    }
}

/// A thread that has just left its run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocked {
    pub(crate) uninterruptible: bool,
    pub(crate) dead: bool,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn wake_before_the_switch_keeps_the_thread_running() {
        let state = StateWord::running();
        state.prepare(true);
        assert_eq!(state.claim_wake(false), WakeClaim::Kept);
        assert_eq!(state.block(), None);
    }

    #[test]
    fn only_one_waker_enqueues() {
        let state = StateWord::running();
        state.prepare(false);
        assert!(state.block().is_some());
        assert_eq!(state.claim_wake(false), WakeClaim::Enqueue { uninterruptible: true });
        assert_eq!(state.claim_wake(false), WakeClaim::Nothing);
        state.enqueued();
        assert_eq!(state.get(), RunState::Running);
    }

    #[test]
    fn who_inspects_a_thread_wakes_it_in_its_wakers_stead() {
        let state = StateWord::running();
        assert_eq!(state.begin_inspection(), Inspection::Awake);
        state.prepare(true);
        assert_eq!(state.begin_inspection(), Inspection::Awake);
        assert!(state.block().is_some());
        assert_eq!(state.begin_inspection(), Inspection::Begun);
        assert_eq!((state.begin_inspection(), state.get()), (Inspection::Again, RunState::Sleeping));
        assert_eq!(state.end_inspection(), WakeClaim::Nothing);
        assert_eq!(state.begin_inspection(), Inspection::Begun);
        assert_eq!([state.claim_wake(true), state.claim_wake(false)], [WakeClaim::Kept, WakeClaim::Nothing]);
        assert_eq!(state.end_inspection(), WakeClaim::Enqueue { uninterruptible: false });
        state.enqueued();
        assert_eq!(state.get(), RunState::Running);
    }

    #[test]
    fn attention_leaves_uninterruptible_sleepers_alone() {
        let state = StateWord::running();
        state.prepare(false);
        assert_eq!(state.claim_wake(true), WakeClaim::Nothing);
        assert!(state.block().is_some());
        assert_eq!(state.claim_wake(true), WakeClaim::Nothing);
        assert_eq!(state.get(), RunState::Uninterruptible);
    }

    #[test]
    fn preparing_twice_is_harmless() {
        let state = StateWord::running();
        state.prepare(true);
        assert_eq!(state.claim_wake(false), WakeClaim::Kept);
        state.prepare(true);
        state.cancel();
        assert_eq!(state.block(), None);
    }
}

/// Every interleaving and every allowed reordering: `RUSTFLAGS="--cfg loom" cargo test -p sched --lib models`.
#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;
    use loom::thread;

    /// One sleeper that checks its condition once, and wakers that make it true. With several wakers only so many
    /// preemptions are tried: all of them would take hours.
    fn sleeper_against(wakers: usize, preemptions: Option<usize>) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = preemptions;
        model.check(move || {
            let state = Arc::new(StateWord::running());
            let condition = Arc::new(AtomicBool::new(false));
            let wakers: Vec<_> = (0..wakers)
                .map(|_| {
                    let (state, condition) = (state.clone(), condition.clone());
                    thread::spawn(move || {
                        condition.store(true, Ordering::Relaxed);
                        state.claim_wake(false)
                    })
                })
                .collect();
            state.prepare(false);
            let blocked = if condition.load(Ordering::Relaxed) {
                state.cancel();
                false
            } else {
                state.block().is_some()
            };
            let claims: Vec<_> = wakers.into_iter().map(|waker| waker.join().unwrap()).collect();
            let enqueued = claims.iter().filter(|claim| matches!(claim, WakeClaim::Enqueue { .. })).count();
            assert_eq!(enqueued, usize::from(blocked), "a blocked sleeper is enqueued by exactly one waker");
        });
    }

    #[test]
    fn no_wake_up_is_lost() {
        sleeper_against(1, None);
    }

    #[test]
    fn two_wakers_enqueue_once() {
        sleeper_against(2, Some(1));
    }

    #[test]
    fn no_wake_up_is_lost_to_an_inspector() {
        loom::model(|| {
            let state = Arc::new(StateWord::running());
            let condition = Arc::new(AtomicBool::new(false));
            let waker = {
                let (state, condition) = (state.clone(), condition.clone());
                thread::spawn(move || {
                    condition.store(true, Ordering::Relaxed);
                    state.claim_wake(false)
                })
            };
            let inspector = {
                let state = state.clone();
                thread::spawn(move || match state.begin_inspection() {
                    Inspection::Begun => state.end_inspection(),
                    _ => WakeClaim::Nothing,
                })
            };
            state.prepare(true);
            let blocked = if condition.load(Ordering::Relaxed) {
                state.cancel();
                false
            } else {
                state.block().is_some()
            };
            let claims = [waker.join().unwrap(), inspector.join().unwrap()];
            let enqueued = claims.iter().filter(|claim| matches!(claim, WakeClaim::Enqueue { .. })).count();
            assert_eq!(
                enqueued,
                usize::from(blocked),
                "the sleeper is enqueued once, by its waker or its inspector"
            );
        });
    }
}
