//! Nodes of the radix tree, and the words in their slots.
//!
//! A slot holds nothing, a node, a page's word, or [`MOVED`]. The lowest bits tell them apart: a page's word has bit 1 clear,
//! a node's address has it set, and `MOVED` is that bit alone. Slots are pointers, so that nodes keep their provenance.

use super::index::{TAGS, Tag};
use core::num::NonZeroU64;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// What a slot contains.
pub(super) type Word = *mut ();

/// Set in the word of a node.
const NODE: usize = 2;

/// In the first slot of a leaf that was the whole tree and has gone, because page 0 was left alone: look in the root again.
pub(super) const MOVED: Word = ptr::without_provenance_mut(NODE);

/// An empty slot.
pub(super) const EMPTY: Word = ptr::null_mut();

/// log2 of the slots that the kernel's nodes have.
pub const SHIFT: u32 = 6;

/// A number of slots, as a power of two, that nodes can have.
pub struct Shift<const SHIFT: u32>;

/// Slots and marks of a node: what a [`Shift`] stands for.
pub trait Fanout: 'static {
    /// The slots.
    type Slots: AsRef<[AtomicPtr<()>]> + Send + Sync;
    /// One bit for each.
    type Marks: AsRef<[AtomicU64]> + Send + Sync;
    /// Slots with nothing in them.
    fn no_slots() -> Self::Slots;
    /// Bits that are clear.
    fn no_marks() -> Self::Marks;
}

macro_rules! fanouts {
    ($($shift:literal),*) => {$(
        impl Fanout for Shift<$shift> {
            type Slots = [AtomicPtr<()>; 1 << $shift];
            type Marks = [AtomicU64; (1_usize << $shift).div_ceil(64)];
            #[inline(always)]
            fn no_slots() -> Self::Slots {
                [const { AtomicPtr::new(EMPTY) }; 1 << $shift]
            }
            #[inline(always)]
            fn no_marks() -> Self::Marks {
                [const { AtomicU64::new(0) }; (1_usize << $shift).div_ceil(64)]
            }
        }
    )*};
}

// The widths that the paper measured, and the one that was common before.
fanouts!(4, 6, 7, 8, 10, 12);

/// A node. Editors write it under the tree's lock; readers look at slots and marks at any time.
pub(super) struct Node<const SHIFT: u32>
where
    Shift<SHIFT>: Fanout,
{
    pub(super) slots: <Shift<SHIFT> as Fanout>::Slots,
    marks: [<Shift<SHIFT> as Fanout>::Marks; TAGS],
    /// The node whose slot this one is in; null at the root. For editors only.
    pub(super) parent: AtomicPtr<Node<SHIFT>>,
    /// 0: slots hold pages. Constant once the node is published.
    pub(super) level: AtomicU32,
    /// Slots in use. For editors only.
    pub(super) used: AtomicU32,
}

const _: () = assert!(size_of::<Node<6>>() + 16 <= 576, "with RCU's header it fits its size class");

impl<const SHIFT: u32> Node<SHIFT>
where
    Shift<SHIFT>: Fanout,
{
    pub(super) const SLOTS: usize = 1 << SHIFT;

    pub(super) fn new() -> Self {
        Node {
            slots: Shift::<SHIFT>::no_slots(),
            marks: [Shift::<SHIFT>::no_marks(), Shift::<SHIFT>::no_marks(), Shift::<SHIFT>::no_marks()],
            parent: AtomicPtr::new(ptr::null_mut()),
            level: AtomicU32::new(0),
            used: AtomicU32::new(0),
        }
    }

    #[inline(always)]
    pub(super) fn level(&self) -> u32 {
        self.level.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(super) fn slot(&self, number: usize) -> &AtomicPtr<()> {
        &self.slots.as_ref()[number & (Self::SLOTS - 1)]
    }

    /// The slot of this node that leads to a page.
    #[inline(always)]
    pub(super) fn number(page: u64, level: u32) -> usize {
        (page >> (SHIFT * level)) as usize & (Self::SLOTS - 1)
    }

    /// Whether the page's number is small enough for a tree with this root.
    #[inline(always)]
    pub(super) fn reaches(&self, page: u64) -> bool {
        page >> (SHIFT * self.level()) >> SHIFT == 0
    }

    /// Pages below one slot.
    pub(super) fn pages_per_slot(level: u32) -> u64 {
        1_u64.checked_shl(SHIFT * level).unwrap_or(u64::MAX)
    }

    #[inline(always)]
    fn mark(&self, tag: Tag, number: usize) -> (&AtomicU64, u64) {
        (&self.marks[tag as usize].as_ref()[number / 64 % (Self::SLOTS.div_ceil(64))], 1 << (number % 64))
    }

    #[inline(always)]
    pub(super) fn is_marked(&self, tag: Tag, number: usize) -> bool {
        let (word, bit) = self.mark(tag, number);
        word.load(Ordering::Acquire) & bit != 0
    }

    /// Sets or clears a mark. For editors.
    pub(super) fn set_mark(&self, tag: Tag, number: usize, marked: bool) {
        let (word, bit) = self.mark(tag, number);
        let former = word.load(Ordering::Relaxed);
        // Only editors write, one at a time.
        word.store(if marked { former | bit } else { former & !bit }, Ordering::Release);
    }

    /// Whether some slot has the mark.
    pub(super) fn has_marks(&self, tag: Tag) -> bool {
        self.marks[tag as usize].as_ref().iter().any(|word| word.load(Ordering::Acquire) != 0)
    }

    /// The first slot from `from` on with the mark.
    pub(super) fn next_mark(&self, tag: Tag, from: usize) -> Option<usize> {
        let words = self.marks[tag as usize].as_ref();
        let mut number = from;
        while number < Self::SLOTS {
            let rest = words[number / 64].load(Ordering::Acquire) >> (number % 64);
            if rest != 0 {
                return Some(number + rest.trailing_zeros() as usize);
            }
            number = (number / 64 + 1) * 64;
        }
        None
    }
}

/// The node that a word names, or null.
#[inline(always)]
pub(super) fn node_of<const SHIFT: u32>(word: Word) -> *mut Node<SHIFT>
where
    Shift<SHIFT>: Fanout,
{
    word.map_addr(|address| address & !NODE).cast()
}

/// The word of a node.
pub(super) fn word_of_node<const SHIFT: u32>(node: *mut Node<SHIFT>) -> Word
where
    Shift<SHIFT>: Fanout,
{
    node.cast::<()>().map_addr(|address| address | NODE)
}

/// Whether the word is a node's, or [`MOVED`].
#[inline(always)]
pub(super) fn leads_on(word: Word) -> bool {
    word.addr() & NODE != 0
}

/// The page's word.
#[inline(always)]
pub(super) fn page_word(word: Word) -> Option<NonZeroU64> {
    debug_assert!(!leads_on(word));
    NonZeroU64::new(word.addr() as u64)
}

/// The same for a slot.
#[inline(always)]
pub(super) fn word_of_page(word: NonZeroU64) -> Word {
    let word = ptr::without_provenance_mut(word.get() as usize);
    debug_assert!(!leads_on(word), "this bit is the tree's");
    word
}
