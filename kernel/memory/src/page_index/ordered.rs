//! Gang look-ups of the alternatives that keep pages in order: one page after the other.

use super::Tag;
use core::num::NonZeroU64;

/// No node.
pub(super) const NIL: u32 = u32::MAX;

/// A structure whose nodes can be visited in the order of their pages.
pub(super) trait Ordered {
    /// The node of the first page at or after this one, or [`NIL`].
    fn at_or_after(&self, page: u64) -> u32;

    /// The node of the next page.
    fn after(&self, node: u32) -> u32;

    /// Page, word and tags, a bit each.
    fn entry(&self, node: u32) -> (u64, NonZeroU64, u8);
}

/// Fills `into` with pages from `first` on.
pub(super) fn gang(
    index: &impl Ordered,
    first: u64,
    tag: Option<Tag>,
    into: &mut [(u64, NonZeroU64)],
) -> usize {
    let mut filled = 0;
    let mut node = index.at_or_after(first);
    while node != NIL && filled < into.len() {
        let (page, word, tags) = index.entry(node);
        if tag.is_none_or(|tag| tags & (1 << tag as u8) != 0) {
            into[filled] = (page, word);
            filled += 1;
        }
        node = index.after(node);
    }
    filled
}
