//! Making and removing groups.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use sync::Lazy;
use vfs::{Error, Result};

use crate::controllers::Controllers;
use crate::group::Group;
use crate::{accounts, processors};

/// Held by who changes the tree, moves processes, or looks whether all of a group is frozen.
static TREE: sched::Mutex<()> = sched::Mutex::named("tree of control groups", ());

static ROOT: Lazy<Arc<Group>> = Lazy::new(|| {
    Group::new(None, b"", (0, 0)).expect("memory for the root of control groups, made at start-up")
});

/// Groups besides the root.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The group of everybody who was never moved.
pub fn root() -> &'static Arc<Group> {
    &ROOT
}

/// How many groups there are.
pub fn count() -> u32 {
    COUNT.load(Ordering::Relaxed) + 1
}

/// The lock of the tree, for a change of a group that was not removed.
///
/// # Errors
/// `ENODEV`.
pub(crate) fn lock(group: &Group) -> Result<sched::MutexGuard<'static, ()>> {
    let tree = TREE.lock();
    if group.is_removed() { Err(Error::NoDevice) } else { Ok(tree) }
}

/// The lock of the tree, whatever the group's state.
pub(crate) fn lock_any() -> sched::MutexGuard<'static, ()> {
    TREE.lock()
}

/// Whether the limits of a group and of those above permit one more group in it.
fn check_limits(parent: &Group) -> Result<()> {
    let depth = parent.depth + 1;
    let full = parent.upwards().any(|above| {
        above.descendants.load(Ordering::Relaxed) >= above.descendants_max.load(Ordering::Relaxed)
            || depth - above.depth > above.depth_max.load(Ordering::Relaxed)
    });
    if full { Err(Error::WouldBlock) } else { Ok(()) }
}

/// Makes a group. `prepare` makes what shows it.
///
/// # Errors
/// `EINVAL` for a name with a line break, `EAGAIN` where a limit is reached, `ENODEV`, `ENOMEM`.
pub(crate) fn make<R>(
    parent: &Arc<Group>,
    name: &[u8],
    maker: (u32, u32),
    prepare: impl FnOnce(&Arc<Group>) -> Result<R>,
) -> Result<R> {
    if name.contains(&b'\n') {
        return Err(Error::Invalid);
    }
    let _tree = lock(parent)?;
    check_limits(parent)?;
    let group = Group::new(Some(parent), name, maker)?;
    if group.available().contains(Controllers::CPU) {
        processors::begin(&group)?;
    }
    if group.available().intersects(Controllers::NEED_ACCOUNT) {
        accounts::begin(&group)?;
    }
    let shown = prepare(&group)?;
    parent.add_child(&group).inspect_err(|_| forget_inodes(&group))?;
    COUNT.fetch_add(1, Ordering::Relaxed);
    for above in parent.upwards() {
        above.descendants.fetch_add(1, Ordering::Relaxed);
    }
    // A child that nobody is in is frozen if it shall be, and keeps nobody else from being so.
    crate::freezer::look_again(&group);
    Ok(shown)
}

/// Removes a group without members and children.
///
/// # Errors
/// `EBUSY`, `ENODEV`.
pub(crate) fn remove(group: &Arc<Group>) -> Result<()> {
    let Some(parent) = &group.parent else { return Err(Error::Busy) };
    let _tree = lock(group)?;
    {
        let mut members = group.members.lock();
        if !members.list.is_empty() || group.is_populated() || group.has_children() {
            return Err(Error::Busy);
        }
        members.removed = true;
    }
    accounts::end(group);
    group.count_dying();
    parent.ended.add_group(&group.ended);
    parent.remove_child(group);
    COUNT.fetch_sub(1, Ordering::Relaxed);
    for above in parent.upwards() {
        above.descendants.fetch_sub(1, Ordering::Relaxed);
    }
    forget_inodes(group);
    crate::freezer::look_again(parent);
    Ok(())
}

/// The inodes refer to the group, and the group to them.
fn forget_inodes(group: &Group) {
    let inodes = core::mem::take(&mut *group.inodes.lock());
    drop(inodes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_group(parent: &Arc<Group>, name: &[u8]) -> Result<Arc<Group>> {
        make(parent, name, (0, 0), |group| Ok(group.clone()))
    }

    #[test]
    fn a_group_with_children_stays() {
        let outer = make_group(root(), b"stays").expect("memory");
        let inner = make_group(&outer, b"inner").expect("memory");
        assert_eq!(remove(&outer), Err(Error::Busy));
        assert_eq!(outer.descendants.load(Ordering::Relaxed), 1);
        remove(&inner).expect("empty");
        assert_eq!(remove(&inner), Err(Error::NoDevice));
        assert_eq!(outer.dying.load(Ordering::Relaxed), 1, "it is still referred to");
        drop(inner);
        assert_eq!(outer.dying.load(Ordering::Relaxed), 0);
        remove(&outer).expect("empty");
        assert!(make_group(&outer, b"late").is_err_and(|error| error == Error::NoDevice));
    }

    #[test]
    fn limits_count_from_where_they_are_set() {
        let top = make_group(root(), b"limited").expect("memory");
        top.depth_max.store(1, Ordering::Relaxed);
        top.descendants_max.store(2, Ordering::Relaxed);
        let one = make_group(&top, b"one").expect("within both limits");
        assert!(make_group(&one, b"deep").is_err_and(|error| error == Error::WouldBlock));
        let two = make_group(&top, b"two").expect("within both limits");
        assert!(make_group(&top, b"three").is_err_and(|error| error == Error::WouldBlock));
        assert!(make_group(&top, b"a\nb").is_err_and(|error| error == Error::Invalid));
        for group in [&one, &two, &top] {
            remove(group).expect("empty");
        }
    }

    #[test]
    fn children_are_found_by_name_and_by_number() {
        let top = make_group(root(), b"names").expect("memory");
        let made: alloc::vec::Vec<_> = (0..50)
            .map(|index| make_group(&top, alloc::format!("child{index}").as_bytes()).expect("memory"))
            .collect();
        assert!(top.child(b"child7").is_some_and(|child| Arc::ptr_eq(&child, &made[7])));
        assert!(top.child(b"child50").is_none());
        assert!(top.next_child(made[8].number + 1).is_some_and(|child| Arc::ptr_eq(&child, &made[9])));
        for group in &made {
            remove(group).expect("empty");
        }
        assert!(top.next_child(0).is_none());
        remove(&top).expect("empty");
    }
}
