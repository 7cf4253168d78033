//! From one representative to many, and back.
//!
//! An adaptive object becomes distributed when a second CPU misses. Every while [`sweep`] empties the entries of
//! distributed adaptive objects; who fills its entry until the next look has used the object. After [`QUIET_LOOKS`] looks
//! in a row with at most one user it becomes single again. With nothing distributed, nobody looks: an idle machine stays
//! idle.
//!
//! Ablation: `clustered=off` on the kernel's command line keeps every root single ([`set_enabled`]).

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use machine::set_once::SetOnce;

use super::object::{Clustered, Inner, Phase};
use super::root::Root;
use super::table::for_each;

/// Looks with at most one user before an object becomes single again.
const QUIET_LOOKS: u32 = 3;

/// Which root is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One representative.
    Single,
    /// Many.
    Distributed,
}

/// Makes roots of either shape; None when there is no memory. Must not sleep.
pub(super) type Policy<I> = Box<dyn Fn(Shape) -> Option<Arc<dyn Root<I>>> + Send + Sync>;

static ENABLED: AtomicBool = AtomicBool::new(true);
/// Adaptive objects that are distributed, or about to be.
static DISTRIBUTED: AtomicU32 = AtomicU32::new(0);
static HOOK: SetOnce<fn()> = SetOnce::new();

/// Whether objects may have more than one representative.
#[inline]
pub fn enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

/// Allows or forbids more than one representative, at start-up.
pub fn set_enabled(enabled: bool) {
    ENABLED.store(enabled, Ordering::Relaxed);
}

/// Sets what is called when an adaptive object becomes distributed and none was before: it has to arrange for [`sweep`] to
/// be called about once a second until that returns false. It must not sleep.
pub fn set_adaptive_hook(hook: fn()) {
    HOOK.set(hook);
}

/// Looks at the use of all distributed adaptive objects; says whether to look again.
pub fn sweep() -> bool {
    for_each(|object| {
        object.look();
    });
    DISTRIBUTED.load(Ordering::Relaxed) > 0
}

impl<I: ?Sized + Send + Sync + 'static> Clustered<I> {
    /// An object that begins single, and changes as it is used. `make` makes roots of either shape. None when there is no
    /// memory.
    pub fn try_adaptive(
        name: &'static str,
        make: impl Fn(Shape) -> Option<Arc<dyn Root<I>>> + Send + Sync + 'static,
    ) -> Option<Self> {
        let root = make(Shape::Single)?;
        Self::build(name, root, Some(Box::new(make)))
    }
}

impl<I: ?Sized + Send + Sync + 'static> Inner<I> {
    /// A second CPU has missed: begins the swap to many representatives, if the object adapts.
    pub(super) fn distribute(self: &Arc<Self>) {
        let Some(policy) = &self.policy else { return };
        if !enabled() {
            return;
        }
        let Some(root) = policy(Shape::Distributed) else { return };
        let is_first = self.swap_soon(root).is_ok()
            && !self.counted.swap(true, Ordering::Relaxed)
            && DISTRIBUTED.fetch_add(1, Ordering::Relaxed) == 0;
        if is_first && let Some(hook) = HOOK.get() {
            hook();
        }
    }

    /// See the theory of this file. Says whether the object is still distributed.
    pub(super) fn look_at_use(self: &Arc<Self>) -> bool {
        let Some(policy) = &self.policy else { return false };
        {
            let mut shared = self.shared.lock();
            if shared.phase != Phase::Normal || !shared.root.is_distributed() {
                return false;
            }
            let is_quiet = shared.cpus().count() <= 1;
            shared.quiet_looks = if is_quiet { shared.quiet_looks + 1 } else { 0 };
            self.forget_entries(&mut shared);
            if shared.quiet_looks < QUIET_LOOKS {
                return true;
            }
        }
        let Some(root) = policy(Shape::Single) else { return true };
        if self.swap_soon(root).is_err() {
            return true;
        }
        self.count_out();
        false
    }

    /// The object no longer counts among the distributed ones.
    pub(super) fn count_out(&self) {
        if self.counted.swap(false, Ordering::Relaxed) {
            DISTRIBUTED.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
