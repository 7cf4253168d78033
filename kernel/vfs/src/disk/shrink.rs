//! Which clean pages go when memory is short.
//!
//! Caches whose pages have a home elsewhere are entered here when they are made. A round goes through them in turn and takes a batch of clean pages from each that
//! nobody uses. When that does not suffice, pages go that programs map, those first that they have not used for longest: by the clock algorithm, whose
//! hand marks what it meets and takes what is still marked when it comes again.
//!
//! Pages that somebody protects who pays for them stay as long as there are others ([`memory::charge`]), and where somebody has no room for more of his own, only his go.
//!
//! Nothing here writes or waits for a device: reclaim is called with locks held, and a device may need memory to get on. Dirty pages are kept few by
//! [`flusher`](super::flusher) instead.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use memory::charge::Whose;
use memory::fallible;
use memory::file_cache::{FileCache, Mapped};
use memory::reclaim::Reclaimer;
use sync::SpinLock;

use crate::Result;

/// Pages taken from one file before it is the next one's turn.
const BATCH_PAGES: usize = 256;

struct Caches {
    known: Vec<Weak<FileCache>>,
    /// Whose turn it is.
    turn: usize,
}

static CACHES: SpinLock<Caches> =
    SpinLock::named("files whose pages may go", Caches { known: Vec::new(), turn: 0 });

/// Enters a cache. Those that have gone make room.
///
/// # Errors
/// No memory.
pub fn enter(cache: &Arc<FileCache>) -> Result<()> {
    let mut room = Vec::new();
    loop {
        let needed = {
            let mut caches = CACHES.lock();
            if caches.known.len() == caches.known.capacity() {
                caches.known.retain(|known| known.strong_count() > 0);
            }
            let (length, capacity) = (caches.known.len(), caches.known.capacity());
            if length < capacity {
                caches.known.push(Arc::downgrade(cache));
                return Ok(());
            }
            if room.capacity() > length {
                room.append(&mut caches.known);
                core::mem::swap(&mut room, &mut caches.known);
                caches.known.push(Arc::downgrade(cache));
                return Ok(());
            }
            (length * 2).max(64)
        };
        // Outside the lock; the former list goes there, too.
        room = Vec::new();
        fallible::try_reserve(&mut room, needed)?;
    }
}

/// The next file, and how many there are. Those that have gone leave the list on the way: nobody meets them twice.
fn next() -> Option<(Arc<FileCache>, usize)> {
    let mut caches = CACHES.lock();
    while !caches.known.is_empty() {
        let turn = caches.turn % caches.known.len();
        if let Some(cache) = caches.known[turn].upgrade() {
            caches.turn = turn + 1;
            return Some((cache, caches.known.len()));
        }
        caches.known.swap_remove(turn);
        caches.turn = turn;
    }
    None
}

/// Gives up clean pages until `wanted` are free or nothing is found; returns how many.
fn shrink(wanted: usize, whose: Whose) -> usize {
    let freed = round(wanted, Mapped::Stay, whose);
    freed + round(wanted - freed.min(wanted), Mapped::GoIfUnused, whose)
}

/// A round through the files, until `wanted` pages are free or no file gives more.
fn round(wanted: usize, mapped: Mapped, whose: Whose) -> usize {
    // What programs map goes when the hand meets it for the second time.
    let turns = if mapped == Mapped::GoIfUnused { 2 } else { 1 };
    let (mut freed, mut idle) = (0, 0);
    while freed < wanted
        && let Some((cache, files)) = next()
    {
        let found = cache.drop_clean_from_hand((wanted - freed).min(BATCH_PAGES), mapped, whose);
        freed += found;
        idle = if found > 0 { 0 } else { idle + 1 };
        if idle > files * turns {
            break;
        }
    }
    freed
}

/// Gives up all clean pages that nobody uses (`/proc/sys/vm/drop_caches`).
pub fn drop_all() -> usize {
    let mut freed = 0;
    let files = {
        let mut caches = CACHES.lock();
        caches.known.retain(|known| known.strong_count() > 0);
        caches.known.len()
    };
    for _ in 0..files {
        let Some((cache, _)) = next() else { break };
        freed += cache.drop_clean(0, u64::MAX, usize::MAX);
    }
    freed
}

struct Pages;

static PAGES: Pages = Pages;

impl Reclaimer for Pages {
    fn name(&self) -> &'static str {
        "pages of files"
    }

    fn reclaim(&self, frames: usize) -> usize {
        let mut freed = 0;
        for &whose in Whose::in_turn() {
            if freed < frames {
                freed += shrink(frames - freed, whose);
            }
        }
        freed
    }

    fn reclaim_from(&self, whose: Whose, frames: usize) -> usize {
        shrink(frames, whose)
    }

    /// Files that have gone leave the list, and their memory with it.
    fn tidy(&self) {
        CACHES.lock().known.retain(|known| known.strong_count() > 0);
    }
}

/// Lets memory reclaim take clean pages. Once, at start-up.
pub(crate) fn initialize() {
    memory::reclaim::register(&PAGES);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_have_gone_leave_the_list() {
        {
            let mut caches = CACHES.lock();
            for _ in 0..1000 {
                caches.known.push(Weak::new());
            }
        }
        // Others may enter files meanwhile, and theirs stay.
        while next().is_some_and(|(_, files)| files >= 1000) {}
        assert!(CACHES.lock().known.len() < 1000);
    }
}
