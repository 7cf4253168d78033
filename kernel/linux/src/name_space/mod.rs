//! Name spaces: which mounts, names of the system and System V objects a thread sees (namespaces(7)).
//!
//! A thread that is in the first ones has none of its own, so that a fork counts nothing that other processors write, and calls find the first
//! ones without a look-up. Name spaces of mounts are a part of where paths begin ([`crate::file::context`]).

pub mod calls;
mod files;
mod groups;
mod kind;
mod names;
mod networks;
mod times;

use alloc::sync::{Arc, Weak};
use core::ops::Deref;
use core::sync::atomic::{AtomicU64, Ordering};

pub(crate) use files::{name_of, place_of};
pub(crate) use groups::GroupSpace;
pub(crate) use kind::{ENTRIES, Kind};
pub(crate) use names::{NAME_BYTES, SystemNames};
pub(crate) use networks::{Networks, look_at_callers};
pub(crate) use times::{Shifted, TimeSpace, Wanted};

use vfs::UserSpace;

use crate::errno::Errno;
use crate::process::pid_space::{self, PidSpace, Viewer};
use crate::process::thread::Thread;
use crate::sysv::space::IpcSpace;
use crate::task::Task;
use crate::time::Clock;

/// Numbers of name spaces made later than the first ones; those of mounts are below.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(4_030_000_000);

/// The number of a new name space.
pub(crate) fn next_number() -> u64 {
    // Relaxed: only uniqueness matters.
    NEXT_NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// What a kind of name space begins with.
pub(crate) trait First: Sized + 'static {
    /// The first one of its kind.
    fn first() -> &'static Self;
}

/// A name space: the first one of its kind, or one that was made later.
pub(crate) struct Space<T>(Option<Arc<T>>);

impl<T> Clone for Space<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Space<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: First> Deref for Space<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::first())
    }
}

impl<T> Space<T> {
    fn made(space: T) -> Result<Self, Errno> {
        Ok(Self(Some(memory::fallible::try_arc(space).map_err(|_| Errno::ENOMEM)?)))
    }

    /// Whether both are the same one.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Whether it is the first one of its kind.
    pub(crate) fn is_first(&self) -> bool {
        self.0.is_none()
    }

    /// A reference that does not keep it.
    pub(crate) fn downgrade(&self) -> WeakSpace<T> {
        WeakSpace(self.0.as_ref().map(Arc::downgrade))
    }
}

/// What an object in a name space knows of it.
pub(crate) struct WeakSpace<T>(Option<Weak<T>>);

impl<T> WeakSpace<T> {
    /// It, unless nobody is in it any more.
    pub(crate) fn upgrade(&self) -> Option<Space<T>> {
        match &self.0 {
            None => Some(Space(None)),
            Some(space) => space.upgrade().map(|space| Space(Some(space))),
        }
    }
}

/// Those of a thread that is not in the first ones of all kinds.
#[derive(Clone, Default)]
pub(crate) struct NameSpaces {
    pub(crate) names: Space<SystemNames>,
    pub(crate) ipc: Space<IpcSpace>,
    pub(crate) groups: Space<GroupSpace>,
    pub(crate) networks: Space<Networks>,
    pub(crate) times: Space<TimeSpace>,
    /// That of times for the thread's children, and for the next program that it executes.
    pub(crate) times_of_children: Space<TimeSpace>,
    /// That of process numbers for the thread's children, if it is not its own.
    pub(crate) for_children: Option<Arc<PidSpace>>,
}

impl NameSpaces {
    /// Those of a thread.
    pub(crate) fn of(thread: &Thread) -> Self {
        let spaces = thread.shared.lock().name_spaces.clone();
        spaces.map_or_else(Self::default, |spaces| Self::clone(&spaces))
    }

    /// Those of the thread that reads a file; the first ones for the kernel.
    pub(crate) fn of_reader() -> Self {
        crate::terminal::calling_thread().map_or_else(Self::default, |thread| Self::of(&thread))
    }

    /// The form in which a thread has them.
    pub(crate) fn into_shared(self) -> Result<Option<Arc<Self>>, Errno> {
        let is_first = self.names.0.is_none()
            && self.ipc.0.is_none()
            && self.groups.0.is_none()
            && self.networks.0.is_none()
            && self.times.0.is_none()
            && self.times_of_children.0.is_none();
        if is_first && self.for_children.is_none() {
            return Ok(None);
        }
        memory::fallible::try_arc(self).map(Some).map_err(|_| Errno::ENOMEM)
    }
}

/// What the thread that reads a file calls users and processes.
#[derive(Default)]
pub(crate) struct View {
    users: UserSpace,
    processes: pid_space::Space,
}

impl View {
    /// To be lent.
    pub(crate) fn viewer(&self) -> Viewer<'_> {
        Viewer { users: &self.users, processes: &self.processes }
    }
}

/// That of the thread that reads a file; for the kernel, what it says itself.
pub(crate) fn view_of_reader() -> View {
    let thread = crate::terminal::calling_thread();
    thread.map_or_else(View::default, |thread| View {
        users: thread.credentials().space().clone(),
        processes: thread.process().space().clone(),
    })
}

/// What a clock shows the thread that reads a file, less what the kernel's does, in nanoseconds.
pub(crate) fn clock_offset_of_reader(clock: Shifted) -> i64 {
    let thread = crate::terminal::calling_thread();
    let spaces = thread.and_then(|thread| thread.shared.lock().name_spaces.clone());
    spaces.map_or(0, |spaces| spaces.times.offset_ns(clock))
}

/// The name space of users of the thread that reads a file; the first one for the kernel.
pub(crate) fn users_of_reader() -> UserSpace {
    crate::terminal::calling_thread()
        .map_or_else(UserSpace::new, |thread| thread.credentials().space().clone())
}

impl Task {
    /// The names of the system that it sees.
    pub(crate) fn system_names(&self) -> &SystemNames {
        self.name_spaces.as_ref().map_or(SystemNames::first(), |spaces| &spaces.names)
    }

    /// The networks that it sees.
    pub(crate) fn network(&self) -> &Networks {
        self.name_spaces.as_ref().map_or(Networks::first(), |spaces| &spaces.networks)
    }

    /// What a clock shows it, less what the kernel's does, in nanoseconds.
    #[inline]
    pub(crate) fn clock_offset_ns(&self, clock: Shifted) -> i64 {
        self.name_spaces.as_ref().map_or(0, |spaces| spaces.times.offset_ns(clock))
    }

    /// A time of a clock, as the kernel counts it.
    pub(crate) fn to_kernel_time(&self, clock: Clock, ns: u64) -> u64 {
        match (&self.name_spaces, clock.shifted()) {
            (Some(spaces), Some(shifted)) => ns.saturating_add_signed(-spaces.times.offset_ns(shifted)),
            _ => ns,
        }
    }

    /// The System V objects that it sees.
    pub(crate) fn ipc_space(&self) -> &IpcSpace {
        self.name_spaces.as_ref().map_or(IpcSpace::first(), |spaces| &spaces.ipc)
    }

    /// A reference to those for an object that is made there.
    pub(crate) fn weak_ipc_space(&self) -> WeakSpace<IpcSpace> {
        self.name_spaces.as_ref().map_or(WeakSpace(None), |spaces| spaces.ipc.downgrade())
    }

    /// The name spaces that it is in.
    fn current_name_spaces(&self) -> NameSpaces {
        self.name_spaces.as_ref().map_or_else(NameSpaces::default, |spaces| NameSpaces::clone(spaces))
    }

    /// Moves it to other name spaces.
    pub(crate) fn enter_name_spaces(&mut self, spaces: Option<Arc<NameSpaces>>) {
        let shared = core::mem::replace(&mut self.thread.shared.lock().name_spaces, spaces.clone());
        let own = core::mem::replace(&mut self.name_spaces, spaces);
        drop((shared, own));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::user_space::Owner;

    #[test]
    fn what_is_made_in_a_name_space_does_not_keep_it() {
        let first: Space<SystemNames> = Space::default();
        assert!(
            first.downgrade().upgrade().is_some_and(|space| core::ptr::eq(&*space, SystemNames::first()))
        );
        let made = Space::made(first.copy(7, Owner::FIRST)).expect("memory");
        let weak = made.downgrade();
        assert!(weak.upgrade().is_some_and(|space| space.number() == 7));
        drop(made);
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn who_is_in_the_first_ones_has_none() {
        assert!(NameSpaces::default().into_shared().expect("memory").is_none());
        let names = Space::made(SystemNames::first().copy(7, Owner::FIRST)).expect("memory");
        let spaces = NameSpaces { names, ..NameSpaces::default() };
        assert!(spaces.into_shared().expect("memory").is_some());
    }
}
