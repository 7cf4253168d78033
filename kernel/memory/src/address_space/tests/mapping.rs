//! mmap, munmap, mprotect, brk: placement, errors, what /proc/PID/maps would show.

use super::*;

fn picture(space: &AddressSpace) -> Vec<(u64, u64)> {
    let mut list = Vec::new();
    space.for_each_region(|region| list.push((region.start(), region.end())));
    list
}

fn anonymous(pages: u64) -> MapRequest {
    MapRequest::anonymous(pages * PAGE, READ_WRITE)
}

#[test]
fn fresh_memory_reads_as_zeros_and_keeps_what_is_written() {
    without_leaks(|| {
        let space = space();
        let start = space.map(anonymous(4)).unwrap().as_u64();
        assert_eq!(get(&space, start + PAGE), Ok(0));
        assert_eq!(space.usage().private_pages, 0, "the page of zeros is nobody's");
        put(&space, start + PAGE + 5, 7).unwrap();
        assert_eq!(get(&space, start + PAGE + 5), Ok(7));
        assert_eq!(get(&space, start + PAGE), Ok(0));
        assert_eq!(space.usage().private_pages, 1);
        assert_eq!(space.fault(at(start - 1), Access::Read), Err(FaultError::NotMapped));
    });
}

#[test]
fn mappings_are_placed_downwards_and_merge() {
    without_leaks(|| {
        let space = space();
        space.set_mapping_top(at(0x7000_0000_0000));
        let first = space.map(anonymous(2)).unwrap().as_u64();
        let second = space.map(anonymous(3)).unwrap().as_u64();
        assert_eq!(first, 0x7000_0000_0000 - 2 * PAGE);
        assert_eq!(second, first - 3 * PAGE);
        assert_eq!(picture(&space), [(second, 0x7000_0000_0000)]);
        space.unmap(at(first), PAGE).unwrap();
        assert_eq!(picture(&space).len(), 2);
        let hint = MapRequest { address: at(first + 1), ..anonymous(1) };
        assert_eq!(space.map(hint).unwrap().as_u64(), first, "a free hint is followed");
        assert_eq!(picture(&space).len(), 1);
    });
}

#[test]
fn a_mapping_for_short_addresses_goes_into_the_second_gib_unless_it_names_a_place() {
    without_leaks(|| {
        let space = space();
        let low = MapRequest { flags: MapFlags::SECOND_GIB, ..anonymous(1) };
        assert_eq!(space.map(low.clone()).unwrap().as_u64(), (1 << 31) - PAGE);
        let named = MapRequest { address: at(1 << 40), ..low.clone() };
        assert_eq!(space.map(named).unwrap().as_u64(), 1 << 40);
        let large = MapRequest { length: 1 << 30, ..low };
        assert_eq!(space.map(large), Err(MapError::OutOfMemory));
    });
}

#[test]
fn errors_are_those_of_the_manual() {
    let _alone = alone();
    let space = space();
    let map = |request: MapRequest| space.map(request).map(UserAddr::as_u64);
    assert_eq!(map(anonymous(0)), Err(MapError::InvalidArgument));
    assert_eq!(map(MapRequest::anonymous(u64::MAX, READ_WRITE)), Err(MapError::OutOfMemory));
    assert_eq!(map(MapRequest::anonymous(1 << 47, READ_WRITE)), Err(MapError::OutOfMemory));
    assert_eq!(map(anonymous(1).at(at(BOUNDARY + 1))), Err(MapError::InvalidArgument));
    assert_eq!(map(anonymous(1).at(at(0))), Err(MapError::NotPermitted));
    assert_eq!(map(anonymous(1).at(at(1 << 47))), Err(MapError::OutOfMemory));
    assert_eq!(map(anonymous(1).at(at(BOUNDARY))), Ok(BOUNDARY));
    let request = MapRequest { address: at(BOUNDARY), ..anonymous(1) }.with(MapFlags::FIXED_NO_REPLACE);
    assert_eq!(map(request), Err(MapError::Exists));
    let cache = file(1);
    let request = MapRequest::private_file(mapping(&cache), 1, PAGE, READ_WRITE);
    assert_eq!(map(request), Err(MapError::InvalidArgument));
    let request =
        MapRequest::private_file(mapping(&cache), (i64::MAX as u64) & !(PAGE - 1), 2 * PAGE, READ_WRITE);
    assert_eq!(map(request), Err(MapError::Overflow));
    let request = MapRequest {
        maximum: Protection::READ,
        ..MapRequest::private_file(mapping(&cache), 0, PAGE, READ_WRITE).with(MapFlags::SHARED)
    };
    assert_eq!(map(request.clone()), Err(MapError::AccessDenied));
    let start = map(MapRequest { protection: Protection::READ, ..request }).unwrap();
    assert_eq!(space.protect(at(start), PAGE, READ_WRITE), Err(MapError::AccessDenied));
    assert_eq!(space.protect(at(start + 1), PAGE, READ_WRITE), Err(MapError::InvalidArgument));
    assert_eq!(space.protect(at(BOUNDARY), 2 * PAGE, Protection::READ), Err(MapError::OutOfMemory));
    assert_eq!(get(&space, BOUNDARY), Ok(0));
    assert_eq!(
        put(&space, BOUNDARY, 1),
        Err(FaultError::AccessDenied),
        "what lies before the hole was changed"
    );
    assert_eq!(space.unmap(at(BOUNDARY), 0), Err(MapError::InvalidArgument));
    assert_eq!(space.unmap(at(BOUNDARY + 1), PAGE), Err(MapError::InvalidArgument));
    assert_eq!(space.unmap(at(0x1000_0000), PAGE), Ok(()));
}

#[test]
fn protection_is_enforced_and_pages_survive_being_hidden() {
    without_leaks(|| {
        let space = space();
        let start = space.map(anonymous(3)).unwrap().as_u64();
        for page in 0..3 {
            put(&space, start + page * PAGE, page as u8 + 1).unwrap();
        }
        space.protect(at(start + PAGE), PAGE, Protection::empty()).unwrap();
        assert_eq!(space.region_count(), 3);
        assert_eq!(get(&space, start + PAGE), Err(FaultError::AccessDenied));
        assert_eq!(space.fault(at(start), Access::Execute), Err(FaultError::AccessDenied));
        space.protect(at(start + PAGE), PAGE, READ_WRITE).unwrap();
        assert_eq!(space.region_count(), 1);
        assert_eq!(get(&space, start + PAGE), Ok(2));
        put(&space, start + PAGE, 9).unwrap();
        assert_eq!(space.usage().private_pages, 3);
    });
}

#[test]
fn tables_go_with_the_last_mapping_they_serve() {
    without_leaks(|| {
        let space = space();
        let empty = space.usage().table_bytes;
        space.map(anonymous(8).at(at(BOUNDARY - 4 * PAGE))).unwrap();
        put(&space, BOUNDARY - PAGE, 1).unwrap();
        put(&space, BOUNDARY, 1).unwrap();
        let full = space.usage().table_bytes;
        assert_eq!(full - empty, 5 * PAGE, "one table of pointers, two directories, two leaf tables");
        space.unmap(at(BOUNDARY - 4 * PAGE), 4 * PAGE).unwrap();
        assert_eq!(space.usage().table_bytes, full - 2 * PAGE);
        assert_eq!(get(&space, BOUNDARY), Ok(1));
        space.unmap(at(BOUNDARY), 4 * PAGE).unwrap();
        assert_eq!(space.usage().table_bytes, empty);
    });
}

#[test]
fn break_grows_shrinks_and_stays_when_it_cannot() {
    without_leaks(|| {
        let space = space();
        let start = 0x5000_0000;
        space.set_break_start(at(start));
        assert_eq!(space.set_break(at(0)), at(start));
        assert_eq!(space.set_break(at(start + 100)), at(start + 100));
        put(&space, start + 99, 1).unwrap();
        assert_eq!(space.set_break(at(start + 10 * PAGE)), at(start + 10 * PAGE));
        assert_eq!(space.region_count(), 1);
        put(&space, start + 9 * PAGE, 2).unwrap();
        assert_eq!(space.set_break(at(start + PAGE)), at(start + PAGE));
        assert_eq!(space.fault(at(start + 9 * PAGE), Access::Read), Err(FaultError::NotMapped));
        space.map(anonymous(1).at(at(start + 4 * PAGE))).unwrap();
        assert_eq!(space.set_break(at(start + 6 * PAGE)), at(start + PAGE));
        assert_eq!(space.set_break(at(start + 3 * PAGE)), at(start + 3 * PAGE));
        assert_eq!(get(&space, start + 99), Ok(1));
    });
}

#[test]
fn populated_memory_is_there_at_once() {
    without_leaks(|| {
        let space = space();
        space.map(anonymous(5).with(MapFlags::POPULATE)).unwrap();
        assert_eq!(space.usage().private_pages, 5);
    });
}

#[test]
fn discarded_memory_reads_as_zeros() {
    without_leaks(|| {
        let space = space();
        let start = space.map(anonymous(3)).unwrap().as_u64();
        (0..3).for_each(|page| put(&space, start + page * PAGE, 5).unwrap());
        space.advise(at(start + PAGE), PAGE, Advice::DontNeed).unwrap();
        assert_eq!((get(&space, start), get(&space, start + PAGE)), (Ok(5), Ok(0)));
        assert_eq!(space.usage().private_pages, 2);
        space.advise(at(start), 3 * PAGE, Advice::Free).unwrap();
        assert_eq!(get(&space, start), Ok(0));
        assert_eq!(space.advise(at(start), 4 * PAGE, Advice::DontNeed), Err(MapError::OutOfMemory));
        assert_eq!(space.advise(at(start + 1), PAGE, Advice::DontNeed), Err(MapError::InvalidArgument));
    });
}

#[test]
fn special_pages_are_shown_and_cannot_be_written() {
    let _alone = alone();
    use crate::frame::{Frame, Zeroed};
    use crate::region::SpecialMapping;
    let frame = Frame::allocate(Purpose::Kernel, Zeroed::Yes).unwrap();
    frame.write(3, b"v");
    let special = Arc::new(SpecialMapping::new("[vvar]", vec![frame]));
    let space = space();
    let request = MapRequest {
        protection: Protection::READ,
        maximum: Protection::READ,
        backing: MapBacking::Special(special),
        ..anonymous(2)
    };
    let start = space.map(request).unwrap().as_u64();
    assert_eq!(get(&space, start + 3), Ok(b'v'));
    assert_eq!(put(&space, start, 1), Err(FaultError::AccessDenied));
    assert_eq!(get(&space, start + PAGE), Err(FaultError::Bus));
    assert_eq!(space.protect(at(start), PAGE, READ_WRITE), Err(MapError::AccessDenied));
}

#[test]
fn residency_is_reported_page_by_page() {
    let _alone = alone();
    let space = space();
    let start = space.map(anonymous(3)).unwrap().as_u64();
    put(&space, start + PAGE, 1).unwrap();
    let mut report = Vec::new();
    space.resident(at(start), 3 * PAGE, |there| report.push(there)).unwrap();
    assert_eq!(report, [false, true, false]);
    assert_eq!(space.resident(at(start - PAGE), 2 * PAGE, |_| ()), Err(MapError::OutOfMemory));
}

#[test]
fn a_policy_belongs_to_a_range() {
    without_leaks(|| {
        let space = space();
        let start = space.map(anonymous(4)).unwrap().as_u64();
        let policies = |space: &AddressSpace| {
            let mut all = Vec::new();
            space.for_each_region(|region| all.push((region.pages(), region.flags().policy())));
            all
        };
        space.set_policies(at(start + PAGE), PAGE, |_| Ok(Some(2))).unwrap();
        assert_eq!(policies(&space), [(1, 0), (1, 2), (2, 0)]);
        space
            .set_policies(at(start), 4 * PAGE, |region| Ok((region.flags().policy() == 0).then_some(63)))
            .unwrap();
        assert_eq!(policies(&space), [(1, 63), (1, 2), (2, 63)]);
        let refuse = |_: &crate::region::Region| Err(MapError::NotPermitted);
        assert_eq!(space.set_policies(at(start), 4 * PAGE, refuse), Err(MapError::NotPermitted));
        space.set_policies(at(start), 4 * PAGE, |_| Ok(Some(0))).unwrap();
        assert_eq!(policies(&space), [(4, 0)], "they are alike again");
        space.unmap(at(start + PAGE), PAGE).unwrap();
        assert_eq!(space.set_policies(at(start), 4 * PAGE, |_| Ok(Some(1))), Err(MapError::OutOfMemory));
        assert_eq!(policies(&space), [(1, 1), (2, 1)]);
    });
}

#[test]
fn pages_do_not_count_as_used_once_that_is_forgotten() {
    without_leaks(|| {
        let space = space();
        let start = space.map(anonymous(3)).unwrap().as_u64();
        for page in 0..3 {
            put(&space, start + page * PAGE, 1).unwrap();
        }
        let region = space.region_at_or_after(at(start)).unwrap();
        assert_eq!(space.region_usage(&region).referenced, 3 * PAGE);
        space.forget_references(&region);
        let usage = space.region_usage(&region);
        assert_eq!((usage.referenced, usage.resident), (0, 3 * PAGE));
    });
}

#[test]
fn the_peak_of_memory_can_begin_anew() {
    without_leaks(|| {
        let space = space();
        let start = space.map(anonymous(3)).unwrap().as_u64();
        for page in 0..3 {
            put(&space, start + page * PAGE, 1).unwrap();
        }
        space.unmap(at(start), 2 * PAGE).unwrap();
        assert_eq!(space.usage().peak_resident_pages, 3);
        space.forget_peak();
        assert_eq!(space.usage().peak_resident_pages, 1);
    });
}

#[test]
fn a_heap_that_was_put_elsewhere_moves_from_there() {
    without_leaks(|| {
        let space = space();
        space.place_heap(at(0x5000_0000), at(0x5000_1800));
        assert_eq!(space.set_break(at(0x5000_4000)).as_u64(), 0x5000_4000);
        assert_eq!(picture(&space), [(0x5000_2000, 0x5000_4000)]);
        assert_eq!(space.set_break(at(0x4fff_ffff)).as_u64(), 0x5000_4000, "not below its beginning");
        assert_eq!(space.set_break(at(0x5000_0000)).as_u64(), 0x5000_0000);
        assert_eq!(picture(&space), []);
    });
}
