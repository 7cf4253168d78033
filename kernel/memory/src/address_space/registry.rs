//! All address spaces there are, for the rare operations that must find the mappings of a file.
//!
//! A file cache does not know who maps it: that would cost a list operation for each region that is mapped, cut or
//! forked. Truncating a *mapped* file looks through the address spaces instead. Each is entered on creation into the
//! list of the processor it was made on, so there is no lock that all forks share.
//!
//! Who looks at a space has a reference to it, and it may become the last one meanwhile. The mappings are gone then, with the last process
//! ([`Hold`](super::Hold)). Those of a space that no process came to have, as when a fork failed, its drop would end: that may sleep, take locks of file systems,
//! wait for pages that the caller is about to write. So a space whose last reference is here is ended by a worker ([`end_left`]).

use super::gather::Gather;
use super::map::cache_of;
use super::space::AddressSpace;
use super::unmap::{self, Among};
#[cfg(test)]
use super::window::{self, Window};
use crate::file_cache::FileCache;
use crate::region::RegionFlags;
use crate::{OutOfMemory, fallible, reclaim};
use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::ops::Range;
use machine::address::{PAGE_SHIFT, PAGE_SIZE};
use machine::cpu;
use machine::page_table::EntryFlags;
use sync::{PerCpu, SpinLock, per_cpu};

/// The spaces made on one processor; free places are chained.
struct Shard {
    places: Vec<Place>,
    free: Option<u32>,
}

enum Place {
    Taken(Weak<AddressSpace>),
    Free { next: Option<u32> },
}

/// A space that nobody has any more, and the next one.
struct Left {
    space: Option<AddressSpace>,
    next: Option<Box<Left>>,
}

/// Spaces whose last reference was dropped by who only looked at them.
static LEFT: SpinLock<Option<Box<Left>>> = SpinLock::named("address spaces to be ended", None);

static SHARDS: PerCpu<SpinLock<Shard>> = per_cpu!(SpinLock::new(Shard { places: Vec::new(), free: None }));

/// An address space's place in the list. Reserved before the space exists, so that publishing can't fail.
pub(super) struct Registration {
    cpu: cpu::CpuId,
    place: u32,
}

impl Registration {
    pub(super) fn reserve() -> Result<Registration, OutOfMemory> {
        let cpu = cpu::current();
        let mut shard = SHARDS.of(cpu).lock();
        let place = match shard.free {
            Some(place) => {
                let Place::Free { next } = shard.places[place as usize] else {
                    unreachable!("the chain leads through free places")
                };
                shard.free = next;
                shard.places[place as usize] = Place::Taken(Weak::new());
                place
            }
            None => {
                shard.places.try_reserve(1).map_err(|_| OutOfMemory)?;
                shard.places.push(Place::Taken(Weak::new()));
                u32::try_from(shard.places.len() - 1).map_err(|_| OutOfMemory)?
            }
        };
        Ok(Registration { cpu, place })
    }

    pub(super) fn publish(&self, space: &Arc<AddressSpace>) {
        SHARDS.of(self.cpu).lock().places[self.place as usize] = Place::Taken(Arc::downgrade(space));
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut shard = SHARDS.of(self.cpu).lock();
        let free = Place::Free { next: shard.free };
        let former = core::mem::replace(&mut shard.places[self.place as usize], free);
        shard.free = Some(self.place);
        drop(shard);
        drop(former);
    }
}

/// Calls `visit` with every address space. No lock is held meanwhile.
pub(super) fn for_each(mut visit: impl FnMut(&Arc<AddressSpace>)) {
    for shard in SHARDS.iter() {
        let mut number = 0;
        loop {
            let found = {
                let shard = shard.lock();
                match shard.places.get(number) {
                    None => break,
                    Some(Place::Taken(space)) => space.upgrade(),
                    Some(Place::Free { .. }) => None,
                }
            };
            if let Some(space) = found {
                #[cfg(test)]
                window::pass(Window::SpaceFound);
                visit(&space);
                let_go(space);
            }
            number += 1;
        }
    }
}

/// Drops a reference, and leaves the space to a worker if it was the last one.
fn let_go(space: Arc<AddressSpace>) {
    let Some(space) = Arc::into_inner(space) else { return };
    let place = {
        // The caller may be who makes memory free: nothing is waited for.
        let _no_waiting = machine::preempt::disable();
        fallible::try_box(Left { space: None, next: None })
    };
    // Without even that much memory it ends here.
    let Ok(mut place) = place else { return };
    place.space = Some(space);
    {
        let mut left = LEFT.lock();
        place.next = left.take();
        *left = Some(place);
    }
    reclaim::ask_to_end_spaces();
}

/// Ends the spaces that nobody has any more. May sleep.
pub(crate) fn end_left() {
    let mut left = LEFT.lock().take();
    while let Some(mut first) = left {
        left = first.next.take();
        drop(first.space.take());
    }
}

/// Undoes all mappings of a file's pages, private copies included. The cache's `change` may be held.
pub(crate) fn unmap_file_pages(cache: &FileCache, pages: Range<u64>) {
    for_each(|space| {
        for_each_mapping(space, cache, &pages, RegionFlags::empty(), |range| {
            let mut gather = Gather::new(&space.tables);
            if cache.is_huge() {
                space.take_pages_out(range.clone(), None, &mut gather);
                drop(gather);
                space.renew_promises(range);
                return;
            }
            let zapped = unmap::zap(&space.tables, range, &mut gather);
            space.subtract_resident(zapped);
        });
    });
}

/// Takes the permission to store from all mappings of pages, so that the next store is noticed.
pub(crate) fn write_protect_file_pages(cache: &FileCache, pages: Range<u64>) {
    if !cache.is_mapped() {
        return;
    }
    for_each(|space| {
        for_each_mapping(space, cache, &pages, RegionFlags::empty(), |range| {
            let mut changed = false;
            for address in range.clone().step_by(PAGE_SIZE) {
                // SAFETY: `change` is held, so the table stays.
                let Some(cell) = (unsafe { space.tables.tree().find(address) }) else { continue };
                changed |= cell
                    .update(|entry| {
                        let shared =
                            entry.contains(EntryFlags::WRITABLE) && !entry.contains(super::entry::PRIVATE);
                        shared.then(|| entry.without(EntryFlags::WRITABLE))
                    })
                    .is_some();
            }
            if changed {
                space.tables.forget(range.start, range.end, false);
            }
        });
    });
}

/// Undoes mappings of a file's own pages, so that the cache may give them up. Private copies stay, and what is locked in memory.
pub(crate) fn forget_file_pages(cache: &FileCache, pages: Range<u64>) {
    for_each(|space| {
        for_each_mapping(space, cache, &pages, RegionFlags::LOCKED, |range| {
            let mut gather = Gather::new(&space.tables);
            let zapped = unmap::zap_own_pages_of_file(&space.tables, range, Among::All, &mut gather);
            space.subtract_resident(zapped);
        });
    });
}

/// The same for memory reclaim: undoes those mappings that no access went through since it came by before. Does not sleep: a space that somebody is
/// changing is passed over, who changes it may be waiting for memory.
pub(crate) fn forget_unused_file_pages(cache: &FileCache, pages: &Range<u64>) {
    for_each(|space| {
        if !shows(space, cache) {
            return;
        }
        let Some(_change) = space.change.try_lock() else { return };
        for_each_range(space, cache, pages, RegionFlags::LOCKED, |range| {
            let mut gather = Gather::new(&space.tables);
            let zapped = unmap::zap_own_pages_of_file(&space.tables, range, Among::Unused, &mut gather);
            space.subtract_resident(zapped);
        });
    });
}

/// Whether some region shows the file. One that is added later is made with the file's new state in view.
fn shows(space: &AddressSpace, cache: &FileCache) -> bool {
    space.regions.read().iter().any(|region| {
        cache_of(region.backing()).is_some_and(|mapped| core::ptr::eq(Arc::as_ptr(mapped), cache))
    })
}

/// Calls `visit` with each range of the space that shows some of the pages, but in regions with flags of `except`, under the space's `change`. Faults that saw
/// an older state of the file have ended.
fn for_each_mapping(
    space: &AddressSpace,
    cache: &FileCache,
    pages: &Range<u64>,
    except: RegionFlags,
    visit: impl FnMut(Range<u64>),
) {
    if shows(space, cache) {
        let _change = space.change.lock();
        for_each_range(space, cache, pages, except, visit);
    }
}

/// The same for who holds the space's `change`.
fn for_each_range(
    space: &AddressSpace,
    cache: &FileCache,
    pages: &Range<u64>,
    except: RegionFlags,
    mut visit: impl FnMut(Range<u64>),
) {
    let mut address = 0;
    loop {
        let found = {
            // For writing: whoever began a fault before now is through with it.
            let regions = space.regions.write();
            let mut position = regions.locate(address);
            loop {
                let Some(current) = position else { break None };
                let region = regions.at(current);
                let shows = |mapped: &Arc<FileCache>| core::ptr::eq(Arc::as_ptr(mapped), cache);
                if cache_of(region.backing()).is_some_and(shows) && !region.flags().intersects(except) {
                    let first = pages.start.max(region.page_offset);
                    let end = pages.end.min(region.page_offset + region.pages());
                    if first < end {
                        let start = region.start() + ((first - region.page_offset) << PAGE_SHIFT);
                        break Some((start..start + ((end - first) << PAGE_SHIFT), region.end()));
                    }
                }
                position = regions.next(current);
            }
        };
        let Some((range, next)) = found else { return };
        visit(range);
        address = next;
    }
}
