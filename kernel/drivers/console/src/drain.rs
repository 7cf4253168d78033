//! Who moves a terminal's output to its device.
//!
//! States: *idle* → *draining*, by the thread that made output or let it go on → *handed over* to the drain's own thread, when there is no room or more
//! than [`INLINE_BYTES_MAX`] have been moved → idle, when there is no more output. One drains at a time, so bytes keep their order; a request that comes meanwhile
//! makes the running one go round again. Only the drain's own thread waits for room: a writer that drained as long as there is output would serve
//! all others, and the thread that receives what is typed would not come to the ^C that ends them.

use core::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use sched::WaitQueue;
use sync::SpinLock;

/// Bytes per frame of terminal output.
pub(crate) const CHUNK_BYTES: usize = 256;
/// Most bytes that a request moves itself: two of a terminal's queues.
const INLINE_BYTES_MAX: usize = 8192;

const IDLE: u8 = 0;
const DRAINING: u8 = 1;
const AGAIN: u8 = 2;

/// Bytes between the terminal's queue and the device.
struct Chunk {
    bytes: [u8; CHUNK_BYTES],
    from: usize,
    to: usize,
}

impl Chunk {
    const fn new() -> Self {
        Self { bytes: [0; CHUNK_BYTES], from: 0, to: 0 }
    }

    /// What is to be sent next; nothing when there is no more output.
    fn rest(&mut self, take: &impl Fn(&mut [u8]) -> usize) -> &[u8] {
        if self.from == self.to {
            (self.from, self.to) = (0, take(&mut self.bytes));
        }
        &self.bytes[self.from..self.to]
    }
}

/// See the theory of this file.
pub(crate) struct Drain {
    /// IDLE, DRAINING, or DRAINING with another round wanted.
    state: AtomicU8,
    /// The drain's thread is to take over. Set by who drains.
    handed_over: AtomicBool,
    /// What was in hand then. Written by who drains.
    left: SpinLock<Chunk>,
    /// Bytes that the device has taken.
    sent: AtomicUsize,
    /// Somebody waits in [`Drain::settle`].
    settling: AtomicBool,
    /// Where the drain's thread waits for work.
    work: WaitQueue,
    /// Where others wait for the drain.
    progress: WaitQueue,
}

impl Drain {
    pub(crate) const fn new() -> Self {
        Self {
            state: AtomicU8::new(IDLE),
            handed_over: AtomicBool::new(false),
            left: SpinLock::new(Chunk::new()),
            sent: AtomicUsize::new(0),
            settling: AtomicBool::new(false),
            work: WaitQueue::new(),
            progress: WaitQueue::new(),
        }
    }

    /// There may be output: `take` gives it, `try_send` says how many bytes the device took, none if it has no room. Does not wait.
    pub(crate) fn request(
        &self,
        take: impl Fn(&mut [u8]) -> usize,
        try_send: impl Fn(&[u8]) -> Option<usize>,
    ) {
        // AcqRel: whoever finds DRAINING leaves the work to the drainer, which looks again after AGAIN.
        if self.state.swap(AGAIN, Ordering::AcqRel) != IDLE {
            return;
        }
        let mut chunk = Chunk::new();
        let mut moved = 0;
        loop {
            self.state.swap(DRAINING, Ordering::AcqRel);
            loop {
                let rest = chunk.rest(&take);
                if rest.is_empty() {
                    break;
                }
                let count = if moved < INLINE_BYTES_MAX { try_send(rest) } else { None };
                let Some(count) = count else { return self.hand_over(chunk) };
                chunk.from += count;
                moved += count;
                self.sent.fetch_add(count, Ordering::Relaxed);
            }
            if self.end_round() {
                return;
            }
        }
    }

    fn hand_over(&self, chunk: Chunk) {
        *self.left.lock() = chunk;
        // Release: pairs with the Acquire in `serve`.
        self.handed_over.store(true, Ordering::Release);
        self.work.wake_all();
    }

    /// Nothing was left. False if there may be something again.
    fn end_round(&self) -> bool {
        let done = self.state.compare_exchange(DRAINING, IDLE, Ordering::SeqCst, Ordering::Acquire).is_ok();
        if done {
            self.tell();
        }
        done
    }

    /// Wakes who waits for the drain.
    pub(crate) fn tell(&self) {
        if self.settling.load(Ordering::SeqCst) {
            self.progress.wake_all();
        }
    }

    /// The work of the drain's own thread, if there is some: `send` waits until the device takes bytes, and gives None when it never will.
    pub(crate) fn serve(&self, take: impl Fn(&mut [u8]) -> usize, send: impl Fn(&[u8]) -> Option<usize>) {
        if !self.handed_over.swap(false, Ordering::Acquire) {
            return;
        }
        let mut chunk = core::mem::replace(&mut *self.left.lock(), Chunk::new());
        loop {
            self.state.swap(DRAINING, Ordering::AcqRel);
            loop {
                let rest = chunk.rest(&take);
                if rest.is_empty() {
                    break;
                }
                let count = send(rest).unwrap_or(rest.len());
                chunk.from += count;
                self.sent.fetch_add(count, Ordering::SeqCst);
                self.tell();
            }
            if self.end_round() {
                return;
            }
        }
    }

    /// Waits for work for the drain's thread.
    pub(crate) fn wait_for_work(&self) {
        // Nobody signals this thread; the wait is of the interruptible kind because a thread that waits for its device is idle, not busy.
        let _ = self.work.wait_interruptible(|| self.handed_over.load(Ordering::Acquire));
    }

    /// Waits until nothing is left that could be sent, or so many bytes more have been, or it is over.
    pub(crate) fn settle(&self, bytes: usize, is_over: impl Fn() -> bool) {
        let before = self.sent.load(Ordering::SeqCst);
        self.settling.store(true, Ordering::SeqCst);
        self.progress.wait_until(|| {
            self.state.load(Ordering::SeqCst) == IDLE
                || self.sent.load(Ordering::SeqCst).wrapping_sub(before) >= bytes
                || is_over()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::{Cell, RefCell};
    use std::vec::Vec;

    /// Numbers its bytes, and has so many.
    struct Source {
        next: Cell<usize>,
        end: usize,
    }

    impl Source {
        fn take(&self, into: &mut [u8]) -> usize {
            let count = into.len().min(self.end - self.next.get());
            for byte in &mut into[..count] {
                *byte = self.next.get() as u8;
                self.next.set(self.next.get() + 1);
            }
            count
        }
    }

    #[test]
    fn request_under_a_flood_ends_and_the_rest_follows_in_order() {
        let drain = Drain::new();
        let source = Source { next: Cell::new(0), end: 100_000 };
        let sent = RefCell::new(Vec::new());
        let send = |bytes: &[u8]| {
            sent.borrow_mut().extend_from_slice(bytes);
            Some(bytes.len())
        };
        drain.request(|into| source.take(into), send);
        assert_eq!(sent.borrow().len(), INLINE_BYTES_MAX);
        drain.request(|into| source.take(into), send);
        assert_eq!(sent.borrow().len(), INLINE_BYTES_MAX, "the drain's thread has it");
        drain.serve(|into| source.take(into), send);
        let all: Vec<u8> = (0..100_000_usize).map(|number| number as u8).collect();
        assert!(*sent.borrow() == all);
        drain.settle(usize::MAX, || false);
    }

    #[test]
    fn request_without_room_keeps_what_it_took_and_does_not_wait() {
        let drain = Drain::new();
        let source = Source { next: Cell::new(0), end: 300 };
        let sent = RefCell::new(Vec::new());
        let room = Cell::new(10);
        let try_send = |bytes: &[u8]| {
            let count = bytes.len().min(room.replace(0));
            sent.borrow_mut().extend_from_slice(&bytes[..count]);
            (count > 0).then_some(count)
        };
        drain.request(|into| source.take(into), try_send);
        assert_eq!((sent.borrow().len(), source.next.get()), (10, CHUNK_BYTES));
        drain.serve(
            |into| source.take(into),
            |bytes| {
                room.set(7);
                try_send(bytes)
            },
        );
        let all: Vec<u8> = (0..300_usize).map(|number| number as u8).collect();
        assert!(*sent.borrow() == all);
        // It is idle again: a request drains.
        let more = Source { next: Cell::new(0), end: 5 };
        room.set(5);
        drain.request(|into| more.take(into), try_send);
        assert_eq!(sent.borrow().len(), 305);
    }

    #[test]
    fn output_made_while_draining_is_drained() {
        let drain = Drain::new();
        let (first, second) = (Source { next: Cell::new(0), end: 3 }, Source { next: Cell::new(0), end: 4 });
        let sent = Cell::new(0);
        let is_second = Cell::new(false);
        let take = |into: &mut [u8]| if is_second.get() { second.take(into) } else { first.take(into) };
        let send = |bytes: &[u8]| {
            sent.set(sent.get() + bytes.len());
            Some(bytes.len())
        };
        drain.request(
            |into| {
                let count = take(into);
                if count == 0 && !is_second.replace(true) {
                    // Another one makes output between the look and the end of the round.
                    drain.request(take, send);
                }
                count
            },
            send,
        );
        assert_eq!(sent.get(), 7);
    }
}
