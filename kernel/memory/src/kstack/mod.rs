//! Demand-paged kernel stacks.

mod geometry;
