//! Tests of a disk of the virtual machine, of whatever kind. They overwrite the first one, so they run only when named.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ::machine::cpu;
use ::memory::frame::{Frame, Purpose, Zeroed};
use block::disk::{self, Disk};
use block::{Bio, BioFlags, Error, Memory, Operation, SECTOR_BYTES, Segment, Volume};
use device::interrupt_limit;
use device::pci::BUS;

use super::kit::{Random, Team};
use super::{Outcome, Test, check, fail};

pub(crate) const TESTS: &[Test] = &[
    Test {
        name: "machine_disk::every_processor_reads_what_it_wrote",
        run: every_processor_reads_what_it_wrote,
    },
    Test { name: "machine_disk::frames_are_reached_where_they_are", run: frames_are_reached_where_they_are },
    Test { name: "machine_disk::zeroes_flushes_and_limits", run: zeroes_flushes_and_limits },
    Test { name: "machine_disk::masked_interrupts_are_not_lost", run: masked_interrupts_are_not_lost },
    Test { name: "machine_disk::goes_in_the_midst_of_writes_and_comes_back", run: goes_and_comes_back },
    Test { name: "machine_disk::controller_that_stopped_is_started_again", run: controller_is_started_again },
];

/// Transfers of each processor.
const ROUNDS: u64 = 150;
/// Transfers at the same time.
const BATCH: u64 = 8;
/// Sectors of a transfer at most: of more pieces than one.
const SECTORS_MAX: u64 = 200;
/// Times that the disk goes away.
const REMOVALS: u32 = 10;

/// The driver of a disk of the virtual machine, by the disk's name.
fn driver_of(name: &str) -> Option<&'static str> {
    [("vd", "virtio-pci"), ("nvme", "nvme")]
        .into_iter()
        .find_map(|(prefix, driver)| name.starts_with(prefix).then_some(driver))
}

/// The first disk, found if nobody has looked yet.
fn first() -> Result<Arc<Disk>, super::Failure> {
    virtio::initialize();
    nvme::initialize();
    device::pci::initialize();
    match disk::all().ok().and_then(|disks| disks.into_iter().find(|disk| driver_of(disk.name()).is_some())) {
        Some(disk) => Ok(disk),
        None => fail!("no disk: run with --disk"),
    }
}

/// The address of a disk's function; None on a machine without PCI.
fn address_of(disk: &Disk) -> Option<&str> {
    let path = disk.description.parent.strip_prefix("/devices/pci")?;
    path.split('/').rfind(|part| part.contains(':'))
}

/// What belongs at a sector.
fn pattern(sector: u64, sectors: u64, salt: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for sector in sector..sector + sectors {
        let mut word = (sector + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt;
        for _ in 0..SECTOR_BYTES / 8 {
            bytes.extend_from_slice(&word.to_le_bytes());
            word = word.rotate_left(7).wrapping_add(0x0123_4567_89ab_cdef);
        }
    }
    bytes
}

/// Writes pieces at random places of a part of the disk, many at a time, and reads each back.
fn write_and_read(part: &Volume, seed: u64) -> block::Result<bool> {
    let mut random = Random(seed);
    let room = part.sectors() / BATCH;
    for round in 0..ROUNDS / BATCH {
        let mut batch = part.batch();
        let mut written = Vec::new();
        for place in 0..BATCH {
            let sectors = 1 + random.below(SECTORS_MAX.min(room));
            let sector = place * room + random.below(room - sectors + 1);
            let salt = seed + round;
            let memory = Memory::Owned(pattern(part.start() + sector, sectors, salt));
            batch.add(Bio::single(Operation::Write, sector, memory, BioFlags::empty())?)?;
            written.push((sector, sectors, salt));
        }
        batch.wait()?;
        for (sector, sectors, salt) in written {
            let bytes = part.read(sector, sectors as usize * SECTOR_BYTES)?;
            if bytes != pattern(part.start() + sector, sectors, salt) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn every_processor_reads_what_it_wrote() -> Outcome {
    let disk = first()?;
    let whole = disk.device.volume().clone();
    let share = whole.sectors() / cpu::count() as u64;
    let good = Arc::new(AtomicU32::new(0));
    let told = good.clone();
    let mut team = Team::new();
    team.start_on_each(cpu::online(), move |cpu| {
        let part = whole.part(cpu.index() as u64 * share, share);
        let outcome = part.and_then(|part| write_and_read(&part, cpu.index() as u64 + 1));
        if outcome == Ok(true) {
            told.fetch_add(1, Ordering::Relaxed);
        } else {
            log::error!("processor {cpu}: {outcome:?}");
        }
    })?;
    team.join()?;
    let good = good.load(Ordering::Relaxed) as usize;
    check!(good == cpu::count(), "{good} of {} processors read what they wrote", cpu::count());
    let failed = disk.queue().statistics().snapshot().failed;
    check!(failed == 0, "{failed} requests failed");
    Ok(())
}

/// How often interrupts were masked because they came too often.
fn strikes() -> u64 {
    let mut sum = 0;
    device::interrupt::for_each_limited(|_, strikes| sum += strikes);
    sum
}

/// With a limit of one interrupt in a jiffy each one that comes early is followed by the mask. A transfer whose interrupt came while it was
/// masked ends all the same.
fn masked_interrupts_are_not_lost() -> Outcome {
    /// Of what must come sooner or later, however slow the host is.
    const ATTEMPTS: usize = 20;
    let usual = interrupt_limit::max_per_jiffy();
    let before = strikes();
    interrupt_limit::set_max_per_jiffy(1);
    let mut outcome = Ok(());
    for _ in 0..ATTEMPTS {
        outcome = every_processor_reads_what_it_wrote();
        if outcome.is_err() || strikes() > before {
            break;
        }
    }
    interrupt_limit::set_max_per_jiffy(usual);
    outcome?;
    check!(strikes() > before, "no interrupt was masked");
    log::info!("interrupts were masked {} times", strikes() - before);
    every_processor_reads_what_it_wrote()
}

fn frames(count: usize) -> Vec<Frame> {
    (0..count).filter_map(|_| Frame::allocate(Purpose::Kernel, Zeroed::Yes).ok()).collect()
}

/// A transfer of pages, of the last only its second half.
fn pages(operation: Operation, sector: u64, frames: &[Frame]) -> block::Result<Bio> {
    let mut segments = Vec::new();
    for (index, frame) in frames.iter().enumerate() {
        let memory = Memory::Frame(frame.clone());
        segments.push(if index + 1 < frames.len() {
            Segment::whole(memory)?
        } else {
            Segment::new(memory, 2048, 2048)?
        });
    }
    Bio::new(operation, sector, segments, BioFlags::empty())
}

fn frames_are_reached_where_they_are() -> Outcome {
    let disk = first()?;
    let volume = disk.device.volume();
    let count = disk.queue().limits().segments_max.min(16);
    let (from, to) = (frames(count), frames(count));
    let bytes = count * 4096 - 2048;
    let contents = pattern(7, (bytes / SECTOR_BYTES) as u64, 5);
    for (index, part) in contents.chunks(4096).enumerate() {
        let offset = if index + 1 < count { 0 } else { 2048 };
        from[index].write(offset, part);
    }
    let moved = pages(Operation::Write, 7, &from)
        .and_then(|bio| volume.transfer(bio))
        .and_then(|_| pages(Operation::Read, 7, &to))
        .and_then(|bio| volume.transfer(bio));
    check!(moved.is_ok(), "a transfer of pages failed: {:?}", moved.err());
    let mut seen = vec![0; bytes];
    for (index, part) in seen.chunks_mut(4096).enumerate() {
        let offset = if index + 1 < count { 0 } else { 2048 };
        to[index].read(offset, part);
    }
    check!(seen == contents, "what was read differs from what was written");
    Ok(())
}

fn zeroes_flushes_and_limits() -> Outcome {
    let disk = first()?;
    let volume = disk.device.volume();
    let fill = volume.write(64, Memory::Owned(vec![0xa5; 64 * SECTOR_BYTES]), BioFlags::FORCE_UNIT_ACCESS);
    check!(fill == Ok(()), "a durable write failed: {fill:?}");
    check!(volume.flush() == Ok(()), "a flush failed");
    if disk.queue().limits().zeroes_sectors_max > 0 {
        let zero = Bio::without_data(Operation::WriteZeroes, 72, 16, BioFlags::empty());
        let done = zero.and_then(|bio| volume.transfer(bio));
        check!(done.is_ok(), "writing zeros failed: {:?}", done.err());
        let seen = volume.read(64, 64 * SECTOR_BYTES).unwrap_or_default();
        let zeros = seen.iter().filter(|byte| **byte == 0).count();
        check!(zeros == 16 * SECTOR_BYTES, "{zeros} bytes are zero");
    }
    if disk.queue().limits().discard_sectors_max > 0 {
        let discard = Bio::without_data(Operation::Discard, 64, 64, BioFlags::empty());
        let done = discard.and_then(|bio| volume.transfer(bio));
        check!(done.is_ok(), "a discard failed: {:?}", done.err());
    }
    let beyond = volume.read(volume.sectors(), SECTOR_BYTES);
    check!(beyond == Err(Error::Invalid), "a read beyond the end: {:?}", beyond.err());
    Ok(())
}

/// Writes until the disk is gone; whether it then said so.
fn write_until_gone(volume: &Volume, stop: &AtomicBool) -> bool {
    let mut sector = 0;
    loop {
        // Asked before: a write that had ended by then may be heard of later.
        let is_gone = stop.load(Ordering::Acquire);
        let memory = Memory::Owned(vec![1; 8 * SECTOR_BYTES]);
        match volume.write(sector, memory, BioFlags::empty()) {
            Ok(()) if is_gone => return false,
            Ok(()) => sector = (sector + 8) % (volume.sectors() - 8),
            Err(error) => return error == Error::NoDevice,
        }
    }
}

fn goes_and_comes_back() -> Outcome {
    first()?;
    for round in 0..REMOVALS {
        let disk = first()?;
        // On a machine without PCI a disk stays for good.
        let Some(address) = address_of(&disk) else { return Ok(()) };
        let driver = driver_of(disk.name()).unwrap_or_default();
        let told = Arc::new(AtomicU32::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let mut team = Team::new();
        let (volume, own, until) = (disk.device.volume().clone(), told.clone(), stop.clone());
        team.start_on_each(cpu::online(), move |_| {
            if write_until_gone(&volume, &until) {
                own.fetch_add(1, Ordering::Relaxed);
            }
        })?;
        while disk.queue().statistics().snapshot().completed[1] < 20 {
            ::sched::yield_now();
        }
        let unbound = BUS.unbind(driver, address);
        // Who has not been told by now never would be.
        stop.store(true, Ordering::Release);
        team.join()?;
        check!(unbound == Ok(()), "round {round}: the driver keeps the disk: {unbound:?}");
        let told = told.load(Ordering::Relaxed) as usize;
        check!(told == cpu::count(), "round {round}: {told} writers were told that the disk is gone");
        check!(
            disk::all().is_ok_and(|disks| disks.iter().all(|disk| driver_of(disk.name()).is_none())),
            "round {round}: the disk is still there"
        );
        let bound = BUS.bind(driver, address);
        check!(bound == Ok(()), "round {round}: the driver does not take the disk back: {bound:?}");
    }
    every_processor_reads_what_it_wrote()
}

/// Registers of an NVMe controller, as far as the test needs them.
const NVME_CONFIGURATION: usize = 0x14;

/// Switches the controller off behind its driver's back: what it has then never ends.
fn controller_is_started_again() -> Outcome {
    let disk = first()?;
    let Some(address) = address_of(&disk).filter(|_| driver_of(disk.name()) == Some("nvme")) else {
        return Ok(());
    };
    let functions = device::pci::functions();
    let function = functions.iter().find(|function| device::model::BusDevice::name(&***function) == address);
    let Some(registers) = function.and_then(|function| function.window(0, 0, 0x1000)) else {
        fail!("no registers at {address}")
    };
    let mut failed = 0;
    for round in 0..REMOVALS {
        registers.write_u32(NVME_CONFIGURATION, 0);
        let (told, served) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let mut team = Team::new();
        let (volume, own, others) = (disk.device.volume().clone(), told.clone(), served.clone());
        team.start_on_each(cpu::online(), move |_| {
            match volume.read(0, SECTOR_BYTES) {
                Err(Error::Io) => own.fetch_add(1, Ordering::Relaxed),
                Ok(_) => others.fetch_add(1, Ordering::Relaxed),
                Err(_) => 0,
            };
        })?;
        while disk.queue().statistics().snapshot().in_flight < cpu::count() as u64 {
            ::sched::yield_now();
        }
        let late_ns = ::machine::time::now_ns() + disk.queue().limits().timeout_ns;
        let verdict = disk.queue().check_timeouts(late_ns);
        team.join()?;
        check!(verdict == Some(block::TimeoutVerdict::Handled), "round {round}: {verdict:?}");
        // A request that was under way and had not reached the controller yet is made when that works again.
        let (told, served) = (told.load(Ordering::Relaxed) as usize, served.load(Ordering::Relaxed) as usize);
        check!(
            told + served == cpu::count(),
            "round {round}: of the readers {told} failed, {served} were served"
        );
        failed += told;
        let again = disk.device.volume().read(0, SECTOR_BYTES);
        check!(again.is_ok(), "round {round}: it does not work again: {:?}", again.err());
    }
    check!(failed > 0, "nothing that the controller had has failed");
    let sectors = disk.device.volume().sectors();
    check!(write_and_read(disk.device.volume(), 9) == Ok(true), "{sectors} sectors are not what was written");
    Ok(())
}
