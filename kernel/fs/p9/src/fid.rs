//! The numbers by which the server knows files.
//!
//! Who drops a [`Fid`] may not sleep, so the number waits in a list until the mount's thread has told the server (*clunked* it). Numbers that the server does not know are
//! free at once.
//!
//! # Locking
//! The lists are under one spin lock. Both have room for every number that was ever given out, so that giving one back allocates nothing.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use sched::WaitQueue;
use sync::SpinLock;
use vfs::{Error, Result, allocation};

use crate::client::Client;
use crate::wire::{NO_FID, Request};

/// Numbers.
#[derive(Default)]
struct Numbers {
    free: Vec<u32>,
    /// To be clunked.
    gone: Vec<u32>,
    /// Those from here on were never given out.
    next: u32,
}

/// All numbers of a dialogue.
pub(crate) struct Fids {
    numbers: SpinLock<Numbers>,
    /// Who clunks.
    pub(crate) waiting: WaitQueue,
}

impl Fids {
    pub(crate) const fn new() -> Self {
        let numbers = Numbers { free: Vec::new(), gone: Vec::new(), next: 0 };
        Self { numbers: SpinLock::named("numbers of files at a server", numbers), waiting: WaitQueue::new() }
    }

    fn take(&self) -> Result<u32> {
        let mut free = Vec::new();
        let mut gone = Vec::new();
        loop {
            let wanted = {
                let mut numbers = self.numbers.lock();
                if let Some(number) = numbers.free.pop() {
                    return Ok(number);
                }
                let next = numbers.next;
                if next == NO_FID {
                    return Err(Error::FileTableFull);
                }
                let wanted = next as usize + 1;
                for (own, larger) in [(0, &mut free), (1, &mut gone)] {
                    let own = if own == 0 { &mut numbers.free } else { &mut numbers.gone };
                    if own.capacity() < wanted && larger.capacity() >= wanted {
                        larger.append(own);
                        core::mem::swap(own, larger);
                    }
                }
                if numbers.free.capacity() >= wanted && numbers.gone.capacity() >= wanted {
                    numbers.next = next + 1;
                    return Ok(next);
                }
                (wanted * 2).max(64)
            };
            // What the lists have outgrown is freed here, too.
            (free, gone) = (Vec::new(), Vec::new());
            allocation::reserve_total(&mut free, wanted)?;
            allocation::reserve_total(&mut gone, wanted)?;
        }
    }

    fn give_back(&self, number: u32, is_known: bool) {
        let mut numbers = self.numbers.lock();
        let list = if is_known { &mut numbers.gone } else { &mut numbers.free };
        debug_assert!(list.len() < list.capacity(), "there is room for every number");
        list.push(number);
        drop(numbers);
        if is_known {
            self.waiting.wake_all();
        }
    }

    /// Whether some are to be clunked.
    pub(crate) fn has_gone(&self) -> bool {
        !self.numbers.lock().gone.is_empty()
    }

    /// Has the server forget those that nobody needs.
    pub(crate) fn clunk(&self, client: &Client) {
        loop {
            let next = self.numbers.lock().gone.pop();
            let Some(fid) = next else { return };
            // Whatever it answers, it does not know the number afterwards. If it could not be asked the number stays in use: given out again, it
            // would be refused and come back each time.
            if client.call(&Request::Clunk { fid }) != Err(Error::OutOfMemory) {
                self.numbers.lock().free.push(fid);
            }
        }
    }
}

/// A file, as the server knows it.
pub(crate) struct Fid {
    client: Arc<Client>,
    number: u32,
    /// The server knows it, or may.
    is_known: AtomicBool,
}

impl Fid {
    /// A number that the server is about to be told.
    pub(crate) fn new(client: &Arc<Client>) -> Result<Self> {
        let number = client.fids.take()?;
        Ok(Self { client: client.clone(), number, is_known: AtomicBool::new(true) })
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// How the request went that told the server. If it was refused, the number is free; if it was given up or understood by nobody, the server may know it.
    pub(crate) fn established<T>(&self, outcome: Result<T>) -> Result<T> {
        let is_unknown = matches!(outcome, Err(error) if !matches!(error, Error::Interrupted | Error::Io));
        // Relaxed: the thread that has it all to itself.
        self.is_known.store(!is_unknown, Ordering::Relaxed);
        outcome
    }

    /// Has the server forget it now, and hears what it says to that.
    pub(crate) fn clunk(self) -> Result<()> {
        let outcome = self.client.call(&Request::Clunk { fid: self.number });
        self.established(outcome)?;
        self.is_known.store(false, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Fid {
    fn drop(&mut self) {
        self.client.fids.give_back(self.number, *self.is_known.get_mut());
    }
}
