//! Faults, unmapping, forking and truncation at the same time, from several host threads.
//!
//! Each thread is a processor of its own. No address space is loaded into a processor here: what is raced are regions,
//! entries and frames; translation caches are the in-kernel tests' subject.

use super::*;
use std::sync::atomic::AtomicBool;

/// Ends the other threads even when this one fails.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const ROUNDS: u64 = 300;

#[test]
fn faults_race_with_unmapping_of_other_regions() {
    let _alone = alone();
    let space = space();
    let stable = space.map(MapRequest::anonymous(16 * PAGE, READ_WRITE).at(at(BOUNDARY))).unwrap().as_u64();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let space = &space;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let address = stable + (round % 8 * 2 + thread) * PAGE;
                    put(space, address, round as u8).unwrap();
                    assert_eq!(get(space, address), Ok(round as u8));
                    if round % 50 == 0 {
                        space.advise(at(address), PAGE, Advice::DontNeed).unwrap();
                        assert_eq!(get(space, address), Ok(0));
                    }
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                let below = at(BOUNDARY - 8 * PAGE);
                space.map(MapRequest::anonymous(4 * PAGE, READ_WRITE).at(below)).unwrap();
                put(&space, below.as_u64(), 1).unwrap();
                space.unmap(below, 4 * PAGE).unwrap();
            }
        });
    });
    assert_eq!(space.region_count(), 1);
    assert!(space.usage().private_pages <= 16);
}

#[test]
fn faults_on_a_vanishing_region_either_work_or_are_refused() {
    let _alone = alone();
    let space = space();
    let done = AtomicBool::new(false);
    let place = at(BOUNDARY - 2 * PAGE);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for page in 0..4 {
                        match put(&space, place.as_u64() + page * PAGE, 1) {
                            Ok(()) | Err(FaultError::NotMapped) => {}
                            Err(other) => panic!("{other:?}"),
                        }
                    }
                }
            });
        }
        let _done = Done(&done);
        for _ in 0..ROUNDS {
            space.map(MapRequest::anonymous(4 * PAGE, READ_WRITE).at(place)).unwrap();
            std::thread::yield_now();
            space.unmap(place, 4 * PAGE).unwrap();
        }
    });
    assert_eq!(space.usage().private_pages, 0);
    assert_eq!(space.usage().table_bytes, PAGE);
}

#[test]
fn children_never_see_stores_made_after_their_fork() {
    let _alone = alone();
    let space = space();
    let start =
        space.map(MapRequest::anonymous(2 * PAGE, READ_WRITE).at(at(BOUNDARY - PAGE))).unwrap().as_u64();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut value = 0_u8;
            while !done.load(Ordering::Relaxed) {
                value = value.wrapping_add(1);
                // Second page first: a child that sees the first page's value saw the second one's as well.
                put(&space, start + PAGE, value).unwrap();
                put(&space, start, value).unwrap();
            }
        });
        let _done = Done(&done);
        for _ in 0..ROUNDS {
            let child = space.fork().unwrap();
            let before = (get(&child, start).unwrap(), get(&child, start + PAGE).unwrap());
            std::thread::yield_now();
            assert_eq!((get(&child, start).unwrap(), get(&child, start + PAGE).unwrap()), before);
            put(&child, start, 77).unwrap();
            assert_eq!(get(&child, start), Ok(77));
        }
    });
}

#[test]
fn truncation_races_with_faults_on_the_file() {
    let _alone = alone();
    let (space, cache) = (space(), file(8));
    let request = MapRequest::private_file(mapping(&cache), 0, 8 * PAGE, READ_WRITE);
    let shared = space.map(request.with(MapFlags::SHARED)).unwrap().as_u64();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for page in 0..8 {
                    match put(&space, shared + page * PAGE, 1) {
                        Ok(()) | Err(FaultError::Bus) => {}
                        Err(other) => panic!("{other:?}"),
                    }
                }
            }
        });
        let _done = Done(&done);
        for _ in 0..ROUNDS {
            cache.truncate(2 * PAGE).unwrap();
            for page in 2..8 {
                assert_eq!(get(&space, shared + page * PAGE), Err(FaultError::Bus));
            }
            cache.truncate(8 * PAGE).unwrap();
        }
    });
    cache.truncate(0).unwrap();
    assert_eq!(cache.resident_pages(), 0);
    assert_eq!(space.usage().file_pages, 0);
}
