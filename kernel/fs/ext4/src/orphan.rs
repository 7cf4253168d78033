//! The list of orphans: files that nobody can name any more but somebody has open, and files that are just being shortened.
//!
//! The superblock names the first, each inode the next (in the field that later says when it was deleted). After a crash those without names are
//! deleted and the others are shortened to their size. The list is known in memory as well, because only so an inode can be taken out
//! of its middle.

use alloc::vec::Vec;

use memory::fallible;

use crate::handle::Handle;
use crate::{Error, Result};

/// Orphans that a list may have: a damaged list ends.
const ORPHANS_MAX: usize = 1 << 20;

impl Handle<'_> {
    /// Reads the list from the disk.
    pub(crate) fn read_orphans(&self, first: u32) -> Result<Vec<u32>> {
        let mut orphans = Vec::new();
        let mut next = first;
        while next != 0 {
            // A loop would be found by looking for the number, but a long list is not searched each time: it just ends.
            if orphans.len() >= ORPHANS_MAX || next < self.system().geometry.first_inode() {
                return Err(Error::Corrupted("the list of orphans", next.into()));
            }
            fallible::try_push(&mut orphans, next)?;
            next = self.inode(next)?.deleted;
        }
        Ok(orphans)
    }

    /// Whether a file is in the list.
    pub(crate) fn is_orphan(&self, number: u32) -> bool {
        self.orphans.as_ref().unwrap_or(&self.running.orphans).contains(&number)
    }

    /// Puts a file at the list's head. Its inode is stored by the caller's next [`store`](Handle::store) of what this returns.
    pub(crate) fn add_orphan(&mut self, number: u32) -> Result<()> {
        if self.is_orphan(number) {
            return Ok(());
        }
        self.reserve_orphan()?;
        let mut inode = self.inode(number)?;
        inode.deleted = self.orphans_mut()?.first().copied().unwrap_or(0);
        self.store(&inode)?;
        self.change_superblock(|raw| raw.last_orphan.set(number))?;
        self.orphans_mut()?.insert(0, number);
        Ok(())
    }

    /// Takes a file out of the list.
    pub(crate) fn remove_orphan(&mut self, number: u32) -> Result<()> {
        if !self.is_orphan(number) {
            return Ok(());
        }
        let orphans = self.orphans_mut()?;
        let Some(at) = orphans.iter().position(|known| *known == number) else { return Ok(()) };
        orphans.remove(at);
        let next = orphans.get(at).copied().unwrap_or(0);
        let before = at.checked_sub(1).and_then(|at| orphans.get(at)).copied();
        match before {
            None => self.change_superblock(|raw| raw.last_orphan.set(next))?,
            Some(before) => {
                let mut inode = self.inode(before)?;
                inode.deleted = next;
                self.store(&inode)?;
            }
        }
        let mut inode = self.inode(number)?;
        inode.deleted = 0;
        self.store(&inode)
    }
}
