//! Demand-paged kernel stacks.
