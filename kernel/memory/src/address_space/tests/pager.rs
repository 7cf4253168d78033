//! Ranges whose pages a program provides.

use super::*;

const PAGER: PagerId = PagerId(7);
const OTHER: PagerId = PagerId(8);

/// A space with so many pages of anonymous memory, private or shared.
fn with_memory(pages: u64, flags: MapFlags) -> (Arc<AddressSpace>, u64) {
    let space = space();
    // With nothing above.
    let start = BOUNDARY - PAGE;
    space.map(MapRequest::anonymous(pages * PAGE, READ_WRITE).with(flags).at(at(start))).unwrap();
    (space, start)
}

/// A space with a range that has a pager.
fn client(pages: u64) -> (Arc<AddressSpace>, u64) {
    let (space, start) = with_memory(pages, MapFlags::empty());
    space.set_pager(at(start), pages * PAGE, PAGER).unwrap();
    (space, start)
}

fn provision(from: u64, to: u64, pages: u64) -> Provision {
    Provision { from: at(from), to: at(to), length: pages * PAGE, store: true, grant: false }
}

fn taken(space: &AddressSpace, start: u64, pages: u64) -> usize {
    space.take_back(at(start), pages * PAGE, TakeBack::Pages).unwrap()
}

#[test]
fn an_access_to_what_nobody_has_provided_is_the_pagers() {
    without_leaks(|| {
        let (space, start) = with_memory(3, MapFlags::empty());
        put(&space, start + PAGE, 1).unwrap();
        space.set_pager(at(start + PAGE), PAGE, PAGER).unwrap();
        assert_eq!(get(&space, start + PAGE), Err(FaultError::Pager), "what was there is dropped");
        assert_eq!(put(&space, start + PAGE, 1), Err(FaultError::Pager));
        assert_eq!((get(&space, start), get(&space, start + 2 * PAGE)), (Ok(0), Ok(0)));
        assert_eq!(space.pager_of(at(start + PAGE)), Some(PAGER));
        assert_eq!((space.pager_of(at(start)), space.pager_of(at(0))), (None, None));
        assert_eq!(space.region_count(), 3);
        space.map(MapRequest::anonymous(3 * PAGE, READ_WRITE).at(at(start))).unwrap();
        assert_eq!((get(&space, start + PAGE), space.region_count()), (Ok(0), 1));
    });
}

#[test]
fn only_anonymous_memory_can_have_a_pager() {
    without_leaks(|| {
        let (space, start) = with_memory(4, MapFlags::empty());
        let refused = |start: u64, length: u64| space.set_pager(at(start), length, PAGER);
        assert_eq!(refused(start + 1, PAGE), Err(MapError::InvalidArgument));
        assert_eq!(refused(start, 0), Err(MapError::InvalidArgument));
        assert_eq!(refused(start, 5 * PAGE), Err(MapError::InvalidArgument), "a hole");
        assert_eq!(refused(start + 4 * PAGE, PAGE), Err(MapError::OutOfMemory), "nothing there");
        let cache = file(1);
        let shown = space.map(MapRequest::private_file(mapping(&cache), 0, PAGE, READ_WRITE)).unwrap();
        assert_eq!(space.set_pager(shown, PAGE, PAGER), Err(MapError::InvalidArgument));
        let stack = MapRequest::anonymous(PAGE, READ_WRITE).with(MapFlags::STACK);
        let stack = space.map(stack).unwrap();
        assert_eq!(space.set_pager(stack, PAGE, PAGER), Err(MapError::InvalidArgument));
        assert_eq!(refused(start, PAGE), Ok(()));
        assert_eq!(refused(start, PAGE), Ok(()), "another pager");
    });
}

#[test]
fn a_range_that_grew_downwards_can_be_cut() {
    without_leaks(|| {
        let (space, start) = with_memory(3, MapFlags::empty());
        for page in (0..3).rev() {
            space.set_pager(at(start + page * PAGE), PAGE, PAGER).unwrap();
        }
        assert_eq!(space.region_count(), 1);
        space.unmap(at(start + PAGE), PAGE).unwrap();
        assert_eq!(space.region_count(), 2);
    });
}

#[test]
fn mapped_pages_are_the_same_memory() {
    without_leaks(|| {
        let (pager, pool) = with_memory(3, MapFlags::SHARED);
        let (client, start) = client(3);
        put(&pager, pool + PAGE, 5).unwrap();
        let loads = Provision { store: false, ..provision(pool + PAGE, start, 1) };
        pager.provide(&client, PAGER, &loads).unwrap();
        assert_eq!(get(&client, start), Ok(5));
        assert_eq!(put(&client, start, 6), Err(FaultError::Pager), "for loads only");
        pager.provide(&client, PAGER, &provision(pool + PAGE, start, 2)).unwrap();
        put(&client, start, 6).unwrap();
        put(&client, start + PAGE, 7).unwrap();
        assert_eq!((get(&pager, pool + PAGE), get(&pager, pool + 2 * PAGE)), (Ok(6), Ok(7)));
        pager.provide(&client, PAGER, &loads).unwrap();
        put(&client, start, 8).unwrap();
        assert_eq!(client.usage().shared_memory_pages, 2);
        drop(pager);
        assert_eq!((get(&client, start), get(&client, start + PAGE)), (Ok(8), Ok(7)));
    });
}

#[test]
fn another_page_takes_the_place_of_the_former() {
    without_leaks(|| {
        let (pager, pool) = with_memory(2, MapFlags::SHARED);
        let (client, start) = client(1);
        put(&pager, pool, 1).unwrap();
        put(&pager, pool + PAGE, 2).unwrap();
        pager.provide(&client, PAGER, &provision(pool, start, 1)).unwrap();
        pager.provide(&client, PAGER, &provision(pool + PAGE, start, 1)).unwrap();
        put(&client, start, 3).unwrap();
        assert_eq!((get(&pager, pool), get(&pager, pool + PAGE)), (Ok(1), Ok(3)));
        assert_eq!(client.usage().shared_memory_pages, 1);
    });
}

#[test]
fn pages_appear_where_their_giver_is_the_pager_and_nowhere_else() {
    without_leaks(|| {
        let (pager, pool) = with_memory(1, MapFlags::SHARED);
        let (client, start) = client(1);
        let one = provision(pool, start, 1);
        assert_eq!(pager.provide(&client, OTHER, &one), Err(MapError::NotPermitted));
        let below = Provision { to: at(start - PAGE), ..one };
        assert_eq!(pager.provide(&client, PAGER, &below), Err(MapError::BadAddress));
        let (plain, memory) = with_memory(1, MapFlags::empty());
        let there = Provision { to: at(memory), ..one };
        assert_eq!(pager.provide(&plain, PAGER, &there), Err(MapError::NotPermitted));
        let nothing = Provision { from: at(pool + PAGE), ..one };
        assert_eq!(pager.provide(&client, PAGER, &nothing), Err(MapError::BadAddress));
        // What a fork would part, and what a file would have to hear of.
        let (private, memory) = with_memory(1, MapFlags::empty());
        let mapped = Provision { from: at(memory), ..one };
        assert_eq!(private.provide(&client, PAGER, &mapped), Err(MapError::NotPermitted));
        let granted = Provision { grant: true, ..one };
        assert_eq!(pager.provide(&client, PAGER, &granted), Err(MapError::NotPermitted));
        assert_eq!(get(&client, start), Err(FaultError::Pager));
    });
}

#[test]
fn a_granted_page_moves() {
    without_leaks(|| {
        let (pager, memory) = with_memory(2, MapFlags::empty());
        let (client, start) = client(1);
        put(&pager, memory, 4).unwrap();
        let child = pager.fork().unwrap();
        let grant = Provision { grant: true, ..provision(memory, start, 1) };
        pager.provide(&client, PAGER, &grant).unwrap();
        put(&client, start, 5).unwrap();
        assert_eq!((get(&client, start), get(&pager, memory), get(&child, memory)), (Ok(5), Ok(0), Ok(4)));
        // And on: out of a range with a pager, with what was allowed there.
        let (last, end) = with_memory(1, MapFlags::empty());
        last.set_pager(at(end), PAGE, OTHER).unwrap();
        let grant = Provision { grant: true, ..provision(start, end, 1) };
        client.provide(&last, OTHER, &grant).unwrap();
        assert_eq!((get(&last, end), get(&client, start)), (Ok(5), Err(FaultError::Pager)));
        put(&last, end, 6).unwrap();
        assert_eq!(client.provide(&last, OTHER, &grant), Err(MapError::BadAddress), "it has none any more");
    });
}

#[test]
fn what_is_taken_back_is_taken_from_whoever_has_it() {
    without_leaks(|| {
        let (pager, pool) = with_memory(2, MapFlags::SHARED);
        let (middle, there) = client(2);
        let (last, end) = with_memory(2, MapFlags::empty());
        last.set_pager(at(end), 2 * PAGE, OTHER).unwrap();
        pager.provide(&middle, PAGER, &provision(pool, there, 2)).unwrap();
        middle.provide(&last, OTHER, &provision(there, end, 2)).unwrap();
        put(&last, end, 9).unwrap();
        assert_eq!(get(&pager, pool), Ok(9));
        assert_eq!(taken(&last, end, 2), 0, "nothing came of it");
        // The one between has dropped its own page: what it gave is found all the same.
        middle.advise(at(there), PAGE, Advice::DontNeed).unwrap();
        assert_eq!(taken(&pager, pool, 1), 1);
        assert_eq!((get(&last, end), get(&last, end + PAGE)), (Err(FaultError::Pager), Ok(0)));
        assert_eq!(taken(&middle, there, 2), 1);
        assert_eq!((get(&middle, there + PAGE), get(&last, end + PAGE)), (Ok(0), Err(FaultError::Pager)));
        assert_eq!((get(&pager, pool), taken(&pager, pool, 2)), (Ok(9), 1));
        assert_eq!((middle.usage().shared_memory_pages, last.usage().shared_memory_pages), (0, 0));
    });
}

#[test]
fn stores_can_be_taken_back_alone() {
    without_leaks(|| {
        let (pager, pool) = with_memory(1, MapFlags::SHARED);
        let (client, start) = client(1);
        pager.provide(&client, PAGER, &provision(pool, start, 1)).unwrap();
        put(&client, start, 1).unwrap();
        let stores = |space: &AddressSpace| space.take_back(at(pool), PAGE, TakeBack::Stores);
        assert_eq!((stores(&pager), stores(&pager)), (Ok(1), Ok(0)));
        assert_eq!((get(&client, start), put(&client, start, 2)), (Ok(1), Err(FaultError::Pager)));
        // A region that may not be written gets the permission for later.
        client.protect(at(start), PAGE, Protection::READ).unwrap();
        pager.provide(&client, PAGER, &provision(pool, start, 1)).unwrap();
        assert_eq!(put(&client, start, 2), Err(FaultError::AccessDenied));
        client.protect(at(start), PAGE, READ_WRITE).unwrap();
        assert_eq!((put(&client, start, 2), get(&pager, pool)), (Ok(()), Ok(2)));
    });
}

#[test]
fn a_child_has_the_range_and_not_the_pages() {
    without_leaks(|| {
        let (pager, pool) = with_memory(1, MapFlags::SHARED);
        let (client, start) = client(2);
        pager.provide(&client, PAGER, &provision(pool, start, 1)).unwrap();
        let child = client.fork().unwrap();
        assert_eq!((get(&child, start), child.pager_of(at(start))), (Err(FaultError::Pager), Some(PAGER)));
        assert_eq!(get(&client, start), Ok(0));
        let moved =
            client.remap(at(start), PAGE, PAGE, RemapFlags::MAY_MOVE | RemapFlags::FIXED, at(2 * BOUNDARY));
        assert_eq!((moved, get(&client, 2 * BOUNDARY)), (Ok(at(2 * BOUNDARY)), Ok(0)));
        assert_eq!(taken(&pager, pool, 1), 1);
        assert_eq!(get(&client, 2 * BOUNDARY), Err(FaultError::Pager));
    });
}

#[test]
fn who_maps_while_it_is_taken_back_keeps_nothing() {
    without_leaks(|| {
        let (pager, pool) = with_memory(1, MapFlags::SHARED);
        let (middle, there) = client(1);
        let (last, end) = with_memory(1, MapFlags::empty());
        last.set_pager(at(end), PAGE, OTHER).unwrap();
        // Makes all tables on this processor, which frees them, and whose frames are counted.
        pager.provide(&middle, PAGER, &provision(pool, there, 1)).unwrap();
        middle.provide(&last, OTHER, &provision(there, end, 1)).unwrap();
        taken(&pager, pool, 1);
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                // The middle one has a page at times, and gives it on as soon as it has.
                (0..2000).filter(|_| middle.provide(&last, OTHER, &provision(there, end, 1)).is_ok()).count()
            });
            for _ in 0..300 {
                pager.provide(&middle, PAGER, &provision(pool, there, 1)).unwrap();
                taken(&pager, pool, 1);
                assert_eq!(get(&last, end), Err(FaultError::Pager), "nobody can have given it");
            }
            worker.join().unwrap();
        });
    });
}
