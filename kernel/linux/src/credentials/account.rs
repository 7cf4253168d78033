//! What all processes of one user hold together: their number (RLIMIT_NPROC), queued signals (RLIMIT_SIGPENDING), files in
//! messages, and record locks.
//!
//! One [`UserAccount`] exists for each user id in use; credentials point to that of their real user id. The table of accounts is
//! locked only when a process changes its user id, never on fork or when a signal is sent: those count on the account itself.

use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use sync::SpinLock;
use vfs::lock::LockAccount;

use crate::errno::Errno;

/// Counts of one user.
#[derive(Debug)]
pub struct UserAccount {
    user: u32,
    // All counters: any CPU, relaxed; they guard no other data.
    processes: AtomicU64,
    signals: AtomicU64,
    flights: AtomicU64,
    locks: Arc<LockAccount>,
}

static ACCOUNTS: SpinLock<Option<HashMap<u32, Weak<UserAccount>>>> = SpinLock::new(None);

impl UserAccount {
    /// The account of a user id, made when there is none.
    pub fn of(user: u32) -> Result<Arc<UserAccount>, Errno> {
        let locks = LockAccount::new(LockAccount::limit_for(memory::frame::total_frames()));
        let locks = memory::fallible::try_arc(locks).map_err(|_| Errno::ENOMEM)?;
        let fresh = memory::fallible::try_arc(UserAccount::empty(user, locks)).map_err(|_| Errno::ENOMEM)?;
        let mut accounts = ACCOUNTS.lock();
        let table = accounts.get_or_insert_with(HashMap::new);
        if let Some(account) = table.get(&user).and_then(Weak::upgrade) {
            return Ok(account);
        }
        if table.len() == table.capacity() {
            table.retain(|_, account| account.strong_count() > 0);
            table.try_reserve(8).map_err(|_| Errno::ENOMEM)?;
        }
        table.insert(user, Arc::downgrade(&fresh));
        Ok(fresh)
    }

    fn empty(user: u32, locks: Arc<LockAccount>) -> UserAccount {
        UserAccount {
            user,
            processes: AtomicU64::new(0),
            signals: AtomicU64::new(0),
            flights: AtomicU64::new(0),
            locks,
        }
    }

    /// An account outside the table.
    #[cfg(test)]
    pub fn unlisted(user: u32) -> Arc<UserAccount> {
        Arc::new(UserAccount::empty(user, Arc::new(LockAccount::new(u64::MAX))))
    }

    /// The user's id.
    pub fn user(&self) -> u32 {
        self.user
    }

    /// The count of the user's record locks.
    pub fn locks(&self) -> &Arc<LockAccount> {
        &self.locks
    }

    /// Counts one queued signal if that keeps within the limit.
    pub fn claim_signal(&self, limit: u64) -> bool {
        claim(&self.signals, limit)
    }

    /// Takes back one queued signal.
    pub fn release_signal(&self) {
        let before = self.signals.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "signal count of a user went below zero");
    }

    /// Counts files that go into a message, unless there are more than `limit` already.
    pub fn claim_flights(&self, files: u64, limit: u64) -> bool {
        if self.flights.fetch_add(files, Ordering::Relaxed) <= limit {
            return true;
        }
        self.release_flights(files);
        false
    }

    /// Takes back files that were in a message.
    pub fn release_flights(&self, files: u64) {
        let before = self.flights.fetch_sub(files, Ordering::Relaxed);
        debug_assert!(before >= files, "count of a user's files in messages went below zero");
    }

    /// Counts one thread if that keeps within the limit.
    pub fn claim_process(&self, limit: u64) -> bool {
        claim(&self.processes, limit)
    }

    /// Takes back one thread.
    pub fn release_process(&self) {
        let before = self.processes.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "process count of a user went below zero");
    }

    /// Threads of this user.
    pub fn processes(&self) -> u64 {
        self.processes.load(Ordering::Relaxed)
    }

    /// Signals queued by this user.
    pub fn pending_signals(&self) -> u64 {
        self.signals.load(Ordering::Relaxed)
    }
}

fn claim(counter: &AtomicU64, limit: u64) -> bool {
    // Count first and look then: two claims at the limit may both fail, but none goes beyond it.
    if counter.fetch_add(1, Ordering::Relaxed) < limit {
        return true;
    }
    counter.fetch_sub(1, Ordering::Relaxed);
    false
}

/// One thread's place in its user's count; given back on drop.
#[derive(Debug)]
pub struct ProcessCharge(Arc<UserAccount>);

impl ProcessCharge {
    /// Claims a place; `None` when the limit is reached.
    pub fn claim(account: &Arc<UserAccount>, limit: u64) -> Option<ProcessCharge> {
        account.claim_process(limit).then(|| ProcessCharge(account.clone()))
    }
}

impl Drop for ProcessCharge {
    fn drop(&mut self) {
        self.0.release_process();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_hold_and_drops_give_back() {
        let account = UserAccount::unlisted(5);
        let first = ProcessCharge::claim(&account, 1);
        assert!(first.is_some());
        assert!(ProcessCharge::claim(&account, 1).is_none());
        drop(first);
        assert_eq!(account.processes(), 0);
    }

    #[test]
    fn accounts_are_shared_while_in_use() {
        let one = UserAccount::of(4242).expect("memory");
        let two = UserAccount::of(4242).expect("memory");
        assert!(Arc::ptr_eq(&one, &two));
    }
}
