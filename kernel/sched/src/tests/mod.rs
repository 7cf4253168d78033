//! Behaviour of the whole scheduler on hosted machines.
