//! What all processes of one user hold together: their number (RLIMIT_NPROC), queued signals (RLIMIT_SIGPENDING), files in
//! messages, shared memory that is kept in memory, record locks, and what is watched.
//!
//! One [`UserAccount`] exists for each user id in use. Credentials point to that of their real user id by an [`Account`], a handle that each
//! process has for itself: what counts on it (a signal that is queued, a thread) refers to the handle, and so writes nothing that other processes
//! of the user touch. The table of accounts is
//! locked only when a process changes its user id, never on fork or when a signal is sent: those count on the account itself, each
//! processor by itself while the limit is far (`memory::per_cpu::Counter`). A limit holds exactly, and nobody is refused below it.

use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use memory::per_cpu::Counter;
use sync::SpinLock;
use vfs::WatchAccount;
use vfs::epoll;
use vfs::lock::LockAccount;

use crate::errno::Errno;

/// Counts of one user.
#[derive(Debug)]
pub struct UserAccount {
    user: u32,
    processes: Counter,
    signals: Counter,
    // Any CPU, relaxed: it guards no other data.
    flights: AtomicU64,
    // Likewise; pages.
    locked_memory: AtomicU64,
    // Likewise; bytes.
    queues: AtomicU64,
    locks: Arc<LockAccount>,
    watching: Arc<WatchAccount>,
    interests: Arc<epoll::Account>,
}

static ACCOUNTS: SpinLock<Option<HashMap<u32, Weak<UserAccount>>>> = SpinLock::new(None);

impl UserAccount {
    /// The account of a user id, made when there is none.
    pub fn of(user: u32) -> Result<Arc<UserAccount>, Errno> {
        let locks = LockAccount::new(LockAccount::limit_for(memory::frame::total_frames()));
        let locks = memory::fallible::try_arc(locks).map_err(|_| Errno::ENOMEM)?;
        let watching = memory::fallible::try_arc(WatchAccount::new()).map_err(|_| Errno::ENOMEM)?;
        let interests = memory::fallible::try_arc(epoll::Account::new()).map_err(|_| Errno::ENOMEM)?;
        let fresh = UserAccount::empty(user, locks, watching, interests);
        let fresh = memory::fallible::try_arc(fresh).map_err(|_| Errno::ENOMEM)?;
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

    fn empty(
        user: u32,
        locks: Arc<LockAccount>,
        watching: Arc<WatchAccount>,
        interests: Arc<epoll::Account>,
    ) -> UserAccount {
        UserAccount {
            user,
            processes: Counter::new(Counter::BATCH),
            signals: Counter::new(Counter::BATCH),
            flights: AtomicU64::new(0),
            locked_memory: AtomicU64::new(0),
            queues: AtomicU64::new(0),
            locks,
            watching,
            interests,
        }
    }

    /// The user's id.
    pub fn user(&self) -> u32 {
        self.user
    }

    /// The count of the user's record locks.
    pub fn locks(&self) -> &Arc<LockAccount> {
        &self.locks
    }

    /// The counts of what the user watches.
    pub fn watching(&self) -> &Arc<WatchAccount> {
        &self.watching
    }

    /// The count of the user's interests of `epoll`.
    pub fn interests(&self) -> &Arc<epoll::Account> {
        &self.interests
    }

    /// Counts one queued signal if that keeps within the limit.
    pub fn claim_signal(&self, limit: u64) -> bool {
        claim(&self.signals, limit)
    }

    /// Takes back one queued signal.
    pub fn release_signal(&self) {
        self.signals.decrement();
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
        self.processes.decrement();
    }

    /// Threads of this user.
    pub fn processes(&self) -> u64 {
        value(&self.processes)
    }

    /// Signals queued by this user.
    pub fn pending_signals(&self) -> u64 {
        value(&self.signals)
    }
}

/// A process's handle of its user's account; in a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
pub struct Account(Arc<UserAccount>);

impl Account {
    /// A handle of the account of a user id.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn of(user: u32) -> Result<Arc<Account>, Errno> {
        memory::fallible::try_arc(Account(UserAccount::of(user)?)).map_err(|_| Errno::ENOMEM)
    }

    /// Another handle, for another process.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn another(&self) -> Result<Arc<Account>, Errno> {
        memory::fallible::try_arc(Account(self.0.clone())).map_err(|_| Errno::ENOMEM)
    }

    /// Whether both are of one user.
    pub fn is_same(&self, other: &Account) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A handle of an account outside the table.
    #[cfg(test)]
    pub fn unlisted(user: u32) -> Arc<Account> {
        let locks = Arc::new(LockAccount::new(u64::MAX));
        let account = UserAccount::empty(user, locks, Arc::default(), Arc::default());
        Arc::new(Account(Arc::new(account)))
    }
}

impl core::ops::Deref for Account {
    type Target = UserAccount;
    #[inline(always)]
    fn deref(&self) -> &UserAccount {
        &self.0
    }
}

fn claim(counter: &Counter, limit: u64) -> bool {
    counter.try_add(1, i64::try_from(limit).unwrap_or(i64::MAX))
}

fn value(counter: &Counter) -> u64 {
    u64::try_from(counter.exact()).unwrap_or(0)
}

/// One thread's place in its user's count; given back on drop.
#[derive(Debug)]
pub struct ProcessCharge(Arc<Account>);

impl ProcessCharge {
    /// Claims a place; `None` when the limit is reached.
    pub fn claim(account: &Arc<Account>, limit: u64) -> Option<ProcessCharge> {
        account.claim_process(limit).then(|| ProcessCharge(account.clone()))
    }
}

impl Drop for ProcessCharge {
    fn drop(&mut self) {
        self.0.release_process();
    }
}

/// Pages of shared memory that a user keeps in memory; given back on drop.
#[derive(Debug)]
pub struct LockedMemory {
    account: Arc<Account>,
    pages: u64,
}

impl LockedMemory {
    /// Counts pages if that keeps within the limit.
    pub fn claim(account: &Arc<Account>, pages: u64, limit: u64) -> Option<LockedMemory> {
        let add = |sum: u64| sum.checked_add(pages).filter(|&sum| sum <= limit);
        account.locked_memory.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(LockedMemory { account: account.clone(), pages })
    }
}

impl Drop for LockedMemory {
    fn drop(&mut self) {
        self.account.locked_memory.fetch_sub(self.pages, Ordering::Relaxed);
    }
}

/// Bytes of POSIX message queues that a user has made; given back on drop.
#[derive(Debug)]
pub struct QueueBytes {
    account: Arc<Account>,
    bytes: u64,
}

impl QueueBytes {
    /// Counts bytes if that keeps within the limit.
    pub fn claim(account: &Arc<Account>, bytes: u64, limit: u64) -> Option<QueueBytes> {
        let add = |sum: u64| sum.checked_add(bytes).filter(|&sum| sum <= limit);
        account.queues.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(QueueBytes { account: account.clone(), bytes })
    }
}

impl Drop for QueueBytes {
    fn drop(&mut self) {
        self.account.queues.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_hold_and_drops_give_back() {
        let account = Account::unlisted(5);
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
