//! What carries the link: a reliable stream of bytes in both directions.

use sched::WaitQueue;

/// Who is told of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Queues {
    /// Woken when room appears, and when everything has left.
    pub room: &'static WaitQueue,
    /// Woken when bytes arrive.
    pub data: &'static WaitQueue,
}

/// A byte stream to the host: a serial port, or whatever else a machine has.
pub trait Transport: Send + Sync {
    /// Queues all the pieces, one after the other with nothing in between, or none of them. Does not wait.
    fn try_write_all(&self, pieces: &[&[u8]]) -> bool;

    /// How many bytes can be queued now.
    fn transmit_room(&self) -> usize;

    /// Whether everything queued has left.
    fn is_drained(&self) -> bool;

    /// Takes received bytes out and returns their number. Does not wait.
    fn read(&self, target: &mut [u8]) -> usize;

    /// Whether there are bytes to read.
    fn has_data(&self) -> bool;
}

/// The one on which a link begins. It stays for good.
pub trait FirstTransport: Transport {
    /// Queues the last bytes, a frame without payload, for which there is always room; from then on takes no others.
    fn retire(&self, last: &[u8]);

    /// Takes bytes again.
    fn resume(&self);

    /// Sends what is queued and then these bytes by polling: for a panic, when nobody else runs. Retired or not.
    fn write_in_panic(&self, bytes: &[u8]);
}

/// One to which a link moves. It has the queues of the first one woken.
pub trait SecondTransport: Transport {
    /// Whether it is not there any more, and takes and gives nothing.
    fn is_gone(&self) -> bool;
}
