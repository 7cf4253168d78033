//! Name spaces of networks (network_namespaces(7)). There are no networks yet: what is in one are the abstract names of local sockets, which belong to the one that
//! their socket was made in.

use vfs::UserSpace;
use vfs::user_space::Owner;

use super::First;
use super::kind::Kind;

/// A name space of networks.
pub(crate) struct Networks {
    number: u64,
    owner: Owner,
}

impl First for Networks {
    fn first() -> &'static Self {
        static FIRST: Networks = Networks::new(Kind::Network.first_number(), Owner::FIRST);
        &FIRST
    }
}

impl Networks {
    /// An empty one.
    pub(super) const fn new(number: u64, owner: Owner) -> Self {
        Self { number, owner }
    }

    /// Its number.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The name space of users that it belongs to.
    pub(crate) fn owner(&self) -> &UserSpace {
        self.owner.space()
    }
}
