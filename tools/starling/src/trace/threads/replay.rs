//! From records to the [`Model`]: the records are gone through in their order, and what each changes is noted.
//!
//! A trace may begin in the middle (only its last part was kept), lack kinds of records (its level), or end anywhere. So nothing is expected: an end without a beginning is
//! not counted, and what has no end when the records do lasts until then.
//!
//! Who ended a wait is told by what changed last in the object: who gave a lock or a semaphore back, signalled a condition variable, or came to a
//! barrier last.

use std::collections::{BTreeMap, BTreeSet};

use super::file::{Event, Record, Trace};
use super::model::{Effect, Key, Link, Model, Span, State, Thread};

const EBUSY: i64 = 16;
const ETIMEDOUT: i64 = 110;
/// What `pthread_barrier_wait` returns to one of the threads.
const SERIAL_THREAD: i64 = -1;

/// A call that a thread is in.
struct Call {
    event: String,
    class: String,
    object: Option<u64>,
    from_ns: u64,
    waited: bool,
}

/// What is going on in a thread.
#[derive(Default)]
struct Present {
    calls: Vec<Call>,
    waits_for: Option<(u64, u64)>,
    runs_since_ns: u64,
}

/// Who changed an object last, so that others go on.
#[derive(Clone, Copy)]
struct Change {
    thread: u32,
    time_ns: u64,
}

#[derive(Default)]
struct Replay {
    model: Model,
    present: BTreeMap<(u32, u32), Present>,
    /// Threads by handle: the last one that had it.
    handles: BTreeMap<Key, u32>,
    /// Creations whose thread has not begun, by handle.
    created: BTreeMap<Key, Change>,
    /// Threads that were detached before their first record, by handle.
    detached: BTreeSet<Key>,
    /// Ends of threads, by handle.
    ended: BTreeMap<Key, Change>,
    changed: BTreeMap<Key, Change>,
    /// Who has an object: thread, how many times, since when.
    holders: BTreeMap<Key, Vec<(u32, u32, u64)>>,
}

/// What the records of a trace come to.
pub(super) fn replay(trace: &Trace) -> Model {
    let mut replay = Replay::default();
    for record in &trace.records {
        replay.apply(trace.event(record), record);
    }
    replay.end(trace)
}

impl Replay {
    fn apply(&mut self, event: &Event, record: &Record) {
        self.model.end_ns = self.model.end_ns.max(record.time_ns);
        match event.name.as_str() {
            "CLOCK" => return,
            "LOST" => {
                self.model.lost_bytes += record.number(0).unwrap_or(0).cast_unsigned();
                return;
            }
            "PROCESS_ENDED" => {
                let process = record.number(0).and_then(|process| u32::try_from(process).ok());
                if let Some(process) = process.and_then(|process| self.model.processes.get_mut(&process)) {
                    process.status = record.number(1);
                }
                return;
            }
            _ => {}
        }
        self.thread(record).to_ns = record.time_ns;
        match event.name.as_str() {
            "PROCESS_INIT" => self.process_begins(record),
            "THREAD_INIT" => self.thread_begins(record),
            "THREAD_STATE_WAIT" => self.waits(record),
            "THREAD_STATE_WAKE" => self.wakes(record),
            "THREAD_STATE_CANCELLED" => self.is_cancelled(record),
            "THREAD_STATE_DEAD" => self.dies(record),
            "THREAD_CREATED" => self.has_created(record),
            "THREAD_JOIN" => self.has_joined(record),
            "THREAD_DETACH" => self.has_detached(record),
            "THREAD_NAME" => {
                let name = record.text(1).map(str::to_owned);
                self.with_thread(record, |thread| thread.name = name);
            }
            "MUTEX_TAKEN" | "RWLOCK_TAKEN" | "SPIN_TAKEN" => self.takes(event, record),
            "MUTEX_FREE" | "RWLOCK_FREE" | "SPIN_FREE" => self.gives_back(record),
            "SEM_TAKEN" => self.with_object(event, record, |object| object.taken += 1),
            "SEM_GIVEN" => {
                self.with_object(event, record, |object| object.given += 1);
                self.has_changed(record);
            }
            "SEM_NAME" | "QUEUE_NAME" => {
                let name = record.text(1).map(str::to_owned);
                self.with_object(event, record, |object| object.name = name);
            }
            _ if event.is_entry() => self.enters(event, record),
            _ if event.is_exit() => self.leaves(event, record),
            _ => {}
        }
    }

    fn thread(&mut self, record: &Record) -> &mut Thread {
        let key = (record.process, record.thread);
        self.present
            .entry(key)
            .or_insert_with(|| Present { runs_since_ns: record.time_ns, ..Present::default() });
        let begins = || Thread { from_ns: record.time_ns, to_ns: record.time_ns, ..Thread::default() };
        self.model.threads.entry(key).or_insert_with(begins)
    }

    fn present(&mut self, record: &Record) -> &mut Present {
        self.present.entry((record.process, record.thread)).or_default()
    }

    /// Changes the thread that the record's first parameter is the handle of.
    fn with_thread(&mut self, record: &Record, change: impl FnOnce(&mut Thread)) {
        let number = record.address(0).and_then(|handle| self.handles.get(&(record.process, handle)));
        if let Some(thread) = number.and_then(|number| self.model.threads.get_mut(&(record.process, *number)))
        {
            change(thread);
        }
    }

    /// Changes the object of the first parameter.
    fn with_object(
        &mut self,
        event: &Event,
        record: &Record,
        change: impl FnOnce(&mut super::model::Object),
    ) {
        if let Some(address) = record.address(0) {
            let object = self.model.objects.entry((record.process, address)).or_default();
            object.class.clone_from(&event.class);
            change(object);
        }
    }

    fn process_begins(&mut self, record: &Record) {
        let process = self.model.processes.entry(record.process).or_default();
        // Another program in the same process goes on with its times.
        if process.program.is_none() {
            process.from_ns = record.time_ns;
        }
        process.parent = record.number(0).and_then(|parent| u32::try_from(parent).ok());
        process.program = record.text(1).map(str::to_owned);
    }

    fn thread_begins(&mut self, record: &Record) {
        let handle = record.address(0);
        let routine = record.text(2).map(str::to_owned);
        let thread = self.thread(record);
        thread.handle = handle;
        thread.routine = routine;
        thread.from_ns = record.time_ns;
        self.present(record).runs_since_ns = record.time_ns;
        let Some(handle) = handle else { return };
        let key = (record.process, handle);
        self.handles.insert(key, record.thread);
        self.ended.remove(&key);
        if self.detached.remove(&key) {
            self.thread(record).detached = true;
        }
        // Its creator may tell of it later than it itself does.
        if let Some(created) = self.created.remove(&key) {
            self.creates(record, created, record.thread, record.time_ns);
        }
    }

    fn has_created(&mut self, record: &Record) {
        let Some(handle) = record.address(0) else { return };
        let key = (record.process, handle);
        let entered_ns = self.present(record).calls.last().map_or(record.time_ns, |call| call.from_ns);
        let creation = Change { thread: record.thread, time_ns: entered_ns };
        let child = self.handles.get(&key).copied();
        let begun =
            child.and_then(|number| Some((number, self.model.threads.get(&(record.process, number))?)));
        match begun {
            // A thread that had the handle before is not it.
            Some((number, thread)) if thread.from_ns >= entered_ns => {
                let from_ns = thread.from_ns;
                self.creates(record, creation, number, from_ns);
            }
            _ => _ = self.created.insert(key, creation),
        }
    }

    fn creates(&mut self, record: &Record, creation: Change, child: u32, begins_ns: u64) {
        if let Some(thread) = self.model.threads.get_mut(&(record.process, child)) {
            thread.start_ns = Some(begins_ns.saturating_sub(creation.time_ns));
        }
        self.link(record.process, Effect::Creates, creation, child, begins_ns);
    }

    fn link(&mut self, process: u32, effect: Effect, from: Change, to: u32, to_ns: u64) {
        // Times may be slightly out of order; an arrow does not go back.
        let to_ns = to_ns.max(from.time_ns);
        self.model.links.push(Link { process, effect, from: from.thread, from_ns: from.time_ns, to, to_ns });
    }

    fn waits(&mut self, record: &Record) {
        let Some(address) = record.address(0) else { return };
        let present = self.present(record);
        present.waits_for = Some((address, record.time_ns));
        let ran = Span { from_ns: present.runs_since_ns, to_ns: record.time_ns, what: State::Running };
        let class = present.calls.last_mut().map(|call| {
            call.waited = true;
            call.class.clone()
        });
        self.thread(record).spans.push(ran);
        if class.as_deref().is_some_and(|class| class != "THREAD") {
            let object = self.model.objects.entry((record.process, address)).or_default();
            object.class = class.unwrap_or_default();
            object.contended += 1;
        }
    }

    fn wakes(&mut self, record: &Record) {
        let present = self.present(record);
        present.runs_since_ns = record.time_ns;
        let Some((address, since_ns)) = present.waits_for.take() else { return };
        let waited_ns = record.time_ns.saturating_sub(since_ns);
        let thread = self.thread(record);
        thread.waits.add(waited_ns);
        thread.spans.push(Span { from_ns: since_ns, to_ns: record.time_ns, what: State::Waiting(address) });
        let key = (record.process, address);
        if let Some(object) = self.model.objects.get_mut(&key) {
            object.waits.add(waited_ns);
        }
        let change = self.changed.get(&key).copied();
        if let Some(change) =
            change.filter(|change| change.thread != record.thread && change.time_ns >= since_ns)
        {
            self.link(record.process, Effect::Wakes, change, record.thread, record.time_ns);
        }
    }

    fn is_cancelled(&mut self, record: &Record) {
        self.present(record).calls.clear();
        self.thread(record).cancelled = true;
    }

    fn dies(&mut self, record: &Record) {
        let present = self.present(record);
        present.calls.clear();
        let ran = Span { from_ns: present.runs_since_ns, to_ns: record.time_ns, what: State::Running };
        let thread = self.thread(record);
        thread.has_ended = true;
        thread.spans.push(ran);
        if let Some(handle) = thread.handle {
            let change = Change { thread: record.thread, time_ns: record.time_ns };
            self.ended.insert((record.process, handle), change);
        }
    }

    fn has_detached(&mut self, record: &Record) {
        let mut known = false;
        self.with_thread(record, |thread| {
            known = !thread.joined && !thread.detached;
            thread.detached |= known;
        });
        if let Some(handle) = record.address(0).filter(|_| !known) {
            self.detached.insert((record.process, handle));
        }
    }

    fn has_joined(&mut self, record: &Record) {
        self.with_thread(record, |thread| thread.joined = true);
        let Some(handle) = record.address(0) else { return };
        let key = (record.process, handle);
        if let Some(ended) = self.ended.remove(&key) {
            self.link(record.process, Effect::IsJoinedBy, ended, record.thread, record.time_ns);
        }
    }

    fn takes(&mut self, event: &Event, record: &Record) {
        let Some(address) = record.address(0) else { return };
        let writer = record.number(1).unwrap_or(1) != 0;
        // A wait on a condition variable takes its mutex again: that is not an acquisition by the program.
        let call = self.present(record).calls.last();
        let again = call.is_some_and(|call| call.class == "COND");
        self.with_object(event, record, |object| {
            object.taken += u64::from(!again);
            object.taken_by_writers += u64::from(writer && !again);
        });
        let holders = self.holders.entry((record.process, address)).or_default();
        match holders.iter_mut().find(|(thread, ..)| *thread == record.thread) {
            Some((_, depth, _)) => *depth += 1,
            None => holders.push((record.thread, 1, record.time_ns)),
        }
    }

    fn gives_back(&mut self, record: &Record) {
        let Some(address) = record.address(0) else { return };
        let key = (record.process, address);
        self.has_changed(record);
        let Some(holders) = self.holders.get_mut(&key) else { return };
        let Some(place) = holders.iter().position(|(thread, ..)| *thread == record.thread) else { return };
        holders[place].1 -= 1;
        if holders[place].1 == 0 {
            let (thread, _, since_ns) = holders.remove(place);
            if let Some(object) = self.model.objects.get_mut(&key) {
                object.holds.add(record.time_ns.saturating_sub(since_ns));
                object.held.push(Span { from_ns: since_ns, to_ns: record.time_ns, what: thread });
            }
        }
    }

    fn has_changed(&mut self, record: &Record) {
        if let Some(address) = record.address(0) {
            let change = Change { thread: record.thread, time_ns: record.time_ns };
            self.changed.insert((record.process, address), change);
        }
    }

    fn enters(&mut self, event: &Event, record: &Record) {
        let object = record.address(0).filter(|_| event.class != "THREAD");
        if object.is_some() {
            self.with_object(event, record, |_| {});
        }
        match event.name.as_str() {
            "COND_SIGNAL_IN" => self.with_object(event, record, |object| object.given += 1),
            "COND_BROADCAST_IN" => self.with_object(event, record, |object| object.broadcasts += 1),
            "THREAD_CANCEL_IN" => self.cancels(record),
            _ => {}
        }
        // The last one that comes to a barrier lets the others go on.
        if event.class == "COND" || event.name == "BARRIER_WAIT_IN" {
            self.has_changed(record);
        }
        let call = Call {
            event: event.name.clone(),
            class: event.class.clone(),
            object: record.address(0),
            from_ns: record.time_ns,
            waited: false,
        };
        self.present(record).calls.push(call);
    }

    fn cancels(&mut self, record: &Record) {
        let handle = record.address(0).unwrap_or_default();
        if let Some(target) = self.handles.get(&(record.process, handle)).copied() {
            let change = Change { thread: record.thread, time_ns: record.time_ns };
            self.link(record.process, Effect::Cancels, change, target, record.time_ns);
        }
    }

    fn leaves(&mut self, event: &Event, record: &Record) {
        let calls = &mut self.present(record).calls;
        // A call that was left by a jump has no exit.
        let entry = event.name.strip_suffix("_OUT").unwrap_or(&event.name);
        let Some(place) = calls.iter().rposition(|call| call.event.strip_suffix("_IN") == Some(entry)) else {
            return;
        };
        let call = calls.swap_remove(place);
        calls.truncate(place);
        let result = record.number(0).unwrap_or(0);
        let opened = entry == "BARRIER_WAIT" && result == SERIAL_THREAD;
        let by_errno = matches!(event.class.as_str(), "SEM" | "TIMER" | "QUEUE" | "PROCESS");
        let failed = if by_errno { result < 0 } else { result != 0 && !opened };
        let function = self.model.functions.entry(event.function().to_owned()).or_default();
        function.durations.add(record.time_ns.saturating_sub(call.from_ns));
        function.errors += u64::from(failed);
        let Some(object) =
            call.object.and_then(|object| self.model.objects.get_mut(&(record.process, object)))
        else {
            return;
        };
        object.rounds += u64::from(opened);
        object.timed_out += u64::from(event.class == "COND" && result == ETIMEDOUT);
        let takes = matches!(event.class.as_str(), "MUTEX" | "RWLOCK" | "SPIN")
            && matches!(result, EBUSY | ETIMEDOUT);
        let is_wait = event.class == "SEM" && (call.waited || entry.ends_with("WAIT")) && failed;
        object.refused += u64::from(takes || is_wait);
        if event.class == "QUEUE" && !failed {
            object.given += u64::from(entry.ends_with("SEND"));
            object.taken += u64::from(entry.ends_with("RECEIVE"));
        }
    }

    /// What has not ended lasts until the end of the trace, or the thread's last record if it is dead.
    fn end(mut self, trace: &Trace) -> Model {
        let end_ns = self.model.end_ns;
        for (key, present) in &self.present {
            let Some(thread) = self.model.threads.get_mut(key).filter(|thread| !thread.has_ended) else {
                continue;
            };
            let (from_ns, what) = match present.waits_for {
                Some((address, since_ns)) => (since_ns, State::Waiting(address)),
                None => (present.runs_since_ns, State::Running),
            };
            let to_ns = if what == State::Running { thread.to_ns } else { end_ns };
            thread.spans.push(Span { from_ns, to_ns: to_ns.max(from_ns), what });
        }
        for (key, holders) in &self.holders {
            if let Some(object) = self.model.objects.get_mut(key) {
                let spans = holders.iter().map(|&(what, _, from_ns)| Span {
                    from_ns,
                    to_ns: end_ns.max(from_ns),
                    what,
                });
                object.held.extend(spans);
            }
        }
        self.model.records = trace.records.len();
        self.model.record_bytes = trace.record_bytes;
        self.model.skipped_bytes = trace.skipped_bytes;
        self.model
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::tests::Written;
    use super::super::model::{Durations, Object};
    use super::*;

    const LOCK: [u32; 2] = [0x40, 0];

    fn lock(written: Written, thread: u32, at: u64) -> Written {
        written.add(thread, at, "MUTEX_LOCK_IN", &LOCK).add(thread, at, "MUTEX_TAKEN", &LOCK).add(
            thread,
            at,
            "MUTEX_LOCK_OUT",
            &[0],
        )
    }

    fn unlock(written: Written, thread: u32, at: u64) -> Written {
        let written = written.add(thread, at, "MUTEX_UNLOCK_IN", &LOCK).add(thread, at, "MUTEX_FREE", &LOCK);
        written.add(thread, at, "MUTEX_UNLOCK_OUT", &[0])
    }

    #[test]
    fn waiting_and_holding_are_counted_and_timed() {
        let mut written = lock(Written::begin(), 1, 100);
        written = written.add(2, 200, "MUTEX_LOCK_IN", &LOCK).add(2, 200, "THREAD_STATE_WAIT", &LOCK);
        written = unlock(written, 1, 600).add(2, 700, "THREAD_STATE_WAKE", &LOCK);
        written = written.add(2, 700, "MUTEX_TAKEN", &LOCK).add(2, 700, "MUTEX_LOCK_OUT", &[0]);
        let model = replay(&unlock(written, 2, 800).end());
        let object = &model.objects[&(7, 0x40)];
        let expected = Object {
            class: "MUTEX".into(),
            taken: 2,
            taken_by_writers: 2,
            contended: 1,
            waits: Durations { count: 1, total_ns: 250, longest_ns: 250 },
            holds: Durations { count: 2, total_ns: 300, longest_ns: 250 },
            held: vec![Span { from_ns: 50, to_ns: 300, what: 1 }, Span { from_ns: 350, to_ns: 400, what: 2 }],
            ..Object::default()
        };
        assert_eq!(*object, expected);
        let link = Link { process: 7, effect: Effect::Wakes, from: 1, from_ns: 300, to: 2, to_ns: 350 };
        assert_eq!(model.links, [link]);
        assert_eq!(model.functions["pthread_mutex_lock"].durations.count, 2);
    }

    #[test]
    fn a_recursive_lock_is_held_until_it_is_given_back_as_often() {
        let written = unlock(unlock(lock(lock(Written::begin(), 1, 100), 1, 200), 1, 300), 1, 500);
        let object = &replay(&written.end()).objects[&(7, 0x40)];
        assert_eq!((object.taken, object.holds), (2, Durations { count: 1, total_ns: 200, longest_ns: 200 }));
    }

    #[test]
    fn a_trace_that_begins_in_the_middle_has_ends_without_beginnings() {
        let written = unlock(Written::begin().add(1, 50, "THREAD_STATE_WAKE", &LOCK), 1, 100);
        let model = replay(&written.add(1, 150, "MUTEX_LOCK_OUT", &[0]).end());
        assert_eq!(model.objects[&(7, 0x40)].holds.count, 0);
        assert!(!model.functions.contains_key("pthread_mutex_lock"));
        assert_eq!(model.threads[&(7, 1)].waits.count, 0);
    }

    #[test]
    fn what_has_no_end_lasts_until_the_last_record() {
        let written = lock(Written::begin(), 1, 100).add(2, 200, "MUTEX_LOCK_IN", &LOCK);
        let model = replay(&written.add(2, 200, "THREAD_STATE_WAIT", &LOCK).end());
        let span = model.threads[&(7, 2)].spans.last().copied();
        assert_eq!(span, Some(Span { from_ns: 100, to_ns: 2000, what: State::Waiting(0x40) }));
        assert_eq!(model.objects[&(7, 0x40)].held, [Span { from_ns: 50, to_ns: 2000, what: 1 }]);
    }
}
