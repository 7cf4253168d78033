//! Mounts of normal users (specs/private-namespaces.md rules 7 to 14).
//!
//! While `/proc/sys/fs/user_mounts` says so, a normal user may make a name space of mounts, which is *private* to him then, and mount in it. It is a copy like that for another
//! name space of users: it receives from where it was copied but nothing goes back, what came with it can't be taken away, and flags that forbid something can't be cleared.
//! Whatever is attached in it has neither set-user-ID programs nor device nodes, and that is locked, too.
//!
//! Its mounts are charged to the user, those that came with it included, and he may have so many of them (`/proc/sys/user/max_mounts`) in all such name spaces together.
//!
//! The counts change under the lock of changes only.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sync::SpinLock;

use crate::flags::MountFlags;
use crate::{Error, Result, allocation};

/// What everything has that is attached in a private name space.
pub(super) const FORCED: MountFlags = MountFlags::NO_SET_ID.union(MountFlags::NO_DEVICES);

static ALLOWED: AtomicBool = AtomicBool::new(false);
static STICKY_IS_REFUSED: AtomicBool = AtomicBool::new(false);
/// Enough for a hundred copies of a name space as Debian's is.
static MAXIMUM: AtomicU64 = AtomicU64::new(4096);

/// A user's mounts.
struct Account {
    user: u32,
    mounts: u64,
}

static ACCOUNTS: SpinLock<Vec<Account>> = SpinLock::named("accounts of mounts", Vec::new());

/// Whether normal users may make name spaces of mounts, and mount there.
pub fn user_mounts() -> bool {
    // Relaxed, as all settings here.
    ALLOWED.load(Ordering::Relaxed)
}

/// Allows it, or not.
pub fn set_user_mounts(allowed: bool) {
    ALLOWED.store(allowed, Ordering::Relaxed);
}

/// Whether they may not mount on directories with the sticky bit.
pub fn user_mounts_sticky() -> bool {
    STICKY_IS_REFUSED.load(Ordering::Relaxed)
}

/// Forbids that, or not.
pub fn set_user_mounts_sticky(refused: bool) {
    STICKY_IS_REFUSED.store(refused, Ordering::Relaxed);
}

/// How many mounts a user may have in private name spaces.
pub fn max_user_mounts() -> u64 {
    MAXIMUM.load(Ordering::Relaxed)
}

/// Changes that; what is there stays.
pub fn set_max_user_mounts(maximum: u64) {
    MAXIMUM.store(maximum, Ordering::Relaxed);
}

/// Whether a user may have so many more. There is an account then.
pub(super) fn check_room(user: u32, more: u64) -> Result<()> {
    let mut accounts = allocation::lock_with_room(|| ACCOUNTS.lock(), 1, |accounts| accounts)?;
    let present = accounts.iter().find(|account| account.user == user).map(|account| account.mounts);
    if present.unwrap_or(0) + more > max_user_mounts() {
        return Err(Error::NoSpace);
    }
    if present.is_none() {
        accounts.push(Account { user, mounts: 0 });
    }
    Ok(())
}

/// Charges a mount for which there was room.
pub(super) fn charge(user: u32) {
    let mut accounts = ACCOUNTS.lock();
    let account = accounts.iter_mut().find(|account| account.user == user);
    account.expect("checked for room under the same lock of changes").mounts += 1;
}

/// Gives mounts back.
pub(super) fn release(user: u32, mounts: usize) {
    let mut accounts = ACCOUNTS.lock();
    if let Some(index) = accounts.iter().position(|account| account.user == user) {
        accounts[index].mounts -= mounts as u64;
        if accounts[index].mounts == 0 {
            accounts.swap_remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_there_while_something_is_charged() {
        const USER: u32 = 4_000_000;
        let maximum = max_user_mounts();
        check_room(USER, maximum).expect("nothing is charged");
        assert_eq!(check_room(USER, maximum + 1), Err(Error::NoSpace));
        charge(USER);
        assert_eq!(check_room(USER, maximum), Err(Error::NoSpace));
        release(USER, 1);
        assert!(ACCOUNTS.lock().iter().all(|account| account.user != USER));
    }
}
