//! The callbacks of a CPU in the order in which they were queued, cut into segments by the grace period they wait for.
//!
//! | segment | its callbacks |
//! |---|---|
//! | NEXT | were queued; no grace period was asked for yet |
//! | READY | wait for the grace period after the running one |
//! | WAIT | wait for the running grace period, or the one about to start |
//! | DONE | may run |
//!
//! Callbacks move NEXT → READY or WAIT in [`Segments::assign`] and READY → WAIT → DONE in [`Segments::advance`], whole segments
//! at a time, without a look at a single callback. Invariants: the number of WAIT is below that of READY; a callback never moves to a segment with a
//! lower number than the one asked for after it was queued; order is kept.

use super::callback::{Header, List};

struct Segment {
    list: List,
    /// The grace period it waits for, if it is not empty.
    number: u64,
}

impl Segment {
    const fn new() -> Self {
        Self { list: List::new(), number: 0 }
    }
}

/// The callbacks of a CPU and flavour.
pub(super) struct Segments {
    done: List,
    wait: Segment,
    ready: Segment,
    next: List,
}

impl Segments {
    pub(super) const fn new() -> Self {
        Self { done: List::new(), wait: Segment::new(), ready: Segment::new(), next: List::new() }
    }

    /// Queues a callback.
    pub(super) fn push(&mut self, header: *mut Header) {
        self.next.push(header);
    }

    /// Moves on what waited for grace periods up to this one.
    pub(super) fn advance(&mut self, completed: u64) {
        for _ in 0..2 {
            if !self.wait.list.is_empty() && completed >= self.wait.number {
                self.done.append(&mut self.wait.list);
            }
            if self.wait.list.is_empty() {
                core::mem::swap(&mut self.wait, &mut self.ready);
            }
        }
    }

    /// Whether there are callbacks for which no grace period was asked.
    pub(super) fn is_unassigned(&self) -> bool {
        !self.next.is_empty()
    }

    /// Lets what was queued wait for this grace period, which was asked for after it was queued; after
    /// [`Segments::advance`]. If there is no segment for that number, it stays for the next time.
    pub(super) fn assign(&mut self, number: u64) {
        for segment in [&mut self.wait, &mut self.ready] {
            if segment.list.is_empty() || segment.number == number {
                segment.number = number;
                segment.list.append(&mut self.next);
                return;
            }
        }
    }

    /// Takes up to so many callbacks that may run; returns how many.
    pub(super) fn take_done(&mut self, count: u64) -> (List, u64) {
        self.done.take(count)
    }

    /// Whether callbacks may run.
    pub(super) fn has_done(&self) -> bool {
        !self.done.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // SAFETY: it does nothing, whatever it is given.
    unsafe fn nothing(_header: *mut Header) -> usize {
        1
    }

    fn header() -> *mut Header {
        Box::into_raw(Box::new(Header::new(nothing)))
    }

    fn done(segments: &mut Segments) -> Vec<*mut Header> {
        let (mut list, count) = segments.take_done(u64::MAX);
        let headers: Vec<_> = core::iter::from_fn(|| list.pop()).collect();
        assert_eq!(headers.len() as u64, count);
        headers
    }

    fn free(headers: Vec<*mut Header>) {
        for header in headers {
            // SAFETY: made by `header`, and in no list any more.
            drop(unsafe { Box::from_raw(header) });
        }
    }

    #[test]
    fn segments_wait_for_their_own_grace_periods_in_order() {
        let mut segments = Segments::new();
        let headers: Vec<_> = (0..4).map(|_| header()).collect();
        segments.push(headers[0]);
        segments.assign(5);
        segments.push(headers[1]);
        segments.assign(6);
        segments.push(headers[2]);
        segments.assign(6);
        segments.push(headers[3]);
        segments.assign(7);
        assert!(segments.is_unassigned(), "no segment for a third number");
        segments.advance(4);
        assert!(!segments.has_done());
        segments.advance(5);
        assert_eq!(done(&mut segments), headers[..1]);
        segments.assign(7);
        assert!(!segments.is_unassigned());
        segments.advance(7);
        assert_eq!(done(&mut segments), headers[1..]);
        free(headers);
    }

    #[test]
    fn both_segments_may_be_done_at_once() {
        let mut segments = Segments::new();
        let headers: Vec<_> = (0..2).map(|_| header()).collect();
        segments.push(headers[0]);
        segments.assign(1);
        segments.push(headers[1]);
        segments.assign(2);
        segments.advance(2);
        assert_eq!(done(&mut segments), headers);
        free(headers);
    }
}
