//! Exchanging an object's root while it is called: see the theory of [`super`].

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use machine::cpu::CpuSet;

use super::object::{Clustered, Inner, Phase, Shared};
use super::root::{Format, Root};
use crate::rcu;

/// Why a root was not exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapError {
    /// Another swap is under way.
    Busy,
    /// The new root accepts nothing of what the old one offers.
    NoCommonFormat,
    /// The object is gone.
    Deleted,
}

/// The first format that the old root offers and the new one accepts; `None` if there is no state to move.
fn negotiate<I: ?Sized>(old: &dyn Root<I>, new: &dyn Root<I>) -> Result<Option<Format>, SwapError> {
    let offers = old.offers();
    if let Some(format) = offers.iter().find(|format| new.accepts(Some(**format))) {
        return Ok(Some(*format));
    }
    if offers.is_empty() && new.accepts(None) { Ok(None) } else { Err(SwapError::NoCommonFormat) }
}

impl<I: ?Sized + Send + Sync + 'static> Clustered<I> {
    /// Exchanges the root; when it returns, calls go to the new one. May sleep: waits for a grace period.
    ///
    /// # Errors
    /// See [`SwapError`]; the old root stays.
    pub fn swap(&self, new: Arc<dyn Root<I>>) -> Result<(), SwapError> {
        self.inner().begin_swap(new)?;
        rcu::synchronize_expedited();
        self.inner().finish_swap();
        Ok(())
    }
}

impl<I: ?Sized + Send + Sync + 'static> Inner<I> {
    /// Exchanges the root a grace period from now. Does not sleep.
    pub(super) fn swap_soon(self: &Arc<Self>, new: Arc<dyn Root<I>>) -> Result<(), SwapError> {
        self.begin_swap(new)?;
        let inner = self.clone();
        rcu::call(Box::new(move || inner.finish_swap()));
        Ok(())
    }

    /// The forward phase.
    pub(super) fn begin_swap(&self, new: Arc<dyn Root<I>>) -> Result<(), SwapError> {
        let mut shared = self.shared.lock();
        match shared.phase {
            Phase::Forward => return Err(SwapError::Busy),
            Phase::Deleted => return Err(SwapError::Deleted),
            Phase::Normal => {}
        }
        negotiate(&*shared.root, &*new)?;
        shared.phase = Phase::Forward;
        shared.next = Some(new);
        let nodes = self.empty_entries(&mut shared);
        drop(shared);
        nodes.into_iter().for_each(|installed| installed.node.defer_drop());
        Ok(())
    }

    /// The block and transfer phases, a grace period after the beginning of the forward phase: the calls that began before
    /// have ended.
    pub(super) fn finish_swap(&self) {
        let mut shared = self.shared.lock();
        if shared.phase != Phase::Forward {
            return;
        }
        // New calls wait for the lock; those that were forwarded end without it.
        // Acquire: pairs with the Release at the end of a tracked call.
        while self.tracked.load(Ordering::Acquire) != 0 {
            machine::cpu::relax();
        }
        let new = shared.next.take().expect("the next root is kept during a swap");
        if let Ok(Some(format)) = negotiate(&*shared.root, &*new)
            && let Some(state) = shared.root.export(format)
        {
            new.import(state);
        }
        let old = core::mem::replace(&mut shared.root, new);
        shared.phase = Phase::Normal;
        shared.quiet_looks = 0;
        self.swaps.fetch_add(1, Ordering::Relaxed);
        drop(shared);
        drop(old);
    }

    /// Empties the entries but keeps the nodes, so that the next calls tell who uses the object.
    pub(super) fn forget_entries(&self, shared: &mut Shared<I>) {
        for cpu in shared.cpus().iter() {
            self.entries.of(cpu).store(core::ptr::null_mut(), Ordering::Release);
        }
        shared.installed.iter_mut().for_each(|installed| installed.cpus = CpuSet::EMPTY);
    }
}
