//! The first access to memory that gets a huge page.

use core::sync::atomic::Ordering::Relaxed;

use machine::fault::Access;
use machine::page_table::{ENTRIES, Entry, EntryCell, EntryFlags, LEAF_TABLE_BYTES, NoLeaf, leaf_entries};

use super::super::entry::{self, PRIVATE};
use super::super::fault::Step;
use super::super::space::AddressSpace;
#[cfg(test)]
use super::super::window::{self, Window};
use super::policy::COUNTERS;
use crate::OutOfMemory;
use crate::frame::huge::{HUGE_FRAMES, HugeFrame, prepare_tables_behind, set_table_behind};
use crate::frame::{Frame, Purpose, Zeroed};
use crate::region::{Region, RegionFlags};
use machine::address::{PAGE_SIZE, PhysAddr};

/// A huge page and the table to be behind it, which nobody knows yet.
pub(super) struct Prepared {
    pub(super) page: HugeFrame,
    table: Frame,
}

impl Prepared {
    pub(super) fn new() -> Result<Prepared, OutOfMemory> {
        prepare_tables_behind();
        let page = HugeFrame::allocate(Purpose::Anonymous)?;
        let table = Frame::allocate(Purpose::PageTable, Zeroed::No)?;
        Ok(Prepared { page, table })
    }

    /// Writes the table for a region with these permissions.
    pub(super) fn write_table(&self, permission: EntryFlags) {
        let first = self.page.physical().as_u64();
        let flags = permission | PRIVATE | EntryFlags::ACCESSED | EntryFlags::DIRTY;
        // SAFETY: the frame is about to be a leaf table, and every entry is written here before anybody else knows it.
        let cells = unsafe { leaf_entries(self.table.physical()) };
        for (number, cell) in cells.iter().enumerate() {
            let frame = first + (number * PAGE_SIZE) as u64;
            cell.store(Entry::new(PhysAddr::new(frame), flags));
        }
        set_table_behind(self.page.physical(), self.table.physical());
    }

    /// The references are those of a tree from now on.
    pub(super) fn give_away(self) {
        self.page.give_away();
        let _ = self.table.into_physical();
    }
}

impl AddressSpace {
    /// Goes on with an attempt at an address whose leaf table is absent or closed. The region lock is held.
    #[inline(never)]
    pub(in super::super) fn leaf_for_attempt(
        &self,
        region: &Region,
        address: u64,
        access: Access,
        why: NoLeaf,
    ) -> Result<&[EntryCell; ENTRIES], Step> {
        if region.flags().contains(RegionFlags::POOLED) {
            return match why {
                NoLeaf::Huge(link) if permits(link, access) => Err(Step::Done),
                _ => Err(Step::Pool(access)),
            };
        }
        match why {
            NoLeaf::Absent if self.gets_huge_page(region, address) => return Err(Step::Huge),
            NoLeaf::Huge(link) if permits(link, access) => return Err(Step::Done),
            NoLeaf::Huge(_) | NoLeaf::Shared => return Err(Step::Shared),
            NoLeaf::Absent | NoLeaf::OutOfMemory => {}
        }
        // SAFETY: the region lock is held and the address lies in a region, so the tables stay.
        match unsafe { self.tables.tree().leaf_or_create(address, &*self.tables) } {
            Ok(leaf) => Ok(leaf),
            Err(NoLeaf::OutOfMemory) => Err(Step::Memory),
            Err(NoLeaf::Shared | NoLeaf::Huge(_) | NoLeaf::Absent) => Err(Step::Again),
        }
    }

    /// Maps a huge page at an address that has no leaf table, or makes the table: then the fault goes on with small pages.
    ///
    /// # Errors
    /// When there is no memory for the table either.
    pub(in super::super) fn fill_huge(&self, address: u64) -> Result<(), OutOfMemory> {
        match Prepared::new() {
            Ok(prepared) => {
                // Before `change` is taken: it takes a while, and others may want to change something elsewhere.
                prepared.page.zero();
                #[cfg(test)]
                window::pass(Window::HugePrepared);
                if self.install_huge(address & !(LEAF_TABLE_BYTES - 1), prepared) {
                    return Ok(());
                }
            }
            Err(OutOfMemory) => {
                COUNTERS.fallbacks.fetch_add(1, Relaxed);
            }
        }
        let regions = self.regions.read();
        if regions.find(address).is_none() {
            return Ok(());
        }
        // SAFETY: the region lock is held and the address lies in a region, so the tables stay.
        match unsafe { self.tables.tree().leaf_or_create(address, &*self.tables) } {
            Err(NoLeaf::OutOfMemory) => Err(OutOfMemory),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Returns whether the page is in place.
    fn install_huge(&self, base: u64, prepared: Prepared) -> bool {
        let _change = self.change.lock();
        let permission = {
            let regions = self.regions.read();
            let region = regions.find(base).filter(|region| self.gets_huge_page(region, base));
            let Some(region) = region else { return false };
            entry::readable(region.flags()) | EntryFlags::WRITABLE
        };
        prepared.write_table(permission);
        self.closes_tables.store(true, Relaxed);
        // SAFETY: `change` is held and the address lies in a region, so the tables stay.
        let linked = unsafe {
            self.tables.tree().link_huge(base, prepared.page.physical(), permission, &*self.tables)
        };
        if linked != Some(true) {
            return false;
        }
        prepared.give_away();
        self.tables.table_joined();
        self.resident.private.fetch_add(i64::from(HUGE_FRAMES), Relaxed);
        COUNTERS.mapped.fetch_add(1, Relaxed);
        COUNTERS.filled.fetch_add(1, Relaxed);
        true
    }
}

/// Whether the link that maps a huge page lets an access through.
fn permits(link: Entry, access: Access) -> bool {
    match access {
        Access::Read => link.is_present(),
        Access::Write => link.contains(EntryFlags::PRESENT | EntryFlags::WRITABLE),
        Access::Execute => link.is_present() && !link.contains(EntryFlags::NO_EXECUTE),
    }
}
