//! What the locks say to this module.

use super::{Class, Kind};
#[cfg(any(debug_assertions, feature = "lcount"))]
use super::{context::Context, registry::ClassId, thread};

/// As a nesting: the locks of this class are taken in the order of a tree, however deep.
pub const IN_TREE: u8 = 15;

/// A lock is about to be taken.
#[must_use]
pub struct Attempt {
    #[cfg(any(debug_assertions, feature = "lcount"))]
    class: ClassId,
    #[cfg(debug_assertions)]
    kind: Kind,
    #[cfg(any(debug_assertions, feature = "lcount"))]
    context: Context,
    #[cfg(debug_assertions)]
    lock: usize,
    #[cfg(feature = "lcount")]
    reads: bool,
    #[cfg(feature = "lcount")]
    waits_since_ns: u64,
}

/// A lock is held while this lives; it is dropped after the lock was released.
#[derive(Debug)]
pub struct Held {
    #[cfg(debug_assertions)]
    lock: usize,
    #[cfg(debug_assertions)]
    kind: Kind,
    #[cfg(feature = "lcount")]
    class: ClassId,
    #[cfg(feature = "lcount")]
    reads: bool,
    #[cfg(feature = "lcount")]
    since_ns: u64,
}

#[cfg_attr(
    not(all(debug_assertions, feature = "lcount")),
    allow(
        unused_variables,
        clippy::unused_self,
        reason = "nothing is done where classes are not compiled in"
    )
)]
impl Attempt {
    /// Someone will wait for the lock at that address until he has it. Preemption is off if it is a spin lock.
    #[inline(always)]
    pub fn to_wait<T: ?Sized>(class: &Class, kind: Kind, lock: *const (), nesting: u8) -> Self {
        let attempt = Self::to_try::<T>(class, kind, lock, nesting);
        #[cfg(debug_assertions)]
        super::order::check(attempt.class, kind, attempt.context);
        attempt
    }

    /// Someone will take the lock if it is free.
    #[inline(always)]
    pub fn to_try<T: ?Sized>(class: &Class, kind: Kind, lock: *const (), nesting: u8) -> Self {
        #[cfg(debug_assertions)]
        let nesting =
            if nesting == IN_TREE { super::order::nesting_of(class.name::<T>(), kind) } else { nesting };
        Self {
            #[cfg(any(debug_assertions, feature = "lcount"))]
            class: ClassId::of(class.name::<T>(), kind, nesting),
            #[cfg(debug_assertions)]
            kind,
            #[cfg(any(debug_assertions, feature = "lcount"))]
            context: if kind.sleeps() { Context::Thread } else { Context::current() },
            #[cfg(debug_assertions)]
            lock: lock.addr(),
            #[cfg(feature = "lcount")]
            reads: false,
            #[cfg(feature = "lcount")]
            waits_since_ns: 0,
        }
    }

    /// The same, of one who shares the lock with others that read.
    #[cfg_attr(
        not(feature = "lcount"),
        allow(
            unused_mut,
            clippy::missing_const_for_fn,
            reason = "nothing is done where locks are not counted"
        )
    )]
    #[inline(always)]
    pub fn for_reading(mut self) -> Self {
        #[cfg(feature = "lcount")]
        {
            self.reads = true;
        }
        self
    }

    /// The lock is not free.
    #[inline(always)]
    pub fn contended(&mut self) {
        #[cfg(feature = "lcount")]
        {
            self.waits_since_ns = super::statistics::contended(self.class);
        }
    }

    /// The lock is taken.
    #[inline(always)]
    pub fn taken(self, class: &Class) -> Held {
        #[cfg(debug_assertions)]
        if self.kind.sleeps() {
            thread::with_current(|locks| locks.held.push(self.class, self.context, self.lock));
        } else {
            super::order::SPINNING.of(machine::cpu::current()).push(self.class, self.context, self.lock);
        }
        #[cfg(feature = "lcount")]
        if self.context == Context::Thread {
            thread::with_current(|locks| locks.counts.add(self.class));
        }
        Held {
            #[cfg(debug_assertions)]
            lock: self.lock,
            #[cfg(debug_assertions)]
            kind: self.kind,
            #[cfg(feature = "lcount")]
            class: self.class,
            #[cfg(feature = "lcount")]
            reads: self.reads,
            #[cfg(feature = "lcount")]
            since_ns: super::statistics::taken(self.class, self.reads, &class.last_cpu, self.waits_since_ns),
        }
    }
}

impl Held {
    /// That for a lock whose guard could not be kept: it was taken by one thread and is released by the next.
    ///
    /// The caller has forgotten the one that [`Attempt::taken`] has returned.
    #[cfg_attr(
        not(all(debug_assertions, feature = "lcount")),
        allow(unused_variables, reason = "nothing is done where classes are not compiled in")
    )]
    #[inline(always)]
    pub fn again<T: ?Sized>(class: &Class, kind: Kind, lock: *const ()) -> Self {
        Self {
            #[cfg(debug_assertions)]
            lock: lock.addr(),
            #[cfg(debug_assertions)]
            kind,
            #[cfg(feature = "lcount")]
            class: ClassId::of(class.name::<T>(), kind, 0),
            #[cfg(feature = "lcount")]
            reads: false,
            #[cfg(feature = "lcount")]
            since_ns: 0,
        }
    }
}

#[cfg(any(debug_assertions, feature = "lcount"))]
impl Drop for Held {
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        if self.kind.sleeps() {
            thread::forget(self.lock);
        } else {
            super::order::SPINNING.of(machine::cpu::current()).remove(self.lock);
        }
        #[cfg(feature = "lcount")]
        super::statistics::released(self.class, self.reads, self.since_ns);
    }
}
