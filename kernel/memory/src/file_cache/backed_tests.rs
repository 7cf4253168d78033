//! Caches whose pages have their home on a disk that tests hold back, break and look at.

use super::tests::drop_unseen;
use super::*;
use crate::buffer::{Sink, Source};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicI64, Ordering::Relaxed};
use machine::address::{PAGE_SIZE, UserAddr};
use proptest::prelude::*;
use std::sync::Mutex;

const PAGE: u64 = PAGE_SIZE as u64;

/// What the disk does with what it gets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mood {
    Works,
    Holds,
    Fails(CacheError),
}

struct Disk {
    bytes: Mutex<Vec<u8>>,
    fills: Mutex<Mood>,
    writes: Mutex<Mood>,
    held: Mutex<Vec<(bool, PageRun)>>,
    /// Runs of pages written: first and count.
    written: Mutex<Vec<(u64, usize)>>,
    filled: Mutex<Vec<(u64, usize)>>,
    forgotten: Mutex<Vec<u64>>,
    /// Reserved and not given back: pages written back are taken from it.
    reserved: AtomicI64,
}

impl Disk {
    fn new(pages: u64) -> Arc<Disk> {
        Arc::new(Disk {
            bytes: Mutex::new((0..pages * PAGE).map(|at| (at / 7) as u8).collect()),
            fills: Mutex::new(Mood::Works),
            writes: Mutex::new(Mood::Works),
            held: Mutex::new(Vec::new()),
            written: Mutex::new(Vec::new()),
            filled: Mutex::new(Vec::new()),
            forgotten: Mutex::new(Vec::new()),
            reserved: AtomicI64::new(0),
        })
    }

    fn cache(self: &Arc<Disk>, size: u64) -> Arc<FileCache> {
        let device = Arc::new(BackingDevice::new("disk".into()));
        FileCache::with_representative(size, self.clone(), device).unwrap()
    }

    fn transfer(&self, fills: bool, run: &PageRun) {
        let mut bytes = self.bytes.lock().unwrap();
        let needed = (run.first() as usize + run.pages()) * PAGE_SIZE;
        let known = bytes.len().max(needed);
        bytes.resize(known, 0);
        for (page, frame) in (run.first() as usize..).zip(run.frames()) {
            let part = &mut bytes[page * PAGE_SIZE..(page + 1) * PAGE_SIZE];
            if fills { frame.write(0, part) } else { frame.read(0, part) }
        }
    }

    fn take(&self, fills: bool, run: PageRun) {
        let mood = *if fills { &self.fills } else { &self.writes }.lock().unwrap();
        match mood {
            Mood::Works => {
                self.transfer(fills, &run);
                run.complete(Ok(()));
            }
            Mood::Holds => self.held.lock().unwrap().push((fills, run)),
            Mood::Fails(error) => run.complete(Err(error)),
        }
    }

    fn let_go(&self) {
        let held = std::mem::take(&mut *self.held.lock().unwrap());
        for (fills, run) in held {
            self.transfer(fills, &run);
            run.complete(Ok(()));
        }
    }
}

impl FileRepresentative for Disk {
    fn fill(&self, pages: PageRun) {
        self.filled.lock().unwrap().push((pages.first(), pages.pages()));
        self.take(true, pages);
    }

    fn write_back(&self, pages: PageRun) {
        self.written.lock().unwrap().push((pages.first(), pages.pages()));
        self.reserved.fetch_sub(pages.pages() as i64, Relaxed);
        self.take(false, pages);
    }

    fn prepare_write(&self, _page: u64) -> Result<bool, CacheError> {
        self.reserved.fetch_add(1, Relaxed);
        Ok(true)
    }

    fn forget_write(&self, page: u64) {
        self.reserved.fetch_sub(1, Relaxed);
        self.forgotten.lock().unwrap().push(page);
    }
}

fn read(cache: &FileCache, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0xaa; length];
    let count = cache.read_at(offset, &mut Sink::kernel(&mut bytes)).unwrap();
    bytes.truncate(count);
    bytes
}

fn write(cache: &FileCache, offset: u64, bytes: &[u8]) {
    assert_eq!(cache.write_at(offset, &mut Source::kernel(bytes)), Ok(bytes.len()));
}

fn forget_clean(cache: &FileCache) {
    cache.device().unwrap().take_dirty().for_each(|file| file.requeue());
}

#[test]
fn neighbouring_dirty_pages_are_written_together_in_file_order() {
    let disk = Disk::new(100);
    let cache = disk.cache(100 * PAGE);
    for page in [50, 3, 5, 4, 51, 90] {
        write(&cache, page * PAGE + 10, b"new");
    }
    assert_eq!((cache.dirty_pages(), cache.device().unwrap().dirty_pages()), (6, 6));
    cache.write_back(0, u64::MAX).unwrap();
    assert_eq!(*disk.written.lock().unwrap(), [(3, 3), (50, 2), (90, 1)]);
    assert_eq!((cache.dirty_pages(), cache.pages_under_write_back()), (0, 0));
    assert_eq!(&disk.bytes.lock().unwrap()[3 * PAGE_SIZE + 10..][..3], b"new");
    forget_clean(&cache);
}

#[test]
fn runs_are_limited() {
    let disk = Disk::new(0);
    let cache = disk.cache(0);
    write(&cache, 0, &vec![7; 70 * PAGE_SIZE]);
    cache.write_back(0, u64::MAX).unwrap();
    assert_eq!(*disk.written.lock().unwrap(), [(0, 32), (32, 32), (64, 6)]);
    forget_clean(&cache);
}

#[test]
fn read_ahead_brings_what_is_absent_without_waiting() {
    let disk = Disk::new(20);
    let cache = disk.cache(20 * PAGE - 100);
    assert_eq!(read(&cache, 5 * PAGE, 1).len(), 1);
    *disk.fills.lock().unwrap() = Mood::Holds;
    disk.filled.lock().unwrap().clear();
    assert_eq!(cache.read_ahead(3, 50), 16);
    assert_eq!(*disk.filled.lock().unwrap(), [(3, 2), (6, 14)]);
    assert!(!cache.is_resident(4) && cache.is_resident(5));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&cache, 4 * PAGE, 16 * PAGE_SIZE));
        disk.let_go();
        let expected = &disk.bytes.lock().unwrap()[4 * PAGE_SIZE..20 * PAGE_SIZE - 100];
        assert_eq!(reader.join().unwrap(), expected);
    });
    let frame = cache.cached(19).unwrap();
    let mut tail = [1; 100];
    frame.read(PAGE_SIZE - 100, &mut tail);
    assert_eq!(tail, [0; 100], "what is beyond the end of the file is not shown");
}

#[test]
fn a_failed_fill_is_the_error_of_who_asked_and_may_be_tried_again() {
    let disk = Disk::new(4);
    let cache = disk.cache(4 * PAGE);
    for error in [CacheError::InputOutput, CacheError::NoDevice] {
        *disk.fills.lock().unwrap() = Mood::Fails(error);
        assert_eq!(cache.read_ahead(0, 4), 4);
        assert_eq!(cache.resident_pages(), 0);
        assert_eq!(cache.read_at(0, &mut Sink::kernel(&mut [0; 10])), Err(error));
    }
    *disk.fills.lock().unwrap() = Mood::Works;
    assert_eq!(read(&cache, 0, 10).len(), 10);
}

#[test]
fn a_failed_write_is_told_and_the_page_is_not_tried_for_ever() {
    let disk = Disk::new(4);
    let cache = disk.cache(4 * PAGE);
    let seen = cache.write_errors().unwrap().sample();
    *disk.writes.lock().unwrap() = Mood::Fails(CacheError::InputOutput);
    write(&cache, 0, b"x");
    assert_eq!(cache.write_back(0, 4), Err(CacheError::InputOutput));
    assert_eq!(cache.write_errors().unwrap().check(&seen), Err(CacheError::InputOutput));
    assert_eq!(cache.write_back(0, 4), Ok(()));
    assert_eq!(cache.write_errors().unwrap().check(&seen), Ok(()));
    assert_eq!(cache.dirty_pages(), 0);
    forget_clean(&cache);
}

#[test]
fn a_write_that_lacked_memory_comes_again() {
    let disk = Disk::new(4);
    let cache = disk.cache(4 * PAGE);
    *disk.writes.lock().unwrap() = Mood::Fails(CacheError::OutOfMemory);
    write(&cache, 0, b"x");
    assert_eq!(cache.start_write_back(0, 4, u64::MAX), 1);
    assert_eq!(cache.dirty_pages(), 1);
    assert_eq!(cache.write_back(0, 4), Err(CacheError::OutOfMemory), "who waits is told in the end");
    assert_eq!(cache.dirty_pages(), 1);
    *disk.writes.lock().unwrap() = Mood::Works;
    cache.write_back(0, 4).unwrap();
    assert_eq!(disk.bytes.lock().unwrap()[0], b'x');
    forget_clean(&cache);
}

#[test]
fn a_page_that_is_being_written_is_changed_afterwards_only() {
    let disk = Disk::new(4);
    let cache = disk.cache(4 * PAGE);
    write(&cache, 0, b"first");
    *disk.writes.lock().unwrap() = Mood::Holds;
    assert_eq!(cache.start_write_back(0, 4, u64::MAX), 1);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(&cache, 0, b"later"));
        assert_eq!(cache.pages_under_write_back(), 1);
        disk.let_go();
        writer.join().unwrap();
    });
    assert_eq!(&disk.bytes.lock().unwrap()[..5], b"first");
    *disk.writes.lock().unwrap() = Mood::Works;
    cache.write_back(0, 4).unwrap();
    assert_eq!(&disk.bytes.lock().unwrap()[..5], b"later");
    forget_clean(&cache);
}

#[test]
fn truncation_waits_for_pages_on_their_way_and_forgets_dirty_ones() {
    let disk = Disk::new(8);
    let cache = disk.cache(8 * PAGE);
    write(&cache, 3 * PAGE, b"x");
    *disk.writes.lock().unwrap() = Mood::Holds;
    assert_eq!(cache.start_write_back(0, 8, u64::MAX), 1);
    write(&cache, 5 * PAGE, b"y");
    std::thread::scope(|scope| {
        let cutter = scope.spawn(|| cache.truncate(PAGE));
        while cache.size() > PAGE {
            std::thread::yield_now();
        }
        assert!(!cutter.is_finished(), "the page under way is waited for");
        disk.let_go();
        cutter.join().unwrap().unwrap();
    });
    assert_eq!(*disk.forgotten.lock().unwrap(), [5]);
    assert_eq!((cache.dirty_pages(), cache.pages_under_write_back(), cache.resident_pages()), (0, 0, 0));
    forget_clean(&cache);
}

#[test]
fn growing_a_file_writes_the_zeros_behind_its_former_end() {
    let disk = Disk::new(2);
    let cache = disk.cache(100);
    cache.truncate(2 * PAGE).unwrap();
    cache.write_back(0, u64::MAX).unwrap();
    cache.drop_clean(0, u64::MAX, usize::MAX);
    assert_eq!(read(&cache, 100, 50), [0; 50]);
    forget_clean(&cache);
}

#[test]
fn clean_pages_that_nobody_uses_are_given_up() {
    let disk = Disk::new(8);
    let cache = disk.cache(8 * PAGE);
    read(&cache, 0, 8 * PAGE_SIZE);
    write(&cache, 2 * PAGE, b"x");
    let used = cache.cached(4).unwrap();
    assert_eq!(cache.drop_clean(0, u64::MAX, usize::MAX), 6);
    assert!(cache.is_resident(2) && cache.is_resident(4) && cache.resident_pages() == 2);
    drop(used);
    cache.write_back(0, u64::MAX).unwrap();
    assert_eq!(cache.drop_clean(0, u64::MAX, usize::MAX), 2);
    assert_eq!(read(&cache, 2 * PAGE, 1), b"x");
    forget_clean(&cache);
    drop_unseen();
}

#[test]
fn a_page_can_be_given_up_as_soon_as_it_is_clean() {
    let disk = Disk::new(8);
    let cache = disk.cache(8 * PAGE);
    let (told, dropped) = (Arc::downgrade(&cache), Arc::new(AtomicI64::new(0)));
    let count = dropped.clone();
    cache.device().unwrap().on_event(Box::new(move |event| {
        if event == Event::PagesWritten {
            let cache = told.upgrade().unwrap();
            count.fetch_add(cache.drop_clean(0, u64::MAX, usize::MAX) as i64, Relaxed);
        }
    }));
    write(&cache, 0, &[1; 3 * PAGE_SIZE]);
    cache.write_back(0, u64::MAX).unwrap();
    assert_eq!(dropped.load(Relaxed), 3);
    forget_clean(&cache);
    drop_unseen();
}

#[test]
fn a_dirty_file_stays_in_its_devices_queue_until_it_is_written() {
    let disk = Disk::new(2);
    let cache = disk.cache(2 * PAGE);
    let device = cache.device().unwrap().clone();
    write(&cache, 0, b"x");
    write(&cache, PAGE, b"x");
    drop(cache);
    let files: Vec<_> = device.take_dirty().collect();
    assert_eq!(files.len(), 1);
    files[0].requeue();
    drop(files);
    for file in device.take_dirty() {
        file.write_back(0, u64::MAX).unwrap();
        file.requeue();
    }
    assert!(!device.has_dirty_files() && device.dirty_pages() == 0);
    assert_eq!(Arc::strong_count(&disk), 1, "the file is gone");
}

#[test]
fn what_is_reserved_for_a_page_that_does_not_become_dirty_is_given_back() {
    let disk = Disk::new(1);
    let cache = disk.cache(PAGE);
    let nowhere = || Source::user(UserAddr::new(8), PAGE_SIZE);
    assert_eq!(cache.write_at(4 * PAGE, &mut nowhere()), Err(CacheError::BadAddress));
    assert_eq!(disk.reserved.load(Relaxed), 0, "no page has come of it");
    assert_eq!(cache.write_at(PAGE / 2, &mut nowhere()), Err(CacheError::BadAddress));
    assert_eq!(disk.reserved.load(Relaxed), 1, "it was made dirty before it was looked for bytes");
    write(&cache, 2 * PAGE, &[1; 2 * PAGE_SIZE]);
    let frame = cache.frame(2, Intent::Write).unwrap().unwrap();
    assert_eq!(cache.mark_dirty(2, &frame), Ok(true));
    assert_eq!(disk.reserved.load(Relaxed), 3);
    drop(frame);
    cache.truncate(3 * PAGE).unwrap();
    assert_eq!(disk.reserved.load(Relaxed), 2);
    cache.write_back(0, u64::MAX).unwrap();
    assert_eq!(disk.reserved.load(Relaxed), 0);
}

#[test]
fn a_write_within_a_file_does_not_make_it_longer() {
    let disk = Disk::new(1);
    let cache = disk.cache(PAGE + 10);
    assert_eq!(cache.write_within(PAGE, 100, &mut Source::kernel(&[1; 50])), Ok(10));
    assert_eq!(cache.write_within(PAGE + 10, 100, &mut Source::kernel(&[1; 50])), Ok(0));
    assert_eq!(cache.write_within(5 * PAGE, 100, &mut Source::kernel(&[1; 50])), Ok(0));
    assert_eq!(cache.write_within(0, 7, &mut Source::kernel(&[1; 50])), Ok(7));
    assert_eq!(cache.size(), PAGE + 10);
}

#[derive(Clone, Debug)]
enum Step {
    Write { offset: u64, length: usize, value: u8 },
    Truncate { size: u64 },
    Punch { offset: u64, length: u64 },
    Read { offset: u64, length: usize },
    WriteBack { first: u64, end: u64 },
    Drop,
    ReadAhead { first: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let offset =
        || (0..6_u64, prop_oneof![Just(0), Just(PAGE - 1), 0..PAGE]).prop_map(|(page, at)| page * PAGE + at);
    prop_oneof![
        4 => (offset(), 1..3 * PAGE_SIZE, any::<u8>())
            .prop_map(|(offset, length, value)| Step::Write { offset, length, value }),
        2 => offset().prop_map(|size| Step::Truncate { size }),
        1 => (offset(), 0..2 * PAGE).prop_map(|(offset, length)| Step::Punch { offset, length }),
        3 => (offset(), 0..3 * PAGE_SIZE).prop_map(|(offset, length)| Step::Read { offset, length }),
        2 => (0..6_u64, 0..8_u64).prop_map(|(first, end)| Step::WriteBack { first, end }),
        3 => Just(Step::Drop),
        1 => (0..6_u64).prop_map(|first| Step::ReadAhead { first }),
    ]
}

proptest! {
    /// Truncation frees blocks in a file system; here the disk keeps garbage, which must never show.
    #[test]
    fn what_is_written_back_and_given_up_comes_back(steps in prop::collection::vec(step(), 1..50)) {
        let disk = Disk::new(3);
        let cache = disk.cache(2 * PAGE + 77);
        let mut model = disk.bytes.lock().unwrap()[..2 * PAGE_SIZE + 77].to_vec();
        for step in steps {
            match step {
                Step::Write { offset, length, value } => {
                    let bytes = vec![value; length];
                    write(&cache, offset, &bytes);
                    let end = offset as usize + length;
                    // What lies between the former end and the write is a hole: a file system would not have blocks there.
                    for page in (model.len() as u64).div_ceil(PAGE)..offset / PAGE {
                        let at = page as usize * PAGE_SIZE;
                        let mut disk = disk.bytes.lock().unwrap();
                        let known = disk.len().max(at + PAGE_SIZE);
                        disk.resize(known, 0);
                        disk[at..at + PAGE_SIZE].fill(0);
                    }
                    model.resize(model.len().max(end), 0);
                    model[offset as usize..end].copy_from_slice(&bytes);
                }
                Step::Truncate { size } => {
                    cache.truncate(size).unwrap();
                    let mut disk = disk.bytes.lock().unwrap();
                    let kept = (size as usize).next_multiple_of(PAGE_SIZE).min(disk.len());
                    disk[kept..].fill(0);
                    model.resize(size as usize, 0);
                }
                Step::Punch { offset, length } => {
                    cache.punch_hole(offset..offset + length).unwrap();
                    let end = (offset + length).min(model.len() as u64) as usize;
                    if (offset as usize) < end {
                        model[offset as usize..end].fill(0);
                        let whole = (offset as usize).next_multiple_of(PAGE_SIZE);
                        let until = if end == model.len() { end.next_multiple_of(PAGE_SIZE) } else { end };
                        let until = until / PAGE_SIZE * PAGE_SIZE;
                        let mut disk = disk.bytes.lock().unwrap();
                        let until = until.min(disk.len());
                        if whole < until {
                            disk[whole..until].fill(0);
                        }
                    }
                }
                Step::Read { offset, length } => {
                    let start = (offset as usize).min(model.len());
                    let end = (offset as usize + length).min(model.len());
                    prop_assert_eq!(read(&cache, offset, length), &model[start..end.max(start)]);
                }
                Step::WriteBack { first, end } => cache.write_back(first, end).unwrap(),
                Step::Drop => {
                    cache.drop_clean(0, u64::MAX, usize::MAX);
                }
                Step::ReadAhead { first } => {
                    cache.read_ahead(first, first + 4);
                }
            }
            prop_assert_eq!(cache.size(), model.len() as u64);
        }
        cache.write_back(0, u64::MAX).unwrap();
        cache.drop_clean(0, u64::MAX, usize::MAX);
        prop_assert_eq!(cache.resident_pages(), 0);
        prop_assert_eq!(read(&cache, 0, model.len() + 1), model);
        forget_clean(&cache);
        drop_unseen();
    }
}
