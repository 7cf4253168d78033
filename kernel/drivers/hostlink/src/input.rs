//! What the host has sent and nobody has taken yet.
//!
//! Two buffers, each as big as the credit that the host has on its channel, so a host that keeps to the protocol never
//! overruns them; what a host sends beyond that is dropped. Locking: one spin lock for both; the wait queues are woken
//! after it is released.

use alloc::collections::VecDeque;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use hostlink_protocol::{Channel, INITIAL_CREDIT};
use memory::OutOfMemory;
use sched::WaitQueue;
use sync::SpinLock;

/// Capacity of each buffer.
const CAPACITY: usize = INITIAL_CREDIT as usize;
/// Credit is given back in pieces of at least this size, so that reading byte by byte does not send a frame for each.
const GRANT_BYTES_MIN: u32 = 4096;

/// Input on its way to readers.
pub(crate) struct Input {
    buffers: SpinLock<Buffers>,
    ready: WaitQueue,
    /// Bytes consumed of each channel for which the host has not got new credit.
    owed: [AtomicU32; 2],
    /// Something for the receiving thread to do besides receiving.
    attention: AtomicBool,
}

#[derive(Default)]
struct Buffers {
    standard: VecDeque<u8>,
    terminal: VecDeque<u8>,
    /// No standard input will follow.
    ended: bool,
}

impl Input {
    pub(crate) fn new() -> Result<Input, OutOfMemory> {
        let mut buffers = Buffers::default();
        for buffer in [&mut buffers.standard, &mut buffers.terminal] {
            buffer.try_reserve_exact(CAPACITY).map_err(|_| OutOfMemory)?;
        }
        Ok(Input {
            buffers: SpinLock::new(buffers),
            ready: WaitQueue::new(),
            owed: [const { AtomicU32::new(0) }; 2],
            attention: AtomicBool::new(false),
        })
    }

    /// Standard input has arrived. Returns false if some of it was dropped. What comes after its end is dropped without a word: the host did not know.
    pub(crate) fn arrived(&self, bytes: &[u8]) -> bool {
        let complete = {
            let mut buffers = self.buffers.lock();
            buffers.ended || append(&mut buffers.standard, bytes)
        };
        self.ready.wake_all();
        complete
    }

    /// Terminal input has arrived. Returns false if some of it was dropped.
    pub(crate) fn terminal_arrived(&self, bytes: &[u8]) -> bool {
        append(&mut self.buffers.lock().terminal, bytes)
    }

    /// The standard input has ended.
    pub(crate) fn end(&self) {
        self.buffers.lock().ended = true;
        self.ready.wake_all();
    }

    pub(crate) fn read(&self, target: &mut [u8]) -> Option<usize> {
        let mut buffers = self.buffers.lock();
        let count = copy_front(&buffers.standard, target);
        buffers.standard.drain(..count);
        (count > 0 || buffers.ended || target.is_empty()).then_some(count)
    }

    pub(crate) fn is_ready(&self) -> bool {
        let buffers = self.buffers.lock();
        buffers.ended || !buffers.standard.is_empty()
    }

    pub(crate) fn queue(&self) -> &WaitQueue {
        &self.ready
    }

    fn owed(&self, channel: Channel) -> &AtomicU32 {
        match channel {
            Channel::Stdin => &self.owed[0],
            Channel::TtyInput => &self.owed[1],
        }
    }

    /// Credit could not be given back now.
    pub(crate) fn owe(&self, channel: Channel, bytes: u32) {
        self.owed(channel).fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts consumed input; returns the credit to give back now.
    pub(crate) fn consumed(&self, channel: Channel, count: usize) -> u32 {
        let owed = self.owed(channel);
        let count = count as u32;
        let total = owed.fetch_add(count, Ordering::Relaxed) + count;
        if total < GRANT_BYTES_MIN { 0 } else { owed.swap(0, Ordering::Relaxed) }
    }

    /// A copy of the first bytes of the terminal's input.
    pub(crate) fn peek_terminal(&self, target: &mut [u8]) -> usize {
        copy_front(&self.buffers.lock().terminal, target)
    }

    /// The terminal has taken bytes that [`Input::peek_terminal`] showed.
    pub(crate) fn take_terminal(&self, count: usize) {
        let mut buffers = self.buffers.lock();
        let count = count.min(buffers.terminal.len());
        buffers.terminal.drain(..count);
    }

    /// Lets the receiving thread, when it is woken, look again at what it could not hand on.
    pub(crate) fn set_attention(&self) {
        // Release: pairs with the Acquire in `take_attention`.
        self.attention.store(true, Ordering::Release);
    }

    pub(crate) fn take_attention(&self) -> bool {
        self.attention.swap(false, Ordering::Acquire)
    }
}

fn append(buffer: &mut VecDeque<u8>, bytes: &[u8]) -> bool {
    // There is room for all of it since `Input::new`: nothing is allocated under the lock.
    let taken = bytes.len().min(CAPACITY - buffer.len());
    buffer.extend(&bytes[..taken]);
    taken == bytes.len()
}

fn copy_front(buffer: &VecDeque<u8>, target: &mut [u8]) -> usize {
    let (first, second) = buffer.as_slices();
    let straight = first.len().min(target.len());
    target[..straight].copy_from_slice(&first[..straight]);
    let rest = second.len().min(target.len() - straight);
    target[straight..straight + rest].copy_from_slice(&second[..rest]);
    straight + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_gets_bytes_then_nothing_then_the_end() {
        let input = Input::new().expect("memory");
        let mut target = [0; 4];
        assert_eq!(input.read(&mut target), None);
        assert!(input.arrived(b"abcdef"));
        assert_eq!(input.read(&mut target), Some(4));
        input.end();
        assert_eq!(input.read(&mut target), Some(2));
        assert_eq!(&target[..2], b"ef");
        assert_eq!(input.read(&mut target), Some(0));
        assert!(input.arrived(b"late"));
        assert_eq!(input.read(&mut target), Some(0), "the end is the end");
    }

    #[test]
    fn host_that_ignores_its_credit_loses_bytes_not_memory() {
        let input = Input::new().expect("memory");
        assert!(input.arrived(&std::vec![1; CAPACITY]));
        assert!(!input.arrived(b"more"));
    }

    #[test]
    fn room_for_all_credit_is_there_from_the_start() {
        let input = Input::new().expect("memory");
        let buffers = input.buffers.lock();
        assert!(buffers.standard.capacity() >= CAPACITY && buffers.terminal.capacity() >= CAPACITY);
    }

    #[test]
    fn credit_comes_back_in_pieces() {
        let input = Input::new().expect("memory");
        assert_eq!(input.consumed(Channel::Stdin, 1000), 0);
        assert_eq!(input.consumed(Channel::TtyInput, 3096), 0);
        assert_eq!(input.consumed(Channel::Stdin, 3096), 4096);
        assert_eq!(input.consumed(Channel::Stdin, 5000), 5000);
    }

    #[test]
    fn terminal_input_stays_until_it_is_taken() {
        let input = Input::new().expect("memory");
        assert!(input.terminal_arrived(b"typed"));
        let mut target = [0; 8];
        assert_eq!(input.peek_terminal(&mut target), 5);
        input.take_terminal(2);
        assert_eq!(input.peek_terminal(&mut target), 3);
        assert_eq!(&target[..3], b"ped");
    }
}
