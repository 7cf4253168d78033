//! The driver of a controller: start, requests, completions, time-outs, removal.
//!
//! # Queues
//! A pair of queues for each processor, if the controller has as many and as many interrupts; else fewer, or one interrupt for all. All namespaces share them.
//! A pair has a thread that its interrupt wakes; it takes commands back and ends them, so that whoever is told may sleep and submit more.
//!
//! # States
//! *Working*; *held* and *frozen*, between the two ends of a recovery, see [`recovery`](crate::recovery): requests wait; *restarting*: it is switched off and on again while
//! requests wait; *failed*, when it broke the rules or could not be started again: everything fails with `EIO`; *gone*: everything fails with `ENODEV`. The last
//! two are final.
//!
//! # Time-outs
//! First the queues are looked at without an interrupt, and the controller is asked to abort what it has. If nothing comes of that in the same time again, or
//! it is not at work any more at all, it is restarted, and all that it had fails with `EIO`.
//!
//! # Locking
//! `admin` is held by who changes the state from working to another one and back. A lane's spin lock, inside of it, is held to put a command into its queue and to take one
//! out, and while a doorbell is rung: values must reach the controller in order. The state is looked at under it, and the lanes are emptied one by one after it was
//! changed, so no command is left in a queue of a controller that is not at work.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use block::disk::{self, Description, Disk};
use block::{Queue, Request, TimeoutVerdict};
use device::dma::Buffer;
use device::express::ErrorHandlers;
use device::interrupt::{Claim, Interrupt, Registration, Source};
use device::model::{Binding, BusDevice, DriverError, Number, Numbers};
use device::pci::{Function, table_size};
use device::signal::Signal;
use machine::cpu::{self, CpuId};
use memory::{OutOfMemory, fallible};
use sched::{Completion, Mutex};
use sync::SpinLock;

use crate::admin::Admin;
use crate::command::Ending;
use crate::identity::{self, ControllerIdentity};
use crate::namespace::Namespace;
use crate::queue::{Pair, Trouble};
use crate::registers::Registers;
use crate::transfer::{LIST_BYTES, Transfer};

/// Entries of a queue at most. Each has a list of a kilobyte.
const ENTRIES_MAX: u32 = 64;
/// Commands taken back at a time.
const BATCH: usize = 32;
/// Commands of a queue that are aborted.
const ABORTS_MAX: u16 = 8;

pub(crate) const WORKING: u8 = 0;
/// What it has may end; nothing new begins.
pub(crate) const HELD: u8 = 1;
/// Nothing of it is believed until it was reset.
pub(crate) const FROZEN: u8 = 2;
pub(crate) const RESTARTING: u8 = 3;
pub(crate) const FAILED: u8 = 4;
const GONE: u8 = 5;

/// A pair of queues with what belongs to its slots.
struct Commands {
    pair: Pair<Transfer, Buffer>,
    lists: Buffer,
    /// Somebody found no room. His queue may have nothing under way whose end would have it try again.
    refused: bool,
}

struct Lane {
    commands: SpinLock<Commands>,
    /// Its thread has ended.
    ended: Completion,
}

/// What the block layer knows of the namespaces.
#[derive(Default)]
struct Namespaces {
    queues: Vec<Arc<Queue>>,
    disks: Vec<Arc<Disk>>,
}

/// See the theory of this file.
pub(crate) struct Controller {
    function: Arc<Function>,
    pub(crate) registers: Registers,
    number: Number,
    state: AtomicU8,
    /// Time-outs in a row.
    strikes: AtomicU32,
    pub(crate) admin: Mutex<Admin>,
    lanes: Vec<Lane>,
    signals: Arc<Vec<Signal>>,
    /// How many interrupts there are.
    vectors: usize,
    registrations: SpinLock<Vec<Registration>>,
    namespaces: Mutex<Namespaces>,
    identity: ControllerIdentity,
}

static NUMBERS: Numbers = Numbers::new();

fn exhausted(_: OutOfMemory) -> DriverError {
    DriverError::Exhausted
}

fn make_lane(id: u16, entries: u16) -> Result<Lane, OutOfMemory> {
    let submissions = Buffer::allocate(Pair::<Transfer, Buffer>::submission_bytes(entries))?;
    let completions = Buffer::allocate(Pair::<Transfer, Buffer>::completion_bytes(entries))?;
    let pair = Pair::new(id, entries, submissions, completions)?;
    let lists = Buffer::allocate(pair.places() * LIST_BYTES)?;
    let commands = SpinLock::named("nvme queue", Commands { pair, lists, refused: false });
    Ok(Lane { commands, ended: Completion::default() })
}

/// Interrupts by message that raise signals: one for each, or one for all.
fn connect(function: &Function, signals: &Arc<Vec<Signal>>) -> Option<Vec<Registration>> {
    let interrupts = [signals.len(), 1].into_iter().find_map(|count| {
        let mut interrupts = Vec::with_capacity(count);
        for index in 0..count {
            let cpu = CpuId::from_index(index % cpu::count());
            interrupts.push(Interrupt::allocate_on(Source::Message, cpu)?);
        }
        let by_table = table_size(function) >= count && function.enable_table(&interrupts);
        (by_table || (count == 1 && function.enable_message(&interrupts[0]))).then_some(interrupts)
    })?;
    let is_shared = interrupts.len() < signals.len();
    let mut registrations = Vec::with_capacity(interrupts.len());
    for (index, interrupt) in interrupts.iter().enumerate() {
        let own = signals.clone();
        let handler = Box::new(move || {
            if is_shared {
                own.iter().for_each(Signal::raise)
            } else {
                own[index].raise()
            }
            Claim::Mine
        });
        registrations.push(interrupt.register("nvme", handler)?);
    }
    Some(registrations)
}

impl Controller {
    /// Takes a function that is enabled.
    pub(crate) fn probe(function: &Arc<Function>) -> Result<Arc<Self>, DriverError> {
        let number = NUMBERS.take().ok_or(DriverError::Exhausted)?;
        let registers = Registers::new(function)?;
        let mut admin = Admin::new(&registers)?;
        admin.restart()?;
        let identity = ControllerIdentity::read(&admin.identify(identity::CONTROLLER, 0)?);
        let most = u16::try_from(cpu::count().min(registers.doorbells() - 1)).unwrap_or(u16::MAX);
        let count = admin.set_queue_count(most)?;
        let entries = registers.entries_max().min(ENTRIES_MAX) as u16;
        let mut lanes = fallible::try_vec(count.into()).map_err(exhausted)?;
        for id in 1..=count {
            lanes.push(make_lane(id, entries).map_err(exhausted)?);
        }
        let mut signals = fallible::try_vec(count.into()).map_err(exhausted)?;
        signals.extend((0..count).map(|_| Signal::default()));
        let signals = fallible::try_arc(signals).map_err(exhausted)?;
        let registrations = connect(function, &signals).ok_or(DriverError::Exhausted)?;
        let controller = Arc::new(Self {
            function: function.clone(),
            registers,
            number,
            state: AtomicU8::new(WORKING),
            strikes: AtomicU32::new(0),
            admin: Mutex::named("nvme admin", admin),
            lanes,
            signals,
            vectors: registrations.len(),
            registrations: SpinLock::named("nvme interrupts", registrations),
            namespaces: Mutex::named("nvme namespaces", Namespaces::default()),
            identity,
        });
        let started = controller.start();
        started.inspect_err(|_| controller.end())?;
        Ok(controller)
    }

    /// Has queues, threads and namespaces.
    fn start(self: &Arc<Self>) -> Result<(), DriverError> {
        let created = self.create_queues(&mut self.admin.lock());
        for index in 0..self.lanes.len() {
            let own = self.clone();
            let serve = Box::new(move || own.serve(index));
            if sched::spawn(sched::Builder::new("nvme"), serve).is_err() {
                self.lanes[index..].iter().for_each(|lane| lane.ended.complete());
                return Err(DriverError::Exhausted);
            }
        }
        created?;
        let list = self.admin.lock().identify(identity::NAMESPACES, 0)?;
        let (number, model) = (self.number.value(), &self.identity.model);
        log::info!("nvme{number}: {model}, {} queues, {} interrupts", self.lanes.len(), self.vectors);
        for id in identity::namespaces(&list).map_err(exhausted)? {
            if let Err(error) = self.attach(id) {
                log::error!("nvme{number}n{id}: {error:?}");
            }
        }
        Ok(())
    }

    fn create_queues(&self, admin: &mut Admin) -> Result<(), DriverError> {
        for (index, lane) in self.lanes.iter().enumerate() {
            let vector = if self.vectors == 1 { 0 } else { index as u16 };
            // Copied out: a spin lock is not held while the controller answers.
            let placement = lane.commands.lock().pair.placement();
            admin.create(placement, vector)?;
        }
        Ok(())
    }

    /// Makes a namespace known.
    fn attach(self: &Arc<Self>, id: u32) -> Result<(), DriverError> {
        let bytes = self.admin.lock().identify(identity::NAMESPACE, id)?;
        let mut identity =
            identity::read_namespace(&bytes, &self.identity).ok_or(DriverError::NotSupported)?;
        let places = self.lanes[0].commands.lock().pair.places();
        identity.limits.depth = (places * self.lanes.len()) as u32;
        let number = self.number.value();
        let driver = fallible::try_arc(Namespace { controller: self.clone(), id, identity });
        let queue = Queue::new(driver.map_err(exhausted)?).map_err(|_| DriverError::NotSupported)?;
        queue.watch().map_err(|_| DriverError::Exhausted)?;
        self.namespaces.lock().queues.push(queue.clone());
        let description = Description {
            family: disk::NVME,
            parent: format!("{}/nvme/nvme{number}", BusDevice::path(&*self.function)),
            serial: self.identity.serial.clone(),
            removable: false,
        };
        let name = format!("nvme{number}n{id}");
        let disk =
            disk::attach_by_driver(description, Some(&name), queue).map_err(|_| DriverError::Exhausted)?;
        self.namespaces.lock().disks.push(disk);
        Ok(())
    }

    /// What its directory below `/sys` shows, as Linux's does.
    pub(crate) fn details(&self) -> Vec<(&'static str, String)> {
        let ControllerIdentity { model, serial, firmware, id, .. } = &self.identity;
        let state = match self.state() {
            FAILED => "dead",
            GONE => "deleting",
            WORKING => "live",
            _ => "resetting",
        };
        let queues = self.lanes.len() + 1;
        let texts = [
            ("model", model.clone()),
            ("serial", serial.clone()),
            ("firmware_rev", firmware.clone()),
            ("cntlid", format!("{id}")),
            ("address", format!("{}", self.function.address())),
            ("transport", "pcie".into()),
            ("state", state.into()),
            ("queue_count", format!("{queues}")),
        ];
        texts.into()
    }

    pub(crate) fn state(&self) -> u8 {
        self.state.load(Ordering::Acquire)
    }

    /// Changes the state, if it is this one. With `admin` held, but to the final ones.
    pub(crate) fn exchange(&self, from: u8, to: u8) -> Result<u8, u8> {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire)
    }

    /// How it is called.
    pub(crate) fn number(&self) -> u32 {
        self.number.value()
    }

    fn error(state: u8) -> block::Error {
        if state == GONE { block::Error::NoDevice } else { block::Error::Io }
    }

    /// Begins a request of a namespace.
    ///
    /// # Errors
    /// The request, when there is no room for it now.
    pub(crate) fn submit(&self, namespace: &Namespace, cpu: usize, request: Request) -> Result<(), Request> {
        let transfer = match Transfer::prepare(request) {
            Ok(transfer) => transfer,
            Err(request) => {
                request.complete(Err(block::Error::OutOfMemory));
                return Ok(());
            }
        };
        let index = cpu % self.lanes.len();
        let mut commands = self.lanes[index].commands.lock();
        let Commands { pair, lists, refused } = &mut *commands;
        let state = self.state();
        if state == FAILED || state == GONE {
            drop(commands);
            transfer.into_request().complete(Err(Self::error(state)));
            return Ok(());
        }
        let make = |number: u16, transfer: &Transfer| {
            namespace.command(transfer, lists, usize::from(number) * LIST_BYTES)
        };
        let added = if state == WORKING { pair.add(transfer, make) } else { Err(transfer) };
        match added {
            Ok(tail) => {
                self.registers.ring_submissions(pair.id(), tail);
                Ok(())
            }
            Err(transfer) => {
                *refused = true;
                drop(commands);
                Err(transfer.into_request())
            }
        }
    }

    fn serve(self: Arc<Self>, index: usize) {
        let mut batch = Vec::new();
        if fallible::try_reserve(&mut batch, BATCH).is_err() {
            log::error!("nvme{}: no memory for completions", self.number.value());
            self.fail(FAILED);
        }
        loop {
            self.signals[index].wait();
            if self.state() == GONE {
                break;
            }
            while self.complete(index, &mut batch) {}
        }
        self.lanes[index].ended.complete();
    }

    /// Ends what the controller has given back in a queue. True if there may be more.
    fn complete(&self, index: usize, batch: &mut Vec<(Transfer, Ending)>) -> bool {
        let mut trouble = None;
        let mut commands = self.lanes[index].commands.lock();
        if !matches!(self.state(), WORKING | HELD) {
            return false;
        }
        while batch.len() < batch.capacity() && trouble.is_none() {
            match commands.pair.take() {
                Ok(Some(ended)) => batch.push(ended),
                Ok(None) => break,
                Err(what) => trouble = Some(what),
            }
        }
        if !batch.is_empty() {
            self.registers.ring_completions(commands.pair.id(), commands.pair.head());
            self.strikes.store(0, Ordering::Relaxed);
        }
        let refused = !batch.is_empty() && core::mem::take(&mut commands.refused);
        drop(commands);
        let more = batch.len() == batch.capacity();
        batch.drain(..).for_each(|(transfer, ending)| transfer.complete(ending.outcome()));
        if let Some(what) = trouble {
            self.break_off(what);
        } else if refused {
            self.run_queues();
        }
        more
    }

    fn break_off(&self, trouble: Trouble) {
        log::error!("nvme{}: the controller breaks the rules: {trouble:?}", self.number.value());
        self.fail(FAILED);
    }

    /// Has requests that wait tried again.
    pub(crate) fn run_queues(&self) {
        self.namespaces.lock().queues.iter().for_each(Queue::run);
    }

    /// Ends all that the controller has, which is stopped, or has it wait to be tried again.
    fn empty_lanes(&self, end: impl Fn(Request)) {
        for lane in &self.lanes {
            loop {
                let transfer = lane.commands.lock().pair.take_away();
                let Some(transfer) = transfer else { break };
                end(transfer.into_request());
            }
        }
    }

    /// The controller works no more: stops it and ends all that it has.
    pub(crate) fn fail(&self, state: u8) {
        self.state.fetch_max(state, Ordering::AcqRel);
        self.admin.lock().stop(state == GONE);
        self.empty_lanes(|request| request.complete(Err(Self::error(state))));
        self.run_queues();
    }

    /// See the theory of this file.
    pub(crate) fn timed_out(&self) -> TimeoutVerdict {
        self.signals.iter().for_each(Signal::raise);
        if self.state() != WORKING {
            return TimeoutVerdict::Handled;
        }
        if self.registers.is_gone() {
            log::error!("nvme{}: it does not answer any more", self.number.value());
            self.fail(GONE);
            return TimeoutVerdict::Handled;
        }
        let is_first = self.strikes.fetch_add(1, Ordering::Relaxed) == 0;
        if is_first && self.registers.is_ready() && self.abort_all().is_ok() {
            log::warn!("nvme{}: requests take long", self.number.value());
            return TimeoutVerdict::MoreTime;
        }
        self.restart();
        TimeoutVerdict::Handled
    }

    /// Asks for the end of some of what is under way in each queue.
    fn abort_all(&self) -> Result<(), DriverError> {
        let mut admin = self.admin.lock();
        for lane in &self.lanes {
            let mut from = 0;
            for _ in 0..ABORTS_MAX {
                let (id, number) = {
                    let commands = lane.commands.lock();
                    (commands.pair.id(), commands.pair.under_way(from))
                };
                let Some(number) = number.filter(|_| self.state() == WORKING) else { break };
                admin.abort(id, number)?;
                from = number + 1;
            }
        }
        Ok(())
    }

    /// Switches the controller off and on again.
    fn restart(&self) {
        log::error!("nvme{}: the controller does not answer; it is restarted", self.number.value());
        {
            let mut admin = self.admin.lock();
            if self.exchange(WORKING, RESTARTING).is_err() {
                return;
            }
            let fail = |request: Request| request.complete(Err(block::Error::Io));
            let to = if self.start_again(&mut admin, fail) { WORKING } else { FAILED };
            // It may be gone meanwhile: then nothing may be left in the queues, and nothing is.
            let _ = self.exchange(RESTARTING, to);
        }
        self.strikes.store(0, Ordering::Relaxed);
        self.run_queues();
    }

    /// Switches the controller off, does this with all that it had, and switches it on with empty queues; with `admin` held, in the state of restarting. Whether that can
    /// be done; if not, it is off.
    pub(crate) fn start_again(&self, admin: &mut Admin, end: impl Fn(Request)) -> bool {
        admin.stop(false);
        self.empty_lanes(end);
        self.lanes.iter().for_each(|lane| lane.commands.lock().pair.restart());
        let restarted = admin.restart().and_then(|()| {
            let count = admin.set_queue_count(self.lanes.len() as u16)?;
            if usize::from(count) < self.lanes.len() {
                return Err(DriverError::NotSupported);
            }
            self.create_queues(admin)
        });
        if let Err(error) = restarted {
            log::error!("nvme{}: it can't be started again: {error:?}", self.number.value());
            admin.stop(false);
        }
        restarted.is_ok()
    }

    /// Has the function interrupt as before, after a reset of the function has made it forget how. False if it won't. With `admin` held.
    pub(crate) fn interrupt_again(&self) -> bool {
        // Nobody else takes them: that is done after the controller was stopped.
        let registrations = core::mem::take(&mut *self.registrations.lock());
        let interrupts: Vec<_> =
            registrations.iter().map(|registration| registration.interrupt().clone()).collect();
        *self.registrations.lock() = registrations;
        let by_table =
            table_size(&self.function) >= interrupts.len() && self.function.enable_table(&interrupts);
        by_table || (interrupts.len() == 1 && self.function.enable_message(&interrupts[0]))
    }

    /// Has the threads look at the queues.
    pub(crate) fn look(&self) {
        self.strikes.store(0, Ordering::Relaxed);
        self.signals.iter().for_each(Signal::raise);
    }

    /// Ends everything: the controller, the threads, the interrupts.
    fn end(&self) {
        self.fail(GONE);
        self.signals.iter().for_each(Signal::raise);
        self.lanes.iter().for_each(|lane| lane.ended.wait());
        let registrations = core::mem::take(&mut *self.registrations.lock());
        drop(registrations);
        // The queues have the driver, which has this.
        let namespaces = core::mem::take(&mut *self.namespaces.lock());
        drop(namespaces);
    }
}

impl Binding for Controller {
    fn remove(&self) {
        let disks = core::mem::take(&mut self.namespaces.lock().disks);
        // What is under way ends before anybody is told that the disk is gone: he may wait for it.
        disks.iter().for_each(|disk| disk.queue().remove());
        self.end();
        self.function.disable_messages();
        self.function.disable();
        disks.iter().for_each(disk::detach);
        self.number.release();
    }

    fn error_handlers(&self) -> Option<&dyn ErrorHandlers> {
        Some(self)
    }
}
