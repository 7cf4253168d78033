//! The tree of numbers: from a number to who bears it.
//!
//! # Form
//! A [`Leaf`] has the [`Bearers`] of 64 neighbouring numbers, a branch 256 leaves, the root 256 branches: three loads lead from a number
//! to its bearers. Leaves and branches are made for the first number in them and go with the last one.
//!
//! # Readers
//! Readers hold a read section of RCU and nothing else, and write nothing but the count of what they want to keep. What a slot
//! refers to lives until the read section ends ([`ArcSlot`]), and so do the leaf and the branch. A number may be given back and borne by somebody
//! else between two looks at it, never within one: a slot shows the old bearer or the new one. Who must know which takes a
//! reference and compares ([`Leaf`] keeps no generations; `/proc` uses the time of a process's start).
//!
//! # Writers
//! A leaf's lock guards which of its numbers are in use, and orders changes of its slots. A number is *free*, *reserved* (given out
//! and not yet borne), or *borne*; reserved and borne numbers are in use, and so is a leaf from which a processor hands out numbers
//! ([`State::holders`]). A leaf that is not in use is unlinked under the lock of the tree's form and its own, marked dead; who finds a
//! dead one looks again. Order of locks: form, leaf.
//!
//! The leaf's lock lies in another cache line than its slots, so that look-ups meet no changes of neighbours.

use core::sync::atomic::{AtomicU64, Ordering};

use memory::fallible;
use sync::rcu::{self, ArcSlot, Pointer, RcuBox, RcuReadGuard};
use sync::{CachePadded, SpinLock};

use super::group::{ProcessGroup, Session};
use super::process::Process;
use super::table::{PID_MAX, Pid};
use super::thread::Thread;
use crate::errno::Errno;

/// Numbers of a leaf.
pub(super) const LEAF: u32 = u64::BITS;
/// Leaves of a branch.
const LEAVES: u32 = 256;
/// Branches.
const BRANCHES: u32 = PID_MAX.div_ceil(LEAF * LEAVES);

/// Who bears a number.
pub(super) struct Bearers {
    pub(super) thread: ArcSlot<Thread>,
    pub(super) process: ArcSlot<Process>,
    pub(super) group: ArcSlot<ProcessGroup>,
    pub(super) session: ArcSlot<Session>,
}

impl Bearers {
    const fn none() -> Self {
        Self {
            thread: ArcSlot::empty(),
            process: ArcSlot::empty(),
            group: ArcSlot::empty(),
            session: ArcSlot::empty(),
        }
    }

    fn is_empty(&self) -> bool {
        self.thread.is_empty() && self.process.is_empty() && self.group.is_empty() && self.session.is_empty()
    }
}

/// Which numbers of a leaf are in use, one bit each.
pub(super) struct State {
    pub(super) used: u64,
    pub(super) reserved: u64,
    /// Those that have [own numbers](super::pid_space) in name spaces.
    pub(super) nested: u64,
    /// Processors that hand out numbers of this leaf.
    pub(super) holders: u32,
    is_dead: bool,
}

impl State {
    fn is_unused(&self) -> bool {
        self.used == 0 && self.holders == 0
    }
}

/// Sixty-four numbers.
pub(super) struct Leaf {
    state: CachePadded<SpinLock<State>>,
    /// Numbers that a process bears, one bit each; for walks. Written under the lock.
    processes: AtomicU64,
    bearers: [Bearers; LEAF as usize],
}

impl Leaf {
    fn new(used: u64) -> Self {
        let state = State { used, reserved: 0, nested: 0, holders: 0, is_dead: false };
        Self {
            state: CachePadded::new(SpinLock::named("numbers of processes", state)),
            processes: AtomicU64::new(0),
            bearers: [const { Bearers::none() }; LEAF as usize],
        }
    }

    /// Who bears a number of this leaf.
    #[inline(always)]
    pub(super) fn bearers(&self, pid: Pid) -> &Bearers {
        &self.bearers[(pid % LEAF) as usize]
    }
}

/// Leaves under one root pointer.
struct Branch {
    leaves: [Pointer<Leaf>; LEAVES as usize],
    /// Leaves that there are. Written under the lock of the form.
    count: AtomicU64,
}

impl Branch {
    fn new() -> Self {
        Self { leaves: [const { Pointer::null() }; LEAVES as usize], count: AtomicU64::new(0) }
    }
}

static ROOT: [Pointer<Branch>; BRANCHES as usize] = [const { Pointer::null() }; BRANCHES as usize];
/// Held by who makes or unlinks leaves and branches.
static FORM: SpinLock<()> = SpinLock::named("form of the tree of numbers", ());

/// The leaf of a number.
#[inline(always)]
pub(super) fn leaf(pid: Pid, guard: &RcuReadGuard) -> Option<&Leaf> {
    let branch = ROOT.get((pid / (LEAF * LEAVES)) as usize)?.read(guard)?;
    branch.leaves[(pid / LEAF % LEAVES) as usize].read(guard)
}

/// Makes the leaf of a number if there is none.
#[inline(never)]
fn make_leaf(pid: Pid) -> Result<(), Errno> {
    fallible::fail_point().map_err(|_| Errno::ENOMEM)?;
    // Number 0 is nobody's.
    let used = u64::from(pid < LEAF);
    let leaf = RcuBox::try_new_with(|| Leaf::new(used)).ok_or(Errno::ENOMEM)?;
    let root = ROOT.get((pid / (LEAF * LEAVES)) as usize).ok_or(Errno::EINVAL)?;
    let branch = match root.read(&rcu::read()) {
        Some(_) => None,
        None => Some(RcuBox::try_new_with(Branch::new).ok_or(Errno::ENOMEM)?),
    };
    let form = FORM.lock();
    let guard = rcu::read();
    let unused = match root.read(&guard) {
        Some(_) => branch,
        None => {
            root.replace(branch);
            None
        }
    };
    // Without a branch one went since we looked: the caller tries again.
    if let Some(branch) = root.read(&guard) {
        let place = &branch.leaves[(pid / LEAF % LEAVES) as usize];
        if place.read(&guard).is_none() {
            place.replace(Some(leaf));
            branch.count.fetch_add(1, Ordering::Relaxed);
        }
    }
    drop((guard, form));
    drop(unused);
    Ok(())
}

/// Unlinks the leaf of a number unless it is in use.
#[inline(never)]
pub(super) fn trim(pid: Pid) {
    let form = FORM.lock();
    let guard = rcu::read();
    let Some(root) = ROOT.get((pid / (LEAF * LEAVES)) as usize) else { return };
    let Some(branch) = root.read(&guard) else { return };
    let place = &branch.leaves[(pid / LEAF % LEAVES) as usize];
    let Some(leaf) = place.read(&guard) else { return };
    let mut state = leaf.state.lock();
    if state.is_unused() {
        state.is_dead = true;
        drop(state);
        place.replace(None);
        if branch.count.fetch_sub(1, Ordering::Relaxed) == 1 {
            root.replace(None);
        }
    }
    drop(form);
}

/// Calls with the leaf of a number and its state; the leaf is made if there is none, and is not unlinked meanwhile.
pub(super) fn with_leaf<R>(pid: Pid, mut change: impl FnMut(&Leaf, &mut State) -> R) -> Result<R, Errno> {
    loop {
        {
            let guard = rcu::read();
            if let Some(leaf) = leaf(pid, &guard) {
                let mut state = leaf.state.lock();
                if !state.is_dead {
                    return Ok(change(leaf, &mut state));
                }
            }
        }
        make_leaf(pid)?;
    }
}

/// Changes the bearers of a number in use. The number is free, and the leaf perhaps no more, when nobody bears it then.
/// What `change` returns is dropped without locks.
pub(super) fn change<R>(pid: Pid, change: impl FnOnce(&Bearers, &mut State, u64) -> R) -> Option<R> {
    let guard = rcu::read();
    let leaf = leaf(pid, &guard)?;
    let bit = 1 << (pid % LEAF);
    let bearers = leaf.bearers(pid);
    let mut state = leaf.state.lock();
    if state.used & bit == 0 {
        return None;
    }
    let result = change(bearers, &mut state, bit);
    // Relaxed: walks look at the slot, too.
    let listed = leaf.processes.load(Ordering::Relaxed);
    let is_listed = if bearers.process.is_empty() { 0 } else { bit };
    if listed & bit != is_listed {
        leaf.processes.store(listed & !bit | is_listed, Ordering::Relaxed);
    }
    let frees = state.reserved & bit == 0 && bearers.is_empty();
    let is_nested = frees && state.nested & bit != 0;
    if is_nested {
        // Kept until nobody finds it by its own numbers.
        state.nested &= !bit;
        state.reserved |= bit;
    } else if frees {
        state.used &= !bit;
    }
    let is_unused = state.is_unused();
    drop(state);
    drop(guard);
    if is_nested {
        free_nested(pid);
    } else if is_unused {
        trim(pid);
    }
    Some(result)
}

/// Takes the own numbers back of a number that nobody bears, and frees it.
#[cold]
#[inline(never)]
fn free_nested(pid: Pid) {
    super::pid_space::forget(pid);
    change(pid, |_, state, bit| state.reserved &= !bit);
}

/// Gives up a processor's hold of the leaf of a number.
pub(super) fn release(pid: Pid) {
    let guard = rcu::read();
    let Some(leaf) = leaf(pid, &guard) else { return };
    let mut state = leaf.state.lock();
    state.holders -= 1;
    let is_unused = state.is_unused();
    drop(state);
    drop(guard);
    if is_unused {
        trim(pid);
    }
}

/// What a piece of a walk has found.
pub(super) enum Piece<R> {
    /// A process, and what the look at it says.
    Found(Pid, R),
    /// None up to this number.
    NoneBefore(Pid),
    /// None at all.
    End,
}

/// Looks for the process with the lowest number from `from` on, in one branch at most: a walk of a thousand processes is a thousand and some of
/// these, and between them whoever waits for this processor, or a grace period, has it.
pub(super) fn look_in_branch<R>(from: Pid, look: &mut impl FnMut(&Process) -> R) -> Piece<R> {
    let guard = rcu::read();
    let first = from / (LEAF * LEAVES);
    let branch = (first..BRANCHES).find_map(|at| Some((at, ROOT[at as usize].read(&guard)?)));
    let Some((at, branch)) = branch else { return Piece::End };
    let start = from.max(at * LEAF * LEAVES);
    let mut mask = !0 << (start % LEAF);
    for index in start / LEAF % LEAVES..LEAVES {
        let base = (at * LEAVES + index) * LEAF;
        if let Some(leaf) = branch.leaves[index as usize].read(&guard) {
            let mut listed = leaf.processes.load(Ordering::Relaxed) & mask;
            while listed != 0 {
                let pid = base + listed.trailing_zeros();
                if let Some(process) = leaf.bearers(pid).process.peek(&guard) {
                    return Piece::Found(pid, look(process));
                }
                // It has just ended.
                listed &= listed - 1;
            }
        }
        mask = !0;
    }
    Piece::NoneBefore((at + 1) * LEAF * LEAVES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that no other test uses.
    const FIRST: Pid = PID_MAX - 4 * LEAF * LEAVES;

    fn has_leaf(pid: Pid) -> bool {
        leaf(pid, &rcu::read()).is_some()
    }

    #[test]
    fn leaf_goes_with_its_last_number_and_its_last_holder() {
        with_leaf(FIRST, |_, state| (state.used, state.holders) = (0b11, 1)).expect("memory");
        assert!(change(FIRST, |_, _, bit| assert_eq!(bit, 1)).is_some());
        assert!(change(FIRST, |_, _, _| ()).is_none(), "it was free again");
        assert!(change(FIRST + 1, |_, _, _| ()).is_some());
        assert!(has_leaf(FIRST));
        release(FIRST);
        assert!(!has_leaf(FIRST));
    }

    #[test]
    fn trimming_keeps_what_is_used() {
        let pid = FIRST + LEAF * LEAVES;
        with_leaf(pid, |_, state| state.used = 1).expect("memory");
        trim(pid);
        assert!(has_leaf(pid));
        change(pid, |_, _, _| ());
        assert!(!has_leaf(pid));
    }

    #[test]
    fn root_ends_where_numbers_do() {
        assert!(!has_leaf(PID_MAX));
        assert!(!has_leaf(Pid::MAX));
        assert_eq!(with_leaf(PID_MAX, |_, _| ()), Err(Errno::EINVAL));
    }
}
