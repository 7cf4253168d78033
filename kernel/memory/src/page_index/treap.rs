//! Alternative C: a treap, a binary search tree by page number and a heap by priority (specs/page-cache.md 15).
//!
//! The priority is a polynomial hash of the page number, so the shape depends on the pages alone. An insertion hangs the page in as a
//! leaf and rotates it up until the page above has a higher priority; look-ups ignore priorities. Tags are kept with the pages, so a walk
//! by tag visits all of them. Nodes live in a vector and name each other by number.

use super::ordered::{self, NIL, Ordered};
use super::{PageIndex, Tag};
use crate::{OutOfMemory, fallible};
use alloc::vec::Vec;
use core::num::NonZeroU64;

struct Node {
    page: u64,
    word: NonZeroU64,
    left: u32,
    right: u32,
    tags: u8,
}

/// See the theory of this file.
pub struct Treap {
    nodes: Vec<Node>,
    root: u32,
    /// First of the nodes that are not in use, chained by `left`.
    free: u32,
}

fn priority(page: u64) -> u64 {
    let low = page.wrapping_add(0x9e37_79b9);
    let square = low.wrapping_mul(low).wrapping_mul(0x85eb_ca6b_27d4_eb2f);
    let cube = square.wrapping_add(low).wrapping_mul(low | 1).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    cube ^ (cube >> 32)
}

impl Treap {
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

    fn find(&self, page: u64) -> Option<u32> {
        let mut node = self.root;
        while node != NIL {
            let here = self.at(node);
            node = match page.cmp(&here.page) {
                core::cmp::Ordering::Equal => return Some(node),
                core::cmp::Ordering::Less => here.left,
                core::cmp::Ordering::Greater => here.right,
            };
        }
        None
    }

    /// Hangs a node in below another one; returns what is at the top then.
    fn hang(&mut self, top: u32, new: u32) -> u32 {
        if top == NIL {
            return new;
        }
        let (page, here) = (self.at(new).page, self.at(top).page);
        if page < here {
            let left = self.hang(self.at(top).left, new);
            self.at_mut(top).left = left;
            if priority(self.at(left).page) > priority(here) {
                // Rotates right.
                self.at_mut(top).left = self.at(left).right;
                self.at_mut(left).right = top;
                return left;
            }
        } else {
            let right = self.hang(self.at(top).right, new);
            self.at_mut(top).right = right;
            if priority(self.at(right).page) > priority(here) {
                self.at_mut(top).right = self.at(right).left;
                self.at_mut(right).left = top;
                return right;
            }
        }
        top
    }

    /// One tree of two, all pages of the first being smaller.
    fn merge(&mut self, left: u32, right: u32) -> u32 {
        if left == NIL || right == NIL {
            return if left == NIL { right } else { left };
        }
        if priority(self.at(left).page) > priority(self.at(right).page) {
            let below = self.merge(self.at(left).right, right);
            self.at_mut(left).right = below;
            left
        } else {
            let below = self.merge(left, self.at(right).left);
            self.at_mut(right).left = below;
            right
        }
    }
}

impl Default for Treap {
    fn default() -> Self {
        Self::new()
    }
}

impl Ordered for Treap {
    fn at_or_after(&self, page: u64) -> u32 {
        let (mut node, mut found) = (self.root, NIL);
        while node != NIL {
            let here = self.at(node);
            if here.page >= page {
                found = node;
                node = here.left;
            } else {
                node = here.right;
            }
        }
        found
    }

    fn after(&self, node: u32) -> u32 {
        self.at(node).page.checked_add(1).map_or(NIL, |next| self.at_or_after(next))
    }

    fn entry(&self, node: u32) -> (u64, NonZeroU64, u8) {
        let here = self.at(node);
        (here.page, here.word, here.tags)
    }
}

impl PageIndex for Treap {
    fn lookup(&self, page: u64) -> Option<NonZeroU64> {
        self.find(page).map(|node| self.at(node).word)
    }

    fn insert(&mut self, page: u64, word: NonZeroU64) -> Result<(), OutOfMemory> {
        let fresh = Node { page, word, left: NIL, right: NIL, tags: 0 };
        let new = if self.free == NIL {
            fallible::try_push(&mut self.nodes, fresh)?;
            self.nodes.len() as u32 - 1
        } else {
            let new = self.free;
            self.free = self.at(new).left;
            *self.at_mut(new) = fresh;
            new
        };
        self.root = self.hang(self.root, new);
        Ok(())
    }

    fn remove(&mut self, page: u64) -> Option<NonZeroU64> {
        let node = self.find(page)?;
        let (left, right) = (self.at(node).left, self.at(node).right);
        let merged = self.merge(left, right);
        let mut above = self.root;
        if above == node {
            self.root = merged;
        } else {
            loop {
                let here = self.at_mut(above);
                let link = if page < here.page { &mut here.left } else { &mut here.right };
                if *link == node {
                    *link = merged;
                    break;
                }
                above = *link;
            }
        }
        self.at_mut(node).left = self.free;
        self.free = node;
        Some(self.at(node).word)
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
