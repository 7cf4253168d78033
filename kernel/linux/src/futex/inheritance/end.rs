//! What becomes of locks when a thread ends.
//!
//! It has marked the words of its robust list before: whoever finds its number in one of those after [`close`] knows that the word has changed
//! or never will.

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
    let contender = Contender { thread: thread.clone(), waiter: None };
    loop {
        end(thread);
        let mut locked = Locked::take();
        locked.withdraw(&contender);
        if thread.inheritance.load(Ordering::Relaxed) == 0 {
            thread.inheritance.store(CLOSED, Ordering::Relaxed);
            return;
        }
    }
}
