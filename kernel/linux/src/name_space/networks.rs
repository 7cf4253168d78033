//! Name spaces of networks (network_namespaces(7)). In one are a loopback with its addresses ([`net::link`]) and the abstract names of local sockets, which belong to
//! the one that their socket was made in.

use net::link::Loopback;
use vfs::user_space::Owner;
use vfs::{Capabilities, UserSpace};

use super::kind::Kind;
use super::{First, NameSpaces};

/// A name space of networks.
pub(crate) struct Networks {
    number: u64,
    owner: Owner,
    /// Its only link.
    pub(crate) loopback: Loopback,
}

impl First for Networks {
    fn first() -> &'static Self {
        static FIRST: Networks = Networks {
            number: Kind::Network.first_number(),
            owner: Owner::FIRST,
            loopback: Loopback::first(),
        };
        &FIRST
    }
}

impl Networks {
    /// An empty one.
    pub(super) const fn new(number: u64, owner: Owner) -> Self {
        Self { number, owner, loopback: Loopback::down() }
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

/// Calls back with the loopback of the caller's network, and whether the caller may administer that.
pub(crate) fn look_at_callers(look: &mut dyn FnMut(&Loopback, bool)) {
    let Some(thread) = crate::terminal::calling_thread() else { return };
    let networks = NameSpaces::of(&thread).networks;
    look(&networks.loopback, thread.credentials().has_in(networks.owner(), Capabilities::NET_ADMIN));
}
