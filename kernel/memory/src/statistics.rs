//! Numbers about memory for /proc.
