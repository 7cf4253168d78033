//! Signals that were sent and not yet taken.
//!
//! A [`Pending`] set belongs to a process (shared by its threads) or to one thread. A standard signal is pending at most once; a
//! real-time signal as often as it was sent. Each instance with facts is one entry of the queue and counts against the sender's
//! RLIMIT_SIGPENDING; when there is no room for an entry, a standard signal is still pending, but bare (as if sent by the
//! kernel without facts), and a real-time one is refused with EAGAIN. The queue is allocated on first use, because most threads
//! never have a signal pending.

use alloc::boxed::Box;
use alloc::sync::Arc;

use smallvec::SmallVec;

use super::information::SignalInformation;
use super::set::{Signal, SignalSet};
use crate::credentials::account::Account;

/// One entry's claim on its sender's limit; given back on drop.
#[derive(Debug)]
pub struct Charge(Arc<Account>);

impl Charge {
    /// Claims one entry of at most `limit`; `None` when they are used up.
    pub fn claim(account: &Arc<Account>, limit: u64) -> Option<Charge> {
        account.claim_signal(limit).then(|| Charge(account.clone()))
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.0.release_signal();
    }
}

#[derive(Debug)]
struct Entry {
    information: SignalInformation,
    _charge: Option<Charge>,
}

/// The signal cannot be queued: limit reached or out of memory.
#[derive(Debug, PartialEq, Eq)]
pub struct QueueFull;

/// Pending signals of a process or a thread. The owner's lock protects it.
#[derive(Debug, Default)]
pub struct Pending {
    set: SignalSet,
    /// Behind a box, so that a thread pays 8 bytes for a queue it seldom has.
    queue: Option<Box<Queue>>,
}

/// The entries, in the order they came: seldom more than one, which is in the same allocation. In cache lines of its own: its
/// owner writes it with each signal.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Queue(SmallVec<[Entry; 1]>);

impl Pending {
    /// Nothing pending.
    pub const fn new() -> Pending {
        Pending { set: SignalSet::EMPTY, queue: None }
    }

    /// Which signals are pending.
    pub fn set(&self) -> SignalSet {
        self.set
    }

    /// Adds a signal. `charge` is the sender's claim, `None` when its limit is reached (kernel signals may do without).
    /// Returns whether the signal is newly pending (a standard one that already was is merged).
    pub fn add(&mut self, information: SignalInformation, charge: Option<Charge>) -> Result<bool, QueueFull> {
        let signal = information.signal;
        if !signal.is_real_time() && self.set.contains(signal) {
            return Ok(false);
        }
        let may_queue = charge.is_some() || (information.is_from_kernel() && !signal.is_real_time());
        let queued = may_queue && self.push(Entry { information, _charge: charge });
        // A real-time signal sent with kill() may lose its facts, but one sent with sigqueue() may not.
        if !queued && signal.is_real_time() && information.code != super::information::SI_USER {
            return Err(QueueFull);
        }
        self.set.insert(signal);
        Ok(true)
    }

    fn push(&mut self, entry: Entry) -> bool {
        if self.queue.is_none() {
            match memory::fallible::try_box(Queue::default()) {
                Ok(queue) => self.queue = Some(queue),
                Err(_) => return false,
            }
        }
        let Some(Queue(queue)) = self.queue.as_deref_mut() else { return false };
        if memory::fallible::fail_point().is_err() || queue.try_reserve(1).is_err() {
            return false;
        }
        queue.push(entry);
        true
    }

    /// Takes the next signal that `blocked` does not hold back: synchronous ones first, then by number; instances of the same
    /// signal in the order they were sent.
    pub fn take(&mut self, blocked: SignalSet) -> Option<SignalInformation> {
        let candidates = self.set & !blocked;
        let signal = (candidates & SignalSet::SYNCHRONOUS).first().or(candidates.first())?;
        Some(self.take_signal(signal))
    }

    fn take_signal(&mut self, signal: Signal) -> SignalInformation {
        debug_assert!(self.set.contains(signal));
        let mut found = None;
        let mut more = false;
        if let Some(Queue(queue)) = self.queue.as_deref_mut() {
            if let Some(first) = queue.iter().position(|entry| entry.information.signal == signal) {
                found = Some(queue.remove(first).information);
                more = queue[first..].iter().any(|entry| entry.information.signal == signal);
            }
            if queue.is_empty() {
                self.queue = None;
            }
        }
        if !more {
            self.set.remove(signal);
        }
        // No entry: there was no room when it was sent.
        found.unwrap_or(SignalInformation::from_process(signal, super::information::SI_USER, 0, 0))
    }

    /// A timer expired again: if its signal is still pending, the overrun count grows. Returns whether that was so. A
    /// standard signal is pending once, whoever sent it.
    pub fn add_overrun(&mut self, signal: Signal, id: u32, more: u32) -> bool {
        let mut found = !signal.is_real_time() && self.set.contains(signal);
        let entries = self.queue.iter_mut().flat_map(|queue| queue.0.iter_mut());
        for entry in entries.filter(|entry| entry.information.signal == signal) {
            let information = &mut entry.information;
            if information.code == super::information::SI_TIMER && information.fields[0] as u32 == id {
                let overrun =
                    ((information.fields[0] >> 32) as u32).saturating_add(more).min(i32::MAX as u32);
                information.fields[0] = u64::from(id) | u64::from(overrun) << 32;
                found = true;
            }
        }
        found
    }

    /// Drops pending instances of the signals in `set`.
    pub fn discard(&mut self, set: SignalSet) {
        if (self.set & set).is_empty() {
            return;
        }
        self.set = self.set & !set;
        if let Some(Queue(queue)) = self.queue.as_deref_mut() {
            queue.retain(|entry| !set.contains(entry.information.signal));
            if queue.is_empty() {
                self.queue = None;
            }
        }
    }

    /// What is known of those in the queue, in their order.
    pub(crate) fn queue_entries(&self) -> impl Iterator<Item = &SignalInformation> {
        self.queue.iter().flat_map(|queue| queue.0.iter().map(|entry| &entry.information))
    }

    /// How many entries are queued.
    pub fn queued(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signal::information::{SI_QUEUE, SI_USER};

    fn information(signal: Signal, code: i32, value: u64) -> SignalInformation {
        SignalInformation { signal, code, error: 0, fields: [0, value, 0, 0] }
    }

    fn account() -> Arc<Account> {
        Account::unlisted(1000)
    }

    #[test]
    fn standard_signals_merge_and_real_time_ones_queue_in_order() {
        let account = account();
        let mut pending = Pending::new();
        let real_time = Signal::new(34).expect("34 is a signal");
        for value in 1..=3 {
            pending
                .add(information(Signal::SIGUSR1, SI_USER, value), Charge::claim(&account, 100))
                .expect("room");
            pending.add(information(real_time, SI_QUEUE, value), Charge::claim(&account, 100)).expect("room");
        }
        assert_eq!(pending.queued(), 4);
        assert_eq!(
            pending.take(SignalSet::EMPTY).map(|i| (i.signal, i.fields[1])),
            Some((Signal::SIGUSR1, 1))
        );
        for value in 1..=3 {
            assert_eq!(
                pending.take(SignalSet::EMPTY).map(|i| (i.signal, i.fields[1])),
                Some((real_time, value))
            );
        }
        assert_eq!(pending.take(SignalSet::EMPTY), None);
        assert_eq!(account.pending_signals(), 0);
    }

    #[test]
    fn blocked_signals_stay_and_synchronous_ones_come_first() {
        let mut pending = Pending::new();
        pending
            .add(SignalInformation::from_kernel(Signal::SIGHUP), None)
            .expect("kernel signals need no charge");
        pending
            .add(SignalInformation::from_kernel(Signal::SIGSEGV), None)
            .expect("kernel signals need no charge");
        let blocked = SignalSet::of(&[Signal::SIGSEGV]);
        assert_eq!(pending.take(blocked).map(|i| i.signal), Some(Signal::SIGHUP));
        assert_eq!(pending.take(blocked), None);
        pending
            .add(SignalInformation::from_kernel(Signal::SIGHUP), None)
            .expect("kernel signals need no charge");
        assert_eq!(pending.take(SignalSet::EMPTY).map(|i| i.signal), Some(Signal::SIGSEGV));
    }

    #[test]
    fn expiries_add_to_the_overrun_of_their_own_timer_only() {
        let mut pending = Pending::new();
        let signal = Signal::new(34).expect("34 is a signal");
        let charge = || Charge::claim(&account(), 100);
        pending.add(SignalInformation::timer(signal, 1, 0, 0), charge()).expect("room");
        assert!(pending.add_overrun(signal, 1, 3));
        assert!(!pending.add_overrun(signal, 2, 3));
        assert_eq!(pending.take(SignalSet::EMPTY).map(|taken| taken.fields[0] >> 32), Some(3));
        assert!(!pending.add_overrun(signal, 1, 1));
    }

    #[test]
    fn limit_refuses_sigqueue_but_not_kill() {
        let account = account();
        let mut pending = Pending::new();
        let real_time = Signal::new(40).expect("40 is a signal");
        assert!(pending.add(information(real_time, SI_QUEUE, 1), Charge::claim(&account, 1)).is_ok());
        assert_eq!(
            pending.add(information(real_time, SI_QUEUE, 2), Charge::claim(&account, 1)),
            Err(QueueFull)
        );
        assert!(pending.add(information(Signal::SIGTERM, SI_USER, 0), Charge::claim(&account, 1)).is_ok());
        assert!(pending.set().contains(Signal::SIGTERM));
        pending.discard(SignalSet::ALL);
        assert_eq!(account.pending_signals(), 0);
    }
}
