//! What happens at a limit.
//!
//! # The maximum
//! Who can't wait is refused, as when the machine has no memory; he comes again where he can. Who can does this, up to [`ATTEMPTS_MAX`] times: bring in what other CPUs have in stock; take clean pages of files
//! from the account whose limit it is; then, if the page is a file's and the account has pages that wait to be written, go beyond the limit by up to
//! [`EXCESS_MAX`] (writers hold locks here that writing back needs; without them, after each piece of a write, they wait until there is room: `vfs::disk`);
//! then the out-of-memory policy, among the processes of that account only. Who is about to end is refused memory of his program's only.
//!
//! # The higher mark
//! Beyond it nobody is refused. The thread that went beyond it is held back on its way to user mode, where it holds no locks: there pages are reclaimed
//! ([`pause_ns`]), and if that does not help it sleeps, the longer the further the account is beyond the mark.

use core::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};

use super::account::AccountNumber;
use super::events::Event;
use super::limits::Limit;
use super::pay::payer;
use super::stock::{self, BATCH, Kind};
use super::whose::Whose;
use crate::frame::allocate::may_wait;
use crate::local::local;
use crate::oom::{self, Relief, Shortage};
use crate::{OutOfMemory, file_cache, reclaim as machine_reclaim};

/// Rounds before a charge fails, as for memory itself.
const ATTEMPTS_MAX: u32 = 16;
/// Rounds of reclaim that found something before the out-of-memory policy is asked.
const PATIENCE: u32 = 12;
/// Pages by which files may exceed a limit while their writers hold locks.
const EXCESS_MAX: u64 = 1024;
/// The longest pause of a thread whose account is beyond its higher mark.
const PAUSE_MAX_NS: u64 = 2_000_000_000;
/// What each hundredth beyond the mark adds to it.
const PAUSE_NS_PER_PERCENT: u64 = 10_000_000;

/// A `fn()`, or null.
static HOLD_BACK: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Sets what has the current thread come by [`pause_ns`] on its way to user mode. Called in any context that allocates. Once, at start-up.
pub fn set_hold_back(hold_back: fn()) {
    // Release: pairs with the Acquire in `hold_back`.
    HOLD_BACK.store(hold_back as *mut (), Release);
}

fn hold_back() {
    let pointer = HOLD_BACK.load(Acquire);
    if !pointer.is_null() {
        // SAFETY: a non-null pointer was made from a `fn()` in `set_hold_back`, the only writer.
        let hold_back = unsafe { core::mem::transmute::<*mut (), fn()>(pointer) };
        hold_back();
    }
}

/// Charges a page for which nothing is in stock.
pub(super) fn charge(account: AccountNumber, kind: Kind) -> Result<(), OutOfMemory> {
    match refill(account, kind) {
        Ok(()) => Ok(()),
        Err(_) if !may_wait() => Err(OutOfMemory),
        Err(full) => make_room(account, kind, full),
    }
}

/// Takes a batch, or as much as there is: a page.
fn refill(account: AccountNumber, kind: Kind) -> Result<(), AccountNumber> {
    let pages = match account.take(BATCH) {
        Ok(()) => BATCH,
        Err(_) => account.take(1).map(|()| 1)?,
    };
    local(|cpu| cpu.stock.refill(account, pages, kind));
    if account.beyond(Limit::High).is_some() {
        hold_back();
    }
    Ok(())
}

/// Charges many pages at once, if all limits permit. Nothing is done to make room: who asks can do with fewer.
pub(super) fn charge_at_once(account: AccountNumber, kind: Kind, pages: u32) -> Result<(), OutOfMemory> {
    account.take(pages).map_err(|_| OutOfMemory)?;
    account.add_kind(kind, pages.into());
    if account.beyond(Limit::High).is_some() {
        hold_back();
    }
    Ok(())
}

/// See the theory of this file. `full` is whose limit was met first.
fn make_room(account: AccountNumber, kind: Kind, full: AccountNumber) -> Result<(), OutOfMemory> {
    full.note(Event::Max);
    let mut full = full;
    for round in 0..ATTEMPTS_MAX {
        stock::bring_in(|known| known.is_within(full));
        match refill(account, kind) {
            Ok(()) => return Ok(()),
            Err(other) => full = other,
        }
        let freed = reclaim(full, BATCH as usize);
        match refill(account, kind) {
            Ok(()) => return Ok(()),
            Err(other) => full = other,
        }
        if freed > 0 && round < PATIENCE {
            continue;
        }
        if kind == Kind::File && files_are_to_be_written(full) {
            break;
        }
        full.note(Event::OutOfMemory);
        match oom::invoke(Shortage::Of(full)) {
            Relief::Retry => {}
            // What the kernel needs to end the thread, it gets; its program's own memory it needs no more.
            Relief::UseReserve if !matches!(kind, Kind::Anonymous | Kind::SharedMemory) => break,
            Relief::UseReserve | Relief::Hopeless => return Err(OutOfMemory),
        }
        if round + 1 == ATTEMPTS_MAX {
            return Err(OutOfMemory);
        }
    }
    account.take_regardless(1);
    local(|cpu| cpu.stock.refill(account, 1, kind));
    Ok(())
}

/// Whether pages of files wait to be written, some of which may be the account's, and it may have more until then.
fn files_are_to_be_written(full: AccountNumber) -> bool {
    let counts = file_cache::write_back_counts();
    let most = full.limit(Limit::Max).saturating_add(EXCESS_MAX);
    counts.dirty + counts.under_write_back > 0 && full.usage_at_most() < most && full.of_kind(Kind::File) > 0
}

/// Takes about so many pages of files from an account and those below; returns how many. The caller may wait.
pub fn reclaim(account: AccountNumber, pages: usize) -> usize {
    if account.of_kind(Kind::File) == 0 {
        return 0;
    }
    let freed = machine_reclaim::reclaim_from(Whose::Of(account), pages);
    account.slot().reclaimed.fetch_add(freed as u64, Relaxed);
    freed
}

/// Brings an account below a limit that was just set, as far as that goes: by reclaim, and below the maximum by the out-of-memory policy. `goes_on` says whether
/// the caller still wants that. It may wait.
pub fn shrink(account: AccountNumber, limit: Limit, goes_on: &dyn Fn() -> bool) {
    for round in 0..ATTEMPTS_MAX {
        stock::bring_in(|known| known.is_within(account));
        let excess = account.usage().saturating_sub(account.limit(limit));
        if excess == 0 || !goes_on() {
            return;
        }
        if reclaim(account, excess as usize) > 0 && round < PATIENCE {
            continue;
        }
        if limit != Limit::Max {
            return;
        }
        account.note(Event::OutOfMemory);
        if oom::invoke(Shortage::Of(account)) != Relief::Retry {
            return;
        }
    }
}

/// For how long the current thread shall sleep on its way to user mode, because its account is beyond its higher mark and reclaim did not help.
pub fn pause_ns() -> Option<u64> {
    let beyond = payer()?.beyond(Limit::High)?;
    beyond.note(Event::High);
    let excess = || beyond.usage().saturating_sub(beyond.limit(Limit::High));
    if excess() > 0 {
        reclaim(beyond, excess() as usize);
    }
    let percent = excess().saturating_mul(100) / beyond.limit(Limit::High).max(1);
    let pause_ns = percent.saturating_mul(PAUSE_NS_PER_PERCENT).min(PAUSE_MAX_NS);
    (pause_ns > 0).then_some(pause_ns)
}

/// The account of the current thread, or one above, that has more than its maximum, as writers do while they hold locks: who holds none waits until it
/// has not.
pub fn excessive() -> Option<AccountNumber> {
    payer()?.beyond(Limit::Max)
}

/// Why the current thread was refused memory: its account's limit, or the machine has none.
pub fn shortage() -> Shortage {
    let full = payer().and_then(|payer| payer.upwards().find(|above| above.is_full()));
    full.map_or(Shortage::Machine, Shortage::Of)
}

impl AccountNumber {
    fn is_full(self) -> bool {
        self.usage_at_most() >= self.limit(Limit::Max)
    }

    /// Pages that may still be charged to it; negative for those beyond its maximum.
    pub fn room(self) -> i64 {
        let most = i64::try_from(self.limit(Limit::Max)).unwrap_or(i64::MAX);
        most.saturating_sub(self.usage().cast_signed())
    }
}
