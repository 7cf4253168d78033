//! Children without parents: who inherits them, and what they are told.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicUsize, Ordering};

use super::init;
use super::pid_space::PidSpace;
use super::process::{Process, State};
use super::table;
use crate::errno::Errno;
use crate::exit::End;
use crate::signal::information::SignalInformation;
use crate::signal::send;
use crate::signal::set::Signal;

/// Longest line of ancestors searched for a subreaper. Numbers are finite, so longer lines do not exist.
const ANCESTORS_MAX: u32 = super::table::PID_MAX;

/// Who inherits the children of a process that ends: its nearest ancestor that wants to (PR_SET_CHILD_SUBREAPER), else process 1.
pub fn heir_of(process: &Arc<Process>) -> Arc<Process> {
    let mut ancestor = process.parent();
    for _ in 0..ANCESTORS_MAX {
        let Some(candidate) = ancestor else { break };
        if !PidSpace::encloses(process.space(), candidate.space()) {
            break;
        }
        let open = || !candidate.children.lock().closed;
        if candidate.is_subreaper.load(Ordering::Relaxed) && !candidate.is_zombie() && open() {
            return candidate;
        }
        ancestor = candidate.parent();
    }
    init_of(process)
}

/// The init of a process's name space of process numbers, or of the first one around that has one that can take children.
fn init_of(process: &Arc<Process>) -> Arc<Process> {
    let mut space = process.space();
    while let Some(inner) = space {
        let init = inner.init().filter(|init| !init.children.lock().closed);
        if let Some(init) = init.filter(|init| !Arc::ptr_eq(init, process)) {
            return init;
        }
        space = inner.parent();
    }
    init::process()
}

/// Orphans that process 1 has room for. Written with its list of children locked.
static ORPHANS_MAX: AtomicUsize = AtomicUsize::new(0);

/// Sees to it that process 1 could adopt every process there is, one that is being made included: when a process ends, there may
/// be no memory to lengthen the list. Each thread can be making one process, hence twice the room.
///
/// # Errors
/// ENOMEM.
pub fn prepare_for_orphan() -> Result<(), Errno> {
    let wanted = 2 * (table::thread_count_at_most() as usize + 1);
    // Relaxed: grows only, and a look at an old number at most makes the room once more.
    if wanted <= ORPHANS_MAX.load(Ordering::Relaxed) {
        return Ok(());
    }
    let heir = init::process();
    let mut children = heir.children.lock();
    let missing = (2 * wanted).saturating_sub(children.list.len());
    memory::fallible::try_reserve(&mut children.list, missing).map_err(|_| Errno::ENOMEM)?;
    ORPHANS_MAX.store(children.list.capacity(), Ordering::Relaxed);
    Ok(())
}

/// Gives the children of an ending process to its heir.
#[inline(never)]
pub fn bequeath(process: &Arc<Process>) {
    let orphans = {
        let mut children = process.children.lock();
        children.closed = true;
        core::mem::take(&mut children.list)
    };
    if orphans.is_empty() {
        return;
    }
    let mut heir = heir_of(process);
    for orphan in orphans {
        let end = loop {
            let mut kinship = orphan.kinship.lock();
            // Who ends unwanted at this time is taken off the list of its old parent, which is empty by now. The heir gets none
            // that nobody would take off its list.
            if orphan.state() == State::Dead {
                break None;
            }
            let mut children = heir.children.lock();
            if children.closed {
                drop(children);
                drop(kinship);
                heir = heir_of(&heir);
                continue;
            }
            // Process 1 has the room: `prepare_for_orphan` saw to that.
            if heir.pid() != table::INIT && memory::fallible::try_reserve(&mut children.list, 1).is_err() {
                drop(children);
                drop(kinship);
                heir = init::process();
                continue;
            }
            // One that its tracer has not waited for yet is nobody else's.
            let is_held = orphan.is_leader_traced.load(Ordering::Relaxed);
            let is_zombie = orphan.state() == State::Zombie && !is_held;
            if is_zombie {
                orphan.begin_telling();
            }
            children.list.push(orphan.clone());
            drop(children);
            orphan.is_orphan.store(true, Ordering::Relaxed);
            let old = orphan.set_parent(&mut kinship, &heir);
            kinship.exit_signal = Signal::SIGCHLD.number();
            let death_signal = core::mem::take(&mut kinship.death_signal);
            let end = is_zombie.then(|| End::of(&kinship));
            if end.as_ref().is_some_and(|end| !end.wanted) {
                // The old parent's threads have all ended, the heir's wait until it has been told: nobody else takes it.
                orphan.set_state(State::Dead);
            }
            drop(kinship);
            drop(old);
            if let Some(signal) = Signal::new(death_signal.into()) {
                let _ = send::to_process(&orphan, SignalInformation::from_kernel(signal));
            }
            break end;
        };
        if let Some(end) = end {
            end.announce(&orphan);
        }
    }
}

/// A group that nobody outside can continue any more and that has stopped members gets SIGHUP and SIGCONT. The process that ends has
/// no thread any more, and so holds none.
#[inline(never)]
pub fn release_orphaned_groups(process: &Arc<Process>, children: &[Arc<Process>]) {
    let own = process.group();
    // Only a member with a parent elsewhere in the session kept its group from being orphaned.
    let held = process.parent().is_some_and(|parent| {
        let group = parent.group();
        group.id() != own.id() && group.session().id() == own.session().id()
    });
    if held {
        release_if_orphaned(&own);
    }
    for child in children {
        let group = child.group();
        if group.id() != own.id() && group.session().id() == own.session().id() {
            release_if_orphaned(&group);
        }
    }
}

fn release_if_orphaned(group: &Arc<super::group::ProcessGroup>) {
    let stopped = group.any_member(|member| {
        matches!(member.signals.lock().stop, crate::signal::shared::StopState::Stopped(_))
    });
    if !stopped || !group.is_orphaned() {
        return;
    }
    group.any_member(|member| {
        let _ = send::to_process(member, SignalInformation::from_kernel(Signal::SIGHUP));
        let _ = send::to_process(member, SignalInformation::from_kernel(Signal::SIGCONT));
        false
    });
}
