//! Moving and sharing segments: what `splice`, `tee` and `vmsplice` are made of.

use memory::frame::Frame;

use super::Pipe;
use crate::Result;

/// Bytes of one frame in a pipe.
pub struct Segment {
    /// The frame; it may be shared with the page cache or another pipe, and is then never written here.
    pub frame: Frame,
    /// Where the bytes start.
    pub offset: usize,
    /// How many there are.
    pub length: usize,
    /// Whether later writes may append to the frame: only when the pipe made it.
    pub mergeable: bool,
    /// Whether it is read as a unit.
    pub packet: bool,
}

impl Segment {
    /// Bytes of a frame that others may use, too.
    pub fn shared(frame: Frame, offset: usize, length: usize) -> Self {
        assert!(offset + length <= memory::PAGE_SIZE, "a segment lies within its frame");
        Self { frame, offset, length, mergeable: false, packet: false }
    }

    fn share(&self, length: usize) -> Self {
        Self::shared(self.frame.clone(), self.offset, self.length.min(length))
    }
}

impl Pipe {
    /// Waits until something can be read (SPLICE_F_NONBLOCK: does not wait); false at the end of the file.
    ///
    /// # Errors
    /// [`Error::WouldBlock`], [`Error::Interrupted`].
    pub fn wait_readable(&self, non_block: bool) -> Result<bool> {
        self.await_data(non_block).map(|more| more && !(self.is_empty() && !self.has_writers()))
    }

    /// Waits until a segment can be added.
    ///
    /// # Errors
    /// [`Error::BrokenPipe`], [`Error::WouldBlock`], [`Error::Interrupted`].
    pub fn wait_writable(&self, non_block: bool) -> Result<()> {
        self.await_room(non_block)
    }

    /// Adds a segment without waiting; gives it back when there is no room.
    pub fn push_segment(&self, segment: Segment) -> core::result::Result<(), Segment> {
        let mut queue = self.queue.lock();
        if queue.is_full() {
            return Err(segment);
        }
        let was_empty = queue.len() == 0;
        queue.push(segment);
        self.publish(&queue);
        drop(queue);
        if was_empty {
            self.wake_readers();
        }
        Ok(())
    }

    /// Lets `consume` take bytes of the first segments, at most `length` in all, until it takes less than it is
    /// offered; it gets the frame, the offset and the number of bytes and returns how many it took. Returns the total.
    ///
    /// # Errors
    /// The first error of `consume` when nothing was taken.
    pub fn consume(
        &self,
        length: usize,
        mut consume: impl FnMut(&Frame, usize, usize) -> Result<usize>,
    ) -> Result<usize> {
        let mut total = 0;
        let mut outcome = Ok(());
        let mut queue = self.queue.lock();
        let was_full = queue.is_full();
        while total < length
            && let Some(segment) = queue.first_mut()
        {
            let offered = segment.length.min(length - total);
            match consume(&segment.frame, segment.offset, offered) {
                Ok(taken) => {
                    segment.offset += taken;
                    segment.length -= taken;
                    let emptied = segment.length == 0;
                    queue.consumed(taken);
                    total += taken;
                    if emptied {
                        queue.recycle_first();
                    }
                    if taken < offered {
                        break;
                    }
                }
                Err(error) => {
                    outcome = Err(error);
                    break;
                }
            }
        }
        self.publish(&queue);
        let wake = was_full && !queue.is_full();
        drop(queue);
        if wake {
            self.wake_writers();
        }
        if total > 0 { Ok(total) } else { outcome.map(|()| 0) }
    }

    /// Moves segments from this pipe to another, at most `length` bytes, as far as there are bytes here and room there.
    pub fn move_to(&self, other: &Self, length: usize) -> usize {
        let mut total = 0;
        while total < length && !other.is_full() {
            let Some(segment) = self.pop_segment(length - total) else { break };
            let moved = segment.length;
            match other.push_segment(segment) {
                Ok(()) => total += moved,
                Err(segment) => {
                    self.put_back(segment);
                    break;
                }
            }
        }
        total
    }

    fn pop_segment(&self, length: usize) -> Option<Segment> {
        let mut queue = self.queue.lock();
        let was_full = queue.is_full();
        let first = queue.first_mut()?;
        let segment = if first.length <= length {
            queue.pop()?
        } else {
            let part = first.share(length);
            first.offset += part.length;
            first.length -= part.length;
            // The frame is shared now: nothing may be appended to it.
            first.mergeable = false;
            queue.consumed(part.length);
            part
        };
        self.publish(&queue);
        drop(queue);
        if was_full {
            self.wake_writers();
        }
        Some(segment)
    }

    fn put_back(&self, segment: Segment) {
        let mut queue = self.queue.lock();
        queue.push_front(segment);
        self.publish(&queue);
        drop(queue);
        self.wake_readers();
    }

    /// Shares the first `length` bytes with another pipe without consuming them (tee). Returns how many.
    pub fn share_with(&self, other: &Self, length: usize) -> usize {
        let mut total = 0;
        let mut at = 0;
        while total < length {
            let shared = {
                let mut queue = self.queue.lock();
                let Some(segment) = queue.get_mut(at) else { break };
                segment.mergeable = false;
                segment.share(length - total)
            };
            let bytes = shared.length;
            if other.push_segment(shared).is_err() {
                break;
            }
            total += bytes;
            at += 1;
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use memory::buffer::{Sink, Source};

    fn open_pipe() -> Pipe {
        let pipe = Pipe::new().unwrap();
        pipe.open_both();
        pipe
    }

    fn read(pipe: &Pipe) -> alloc::vec::Vec<u8> {
        let mut bytes = alloc::vec![0; 100_000];
        let count = pipe.read(&mut Sink::kernel(&mut bytes), true).unwrap();
        bytes.truncate(count);
        bytes
    }

    #[test]
    fn moving_takes_bytes_from_one_pipe_to_the_other() {
        let (from, to) = (open_pipe(), open_pipe());
        from.write(&mut Source::kernel(b"abcdef"), true, false).unwrap();
        assert_eq!(from.move_to(&to, 4), 4);
        assert_eq!(read(&to), b"abcd");
        from.write(&mut Source::kernel(b"gh"), true, false).unwrap();
        assert_eq!(read(&from), b"efgh");
    }

    #[test]
    fn sharing_leaves_the_bytes_where_they_are() {
        let (from, to) = (open_pipe(), open_pipe());
        from.write(&mut Source::kernel(b"abc"), true, false).unwrap();
        assert_eq!(from.share_with(&to, 2), 2);
        from.write(&mut Source::kernel(b"def"), true, false).unwrap();
        assert_eq!(read(&to), b"ab");
        assert_eq!(read(&from), b"abcdef");
    }

    #[test]
    fn consuming_stops_where_the_consumer_stops() {
        let pipe = open_pipe();
        pipe.write(&mut Source::kernel(b"abcdef"), true, false).unwrap();
        assert_eq!(pipe.consume(6, |_, _, count| Ok(count.min(2))), Ok(2));
        assert_eq!(pipe.consume(6, |_, _, _| Err(Error::Io)), Err(Error::Io));
        assert_eq!(read(&pipe), b"cdef");
    }
}
