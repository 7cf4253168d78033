//! The kernel heap.
mod class;
pub(crate) use class::MAX_SLAB_OBJECT;
/// Frees what can be freed.
pub(crate) fn shrink() -> usize {
    0
}
/// At hand.
pub(crate) fn is_at_hand(_layout: core::alloc::Layout) -> bool {
    true
}
