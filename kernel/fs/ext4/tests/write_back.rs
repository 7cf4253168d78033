//! Writing back, on disks that are held back, break and note what they get: fairness between devices, limits, who is told of errors, and what has
//! reached the disk when a call returns.
//!
//! Needs Debian's package `e2fsprogs` (`apt-get install e2fsprogs`); `./starling test` installs it.

mod image;
mod world;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use block::{DiskEvent, Error as DiskError};
use image::Image;
use machine::address::PAGE_SIZE;
use memory::file_cache::FileCache;
use vfs::Error;
use vfs::disk::DiskFile;
use vfs::disk::flusher::{SETTINGS, sync_all};
use vfs::file::{OpenFile, RangeSteps};
use vfs::flags::{MountFlags, OpenFlags};
use world::{Device, ONE_AT_A_TIME, judge, outcome_of, read, write};

const MIB: usize = 1 << 20;

/// Time for what must not happen: nothing fails if a thread is late.
const A_WHILE: Duration = Duration::from_millis(400);

/// Changes limits, and sets them back.
struct Limits([u64; 4]);

fn settings() -> [&'static std::sync::atomic::AtomicU64; 4] {
    [&SETTINGS.dirty_ratio, &SETTINGS.dirty_bytes, &SETTINGS.background_ratio, &SETTINGS.background_bytes]
}

impl Limits {
    fn of_bytes(limit: usize, background: usize) -> Self {
        let former = settings().map(|setting| setting.load(Relaxed));
        Self::set([0, limit as u64, 0, background as u64]);
        Self(former)
    }

    fn set(values: [u64; 4]) {
        settings().into_iter().zip(values).for_each(|(setting, value)| setting.store(value, Relaxed));
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        Self::set(self.0);
    }
}

fn sound_image(bytes: u64) -> Image {
    Image::make(&["-t", "ext4", "-b", "4096"], bytes, None)
}

fn pages_of(file: &OpenFile) -> Arc<FileCache> {
    file.object::<DiskFile>().expect("a file on a disk").cache().clone()
}

/// Writes so many bytes in pieces.
fn fill(file: &Arc<OpenFile>, bytes: usize, value: u8) {
    for at in (0..bytes).step_by(MIB / 16) {
        assert_eq!(write(file, at as i64, &vec![value; MIB / 16]), Ok(MIB / 16));
    }
}

#[test]
fn a_device_that_takes_nothing_stops_its_own_writers_and_no_others() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (image, other_image) = (sound_image(32 << 20), sound_image(32 << 20));
    let (slow, fast) = (Device::new(&image.bytes()), Device::new(&other_image.bytes()));
    let (slow_world, fast_world) = (slow.mount(false).expect("sound"), fast.mount(false).expect("sound"));
    let file = slow_world.create(b"/file").expect("space");
    let cache = pages_of(&file);
    slow.faults.hold();
    // All of it is on its way, and nothing is dirty.
    let _limits = Limits::of_bytes(64 * MIB, 32 * MIB);
    fill(&file, 2 * MIB, 1);
    cache.start_write_back(0, u64::MAX, u64::MAX);
    assert_eq!(cache.pages_under_write_back(), (2 * MIB / PAGE_SIZE) as u64);
    Limits::set([0, MIB as u64, 0, MIB as u64 / 2]);
    std::thread::scope(|scope| {
        let held_back = scope.spawn(|| write(&file, 4 * MIB as i64, &[2; PAGE_SIZE]));
        let other = fast_world.create(b"/file").expect("space");
        fill(&other, 4 * MIB, 3);
        other.sync(false).expect("the disk works");
        std::thread::sleep(A_WHILE);
        assert!(!held_back.is_finished(), "more is on its way to the device than may be");
        slow.faults.let_go();
        assert_eq!(outcome_of(held_back), Ok(PAGE_SIZE));
    });
    file.sync(false).expect("the disk works");
    assert!(read(&file, 0, 2 * MIB).iter().all(|&byte| byte == 1));
    drop((file, cache));
    slow_world.unmount();
    fast_world.unmount();
    judge(&image, &slow.bytes());
    judge(&other_image, &fast.bytes());
}

#[test]
fn syncfs_tells_each_open_file_of_an_error_once_whoever_wrote() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = sound_image(16 << 20);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("sound");
    let writer = world.create(b"/file").expect("space");
    let other = world.create(b"/other").expect("space");
    let directory = world.open(b"/", OpenFlags::DIRECTORY).expect("it is there");
    assert_eq!(write(&writer, 0, &[1; PAGE_SIZE]), Ok(PAGE_SIZE));
    assert_eq!(directory.sync_file_system(), Ok(()));
    assert_eq!(write(&writer, 0, &[2; PAGE_SIZE]), Ok(PAGE_SIZE));
    device.faults.fail_after(1, DiskError::Io, false);
    assert_eq!(pages_of(&writer).write_back(0, 1).map_err(Error::from), Err(Error::Io));
    for file in [&directory, &writer, &other] {
        assert_eq!(file.sync_file_system(), Err(Error::Io), "it was open then");
        assert_eq!(file.sync_file_system(), Ok(()), "once");
    }
    assert_eq!(world.open(b"/other", OpenFlags::empty()).expect("it is there").sync_file_system(), Ok(()));
    assert_eq!(writer.sync(false), Err(Error::Io), "fsync tells for itself");
    assert_eq!(writer.sync(false), Ok(()), "once");
    assert_eq!(other.sync(false), Ok(()), "it was another file's error");
    // Nobody was told of this one before somebody opens a file.
    assert_eq!(write(&writer, 0, &[3; PAGE_SIZE]), Ok(PAGE_SIZE));
    device.faults.fail_after(1, DiskError::Io, false);
    assert_eq!(pages_of(&writer).write_back(0, 1).map_err(Error::from), Err(Error::Io));
    let late = world.open(b"/other", OpenFlags::empty()).expect("it is there");
    assert_eq!(late.sync_file_system(), Err(Error::Io), "as on Linux");
    assert_eq!(late.sync_file_system(), Ok(()));
    drop((writer, other, directory, late));
    world.unmount();
}

/// What of the bytes had reached the disk, and whether it was flushed afterwards.
fn lasts(events: &[DiskEvent], value: u8) -> (bool, bool) {
    let (mut written, mut durable) = (false, false);
    for event in events {
        match event {
            DiskEvent::Write { bytes, durable: at_once, .. }
                if bytes.first() == Some(&value) && bytes.last() == Some(&value) =>
            {
                written = true;
                durable = *at_once;
            }
            DiskEvent::Flush => durable |= written,
            DiskEvent::Write { .. } => {}
        }
    }
    (written, durable)
}

#[test]
fn what_a_synchronous_write_wrote_is_flushed_when_it_returns() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = sound_image(16 << 20);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("sound");
    drop(world.create(b"/file").expect("space"));
    device.faults.record();
    let both = OpenFlags::DATA_SYNC | OpenFlags::FILE_SYNC;
    for (round, flags) in
        [OpenFlags::DATA_SYNC, both, OpenFlags::DATA_SYNC | OpenFlags::DIRECT, both | OpenFlags::DIRECT]
            .into_iter()
            .enumerate()
    {
        let file = world.open(b"/file", OpenFlags::READ_WRITE | flags).expect("it is there");
        // The first makes the file larger, unless it is long enough: the others change nothing but bytes.
        for turn in 0..3 {
            let value = 0x80 + (round * 3 + turn) as u8;
            device.faults.take_events();
            assert_eq!(write(&file, (turn % 2 * PAGE_SIZE) as i64, &[value; PAGE_SIZE]), Ok(PAGE_SIZE));
            assert_eq!(lasts(&device.faults.take_events(), value), (true, true), "{flags:?}, write {turn}");
        }
    }
    let plain = world.open(b"/file", OpenFlags::READ_WRITE).expect("it is there");
    for (value, data_only) in [(1, true), (2, false)] {
        device.faults.take_events();
        assert_eq!(write(&plain, 0, &[value; PAGE_SIZE]), Ok(PAGE_SIZE));
        assert!(!lasts(&device.faults.take_events(), value).0, "an ordinary write is not written at once");
        plain.sync_written(0..u64::MAX, data_only).expect("the disk works");
        assert_eq!(lasts(&device.faults.take_events(), value), (true, true), "RWF_DSYNC or RWF_SYNC");
    }
    drop(plain);
    world.unmount();
    judge(&image, &device.bytes());
}

#[test]
fn a_synchronous_write_waits_for_what_it_wrote_and_not_for_other_pages() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = sound_image(16 << 20);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("sound");
    let plain = world.create(b"/file").expect("space");
    let cache = pages_of(&plain);
    assert_eq!(write(&plain, 0, &[1; 8 * PAGE_SIZE]), Ok(8 * PAGE_SIZE));
    let synced = world.open(b"/file", OpenFlags::READ_WRITE | OpenFlags::DATA_SYNC).expect("it is there");
    // Two pages have bytes of it.
    assert_eq!(write(&synced, 4 * PAGE_SIZE as i64 - 10, &[2; 20]), Ok(20));
    assert_eq!(cache.dirty_pages(), 6);
    let appending = OpenFlags::READ_WRITE | OpenFlags::APPEND | OpenFlags::DATA_SYNC;
    let appended = world.open(b"/file", appending).expect("it is there");
    assert_eq!(write(&appended, 0, &[3; 20]), Ok(20));
    assert_eq!(cache.dirty_pages(), 0);
    assert_eq!(read(&plain, 8 * PAGE_SIZE as i64, 30), [3; 20]);
    drop((plain, synced, appended, cache));
    world.unmount();
    judge(&image, &device.bytes());
}

#[test]
fn a_mount_that_wants_it_makes_all_writes_last() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = sound_image(16 << 20);
    let device = Device::new(&image.bytes());
    let world = device.mount_through(MountFlags::SYNCHRONOUS).expect("sound");
    let file = world.create(b"/file").expect("space");
    device.faults.record();
    assert_eq!(write(&file, 0, &[0x77; PAGE_SIZE]), Ok(PAGE_SIZE));
    assert_eq!(lasts(&device.faults.take_events(), 0x77), (true, true));
    drop(file);
    world.unmount();
}

#[test]
fn a_range_that_was_written_and_waited_for_is_on_the_disk() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = sound_image(16 << 20);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("sound");
    let file = world.create(b"/file").expect("space");
    let cache = pages_of(&file);
    let range = |steps| file.operations().write_range(&file, 0, 2 * PAGE_SIZE as u64, steps);
    let all = RangeSteps::all();
    assert_eq!(write(&file, 0, &[5; 4 * PAGE_SIZE]), Ok(4 * PAGE_SIZE));
    assert_eq!(range(RangeSteps::WAIT_BEFORE | RangeSteps::WAIT_AFTER), Ok(()));
    assert_eq!(cache.dirty_pages(), 4, "waiting begins nothing");
    device.faults.record();
    // The transfer finds no memory the first time.
    device.faults.fail_after(1, DiskError::OutOfMemory, false);
    assert_eq!(range(RangeSteps::WRITE | RangeSteps::WAIT_AFTER), Ok(()));
    assert_eq!((cache.dirty_pages(), cache.pages_under_write_back()), (2, 0), "the range, and nothing else");
    assert!(lasts(&device.faults.take_events(), 5).0, "it is on the disk");
    assert_eq!(range(all), Ok(()), "nothing is left to do");
    // Without memory at all the caller is told.
    assert_eq!(write(&file, 0, &[6; PAGE_SIZE]), Ok(PAGE_SIZE));
    device.faults.fail_after(1, DiskError::OutOfMemory, true);
    assert_eq!(range(all), Err(Error::OutOfMemory));
    device.faults.fail_after(0, DiskError::Io, false);
    assert_eq!(range(all), Ok(()));
    // An error is told once.
    assert_eq!(write(&file, 0, &[7; PAGE_SIZE]), Ok(PAGE_SIZE));
    device.faults.fail_after(1, DiskError::Io, false);
    assert_eq!(range(all), Err(Error::Io));
    assert_eq!(range(all), Ok(()));
    // Beginning does not wait.
    assert_eq!(write(&file, 0, &[8; PAGE_SIZE]), Ok(PAGE_SIZE));
    device.faults.hold();
    assert_eq!(range(RangeSteps::WRITE), Ok(()));
    assert_eq!(cache.pages_under_write_back(), 1);
    device.faults.let_go();
    assert_eq!(range(RangeSteps::WAIT_AFTER), Ok(()));
    assert_eq!(cache.pages_under_write_back(), 0);
    drop((cache, file));
    world.unmount();
    judge(&image, &device.bytes());
}

#[test]
fn sync_writes_all_devices_also_without_memory_to_remember_them() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = sound_image(16 << 20);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("sound");
    let file = world.create(b"/file").expect("space");
    for attempt in 1..=3 {
        assert_eq!(write(&file, 0, &[attempt; PAGE_SIZE]), Ok(PAGE_SIZE));
        memory::fallible::inject(u64::from(attempt) - 1);
        sync_all();
        memory::fallible::stop_injection();
        assert_eq!(pages_of(&file).dirty_pages(), 0, "allocation {attempt} failed");
    }
    drop(file);
    world.unmount();
}
