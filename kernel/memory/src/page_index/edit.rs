//! Changing a radix tree, one editor at a time. What readers see meanwhile is in the theory of [`RadixTree`].
//!
//! Nodes know their parents, so tags and emptiness are handed up from the leaf, as far as something changes. `used` counts the
//! slots that are not empty; a node whose count reaches zero is unlinked and left to RCU.

use super::PageIndex;
use super::index::Tag;
use super::node::{
    EMPTY, Fanout, MOVED, Node, Shift, Word, leads_on, node_of, page_word, word_of_node, word_of_page,
};
use super::radix::{RadixTree, height_for};
use super::spare::Spare;
use super::statistics;
use crate::OutOfMemory;
use core::num::NonZeroU64;
use core::ops::ControlFlow;
use core::ops::Deref;
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering;
use sync::SpinLockGuard;
use sync::rcu::{self, RcuBox};

/// An insertion needs so many nodes at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingNodes(pub u32);

/// A node of the tree that is being edited. Nodes are freed by editors only, and there is only one, which drops what it unlinks.
struct Link<const SHIFT: u32>(NonNull<Node<SHIFT>>)
where
    Shift<SHIFT>: Fanout;

impl<const SHIFT: u32> Clone for Link<SHIFT>
where
    Shift<SHIFT>: Fanout,
{
    fn clone(&self) -> Self {
        *self
    }
}

impl<const SHIFT: u32> Copy for Link<SHIFT> where Shift<SHIFT>: Fanout {}

impl<const SHIFT: u32> Deref for Link<SHIFT>
where
    Shift<SHIFT>: Fanout,
{
    type Target = Node<SHIFT>;

    #[inline(always)]
    fn deref(&self) -> &Node<SHIFT> {
        // SAFETY: links are made of nodes of the tree only, and not used any more once the node was retired.
        unsafe { self.0.as_ref() }
    }
}

impl<const SHIFT: u32> Link<SHIFT>
where
    Shift<SHIFT>: Fanout,
{
    /// The node that a word names, if it names one.
    ///
    /// # Safety
    /// The word was read by the tree's editor, in the root or in a node of the tree.
    #[inline(always)]
    unsafe fn from_word(word: Word) -> Option<Self> {
        debug_assert_ne!(word, MOVED, "only nodes that have gone say so");
        if leads_on(word) { NonNull::new(node_of(word)).map(Self) } else { None }
    }

    fn word(self) -> Word {
        word_of_node(self.0.as_ptr())
    }

    /// The node below on the way to a page; `level` is this node's, and not 0.
    #[inline(always)]
    fn child(self, page: u64, level: u32) -> Option<Self> {
        let word = self.slot(Node::<SHIFT>::number(page, level)).load(Ordering::Relaxed);
        // SAFETY: the slot of a node that the editor has.
        unsafe { Self::from_word(word) }
    }

    fn parent(self) -> Option<Self> {
        NonNull::new(self.parent.load(Ordering::Relaxed)).map(Self)
    }
}

/// The right to change a tree.
pub struct Edit<'a, const SHIFT: u32>
where
    Shift<SHIFT>: Fanout,
{
    tree: &'a RadixTree<SHIFT>,
    /// None: the tree was borrowed exclusively.
    lock: Option<SpinLockGuard<'a, ()>>,
}

impl<'a, const SHIFT: u32> Edit<'a, SHIFT>
where
    Shift<SHIFT>: Fanout,
{
    pub(super) fn locked(tree: &'a RadixTree<SHIFT>, lock: SpinLockGuard<'a, ()>) -> Self {
        Self { tree, lock: Some(lock) }
    }

    /// The root if it is a node.
    #[inline(always)]
    fn top(&self) -> Option<Link<SHIFT>> {
        // SAFETY: the root of this editor's tree.
        unsafe { Link::from_word(self.tree.root.load(Ordering::Relaxed)) }
    }

    /// The leaf that has a slot for the page.
    #[inline]
    fn leaf(&self, page: u64) -> Option<Link<SHIFT>> {
        let mut node = self.top()?;
        if !node.reaches(page) {
            return None;
        }
        for level in (1..=node.level()).rev() {
            node = node.child(page, level)?;
        }
        Some(node)
    }

    /// The word of a page.
    #[inline]
    pub fn get(&self, page: u64) -> Option<NonZeroU64> {
        match self.leaf(page) {
            Some(leaf) => page_word(leaf.slot(Node::<SHIFT>::number(page, 0)).load(Ordering::Relaxed)),
            None => match self.tree.root.load(Ordering::Relaxed) {
                root if page == 0 && !leads_on(root) => page_word(root),
                _ => None,
            },
        }
    }

    /// Nodes that an insertion of the page adds.
    fn missing(&self, page: u64) -> u32 {
        let needed = height_for(page, SHIFT);
        let Some(top) = self.top() else {
            // Page 0 alone gets the first leaf of a tree that grows.
            let kept = self.tree.root.load(Ordering::Relaxed) != EMPTY;
            return if kept && needed > 1 { 2 * needed - 1 } else { needed };
        };
        let height = top.level() + 1;
        if needed > height {
            // New tops above the old one, and from the highest down to the page a path of its own.
            return (needed - height) + (needed - 1);
        }
        let mut node = top;
        for level in (1..height).rev() {
            let Some(child) = node.child(page, level) else { return level };
            node = child;
        }
        0
    }

    /// Puts a word for a page that has none.
    ///
    /// # Errors
    /// When more nodes must be at hand; nothing has changed then.
    pub fn insert(
        &mut self,
        page: u64,
        word: NonZeroU64,
        spare: &mut Spare<SHIFT>,
    ) -> Result<(), MissingNodes> {
        debug_assert!(self.get(page).is_none(), "the page has a word already");
        let leaf = match self.leaf(page) {
            Some(leaf) => leaf,
            None => {
                let missing = self.missing(page);
                if missing > spare.count() {
                    return Err(MissingNodes(missing));
                }
                match self.make_way(page, spare) {
                    Some(leaf) => leaf,
                    None => {
                        self.tree.root.store(word_of_page(word), Ordering::Release);
                        return Ok(());
                    }
                }
            }
        };
        leaf.used.store(leaf.used.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        // Release: who sees the word sees what it names.
        leaf.slot(Node::<SHIFT>::number(page, 0)).store(word_of_page(word), Ordering::Release);
        Ok(())
    }

    /// Adds the nodes on the way to a page; None when it goes into the root. The nodes are at hand.
    #[inline(never)]
    fn make_way(&mut self, page: u64, spare: &mut Spare<SHIFT>) -> Option<Link<SHIFT>> {
        let needed = height_for(page, SHIFT);
        let first = self.tree.root.load(Ordering::Relaxed);
        if first == EMPTY && needed == 0 {
            return None;
        }
        if first == EMPTY {
            let top = Self::new_node(needed - 1, None, spare);
            self.tree.root.store(top.word(), Ordering::Release);
        } else {
            self.grow(needed.max(1), spare);
        }
        let mut node = self.top().expect("it was made above");
        for level in (1..=node.level()).rev() {
            node = match node.child(page, level) {
                Some(child) => child,
                None => {
                    let child = Self::new_node(level - 1, Some(node), spare);
                    node.used.store(node.used.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    // Release: readers see an empty node.
                    node.slot(Node::<SHIFT>::number(page, level)).store(child.word(), Ordering::Release);
                    child
                }
            };
        }
        Some(node)
    }

    /// An empty node, not yet linked.
    fn new_node(level: u32, parent: Option<Link<SHIFT>>, spare: &mut Spare<SHIFT>) -> Link<SHIFT> {
        let node = Link(spare.take().expect("enough nodes are at hand"));
        node.level.store(level, Ordering::Relaxed);
        node.parent.store(parent.map_or(ptr::null_mut(), |parent| parent.0.as_ptr()), Ordering::Relaxed);
        statistics::count(level, 1);
        node
    }

    /// Makes the tree at least this high: what it has becomes the first child of a new root.
    fn grow(&mut self, height: u32, spare: &mut Spare<SHIFT>) {
        loop {
            let root = self.tree.root.load(Ordering::Relaxed);
            let former = self.top();
            let level = former.map_or(0, |former| former.level() + 1);
            if level >= height {
                return;
            }
            let top = Self::new_node(level, None, spare);
            for tag in Tag::ALL {
                top.set_mark(tag, 0, self.tree.root_is_marked(tag));
            }
            top.slot(0).store(root, Ordering::Relaxed);
            top.used.store(1, Ordering::Relaxed);
            if let Some(former) = former {
                former.parent.store(top.0.as_ptr(), Ordering::Relaxed);
            }
            // Release: height and root in one.
            self.tree.root.store(top.word(), Ordering::Release);
        }
    }

    /// Replaces the word of a page that has one.
    ///
    /// # Panics
    /// When it has none.
    pub fn replace(&mut self, page: u64, word: NonZeroU64) {
        assert!(self.get(page).is_some(), "only existing words are replaced");
        match self.leaf(page) {
            Some(leaf) => {
                leaf.slot(Node::<SHIFT>::number(page, 0)).store(word_of_page(word), Ordering::Release)
            }
            None => self.tree.root.store(word_of_page(word), Ordering::Release),
        }
    }

    /// Takes a page out, with its tags.
    pub fn remove(&mut self, page: u64) -> Option<NonZeroU64> {
        let found = self.get(page)?;
        let Some(leaf) = self.leaf(page) else {
            self.tree.root.store(EMPTY, Ordering::Release);
            self.tree.root_marks.store(0, Ordering::Release);
            return Some(found);
        };
        let number = Node::<SHIFT>::number(page, 0);
        for tag in Tag::ALL {
            if leaf.is_marked(tag, number) {
                Self::clear_upwards(leaf, page, tag);
            }
        }
        leaf.slot(number).store(EMPTY, Ordering::Release);
        let used = leaf.used.load(Ordering::Relaxed) - 1;
        leaf.used.store(used, Ordering::Relaxed);
        if used == 0 {
            self.prune(leaf, page);
        }
        // Only what is left below the first slot can let the tree get lower.
        if used <= 1 {
            self.shrink();
        }
        Some(found)
    }

    /// Unlinks a node that has become empty, and those above that become empty by that.
    #[inline(never)]
    fn prune(&mut self, leaf: Link<SHIFT>, page: u64) {
        let mut node = leaf;
        loop {
            let level = node.level();
            let parent = node.parent();
            match parent {
                Some(parent) => {
                    parent.slot(Node::<SHIFT>::number(page, level + 1)).store(EMPTY, Ordering::Release);
                }
                None => {
                    self.tree.root_marks.store(0, Ordering::Relaxed);
                    self.tree.root.store(EMPTY, Ordering::Release);
                }
            }
            self.retire(node);
            let Some(parent) = parent else { return };
            let used = parent.used.load(Ordering::Relaxed) - 1;
            parent.used.store(used, Ordering::Relaxed);
            if used > 0 {
                return;
            }
            node = parent;
        }
    }

    /// Lowers the tree while only its first slot is in use.
    fn shrink(&mut self) {
        while let Some(top) = self.top() {
            let below = top.slot(0).load(Ordering::Relaxed);
            if top.used.load(Ordering::Relaxed) != 1 || below == EMPTY {
                return;
            }
            if let Some(child) = top.child(0, top.level()) {
                child.parent.store(ptr::null_mut(), Ordering::Relaxed);
                self.tree.root.store(below, Ordering::Release);
            } else {
                let marks = Tag::ALL.iter().filter(|&&tag| top.is_marked(tag, 0));
                let marks = marks.fold(0, |marks, &tag| marks | 1 << tag as u32);
                self.tree.root_marks.store(marks, Ordering::Release);
                self.tree.root.store(below, Ordering::Release);
                // Release: who sees it finds the page in the root, or what came after it.
                top.slot(0).store(MOVED, Ordering::Release);
            }
            self.retire(top);
        }
    }

    /// Leaves an unlinked node to RCU.
    fn retire(&mut self, node: Link<SHIFT>) {
        statistics::count(node.level(), -1);
        // SAFETY: nodes come from `into_pointer` by way of `Spare`, and an unlinked one is retired once, here.
        let node = unsafe { RcuBox::from_pointer(node.0) };
        match self.lock {
            // Readers that still have it hold up the grace period.
            Some(_) => node.defer_drop(),
            // There are none.
            None => drop(node),
        }
    }

    /// Tags a page, if it is there.
    pub fn set_tag(&mut self, page: u64, tag: Tag) {
        if self.get(page).is_none() {
            return;
        }
        let Some(mut node) = self.leaf(page) else {
            let marks = self.tree.root_marks.load(Ordering::Relaxed);
            self.tree.root_marks.store(marks | 1 << tag as u32, Ordering::Release);
            return;
        };
        loop {
            let number = Node::<SHIFT>::number(page, node.level());
            if node.is_marked(tag, number) {
                return;
            }
            node.set_mark(tag, number, true);
            let Some(parent) = node.parent() else { return };
            node = parent;
        }
    }

    /// Takes the tag from a page, and from the nodes above where it was the last below.
    pub fn clear_tag(&mut self, page: u64, tag: Tag) {
        match self.leaf(page) {
            Some(leaf) => Self::clear_upwards(leaf, page, tag),
            None if page == 0 && self.top().is_none() => {
                let marks = self.tree.root_marks.load(Ordering::Relaxed);
                self.tree.root_marks.store(marks & !(1 << tag as u32), Ordering::Release);
            }
            None => {}
        }
    }

    fn clear_upwards(leaf: Link<SHIFT>, page: u64, tag: Tag) {
        let mut node = leaf;
        loop {
            let number = Node::<SHIFT>::number(page, node.level());
            if !node.is_marked(tag, number) {
                return;
            }
            node.set_mark(tag, number, false);
            let Some(parent) = node.parent().filter(|_| !node.has_marks(tag)) else { return };
            node = parent;
        }
    }

    /// Whether a page is there and has the tag.
    #[must_use]
    pub fn has_tag(&self, page: u64, tag: Tag) -> bool {
        self.tree.has_tag(page, tag, &rcu::read())
    }

    /// Visits pages as [`RadixTree::gang`] does.
    pub fn gang<B>(
        &self,
        first: u64,
        end: u64,
        tag: Option<Tag>,
        mut visit: impl FnMut(u64, NonZeroU64) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        self.tree.gang(first, end, tag, &rcu::read(), |page, place| visit(page, place.word()))
    }

    /// Gives the pages between two numbers that have one tag another one, too, in file order and at most `limit` of them; returns where to go
    /// on, None at the end.
    pub fn tag_tagged(&mut self, first: u64, end: u64, has: Tag, gets: Tag, limit: usize) -> Option<u64> {
        let mut next = first;
        for _ in 0..limit {
            let ControlFlow::Break(page) =
                self.gang(next, end, Some(has), |page, _| ControlFlow::Break(page))
            else {
                return None;
            };
            self.set_tag(page, gets);
            next = page + 1;
        }
        Some(next)
    }
}

impl<const SHIFT: u32> RadixTree<SHIFT>
where
    Shift<SHIFT>: Fanout,
{
    /// Changes the tree without locking it.
    #[inline]
    pub fn edit_mut(&mut self) -> Edit<'_, SHIFT> {
        Edit { tree: self, lock: None }
    }
}

impl<const SHIFT: u32> PageIndex for RadixTree<SHIFT>
where
    Shift<SHIFT>: Fanout,
{
    fn lookup(&self, page: u64) -> Option<NonZeroU64> {
        self.get(page, &rcu::read())
    }

    fn insert(&mut self, page: u64, word: NonZeroU64) -> Result<(), OutOfMemory> {
        let mut spare = Spare::new();
        while let Err(MissingNodes(count)) = self.edit_mut().insert(page, word, &mut spare) {
            spare.fill(count)?;
        }
        Ok(())
    }

    fn remove(&mut self, page: u64) -> Option<NonZeroU64> {
        self.edit_mut().remove(page)
    }

    fn set_tag(&mut self, page: u64, tag: Tag) {
        self.edit_mut().set_tag(page, tag);
    }

    fn clear_tag(&mut self, page: u64, tag: Tag) {
        self.edit_mut().clear_tag(page, tag);
    }

    fn has_tag(&self, page: u64, tag: Tag) -> bool {
        RadixTree::has_tag(self, page, tag, &rcu::read())
    }

    fn gang(&self, first: u64, into: &mut [(u64, NonZeroU64)]) -> usize {
        fill(self, first, None, into)
    }

    fn gang_tag(&self, first: u64, tag: Tag, into: &mut [(u64, NonZeroU64)]) -> usize {
        fill(self, first, Some(tag), into)
    }
}

fn fill<const SHIFT: u32>(
    tree: &RadixTree<SHIFT>,
    first: u64,
    tag: Option<Tag>,
    into: &mut [(u64, NonZeroU64)],
) -> usize
where
    Shift<SHIFT>: Fanout,
{
    let mut filled = 0;
    if into.is_empty() {
        return 0;
    }
    let _ = tree.gang(first, u64::MAX, tag, &rcu::read(), |page, place| {
        into[filled] = (page, place.word());
        filled += 1;
        if filled == into.len() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    filled
}
