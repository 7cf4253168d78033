//! What to do when reclaim finds nothing more.
