//! Signal numbers and sets of them.

use core::fmt;
use core::ops::{BitAnd, BitOr, Not};

/// The number of a signal, 1 to 64.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(u8);

/// What a signal does to a process that neither handles nor ignores it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DefaultAction {
    /// Nothing.
    Ignore,
    /// The process ends.
    Terminate,
    /// The process ends, its status saying that a core would have been dumped.
    Core,
    /// All threads of the process stop.
    Stop,
    /// A stopped process continues (done when the signal is sent); else nothing.
    Continue,
}

macro_rules! signals {
    ($($name:ident = $number:literal,)*) => {
        $(#[doc = concat!("`", stringify!($name), "`")] pub const $name: Signal = Signal($number);)*
    };
}

impl Signal {
    signals! {
        SIGHUP = 1, SIGINT = 2, SIGQUIT = 3, SIGILL = 4, SIGTRAP = 5, SIGABRT = 6, SIGBUS = 7, SIGFPE = 8, SIGKILL = 9,
        SIGUSR1 = 10, SIGSEGV = 11, SIGUSR2 = 12, SIGPIPE = 13, SIGALRM = 14, SIGTERM = 15, SIGSTKFLT = 16, SIGCHLD = 17,
        SIGCONT = 18, SIGSTOP = 19, SIGTSTP = 20, SIGTTIN = 21, SIGTTOU = 22, SIGURG = 23, SIGXCPU = 24, SIGXFSZ = 25,
        SIGVTALRM = 26, SIGPROF = 27, SIGWINCH = 28, SIGIO = 29, SIGPWR = 30, SIGSYS = 31, SIGRTMIN = 32,
    }

    /// How many signals there are.
    pub const COUNT: usize = 64;

    /// The signal of this number, if there is one.
    pub const fn new(number: u64) -> Option<Signal> {
        if number >= 1 && number <= 64 { Some(Signal(number as u8)) } else { None }
    }

    /// Its number.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Its place in arrays that start with signal 1.
    pub const fn index(self) -> usize {
        self.0 as usize - 1
    }

    /// Whether every instance of it is queued (signals from 32 on).
    pub const fn is_real_time(self) -> bool {
        self.0 >= 32
    }

    /// What happens when it is neither handled nor ignored.
    pub const fn default_action(self) -> DefaultAction {
        match self {
            Signal::SIGCHLD | Signal::SIGURG | Signal::SIGWINCH => DefaultAction::Ignore,
            Signal::SIGCONT => DefaultAction::Continue,
            Signal::SIGSTOP | Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU => DefaultAction::Stop,
            Signal::SIGQUIT
            | Signal::SIGILL
            | Signal::SIGTRAP
            | Signal::SIGABRT
            | Signal::SIGBUS
            | Signal::SIGFPE
            | Signal::SIGSEGV
            | Signal::SIGXCPU
            | Signal::SIGXFSZ
            | Signal::SIGSYS => DefaultAction::Core,
            _ => DefaultAction::Terminate,
        }
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "signal {}", self.0)
    }
}

/// A set of signals; bit n-1 stands for signal n, as in `sigset_t`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SignalSet(u64);

impl SignalSet {
    /// The empty set.
    pub const EMPTY: SignalSet = SignalSet(0);
    /// All signals.
    pub const ALL: SignalSet = SignalSet(u64::MAX);
    /// SIGKILL and SIGSTOP, which can be neither blocked nor handled.
    pub const UNBLOCKABLE: SignalSet = SignalSet::of(&[Signal::SIGKILL, Signal::SIGSTOP]);
    /// The job-control signals that stop a process.
    pub const STOP: SignalSet =
        SignalSet::of(&[Signal::SIGSTOP, Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU]);
    /// Signals that the thread's own instruction caused; delivered before others.
    pub const SYNCHRONOUS: SignalSet = SignalSet::of(&[
        Signal::SIGSEGV,
        Signal::SIGBUS,
        Signal::SIGILL,
        Signal::SIGTRAP,
        Signal::SIGFPE,
        Signal::SIGSYS,
    ]);

    /// The set with these members.
    pub const fn of(signals: &[Signal]) -> SignalSet {
        let mut bits = 0;
        let mut i = 0;
        while i < signals.len() {
            bits |= 1 << (signals[i].0 - 1);
            i += 1;
        }
        SignalSet(bits)
    }

    /// The set of a `sigset_t`.
    pub const fn from_bits(bits: u64) -> SignalSet {
        SignalSet(bits)
    }

    /// As a `sigset_t`.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The set as a blocked mask: without what cannot be blocked.
    pub const fn blockable(self) -> SignalSet {
        SignalSet(self.0 & !Self::UNBLOCKABLE.0)
    }

    /// Whether it has no member.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the signal is a member.
    pub const fn contains(self, signal: Signal) -> bool {
        self.0 & (1 << (signal.0 - 1)) != 0
    }

    /// Makes the signal a member.
    pub fn insert(&mut self, signal: Signal) {
        self.0 |= 1 << (signal.0 - 1);
    }

    /// Takes the signal out.
    pub fn remove(&mut self, signal: Signal) {
        self.0 &= !(1 << (signal.0 - 1));
    }

    /// The member with the lowest number.
    pub const fn first(self) -> Option<Signal> {
        if self.0 == 0 { None } else { Some(Signal(self.0.trailing_zeros() as u8 + 1)) }
    }
}

impl BitAnd for SignalSet {
    type Output = SignalSet;
    fn bitand(self, other: SignalSet) -> SignalSet {
        SignalSet(self.0 & other.0)
    }
}

impl BitOr for SignalSet {
    type Output = SignalSet;
    fn bitor(self, other: SignalSet) -> SignalSet {
        SignalSet(self.0 | other.0)
    }
}

impl Not for SignalSet {
    type Output = SignalSet;
    fn not(self) -> SignalSet {
        SignalSet(!self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_follow_the_sigset_layout() {
        let mut set = SignalSet::EMPTY;
        set.insert(Signal::SIGKILL);
        assert_eq!(set.bits(), 0x100);
        assert_eq!(set.first(), Some(Signal::SIGKILL));
        assert!(set.blockable().is_empty());
        assert_eq!(Signal::new(0), None);
        assert_eq!(Signal::new(65), None);
    }
}
