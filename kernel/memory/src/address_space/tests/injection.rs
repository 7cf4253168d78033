//! Every allocation of every operation fails once: nothing breaks, nothing leaks, and what failed can be repeated.

use super::*;
use crate::buffer::Source;
use crate::fallible;

/// Repeats what failed for want of memory; the injected failure comes only once.
fn insist<T>(mut operation: impl FnMut() -> Result<T, MapError>) -> T {
    for _ in 0..2 {
        match operation() {
            Ok(value) => return value,
            Err(error) => assert_eq!(error, MapError::OutOfMemory),
        }
    }
    panic!("failed twice");
}

fn exhaust(scenario: &'static str, run: impl Fn()) {
    let _alone = alone();
    drop(space());
    fallible::exhaust(scenario, || check_leaks(&run));
}

#[test]
fn mapping_and_unmapping() {
    exhaust("map and unmap", || {
        let space = insist(|| Ok(AddressSpace::new()?));
        let start = insist(|| space.map(MapRequest::anonymous(40 * PAGE, READ_WRITE))).as_u64();
        for page in (0..40).step_by(2) {
            put(&space, start + page * PAGE, 1).unwrap();
        }
        for page in (1..40).step_by(2) {
            insist(|| space.unmap(at(start + page * PAGE), PAGE));
        }
        assert_eq!(space.region_count(), 20);
        for page in (0..40).step_by(2) {
            assert_eq!(get(&space, start + page * PAGE), Ok(1));
        }
        insist(|| space.map(MapRequest::anonymous(40 * PAGE, READ_WRITE).at(at(start))));
        assert_eq!(get(&space, start), Ok(0));
        space.set_break_start(at(0x5000_0000));
        insist(|| {
            let wanted = at(0x5000_0000 + 3 * PAGE);
            if space.set_break(wanted) == wanted { Ok(()) } else { Err(MapError::OutOfMemory) }
        });
    });
}

#[test]
fn pages_of_the_pool() {
    use crate::huge_pool::{HUGE_PAGE_BYTES as HUGE, counts, set_size};
    exhaust("pages of the pool", || {
        while counts().total < 6 {
            set_size(6);
        }
        {
            let space = insist(|| Ok(AddressSpace::new()?));
            let request = MapRequest::anonymous(2 * HUGE, READ_WRITE).with(MapFlags::POOLED);
            let start = insist(|| space.map(request.clone())).as_u64();
            let touch = |space: &AddressSpace, address| {
                insist(|| Ok(put(space, address, 7)?));
            };
            touch(&space, start);
            let child = insist(|| space.fork());
            touch(&space, start);
            touch(&child, start + HUGE);
            insist(|| space.protect(at(start), HUGE, Protection::READ));
            let to = at(start - 64 * HUGE);
            let flags = RemapFlags::MAY_MOVE | RemapFlags::FIXED;
            insist(|| space.remap(at(start), HUGE, HUGE, flags, to));
            let shared = insist(|| space.map(request.clone().with(MapFlags::SHARED))).as_u64();
            touch(&space, shared + HUGE);
            assert_eq!((get(&child, start), get(&space, shared + HUGE)), (Ok(7), Ok(7)));
        }
        let now = counts();
        assert_eq!((now.free, now.promised), (6, 0));
        set_size(0);
    });
}

#[test]
fn protecting_advising_locking() {
    exhaust("protect, advise, lock", || {
        let space = insist(|| Ok(AddressSpace::new()?));
        let start = insist(|| space.map(MapRequest::anonymous(6 * PAGE, READ_WRITE))).as_u64();
        (0..6).for_each(|page| put(&space, start + page * PAGE, page as u8).unwrap());
        insist(|| space.protect(at(start + PAGE), PAGE, Protection::READ));
        insist(|| space.advise(at(start + 3 * PAGE), PAGE, Advice::DontFork));
        insist(|| space.lock(at(start + 4 * PAGE), PAGE, false));
        insist(|| space.advise(at(start + 5 * PAGE), PAGE, Advice::DontNeed));
        insist(|| space.protect(at(start), 6 * PAGE, READ_WRITE));
        (0..5).for_each(|page| assert_eq!(get(&space, start + page * PAGE), Ok(page as u8)));
    });
}

#[test]
fn moving() {
    exhaust("remap", || {
        let space = insist(|| Ok(AddressSpace::new()?));
        let start = insist(|| space.map(MapRequest::anonymous(6 * PAGE, READ_WRITE))).as_u64();
        (0..6).for_each(|page| put(&space, start + page * PAGE, page as u8 + 1).unwrap());
        let flags = RemapFlags::MAY_MOVE | RemapFlags::FIXED;
        let target = at(BOUNDARY - PAGE);
        insist(|| space.remap(at(start + PAGE), 4 * PAGE, 4 * PAGE, flags, target));
        (0..4).for_each(|page| assert_eq!(get(&space, target.as_u64() + page * PAGE), Ok(page as u8 + 2)));
        let kept = RemapFlags::MAY_MOVE | RemapFlags::DONT_UNMAP;
        let doubled = insist(|| space.remap(target, 4 * PAGE, 4 * PAGE, kept, at(0)));
        assert_eq!(get(&space, doubled.as_u64()), Ok(2));
    });
}

#[test]
fn forking() {
    exhaust("fork", || {
        let space = insist(|| Ok(AddressSpace::new()?));
        let first = insist(|| space.map(MapRequest::anonymous(2 * PAGE, READ_WRITE).at(at(BOUNDARY - PAGE))));
        insist(|| space.map(MapRequest::anonymous(PAGE, READ_WRITE).with(MapFlags::SHARED)));
        put(&space, first.as_u64(), 1).unwrap();
        put(&space, BOUNDARY, 2).unwrap();
        let child = insist(|| space.fork());
        put(&space, BOUNDARY, 3).unwrap();
        assert_eq!((get(&child, first.as_u64()), get(&child, BOUNDARY)), (Ok(1), Ok(2)));
    });
}

#[test]
fn files() {
    exhaust("file mappings", || {
        let space = insist(|| Ok(AddressSpace::new()?));
        let cache = file(70);
        let cached = insist(|| {
            cache.write_at(65 * PAGE + 1, &mut Source::kernel(b"x")).map_err(|_| MapError::OutOfMemory)
        });
        assert_eq!(cached, 1);
        let request = MapRequest::private_file(mapping(&cache), 0, 70 * PAGE, READ_WRITE);
        let private = insist(|| space.map(request.clone())).as_u64();
        let shared = insist(|| space.map(request.clone().with(MapFlags::SHARED))).as_u64();
        let touch = |address, value| insist(|| Ok(space.write_remote(at(address), &[value])?));
        touch(private + 65 * PAGE, 1);
        touch(shared + 3 * PAGE, 2);
        assert_eq!(get(&space, private + 65 * PAGE + 1), Ok(b'x'));
        assert_eq!(get(&space, private + 3 * PAGE), Ok(2));
        cache.truncate(5 * PAGE).unwrap();
        assert_eq!(get(&space, private + 65 * PAGE), Err(FaultError::Bus));
    });
}

#[test]
fn huge_pages() {
    exhaust("huge pages", || {
        const TABLE: u64 = 512 * PAGE;
        let space = insist(|| Ok(AddressSpace::new()?));
        insist(|| space.map(MapRequest::anonymous(3 * TABLE, READ_WRITE).at(at(BOUNDARY))));
        insist(|| space.advise(at(BOUNDARY), 3 * TABLE, Advice::HugePage));
        let touch = |space: &AddressSpace, page, value| {
            insist(|| Ok(space.write_remote(at(BOUNDARY + page * PAGE), &[value])?));
        };
        (0..3).for_each(|table| touch(&space, table * 512 + 7, 1));
        let child = insist(|| space.fork());
        touch(&child, 7, 2);
        insist(|| space.protect(at(BOUNDARY + TABLE), PAGE, Protection::READ));
        insist(|| space.protect(at(BOUNDARY + TABLE), PAGE, READ_WRITE));
        insist(|| space.unmap(at(BOUNDARY + 2 * TABLE + PAGE), PAGE));
        drop(child);
        insist(|| space.advise(at(BOUNDARY), TABLE, Advice::Collapse));
        insist(|| space.advise(at(BOUNDARY + TABLE), TABLE, Advice::Collapse));
        let see = [0, 1, 2].map(|table| get(&space, BOUNDARY + table * TABLE + 7 * PAGE).unwrap());
        assert_eq!(see, [1, 1, 1]);
    });
}

#[test]
fn sharing_tables() {
    exhaust("shared tables", || {
        const TABLE: u64 = 512 * PAGE;
        let space = insist(|| Ok(AddressSpace::new()?));
        insist(|| space.map(MapRequest::anonymous(4 * TABLE, READ_WRITE).at(at(BOUNDARY))));
        let touch = |space: &AddressSpace, page, value| {
            insist(|| Ok(space.write_remote(at(BOUNDARY + page * PAGE), &[value])?));
        };
        (0..4).for_each(|table| touch(&space, table * 512, 1));
        let child = insist(|| space.fork());
        touch(&child, 0, 2);
        touch(&space, 512, 3);
        insist(|| space.unmap(at(BOUNDARY + 2 * TABLE + PAGE), PAGE));
        insist(|| space.protect(at(BOUNDARY + 3 * TABLE), PAGE, Protection::READ));
        insist(|| child.advise(at(BOUNDARY + 2 * TABLE), PAGE, Advice::DontNeed));
        let see =
            |space: &AddressSpace| [0, 1, 2, 3].map(|table| get(space, BOUNDARY + table * TABLE).unwrap());
        assert_eq!((see(&space), see(&child)), ([1, 3, 1, 1], [2, 1, 0, 1]));
    });
}
