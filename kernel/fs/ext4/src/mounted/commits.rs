//! The thread that commits, syncing and unmounting.
//!
//! The thread that enters what was written is started and ended with it. Every five seconds the thread deletes what nobody can reach any more and commits what was changed. It ends with the mount.

use alloc::sync::Arc;
use core::sync::atomic::Ordering::SeqCst;

use block::registry::Holder;
use memory::fallible;
use vfs::disk::flusher;
use vfs::{Result, allocation};

use super::instance::{Instance, error_of};

/// Between commits that nobody asked for.
const COMMIT_NS: u64 = 5_000_000_000;

impl Instance {
    /// Starts the threads of a mount that is written.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn start_threads(self: &Arc<Self>) -> Result<()> {
        self.start_entering()?;
        let started = self.start_commits();
        if started.is_err() {
            self.transfers.close();
        }
        started
    }

    fn start_commits(self: &Arc<Self>) -> Result<()> {
        let instance = self.clone();
        let body = allocation::boxed(move || instance.run_commits())?;
        let mut name = fallible::try_string("commit-")?;
        name.try_reserve(self.device.name().len()).map_err(|_| vfs::Error::OutOfMemory)?;
        name.push_str(self.device.name());
        sched::spawn(sched::Builder::new(&name), body)?;
        Ok(())
    }

    fn run_commits(&self) {
        loop {
            let deadline_ns = machine::time::now_ns() + COMMIT_NS;
            let is_over = || self.ended.load(SeqCst) || self.left.lock().is_some();
            let _ = self.wait.wait_until_deadline(is_over, deadline_ns);
            let left = self.left.lock().take();
            if let Some(holder) = left {
                self.end();
                return self.device.release(holder);
            }
            if self.ended.load(SeqCst) {
                return;
            }
            self.delete_gone();
            if let Ok(writer) = self.writer()
                && writer.is_dirty()
                && !writer.is_stopped()
                && let Err(error) = writer.commit()
            {
                log::error!("ext4 on {}: {error}", self.device.name());
            }
        }
    }

    /// Everything that was changed so far lasts.
    pub(super) fn sync(&self) -> Result<()> {
        let Ok(writer) = self.writer() else { return Ok(()) };
        flusher::sync_device(self.files.backing());
        self.delete_gone();
        writer.commit().map_err(error_of)
    }

    /// Has the thread end the mount, unless that has been done. False: it has, or there is nothing to do.
    pub(super) fn leave_to_thread(&self, holder: Holder) -> bool {
        if self.writer().is_err() || self.ended.load(SeqCst) {
            return false;
        }
        *self.left.lock() = Some(holder);
        self.wait.wake_all();
        true
    }

    /// The mount's end: everything is written where it belongs.
    pub(super) fn end(&self) {
        let Ok(writer) = self.writer() else { return };
        if self.ended.swap(true, SeqCst) {
            return;
        }
        self.wait.wake_all();
        flusher::sync_device(self.files.backing());
        if let Err(error) = self.delete_last(writer) {
            log::error!("ext4 on {}: files without names stay: {error}", self.device.name());
        }
        if let Err(error) = writer.unmount() {
            log::error!("ext4 on {}: not unmounted in order: {error}", self.device.name());
        }
        self.transfers.close();
    }
}
