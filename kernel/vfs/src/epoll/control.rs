//! `epoll_ctl`: adding, changing and removing watched files.

use alloc::sync::Arc;

use super::item::{EpollFlags, EpollItem};
use super::{Epoll, nesting};
use crate::file::{FileFeatures, OpenFile};
use crate::poll::{PollEvents, PollTable, PollWatcher};
use crate::{Error, Result, allocation};

/// What `epoll_ctl` is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Watch a file.
    Add,
    /// Watch it no longer.
    Delete,
    /// Watch it for something else.
    Modify,
}

impl Epoll {
    /// Adds, changes or removes the watched file `file`, known by `descriptor`.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NotFound`], [`Error::NotPermitted`] for files that can't be polled,
    /// [`Error::Invalid`] for the set itself and for flags that don't go together, [`Error::Loop`] for sets that
    /// would watch each other or nest too deeply, [`Error::OutOfMemory`].
    pub fn control(
        &self,
        operation: Control,
        descriptor: i32,
        file: &Arc<OpenFile>,
        flags: EpollFlags,
        data: u64,
    ) -> Result<()> {
        if !file.features().contains(FileFeatures::POLLABLE) {
            return Err(Error::NotPermitted);
        }
        let nested = file.object::<Self>();
        if nested.is_some_and(|epoll| core::ptr::eq(epoll, self)) {
            return Err(Error::Invalid);
        }
        if operation != Control::Delete && flags.contains(EpollFlags::EXCLUSIVE) {
            check_exclusive(operation, flags, nested.is_some())?;
        }
        let key = (descriptor, file.id());
        match operation {
            Control::Add => match nested {
                Some(epoll) => nesting::checked(self, epoll, || self.add(descriptor, file, flags, data)),
                None => self.add(descriptor, file, flags, data),
            },
            Control::Delete => self.forget(key).map(|item| item.kill()).ok_or(Error::NotFound),
            Control::Modify => {
                let item = self.find(key).ok_or(Error::NotFound)?;
                if item.interest().0.contains(EpollFlags::EXCLUSIVE) {
                    return Err(Error::Invalid);
                }
                item.set_interest(flags, data);
                item.renew();
                watch(&item, file, flags)
            }
        }
    }

    fn add(&self, descriptor: i32, file: &Arc<OpenFile>, flags: EpollFlags, data: u64) -> Result<()> {
        allocation::fail_point()?;
        let item = EpollItem::new(&self.this, file, descriptor, flags, data);
        {
            let mut items = self.items.lock();
            let at = match items.binary_search_by_key(&item.key(), |known| known.key()) {
                Ok(_) => return Err(Error::Exists),
                Err(at) => at,
            };
            allocation::reserve(&mut items, 1)?;
            self.reserve_ready(items.len() + 1)?;
            items.insert(at, item.clone());
        }
        let result = file.add_interest(Arc::downgrade(&item)).and_then(|()| watch(&item, file, flags));
        if result.is_err() {
            self.forget(item.key());
            item.kill();
        }
        result
    }

    /// Makes room for every item in the ready list, so that queueing one never allocates. Items that were removed
    /// may still stand in it.
    fn reserve_ready(&self, items: usize) -> Result<()> {
        let mut ready = self.ready.lock();
        let dead = ready.iter().filter(|item| item.is_dead()).count();
        let additional = (items + dead).saturating_sub(ready.len());
        ready.try_reserve(additional).map_err(|_| Error::OutOfMemory)
    }

    fn find(&self, key: (i32, u64)) -> Option<Arc<EpollItem>> {
        let items = self.items.lock();
        let at = items.binary_search_by_key(&key, |known| known.key()).ok()?;
        Some(items[at].clone())
    }

    /// Takes an item out of the set.
    pub(super) fn forget(&self, key: (i32, u64)) -> Option<Arc<EpollItem>> {
        let mut items = self.items.lock();
        let at = items.binary_search_by_key(&key, |known| known.key()).ok()?;
        Some(items.remove(at))
    }
}

fn check_exclusive(operation: Control, flags: EpollFlags, nested: bool) -> Result<()> {
    let allowed = EpollFlags::EXCLUSIVE
        | EpollFlags::EDGE
        | EpollFlags::WAKE_UP
        | EpollFlags::from_bits_retain((PollEvents::INPUT | PollEvents::OUTPUT | PollEvents::ALWAYS).bits());
    if operation == Control::Modify || nested || !allowed.contains(flags) {
        return Err(Error::Invalid);
    }
    Ok(())
}

/// Registers an item with its file and queues it if something is ready.
fn watch(item: &Arc<EpollItem>, file: &OpenFile, flags: EpollFlags) -> Result<()> {
    let watcher: Arc<dyn PollWatcher> = item.clone();
    let exclusive = flags.contains(EpollFlags::EXCLUSIVE);
    let mut table = PollTable::new(&watcher, item.generation(), flags.events(), exclusive);
    let ready = file.poll(Some(&mut table));
    if table.failed() {
        return Err(Error::OutOfMemory);
    }
    if ready.intersects(flags.events()) {
        item.queue();
    }
    Ok(())
}
