//! The driver of a disk: start, requests, completions, time-outs, removal.
//!
//! # Threads
//! A queue has a thread that its interrupt wakes; it takes requests back and ends them, so that whoever is told may sleep and submit more. That of the first
//! queue also looks at the configuration when that has changed.
//!
//! # States
//! *Working*; *held* and *frozen*, between the two ends of a recovery, see [`recovery`](super::recovery): requests wait; *failed*, when the device broke the rules, asked for a
//! reset or did not answer twice the time a request has: it was reset, and everything fails with `EIO`; *gone*: everything fails with `ENODEV`. The last two
//! are final.
//!
//! # Locking
//! A lane's spin lock is held to put a request into its ring and to take one out. The state is looked at under it, and the lanes are emptied one by one after it was
//! changed, so nothing is left in a ring whose device is not at work. `changing` is held around that lock by who stops the device or starts it again.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use block::disk::{self, Description, Disk};
use block::{Driver, Limits, Queue, Request, TimeoutVerdict};
use device::dma::Buffer;
use device::express::ErrorHandlers;
use device::model::{Binding, DriverError};
use machine::cpu;
use memory::fallible;
use sched::{Completion, Mutex};
use sync::SpinLock;

use super::lane::{Ended, IDENTITY_BYTES, Lane, prepare};
use super::layout::{self, Layout};
use crate::signal::Signals;
use crate::start::{self, feature};
use crate::transport::{Connection, Notifier, Status, Transport};

/// Descriptors of a ring at most. Each has a table of 2 KiB.
const RING_MAX: u16 = 128;
/// Requests taken back at a time.
const BATCH: usize = 32;
/// How long the device may take to tell its name.
const IDENTIFY_NS: u64 = 5_000_000_000;
/// Between looks whether it has: twice as long each time.
const PAUSE_NS: u64 = 50_000;
const PAUSE_MAX_NS: u64 = 1_000_000;

pub(super) const WORKING: u8 = 0;
/// What it has may end; nothing new begins.
pub(super) const HELD: u8 = 1;
/// Nothing of it is believed until it was reset.
pub(super) const FROZEN: u8 = 2;
pub(super) const FAILED: u8 = 3;
const GONE: u8 = 4;

struct Entry {
    lane: SpinLock<Lane>,
    notifier: Notifier,
    /// Its thread has ended.
    ended: Completion,
}

/// A disk of a virtual machine.
pub(super) struct VirtioDisk {
    pub(super) transport: Box<dyn Transport>,
    features: u64,
    layout: Layout,
    /// Of a ring, at most.
    ring: u16,
    entries: Vec<Entry>,
    signals: Arc<Signals>,
    state: AtomicU8,
    pub(super) changing: Mutex<()>,
    /// Time-outs in a row.
    strikes: AtomicU32,
    connection: SpinLock<Option<Connection>>,
    attached: Mutex<Option<Arc<Disk>>>,
}

/// Takes a device that is a disk.
pub(crate) fn probe(transport: Box<dyn Transport>) -> Result<Arc<dyn Binding>, DriverError> {
    match VirtioDisk::start(transport) {
        Ok(disk) => disk.attach(),
        Err((transport, error)) => {
            start::stop(&*transport, "virtio-blk");
            transport.disconnect();
            start::give_up(&*transport);
            Err(error)
        }
    }
}

/// What there is before the queues are.
struct Begun {
    features: u64,
    layout: Layout,
    connection: Connection,
    signals: Arc<Signals>,
    queues: u16,
    ring: u16,
}

fn begin(transport: &dyn Transport) -> Result<Begun, DriverError> {
    let features = start::negotiate(transport, layout::feature::ALL)?;
    let ring =
        start::size_of_queue(transport.queue_size_max(0), RING_MAX).ok_or(DriverError::NotSupported)?;
    let indirect = features & feature::INDIRECT != 0;
    let layout =
        start::read_configuration(transport, |window| layout::read(window, features, indirect, ring))
            .ok_or(DriverError::NotSupported)?;
    let queues = layout.queues.min(u16::try_from(cpu::count()).unwrap_or(u16::MAX)).max(1);
    let signals = Signals::new(queues.into(), |queue| alloc::format!("req.{queue}"))
        .map_err(|_| DriverError::Exhausted)?;
    let signals = fallible::try_arc(signals).map_err(|_| DriverError::Exhausted)?;
    let connection = transport.connect(queues.into(), signals.clone()).ok_or(DriverError::Exhausted)?;
    Ok(Begun { features, layout, connection, signals, queues, ring })
}

fn start_lanes(transport: &dyn Transport, begun: &Begun) -> Result<Vec<Entry>, DriverError> {
    let mut entries = Vec::with_capacity(begun.queues.into());
    for queue in 0..begun.queues {
        let (lane, notifier) = Lane::start(transport, queue, begun.features, begun.ring, &begun.layout)?;
        let lane = SpinLock::named("virtio disk queue", lane);
        entries.push(Entry { lane, notifier, ended: Completion::default() });
    }
    Ok(entries)
}

impl VirtioDisk {
    /// The transport comes back to be stopped.
    fn start(transport: Box<dyn Transport>) -> Result<Arc<Self>, (Box<dyn Transport>, DriverError)> {
        let begun = match begin(&*transport) {
            Ok(begun) => begun,
            Err(error) => return Err((transport, error)),
        };
        let entries = match start_lanes(&*transport, &begun) {
            Ok(entries) => entries,
            Err(error) => return Err((transport, error)),
        };
        let Begun { features, mut layout, connection, signals, ring, .. } = begun;
        layout.limits.depth *= entries.len() as u32;
        start::go(&*transport);
        Ok(Arc::new(Self {
            transport,
            features,
            layout,
            ring,
            entries,
            signals,
            state: AtomicU8::new(WORKING),
            changing: Mutex::named("virtio disk's reset", ()),
            strikes: AtomicU32::new(0),
            connection: SpinLock::named("virtio interrupts", Some(connection)),
            attached: Mutex::named("virtio disk", None),
        }))
    }

    /// Starts the threads and makes the disk known.
    fn attach(self: Arc<Self>) -> Result<Arc<dyn Binding>, DriverError> {
        let serial = self.identify();
        for index in 0..self.entries.len() {
            let own = self.clone();
            let serve = Box::new(move || own.serve(index));
            if sched::spawn(sched::Builder::new("virtio-blk"), serve).is_err() {
                (index..self.entries.len()).for_each(|index| self.entries[index].ended.complete());
                self.end(GONE);
                return Err(DriverError::Exhausted);
            }
        }
        let description =
            Description { family: disk::VIRTIO, parent: self.transport.path(), serial, removable: false };
        let driver: Arc<dyn Driver> = self.clone();
        let attached = Queue::new(driver).and_then(|queue| {
            queue.watch()?;
            disk::attach_by_driver(description, None, queue)
        });
        match attached {
            Ok(attached) => {
                let limits = attached.queue().limits();
                let (name, queues) = (attached.name(), self.entries.len());
                log::info!("{name}: {} sectors, {queues} queues of {}", limits.sectors, limits.depth);
                *self.attached.lock() = Some(attached);
                Ok(self)
            }
            Err(error) => {
                log::error!("virtio disk: {error}");
                self.end(GONE);
                Err(DriverError::Exhausted)
            }
        }
    }

    /// The name that the device was given, asked for before anything else is.
    fn identify(&self) -> String {
        let Ok(buffer) = Buffer::allocate(IDENTITY_BYTES) else { return String::new() };
        let lane = &self.entries[0].lane;
        {
            let mut lane = lane.lock();
            if !lane.add_identify(&buffer) {
                return String::new();
            }
            lane.publish();
        }
        self.entries[0].notifier.notify();
        let until_ns = machine::time::now_ns() + IDENTIFY_NS;
        let mut pause_ns = PAUSE_NS;
        loop {
            let taken = lane.lock().take();
            match taken {
                Ok(Some(_)) => break,
                Ok(None) if machine::time::now_ns() < until_ns => {
                    sched::timer::sleep_until_uninterruptible(machine::time::now_ns() + pause_ns);
                    pause_ns = (2 * pause_ns).min(PAUSE_MAX_NS);
                }
                Ok(None) | Err(_) => {
                    log::error!("virtio disk: it does not tell its name");
                    // The buffer is the device's until it was reset.
                    self.fail(FAILED);
                    return String::new();
                }
            }
        }
        let mut bytes = [0; IDENTITY_BYTES];
        buffer.read(0, &mut bytes);
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        text.iter()
            .filter(|byte| byte.is_ascii_graphic() || **byte == b' ')
            .map(|byte| char::from(*byte))
            .collect()
    }

    fn serve(self: Arc<Self>, index: usize) {
        let mut batch = Vec::new();
        if fallible::try_reserve(&mut batch, BATCH).is_err() {
            log::error!("virtio disk: no memory for completions");
            self.fail(FAILED);
        }
        loop {
            self.signals.of(index).wait();
            if self.state() == GONE {
                break;
            }
            self.complete(index, &mut batch);
            if index == 0 && self.signals.take_change() {
                self.changed();
            }
        }
        self.entries[index].ended.complete();
    }

    /// Ends what the device has given back in a queue, and asks for an interrupt for the next. True if there was something.
    fn complete(&self, index: usize, batch: &mut Vec<Ended>) -> bool {
        let mut any = false;
        loop {
            let mut lane = self.entries[index].lane.lock();
            if !matches!(self.state(), WORKING | HELD) {
                return any;
            }
            lane.refuse_interrupts();
            let mut trouble = None;
            while batch.len() < batch.capacity() {
                match lane.take() {
                    Ok(Some(ended)) => batch.extend(ended),
                    Ok(None) => break,
                    Err(what) => {
                        trouble = Some(what);
                        break;
                    }
                }
            }
            let more = batch.len() == batch.capacity() || (trouble.is_none() && lane.want_interrupt());
            drop(lane);
            any |= !batch.is_empty();
            batch.drain(..).for_each(Ended::complete);
            if let Some(what) = trouble {
                log::error!("virtio disk: the device breaks the rules: {what:?}");
                self.fail(FAILED);
                return true;
            }
            if any {
                self.strikes.store(0, Ordering::Relaxed);
            }
            if !more {
                return any;
            }
        }
    }

    /// The device says that something about it has changed.
    fn changed(&self) {
        let status = self.transport.status();
        if status != u8::MAX && status & Status::NEEDS_RESET != 0 {
            log::error!("virtio disk: the device asks to be reset");
            self.fail(FAILED);
            return;
        }
        let sectors = start::read_configuration(&*self.transport, layout::sectors);
        let attached = self.attached.lock();
        if let Some(attached) = attached.as_ref().filter(|disk| disk.queue().sectors() != sectors) {
            disk::resize(attached, sectors);
        }
    }

    pub(super) fn state(&self) -> u8 {
        self.state.load(Ordering::Acquire)
    }

    /// Changes the state, if it is this one.
    pub(super) fn exchange(&self, from: u8, to: u8) -> Result<u8, u8> {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
    }

    fn error(state: u8) -> block::Error {
        if state == GONE { block::Error::NoDevice } else { block::Error::Io }
    }

    /// The device works no more: stops it and ends all that it has.
    pub(super) fn fail(&self, state: u8) {
        self.state.fetch_max(state, Ordering::AcqRel);
        {
            let _changing = self.changing.lock();
            start::stop(&*self.transport, "virtio disk");
        }
        self.empty_lanes(|request| request.complete(Err(Self::error(state))));
        self.run();
    }

    /// Does this with all that the device has, which was reset.
    fn empty_lanes(&self, end: impl Fn(Request)) {
        for entry in &self.entries {
            loop {
                let request = entry.lane.lock().take_away();
                let Some(request) = request else { break };
                end(request);
            }
        }
    }

    /// Has requests that wait tried again.
    pub(super) fn run(&self) {
        let queue = self.attached.lock().as_ref().map(|disk| disk.queue().clone());
        if let Some(queue) = queue {
            queue.run();
        }
    }

    /// Resets the device, has what it had wait to be tried again, and gives the device new queues, which it may use at once. With `changing` held, frozen.
    ///
    /// # Errors
    /// [`DriverError`]; it was reset all the same, or cut off from memory.
    pub(super) fn start_again(&self) -> Result<(), DriverError> {
        start::stop(&*self.transport, "virtio disk");
        self.empty_lanes(Request::try_again);
        if start::negotiate(&*self.transport, self.features)? != self.features {
            return Err(DriverError::NotSupported);
        }
        // Nobody else takes it: that is done after the device was stopped, for which `changing` is held.
        let connection = self.connection.lock().take();
        let is_connected =
            connection.as_ref().is_some_and(|connection| self.transport.connect_again(connection));
        *self.connection.lock() = connection;
        if !is_connected {
            return Err(DriverError::Broken);
        }
        for (queue, entry) in self.entries.iter().enumerate() {
            // The device is notified of the queue where it was before.
            let (lane, _) =
                Lane::start(&*self.transport, queue as u16, self.features, self.ring, &self.layout)?;
            let old = core::mem::replace(&mut *entry.lane.lock(), lane);
            drop(old);
        }
        start::go(&*self.transport);
        Ok(())
    }

    /// Has the threads look at the queues and at the configuration.
    pub(super) fn look(&self) {
        self.strikes.store(0, Ordering::Relaxed);
        crate::transport::Handlers::configuration(&*self.signals);
        self.signals.raise_all();
    }

    /// Ends everything: the device, the threads, the interrupts.
    fn end(&self, state: u8) {
        self.fail(state);
        self.signals.raise_all();
        self.entries.iter().for_each(|entry| entry.ended.wait());
        let connection = self.connection.lock().take();
        drop(connection);
        self.transport.disconnect();
        self.transport.shut_off();
    }
}

impl Driver for VirtioDisk {
    fn limits(&self) -> Limits {
        self.layout.limits
    }

    fn submit(&self, cpu: usize, request: Request) -> Result<(), Request> {
        let prepared = match prepare(request, &self.layout) {
            Ok(prepared) => prepared,
            Err(request) => {
                request.complete(Err(block::Error::OutOfMemory));
                return Ok(());
            }
        };
        let entry = &self.entries[cpu % self.entries.len()];
        let mut lane = entry.lane.lock();
        let state = self.state();
        if state != WORKING {
            drop(lane);
            let request = prepared.into_request();
            if state < FAILED {
                return Err(request);
            }
            request.complete(Err(Self::error(state)));
            return Ok(());
        }
        let added = lane.add(prepared);
        let notify = lane.publish();
        drop(lane);
        if notify {
            entry.notifier.notify();
        }
        added.map_err(|prepared| prepared.into_request())
    }

    /// Looks whether an interrupt was lost. A device that does not answer in twice the time of a request has failed.
    fn timed_out(&self, _since_ns: u64) -> TimeoutVerdict {
        if matches!(self.state(), HELD | FROZEN) {
            return TimeoutVerdict::MoreTime;
        }
        self.signals.raise_all();
        if self.strikes.fetch_add(1, Ordering::Relaxed) == 0 {
            log::warn!("virtio disk: requests take long");
            return TimeoutVerdict::MoreTime;
        }
        log::error!("virtio disk: the device does not answer");
        self.fail(FAILED);
        TimeoutVerdict::Handled
    }
}

impl Binding for VirtioDisk {
    fn remove(&self) {
        let attached = self.attached.lock().take();
        // What is under way ends before anybody is told that the disk is gone: he may wait for it.
        if let Some(attached) = &attached {
            attached.queue().remove();
        }
        self.end(GONE);
        if let Some(attached) = attached {
            disk::detach(&attached);
        }
    }

    fn error_handlers(&self) -> Option<&dyn ErrorHandlers> {
        Some(self)
    }
}
