//! Charging a frame when it is allocated, and taking that back when it is free.

use machine::preempt;

use super::account::{Account, AccountNumber};
use super::room;
use super::stock::Kind;
use crate::OutOfMemory;
use crate::frame::allocate;
use crate::frame::metadata::Metadata;
use crate::frame::number::FrameNumber;
use crate::frame::{Purpose, Urgency, Zeroed};
use crate::local::local;

/// Whether frames of a purpose are charged to anybody.
#[inline(always)]
pub(crate) const fn is_charged(purpose: Purpose) -> bool {
    matches!(
        purpose,
        Purpose::Anonymous | Purpose::FileCache | Purpose::Shmem | Purpose::PageTable | Purpose::Pipe
    )
}

/// The current thread pays with another account from now on, or with none; returns the former one.
pub fn pay_with(account: Option<Account>) -> Option<Account> {
    let former = preempt::payer();
    preempt::set_payer(account.map_or(0, Account::into_number));
    Account::from_number(former)
}

/// Another reference to the account that the current thread pays with.
pub fn of_current() -> Option<Account> {
    // The thread refers to it, so it is there.
    payer().map(AccountNumber::refer)
}

/// Whether the current thread pays with this account, or with none if it is none.
pub fn is_of_current(account: Option<&Account>) -> bool {
    payer() == account.map(Account::number)
}

/// Who pays for what the current thread allocates.
pub(super) fn payer() -> Option<AccountNumber> {
    AccountNumber::new(preempt::payer())
}

/// Allocates a frame for which the current thread pays, who has an account. Who can't wait for memory serves others (the kernel's own page tables) and
/// pays for nothing.
#[cold]
#[inline(never)]
pub(crate) fn allocate_charged(
    purpose: Purpose,
    zeroed: Zeroed,
    urgency: Urgency,
) -> Result<FrameNumber, OutOfMemory> {
    let Some(account) = payer().filter(|_| urgency == Urgency::Normal) else {
        return allocate::allocate_uncharged(purpose, zeroed, urgency);
    };
    let kind = Kind::of(purpose);
    if !local(|cpu| cpu.stock.charge(account, kind)) {
        room::charge(account, kind)?;
    }
    let frame = allocate::allocate_uncharged(purpose, zeroed, urgency)
        .inspect_err(|&OutOfMemory| local(|cpu| cpu.stock.uncharge(account, kind)))?;
    crate::frame::table::metadata(frame).set_account(account.get());
    Ok(frame)
}

/// Charges so many frames at once to the current thread's account; returns its number, to be noted with each of them, or none if nobody pays.
///
/// # Errors
/// A limit does not permit so many.
pub(crate) fn charge_at_once(purpose: Purpose, frames: u32) -> Result<Option<AccountNumber>, OutOfMemory> {
    let account = payer().filter(|_| is_charged(purpose));
    if let Some(account) = account {
        room::charge_at_once(account, Kind::of(purpose), frames)?;
    }
    Ok(account)
}

/// A charged frame is free.
#[cold]
#[inline(never)]
pub(crate) fn uncharge(known: &Metadata) {
    if let Some(account) = AccountNumber::new(known.account()) {
        local(|cpu| cpu.stock.uncharge(account, Kind::of(known.purpose())));
    }
}
