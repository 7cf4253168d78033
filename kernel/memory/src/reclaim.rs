//! Caches that can give memory back.
