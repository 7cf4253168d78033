//! The heap's end (brk).

use super::placement::Placed;
use super::space::AddressSpace;
use super::unmap::round_up;
use crate::region::RegionFlags;
use machine::address::UserAddr;

impl AddressSpace {
    /// Says where the heap begins, empty (exec does that).
    pub fn set_break_start(&self, start: UserAddr) {
        let mut layout = self.change.lock();
        layout.break_start = start.as_u64();
        layout.break_end = start.as_u64();
    }

    /// Says where the heap begins and ends, whatever is there: it moves from there (`PR_SET_MM`).
    pub fn place_heap(&self, start: UserAddr, end: UserAddr) {
        assert!(start <= end, "a heap does not end before it begins");
        let mut layout = self.change.lock();
        layout.break_start = start.as_u64();
        layout.break_end = end.as_u64();
    }

    /// Moves the end of the heap; returns where it is afterwards, which is the old place when the new one can't be had.
    pub fn set_break(&self, end: UserAddr) -> UserAddr {
        let mut layout = self.change.lock();
        let old = layout.break_end;
        let new = end.as_u64();
        if new < layout.break_start {
            return UserAddr::new(old);
        }
        let (Some(old_page), Some(new_page)) = (round_up(old), round_up(new)) else {
            return UserAddr::new(old);
        };
        let moved = if new_page < old_page {
            self.remove_range(&mut layout, new_page..old_page).is_ok()
        } else if new_page > old_page {
            self.extend_heap(&layout, old_page, new_page, new - layout.break_start)
        } else {
            true
        };
        if !moved {
            return UserAddr::new(old);
        }
        layout.break_end = new;
        let populate = layout.lock_future.contains(RegionFlags::LOCKED) && new_page > old_page;
        drop(layout);
        if populate {
            // Locking ahead is best effort.
            let _ = self.populate(old_page..new_page, true);
        }
        UserAddr::new(new)
    }

    fn extend_heap(
        &self,
        layout: &crate::parking::SleepGuard<'_, super::Layout>,
        from: u64,
        to: u64,
        bytes: u64,
    ) -> bool {
        let free = to <= super::USER_TOP && {
            let regions = self.regions.read();
            !regions.is_used(from, to) && !regions.guards(to)
        };
        if !free || bytes > self.limits().data {
            return false;
        }
        let flags = RegionFlags::READ
            | RegionFlags::WRITE
            | RegionFlags::from_maximum(super::Protection::all())
            | RegionFlags::HEAP
            | RegionFlags::ACCOUNTED
            | RegionFlags::MAY_HAVE_PRIVATE;
        self.add_anonymous(layout, &Placed { start: from, end: to, replaces: false }, flags).is_ok()
    }
}
