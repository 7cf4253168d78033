//! Changing trees of indirect blocks, as ext2 and ext3 have them.

use alloc::vec::Vec;

use memory::fallible;

use crate::blocks::Blocks;
use crate::handle::Handle;
use crate::inode::Inode;
use crate::map::DIRECT;
use crate::{Error, Result};

/// Where a block's number is: a slot of the inode, then slots of up to three blocks.
struct Slots {
    root: usize,
    below: [usize; 3],
    levels: usize,
    /// The block's number among those below the inode's slot.
    inside: u64,
}

impl Slots {
    /// The first block behind the table that has the block's slot at a level.
    fn bound(&self, fan_out: u64, logical: u64, level: usize) -> u64 {
        let span = fan_out.pow((self.levels - level) as u32);
        logical - self.inside % span + span
    }
}

/// The slots of a file's block.
fn slots_of(handle: &Handle<'_>, logical: u64) -> Result<Slots> {
    let fan_out = handle.geometry().block_bytes as u64 / 4;
    if logical < DIRECT {
        return Ok(Slots { root: logical as usize, below: [0; 3], levels: 0, inside: 0 });
    }
    let mut rest = logical - DIRECT;
    let mut span = 1;
    for levels in 1..=3usize {
        span *= fan_out;
        if rest < span {
            let mut below = [0; 3];
            for (level, slot) in below.iter_mut().take(levels).enumerate() {
                *slot = (rest / fan_out.pow((levels - level - 1) as u32) % fan_out) as usize;
            }
            return Ok(Slots { root: DIRECT as usize + levels - 1, below, levels, inside: rest });
        }
        rest -= span;
    }
    Err(Error::TooLarge)
}

/// Blocks that a file can have.
pub(crate) fn blocks_max(block_bytes: usize) -> u64 {
    let fan_out = block_bytes as u64 / 4;
    (DIRECT + fan_out + fan_out * fan_out + fan_out * fan_out * fan_out).min(u32::MAX.into())
}

fn slot(bytes: &[u8], index: usize) -> u32 {
    let at = index * 4;
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn set_slot(bytes: &mut [u8], index: usize, value: u32) {
    bytes[index * 4..index * 4 + 4].copy_from_slice(&value.to_le_bytes());
}

/// A new table, empty.
fn new_table(handle: &mut Handle<'_>, inode: &mut Inode, goal: u64) -> Result<u32> {
    let place = handle.allocate(goal, 1)?;
    let number = u32::try_from(place.start).map_err(|_| Error::NoSpace)?;
    handle.put(place.start, handle.empty_block()?)?;
    inode.add_blocks(handle.geometry(), 1);
    Ok(number)
}

fn check_table(handle: &Handle<'_>, inode: &Inode, table: u32) -> Result<()> {
    if handle.system().is_data(table.into(), 1) {
        Ok(())
    } else {
        Err(Error::Corrupted("an indirect block", inode.number.into()))
    }
}

/// Enters one block where the file has a hole.
fn insert_one(handle: &mut Handle<'_>, inode: &mut Inode, logical: u64, block: u32) -> Result<()> {
    let slots = slots_of(handle, logical)?;
    let occupied = || Error::Corrupted("a file's block is there already", logical);
    if slots.levels == 0 {
        if slot(&inode.map, slots.root) != 0 {
            return Err(occupied());
        }
        set_slot(&mut inode.map, slots.root, block);
        return Ok(());
    }
    let mut table = slot(&inode.map, slots.root);
    if table == 0 {
        table = new_table(handle, inode, block.into())?;
        set_slot(&mut inode.map, slots.root, table);
    }
    for index in &slots.below[..slots.levels - 1] {
        check_table(handle, inode, table)?;
        let mut next = slot(&handle.block(table.into(), |_| Ok(()))?, *index);
        if next == 0 {
            next = new_table(handle, inode, block.into())?;
            set_slot(handle.edit(table.into())?, *index, next);
        }
        table = next;
    }
    check_table(handle, inode, table)?;
    let bytes = handle.edit(table.into())?;
    let index = slots.below[slots.levels - 1];
    if slot(bytes, index) != 0 {
        return Err(occupied());
    }
    set_slot(bytes, index, block);
    Ok(())
}

/// Enters neighbouring blocks where the file has a hole.
pub(crate) fn insert(
    handle: &mut Handle<'_>,
    inode: &mut Inode,
    logical: u64,
    start: u64,
    count: u32,
) -> Result<()> {
    for index in 0..count {
        let block = u32::try_from(start + u64::from(index)).map_err(|_| Error::NoSpace)?;
        insert_one(handle, inode, logical + u64::from(index), block)?;
    }
    Ok(())
}

/// Blocks that must be left in a handle for one more run to be freed.
const ROOM_FOR_ONE: usize = 12;

/// Takes numbers out of slots, frees what they name. Returns the first slot that was not looked at.
fn clear_slots(
    handle: &mut Handle<'_>,
    inode: &mut Inode,
    bytes: &mut [u8],
    from: usize,
    to: usize,
) -> Result<usize> {
    let mut index = from;
    while index < to {
        let first = slot(bytes, index);
        if first == 0 {
            index += 1;
            continue;
        }
        if !handle.has_room(ROOM_FOR_ONE) {
            break;
        }
        let mut count = 1;
        while index + count < to && Some(slot(bytes, index + count)) == first.checked_add(count as u32) {
            count += 1;
        }
        handle.free_contents(inode, first.into(), count as u64)?;
        inode.add_blocks(handle.geometry(), -(count as i64));
        bytes[index * 4..(index + count) * 4].fill(0);
        index += count;
    }
    Ok(index)
}

/// Frees blocks of the file from `from` up to `to`, those of one table at most. Returns where to go on, if there is more.
pub(crate) fn remove_some(
    handle: &mut Handle<'_>,
    inode: &mut Inode,
    from: u64,
    to: u64,
) -> Result<Option<u64>> {
    let to = to.min(blocks_max(handle.geometry().block_bytes));
    if from >= to {
        return Ok(None);
    }
    let slots = slots_of(handle, from)?;
    if slots.levels == 0 {
        let end = DIRECT.min(to);
        let mut map = inode.map;
        let stopped = clear_slots(handle, inode, &mut map, slots.root, end as usize)? as u64;
        inode.map = map;
        return Ok((stopped < to).then_some(stopped));
    }
    // The tables on the way; a missing one means a hole.
    let mut tables = Vec::new();
    let fan_out = handle.geometry().block_bytes as u64 / 4;
    let mut table = slot(&inode.map, slots.root);
    for (level, index) in slots.below[..slots.levels].iter().enumerate() {
        if table == 0 {
            let bound = slots.bound(fan_out, from, level);
            return Ok((bound < to).then_some(bound));
        }
        check_table(handle, inode, table)?;
        fallible::try_push(&mut tables, table)?;
        table = slot(&handle.block(table.into(), |_| Ok(()))?, *index);
    }
    let last = slots.below[slots.levels - 1];
    let end = slots.bound(fan_out, from, slots.levels - 1).min(to);
    let Some(leaf) = tables.last().copied() else { return Ok(None) };
    let mut bytes = fallible::try_copy(&handle.block(leaf.into(), |_| Ok(()))?)?;
    let stopped = clear_slots(handle, inode, &mut bytes, last, last + (end - from) as usize)?;
    let mut gone = bytes.iter().all(|byte| *byte == 0);
    handle.put(leaf.into(), bytes)?;
    // Tables that have become empty go, from the leaf up.
    for level in (0..slots.levels).rev().take_while(|_| stopped - last == (end - from) as usize) {
        if !gone {
            break;
        }
        handle.free_metadata(tables[level].into())?;
        inode.add_blocks(handle.geometry(), -1);
        match level.checked_sub(1) {
            None => set_slot(&mut inode.map, slots.root, 0),
            Some(above) => {
                let bytes = handle.edit(tables[above].into())?;
                set_slot(bytes, slots.below[above], 0);
                gone = bytes.iter().all(|byte| *byte == 0);
            }
        }
    }
    let stopped = from + (stopped - last) as u64;
    Ok((stopped < to).then_some(stopped))
}
