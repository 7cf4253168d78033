//! Page indices against an ordered map, and what the paper says about the tree.

use super::node::{Word, leads_on, node_of};
use super::*;
use core::num::NonZeroU64;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicBool, Ordering};
use proptest::prelude::*;
use std::collections::BTreeMap;
use sync::rcu;

fn word(value: u64) -> NonZeroU64 {
    NonZeroU64::new(value << 2).unwrap()
}

fn pages(index: &dyn PageIndex, tag: Option<Tag>) -> Vec<u64> {
    let mut list = Vec::new();
    let mut buffer = [(0, NonZeroU64::MAX); 7];
    let mut next = 0;
    loop {
        let count = match tag {
            Some(tag) => index.gang_tag(next, tag, &mut buffer),
            None => index.gang(next, &mut buffer),
        };
        list.extend(buffer[..count].iter().map(|&(page, _)| page));
        match list.last() {
            Some(&last) if count > 0 => next = last + 1,
            _ => return list,
        }
    }
}

fn shape<const SHIFT: u32>(tree: &RadixTree<SHIFT>) -> (u32, usize)
where
    Shift<SHIFT>: Fanout,
{
    tree.shape(&rcu::read())
}

#[test]
fn heights_follow_the_table_of_the_paper() {
    for (height, pages) in [(1, 64_u64), (2, 4096), (3, 262_144), (4, 16_777_216), (5, 1 << 30), (6, 1 << 36)]
    {
        assert_eq!(height_for(pages - 1, 6), height);
        assert_eq!(height_for(pages, 6), height + 1);
        let mut tree = RadixTree::<6>::new();
        tree.insert(pages - 1, word(1)).unwrap();
        assert_eq!(shape(&tree), (height, height as usize));
    }
    assert_eq!(height_for(0, 6), 0);
    assert_eq!(height_for(u64::MAX, 6), 11);
}

#[test]
fn a_sparse_high_page_costs_one_node_a_level() {
    let mut tree = RadixTree::<6>::new();
    tree.insert(1 << 28, word(1)).unwrap();
    assert_eq!(shape(&tree), (5, 5));
    assert_eq!(tree.remove(1 << 28), Some(word(1)));
    assert_eq!(shape(&tree), (0, 0));
}

#[test]
fn sixty_four_pages_need_one_node_and_one_more_needs_three() {
    let mut tree = RadixTree::<6>::new();
    tree.insert(0, word(1)).unwrap();
    assert_eq!(shape(&tree), (0, 0));
    (1..64).for_each(|page| tree.insert(page, word(page)).unwrap());
    assert_eq!(shape(&tree), (1, 1));
    tree.insert(64, word(64)).unwrap();
    assert_eq!(shape(&tree), (2, 3));
    tree.remove(64);
    assert_eq!(shape(&tree), (1, 1));
}

#[test]
fn a_tag_shows_in_all_nodes_above() {
    fn marks(word: Word) -> [usize; 3] {
        assert!(leads_on(word));
        // SAFETY: the tree's nodes, which the test keeps as they are.
        let node = unsafe { &*node_of::<6>(word) };
        [0, 1, 63].map(|number| usize::from(node.is_marked(Tag::Dirty, number)))
    }
    let mut tree = RadixTree::<6>::new();
    tree.insert(1, word(1)).unwrap();
    tree.insert(262_143, word(2)).unwrap();
    assert_eq!(shape(&tree).0, 3);
    tree.set_tag(1, Tag::Dirty);
    let top = tree.root.load(Ordering::Relaxed);
    // SAFETY: as above; the tree has three levels.
    let middle = unsafe { &*node_of::<6>(top) }.slot(0).load(Ordering::Relaxed);
    // SAFETY: as above.
    let leaf = unsafe { &*node_of::<6>(middle) }.slot(0).load(Ordering::Relaxed);
    assert_eq!([top, middle, leaf].map(marks), [[1, 0, 0], [1, 0, 0], [0, 1, 0]]);
    tree.clear_tag(1, Tag::Dirty);
    assert_eq!([top, middle, leaf].map(marks), [[0; 3]; 3]);
}

#[test]
fn a_tag_stays_above_as_long_as_another_page_below_has_it() {
    let mut tree = RadixTree::<4>::new();
    for page in [1, 2, 300] {
        tree.insert(page, word(page)).unwrap();
        tree.set_tag(page, Tag::Writeback);
    }
    tree.clear_tag(1, Tag::Writeback);
    assert_eq!(pages(&tree, Some(Tag::Writeback)), [2, 300]);
    tree.remove(2);
    assert_eq!(pages(&tree, Some(Tag::Writeback)), [300]);
}

#[test]
fn tags_survive_growing_and_shrinking() {
    let mut tree = RadixTree::<6>::new();
    tree.insert(0, word(1)).unwrap();
    PageIndex::set_tag(&mut tree, 0, Tag::Dirty);
    tree.insert(5000, word(2)).unwrap();
    assert_eq!(pages(&tree, Some(Tag::Dirty)), [0]);
    tree.remove(5000);
    assert_eq!(shape(&tree).0, 0);
    assert!(PageIndex::has_tag(&tree, 0, Tag::Dirty) && !PageIndex::has_tag(&tree, 0, Tag::Writeback));
}

#[test]
fn pages_to_write_are_the_dirty_ones_of_the_range_in_file_order() {
    let mut tree = RadixTree::<6>::new();
    for page in [9, 3, 70, 5000, 4, 80] {
        tree.insert(page, word(page)).unwrap();
        if page != 4 {
            tree.set_tag(page, Tag::Dirty);
        }
    }
    let mut edit = tree.edit();
    assert_eq!(edit.tag_tagged(4, 5000, Tag::Dirty, Tag::ToWrite, 2), Some(71));
    assert_eq!(edit.tag_tagged(71, 5000, Tag::Dirty, Tag::ToWrite, 2), None);
    drop(edit);
    assert_eq!(pages(&tree, Some(Tag::ToWrite)), [9, 70, 80]);
    assert_eq!(pages(&tree, Some(Tag::Dirty)), [3, 9, 70, 80, 5000]);
}

#[test]
fn an_insertion_without_nodes_at_hand_changes_nothing() {
    let mut tree = RadixTree::<6>::new();
    tree.insert(0, word(1)).unwrap();
    let mut spare = Spare::new();
    assert_eq!(tree.edit().insert(64, word(2), &mut spare), Err(MissingNodes(3)));
    assert_eq!(shape(&tree), (0, 0));
    spare.fill(3).unwrap();
    assert_eq!(tree.edit().insert(64, word(2), &mut spare), Ok(()));
    assert_eq!(shape(&tree), (2, 3));
    assert!(spare.take().is_none());
    // A page beyond needs new tops, and a way down of its own.
    assert_eq!(tree.edit().insert(1 << 24, word(3), &mut spare), Err(MissingNodes(3 + 4)));
}

#[test]
fn a_place_stays_current_until_its_page_goes() {
    let tree = RadixTree::<6>::new();
    let mut spare = Spare::new();
    spare.fill(3).unwrap();
    tree.edit().insert(0, word(1), &mut spare).unwrap();
    tree.edit().insert(70, word(2), &mut spare).unwrap();
    let guard = rcu::read();
    let (zero, other) = (tree.find(0, &guard).unwrap(), tree.find(70, &guard).unwrap());
    assert!(zero.is_current() && other.is_current());
    tree.edit().remove(70);
    assert!(!other.is_current());
    // The tree has no node any more, and page 0 is in the root.
    assert!(!zero.is_current(), "the reader looks again");
    assert!(tree.find(0, &guard).unwrap().is_current());
}

std::thread_local! {
    /// What happens at the next window: a look-up has loaded a node and is about to load from it.
    static NEXT: std::cell::RefCell<Vec<Box<dyn FnOnce()>>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// A look-up of this thread is between two loads.
pub(super) fn between_steps() {
    let next = NEXT.with(|next| next.borrow_mut().pop());
    if let Some(next) = next {
        next();
    }
}

/// What happens to the tree in a window.
type Change = fn(&'static RadixTree);

/// A tree with pages, for the life of a test, and the look-up of one of them with edits in its windows: the first as soon as the root has
/// been loaded, the next one level below.
fn found_in_the_midst_of(
    pages: &[u64],
    page: u64,
    edits: &[Change],
) -> (Option<NonZeroU64>, &'static RadixTree) {
    let tree: &'static RadixTree = Box::leak(Box::default());
    pages.iter().for_each(|&page| put(tree, page, page + 1));
    let mut windows: Vec<Box<dyn FnOnce()>> = Vec::new();
    for &edit in edits {
        windows.insert(0, Box::new(move || edit(tree)));
    }
    NEXT.with(|next| *next.borrow_mut() = windows);
    let found = tree.get(page, &rcu::read());
    assert!(NEXT.with(|next| next.borrow().is_empty()), "the look-up passed all windows");
    (found, tree)
}

fn put(tree: &RadixTree, page: u64, value: u64) {
    let mut spare = Spare::new();
    spare.fill(12).unwrap();
    tree.edit().insert(page, word(value), &mut spare).unwrap();
}

#[test]
fn a_reader_in_a_tree_that_shrinks_to_its_root_finds_the_page_there() {
    let (found, tree) = found_in_the_midst_of(&[0, 1], 0, &[|tree| _ = tree.edit().remove(1)]);
    assert_eq!((found, shape(tree)), (Some(word(1)), (0, 0)));
}

#[test]
fn a_reader_in_a_root_that_goes_finds_what_is_below() {
    for page in [0, 1] {
        let (found, tree) = found_in_the_midst_of(&[0, 1, 64], page, &[|tree| _ = tree.edit().remove(64)]);
        assert_eq!((found, shape(tree)), (Some(word(page + 1)), (1, 1)));
    }
}

#[test]
fn a_reader_finds_a_page_though_one_level_after_another_goes_before_it() {
    let edits: [Change; 2] = [|tree| _ = tree.edit().remove(4096), |tree| _ = tree.edit().remove(64)];
    let (found, tree) = found_in_the_midst_of(&[0, 64, 4096], 0, &edits);
    assert_eq!((found, shape(tree)), (Some(word(1)), (0, 0)));
}

#[test]
fn a_reader_in_a_former_root_finds_the_page_in_the_grown_tree() {
    let (found, tree) = found_in_the_midst_of(&[0, 1], 1, &[|tree| put(tree, 1 << 30, 9)]);
    assert_eq!((found, shape(tree).0), (Some(word(2)), 6));
}

#[test]
fn a_reader_beside_the_removal_of_its_page_finds_the_old_one_or_none() {
    let replace: Change = |tree| {
        tree.edit().remove(70);
        put(tree, 70, 9);
    };
    // It is in the former leaf, which was empty for a moment.
    let (found, tree) = found_in_the_midst_of(&[70, 200], 70, &[|_| (), replace]);
    assert_eq!(found, None);
    assert_eq!(tree.get(70, &rcu::read()), Some(word(9)));
    // It is above, and comes into the new one.
    assert_eq!(found_in_the_midst_of(&[70, 200], 70, &[replace]).0, Some(word(9)));
}

#[test]
fn a_walk_in_the_midst_of_which_the_tree_shrinks_ends_with_what_was_there_all_the_time() {
    let tree = RadixTree::<6>::new();
    [0, 64, 5000].iter().for_each(|&page| put(&tree, page, page + 1));
    let guard = rcu::read();
    let mut seen = Vec::new();
    let _ = tree.gang(0, u64::MAX, None, &guard, |page, _| {
        if page == 0 {
            tree.edit().remove(5000);
            tree.edit().remove(64);
        }
        seen.push(page);
        ControlFlow::<()>::Continue(())
    });
    assert_eq!(seen, [0]);
    assert!(shape(&tree) == (0, 0));
}

/// What a program of random steps does to an index and to a map.
struct Against<'a> {
    index: &'a mut dyn PageIndex,
    model: BTreeMap<u64, (NonZeroU64, [bool; TAGS])>,
    numbers: u64,
}

impl Against<'_> {
    fn random(&mut self, below: u64) -> u64 {
        // Marsaglia's xorshift.
        self.numbers ^= self.numbers << 13;
        self.numbers ^= self.numbers >> 7;
        self.numbers ^= self.numbers << 17;
        self.numbers % below
    }

    fn page(&mut self) -> u64 {
        let scale = self.random(14);
        self.random(90) << (scale * 3)
    }

    fn step(&mut self) {
        let page = self.page();
        let tag = Tag::ALL[self.random(TAGS as u64) as usize];
        match self.random(9) {
            0..=2 => {
                let value = word(self.random(1 << 40) + 1);
                if let std::collections::btree_map::Entry::Vacant(place) = self.model.entry(page) {
                    place.insert((value, [false; TAGS]));
                    self.index.insert(page, value).unwrap();
                }
            }
            3..=4 => assert_eq!(self.index.remove(page), self.model.remove(&page).map(|entry| entry.0)),
            5..=6 => {
                self.index.set_tag(page, tag);
                if let Some(entry) = self.model.get_mut(&page) {
                    entry.1[tag as usize] = true;
                }
            }
            7 => {
                self.index.clear_tag(page, tag);
                if let Some(entry) = self.model.get_mut(&page) {
                    entry.1[tag as usize] = false;
                }
            }
            _ => self.compare_gangs(page, tag),
        }
        let entry = self.model.get(&page);
        assert_eq!(self.index.lookup(page), entry.map(|entry| entry.0));
        assert_eq!(self.index.has_tag(page, tag), entry.is_some_and(|entry| entry.1[tag as usize]));
    }

    fn compare_gangs(&self, page: u64, tag: Tag) {
        let mut buffer = [(0, NonZeroU64::MAX); 5];
        let count = self.index.gang(page, &mut buffer);
        let all = self.model.range(page..).map(|(&page, entry)| (page, entry.0));
        assert_eq!(&buffer[..count], all.take(5).collect::<Vec<_>>());
        let count = self.index.gang_tag(page, tag, &mut buffer);
        let tagged = self.model.range(page..).filter(|(_, entry)| entry.1[tag as usize]);
        let tagged = tagged.map(|(&page, entry)| (page, entry.0));
        assert_eq!(&buffer[..count], tagged.take(5).collect::<Vec<_>>());
    }
}

/// Random steps; in the end all pages are removed.
fn against_a_map(index: &mut dyn PageIndex, steps: u32, seed: u64) {
    let mut against = Against { index, model: BTreeMap::new(), numbers: seed | 1 };
    for _ in 0..steps {
        against.step();
    }
    for tag in Tag::ALL {
        let tagged = against.model.iter().filter(|(_, entry)| entry.1[tag as usize]);
        assert_eq!(pages(against.index, Some(tag)), tagged.map(|(&page, _)| page).collect::<Vec<_>>());
    }
    assert_eq!(pages(against.index, None), against.model.keys().copied().collect::<Vec<_>>());
    for page in against.model.keys() {
        assert!(against.index.remove(*page).is_some());
    }
    assert_eq!(pages(against.index, None), []);
}

/// As many as the sheet wants; fewer where each takes a thousand times as long.
const STEPS: u32 = if cfg!(miri) { 1_000 } else { 1_000_000 };

fn tree_agrees_with_a_map<const SHIFT: u32>(steps: u32)
where
    Shift<SHIFT>: Fanout,
{
    let mut tree = RadixTree::<SHIFT>::new();
    against_a_map(&mut tree, steps, 0x9e37_79b9_7f4a_7c15 ^ u64::from(SHIFT));
    assert_eq!(shape(&tree), (0, 0));
}

#[test]
fn the_tree_agrees_with_a_map_in_a_million_steps() {
    tree_agrees_with_a_map::<6>(STEPS);
}

#[test]
fn trees_of_all_widths_agree_with_a_map() {
    tree_agrees_with_a_map::<4>(STEPS / 20);
    tree_agrees_with_a_map::<7>(STEPS / 20);
    tree_agrees_with_a_map::<8>(STEPS / 20);
    // Miri looks at each of the thousands of slots of a node.
    let steps_of_wide_nodes = STEPS / if cfg!(miri) { 200 } else { 20 };
    tree_agrees_with_a_map::<10>(steps_of_wide_nodes);
    tree_agrees_with_a_map::<12>(steps_of_wide_nodes);
}

#[test]
fn the_alternatives_agree_with_a_map_in_a_million_steps() {
    let mut threaded = ThreadedTree::new();
    against_a_map(&mut threaded, STEPS, 17);
    let mut treap = Treap::new();
    against_a_map(&mut treap, STEPS, 18);
}

#[test]
fn the_hash_table_agrees_with_a_map() {
    // Each of its gang look-ups looks at all pages.
    against_a_map(&mut ExtendibleHash::new().unwrap(), STEPS / 10, 19);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 256 }))]

    #[test]
    fn first_absent_pages_agree_with_a_map(present in prop::collection::btree_set(0..300_u64, 0..200)) {
        let mut tree = RadixTree::<6>::new();
        for &page in &present {
            tree.insert(page, word(page + 1)).unwrap();
        }
        let guard = rcu::read();
        for first in (0..310).step_by(if cfg!(miri) { 31 } else { 1 }) {
            prop_assert_eq!(tree.next(first, &guard), present.range(first..).next().copied());
            let absent = (first..).find(|page| !present.contains(page)).unwrap();
            prop_assert_eq!(tree.next_absent(first, &guard), absent);
        }
    }
}

/// Pages that are always there are found whatever an editor does beside them; what it puts in and takes out is found with
/// its own word or not at all.
#[test]
fn readers_find_what_is_there_while_the_tree_grows_shrinks_and_loses_nodes() {
    let rounds = if cfg!(miri) { 4 } else { 20_000 };
    for lasting in [0, 5, 65] {
        let tree = RadixTree::<6>::new();
        let edit = |page| {
            let mut spare = Spare::new();
            loop {
                match tree.edit().insert(page, word(page + 1), &mut spare) {
                    Ok(()) => return,
                    Err(MissingNodes(count)) => count,
                };
                spare.fill(20).unwrap();
            }
        };
        edit(lasting);
        tree.edit().set_tag(lasting, Tag::Dirty);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let guard = rcu::read();
                        assert_eq!(tree.get(lasting, &guard), Some(word(lasting + 1)));
                        assert!(tree.has_tag(lasting, Tag::Dirty, &guard));
                        for page in [1, 64, 4096, 1 << 40] {
                            let found = tree.get(page, &guard);
                            assert!(found.is_none() || found == Some(word(page + 1)));
                        }
                        let mut seen = Vec::new();
                        let _ = tree.gang(0, u64::MAX, None, &guard, |page, place| {
                            assert_eq!(place.word(), word(page + 1));
                            seen.push(page);
                            ControlFlow::<()>::Continue(())
                        });
                        assert!(seen.is_sorted() && seen.contains(&lasting));
                        let tagged = tree
                            .gang(0, u64::MAX, Some(Tag::Dirty), &guard, |page, _| ControlFlow::Break(page));
                        assert_eq!(tagged, ControlFlow::Break(lasting));
                    }
                });
            }
            for round in 0..rounds {
                let page = [1, 64, 4096, 1 << 40][round % 4];
                edit(page);
                if round % 3 == 0 {
                    edit(1 << 20);
                    tree.edit().remove(1 << 20);
                }
                assert_eq!(tree.edit().remove(page), Some(word(page + 1)));
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}
