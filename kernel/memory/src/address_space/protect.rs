//! Changing what is allowed (mprotect).

use super::account;
use super::entry::{self, PRIVATE, borrow_frame};
use super::error::MapError;
use super::map::{cache_of, counts_as_committed};
use super::pooled;
use super::request::{MapBacking, Protection};
use super::space::{AddressSpace, MAX_REGIONS};
use super::unmap::page_range;
use crate::region::{Region, RegionFlags, RegionTree};
use core::ops::{ControlFlow, Range};
use machine::address::UserAddr;
use machine::page_table::{Entry, EntryFlags};

/// What the entries of a range may allow from now on.
#[derive(Clone, Copy)]
struct Grant {
    readable: EntryFlags,
    /// Entries of private pages with one reference may be stored to.
    private_writable: bool,
    /// All other entries may be stored to.
    shared_writable: bool,
}

impl AddressSpace {
    /// Sets the protection of a range.
    ///
    /// # Errors
    /// As mprotect(2). What lies before the first hole or refusing region has been changed.
    pub fn protect(&self, start: UserAddr, length: u64, protection: Protection) -> Result<(), MapError> {
        let range = page_range(start, length)
            .map_err(|error| if start.page_offset() == 0 { MapError::OutOfMemory } else { error })?;
        if range.is_empty() {
            return Ok(());
        }
        let _layout = self.change.lock();
        let wanted = RegionFlags::from_protection(protection);
        let (stop, result) = reach(&self.regions.read(), &range, protection);
        if stop > range.start {
            self.own_tables(range.start..stop)?;
            self.change_flags(range.start..stop, |region| with_protection(region.flags(), wanted))?;
            self.apply_protection(range.start..stop);
        }
        result
    }

    /// Gives the regions of a covered range new flags, cutting and merging as needed. Memory that becomes committed is
    /// charged first.
    pub(super) fn change_flags(
        &self,
        range: Range<u64>,
        flags: impl Fn(&Region) -> RegionFlags,
    ) -> Result<(), MapError> {
        self.own_cut(range.start)?;
        self.own_cut(range.end)?;
        let mut regions = self.regions.write();
        let cuts = [range.start, range.end]
            .iter()
            .filter(|&&cut| regions.find(cut).is_some_and(|region| region.start() < cut))
            .count();
        if regions.count() + cuts > MAX_REGIONS {
            return Err(MapError::OutOfMemory);
        }
        let newly_committed = regions
            .overlapping(range.start, range.end)
            .filter(|region| {
                let newly = flags(region).difference(region.flags());
                newly.contains(RegionFlags::ACCOUNTED)
            })
            .map(|region| (region.end().min(range.end) - region.start().max(range.start)) >> 12)
            .sum();
        account::charge(newly_committed)?;
        let cut = regions.split_at(range.start).and_then(|()| regions.split_at(range.end));
        if let Err(error) = cut {
            regions.merge_range(range.start, range.end);
            account::release(newly_committed);
            return Err(error.into());
        }
        regions.change(range.start, range.end, |region| region.flags = flags(region));
        Ok(())
    }

    /// Makes the entries of a range agree with their regions.
    fn apply_protection(&self, range: Range<u64>) {
        let mut address = range.start;
        let mut reduced = false;
        while address < range.end {
            let (end, grant) = {
                let regions = self.regions.read();
                let Some(region) = regions.find(address) else { break };
                (region.end().min(range.end), grant(region))
            };
            reduced |= self.apply_grant(address..end, grant);
            address = end;
        }
        if reduced {
            self.tables.forget(range.start, range.end, false);
        }
    }

    /// Returns whether some entry allows less than before.
    fn apply_grant(&self, range: Range<u64>, grant: Grant) -> bool {
        let mut reduced = false;
        // SAFETY: `change` is held, so the tables stay.
        let _ = unsafe {
            self.tables.tree().for_each_leaf(range, |leaf| {
                if leaf.is_pooled() {
                    reduced |= pooled::grant(leaf, grant.readable, grant.shared_writable);
                    return ControlFlow::Continue(());
                }
                for cell in leaf.cells {
                    let former = cell.update(|entry| (!entry.is_empty()).then(|| granted(entry, grant)));
                    if let Some(former) = former {
                        reduced |= former.is_present() && allows_less(former, granted(former, grant));
                    }
                }
                ControlFlow::<()>::Continue(())
            })
        };
        reduced
    }
}

/// Up to where a protection can be granted, and what stops it there.
fn reach(regions: &RegionTree, range: &Range<u64>, protection: Protection) -> (u64, Result<(), MapError>) {
    let mut reached = range.start;
    for region in regions.overlapping(range.start, range.end) {
        if region.start() > reached {
            break;
        }
        if !region.flags().maximum().contains(protection) {
            return (reached, Err(MapError::AccessDenied));
        }
        reached = region.end().min(range.end);
    }
    let result = if reached >= range.end { Ok(()) } else { Err(MapError::OutOfMemory) };
    (reached, result)
}

fn with_protection(flags: RegionFlags, wanted: RegionFlags) -> RegionFlags {
    let mut new = flags.difference(RegionFlags::PROTECTION) | wanted;
    let private = !new.contains(RegionFlags::SHARED);
    if private && new.contains(RegionFlags::WRITE) {
        new |= RegionFlags::MAY_HAVE_PRIVATE;
    }
    if private && counts_as_committed(new) {
        new |= RegionFlags::ACCOUNTED;
    }
    new
}

fn grant(region: &Region) -> Grant {
    let write = region.flags().contains(RegionFlags::WRITE);
    let paged = matches!(region.backing(), MapBacking::Paged(_));
    let silent = !paged && cache_of(region.backing()).is_none_or(|cache| !cache.has_representative());
    Grant {
        readable: entry::readable(region.flags()),
        private_writable: write,
        shared_writable: write && region.flags().contains(RegionFlags::SHARED) && silent,
    }
}

/// The entry as the grant wants it. It must not be empty.
fn granted(entry: Entry, grant: Grant) -> Entry {
    let base = entry.without(entry::PERMISSION).with(grant.readable);
    if !grant.readable.contains(EntryFlags::PRESENT) {
        return base;
    }
    let writable = if entry.contains(PRIVATE) {
        // SAFETY: `change` is held, so the entry keeps its frame, or has been replaced and the update fails.
        grant.private_writable && unsafe { borrow_frame(entry) }.references() == 1
    } else {
        grant.shared_writable && !entry.contains(entry::UNCOUNTED)
    };
    if writable { base.with(EntryFlags::WRITABLE | EntryFlags::DIRTY) } else { base }
}

fn allows_less(former: Entry, new: Entry) -> bool {
    !new.is_present()
        || former.contains(EntryFlags::WRITABLE) && !new.contains(EntryFlags::WRITABLE)
        || !former.contains(EntryFlags::NO_EXECUTE) && new.contains(EntryFlags::NO_EXECUTE)
}
