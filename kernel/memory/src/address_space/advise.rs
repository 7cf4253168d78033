//! Advice about a range (madvise).

use super::error::MapError;
use super::gather::Gather;
use super::map::cache_of;
use super::request::{Advice, MapBacking};
use super::space::AddressSpace;
use super::unmap::{self, page_range};
use crate::file_cache::{FileCache, Intent};
use crate::huge_pool::HUGE_PAGE_BYTES;
use crate::region::{Region, RegionFlags};
use alloc::sync::Arc;
use core::ops::Range;
use core::sync::atomic::Ordering;
use machine::address::{PAGE_SHIFT, UserAddr};
use machine::fault::Access;

/// Pages that WILLNEED brings in at most.
const WILL_NEED_PAGES: u64 = 1024;

impl AddressSpace {
    /// Follows advice.
    ///
    /// # Errors
    /// As madvise(2). Holes are reported after the rest has been done.
    pub fn advise(&self, start: UserAddr, length: u64, advice: Advice) -> Result<(), MapError> {
        let range = page_range(start, length)?;
        if range.is_empty() {
            return Ok(());
        }
        match advice {
            Advice::Normal
            | Advice::Random
            | Advice::Sequential
            | Advice::DontFork
            | Advice::DoFork
            | Advice::WipeOnFork
            | Advice::KeepOnFork
            | Advice::DontDump
            | Advice::DoDump
            | Advice::Mergeable
            | Advice::Unmergeable
            | Advice::HugePage
            | Advice::NoHugePage => self.advise_flags(range, advice),
            Advice::DontNeed => self.discard(range, RegionFlags::LOCKED, false),
            Advice::DontNeedLocked => self.discard(range, RegionFlags::empty(), false),
            Advice::Free => self.discard(range, RegionFlags::LOCKED, true),
            Advice::Remove => self.remove(range),
            Advice::WillNeed => self.will_need(range),
            Advice::Cold | Advice::PageOut => self.each_piece(range, |piece| {
                let refuses = piece.flags().contains(RegionFlags::POOLED);
                if refuses { Err(MapError::InvalidArgument) } else { Ok(()) }
            }),
            Advice::PopulateRead => self.populate_for(range, Access::Read),
            Advice::PopulateWrite => self.populate_for(range, Access::Write),
            Advice::Collapse => self.collapse(range),
        }
    }

    fn populate_for(&self, range: Range<u64>, access: Access) -> Result<(), MapError> {
        use machine::fault::FaultError;
        self.touch(range, access).map_err(|error| match error {
            FaultError::NotMapped | FaultError::OutOfMemory => MapError::OutOfMemory,
            FaultError::AccessDenied => MapError::InvalidArgument,
            FaultError::Bus | FaultError::Pager => MapError::BadAddress,
        })
    }

    /// Calls `visit` with a copy of each region's part in the range; afterwards a hole is an error. No lock is held in
    /// `visit` but what the caller holds.
    pub(super) fn each_piece(
        &self,
        range: Range<u64>,
        mut visit: impl FnMut(Region) -> Result<(), MapError>,
    ) -> Result<(), MapError> {
        let mut address = range.start;
        let mut holes = false;
        while address < range.end {
            let piece = {
                let regions = self.regions.read();
                let next = regions.locate(address).map(|position| regions.at(position));
                next.filter(|region| region.start() < range.end)
                    .map(|region| region.part(region.start().max(address), region.end().min(range.end)))
            };
            let Some(piece) = piece else {
                holes = true;
                break;
            };
            holes |= piece.start() > address;
            address = piece.end();
            visit(piece)?;
        }
        if holes { Err(MapError::OutOfMemory) } else { Ok(()) }
    }

    fn advise_flags(&self, range: Range<u64>, advice: Advice) -> Result<(), MapError> {
        let _layout = self.change.lock();
        self.each_piece(range, |piece| {
            let pooled = piece.flags().contains(RegionFlags::POOLED);
            let anonymous = matches!(piece.backing(), MapBacking::Anonymous) && !pooled;
            if pooled && matches!(advice, Advice::Mergeable | Advice::Unmergeable) {
                return Ok(());
            }
            if advice == Advice::WipeOnFork && !anonymous {
                return Err(MapError::InvalidArgument);
            }
            let special = matches!(piece.backing(), MapBacking::Special(_));
            if special && matches!(advice, Advice::DoFork | Advice::DoDump) {
                return Err(MapError::InvalidArgument);
            }
            let new = advised(piece.flags(), advice);
            if new == piece.flags() {
                return Ok(());
            }
            self.change_flags(piece.start()..piece.end(), |region| advised(region.flags(), advice))
        })
    }

    /// Drops the pages of a range: private ones read as zeros or as the file again.
    fn discard(&self, range: Range<u64>, refused: RegionFlags, only_anonymous: bool) -> Result<(), MapError> {
        let _layout = self.change.lock();
        self.resident.note_peak();
        let mut gather = Gather::new(&self.tables);
        self.each_piece(range, |piece| {
            let special = matches!(piece.backing(), MapBacking::Special(_));
            let pooled = piece.flags().contains(RegionFlags::POOLED);
            let wrong_kind = only_anonymous && (pooled || !matches!(piece.backing(), MapBacking::Anonymous));
            if piece.flags().intersects(refused) || special || wrong_kind {
                return Err(MapError::InvalidArgument);
            }
            if pooled {
                return self.discard_pooled(&piece, &mut gather);
            }
            let range = piece.start()..piece.end();
            self.subtract_resident(self.take_closed_tables_out(range.clone(), &mut gather));
            self.own_tables(range.clone())?;
            self.subtract_resident(unmap::zap(&self.tables, range, &mut gather));
            Ok(())
        })
    }

    /// Drops the pages of the pool in a range that begins with one. A part of one at its end stays.
    fn discard_pooled(&self, piece: &Region, gather: &mut Gather<'_>) -> Result<(), MapError> {
        if !piece.start().is_multiple_of(HUGE_PAGE_BYTES) {
            return Err(MapError::InvalidArgument);
        }
        let range = piece.start()..piece.end() & !(HUGE_PAGE_BYTES - 1);
        self.take_pages_out(range.clone(), None, gather);
        gather.flush();
        self.renew_promises(range);
        Ok(())
    }

    /// Punches holes into what the range maps shared.
    fn remove(&self, range: Range<u64>) -> Result<(), MapError> {
        self.each_piece(range, |piece| {
            let Some(cache) = cache_of(piece.backing()) else {
                let pooled = piece.flags().contains(RegionFlags::POOLED);
                return Err(if pooled { MapError::AccessDenied } else { MapError::InvalidArgument });
            };
            if piece.flags().contains(RegionFlags::LOCKED) {
                return Err(MapError::InvalidArgument);
            }
            if !piece.flags().contains(RegionFlags::SHARED | RegionFlags::MAY_WRITE) {
                return Err(MapError::AccessDenied);
            }
            let start = piece.file_offset();
            cache.punch_hole(start..start + (piece.pages() << PAGE_SHIFT)).map_err(|_| MapError::InputOutput)
        })
    }

    /// Brings pages of files into their caches.
    fn will_need(&self, range: Range<u64>) -> Result<(), MapError> {
        self.each_piece(range, |piece| {
            if let Some(cache) = cache_of(piece.backing()).filter(|cache| cache.has_representative()) {
                read_ahead(cache, &piece);
            }
            Ok(())
        })
    }

    /// Locks or unlocks the pages of a piece that the caller has cut out; keeps count.
    pub(super) fn count_locked(&self, was: bool, is: bool, pages: u64) {
        if is && !was {
            self.locked_pages.fetch_add(pages, Ordering::Relaxed);
        } else if was && !is {
            self.locked_pages.fetch_sub(pages, Ordering::Relaxed);
        }
    }
}

fn read_ahead(cache: &Arc<FileCache>, piece: &Region) {
    let first = piece.page_of(piece.start());
    for page in first..first + piece.pages().min(WILL_NEED_PAGES) {
        // Advice fails silently.
        if !matches!(cache.frame(page, Intent::Read), Ok(Some(_))) {
            break;
        }
    }
}

fn advised(flags: RegionFlags, advice: Advice) -> RegionFlags {
    let (set, clear) = match advice {
        Advice::Normal => (RegionFlags::empty(), RegionFlags::SEQUENTIAL | RegionFlags::RANDOM),
        Advice::Sequential => (RegionFlags::SEQUENTIAL, RegionFlags::RANDOM),
        Advice::Random => (RegionFlags::RANDOM, RegionFlags::SEQUENTIAL),
        Advice::DontFork => (RegionFlags::DONT_FORK, RegionFlags::empty()),
        Advice::DoFork => (RegionFlags::empty(), RegionFlags::DONT_FORK),
        Advice::WipeOnFork => (RegionFlags::WIPE_ON_FORK, RegionFlags::empty()),
        Advice::KeepOnFork => (RegionFlags::empty(), RegionFlags::WIPE_ON_FORK),
        Advice::DontDump => (RegionFlags::DONT_DUMP, RegionFlags::empty()),
        Advice::DoDump => (RegionFlags::empty(), RegionFlags::DONT_DUMP),
        Advice::Mergeable => (RegionFlags::MERGEABLE, RegionFlags::empty()),
        Advice::Unmergeable => (RegionFlags::empty(), RegionFlags::MERGEABLE),
        Advice::HugePage => (RegionFlags::HUGE_PAGE, RegionFlags::NO_HUGE_PAGE),
        Advice::NoHugePage => (RegionFlags::NO_HUGE_PAGE, RegionFlags::HUGE_PAGE),
        _ => (RegionFlags::empty(), RegionFlags::empty()),
    };
    flags.difference(clear) | set
}
