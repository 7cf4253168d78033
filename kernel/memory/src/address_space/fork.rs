//! Copying an address space (fork).
//!
//! Regions are copied as values. Of the pages, only private ones are shared: their entries lose the permission to store
//! in the parent and are copied into the child's tables with one more reference to the frame; whoever stores first makes
//! a copy, and the last one to hold the frame keeps it. Pages of files and of shared memory are not copied at all: the
//! child finds them in their caches, sixteen at a fault. Ranges that never were writable are skipped without a look. Whole leaf tables
//! of anonymous memory are shared instead of being copied: see `shared_tables`.

use super::account;
use super::entry::PRIVATE;
use super::error::MapError;
use super::request::MapBacking;
use super::space::{AddressSpace, Layout};
#[cfg(test)]
use super::window::{self, Window};
use crate::frame::Frame;
use crate::region::{Region, RegionFlags};
use alloc::sync::Arc;
use core::ops::{ControlFlow, Range};
use core::sync::atomic::Ordering;
use machine::address::PAGE_SIZE;
use machine::page_table::EntryFlags;

/// What has been done for a child so far.
struct Sharing<'a> {
    child: &'a AddressSpace,
    /// Some entries or links do not let stores through any more.
    protected: bool,
    private_pages: i64,
}

impl AddressSpace {
    /// A copy of the address space for a new process. Its registers' view of memory is the parent's at this moment.
    ///
    /// # Errors
    /// When there is no memory, or not enough may be committed; the parent is as before then.
    pub fn fork(&self) -> Result<Arc<AddressSpace>, MapError> {
        let layout = self.change.lock();
        let child_layout = Layout { lock_future: RegionFlags::empty(), ..*layout };
        let tree = self.regions.read().try_clone(inherited)?;
        let committed = tree
            .iter()
            .filter(|region| region.flags().contains(RegionFlags::ACCOUNTED))
            .map(Region::pages)
            .sum();
        account::charge(committed)?;
        let child = match AddressSpace::with_regions(tree, child_layout, self.limits()) {
            Ok(child) => {
                child.forbid_huge_pages(self.forbids_huge_pages());
                child
            }
            Err(error) => {
                account::release(committed);
                return Err(error.into());
            }
        };
        self.set_copying(true);
        let copied = self.share_private_pages(&child);
        self.set_copying(false);
        drop(layout);
        copied.map(|()| child)
    }

    /// Faults that begin after this see the new state; none is left that saw the old one.
    fn set_copying(&self, copying: bool) {
        let _regions = self.regions.write();
        self.copying.store(copying, Ordering::Release);
    }

    /// Shares all private pages with the child. On failure the child has some of them, and the parent is merely
    /// write-protected more than necessary.
    fn share_private_pages(&self, child: &AddressSpace) -> Result<(), MapError> {
        let mut sharing = Sharing { child, protected: false, private_pages: 0 };
        let mut result = Ok(());
        let mut address = 0;
        // The child is not known to anybody who could change its regions, and `change` keeps the parent's as they are.
        while let Some((range, whole_tables)) = next_private(child, address) {
            address = range.end;
            result = self.share_range(&mut sharing, range, whole_tables);
            if result.is_err() {
                break;
            }
        }
        child.resident.private.fetch_add(sharing.private_pages, Ordering::Relaxed);
        child.resident.note_peak();
        #[cfg(test)]
        window::pass(Window::NotForgotten);
        if sharing.protected {
            self.tables.forget(0, super::space::USER_TOP, false);
        }
        result
    }

    fn share_range(
        &self,
        sharing: &mut Sharing<'_>,
        range: Range<u64>,
        whole_tables: bool,
    ) -> Result<(), MapError> {
        let child = sharing.child;
        // SAFETY: `change` is held, so the parent's tables stay; the child's are only known here.
        let walked = unsafe {
            self.tables.tree().for_each_leaf(range, |leaf| {
                if leaf.is_pooled() {
                    sharing.protected = true;
                    return match self.share_pooled(child, leaf) {
                        Ok(()) => ControlFlow::Continue(()),
                        Err(error) => ControlFlow::Break(error.into()),
                    };
                }
                if whole_tables && leaf.is_whole() {
                    sharing.protected |= !leaf.is_shared();
                    return match self.share_table(child, leaf) {
                        Ok(pages) => {
                            sharing.private_pages += pages;
                            ControlFlow::Continue(())
                        }
                        Err(error) => ControlFlow::Break(error.into()),
                    };
                }
                let Some(first) = leaf.cells.iter().position(|cell| cell.load().contains(PRIVATE)) else {
                    return ControlFlow::Continue(());
                };
                let tables = &*child.tables;
                let Ok(table) = tables.tree().leaf_or_create(leaf.base, tables) else {
                    return ControlFlow::Break(MapError::OutOfMemory);
                };
                let slot = (leaf.base as usize / PAGE_SIZE) % table.len();
                let mut copied = 0;
                // A piece of a leaf table ends with the table, so the two are equally long.
                for (cell, copy) in leaf.cells.iter().zip(&table[slot..]).skip(first) {
                    let entry = cell.load();
                    if !entry.contains(PRIVATE) {
                        continue;
                    }
                    if entry.contains(EntryFlags::WRITABLE) {
                        cell.remove(EntryFlags::WRITABLE);
                        sharing.protected = true;
                    }
                    #[cfg(test)]
                    window::pass(Window::EntryProtected);
                    // One more reference for the child's entry. While `copying` is set nobody replaces a private page.
                    Frame::share_physical(entry.physical());
                    copy.store(entry.without(EntryFlags::WRITABLE));
                    copied += 1;
                }
                sharing.private_pages += copied;
                ControlFlow::Continue(())
            })
        };
        match walked {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(()),
        }
    }
}

/// What the child has of a region.
fn inherited(region: &Region) -> Option<Region> {
    if region.flags.contains(RegionFlags::DONT_FORK) {
        return None;
    }
    let mut copy = region.clone();
    // The pool has promised pages to the one who made the mapping.
    copy.flags.remove(RegionFlags::LOCKED | RegionFlags::LOCK_ON_FAULT | RegionFlags::PROMISED);
    if !region.is_private() {
        // Shared memory is committed once, by the one who made it.
        copy.flags.remove(RegionFlags::ACCOUNTED);
    }
    Some(copy)
}

/// The next range at or after `address` whose private pages the child gets, and whether it may share whole tables there.
fn next_private(child: &AddressSpace, address: u64) -> Option<(Range<u64>, bool)> {
    let regions = child.regions.read();
    let mut position = regions.locate(address);
    while let Some(current) = position {
        let region = regions.at(current);
        let flags = region.flags();
        if flags.contains(RegionFlags::MAY_HAVE_PRIVATE) && !flags.contains(RegionFlags::WIPE_ON_FORK) {
            let anonymous = matches!(region.backing(), MapBacking::Anonymous);
            return Some((region.start()..region.end(), anonymous));
        }
        position = regions.next(current);
    }
    None
}
