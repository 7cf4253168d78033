//! Who waits for whose record lock: a wait that would close a circle fails with `EDEADLK`.
//!
//! One list for all files, under one spin lock: it is only touched by processes that are about to sleep. Locks of open
//! files take no part, as on Linux: several processes share them.

use alloc::vec::Vec;

use sync::SpinLock;

use super::record::LockOwner;
use crate::{Error, Result, allocation};

/// Waits that are followed before giving up: longer chains are not taken for circles.
const CHAIN_MAX: usize = 64;

struct Edge {
    waiter: u64,
    holder: u64,
}

static EDGES: SpinLock<Vec<Edge>> = SpinLock::new(Vec::new());

/// The wait is over when this is dropped.
pub(super) struct Waiting {
    waiter: Option<u64>,
}

/// Notes that `waiter` is going to wait for `holder`.
pub(super) fn begin_wait(waiter: LockOwner, holder: LockOwner) -> Result<Waiting> {
    let (LockOwner::Process { id: waiter, .. }, LockOwner::Process { id: holder, .. }) = (waiter, holder)
    else {
        return Ok(Waiting { waiter: None });
    };
    let mut edges = EDGES.lock();
    let mut current = holder;
    for _ in 0..CHAIN_MAX {
        if current == waiter {
            return Err(Error::Deadlock);
        }
        match edges.iter().find(|edge| edge.waiter == current) {
            Some(edge) => current = edge.holder,
            None => break,
        }
    }
    allocation::push(&mut edges, Edge { waiter, holder })?;
    Ok(Waiting { waiter: Some(waiter) })
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let Some(waiter) = self.waiter else { return };
        let mut edges = EDGES.lock();
        if let Some(index) = edges.iter().position(|edge| edge.waiter == waiter) {
            edges.swap_remove(index);
        }
    }
}
