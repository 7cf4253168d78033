//! The tree of accounts. See the theory of this module.

use alloc::vec::Vec;
use core::num::NonZeroU16;
use core::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU16, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, SeqCst},
};

use sync::Once;

use super::events::{EVENTS, Event};
use super::limits::{Limit, UNLIMITED};
use super::stock::{self, KINDS, Kind};
use crate::frame::Frame;
use crate::huge_pool::POOL_PAYS;
use crate::{OutOfMemory, fallible};

/// Accounts that are made together when one of them is first needed.
const BLOCK: usize = 128;
/// As many as the numbers that fit a frame's metadata.
const BLOCKS: usize = (u16::MAX as usize + 1) / BLOCK;

/// The number of an account that somebody refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountNumber(pub(super) NonZeroU16);

/// A counted reference to an account.
#[derive(Debug, PartialEq, Eq)]
pub struct Account(AccountNumber);

/// What is known about an account. All of it may be written by any CPU.
pub(super) struct Slot {
    /// References to it; see the theory of this module.
    holders: AtomicU32,
    is_live: AtomicBool,
    /// Its group is there, and may set limits elsewhere that go by the number.
    is_open: AtomicBool,
    /// 0: none. Written before anybody else knows the account.
    parent: AtomicU16,
    /// Pages charged to it and those below, with what CPUs have in stock for them.
    usage: AtomicI64,
    peak: AtomicI64,
    /// Pages charged to itself by kind, but for what stocks say.
    kinds: [AtomicI64; KINDS],
    limits: [AtomicU64; Limit::COUNT],
    /// What has happened in it, and in it and those below.
    pub(super) events: [(AtomicU64, AtomicU64); EVENTS],
    /// Whether who is killed in it is all of it.
    pub(super) ends_together: AtomicBool,
    /// The last round of reclaim that took pages from it although they were below its lower protection.
    unprotected_in: AtomicU32,
    /// Pages that reclaim has taken from it and those below when they were at a limit of its own.
    pub(super) reclaimed: AtomicU64,
}

static SLOTS: [Once<Vec<Slot>>; BLOCKS] = [const { Once::new() }; BLOCKS];

/// Bit n: the number n is in use.
static USED: [AtomicU64; (u16::MAX as usize + 1) / 64] =
    [const { AtomicU64::new(0) }; (u16::MAX as usize + 1) / 64];

/// Accounts that protect what they have.
static PROTECTING: AtomicU32 = AtomicU32::new(0);

impl Slot {
    fn new() -> Self {
        Self {
            holders: AtomicU32::new(0),
            is_live: AtomicBool::new(false),
            is_open: AtomicBool::new(false),
            parent: AtomicU16::new(0),
            usage: AtomicI64::new(0),
            peak: AtomicI64::new(0),
            kinds: [const { AtomicI64::new(0) }; KINDS],
            limits: [const { AtomicU64::new(0) }; Limit::COUNT],
            events: [const { (AtomicU64::new(0), AtomicU64::new(0)) }; EVENTS],
            ends_together: AtomicBool::new(false),
            unprotected_in: AtomicU32::new(0),
            reclaimed: AtomicU64::new(0),
        }
    }

    /// Begins another life.
    fn begin(&self, parent: Option<AccountNumber>) {
        debug_assert_eq!(self.usage.load(Relaxed), 0, "a number is free when nothing is charged to it");
        self.parent.store(parent.map_or(0, AccountNumber::get), Relaxed);
        self.peak.store(0, Relaxed);
        self.kinds.iter().for_each(|kind| kind.store(0, Relaxed));
        for (place, limit) in self.limits.iter().enumerate() {
            limit.store(Limit::ALL[place].initial(), Relaxed);
        }
        for (own, all) in &self.events {
            own.store(0, Relaxed);
            all.store(0, Relaxed);
        }
        self.ends_together.store(false, Relaxed);
        self.reclaimed.store(0, Relaxed);
        self.is_open.store(true, Relaxed);
        self.holders.store(1, Relaxed);
        self.is_live.store(true, SeqCst);
    }
}

/// Takes a number that nobody has.
fn take_number() -> Result<NonZeroU16, OutOfMemory> {
    for (at, word) in USED.iter().enumerate() {
        loop {
            let before = word.load(Relaxed);
            // 0 is nobody's, and the last one no account's.
            let others =
                u64::from(at == 0) | u64::from(at == usize::from(POOL_PAYS) / 64) << (POOL_PAYS % 64);
            let bit = (before | others).trailing_ones();
            if bit == u64::BITS {
                break;
            }
            // Acquire: pairs with the release of the number.
            if word.fetch_or(1 << bit, Acquire) & 1 << bit == 0 {
                return NonZeroU16::new((at * 64) as u16 + bit as u16).ok_or(OutOfMemory);
            }
        }
    }
    Err(OutOfMemory)
}

fn give_number(number: u16) {
    USED[usize::from(number) / 64].fetch_and(!(1 << (number % 64)), AcqRel);
}

impl AccountNumber {
    pub(crate) fn new(number: u16) -> Option<Self> {
        NonZeroU16::new(number).map(Self)
    }

    pub(crate) const fn get(self) -> u16 {
        self.0.get()
    }

    pub(super) fn slot(self) -> &'static Slot {
        let number = usize::from(self.get());
        let block = SLOTS[number / BLOCK].get().expect("an account that is referred to was made");
        &block[number % BLOCK]
    }

    /// It and those above, the topmost last. Somebody refers to it meanwhile, or what is found means little.
    pub fn upwards(self) -> impl Iterator<Item = AccountNumber> {
        let above = |below: &AccountNumber| AccountNumber::new(below.slot().parent.load(Relaxed));
        // A chain that is taken apart meanwhile may lead anywhere, but not for ever.
        core::iter::successors(Some(self), above).take(usize::from(u16::MAX))
    }

    /// Whether its group is still there.
    pub fn is_open(self) -> bool {
        self.slot().is_open.load(SeqCst)
    }

    /// Whether it is `other` or below.
    pub fn is_within(self, other: AccountNumber) -> bool {
        self.upwards().any(|above| above == other)
    }

    /// Takes pages for it and for those above, if their limits permit.
    ///
    /// # Errors
    /// The one whose limit is reached.
    pub(super) fn take(self, pages: u32) -> Result<(), AccountNumber> {
        for (index, above) in self.upwards().enumerate() {
            if !above.take_alone(pages, true) {
                self.upwards().take(index).for_each(|taken| {
                    taken.slot().usage.fetch_sub(i64::from(pages), SeqCst);
                });
                return Err(above);
            }
        }
        Ok(())
    }

    /// The same whatever the limits.
    pub(super) fn take_regardless(self, pages: u32) {
        self.upwards().for_each(|above| {
            above.take_alone(pages, false);
        });
    }

    fn take_alone(self, pages: u32, limited: bool) -> bool {
        let slot = self.slot();
        let usage = slot.usage.fetch_add(i64::from(pages), SeqCst) + i64::from(pages);
        if limited && usage.unsigned_abs() > self.limit(Limit::Max) {
            slot.usage.fetch_sub(i64::from(pages), SeqCst);
            return false;
        }
        if usage > slot.peak.load(Relaxed) {
            slot.peak.fetch_max(usage, Relaxed);
        }
        true
    }

    /// Gives pages back, of it and of those above. It may be gone afterwards.
    pub(super) fn give(self, pages: u32) {
        // Those above first: as long as something is charged to this one, they are there.
        self.upwards().skip(1).for_each(|above| {
            above.slot().usage.fetch_sub(i64::from(pages), SeqCst);
        });
        // SeqCst: pairs with the end of the last reference.
        let before = self.slot().usage.fetch_sub(i64::from(pages), SeqCst);
        debug_assert!(before >= i64::from(pages), "more pages are given back than were taken");
        if before == i64::from(pages) {
            self.end_if_unused();
        }
    }

    /// Its number is free if nobody refers to it and nothing is charged to it; then the same for the one above.
    fn end_if_unused(self) {
        let mut at = self;
        loop {
            let slot = at.slot();
            if slot.holders.load(SeqCst) != 0 || slot.usage.load(SeqCst) != 0 {
                return;
            }
            if slot.is_live.compare_exchange(true, false, SeqCst, Relaxed).is_err() {
                return;
            }
            let parent = AccountNumber::new(slot.parent.load(Relaxed));
            Limit::ALL.iter().for_each(|&limit| at.note_protection(limit, 0));
            give_number(at.get());
            let Some(parent) = parent else { return };
            if parent.slot().holders.fetch_sub(1, SeqCst) != 1 {
                return;
            }
            at = parent;
        }
    }

    /// Pages charged to it and those below.
    pub fn usage(self) -> u64 {
        let taken = self.slot().usage.load(SeqCst);
        (taken - stock::prepaid_within(self)).max(0).unsigned_abs()
    }

    /// The same, with what is in stock: one load.
    pub(super) fn usage_at_most(self) -> u64 {
        self.slot().usage.load(Relaxed).max(0).unsigned_abs()
    }

    /// The most that usage was.
    pub fn peak(self) -> u64 {
        self.slot().peak.load(Relaxed).max(0).unsigned_abs()
    }

    pub(super) fn add_kind(self, kind: Kind, pages: i64) {
        self.slot().kinds[kind as usize].fetch_add(pages, Relaxed);
    }

    /// Pages of a kind charged to it and those below.
    pub fn of_kind(self, kind: Kind) -> u64 {
        let all = USED.iter().enumerate().flat_map(|(at, word)| {
            let mut rest = word.load(Relaxed);
            core::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                AccountNumber::new((at * 64) as u16 + bit as u16)
            })
        });
        let made = all.filter(|account| SLOTS[usize::from(account.get()) / BLOCK].get().is_some());
        let below = made.filter(|account| account.is_within(self));
        let noted: i64 = below.map(|account| account.slot().kinds[kind as usize].load(Relaxed)).sum();
        (noted + stock::of_kind_within(self, kind)).max(0).unsigned_abs()
    }

    /// A limit of it, in pages.
    pub fn limit(self, limit: Limit) -> u64 {
        self.slot().limits[limit as usize].load(Relaxed)
    }

    /// All limits are what a new account has.
    pub fn forget_limits(self) {
        Limit::ALL.iter().for_each(|&limit| self.set_limit(limit, limit.initial()));
        self.set_ends_together(false);
    }

    /// Sets one; nothing is done about what is beyond it.
    pub fn set_limit(self, limit: Limit, pages: u64) {
        self.note_protection(limit, pages);
    }

    /// Counts those who protect something.
    fn note_protection(self, limit: Limit, pages: u64) {
        let before = self.slot().limits[limit as usize].swap(pages, Relaxed);
        if limit.protects() {
            match (before > 0, pages > 0) {
                (false, true) => PROTECTING.fetch_add(1, Relaxed),
                (true, false) => PROTECTING.fetch_sub(1, Relaxed),
                _ => 0,
            };
        }
    }

    /// Whether what it has is less than a protection of it, which is not more than those above have of the kind.
    pub(super) fn is_protected(self, limit: Limit) -> bool {
        let least = self.upwards().map(|above| above.limit(limit)).min().unwrap_or(0);
        least > 0 && self.usage_at_most() <= least
    }

    /// Pages of it go although the lower protection is for them: an event, once in a round. Nobody is told, as the caller may hold locks.
    pub(super) fn note_low(self) {
        let (slot, round) = (self.slot(), ROUND.load(Relaxed));
        if slot.unprotected_in.swap(round, Relaxed) != round {
            self.count(Event::Low);
        }
    }

    /// The nearest of it and those above that has more than a limit of its own.
    pub(super) fn beyond(self, limit: Limit) -> Option<AccountNumber> {
        self.upwards().find(|above| above.usage_at_most() > above.limit(limit))
    }

    /// Whether all of its processes are killed with one of them.
    pub fn ends_together(self) -> bool {
        self.slot().ends_together.load(Relaxed)
    }

    /// Sets that.
    pub fn set_ends_together(self, together: bool) {
        self.slot().ends_together.store(together, Relaxed);
    }

    /// Pages that were taken from it and those below because one of them was at a limit.
    pub fn reclaimed(self) -> u64 {
        self.slot().reclaimed.load(Relaxed)
    }

    /// How often something has happened in it, and in it and those below.
    pub fn events(self, event: Event) -> (u64, u64) {
        let (own, all) = &self.slot().events[event as usize];
        (own.load(Relaxed), all.load(Relaxed))
    }
}

/// Rounds of reclaim in which protections counted.
static ROUND: AtomicU32 = AtomicU32::new(0);

/// A round of reclaim begins. Whether any account protects what it has.
pub(super) fn begin_round() -> bool {
    let anybody = PROTECTING.load(Relaxed) > 0;
    if anybody {
        ROUND.fetch_add(1, Relaxed);
    }
    anybody
}

impl Account {
    /// An account below another one, or at the top.
    ///
    /// # Errors
    /// No memory, or all numbers are taken.
    pub fn new(parent: Option<&Account>) -> Result<Self, OutOfMemory> {
        let number = AccountNumber(take_number()?);
        let block = &SLOTS[usize::from(number.get()) / BLOCK];
        if block.get().is_none() {
            let mut slots = fallible::try_vec(BLOCK).inspect_err(|&OutOfMemory| give_number(number.get()))?;
            slots.resize_with(BLOCK, Slot::new);
            block.call_once(|| slots);
        }
        stock::bring_in(|known| known == number);
        let parent = parent.cloned();
        number.slot().begin(parent.as_ref().map(|parent| parent.number()));
        // The reference to the one above is this account's from now on.
        core::mem::forget(parent);
        Ok(Self(number))
    }

    /// Its number.
    pub fn number(&self) -> AccountNumber {
        self.0
    }

    /// Its group is removed: who knows it by its number shall forget that, and not learn it again.
    pub fn close(&self) {
        self.0.slot().is_open.store(false, SeqCst);
    }

    /// The account of who pays for a frame.
    pub fn of_frame(frame: &Frame) -> Option<Self> {
        // The frame is charged to it, so it is there.
        AccountNumber::new(frame.account()).map(AccountNumber::refer)
    }

    /// What CPUs have in stock for it or below is given back: for who removes a group, so that its account ends when nothing is left.
    pub fn bring_in_stocks(&self) {
        stock::bring_in(|known| known.is_within(self.0));
    }

    /// The reference as a number, which [`Account::from_number`] turns back.
    pub fn into_number(self) -> u16 {
        let number = self.0.get();
        core::mem::forget(self);
        number
    }

    /// Turns a number back that came from [`Account::into_number`].
    pub fn from_number(number: u16) -> Option<Self> {
        AccountNumber::new(number).map(Self)
    }
}

impl AccountNumber {
    /// One more reference to an account that somebody refers to.
    pub(super) fn refer(self) -> Account {
        self.slot().holders.fetch_add(1, Relaxed);
        Account(self)
    }
}

impl Clone for Account {
    fn clone(&self) -> Self {
        self.0.refer()
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        // SeqCst: pairs with the return of the last page.
        if self.0.slot().holders.fetch_sub(1, SeqCst) == 1 {
            self.0.end_if_unused();
        }
    }
}

/// Whether a number is in use: for tests.
#[cfg(test)]
pub(super) fn is_in_use(number: AccountNumber) -> bool {
    USED[usize::from(number.get()) / 64].load(Relaxed) >> (number.get() % 64) & 1 == 1
}

const _: () = assert!(UNLIMITED > i64::MAX as u64, "no usage is beyond it");
