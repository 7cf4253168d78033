//! What a process does with each signal (sigaction(2)); shared between processes by CLONE_SIGHAND.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use memory::{OutOfMemory, fallible};
use sync::SpinLock;

use super::set::{DefaultAction, Signal, SignalSet};
use crate::abi::SignalActionWords;

bitflags::bitflags! {
    /// `sa_flags`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct ActionFlags: u64 {
        /// No SIGCHLD when a child stops.
        const NO_CHILD_STOP = 1;
        /// Children leave no zombies.
        const NO_CHILD_WAIT = 2;
        /// The handler wants `siginfo_t`.
        const SIGNAL_INFO = 4;
        /// The restorer field is given.
        const RESTORER = 0x0400_0000;
        /// Run on the alternate stack.
        const ON_STACK = 0x0800_0000;
        /// Restart interrupted calls.
        const RESTART = 0x1000_0000;
        /// Do not block the signal itself in its handler.
        const NO_DEFER = 0x4000_0000;
        /// Back to the default once delivered.
        const RESET_HANDLER = 0x8000_0000;
        /// A flag that programs set to find out which flags are known: never kept.
        const UNSUPPORTED = 0x400;
        /// Keep tag bits of fault addresses (there are none here).
        const EXPOSE_TAG_BITS = 0x800;
    }
}

/// `SIG_DFL`.
pub const DEFAULT: u64 = 0;
/// `SIG_IGN`.
pub const IGNORE: u64 = 1;

/// The disposition of one signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Action {
    /// Address of the handler, or [`DEFAULT`] or [`IGNORE`].
    pub handler: u64,
    /// Its flags.
    pub flags: ActionFlags,
    /// Where the handler returns to.
    pub restorer: u64,
    /// Signals blocked while it runs.
    pub mask: SignalSet,
}

impl Action {
    /// As a program passes it.
    pub fn from_words(words: &SignalActionWords) -> Action {
        Action {
            handler: words.handler,
            flags: ActionFlags::from_bits_truncate(words.flags) - ActionFlags::UNSUPPORTED,
            restorer: words.restorer,
            mask: SignalSet::from_bits(words.mask).blockable(),
        }
    }

    /// As a program reads it.
    pub fn to_words(self) -> SignalActionWords {
        SignalActionWords {
            handler: self.handler,
            flags: self.flags.bits(),
            restorer: self.restorer,
            mask: self.mask.bits(),
        }
    }

    fn ignores(&self, signal: Signal) -> bool {
        self.handler == IGNORE
            || (self.handler == DEFAULT && signal.default_action() == DefaultAction::Ignore)
    }
}

/// All dispositions of a process. They are too many for a kernel stack, where a value is on its way to a place.
pub struct SignalActions {
    /// One for each signal.
    actions: SpinLock<Vec<Action>>,
    // Copies for senders and /proc, so that they need not take the lock; written under it.
    ignored: AtomicU64,
    caught: AtomicU64,
}

impl SignalActions {
    /// Everything at its default.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new() -> Result<SignalActions, OutOfMemory> {
        let mut actions = Vec::new();
        fallible::try_reserve(&mut actions, Signal::COUNT)?;
        actions.resize(Signal::COUNT, Action::default());
        Ok(SignalActions {
            actions: SpinLock::new(actions),
            ignored: AtomicU64::new(default_ignored()),
            caught: AtomicU64::new(0),
        })
    }

    /// A copy: what a forked process starts with.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn duplicate(&self) -> Result<SignalActions, OutOfMemory> {
        let mut copy = Vec::new();
        fallible::try_reserve(&mut copy, Signal::COUNT)?;
        let actions = self.actions.lock();
        copy.extend_from_slice(&actions);
        Ok(SignalActions {
            actions: SpinLock::new(copy),
            ignored: AtomicU64::new(self.ignored.load(Ordering::Relaxed)),
            caught: AtomicU64::new(self.caught.load(Ordering::Relaxed)),
        })
    }

    /// The disposition of a signal.
    pub fn get(&self, signal: Signal) -> Action {
        self.actions.lock()[signal.index()]
    }

    /// Changes the disposition of a signal; returns the old one and whether the signal is now ignored.
    pub fn set(&self, signal: Signal, action: Action) -> (Action, bool) {
        let mut actions = self.actions.lock();
        let old = core::mem::replace(&mut actions[signal.index()], action);
        self.note(signal, &action);
        (old, action.ignores(signal))
    }

    #[inline(always)]
    fn note(&self, signal: Signal, action: &Action) {
        let bit = SignalSet::of(&[signal]).bits();
        let put = |word: &AtomicU64, on: bool| {
            let old = word.load(Ordering::Relaxed);
            word.store(if on { old | bit } else { old & !bit }, Ordering::Relaxed);
        };
        put(&self.ignored, action.ignores(signal));
        put(&self.caught, action.handler > IGNORE);
    }

    /// The disposition to deliver by; SA_RESETHAND takes effect.
    pub fn take_for_delivery(&self, signal: Signal) -> Action {
        let mut actions = self.actions.lock();
        let action = actions[signal.index()];
        if action.handler > IGNORE && action.flags.contains(ActionFlags::RESET_HANDLER) {
            actions[signal.index()].handler = DEFAULT;
            self.note(signal, &Action::default());
        }
        action
    }

    /// Whether the signal is ignored, explicitly or by default.
    pub fn is_ignored(&self, signal: Signal) -> bool {
        self.ignored().contains(signal)
    }

    /// Signals that have no effect, explicitly or by default.
    pub fn ignored(&self) -> SignalSet {
        SignalSet::from_bits(self.ignored.load(Ordering::Relaxed))
    }

    /// Signals set to SIG_IGN.
    pub fn explicitly_ignored(&self) -> SignalSet {
        let mut set = SignalSet::EMPTY;
        for (index, action) in self.actions.lock().iter().enumerate() {
            if action.handler == IGNORE
                && let Some(signal) = Signal::new(index as u64 + 1)
            {
                set.insert(signal);
            }
        }
        set
    }

    /// Signals that have a handler.
    pub fn caught(&self) -> SignalSet {
        SignalSet::from_bits(self.caught.load(Ordering::Relaxed))
    }

    /// execve: handlers go, ignored signals stay ignored. CLONE_CLEAR_SIGHAND likewise.
    pub fn reset_handlers(&self) {
        let mut actions = self.actions.lock();
        let mut ignored = default_ignored();
        for (index, action) in actions.iter_mut().enumerate() {
            let handler = if action.handler == IGNORE { IGNORE } else { DEFAULT };
            if handler == IGNORE {
                ignored |= 1 << index;
            }
            *action = Action { handler, ..Action::default() };
        }
        self.ignored.store(ignored, Ordering::Relaxed);
        self.caught.store(0, Ordering::Relaxed);
    }

    /// The kernel must deliver a fault signal that is blocked or ignored: the default action shall apply.
    pub fn force_default(&self, signal: Signal) {
        self.set(signal, Action::default());
    }
}

const fn default_ignored() -> u64 {
    SignalSet::of(&[Signal::SIGCHLD, Signal::SIGURG, Signal::SIGWINCH]).bits()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handler(address: u64, flags: ActionFlags) -> Action {
        Action { handler: address, flags, ..Action::default() }
    }

    #[test]
    fn exec_keeps_ignored_signals_and_drops_handlers() {
        let actions = SignalActions::new().expect("memory");
        actions.set(Signal::SIGINT, handler(IGNORE, ActionFlags::empty()));
        actions.set(Signal::SIGTERM, handler(0x1000, ActionFlags::empty()));
        assert!(actions.caught().contains(Signal::SIGTERM));
        actions.reset_handlers();
        assert!(actions.is_ignored(Signal::SIGINT));
        assert!(actions.caught().is_empty());
        assert_eq!(actions.get(Signal::SIGTERM), Action::default());
        assert!(actions.is_ignored(Signal::SIGCHLD));
    }

    #[test]
    fn one_shot_handlers_are_delivered_once() {
        let actions = SignalActions::new().expect("memory");
        actions.set(Signal::SIGUSR1, handler(0x1000, ActionFlags::RESET_HANDLER));
        assert_eq!(actions.take_for_delivery(Signal::SIGUSR1).handler, 0x1000);
        assert_eq!(actions.take_for_delivery(Signal::SIGUSR1).handler, DEFAULT);
    }
}
