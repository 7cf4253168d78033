//! fork: who sees whose stores, and what it costs.

use super::*;

#[test]
fn parent_and_child_do_not_see_each_others_stores() {
    without_leaks(|| {
        let parent = space();
        let start = parent.map(MapRequest::anonymous(4 * PAGE, READ_WRITE)).unwrap().as_u64();
        (0..3).for_each(|page| put(&parent, start + page * PAGE, 1).unwrap());
        let child = parent.fork().unwrap();
        assert_eq!(child.usage().private_pages, 3);
        put(&parent, start, 2).unwrap();
        put(&child, start + PAGE, 3).unwrap();
        put(&child, start + 3 * PAGE, 4).unwrap();
        let see = |space: &AddressSpace| [0, 1, 2, 3].map(|page| get(space, start + page * PAGE).unwrap());
        assert_eq!(see(&parent), [2, 1, 1, 0]);
        assert_eq!(see(&child), [1, 3, 1, 4]);
        let grandchild = child.fork().unwrap();
        drop(child);
        put(&grandchild, start + 2 * PAGE, 5).unwrap();
        assert_eq!(see(&grandchild), [1, 3, 5, 4]);
        assert_eq!(see(&parent), [2, 1, 1, 0]);
    });
}

#[test]
fn the_last_holder_of_a_page_keeps_it_without_a_copy() {
    without_leaks(|| {
        let parent = space();
        let start = parent.map(MapRequest::anonymous(PAGE, READ_WRITE)).unwrap();
        put(&parent, start.as_u64(), 1).unwrap();
        let before = parent.page_for(start, Access::Read).unwrap().physical();
        drop(parent.fork().unwrap());
        put(&parent, start.as_u64(), 2).unwrap();
        assert_eq!(parent.page_for(start, Access::Write).unwrap().physical(), before);
    });
}

#[test]
fn a_debugger_stores_where_the_program_may_not_and_nobody_else_sees_it() {
    without_leaks(|| {
        let cache = file(2);
        let parent = space();
        let code = Protection::READ.union(Protection::EXECUTE);
        let of_file = MapRequest::private_file(mapping(&cache), 0, 2 * PAGE, code);
        let start = parent.map(of_file).unwrap().as_u64();
        let zeros = parent.map(MapRequest::anonymous(PAGE, Protection::READ)).unwrap().as_u64();
        // On the border of two pages, one of which was never looked at.
        assert_eq!(get(&parent, start), Ok(0));
        assert_eq!(parent.write_forced(at(start + PAGE - 1), &[1, 2]), Ok(2));
        assert_eq!(parent.write_forced(at(zeros), &[3]), Ok(1));
        assert_eq!(put(&parent, start, 9), Err(FaultError::AccessDenied));
        let child = parent.fork().unwrap();
        assert_eq!(child.write_forced(at(start + PAGE), &[4]), Ok(1));
        let see = |space: &AddressSpace| {
            [start + PAGE - 1, start + PAGE, zeros].map(|address| get(space, address).unwrap())
        };
        assert_eq!((see(&parent), see(&child)), ([1, 2, 3], [1, 4, 3]));
        let other = space();
        let of_file = MapRequest::private_file(mapping(&cache), 0, 2 * PAGE, Protection::READ);
        let unchanged = other.map(of_file).unwrap().as_u64();
        assert_eq!(get(&other, unchanged + PAGE), Ok(0));
    });
}

#[test]
fn a_debugger_does_not_store_where_others_would_see_it() {
    without_leaks(|| {
        let space = space();
        let request = MapRequest::anonymous(PAGE, Protection::READ).with(MapFlags::SHARED);
        let shared = space.map(request).unwrap();
        let hidden = space.map(MapRequest::anonymous(PAGE, Protection::empty())).unwrap();
        assert_eq!(space.write_forced(shared, &[1]), Err(FaultError::AccessDenied));
        assert_eq!(space.write_forced(hidden, &[1]), Err(FaultError::AccessDenied));
        assert_eq!(space.write_forced(at(8), &[1]), Err(FaultError::NotMapped));
    });
}

#[test]
fn shared_memory_stays_shared() {
    without_leaks(|| {
        let parent = space();
        let request = MapRequest::anonymous(2 * PAGE, READ_WRITE).with(MapFlags::SHARED);
        let start = parent.map(request).unwrap().as_u64();
        put(&parent, start, 1).unwrap();
        let child = parent.fork().unwrap();
        put(&child, start, 2).unwrap();
        put(&child, start + PAGE, 3).unwrap();
        assert_eq!((get(&parent, start), get(&parent, start + PAGE)), (Ok(2), Ok(3)));
        assert_eq!(parent.usage().shared_memory_pages, 2);
        let key = |space: &AddressSpace| space.futex_key(at(start + 8), false).unwrap();
        assert_eq!(key(&parent), key(&child));
        assert!(matches!(key(&parent), FutexKey::Shared { offset: 8, .. }));
        let private = |space: &AddressSpace| space.futex_key(at(start + 8), true).unwrap();
        assert_ne!(private(&parent), private(&child));
    });
}

#[test]
fn a_futex_of_memory_that_is_gone_gives_its_name_to_nobody() {
    without_leaks(|| {
        let space = space();
        let mut names = std::collections::BTreeSet::new();
        for _ in 0..64 {
            let start = space.map(MapRequest::anonymous(PAGE, READ_WRITE).with(MapFlags::SHARED)).unwrap();
            let name = space.futex_key(start, false).unwrap();
            assert!(names.insert(name), "{name:?} was the name of another futex");
            assert_eq!(space.futex_key(start, false), Ok(name));
            space.unmap(start, PAGE).unwrap();
        }
    });
}

#[test]
fn advice_decides_what_a_child_gets() {
    without_leaks(|| {
        let parent = space();
        let start = parent.map(MapRequest::anonymous(3 * PAGE, READ_WRITE)).unwrap().as_u64();
        (0..3).for_each(|page| put(&parent, start + page * PAGE, 1).unwrap());
        parent.advise(at(start), PAGE, Advice::DontFork).unwrap();
        parent.advise(at(start + PAGE), PAGE, Advice::WipeOnFork).unwrap();
        let child = parent.fork().unwrap();
        assert_eq!(get(&child, start), Err(FaultError::NotMapped));
        assert_eq!(get(&child, start + PAGE), Ok(0));
        assert_eq!(get(&child, start + 2 * PAGE), Ok(1));
        parent.advise(at(start), PAGE, Advice::DoFork).unwrap();
        parent.advise(at(start + PAGE), PAGE, Advice::KeepOnFork).unwrap();
        assert_eq!(parent.region_count(), 1);
        assert_eq!(get(&parent.fork().unwrap(), start + PAGE), Ok(1));
    });
}

#[test]
fn protection_changes_after_a_fork_do_not_break_the_sharing() {
    without_leaks(|| {
        let parent = space();
        let start = parent.map(MapRequest::anonymous(PAGE, READ_WRITE)).unwrap().as_u64();
        put(&parent, start, 1).unwrap();
        let child = parent.fork().unwrap();
        parent.protect(at(start), PAGE, Protection::READ).unwrap();
        parent.protect(at(start), PAGE, READ_WRITE).unwrap();
        put(&parent, start, 2).unwrap();
        assert_eq!(get(&child, start), Ok(1));
    });
}

#[test]
fn hidden_pages_are_inherited() {
    without_leaks(|| {
        let parent = space();
        let start = parent.map(MapRequest::anonymous(PAGE, READ_WRITE)).unwrap().as_u64();
        put(&parent, start, 1).unwrap();
        parent.protect(at(start), PAGE, Protection::empty()).unwrap();
        let child = parent.fork().unwrap();
        drop(parent);
        child.protect(at(start), PAGE, Protection::READ).unwrap();
        assert_eq!(get(&child, start), Ok(1));
    });
}
