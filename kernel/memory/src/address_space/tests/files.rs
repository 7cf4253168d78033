//! Mapped files: private and shared, cut off while mapped, with a representative behind.

use super::super::window::{self, Window};
use super::*;
use crate::buffer::{Sink, Source};
use crate::charge::Whose;
use crate::file_cache::{BackingDevice, CacheError, FileRepresentative, Mapped, PageRun};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

fn map(space: &AddressSpace, cache: &Arc<FileCache>, pages: u64, flags: MapFlags) -> u64 {
    let request = MapRequest::private_file(mapping(cache), 0, pages * PAGE, READ_WRITE);
    space.map(request.with(flags)).unwrap().as_u64()
}

fn file_byte(cache: &FileCache, offset: u64) -> u8 {
    let mut byte = [0xee];
    assert_eq!(cache.read_at(offset, &mut Sink::kernel(&mut byte)), Ok(1));
    byte[0]
}

#[test]
fn private_stores_stay_private_and_shared_ones_reach_the_file() {
    without_leaks(|| {
        let (one, two, cache) = (space(), space(), file(2));
        cache.write_at(0, &mut Source::kernel(b"abc")).unwrap();
        let private = map(&one, &cache, 2, MapFlags::empty());
        let shared = map(&two, &cache, 2, MapFlags::SHARED);
        assert_eq!(get(&one, private + 1), Ok(b'b'));
        put(&two, shared + 1, b'x').unwrap();
        assert_eq!((get(&one, private + 1), file_byte(&cache, 1)), (Ok(b'x'), b'x'));
        put(&one, private + 1, b'y').unwrap();
        assert_eq!((get(&two, shared + 1), file_byte(&cache, 1)), (Ok(b'x'), b'x'));
        assert_eq!((one.usage().private_pages, one.usage().file_pages), (1, 0));
        one.advise(at(private), PAGE, Advice::DontNeed).unwrap();
        assert_eq!(get(&one, private + 1), Ok(b'x'));
        assert!(cache.is_mapped());
        drop((one, two));
        assert!(!cache.is_mapped());
    });
}

#[test]
fn who_reads_a_programs_own_memory_brings_nothing_in_and_meets_no_file() {
    without_leaks(|| {
        let (space, cache) = (space(), file(1));
        let start = space.map(MapRequest::anonymous(4 * PAGE, READ_WRITE)).unwrap().as_u64();
        let over = MapRequest::private_file(mapping(&cache), 0, PAGE, READ_WRITE).at(at(start + 3 * PAGE));
        space.map(over.with(MapFlags::FIXED)).unwrap();
        put(&space, start + PAGE - 1, 7).unwrap();
        put(&space, start + 2 * PAGE, 8).unwrap();
        let mut bytes = [0xee; 3 * PAGE as usize];
        assert_eq!(space.read_own(at(start + PAGE - 2), &mut bytes), 2 * PAGE as usize + 2);
        assert_eq!((bytes[..3].to_vec(), bytes[PAGE as usize + 2]), (vec![0, 7, 0], 8));
        assert_eq!(space.usage().private_pages, 2, "nothing was brought in");
        assert_eq!(space.read_own(at(start + 3 * PAGE), &mut bytes), 0);
        put(&space, start + 3 * PAGE, 9).unwrap();
        assert_eq!(
            space.read_own(at(start + 3 * PAGE), &mut bytes),
            0,
            "a copy of a file's page counts as the file's"
        );
        assert_eq!(space.read_own(at(start - PAGE), &mut bytes), 0);
        assert_eq!(space.read_own(at(u64::MAX), &mut bytes), 0);
    });
}

#[test]
fn one_fault_maps_the_cached_neighbours() {
    without_leaks(|| {
        let (space, cache) = (space(), file(64));
        for page in 0..64 {
            cache.write_at(page * PAGE, &mut Source::kernel(&[page as u8])).unwrap();
        }
        let start = map(&space, &cache, 64, MapFlags::empty());
        space.fault(at(start + 20 * PAGE), Access::Read).unwrap();
        let around = space.usage().file_pages;
        assert!((2..=16).contains(&around), "{around} pages mapped by one fault");
        (0..64).for_each(|page| assert_eq!(get(&space, start + page * PAGE), Ok(page as u8)));
        assert_eq!(space.usage().file_pages, 64);
    });
}

#[test]
fn beyond_the_end_is_a_bus_error_and_truncation_unmaps() {
    without_leaks(|| {
        let (space, cache) = (space(), file(4));
        let shared = map(&space, &cache, 6, MapFlags::SHARED);
        let private = map(&space, &cache, 6, MapFlags::empty());
        assert_eq!(get(&space, shared + 4 * PAGE), Err(FaultError::Bus));
        put(&space, shared + 3 * PAGE, 3).unwrap();
        put(&space, shared + PAGE + 100, 4).unwrap();
        put(&space, private + 3 * PAGE, 5).unwrap();
        let child = space.fork().unwrap();
        cache.truncate(PAGE + 50).unwrap();
        for space in [&space, &child] {
            assert_eq!(get(space, shared + 3 * PAGE), Err(FaultError::Bus));
            assert_eq!(get(space, private + 3 * PAGE), Err(FaultError::Bus));
            assert_eq!(get(space, shared + PAGE + 100), Ok(0), "the tail of the last page is cleared");
        }
        cache.truncate(4 * PAGE).unwrap();
        assert_eq!(get(&child, private + 3 * PAGE), Ok(0));
        assert_eq!(space.usage().private_pages, 0);
    });
}

#[test]
fn what_a_mapping_stored_beyond_the_end_shows_when_the_file_grows_and_not_after_it_was_cut() {
    without_leaks(|| {
        let (space, cache) = (space(), file(2));
        let shared = map(&space, &cache, 2, MapFlags::SHARED);
        cache.truncate(PAGE + 50).unwrap();
        put(&space, shared + PAGE + 100, 4).unwrap();
        cache.truncate(PAGE + 200).unwrap();
        assert_eq!(get(&space, shared + PAGE + 100), Ok(4));
        cache.truncate(PAGE + 50).unwrap();
        cache.truncate(PAGE + 200).unwrap();
        assert_eq!(get(&space, shared + PAGE + 100), Ok(0));
    });
}

#[test]
fn punched_holes_read_as_zeros_through_mappings() {
    without_leaks(|| {
        let (space, cache) = (space(), file(4));
        let shared = map(&space, &cache, 4, MapFlags::SHARED);
        (0..4).for_each(|page| put(&space, shared + page * PAGE, 1).unwrap());
        space.advise(at(shared + PAGE), 2 * PAGE, Advice::Remove).unwrap();
        let seen = [0, 1, 2, 3].map(|page| get(&space, shared + page * PAGE).unwrap());
        assert_eq!(seen, [1, 0, 0, 1]);
        let private = map(&space, &cache, 4, MapFlags::empty());
        assert_eq!(space.advise(at(private), PAGE, Advice::Remove), Err(MapError::AccessDenied));
    });
}

/// Remembers what was written back; fills pages with their number.
#[derive(Default)]
struct Recorder {
    written: Mutex<Vec<(u64, u8)>>,
    broken: Mutex<Option<u64>>,
    stores: AtomicUsize,
}

impl FileRepresentative for Recorder {
    fn fill(&self, pages: PageRun) {
        for (page, frame) in (pages.first()..).zip(pages.frames()) {
            if *self.broken.lock().unwrap() == Some(page) {
                return pages.complete(Err(CacheError::InputOutput));
            }
            frame.zero();
            frame.write(0, &[page as u8 + 1]);
        }
        pages.complete(Ok(()));
    }

    fn write_back(&self, pages: PageRun) {
        for (page, frame) in (pages.first()..).zip(pages.frames()) {
            let mut byte = [0];
            frame.read(0, &mut byte);
            self.written.lock().unwrap().push((page, byte[0]));
        }
        pages.complete(Ok(()));
    }

    fn note_stores(&self) {
        self.stores.fetch_add(1, Ordering::Relaxed);
    }
}

/// A cache whose pages the recorder has.
fn backed(pages: u64, recorder: &Arc<Recorder>) -> Arc<FileCache> {
    let device = Arc::new(BackingDevice::new(String::from("recorder")));
    FileCache::with_representative(pages * PAGE, recorder.clone(), device).unwrap()
}

/// Ends what write-back keeps of a clean file.
fn forget_clean(cache: &FileCache) {
    cache.device().unwrap().take_dirty().for_each(|file| file.requeue());
}

#[test]
fn pages_come_from_the_representative_and_dirty_ones_go_back_in_order() {
    without_leaks(|| {
        let recorder = Arc::new(Recorder::default());
        let cache = backed(8, &recorder);
        let space = space();
        let shared = map(&space, &cache, 8, MapFlags::SHARED);
        assert_eq!(get(&space, shared + 3 * PAGE), Ok(4));
        for page in [5, 2, 6] {
            put(&space, shared + page * PAGE, 100).unwrap();
        }
        space.sync(at(shared), 8 * PAGE, SyncMode::Synchronous, false).unwrap();
        assert_eq!(std::mem::take(&mut *recorder.written.lock().unwrap()), [(2, 100), (5, 100), (6, 100)]);
        put(&space, shared + 5 * PAGE, 101).unwrap();
        assert!(cache.is_dirty(5) && !cache.is_dirty(2), "a store after the write-back is noticed again");
        space.sync(at(shared), 8 * PAGE, SyncMode::Synchronous, false).unwrap();
        assert_eq!(*recorder.written.lock().unwrap(), [(5, 101)]);
        forget_clean(&cache);
    });
}

#[test]
fn the_representative_is_told_of_the_first_store_through_a_mapping_also_if_the_page_is_dirty() {
    without_leaks(|| {
        let recorder = Arc::new(Recorder::default());
        let cache = backed(2, &recorder);
        let space = space();
        let stores = || recorder.stores.load(Ordering::Relaxed);
        cache.write_at(0, &mut Source::kernel(b"abc")).unwrap();
        let shared = map(&space, &cache, 2, MapFlags::SHARED);
        assert_eq!((get(&space, shared), stores()), (Ok(b'a'), 0));
        put(&space, shared, b'x').unwrap();
        assert_eq!(stores(), 1, "it was only readable so far");
        put(&space, shared + 1, b'y').unwrap();
        assert_eq!(stores(), 1, "it is storable until it has been written");
        put(&space, shared + PAGE, b'z').unwrap();
        assert_eq!(stores(), 2, "it was not mapped so far");
        space.sync(at(shared), 2 * PAGE, SyncMode::Synchronous, false).unwrap();
        put(&space, shared + 1, b'z').unwrap();
        assert_eq!(stores(), 3);
        space.sync(at(shared), 2 * PAGE, SyncMode::Synchronous, false).unwrap();
        forget_clean(&cache);
    });
}

#[test]
fn a_page_that_cannot_be_read_is_a_bus_error_now_and_may_come_later() {
    without_leaks(|| {
        let recorder = Arc::new(Recorder::default());
        *recorder.broken.lock().unwrap() = Some(1);
        let cache = backed(2, &recorder);
        let space = space();
        let private = map(&space, &cache, 2, MapFlags::empty());
        assert_eq!(get(&space, private + PAGE), Err(FaultError::Bus));
        assert_eq!(cache.resident_pages(), 0);
        *recorder.broken.lock().unwrap() = None;
        assert_eq!(get(&space, private + PAGE), Ok(2));
        drop(space);
        assert_eq!(cache.drop_clean(0, u64::MAX, usize::MAX), 1);
        assert_eq!(cache.resident_pages(), 0);
    });
}

#[test]
fn reclaim_takes_mapped_pages_that_were_not_used_since_it_came_by() {
    without_leaks(|| {
        let recorder = Arc::new(Recorder::default());
        let cache = backed(8, &recorder);
        let (one, two) = (space(), space());
        let shared = map(&one, &cache, 8, MapFlags::SHARED);
        let private = map(&two, &cache, 8, MapFlags::empty());
        for page in 0..8 {
            assert_eq!(get(&one, shared + page * PAGE), Ok(page as u8 + 1));
            assert_eq!(get(&two, private + page * PAGE), Ok(page as u8 + 1));
        }
        put(&two, private + 6 * PAGE, 77).unwrap();
        put(&one, shared + 7 * PAGE, 99).unwrap();
        let most = usize::MAX;
        assert_eq!(cache.drop_clean_from_hand(most, Mapped::Stay, Whose::Anybodys), 0, "they are mapped");
        assert_eq!(
            cache.drop_clean_from_hand(most, Mapped::GoIfUnused, Whose::Anybodys),
            0,
            "they were used"
        );
        // One of the two uses a page again.
        one.fault(at(shared + 2 * PAGE), Access::Read).unwrap();
        assert_eq!(
            cache.drop_clean_from_hand(most, Mapped::GoIfUnused, Whose::Anybodys),
            6,
            "all but the used one and the dirty one"
        );
        assert_eq!((one.usage().file_pages, two.usage().file_pages, two.usage().private_pages), (1, 0, 1));
        for page in 0..8 {
            let stored = if page == 6 { 77 } else { page as u8 + 1 };
            let shown = if page == 7 { 99 } else { stored };
            assert_eq!(get(&two, private + page * PAGE), Ok(shown), "page {page}");
        }
        assert_eq!(get(&one, shared + 7 * PAGE), Ok(99));
        cache.write_back(0, u64::MAX).unwrap();
        forget_clean(&cache);
    });
}

#[test]
fn who_writes_back_does_not_end_a_space_that_goes_meanwhile() {
    without_leaks(|| {
        let recorder = Arc::new(Recorder::default());
        let cache = backed(2, &recorder);
        let space = space();
        let shared = map(&space, &cache, 2, MapFlags::SHARED);
        put(&space, shared, 100).unwrap();
        window::at(Window::SpaceFound, move || drop(space));
        cache.write_back(0, u64::MAX).unwrap();
        assert!(cache.is_mapped(), "whoever writes back ended it");
        crate::reclaim::end_spaces();
        assert!(!cache.is_mapped());
        forget_clean(&cache);
    });
}

#[test]
fn mappings_end_with_the_last_process_although_somebody_looks_at_the_space() {
    without_leaks(|| {
        let recorder = Arc::new(Recorder::default());
        let cache = backed(2, &recorder);
        let space = space();
        let shared = map(&space, &cache, 2, MapFlags::SHARED);
        put(&space, shared, 100).unwrap();
        let (parent, child) = (Hold::new(space.clone()), Hold::new(space));
        let for_looker = cache.clone();
        window::at(Window::SpaceFound, move || {
            drop(child);
            assert!(for_looker.is_mapped(), "another process has it");
            drop(parent);
            assert!(!for_looker.is_mapped());
        });
        cache.write_back(0, u64::MAX).unwrap();
        assert_eq!(window::clear(), 0);
        crate::reclaim::end_spaces();
        forget_clean(&cache);
    });
}

#[test]
fn reclaim_passes_over_a_space_that_is_being_changed_and_what_is_locked() {
    without_leaks(|| {
        let recorder = Arc::new(Recorder::default());
        let cache = backed(4, &recorder);
        let space = space();
        let shared = map(&space, &cache, 4, MapFlags::SHARED);
        (0..4).for_each(|page| assert_eq!(get(&space, shared + page * PAGE), Ok(page as u8 + 1)));
        space.lock(at(shared), PAGE, false).unwrap();
        let dropped = || cache.drop_clean_from_hand(usize::MAX, Mapped::GoIfUnused, Whose::Anybodys);
        assert_eq!(dropped(), 0);
        {
            let _changing = space.change.lock();
            assert_eq!(dropped(), 0);
        }
        assert_eq!(dropped(), 3);
        assert_eq!(space.usage().file_pages, 1);
        assert_eq!(get(&space, shared + 3 * PAGE), Ok(4));
    });
}

#[test]
fn user_buffers_are_copied_without_a_bounce_and_stop_at_bad_pages() {
    without_leaks(|| {
        let (space, cache) = (space(), file(0));
        let start = space.map(MapRequest::anonymous(3 * PAGE, READ_WRITE)).unwrap().as_u64();
        put(&space, start + 2 * PAGE - 1, 42).unwrap();
        space.protect(at(start + 2 * PAGE), PAGE, Protection::empty()).unwrap();
        let _here = machine::preempt::disable();
        space.activate();
        drop(_here);
        let mut source = Source::user(at(start + PAGE), 2 * PAGE as usize);
        assert_eq!(cache.write_at(10, &mut source), Ok(PAGE as usize));
        assert_eq!(cache.size(), PAGE + 10);
        assert_eq!(file_byte(&cache, PAGE + 9), 42);
        let mut source = Source::user(at(start + 2 * PAGE), 10);
        assert_eq!(cache.write_at(0, &mut source), Err(CacheError::BadAddress));
        let mut sink = Sink::user(at(start + PAGE + 100), 2 * PAGE as usize);
        assert_eq!(cache.read_at(20, &mut sink), Ok((PAGE - 100) as usize));
        let mut string = [0; 4];
        assert_eq!(machine::user_memory::read_string(&mut string, at(start)), Ok(0));
    });
}
