//! What stands around the processors: found in the firmware's tables and set up in this order.

/// Finds and sets up interrupt controllers, clocks and the list of processors.
pub(crate) fn initialise() {
    crate::boot::trace("platform");
}
