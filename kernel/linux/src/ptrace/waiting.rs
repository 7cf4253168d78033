//! What waiting tells a tracer of its tracees.
//!
//! A tracee is waited for by its thread's number, whatever it would send at its end: options for clones do not matter. Any thread of the tracer's process may
//! wait for it, unless it asks for its own only.

use alloc::sync::Arc;

use super::attach::{release, unlist};
use super::end::{give_back, listed, removals};
use super::tracee::Tracee;
use crate::process::pid_space;
use crate::process::process::Process;
use crate::process::thread::Thread;
use crate::signal::information::ChildEvent;
use crate::wait::{Finding, Report, Selection, WaitOptions, decode, usage_of};

/// One look at all that a process traces.
pub(crate) fn look(
    caller: &Arc<Thread>,
    process: &Process,
    selection: Selection,
    options: WaitOptions,
) -> Finding {
    loop {
        let before = removals(process);
        let mut finding = Finding::NoChild;
        let mut index = 0;
        while let Some(tracee) = listed(process, index) {
            index += 1;
            if !selects(&tracee, caller, selection, options) {
                continue;
            }
            finding = finding.or(examine(&tracee, process, options));
            if matches!(finding, Finding::Report(_)) {
                return finding;
            }
        }
        // One that left the list had another one take its place.
        if removals(process) == before {
            return finding;
        }
    }
}

fn selects(tracee: &Tracee, caller: &Arc<Thread>, selection: Selection, options: WaitOptions) -> bool {
    let named = match selection {
        Selection::Any => true,
        Selection::One(pid) => tracee.thread().tid() == pid,
        Selection::Group(id) => tracee.process().group_id() == id,
    };
    let own_only = options.contains(WaitOptions::NO_THREAD);
    named && tracee.tracer().is_some_and(|tracer| !own_only || Arc::ptr_eq(&tracer, caller))
}

fn examine(tracee: &Arc<Tracee>, process: &Process, options: WaitOptions) -> Finding {
    let keep = options.contains(WaitOptions::NO_WAIT);
    let mut state = tracee.lock();
    if state.tracer.is_none() {
        return Finding::NoChild;
    }
    let is_seen = state.stop.is_some() && !state.is_reported && state.resumption.is_none();
    match state.ended {
        Some(_) if !options.contains(WaitOptions::EXITED) => return Finding::Nothing,
        None if !is_seen => return Finding::Nothing,
        _ if state.is_telling => return Finding::InTheMaking,
        _ => {}
    }
    let Some(status) = state.ended else {
        state.is_reported = !keep;
        let code = state.stop.as_ref().map_or(0, |stop| stop.code);
        drop(state);
        return Finding::Report(report(process, tracee, ChildEvent::Trapped, code as i32, code << 8 | 0x7f));
    };
    drop(state);
    let (event, value) = decode(status);
    let report = report(process, tracee, event, value, status);
    if !keep {
        unlist(process, tracee);
        // Of two that wait one has it.
        if release(tracee, 0).is_none() {
            return Finding::NoChild;
        }
        give_back(tracee);
    }
    Finding::Report(report)
}

fn report(waiter: &Process, tracee: &Tracee, event: ChildEvent, value: i32, status: u32) -> Report {
    let user = tracee.thread().credentials().user.real;
    let pid = pid_space::seen(waiter.space(), tracee.thread().tid());
    Report { pid, user, event, value, status, usage: usage_of(tracee.process()) }
}
