//! mremap.

use super::*;

const MOVE: RemapFlags = RemapFlags::MAY_MOVE;

fn filled(space: &AddressSpace, pages: u64) -> u64 {
    let start = space.map(MapRequest::anonymous(pages * PAGE, READ_WRITE)).unwrap().as_u64();
    (0..pages).for_each(|page| put(space, start + page * PAGE, page as u8 + 1).unwrap());
    start
}

fn remap(
    space: &AddressSpace,
    old: u64,
    from: u64,
    to: u64,
    flags: RemapFlags,
    new: u64,
) -> Result<u64, MapError> {
    space.remap(at(old), from * PAGE, to * PAGE, flags, at(new)).map(UserAddr::as_u64)
}

#[test]
fn growing_in_place_or_moving_keeps_the_pages() {
    without_leaks(|| {
        let space = space();
        let start = filled(&space, 3);
        assert_eq!(remap(&space, start, 3, 1, RemapFlags::empty(), 0), Ok(start));
        assert_eq!(remap(&space, start, 1, 2, RemapFlags::empty(), 0), Ok(start));
        assert_eq!((get(&space, start), get(&space, start + PAGE)), (Ok(1), Ok(0)));
        space.map(MapRequest::anonymous(PAGE, Protection::READ).at(at(start + 2 * PAGE))).unwrap();
        assert_eq!(remap(&space, start, 2, 4, RemapFlags::empty(), 0), Err(MapError::OutOfMemory));
        let moved = remap(&space, start, 2, 4, MOVE, 0).unwrap();
        assert_ne!(moved, start);
        assert_eq!((get(&space, moved), get(&space, moved + 3 * PAGE)), (Ok(1), Ok(0)));
        assert_eq!(get(&space, start), Err(FaultError::NotMapped));
    });
}

#[test]
fn moving_across_table_boundaries_keeps_every_page() {
    without_leaks(|| {
        let space = space();
        let start = filled(&space, 20);
        let target = BOUNDARY - 7 * PAGE;
        assert_eq!(remap(&space, start, 20, 20, MOVE | RemapFlags::FIXED, target), Ok(target));
        (0..20).for_each(|page| assert_eq!(get(&space, target + page * PAGE), Ok(page as u8 + 1)));
        assert_eq!(space.region_count(), 1);
        assert_eq!(space.usage().private_pages, 20);
    });
}

#[test]
fn the_source_can_stay_behind_empty() {
    without_leaks(|| {
        let space = space();
        let start = filled(&space, 2);
        let moved = remap(&space, start, 2, 2, MOVE | RemapFlags::DONT_UNMAP, 0).unwrap();
        assert_eq!((get(&space, start), get(&space, moved)), (Ok(0), Ok(1)));
        put(&space, start, 9).unwrap();
        assert_eq!(get(&space, moved), Ok(1));
    });
}

#[test]
fn shared_pages_can_be_mapped_twice() {
    without_leaks(|| {
        let space = space();
        let request = MapRequest::anonymous(2 * PAGE, READ_WRITE).with(MapFlags::SHARED);
        let start = space.map(request).unwrap().as_u64();
        put(&space, start + PAGE, 5).unwrap();
        let second = remap(&space, start, 0, 2, MOVE, 0).unwrap();
        assert_eq!(get(&space, second + PAGE), Ok(5));
        put(&space, second, 6).unwrap();
        assert_eq!(get(&space, start), Ok(6));
        let private = filled(&space, 1);
        assert_eq!(remap(&space, private, 0, 1, MOVE, 0), Err(MapError::InvalidArgument));
    });
}

#[test]
fn errors_are_those_of_the_manual() {
    let _alone = alone();
    let space = space();
    let start = filled(&space, 4);
    let invalid = Err(MapError::InvalidArgument);
    assert_eq!(remap(&space, start + 1, 1, 1, MOVE, 0), invalid);
    assert_eq!(remap(&space, start, 1, 0, MOVE, 0), invalid);
    assert_eq!(remap(&space, start, 1, 1, RemapFlags::FIXED, BOUNDARY), invalid);
    assert_eq!(remap(&space, start, 2, 2, MOVE | RemapFlags::FIXED, start + PAGE), invalid);
    assert_eq!(remap(&space, start, 2, 3, MOVE | RemapFlags::DONT_UNMAP, 0), invalid);
    assert_eq!(remap(&space, start, 2, 2, MOVE | RemapFlags::FIXED, BOUNDARY + 1), invalid);
    assert_eq!(remap(&space, start - PAGE, 1, 2, MOVE, 0), Err(MapError::BadAddress));
    assert_eq!(remap(&space, start, 5, 6, MOVE, 0), Err(MapError::BadAddress));
}
