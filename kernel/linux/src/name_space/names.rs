//! Names of the system: of the machine in its network, and of its domain (uts_namespaces(7)).

use alloc::string::String;

use sync::SpinLock;
use vfs::UserSpace;
use vfs::user_space::Owner;

use super::First;
use super::kind::Kind;

/// The longest name.
pub(crate) const NAME_BYTES: usize = 64;

/// A name; as long as it is.
#[derive(Clone, Copy)]
struct Name {
    bytes: [u8; NAME_BYTES],
    length: usize,
}

impl Name {
    const fn new(text: &str) -> Self {
        let mut bytes = [0; NAME_BYTES];
        let (head, _) = bytes.split_at_mut(text.len());
        head.copy_from_slice(text.as_bytes());
        Self { bytes, length: text.len() }
    }

    /// What does not fit is cut off.
    fn of(name: &[u8]) -> Self {
        let length = name.len().min(NAME_BYTES);
        let mut bytes = [0; NAME_BYTES];
        bytes[..length].copy_from_slice(&name[..length]);
        Self { bytes, length }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes[..self.length]).into_owned()
    }
}

/// A name space of these names.
pub(crate) struct SystemNames {
    number: u64,
    owner: Owner,
    node: SpinLock<Name>,
    domain: SpinLock<Name>,
}

impl First for SystemNames {
    fn first() -> &'static Self {
        static FIRST: SystemNames = SystemNames {
            number: Kind::SystemNames.first_number(),
            owner: Owner::FIRST,
            node: SpinLock::named("host name", Name::new("starling")),
            domain: SpinLock::named("domain name", Name::new("(none)")),
        };
        &FIRST
    }
}

impl SystemNames {
    /// Another one with the same names.
    pub(super) fn copy(&self, number: u64, owner: Owner) -> Self {
        let (node, domain) = (*self.node.lock(), *self.domain.lock());
        Self {
            number,
            owner,
            node: SpinLock::named("host name", node),
            domain: SpinLock::named("domain name", domain),
        }
    }

    /// Its number.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// The name space of users that it belongs to.
    pub(crate) fn owner(&self) -> &UserSpace {
        self.owner.space()
    }

    /// The machine's name.
    pub(crate) fn node(&self) -> String {
        let node = *self.node.lock();
        node.text()
    }

    /// Its domain.
    pub(crate) fn domain(&self) -> String {
        let domain = *self.domain.lock();
        domain.text()
    }

    /// Gives the machine a name; what does not fit is cut off.
    pub(crate) fn set_node(&self, name: &[u8]) {
        *self.node.lock() = Name::of(name);
    }

    /// Gives it a domain.
    pub(crate) fn set_domain(&self, name: &[u8]) {
        *self.domain.lock() = Name::of(name);
    }
}
