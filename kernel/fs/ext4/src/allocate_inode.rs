//! Inodes: choosing, taking and giving back.
//!
//! Files go into their directory's group, or the first one behind it that has room. Directories are spread: those of the root go
//! to the group with the fewest directories among those with more than average room, others near their parent if there is room for their files too.

use crate::bitmap::{self, find};
use crate::blocks::{Blocks, inode_place};
use crate::group::Group;
use crate::handle::Handle;
use crate::layout::ROOT_INODE;
use crate::{Error, Result};

impl Handle<'_> {
    /// Takes an inode near its directory. Returns its number; its bytes are zeros.
    pub(crate) fn allocate_inode(&mut self, parent: u32, directory: bool) -> Result<u32> {
        let number = if directory { self.group_for_directory(parent)? } else { None };
        let start = match number {
            Some(number) => number,
            None => (parent.saturating_sub(1)) / self.geometry().inodes_per_group,
        };
        let groups = self.geometry().groups;
        for distance in 0..groups {
            let number = ((u64::from(start) + u64::from(distance)) % u64::from(groups)) as u32;
            let group = Group::read(self, number)?;
            if group.free_inodes > 0
                && let Some(inode) = self.take_inode(number, group, directory)?
            {
                return Ok(inode);
            }
        }
        Err(Error::NoSpace)
    }

    /// Where a new directory should go; `None`: near its parent.
    fn group_for_directory(&self, parent: u32) -> Result<Option<u32>> {
        let geometry = self.geometry();
        let groups = geometry.groups;
        let average_inodes = self.running.free_inodes / groups;
        let average_blocks = (self.running.free_blocks / u64::from(groups)) as u32;
        if parent != ROOT_INODE {
            let near = (parent.saturating_sub(1)) / geometry.inodes_per_group;
            let group = Group::read(self, near)?;
            let roomy = group.free_inodes > average_inodes / 4 && group.free_blocks > average_blocks / 4;
            return Ok(roomy.then_some(near));
        }
        let mut best: Option<(u32, u32)> = None;
        for number in 0..groups {
            let group = Group::read(self, number)?;
            let roomy = group.free_inodes >= average_inodes.max(1) && group.free_blocks >= average_blocks;
            if roomy && best.is_none_or(|(fewest, _)| group.directories < fewest) {
                best = Some((group.directories, number));
            }
        }
        Ok(best.map(|(_, number)| number))
    }

    fn take_inode(&mut self, number: u32, mut group: Group, directory: bool) -> Result<Option<u32>> {
        let geometry = &self.system().geometry;
        let count = geometry.inodes_per_group;
        let before = u64::from(number) * u64::from(count);
        let reserved = u64::from(geometry.first_inode() - 1).saturating_sub(before).min(count.into()) as u32;
        let bits = bitmap::of_inodes(self, number, &group)?;
        let index = find(&bits, reserved, count, false);
        drop(bits);
        if index >= count {
            return Ok(None);
        }
        bitmap::change_inodes(self, number, &mut group, index..index + 1, |bits| {
            bitmap::set_range(bits, index, 1);
        })?;
        group.free_inodes -= 1;
        group.directories += u32::from(directory);
        if geometry.has_group_checksums() {
            group.unused_inodes = group.unused_inodes.min(count - index - 1);
        }
        group.store(self, number)?;
        self.free_inodes -= 1;
        let inode = number * count + index + 1;
        let (place, at) = inode_place(self, inode)?;
        let bytes = geometry.inode_bytes;
        // It has no checksum yet; nothing reads it before it is stored.
        self.edit_part(place, at / bytes, bytes)?.fill(0);
        Ok(Some(inode))
    }

    /// Gives an inode back. Its bytes were cleared as far as they must be.
    pub(crate) fn free_inode(&mut self, inode: u32, directory: bool) -> Result<()> {
        let geometry = &self.system().geometry;
        let index = inode.checked_sub(1).filter(|index| *index < geometry.inodes);
        let index = index.ok_or(Error::Corrupted("an inode to be freed", inode.into()))?;
        let number = index / geometry.inodes_per_group;
        let index = index % geometry.inodes_per_group;
        let mut group = Group::read(self, number)?;
        let mut used = true;
        bitmap::change_inodes(self, number, &mut group, index..index + 1, |bits| {
            used = bitmap::is_set(bits, index);
            bitmap::clear_range(bits, index, 1);
        })?;
        if !used {
            return Err(Error::Corrupted("an inode to be freed is free", inode.into()));
        }
        group.free_inodes += 1;
        group.directories = group.directories.saturating_sub(u32::from(directory));
        group.store(self, number)?;
        self.free_inodes += 1;
        Ok(())
    }

    /// Where a file's first block should be: at the beginning of its inode's group.
    pub(crate) fn goal_of_inode(&self, inode: u32) -> u64 {
        let geometry = self.geometry();
        let group = (inode.saturating_sub(1) / geometry.inodes_per_group).min(geometry.groups - 1);
        geometry.group_start(group)
    }
}
