//! Huge pages of anonymous memory.

use super::super::window::{self, Window};
use super::*;
use machine::page_table::LEAF_TABLE_BYTES;

/// The tests' region begins in the midst of one table, ends in the midst of another, and covers so many between.
const TABLES: u64 = 3;
const START: u64 = BOUNDARY - LEAF_TABLE_BYTES - PAGE;
const BYTES: u64 = TABLES * LEAF_TABLE_BYTES + 2 * PAGE;
const FIRST: u64 = START + PAGE;
const HUGE: u64 = LEAF_TABLE_BYTES / PAGE;

fn advised() -> Arc<AddressSpace> {
    let space = space();
    space.map(MapRequest::anonymous(BYTES, READ_WRITE).at(at(START))).unwrap();
    space.advise(at(START), BYTES, Advice::HugePage).unwrap();
    space
}

/// Huge pages that the space has now.
fn huge_pages(space: &AddressSpace) -> u64 {
    let mut bytes = 0;
    space.for_each_region(|region| bytes += space.region_usage(region).huge);
    bytes / LEAF_TABLE_BYTES
}

fn private_pages(space: &AddressSpace) -> u64 {
    space.usage().private_pages
}

#[test]
fn a_first_access_maps_two_mebibytes_of_zeros() {
    without_leaks(|| {
        let space = advised();
        for access in [Access::Read, Access::Write] {
            let page = FIRST + if access == Access::Read { 5 * PAGE } else { LEAF_TABLE_BYTES };
            let before = private_pages(&space);
            space.fault(at(page), access).unwrap();
            assert_eq!(private_pages(&space), before + HUGE);
        }
        assert_eq!(huge_pages(&space), 2);
        for page in 0..HUGE {
            assert_eq!(get(&space, FIRST + page * PAGE), Ok(0));
            put(&space, FIRST + page * PAGE, page as u8).unwrap();
        }
        assert_eq!(get(&space, FIRST + 77 * PAGE), Ok(77));
        assert_eq!(
            (huge_pages(&space), private_pages(&space)),
            (2, 2 * HUGE),
            "nothing has to be undone for it"
        );
        let frame = |page| space.present_page(at(page)).unwrap().frame_number;
        assert_eq!(frame(FIRST + 9 * PAGE), frame(FIRST) + 9);
        assert_eq!(frame(FIRST) % HUGE, 0);
    });
}

#[test]
fn memory_that_does_not_reach_far_enough_has_small_pages() {
    without_leaks(|| {
        let space = advised();
        put(&space, START, 1).unwrap();
        put(&space, START + BYTES - PAGE, 1).unwrap();
        assert_eq!((huge_pages(&space), private_pages(&space)), (0, 2));
    });
}

#[test]
fn nobody_gets_huge_pages_who_does_not_want_them() {
    without_leaks(|| {
        let space = advised();
        space.advise(at(FIRST), LEAF_TABLE_BYTES, Advice::NoHugePage).unwrap();
        put(&space, FIRST, 1).unwrap();
        assert_eq!(huge_pages(&space), 0);
        let collapse = |space: &AddressSpace| space.advise(at(FIRST), LEAF_TABLE_BYTES, Advice::Collapse);
        assert_eq!(collapse(&space), Err(MapError::InvalidArgument));
        space.forbid_huge_pages(true);
        put(&space, FIRST + LEAF_TABLE_BYTES, 1).unwrap();
        assert_eq!(huge_pages(&space), 0);
        assert!(space.fork().unwrap().forbids_huge_pages(), "a child inherits it");
        space.forbid_huge_pages(false);
        put(&space, FIRST + 2 * LEAF_TABLE_BYTES, 1).unwrap();
        assert_eq!(huge_pages(&space), 1);
    });
}

#[test]
fn a_change_of_a_part_undoes_that_page_only() {
    type Change = fn(&AddressSpace, u64);
    let changes: [(Change, u64); 6] = [
        (|space, page| space.unmap(at(page), PAGE).unwrap(), 1),
        (|space, page| space.protect(at(page), PAGE, Protection::empty()).unwrap(), 0),
        (|space, page| space.protect(at(page), PAGE, Protection::READ).unwrap(), 0),
        (|space, page| space.advise(at(page), PAGE, Advice::DontNeed).unwrap(), 1),
        (|space, page| space.lock(at(page), PAGE, false).unwrap(), 0),
        (
            |space, page| {
                let flags = RemapFlags::MAY_MOVE | RemapFlags::FIXED;
                space.remap(at(page), PAGE, PAGE, flags, at(START + 2 * BYTES)).unwrap();
            },
            0,
        ),
    ];
    for (change, lost) in changes {
        without_leaks(|| {
            let space = advised();
            for page in 0..TABLES * HUGE {
                put(&space, FIRST + page * PAGE, page as u8 | 1).unwrap();
            }
            let before = huge_counts().undone;
            change(&space, FIRST + LEAF_TABLE_BYTES + 8 * PAGE);
            assert_eq!((huge_pages(&space), huge_counts().undone - before), (2, 1));
            assert_eq!(private_pages(&space), TABLES * HUGE - lost);
            for page in (0..TABLES * HUGE).filter(|page| *page != HUGE + 8) {
                assert_eq!(get(&space, FIRST + page * PAGE), Ok(page as u8 | 1));
            }
        });
    }
}

#[test]
fn whole_pages_go_without_being_undone() {
    without_leaks(|| {
        let space = advised();
        (0..TABLES).for_each(|table| put(&space, FIRST + table * LEAF_TABLE_BYTES, 1).unwrap());
        let before = huge_counts();
        space.unmap(at(FIRST + LEAF_TABLE_BYTES), LEAF_TABLE_BYTES).unwrap();
        assert_eq!((huge_pages(&space), private_pages(&space)), (2, 2 * HUGE));
        assert_eq!(get(&space, FIRST + LEAF_TABLE_BYTES), Err(FaultError::NotMapped));
        drop(space);
        let after = huge_counts();
        assert_eq!((after.undone, after.mapped), (before.undone, before.mapped - 3));
    });
}

#[test]
fn the_place_of_a_page_that_was_given_back_gets_one_again() {
    for (advice, forks) in [(Advice::DontNeed, false), (Advice::Free, false), (Advice::DontNeed, true)] {
        without_leaks(|| {
            let space = advised();
            (0..TABLES).for_each(|table| put(&space, FIRST + table * LEAF_TABLE_BYTES, 7).unwrap());
            let child = forks.then(|| space.fork().unwrap());
            let before = huge_counts();
            space.advise(at(FIRST + PAGE), 2 * LEAF_TABLE_BYTES - PAGE, advice).unwrap();
            assert_eq!(private_pages(&space), HUGE + 1, "a page stays of the first one, and the third");
            let undone = u64::from(!forks);
            assert_eq!(huge_counts().undone - before.undone, undone, "the first one's page is kept");
            assert_eq!(get(&space, FIRST + LEAF_TABLE_BYTES), Ok(0));
            assert_eq!(private_pages(&space), 2 * HUGE + 1);
            assert_eq!(huge_pages(&space), if forks { 1 } else { 2 });
            if let Some(child) = child {
                assert_eq!(get(&child, FIRST + LEAF_TABLE_BYTES), Ok(7));
            }
        });
    }
}

#[test]
fn a_fork_shares_the_table_behind_and_the_last_one_has_the_page_again() {
    without_leaks(|| {
        let parent = advised();
        (0..TABLES).for_each(|table| put(&parent, FIRST + table * LEAF_TABLE_BYTES, 1).unwrap());
        let child = parent.fork().unwrap();
        assert_eq!((huge_pages(&parent), huge_pages(&child)), (0, 0));
        put(&child, FIRST, 2).unwrap();
        put(&parent, FIRST + LEAF_TABLE_BYTES, 3).unwrap();
        assert_eq!((get(&parent, FIRST), get(&child, FIRST)), (Ok(1), Ok(2)));
        assert_eq!(get(&child, FIRST + LEAF_TABLE_BYTES), Ok(1));
        let frame = parent.present_page(at(FIRST + 2 * LEAF_TABLE_BYTES)).unwrap().frame_number;
        drop(child);
        (0..TABLES).for_each(|table| put(&parent, FIRST + table * LEAF_TABLE_BYTES, 4).unwrap());
        assert_eq!(huge_pages(&parent), 1, "the table that nobody stored by while it was shared");
        assert_eq!(parent.present_page(at(FIRST + 2 * LEAF_TABLE_BYTES)).unwrap().frame_number, frame);
        assert_eq!(private_pages(&parent), TABLES * HUGE);
    });
}

#[test]
fn a_debugger_stores_into_read_only_parts() {
    without_leaks(|| {
        let space = advised();
        put(&space, FIRST, 1).unwrap();
        space.protect(at(FIRST), LEAF_TABLE_BYTES, Protection::READ).unwrap();
        assert_eq!(put(&space, FIRST, 2), Err(FaultError::AccessDenied));
        assert_eq!(space.write_forced(at(FIRST), &[3]), Ok(1));
        assert_eq!(get(&space, FIRST), Ok(3));
    });
}

#[test]
fn collapsing_keeps_contents_and_fills_holes() {
    without_leaks(|| {
        let space = space();
        space.map(MapRequest::anonymous(BYTES, READ_WRITE).at(at(START))).unwrap();
        let collapse = |bytes| space.advise(at(START), bytes, Advice::Collapse);
        assert_eq!(collapse(BYTES), Err(MapError::InvalidArgument), "nothing is there");
        for page in (0..HUGE).step_by(3) {
            put(&space, FIRST + page * PAGE, page as u8 | 1).unwrap();
        }
        get(&space, FIRST + PAGE).unwrap();
        let child = space.fork().unwrap();
        put(&child, FIRST, 9).unwrap();
        assert_eq!(collapse(LEAF_TABLE_BYTES + PAGE), Err(MapError::TooMuchLocked), "pages are shared");
        drop(child);
        assert_eq!(collapse(LEAF_TABLE_BYTES + PAGE), Ok(()));
        assert_eq!((huge_pages(&space), private_pages(&space)), (1, HUGE));
        for page in 0..HUGE {
            let expected = if page % 3 == 0 { page as u8 | 1 } else { 0 };
            assert_eq!(get(&space, FIRST + page * PAGE), Ok(expected));
        }
        assert_eq!(collapse(LEAF_TABLE_BYTES + PAGE), Ok(()), "it is one already");
    });
}

#[test]
fn who_holds_a_page_keeps_it_from_being_moved() {
    without_leaks(|| {
        let space = space();
        space.map(MapRequest::anonymous(BYTES, READ_WRITE).at(at(START))).unwrap();
        let held = {
            put(&space, FIRST, 1).unwrap();
            space.page_for(at(FIRST), Access::Write).unwrap()
        };
        let collapse = || space.advise(at(FIRST), LEAF_TABLE_BYTES, Advice::Collapse);
        assert_eq!(collapse(), Err(MapError::TooMuchLocked));
        held.write(0, &[2]);
        drop(held);
        assert_eq!((get(&space, FIRST), put(&space, FIRST + PAGE, 3)), (Ok(2), Ok(())));
        assert_eq!(collapse(), Ok(()));
        assert_eq!((get(&space, FIRST), get(&space, FIRST + PAGE)), (Ok(2), Ok(3)));
    });
}

#[test]
fn readers_go_on_while_pages_are_collapsed() {
    without_leaks(|| {
        let space = space();
        space.map(MapRequest::anonymous(BYTES, READ_WRITE).at(at(START))).unwrap();
        put(&space, FIRST, 7).unwrap();
        let reader = space.clone();
        window::at(Window::CollapseClosed, move || assert_eq!(get(&reader, FIRST), Ok(7)));
        space.advise(at(FIRST), LEAF_TABLE_BYTES, Advice::Collapse).unwrap();
        assert_eq!((window::clear(), get(&space, FIRST)), (0, Ok(7)));
    });
}

/// While a thread has a huge page ready, another one is faster with something else at the same place.
#[test]
fn what_comes_before_a_prepared_page_stands() {
    type Other = fn(&AddressSpace);
    let others: [(Other, Result<(), FaultError>, u64); 6] = [
        (|space| put(space, FIRST + PAGE, 5).unwrap(), Ok(()), 1),
        (|space| space.unmap(at(FIRST), LEAF_TABLE_BYTES).unwrap(), Err(FaultError::NotMapped), 0),
        (|space| space.unmap(at(FIRST + 3 * PAGE), PAGE).unwrap(), Ok(()), 0),
        (|space| space.protect(at(FIRST), PAGE, Protection::READ).unwrap(), Err(FaultError::AccessDenied), 0),
        (|space| space.advise(at(FIRST), PAGE, Advice::NoHugePage).unwrap(), Ok(()), 0),
        (|space| put(&space.fork().unwrap(), FIRST, 6).unwrap(), Ok(()), 1),
    ];
    for (other, expected, huge) in others {
        without_leaks(|| {
            let space = advised();
            let meanwhile = space.clone();
            window::at(Window::HugePrepared, move || other(&meanwhile));
            assert_eq!(put(&space, FIRST, 1), expected);
            assert_eq!((window::clear(), huge_pages(&space)), (0, huge));
            if expected.is_ok() {
                assert_eq!(get(&space, FIRST), Ok(1));
            }
        });
    }
}

#[test]
fn faults_forks_and_changes_of_one_huge_page_race() {
    let _alone = alone();
    let space = advised();
    let rounds = 300_u64;
    std::thread::scope(|scope| {
        let space = &space;
        scope.spawn(move || {
            for round in 0..rounds {
                let value = round as u8 | 1;
                put(space, FIRST, value).unwrap();
                assert_eq!(get(space, FIRST), Ok(value));
            }
        });
        scope.spawn(move || {
            for round in 0..rounds {
                let child = space.fork().unwrap();
                put(&child, FIRST + PAGE, round as u8).unwrap();
                assert_eq!(get(&child, FIRST + PAGE), Ok(round as u8));
            }
        });
        scope.spawn(move || {
            for _ in 0..rounds {
                let _ = space.advise(at(FIRST), LEAF_TABLE_BYTES, Advice::Collapse);
                let part = at(FIRST + 64 * PAGE);
                space.protect(part, 64 * PAGE, Protection::READ).unwrap();
                space.protect(part, 64 * PAGE, READ_WRITE).unwrap();
                space.unmap(at(FIRST + LEAF_TABLE_BYTES), LEAF_TABLE_BYTES).unwrap();
                let request = MapRequest::anonymous(LEAF_TABLE_BYTES, READ_WRITE);
                space.map(request.at(at(FIRST + LEAF_TABLE_BYTES))).unwrap();
                space.advise(at(FIRST + LEAF_TABLE_BYTES), LEAF_TABLE_BYTES, Advice::HugePage).unwrap();
            }
        });
        scope.spawn(move || {
            for round in 0..rounds {
                space.advise(at(FIRST + 8 * PAGE), 8 * PAGE, Advice::DontNeed).unwrap();
                put(space, FIRST + 9 * PAGE, round as u8).unwrap();
                let _ = put(space, FIRST + LEAF_TABLE_BYTES + 9 * PAGE, round as u8);
            }
        });
    });
    let mut resident = 0;
    space.for_each_region(|region| resident += space.region_usage(region).resident);
    assert_eq!(private_pages(&space), resident / PAGE, "counters agree with the tables");
}
