//! The tree against a set of boxed frames: nothing is freed twice, nothing stays behind.

use super::*;
use crate::page_table::{find_tables_behind, leaf_entries};
use std::collections::BTreeSet;
use std::sync::Mutex;

#[derive(Default)]
struct BoxedFrames {
    live: Mutex<BTreeSet<u64>>,
    budget: Mutex<Option<usize>>,
}

impl BoxedFrames {
    fn with_budget(frames: usize) -> BoxedFrames {
        BoxedFrames { budget: Mutex::new(Some(frames)), ..BoxedFrames::default() }
    }

    fn live(&self) -> usize {
        self.live.lock().unwrap().len()
    }
}

fn layout() -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(PAGE_SIZE, PAGE_SIZE).unwrap()
}

impl TableFrames for BoxedFrames {
    fn allocate_zeroed(&self) -> Option<PhysAddr> {
        if let Some(budget) = self.budget.lock().unwrap().as_mut() {
            *budget = budget.checked_sub(1)?;
        }
        // SAFETY: the layout has a size.
        let address = unsafe { std::alloc::alloc_zeroed(layout()) }.expose_provenance() as u64;
        self.live.lock().unwrap().insert(address);
        Some(PhysAddr::new(address))
    }

    fn free(&self, frame: PhysAddr) {
        assert!(self.live.lock().unwrap().remove(&frame.as_u64()), "freed twice");
        // SAFETY: allocated above with the same layout, and removed from the set just once.
        unsafe { std::alloc::dealloc(std::ptr::with_exposed_provenance_mut(frame.as_usize()), layout()) };
    }
}

fn page(number: u64) -> Entry {
    Entry::new(PhysAddr::new(number << 12), EntryFlags::PRESENT | EntryFlags::USER)
}

/// # Safety
/// As [`PageTable::leaf_or_create`].
unsafe fn cell_at<'a>(tree: &'a PageTable, address: u64, frames: &BoxedFrames) -> Option<&'a EntryCell> {
    // SAFETY: as the caller's.
    unsafe { tree.leaf_or_create(address, frames) }.ok().map(|cells| &cells[index(address, 0)])
}

fn walk(tree: &PageTable, range: Range<u64>) -> Vec<(u64, Entry)> {
    let mut found = Vec::new();
    // SAFETY: these tests walk alone.
    let _ = unsafe {
        tree.for_each_leaf(range, |Leaf { base, cells, .. }| {
            for (offset, cell) in cells.iter().enumerate() {
                if !cell.load().is_empty() {
                    found.push((base + ((offset as u64) << 12), cell.load()));
                }
            }
            ControlFlow::<()>::Continue(())
        })
    };
    found
}

fn clear(tree: &PageTable, frames: &BoxedFrames, range: Range<u64>, floor: u64, ceiling: u64) {
    // SAFETY: these tests walk alone.
    unsafe {
        let _ = tree.for_each_leaf(range.clone(), |Leaf { cells, .. }| {
            cells.iter().for_each(|cell| cell.store(Entry::EMPTY));
            ControlFlow::<()>::Continue(())
        });
        tree.free_tables(range, floor, ceiling, &mut |frame| frames.free(frame));
    }
}

#[test]
fn walk_finds_what_was_mapped_in_order() {
    let frames = BoxedFrames::default();
    let tree = PageTable::new(&frames).unwrap();
    let addresses = [0x1000, 0x1f_f000, 0x20_0000, 0x4000_0000, 0x7fff_ffff_e000];
    for (number, &address) in addresses.iter().enumerate() {
        // SAFETY: these tests walk alone.
        unsafe { cell_at(&tree, address, &frames) }.unwrap().store(page(number as u64 + 1));
    }
    let found = walk(&tree, 0..0x8000_0000_0000);
    assert!(found.iter().map(|(address, _)| *address).eq(addresses));
    assert_eq!(walk(&tree, 0x1f_f000..0x4000_0000).len(), 2);
    clear(&tree, &frames, 0..0x8000_0000_0000, 0, 0x8000_0000_0000);
    assert_eq!(frames.live(), 1);
    // SAFETY: nobody uses the tree.
    unsafe { tree.destroy(&frames) };
    assert_eq!(frames.live(), 0);
}

#[test]
fn tables_shared_with_a_neighbour_stay() {
    let frames = BoxedFrames::default();
    let tree = PageTable::new(&frames).unwrap();
    for address in [0x10_0000, 0x20_0000, 0x40_0000] {
        // SAFETY: these tests walk alone.
        unsafe { cell_at(&tree, address, &frames) }.unwrap().store(page(1));
    }
    let before = frames.live();
    clear(&tree, &frames, 0x20_0000..0x30_0000, 0x10_1000, 0x3f_f000);
    assert_eq!(frames.live(), before, "the ceiling lies within the table of the cleared range");
    clear(&tree, &frames, 0x20_0000..0x30_0000, 0x10_1000, 0x40_0000);
    assert_eq!(frames.live(), before - 1);
    assert_eq!(walk(&tree, 0..0x8000_0000_0000).len(), 2);
    clear(&tree, &frames, 0x10_0000..0x41_0000, 0, 0x8000_0000_0000);
    // SAFETY: nobody uses the tree.
    unsafe { tree.destroy(&frames) };
    assert_eq!(frames.live(), 0);
}

#[test]
fn running_out_of_frames_leaves_a_tree_that_can_be_freed() {
    for budget in 1..4 {
        let frames = BoxedFrames::with_budget(budget);
        let tree = PageTable::new(&frames).unwrap();
        // SAFETY: these tests walk alone.
        assert!(unsafe { cell_at(&tree, 0x1234_5000, &frames) }.is_none());
        clear(&tree, &frames, 0..0x8000_0000_0000, 0, 0x8000_0000_0000);
        // SAFETY: nobody uses the tree.
        unsafe { tree.destroy(&frames) };
        assert_eq!(frames.live(), 0);
    }
}

#[test]
fn concurrent_faults_agree_on_one_table() {
    let frames = BoxedFrames::default();
    let tree = PageTable::new(&frames).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (tree, frames) = (&tree, &frames);
            scope.spawn(move || {
                for number in 0..64 {
                    let address = (number * 4 + thread) << 12 | (number & 7) << 21;
                    // SAFETY: nobody frees tables here.
                    let cell = unsafe { cell_at(tree, address, frames) }.unwrap();
                    assert!(cell.compare_exchange(Entry::EMPTY, page(number + 1)).is_ok());
                }
            });
        }
    });
    assert_eq!(walk(&tree, 0..0x8000_0000_0000).len(), 256);
    clear(&tree, &frames, 0..0x8000_0000_0000, 0, 0x8000_0000_0000);
    assert_eq!(frames.live(), 1);
    // SAFETY: nobody uses the tree.
    unsafe { tree.destroy(&frames) };
}

#[test]
fn translate_honours_permissions_and_marks_use() {
    let frames = BoxedFrames::default();
    let tree = PageTable::new(&frames).unwrap();
    // SAFETY: these tests walk alone.
    unsafe {
        let cell = cell_at(&tree, 0x7000, &frames).unwrap();
        cell.store(page(9));
        assert_eq!(translate(tree.root(), 0x7123, false), Some(PhysAddr::new(0x9123)));
        assert_eq!(translate(tree.root(), 0x7123, true), None);
        assert!(cell.load().contains(EntryFlags::ACCESSED));
        cell.store(cell.load().with(EntryFlags::WRITABLE));
        assert_eq!(translate(tree.root(), 0x7000, true), Some(PhysAddr::new(0x9000)));
        assert!(cell.load().contains(EntryFlags::DIRTY));
        cell.store(cell.load().without(EntryFlags::PRESENT));
        assert_eq!(translate(tree.root(), 0x7000, false), None);
    }
    clear(&tree, &frames, 0..0x10_000, 0, 0x8000_0000_0000);
    // SAFETY: nobody uses the tree.
    unsafe { tree.destroy(&frames) };
}

#[test]
fn shared_tables_let_nobody_store_until_they_are_owned_again() {
    const ADDRESS: u64 = 0x20_3000;
    let frames = BoxedFrames::default();
    let (parent, child) = (PageTable::new(&frames).unwrap(), PageTable::new(&frames).unwrap());
    // SAFETY: these tests walk alone.
    unsafe {
        cell_at(&parent, ADDRESS, &frames).unwrap().store(page(9).with(EntryFlags::WRITABLE));
        let leaf = parent.leaf(ADDRESS).unwrap();
        assert!(leaf.is_whole() && leaf.base == 0x20_0000);
        assert!(leaf.share());
        assert!(!leaf.share(), "it is shared already");
        child.link_shared(leaf.base, leaf.frame(), &frames).unwrap();
        for tree in [&parent, &child] {
            assert_eq!(translate(tree.root(), ADDRESS, true), None);
            assert_eq!(translate(tree.root(), ADDRESS, false), Some(PhysAddr::new(0x9000)));
            assert!(!tree.entry(ADDRESS).contains(EntryFlags::WRITABLE));
            assert_eq!(tree.leaf_or_create(ADDRESS, &frames).err(), Some(NoLeaf::Shared));
        }
        child.leaf(ADDRESS).unwrap().take_out();
        leaf.own();
        assert_eq!(translate(parent.root(), ADDRESS, true), Some(PhysAddr::new(0x9000)));
    }
    for tree in [parent, child] {
        clear(&tree, &frames, 0..0x8000_0000_0000, 0, 0x8000_0000_0000);
        // SAFETY: nobody uses the tree.
        unsafe { tree.destroy(&frames) };
    }
    assert_eq!(frames.live(), 0);
}

#[test]
fn a_huge_page_shows_the_entries_of_the_table_behind_it() {
    const BASE: u64 = 0x20_0000;
    const HUGE: u64 = 0x4000_0000;
    static BEHIND: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    find_tables_behind(|first| {
        assert_eq!(first, PhysAddr::new(HUGE));
        PhysAddr::new(BEHIND.load(std::sync::atomic::Ordering::Relaxed))
    });
    let frames = BoxedFrames::default();
    let tree = PageTable::new(&frames).unwrap();
    let permission = EntryFlags::PRESENT | EntryFlags::USER | EntryFlags::WRITABLE;
    let table = frames.allocate_zeroed().unwrap();
    BEHIND.store(table.as_u64(), std::sync::atomic::Ordering::Relaxed);
    // SAFETY: these tests walk alone.
    unsafe {
        for (number, cell) in leaf_entries(table).iter().enumerate() {
            cell.store(Entry::new(PhysAddr::new(HUGE + ((number as u64) << 12)), permission));
        }
        assert_eq!(tree.open_leaf(BASE).err(), Some(NoLeaf::Absent));
        assert_eq!(tree.link_huge(BASE, PhysAddr::new(HUGE), permission, &frames), Some(true));
        assert_eq!(tree.link_huge(BASE, PhysAddr::new(HUGE), permission, &frames), Some(false));
        assert!(matches!(tree.open_leaf(BASE), Err(NoLeaf::Huge(link)) if link.contains(permission)));
        assert!(matches!(tree.leaf_or_create(BASE + 0x3000, &frames), Err(NoLeaf::Huge(_))));
        assert_eq!(translate(tree.root(), BASE + 0x5123, true), Some(PhysAddr::new(HUGE + 0x5123)));
        assert_eq!(tree.entry(BASE + 0x5000).physical(), PhysAddr::new(HUGE + 0x5000));
        assert_eq!(walk(&tree, BASE + 0x1000..BASE + 0x4000).len(), 3);
        let leaf = tree.leaf(BASE).unwrap();
        assert!(leaf.is_huge() && leaf.is_closed() && !leaf.is_shared() && leaf.frame() == table);
        leaf.own();
        assert!(!leaf.is_closed());
        assert_eq!(translate(tree.root(), BASE + 0x5123, true), Some(PhysAddr::new(HUGE + 0x5123)));
        leaf.close_behind(PhysAddr::new(HUGE), permission);
        assert!(leaf.is_huge());
        assert!(leaf.share(), "it was not shared");
        assert!(leaf.is_shared() && !leaf.is_huge() && leaf.frame() == table);
        assert_eq!(translate(tree.root(), BASE, true), None);
        leaf.own();
    }
    clear(&tree, &frames, 0..0x8000_0000_0000, 0, 0x8000_0000_0000);
    // SAFETY: nobody uses the tree.
    unsafe { tree.destroy(&frames) };
    assert_eq!(frames.live(), 0);
}
