//! The end of tracers and of tracees.
//!
//! A thread that ends traced stays with its tracer until that has waited for it, and so does its number; a leader stays until its process ends, and is then told
//! of as that. If the tracer is not the parent, the process is the tracer's first, and the parent's when the tracer has waited, or ends itself: until then it is
//! a zombie that the parent does not see.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use super::attach::{let_go, release, unlist};
use super::options::Options;
use super::stop::{signal_of, tell};
use super::tracee::Tracee;
use crate::exit::End;
use crate::process::process::{Kinship, Process};
use crate::process::table;
use crate::process::thread::Thread;
use crate::signal::actions::{ActionFlags, IGNORE};
use crate::signal::information::SignalInformation;
use crate::signal::send;
use crate::signal::set::Signal;

/// A tracer ends: its tracees are let go, or killed if it has asked for that. Once it is known to end, it gets no new ones.
pub(crate) fn tracer_ends(thread: &Arc<Thread>) {
    let process = thread.process();
    loop {
        let tracee = {
            // Also where nothing says that it has ever traced one: the first one may just be listing itself.
            let tracees = process.tracees.lock();
            let is_own = |tracee: &&Arc<Tracee>| {
                tracee.lock().tracer.as_ref().is_none_or(|tracer| Arc::ptr_eq(tracer, thread))
            };
            tracees.list.iter().find(is_own).cloned()
        };
        let Some(tracee) = tracee else { return };
        let (kills, signal) = {
            let state = tracee.lock();
            (state.options.contains(Options::EXIT_KILL), signal_of(&state))
        };
        if kills {
            let information = SignalInformation::from_kernel(Signal::SIGKILL);
            let _ = send::to_process(tracee.process(), information);
        }
        unlist(process, &tracee);
        let_go(&tracee, signal);
    }
}

/// What a tracer had of a tracee that has ended is let go.
pub(super) fn give_back(tracee: &Arc<Tracee>) {
    if tracee.is_leader() {
        give_to_parent(tracee.process());
    } else {
        table::remove_thread(tracee.thread().tid(), tracee.thread());
    }
}

/// The parent sees the end of its child now. One that waits for its children although it ignores their ends may have been faster.
fn give_to_parent(process: &Arc<Process>) {
    let (end, tracee) = {
        let kinship = process.kinship.lock();
        // Before a parent that waits can see it.
        process.begin_telling();
        let tracee = process.traced_end.lock().take();
        // Release: pairs with the Acquire of `tracer_of_leader`.
        process.is_leader_traced.store(false, Ordering::Release);
        let mut end = End::of(&kinship);
        if !end.wanted {
            end.wanted = !process.claim_zombie();
        }
        (end, tracee)
    };
    end.announce(process);
    drop(tracee);
}

/// Whether a tracer does not want to wait for those that end.
fn is_careless(tracer: &Thread) -> bool {
    let action = tracer.process().actions().get(Signal::SIGCHLD);
    action.handler == IGNORE || action.flags.contains(ActionFlags::NO_CHILD_WAIT)
}

/// Takes what traces a thread that has left its process out of its slot, for the last time.
fn last_look(thread: &Thread) -> Option<Arc<Tracee>> {
    debug_assert!(thread.exiting.load(Ordering::Relaxed), "nobody takes the slot any more");
    thread.trace.lock().clone()
}

/// A thread has left its process. Returns whether its tracer keeps its number.
pub(crate) fn thread_ended(process: &Arc<Process>, thread: &Arc<Thread>, status: u32) -> bool {
    let Some(tracee) = last_look(thread) else { return false };
    if tracee.is_leader() {
        *process.traced_end.lock() = Some(tracee);
        return false;
    }
    let tracer = {
        let mut state = tracee.lock();
        let Some(tracer) = state.tracer.clone() else { return false };
        (state.ended, state.is_telling) = (Some(status), true);
        tracer
    };
    if is_careless(&tracer) {
        unlist(tracer.process(), &tracee);
        // Who has released it meanwhile has given the number back, too.
        if release(&tracee, 0).is_some() {
            return false;
        }
    }
    tell_end(&tracee, &tracer, thread.tid(), status);
    true
}

fn tell_end(tracee: &Tracee, tracer: &Thread, tid: u32, status: u32) {
    let process = tracee.process();
    let (event, value) = crate::wait::decode(status);
    let (user, system) = process.cpu_time_ns();
    let ticks = |ns: u64| ns / crate::time::NS_PER_TICK;
    let owner = tracee.thread().credentials().user.real;
    tell(
        tracer,
        SignalInformation::child(Signal::SIGCHLD, event, tid, owner, value, ticks(user), ticks(system)),
    );
    tracee.lock().is_telling = false;
    tracer.process().child_event.wake_all();
}

/// A process whose end its tracer is told first.
pub(crate) struct Held {
    tracee: Arc<Tracee>,
    tracer: Arc<Thread>,
}

impl Held {
    /// Whether the end of a process is for its tracer first. Under `kinship`, as what follows.
    pub(crate) fn of(process: &Arc<Process>, kinship: &Kinship, status: u32) -> Option<Held> {
        if !process.is_leader_traced.load(Ordering::Relaxed) {
            return None;
        }
        let tracee = process.traced_end.lock().clone();
        if let Some(tracee) = tracee
            && let Some(tracer) = tracee.tracer()
        {
            let is_parent =
                kinship.parent.as_ref().is_some_and(|parent| Arc::ptr_eq(parent, tracer.process()));
            if !is_parent && !is_careless(&tracer) {
                let mut state = tracee.lock();
                if state.tracer.is_some() {
                    (state.ended, state.is_telling) = (Some(status), true);
                    drop(state);
                    return Some(Held { tracee, tracer });
                }
            }
            unlist(tracer.process(), &tracee);
            let _whoever_was_first = release(&tracee, 0);
        }
        // Also where the tracer has let go at this very time.
        process.is_leader_traced.store(false, Ordering::Relaxed);
        None
    }

    /// Tells the tracer. The process is a zombie, and `kinship` is free.
    pub(crate) fn announce(self, status: u32) {
        tell_end(&self.tracee, &self.tracer, self.tracee.process().pid(), status);
    }
}

/// The end of a process is its parent's matter: what its leader was traced as refers to it no longer.
pub(crate) fn forget_tracee(process: &Process) {
    let tracee = process.traced_end.lock().take();
    drop(tracee);
}

/// The parent of a process, which is also who traces it, waits for its end: as its tracer it has nothing to wait for any more.
pub(crate) fn waited_for(process: &Process) {
    let tracee = process.traced_end.lock().take();
    if let Some(tracee) = tracee {
        if let Some(tracer) = tracee.tracer() {
            unlist(tracer.process(), &tracee);
        }
        let _whoever_was_first = release(&tracee, 0);
    }
}

/// A thread that executes a program takes the place and the number of its leader, which has ended: nobody is told of that one's end.
pub(crate) fn leader_is_replaced(process: &Arc<Process>, heir: &Thread) {
    let former = process.traced_end.lock().take();
    if let Some(tracee) = former {
        if let Some(tracer) = tracee.tracer() {
            unlist(tracer.process(), &tracee);
        }
        let _ = release(&tracee, 0);
        // A tracer that lets go of it at this very time may not say later that the leader is not traced.
        let slot = tracee.thread().trace.lock().take();
        drop(slot);
    }
    // With the slot locked: whoever begins or ends to trace the heir now says of the leader what is so.
    let slot = heir.trace.lock();
    heir.set_tid(process.pid());
    process.is_leader_traced.store(slot.is_some(), Ordering::Relaxed);
}

/// Those that a tracer can wait for, one after the other: it may let go of the list in between.
pub(super) fn listed(process: &Process, index: usize) -> Option<Arc<Tracee>> {
    process.tracees.lock().list.get(index).cloned()
}

/// How many have left a tracer's list.
pub(super) fn removals(process: &Process) -> u64 {
    process.tracees.lock().removals
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicUsize;
    use std::sync::Mutex;

    use super::*;
    use crate::credentials::identity::Credentials;
    use crate::process::exercise::Maker;
    use crate::process::thread::Shared;
    use crate::ptrace::attach::link;
    use crate::signal::set::SignalSet;

    fn thread(process: &Arc<Process>) -> Arc<Thread> {
        let shared = Shared {
            credentials: Arc::new(Credentials::root().expect("memory")),
            files: None,
            file_system: None,
            name: Default::default(),
            charge: None,
            undo: None,
            name_spaces: None,
            restriction: Default::default(),
            closing: Default::default(),
        };
        Arc::new(Thread::new(process.pid(), process.clone(), SignalSet::EMPTY, shared))
    }

    /// The zombie of a process that is its tracer's first, and what it is traced as.
    fn held(pids: [u32; 2]) -> (Arc<Process>, Arc<Tracee>, Arc<Thread>) {
        let maker = Maker::new().expect("memory");
        let [process, other] = pids.map(|pid| maker.make(pid).expect("memory"));
        let (leader, tracer) = (thread(&process), thread(&other));
        let credentials = tracer.credentials();
        let tracee = Tracee::new(&leader, &tracer, credentials, Options::default(), false).expect("memory");
        link(&tracee, &tracer).expect("nobody traces it");
        leader.exiting.store(true, Ordering::Relaxed);
        assert!(!thread_ended(&process, &leader, 0), "a leader's number is its process's");
        let kinship = process.kinship.lock();
        let held = Held::of(&process, &kinship, 0).expect("it is traced");
        process.set_state(crate::process::process::State::Zombie);
        drop(kinship);
        held.announce(0);
        (process, tracee, tracer)
    }

    #[test]
    fn who_is_let_go_when_it_has_ended_is_given_back() {
        let (process, tracee, tracer) = held([930, 931]);
        assert!(process.is_leader_traced.load(Ordering::Relaxed));
        // The tracer has seen it stand before it was killed.
        unlist(tracer.process(), &tracee);
        crate::ptrace::attach::let_go(&tracee, 0);
        assert!(!process.is_leader_traced.load(Ordering::Relaxed) && !process.is_telling());
        assert!(process.traced_end.lock().is_none(), "they would keep each other");
    }

    #[test]
    fn a_tracer_that_lets_go_at_the_end_leaves_nothing() {
        let maker = Maker::new().expect("memory");
        let [process, other] = [932, 933].map(|pid| maker.make(pid).expect("memory"));
        let (leader, tracer) = (thread(&process), thread(&other));
        let credentials = tracer.credentials();
        let tracee = Tracee::new(&leader, &tracer, credentials, Options::default(), false).expect("memory");
        link(&tracee, &tracer).expect("nobody traces it");
        leader.exiting.store(true, Ordering::Relaxed);
        assert!(!thread_ended(&process, &leader, 0));
        unlist(&other, &tracee);
        assert_eq!(release(&tracee, 0), Some(None));
        assert!(Held::of(&process, &process.kinship.lock(), 0).is_none());
        forget_tracee(&process);
        assert!(process.traced_end.lock().is_none());
    }

    /// Does both at the same time, each time with other new processes, a tracee and its tracer, and looks whether all is well when both are done.
    fn at_once(
        one: impl Fn(&Arc<Tracee>, &Arc<Thread>) + Sync,
        other: impl Fn(&Arc<Tracee>, &Arc<Thread>) + Sync,
        is_well: impl Fn(&Arc<Tracee>, &Arc<Thread>) -> bool,
    ) {
        const ROUNDS: usize = 3000;
        const DISTANCES: usize = 300;
        let maker = Maker::new().expect("memory");
        let pair = Mutex::new(None);
        let mut faults = 0;
        // What has begun, and what the other thread has done of it. They look at it without sleeping, to begin within the same moment.
        let (begun, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let wait_for = |counter: &AtomicUsize, value: usize| {
            let mut looks = 0;
            while counter.load(Ordering::Acquire) < value {
                looks += 1;
                if looks % 1000 == 0 { std::thread::yield_now() } else { core::hint::spin_loop() }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    wait_for(&begun, 2 * round - 1);
                    let (tracee, tracer): (Arc<Tracee>, Arc<Thread>) =
                        pair.lock().expect("no panic").clone().expect("it is set");
                    done.store(2 * round - 1, Ordering::Release);
                    wait_for(&begun, 2 * round);
                    other(&tracee, &tracer);
                    done.store(2 * round, Ordering::Release);
                }
            });
            for round in 1..=ROUNDS {
                let [leader, tracer] = [940, 941].map(|pid| thread(&maker.make(pid).expect("memory")));
                let credentials = tracer.credentials();
                let tracee =
                    Tracee::new(&leader, &tracer, credentials, Options::default(), false).expect("memory");
                *pair.lock().expect("no panic") = Some((tracee.clone(), tracer.clone()));
                begun.store(2 * round - 1, Ordering::Release);
                wait_for(&done, 2 * round - 1);
                begun.store(2 * round, Ordering::Release);
                (0..round % DISTANCES).for_each(|_| core::hint::spin_loop());
                one(&tracee, &tracer);
                wait_for(&done, 2 * round);
                faults += usize::from(!is_well(&tracee, &tracer));
            }
        });
        assert_eq!(faults, 0, "of {ROUNDS} rounds");
    }

    fn trace(tracee: &Arc<Tracee>, tracer: &Arc<Thread>) {
        let _whether_it_came_too_late = link(tracee, tracer);
    }

    #[test]
    fn who_ends_keeps_no_tracee_that_comes_at_the_last_moment() {
        let end = |_: &Arc<Tracee>, tracer: &Arc<Thread>| {
            crate::signal::deliver::retire(tracer);
            tracer_ends(tracer);
        };
        at_once(end, trace, |tracee, tracer| {
            // Nobody would let it go.
            tracer.process().tracees.lock().list.is_empty()
                && !tracee.thread().is_traced()
                && !tracee.process().is_leader_traced.load(Ordering::Relaxed)
        });
    }

    #[test]
    fn who_has_ended_is_nobodys_or_its_tracer_knows_how() {
        let end = |tracee: &Arc<Tracee>, _: &Arc<Thread>| {
            let (leader, process) = (tracee.thread(), tracee.process());
            crate::signal::deliver::retire(leader);
            if leader.is_traced() {
                let _keeps_no_number = thread_ended(process, leader, 0);
            }
            let kinship = process.kinship.lock();
            let held = Held::of(process, &kinship, 0);
            process.set_state(crate::process::process::State::Zombie);
            drop(kinship);
            if let Some(held) = held {
                held.announce(0);
            }
        };
        at_once(end, trace, |tracee, tracer| {
            let process = tracee.process();
            let is_held = process.is_leader_traced.load(Ordering::Relaxed);
            // Else neither its parent nor its tracer would hear of its end.
            let is_heard_of = is_held == process.traced_end.lock().is_some();
            let listed = tracer.process().tracees.lock().list.first().cloned();
            let is_known = listed.is_none_or(|listed| is_held && listed.lock().ended.is_some());
            tracer_ends(tracer);
            is_heard_of && is_known && !process.is_leader_traced.load(Ordering::Relaxed)
        });
    }
}
