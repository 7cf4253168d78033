//! Sets that watch sets: no cycles, and no deep nesting, because telling a set tells its watchers in turn.

use sched::Mutex;

use super::Epoll;
use crate::{Error, Result};

/// How deep sets may nest, as on Linux.
const MAX_DEPTH: usize = 5;

/// Held while a set is added to another, so that two additions can't close a cycle together.
static ADDING: Mutex<()> = Mutex::new(());

/// Runs `add`, which makes `outer` watch `inner`, unless that closes a cycle or nests too deeply.
pub(super) fn checked(outer: &Epoll, inner: &Epoll, add: impl FnOnce() -> Result<()>) -> Result<()> {
    let _adding = ADDING.lock();
    depth_below(inner, outer, 1)?;
    add()
}

/// Fails when watching leads from `epoll` to `forbidden` or deeper than the limit.
fn depth_below(epoll: &Epoll, forbidden: &Epoll, depth: usize) -> Result<()> {
    if core::ptr::eq(epoll, forbidden) || depth > MAX_DEPTH {
        return Err(Error::Loop);
    }
    let mut at = 0;
    loop {
        // One item at a time: the lock is not held while going deeper.
        let Some(item) = epoll.items.lock().get(at).cloned() else { return Ok(()) };
        if let Some(file) = item.file()
            && let Some(inner) = file.object::<Epoll>()
        {
            depth_below(inner, forbidden, depth + 1)?;
        }
        at += 1;
    }
}
