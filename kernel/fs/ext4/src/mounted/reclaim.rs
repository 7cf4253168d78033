//! What mounted file systems give back when memory is short: blocks of metadata that the disk has as they are here, and the memory of inodes that are gone, which
//! the lists of those in memory refer to.
//!
//! Reclaim is called with locks held, perhaps ours: what is busy is passed over.

use alloc::sync::Arc;
use alloc::vec::Vec;

use memory::reclaim::Reclaimer;
use sync::Once;
use vfs::{Result, allocation};

use super::instance::Instance;

static MOUNTED: sched::Mutex<Vec<Arc<Instance>>> =
    sched::Mutex::named("mounted file systems of ext4", Vec::new());

struct Metadata;

static METADATA: Metadata = Metadata;

/// A file system is mounted.
///
/// # Errors
/// `ENOMEM`.
pub(super) fn enter(instance: &Arc<Instance>) -> Result<()> {
    static REGISTERED: Once<()> = Once::new();
    REGISTERED.call_once(|| memory::reclaim::register(&METADATA));
    allocation::push(&mut MOUNTED.lock(), instance.clone())
}

/// It is not any more.
pub(super) fn leave(instance: &Instance) {
    let left = {
        let mut mounted = MOUNTED.lock();
        let place = mounted.iter().position(|other| core::ptr::eq(&raw const **other, instance));
        place.map(|place| mounted.swap_remove(place))
    };
    drop(left);
}

impl Reclaimer for Metadata {
    fn name(&self) -> &'static str {
        "metadata of ext4"
    }

    fn reclaim(&self, frames: usize) -> usize {
        let Some(mounted) = MOUNTED.try_lock() else { return 0 };
        let mut freed = 0;
        for instance in mounted.iter() {
            freed += instance.system().drop_clean(frames.saturating_sub(freed));
        }
        freed
    }

    fn tidy(&self) {
        let Some(mounted) = MOUNTED.try_lock() else { return };
        mounted.iter().for_each(|instance| instance.forget_gone());
    }
}
