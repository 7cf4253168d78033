//! The page index: a radix tree from page numbers to words, 64 ways a node, with tags (specs/page-cache.md 3 to 9).
//!
//! The tree is as high as the largest page number needs: height 0 holds page 0 in the root word itself (small files
//! have no node at all), height *h* holds 64^*h* pages. What a slot means follows from the node's height: nodes below,
//! or a page's word at the lowest level. Every node has a bit per slot and tag; in a leaf it is the page's tag, above
//! it says that a page below has the tag. Walks by tag skip everything else and find pages in file order.
//!
//! A node disappears with its last page, and the tree gets lower when only page numbers that need less height are
//! left. The index owns its nodes, never what the words mean. It is a plain data structure: the cache locks it.

use crate::OutOfMemory;
use crate::fallible;
use alloc::boxed::Box;
use core::num::NonZeroU64;
use core::ops::ControlFlow;

/// log2 of the slots of a node.
pub const SHIFT: u32 = 6;

/// Slots of a node.
pub const SLOTS: usize = 1 << SHIFT;

/// What the tree says about pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// Newer than what the file's representative has.
    Dirty = 0,
    /// Being written by the representative.
    Writeback = 1,
}

const TAGS: usize = 2;

struct Node {
    slots: [u64; SLOTS],
    tags: [u64; TAGS],
    /// Slots in use.
    used: u32,
}

/// See the theory of this file.
pub(crate) struct PageIndex {
    /// Height 0: page 0's word or 0. Otherwise a node.
    root: u64,
    height: u32,
    /// Tags of page 0 at height 0.
    root_tags: u32,
}

/// The height that page number `index` needs.
pub(crate) fn height_for(index: u64) -> u32 {
    (u64::BITS - index.leading_zeros()).div_ceil(SHIFT)
}

fn slot_of(index: u64, level: u32) -> usize {
    (index >> (SHIFT * level)) as usize & (SLOTS - 1)
}

/// Pages below one slot of a node at this level (0: a leaf).
fn pages_per_slot(level: u32) -> u64 {
    1_u64.checked_shl(SHIFT * level).unwrap_or(u64::MAX)
}

/// The node that a word names.
///
/// # Safety
/// The word came from [`Box::into_raw`] of a node that this index owns, and no reference contradicts.
unsafe fn node<'a>(word: u64) -> &'a Node {
    debug_assert!(word != 0);
    // SAFETY: as the caller's.
    unsafe { &*core::ptr::with_exposed_provenance::<Node>(word as usize) }
}

/// As [`node`], exclusively.
///
/// # Safety
/// As [`node`], and nobody else uses the node.
unsafe fn node_mut<'a>(word: u64) -> &'a mut Node {
    debug_assert!(word != 0);
    // SAFETY: as the caller's.
    unsafe { &mut *core::ptr::with_exposed_provenance_mut::<Node>(word as usize) }
}

fn new_node() -> Result<u64, OutOfMemory> {
    let node = fallible::try_box(Node { slots: [0; SLOTS], tags: [0; TAGS], used: 0 })?;
    Ok(Box::into_raw(node).expose_provenance() as u64)
}

/// # Safety
/// As [`node_mut`]; the word is not used again.
unsafe fn drop_node(word: u64) {
    // SAFETY: as the caller's: the word came from `new_node`.
    drop(unsafe { Box::from_raw(core::ptr::with_exposed_provenance_mut::<Node>(word as usize)) });
}

impl PageIndex {
    pub(crate) const fn new() -> PageIndex {
        PageIndex { root: 0, height: 0, root_tags: 0 }
    }

    /// The height of the tree.
    #[cfg(test)]
    pub(crate) fn height(&self) -> u32 {
        self.height
    }

    #[cfg(test)]
    fn nodes(&self) -> usize {
        fn below(word: u64, level: u32) -> usize {
            if word == 0 {
                return 0;
            }
            // SAFETY: the words of an index at rest name its nodes.
            let node = unsafe { node(word) };
            if level == 0 {
                1
            } else {
                1 + node.slots.iter().map(|&slot| below(slot, level - 1)).sum::<usize>()
            }
        }
        if self.height == 0 { 0 } else { below(self.root, self.height - 1) }
    }

    fn holds(&self, index: u64) -> bool {
        height_for(index) <= self.height
    }

    /// The word of a page.
    #[inline]
    pub(crate) fn get(&self, index: u64) -> Option<NonZeroU64> {
        if !self.holds(index) {
            return None;
        }
        let mut word = self.root;
        for level in (0..self.height).rev() {
            if word == 0 {
                return None;
            }
            // SAFETY: words above the lowest level name nodes of this index.
            word = unsafe { node(word) }.slots[slot_of(index, level)];
        }
        NonZeroU64::new(word)
    }

    /// Puts a word for a page that has none.
    pub(crate) fn insert(&mut self, index: u64, value: NonZeroU64) -> Result<(), OutOfMemory> {
        self.grow(height_for(index))?;
        let mut word: *mut u64 = &raw mut self.root;
        for level in (0..self.height).rev() {
            // SAFETY: `word` points to the root or into a node of this index, which is borrowed exclusively.
            unsafe {
                if *word == 0 {
                    match new_node() {
                        Ok(fresh) => *word = fresh,
                        Err(error) => {
                            self.prune(index);
                            return Err(error);
                        }
                    }
                    // The node above counts the new one; the root has nothing above.
                }
                let below = node_mut(*word);
                let slot = slot_of(index, level);
                if below.slots[slot] == 0 {
                    below.used += 1;
                }
                word = &raw mut below.slots[slot];
            }
        }
        // SAFETY: as above.
        unsafe {
            debug_assert_eq!(*word, 0, "the page has a word already");
            *word = value.get();
        }
        Ok(())
    }

    /// Replaces the word of a page that has one.
    pub(crate) fn replace(&mut self, index: u64, value: NonZeroU64) {
        debug_assert!(self.holds(index));
        let mut word: *mut u64 = &raw mut self.root;
        for level in (0..self.height).rev() {
            // SAFETY: the page is there, so the words on the path name nodes; the index is borrowed exclusively.
            word = unsafe { &raw mut node_mut(*word).slots[slot_of(index, level)] };
        }
        // SAFETY: as above.
        unsafe {
            assert_ne!(*word, 0, "only existing words are replaced");
            *word = value.get();
        }
    }

    /// Takes a page out, with its tags.
    pub(crate) fn remove(&mut self, index: u64) -> Option<NonZeroU64> {
        let value = self.get(index)?;
        self.clear_tag(index, Tag::Dirty);
        self.clear_tag(index, Tag::Writeback);
        if self.height == 0 {
            self.root = 0;
            return Some(value);
        }
        let mut word = self.root;
        for level in (1..self.height).rev() {
            // SAFETY: the page is there, so the words on the path name nodes.
            word = unsafe { node(word) }.slots[slot_of(index, level)];
        }
        // SAFETY: as above, and the index is borrowed exclusively.
        let leaf = unsafe { node_mut(word) };
        leaf.slots[slot_of(index, 0)] = 0;
        leaf.used -= 1;
        if leaf.used == 0 {
            self.prune(index);
        }
        self.shrink();
        Some(value)
    }

    /// Frees the nodes on the path to `index` that have nothing below.
    fn prune(&mut self, index: u64) {
        fn below(word: &mut u64, level: u32, index: u64) {
            // SAFETY: words above the lowest level name nodes; the index is borrowed exclusively.
            let current = unsafe { node_mut(*word) };
            let slot = slot_of(index, level);
            if level > 0 && current.slots[slot] != 0 {
                below(&mut current.slots[slot], level - 1, index);
            }
            current.used = current.slots.iter().filter(|&&slot| slot != 0).count() as u32;
            if current.used == 0 {
                // SAFETY: the node is empty and its word is cleared.
                unsafe { drop_node(*word) };
                *word = 0;
            }
        }
        if self.height > 0 && self.root != 0 {
            let height = self.height;
            below(&mut self.root, height - 1, index);
        }
        if self.root == 0 {
            self.height = 0;
            self.root_tags = 0;
        }
    }

    /// Makes the tree at least this high.
    fn grow(&mut self, height: u32) -> Result<(), OutOfMemory> {
        while self.height < height {
            if self.root == 0 {
                self.height = height;
                break;
            }
            let word = new_node()?;
            // SAFETY: the node is new and ours alone.
            let top = unsafe { node_mut(word) };
            top.slots[0] = self.root;
            top.used = 1;
            for tag in [Tag::Dirty, Tag::Writeback] {
                top.tags[tag as usize] = u64::from(self.root_has(tag));
            }
            self.root = word;
            self.height += 1;
        }
        Ok(())
    }

    /// Lowers the tree while only its first slot is in use.
    fn shrink(&mut self) {
        while self.height > 0 && self.root != 0 {
            // SAFETY: the root names a node at heights above 0.
            let top = unsafe { node(self.root) };
            if top.used != 1 || top.slots[0] == 0 {
                break;
            }
            let (below, tags) = (top.slots[0], top.tags);
            // SAFETY: what the node refers to was taken over.
            unsafe { drop_node(self.root) };
            self.root = below;
            self.height -= 1;
            self.root_tags = (tags[0] & 1) as u32 | ((tags[1] & 1) as u32) << 1;
        }
    }

    fn root_has(&self, tag: Tag) -> bool {
        if self.height == 0 {
            return self.root_tags & (1 << tag as u32) != 0;
        }
        // SAFETY: the root names a node at heights above 0, if not 0.
        self.root != 0 && unsafe { node(self.root) }.tags[tag as usize] != 0
    }

    /// Tags a page that is there.
    pub(crate) fn set_tag(&mut self, index: u64, tag: Tag) {
        if self.get(index).is_none() {
            return;
        }
        if self.height == 0 {
            self.root_tags |= 1 << tag as u32;
            return;
        }
        let mut word = self.root;
        for level in (0..self.height).rev() {
            // SAFETY: the page is there, so the words on the path name nodes; the index is borrowed exclusively.
            let current = unsafe { node_mut(word) };
            let slot = slot_of(index, level);
            current.tags[tag as usize] |= 1 << slot;
            word = current.slots[slot];
        }
    }

    /// Takes the tag from a page, and from the nodes above where it was the last below.
    pub(crate) fn clear_tag(&mut self, index: u64, tag: Tag) {
        fn below(word: u64, level: u32, index: u64, tag: Tag) -> bool {
            // SAFETY: as in `set_tag`.
            let current = unsafe { node_mut(word) };
            let slot = slot_of(index, level);
            if level == 0 || !below(current.slots[slot], level - 1, index, tag) {
                current.tags[tag as usize] &= !(1 << slot);
            }
            current.tags[tag as usize] != 0
        }
        if !self.has_tag(index, tag) {
            return;
        }
        if self.height == 0 {
            self.root_tags &= !(1 << tag as u32);
        } else {
            below(self.root, self.height - 1, index, tag);
        }
    }

    /// Whether a page has the tag.
    pub(crate) fn has_tag(&self, index: u64, tag: Tag) -> bool {
        if !self.holds(index) || !self.root_has(tag) {
            return false;
        }
        let mut word = self.root;
        for level in (0..self.height).rev() {
            // SAFETY: a tagged slot is in use, so the words on the path name nodes.
            let current = unsafe { node(word) };
            let slot = slot_of(index, level);
            if current.tags[tag as usize] & (1 << slot) == 0 {
                return false;
            }
            word = current.slots[slot];
        }
        true
    }

    /// Visits the pages from `first` up to, not including, `end` in ascending order; with a tag, only those that have it.
    pub(crate) fn visit<B>(
        &self,
        first: u64,
        end: u64,
        tag: Option<Tag>,
        mut visit: impl FnMut(u64, NonZeroU64) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        if let Some(tag) = tag
            && !self.root_has(tag)
        {
            return ControlFlow::Continue(());
        }
        if self.height == 0 {
            return match NonZeroU64::new(self.root) {
                Some(value) if first == 0 && end > 0 => visit(0, value),
                _ => ControlFlow::Continue(()),
            };
        }
        if self.root == 0 {
            return ControlFlow::Continue(());
        }
        // SAFETY: the root names a node at heights above 0.
        visit_node(unsafe { node(self.root) }, self.height - 1, 0, first, end, tag, &mut visit)
    }

    /// The first page at or after `first`.
    pub(crate) fn next(&self, first: u64) -> Option<u64> {
        match self.visit(first, u64::MAX, None, |index, _| ControlFlow::Break(index)) {
            ControlFlow::Break(index) => Some(index),
            ControlFlow::Continue(()) => None,
        }
    }

    /// The first page number at or after `first` without a page.
    pub(crate) fn next_absent(&self, first: u64) -> u64 {
        let mut expected = first;
        let _ = self.visit(first, u64::MAX, None, |index, _| {
            if index != expected {
                return ControlFlow::Break(());
            }
            expected += 1;
            ControlFlow::Continue(())
        });
        expected
    }
}

fn visit_node<B>(
    node_here: &Node,
    level: u32,
    base: u64,
    first: u64,
    end: u64,
    tag: Option<Tag>,
    visit: &mut impl FnMut(u64, NonZeroU64) -> ControlFlow<B>,
) -> ControlFlow<B> {
    let pages = pages_per_slot(level);
    let from = if first > base { ((first - base) / pages).min(SLOTS as u64) as usize } else { 0 };
    for slot in from..SLOTS {
        let start = base + slot as u64 * pages;
        if start >= end {
            break;
        }
        let wanted = tag.is_none_or(|tag| node_here.tags[tag as usize] & (1 << slot) != 0);
        match NonZeroU64::new(node_here.slots[slot]) {
            Some(value) if wanted && level == 0 => visit(start, value)?,
            Some(below) if wanted => {
                // SAFETY: words above the lowest level name nodes of this index.
                let below = unsafe { node(below.get()) };
                visit_node(below, level - 1, start, first, end, tag, visit)?;
            }
            _ => {}
        }
    }
    ControlFlow::Continue(())
}

impl Drop for PageIndex {
    fn drop(&mut self) {
        fn below(word: u64, level: u32) {
            if word == 0 {
                return;
            }
            if level > 0 {
                // SAFETY: words above the lowest level name nodes of this index.
                unsafe { node(word) }.slots.iter().for_each(|&slot| below(slot, level - 1));
            }
            // SAFETY: nobody uses the index any more.
            unsafe { drop_node(word) };
        }
        if self.height > 0 {
            below(self.root, self.height - 1);
        }
    }
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
