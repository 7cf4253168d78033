//! Whole ways through the queue, on disks in memory.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use machine::cpu::CpuSet;
use machine::hosted::Machine;
use memory::fallible;
use proptest::prelude::*;

use crate::partition::{Scheme, scan};
use crate::scheduler::Deadline;
use crate::*;

mod owners;
mod switching;

fn volume(driver: Arc<dyn Driver>) -> Volume {
    Volume::whole(Queue::new(driver).expect("sound limits"))
}

fn bytes(seed: u8, sectors: usize) -> Vec<u8> {
    (0..sectors * SECTOR_BYTES).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

/// A disk that answers only when it is told to.
struct SlowDisk {
    disk: RamDisk,
    held: sync::SpinLock<Vec<Request>>,
    timed_out: AtomicBool,
}

impl SlowDisk {
    fn new(limits: Limits) -> Arc<Self> {
        let disk = RamDisk::with_limits(limits).expect("there is memory");
        Arc::new(Self { disk, held: sync::SpinLock::new(Vec::new()), timed_out: AtomicBool::new(false) })
    }

    /// Answers all it holds; what it did, in order.
    fn answer(&self, outcome: Result<()>) -> Vec<(Operation, u64, u64)> {
        let held = core::mem::take(&mut *self.held.lock());
        let answer = |mut request: Request| {
            let what = (request.operation(), request.sector(), request.sectors());
            let outcome = outcome.and_then(|()| self.disk.perform(&mut request));
            request.complete(outcome);
            what
        };
        held.into_iter().map(answer).collect()
    }
}

impl Driver for SlowDisk {
    fn limits(&self) -> Limits {
        self.disk.limits()
    }

    fn submit(&self, _cpu: usize, request: Request) -> core::result::Result<(), Request> {
        self.held.lock().push(request);
        Ok(())
    }

    fn timed_out(&self, _since_ns: u64) -> TimeoutVerdict {
        self.timed_out.store(true, Ordering::Relaxed);
        drop(self.answer(Err(Error::TimedOut)));
        TimeoutVerdict::Handled
    }
}

fn write(sector: u64, flags: BioFlags, done: impl FnOnce(Result<()>) + Send + 'static) -> Bio {
    let memory = Memory::Owned(bytes(sector as u8, 1));
    let bio = Bio::single(Operation::Write, sector, memory, flags).expect("a sector");
    bio.on_done(move |_, outcome| done(outcome)).expect("there is memory")
}

#[test]
fn what_was_written_is_read() {
    let disk = volume(Arc::new(RamDisk::new(1000).unwrap()));
    disk.write(7, Memory::Owned(bytes(1, 90)), BioFlags::empty()).unwrap();
    assert_eq!(disk.read(7, 90 * 512).unwrap(), bytes(1, 90));
    assert_eq!(disk.read(97, 512).unwrap(), [0; 512]);
    let part = disk.part(10, 20).unwrap();
    assert_eq!(part.read(0, 512).unwrap(), bytes(1, 90)[3 * 512..4 * 512]);
    assert_eq!(part.read(19, 1024), Err(Error::Invalid));
}

#[test]
fn transfers_beyond_the_end_or_between_blocks_are_invalid() {
    let mut limits = Limits::of_size(64);
    limits.logical_block_bytes = 4096;
    let disk = volume(Arc::new(RamDisk::with_limits(limits).unwrap()));
    assert_eq!(disk.read(1, 4096), Err(Error::Invalid));
    assert_eq!(disk.read(64, 4096), Err(Error::Invalid));
    assert_eq!(disk.read(u64::MAX - 7, 4096), Err(Error::Invalid));
    assert!(disk.read(56, 4096).is_ok());
}

#[test]
fn a_plug_makes_one_request_of_neighbours() {
    let slow = SlowDisk::new(Limits::of_size(100));
    let queue = Queue::new(slow.clone()).unwrap();
    let mut plug = Plug::new(queue.clone());
    for sector in [4, 5, 6, 3] {
        plug.submit(write(sector, BioFlags::empty(), |outcome| outcome.unwrap()));
    }
    assert!(slow.held.lock().is_empty());
    drop(plug);
    assert_eq!(slow.answer(Ok(())), [(Operation::Write, 3, 4)]);
    let snapshot = queue.statistics().snapshot();
    assert_eq!((snapshot.completed[1], snapshot.merged[1], snapshot.sectors[1]), (1, 3, 4));
    assert_eq!(Volume::whole(queue.clone()).queue().statistics().in_flight(), 0);
}

#[test]
fn a_batch_that_is_waited_for_makes_one_request_of_neighbours() {
    let disk = volume(Arc::new(RamDisk::with_limits(Limits::of_size(100)).unwrap()));
    let mut batch = disk.part(10, 50).unwrap().batch();
    for sector in [4, 5, 6, 20, 50] {
        let memory = Memory::Owned(vec![sector as u8; SECTOR_BYTES]);
        batch.add(Bio::single(Operation::Write, sector, memory, BioFlags::empty()).unwrap()).unwrap();
    }
    let mut ended = 0;
    assert_eq!(batch.wait_each(|_| ended += 1), Err(Error::Invalid), "the last one is outside of the part");
    assert_eq!(ended, 5);
    let snapshot = disk.queue().statistics().snapshot();
    assert_eq!((snapshot.completed[1], snapshot.merged[1], snapshot.sectors[1]), (2, 2, 4));
    for sector in [4, 5, 6, 20] {
        assert_eq!(disk.read(10 + sector, SECTOR_BYTES), Ok(vec![sector as u8; SECTOR_BYTES]));
    }
}

#[test]
fn a_batch_leaves_nothing_behind_when_its_thread_moves() {
    sched::current();
    let machine = Machine::boot(2, |_| sched::enter_application_processor());
    let (from, to) = (machine.cpu(0), machine.cpu(1));
    let slow = SlowDisk::new(Limits::of_size(100));
    let queue = Queue::new(slow.clone()).unwrap();
    let done = Arc::new(sched::Completion::new());
    let (submitter, told) = (queue.clone(), done.clone());
    let body = move || {
        submitter.submit_batch([(from, 1), (to, 50)].into_iter().map(|(cpu, sector)| {
            sched::current().set_affinity(CpuSet::only(cpu));
            assert_eq!(machine::cpu::current(), cpu);
            write(sector, BioFlags::empty(), |outcome| outcome.unwrap())
        }));
        told.complete();
    };
    let builder =
        sched::thread::Builder { affinity: CpuSet::only(from), ..sched::thread::Builder::new("batch") };
    sched::spawn(builder, Box::new(body)).unwrap();
    done.wait();
    assert_eq!(slow.answer(Ok(())), [(Operation::Write, 1, 1), (Operation::Write, 50, 1)]);
}

#[test]
fn what_is_tried_again_goes_before_others_and_not_for_ever() {
    let mut limits = Limits::of_size(100);
    limits.depth = 1;
    let slow = SlowDisk::new(limits);
    let queue = Queue::new(slow.clone()).unwrap();
    let outcome = Arc::new(sync::SpinLock::new(None));
    let told = outcome.clone();
    queue.submit(write(7, BioFlags::empty(), move |outcome| *told.lock() = Some(outcome)));
    queue.submit(write(50, BioFlags::empty(), |outcome| outcome.unwrap()));
    let held = || core::mem::take(&mut *slow.held.lock());
    for _ in 0..5 {
        let mut requests = held();
        assert_eq!(requests.len(), 1, "the device has room for one");
        assert_eq!(requests[0].sector(), 7);
        requests.remove(0).try_again();
        assert_eq!((queue.statistics().in_flight(), slow.held.lock().len()), (0, 0));
        queue.run();
    }
    assert_eq!(*outcome.lock(), None);
    held().remove(0).try_again();
    assert_eq!(*outcome.lock(), Some(Err(Error::Io)));
    assert_eq!(slow.answer(Ok(())), [(Operation::Write, 50, 1)]);
    assert_eq!(queue.statistics().in_flight(), 0);
}

#[test]
fn what_is_put_back_into_a_queue_that_is_gone_fails() {
    let slow = SlowDisk::new(Limits::of_size(100));
    let queue = Queue::new(slow.clone()).unwrap();
    let outcome = Arc::new(sync::SpinLock::new(None));
    let told = outcome.clone();
    queue.submit(write(7, BioFlags::empty(), move |outcome| *told.lock() = Some(outcome)));
    queue.remove();
    let request = slow.held.lock().remove(0);
    request.try_again();
    assert_eq!(*outcome.lock(), Some(Err(Error::NoDevice)));
}

#[test]
fn many_flushes_become_two() {
    let mut limits = Limits::of_size(100);
    limits.write_cache = true;
    let slow = SlowDisk::new(limits);
    let queue = Queue::new(slow.clone()).unwrap();
    let ended = Arc::new(AtomicUsize::new(0));
    let start_ns = machine::time::now_ns();
    for _ in 0..50 {
        let ended = ended.clone();
        let flush = Bio::without_data(Operation::Flush, 0, 0, BioFlags::empty()).unwrap();
        queue.submit(
            flush
                .on_done(move |_, _| {
                    ended.fetch_add(1, Ordering::Relaxed);
                })
                .unwrap(),
        );
    }
    assert_eq!(slow.answer(Ok(())).len(), 1);
    assert_eq!(slow.answer(Ok(())).len(), 1);
    assert_eq!(ended.load(Ordering::Relaxed), 50);
    assert!(slow.answer(Ok(())).is_empty());
    let taken_ms = (machine::time::now_ns() - start_ns).div_ceil(1_000_000);
    assert!(
        queue.statistics().snapshot().time_ms[3] <= 2 * taken_ms,
        "a flush takes no longer than since it began"
    );
}

#[test]
fn a_durable_write_is_flush_write_flush_on_a_simple_device() {
    let mut limits = Limits::of_size(100);
    limits.write_cache = true;
    let slow = SlowDisk::new(limits);
    let queue = Queue::new(slow.clone()).unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    let told = ended.clone();
    let flags = BioFlags::PREFLUSH | BioFlags::FORCE_UNIT_ACCESS;
    queue.submit(write(9, flags, move |outcome| told.store(outcome.is_ok(), Ordering::Relaxed)));
    assert_eq!(slow.answer(Ok(())), [(Operation::Flush, 0, 0)]);
    assert_eq!(slow.answer(Ok(())), [(Operation::Write, 9, 1)]);
    assert!(!ended.load(Ordering::Relaxed));
    assert_eq!(slow.answer(Ok(())), [(Operation::Flush, 0, 0)]);
    assert!(ended.load(Ordering::Relaxed));
}

#[test]
fn a_failed_flush_fails_the_write_that_wanted_it() {
    let mut limits = Limits::of_size(100);
    limits.write_cache = true;
    let slow = SlowDisk::new(limits);
    let queue = Queue::new(slow.clone()).unwrap();
    let outcome = Arc::new(sync::SpinLock::new(None));
    let told = outcome.clone();
    queue.submit(write(9, BioFlags::PREFLUSH, move |ended| *told.lock() = Some(ended)));
    slow.answer(Err(Error::Io));
    assert_eq!(*outcome.lock(), Some(Err(Error::Io)));
    assert!(slow.answer(Ok(())).is_empty());
}

#[test]
fn a_flush_that_came_during_one_without_memory_is_answered() {
    let mut limits = Limits::of_size(100);
    limits.write_cache = true;
    let flush_of = |done: Box<dyn FnOnce(Result<()>) + Send>| {
        let flush = Bio::without_data(Operation::Flush, 0, 0, BioFlags::empty()).unwrap();
        flush.on_done(move |_, outcome| done(outcome)).unwrap()
    };
    fallible::exhaust_from("a flush in the completion of another", |failure| {
        let queue = Queue::new(Arc::new(RamDisk::with_limits(limits).unwrap())).unwrap();
        let outcomes = Arc::new(sync::SpinLock::new(Vec::new()));
        let told = outcomes.clone();
        let later = flush_of(Box::new(move |outcome| told.lock().push(outcome)));
        let (told, again) = (outcomes.clone(), queue.clone());
        let first = flush_of(Box::new(move |outcome| {
            told.lock().push(outcome);
            again.submit(later);
        }));
        let report = failure.arm();
        queue.submit(first);
        fallible::disarm();
        drop(report);
        assert_eq!(outcomes.lock().len(), 2, "each of both is answered");
    });
}

#[test]
fn a_device_pulled_out_ends_what_waits_and_what_comes() {
    let mut limits = Limits::of_size(100);
    limits.depth = 1;
    let slow = SlowDisk::new(limits);
    let queue = Queue::with_scheduler(slow.clone(), Box::new(Deadline::default())).unwrap();
    let outcomes = Arc::new(sync::SpinLock::new(Vec::new()));
    let submit = |sector| {
        let told = outcomes.clone();
        queue.submit(write(sector, BioFlags::empty(), move |ended| told.lock().push(ended)));
    };
    submit(10);
    submit(50);
    queue.remove();
    submit(70);
    assert_eq!(*outcomes.lock(), [Err(Error::NoDevice); 2]);
    slow.held.lock().clear();
    assert_eq!(outcomes.lock().last(), Some(&Err(Error::Io)), "a request that is dropped has failed");
}

#[test]
fn a_silent_device_is_told_that_time_is_over() {
    let slow = SlowDisk::new(Limits::of_size(100));
    let queue = Queue::new(slow.clone()).unwrap();
    let outcome = Arc::new(sync::SpinLock::new(None));
    let told = outcome.clone();
    queue.submit(write(1, BioFlags::empty(), move |ended| *told.lock() = Some(ended)));
    let now_ns = machine::time::now_ns();
    assert_eq!(queue.check_timeouts(now_ns), None);
    let later_ns = now_ns + slow.limits().timeout_ns;
    assert_eq!(queue.check_timeouts(later_ns), Some(TimeoutVerdict::Handled));
    assert_eq!(*outcome.lock(), Some(Err(Error::TimedOut)));
}

#[test]
fn injected_errors_reach_the_caller() {
    let faulty = Arc::new(FaultyDisk::new(&bytes(0, 100)).unwrap());
    let disk = volume(faulty.clone());
    faulty.fail_after(2, Error::NoSpace, false);
    assert!(disk.read(0, 512).is_ok());
    assert_eq!(disk.read(0, 512), Err(Error::NoSpace));
    assert!(disk.read(0, 512).is_ok());
}

fn gpt_image() -> Vec<u8> {
    const SECTORS: usize = 2048;
    let mut image = vec![0; SECTORS * 512];
    image[510..512].copy_from_slice(&[0x55, 0xaa]);
    image[446 + 4] = 0xee;
    let mut entries = vec![0; 128 * 128];
    for (index, (first, last)) in [(64u64, 127u64), (128, 1023)].into_iter().enumerate() {
        let entry = &mut entries[index * 128..][..128];
        entry[..16].fill(7);
        entry[16..32].fill(index as u8 + 1);
        entry[32..40].copy_from_slice(&first.to_le_bytes());
        entry[40..48].copy_from_slice(&last.to_le_bytes());
        entry[56] = b'a';
    }
    let header = |own: u64, entries_at: u64| {
        let mut header = vec![0; 512];
        header[..8].copy_from_slice(b"EFI PART");
        header[12..16].copy_from_slice(&92u32.to_le_bytes());
        header[24..32].copy_from_slice(&own.to_le_bytes());
        header[40..48].copy_from_slice(&34u64.to_le_bytes());
        header[48..56].copy_from_slice(&(SECTORS as u64 - 34).to_le_bytes());
        header[72..80].copy_from_slice(&entries_at.to_le_bytes());
        header[80..84].copy_from_slice(&128u32.to_le_bytes());
        header[84..88].copy_from_slice(&128u32.to_le_bytes());
        header[88..92].copy_from_slice(&checksum::crc32(&entries).to_le_bytes());
        let sum = checksum::crc32(&header[..92]);
        header[16..20].copy_from_slice(&sum.to_le_bytes());
        header
    };
    image[512..1024].copy_from_slice(&header(1, 2));
    image[1024..1024 + entries.len()].copy_from_slice(&entries);
    let backup = SECTORS - 33;
    image[backup * 512..][..entries.len()].copy_from_slice(&entries);
    image[(SECTORS - 1) * 512..].copy_from_slice(&header(SECTORS as u64 - 1, backup as u64));
    image
}

/// Makes the checksums of the first header and its entries fit what is there.
fn repair_checksums(image: &mut [u8]) {
    let field = |image: &[u8], at: usize| {
        let bytes = image[512 + at..512 + at + 4].try_into().expect("four bytes");
        u32::from_le_bytes(bytes) as usize
    };
    let bytes = field(image, 80).saturating_mul(field(image, 84)).min(image.len() - 1024);
    let entries = checksum::crc32(&image[1024..1024 + bytes]);
    image[512 + 88..512 + 92].copy_from_slice(&entries.to_le_bytes());
    image[512 + 16..512 + 20].fill(0);
    let sum = checksum::crc32(&image[512..512 + field(image, 12).min(512)]);
    image[512 + 16..512 + 20].copy_from_slice(&sum.to_le_bytes());
}

fn scan_image(image: &[u8]) -> partition::Table {
    scan(&volume(Arc::new(RamDisk::from_bytes(image).unwrap()))).unwrap()
}

#[test]
fn gpt_partitions_are_found_also_from_the_backup() {
    let mut image = gpt_image();
    let table = scan_image(&image);
    assert_eq!(table.scheme, Scheme::Gpt { from_backup: false });
    let places: Vec<_> =
        table.partitions.iter().map(|part| (part.number, part.start, part.sectors)).collect();
    assert_eq!(places, [(1, 64, 64), (2, 128, 896)]);
    image[1024 + 40] ^= 1;
    let again = scan_image(&image);
    assert_eq!(again.scheme, Scheme::Gpt { from_backup: true });
    assert_eq!(again.partitions, table.partitions);
}

fn mbr_image() -> Vec<u8> {
    let mut image = vec![0; 4096 * 512];
    let mut table = |sector: usize, entries: &[(u8, u32, u32)]| {
        let bytes = &mut image[sector * 512..][..512];
        bytes[510..].copy_from_slice(&[0x55, 0xaa]);
        for (index, (kind, start, sectors)) in entries.iter().enumerate() {
            let entry = &mut bytes[446 + 16 * index..][..16];
            entry[4] = *kind;
            entry[8..12].copy_from_slice(&start.to_le_bytes());
            entry[12..].copy_from_slice(&sectors.to_le_bytes());
        }
    };
    table(0, &[(0x83, 64, 100), (0x05, 200, 1000)]);
    table(200, &[(0x83, 10, 90), (0x05, 300, 200)]);
    table(500, &[(0x82, 10, 90), (0x05, 0, 200)]);
    image
}

#[test]
fn logical_partitions_are_found_and_a_loop_ends() {
    let table = scan_image(&mbr_image());
    assert_eq!(table.scheme, Scheme::Mbr);
    let places: Vec<_> =
        table.partitions.iter().map(|part| (part.number, part.start, part.sectors)).collect();
    assert_eq!(places, [(1, 64, 100), (5, 210, 90), (6, 510, 90)]);
}

proptest! {
    /// Whatever is written over a table: what is found lies on the disk, apart from each other.
    #[test]
    fn hostile_tables_do_no_harm(
        gpt in any::<bool>(),
        repaired in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let mut image = if gpt { gpt_image() } else { mbr_image() };
        let length = if gpt { 2048 } else { 201 * 512 };
        for (at, value) in changes {
            image[at.index(length)] = value;
        }
        if gpt && repaired {
            // What the checksums would have kept out is looked at.
            repair_checksums(&mut image);
        }
        let table = scan_image(&image);
        for (index, part) in table.partitions.iter().enumerate() {
            prop_assert!(part.start + part.sectors <= image.len() as u64 / 512);
            for other in &table.partitions[..index] {
                prop_assert!(part.start >= other.start + other.sectors || other.start >= part.start + part.sectors);
            }
        }
    }

    /// The disk ends up as if the writes had been made one after the other, whatever was merged and reordered in between.
    #[test]
    fn deadline_keeps_all_data(writes in prop::collection::hash_set(0u64..90, 1..40)) {
        let mut limits = Limits::of_size(100);
        limits.depth = 3;
        let slow = SlowDisk::new(limits);
        let queue = Queue::with_scheduler(slow.clone(), Box::new(Deadline::default())).unwrap();
        for sector in &writes {
            queue.submit(write(*sector, BioFlags::empty(), |outcome| outcome.unwrap()));
        }
        while !slow.answer(Ok(())).is_empty() {}
        for sector in writes {
            let mut found = [0; 512];
            slow.disk.read_at(sector, &mut found);
            prop_assert_eq!(found.to_vec(), bytes(sector as u8, 1));
        }
    }
}

#[test]
fn the_driver_gets_as_many_requests_at_once_as_is_set() {
    let mut limits = Limits::of_size(1000);
    limits.depth = 16;
    let slow = SlowDisk::new(limits);
    let queue = Queue::with_scheduler(slow.clone(), Box::new(Deadline::default())).unwrap();
    assert_eq!(queue.set_depth(17), Err(Error::Invalid));
    queue.set_depth(1).unwrap();
    assert_eq!(queue.depth(), 4, "fewer are no use");
    for sector in 0..40 {
        queue.submit(write(2 * sector, BioFlags::empty(), |outcome| outcome.unwrap()));
    }
    assert_eq!(slow.held.lock().len(), 4);
    queue.set_depth(9).unwrap();
    assert_eq!(slow.held.lock().len(), 9, "there is room for more at once");
    queue.set_depth(5).unwrap();
    let mut answered = slow.answer(Ok(())).len();
    while answered < 40 {
        assert!(slow.held.lock().len() <= 5);
        answered += slow.answer(Ok(())).len();
    }
}
