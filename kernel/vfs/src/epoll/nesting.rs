//! Instances that watch instances: never in circles, and in chains so short that telling the outermost one is no danger to the stack.
//!
//! Each instance knows which it watches and which watch it. Whoever makes one watch another holds `NESTING`, and adds the longest chain above to
//! the longest below, so that it makes no difference in which order a chain is built. Every instance is visited once a walk,
//! however many ways lead to it.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use sync::SpinLock;

use super::instance::{Epoll, Shared};
use super::item::EpollItem;
use crate::{Error, Result, allocation};

/// Instances in a chain.
const LENGTH_MAX: usize = 5;

/// Held while an instance is made to watch another: the number of walks that there were.
static NESTING: sched::Mutex<u64> = sched::Mutex::named("nesting of epoll", 0);

/// The interests between an instance and others. Written with `NESTING` held.
#[derive(Default)]
pub(super) struct Links {
    inner: Vec<Weak<EpollItem>>,
    outer: Vec<Weak<EpollItem>>,
    /// The last walk that was here, and the longest chain that it found from here on.
    walk: u64,
    length: usize,
}

/// To whom a walk goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Inner,
    Outer,
}

impl Direction {
    fn of(self, links: &mut Links) -> &mut Vec<Weak<EpollItem>> {
        match self {
            Self::Inner => &mut links.inner,
            Self::Outer => &mut links.outer,
        }
    }

    /// The instance at that end of an interest, if it is still one.
    fn end(self, item: &EpollItem) -> Option<Arc<Shared>> {
        if item.dead.load(Ordering::Acquire) {
            return None;
        }
        match self {
            Self::Inner => Some(item.file.upgrade()?.object::<Epoll>()?.shared().clone()),
            Self::Outer => Some(item.shared.clone()),
        }
    }
}

/// One instance is being made to watch another; no other one is meanwhile.
pub(super) struct Nesting<'a> {
    outer: &'a Shared,
    inner: &'a Shared,
    _alone: sched::MutexGuard<'static, u64>,
}

impl<'a> Nesting<'a> {
    /// # Errors
    /// `ELOOP` for a circle or a chain that would be too long, `ENOMEM`.
    pub(super) fn begin(outer: &'a Arc<Shared>, inner: &'a Arc<Shared>) -> Result<Self> {
        let mut walks = NESTING.lock();
        *walks += 2;
        let below = longest(inner, Direction::Inner, *walks - 1, Some(outer))?;
        let above = longest(outer, Direction::Outer, *walks, None)?;
        if below + above > LENGTH_MAX {
            return Err(Error::Loop);
        }
        make_room(&outer.links, Direction::Inner)?;
        make_room(&inner.links, Direction::Outer)?;
        Ok(Self { outer, inner, _alone: walks })
    }

    /// It does watch it now, by this interest.
    pub(super) fn link(self, item: &Arc<EpollItem>) {
        self.outer.links.lock().inner.push(Arc::downgrade(item));
        self.inner.links.lock().outer.push(Arc::downgrade(item));
    }
}

/// How many instances are in the longest chain from one on; `ELOOP` when `forbidden` is among them. It calls itself no deeper than chains are
/// long.
fn longest(
    from: &Arc<Shared>,
    direction: Direction,
    walk: u64,
    forbidden: Option<&Arc<Shared>>,
) -> Result<usize> {
    if forbidden.is_some_and(|forbidden| Arc::ptr_eq(from, forbidden)) {
        return Err(Error::Loop);
    }
    {
        let links = from.links.lock();
        if links.walk == walk {
            return Ok(links.length);
        }
    }
    let mut length = 1;
    let mut index = 0;
    loop {
        // Not in the loop's head, which would keep the lock.
        let item = match direction.of(&mut from.links.lock()).get(index) {
            Some(item) => item.upgrade(),
            None => break,
        };
        index += 1;
        if let Some(next) = item.and_then(|item| direction.end(&item)) {
            length = length.max(1 + longest(&next, direction, walk, forbidden)?);
        }
    }
    let mut links = from.links.lock();
    (links.walk, links.length) = (walk, length);
    Ok(length)
}

/// Makes room for one more interest, or for as many as there are: those that have ended go first then, and what they were of. No end of those waits.
fn make_room(links: &SpinLock<Links>, direction: Direction) -> Result<()> {
    let mut more = 1;
    {
        let mut links = links.lock();
        let known = direction.of(&mut links);
        if known.len() == known.capacity() {
            known.retain(|item| item.upgrade().is_some_and(|item| !item.dead.load(Ordering::Acquire)));
            more = known.len().max(1);
        }
    }
    allocation::lock_with_room(|| links.lock(), more, |links| direction.of(links)).map(drop)
}
