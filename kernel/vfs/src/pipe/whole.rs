//! Messages through a pipe: for devices whose reads and writes are messages, which are spliced as a whole or not at all.

use alloc::vec::Vec;

use memory::buffer::Sink;
use memory::frame::{Frame, Purpose, Zeroed};

use super::end::Pipe;
use super::ring::{BUFFER_BYTES, Buffer};
use crate::{Error, Result, allocation};

impl Pipe {
    /// Puts a message in, without waiting for room.
    ///
    /// # Errors
    /// `EIO` if there is not room for all of it, `ENOMEM`. Nothing was put in then.
    pub fn put_whole(&self, message: &[u8]) -> Result<()> {
        let mut buffers = Vec::new();
        allocation::reserve(&mut buffers, message.len().div_ceil(BUFFER_BYTES))?;
        for part in message.chunks(BUFFER_BYTES) {
            let frame = Frame::allocate(Purpose::Pipe, Zeroed::No)?;
            frame.write(0, part);
            buffers.push(Buffer { frame, offset: 0, length: part.len(), own: true });
        }
        let was_empty = self.with_ring(|ring| {
            if ring.capacity.saturating_sub(ring.buffers.len()) < buffers.len() {
                return Err(Error::Io);
            }
            allocation::fail_point()?;
            ring.buffers.try_reserve(buffers.len()).map_err(|_| Error::OutOfMemory)?;
            let was_empty = ring.buffers.is_empty();
            ring.buffers.extend(buffers);
            Ok(was_empty)
        })?;
        self.written(was_empty);
        Ok(())
    }

    /// Takes a message of so many bytes out, without waiting for it.
    ///
    /// # Errors
    /// `EINVAL` if there are not so many, `ENOMEM`, `EINTR`. Nothing was taken out then.
    pub fn take_whole(&self, length: usize) -> Result<Vec<u8>> {
        let (was_full, message) = self.with_ring_to_take(|ring| {
            if ring.bytes() < length {
                return Err(Error::Invalid);
            }
            let was_full = ring.is_full();
            let mut message = allocation::filled(0, length)?;
            ring.drain(&mut Sink::kernel(&mut message))?;
            Ok((was_full, message))
        })??;
        self.taken(was_full);
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_goes_in_and_out_as_a_whole_or_not_at_all() {
        let pipe = Pipe::new().unwrap();
        let message: Vec<u8> = (0..3 * BUFFER_BYTES + 100).map(|at| at as u8).collect();
        pipe.put_whole(&message).unwrap();
        let room = (super::super::ring::CAPACITY_DEFAULT - 4) * BUFFER_BYTES;
        assert_eq!(pipe.put_whole(&allocation::filled(0, room + 1).unwrap()), Err(Error::Io));
        assert_eq!(pipe.take_whole(message.len() + 1), Err(Error::Invalid));
        assert_eq!(pipe.take_whole(message.len()), Ok(message));
        assert_eq!(pipe.take_whole(1), Err(Error::Invalid));
        assert!(pipe.is_empty());
    }
}
