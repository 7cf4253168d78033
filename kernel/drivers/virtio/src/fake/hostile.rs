//! Drivers with devices that do anything: found, used, let go of.
//!
//! What must hold, whatever the device does: nothing panics; memory that the device has is not freed, and all of it is in the end; who uses the device gets an end for
//! everything; probing and letting go end, in bounded time. Time is virtual: nothing here waits.

use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use block::{Bio, BioFlags, Memory, Operation, Segment};
use device::model::{Binding, DriverError};
use memory::frame::{Frame, Purpose, Zeroed};
use sync::SpinLock;

use super::device::{Character, Device, Registers};
use super::random::Random;
use crate::console::KeptPort;
use crate::transport::Transport;

/// How long a probe may take: a reset, a name, a reset again.
const PROBE_NS: u64 = 40_000_000_000;
/// How long letting go may take, and then the ends of what was under way.
const REMOVAL_NS: u64 = 40_000_000_000;
/// How long giving memory back may take.
const RECLAIM_NS: u64 = 1_000_000_000;
/// Requests at a time.
const REQUESTS: usize = 12;

type Probe = fn(Box<dyn Transport>) -> Result<Arc<dyn Binding>, DriverError>;

/// What users of a device have begun, and what of it has ended.
#[derive(Default)]
struct Work {
    begun: AtomicUsize,
    ended: AtomicUsize,
    over: AtomicBool,
}

impl Work {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    fn left(&self) -> usize {
        self.begun.load(Ordering::Acquire) - self.ended.load(Ordering::Acquire)
    }
}

pub(super) fn pause(ns: u64) {
    sched::timer::sleep_until_uninterruptible(machine::time::now_ns() + ns);
}

/// Has the device found, used and let go of.
fn meet(kind: u32, seed: u64, character: Character, mut random: Random, probe: Probe) {
    let device = Device::new(kind, seed, character, Random::new(random.next()));
    device.start();
    let began_ns = machine::time::now_ns();
    let outcome = probe(Box::new(Registers(device.clone())));
    if machine::time::now_ns() - began_ns > PROBE_NS {
        device.witness.blame("probing takes long".into());
    }
    if let Ok(binding) = outcome {
        let work = Arc::new(Work::default());
        for _ in 0..=random.below(3) {
            let (device, work, random) = (device.clone(), work.clone(), Random::new(random.next()));
            work.begun.fetch_add(1, Ordering::AcqRel);
            let user = move || {
                employ(&device, &work, random);
                work.ended.fetch_add(1, Ordering::AcqRel);
            };
            sched::spawn(sched::Builder::new("user"), Box::new(user)).expect("memory for a test's thread");
        }
        pause(10_u64.pow(4 + random.below(7) as u32));
        disturb(&*binding, &mut random);
        let began_ns = machine::time::now_ns();
        binding.remove();
        work.over.store(true, Ordering::Release);
        while work.left() > 0 && machine::time::now_ns() - began_ns < REMOVAL_NS {
            pause(1_000_000);
        }
        if work.left() > 0 {
            device.witness.blame(format!("{} users or requests never end", work.left()));
        }
        if machine::time::now_ns() - began_ns >= REMOVAL_NS {
            device.witness.blame("letting go takes long".into());
        }
        drop(binding);
    }
    // A port that came after the last look of those who use ports is nobody's.
    drop(core::mem::take(&mut *KEPT.lock()));
    // Threads that are on their way out may have something.
    for _ in 0..100 {
        if device.witness.left() == 0 {
            break;
        }
        pause(1_000_000);
    }
    if kind == 3 {
        let nodes = devfs::appearing::names();
        if !nodes.is_empty() {
            device.witness.blame(format!("device nodes stay: {nodes:?}"));
        }
    }
    let left = device.witness.left();
    if left > 0 {
        device.witness.blame(format!("{left} buffers are never freed"));
    }
    device.finish();
    let faults = device.witness.faults();
    assert!(faults.is_empty(), "kind {kind}, seed {seed}, {:?}: {faults:#?}", device.character);
}

/// Errors of the way to the device.
fn disturb(binding: &dyn Binding, random: &mut Random) {
    let Some(handlers) = binding.error_handlers() else { return };
    use device::express::ChannelState::{Failed, Frozen, Normal};
    if random.once_in(2) {
        return;
    }
    handlers.error_detected(random.of(&[Normal, Frozen, Frozen, Failed]));
    pause(1000);
    for _ in 0..random.below(3) {
        match random.below(2) {
            0 => _ = handlers.mmio_enabled(),
            _ => _ = handlers.slot_reset(),
        }
    }
    handlers.resume();
    pause(10_u64.pow(4 + random.below(5) as u32));
}

/// Uses the device until it is gone.
fn employ(device: &Arc<Device>, work: &Arc<Work>, mut random: Random) {
    match device.kind {
        2 => use_disk(device, work, &mut random),
        3 => use_ports(work, &mut random),
        5 => {
            while !work.is_over() {
                let began_ns = machine::time::now_ns();
                memory::reclaim::reclaim_now(random.below(300) as usize);
                if machine::time::now_ns() - began_ns > RECLAIM_NS {
                    device.witness.blame("who is short of memory waits for the device".into());
                }
                pause(10_u64.pow(4 + random.below(5) as u32));
            }
        }
        4 => {
            let mut bytes = [0; 100];
            while !work.is_over() {
                let length = 1 + random.below(99) as usize;
                let count = device::random_source::read(&mut bytes[..length], !random.once_in(3));
                if count.is_ok_and(|count| count == 0 || count > length) {
                    device.witness.blame("a read of no bytes, or too many".into());
                }
                pause(10_u64.pow(3 + random.below(6) as u32));
            }
        }
        9 => use_server(device, work, &mut random),
        _ => {}
    }
}

fn segment(random: &mut Random, operation: Operation) -> Option<Segment> {
    let bytes = 512 * (1 + random.below(40) as usize);
    let memory = match random.below(3) {
        0 => Memory::Frame(Frame::allocate(Purpose::FileCache, Zeroed::Yes).ok()?),
        1 if operation == Operation::Write => Memory::Shared(Arc::new(alloc::vec![7; bytes])),
        _ => Memory::Owned(alloc::vec![1; bytes]),
    };
    Segment::whole(memory).ok()
}

fn bio(random: &mut Random) -> Option<Bio> {
    use Operation::{Discard, Flush, Read, Write, WriteZeroes};
    let operation = random.of(&[Read, Read, Read, Write, Write, Flush, Discard, WriteZeroes]);
    let sector = random.below(1 << 10) * 8;
    let made = match operation {
        Read | Write => {
            let segments = (0..=random.below(6)).filter_map(|_| segment(random, operation)).collect();
            Bio::new(operation, sector, segments, BioFlags::empty())
        }
        Flush => Bio::without_data(operation, 0, 0, BioFlags::empty()),
        _ => Bio::without_data(operation, sector, 1 + random.below(64), BioFlags::empty()),
    };
    made.ok()
}

fn use_disk(device: &Arc<Device>, work: &Arc<Work>, random: &mut Random) {
    let path = device.path();
    let Some(disk) = block::disk::all()
        .ok()
        .and_then(|disks| disks.into_iter().find(|disk| disk.description.parent == path))
    else {
        return;
    };
    while !work.is_over() {
        for _ in 0..random.below(REQUESTS as u64) {
            let Some(bio) = bio(random) else { continue };
            let (ended, device) = (work.clone(), device.clone());
            work.begun.fetch_add(1, Ordering::AcqRel);
            let done = move |bio: Bio, _| {
                for segment in bio.segments() {
                    if let (Memory::Frame(frame), ..) = segment.parts()
                        && device.witness.holds(frame.physical().as_u64(), 4096)
                    {
                        device.witness.blame("a request has ended whose memory the device has".into());
                    }
                }
                ended.ended.fetch_add(1, Ordering::AcqRel);
            };
            if let Ok(bio) = bio.on_done(done) {
                disk.queue().submit(bio);
            }
        }
        pause(10_u64.pow(3 + random.below(6) as u32));
        while work.left() > 2 * REQUESTS && !work.is_over() {
            pause(1_000_000);
        }
    }
}

static ROOM: sched::WaitQueue = sched::WaitQueue::new();
static DATA: sched::WaitQueue = sched::WaitQueue::new();
static KEPT: SpinLock<Vec<KeptPort>> = SpinLock::named("ports of a test", Vec::new());

fn use_ports(work: &Work, random: &mut Random) {
    let mut port: Option<KeptPort> = None;
    let mut bytes = [0; 5000];
    while !work.is_over() {
        let found = KEPT.lock().pop();
        port = found.or(port);
        if let Some(port) = &port {
            let length = random.below(bytes.len() as u64) as usize;
            match random.below(5) {
                0 | 1 => _ = port.try_write_all(&[&bytes[..length], b"end"]),
                2 => _ = port.room(length),
                3 => _ = port.is_drained(),
                _ => _ = port.read(&mut bytes[..length]),
            }
        }
        pause(10_u64.pow(3 + random.below(5) as u32));
    }
}

fn use_server(device: &Arc<Device>, work: &Arc<Work>, random: &mut Random) {
    use p9::transport::{Data, Exchange, Piece};
    let name: Vec<u8> = (2..6).map(|at| device.configuration.read_u8(at)).collect();
    let Ok(taken) = p9::transport::take(&name) else { return };
    let transport = taken.transport().clone();
    while !work.is_over() {
        let pieces = (0..random.below(9)).filter_map(|_| {
            let frame = Frame::allocate(Purpose::FileCache, Zeroed::Yes).ok()?;
            let offset = random.below(8) as usize * 512;
            Some(Piece { frame, offset, bytes: 4096 - offset })
        });
        let pieces: Vec<Piece> = pieces.collect();
        let frames: Vec<Frame> = pieces.iter().map(|piece| piece.frame.clone()).collect();
        let data = match random.below(3) {
            _ if pieces.is_empty() => Data::None,
            0 => Data::Sent(pieces),
            _ => Data::Received(pieces),
        };
        let request = alloc::vec![5; 7 + random.below(1000) as usize];
        let room = 11 + random.below(1000) as usize;
        let (ended, device) = (work.clone(), device.clone());
        let ending = Box::new(move |_, _| {
            if frames.iter().any(|frame| device.witness.holds(frame.physical().as_u64(), 4096)) {
                device.witness.blame("a request has ended whose memory the device has".into());
            }
            ended.ended.fetch_add(1, Ordering::AcqRel);
        });
        let Ok(exchange) = Exchange::of_test(request, data, room, ending) else { continue };
        work.begun.fetch_add(1, Ordering::AcqRel);
        transport.submit(exchange);
        pause(10_u64.pow(3 + random.below(5) as u32));
    }
}

pub(super) fn initialize() {
    memory::initialize();
    sched::current();
}

/// How many devices each driver meets: a long hunt is VIRTIO_FUZZ_ROUNDS=1000000.
fn rounds() -> u64 {
    let rounds = std::env::var("VIRTIO_FUZZ_ROUNDS").ok().and_then(|text| text.parse::<u64>().ok());
    rounds.unwrap_or(4000) / 100
}

fn meet_many(kind: u32, probe: Probe) {
    initialize();
    let first = std::env::var("VIRTIO_FUZZ_FIRST").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    for seed in first..first + rounds() {
        let mut random = Random::new(seed);
        let character =
            if random.once_in(16) { Character::good(kind) } else { Character::any(kind, &mut random) };
        meet(kind, seed, character, random, probe);
    }
}

#[test]
fn hostile_disks_hurt_nobody_but_their_users() {
    meet_many(2, crate::block::probe);
}

#[test]
fn hostile_consoles_hurt_nobody_but_their_users() {
    crate::console::keep_port("fuzz", &ROOM, &DATA, |port| KEPT.lock().push(port));
    meet_many(3, crate::console::probe);
}

#[test]
fn hostile_sources_of_entropy_hurt_nobody_but_their_users() {
    let _turn = super::entropy::turn();
    meet_many(4, crate::entropy::probe);
}

#[test]
fn hostile_balloons_hurt_nobody_but_their_users() {
    initialize();
    crate::balloon::register();
    meet_many(5, crate::balloon::probe);
}

#[test]
fn hostile_file_servers_hurt_nobody_but_their_users() {
    meet_many(9, crate::plan9::probe);
}
