//! User address spaces.
