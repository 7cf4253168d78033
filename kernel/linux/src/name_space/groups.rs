//! Name spaces of control groups: where the tree begins for who is in one (cgroup_namespaces(7)).

use alloc::sync::Arc;

use cgroup::Group;
use vfs::UserSpace;
use vfs::user_space::Owner;

use super::First;
use super::kind::Kind;

/// A name space of control groups.
pub(crate) struct GroupSpace {
    number: u64,
    owner: Owner,
    /// None in the first one, whose root is that of all.
    root: Option<Arc<Group>>,
}

impl First for GroupSpace {
    fn first() -> &'static Self {
        static FIRST: GroupSpace =
            GroupSpace { number: Kind::Cgroup.first_number(), owner: Owner::FIRST, root: None };
        &FIRST
    }
}

impl GroupSpace {
    /// One whose root is a group; none for the root of all.
    pub(super) fn new(number: u64, owner: Owner, root: Option<Arc<Group>>) -> Self {
        Self { number, owner, root }
    }

    /// Its number.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The name space of users that it belongs to.
    pub(super) fn owner(&self) -> &UserSpace {
        self.owner.space()
    }

    /// Where the tree begins, unless that is the root of all.
    pub(crate) fn root(&self) -> Option<Arc<Group>> {
        self.root.clone()
    }
}
