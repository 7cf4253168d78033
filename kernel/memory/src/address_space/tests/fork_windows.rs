//! What happens to a family of address spaces while one of them is in the midst of a fork, a fault or its end
//! (the in-flight cases of specs/k42-linux-api.md §27, for tables that spaces share).
//!
//! Three forks make four spaces that share tables: a parent, two children and a grandchild. One of them performs an operation; at each
//! window that it passes another one performs each of its operations, and in that one's window a third. Operations of
//! different spaces don't see each other, so what each space must contain afterwards is known beforehand.
//!
//! Two operations at once follow each other like calls here: the one that comes in is over before the other goes on. Interleavings
//! in which both are half done are left to the race tests.

use super::super::window::{self, Window};
use super::*;
use machine::page_table::LEAF_TABLE_BYTES;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const START: u64 = BOUNDARY - PAGE;
/// A whole table, and a page before it whose entry is copied one by one.
const BYTES: u64 = PAGE + LEAF_TABLE_BYTES;
/// The pages that operations touch: the one in the table that is not whole, and two in the one that is.
const PAGES: [u64; 3] = [START, START + PAGE, START + 9 * PAGE];
const FAMILY: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Load,
    Store,
    Fork,
    Discard,
    Unmap,
    Exit,
}

const OPERATIONS: [Operation; 6] = [
    Operation::Load,
    Operation::Store,
    Operation::Fork,
    Operation::Discard,
    Operation::Unmap,
    Operation::Exit,
];

/// What a page reads as.
type Contents = [Result<u8, FaultError>; PAGES.len()];

struct Member {
    space: Option<Arc<AddressSpace>>,
    expected: Contents,
}

/// Shared between the test and the actions in windows.
struct Family {
    members: RefCell<Vec<Member>>,
    /// Distinguishes what different stores put in.
    value: Cell<u8>,
}

impl Family {
    /// A parent, its two children and a grandchild, each with a page of its own value where `own_pages` says so.
    fn new() -> Rc<Family> {
        let parent = space();
        parent.map(MapRequest::anonymous(BYTES, READ_WRITE).at(at(START))).unwrap();
        PAGES.iter().for_each(|&page| put(&parent, page, 1).unwrap());
        let (first, second) = (parent.fork().unwrap(), parent.fork().unwrap());
        let grandchild = first.fork().unwrap();
        let members = [parent, first, second, grandchild]
            .map(|space| Member { space: Some(space), expected: [Ok(1); PAGES.len()] });
        Rc::new(Family { members: RefCell::new(members.into()), value: Cell::new(1) })
    }

    fn perform(&self, who: usize, operation: Operation) {
        let Some(space) = self.members.borrow()[who].space.clone() else { return };
        match operation {
            Operation::Load => {
                let seen: Contents = PAGES.map(|page| get(&space, page));
                assert_eq!(seen, self.members.borrow()[who].expected, "space {who} loads");
            }
            Operation::Store => {
                for (index, &page) in PAGES.iter().enumerate() {
                    let value = self.value.get() + 1;
                    self.value.set(value);
                    let stored = put(&space, page, value).is_ok();
                    assert_eq!(stored, self.members.borrow()[who].expected[index].is_ok());
                    if stored {
                        self.members.borrow_mut()[who].expected[index] = Ok(value);
                    }
                }
            }
            Operation::Fork => {
                let expected = self.members.borrow()[who].expected;
                let child = space.fork().unwrap();
                self.members.borrow_mut().push(Member { space: Some(child), expected });
            }
            Operation::Discard => {
                let page = PAGES[1];
                if space.advise(at(page), 2 * PAGE, Advice::DontNeed).is_ok() {
                    self.members.borrow_mut()[who].expected[1] = Ok(0);
                }
            }
            Operation::Unmap => {
                space.unmap(at(PAGES[2]), PAGE).unwrap();
                self.members.borrow_mut()[who].expected[2] = Err(FaultError::NotMapped);
            }
            Operation::Exit => {
                let leaves = self.members.borrow_mut()[who].space.take();
                drop(space);
                drop(leaves);
            }
        }
    }

    fn check(&self, what: &dyn std::fmt::Debug) {
        for (who, member) in self.members.borrow().iter().enumerate() {
            let Some(space) = &member.space else { continue };
            let seen: Contents = PAGES.map(|page| get(space, page));
            assert_eq!(seen, member.expected, "space {who} after {what:?}");
        }
    }
}

/// Has `who` perform an operation when this thread next comes to the window; tells whether that happened.
fn intrude(family: &Rc<Family>, window: Window, who: usize, operation: Operation) -> Rc<Cell<bool>> {
    let happened = Rc::new(Cell::new(false));
    let (family, noted) = (family.clone(), happened.clone());
    window::at(window, move || {
        noted.set(true);
        family.perform(who, operation);
    });
    happened
}

/// Who may act while `actor` is in the midst of something: everybody else.
fn others(actor: usize) -> impl Iterator<Item = usize> {
    (0..FAMILY).filter(move |who| *who != actor)
}

#[test]
fn every_operation_of_another_space_fits_into_every_window() {
    let mut passed = [0_u32; Window::ALL.len()];
    for operation in OPERATIONS {
        for (index, window) in Window::ALL.into_iter().enumerate() {
            for (who, intruder) in
                OPERATIONS.into_iter().flat_map(|with| others(0).map(move |who| (who, with)))
            {
                without_leaks(|| {
                    let family = Family::new();
                    let happened = intrude(&family, window, who, intruder);
                    family.perform(0, operation);
                    window::clear();
                    passed[index] += u32::from(happened.get());
                    family.check(&(operation, window, who, intruder));
                });
            }
        }
    }
    // The last two are for those who are left alone: see the next tests.
    let reached = passed.iter().filter(|&&count| count > 0).count();
    assert!(reached >= Window::ALL.len() - 2, "{passed:?}");
}

#[test]
fn the_last_holder_is_found_whoever_leaves_meanwhile() {
    for window in Window::ALL {
        for leaver in others(0) {
            without_leaks(|| {
                let family = Family::new();
                others(0).filter(|who| *who != leaver).for_each(|who| family.perform(who, Operation::Exit));
                let happened = intrude(&family, window, leaver, Operation::Exit);
                family.perform(0, Operation::Store);
                family.perform(0, Operation::Exit);
                window::clear();
                family.perform(leaver, Operation::Store);
                family.check(&(window, leaver, happened.get()));
            });
        }
    }
}

#[test]
fn races_nest() {
    let windows =
        [Window::TableClosed, Window::OwnDecided, Window::OwnCopied, Window::OwnReplaced, Window::PageCopied];
    let acts = [Operation::Store, Operation::Fork, Operation::Exit, Operation::Unmap];
    let mut nested = 0_u32;
    for outer in windows {
        for inner in windows {
            for (first, second, third) in
                acts.into_iter().flat_map(|a| acts.into_iter().flat_map(move |b| acts.map(|c| (a, b, c))))
            {
                without_leaks(|| {
                    let family = Family::new();
                    let happened = Rc::new(Cell::new(false));
                    let (relatives, noted) = (family.clone(), happened.clone());
                    window::at(outer, move || {
                        let third_came = intrude(&relatives, inner, 2, third);
                        relatives.perform(1, second);
                        noted.set(third_came.get());
                    });
                    family.perform(0, first);
                    window::clear();
                    nested += u32::from(happened.get());
                    family.check(&(first, outer, second, inner, third));
                });
            }
        }
    }
    assert!(nested >= 200, "{nested} of the combinations nested");
}

#[test]
fn a_chain_of_forks_whose_parents_leave_grows_no_chain_of_tables() {
    without_leaks(|| {
        let mut space = space();
        space.map(MapRequest::anonymous(BYTES, READ_WRITE).at(at(START))).unwrap();
        PAGES.iter().for_each(|&page| put(&space, page, 1).unwrap());
        let first = user_frames();
        for generation in 0..10_000_u32 {
            let child = space.fork().unwrap();
            space = child;
            put(&space, PAGES[1], generation as u8).unwrap();
            assert_eq!(get(&space, PAGES[1]), Ok(generation as u8));
            if generation % 1000 == 0 {
                assert_eq!(user_frames(), first, "generation {generation} has what the first had");
            }
        }
        assert_eq!((get(&space, PAGES[0]), get(&space, PAGES[2])), (Ok(1), Ok(1)));
    });
}
