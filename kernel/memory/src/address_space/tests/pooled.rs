//! Huge pages of the pool.

use super::*;
use crate::huge_pool::{
    HUGE_PAGE_BYTES as HUGE, HugePoolCounts, HugeQuota, counts, set_overcommit_limit, set_size,
};

const START: u64 = BOUNDARY - HUGE;

/// Runs a test with a pool of so many pages, which are all home, and promised to nobody, at its end.
fn with_pool(pages: u64, test: impl FnOnce()) {
    without_leaks(|| {
        set_size(pages);
        assert_eq!(counts().total, pages, "the hosted machine has so much memory");
        test();
        crate::file_cache::tests::drop_unseen();
        let now = counts();
        assert_eq!((now.free, now.promised, now.surplus), (now.total, 0, 0));
        set_size(0);
        assert_eq!(counts(), HugePoolCounts::default());
    });
}

fn request(pages: u64) -> MapRequest {
    MapRequest::anonymous(pages * HUGE, READ_WRITE).with(MapFlags::POOLED)
}

fn mapped(pages: u64) -> Arc<AddressSpace> {
    let space = space();
    space.map(request(pages).at(at(START))).unwrap();
    space
}

fn shared(cache: &Arc<FileCache>, pages: u64) -> MapRequest {
    MapRequest::private_file(mapping(cache), 0, pages * HUGE, READ_WRITE).with(MapFlags::SHARED)
}

fn huge_file(pages: u64, quota: Option<Arc<HugeQuota>>) -> Arc<FileCache> {
    Arc::new(FileCache::of_huge_pages(pages * HUGE, quota).unwrap())
}

/// Free pages, and promised ones.
fn free() -> (u64, u64) {
    let now = counts();
    (now.free, now.promised)
}

fn map_error(request: MapRequest) -> Option<MapError> {
    space().map(request).err()
}

#[test]
fn what_is_promised_is_there_when_it_is_touched() {
    with_pool(3, || {
        let space = mapped(2);
        assert_eq!(free(), (3, 2));
        assert_eq!(map_error(request(2)), Some(MapError::OutOfMemory));
        let other = AddressSpace::new().unwrap();
        other.map(request(1)).unwrap();
        assert_eq!((get(&space, START + 5), put(&space, START + HUGE + 9 * PAGE, 7)), (Ok(0), Ok(())));
        assert_eq!(free(), (1, 1));
        assert_eq!(get(&space, START + HUGE + 9 * PAGE), Ok(7));
        let frame = |page| space.present_page(at(page)).unwrap().frame_number;
        assert_eq!(frame(START + 9 * PAGE), frame(START) + 9);
        let usage = space.usage();
        assert_eq!((usage.pooled_bytes, usage.private_pages, usage.file_pages), (2 * HUGE, 0, 0));
    });
}

#[test]
fn pages_are_neither_cut_nor_placed_off_their_boundaries() {
    with_pool(2, || {
        let space = mapped(2);
        put(&space, START, 1).unwrap();
        let invalid = Err(MapError::InvalidArgument);
        assert_eq!(space.unmap(at(START), PAGE), invalid);
        assert_eq!(space.unmap(at(START + PAGE), HUGE), invalid);
        assert_eq!(space.protect(at(START), PAGE, Protection::READ), invalid);
        assert_eq!(space.advise(at(START), PAGE, Advice::DontFork), invalid);
        assert_eq!(space.advise(at(START + PAGE), HUGE, Advice::DontNeed), invalid);
        assert_eq!(space.advise(at(START), HUGE, Advice::Free), invalid);
        assert_eq!(space.map(request(1).at(at(START + PAGE))), Err(MapError::InvalidArgument));
        assert_eq!(space.map(request(1).with(MapFlags::GROWS_DOWN)), Err(MapError::InvalidArgument));
        let small = MapRequest::anonymous(PAGE, READ_WRITE).at(at(START + HUGE + PAGE));
        assert_eq!(space.map(small), Err(MapError::InvalidArgument));
        assert_eq!(space.map(request(1).with(MapFlags::NO_RESERVE)).unwrap().as_u64() % HUGE, 0);
        assert_eq!((get(&space, START), free()), (Ok(1), (1, 1)));
    });
}

#[test]
fn protection_is_that_of_the_whole_page_and_keeps_it() {
    with_pool(1, || {
        let space = mapped(1);
        put(&space, START, 3).unwrap();
        space.protect(at(START), HUGE, Protection::empty()).unwrap();
        assert_eq!(get(&space, START), Err(FaultError::AccessDenied));
        space.protect(at(START), HUGE, Protection::READ).unwrap();
        assert_eq!((get(&space, START), put(&space, START, 4)), (Ok(3), Err(FaultError::AccessDenied)));
        assert_eq!(space.write_forced(at(START), &[4]), Err(FaultError::AccessDenied));
        space.protect(at(START), HUGE, READ_WRITE).unwrap();
        assert_eq!((put(&space, START, 4), get(&space, START)), (Ok(()), Ok(4)));
        assert_eq!(free(), (0, 0));
        space.protect(at(START), HUGE, Protection::empty()).unwrap();
    });
}

#[test]
fn what_is_dropped_is_promised_again_where_it_can_be() {
    with_pool(2, || {
        let space = mapped(1);
        put(&space, START, 3).unwrap();
        assert_eq!(space.advise(at(START), PAGE, Advice::DontNeed), Ok(()), "it has no whole page");
        assert_eq!(get(&space, START), Ok(3));
        space.advise(at(START), HUGE, Advice::DontNeed).unwrap();
        assert_eq!((free(), get(&space, START), free()), ((2, 1), Ok(0), (1, 0)));
        let held = space.page_for(at(START + 3 * PAGE), Access::Write).unwrap();
        let other = AddressSpace::new().unwrap();
        other.map(request(1)).unwrap();
        space.advise(at(START), HUGE, Advice::DontNeed).unwrap();
        assert_eq!(free(), (1, 1), "one frame is still at hand, and the other page is somebody else's");
        assert_eq!(get(&space, START), Err(FaultError::Bus));
        drop(held);
        assert_eq!((free(), get(&space, START)), ((2, 1), Ok(0)));
    });
}

#[test]
fn a_child_copies_what_it_stores_to_if_there_is_a_page() {
    with_pool(3, || {
        let parent = mapped(2);
        put(&parent, START, 1).unwrap();
        put(&parent, START + HUGE, 2).unwrap();
        let child = parent.fork().unwrap();
        assert_eq!((get(&child, START), free()), (Ok(1), (1, 0)));
        put(&child, START + PAGE, 5).unwrap();
        assert_eq!((get(&parent, START + PAGE), get(&child, START), free()), (Ok(0), Ok(1), (0, 0)));
        assert_eq!(put(&child, START + HUGE, 6), Err(FaultError::Bus), "there is none left");
        assert_eq!(put(&parent, START, 7), Ok(()), "the child has its own");
        assert_eq!(get(&child, START), Ok(1));
        drop(parent);
        assert_eq!((put(&child, START + HUGE, 6), free()), (Ok(()), (1, 0)));
    });
}

#[test]
fn who_was_promised_a_page_gets_it_from_his_children() {
    with_pool(1, || {
        let parent = mapped(1);
        put(&parent, START, 1).unwrap();
        let (child, other) = (parent.fork().unwrap(), parent.fork().unwrap());
        let grandchild = child.fork().unwrap();
        assert_eq!(put(&child, START, 2), Err(FaultError::Bus));
        put(&parent, START, 3).unwrap();
        assert_eq!(get(&parent, START), Ok(3));
        for space in [&child, &other, &grandchild] {
            assert_eq!(get(space, START), Err(FaultError::Bus));
            space.unmap(at(START), HUGE).unwrap();
        }
        let late = parent.fork().unwrap();
        assert_eq!(get(&late, START), Ok(3));
    });
}

#[test]
fn pages_and_promises_move_along() {
    with_pool(3, || {
        let space = mapped(3);
        put(&space, START + HUGE, 4).unwrap();
        put(&space, START + 2 * HUGE, 5).unwrap();
        space.advise(at(START + 2 * HUGE), HUGE, Advice::DontNeed).unwrap();
        let target = START + 16 * HUGE;
        let fixed = RemapFlags::MAY_MOVE | RemapFlags::FIXED;
        let remap = |length, flags, to| space.remap(at(START), length, length, flags, at(to));
        assert_eq!(remap(3 * HUGE, fixed, target + PAGE), Err(MapError::InvalidArgument));
        assert_eq!(remap(3 * HUGE, fixed, target), Ok(at(target)));
        assert_eq!((get(&space, target + HUGE), free()), (Ok(4), (2, 2)));
        assert_eq!(get(&space, START + HUGE), Err(FaultError::NotMapped));
        let grow = space.remap(at(target), 3 * HUGE, 4 * HUGE, RemapFlags::MAY_MOVE, at(0));
        assert_eq!(grow, Err(MapError::InvalidArgument));
        let shrink = space.remap(at(target), 3 * HUGE, HUGE + PAGE, RemapFlags::empty(), at(0));
        assert_eq!((shrink, free()), (Ok(at(target)), (2, 1)));
        assert_eq!((put(&space, target, 1), get(&space, target + HUGE)), (Ok(()), Ok(4)));
    });
}

#[test]
fn surplus_pages_come_and_go_with_who_needs_them() {
    with_pool(1, || {
        set_overcommit_limit(2);
        let space = mapped(3);
        assert_eq!((counts().total, counts().surplus, free()), (3, 2, (3, 3)));
        put(&space, START, 1).unwrap();
        assert_eq!(map_error(request(1)), Some(MapError::OutOfMemory));
        drop(space);
        assert_eq!((counts().total, counts().surplus), (1, 0));
        let greedy = AddressSpace::new().unwrap();
        let place = greedy.map(request(4).with(MapFlags::NO_RESERVE)).unwrap().as_u64();
        (0..3).for_each(|page| put(&greedy, place + page * HUGE, 1).unwrap());
        assert_eq!(put(&greedy, place + 3 * HUGE, 1), Err(FaultError::Bus));
        set_size(2);
        assert_eq!((counts().total, counts().surplus), (3, 1), "a surplus page lasts now");
        set_size(0);
        assert_eq!((counts().total, counts().surplus), (3, 3), "what is in use goes later");
        set_overcommit_limit(0);
        drop(greedy);
        assert_eq!(counts().total, 0);
    });
}

#[test]
fn a_file_has_its_pages_for_all_who_map_it() {
    with_pool(3, || {
        let cache = huge_file(2, None);
        let (one, two) = (AddressSpace::new().unwrap(), AddressSpace::new().unwrap());
        one.map(shared(&cache, 2).at(at(START))).unwrap();
        assert_eq!(free(), (3, 2));
        two.map(shared(&cache, 2).at(at(START))).unwrap();
        assert_eq!(free(), (3, 2), "they are promised to the file");
        put(&one, START + 3 * PAGE, 9).unwrap();
        assert_eq!((get(&two, START + 3 * PAGE), free()), (Ok(9), (2, 1)));
        let child = two.fork().unwrap();
        put(&child, START + 3 * PAGE, 10).unwrap();
        assert_eq!(get(&one, START + 3 * PAGE), Ok(10));
        let usage = |space: &AddressSpace| {
            let mut sums = (0, 0);
            space.for_each_region(|region| {
                let usage = space.region_usage(region);
                sums = (sums.0 + usage.pooled_shared, sums.1 + usage.pooled_private);
            });
            sums
        };
        assert_eq!(usage(&one), (HUGE, 0));
        drop((two, child));
        assert_eq!(usage(&one), (0, HUGE));
        let mut bytes = [1; 4];
        let mut sink = crate::buffer::Sink::kernel(&mut bytes);
        assert_eq!(cache.read_huge(3 * PAGE - 1, &mut sink), Ok(4));
        assert_eq!(bytes, [0, 10, 0, 0]);
        let mut sink = crate::buffer::Sink::kernel(&mut bytes);
        assert_eq!(cache.read_huge(2 * HUGE - 1, &mut sink), Ok(1), "of a hole, up to the end");
        assert_eq!(
            one.futex_key(at(START + 8), false),
            Ok(FutexKey::Shared { cache: cache.id(), offset: 8 })
        );
        drop(one);
        assert_eq!((free(), cache.resident_pages()), ((2, 1), 512));
        drop(cache);
        assert_eq!(free(), (3, 0));
    });
}

#[test]
fn private_mappings_of_a_file_copy_its_pages() {
    with_pool(3, || {
        let cache = huge_file(2, None);
        let space = space();
        space.map(shared(&cache, 2).at(at(START))).unwrap();
        let private = START + 8 * HUGE;
        let request = MapRequest::private_file(mapping(&cache), 0, HUGE, READ_WRITE);
        space.map(request.at(at(private))).unwrap();
        put(&space, START, 4).unwrap();
        assert_eq!((get(&space, private), free()), (Ok(4), (2, 2)), "it is the file's page");
        let child = space.fork().unwrap();
        put(&space, private, 5).unwrap();
        assert_eq!((get(&space, START), get(&child, private), free()), (Ok(4), Ok(4), (1, 1)));
        assert_eq!(put(&child, private, 6), Err(FaultError::Bus));
        cache.truncate(0).unwrap();
        assert_eq!((get(&space, START), get(&space, private)), (Err(FaultError::Bus), Err(FaultError::Bus)));
        assert_eq!(free(), (3, 1), "the private mapping's promise");
    });
}

#[test]
fn cutting_and_punching_give_pages_back() {
    with_pool(3, || {
        let cache = huge_file(3, None);
        let space = space();
        space.map(shared(&cache, 3).at(at(START))).unwrap();
        (0..2).for_each(|page| put(&space, START + page * HUGE + 5, 7).unwrap());
        cache.punch_hole(5..HUGE + 5).unwrap();
        assert_eq!((get(&space, START + 5), get(&space, START + HUGE + 5)), (Ok(0), Ok(7)));
        cache.punch_hole(0..HUGE + 6).unwrap();
        assert_eq!(free(), (2, 1), "a page went, and of another one a part");
        assert_eq!((get(&space, START), get(&space, START + HUGE + 5)), (Ok(0), Ok(0)));
        cache.truncate(HUGE).unwrap();
        assert_eq!(free(), (2, 0));
        assert_eq!(put(&space, START + HUGE, 1), Err(FaultError::Bus));
        cache.allocate(0..2 * HUGE).unwrap();
        assert_eq!((free(), get(&space, START + HUGE)), ((1, 0), Err(FaultError::Bus)));
        cache.truncate(2 * HUGE).unwrap();
        assert_eq!((get(&space, START + HUGE), free()), (Ok(0), (1, 0)));
    });
}

#[test]
fn a_mapping_for_stores_makes_the_file_longer() {
    with_pool(2, || {
        let cache = huge_file(0, None);
        let space = space();
        let readable = MapRequest { protection: Protection::READ, ..shared(&cache, 1) };
        space.map(readable.at(at(START))).unwrap();
        assert_eq!((cache.size(), get(&space, START)), (0, Err(FaultError::Bus)));
        space.map(shared(&cache, 2).at(at(START))).unwrap();
        assert_eq!((cache.size(), get(&space, START + HUGE)), (2 * HUGE, Ok(0)));
    });
}

#[test]
fn a_mount_has_at_most_its_limit_and_keeps_its_least() {
    with_pool(4, || {
        assert!(HugeQuota::new(None, 5).is_err());
        let quota = Arc::new(HugeQuota::new(Some(3), 2).unwrap());
        assert_eq!(free(), (4, 2));
        let cache = huge_file(4, Some(quota.clone()));
        let space = space();
        assert_eq!(space.map(shared(&cache, 4).at(at(START))), Err(MapError::OutOfMemory));
        space.map(shared(&cache, 3).at(at(START))).unwrap();
        assert_eq!((free(), quota.used()), ((4, 3), 3), "two are met from the least");
        (0..3).for_each(|page| put(&space, START + page * HUGE, 1).unwrap());
        assert_eq!(free(), (1, 0));
        cache.truncate(HUGE).unwrap();
        assert_eq!((free(), quota.used()), ((3, 1), 1));
        assert_eq!(cache.allocate(0..4 * HUGE), Err(crate::file_cache::CacheError::NoSpace));
        drop((space, cache));
        assert_eq!((free(), quota.used()), ((4, 2), 0));
        drop(quota);
        assert_eq!(free(), (4, 0));
    });
}

#[test]
fn faults_forks_and_changes_race() {
    let _alone = alone();
    set_size(6);
    {
        let space = mapped(2);
        let rounds = 60_u64;
        std::thread::scope(|scope| {
            let space = &space;
            scope.spawn(move || {
                for round in 0..rounds {
                    put(space, START, round as u8).unwrap();
                    assert_eq!(get(space, START), Ok(round as u8));
                }
            });
            scope.spawn(move || {
                for round in 0..rounds {
                    let child = space.fork().unwrap();
                    // There may be no page for it, and what it shares may be taken away.
                    let _ = put(&child, START + PAGE, round as u8);
                    let _ = get(&child, START + HUGE);
                }
            });
            scope.spawn(move || {
                for _ in 0..rounds {
                    space.protect(at(START + HUGE), HUGE, Protection::READ).unwrap();
                    get(space, START + HUGE).unwrap();
                    space.protect(at(START + HUGE), HUGE, READ_WRITE).unwrap();
                    let _ = put(space, START + HUGE, 1);
                    space.advise(at(START + HUGE), HUGE, Advice::DontNeed).unwrap();
                }
            });
        });
    }
    assert_eq!(free(), (6, 0));
    set_size(0);
}
