//! One region.
//!
//! A region is a value: the tree holds it in place, operations copy it out, change it and put it back. It owns
//! nothing but its share of the backing object, so splitting and merging are arithmetic.

use super::flags::RegionFlags;
use crate::address_space::MapBacking;
use alloc::sync::Arc;
use machine::address::PAGE_SHIFT;

/// A range of pages with one protection and one backing object.
#[derive(Clone)]
pub struct Region {
    /// First byte.
    pub(crate) start: u64,
    /// One past the last byte.
    pub(crate) end: u64,
    /// For files and special mappings: the page of the object shown at `start`.
    pub(crate) page_offset: u64,
    /// What is shown.
    pub(crate) backing: MapBacking,
    /// How.
    pub(crate) flags: RegionFlags,
}

const _: () = assert!(size_of::<Region>() <= 48, "a process has dozens to thousands of regions");

impl Region {
    /// First byte.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }

    /// One past the last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Properties.
    #[must_use]
    pub fn flags(&self) -> RegionFlags {
        self.flags
    }

    /// What is shown.
    #[must_use]
    pub fn backing(&self) -> &MapBacking {
        &self.backing
    }

    /// Where in the file the region begins, in bytes (0 for anonymous memory).
    #[must_use]
    pub fn file_offset(&self) -> u64 {
        match self.backing {
            MapBacking::Anonymous | MapBacking::Paged(_) => 0,
            MapBacking::File(_) | MapBacking::Special(_) => self.page_offset << PAGE_SHIFT,
        }
    }

    /// Size in pages.
    #[must_use]
    pub fn pages(&self) -> u64 {
        (self.end - self.start) >> PAGE_SHIFT
    }

    /// Whether stores stay in this address space.
    #[must_use]
    pub fn is_private(&self) -> bool {
        !self.flags.contains(RegionFlags::SHARED)
    }

    /// The region is in a tree now.
    #[inline]
    pub(super) fn added(&self) {
        if let MapBacking::File(mapping) = &self.backing {
            mapping.region_added();
        }
    }

    /// It is in no tree any more.
    #[inline]
    pub(super) fn removed(&self) {
        if let MapBacking::File(mapping) = &self.backing {
            mapping.region_removed();
        }
    }

    /// The page of the object that is shown at an address of the region.
    #[inline]
    pub(crate) fn page_of(&self, address: u64) -> u64 {
        debug_assert!(self.start <= address && address < self.end);
        self.page_offset + ((address - self.start) >> PAGE_SHIFT)
    }

    /// Whether `next` can become part of this region.
    pub(crate) fn merges_with(&self, next: &Region) -> bool {
        if self.end != next.start || self.flags != next.flags {
            return false;
        }
        match (&self.backing, &next.backing) {
            (MapBacking::Anonymous, MapBacking::Anonymous) => true,
            (MapBacking::Paged(one), MapBacking::Paged(two)) => one == two,
            (MapBacking::File(one), MapBacking::File(two)) => {
                self.page_offset + self.pages() == next.page_offset
                    && (Arc::ptr_eq(one, two) || one.same_object(two))
                    && !one.is_counted()
            }
            _ => false,
        }
    }

    /// Cuts the region at `address` and returns the upper part.
    pub(crate) fn split_off(&mut self, address: u64) -> Region {
        debug_assert!(self.start < address && address < self.end);
        let upper = self.part(address, self.end);
        self.end = address;
        upper
    }

    /// Moves the start, keeping what is shown where.
    pub(crate) fn set_start(&mut self, start: u64) {
        debug_assert!(start < self.end);
        let object_pages = if start < self.start {
            self.page_offset.wrapping_sub((self.start - start) >> PAGE_SHIFT)
        } else {
            self.page_offset + ((start - self.start) >> PAGE_SHIFT)
        };
        if !matches!(self.backing, MapBacking::Anonymous | MapBacking::Paged(_)) {
            self.page_offset = object_pages;
        }
        self.start = start;
    }

    /// A copy of the part within `start..end`.
    pub(crate) fn part(&self, start: u64, end: u64) -> Region {
        debug_assert!(self.start <= start && start < end && end <= self.end);
        let mut part = self.clone();
        part.end = end;
        part.set_start(start);
        part
    }
}
