//! Name spaces of process numbers (pid_namespaces(7)): a process has a number in each one around it.
//!
//! # Numbers
//! The kernel works with the numbers of the first name space throughout: the table, groups, sessions, terminals, messages and timers know no others, and who is
//! in the first one pays a test of an empty pointer. A number that was given out for another space has *own numbers* besides, one in that space
//! and in each one around it but the first; what programs there say is translated where it comes in ([`PidSpace::kernel`]) and where it goes out
//! ([`PidSpace::own`]). Own numbers are borne as long as the number is: by a thread, process, group or session. The tree of numbers marks it, and takes them back
//! ([`forget`]) before it gives the number to somebody else.
//!
//! # Life
//! - *new*: made, and nobody is in it. The first process gets number 1 and is its *init*.
//! - *running*: as long as init lives.
//! - *ending*: init's last thread has left. No number is given out any more ([`PidSpace::end`]), so forks fail; everybody else is killed, who was just being made
//!   kills himself when he has been made, and init waits until all have been waited for. Then it goes as any process does.
//!
//! Init hears no signal that it has no handler for, but SIGKILL and SIGSTOP from outside; it inherits those whose parents end.
//!
//! # Locking
//! A space's `numbers` is taken with nothing else of these held.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use hashbrown::HashMap;
use sync::{Once, SpinLock};
use vfs::UserSpace;
use vfs::user_space::Owner;

use super::group::ProcessGroup;
use super::process::Process;
use super::table::{self, INIT, Pid};
use super::thread::Thread;
use crate::errno::Errno;
use crate::signal::actions::{Action, IGNORE};
use crate::signal::set::Signal;
use crate::task::Task;

/// How deep spaces can stand in each other, the first one not counted.
pub(crate) const LEVEL_MAX: u32 = 32;
/// Where numbers begin again.
const AFTER_WRAP: Pid = 300;
/// The first one's number as an object.
pub(crate) const FIRST_NUMBER: u64 = 4_026_531_836;

/// The space of a process: none is the first one.
pub(crate) type Space = Option<Arc<PidSpace>>;

/// Own numbers and the kernel's.
struct Numbers {
    /// Pairs of an own number and the kernel's, in order.
    listed: Vec<(Pid, Pid)>,
    own: HashMap<Pid, Pid>,
    last: Pid,
    /// Nobody may come any more.
    is_closed: bool,
}

/// A name space of process numbers.
pub(crate) struct PidSpace {
    number: u64,
    level: u32,
    parent: Space,
    owner: Owner,
    numbers: SpinLock<Numbers>,
    init: Once<Weak<Process>>,
    /// Processes in it and below that were not waited for yet.
    members: AtomicU32,
}

/// The deepest space of each number that has own ones.
static SPACES: SpinLock<Option<HashMap<Pid, Arc<PidSpace>>>> =
    SpinLock::named("numbers in name spaces", None);

impl PidSpace {
    /// A new one below another.
    ///
    /// # Errors
    /// ENOSPC when they are too deep in each other, ENOMEM.
    pub(crate) fn new(number: u64, parent: &Space, owner: Owner) -> Result<Arc<Self>, Errno> {
        let level = parent.as_ref().map_or(0, |parent| parent.level) + 1;
        if level > LEVEL_MAX {
            return Err(Errno::ENOSPC);
        }
        let numbers = Numbers { listed: Vec::new(), own: HashMap::new(), last: 0, is_closed: false };
        memory::fallible::try_arc(Self {
            number,
            level,
            parent: parent.clone(),
            owner,
            numbers: SpinLock::new(numbers),
            init: Once::new(),
            members: AtomicU32::new(0),
        })
        .map_err(|_| Errno::ENOMEM)
    }

    /// Its number as an object.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The one around it.
    pub(crate) fn parent(&self) -> &Space {
        &self.parent
    }

    /// The name space of users that it belongs to.
    pub(crate) fn owner(&self) -> &UserSpace {
        self.owner.space()
    }

    /// What a number of the kernel is called here; 0 for one that nobody here bears.
    pub(crate) fn own(&self, pid: Pid) -> Pid {
        self.numbers.lock().own.get(&pid).copied().unwrap_or(0)
    }

    /// The kernel's number of what is called so here.
    pub(crate) fn kernel(&self, own: Pid) -> Option<Pid> {
        let numbers = self.numbers.lock();
        numbers.place(own).ok().map(|place| numbers.listed[place].1)
    }

    /// The lowest own number from `from` on, and the kernel's.
    pub(crate) fn next(&self, from: Pid) -> Option<(Pid, Pid)> {
        let numbers = self.numbers.lock();
        let place = numbers.place(from).unwrap_or_else(|place| place);
        numbers.listed.get(place).copied()
    }

    /// What a number of the kernel is called in each space from `view` to `deepest`, which is in it: 0 where nobody bears it.
    pub(crate) fn each_within(view: &Space, deepest: &Space, pid: Pid, mut visit: impl FnMut(Pid)) {
        let mut spaces = [const { None }; LEVEL_MAX as usize];
        let mut depth = 0;
        let mut space = deepest.as_ref();
        let outermost = view.as_ref().map_or(0, |view| view.level);
        while let Some(inner) = space.filter(|inner| inner.level >= outermost) {
            spaces[depth] = Some(inner);
            depth += 1;
            space = inner.parent.as_ref();
        }
        if view.is_none() {
            visit(pid);
        }
        for space in spaces[..depth].iter().rev().flatten() {
            visit(space.own(pid));
        }
    }

    /// The first process that was made in it, unless it is gone.
    pub(crate) fn init(&self) -> Option<Arc<Process>> {
        self.init.get().and_then(Weak::upgrade)
    }

    /// Whether somebody is, or was, in it.
    pub(crate) fn has_begun(&self) -> bool {
        self.init.get().is_some()
    }

    /// Makes a process init; the first one counts.
    pub(crate) fn set_init(&self, process: &Arc<Process>) {
        self.init.call_once(|| Arc::downgrade(process));
    }

    /// Whether who is in `space` is in `other`, too.
    pub(crate) fn encloses(other: &Space, space: &Space) -> bool {
        match (other, space) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(other), Some(space)) => space.is_within(other),
        }
    }

    /// The last number that was given out.
    pub(crate) fn last(&self) -> Pid {
        self.numbers.lock().last
    }

    /// The next number shall be the one after this.
    pub(crate) fn set_last(&self, last: Pid) {
        self.numbers.lock().last = last;
    }

    /// Gives one of the kernel's numbers an own one, the wanted one if any.
    fn add(&self, pid: Pid, wanted: Option<Pid>) -> Result<(), Errno> {
        let has_init = self.init.get().is_some();
        let mut numbers = self.numbers.lock();
        let numbers = &mut *numbers;
        if numbers.is_closed {
            return Err(Errno::ENOMEM);
        }
        memory::fallible::try_reserve(&mut numbers.listed, 1).map_err(|_| Errno::ENOMEM)?;
        numbers.own.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let own = match wanted {
            // The first one is init, whatever happens.
            Some(wanted) if wanted != INIT && !has_init => return Err(Errno::EINVAL),
            Some(wanted) => wanted,
            None => numbers.next_free().ok_or(Errno::EAGAIN)?,
        };
        let place = numbers.place(own).err().ok_or(Errno::EEXIST)?;
        numbers.listed.insert(place, (own, pid));
        numbers.own.insert(pid, own);
        if wanted.is_none() {
            numbers.last = own;
        }
        Ok(())
    }

    fn remove(&self, pid: Pid) {
        let mut numbers = self.numbers.lock();
        if let Some(own) = numbers.own.remove(&pid)
            && let Ok(place) = numbers.place(own)
        {
            numbers.listed.remove(place);
        }
        if self.init.get().is_none() {
            // The first fork failed: the next one makes init.
            numbers.last = 0;
        }
    }

    /// Whether no number is given out any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.numbers.lock().is_closed
    }

    /// The end of init, when all its threads have left: kills everybody else and waits until they are gone. Their parents, where those are outside, must wait for
    /// them before.
    pub(crate) fn end(&self, init: &Arc<Process>) {
        self.numbers.lock().is_closed = true;
        // Children go without being waited for from now on.
        init.actions().set(Signal::SIGCHLD, Action { handler: IGNORE, ..Action::default() });
        table::for_each_process(|process| {
            let is_in = process.space().as_ref().is_some_and(|space| space.is_within(self));
            if is_in && process.pid() != init.pid() {
                process.begin_exit(Signal::SIGKILL.number().into());
            }
        });
        loop {
            crate::wait::bury_zombies_of(init);
            let is_over = || self.members.load(Ordering::Acquire) <= 1;
            if is_over() {
                return;
            }
            init.child_event.wait_until(|| is_over() || crate::wait::has_zombie(init));
        }
    }

    /// Whether it is a space, or in it.
    fn is_within(&self, other: &PidSpace) -> bool {
        let mut space = self;
        while space.level > other.level {
            match &space.parent {
                Some(parent) => space = parent,
                None => return false,
            }
        }
        core::ptr::eq(space, other)
    }
}

impl Numbers {
    fn place(&self, own: Pid) -> Result<usize, usize> {
        self.listed.binary_search_by_key(&own, |pair| pair.0)
    }

    fn next_free(&self) -> Option<Pid> {
        let maximum = table::maximum();
        let begin = if self.last + 1 >= maximum { AFTER_WRAP } else { self.last + 1 };
        let mut candidates = (begin..maximum).chain(AFTER_WRAP..begin);
        candidates.find(|&own| self.place(own).is_err())
    }
}

/// What a number of the kernel is called in a space; 0 for one that nobody there bears.
#[inline(always)]
pub(crate) fn seen(space: &Space, pid: Pid) -> Pid {
    match space {
        None => pid,
        Some(space) => space.own(pid),
    }
}

/// The kernel's number of what is called so in a space.
#[inline(always)]
pub(crate) fn kernel(space: &Space, own: Pid) -> Option<Pid> {
    match space {
        None => Some(own),
        Some(space) => space.kernel(own),
    }
}

/// Gives a reserved number of the kernel own numbers in a space and those around it, innermost first the wanted ones.
///
/// # Errors
/// EEXIST, EINVAL, EAGAIN; ENOMEM, also for a space that ends. None is left then.
pub(super) fn give(pid: Pid, space: &Arc<PidSpace>, wanted: &[Pid]) -> Result<(), Errno> {
    {
        let mut spaces = SPACES.lock();
        let spaces = spaces.get_or_insert_with(HashMap::new);
        spaces.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        spaces.insert(pid, space.clone());
    }
    let around = core::iter::successors(Some(space), |space| space.parent.as_ref());
    for (level, space) in around.enumerate() {
        space.add(pid, wanted.get(level).copied()).inspect_err(|_| forget(pid))?;
    }
    Ok(())
}

/// Takes the own numbers of a number back that nobody bears any more.
pub(super) fn forget(pid: Pid) {
    let deepest = SPACES.lock().as_mut().and_then(|spaces| spaces.remove(&pid));
    let mut space = deepest.as_ref();
    while let Some(inner) = space {
        inner.remove(pid);
        space = inner.parent.as_ref();
    }
}

/// A process is in a space and in those around it from now on.
pub(super) fn joined(space: &Space) {
    let mut space = space.as_ref();
    while let Some(inner) = space {
        inner.members.fetch_add(1, Ordering::Relaxed);
        space = inner.parent.as_ref();
    }
}

/// A process was waited for.
pub(crate) fn left(space: &Space) {
    let mut space = space.as_ref();
    while let Some(inner) = space {
        // Release: pairs with the Acquire of who ends the space.
        inner.members.fetch_sub(1, Ordering::Release);
        if inner.is_closed()
            && let Some(init) = inner.init()
        {
            init.child_event.wake_all();
        }
        space = inner.parent.as_ref();
    }
}

/// Who looks at users and processes: what they are called is what he calls them.
#[derive(Clone, Copy)]
pub(crate) struct Viewer<'a> {
    pub(crate) users: &'a UserSpace,
    pub(crate) processes: &'a Space,
}

impl Viewer<'_> {
    /// What he calls a process.
    pub(crate) fn seen(&self, pid: Pid) -> Pid {
        seen(self.processes, pid)
    }

    /// Whether he calls all as the kernel does.
    #[inline(always)]
    pub(crate) fn is_first(&self) -> bool {
        self.users.is_first() && self.processes.is_none()
    }
}

impl Task {
    /// What it calls users and processes.
    pub(crate) fn viewer(&self) -> Viewer<'_> {
        Viewer { users: self.credentials.space(), processes: self.process().space() }
    }

    /// What it calls a process, thread, group or session; 0 for one that it can't name.
    #[inline(always)]
    pub(crate) fn seen_number(&self, pid: Pid) -> Pid {
        seen(self.process().space(), pid)
    }

    /// The kernel's number of what it calls so.
    #[inline(always)]
    pub(crate) fn kernel_number(&self, own: Pid) -> Option<Pid> {
        kernel(self.process().space(), own)
    }

    /// The thread that it calls so.
    #[inline(always)]
    pub(crate) fn find_thread(&self, own: Pid) -> Option<Arc<Thread>> {
        self.kernel_number(own).and_then(table::thread)
    }

    /// The process that it calls so.
    pub(crate) fn find_process(&self, own: Pid) -> Option<Arc<Process>> {
        self.kernel_number(own).and_then(table::process)
    }

    /// The process that it calls so, or a thread of which it calls so.
    pub(crate) fn find_process_of(&self, own: Pid) -> Option<Arc<Process>> {
        self.kernel_number(own).and_then(table::process_of)
    }

    /// The process group that it calls so.
    pub(crate) fn find_group(&self, own: Pid) -> Option<Arc<ProcessGroup>> {
        self.kernel_number(own).and_then(table::group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(parent: &Space) -> Arc<PidSpace> {
        PidSpace::new(7, parent, Owner::FIRST).expect("room")
    }

    #[test]
    fn numbers_begin_at_one_in_each_space() {
        let outer = space(&None);
        let inner = space(&Some(outer.clone()));
        give(900, &outer, &[]).expect("room");
        give(901, &inner, &[]).expect("room");
        assert_eq!((outer.own(900), outer.own(901), inner.own(901)), (1, 2, 1));
        assert_eq!((inner.own(900), outer.kernel(2), inner.kernel(2)), (0, Some(901), None));
        let mut numbers = Vec::new();
        PidSpace::each_within(&None, &Some(inner.clone()), 901, |number| numbers.push(number));
        assert_eq!(numbers, [901, 2, 1]);
        forget(901);
        assert_eq!((outer.own(901), inner.kernel(1)), (0, None));
        forget(900);
    }

    #[test]
    fn wanted_numbers_are_free_ones() {
        let outer = space(&None);
        assert_eq!(give(910, &outer, &[5]), Err(Errno::EINVAL), "the first one is init");
        give(910, &outer, &[1]).expect("free");
        outer.init.call_once(Weak::new);
        assert_eq!(give(911, &outer, &[1]), Err(Errno::EEXIST));
        give(911, &outer, &[70]).expect("free");
        give(912, &outer, &[]).expect("room");
        assert_eq!((outer.own(911), outer.own(912)), (70, 2));
        assert_eq!(outer.next(3), Some((70, 911)));
        for pid in 910..=912 {
            forget(pid);
        }
        assert!(outer.next(0).is_none());
    }

    #[test]
    fn nobody_comes_into_a_space_that_ends() {
        let outer = space(&None);
        outer.numbers.lock().is_closed = true;
        assert_eq!(give(920, &outer, &[]), Err(Errno::ENOMEM));
        assert!(SPACES.lock().as_ref().is_none_or(|spaces| !spaces.contains_key(&920)));
    }

    #[test]
    fn spaces_are_not_deeper_than_the_limit() {
        let mut deep = None;
        for _ in 0..LEVEL_MAX {
            deep = Some(space(&deep));
        }
        assert_eq!(PidSpace::new(7, &deep, Owner::FIRST).err(), Some(Errno::ENOSPC));
    }
}
