//! A device: registers, and a thread that does with its queues what its character says.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use device::dma::witness::{self, Witness};
use device::interrupt::{Claim, Interrupt, Source};
use device::mmio::Window;
use sched::Completion;
use sync::SpinLock;

use super::queue::{Held, Queue};
use super::random::Random;
use crate::ring::Addresses;
use crate::start::feature;
use crate::transport::{Connection, Handlers, Notifier, Status, Transport};

/// Bytes of a configuration.
const CONFIGURATION_BYTES: usize = 64;
/// What an interrupt is for if for no queue.
const CONFIGURATION_CHANGED: usize = usize::MAX;

/// What happens when the device is to be reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reset {
    AtOnce,
    /// After so many looks at the status.
    Late(u32),
    Never,
    /// It looks as if it had been pulled out, and goes on.
    Denied,
}

/// How a device is.
#[derive(Clone, Debug)]
pub(super) struct Character {
    pub(super) features: u64,
    /// It takes what it is told that it shall do.
    pub(super) is_agreeable: bool,
    /// What it says of the sizes of its queues, in turn.
    pub(super) sizes: Vec<u16>,
    /// A queue that it does not start, or says so.
    pub(super) refused: Option<u16>,
    pub(super) reset: Reset,
    /// One in so many acts breaks the rules; 0: none does.
    pub(super) lies: u64,
    /// One in so many buffers is kept for ever, and now and then an interrupt is left out; 0: none is.
    pub(super) keeps: u64,
    /// One in so many acts changes the configuration or the status; 0: none does.
    pub(super) moods: u64,
    /// It never writes anything.
    pub(super) is_empty: bool,
    pub(super) has_interrupt: bool,
}

impl Character {
    /// One that keeps to the rules.
    pub(super) fn good(kind: u32) -> Self {
        let features = feature::VERSION_1 | feature::INDIRECT | features_of(kind);
        Self {
            features,
            is_agreeable: true,
            sizes: alloc::vec![128],
            refused: None,
            reset: Reset::AtOnce,
            lies: 0,
            keeps: 0,
            moods: 0,
            is_empty: false,
            has_interrupt: true,
        }
    }

    /// Any.
    pub(super) fn any(kind: u32, random: &mut Random) -> Self {
        let general = feature::INDIRECT | feature::EVENT_INDEX | feature::PACKED | feature::ACCESS_PLATFORM;
        let mut features = feature::VERSION_1 | random.next() & (general | features_of(kind));
        if random.once_in(16) {
            features = random.next();
        }
        let sizes = (0..=random.below(3)).map(|_| match random.below(6) {
            0 => random.next() as u16,
            1 => random.below(9) as u16,
            _ => 1 << (1 + random.below(8)),
        });
        let sizes = sizes.collect();
        let reset = match random.below(8) {
            0 => Reset::Never,
            1 => Reset::Denied,
            2 => Reset::Late(random.below(3000) as u32),
            _ => Reset::AtOnce,
        };
        Self {
            features,
            is_agreeable: !random.once_in(32),
            sizes,
            refused: random.once_in(12).then(|| random.below(6) as u16),
            reset,
            lies: random.of(&[0, 0, 4, 20, 100]),
            keeps: random.of(&[0, 0, 1, 3, 20]),
            moods: random.of(&[0, 5, 50]),
            is_empty: random.once_in(32),
            has_interrupt: !random.once_in(32),
        }
    }
}

/// Features that a device of a kind can have.
fn features_of(kind: u32) -> u64 {
    match kind {
        2 => 0x7646,
        3 => 3,
        5 => 6,
        9 => 1,
        _ => 0,
    }
}

struct State {
    random: Random,
    status: u8,
    accepted: u64,
    /// Looks at the status until a reset is done.
    looks: Option<u32>,
    queues: BTreeMap<u16, Queue>,
    is_cut_off: bool,
    interrupt: Option<Arc<Interrupt>>,
}

/// See the theory of this file.
pub(super) struct Device {
    pub(super) kind: u32,
    pub(super) seed: u64,
    pub(super) character: Character,
    pub(super) witness: Arc<Witness>,
    pub(super) configuration: Window,
    doorbell: Window,
    state: SpinLock<State>,
    /// What the interrupt under way is for.
    why: Arc<AtomicUsize>,
    over: AtomicBool,
    ended: Completion,
}

/// Windows are never freed, but used again.
static WINDOWS: SpinLock<Vec<Window>> = SpinLock::named("windows of fake devices", Vec::new());

impl Device {
    pub(super) fn new(kind: u32, seed: u64, character: Character, mut random: Random) -> Arc<Self> {
        let window = || {
            let known = WINDOWS.lock().pop();
            known.unwrap_or_else(|| Window::fake(CONFIGURATION_BYTES))
        };
        let configuration = window();
        for word in 0..CONFIGURATION_BYTES / 2 {
            let value = if random.once_in(8) { random.next() as u16 } else { random.below(16) as u16 };
            configuration.write_u16(word * 2, value);
        }
        configure(kind, &configuration, &mut random);
        let state = State {
            random,
            status: 0,
            accepted: 0,
            looks: None,
            queues: BTreeMap::new(),
            is_cut_off: false,
            interrupt: None,
        };
        Arc::new(Self {
            kind,
            seed,
            character,
            witness: Witness::new(),
            configuration,
            doorbell: window(),
            state: SpinLock::named("fake device", state),
            why: Arc::new(AtomicUsize::new(0)),
            over: AtomicBool::new(false),
            ended: Completion::new(),
        })
    }

    /// Its directory, which no other one has.
    pub(super) fn path(&self) -> String {
        format!("/devices/fake/{}-{}", self.kind, self.seed)
    }

    /// Has it do something from time to time.
    pub(super) fn start(self: &Arc<Self>) {
        let own = self.clone();
        let live = Box::new(move || {
            while !own.over.load(Ordering::Acquire) {
                let pause_ns = own.act();
                sched::timer::sleep_until_uninterruptible(machine::time::now_ns() + pause_ns);
            }
            own.ended.complete();
        });
        sched::spawn(sched::Builder::new("device"), live).expect("memory for a test's thread");
    }

    /// Has it do nothing any more.
    pub(super) fn finish(&self) {
        self.over.store(true, Ordering::Release);
        self.ended.wait();
        let interrupt = self.state.lock().interrupt.take();
        drop(interrupt);
        let mut windows = WINDOWS.lock();
        windows.push(self.configuration);
        windows.push(self.doorbell);
    }

    /// Acts, and says how long to wait before the next time.
    fn act(&self) -> u64 {
        let mut interrupts = Vec::new();
        let pause_ns = {
            let mut state = self.state.lock();
            let State { random, queues, status, is_cut_off, .. } = &mut *state;
            if !*is_cut_off && *status & Status::DRIVER_OK != 0 {
                queues.values_mut().for_each(Queue::fetch);
                for _ in 0..=random.below(6) {
                    self.act_once(random, queues, status, &mut interrupts);
                }
            }
            10_u64.pow(3 + random.below(6) as u32)
        };
        for why in interrupts {
            let interrupt = self.state.lock().interrupt.clone();
            self.why.store(why, Ordering::Release);
            if let Some(interrupt) = interrupt {
                interrupt.simulate();
            }
        }
        pause_ns
    }

    fn act_once(
        &self,
        random: &mut Random,
        queues: &mut BTreeMap<u16, Queue>,
        status: &mut u8,
        interrupts: &mut Vec<usize>,
    ) {
        let Character { lies, keeps, moods, .. } = self.character;
        let happens = |random: &mut Random, once_in| once_in != 0 && random.once_in(once_in);
        if happens(random, moods) {
            interrupts.push(CONFIGURATION_CHANGED);
            match random.below(8) {
                0 => *status |= Status::NEEDS_RESET,
                1 => self.configuration.write_u8(random.below(64) as usize, random.next() as u8),
                2..=4 => configure(self.kind, &self.configuration, random),
                _ => {}
            }
        }
        let numbers: Vec<u16> = queues.keys().copied().collect();
        if numbers.is_empty() {
            return;
        }
        let number = random.of(&numbers);
        let queue = queues.get_mut(&number).expect("the device knows its queues");
        if happens(random, lies) {
            lie(queue, random);
            interrupts.push(number.into());
            return;
        }
        if queue.held.is_empty() {
            return;
        }
        let at = random.below(queue.held.len() as u64) as usize;
        let held = queue.held.swap_remove(at);
        if happens(random, keeps) {
            queue.kept.push(held);
            return;
        }
        let is_empty = self.character.is_empty;
        let written = if is_empty { 0 } else { answer(self.kind, number, &held, random) };
        queue.give_back(held, written);
        // One that forgets buffers forgets interrupts, too.
        if keeps == 0 || !random.once_in(32) {
            interrupts.push(number.into());
        }
    }
}

/// Breaks the rules.
fn lie(queue: &mut Queue, random: &mut Random) {
    let at = queue.held.len().checked_sub(1).map(|last| random.below(last as u64 + 1) as usize);
    match (random.below(6), at) {
        (0, Some(at)) => {
            let held = queue.held.swap_remove(at);
            let most = 1 << random.below(30);
            let written = held.room() as u32 + 1 + random.below(most) as u32;
            queue.give_back(held, written);
        }
        (1, Some(at)) => {
            let number = queue.held[at].number;
            let held = queue.held.swap_remove(at);
            queue.give_back(held, 0);
            queue.claim_used(number.into(), 1, 0);
        }
        (2 | 3, _) => queue.claim_used(random.next() as u32, 1, random.next() as u32),
        (4, _) => queue.claim_used(random.below(200) as u32, 1, random.below(64) as u32),
        _ => {
            for _ in 0..=random.below(8) {
                let value = random.of(&[0, 1, 2, 0x80, 0x8000, 0x8080, u16::MAX]);
                queue.spoil(random.below(3) as usize, random.next() >> 20, value);
            }
        }
    }
}

/// Writes a configuration that makes some sense.
fn configure(kind: u32, window: &Window, random: &mut Random) {
    match kind {
        2 => {
            window.write_u64(0, random.below(1 << 16));
            window.write_u32(8, random.of(&[4096, 1 << 16, 1 << 20, u32::MAX]));
            window.write_u32(12, random.below(200) as u32);
            window.write_u32(20, random.of(&[512, 512, 4096, 1024, 0]));
            window.write_u16(34, random.below(5) as u16);
        }
        3 => window.write_u32(4, random.below(10) as u32),
        5 => window.write_u32(0, random.below(1500) as u32),
        9 => {
            window.write_u16(0, 4);
            (0..4).for_each(|at| window.write_u8(2 + at, b'a' + random.below(26) as u8));
        }
        _ => {}
    }
}

/// Writes these bytes to where they belong in a buffer.
fn fill(held: &Held, mut bytes: &[u8]) {
    for piece in held.pieces.iter().filter(|piece| piece.written) {
        let mut at = piece.address.as_u64();
        let (mine, rest) = bytes.split_at(bytes.len().min(piece.bytes as usize));
        for chunk in mine.chunks(512) {
            witness::write(at, chunk);
            at += chunk.len() as u64;
        }
        bytes = rest;
    }
}

/// Writes something that can be an answer, and says how much of it there is.
fn answer(kind: u32, queue: u16, held: &Held, random: &mut Random) -> u32 {
    let room = held.room();
    let some = random.below(room.min(600) + 1);
    let mut bytes: Vec<u8> = (0..some).map(|_| random.next() as u8).collect();
    match kind {
        2 => {
            fill(held, &bytes);
            if let Some(last) = held.pieces.last().filter(|piece| piece.written) {
                let status = random.of(&[0, 0, 0, 0, 0, 1, 2, 3]);
                witness::write(last.address.as_u64() + u64::from(last.bytes) - 1, &[status]);
            }
            return if random.once_in(8) { some as u32 } else { room as u32 };
        }
        3 if queue == 2 => bytes = console_message(random),
        3 if !bytes.is_empty() && random.once_in(2) => {
            bytes.iter_mut().for_each(|byte| *byte = b'\n' + *byte % 100);
        }
        _ => {}
    }
    fill(held, &bytes);
    bytes.len() as u32
}

fn console_message(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend((random.below(10) as u32).to_le_bytes());
    bytes.extend((random.of(&[1_u16, 1, 1, 2, 3, 4, 4, 5, 6, 6, 7, 7, 8])).to_le_bytes());
    bytes.extend((random.below(3) as u16).to_le_bytes());
    let text: &[u8] =
        random.of(&[&b"fuzz"[..], b"fuzz\0", b"a/b", b".x", b"", b"\0", b"\x50\0\x18\0", &[b'n'; 120]]);
    bytes.extend(text);
    if random.once_in(8) {
        bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
    }
    bytes
}

/// The device's registers.
pub(super) struct Registers(pub(super) Arc<Device>);

impl State {
    fn forget(&mut self, witness: &Witness) {
        self.queues.clear();
        witness.release_all();
    }
}

impl Transport for Registers {
    fn path(&self) -> String {
        self.0.path()
    }

    fn status(&self) -> u8 {
        let mut state = self.0.state.lock();
        match state.looks {
            Some(0) => {
                state.looks = None;
                state.status = 0;
                state.forget(&self.0.witness);
            }
            Some(looks) => state.looks = Some(looks - 1),
            None => {}
        }
        state.status
    }

    fn set_status(&self, status: u8) {
        let mut state = self.0.state.lock();
        if status != 0 {
            let is_agreed = self.0.character.is_agreeable;
            state.status = if is_agreed { status } else { status & !Status::FEATURES_OK };
            return;
        }
        // A device that was never started takes the first one.
        let reset = if state.accepted == 0 { Reset::AtOnce } else { self.0.character.reset };
        match reset {
            Reset::AtOnce => state.looks = Some(0),
            Reset::Late(looks) => state.looks = Some(looks),
            Reset::Never => {}
            Reset::Denied => state.status = u8::MAX,
        }
    }

    fn features(&self) -> u64 {
        self.0.character.features
    }

    fn accept_features(&self, features: u64) {
        self.0.state.lock().accepted = features;
    }

    fn queue_size_max(&self, queue: u16) -> u16 {
        let sizes = &self.0.character.sizes;
        sizes[usize::from(queue) % sizes.len()]
    }

    fn start_queue(&self, queue: u16, size: u16, addresses: Addresses) -> Option<Notifier> {
        let mut state = self.0.state.lock();
        let packed = state.accepted & feature::PACKED != 0;
        // It has heard of the queue even if it says that it won't have it.
        state.queues.insert(queue, Queue::new(size, packed, addresses, self.0.witness.clone()));
        let is_started = self.0.character.refused != Some(queue);
        is_started.then(|| Notifier::new(self.0.doorbell, 0, queue, true))
    }

    fn connect(&self, queues: usize, handlers: Arc<dyn Handlers>) -> Option<Connection> {
        if !self.0.character.has_interrupt {
            return None;
        }
        let interrupt = Interrupt::allocate(Source::Message)?;
        let why = self.0.why.clone();
        let handler = Box::new(move || {
            match why.load(Ordering::Acquire) {
                CONFIGURATION_CHANGED => handlers.configuration(),
                queue if queue < queues => handlers.queue(queue),
                _ => {}
            }
            Claim::Mine
        });
        let registration = interrupt.register("fake", handler)?;
        self.0.state.lock().interrupt = Some(interrupt);
        Some(Connection { registrations: alloc::vec![registration] })
    }

    fn disconnect(&self) {
        let interrupt = self.0.state.lock().interrupt.take();
        drop(interrupt);
    }

    fn shut_off(&self) {
        let mut state = self.0.state.lock();
        state.is_cut_off = true;
        state.forget(&self.0.witness);
    }

    fn configuration(&self) -> Window {
        self.0.configuration
    }

    fn generation(&self) -> u32 {
        let mut state = self.0.state.lock();
        let changes = self.0.character.moods != 0 && state.random.once_in(4);
        if changes { state.random.next() as u32 } else { 0 }
    }
}
