//! The names in a directory.
//!
//! Entries are in a list in order of creation, each with a cookie that is never used again: that is the position which
//! reading goes on from, so reading a directory while it changes shows every entry that stays exactly once. A removed
//! entry leaves a gap; when more than half are gaps the list closes up (cookies stay). A hash table leads from a name to
//! its cookie, and a binary search from there to the entry.
//!
//! Everything that can fail for want of memory happens before anything is changed.

use alloc::sync::Arc;
use alloc::vec::Vec;

use hashbrown::HashTable;
use vfs::inode::{FIRST_POSITION, Inode};
use vfs::name::{Name, hash_name};
use vfs::{Error, Result, allocation};

use crate::node::TmpNode;

/// Gaps that a list may have before it is worth closing up.
const GAPS_MIN: usize = 32;

/// A name's hash as the table wants it: it takes the group from the lowest bits and a mark of each entry from the highest.
#[inline(always)]
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

struct Slot {
    cookie: u64,
    entry: Option<(Name, Arc<Inode>)>,
}

/// The names of one directory.
pub(crate) struct Names {
    slots: Vec<Slot>,
    by_name: HashTable<(u32, u64)>,
    gaps: usize,
    next_cookie: u64,
    /// While a tree is taken down: the directory to go on with after this one, see [`Names::dismantle`].
    parked: Option<Arc<Inode>>,
}

impl Names {
    pub(crate) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            by_name: HashTable::new(),
            gaps: 0,
            next_cookie: FIRST_POSITION,
            parked: None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.gaps
    }

    fn slot_of(&self, cookie: u64) -> Option<usize> {
        self.slots.binary_search_by_key(&cookie, |slot| slot.cookie).ok()
    }

    fn cookie_of(&self, name: &[u8]) -> Option<u64> {
        let hash = hash_name(name);
        let found = self.by_name.find(spread(hash), |&(entry_hash, cookie)| {
            entry_hash == hash
                && self.slot_of(cookie).is_some_and(|index| {
                    self.slots[index].entry.as_ref().is_some_and(|(known, _)| known.as_bytes() == name)
                })
        });
        found.map(|&(_, cookie)| cookie)
    }

    pub(crate) fn find(&self, name: &[u8]) -> Option<&Arc<Inode>> {
        let index = self.slot_of(self.cookie_of(name)?)?;
        self.slots[index].entry.as_ref().map(|(_, inode)| inode)
    }

    /// Makes room for one more name: [`insert`](Self::insert) can't fail after that.
    pub(crate) fn reserve(&mut self) -> Result<()> {
        allocation::reserve(&mut self.slots, 1)?;
        allocation::fail_point()?;
        self.by_name.try_reserve(1, |&(hash, _)| spread(hash)).map_err(|_| Error::OutOfMemory)
    }

    /// Adds a name that is not there; room was reserved.
    pub(crate) fn insert(&mut self, name: Name, inode: Arc<Inode>) {
        debug_assert!(self.cookie_of(name.as_bytes()).is_none(), "a name is in a directory once");
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let hash = hash_name(name.as_bytes());
        self.slots.push(Slot { cookie, entry: Some((name, inode)) });
        self.by_name.insert_unique(spread(hash), (hash, cookie), |&(hash, _)| spread(hash));
    }

    /// Takes a name out.
    pub(crate) fn remove(&mut self, name: &[u8]) -> Option<Arc<Inode>> {
        let cookie = self.cookie_of(name)?;
        let hash = hash_name(name);
        let same = |&(_, other): &(u32, u64)| other == cookie;
        self.by_name.find_entry(spread(hash), same).ok()?.remove();
        let index = self.slot_of(cookie)?;
        let (_, inode) = self.slots[index].entry.take()?;
        self.gaps += 1;
        if self.gaps > GAPS_MIN && self.gaps > self.slots.len() / 2 {
            self.slots.retain(|slot| slot.entry.is_some());
            self.gaps = 0;
        }
        Some(inode)
    }

    /// Lets a name mean another file.
    pub(crate) fn replace(&mut self, name: &[u8], inode: Arc<Inode>) -> Option<Arc<Inode>> {
        let index = self.slot_of(self.cookie_of(name)?)?;
        let (_, old) = self.slots[index].entry.as_mut()?;
        Some(core::mem::replace(old, inode))
    }

    /// The entries from a cookie on, in order, each with the cookie after it.
    pub(crate) fn from(&self, cookie: u64) -> impl Iterator<Item = (&Name, &Arc<Inode>, u64)> {
        let start = self.slots.partition_point(|slot| slot.cookie < cookie);
        self.slots[start..]
            .iter()
            .filter_map(|slot| slot.entry.as_ref().map(|(name, inode)| (name, inode, slot.cookie + 1)))
    }

    /// Drops everything below the directory, however deep, without recursion and without memory: a directory that is
    /// entered keeps the rest of the list of the one it is in, and is parked there until its own list is done.
    pub(crate) fn dismantle(&mut self) {
        let mut slots = core::mem::take(&mut self.slots);
        let mut parked: Option<Arc<Inode>> = None;
        loop {
            if let Some(slot) = slots.pop() {
                let Some((_, mut inode)) = slot.entry else { continue };
                // A directory that somebody else still uses is taken down when that ends.
                if let Some(inner) = Arc::get_mut(&mut inode).and_then(names_of) {
                    core::mem::swap(&mut inner.slots, &mut slots);
                    inner.parked = parked.take();
                    parked = Some(inode);
                }
            } else {
                let Some(mut inode) = parked.take() else { return };
                let Some(inner) =
                    Arc::get_mut(&mut inode).and_then(|inode| inode.downcast_mut::<TmpNode>()?.names_mut())
                else {
                    return;
                };
                slots = core::mem::take(&mut inner.slots);
                parked = inner.parked.take();
            }
        }
    }

    /// The position behind the last entry.
    pub(crate) fn end(&self) -> u64 {
        self.next_cookie
    }
}

/// The names of an inode that is a directory with names.
fn names_of(inode: &mut Inode) -> Option<&mut Names> {
    inode.downcast_mut::<TmpNode>()?.names_mut().filter(|names| names.len() > 0)
}
