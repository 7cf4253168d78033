//! What becomes of locks when a thread ends.
//!
//! It has marked the words of its robust list before: whoever finds its number in one of those after [`close`] knows that the word has changed
//! or never will.
//!
//! One that is in no graph leaves without its lock: its number, 0 until then, says that it is closed, and [`Graph::wait`](super::graph::Graph::wait) makes
//! an owner of nobody of whom it says so. Both change it by compare-and-exchange, so one of them is first.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use super::{CLOSED, Contender, Locked};
use crate::process::thread::Thread;

/// Gives the locks of a thread that others wait for to the first of each queue. The thread ends or executes another program.
pub(crate) fn end(thread: &Arc<Thread>) {
    // Relaxed: others who make it a member find its number in a word, which was marked before.
    if thread.inheritance.load(Ordering::Relaxed) == 0 {
        return;
    }
    let contender = Contender { thread: thread.clone(), waiter: None };
    loop {
        // One at a time: others that want the graph need not wait for all of them.
        let mut locked = Locked::take();
        let Some(lock) = locked.graph.first_owned(&contender) else { return };
        locked.pass_on(lock, true);
    }
}

/// The thread ends: from now on it owns and waits for nothing. One that overflowed its kernel stack may be waiting still.
pub(crate) fn close(thread: &Arc<Thread>) {
    // Release: what it did to the words of its locks is seen by who finds it closed. Pairs with `claim` and `owner_of`.
    while thread.inheritance.compare_exchange(0, CLOSED, Ordering::Release, Ordering::Relaxed).is_err() {
        end(thread);
        Locked::take().withdraw(&Contender { thread: thread.clone(), waiter: None });
    }
}
