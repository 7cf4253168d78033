//! Regions - ranges of an address space with one protection and one backing object.
