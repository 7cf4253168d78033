//! On the host, time windows are always live: there is nothing to patch.

pub(crate) fn is_armed() -> bool {
    true
}
