//! The table of pseudo-terminals that exist.

use alloc::collections::BTreeMap;
use alloc::sync::{Arc, Weak};

use sync::SpinLock;
use tty::pseudo::{Directory, Pair};
use vfs::inode::Inode;

/// A pseudo-terminal and the inode of its slave, once somebody looked for it.
pub(crate) struct Slave {
    pub(crate) pair: Weak<Pair>,
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) inode: Option<Arc<Inode>>,
}

/// All pseudo-terminals by number; at most [`tty::pseudo::MAX_PAIRS`].
pub struct Slaves {
    entries: SpinLock<BTreeMap<u32, Slave>>,
}

static SLAVES: Slaves = Slaves { entries: SpinLock::new(BTreeMap::new()) };

pub(crate) fn table() -> &'static Slaves {
    &SLAVES
}

impl Slaves {
    /// The pair with a number.
    pub(crate) fn find(&self, number: u32) -> Option<Arc<Pair>> {
        self.entries.lock().get(&number)?.pair.upgrade()
    }

    /// Looks at a slave.
    pub(crate) fn with<R>(&self, number: u32, look: impl FnOnce(&mut Slave) -> R) -> Option<R> {
        self.entries.lock().get_mut(&number).map(look)
    }

    /// The lowest number from `from` on.
    pub(crate) fn next(&self, from: u32) -> Option<u32> {
        self.entries.lock().range(from..).next().map(|(number, _)| *number)
    }
}

impl Directory for Slaves {
    fn added(&self, pair: &Arc<Pair>, user: u32, group: u32) {
        let slave = Slave { pair: Arc::downgrade(pair), user, group, inode: None };
        self.entries.lock().insert(pair.number(), slave);
    }

    fn removed(&self, number: u32) {
        // The inode is dropped outside of the lock.
        let slave = self.entries.lock().remove(&number);
        drop(slave);
    }
}
