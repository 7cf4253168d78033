//! Who waits for whose record lock: a wait that would close a circle fails with `EDEADLK`.
//!
//! One list for all files, ordered by who waits, under one spin lock: it is only touched by processes that are about to sleep. Each
//! step from a waiting owner to the one that it waits for is a search in the list. Locks of open files take no part, as on Linux:
//! several processes share them. Of several threads of an owner that wait at a time, the first one's wait is followed.

use sync::SpinLock;

use super::chunks::Chunks;
use super::record::LockOwner;
use crate::{Error, Result};

/// Waits that are followed before giving up: longer chains are not taken for circles.
const CHAIN_MAX: usize = 1024;

struct Edge {
    waiter: u64,
    /// Tells waits of one owner apart.
    number: u64,
    holder: u64,
}

struct Edges {
    list: Chunks<Edge>,
    next_number: u64,
}

static EDGES: SpinLock<Edges> = SpinLock::new(Edges::new());

impl Edges {
    const fn new() -> Self {
        Self { list: Chunks::new(), next_number: 0 }
    }

    /// Whom an owner waits for.
    fn holder_for(&self, waiter: u64) -> Option<u64> {
        let edge = self.list.get(self.list.seek(|edge| edge.waiter < waiter))?;
        (edge.waiter == waiter).then_some(edge.holder)
    }

    /// Notes a wait, unless it would close a circle; returns its number.
    fn add(&mut self, waiter: u64, holder: u64) -> Result<u64> {
        let mut current = holder;
        for _ in 0..CHAIN_MAX {
            if current == waiter {
                return Err(Error::Deadlock);
            }
            match self.holder_for(current) {
                Some(next) => current = next,
                None => break,
            }
        }
        let number = self.next_number;
        let place = self.list.seek(|edge| (edge.waiter, edge.number) < (waiter, number));
        let place = self.list.make_room(place)?;
        self.list.replace(place, 0, core::iter::once(Edge { waiter, number, holder }));
        self.next_number += 1;
        Ok(number)
    }

    fn remove(&mut self, waiter: u64, number: u64) {
        let place = self.list.seek(|edge| (edge.waiter, edge.number) < (waiter, number));
        debug_assert!(self.list.get(place).is_some_and(|edge| edge.number == number), "a wait ends once");
        self.list.replace(place, 1, core::iter::empty());
    }
}

/// The wait is over when this is dropped.
pub(super) struct Waiting {
    /// Who waits, and the number of the wait.
    wait: Option<(u64, u64)>,
}

/// Notes that `waiter` is going to wait for `holder`.
pub(super) fn begin_wait(waiter: LockOwner, holder: LockOwner) -> Result<Waiting> {
    let (LockOwner::Process { id: waiter, .. }, LockOwner::Process { id: holder, .. }) = (waiter, holder)
    else {
        return Ok(Waiting { wait: None });
    };
    let number = EDGES.lock().add(waiter, holder)?;
    Ok(Waiting { wait: Some((waiter, number)) })
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some((waiter, number)) = self.wait {
            EDGES.lock().remove(waiter, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_closes_a_circle_is_refused() {
        let mut edges = Edges::new();
        let first = edges.add(1, 2).unwrap();
        edges.add(2, 3).unwrap();
        assert_eq!(edges.add(3, 1), Err(Error::Deadlock));
        assert_eq!(edges.add(4, 4), Err(Error::Deadlock));
        edges.remove(1, first);
        edges.add(3, 1).unwrap();
    }

    #[test]
    fn the_end_of_one_threads_wait_leaves_another_threads() {
        let mut edges = Edges::new();
        let first = edges.add(1, 2).unwrap();
        edges.add(1, 3).unwrap();
        edges.remove(1, first);
        assert_eq!(edges.holder_for(1), Some(3));
        assert_eq!(edges.add(3, 1), Err(Error::Deadlock));
    }

    #[test]
    fn long_chains_of_many_are_followed() {
        /// What takes a number of steps in proportion to the square of this does not end while somebody waits for it.
        const MANY: u64 = 100_000;
        const CHAIN: u64 = 1000;
        let mut edges = Edges::new();
        for index in 0..MANY {
            let waiter = index * 7919 % MANY;
            edges.add(waiter, if waiter % CHAIN == CHAIN - 1 { MANY } else { waiter + 1 }).unwrap();
        }
        assert_eq!(edges.add(CHAIN - 1, 0), Err(Error::Deadlock));
        assert_eq!(edges.add(MANY, CHAIN * 5), Err(Error::Deadlock));
        assert!(edges.add(MANY, MANY + 1).is_ok());
    }
}
