//! Senders that wait for one receiver: by priority, first come first served within one (specs/fiasco-mp.md, item 28d).
//!
//! One list of all, ordered, linked both ways; and one of the first sender of each priority, so that a new sender finds its place in as many
//! steps as there are priorities (100 at most), not senders. Any sender can be taken out in constant time: a time-out, a cancellation or
//! a receiver that waits for just this one. The links are in the senders' blocks, the head is in the receiver's; all are written by the CPU
//! that owns the receiver.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::block::{Links, LocalBlock, RemoteBlock};
use crate::id::ThreadId;
use crate::registry;

/// The ends of a queue.
pub(crate) struct QueueHead {
    first: AtomicU32,
    last: AtomicU32,
}

fn get(word: &AtomicU32) -> u32 {
    word.load(Ordering::Relaxed)
}

fn put(word: &AtomicU32, value: u32) {
    word.store(value, Ordering::Relaxed);
}

impl QueueHead {
    pub(crate) const fn new() -> Self {
        Self { first: AtomicU32::new(0), last: AtomicU32::new(0) }
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        get(&self.first) == 0
    }
}

/// A queued block and its links.
fn queued(receiver: &LocalBlock<'_>, index: u32) -> (RemoteBlock, &'static Links) {
    let sender = registry::block(index).expect("a queued sender has a block");
    (sender, receiver.links_of(sender).links)
}

/// Puts a sender behind all of its priority.
pub(crate) fn push(receiver: &LocalBlock<'_>, sender: RemoteBlock) {
    let (head, index, priority) = (receiver.queue(), sender.index(), sender.priority());
    let own = receiver.links_of(sender).links;
    debug_assert_eq!(get(&own.queued_at), 0, "a sender waits in one queue");
    put(&own.queued_at, receiver.remote().index());
    // Priority by priority: the last group that goes before this sender, and the one after it.
    let (mut before, mut after) = (0, get(&head.first));
    while after != 0 {
        let (other, links) = queued(receiver, after);
        if other.priority() < priority {
            break;
        }
        (before, after) = (after, get(&links.next_group));
    }
    let joins = before != 0 && queued(receiver, before).0.priority() == priority;
    // Its place in the list of all: before the next group.
    let previous = match after {
        0 => get(&head.last),
        after => get(&queued(receiver, after).1.previous),
    };
    put(&own.next, after);
    put(&own.previous, previous);
    match previous {
        0 => put(&head.first, index),
        previous => put(&queued(receiver, previous).1.next, index),
    }
    match after {
        0 => put(&head.last, index),
        after => put(&queued(receiver, after).1.previous, index),
    }
    if joins {
        return;
    }
    put(&own.next_group, after);
    put(&own.previous_group, before);
    if before != 0 {
        put(&queued(receiver, before).1.next_group, index);
    }
    if after != 0 {
        put(&queued(receiver, after).1.previous_group, index);
    }
}

/// Whether this sender waits here.
pub(crate) fn holds(receiver: &LocalBlock<'_>, sender: RemoteBlock) -> bool {
    sender.queued_at() == receiver.remote().index()
}

/// Takes a sender out.
pub(crate) fn remove(receiver: &LocalBlock<'_>, sender: RemoteBlock) {
    let (head, index) = (receiver.queue(), sender.index());
    let own = receiver.links_of(sender).links;
    debug_assert_eq!(get(&own.queued_at), receiver.remote().index(), "only a queued sender is taken out");
    let (next, previous) = (get(&own.next), get(&own.previous));
    let leads = previous == 0 || queued(receiver, previous).0.priority() != sender.priority();
    if leads {
        let (next_group, previous_group) = (get(&own.next_group), get(&own.previous_group));
        // The next of its priority leads the group from now on, or there is none any more.
        let heir = if next != next_group { next } else { 0 };
        if heir != 0 {
            let links = queued(receiver, heir).1;
            put(&links.next_group, next_group);
            put(&links.previous_group, previous_group);
        }
        if previous_group != 0 {
            let follower = if heir != 0 { heir } else { next_group };
            put(&queued(receiver, previous_group).1.next_group, follower);
        }
        if next_group != 0 {
            let leader = if heir != 0 { heir } else { previous_group };
            put(&queued(receiver, next_group).1.previous_group, leader);
        }
    }
    match previous {
        0 => put(&head.first, next),
        previous => put(&queued(receiver, previous).1.next, next),
    }
    match next {
        0 => put(&head.last, previous),
        next => put(&queued(receiver, next).1.previous, previous),
    }
    debug_assert_ne!(get(&head.first), index);
    put(&own.queued_at, 0);
}

/// The first sender from whom the receiver would take a message now.
#[inline(always)]
pub(crate) fn first(receiver: &LocalBlock<'_>, from: ThreadId) -> Option<RemoteBlock> {
    if receiver.queue().is_empty() { None } else { first_of_some(receiver.again(), from) }
}

/// [`first`] of a queue that is not empty.
#[inline(never)]
fn first_of_some(receiver: LocalBlock<'_>, from: ThreadId) -> Option<RemoteBlock> {
    if from != ThreadId::ANYBODY {
        let sender = registry::block(from.index())?;
        return (sender.is(from) && holds(&receiver, sender)).then_some(sender);
    }
    Some(queued(&receiver, get(&receiver.queue().first)).0)
}
