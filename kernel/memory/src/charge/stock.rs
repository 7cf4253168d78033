//! What a CPU has in stock: pages that are taken for an account and not charged yet, and what has become of pages by kind since they were
//! last brought in.
//!
//! Locking: written by the owning CPU with interrupts off, by plain loads and stores; others read it for statistics, and while nothing
//! changes the sum of accounts and stocks is exact.

use core::sync::atomic::{
    AtomicI32, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use machine::cpu::{self, CpuSet};

use super::account::AccountNumber;
use crate::frame::Purpose;
use crate::local;

/// Pages taken at once.
pub(super) const BATCH: u32 = 32;
/// Most pages in stock.
const MOST: u32 = 2 * BATCH;

/// What a charged page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Private memory.
    Anonymous,
    /// Of a file that has its home elsewhere.
    File,
    /// Of tmpfs, or shared memory of no file.
    SharedMemory,
    /// A page table.
    Table,
    /// Anything else of the kernel's: what is under way in pipes and sockets.
    Kernel,
}

/// How many kinds there are.
pub(super) const KINDS: usize = 5;

impl Kind {
    const ALL: [Kind; KINDS] = [Kind::Anonymous, Kind::File, Kind::SharedMemory, Kind::Table, Kind::Kernel];

    pub(super) const fn of(purpose: Purpose) -> Self {
        match purpose {
            Purpose::Anonymous => Self::Anonymous,
            Purpose::FileCache => Self::File,
            Purpose::Shmem => Self::SharedMemory,
            Purpose::PageTable => Self::Table,
            _ => Self::Kernel,
        }
    }
}

/// See the theory of this file.
pub(crate) struct CpuStock {
    /// Whose; 0 for nobody's.
    account: AtomicU32,
    prepaid: AtomicU32,
    kinds: [AtomicI32; KINDS],
}

impl CpuStock {
    pub(crate) const fn new() -> Self {
        Self {
            account: AtomicU32::new(0),
            prepaid: AtomicU32::new(0),
            kinds: [const { AtomicI32::new(0) }; KINDS],
        }
    }

    fn account(&self) -> Option<AccountNumber> {
        // Acquire: pairs with `become`, for others that look.
        AccountNumber::new(self.account.load(Acquire) as u16)
    }

    fn count(&self, kind: Kind, pages: i32) {
        let count = &self.kinds[kind as usize];
        count.store(count.load(Relaxed) + pages, Relaxed);
    }

    /// Charges a page that is in stock; false if none is, for this account.
    pub(super) fn charge(&self, account: AccountNumber, kind: Kind) -> bool {
        let prepaid = self.prepaid.load(Relaxed);
        if prepaid == 0 || self.account.load(Relaxed) != u32::from(account.get()) {
            return false;
        }
        self.prepaid.store(prepaid - 1, Relaxed);
        self.count(kind, 1);
        true
    }

    /// Pages have been taken for an account, of which one is charged at once.
    pub(super) fn refill(&self, account: AccountNumber, pages: u32, kind: Kind) {
        self.become_stock_of(account);
        self.prepaid.store(self.prepaid.load(Relaxed) + pages - 1, Relaxed);
        self.count(kind, 1);
        self.keep_few(account);
    }

    /// A charged page is free.
    pub(super) fn uncharge(&self, account: AccountNumber, kind: Kind) {
        self.become_stock_of(account);
        self.prepaid.store(self.prepaid.load(Relaxed) + 1, Relaxed);
        self.count(kind, -1);
        self.keep_few(account);
    }

    fn keep_few(&self, account: AccountNumber) {
        let prepaid = self.prepaid.load(Relaxed);
        if prepaid > MOST {
            self.prepaid.store(BATCH, Relaxed);
            account.give(prepaid - BATCH);
        }
    }

    fn become_stock_of(&self, account: AccountNumber) {
        if self.account.load(Relaxed) != u32::from(account.get()) {
            self.bring_in();
            // Release: who sees the new owner sees a stock without the former one's.
            self.account.store(account.get().into(), Release);
        }
    }

    /// Brings everything into the account.
    fn bring_in(&self) {
        let Some(account) = self.account() else { return };
        for kind in Kind::ALL {
            let pages = self.kinds[kind as usize].swap(0, Relaxed);
            account.add_kind(kind, pages.into());
        }
        let prepaid = self.prepaid.swap(0, Relaxed);
        self.account.store(0, Release);
        // The account may be gone afterwards.
        if prepaid > 0 {
            account.give(prepaid);
        }
    }
}

/// Pages that CPUs have in stock for an account and those below.
pub(super) fn prepaid_within(account: AccountNumber) -> i64 {
    stocks_within(account).map(|stock| i64::from(stock.prepaid.load(Relaxed))).sum()
}

/// What stocks say about a kind.
pub(super) fn of_kind_within(account: AccountNumber, kind: Kind) -> i64 {
    stocks_within(account).map(|stock| i64::from(stock.kinds[kind as usize].load(Relaxed))).sum()
}

fn stocks_within(account: AccountNumber) -> impl Iterator<Item = &'static CpuStock> {
    let is_within = move |stock: &&CpuStock| stock.account().is_some_and(|known| known.is_within(account));
    local::all().map(|memory| &memory.stock).filter(is_within)
}

/// Has all CPUs bring in what they have in stock for certain accounts. Not from interrupt handlers.
pub(super) fn bring_in(of: impl Fn(AccountNumber) -> bool) {
    let mut keepers = CpuSet::EMPTY;
    for cpu in cpu::online().iter() {
        if local::of(cpu).and_then(|memory| memory.stock.account()).is_some_and(&of) {
            keepers.insert(cpu);
        }
    }
    if !keepers.is_empty() {
        sync::remote::call(keepers, |_| local::local(|cpu| cpu.stock.bring_in()), 0);
    }
}
