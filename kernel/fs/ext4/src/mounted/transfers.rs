//! Pages on their way to the disk, from their own frames, and entering them into their file when they are there.
//!
//! # The way of a run
//! [`Pages::begin_write`](super::pages) takes a run of dirty pages apart where its blocks are not neighbours. Each part becomes a [`Transfer`]: its destination is found or chosen, its
//! bio submitted, and the next part's turn comes at once. The device's completion hands the transfer to the mount's thread `written-NAME`, which enters the blocks (that may wait for a commit, so it
//! is not for completions), completes the pages, and gives up what failed. Neighbours that have come by then are entered together. What needs no entry
//! is completed by the device's completion.
//!
//! # Who waits
//! A file counts its transfers. [`File::alone`] keeps new ones away and waits for those under way: for truncation and others that free or allocate the file's blocks. The thread takes no
//! lock of files, so it always gets on. The mount counts too: the thread ends when the mount has been closed and nothing is under way; a transfer that
//! begins later is refused.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use block::{BioFlags, Operation, SECTOR_BYTES};
use memory::fallible;
use memory::file_cache::{CacheError, PageRun};
use sched::{MutexGuard, WaitQueue};
use sync::SpinLock;
use vfs::allocation;
use vfs::disk::transfer::{bio, error_of as error_of_device};

use super::instance::Instance;
use super::pages::{File, error_of};
use crate::{Destination, Error, Writer};

/// A mount's transfers. See the theory of this file.
pub(super) struct Transfers {
    /// Written, to be entered, the last one first.
    written: SpinLock<Option<Box<Transfer>>>,
    /// For the thread.
    wait: WaitQueue,
    /// For those who want a file alone.
    ended: WaitQueue,
    under_way: AtomicU64,
    /// None may begin any more.
    closed: AtomicBool,
}

/// A part of a run.
struct Transfer {
    run: PageRun,
    mark: UnderWay,
    /// The file's size when it has been entered, at least.
    end: u64,
    outcome: block::Result<()>,
    next: Option<Box<Self>>,
}

/// Counts a transfer, and gives its destination up if it was not entered.
struct UnderWay {
    /// `None` only at the end of its drop.
    instance: Option<Arc<Instance>>,
    file: Arc<File>,
    destination: Option<Destination>,
}

impl UnderWay {
    fn instance(&self) -> &Arc<Instance> {
        self.instance.as_ref().expect("it is there until the drop")
    }

    fn writer(&self) -> Result<&Writer, Error> {
        self.instance().writer().map_err(|_| Error::ReadOnly)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(destination) = self.destination.take()
            && let Ok(writer) = self.writer()
        {
            writer.give_up(&destination);
        }
        let transfers = self.instance().transfers.clone();
        if self.file.under_way.fetch_sub(1, SeqCst) == 1 {
            transfers.ended.wake_all();
        }
        // Before the count: the thread keeps the mount until nothing is under way, so that no completion is the last to have it.
        self.instance = None;
        if transfers.under_way.fetch_sub(1, SeqCst) == 1 && transfers.closed.load(SeqCst) {
            transfers.wait.wake_all();
        }
    }
}

impl File {
    /// The file's blocks are the caller's alone: no transfer is under way, none begins.
    pub(super) fn alone(&self, instance: &Instance) -> MutexGuard<'_, ()> {
        let guard = self.changing.lock();
        self.await_transfers(instance);
        guard
    }

    /// Waits for the transfers under way. `changing` is held.
    pub(super) fn await_transfers(&self, instance: &Instance) {
        if self.under_way.load(SeqCst) > 0 {
            instance.transfers.ended.wait_until(|| self.under_way.load(SeqCst) == 0);
        }
    }
}

/// What a part of a run becomes.
pub(super) struct Part {
    pub(super) run: PageRun,
    pub(super) destination: Destination,
    /// Bytes to be written, whole blocks.
    pub(super) bytes: usize,
    /// The file's size when they have been entered, at least.
    pub(super) end: u64,
}

impl Transfers {
    pub(super) const fn new() -> Self {
        Self {
            written: SpinLock::named("written pages of ext4", None),
            wait: WaitQueue::new(),
            ended: WaitQueue::new(),
            under_way: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// None begins any more; the thread ends when those under way have.
    pub(super) fn close(&self) {
        self.closed.store(true, SeqCst);
        self.wait.wake_all();
    }

    fn hand_over(&self, mut transfer: Box<Transfer>) {
        {
            let mut written = self.written.lock();
            transfer.next = written.take();
            *written = Some(transfer);
        }
        self.wait.wake_all();
    }

    /// What was handed over, the first one first.
    fn take(&self) -> Option<Box<Transfer>> {
        let mut last = self.written.lock().take();
        let mut first = None;
        while let Some(mut transfer) = last {
            last = core::mem::replace(&mut transfer.next, first);
            first = Some(transfer);
        }
        first
    }
}

impl Instance {
    /// Begins to write a part of a run. `changing` of the file is held. Its pages are told how it ends, also if it can't begin.
    pub(super) fn begin_transfer(self: &Arc<Self>, file: &Arc<File>, part: Part) {
        let Part { run, destination, bytes, end } = part;
        file.under_way.fetch_add(1, SeqCst);
        self.transfers.under_way.fetch_add(1, SeqCst);
        let mark =
            UnderWay { instance: Some(self.clone()), file: file.clone(), destination: Some(destination) };
        // After the count: the thread has either seen that, or is waited for no more.
        let open = if self.transfers.closed.load(SeqCst) { Err(Error::ReadOnly) } else { mark.writer() };
        let is_entered =
            match open.and_then(|writer| writer.needs_no_entry(&destination, end, &|| file.written())) {
                Ok(is_entered) => is_entered,
                Err(error) => return run.complete(Err(error_of(&error))),
            };
        let sector = destination.start() * (self.system().block_bytes() / SECTOR_BYTES) as u64;
        let bio = bio(Operation::Write, sector, bytes, &run, BioFlags::empty());
        let transfer = Transfer { run, mark, end, outcome: Ok(()), next: None };
        // Without memory the run is dropped, which says so.
        let bio = bio.and_then(|bio| {
            let transfer = fallible::try_box(transfer)?;
            bio.on_done(move |bio, outcome| {
                // Its references of the pages: who waits for them may want to give them up.
                drop(bio);
                transfer.written(outcome, is_entered);
            })
        });
        match bio {
            Ok(bio) => self.device.volume().submit(bio),
            Err(error) => log::debug!("ext4: a transfer of pages waits for memory: {error}"),
        }
    }

    /// Starts the thread that enters what was written.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn start_entering(self: &Arc<Self>) -> vfs::Result<()> {
        // It may have been closed by an attempt to remount that failed.
        self.transfers.closed.store(false, SeqCst);
        let instance = self.clone();
        let body = allocation::boxed(move || instance.enter_written())?;
        let mut name = fallible::try_string("written-")?;
        name.try_reserve(self.device.name().len()).map_err(|_| vfs::Error::OutOfMemory)?;
        name.push_str(self.device.name());
        sched::spawn(sched::Builder::new(&name), body)?;
        Ok(())
    }

    fn enter_written(&self) {
        let transfers = &self.transfers;
        loop {
            let is_over = || transfers.closed.load(SeqCst) && transfers.under_way.load(SeqCst) == 0;
            transfers.wait.wait_until(|| transfers.written.lock().is_some() || is_over());
            let mut next = transfers.take();
            if next.is_none() {
                return;
            }
            while let Some(mut transfer) = next {
                let rest = transfer.next.take();
                next = transfer.enter(rest);
            }
        }
    }
}

impl Transfer {
    /// The device has done its part.
    fn written(mut self: Box<Self>, outcome: block::Result<()>, is_entered: bool) {
        self.outcome = outcome;
        if is_entered {
            return self.end(outcome.map_err(error_of_device));
        }
        let transfers = self.mark.instance().transfers.clone();
        transfers.hand_over(self);
    }

    /// Enters it and those of the rest that are its neighbours; returns what is left of the rest.
    fn enter(mut self: Box<Self>, mut rest: Option<Box<Self>>) -> Option<Box<Self>> {
        if let Err(error) = self.outcome {
            self.end(Err(error_of_device(error)));
            return rest;
        }
        let Some(mut destination) = self.mark.destination else { return rest };
        let mut joined: Option<Box<Self>> = None;
        while let Some(mut next) = rest.take_if(|next| self.joins(&mut destination, next)) {
            rest = next.next.take();
            next.mark.destination = None;
            self.end = self.end.max(next.end);
            next.next = joined;
            joined = Some(next);
        }
        self.mark.destination = None;
        let entered = self
            .mark
            .writer()
            .and_then(|writer| writer.enter_written(&destination, self.end, &|| self.mark.file.written()))
            .map_err(|error| error_of(&error));
        self.end(entered);
        while let Some(mut next) = joined {
            joined = next.next.take();
            next.end(entered);
        }
        rest
    }

    /// Whether `next` is written and was joined with the destination.
    fn joins(&self, destination: &mut Destination, next: &Self) -> bool {
        next.outcome.is_ok()
            && next.mark.destination.is_some_and(|behind| {
                self.mark.writer().and_then(|writer| writer.join(destination, &behind)) == Ok(true)
            })
    }

    /// Tells the pages.
    fn end(mut self: Box<Self>, outcome: Result<(), CacheError>) {
        if outcome.is_ok() {
            self.mark.destination = None;
        }
        let Self { run, mark, .. } = *self;
        run.complete(outcome);
        drop(mark);
    }
}
