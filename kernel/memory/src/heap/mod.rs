//! The kernel heap.
