//! How many name spaces a user has made (`/proc/sys/user/max_*_namespaces`).
//!
//! A name space is counted for its maker in the name space of users that it belongs to, and for the makers of those around that: each of them has a limit of
//! its own, and who makes another one inside gets no further than its maker could. Counts are in one table, under a lock that is taken only when a name space
//! is made or goes.

use core::sync::atomic::{AtomicU32, Ordering};

use hashbrown::HashMap;
use sync::SpinLock;

use super::UserSpace;
use crate::{Error, Result};

/// Kinds of name spaces that are counted, in the order of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the manual")]
pub enum Kind {
    Cgroup,
    Ipc,
    Mount,
    Network,
    Process,
    Time,
    User,
    SystemNames,
}

const KINDS: usize = 8;

impl Kind {
    /// All, with their names below `/proc/sys/user`.
    pub const ALL: [(&'static str, Self); KINDS] = [
        ("user/max_cgroup_namespaces", Self::Cgroup),
        ("user/max_ipc_namespaces", Self::Ipc),
        ("user/max_mnt_namespaces", Self::Mount),
        ("user/max_net_namespaces", Self::Network),
        ("user/max_pid_namespaces", Self::Process),
        ("user/max_time_namespaces", Self::Time),
        ("user/max_user_namespaces", Self::User),
        ("user/max_uts_namespaces", Self::SystemNames),
    ];
}

/// What each may have until somebody says otherwise: a tree of mounts may be large, so they are few for a small machine.
const USUAL: u32 = 4096;

/// Limits in one name space of users.
pub(super) struct Limits([AtomicU32; KINDS]);

/// Those in the first one.
pub(super) static FIRST: Limits = Limits([const { AtomicU32::new(USUAL) }; KINDS]);

impl Limits {
    pub(super) fn usual() -> Self {
        // Those of the spaces around it hold as well.
        Self([const { AtomicU32::new(i32::MAX as u32) }; KINDS])
    }

    pub(super) fn get(&self, kind: Kind) -> u32 {
        // Relaxed: a setting.
        self.0[kind as usize].load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, kind: Kind, limit: u32) {
        self.0[kind as usize].store(limit, Ordering::Relaxed);
    }
}

/// By the number of a name space of users and a user's id of the kernel.
type Counts = HashMap<(u64, u32), [u32; KINDS]>;

static COUNTS: SpinLock<Option<Counts>> = SpinLock::named("counts of name spaces", None);

/// The name space of users that a name space belongs to: capabilities over it are those in that one. Its place in the counts is given back on drop.
#[derive(Debug)]
pub struct Owner {
    space: UserSpace,
    /// For whom it is counted; nobody for the first ones.
    counted: Option<(Kind, u32)>,
}

/// Each name space of users around, with who is counted there.
fn around(space: &UserSpace, user: u32) -> impl Iterator<Item = (&UserSpace, u32)> {
    core::iter::successors(Some((space, user)), |(space, _)| {
        space.parent().map(|parent| (parent, space.owner()))
    })
}

impl Owner {
    /// That of the first name space of each kind.
    pub const FIRST: Self = Self { space: UserSpace::new(), counted: None };

    /// For something that is nobody's view, and no name space to those who count them.
    pub(crate) fn uncounted(space: &UserSpace) -> Self {
        Self { space: space.clone(), counted: None }
    }

    /// For a new name space of a kind.
    ///
    /// # Errors
    /// `ENOSPC` at a limit, `ENOMEM`.
    pub fn claim(kind: Kind, space: &UserSpace, user: u32) -> Result<Self> {
        let levels = around(space, user).count();
        let mut counts = COUNTS.lock();
        let counts = counts.get_or_insert_with(HashMap::new);
        counts.try_reserve(levels).map_err(|_| Error::OutOfMemory)?;
        let is_full = |(space, user): (&UserSpace, u32)| {
            let present = counts.get(&(space.number(), user)).map_or(0, |counts| counts[kind as usize]);
            present >= space.limit(kind)
        };
        if around(space, user).any(is_full) {
            return Err(Error::NoSpace);
        }
        for (space, user) in around(space, user) {
            counts.entry((space.number(), user)).or_default()[kind as usize] += 1;
        }
        Ok(Self { space: space.clone(), counted: Some((kind, user)) })
    }

    /// The name space of users.
    pub fn space(&self) -> &UserSpace {
        &self.space
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let Some((kind, user)) = self.counted else { return };
        let mut counts = COUNTS.lock();
        let Some(counts) = counts.as_mut() else { return };
        for (space, user) in around(&self.space, user) {
            let key = (space.number(), user);
            let Some(present) = counts.get_mut(&key) else { continue };
            present[kind as usize] -= 1;
            if *present == [0; KINDS] {
                counts.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Credentials;

    #[test]
    fn limits_hold_for_a_user_and_for_those_inside() {
        let maker = Credentials::ordinary(77, 77);
        let space = UserSpace::make(900_001, &maker, 77, 77).expect("room");
        space.set_limit(Kind::Ipc, 1);
        let one = Owner::claim(Kind::Ipc, &space, 77).expect("room");
        assert_eq!(Owner::claim(Kind::Ipc, &space, 77).err(), Some(Error::NoSpace));
        let other = Owner::claim(Kind::Ipc, &space, 78).expect("another user");
        drop(one);
        let again = Owner::claim(Kind::Ipc, &space, 77).expect("given back");
        drop((other, again));
        let in_first = COUNTS.lock().as_ref().and_then(|counts| counts.get(&(space.number(), 77)).copied());
        assert_eq!(in_first, None, "nothing is left in the table");
    }
}
