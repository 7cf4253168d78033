//! The radix tree: from page numbers to words, with tags, read under RCU (specs/page-cache.md 3 to 9 and 12).
//!
//! # Shape
//! The tree is as high as the largest page number needs: height 0 holds page 0's word in the root itself (small files have no node
//! at all), height *h* holds 2^(SHIFT · *h*) pages. No keys are stored: what a slot means follows from its place. A node
//! disappears with its last page, and the tree gets lower when only page numbers that need less height are left. Every node
//! has a bit per slot and tag; in a leaf it is the page's tag, above it says that a page below has the tag. Walks by tag skip
//! everything else and find pages in file order. Tags of page 0 at height 0 are beside the root.
//!
//! # Readers and editors
//! A node knows its level, so height and root change together, by one store of the root pointer. Readers hold an RCU guard and
//! follow pointers; an [`Edit`], of which there is one at a time, builds what is new aside, publishes it by one
//! store (Release; readers load with Acquire), and leaves what is old to RCU. What a reader may run into:
//!
//! | change | a reader that is in the old part |
//! |---|---|
//! | the tree grows | has the former root, which is now the first child: page numbers beyond it were absent when it began |
//! | an empty node goes | finds its slots empty: the page was absent when the node became empty, after the reader had begun |
//! | the root goes because all is in its first slot | goes on in that slot's node, which is the new root |
//! | the same with a leaf, page 0's word is the new root | finds [`MOVED`] in its slot and begins again |
//!
//! So each answer was true at some moment of the look-up, and a page that was there all the time is always found. Nodes are
//! freed a grace period after they went.
//!
//! # Re-check
//! A [`Place`] names the slot in which a word was found. Because of `MOVED`, a page is in the tree as long as its slot holds its word: who
//! has taken a reference to what the word names looks whether [`Place::is_current`], and begins again if it is not. What words
//! name must itself be freed a grace period after it has left the tree.

use super::edit::Edit;
use super::index::{TAGS, Tag};
use super::node::{EMPTY, Fanout, MOVED, Node, Shift, Word, leads_on, node_of, page_word};
use core::num::NonZeroU64;
use core::ops::ControlFlow;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use sync::rcu::{RcuBox, RcuReadGuard};
use sync::{SpinLock, SpinLockGuard};

/// See the theory of this file. Nodes have 2^`SHIFT` slots.
pub struct RadixTree<const SHIFT: u32 = { super::node::SHIFT }>
where
    Shift<SHIFT>: Fanout,
{
    /// Nothing, page 0's word, or a node. Written by editors.
    pub(super) root: AtomicPtr<()>,
    /// Tags of page 0 at height 0. Written by editors.
    pub(super) root_marks: AtomicU32,
    /// Held by an editor.
    pub(super) lock: SpinLock<()>,
}

/// Where a look-up found a word.
#[derive(Clone, Copy, Debug)]
pub struct Place<'guard> {
    slot: &'guard AtomicPtr<()>,
    found: NonZeroU64,
}

impl Place<'_> {
    /// The word.
    #[inline(always)]
    #[must_use]
    pub fn word(&self) -> NonZeroU64 {
        self.found
    }

    /// Whether the page is still in the tree, with the same word.
    #[inline(always)]
    #[must_use]
    pub fn is_current(&self) -> bool {
        // Acquire: what the caller did before this look, and what it does next, stay on their sides.
        self.slot.load(Ordering::Acquire).addr() as u64 == self.found.get()
    }
}

/// What ends a walk early.
enum Stop<B> {
    /// The visitor's answer.
    Answer(B),
    /// The part of the tree in which the walk was has gone.
    Again,
}

/// The height that a tree with 2^`shift` slots a node needs for a page number.
#[must_use]
pub fn height_for(page: u64, shift: u32) -> u32 {
    (u64::BITS - page.leading_zeros()).div_ceil(shift)
}

impl<const SHIFT: u32> RadixTree<SHIFT>
where
    Shift<SHIFT>: Fanout,
{
    /// An empty tree.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            root: AtomicPtr::new(EMPTY),
            root_marks: AtomicU32::new(0),
            lock: SpinLock::named("index of a file's pages", ()),
        }
    }

    /// Begins to change the tree: waits for other editors.
    #[inline]
    pub fn edit(&self) -> Edit<'_, SHIFT> {
        Edit::locked(self, self.lock.lock())
    }

    /// Keeps editors away, as one that changes nothing.
    pub fn lock_against_edits(&self) -> SpinLockGuard<'_, ()> {
        self.lock.lock()
    }

    /// Whether somebody edits the tree at the moment, or keeps editors away.
    pub fn is_being_edited(&self) -> bool {
        self.lock.is_locked()
    }

    /// The word of a page, and where it is.
    #[inline]
    pub fn find<'guard>(&'guard self, page: u64, _guard: &'guard RcuReadGuard) -> Option<Place<'guard>> {
        loop {
            let mut slot = &self.root;
            // Acquire, here and below: pairs with the Release of the editor that published what the word names.
            let mut word = slot.load(Ordering::Acquire);
            if leads_on(word) {
                // SAFETY: the guard keeps nodes that were published, and the root is never `MOVED`.
                let mut node = unsafe { &*node_of::<SHIFT>(word) };
                let mut shift = SHIFT * node.level();
                if page >> shift >> SHIFT != 0 {
                    return None;
                }
                loop {
                    #[cfg(test)]
                    super::tests::between_steps();
                    slot = node.slot((page >> shift) as usize);
                    word = slot.load(Ordering::Acquire);
                    if !leads_on(word) || word == MOVED {
                        break;
                    }
                    shift -= SHIFT;
                    // SAFETY: as above.
                    node = unsafe { &*node_of::<SHIFT>(word) };
                }
                if word == MOVED {
                    continue;
                }
            } else if page != 0 {
                return None;
            }
            return page_word(word).map(|found| Place { slot, found });
        }
    }

    /// The word of a page.
    #[inline]
    pub fn get(&self, page: u64, guard: &RcuReadGuard) -> Option<NonZeroU64> {
        self.find(page, guard).map(|place| place.word())
    }

    /// Whether a page is there and has the tag.
    pub fn has_tag(&self, page: u64, tag: Tag, _guard: &RcuReadGuard) -> bool {
        loop {
            let mut word = self.root.load(Ordering::Acquire);
            if !leads_on(word) {
                let marks = self.root_marks.load(Ordering::Acquire);
                return page == 0 && word != EMPTY && marks & (1 << tag as u32) != 0;
            }
            // SAFETY: the guard keeps nodes that were published, and the root is never `MOVED`.
            let mut node = unsafe { &*node_of::<SHIFT>(word) };
            if !node.reaches(page) {
                return false;
            }
            loop {
                let number = Node::<SHIFT>::number(page, node.level());
                let marked = node.is_marked(tag, number);
                word = node.slot(number).load(Ordering::Acquire);
                if word == MOVED {
                    break;
                }
                if !leads_on(word) {
                    return marked && word != EMPTY;
                }
                // SAFETY: as above.
                node = unsafe { &*node_of::<SHIFT>(word) };
            }
        }
    }

    /// Visits pages from `first` up to, not including, `end` in ascending order; with a tag, only those that have it.
    pub fn gang<'guard, B>(
        &'guard self,
        first: u64,
        end: u64,
        tag: Option<Tag>,
        _guard: &'guard RcuReadGuard,
        mut visit: impl FnMut(u64, Place<'guard>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        loop {
            let word = self.root.load(Ordering::Acquire);
            if !leads_on(word) {
                let marks = self.root_marks.load(Ordering::Acquire);
                let wanted = tag.is_none_or(|tag| marks & (1 << tag as u32) != 0);
                return match page_word(word) {
                    Some(found) if wanted && first == 0 && end > 0 => {
                        visit(0, Place { slot: &self.root, found })
                    }
                    _ => ControlFlow::Continue(()),
                };
            }
            // SAFETY: the guard keeps nodes that were published, and the root is never `MOVED`.
            let root = unsafe { &*node_of::<SHIFT>(word) };
            let range = Range { first, end, tag };
            match visit_node(root, root.level(), 0, &range, &mut visit) {
                ControlFlow::Continue(()) => return ControlFlow::Continue(()),
                ControlFlow::Break(Stop::Answer(answer)) => return ControlFlow::Break(answer),
                // It was at page 0: nothing has been visited.
                ControlFlow::Break(Stop::Again) => {}
            }
        }
    }

    /// The first page at or after `first`.
    pub fn next(&self, first: u64, guard: &RcuReadGuard) -> Option<u64> {
        match self.gang(first, u64::MAX, None, guard, |page, _| ControlFlow::Break(page)) {
            ControlFlow::Break(page) => Some(page),
            ControlFlow::Continue(()) => None,
        }
    }

    /// The first page number at or after `first` without a page.
    pub fn next_absent(&self, first: u64, guard: &RcuReadGuard) -> u64 {
        let mut expected = first;
        let _ = self.gang(first, u64::MAX, None, guard, |page, _| {
            if page != expected {
                return ControlFlow::Break(());
            }
            expected += 1;
            ControlFlow::Continue(())
        });
        expected
    }

    /// The height, and the number of nodes. Walks the whole tree.
    pub fn shape(&self, _guard: &RcuReadGuard) -> (u32, usize) {
        fn below<const SHIFT: u32>(word: Word) -> usize
        where
            Shift<SHIFT>: Fanout,
        {
            if !leads_on(word) || word == MOVED {
                return 0;
            }
            // SAFETY: the caller's guard keeps nodes that were published.
            let node = unsafe { &*node_of::<SHIFT>(word) };
            1 + node
                .slots
                .as_ref()
                .iter()
                .map(|slot| below::<SHIFT>(slot.load(Ordering::Acquire)))
                .sum::<usize>()
        }
        let root = self.root.load(Ordering::Acquire);
        if !leads_on(root) {
            return (0, 0);
        }
        // SAFETY: the guard keeps nodes that were published.
        (unsafe { &*node_of::<SHIFT>(root) }.level() + 1, below::<SHIFT>(root))
    }

    /// Takes all pages out, in no matter which order: nobody reads, so nodes are freed at once.
    pub fn clear(&mut self, mut visit: impl FnMut(u64, NonZeroU64)) {
        fn empty<const SHIFT: u32>(word: Word, base: u64, visit: &mut impl FnMut(u64, NonZeroU64))
        where
            Shift<SHIFT>: Fanout,
        {
            if !leads_on(word) {
                if let Some(found) = page_word(word) {
                    visit(base, found);
                }
                return;
            }
            let pointer = core::ptr::NonNull::new(node_of::<SHIFT>(word)).expect("the root is never MOVED");
            // SAFETY: the tree is borrowed exclusively and owns the node; it came from `into_pointer`.
            let node = unsafe { RcuBox::from_pointer(pointer) };
            super::statistics::count(node.level(), -1);
            let mut left = node.used.load(Ordering::Relaxed);
            for (number, slot) in node.slots.as_ref().iter().enumerate() {
                if left == 0 {
                    break;
                }
                let word = slot.load(Ordering::Relaxed);
                if word != EMPTY {
                    left -= 1;
                    let start = (number as u64) << (SHIFT * node.level());
                    empty::<SHIFT>(word, base | start, visit);
                }
            }
        }
        let root = core::mem::replace(self.root.get_mut(), EMPTY);
        *self.root_marks.get_mut() = 0;
        empty::<SHIFT>(root, 0, &mut visit);
    }

    /// Whether some page has the tag.
    pub(super) fn root_is_marked(&self, tag: Tag) -> bool {
        let root = self.root.load(Ordering::Acquire);
        if leads_on(root) {
            // SAFETY: for editors, whose tree keeps its nodes.
            unsafe { &*node_of::<SHIFT>(root) }.has_marks(tag)
        } else {
            self.root_marks.load(Ordering::Relaxed) & (1 << tag as u32) != 0
        }
    }
}

/// The pages that a walk wants.
struct Range {
    first: u64,
    end: u64,
    tag: Option<Tag>,
}

/// Visits what is below a node, whose first page is `base`. The caller's guard keeps the nodes.
#[inline]
fn visit_node<'guard, const SHIFT: u32, B>(
    node: &'guard Node<SHIFT>,
    level: u32,
    base: u64,
    range: &Range,
    visit: &mut impl FnMut(u64, Place<'guard>) -> ControlFlow<B>,
) -> ControlFlow<Stop<B>>
where
    Shift<SHIFT>: Fanout,
{
    if level == 0 {
        return visit_leaf(node, base, range, visit);
    }
    visit_inner(node, level, base, range, visit)
}

/// Visits the pages of a leaf. It has one copy for each visitor, of which the visitor is part.
#[inline(never)]
fn visit_leaf<'guard, const SHIFT: u32, B>(
    node: &'guard Node<SHIFT>,
    base: u64,
    range: &Range,
    visit: &mut impl FnMut(u64, Place<'guard>) -> ControlFlow<B>,
) -> ControlFlow<Stop<B>>
where
    Shift<SHIFT>: Fanout,
{
    let slots = node.slots.as_ref();
    let end = range.end.saturating_sub(base).min(slots.len() as u64) as usize;
    let mut number = range.first.saturating_sub(base).min(end as u64) as usize;
    while let Some(slot) = slots[..end].get(number) {
        if let Some(tag) = range.tag
            && !node.is_marked(tag, number)
        {
            let Some(next) = node.next_mark(tag, number) else { break };
            number = next;
            continue;
        }
        let word = slot.load(Ordering::Acquire);
        if leads_on(word) {
            // What else could it be in a leaf?
            debug_assert_eq!(word, MOVED);
            return ControlFlow::Break(Stop::Again);
        }
        if let Some(found) = page_word(word)
            && let ControlFlow::Break(answer) = visit(base + number as u64, Place { slot, found })
        {
            return ControlFlow::Break(Stop::Answer(answer));
        }
        number += 1;
    }
    ControlFlow::Continue(())
}

/// Visits what is below an inner node.
fn visit_inner<'guard, const SHIFT: u32, B>(
    node: &'guard Node<SHIFT>,
    level: u32,
    base: u64,
    range: &Range,
    visit: &mut impl FnMut(u64, Place<'guard>) -> ControlFlow<B>,
) -> ControlFlow<Stop<B>>
where
    Shift<SHIFT>: Fanout,
{
    let pages = Node::<SHIFT>::pages_per_slot(level);
    let slots = Node::<SHIFT>::SLOTS;
    let mut number =
        if range.first > base { ((range.first - base) / pages).min(slots as u64) as usize } else { 0 };
    while number < slots {
        if let Some(tag) = range.tag {
            let Some(next) = node.next_mark(tag, number) else { break };
            number = next;
        }
        // The highest level has slots for more pages than there are numbers.
        let Some(start) = pages.checked_mul(number as u64).and_then(|start| base.checked_add(start)) else {
            break;
        };
        if start >= range.end {
            break;
        }
        let word = node.slot(number).load(Ordering::Acquire);
        if word == MOVED {
            return ControlFlow::Break(Stop::Again);
        }
        if leads_on(word) {
            // SAFETY: the guard keeps nodes that were published.
            let below = unsafe { &*node_of::<SHIFT>(word) };
            visit_node(below, level - 1, start, range, visit)?;
        }
        number += 1;
    }
    ControlFlow::Continue(())
}

const _: () = assert!(TAGS <= u32::BITS as usize, "a bit of the root's marks for each tag");

impl<const SHIFT: u32> Default for RadixTree<SHIFT>
where
    Shift<SHIFT>: Fanout,
{
    fn default() -> Self {
        Self::new()
    }
}

impl<const SHIFT: u32> Drop for RadixTree<SHIFT>
where
    Shift<SHIFT>: Fanout,
{
    fn drop(&mut self) {
        self.clear(|_, _| ());
    }
}
