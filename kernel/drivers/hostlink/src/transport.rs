//! What carries the link: a reliable stream of bytes in both directions.

use sched::WaitQueue;

/// A byte stream to the host: a serial port, or whatever else a machine has.
pub trait Transport: Send + Sync {
    /// Queues all the pieces, one after the other with nothing in between, or none of them. Does not wait.
    fn try_write_all(&self, pieces: &[&[u8]]) -> bool;

    /// How many bytes can be queued now.
    fn transmit_room(&self) -> usize;

    /// Whether everything queued has left.
    fn is_drained(&self) -> bool;

    /// Woken when room appears, and when everything has left.
    fn room_queue(&self) -> &WaitQueue;

    /// Takes received bytes out and returns their number. Does not wait.
    fn read(&self, target: &mut [u8]) -> usize;

    /// Whether there are bytes to read.
    fn has_data(&self) -> bool;

    /// Woken when bytes arrive.
    fn data_queue(&self) -> &WaitQueue;

    /// Sends what is queued and then these bytes by polling: for a panic, when nobody else runs.
    fn write_in_panic(&self, bytes: &[u8]);
}
