//! Another scheduler while requests wait and are under way; and what is counted for partitions.

use super::*;

use crate::registry::{BlockDevice, DeviceNumber};
use crate::scheduler::{First, NAMES};

#[test]
fn what_waits_goes_before_what_comes_after_a_switch() {
    let mut limits = Limits::of_size(1000);
    limits.depth = 1;
    let slow = SlowDisk::new(limits);
    // One lane: those of different CPUs have no order among them.
    let queue = Queue::with_scheduler(slow.clone(), Box::new(First::default())).unwrap();
    let submit = |sector| queue.submit(write(sector, BioFlags::empty(), |outcome| outcome.unwrap()));
    [500, 400, 300].into_iter().for_each(submit);
    queue.set_scheduler("mq-deadline").unwrap();
    [20, 10].into_iter().for_each(submit);
    queue.set_scheduler("none").unwrap();
    [7, 5].into_iter().for_each(submit);
    let mut order = Vec::new();
    loop {
        let answered = slow.answer(Ok(()));
        if answered.is_empty() {
            break;
        }
        order.extend(answered.into_iter().map(|(_, sector, _)| sector));
    }
    // What is sorted by sector goes up from where the disk is: at the lowest, as nothing was sorted before.
    assert_eq!(order, [500, 400, 300, 10, 20, 7, 5]);
}

#[test]
fn names_are_those_of_schedulers() {
    let queue = Queue::new(Arc::new(RamDisk::new(64).unwrap())).unwrap();
    assert_eq!(queue.set_scheduler("deadline"), Err(Error::Invalid));
    for name in NAMES.into_iter().rev() {
        queue.set_scheduler(name).unwrap();
        assert_eq!(queue.scheduler_name(), name);
    }
}

#[test]
fn without_memory_the_scheduler_stays_and_works() {
    fallible::exhaust_from("another scheduler", |failure| {
        let disk = volume(Arc::new(RamDisk::new(64).unwrap()));
        let report = failure.arm();
        let outcome = disk.queue().set_scheduler("mq-deadline");
        fallible::disarm();
        drop(report);
        let expected = if outcome.is_ok() { "mq-deadline" } else { "none" };
        assert_eq!(disk.queue().scheduler_name(), expected);
        disk.write(3, Memory::Owned(bytes(1, 1)), BioFlags::empty()).unwrap();
        assert_eq!(disk.read(3, 512).unwrap(), bytes(1, 1));
    });
}

#[test]
fn settings_belong_to_the_scheduler_and_have_a_maximum() {
    let queue = Queue::new(Arc::new(RamDisk::new(64).unwrap())).unwrap();
    assert!(queue.settings().unwrap().is_empty());
    assert_eq!(queue.set("fifo_batch", 1), Err(Error::Invalid));
    queue.set_scheduler("mq-deadline").unwrap();
    queue.set("fifo_batch", 7).unwrap();
    queue.set("front_merges", 7).unwrap();
    let settings = queue.settings().unwrap();
    let value = |name| settings.iter().find(|setting| setting.name == name).unwrap().value;
    assert_eq!((value("fifo_batch"), value("front_merges"), value("read_expire")), (7, 1, 500));
}

#[test]
fn bios_of_all_cpus_end_while_the_scheduler_changes() {
    const CPUS: usize = 3;
    const EACH: usize = 3000;
    sched::current();
    let machine = Machine::boot(CPUS, |_| sched::enter_application_processor());
    let mut limits = Limits::of_size(1 << 16);
    limits.depth = 2;
    let queue = Queue::new(Arc::new(RamDisk::with_limits(limits).unwrap())).unwrap();
    let ended = Arc::new(AtomicUsize::new(0));
    let gone = Arc::new(AtomicUsize::new(0));
    let finished = Arc::new(sched::Completion::new());
    for index in 0..CPUS {
        let (queue, ended, gone) = (queue.clone(), ended.clone(), gone.clone());
        let finished = finished.clone();
        let body = move || {
            for turn in 0..EACH {
                let told = ended.clone();
                let sector = (turn * CPUS + index) as u64;
                queue.submit(write(sector, BioFlags::empty(), move |outcome| {
                    outcome.unwrap();
                    told.fetch_add(1, Ordering::Relaxed);
                }));
                if turn % 10 == index {
                    queue.set_scheduler(NAMES[turn / 10 % 2]).unwrap();
                }
            }
            if gone.fetch_add(1, Ordering::AcqRel) + 1 == CPUS {
                finished.complete();
            }
        };
        let affinity = CpuSet::only(machine.cpu(index));
        let builder = sched::thread::Builder { affinity, ..sched::thread::Builder::new("submitter") };
        sched::spawn(builder, Box::new(body)).unwrap();
    }
    finished.wait();
    assert_eq!(ended.load(Ordering::Relaxed), CPUS * EACH, "each bio has ended, and nothing waits");
    assert_eq!(queue.statistics().in_flight(), 0);
}

#[test]
fn a_lane_that_is_closed_is_emptied_and_takes_nothing_more() {
    sched::current();
    let machine = Machine::boot(2, |_| sched::enter_application_processor());
    let mut limits = Limits::of_size(1000);
    limits.depth = 1;
    let slow = SlowDisk::new(limits);
    let queue = Queue::new(slow.clone()).unwrap();
    let done = Arc::new(sched::Completion::new());
    let (submitter, told, other) = (queue.clone(), done.clone(), machine.cpu(1));
    let body = move || {
        let submit = |sector| submitter.submit(write(sector, BioFlags::empty(), |outcome| outcome.unwrap()));
        assert_eq!(machine::cpu::current(), other);
        [100, 90].into_iter().for_each(submit);
        submitter.set_scheduler("mq-deadline").unwrap();
        [80, 70].into_iter().for_each(submit);
        told.complete();
    };
    let builder =
        sched::thread::Builder { affinity: CpuSet::only(other), ..sched::thread::Builder::new("other") };
    sched::spawn(builder, Box::new(body)).unwrap();
    done.wait();
    let mut order = Vec::new();
    for _ in 0..4 {
        order.extend(slow.answer(Ok(())).into_iter().map(|(_, sector, _)| sector));
    }
    order.sort_unstable();
    assert_eq!(order, [70, 80, 90, 100]);
}

#[test]
fn transfers_of_a_partition_are_counted_for_it_and_for_the_disk() {
    let disk = volume(Arc::new(RamDisk::new(100).unwrap()));
    let whole = BlockDevice::disk("counted", DeviceNumber { major: 240, minor: 200 }, disk.clone()).unwrap();
    let part = |number: u32, start| {
        let volume = disk.part(start, 10).unwrap().counted_for(number).unwrap();
        let minor = 200 + number;
        BlockDevice::partition(&whole, number, "part", DeviceNumber { major: 240, minor }, volume).unwrap()
    };
    let (first, second) = (part(1, 10), part(2, 20));
    first.volume().write(0, Memory::Owned(bytes(0, 3)), BioFlags::empty()).unwrap();
    first.volume().read(0, 512).unwrap();
    second.volume().read(0, 1024).unwrap();
    disk.read(50, 512).unwrap();
    let row = |device: &BlockDevice| {
        let snapshot = device.statistics();
        (snapshot.completed[..2].to_vec(), snapshot.sectors[..2].to_vec())
    };
    assert_eq!(row(&whole), (vec![3, 1], vec![4, 3]));
    assert_eq!(row(&first), (vec![1, 1], vec![1, 3]));
    assert_eq!(row(&second), (vec![1, 0], vec![2, 0]));
    let again = part(1, 40);
    assert_eq!(row(&again), (vec![0, 0], vec![0, 0]), "another partition of the number begins with nothing");
    again.volume().read(0, 512).unwrap();
    assert_eq!(row(&again), (vec![1, 0], vec![1, 0]));
}

proptest! {
    /// Whenever the scheduler changes: all that was written is on the disk.
    #[test]
    fn switching_keeps_all_data(steps in prop::collection::vec(0u64..120, 1..150)) {
        let mut limits = Limits::of_size(100);
        limits.depth = 3;
        limits.write_cache = true;
        let slow = SlowDisk::new(limits);
        let queue = Queue::new(slow.clone()).unwrap();
        let ended = Arc::new(AtomicUsize::new(0));
        let mut written = Vec::new();
        for (at, step) in steps.into_iter().enumerate() {
            match step {
                0..100 if !written.contains(&step) => {
                    let told = ended.clone();
                    let flags = if step % 7 == 0 { BioFlags::PREFLUSH } else { BioFlags::empty() };
                    queue.submit(write(step, flags, move |outcome| {
                        outcome.unwrap();
                        told.fetch_add(1, Ordering::Relaxed);
                    }));
                    written.push(step);
                }
                0..110 => drop(slow.answer(Ok(()))),
                _ => queue.set_scheduler(NAMES[at % 2]).unwrap(),
            }
        }
        while !slow.answer(Ok(())).is_empty() {}
        prop_assert_eq!(ended.load(Ordering::Relaxed), written.len());
        for sector in written {
            let mut found = [0; 512];
            slow.disk.read_at(sector, &mut found);
            prop_assert_eq!(found.to_vec(), bytes(sector as u8, 1));
        }
    }
}
