//! The tree against a plain sorted list.

use super::*;
use crate::address_space::MapBacking;
use proptest::prelude::*;

fn region(start: u64, end: u64, flags: RegionFlags) -> Region {
    Region { start: start << 12, end: end << 12, page_offset: 0, backing: MapBacking::Anonymous, flags }
}

/// A page-granular picture of a tree.
fn picture(tree: &RegionTree) -> Vec<(u64, u64, RegionFlags)> {
    tree.iter().map(|region| (region.start >> 12, region.end >> 12, region.flags)).collect()
}

fn check(tree: &RegionTree) {
    assert_eq!(tree.count, tree.iter().count());
    assert_eq!(tree.pages, tree.iter().map(Region::pages).sum::<u64>());
    let mut previous: Option<&Region> = None;
    for chunk in &tree.chunks {
        assert!(!chunk.regions.is_empty() && chunk.regions.len() <= CHUNK_REGIONS);
        assert_eq!(chunk.end, chunk.regions[chunk.regions.len() - 1].end);
        for region in &chunk.regions {
            assert!(region.start < region.end);
            if let Some(previous) = previous {
                assert!(previous.end <= region.start);
                assert!(!previous.merges_with(region), "neighbours that could be one");
                assert!(chunk.gap_bound >= region.start - previous.end, "the bound misses a gap");
            }
            previous = Some(region);
        }
    }
}

const KINDS: [RegionFlags; 3] = [RegionFlags::READ, RegionFlags::WRITE, RegionFlags::EXECUTE];

/// Pages of the test's address space.
const PAGES: usize = 600;

fn model_picture(model: &[Option<usize>]) -> Vec<(u64, u64, RegionFlags)> {
    let mut list: Vec<(u64, u64, RegionFlags)> = Vec::new();
    for (page, kind) in model.iter().enumerate() {
        let Some(kind) = kind else { continue };
        match list.last_mut() {
            Some(last) if last.1 == page as u64 && last.2 == KINDS[*kind] => last.1 += 1,
            _ => list.push((page as u64, page as u64 + 1, KINDS[*kind])),
        }
    }
    list
}

fn model_highest_gap(model: &[Option<usize>], low: usize, high: usize, length: usize) -> Option<u64> {
    (low..=high.checked_sub(length)?)
        .rev()
        .find(|&start| model[start..start + length].iter().all(Option::is_none))
        .map(|start| (start as u64) << 12)
}

fn model_lowest_gap(model: &[Option<usize>], low: usize, high: usize, length: usize) -> Option<u64> {
    (low..=high.checked_sub(length)?)
        .find(|&start| model[start..start + length].iter().all(Option::is_none))
        .map(|start| (start as u64) << 12)
}

fn clear(tree: &mut RegionTree, start: u64, end: u64) {
    tree.split_at(start << 12).unwrap();
    tree.split_at(end << 12).unwrap();
    while tree.take_first(start << 12, end << 12).is_some() {}
}

proptest! {
    #[test]
    fn tree_agrees_with_a_list_of_pages(steps in prop::collection::vec((0..5_u8, 0..PAGES - 1, 1..8_usize, 0..3_usize), 1..400)) {
        let mut tree = RegionTree::new();
        let mut model = vec![None; PAGES];
        for (step, start, length, kind) in steps {
            let end = (start + length).min(PAGES);
            match step {
                0 | 1 => {
                    clear(&mut tree, start as u64, end as u64);
                    prop_assert!(tree.insert(region(start as u64, end as u64, KINDS[kind])).is_ok());
                    model[start..end].fill(Some(kind));
                }
                2 => {
                    clear(&mut tree, start as u64, end as u64);
                    model[start..end].fill(None);
                }
                3 => {
                    tree.split_at((start as u64) << 12).unwrap();
                    tree.split_at((end as u64) << 12).unwrap();
                    tree.change((start as u64) << 12, (end as u64) << 12, |region| region.flags = KINDS[kind]);
                    model[start..end].iter_mut().filter(|page| page.is_some()).for_each(|page| *page = Some(kind));
                }
                _ => {
                    let (low, high) = (start / 2, PAGES - start / 3);
                    let (from, to, bytes) = ((low as u64) << 12, (high as u64) << 12, (length as u64) << 12);
                    prop_assert_eq!(tree.highest_gap(from, to, bytes), model_highest_gap(&model, low, high, length));
                    prop_assert_eq!(tree.lowest_gap(from, to, bytes), model_lowest_gap(&model, low, high, length));
                }
            }
            check(&tree);
            prop_assert_eq!(picture(&tree), model_picture(&model));
            let address = ((start as u64) << 12) + 5;
            prop_assert_eq!(tree.find(address).map(|region| region.flags), model[start].map(|kind| KINDS[kind]));
            let covered = model[start..end].iter().all(Option::is_some);
            prop_assert_eq!(tree.covers((start as u64) << 12, (end as u64) << 12), covered);
        }
        let copy = tree.try_clone(|region| Some(region.clone())).unwrap();
        prop_assert_eq!(picture(&copy), picture(&tree));
        check(&copy);
    }
}

#[test]
fn chunks_split_and_join() {
    let mut tree = RegionTree::new();
    for number in (0..1000).rev() {
        assert!(tree.insert(region(number * 2, number * 2 + 1, RegionFlags::READ)).is_ok());
    }
    check(&tree);
    assert!(tree.chunks.len() >= 1000 / CHUNK_REGIONS);
    for number in 0..990 {
        clear(&mut tree, number * 2, number * 2 + 1);
    }
    check(&tree);
    assert_eq!(tree.chunks.len(), 1);
}

#[test]
fn space_below_a_growing_region_stays_free() {
    let mut tree = RegionTree::new();
    assert!(tree.insert(region(1000, 1010, RegionFlags::GROWS_DOWN)).is_ok());
    assert_eq!(tree.highest_gap(0, 1010 << 12, 4096), Some((1000 - 256 - 1) << 12));
    assert_eq!(tree.lowest_gap(700 << 12, 2000 << 12, 100 << 12), Some(1010 << 12));
}
