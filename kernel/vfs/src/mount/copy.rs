//! Copies of name spaces (`CLONE_NEWNS`).

use alloc::sync::Arc;

use memory::per_cpu::Shared;

use super::change::Change;
use super::group;
use super::namespace::MountNamespace;
use super::path::Path;
use super::tree::{self, Copied, TreeCopy};
use crate::Result;
use crate::user_space::Owner;

impl MountNamespace {
    /// A copy of the name space, private to a user if one is given, and the places that correspond to `places` in it. Its mounts are peers of the originals; those of another owner only receive from
    /// them, and their owner can neither uncover what they are mounted on nor permit what they forbid.
    ///
    /// # Errors
    /// No memory.
    pub fn copy(
        self: &Arc<Self>,
        places: &mut [&mut Path],
        owner: Owner,
        user: Option<u32>,
    ) -> Result<Arc<Self>> {
        let mut change = Change::begin();
        let root = Path::root_of(&self.root_mount());
        let TreeCopy { originals, copies } = tree::copy(&mut change, &root, Some(Copied::NameSpace))?;
        let same_owner = owner.space().is_same(self.owner()) && (user.is_none() || user == self.user());
        let namespace = Self::empty(copies[0].clone(), owner, user, false)?;
        change.touch(&namespace, copies.len())?;
        for (original, copy) in originals.iter().zip(&copies) {
            if same_owner {
                group::copy_relations(original, copy)?;
            } else {
                group::copy_as_slave(original, copy)?;
            }
            change.arrive(&namespace, copy)?;
        }
        if !same_owner {
            tree::lock(&copies);
        }
        // Locked to its place in the name space, as what is mounted below it is.
        copies[0].set_locked(!same_owner || originals[0].is_locked());
        change.commit()?;
        for place in places {
            let index = originals.iter().position(|mount| Shared::ptr_eq(mount, &place.mount));
            if let Some(index) = index {
                place.mount = copies[index].clone();
            }
        }
        Ok(namespace)
    }
}
