//! The index against an ordered map.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn word(value: u64) -> NonZeroU64 {
    NonZeroU64::new(value).unwrap()
}

fn pages(index: &PageIndex, tag: Option<Tag>) -> Vec<u64> {
    let mut list = Vec::new();
    let _ = index.visit(0, u64::MAX, tag, |page, _| {
        list.push(page);
        ControlFlow::<()>::Continue(())
    });
    list
}

#[test]
fn heights_follow_the_table_of_the_paper() {
    for (height, pages) in [(1, 64_u64), (2, 4096), (3, 262_144), (4, 16_777_216), (5, 1 << 30), (6, 1 << 36)]
    {
        assert_eq!(height_for(pages - 1), height);
        assert_eq!(height_for(pages), height + 1);
    }
    assert_eq!(height_for(0), 0);
    assert_eq!(height_for(u64::MAX), 11);
}

#[test]
fn a_sparse_high_page_costs_one_node_a_level() {
    let mut index = PageIndex::new();
    index.insert(1 << 28, word(1)).unwrap();
    assert_eq!((index.height(), index.nodes()), (5, 5));
    assert_eq!(index.remove(1 << 28), Some(word(1)));
    assert_eq!((index.height(), index.nodes()), (0, 0));
}

#[test]
fn sixty_four_pages_need_one_node_and_one_more_needs_three() {
    let mut index = PageIndex::new();
    index.insert(0, word(1)).unwrap();
    assert_eq!((index.height(), index.nodes()), (0, 0));
    (1..64).for_each(|page| index.insert(page, word(page)).unwrap());
    assert_eq!((index.height(), index.nodes()), (1, 1));
    index.insert(64, word(64)).unwrap();
    assert_eq!((index.height(), index.nodes()), (2, 3));
    index.remove(64);
    assert_eq!((index.height(), index.nodes()), (1, 1));
}

#[test]
fn a_tag_shows_in_all_nodes_above() {
    let mut index = PageIndex::new();
    index.insert(1, word(1)).unwrap();
    index.insert(262_143, word(2)).unwrap();
    assert_eq!(index.height(), 3);
    index.set_tag(1, Tag::Dirty);
    // SAFETY: the tree has three levels.
    let top = unsafe { node(index.root) };
    // SAFETY: as above.
    let middle = unsafe { node(top.slots[0]) };
    // SAFETY: as above.
    let leaf = unsafe { node(middle.slots[0]) };
    assert_eq!((top.tags[0], middle.tags[0], leaf.tags[0]), (1, 1, 2));
    index.clear_tag(1, Tag::Dirty);
    assert_eq!((top.tags[0], middle.tags[0], leaf.tags[0]), (0, 0, 0));
}

#[test]
fn tags_survive_growing_and_shrinking() {
    let mut index = PageIndex::new();
    index.insert(0, word(1)).unwrap();
    index.set_tag(0, Tag::Dirty);
    index.insert(5000, word(2)).unwrap();
    assert_eq!(pages(&index, Some(Tag::Dirty)), [0]);
    index.remove(5000);
    assert_eq!(index.height(), 0);
    assert!(index.has_tag(0, Tag::Dirty) && !index.has_tag(0, Tag::Writeback));
}

proptest! {
    #[test]
    fn index_agrees_with_a_map(steps in prop::collection::vec((0..6_u8, 0..10_u32, 0..90_u64), 1..400)) {
        let mut index = PageIndex::new();
        let mut model: BTreeMap<u64, (u64, bool)> = BTreeMap::new();
        for (number, (step, scale, low)) in steps.into_iter().enumerate() {
            let page = low << (scale * 3);
            match step {
                0 | 1 => {
                    let value = number as u64 + 1;
                    match model.get_mut(&page) {
                        Some(entry) => {
                            index.replace(page, word(value));
                            entry.0 = value;
                        }
                        None => {
                            index.insert(page, word(value)).unwrap();
                            model.insert(page, (value, false));
                        }
                    }
                }
                2 => {
                    let expected = model.remove(&page).map(|(value, _)| word(value));
                    prop_assert_eq!(index.remove(page), expected);
                }
                3 => {
                    index.set_tag(page, Tag::Dirty);
                    if let Some(entry) = model.get_mut(&page) { entry.1 = true; }
                }
                4 => {
                    index.clear_tag(page, Tag::Dirty);
                    if let Some(entry) = model.get_mut(&page) { entry.1 = false; }
                }
                _ => {
                    prop_assert_eq!(index.next(page), model.range(page..).next().map(|(&key, _)| key));
                    let absent = (page..).find(|candidate| !model.contains_key(candidate)).unwrap();
                    prop_assert_eq!(index.next_absent(page), absent);
                }
            }
            prop_assert_eq!(index.get(page), model.get(&page).map(|&(value, _)| word(value)));
        }
        prop_assert_eq!(pages(&index, None), model.keys().copied().collect::<Vec<_>>());
        let dirty: Vec<u64> = model.iter().filter(|(_, entry)| entry.1).map(|(&key, _)| key).collect();
        prop_assert_eq!(pages(&index, Some(Tag::Dirty)), dirty);
        for page in model.keys() { index.remove(*page); }
        prop_assert_eq!((index.height(), index.nodes()), (0, 0));
    }
}
