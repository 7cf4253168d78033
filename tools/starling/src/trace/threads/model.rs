//! What a trace says of threads and objects: states over time, counts, sums of times.

use std::collections::BTreeMap;

/// A thread or an object of a process.
pub(super) type Key = (u32, u64);

/// How often something lasted, for how long in all, and for how long at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(super) struct Durations {
    pub(super) count: u64,
    pub(super) total_ns: u64,
    pub(super) longest_ns: u64,
}

impl Durations {
    pub(super) fn add(&mut self, ns: u64) {
        self.count += 1;
        self.total_ns += ns;
        self.longest_ns = self.longest_ns.max(ns);
    }
}

/// What a thread does for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It runs, or could.
    Running,
    /// It waits for an object, or another thread.
    Waiting(u64),
}

/// A time, and what was the case then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span<T> {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    pub(super) what: T,
}

/// A thread, by its number.
#[derive(Clone, Debug, Default)]
pub(super) struct Thread {
    /// What its library calls it.
    pub(super) handle: Option<u64>,
    /// Its start routine's name.
    pub(super) routine: Option<String>,
    /// The name that the program gave it.
    pub(super) name: Option<String>,
    pub(super) from_ns: u64,
    /// Its last record.
    pub(super) to_ns: u64,
    /// Whether its end was recorded.
    pub(super) has_ended: bool,
    pub(super) joined: bool,
    pub(super) detached: bool,
    pub(super) cancelled: bool,
    /// From its creation to its start routine.
    pub(super) start_ns: Option<u64>,
    pub(super) waits: Durations,
    pub(super) spans: Vec<Span<State>>,
}

/// An object, by its address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Object {
    /// `MUTEX`, and so on.
    pub(super) class: String,
    /// A name that the program gave it.
    pub(super) name: Option<String>,
    /// How often it was taken: locks, and units of semaphores.
    pub(super) taken: u64,
    /// Of these, by writers.
    pub(super) taken_by_writers: u64,
    /// How often somebody had to wait for it first.
    pub(super) contended: u64,
    /// Calls that ended without it: it was busy, a time ran out, or an error.
    pub(super) refused: u64,
    pub(super) waits: Durations,
    pub(super) holds: Durations,
    /// Signals of a condition variable, units given to a semaphore, messages that were sent.
    pub(super) given: u64,
    /// Of a condition variable.
    pub(super) broadcasts: u64,
    /// How often a barrier opened.
    pub(super) rounds: u64,
    /// Waits of a condition variable that ended because time ran out.
    pub(super) timed_out: u64,
    /// Who had it when.
    pub(super) held: Vec<Span<u32>>,
}

/// Calls of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Calls {
    pub(super) durations: Durations,
    pub(super) errors: u64,
}

/// What one thread did to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Effect {
    /// It made it.
    Creates,
    /// It made its wait end: by giving back a lock, a signal, the last arrival at a barrier.
    Wakes,
    /// It waited for its end.
    IsJoinedBy,
    /// It cancelled it.
    Cancels,
}

/// An arrow between two threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) process: u32,
    pub(super) effect: Effect,
    pub(super) from: u32,
    pub(super) from_ns: u64,
    pub(super) to: u32,
    pub(super) to_ns: u64,
}

/// A process.
#[derive(Clone, Debug, Default)]
pub(super) struct Process {
    pub(super) parent: Option<u32>,
    pub(super) program: Option<String>,
    /// As wait(2) tells it, if the recorder waited for it.
    pub(super) status: Option<i64>,
    pub(super) from_ns: u64,
}

/// All that a trace says.
#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) processes: BTreeMap<u32, Process>,
    /// By process and number.
    pub(super) threads: BTreeMap<(u32, u32), Thread>,
    pub(super) objects: BTreeMap<Key, Object>,
    pub(super) functions: BTreeMap<String, Calls>,
    pub(super) links: Vec<Link>,
    /// Time of the last record.
    pub(super) end_ns: u64,
    pub(super) records: usize,
    pub(super) record_bytes: usize,
    pub(super) skipped_bytes: usize,
    /// Bytes that the recorder knows nobody wrote.
    pub(super) lost_bytes: u64,
}
