//! Alternative B: a threaded red-black tree (specs/page-cache.md 14).
//!
//! A link that has no child is a *thread* to the neighbour in order, so the next page is found without a stack. One state word a node holds
//! its colour and says which links are threads; look-ups test it, as there are no empty links. Tags are kept with the pages. Nodes live in a
//! vector and name each other by number; a node also knows its parent.
//!
//! Invariants: a red node has a black parent; from a node, all ways down pass as many black nodes; the left thread of the first page
//! and the right thread of the last one are [`NIL`].

use super::ordered::{self, NIL, Ordered};
use super::{PageIndex, Tag};
use crate::{OutOfMemory, fallible};
use alloc::vec::Vec;
use core::num::NonZeroU64;

/// Bits of a state word: the threads of both sides, and the colour.
const THREAD: [u8; 2] = [1, 2];
const RED: u8 = 4;

const LEFT: usize = 0;
const RIGHT: usize = 1;

struct Node {
    page: u64,
    word: NonZeroU64,
    links: [u32; 2],
    parent: u32,
    state: u8,
    tags: u8,
}

/// See the theory of this file.
pub struct ThreadedTree {
    nodes: Vec<Node>,
    root: u32,
    /// First of the nodes that are not in use, chained by their parents.
    free: u32,
}

impl ThreadedTree {
    /// An empty one.
    #[must_use]
    pub const fn new() -> Self {
        Self { nodes: Vec::new(), root: NIL, free: NIL }
    }

    fn at(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    fn at_mut(&mut self, node: u32) -> &mut Node {
        &mut self.nodes[node as usize]
    }

    fn child(&self, node: u32, side: usize) -> Option<u32> {
        let here = self.at(node);
        (here.state & THREAD[side] == 0).then_some(here.links[side])
    }

    fn is_red(&self, node: Option<u32>) -> bool {
        node.is_some_and(|node| self.at(node).state & RED != 0)
    }

    fn paint(&mut self, node: u32, red: bool) {
        let here = self.at_mut(node);
        here.state = if red { here.state | RED } else { here.state & !RED };
    }

    fn set_child(&mut self, node: u32, side: usize, child: u32) {
        let here = self.at_mut(node);
        here.links[side] = child;
        here.state &= !THREAD[side];
        self.at_mut(child).parent = node;
    }

    fn set_thread(&mut self, node: u32, side: usize, to: u32) {
        let here = self.at_mut(node);
        here.links[side] = to;
        here.state |= THREAD[side];
    }

    /// Puts `new` in the place that `old` has below its parent.
    fn replace_below_parent(&mut self, old: u32, new: u32) {
        let parent = self.at(old).parent;
        if parent == NIL {
            self.root = new;
            self.at_mut(new).parent = NIL;
        } else {
            let side = self.side_of(old, parent);
            self.set_child(parent, side, new);
        }
    }

    fn side_of(&self, node: u32, parent: u32) -> usize {
        if self.child(parent, LEFT) == Some(node) { LEFT } else { RIGHT }
    }

    /// Rotates a node down to `side`; its child of the other side comes up.
    fn rotate(&mut self, node: u32, side: usize) {
        let up = self.child(node, 1 - side).expect("there is a child to come up");
        self.replace_below_parent(node, up);
        match self.child(up, side) {
            Some(inner) => self.set_child(node, 1 - side, inner),
            None => self.set_thread(node, 1 - side, up),
        }
        self.set_child(up, side, node);
    }

    fn find(&self, page: u64) -> Option<u32> {
        let mut node = Some(self.root).filter(|&root| root != NIL)?;
        loop {
            let here = self.at(node).page;
            if page == here {
                return Some(node);
            }
            node = self.child(node, usize::from(page > here))?;
        }
    }

    fn step(&self, node: u32, side: usize) -> u32 {
        let Some(mut below) = self.child(node, side) else { return self.at(node).links[side] };
        while let Some(next) = self.child(below, 1 - side) {
            below = next;
        }
        below
    }

    /// Makes the colours right above a red node that was hung in.
    fn repair_insertion(&mut self, new: u32) {
        let mut node = new;
        while node != self.root && self.is_red(Some(self.at(node).parent)) {
            let parent = self.at(node).parent;
            let above = self.at(parent).parent;
            let side = self.side_of(parent, above);
            let uncle = self.child(above, 1 - side);
            if let Some(uncle) = uncle.filter(|&uncle| self.is_red(Some(uncle))) {
                self.paint(parent, false);
                self.paint(uncle, false);
                self.paint(above, true);
                node = above;
                continue;
            }
            if self.side_of(node, parent) != side {
                self.rotate(parent, side);
                node = parent;
            }
            let parent = self.at(node).parent;
            self.paint(parent, false);
            self.paint(above, true);
            self.rotate(above, 1 - side);
        }
        self.paint(self.root, false);
    }

    /// Makes the colours right where a black node is missing below `parent` on a side.
    fn repair_removal(&mut self, mut parent: u32, mut side: usize) {
        loop {
            let mut sibling = self.child(parent, 1 - side).expect("a black node was beside it");
            if self.is_red(Some(sibling)) {
                self.paint(sibling, false);
                self.paint(parent, true);
                self.rotate(parent, side);
                sibling = self.child(parent, 1 - side).expect("a red node had black children");
            }
            let near_is_red = self.is_red(self.child(sibling, side));
            let far_is_red = self.is_red(self.child(sibling, 1 - side));
            if near_is_red || far_is_red {
                if !far_is_red {
                    let near = self.child(sibling, side).expect("it is red");
                    self.paint(near, false);
                    self.paint(sibling, true);
                    self.rotate(sibling, 1 - side);
                    sibling = near;
                }
                let colour = self.is_red(Some(parent));
                self.paint(sibling, colour);
                self.paint(parent, false);
                if let Some(far) = self.child(sibling, 1 - side) {
                    self.paint(far, false);
                }
                self.rotate(parent, side);
                return;
            }
            self.paint(sibling, true);
            if self.is_red(Some(parent)) {
                self.paint(parent, false);
                return;
            }
            let above = self.at(parent).parent;
            if above == NIL {
                return;
            }
            side = self.side_of(parent, above);
            parent = above;
        }
    }

    /// Takes a node with at most one child out of the tree.
    fn cut(&mut self, node: u32) {
        let (parent, links) = (self.at(node).parent, self.at(node).links);
        let child = [LEFT, RIGHT].into_iter().find_map(|side| Some((side, self.child(node, side)?)));
        if let Some((side, child)) = child {
            // It is red and has none itself: its thread to the node goes on to where the node's led.
            self.set_thread(child, 1 - side, links[1 - side]);
            self.replace_below_parent(node, child);
            self.paint(child, false);
            return;
        }
        if parent == NIL {
            self.root = NIL;
            return;
        }
        let side = self.side_of(node, parent);
        self.set_thread(parent, side, links[side]);
        if !self.is_red(Some(node)) {
            self.repair_removal(parent, side);
        }
    }
}

impl Default for ThreadedTree {
    fn default() -> Self {
        Self::new()
    }
}

impl Ordered for ThreadedTree {
    fn at_or_after(&self, page: u64) -> u32 {
        let mut node = self.root;
        while node != NIL {
            let here = self.at(node).page;
            if page == here {
                return node;
            }
            let side = usize::from(page > here);
            match self.child(node, side) {
                Some(below) => node = below,
                None => return if side == LEFT { node } else { self.at(node).links[RIGHT] },
            }
        }
        NIL
    }

    fn after(&self, node: u32) -> u32 {
        self.step(node, RIGHT)
    }

    fn entry(&self, node: u32) -> (u64, NonZeroU64, u8) {
        let here = self.at(node);
        (here.page, here.word, here.tags)
    }
}

impl PageIndex for ThreadedTree {
    fn lookup(&self, page: u64) -> Option<NonZeroU64> {
        self.find(page).map(|node| self.at(node).word)
    }

    fn insert(&mut self, page: u64, word: NonZeroU64) -> Result<(), OutOfMemory> {
        let fresh = Node {
            page,
            word,
            links: [NIL; 2],
            parent: NIL,
            state: THREAD[LEFT] | THREAD[RIGHT] | RED,
            tags: 0,
        };
        let new = if self.free == NIL {
            fallible::try_push(&mut self.nodes, fresh)?;
            self.nodes.len() as u32 - 1
        } else {
            let new = self.free;
            self.free = self.at(new).parent;
            *self.at_mut(new) = fresh;
            new
        };
        if self.root == NIL {
            self.root = new;
            self.paint(new, false);
            return Ok(());
        }
        let mut parent = self.root;
        let side = loop {
            let side = usize::from(page > self.at(parent).page);
            match self.child(parent, side) {
                Some(below) => parent = below,
                None => break side,
            }
        };
        let beyond = self.at(parent).links[side];
        self.set_thread(new, side, beyond);
        self.set_thread(new, 1 - side, parent);
        self.set_child(parent, side, new);
        self.repair_insertion(new);
        Ok(())
    }

    fn remove(&mut self, page: u64) -> Option<NonZeroU64> {
        let node = self.find(page)?;
        let word = self.at(node).word;
        let mut gone = node;
        if self.child(node, LEFT).is_some() && self.child(node, RIGHT).is_some() {
            // The next page takes its place, and that page's node goes.
            gone = self.step(node, RIGHT);
            let (page, word, tags) = self.entry(gone);
            let here = self.at_mut(node);
            (here.page, here.word, here.tags) = (page, word, tags);
        }
        self.cut(gone);
        self.at_mut(gone).parent = self.free;
        self.free = gone;
        Some(word)
    }

    fn set_tag(&mut self, page: u64, tag: Tag) {
        if let Some(node) = self.find(page) {
            self.at_mut(node).tags |= 1 << tag as u8;
        }
    }

    fn clear_tag(&mut self, page: u64, tag: Tag) {
        if let Some(node) = self.find(page) {
            self.at_mut(node).tags &= !(1 << tag as u8);
        }
    }

    fn has_tag(&self, page: u64, tag: Tag) -> bool {
        self.find(page).is_some_and(|node| self.at(node).tags & (1 << tag as u8) != 0)
    }

    fn gang(&self, first: u64, into: &mut [(u64, NonZeroU64)]) -> usize {
        ordered::gang(self, first, None, into)
    }

    fn gang_tag(&self, first: u64, tag: Tag, into: &mut [(u64, NonZeroU64)]) -> usize {
        ordered::gang(self, first, Some(tag), into)
    }
}
