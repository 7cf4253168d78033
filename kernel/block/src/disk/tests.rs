//! Disks come and go, with their partitions.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::*;
use crate::registry::{self, DeviceNumber, Holder, find_name};
use crate::{Driver, Error, Limits, Queue, RamDisk, Request};
use machine::hosted::Machine;

const FAMILY: Family = Family { prefix: "tst", letters: true, major: 242, minors: 3 };

fn with_partitions(entries: &[(u32, u32)]) -> Vec<u8> {
    let mut disk = vec![0; 512 * 100];
    for (index, (start, sectors)) in entries.iter().enumerate() {
        let entry = &mut disk[446 + 16 * index..][..16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..].copy_from_slice(&sectors.to_le_bytes());
    }
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk
}

fn description(family: Family) -> Description {
    Description { family, parent: "/devices/virtual".into(), serial: String::new(), removable: false }
}

fn names(disk: &Arc<Disk>) -> Vec<String> {
    let mut names = Vec::new();
    registry::for_each(|device| {
        let whole = device.whole().unwrap_or(device);
        if Arc::ptr_eq(whole, &disk.device) {
            names.push(device.name().into());
        }
    });
    names
}

#[test]
fn disk_comes_with_its_partitions_and_goes_with_them() {
    let _turn = crate::registry::TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    memory::initialize();
    let ram = Arc::new(RamDisk::from_bytes(&with_partitions(&[(1, 9), (10, 20), (40, 5)])).expect("memory"));
    let queue = Queue::new(ram.clone()).expect("memory");
    let disk = attach(description(FAMILY), queue).expect("memory");
    assert_eq!(names(&disk), ["tsta", "tsta1", "tsta2", "tsta3"]);
    let second = find_name("tsta2").expect("it is registered");
    assert_eq!(second.number(), DeviceNumber { major: 242, minor: 2 });
    assert_eq!((second.volume().start(), second.volume().sectors()), (10, 20));
    assert_eq!(find_name("tsta3").expect("it is registered").number().major, EXTENDED_MAJOR);
    assert_eq!(disk.path_of(&second), "/devices/virtual/block/tsta/tsta2");
    assert!(Arc::ptr_eq(&of(&second).expect("a driver has attached it"), &disk));

    // The third moves: not while somebody has it.
    ram.write_at(0, &with_partitions(&[(1, 9), (10, 20), (50, 5)])[..512]).expect("memory");
    let third = find_name("tsta3").expect("it is registered");
    third.claim(Holder(1)).expect("nobody has it");
    assert_eq!(rescan(&disk), Err(Error::Busy));
    third.release(Holder(1));
    rescan(&disk).expect("nobody has it");
    assert_eq!(find_name("tsta3").expect("it came again").volume().start(), 50);
    assert!(Arc::ptr_eq(&find_name("tsta2").expect("it stays"), &second));

    // The disk grows: all of it is larger, its parts are not.
    resize(&disk, 200);
    assert_eq!((disk.device.volume().sectors(), second.volume().sectors()), (200, 20));

    // A second disk has the next name; the first one's is free when it is gone.
    let attach_another = || {
        let queue = Queue::new(Arc::new(RamDisk::new(8).expect("memory"))).expect("memory");
        attach(description(FAMILY), queue).expect("memory")
    };
    let next = attach_another();
    assert_eq!(next.name(), "tstb");
    detach(&disk);
    assert!(names(&disk).is_empty() && second.is_removed() && of(&second).is_none());
    assert_eq!(second.volume().read(0, 512), Err(Error::NoDevice));
    assert_eq!(attach_another().name(), "tsta");
}

#[test]
fn names_that_drivers_choose_are_taken_once_and_numbers_given() {
    let _turn = crate::registry::TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    memory::initialize();
    let queue = || {
        Queue::new(Arc::new(RamDisk::from_bytes(&with_partitions(&[(1, 9)])).expect("memory")))
            .expect("memory")
    };
    let by_driver = |name| attach_by_driver(description(NVME), Some(name), queue());
    let disk = by_driver("nvme3n1").expect("memory");
    disk.wait_for_partitions();
    assert_eq!(names(&disk), ["nvme3n1", "nvme3n1p1"]);
    let (whole, part) = (disk.device.number(), find_name("nvme3n1p1").expect("it is registered").number());
    assert_eq!((whole.major, part.major), (EXTENDED_MAJOR, EXTENDED_MAJOR));
    assert_ne!(whole.minor, part.minor);
    assert_eq!(by_driver("nvme3n1").err(), Some(Error::Busy));
    let other = by_driver("nvme3n2").expect("memory");
    assert!(![whole, part].contains(&other.device.number()));
    detach(&other);
    detach(&disk);
    assert!(find_name("nvme3n1").is_none());
}

/// A disk that says nothing until it is let go of.
#[derive(Default)]
struct DeadDisk(sync::SpinLock<Vec<Request>>);

impl Driver for DeadDisk {
    fn limits(&self) -> Limits {
        Limits::of_size(100)
    }

    fn submit(&self, _cpu: usize, request: Request) -> core::result::Result<(), Request> {
        self.0.lock().push(request);
        Ok(())
    }
}

#[test]
fn a_disk_that_does_not_answer_holds_up_nobody() {
    let _turn = crate::registry::TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    sched::current();
    let _machine = Machine::boot(2, |_| sched::enter_application_processor());
    let dead = Arc::new(DeadDisk::default());
    let by_driver = |driver| {
        attach_by_driver(description(FAMILY), None, Queue::new(driver).expect("memory")).expect("memory")
    };
    let first = by_driver(dead.clone());
    let alive = RamDisk::from_bytes(&with_partitions(&[(1, 9)])).expect("memory");
    let second = by_driver(Arc::new(alive));
    second.wait_for_partitions();
    assert_eq!((names(&first).len(), names(&second).len()), (1, 2));
    assert!(!first.is_read.is_complete());
    detach(&second);
    detach(&first);
    // Its driver ends what it has, and with that the thread that looks for partitions.
    while !first.is_read.is_complete() {
        let held = core::mem::take(&mut *dead.0.lock());
        held.into_iter().for_each(|request| request.complete(Err(Error::NoDevice)));
        sched::yield_now();
    }
    assert!(names(&first).is_empty() && names(&second).is_empty());
}

#[test]
fn partitions_are_added_resized_and_deleted_by_hand() {
    const OWN: Family = Family { prefix: "hnd", letters: true, major: 243, minors: 3 };
    let _turn = crate::registry::TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    memory::initialize();
    let ram = Arc::new(RamDisk::from_bytes(&with_partitions(&[(1, 9)])).expect("memory"));
    let disk = attach(description(OWN), Queue::new(ram).expect("memory")).expect("memory");
    // Taken: the number, the first or the last sector.
    for (number, start, sectors) in [(1, 20, 5), (2, 9, 5), (2, 0, 2), (2, 0, 100)] {
        assert_eq!(
            by_hand::add(&disk, number, start, sectors),
            Err(Error::Busy),
            "{number} {start} {sectors}"
        );
    }
    for (number, start, sectors) in [(0, 20, 5), (256, 20, 5), (2, 20, 0), (2, 96, 5), (2, u64::MAX, 5)] {
        assert_eq!(
            by_hand::add(&disk, number, start, sectors),
            Err(Error::Invalid),
            "{number} {start} {sectors}"
        );
    }
    by_hand::add(&disk, 7, 20, 5).expect("memory");
    by_hand::add(&disk, 2, 30, 70).expect("memory");
    assert_eq!(names(&disk), ["hnda", "hnda1", "hnda7", "hnda2"]);
    let part = find_name("hnda7").expect("it is registered");
    let copy = part.volume().clone();
    assert!(copy.read(5, 512).is_err());

    assert_eq!(by_hand::resize(&disk, 3, 20, 6).err(), Some(Error::NoDevice));
    assert_eq!(by_hand::resize(&disk, 7, 21, 6).err(), Some(Error::Invalid));
    assert_eq!(by_hand::resize(&disk, 7, 20, 0).err(), Some(Error::Invalid));
    assert_eq!(by_hand::resize(&disk, 7, 20, 11).err(), Some(Error::Busy));
    assert_eq!(by_hand::resize(&disk, 2, 30, 71).err(), Some(Error::Invalid));
    by_hand::resize(&disk, 7, 20, 10).expect("it is free");
    assert!(copy.read(9, 512).is_ok() && copy.read(10, 512).is_err(), "who has it already sees its size");

    // What is open stays; another one of the disk that is open does not keep it.
    part.begin_use();
    assert_eq!(by_hand::delete(&disk, 7), Err(Error::Busy));
    by_hand::delete(&disk, 2).expect("nobody has it");
    part.end_use();
    part.claim(Holder(1)).expect("nobody has it");
    assert_eq!(by_hand::delete(&disk, 7), Err(Error::Busy));
    part.release(Holder(1));
    by_hand::delete(&disk, 7).expect("nobody has it");
    assert_eq!(by_hand::delete(&disk, 7), Err(Error::NoDevice));
    assert!(part.is_removed());
    assert_eq!(names(&disk), ["hnda", "hnda1"]);
    detach(&disk);
    assert_eq!(by_hand::add(&disk, 2, 30, 5), Err(Error::NoDevice));
}
