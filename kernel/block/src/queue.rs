//! Between those who submit bios and the driver of a device.
//!
//! # The way of a bio
//! 1. [`Queue::submit`] checks it against the device (size, alignment, read-only, gone), refuses what is too large for it,
//!    and answers what the device need not be asked (a flush without a write cache).
//!    What an account may not transfer yet waits, before all that follows, in [`control`](crate::control).
//! 2. Flushes and durable writes go through [`flush`](crate::flush), which orders them and makes one flush of many.
//! 3. Everything else becomes a [`Request`] of this CPU's lane: merged with waiting neighbours or put among them.
//! 4. [`Queue::run`] hands requests to the driver until it has no room; completions run it again.
//!
//! # Lanes
//! With the scheduler `none` each CPU has a [lane](crate::lane) of its own, so CPUs do not meet in the queue. Any other scheduler
//! sees all requests in lane 0: order over the whole device is what it is for. Which of both it is may change at any time
//! ([`Queue::set_scheduler`]). Lanes are open whenever bios may be sent to them: they are closed after that ended, and opened before it begins. Who
//! comes to a closed lane with what he knew before looks again.
//!
//! # Locks
//! A lane's spin lock: held over calls of the scheduler only, never over the driver or a completion. A lane has
//! [one runner](crate::one_runner) at a time, so a completion that ends at once (a RAM disk) does not recurse into the driver: the outer
//! call goes on instead.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use memory::fallible;
use memory::file_cache::ReadAheadLimit;
use sched::Mutex;
use sched::timer::Timer;
use sched::work::Work;
use sync::{CachePadded, Once};

use crate::bio::{Bio, BioFlags, Operation, SECTOR_BYTES};
use crate::control::Control;
use crate::driver::{Driver, Limits, TimeoutVerdict};
use crate::flush::Flushes;
use crate::lane::Lane;
use crate::outstanding::Outstanding;
use crate::partition::PARTITIONS_MAX;
use crate::request::Request;
use crate::scheduler::{self, First, NAMES, Scheduler, Setting};
use crate::statistics::Statistics;
use crate::{Error, Result};

/// Numbers of a scheduler that can be set, at most.
const SETTINGS_MAX: usize = 8;

/// Requests that a driver gets at the same time, at least, whatever root wants.
const DEPTH_MIN: u32 = 4;
/// The lane of any scheduler but `none`.
const SHARED_LANE: usize = 0;

/// See the theory of this file.
pub struct Queue {
    driver: Arc<dyn Driver>,
    limits: Limits,
    /// The device's size, which may change.
    sectors: AtomicU64,
    /// Requests that the driver gets at the same time: at most what it takes.
    depth: AtomicU32,
    /// Of all files on the disk, and of its own pages.
    read_ahead: Arc<ReadAheadLimit>,
    lanes: Vec<CachePadded<Lane>>,
    /// Whether each CPU has its lane; else all have lane 0. Changed with `choosing` held.
    per_cpu: AtomicBool,
    /// Held while another scheduler is put in.
    choosing: Mutex<()>,
    statistics: Statistics,
    /// Of partitions, by number; those that there have been.
    of_partitions: Once<Vec<Once<Statistics>>>,
    pub(crate) flushes: Flushes,
    gone: AtomicBool,
    /// What accounts may transfer.
    pub(crate) control: Control,
    /// What the driver has.
    outstanding: Outstanding,
    /// Looks after time-outs, if the driver wants that.
    watch: Once<Arc<Timer>>,
}

fn look_for_timeouts(queue: Arc<Queue>) {
    queue.check_timeouts(machine::time::now_ns());
}

impl Queue {
    /// A queue with the scheduler `none` and a lane for each CPU.
    pub fn new(driver: Arc<dyn Driver>) -> Result<Arc<Self>> {
        let lanes = machine::cpu::count().max(1);
        let mut schedulers: Vec<Box<dyn Scheduler>> = fallible::try_vec(lanes)?;
        for _ in 0..lanes {
            schedulers.push(fallible::try_box(First::default())?);
        }
        Self::with_lanes(driver, schedulers)
    }

    /// A queue with this scheduler.
    pub fn with_scheduler(driver: Arc<dyn Driver>, scheduler: Box<dyn Scheduler>) -> Result<Arc<Self>> {
        let mut schedulers = fallible::try_vec(1)?;
        schedulers.push(scheduler);
        Self::with_lanes(driver, schedulers)
    }

    fn with_lanes(driver: Arc<dyn Driver>, schedulers: Vec<Box<dyn Scheduler>>) -> Result<Arc<Self>> {
        let limits = driver.limits();
        let block = limits.logical_block_bytes as usize;
        if !block.is_power_of_two() || block < SECTOR_BYTES || limits.segments_max == 0 || limits.depth == 0 {
            return Err(Error::Invalid);
        }
        if (limits.sectors_max as usize) < machine::address::PAGE_SIZE.max(block) / SECTOR_BYTES {
            return Err(Error::Invalid);
        }
        let per_cpu = schedulers.len() > 1;
        debug_assert!(
            !per_cpu || !schedulers.iter().any(|scheduler| scheduler.wants_completions()),
            "who wants to hear of all ends sees all requests"
        );
        let mut lanes = fallible::try_vec(schedulers.len())?;
        for scheduler in schedulers {
            lanes.push(CachePadded::new(Lane::new(scheduler)));
        }
        Ok(fallible::try_arc(Self {
            driver,
            limits,
            sectors: AtomicU64::new(limits.sectors),
            depth: AtomicU32::new(limits.depth),
            read_ahead: fallible::try_arc(ReadAheadLimit::default())?,
            lanes,
            per_cpu: AtomicBool::new(per_cpu),
            choosing: Mutex::named("choice of a scheduler", ()),
            statistics: Statistics::new()?,
            of_partitions: Once::new(),
            flushes: Flushes::new(),
            gone: AtomicBool::new(false),
            control: Control::new(),
            outstanding: Outstanding::new(),
            watch: Once::new(),
        })?)
    }

    /// What the device can do.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Who drives it.
    pub fn driver(&self) -> &dyn Driver {
        &*self.driver
    }

    /// Its size now, in sectors.
    pub fn sectors(&self) -> u64 {
        self.sectors.load(Ordering::Relaxed)
    }

    /// The device has become smaller or larger; the driver says so.
    pub fn set_sectors(&self, sectors: u64) {
        self.sectors.store(sectors, Ordering::Relaxed);
    }

    /// How far files on it are read ahead.
    pub fn read_ahead(&self) -> &Arc<ReadAheadLimit> {
        &self.read_ahead
    }

    /// Requests that the driver gets at the same time.
    pub fn depth(&self) -> u32 {
        self.depth.load(Ordering::Relaxed)
    }

    /// Changes that; fewer than `DEPTH_MIN` are that many, unless the driver takes fewer.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the driver does not take so many.
    pub fn set_depth(self: &Arc<Self>, depth: u32) -> Result<()> {
        if depth > self.limits.depth {
            return Err(Error::Invalid);
        }
        self.depth.store(depth.max(DEPTH_MIN).min(self.limits.depth), Ordering::Relaxed);
        // There may be room for more now.
        self.run();
        Ok(())
    }

    /// Whether the device was pulled out.
    pub fn is_gone(&self) -> bool {
        // Acquire: pairs with the store in `remove`.
        self.gone.load(Ordering::Acquire)
    }

    /// What it has done.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// What a partition has done, as the queue knows it: those that had its number before are in it.
    pub(crate) fn partition_statistics(&self, number: u32) -> Option<&Statistics> {
        self.of_partitions.get()?.get(number as usize)?.get()
    }

    /// Counts for a partition of this number from now on, unless the number is larger than any that is counted.
    pub(crate) fn count_partition(&self, number: u32) -> Result<()> {
        if number as usize > PARTITIONS_MAX || self.partition_statistics(number).is_some() {
            return Ok(());
        }
        if self.of_partitions.get().is_none() {
            let mut slots = fallible::try_vec(PARTITIONS_MAX + 1)?;
            slots.resize_with(PARTITIONS_MAX + 1, Once::new);
            self.of_partitions.call_once(|| slots);
        }
        let fresh = Statistics::new()?;
        if let Some(slot) = self.of_partitions.get().and_then(|slots| slots.get(number as usize)) {
            slot.call_once(|| fresh);
        }
        Ok(())
    }

    /// Both the device's numbers and those of the partition, if it is one that is counted.
    fn count(&self, partition: u32, count: impl Fn(&Statistics)) {
        count(&self.statistics);
        if let Some(of_partition) = self.partition_statistics(partition) {
            count(of_partition);
        }
    }

    /// The scheduler's name.
    pub fn scheduler_name(&self) -> &'static str {
        self.lanes[0].waiting.lock().scheduler.name()
    }

    /// Chooses one of [`NAMES`]. What waits goes on as before; may sleep, but not for the device.
    ///
    /// # Errors
    /// [`Error::Invalid`] for other names; no memory, and then nothing has changed.
    pub fn set_scheduler(&self, name: &str) -> Result<()> {
        let _choosing = self.choosing.lock();
        if name == self.scheduler_name() {
            return Ok(());
        }
        let scheduler = scheduler::make(name)?;
        let per_cpu = name == NAMES[0] && self.lanes.len() > 1;
        self.lanes[0].replace(scheduler)?;
        let others = &self.lanes[1..];
        if per_cpu {
            others.iter().for_each(|lane| lane.waiting.lock().closed = false);
            // Release: who sees it finds the lanes open.
            self.per_cpu.store(true, Ordering::Release);
        } else {
            // Before the lanes are closed under their locks: who finds one closed sees it.
            self.per_cpu.store(false, Ordering::Release);
            others.iter().for_each(|lane| lane.waiting.lock().closed = true);
        }
        Ok(())
    }

    /// What root may change of the scheduler.
    ///
    /// # Errors
    /// No memory for the list.
    pub fn settings(&self) -> Result<Vec<Setting>> {
        let mut settings = fallible::try_vec(SETTINGS_MAX)?;
        let mut waiting = self.lanes[0].waiting.lock();
        settings.extend(waiting.scheduler.settings().iter().take(SETTINGS_MAX));
        Ok(settings)
    }

    /// Changes one of them; a value above its maximum is that.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the scheduler has none of that name: it may be another one by now.
    pub fn set(&self, name: &str, value: u32) -> Result<()> {
        let mut waiting = self.lanes[0].waiting.lock();
        let setting = waiting.scheduler.settings().iter_mut().find(|setting| setting.name == name);
        let setting = setting.ok_or(Error::Invalid)?;
        setting.value = value.min(setting.max);
        Ok(())
    }

    /// The device was pulled out: what waits and what comes fails with `ENODEV`. What the driver holds is the driver's to end.
    pub fn remove(self: &Arc<Self>) {
        // Release: pairs with the load in `check`.
        self.gone.store(true, Ordering::Release);
        self.release_held(u64::MAX);
        (0..self.lanes.len()).for_each(|lane| self.end_waiting(lane));
    }

    /// Ends what waits in a lane of a device that is gone.
    fn end_waiting(self: &Arc<Self>, lane: usize) {
        while let Some(request) = self.lanes[lane].take(u64::MAX) {
            self.begin(request).complete(Err(Error::NoDevice));
        }
    }

    /// Submits a bio. Its completion is called exactly once, perhaps before this returns.
    pub fn submit(self: &Arc<Self>, bio: Bio) {
        if let Some(lane) = self.enqueue(bio) {
            self.run_lane(lane);
        }
    }

    /// Submits bios together.
    pub fn submit_batch(self: &Arc<Self>, bios: impl Iterator<Item = Bio>) {
        let mut lane = None;
        for bio in bios {
            let Some(next) = self.enqueue(bio) else { continue };
            // The thread may be on another CPU now: nobody else would run the lane that it leaves.
            if let Some(left) = lane.replace(next)
                && left != next
            {
                self.run_lane(left);
            }
        }
        if let Some(lane) = lane {
            self.run_lane(lane);
        }
    }

    /// The lane that the bio waits in, if it does.
    fn enqueue(self: &Arc<Self>, mut bio: Bio) -> Option<usize> {
        bio.submitted_ns = machine::time::now_ns();
        bio.attribute();
        if let Err(error) = self.check(&bio) {
            bio.finish(Err(error));
            return None;
        }
        if !self.limits.write_cache {
            bio.flags.remove(BioFlags::PREFLUSH | BioFlags::FORCE_UNIT_ACCESS);
            if bio.operation == Operation::Flush {
                bio.finish(Ok(()));
                return None;
            }
        }
        if bio.payer().is_some() {
            let now_ns = bio.submitted_ns;
            bio = self.control.admit(bio, now_ns)?;
        }
        self.place(bio)
    }

    /// The lane that a bio waits in that its payer may transfer, if it does.
    fn place(self: &Arc<Self>, bio: Bio) -> Option<usize> {
        let durable = bio.flags.intersects(BioFlags::PREFLUSH)
            || (bio.flags.contains(BioFlags::FORCE_UNIT_ACCESS) && !self.limits.force_unit_access);
        if bio.operation == Operation::Flush || durable {
            self.flushes.submit(self, bio);
            return None;
        }
        self.insert(bio)
    }

    /// A bio that was held back may go.
    pub(crate) fn pass(self: &Arc<Self>, bio: Bio) {
        if let Some(lane) = self.place(bio) {
            self.run_lane(lane);
        }
    }

    /// Puts a bio that needs no flush among those that wait.
    pub(crate) fn insert(self: &Arc<Self>, bio: Bio) -> Option<usize> {
        let Ok(bios) = fallible::try_vec(1) else {
            bio.finish(Err(Error::OutOfMemory));
            return None;
        };
        let (operation, partition) = (bio.operation, bio.partition);
        let (lane, mut waiting) = loop {
            let lane = self.own_lane();
            let waiting = self.lanes[lane].waiting.lock();
            if !waiting.closed {
                break (lane, waiting);
            }
        };
        let scheduler = &mut waiting.scheduler;
        if scheduler.reserve().is_err() {
            drop(waiting);
            bio.finish(Err(Error::OutOfMemory));
            return None;
        }
        if scheduler.insert(Request::new(bios, bio), &self.limits) {
            self.count(partition, |statistics| statistics.merged(operation));
        }
        Some(lane)
    }

    /// Where bios of this CPU wait.
    fn own_lane(&self) -> usize {
        // Acquire: pairs with the stores in `set_scheduler`.
        if self.per_cpu.load(Ordering::Acquire) {
            machine::cpu::current().index() % self.lanes.len()
        } else {
            0
        }
    }

    fn check(&self, bio: &Bio) -> Result<()> {
        if self.is_gone() {
            return Err(Error::NoDevice);
        }
        let end = bio.sector.checked_add(bio.sectors).ok_or(Error::Invalid)?;
        let block_sectors = u64::from(self.limits.logical_block_bytes) / SECTOR_BYTES as u64;
        let aligned = bio.sector.is_multiple_of(block_sectors) && bio.sectors.is_multiple_of(block_sectors);
        if bio.operation != Operation::Flush && (end > self.sectors() || !aligned) {
            return Err(Error::Invalid);
        }
        if bio.operation.changes() && self.limits.read_only {
            return Err(Error::ReadOnly);
        }
        let most = match bio.operation {
            Operation::Read | Operation::Write => {
                if bio.segments().len() > self.limits.segments_max {
                    return Err(Error::Invalid);
                }
                self.limits.sectors_max
            }
            Operation::Discard => self.limits.discard_sectors_max,
            Operation::WriteZeroes => self.limits.zeroes_sectors_max,
            Operation::Flush => u32::MAX,
        };
        match most {
            0 => Err(Error::NotSupported),
            most if bio.sectors > u64::from(most) => Err(Error::Invalid),
            _ => Ok(()),
        }
    }

    /// Hands waiting requests of all lanes to the driver; after completions, which may have made room.
    pub fn run(self: &Arc<Self>) {
        for lane in 0..self.lanes.len() {
            self.run_lane(lane);
        }
    }

    pub(crate) fn run_lane(self: &Arc<Self>, index: usize) {
        self.lanes[index].runner.run(|| {
            while self.outstanding.count() < self.depth() {
                let Some(request) = self.take(index) else { break };
                let request = self.begin(request);
                // What waits in one lane for all CPUs goes to the part of the device that is this CPU's.
                let per_cpu = self.per_cpu.load(Ordering::Relaxed);
                let cpu = if per_cpu { index } else { machine::cpu::current().index() };
                if let Err(back) = self.driver.submit(cpu, request) {
                    self.take_back(index, back);
                    break;
                }
            }
        });
    }

    fn take(&self, lane: usize) -> Option<Request> {
        self.lanes[lane].take(machine::time::now_ns())
    }

    fn begin(self: &Arc<Self>, mut request: Request) -> Request {
        let now_ns = machine::time::now_ns();
        self.count(request.partition(), Statistics::begin);
        self.outstanding.begin(now_ns);
        self.arm_watch(now_ns);
        request.queue = Some(self.clone());
        request
    }

    /// The driver had no room.
    fn take_back(&self, lane: usize, mut request: Request) {
        request.queue = None;
        self.outstanding.withdraw();
        self.count(request.partition(), Statistics::withdraw);
        self.lanes[lane].take_back(request);
    }

    /// The driver has begun the request, could not carry it out, and offers to do it again: see [`Request::try_again`].
    pub(crate) fn put_back(self: &Arc<Self>, request: Request) {
        /// Any lane that is open does: who had it may have been on another CPU.
        const LANE: usize = 0;
        self.outstanding.withdraw();
        self.count(request.partition(), Statistics::withdraw);
        if let Err(request) = self.lanes[LANE].put_back(request) {
            self.begin(request).complete(Err(Error::OutOfMemory));
        } else if self.is_gone() {
            // `remove` may have looked at the lane before.
            self.end_waiting(LANE);
        }
    }

    pub(crate) fn account_end(&self, request: &Request, outcome: Result<()>) {
        let now_ns = machine::time::now_ns();
        self.outstanding.end(now_ns);
        if request.given_by != 0 {
            self.lanes[SHARED_LANE].completed(request, now_ns);
        }
        let sectors = request.sectors();
        let began_ns = request.submitted_ns();
        let failed = outcome.is_err();
        self.count(request.partition(), |statistics| {
            statistics.end(request.operation(), sectors, began_ns, now_ns, failed);
        });
    }

    /// Has the kernel look after time-outs from now on: while the driver has requests, a timer calls [`Queue::check_timeouts`] in a thread.
    pub fn watch(self: &Arc<Self>) -> Result<()> {
        let queue = Arc::downgrade(self);
        let look = move || {
            if let Some(queue) = queue.upgrade() {
                queue.look_after_timeouts();
            }
        };
        let timer = Timer::new(fallible::try_box(look)?)?;
        self.watch.call_once(|| timer);
        Ok(())
    }

    fn arm_watch(&self, now_ns: u64) {
        if let Some(timer) = self.watch.get()
            && self.outstanding.claim_watch()
        {
            timer.arm(now_ns + self.limits.timeout_ns);
        }
    }

    /// The watch's timer has expired.
    fn look_after_timeouts(self: Arc<Self>) {
        let now_ns = machine::time::now_ns();
        let Some(timer) = self.watch.get() else { return };
        let Some(since_ns) = self.outstanding.silent_since() else {
            // One that came meanwhile may have seen the watch armed.
            if self.outstanding.end_watch() {
                self.arm_watch(now_ns);
            }
            return;
        };
        let due_ns = since_ns + self.limits.timeout_ns;
        if due_ns > now_ns {
            return timer.arm(due_ns);
        }
        timer.arm(now_ns + self.limits.timeout_ns);
        // Without memory it is looked for the next time.
        if let Ok(work) = Work::prepare(look_for_timeouts) {
            work.queue(self.clone());
        }
    }

    /// Called now and then by a timer: tells the driver when nothing has moved for the device's limit.
    pub fn check_timeouts(&self, now_ns: u64) -> Option<TimeoutVerdict> {
        let since_ns = self.outstanding.silent_since()?;
        if now_ns.saturating_sub(since_ns) < self.limits.timeout_ns {
            return None;
        }
        let verdict = self.driver.timed_out(since_ns);
        self.outstanding.progressed(now_ns);
        Some(verdict)
    }
}
