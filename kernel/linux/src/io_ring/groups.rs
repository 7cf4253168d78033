//! Buffers that a program provides in groups, from which an operation takes one when it has something to put there.
//!
//! A group is one of two kinds. Of a *list* the kernel keeps what each buffer is; buffers come and go by operations. A *ring* lies in the program's
//! memory: it writes buffers there and moves the tail, and the kernel only counts how many it has taken. What is given back, as an operation had
//! to wait after all, is taken again before the ring is looked at.
//!
//! The program's memory is read with no lock held, so two may want the same place of a ring: who comes first has it, and the other takes the next.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::sync::atomic::{Ordering, fence};

use ::memory::fallible;
use sync::SpinLock;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::errno::Errno;
use crate::user_pointer::UserPointer;

/// Groups of a ring, and buffers of a group.
const GROUPS_MAX: usize = 1 << 10;
const PROVIDED_MAX: usize = 1 << 16;
/// Buffers that all groups of a ring have room for: what the kernel keeps of them is nobody's memory.
const ALL_PROVIDED_MAX: usize = 1 << 20;
/// Places of a ring of buffers, of which the tail must tell full from empty.
const RING_ENTRIES_MAX: u32 = 1 << 15;
/// Where the tail of a ring of buffers is.
const TAIL_AT: u64 = 14;

/// A buffer of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Provided {
    pub(super) address: u64,
    pub(super) length: u32,
    pub(super) number: u16,
}

/// `struct io_uring_buf`
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct RingEntry {
    address: u64,
    length: u32,
    number: u16,
    reserved: u16,
}

/// Bytes of a place of a ring.
pub(super) const RING_ENTRY_BYTES: u64 = size_of::<RingEntry>() as u64;

/// A ring of buffers in the program's memory.
#[derive(Clone, Copy, PartialEq, Eq)]
struct BufferRing {
    address: u64,
    mask: u16,
    /// Buffers taken so far.
    head: u16,
}

impl BufferRing {
    /// The next buffer; `None` when there is none.
    ///
    /// # Errors
    /// EFAULT.
    fn look(&self) -> Result<Option<Provided>, Errno> {
        let tail = UserPointer::<u16>::new(self.address + TAIL_AT).read()?;
        if tail == self.head {
            return Ok(None);
        }
        // Acquire: pairs with the program's release of the tail, behind which the entry was written.
        fence(Ordering::Acquire);
        let place = usize::from(self.head & self.mask);
        let entry = UserPointer::<RingEntry>::new(self.address).add(place).read()?;
        Ok(Some(Provided { address: entry.address, length: entry.length, number: entry.number }))
    }
}

struct Group {
    number: u16,
    /// Those of a list, or what was given back to a ring.
    buffers: VecDeque<Provided>,
    ring: Option<BufferRing>,
}

/// The groups of a ring.
pub(super) struct Groups(SpinLock<Vec<Group>>);

impl Groups {
    pub(super) const fn new() -> Self {
        Self(SpinLock::named("provided buffers of a ring", Vec::new()))
    }

    /// Adds buffers to a group, which is made if it is not there.
    ///
    /// # Errors
    /// ENOMEM, EOVERFLOW; EINVAL for a ring.
    pub(super) fn provide(&self, group: u16, first: Provided, count: usize) -> Result<(), Errno> {
        let mut room: VecDeque<Provided> = VecDeque::new();
        loop {
            let mut groups = vfs::allocation::lock_with_room(|| self.0.lock(), 1, |list| list)?;
            let at = place_for(&mut groups, group)?;
            if groups[at].ring.is_some() {
                return Err(Errno::EINVAL);
            }
            check_total(&groups, count)?;
            let buffers = &mut groups[at].buffers;
            let total = buffers.len() + count;
            if total > PROVIDED_MAX {
                return Err(Errno::EOVERFLOW);
            }
            if buffers.capacity() < total && room.capacity() >= total {
                room.extend(buffers.drain(..));
                core::mem::swap(buffers, &mut room);
            }
            if buffers.capacity() >= total {
                for index in 0..count {
                    buffers.push_back(Provided {
                        address: first.address + index as u64 * u64::from(first.length),
                        length: first.length,
                        number: first.number + index as u16,
                    });
                }
                return Ok(());
            }
            drop(groups);
            fallible::fail_point().map_err(|_| Errno::ENOMEM)?;
            room.try_reserve(2 * total).map_err(|_| Errno::ENOMEM)?;
        }
    }

    /// Takes buffers of a group away; how many.
    ///
    /// # Errors
    /// ENOENT; EINVAL for a ring.
    pub(super) fn remove(&self, group: u16, count: usize) -> Result<usize, Errno> {
        let mut groups = self.0.lock();
        let group = groups.iter_mut().find(|known| known.number == group).ok_or(Errno::ENOENT)?;
        if group.ring.is_some() {
            return Err(Errno::EINVAL);
        }
        let removed = count.min(group.buffers.len());
        group.buffers.drain(..removed);
        Ok(removed)
    }

    /// Makes a ring a group. Its memory has been looked at.
    ///
    /// # Errors
    /// EINVAL for a number of places that it can't have, EEXIST, ENOMEM.
    pub(super) fn add_ring(&self, group: u16, address: u64, entries: u32) -> Result<(), Errno> {
        check_entries(entries)?;
        let mut returned = VecDeque::new();
        fallible::fail_point().map_err(|_| Errno::ENOMEM)?;
        returned.try_reserve(entries as usize).map_err(|_| Errno::ENOMEM)?;
        let mut groups = vfs::allocation::lock_with_room(|| self.0.lock(), 1, |list| list)?;
        let at = place_for(&mut groups, group)?;
        let refused = match &groups[at] {
            known if known.ring.is_some() || !known.buffers.is_empty() => Err(Errno::EEXIST),
            _ => check_total(&groups, returned.capacity()),
        };
        if refused.is_ok() {
            groups[at].ring = Some(BufferRing { address, mask: (entries - 1) as u16, head: 0 });
            core::mem::swap(&mut groups[at].buffers, &mut returned);
        }
        drop(groups);
        drop(returned);
        refused
    }

    /// Forgets a ring.
    ///
    /// # Errors
    /// ENOENT; EINVAL for a list.
    pub(super) fn remove_ring(&self, group: u16) -> Result<(), Errno> {
        let mut groups = self.0.lock();
        let at = groups.iter().position(|known| known.number == group).ok_or(Errno::ENOENT)?;
        if groups[at].ring.is_none() {
            return Err(Errno::EINVAL);
        }
        let former = groups.swap_remove(at);
        drop(groups);
        drop(former);
        Ok(())
    }

    /// The next buffer of a group.
    ///
    /// # Errors
    /// ENOBUFS; EFAULT when a ring is not there any more.
    pub(super) fn take(&self, group: u16) -> Result<Provided, Errno> {
        loop {
            let ring = match self.take_listed(group)? {
                Taken::Buffer(buffer) => return Ok(buffer),
                Taken::LookAt(ring) => ring,
            };
            let buffer = ring.look()?.ok_or(Errno::ENOBUFS)?;
            let mut groups = self.0.lock();
            let known = groups.iter_mut().find(|known| known.number == group);
            match known.and_then(|known| known.ring.as_mut()) {
                Some(now) if *now == ring => {
                    now.head = now.head.wrapping_add(1);
                    return Ok(buffer);
                }
                // Somebody else has had it: he has got on.
                _ => {}
            }
        }
    }

    fn take_listed(&self, group: u16) -> Result<Taken, Errno> {
        let mut groups = self.0.lock();
        let group = groups.iter_mut().find(|known| known.number == group).ok_or(Errno::ENOBUFS)?;
        match (group.buffers.pop_front(), group.ring) {
            (Some(buffer), _) => Ok(Taken::Buffer(buffer)),
            (None, Some(ring)) => Ok(Taken::LookAt(ring)),
            (None, None) => Err(Errno::ENOBUFS),
        }
    }

    /// A buffer that was taken was not used.
    pub(super) fn give_back(&self, group: u16, buffer: Provided) {
        let mut groups = self.0.lock();
        if let Some(group) = groups.iter_mut().find(|known| known.number == group)
            && group.buffers.len() < group.buffers.capacity()
        {
            group.buffers.push_front(buffer);
        }
    }
}

/// Whether a ring of buffers can have so many places.
///
/// # Errors
/// EINVAL.
pub(super) fn check_entries(entries: u32) -> Result<(), Errno> {
    if entries.is_power_of_two() && entries <= RING_ENTRIES_MAX { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Where the next buffer of a group is.
enum Taken {
    Buffer(Provided),
    LookAt(BufferRing),
}

/// The place of a group, which gets one if it has none.
fn place_for(groups: &mut Vec<Group>, number: u16) -> Result<usize, Errno> {
    if let Some(at) = groups.iter().position(|known| known.number == number) {
        return Ok(at);
    }
    if groups.len() < GROUPS_MAX {
        debug_assert!(groups.len() < groups.capacity(), "room was made");
        groups.push(Group { number, buffers: VecDeque::new(), ring: None });
        return Ok(groups.len() - 1);
    }
    // One that is used up leaves its place.
    let is_unused = |known: &Group| known.buffers.is_empty() && known.ring.is_none();
    let at = groups.iter().position(is_unused).ok_or(Errno::ENOMEM)?;
    groups[at].number = number;
    Ok(at)
}

fn check_total(groups: &[Group], count: usize) -> Result<(), Errno> {
    let all: usize = groups.iter().map(|known| known.buffers.capacity()).sum();
    if all + count > ALL_PROVIDED_MAX { Err(Errno::ENOMEM) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUFFER: Provided = Provided { address: 0x1000, length: 8, number: 3 };

    #[test]
    fn a_ring_has_a_power_of_two_of_places() {
        let groups = Groups::new();
        for entries in [0, 3, RING_ENTRIES_MAX * 2, u32::MAX] {
            assert_eq!(groups.add_ring(1, 0x1000, entries), Err(Errno::EINVAL), "{entries}");
        }
        assert_eq!(groups.add_ring(1, 0x1000, RING_ENTRIES_MAX), Ok(()));
    }

    #[test]
    fn a_group_is_a_list_or_a_ring() {
        let groups = Groups::new();
        assert_eq!(groups.provide(1, BUFFER, 1), Ok(()));
        assert_eq!(groups.add_ring(1, 0x1000, 4), Err(Errno::EEXIST));
        assert_eq!(groups.remove_ring(1), Err(Errno::EINVAL));
        assert_eq!(groups.remove(1, 9), Ok(1));
        assert_eq!(groups.add_ring(1, 0x1000, 4), Ok(()));
        assert_eq!(groups.add_ring(1, 0x1000, 4), Err(Errno::EEXIST));
        assert_eq!(groups.provide(1, BUFFER, 1), Err(Errno::EINVAL));
        assert_eq!(groups.remove(1, 9), Err(Errno::EINVAL));
        assert_eq!((groups.remove_ring(1), groups.remove_ring(1)), (Ok(()), Err(Errno::ENOENT)));
    }

    #[test]
    fn what_is_given_back_to_a_ring_is_taken_first() {
        let groups = Groups::new();
        groups.add_ring(1, 0x1000, 4).unwrap();
        groups.give_back(1, BUFFER);
        assert_eq!(groups.take(1), Ok(BUFFER));
    }

    #[test]
    fn rings_share_the_room_of_all_groups() {
        let groups = Groups::new();
        let all = (0..1000).map(|group| groups.add_ring(group, 0x1000, RING_ENTRIES_MAX));
        assert!(all.filter(Result::is_ok).count() <= ALL_PROVIDED_MAX / RING_ENTRIES_MAX as usize);
    }
}
