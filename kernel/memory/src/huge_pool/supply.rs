//! Promises and pages: taking them, and having as many as the administrator wants.

use super::counts::POOL;
use super::page::{self, Kind, PooledPage};
use crate::OutOfMemory;
use crate::frame;
use crate::frame::number::FrameNumber;

/// Promises pages, of which some may have to be taken from free memory first.
///
/// # Errors
/// There are not so many.
pub(crate) fn promise(pages: u64) -> Result<(), OutOfMemory> {
    loop {
        let permitted = {
            let mut pool = POOL.lock();
            match pool.promise(pages) {
                Ok(()) => return Ok(()),
                Err(missing) => pool.counts().surplus + missing <= pool.counts().overcommit,
            }
        };
        // Each one makes fewer missing, as long as nobody else takes it.
        if !permitted || !bring_surplus() {
            give_up_unused(u64::MAX);
            return Err(OutOfMemory);
        }
    }
}

/// Takes promises back that were not kept.
pub(crate) fn unpromise(pages: u64) {
    if pages == 0 {
        return;
    }
    {
        let mut pool = POOL.lock();
        debug_assert!(pool.counts().promised >= pages);
        pool.counts().promised -= pages;
    }
    give_up_unused(pages);
}

/// A page, of whatever bytes: for who was promised one, or for who was not.
///
/// # Errors
/// There is none. Who was promised one gets it.
pub(crate) fn take(kind: Kind, promised: bool) -> Result<PooledPage, OutOfMemory> {
    let found = POOL.lock().take(promised);
    let page = match found {
        Some(page) => page,
        None => take_surplus()?,
    };
    Ok(PooledPage::begin(page, kind))
}

/// A page from free memory, for its first user.
fn take_surplus() -> Result<FrameNumber, OutOfMemory> {
    let may = |pool: &mut super::counts::Pool| pool.counts().surplus < pool.counts().overcommit;
    if !may(&mut POOL.lock()) {
        return Err(OutOfMemory);
    }
    let page = page::bring()?;
    let mut pool = POOL.lock();
    if may(&mut pool) {
        pool.counts().surplus += 1;
        pool.counts().total += 1;
        return Ok(page);
    }
    drop(pool);
    page::give_up(page);
    Err(OutOfMemory)
}

/// One more surplus page, which is free; false if there is no memory for it.
fn bring_surplus() -> bool {
    let Ok(page) = page::bring() else { return false };
    let mut pool = POOL.lock();
    pool.counts().surplus += 1;
    pool.counts().total += 1;
    pool.counts().free += 1;
    pool.home.put(page);
    true
}

/// Gives surplus pages up that are free and not promised.
fn give_up_unused(most: u64) {
    for _ in 0..most {
        let page = {
            let mut pool = POOL.lock();
            if pool.counts().surplus == 0 {
                return;
            }
            let Some(page) = pool.take(false) else { return };
            pool.counts().surplus -= 1;
            pool.counts().total -= 1;
            page
        };
        page::give_up(page);
    }
}

/// Has the pool have so many pages: as far as there is memory, and as those that are in use or promised let it become smaller. What of these is too many
/// becomes surplus.
pub fn set_size(pages: u64) {
    shrink(pages);
    let mut drained = false;
    while lasting_after_keeping(pages) < pages {
        match page::bring() {
            Ok(page) => {
                let mut pool = POOL.lock();
                pool.counts().total += 1;
                pool.counts().free += 1;
                pool.home.put(page);
            }
            Err(OutOfMemory) if drained => return,
            Err(OutOfMemory) => {
                // What processors have at hand may be what keeps 2 MiB from being whole.
                frame::drain_all_cpus();
                drained = true;
            }
        }
    }
}

/// Makes surplus pages lasting ones, as far as there shall be more; returns how many last now.
fn lasting_after_keeping(pages: u64) -> u64 {
    let mut pool = POOL.lock();
    let counts = pool.counts();
    counts.surplus -= counts.surplus.min(pages.saturating_sub(counts.lasting()));
    counts.lasting()
}

fn shrink(pages: u64) {
    loop {
        let page = {
            let mut pool = POOL.lock();
            if pool.counts().lasting() <= pages {
                return;
            }
            let Some(page) = pool.take(false) else {
                let counts = pool.counts();
                counts.surplus += counts.lasting() - pages;
                return;
            };
            pool.counts().total -= 1;
            page
        };
        page::give_up(page);
    }
}
