//! Allocation that reports failure instead of ending the kernel.
