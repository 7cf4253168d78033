//! The list of orphans: files that nobody can name any more but somebody has open, and files that are just being shortened.
//!
//! The superblock names the first, each inode the next (in the field that later says when it was deleted). After a crash those without names are
//! deleted and the others are shortened to their size. The list is known in memory as well, with both neighbours of each file, because only so an
//! inode can be taken out of its middle. The superblock learns the first one when a transaction is closed: files that come and
//! go within one transaction leave it alone.

use alloc::vec::Vec;

use memory::fallible;

use crate::cache::BlockMap;
use crate::file_system::FileSystem;
use crate::handle::Handle;
use crate::inode::Inode;
use crate::{Error, Result};

/// Orphans that a list may have: a damaged list ends.
const ORPHANS_MAX: usize = 1 << 20;

/// An orphan's neighbours in the list; 0: there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Neighbours {
    before: u32,
    next: u32,
}

/// The list, as published.
#[derive(Default)]
pub(crate) struct Orphans {
    first: u32,
    listed: BlockMap<Neighbours>,
}

impl Orphans {
    /// The first one; 0: there is none.
    pub(crate) fn first(&self) -> u32 {
        self.first
    }

    /// The one behind another, the first one behind 0; 0: there is none.
    pub(crate) fn after(&self, number: u32) -> u32 {
        if number == 0 {
            self.first
        } else {
            self.listed.get(&u64::from(number)).map_or(0, |found| found.next)
        }
    }

    /// Reads the list from the disk. A damaged one ends where it is damaged.
    pub(crate) fn read(system: &FileSystem) -> Result<Self> {
        let mut orphans = Self::default();
        let mut last = 0;
        let mut number = system.geometry.raw.last_orphan.get();
        while number != 0 {
            match orphans.read_one(system, last, number) {
                Ok(next) => (last, number) = (number, next),
                Err(error @ Error::Corrupted(..)) => {
                    log::warn!("ext4: the list of orphans: {error}; e2fsck should look at it");
                    break;
                }
                Err(error) => return Err(error),
            }
        }
        if orphans.first != 0 {
            log::info!("ext4: {} orphans", orphans.listed.len());
        }
        Ok(orphans)
    }

    /// Adds one to the end, behind `before`; what its inode says comes next.
    fn read_one(&mut self, system: &FileSystem, before: u32, number: u32) -> Result<u32> {
        if self.listed.len() >= ORPHANS_MAX || number < system.geometry.first_inode() {
            return Err(Error::Corrupted("the list of orphans", number.into()));
        }
        if self.listed.contains_key(&u64::from(number)) {
            return Err(Error::Corrupted("a loop in the list of orphans", number.into()));
        }
        let next = system.inode(number)?.deleted;
        self.listed.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
        self.listed.insert(number.into(), Neighbours { before, next: 0 });
        match self.listed.get_mut(&u64::from(before)) {
            Some(neighbours) => neighbours.next = number,
            None => self.first = number,
        }
        Ok(next)
    }
}

/// What a handle changes in the list: files' new neighbours, `None` for those that leave it.
#[derive(Default)]
pub(crate) struct OrphanChanges {
    first: Option<u32>,
    listed: Vec<(u32, Option<Neighbours>)>,
}

impl OrphanChanges {
    /// Makes room for them, so that [`apply`](Self::apply) can't fail.
    pub(crate) fn reserve(&self, orphans: &mut Orphans) -> Result<()> {
        orphans.listed.try_reserve(self.listed.len()).map_err(|_| Error::OutOfMemory)
    }

    /// Publishes them. Room was reserved.
    pub(crate) fn apply(self, orphans: &mut Orphans) {
        orphans.first = self.first.unwrap_or(orphans.first);
        for (number, neighbours) in self.listed {
            match neighbours {
                Some(neighbours) => orphans.listed.insert(number.into(), neighbours),
                None => orphans.listed.remove(&u64::from(number)),
            };
        }
    }
}

impl Handle<'_> {
    fn first_orphan(&self) -> u32 {
        self.orphans.first.unwrap_or(self.running.orphans.first)
    }

    /// A file's neighbours, if it is in the list.
    fn neighbours(&self, number: u32) -> Option<Neighbours> {
        match self.orphans.listed.iter().find(|(changed, _)| *changed == number) {
            Some((_, neighbours)) => *neighbours,
            None => self.running.orphans.listed.get(&u64::from(number)).copied(),
        }
    }

    fn set_neighbours(&mut self, number: u32, neighbours: Option<Neighbours>) -> Result<()> {
        let changes = &mut self.orphans.listed;
        match changes.iter_mut().find(|(changed, _)| *changed == number) {
            Some((_, changed)) => *changed = neighbours,
            None => fallible::try_push(changes, (number, neighbours))?,
        }
        Ok(())
    }

    /// Puts a file at the list's head, which its inode is stored for.
    pub(crate) fn add_orphan(&mut self, number: u32) -> Result<()> {
        if self.neighbours(number).is_some() {
            return Ok(());
        }
        let mut inode = self.inode(number)?;
        self.list_orphan(&mut inode)?;
        self.store(&inode)
    }

    /// Puts a file at the list's head, unless it is in the list. Its inode is the caller's to store.
    pub(crate) fn list_orphan(&mut self, inode: &mut Inode) -> Result<()> {
        let number = inode.number;
        if self.neighbours(number).is_some() {
            return Ok(());
        }
        let next = self.first_orphan();
        inode.deleted = next;
        self.set_neighbours(number, Some(Neighbours { before: 0, next }))?;
        if let Some(neighbours) = self.neighbours(next) {
            self.set_neighbours(next, Some(Neighbours { before: number, ..neighbours }))?;
        }
        self.orphans.first = Some(number);
        Ok(())
    }

    /// Takes a file out of the list. False: it was not in it. What its own inode says of the list is the caller's to change.
    pub(crate) fn unlist_orphan(&mut self, number: u32) -> Result<bool> {
        let Some(Neighbours { before, next }) = self.neighbours(number) else { return Ok(false) };
        self.set_neighbours(number, None)?;
        if let Some(neighbours) = self.neighbours(next) {
            self.set_neighbours(next, Some(Neighbours { before, ..neighbours }))?;
        }
        if before == 0 {
            self.orphans.first = Some(next);
        } else {
            let neighbours = self.neighbours(before).unwrap_or_default();
            self.set_neighbours(before, Some(Neighbours { next, ..neighbours }))?;
            let mut inode = self.inode(before)?;
            inode.deleted = next;
            self.store(&inode)?;
        }
        Ok(true)
    }

    /// Takes a file out of the list that goes on to exist.
    pub(crate) fn remove_orphan(&mut self, number: u32) -> Result<()> {
        if !self.unlist_orphan(number)? {
            return Ok(());
        }
        let mut inode = self.inode(number)?;
        inode.deleted = 0;
        self.store(&inode)
    }
}
