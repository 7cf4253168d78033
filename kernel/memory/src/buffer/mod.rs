//! Where the bytes of a read go and the bytes of a write come from.
