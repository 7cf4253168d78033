//! When dirty pages are written, and how fast programs may make pages dirty.
//!
//! Each device has a thread that writes its files back. It runs
//! - when a file has been dirty for `dirty_expire_centisecs`; it looks every `dirty_writeback_centisecs` as long as there are dirty files, and sleeps without a
//!   timer otherwise; a new period counts at once;
//! - when more memory is dirty than the *background limit*, until that is no longer so;
//! - when a writer waits for the device.
//!
//! A writer waits after each piece of a write, or when it is about to store into a page of a mapping ([`pace`]), while more memory is dirty or on its way than the *limit* and its device has more than its share. The share
//! follows what the device has written of late, compared with the others: a slow device's writers wait for it, others' don't. While less than the middle of both limits is dirty or on its way,
//! nobody waits. A device that takes nothing any more keeps what it has of the limit, so writers of others may have a piece of their own under way at any time.
//!
//! A writer also waits, after a piece as well, while the account that pays for its pages has more than its maximum ([`memory::charge`]): until pages of that account were written
//! and given up. Its device's thread writes what is not old meanwhile, whosever it is.
//!
//! Limits are parts of the memory (`dirty_ratio`, `dirty_background_ratio`) or numbers of bytes; setting one way unsets the other, as in Linux.
//!
//! The thread takes a device's files oldest first, and some pages of each in turn, so that a large file does not keep others waiting. It does not wait for
//! pages one by one: as many are on their way as `IN_FLIGHT_PAGES` allows.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use machine::address::PAGE_SIZE;
use memory::charge;
use memory::fallible;
use memory::file_cache::{BackingDevice, Event, FileCache, write_back_counts};
use sched::WaitQueue;
use sync::SpinLock;

use crate::{Result, allocation};

/// Pages of one file that are begun before it is the next one's turn.
const CHUNK_PAGES: u64 = 1024;

/// Pages of a device on their way at most: 8 MiB.
const IN_FLIGHT_PAGES: u64 = 2048;

/// Pages that are given up beyond what an account has too much, so that the next piece finds room: that of a write.
const ROOM_PAGES: usize = 64;

/// How long a writer waits before it looks again by itself.
const PAUSE_NS: u64 = 100_000_000;

/// After how long what a device has written counts half.
const SHARE_PERIOD_NS: u64 = 3_000_000_000;

/// A hundredth of a second.
const CENTISECOND_NS: u64 = 10_000_000;

/// Settings of `/proc/sys/vm`.
pub struct Settings {
    /// `dirty_ratio`: percent of memory; 0: `dirty_bytes` counts.
    pub dirty_ratio: AtomicU64,
    /// `dirty_bytes`.
    pub dirty_bytes: AtomicU64,
    /// `dirty_background_ratio`: percent of memory; 0: `dirty_background_bytes` counts.
    pub background_ratio: AtomicU64,
    /// `dirty_background_bytes`.
    pub background_bytes: AtomicU64,
    /// `dirty_expire_centisecs`.
    pub expire_centisecs: AtomicU64,
    /// `dirty_writeback_centisecs`; 0: never. Changed by [`set_write_back_period`].
    pub write_back_centisecs: AtomicU64,
}

/// The settings.
pub static SETTINGS: Settings = Settings {
    dirty_ratio: AtomicU64::new(20),
    dirty_bytes: AtomicU64::new(0),
    background_ratio: AtomicU64::new(10),
    background_bytes: AtomicU64::new(0),
    expire_centisecs: AtomicU64::new(3000),
    write_back_centisecs: AtomicU64::new(500),
};

/// Pages of memory that the limits are parts of; 0: nobody asked yet.
static MEMORY_PAGES: AtomicU64 = AtomicU64::new(0);

fn memory_pages() -> u64 {
    match MEMORY_PAGES.load(Relaxed) {
        0 => {
            let pages = memory::frame::total_frames();
            MEMORY_PAGES.store(pages, Relaxed);
            pages
        }
        pages => pages,
    }
}

/// Limits in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Above it threads write back.
    pub background: u64,
    /// Above it writers wait.
    pub limit: u64,
}

/// The limits now.
pub fn thresholds() -> Thresholds {
    let memory = memory_pages();
    let of = |ratio: &AtomicU64, bytes: &AtomicU64| match ratio.load(Relaxed) {
        0 => bytes.load(Relaxed).div_ceil(PAGE_SIZE as u64),
        percent => memory * percent / 100,
    };
    let limit = of(&SETTINGS.dirty_ratio, &SETTINGS.dirty_bytes).max(2);
    let background = of(&SETTINGS.background_ratio, &SETTINGS.background_bytes);
    Thresholds { background: if background >= limit { limit / 2 } else { background }, limit }
}

struct Flusher {
    device: Arc<BackingDevice>,
    /// The thread, and those who wait for the device to catch up.
    wait: WaitQueue,
    /// There is something to look at.
    asked: AtomicBool,
    stopping: AtomicBool,
    /// Writers that wait for the device to catch up.
    held_back: AtomicU32,
    /// Held while files are taken from the queue: who wants all of them waits for whoever has taken some.
    pass: sched::Mutex<()>,
    /// What does not count any more of what the device has written, and since when.
    forgotten: AtomicU64,
    forgotten_ns: AtomicU64,
}

static FLUSHERS: SpinLock<Vec<Arc<Flusher>>> = SpinLock::named("devices that are written back", Vec::new());

fn copy_of_all() -> Result<Vec<Arc<Flusher>>> {
    let mut all = Vec::new();
    loop {
        let needed = FLUSHERS.lock().len() + 1;
        fallible::try_reserve(&mut all, needed)?;
        let flushers = FLUSHERS.lock();
        if flushers.len() < all.capacity() {
            all.extend(flushers.iter().cloned());
            return Ok(all);
        }
    }
}

fn find(device: &Arc<BackingDevice>) -> Option<Arc<Flusher>> {
    FLUSHERS.lock().iter().find(|flusher| Arc::ptr_eq(&flusher.device, device)).cloned()
}

/// Makes what write-back needs for a device, with its thread.
///
/// # Errors
/// No memory.
pub fn add_device(name: &str) -> Result<Arc<BackingDevice>> {
    let device = allocation::arc(BackingDevice::new(fallible::try_string(name)?))?;
    let flusher = allocation::arc(Flusher {
        device: device.clone(),
        wait: WaitQueue::new(),
        asked: AtomicBool::new(false),
        stopping: AtomicBool::new(false),
        held_back: AtomicU32::new(0),
        pass: sched::Mutex::named("write-back of a device", ()),
        forgotten: AtomicU64::new(0),
        forgotten_ns: AtomicU64::new(machine::time::now_ns()),
    })?;
    // Weak: the device has the closure.
    let told = Arc::downgrade(&flusher);
    device.on_event(allocation::boxed(move |event| {
        if let Some(flusher) = told.upgrade() {
            flusher.hear(event);
        }
    })?);
    let runs = flusher.clone();
    let body = allocation::boxed(move || runs.run())?;
    let mut all = copy_of_all()?;
    let mut thread_name = fallible::try_string("flush-")?;
    thread_name.try_reserve(name.len()).map_err(|_| crate::Error::OutOfMemory)?;
    thread_name.push_str(name);
    let thread = sched::Builder::new(&thread_name).prepare(body)?;
    all.push(flusher);
    let former = core::mem::replace(&mut *FLUSHERS.lock(), all);
    drop(former);
    thread.start();
    Ok(device)
}

/// The device is not used any more; its thread ends.
pub fn remove_device(device: &Arc<BackingDevice>) {
    let Some(flusher) = find(device) else { return };
    FLUSHERS.lock().retain(|known| !Arc::ptr_eq(known, &flusher));
    flusher.stopping.store(true, SeqCst);
    // Not by asking: the thread may have been asked before, and sleep all the same.
    flusher.wait.wake_all();
}

/// Called by writers after each piece: waits while too much is dirty, or while who pays for the writer's pages has more than he may. False if the
/// writer is wanted for something else.
pub fn pace(device: &Arc<BackingDevice>) -> bool {
    if charge::excessive().is_some()
        && let Some(flusher) = find(device)
        && !flusher.await_account()
    {
        return false;
    }
    // What is on its way counts: a device that is slow to take it would fill the memory with it.
    let counts = write_back_counts();
    if counts.dirty + counts.under_write_back > thresholds().background
        && let Some(flusher) = find(device)
    {
        return flusher.pace();
    }
    true
}

/// Changes `dirty_writeback_centisecs`, the hundredths of a second between two looks for old files (0: none). Threads that sleep for the former period look now.
pub fn set_write_back_period(centisecs: u64) {
    SETTINGS.write_back_centisecs.store(centisecs, SeqCst);
    for flusher in FLUSHERS.lock().iter() {
        flusher.wait.wake_all();
    }
}

/// Writes all files of a device and waits for them.
pub fn sync_device(device: &Arc<BackingDevice>) {
    if let Some(flusher) = find(device) {
        flusher.sync();
    }
}

/// Begins to write all files of all devices, then waits for them.
pub fn sync_all() {
    let Ok(all) = copy_of_all() else { return sync_one_by_one() };
    for flusher in &all {
        flusher.start_all();
    }
    for flusher in &all {
        flusher.sync();
    }
}

/// The same without memory to remember them: of devices that come or go meanwhile, one may be written twice or be passed over.
fn sync_one_by_one() {
    let mut index = 0;
    loop {
        let flusher = FLUSHERS.lock().get(index).cloned();
        let Some(flusher) = flusher else { return };
        flusher.sync();
        index += 1;
    }
}

impl Flusher {
    fn hear(&self, event: Event) {
        match event {
            Event::FileDirty => self.ask(),
            Event::PagesWritten => self.wait.wake_all(),
            // Who is wanted for something else goes on: the page is dirty already.
            Event::PageStored => _ = (charge::excessive().is_none() || self.await_account()) && self.pace(),
        }
    }

    /// Keeps a writer waiting whose account has more than its maximum, until enough of its pages are written and given up, or nothing is left that could
    /// be written. False if the writer is wanted for something else.
    fn await_account(&self) -> bool {
        self.held_back.fetch_add(1, SeqCst);
        let outcome = loop {
            let Some(account) = charge::excessive() else { break true };
            let written = self.device.pages_written();
            let excess = account.room().min(0).unsigned_abs() as usize;
            charge::reclaim(account, excess + ROOM_PAGES);
            let is_clean = || self.device.dirty_pages() + self.device.pages_under_write_back() == 0;
            if charge::excessive().is_none() || is_clean() {
                break true;
            }
            self.wait.wake_all();
            let progress = || self.device.pages_written() != written || is_clean();
            let deadline_ns = machine::time::now_ns() + PAUSE_NS;
            if self.wait.wait_interruptible_deadline(progress, Some(deadline_ns))
                == Err(sched::WaitError::Interrupted)
            {
                break false;
            }
        };
        self.held_back.fetch_sub(1, SeqCst);
        outcome
    }

    /// Waits while too much is dirty. False if the caller is wanted for something else.
    fn pace(&self) -> bool {
        let thresholds = thresholds();
        let counts = write_back_counts();
        if counts.dirty > thresholds.background {
            self.wait.wake_all();
        }
        counts.dirty + counts.under_write_back <= thresholds.background || self.hold_back(thresholds)
    }

    fn ask(&self) {
        if !self.asked.swap(true, SeqCst) {
            self.wait.wake_all();
        }
    }

    /// The thread.
    fn run(&self) {
        while !self.stopping.load(SeqCst) {
            self.await_work();
            let begun = self.write_some(false);
            self.await_room(begun);
        }
        self.sync();
    }

    /// Sleeps until there may be something to write.
    fn await_work(&self) {
        let period = SETTINGS.write_back_centisecs.load(SeqCst);
        let period_ns = period * CENTISECOND_NS;
        let over = || self.device.dirty_pages() > 0 && self.is_urgent();
        // Who sleeps for the former period would look too late, or never.
        let is_other_period = || SETTINGS.write_back_centisecs.load(SeqCst) != period;
        let called = || self.stopping.load(SeqCst) || over() || is_other_period();
        if self.device.has_dirty_files() && period_ns > 0 {
            self.asked.store(false, SeqCst);
            let deadline_ns = machine::time::now_ns() + period_ns;
            self.wait.wait_until_deadline(called, deadline_ns);
        } else {
            // Without a period files that become dirty, or wait in the queue again, are no reason to look.
            self.wait.wait_until(|| called() || period_ns > 0 && self.asked.swap(false, SeqCst));
        }
    }

    /// Sleeps while enough is on its way. If nothing could be begun, what is on its way must arrive first, or some time pass.
    fn await_room(&self, begun: u64) {
        let is_below = |most| self.device.pages_under_write_back() < most;
        self.wait.wait_until(|| self.stopping.load(SeqCst) || is_below(IN_FLIGHT_PAGES));
        if begun > 0 {
            return;
        }
        let deadline_ns = machine::time::now_ns() + PAUSE_NS;
        let _ = self.wait.wait_until_deadline(|| is_below(1), deadline_ns);
        if self.device.dirty_pages() > 0 && self.is_urgent() {
            // Dirty pages that nobody may write yet: looked at again when something changes, or now and then.
            let _ = self
                .wait
                .wait_until_deadline(|| self.stopping.load(SeqCst), machine::time::now_ns() + PAUSE_NS);
        }
    }

    /// Begins to write files that are old, or all while too much is dirty; returns how many pages.
    fn write_some(&self, all: bool) -> u64 {
        let _pass = self.pass.lock();
        let expire_ns = SETTINGS.expire_centisecs.load(Relaxed) * CENTISECOND_NS;
        // Without a period nothing is written because it is old, also if a thread runs because another file has become dirty.
        let by_age = SETTINGS.write_back_centisecs.load(SeqCst) > 0;
        let now_ns = machine::time::now_ns();
        let mut begun = 0;
        for file in self.device.take_dirty() {
            let is_old = by_age && now_ns.saturating_sub(file.dirty_since_ns()) >= expire_ns;
            let room = begun < IN_FLIGHT_PAGES;
            if all || room && (is_old || self.is_urgent()) {
                begun += file.start_write_back(0, u64::MAX, if all { u64::MAX } else { CHUNK_PAGES });
            }
            file.requeue();
        }
        begun
    }

    fn start_all(&self) {
        self.write_some(true);
    }

    /// Writes all files and waits until they have been.
    fn sync(&self) {
        self.write_some(true);
        let _pass = self.pass.lock();
        let mut waited: Vec<Arc<FileCache>> = Vec::new();
        for file in self.device.take_dirty() {
            // Without memory to remember it, it is waited for at once.
            if fallible::try_reserve(&mut waited, 1).is_ok() {
                waited.push(file);
            } else {
                let _ = file.write_back(0, u64::MAX);
                file.requeue();
            }
        }
        for file in waited {
            // Errors are told to those who have the file open.
            let _ = file.write_back(0, u64::MAX);
            file.requeue();
        }
    }

    /// What the device has written of late, in pages.
    fn recent(&self) -> u64 {
        let written = self.device.pages_written();
        let now_ns = machine::time::now_ns();
        let since_ns = self.forgotten_ns.load(Relaxed);
        let recent = written.saturating_sub(self.forgotten.load(Relaxed));
        if now_ns.saturating_sub(since_ns) >= SHARE_PERIOD_NS
            && self.forgotten_ns.compare_exchange(since_ns, now_ns, Relaxed, Relaxed).is_ok()
        {
            self.forgotten.store(written - recent / 2, Relaxed);
        }
        recent
    }

    /// The pages that the device's files may have dirty or on their way when the limit is reached.
    fn share(&self, limit: u64) -> u64 {
        let (mut sum, mut devices) = (0, 0);
        for flusher in FLUSHERS.lock().iter() {
            sum += flusher.recent();
            devices += 1;
        }
        // A device that has not been written yet gets half of an equal share to begin with.
        let least = limit / (2 * u64::max(devices, 1));
        (limit * self.recent()).checked_div(sum).map_or(limit, |share| share.max(least))
    }

    /// Keeps a writer waiting as the theory says. False if it is wanted for something else.
    fn hold_back(&self, thresholds: Thresholds) -> bool {
        let Thresholds { background, limit } = thresholds;
        let share = self.share(limit);
        let caught_up = || {
            let counts = write_back_counts();
            let all = counts.dirty + counts.under_write_back;
            let own = self.device.dirty_pages() + self.device.pages_under_write_back();
            all <= u64::midpoint(background, limit) || all <= limit && own <= share || own == 0
        };
        if caught_up() {
            return true;
        }
        self.held_back.fetch_add(1, SeqCst);
        self.wait.wake_all();
        let outcome = self.await_device(&caught_up);
        self.held_back.fetch_sub(1, SeqCst);
        outcome
    }

    /// Sleeps until the device has caught up. False if the caller is wanted for something else.
    fn await_device(&self, caught_up: &dyn Fn() -> bool) -> bool {
        loop {
            let deadline_ns = machine::time::now_ns() + PAUSE_NS;
            match self.wait.wait_interruptible_deadline(caught_up, Some(deadline_ns)) {
                Ok(()) => return true,
                Err(sched::WaitError::TimedOut) => self.wait.wake_all(),
                Err(sched::WaitError::Interrupted) => return false,
            }
        }
    }

    /// Whether the thread shall write what is not old.
    fn is_urgent(&self) -> bool {
        self.held_back.load(SeqCst) > 0 || is_above_background()
    }
}

fn is_above_background() -> bool {
    let thresholds = thresholds();
    write_back_counts().dirty > thresholds.background
}
