//! Which controllers a group hands on to its children (`cgroup.subtree_control`).
//!
//! Top-down: a controller can be handed on only where it is available, which is what the parent hands on; and it can be taken back only where no
//! child hands it on. No internal processes: a group other than the root hands controllers on or has processes. There is no threaded
//! mode, so this holds for all controllers, also for those that Linux lets a threaded subtree compete with.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use bitflags::bitflags;
use vfs::text::Text;
use vfs::{Error, Result};

use crate::group::Group;
use crate::{accounts, processors, tree};

bitflags! {
    /// A set of controllers.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub(crate) struct Controllers: u8 {
        /// How many threads there may be.
        const PIDS = 1;
        /// How much of the processors.
        const CPU = 2;
        /// How much memory.
        const MEMORY = 4;
        /// What is transferred to and from disks.
        const IO = 8;
        /// Those that go by a group's account.
        const NEED_ACCOUNT = Self::MEMORY.bits() | Self::IO.bits();
    }
}

/// Their names, in the order in which they are shown.
const NAMES: [(&str, Controllers); 4] = [
    ("cpu", Controllers::CPU),
    ("io", Controllers::IO),
    ("memory", Controllers::MEMORY),
    ("pids", Controllers::PIDS),
];

/// The names of all controllers.
pub fn controller_names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(|(name, _)| *name)
}

impl Controllers {
    /// Writes their names in one line.
    pub(crate) fn show(self, out: &mut Text) {
        let mut names = NAMES.iter().filter(|(_, controller)| self.contains(*controller));
        if let Some((first, _)) = names.next() {
            out.push_bytes(first.as_bytes());
        }
        for (name, _) in names {
            out.push_bytes(b" ");
            out.push_bytes(name.as_bytes());
        }
        out.push_bytes(b"\n");
    }

    fn named(name: &[u8]) -> Result<Self> {
        let known = NAMES.iter().find(|(known, _)| known.as_bytes() == name);
        known.map(|(_, controller)| *controller).ok_or(Error::Invalid)
    }
}

/// What a line such as `+pids -memory` asks for: what to add and what to take away. Of two words about one controller the last counts.
fn parse(line: &[u8]) -> Result<(Controllers, Controllers)> {
    let (mut added, mut removed) = (Controllers::empty(), Controllers::empty());
    for word in line.split(|&byte| byte == b' ').filter(|word| !word.is_empty()) {
        let controller = Controllers::named(&word[1..])?;
        match word[0] {
            b'+' => {
                added |= controller;
                removed -= controller;
            }
            b'-' => {
                removed |= controller;
                added -= controller;
            }
            _ => return Err(Error::Invalid),
        }
    }
    Ok((added, removed))
}

/// Writes to `cgroup.subtree_control`.
pub(crate) fn change(group: &Arc<Group>, line: &[u8]) -> Result<()> {
    let (added, removed) = parse(line)?;
    let _tree = tree::lock(group)?;
    let before = group.enabled();
    let (added, removed) = (added - before, removed & before);
    if !group.available().contains(added) {
        return Err(Error::NotFound);
    }
    let children = group.children()?;
    if children.iter().any(|child| child.enabled().intersects(removed)) {
        return Err(Error::Busy);
    }
    let after = before.union(added) - removed;
    let handed_on = begin(&children, added).and_then(|()| hand_on(group, added, after));
    if let Err(error) = handed_on {
        take_back(group, &children, added, before);
        return Err(error);
    }
    children.iter().for_each(|child| child.forget_settings(removed));
    settle(&children, added | removed).inspect_err(|_| take_back(group, &children, added, after - added))
}

/// Gives children what controllers need, before those are handed on to them.
fn begin(children: &[Arc<Group>], added: Controllers) -> Result<()> {
    for child in children {
        if added.contains(Controllers::CPU) {
            processors::begin(child)?;
        }
        if added.intersects(Controllers::NEED_ACCOUNT) {
            accounts::begin(child)?;
        }
    }
    Ok(())
}

/// With the list of members locked: who joins sees that controllers are handed on, or is found here.
fn hand_on(group: &Group, added: Controllers, after: Controllers) -> Result<()> {
    let members = group.members.lock();
    if !added.is_empty() && !group.is_root() && !members.list.is_empty() {
        return Err(Error::Busy);
    }
    group.enabled.store(after.bits(), Ordering::Relaxed);
    Ok(())
}

/// Not all could be done: the group hands on what it is to without the controllers that were to be added, which may be asked for once more.
fn take_back(group: &Group, children: &[Arc<Group>], added: Controllers, without: Controllers) {
    group.enabled.store(without.bits(), Ordering::Relaxed);
    children.iter().for_each(|child| child.forget_settings(added));
}

/// Brings threads to where they compete and pay now.
fn settle(children: &[Arc<Group>], changed: Controllers) -> Result<()> {
    if changed.contains(Controllers::CPU) {
        children.iter().try_for_each(processors::settle)?;
    }
    if changed.intersects(Controllers::NEED_ACCOUNT) {
        children.iter().try_for_each(accounts::settle)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_words_about_a_controller_the_last_counts() {
        let pids = Controllers::PIDS;
        assert_eq!(parse(b"+pids"), Ok((pids, Controllers::empty())));
        assert_eq!(parse(b"+pids -pids"), Ok((Controllers::empty(), pids)));
        assert_eq!(parse(b"  -pids  +pids "), Ok((pids, Controllers::empty())));
        assert_eq!(parse(b""), Ok((Controllers::empty(), Controllers::empty())));
        for wrong in [&b"pids"[..], b"+", b"+nothing", b"*pids"] {
            assert_eq!(parse(wrong), Err(Error::Invalid));
        }
    }
}
