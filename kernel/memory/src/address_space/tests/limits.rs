//! Limits, locking, growing stacks, committed memory.

use super::*;

fn map(space: &AddressSpace, pages: u64) -> Result<u64, MapError> {
    space.map(MapRequest::anonymous(pages * PAGE, READ_WRITE)).map(UserAddr::as_u64)
}

#[test]
fn address_space_and_data_limits_refuse_more() {
    let _alone = alone();
    let space = space();
    space.set_limits(Limits { address_space: 10 * PAGE, ..Limits::NONE });
    let start = map(&space, 8).unwrap();
    assert_eq!(map(&space, 3), Err(MapError::OutOfMemory));
    assert_eq!(
        space.remap(at(start), 8 * PAGE, 11 * PAGE, RemapFlags::MAY_MOVE, at(0)),
        Err(MapError::OutOfMemory)
    );
    assert!(map(&space, 2).is_ok());
    assert!(
        space.map(MapRequest::anonymous(4 * PAGE, READ_WRITE).at(at(start))).is_ok(),
        "replacing costs nothing"
    );
    space.set_limits(Limits { data: 10 * PAGE, ..Limits::NONE });
    assert_eq!(map(&space, 1), Err(MapError::OutOfMemory));
    assert!(space.map(MapRequest::anonymous(PAGE, Protection::READ)).is_ok());
}

#[test]
fn stacks_grow_to_their_limit_and_keep_their_distance() {
    without_leaks(|| {
        let space = space();
        let top = 0x7000_0000_0000;
        let request = MapRequest::anonymous(2 * PAGE, READ_WRITE).with(MapFlags::STACK);
        space.map(request.at(at(top - 2 * PAGE))).unwrap();
        space.set_limits(Limits { stack: 1024 * PAGE, ..Limits::NONE });
        put(&space, top - 100 * PAGE, 1).unwrap();
        assert_eq!(space.usage().stack_pages, 100);
        assert_eq!(put(&space, top - 1025 * PAGE, 1), Err(FaultError::NotMapped));
        space.map(MapRequest::anonymous(PAGE, READ_WRITE).at(at(top - 500 * PAGE))).unwrap();
        put(&space, top - (499 - 256) * PAGE, 1).unwrap();
        assert_eq!(put(&space, top - (499 - 255) * PAGE, 1), Err(FaultError::NotMapped));
        assert_eq!(get(&space, top - 100 * PAGE), Ok(1));
    });
}

#[test]
fn locked_memory_is_present_counted_and_limited() {
    without_leaks(|| {
        let space = space();
        let start = map(&space, 4).unwrap();
        space.set_limits(Limits { locked: 2 * PAGE, ..Limits::NONE });
        assert_eq!(space.lock(at(start), 3 * PAGE, false), Err(MapError::OutOfMemory));
        space.lock(at(start + 1), PAGE, false).unwrap();
        assert_eq!((space.usage().locked_pages, space.usage().private_pages), (2, 2));
        let request = MapRequest::anonymous(PAGE, READ_WRITE).with(MapFlags::LOCKED);
        assert_eq!(space.map(request), Err(MapError::TooMuchLocked));
        assert_eq!(space.advise(at(start), PAGE, Advice::DontNeed), Err(MapError::InvalidArgument));
        assert_eq!(space.sync(at(start), PAGE, SyncMode::Invalidate, true), Err(MapError::Busy));
        assert_eq!(space.fork().unwrap().usage().locked_pages, 0);
        space.unlock(at(start), PAGE).unwrap();
        assert_eq!(space.usage().locked_pages, 1);
        space.unmap(at(start), 4 * PAGE).unwrap();
        assert_eq!(space.usage().locked_pages, 0);
        space.set_limits(Limits { locked: 0, ..Limits::NONE });
        assert_eq!(space.lock(at(start), PAGE, false), Err(MapError::NotPermitted));
    });
}

#[test]
fn everything_can_be_locked_now_and_for_the_future() {
    without_leaks(|| {
        let space = space();
        map(&space, 2).unwrap();
        space.map(MapRequest::anonymous(PAGE, READ_WRITE).at(at(BOUNDARY))).unwrap();
        assert_eq!(space.lock_all(LockAllFlags::empty()), Err(MapError::InvalidArgument));
        space.lock_all(LockAllFlags::CURRENT | LockAllFlags::FUTURE).unwrap();
        assert_eq!((space.usage().locked_pages, space.usage().private_pages), (3, 3));
        map(&space, 2).unwrap();
        assert_eq!((space.usage().locked_pages, space.usage().private_pages), (5, 5));
        space.unlock_all().unwrap();
        assert_eq!(space.usage().locked_pages, 0);
    });
}

#[test]
fn absurd_requests_are_refused_unless_not_reserved() {
    let _alone = alone();
    let space = space();
    let pages = 1 << 30;
    assert_eq!(map(&space, pages), Err(MapError::OutOfMemory));
    let request = MapRequest::anonymous(pages * PAGE, READ_WRITE).with(MapFlags::NO_RESERVE);
    let start = space.map(request).unwrap().as_u64();
    put(&space, start + (pages / 2) * PAGE, 1).unwrap();
    let reserved = space.map(MapRequest::anonymous(pages * PAGE, Protection::empty())).unwrap();
    assert_eq!(space.protect(reserved, pages * PAGE, READ_WRITE), Err(MapError::OutOfMemory));
}
