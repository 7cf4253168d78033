//! Peer groups: between which mounts events propagate (mount_namespaces(7), "Shared subtrees").
//!
//! # States
//! A mount may be a *peer* in one group (shared), a *slave* of one group, both, or neither (private, which may be *unbindable*). What is mounted or unmounted
//! on a peer is so on all other peers of the group and on its slaves; and where a slave is a peer itself, on those of that group and its slaves, and so on.
//!
//! # Transitions
//! [`make_shared`] makes a group of one; [`join`] adds a copy of a peer; [`become_slave`] adds a slave; [`leave`] ends both. When the last peer leaves a group, its
//! slaves become slaves of that peer's master, or of nobody.
//!
//! # Invariants
//! - All peers of a group are slaves of the same group, or of none.
//! - A mount has a handle in its group's list and one in its master's, and in no other: [`handles`].
//! - What is in a group is in a name space, or under construction: whoever takes it out of there calls [`leave`].
//!
//! # Locking
//! All of it changes under the lock of changes only ([`super::change`]). The spin locks are for those who show it.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use memory::per_cpu::Shared;
use sync::SpinLock;

use super::point::Mount;
use crate::{Result, allocation};

/// How mount events are to propagate (`mount --make-*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Not at all.
    Private,
    /// To and from the peers of a group.
    Shared,
    /// From the group that it was a peer of only.
    Slave,
    /// Private, and not to be bound elsewhere.
    Unbindable,
}

/// A peer group.
pub(super) struct Group {
    id: u64,
    lists: SpinLock<Lists>,
    /// The propagation that came here last, see [`Group::visit`].
    visit: AtomicU64,
}

#[derive(Default)]
struct Lists {
    peers: Vec<Shared<Mount>>,
    slaves: Vec<Shared<Mount>>,
}

/// What a mount has to do with groups.
#[derive(Clone, Default)]
pub(super) struct Relations {
    /// The one that it is a peer in.
    pub(super) group: Option<Arc<Group>>,
    /// The one that it is a slave of.
    pub(super) master: Option<Arc<Group>>,
    pub(super) unbindable: bool,
}

/// Group ids begin at 1, as on Linux.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Group {
    fn new() -> Result<Arc<Self>> {
        allocation::arc(Self {
            // Relaxed: only uniqueness matters.
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            lists: SpinLock::named("peer group of mounts", Lists::default()),
            visit: AtomicU64::new(0),
        })
    }

    /// Its number.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    fn copy_of(&self, which: impl Fn(&Lists) -> &Vec<Shared<Mount>>) -> Result<Vec<Shared<Mount>>> {
        let mut copy = Vec::new();
        loop {
            let wanted = which(&self.lists.lock()).len();
            allocation::reserve(&mut copy, wanted)?;
            let lists = self.lists.lock();
            if which(&lists).len() <= copy.capacity() {
                copy.extend(which(&lists).iter().cloned());
                return Ok(copy);
            }
        }
    }

    /// Its peers.
    pub(super) fn peers(&self) -> Result<Vec<Shared<Mount>>> {
        self.copy_of(|lists| &lists.peers)
    }

    /// Its slaves.
    pub(super) fn slaves(&self) -> Result<Vec<Shared<Mount>>> {
        self.copy_of(|lists| &lists.slaves)
    }

    /// The first peer that `wanted` is true for. That is called with a spin lock held.
    pub(super) fn find_peer(&self, wanted: impl Fn(&Shared<Mount>) -> bool) -> Option<Shared<Mount>> {
        self.lists.lock().peers.iter().find(|peer| wanted(peer)).cloned()
    }

    /// Whether propagation number `visit` comes here for the first time.
    pub(super) fn visit(&self, visit: u64) -> bool {
        // Relaxed: under the lock of changes.
        self.visit.swap(visit, Ordering::Relaxed) != visit
    }

    fn add(
        &self,
        mount: &Shared<Mount>,
        which: impl Fn(&mut Lists) -> &mut Vec<Shared<Mount>>,
    ) -> Result<()> {
        let mut lists = allocation::lock_with_room(|| self.lists.lock(), 1, |lists| which(lists))?;
        which(&mut lists).push(mount.clone());
        Ok(())
    }

    fn remove(&self, mount: &Shared<Mount>, which: impl Fn(&mut Lists) -> &mut Vec<Shared<Mount>>) {
        let mut lists = self.lists.lock();
        let list = which(&mut lists);
        let index = list.iter().position(|listed| Shared::ptr_eq(listed, mount));
        let removed = index.map(|index| list.swap_remove(index));
        debug_assert!(removed.is_some(), "in its group's list");
        drop(lists);
        drop(removed);
    }
}

/// Handles of a mount that its groups have.
pub(super) fn handles(mount: &Mount) -> usize {
    let relations = mount.relations.lock();
    usize::from(relations.group.is_some()) + usize::from(relations.master.is_some())
}

/// Makes a mount a peer in a group of its own, unless it is in one.
pub(super) fn make_shared(mount: &Shared<Mount>) -> Result<()> {
    if mount.relations().group.is_some() {
        return Ok(());
    }
    join(mount, &Group::new()?)?;
    mount.relations.lock().unbindable = false;
    Ok(())
}

/// Makes a mount that is in no group a peer in this one.
pub(super) fn join(mount: &Shared<Mount>, group: &Arc<Group>) -> Result<()> {
    group.add(mount, |lists| &mut lists.peers)?;
    let before = mount.relations.lock().group.replace(group.clone());
    assert!(before.is_none(), "a mount is a peer in one group");
    Ok(())
}

/// Makes a mount that is nobody's slave one of this group.
pub(super) fn become_slave(mount: &Shared<Mount>, master: &Arc<Group>) -> Result<()> {
    master.add(mount, |lists| &mut lists.slaves)?;
    let before = mount.relations.lock().master.replace(master.clone());
    assert!(before.is_none(), "a mount is the slave of one group");
    Ok(())
}

/// Makes a copy a peer of its original, and a slave of the same master. That one must not be bound elsewhere does not go for its copies.
pub(super) fn copy_relations(original: &Mount, copy: &Shared<Mount>) -> Result<()> {
    let Relations { group, master, .. } = original.relations();
    if let Some(group) = group {
        join(copy, &group)?;
    }
    master.map_or(Ok(()), |master| become_slave(copy, &master))
}

/// Has a copy receive what propagates to or from its original, but not the other way round.
pub(super) fn copy_as_slave(original: &Mount, copy: &Shared<Mount>) -> Result<()> {
    let Relations { group, master, .. } = original.relations();
    group.or(master).map_or(Ok(()), |master| become_slave(copy, &master))
}

/// Makes room for what [`leave`] hands over.
pub(super) fn prepare_to_leave(mount: &Mount) -> Result<()> {
    let relations = mount.relations();
    let (Some(group), Some(master)) = (relations.group, relations.master) else { return Ok(()) };
    let orphans = {
        let lists = group.lists.lock();
        if lists.peers.len() > 1 { 0 } else { lists.slaves.len() }
    };
    allocation::lock_with_room(|| master.lists.lock(), orphans, |lists| &mut lists.slaves).map(drop)
}

/// Makes a mount a peer and a slave of nobody. Without [`prepare_to_leave`] and without memory its group's slaves become private: there is
/// nobody who could be told, and less propagates, not more.
pub(super) fn leave(mount: &Shared<Mount>) {
    let prepared = prepare_to_leave(mount).is_ok();
    let master = mount.relations.lock().master.take();
    if let Some(master) = &master {
        master.remove(mount, |lists| &mut lists.slaves);
    }
    end_peerage(mount, master.filter(|_| prepared));
}

/// Makes a mount a peer of nobody, but leaves its master.
pub(super) fn leave_group(mount: &Shared<Mount>) {
    let heir = mount.relations().master;
    end_peerage(mount, heir);
}

/// The slaves of a group that ends have the heir for their master.
fn end_peerage(mount: &Shared<Mount>, heir: Option<Arc<Group>>) {
    let Some(group) = mount.relations.lock().group.take() else { return };
    group.remove(mount, |lists| &mut lists.peers);
    let orphans = {
        let mut lists = group.lists.lock();
        if lists.peers.is_empty() { core::mem::take(&mut lists.slaves) } else { Vec::new() }
    };
    for orphan in orphans {
        orphan.relations.lock().master.clone_from(&heir);
        if let Some(heir) = &heir {
            heir.lists.lock().slaves.push(orphan);
        }
    }
}

/// Changes how events propagate to and from a mount.
pub(super) fn change(mount: &Shared<Mount>, wanted: Propagation) -> Result<()> {
    let before = mount.relations();
    match wanted {
        Propagation::Shared => return make_shared(mount),
        Propagation::Private | Propagation::Unbindable => {
            prepare_to_leave(mount)?;
            leave(mount);
            mount.relations.lock().unbindable = wanted == Propagation::Unbindable;
        }
        Propagation::Slave => {
            let Some(group) = before.group else { return Ok(()) };
            prepare_to_leave(mount)?;
            let others = group.find_peer(|peer| !Shared::ptr_eq(peer, mount)).is_some();
            // The last peer has no master in its group any more; that of the group, if there is one, is then its own.
            let master = if others { Some(group) } else { before.master };
            if let Some(master) = &master {
                allocation::lock_with_room(|| master.lists.lock(), 1, |lists| &mut lists.slaves)?;
            }
            leave(mount);
            if let Some(master) = &master {
                become_slave(mount, master)?;
            }
        }
    }
    Ok(())
}
