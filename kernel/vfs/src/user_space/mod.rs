//! Name spaces of users (user_namespaces(7)): what a program calls user 0 may be somebody else outside.
//!
//! # Ids
//! The kernel keeps the ids of the first name space everywhere: in inodes, credentials and messages. A program's own ids are translated where they come in
//! ([`UserSpace::kernel_user`]) and where they go out ([`UserSpace::shown_user`]), by maps that are written once. Ids that a map does not know can't come
//! in, and go out as the overflow id.
//!
//! # Capabilities
//! A capability counts in the name space of who has it and in those below. [`crate::Credentials::has`] asks for one in the first name space and so says no to
//! everybody who is in another one; [`crate::Credentials::has_in`] asks for one over an object that belongs to a name space, and
//! [`crate::Credentials::has_over`] over a file by the ids of its owner. Who made a name space has all of them in it.
//!
//! # Locking
//! A space never changes but for its maps and `setgroups`, which are written under one lock for all spaces and read without.

mod count;
mod map;

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use sync::{Once, SpinLock};

pub use count::{Kind, Owner};
pub use map::{Extent, IdMap};

use crate::credentials::Credentials;
use crate::{Error, Result, allocation};

/// How deep spaces can stand in each other, the first one not counted.
pub const LEVEL_MAX: u32 = 33;
/// The number of the first one.
pub const FIRST_NUMBER: u64 = 4_026_531_837;

/// What ids are shown as that a space does not know (`/proc/sys/kernel/overflowuid` and `overflowgid`).
pub static OVERFLOW_USER: AtomicU32 = AtomicU32::new(65534);
/// The same for groups.
pub static OVERFLOW_GROUP: AtomicU32 = AtomicU32::new(65534);

/// Which ids a map is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the manual")]
pub enum Ids {
    User,
    Group,
    Project,
}

/// A name space of users: the first one, which needs no object, or one that was made later.
#[derive(Clone, Default)]
pub struct UserSpace(Option<Arc<Made>>);

struct Made {
    number: u64,
    parent: UserSpace,
    level: u32,
    /// Who made it, and in which group: ids of the kernel.
    owner: (u32, u32),
    /// Written once, under [`WRITING`].
    maps: [Once<Box<IdMap>>; 3],
    /// Whether setgroups(2) may be called; written under [`WRITING`].
    lets_set_groups: AtomicBool,
    /// Whether its maker could give files capabilities, and so may map user 0 of the parent.
    maker_had_setfcap: bool,
    limits: count::Limits,
    _charge: Owner,
}

/// Held while a map or the permission to set groups is written.
static WRITING: SpinLock<()> = SpinLock::named("maps of user ids", ());

impl UserSpace {
    /// The first one.
    pub const fn new() -> Self {
        Self(None)
    }

    /// The first one.
    pub const FIRST: &'static Self = &Self(None);

    /// A new one below that of its maker, with no ids mapped.
    ///
    /// # Errors
    /// `ENOSPC` for too many, or too deep in each other; `EPERM` if its maker's ids are not mapped in his own; `ENOMEM`.
    pub fn make(number: u64, maker: &Credentials, user: u32, group: u32) -> Result<Self> {
        let parent = &maker.space;
        if parent.level() >= LEVEL_MAX {
            return Err(Error::NoSpace);
        }
        let charge = Owner::claim(Kind::User, parent, user)?;
        if parent.own(Ids::User, user).is_none() || parent.own(Ids::Group, group).is_none() {
            return Err(Error::NotPermitted);
        }
        let made = Made {
            number,
            level: parent.level() + 1,
            owner: (user, group),
            maps: [const { Once::new() }; 3],
            lets_set_groups: AtomicBool::new(parent.lets_set_groups()),
            maker_had_setfcap: maker.capabilities.contains(crate::Capabilities::SETFCAP),
            limits: count::Limits::usual(),
            parent: parent.clone(),
            _charge: charge,
        };
        Ok(Self(Some(allocation::arc(made)?)))
    }

    /// Whether it is the first one.
    #[inline(always)]
    pub const fn is_first(&self) -> bool {
        self.0.is_none()
    }

    /// Whether both are the same.
    #[inline]
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Whether it is `other` or below it.
    pub fn is_within(&self, other: &Self) -> bool {
        let mut space = self;
        while space.level() > other.level() {
            space = space.parent().unwrap_or(Self::FIRST);
        }
        space.is_same(other)
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.0.as_ref().map_or(FIRST_NUMBER, |made| made.number)
    }

    /// How deep it is.
    pub fn level(&self) -> u32 {
        self.0.as_ref().map_or(0, |made| made.level)
    }

    /// The one that it stands in; none of the first one.
    pub fn parent(&self) -> Option<&Self> {
        self.0.as_ref().map(|made| &made.parent)
    }

    /// The kernel's number of the user who made it.
    pub fn owner(&self) -> u32 {
        self.0.as_ref().map_or(0, |made| made.owner.0)
    }

    /// User and group of who made it.
    pub fn owners(&self) -> (u32, u32) {
        self.0.as_ref().map_or((0, 0), |made| made.owner)
    }

    fn limits(&self) -> &count::Limits {
        self.0.as_ref().map_or(&count::FIRST, |made| &made.limits)
    }

    /// The limit on a kind of name space in it.
    pub fn limit(&self, kind: Kind) -> u32 {
        self.limits().get(kind)
    }

    /// Changes that.
    pub fn set_limit(&self, kind: Kind, limit: u32) {
        self.limits().set(kind, limit);
    }

    fn map(&self, ids: Ids) -> Option<&IdMap> {
        match &self.0 {
            None => Some(&map::FIRST),
            Some(made) => made.maps[ids as usize].get().map(|map| &**map),
        }
    }

    /// The kernel's id of what is called `id` here; none if it is not mapped.
    #[inline]
    pub fn kernel(&self, ids: Ids, id: u32) -> Option<u32> {
        if self.is_first() { (id != u32::MAX).then_some(id) } else { self.mapped(ids, id) }
    }

    #[inline(never)]
    fn mapped(&self, ids: Ids, id: u32) -> Option<u32> {
        self.map(ids)?.down(id)
    }

    /// What one of the kernel's ids is called here; none if it is not mapped.
    #[inline]
    pub fn own(&self, ids: Ids, id: u32) -> Option<u32> {
        if self.is_first() { (id != u32::MAX).then_some(id) } else { self.unmapped(ids, id) }
    }

    #[inline(never)]
    fn unmapped(&self, ids: Ids, id: u32) -> Option<u32> {
        self.map(ids)?.up(id)
    }

    /// The kernel's id of the first one of a range, if the whole of it is mapped by one line.
    pub fn kernel_range(&self, ids: Ids, first: u32, count: u32) -> Option<u32> {
        self.map(ids)?.range_down(first, count)
    }

    /// The kernel's id of a user; none if he is not mapped.
    #[inline]
    pub fn kernel_user(&self, id: u32) -> Option<u32> {
        self.kernel(Ids::User, id)
    }

    /// The kernel's id of a group; none if it is not mapped.
    #[inline]
    pub fn kernel_group(&self, id: u32) -> Option<u32> {
        self.kernel(Ids::Group, id)
    }

    /// What a program here sees as a user.
    #[inline(always)]
    pub fn shown_user(&self, id: u32) -> u32 {
        if self.is_first() { id } else { self.shown(Ids::User, id) }
    }

    /// What a program here sees as a group.
    #[inline(always)]
    pub fn shown_group(&self, id: u32) -> u32 {
        if self.is_first() { id } else { self.shown(Ids::Group, id) }
    }

    #[inline(never)]
    fn shown(&self, ids: Ids, id: u32) -> u32 {
        let overflow = if ids == Ids::Group { &OVERFLOW_GROUP } else { &OVERFLOW_USER };
        // Relaxed: a setting.
        self.unmapped(ids, id).unwrap_or_else(|| overflow.load(Ordering::Relaxed))
    }

    /// Whether a file with these owners can be made, and is anybody's, here.
    #[inline]
    pub fn knows(&self, user: u32, group: u32) -> bool {
        self.is_first() || self.own(Ids::User, user).is_some() && self.own(Ids::Group, group).is_some()
    }

    /// Whether setgroups(2) may be called by who has the capability: groups are mapped, and nobody has forbidden it.
    pub fn may_set_groups(&self) -> bool {
        self.lets_set_groups() && self.map(Ids::Group).is_some()
    }

    /// Whether setgroups(2) has not been forbidden.
    pub fn lets_set_groups(&self) -> bool {
        self.0.as_ref().is_none_or(|made| made.lets_set_groups.load(Ordering::Acquire))
    }

    /// Whether its maker could give files capabilities.
    pub fn maker_had_setfcap(&self) -> bool {
        self.0.as_ref().is_none_or(|made| made.maker_had_setfcap)
    }

    /// Forbids setgroups(2), or says that it may stay allowed.
    ///
    /// # Errors
    /// `EPERM` if it is too late for either.
    pub fn set_lets_set_groups(&self, lets: bool) -> Result<()> {
        let _writing = WRITING.lock();
        if lets {
            return if self.lets_set_groups() { Ok(()) } else { Err(Error::NotPermitted) };
        }
        let made = self.0.as_ref().ok_or(Error::NotPermitted)?;
        if self.map(Ids::Group).is_some() {
            return Err(Error::NotPermitted);
        }
        made.lets_set_groups.store(false, Ordering::Release);
        Ok(())
    }

    /// Whether there is a map already.
    pub fn has_map(&self, ids: Ids) -> bool {
        self.map(ids).is_some()
    }

    /// Gives it a map whose lower ids are the kernel's.
    ///
    /// # Errors
    /// `EPERM` if there is one, `ENOMEM`.
    pub fn set_map(&self, ids: Ids, map: IdMap) -> Result<()> {
        let made = self.0.as_ref().ok_or(Error::NotPermitted)?;
        let map = allocation::boxed(map)?;
        let _writing = WRITING.lock();
        let slot = &made.maps[ids as usize];
        if slot.get().is_some() {
            return Err(Error::NotPermitted);
        }
        slot.call_once(|| map);
        Ok(())
    }

    /// The lines of a map, its lower ids as they are called in `reader`, or one above when that is this space itself.
    pub fn show_map(&self, ids: Ids, reader: &Self, out: &mut dyn fmt::Write) -> fmt::Result {
        let lower = match self.parent() {
            Some(parent) if reader.is_same(self) => parent,
            _ => reader,
        };
        for extent in self.map(ids).map_or(&[][..], IdMap::extents) {
            let below = lower.own(ids, extent.lower).unwrap_or(u32::MAX);
            writeln!(out, "{:>10} {below:>10} {:>10}", extent.first, extent.count)?;
        }
        Ok(())
    }
}

impl fmt::Debug for UserSpace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "user:[{}]", self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Capabilities;

    fn inside(maker: &Credentials, user: u32) -> Credentials {
        let space = UserSpace::make(7, maker, user, user).expect("room");
        let map = IdMap::parse(alloc::format!("0 {user} 1").as_bytes()).expect("a map");
        space
            .set_map(
                Ids::User,
                map.lowered(|id, count| maker.space.kernel_range(Ids::User, id, count)).expect("mapped"),
            )
            .expect("first");
        Credentials { space, capabilities: Capabilities::all(), ..maker.clone() }
    }

    #[test]
    fn capabilities_count_below_and_not_above() {
        let user = Credentials::ordinary(1000, 1000);
        let root = inside(&user, 1000);
        assert!(!root.has(Capabilities::CHOWN), "not in the first one");
        assert!(root.has_in(&root.space, Capabilities::CHOWN));
        assert!(!root.has_in(UserSpace::FIRST, Capabilities::CHOWN));
        assert!(user.has_in(&root.space, Capabilities::CHOWN), "who made it");
        assert!(!Credentials::ordinary(1001, 1001).has_in(&root.space, Capabilities::CHOWN));
        let other = inside(&user, 1000);
        assert!(!other.has_in(&root.space, Capabilities::CHOWN), "beside each other");
        assert!(Credentials::root().has_in(&root.space, Capabilities::CHOWN));
        assert!(root.space.is_within(UserSpace::FIRST) && !root.space.is_within(&other.space));
    }

    #[test]
    fn ids_that_are_not_mapped_are_shown_as_nobody() {
        let root = inside(&Credentials::ordinary(1000, 1000), 1000);
        assert_eq!(root.space.shown_user(1000), 0);
        assert_eq!(root.space.shown_user(0), 65534);
        assert_eq!(root.space.kernel_user(0), Some(1000));
        assert_eq!(root.space.kernel_user(1), None);
        assert!(!root.has_over_owned(0, 0, Capabilities::CHOWN));
        assert!(!root.has_over_owned(1000, 1000, Capabilities::CHOWN), "no group is mapped");
    }

    #[test]
    fn a_map_is_written_once_and_groups_are_forbidden_before() {
        let space = inside(&Credentials::ordinary(5, 5), 5).space;
        let map = || IdMap::parse(b"0 5 1").expect("a map");
        assert_eq!(space.set_map(Ids::User, map()), Err(Error::NotPermitted));
        assert!(!space.may_set_groups());
        assert_eq!(space.set_lets_set_groups(false), Ok(()));
        assert_eq!(space.set_lets_set_groups(true), Err(Error::NotPermitted));
        assert_eq!(space.set_map(Ids::Group, map()), Ok(()));
        assert!(!space.may_set_groups());
    }

    #[test]
    fn spaces_are_not_deeper_than_the_limit() {
        let mut maker = Credentials::ordinary(3, 3);
        for _ in 0..LEVEL_MAX {
            let space = UserSpace::make(7, &maker, 3, 3).expect("room");
            for ids in [Ids::User, Ids::Group] {
                let map = IdMap::parse(b"3 3 1").expect("a map").lowered(|id, _| Some(id)).expect("mapped");
                space.set_map(ids, map).expect("first");
            }
            maker.space = space;
        }
        assert_eq!(UserSpace::make(7, &maker, 3, 3).err(), Some(Error::NoSpace));
    }
}
