//! Where events propagate to: mounts that appear on a peer appear on all receivers, and so do unmounts.
//!
//! # Copies
//! What is mounted on a shared mount becomes shared itself. Receivers get copies: peers of the destination copies that are peers of the original, slaves copies that are
//! slaves of it; where the slave is shared, the copy is both, and the peers of the slave have its peers (mount_namespaces(7)). So levels of groups are worked
//! through from the destination's group down to the last slaves, each with the copies of the level above as originals.
//!
//! A receiver sees the place only if that is below its root. Where it has something mounted there already, that goes on top of what comes: it was
//! there to be seen, and is so afterwards.
//!
//! # Bounds
//! Each group is visited once a change. How much comes to a name space is bounded by its limit of mounts, which is looked at before the copies are made.

use alloc::sync::Arc;
use alloc::vec::Vec;

use memory::per_cpu::Shared;
use sync::rcu;

use super::change::Change;
use super::group::{self, Group};
use super::namespace::MountNamespace;
use super::path::Path;
use super::point::Mount;
use super::tree::{self, Copied, TreeCopy};
use crate::dentry::Dentry;
use crate::{Error, Result, allocation};

/// A group whose peers and slaves are next.
struct Level {
    group: Arc<Group>,
    /// What the copies are made from.
    originals: Vec<Shared<Mount>>,
    /// They are those of the group's master: the first copy is a slave of them.
    from_master: bool,
}

/// What a copy is to its original.
#[derive(Clone, Copy)]
enum Kind {
    Peer,
    Slave,
    SharedSlave,
}

/// Copies the tree, which is about to come to `point` of `destination`, to all that receive events from there. All of the tree is shared already.
pub(super) fn mount(
    change: &mut Change,
    tree: &[Shared<Mount>],
    destination: &Shared<Mount>,
    point: &Arc<Dentry>,
) -> Result<()> {
    let Some(group) = destination.relations().group else { return Ok(()) };
    let visit = change.next_visit();
    group.visit(visit);
    let mut levels = Vec::new();
    let mut originals = Vec::new();
    allocation::reserve(&mut originals, tree.len())?;
    originals.extend_from_slice(tree);
    allocation::push(&mut levels, Level { group, originals, from_master: false })?;
    while let Some(Level { group, mut originals, mut from_master }) = levels.pop() {
        for peer in group.peers()? {
            if Shared::ptr_eq(&peer, destination) {
                continue;
            }
            let kind = if from_master { Kind::SharedSlave } else { Kind::Peer };
            if let Some(copies) = copy_to(change, &originals, destination, (&peer, point), kind)? {
                if from_master {
                    originals = copies;
                }
                from_master = false;
            }
        }
        for slave in group.slaves()? {
            match slave.relations().group {
                None => {
                    copy_to(change, &originals, destination, (&slave, point), Kind::Slave)?;
                }
                Some(below) if below.visit(visit) => {
                    let mut copy = Vec::new();
                    allocation::reserve(&mut copy, originals.len())?;
                    copy.extend_from_slice(&originals);
                    let level = Level { group: below, originals: copy, from_master: true };
                    allocation::push(&mut levels, level)?;
                }
                Some(_) => {}
            }
        }
    }
    Ok(())
}

/// Plans a copy for one receiver; `None` for one that does not see the place.
fn copy_to(
    change: &mut Change,
    originals: &[Shared<Mount>],
    destination: &Mount,
    (receiver, point): (&Shared<Mount>, &Arc<Dentry>),
    kind: Kind,
) -> Result<Option<Vec<Shared<Mount>>>> {
    // Under construction itself, or being taken apart.
    let Some(namespace) = change.home_of(receiver)? else { return Ok(None) };
    if !point.is_below(receiver.root()) {
        return Ok(None);
    }
    if tree::keeps_namespace(&originals[0]) {
        return Err(Error::Invalid);
    }
    change.touch(&namespace, originals.len())?;
    let top = Path::root_of(&originals[0]);
    let TreeCopy { originals, copies } = tree::copy(change, &top, Some(Copied::Elsewhere))?;
    for (original, copy) in originals.iter().zip(&copies) {
        relate(original, copy, kind)?;
        change.arrive(&namespace, copy)?;
    }
    let trusted = |home: Arc<MountNamespace>| {
        home.owner().is_same(namespace.owner())
            && (namespace.user().is_none() || namespace.user() == home.user())
    };
    if !change.home_of(destination)?.is_some_and(trusted) {
        tree::lock(&copies);
    }
    let before = mounted_at(receiver, point);
    change.place(&copies[0], receiver, point)?;
    if let Some(before) = before {
        change.displace(&before)?;
        let onto = topmost(&copies[0]);
        change.place(&before, &onto, onto.root())?;
    }
    Ok(Some(copies))
}

fn relate(original: &Shared<Mount>, copy: &Shared<Mount>, kind: Kind) -> Result<()> {
    let relations = original.relations();
    let Some(group) = &relations.group else { return Ok(()) };
    match kind {
        Kind::Peer => group::copy_relations(original, copy),
        Kind::Slave => group::become_slave(copy, group),
        Kind::SharedSlave => {
            group::become_slave(copy, group)?;
            group::make_shared(copy)
        }
    }
}

/// What is mounted on a place itself.
pub(super) fn mounted_at(mount: &Mount, point: &Arc<Dentry>) -> Option<Shared<Mount>> {
    let guard = rcu::read();
    mount.mounted_on(point, &guard).cloned()
}

/// The mount that is seen at this mount's root.
fn topmost(mount: &Shared<Mount>) -> Shared<Mount> {
    let mut top = mount.clone();
    while let Some(next) = mounted_at(&top, top.root()) {
        top = next;
    }
    top
}

/// All mounts that receive what happens on a mount.
fn receivers(visit: u64, mount: &Shared<Mount>) -> Result<Vec<Shared<Mount>>> {
    let mut found = Vec::new();
    let mut groups = Vec::new();
    if let Some(group) = mount.relations().group {
        group.visit(visit);
        allocation::push(&mut groups, group)?;
    }
    while let Some(group) = groups.pop() {
        for peer in group.peers()? {
            if !Shared::ptr_eq(&peer, mount) {
                allocation::push(&mut found, peer)?;
            }
        }
        for slave in group.slaves()? {
            match slave.relations().group {
                None => allocation::push(&mut found, slave)?,
                Some(below) if below.visit(visit) => allocation::push(&mut groups, below)?,
                Some(_) => {}
            }
        }
    }
    Ok(found)
}

/// What is at the same place as `mount` on all that receive events from there.
pub(super) fn counterparts(change: &mut Change, mount: &Shared<Mount>) -> Result<Vec<Shared<Mount>>> {
    let mut found = Vec::new();
    let Some((parent, point)) = mount.attachment_now() else { return Ok(found) };
    for receiver in receivers(change.next_visit(), &parent)? {
        if let Some(counterpart) = mounted_at(&receiver, &point) {
            allocation::push(&mut found, counterpart)?;
        }
    }
    Ok(found)
}
