//! Leaf tables that spaces share after a fork.

use super::*;
use machine::page_table::LEAF_TABLE_BYTES;

/// The whole tables of the tests' region, which begins and ends in the midst of others.
const TABLES: u64 = 3;
const START: u64 = BOUNDARY - LEAF_TABLE_BYTES - PAGE;
const BYTES: u64 = TABLES * LEAF_TABLE_BYTES + 2 * PAGE;

/// A space with one page in each whole table, and one in each of the two others.
fn parent() -> Arc<AddressSpace> {
    let space = space();
    space.map(MapRequest::anonymous(BYTES, READ_WRITE).at(at(START))).unwrap();
    pages().for_each(|address| put(&space, address, 1).unwrap());
    space
}

fn pages() -> impl Iterator<Item = u64> {
    (0..TABLES).map(|table| START + PAGE + table * LEAF_TABLE_BYTES).chain([START, START + BYTES - PAGE])
}

fn see(space: &AddressSpace) -> Vec<u8> {
    pages().map(|address| get(space, address).unwrap()).collect()
}

fn tables_in_use() -> i64 {
    user_frames()[3]
}

#[test]
fn a_fork_shares_whole_tables() {
    without_leaks(|| {
        let parent = parent();
        let before = tables_in_use();
        let child = parent.fork().unwrap();
        // Root, two directory pointers' worth of directories, and the two tables that are not whole.
        let made = tables_in_use() - before;
        assert_eq!(child.usage().table_bytes / PAGE, made as u64 + TABLES);
        assert_eq!((child.usage().private_pages, see(&child)), (TABLES + 2, vec![1; 5]));
        assert_eq!(tables_in_use() - before, made, "reading takes no tables");
        put(&child, START + PAGE, 2).unwrap();
        assert_eq!(tables_in_use() - before, made + 1);
        assert_eq!((see(&parent), see(&child)[0]), (vec![1; 5], 2));
        drop(parent);
        assert_eq!(see(&child), [2, 1, 1, 1, 1]);
    });
}

#[test]
fn the_last_one_keeps_table_and_pages() {
    without_leaks(|| {
        let parent = parent();
        let page = at(START + PAGE);
        let frame = parent.page_for(page, Access::Read).unwrap().physical();
        let before = user_frames();
        drop(parent.fork().unwrap());
        put(&parent, page.as_u64(), 2).unwrap();
        assert_eq!(parent.page_for(page, Access::Write).unwrap().physical(), frame);
        assert_eq!(user_frames(), before);
    });
}

#[test]
fn generations_come_and_go_in_any_order() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        without_leaks(|| {
            let parent = parent();
            let child = parent.fork().unwrap();
            put(&child, START + PAGE, 2).unwrap();
            let grandchild = child.fork().unwrap();
            put(&grandchild, START + PAGE + LEAF_TABLE_BYTES, 3).unwrap();
            let expected = [[1, 1, 1, 1, 1], [2, 1, 1, 1, 1], [2, 3, 1, 1, 1]];
            let mut spaces = [Some(parent), Some(child), Some(grandchild)];
            for leaves in order {
                for (space, expected) in spaces.iter().zip(expected) {
                    assert!(space.as_ref().is_none_or(|space| see(space) == expected));
                }
                spaces[leaves] = None;
            }
        });
    }
}

#[test]
fn what_one_space_does_to_a_shared_table_does_not_touch_the_other() {
    let changes: [fn(&AddressSpace, u64); 5] = [
        |space, page| space.unmap(at(page), PAGE).unwrap(),
        |space, page| space.protect(at(page), PAGE, Protection::empty()).unwrap(),
        |space, page| space.advise(at(page), PAGE, Advice::DontNeed).unwrap(),
        |space, page| space.advise(at(page), PAGE, Advice::DontFork).unwrap(),
        |space, page| {
            let flags = RemapFlags::MAY_MOVE | RemapFlags::FIXED;
            space.remap(at(page), PAGE, PAGE, flags, at(START + 2 * BYTES)).unwrap();
        },
    ];
    for change in changes {
        without_leaks(|| {
            let parent = parent();
            let middle = START + PAGE + LEAF_TABLE_BYTES;
            put(&parent, middle + 8 * PAGE, 7).unwrap();
            let (first, second) = (parent.fork().unwrap(), parent.fork().unwrap());
            change(&first, middle + 8 * PAGE);
            change(&parent, middle + 8 * PAGE);
            assert_eq!((get(&second, middle + 8 * PAGE), see(&second)), (Ok(7), vec![1; 5]));
            assert_eq!((see(&first), see(&parent)), (vec![1; 5], vec![1; 5]));
            drop(second);
            let again = parent.fork().unwrap();
            assert_eq!(see(&again), vec![1; 5]);
        });
    }
}

#[test]
fn whole_tables_are_let_go_of() {
    without_leaks(|| {
        let parent = parent();
        let child = parent.fork().unwrap();
        let before = tables_in_use();
        child.unmap(at(START + PAGE), LEAF_TABLE_BYTES).unwrap();
        assert_eq!(tables_in_use(), before, "no table is copied to be taken away");
        assert_eq!(child.usage().private_pages, TABLES + 1);
        assert_eq!(get(&child, START + PAGE), Err(FaultError::NotMapped));
        assert_eq!(see(&parent), vec![1; 5]);
        parent.unmap(at(START), BYTES).unwrap();
        assert_eq!(parent.usage().private_pages, 0);
        assert_eq!(get(&child, START + PAGE + LEAF_TABLE_BYTES), Ok(1));
    });
}

#[test]
fn shared_pages_are_told_as_shared() {
    without_leaks(|| {
        let parent = parent();
        let usage = |space: &AddressSpace| {
            let mut sum = RegionUsage::default();
            space.for_each_region(|region| {
                let one = space.region_usage(region);
                sum.private_dirty += one.private_dirty;
                sum.shared_dirty += one.shared_dirty;
                sum.proportional += one.proportional;
            });
            [sum.private_dirty, sum.shared_dirty, sum.proportional].map(|bytes| 2 * bytes / PAGE)
        };
        assert_eq!(usage(&parent), [10, 0, 10]);
        let child = parent.fork().unwrap();
        assert_eq!((usage(&parent), usage(&child)), ([0, 10, 5], [0, 10, 5]));
        put(&child, START + PAGE, 2).unwrap();
        assert_eq!((usage(&parent), usage(&child)), ([2, 8, 6], [2, 8, 6]));
        let exclusive = |space: &AddressSpace, page| space.present_page(at(page)).unwrap().exclusive;
        assert!(exclusive(&child, START + PAGE) && !exclusive(&child, START + PAGE + LEAF_TABLE_BYTES));
    });
}

#[test]
fn stores_forks_and_exits_race() {
    let _alone = alone();
    let parent = parent();
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let parent = &parent;
            scope.spawn(move || {
                let own = START + PAGE + thread * LEAF_TABLE_BYTES;
                for round in 0..200 {
                    let value = round as u8 | 1;
                    put(parent, own, value).unwrap();
                    let child = parent.fork().unwrap();
                    put(&child, own, value ^ 1).unwrap();
                    let other = START + PAGE + (thread + 1) % TABLES * LEAF_TABLE_BYTES;
                    let seen = get(&child, other).unwrap();
                    assert_eq!(get(parent, own), Ok(value));
                    put(&child, other + PAGE, 9).unwrap();
                    assert_eq!((get(&child, own), get(&child, other)), (Ok(value ^ 1), Ok(seen)));
                }
            });
        }
    });
    assert_eq!(parent.usage().private_pages, TABLES + 2);
}
