//! Who waits for which lock, whose it is, and what urgency follows from that.
//!
//! A *member* is a thread that waits for a lock or owns one that others wait for; a *lock* is here while somebody waits for it, or while its
//! word is still to be written by a new owner whose predecessor died. Each lock has one owner and each member waits for one lock at most, so from a
//! member a *chain* leads over the lock that it waits for to that one's owner and so on. No chain is a ring: [`Graph::wait`] refuses to
//! close one.
//!
//! Invariants, when no method runs:
//! - A lock's queue is ordered by urgency, and by arrival among equals; each entry says the urgency of its member.
//! - What is lent to a member is the greatest urgency in the queues of the locks that it owns; its urgency is the greater of that and its own.
//! - A member waits for something or owns something.
//!
//! Each change touches one lock and then [`Graph::settle`]s what follows along the chain: a member's urgency, its place in the queue of the lock that
//! it waits for, that one's owner. It ends where nothing changes, and after [`CHAIN_MAX`] steps. On the way each queue and each list of owned locks is
//! looked through once, so all of it costs no more than there are waiting threads.
//!
//! Everything is in two arenas and named by index, which keeps it safe Rust without reference cycles. Only [`Graph::wait`] allocates.

use alloc::vec::Vec;

use memory::OutOfMemory;
use memory::fallible::try_reserve;
use sched::Urgency;

use super::arena::{Arena, Index};

/// Longest chain of owners. As on Linux: a longer one is no program's design.
pub(super) const CHAIN_MAX: usize = 1024;
/// Lists of locks by the hash of their keys.
const BUCKETS: usize = 256;

/// What a member is to the world outside.
pub(super) trait Party: Clone {
    /// How urgent it is by itself.
    fn own_urgency(&self) -> Urgency;
    /// Is told what it is lent.
    fn lend(&self, urgency: Urgency);
    /// Remembers its number here, unless it has ended: false then.
    fn claim(&self, number: u32) -> bool;
    /// Forgets its number.
    fn release(&self);
    /// What it remembers; 0 for nothing.
    fn number(&self) -> u32;
    /// Takes over what only one who waits has.
    fn begin_to_wait(&mut self, as_given: &Self);
}

/// Names a lock.
pub(super) trait LockKey: Copy + PartialEq {
    /// Spreads keys.
    fn spread(&self) -> usize;
}

/// Names a lock while it is in the graph.
pub(super) type LockIndex = Index<OfLocks>;

/// Why somebody can't wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It would wait for itself, or the chain is too long.
    Deadlock,
    Memory,
    /// The owner has ended.
    Ended,
}

impl From<OutOfMemory> for Refusal {
    fn from(_: OutOfMemory) -> Self {
        Refusal::Memory
    }
}

type MemberIndex = Index<OfMembers>;

/// Kinds of indices.
pub(super) enum OfLocks {}
enum OfMembers {}

struct Member<P> {
    party: P,
    waits_for: Option<LockIndex>,
    /// First of the locks that it owns.
    owned: Option<LockIndex>,
    lent: Urgency,
}

struct Lock<K> {
    key: K,
    owner: MemberIndex,
    queue: Vec<(Urgency, MemberIndex)>,
    /// Next of its owner's locks.
    next_owned: Option<LockIndex>,
    /// Next in its bucket.
    next_in_bucket: Option<LockIndex>,
    /// The owner has it from a dead one and has not written the word yet.
    unwritten: bool,
}

/// See the module.
pub(super) struct Graph<K, P> {
    members: Arena<Member<P>, OfMembers>,
    locks: Arena<Lock<K>, OfLocks>,
    buckets: [Option<LockIndex>; BUCKETS],
}

impl<K: LockKey, P: Party> Graph<K, P> {
    pub(super) const fn new() -> Self {
        Graph { members: Arena::new(), locks: Arena::new(), buckets: [None; BUCKETS] }
    }

    /// The lock of that key, if anybody waits for it.
    pub(super) fn find(&self, key: &K) -> Option<LockIndex> {
        let mut next = self.buckets[key.spread() % BUCKETS];
        while let Some(lock) = next {
            if self.locks[lock].key == *key {
                return next;
            }
            next = self.locks[lock].next_in_bucket;
        }
        None
    }

    /// Whose a lock is.
    pub(super) fn owner(&self, lock: LockIndex) -> &P {
        &self.members[self.locks[lock].owner].party
    }

    /// The most urgent of those that wait for a lock; nobody, where only the word is still to be written.
    pub(super) fn first_waiter(&self, lock: LockIndex) -> Option<&P> {
        self.locks[lock].queue.first().map(|&(_, member)| &self.members[member].party)
    }

    /// Whether a new owner has still to write the word.
    pub(super) fn is_unwritten(&self, lock: LockIndex) -> bool {
        self.locks[lock].unwritten
    }

    /// The first lock that somebody owns and others wait for.
    pub(super) fn first_owned(&self, party: &P) -> Option<LockIndex> {
        self.members[self.member(party)?].owned
    }

    /// Puts a thread into the queue of a lock. If nobody waited for that yet, it is `owner`'s.
    pub(super) fn wait(&mut self, key: K, owner: &P, waiter: &P) -> Result<(), Refusal> {
        let found = self.find(&key);
        let first = match found {
            Some(lock) => Some(self.locks[lock].owner),
            None => self.member(owner),
        };
        self.check_chain(first, waiter)?;
        // All that can fail, before anything is changed.
        self.members.reserve(2)?;
        self.locks.reserve(1)?;
        let mut queue = Vec::new();
        match found {
            Some(lock) => try_reserve(&mut self.locks[lock].queue, 1),
            None => try_reserve(&mut queue, 1),
        }?;
        let index = self.enter(waiter).ok_or(Refusal::Ended)?;
        let lock = match found {
            Some(lock) => lock,
            None => {
                let Some(owner) = self.enter(owner) else {
                    self.leave_if_unused(index);
                    return Err(Refusal::Ended);
                };
                let bucket = &mut self.buckets[key.spread() % BUCKETS];
                let next_in_bucket = *bucket;
                let next_owned = self.members[owner].owned;
                let lock =
                    self.locks.put(Lock { key, owner, queue, next_owned, next_in_bucket, unwritten: false });
                *bucket = Some(lock);
                self.members[owner].owned = Some(lock);
                lock
            }
        };
        assert!(self.members[index].waits_for.is_none(), "a thread waits for one lock at a time");
        self.members[index].waits_for = Some(lock);
        self.members[index].party.begin_to_wait(waiter);
        // After the number is known: who changes the thread's policy from here on settles it again.
        let urgency = self.urgency(index);
        self.insert(lock, urgency, index);
        self.settle(self.locks[lock].owner);
        Ok(())
    }

    /// Follows the chain that begins with whoever owns what `waiter` wants.
    fn check_chain(&self, mut next: Option<MemberIndex>, waiter: &P) -> Result<(), Refusal> {
        let waiter = self.member(waiter);
        for _ in 0..CHAIN_MAX {
            let Some(member) = next else { return Ok(()) };
            if Some(member) == waiter {
                return Err(Refusal::Deadlock);
            }
            next = self.members[member].waits_for.map(|lock| self.locks[lock].owner);
        }
        Err(Refusal::Deadlock)
    }

    /// Gives a lock to the first of its queue, who is returned; the lock is gone if nobody else waits. `by_death`: the word is not
    /// written yet, and the lock stays until [`Graph::written`].
    pub(super) fn pass_on(&mut self, lock: LockIndex, by_death: bool) -> Option<P> {
        let former = self.locks[lock].owner;
        self.take_from_owner(lock);
        if self.locks[lock].queue.is_empty() {
            self.remove_lock(lock);
            self.settle(former);
            return None;
        }
        let (_, next) = self.locks[lock].queue.remove(0);
        self.members[next].waits_for = None;
        self.locks[lock].owner = next;
        self.locks[lock].unwritten = by_death;
        let party = self.members[next].party.clone();
        self.locks[lock].next_owned = self.members[next].owned;
        self.members[next].owned = Some(lock);
        self.remove_if_unused(lock);
        self.settle(next);
        self.settle(former);
        Some(party)
    }

    /// The word of a lock that was passed on by a death has been written, or can't be.
    pub(super) fn written(&mut self, key: &K, by: &P) {
        let Some(lock) = self.find(key) else { return };
        let owner = self.locks[lock].owner;
        if self.member(by) != Some(owner) {
            return;
        }
        self.locks[lock].unwritten = false;
        if self.locks[lock].queue.is_empty() {
            self.take_from_owner(lock);
            self.remove_lock(lock);
            self.settle(owner);
        }
    }

    /// Takes a thread out of the queue that it waits in. False if it is in none.
    pub(super) fn withdraw(&mut self, waiter: &P) -> bool {
        let Some(member) = self.member(waiter) else { return false };
        let Some(lock) = self.members[member].waits_for.take() else { return false };
        self.locks[lock].queue.retain(|&(_, other)| other != member);
        let owner = self.locks[lock].owner;
        self.remove_if_unused(lock);
        self.settle(owner);
        self.leave_if_unused(member);
        true
    }

    /// A thread's own urgency has changed.
    pub(super) fn urgency_changed(&mut self, party: &P) {
        if let Some(member) = self.member(party) {
            self.settle(member);
        }
    }

    fn member(&self, party: &P) -> Option<MemberIndex> {
        party.number().checked_sub(1).map(Index::new)
    }

    /// `None` if it has ended.
    fn enter(&mut self, party: &P) -> Option<MemberIndex> {
        if let Some(member) = self.member(party) {
            return Some(member);
        }
        let (party, lent) = (party.clone(), Urgency::LEAST);
        let member = self.members.put(Member { party, waits_for: None, owned: None, lent });
        if self.members[member].party.claim(member.number() + 1) {
            return Some(member);
        }
        self.members.take(member);
        None
    }

    fn leave_if_unused(&mut self, member: MemberIndex) {
        let Member { waits_for: None, owned: None, .. } = self.members[member] else { return };
        let Member { party, lent, .. } = self.members.take(member);
        debug_assert_eq!(lent, Urgency::LEAST, "who owns nothing is lent nothing");
        party.release();
    }

    fn urgency(&self, member: MemberIndex) -> Urgency {
        let member = &self.members[member];
        member.lent.max(member.party.own_urgency())
    }

    /// Behind all that are as urgent.
    fn insert(&mut self, lock: LockIndex, urgency: Urgency, member: MemberIndex) {
        let queue = &mut self.locks[lock].queue;
        let place = queue.partition_point(|&(other, _)| other >= urgency);
        // There was room for it before: reserved in `wait`, or it has just been taken out.
        queue.insert(place, (urgency, member));
    }

    /// Brings a member's urgency up to date, and what follows from it along the chain; members that are nothing any more leave.
    fn settle(&mut self, from: MemberIndex) {
        let mut next = Some(from);
        for _ in 0..CHAIN_MAX {
            let Some(member) = next else { break };
            next = self.settle_one(member);
        }
        self.leave_if_unused(from);
    }

    /// Returns whose urgency may have changed by that.
    fn settle_one(&mut self, member: MemberIndex) -> Option<MemberIndex> {
        let mut lent = Urgency::LEAST;
        let mut owned = self.members[member].owned;
        while let Some(lock) = owned {
            lent = self.locks[lock].queue.first().map_or(lent, |&(first, _)| lent.max(first));
            owned = self.locks[lock].next_owned;
        }
        if self.members[member].lent != lent {
            self.members[member].lent = lent;
            self.members[member].party.lend(lent);
        }
        let lock = self.members[member].waits_for?;
        let urgency = self.urgency(member);
        let queue = &mut self.locks[lock].queue;
        let place = queue.iter().position(|&(_, other)| other == member)?;
        if queue[place].0 == urgency {
            return None;
        }
        queue.remove(place);
        self.insert(lock, urgency, member);
        Some(self.locks[lock].owner)
    }

    /// Takes a lock off its owner's list.
    fn take_from_owner(&mut self, lock: LockIndex) {
        let owner = self.locks[lock].owner;
        let after = self.locks[lock].next_owned.take();
        let mut place = self.members[owner].owned;
        if place == Some(lock) {
            self.members[owner].owned = after;
            return;
        }
        while let Some(before) = place {
            place = self.locks[before].next_owned;
            if place == Some(lock) {
                self.locks[before].next_owned = after;
            }
        }
    }

    /// Removes a lock that nobody waits for, and whose word is written. Its owner is settled by the caller.
    fn remove_if_unused(&mut self, lock: LockIndex) {
        if self.locks[lock].queue.is_empty() && !self.locks[lock].unwritten {
            self.take_from_owner(lock);
            self.remove_lock(lock);
        }
    }

    fn remove_lock(&mut self, lock: LockIndex) {
        let Lock { key, next_in_bucket, .. } = self.locks.take(lock);
        let mut place = &mut self.buckets[key.spread() % BUCKETS];
        while let Some(other) = *place {
            if other == lock {
                *place = next_in_bucket;
                return;
            }
            place = &mut self.locks[other].next_in_bucket;
        }
    }

    /// Whether nobody waits for anything.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.locks.is_empty()
    }

    /// Checks the invariants.
    #[cfg(test)]
    pub(super) fn check(&self) {
        for lock in self.locks.indices() {
            let Lock { queue, owner, unwritten, .. } = &self.locks[lock];
            assert!(!queue.is_empty() || *unwritten);
            assert!(queue.windows(2).all(|pair| pair[0].0 >= pair[1].0), "the queue is in order");
            for &(urgency, member) in queue {
                assert_eq!(self.members[member].waits_for, Some(lock));
                assert_eq!(urgency, self.urgency(member));
                assert!(self.urgency(*owner) >= urgency, "the owner is as urgent as any waiter");
            }
            assert_eq!(self.find(&self.locks[lock].key), Some(lock));
        }
        for member in self.members.indices() {
            let Member { party, waits_for, owned, lent } = &self.members[member];
            assert_eq!(party.number(), member.number() + 1);
            assert!(waits_for.is_some() || owned.is_some());
            let mut greatest = Urgency::LEAST;
            let mut next = *owned;
            while let Some(lock) = next {
                assert_eq!(self.locks[lock].owner, member);
                greatest = self.locks[lock].queue.iter().map(|entry| entry.0).fold(greatest, Urgency::max);
                next = self.locks[lock].next_owned;
            }
            assert_eq!(*lent, greatest);
        }
    }
}
