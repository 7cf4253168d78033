//! Taking pages of the pool away, allowing less or more of them, sharing and moving them.

use core::mem::ManuallyDrop;
use core::ops::{ControlFlow, Range};
use core::sync::atomic::Ordering;

use machine::address::PhysAddr;
use machine::page_table::{EntryFlags, Leaf, Mark};

use super::super::entry::PERMISSION;
use super::super::gather::Gather;
use super::super::space::AddressSpace;
use crate::OutOfMemory;
use crate::huge_pool::{HUGE_PAGE_BYTES, Kind, PooledPage};

/// Takes a page out whose region is in the tree of regions no more.
pub(in super::super) fn zap(leaf: Leaf<'_>, gather: &mut Gather<'_>) {
    let page = leave(leaf, Mark::Used);
    // SAFETY: the link's reference, which is gone from the tree.
    unsafe { gather.release_pooled(page) };
}

/// Takes a page out of its place; its reference is the caller's.
fn leave(leaf: Leaf<'_>, mark: Mark) -> PhysAddr {
    assert!(leaf.is_whole(), "regions are not cut within a page of the pool");
    let first = leaf.link().physical();
    // SAFETY: the link holds a reference, which nobody else takes.
    match unsafe { PooledPage::borrow(first) }.kind() {
        Kind::Private => leaf.take_out_marked(mark),
        Kind::Shared => leaf.take_out(),
    }
    first
}

/// Gives the link of a page what the region allows now, with stores only where they need not be noticed; returns whether that is less than before.
pub(in super::super) fn grant(leaf: Leaf<'_>, readable: EntryFlags, store: bool) -> bool {
    let former = leaf.link();
    let new = if store { readable | EntryFlags::WRITABLE } else { readable };
    leaf.set_pooled(former.physical(), new);
    let lost = former.flags() & (EntryFlags::PRESENT | EntryFlags::WRITABLE).difference(new);
    former.is_present() && (!lost.is_empty() || (new - former.flags()).contains(EntryFlags::NO_EXECUTE))
}

impl AddressSpace {
    /// Takes the pages of a range out of their places, or only one, while the regions stay. `change` is held.
    pub(in super::super) fn take_pages_out(
        &self,
        range: Range<u64>,
        only: Option<(&PooledPage, Mark)>,
        gather: &mut Gather<'_>,
    ) {
        gather.cover(range.clone());
        // SAFETY: `change` is held, so the tables stay.
        let _ = unsafe {
            self.tables.tree().for_each_leaf(range, |leaf| {
                if only.is_none_or(|(page, _)| page.physical() == leaf.link().physical()) {
                    let page = {
                        let _regions = self.regions.write();
                        leave(leaf, only.map_or(Mark::Used, |(_, mark)| mark))
                    };
                    gather.release_pooled(page);
                }
                ControlFlow::<()>::Continue(())
            })
        };
    }

    /// Lets the child of a fork map a page too; none of the two may store to it. `change` is held, and the child is not known to anybody else.
    ///
    /// # Errors
    /// When there is no memory for the child's tables.
    pub(in super::super) fn share_pooled(
        &self,
        child: &AddressSpace,
        leaf: Leaf<'_>,
    ) -> Result<(), OutOfMemory> {
        child.closes_tables.store(true, Ordering::Relaxed);
        // SAFETY: the child is only known here.
        let place = unsafe { child.tables.tree().place_or_create(leaf.base, &*child.tables) };
        let place = place.ok_or(OutOfMemory)?;
        let link = leaf.link();
        let permission = link.flags() & PERMISSION.difference(EntryFlags::WRITABLE);
        {
            // Who stores for the program from outside does it under this lock.
            let _regions = self.regions.write();
            leaf.set_pooled(link.physical(), permission);
        }
        // SAFETY: the link holds a reference, and `change` keeps the link.
        let page = unsafe { PooledPage::borrow(link.physical()) };
        place.map(PooledPage::clone(&page).into_link(), permission);
        Ok(())
    }

    /// Makes the tables for the places of a range at its new place.
    ///
    /// # Errors
    /// No memory.
    pub(in super::super) fn make_places(&self, old: &Range<u64>, new_start: u64) -> Result<(), OutOfMemory> {
        let mut result = Ok(());
        // SAFETY: `change` is held, so the tables stay.
        unsafe {
            self.tables.tree().for_each_place(old.clone(), &mut |place| {
                let target = new_start + (place.base - old.start);
                let made = self.tables.tree().place_or_create(target, &*self.tables);
                result = result.and(made.map(|_| ()).ok_or(OutOfMemory));
            });
        }
        result
    }

    /// Moves what is at the places of a range, marks included, for which [`AddressSpace::make_places`] has made the tables. No region is there any more.
    pub(in super::super) fn move_places(&self, old: &Range<u64>, new_start: u64) {
        // SAFETY: `change` is held, so the tables stay.
        unsafe {
            self.tables.tree().for_each_place(old.clone(), &mut |place| {
                let target = new_start + (place.base - old.start);
                let target = self.tables.tree().place_or_create(target, &*self.tables);
                target.expect("its table has been made").put(place.take());
            });
        }
        self.tables.forget(old.start, old.end, false);
    }

    /// How many spaces, or places of them, map a page, for who counts what is mapped.
    pub(in super::super) fn pooled_mappings(leaf: &Leaf<'_>) -> u64 {
        // SAFETY: the link holds a reference, and the caller keeps the link.
        let page: ManuallyDrop<PooledPage> = unsafe { PooledPage::borrow(leaf.link().physical()) };
        u64::from(page.references()) - u64::from(page.kind() == Kind::Shared)
    }

    /// Bytes of pooled pages that are mapped in a range. The region lock is held, or `change`.
    pub(in super::super) fn pooled_bytes(&self, range: Range<u64>) -> u64 {
        let mut bytes = 0;
        // SAFETY: the caller keeps the tables.
        let _ = unsafe {
            self.tables.tree().for_each_leaf(range, |_| {
                bytes += HUGE_PAGE_BYTES;
                ControlFlow::<()>::Continue(())
            })
        };
        bytes
    }
}
