//! The segments of a pipe, oldest first.

use alloc::collections::VecDeque;

use memory::frame::Frame;

use super::moving::Segment;
use crate::{Error, Result};

/// A bounded queue of segments with one spare frame.
pub(super) struct Ring {
    segments: VecDeque<Segment>,
    capacity: usize,
    bytes: usize,
    /// A frame that nobody else uses, kept so that a ping-pong of small messages allocates nothing.
    spare: Option<Frame>,
}

impl Ring {
    pub(super) fn new(capacity: usize) -> Result<Self> {
        let mut ring = Self { segments: VecDeque::new(), capacity, bytes: 0, spare: None };
        ring.reserve(capacity)?;
        Ok(ring)
    }

    fn reserve(&mut self, capacity: usize) -> Result<()> {
        crate::allocation::fail_point()?;
        let additional = capacity.saturating_sub(self.segments.len());
        self.segments.try_reserve_exact(additional).map_err(|_| Error::OutOfMemory)
    }

    pub(super) fn resize(&mut self, capacity: usize) -> Result<()> {
        assert!(capacity >= self.segments.len(), "the caller checked that nothing is lost");
        self.reserve(capacity)?;
        self.capacity = capacity;
        Ok(())
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn len(&self) -> usize {
        self.segments.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_full(&self) -> bool {
        self.segments.len() >= self.capacity
    }

    pub(super) fn first_mut(&mut self) -> Option<&mut Segment> {
        self.segments.front_mut()
    }

    pub(super) fn last_mut(&mut self) -> Option<&mut Segment> {
        self.segments.back_mut()
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut Segment> {
        self.segments.get_mut(at)
    }

    /// Puts a segment back that was just taken out.
    pub(super) fn push_front(&mut self, segment: Segment) {
        self.bytes += segment.length;
        self.segments.push_front(segment);
    }

    /// Appends a segment; there is room.
    pub(super) fn push(&mut self, segment: Segment) {
        assert!(!self.is_full(), "the caller checked for room");
        self.bytes += segment.length;
        self.segments.push_back(segment);
    }

    /// Bytes were taken from the first segment.
    pub(super) fn consumed(&mut self, bytes: usize) {
        self.bytes -= bytes;
    }

    /// Bytes were added to the last segment.
    pub(super) fn produced(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Removes the first segment with what is left in it.
    pub(super) fn drop_first(&mut self) {
        if let Some(segment) = self.segments.pop_front() {
            self.bytes -= segment.length;
            self.keep_spare(segment.frame);
        }
    }

    /// Removes the first segment, which is empty.
    pub(super) fn recycle_first(&mut self) {
        debug_assert!(self.segments.front().is_some_and(|segment| segment.length == 0));
        self.drop_first();
    }

    /// Takes the first segment out.
    pub(super) fn pop(&mut self) -> Option<Segment> {
        let segment = self.segments.pop_front()?;
        self.bytes -= segment.length;
        Some(segment)
    }

    pub(super) fn take_spare(&mut self) -> Option<Frame> {
        self.spare.take()
    }

    /// Keeps a frame for the next write, if nobody else has it.
    pub(super) fn keep_spare(&mut self, frame: Frame) {
        if self.spare.is_none() && frame.references() == 1 {
            self.spare = Some(frame);
        }
    }
}
