//! The graph of orders seen: an edge from A to B says that a lock of class B was taken while one of class A was held.
//!
//! Whether an edge is there is one load of a bitmap. A new one is added under a lock, after a search for a way from its
//! end to its start: finding one means that two CPUs that take these locks at the same time may wait for each other for
//! ever. With each edge it is kept where it was seen first.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

use machine::backtrace::Backtrace;
use machine::{interrupt, preempt};

use super::registry::{CLASSES_MAX, ClassId};
use crate::QueueLock;

const WORDS: usize = CLASSES_MAX / 64;
/// Edges whose places are kept.
const PLACES_MAX: usize = 2048;
/// Calls kept of a place.
const CALLS: usize = 12;

type Bitmap = [[AtomicU64; WORDS]; CLASSES_MAX];

/// Edges that are in the graph, or that were reported. Written under `CHANGING`.
static SEEN: Bitmap = [const { [const { AtomicU64::new(0) }; WORDS] }; CLASSES_MAX];
static CHANGING: QueueLock = QueueLock::new();
static GRAPH: Guarded = Guarded(UnsafeCell::new(Graph {
    edges: [[0; WORDS]; CLASSES_MAX],
    places: [Place { from: 0, to: 0, calls: [0; CALLS] }; PLACES_MAX],
    count: 0,
    reached_from: [0; CLASSES_MAX],
    to_visit: [0; CLASSES_MAX],
}));

/// Where an edge was seen first: return addresses, innermost first.
#[derive(Clone, Copy)]
pub(super) struct Place {
    from: u16,
    to: u16,
    pub(super) calls: [usize; CALLS],
}

struct Graph {
    edges: [[u64; WORDS]; CLASSES_MAX],
    places: [Place; PLACES_MAX],
    count: usize,
    /// For a search: 1 + the class from which one was reached.
    reached_from: [u16; CLASSES_MAX],
    to_visit: [u16; CLASSES_MAX],
}

struct Guarded(UnsafeCell<Graph>);

// SAFETY: reached in `with_graph` only, by the holder of `CHANGING`.
unsafe impl Sync for Guarded {}

fn with_graph<R>(body: impl FnOnce(&mut Graph) -> R) -> R {
    let _preemption = preempt::disable();
    let _interrupts = interrupt::disable();
    CHANGING.lock();
    // SAFETY: the lock is held.
    let result = body(unsafe { &mut *GRAPH.0.get() });
    CHANGING.unlock();
    result
}

/// The classes on a way against the order, the calls that made each step, and how many steps there are.
pub(super) struct Way {
    pub(super) steps: [(ClassId, ClassId, [usize; CALLS]); STEPS_MAX],
    pub(super) length: usize,
}

/// Steps reported of a way.
pub(super) const STEPS_MAX: usize = 6;

/// Whether the order is known, or was reported.
#[inline]
pub(super) fn is_known(from: ClassId, to: ClassId) -> bool {
    SEEN[from.index()][to.index() / 64].load(Ordering::Relaxed) & bit(to) != 0
}

const fn bit(class: ClassId) -> u64 {
    1 << (class.0 % 64)
}

/// Adds an order, unless there is a way back, which is returned.
#[cold]
#[inline(never)]
pub(super) fn add(from: ClassId, to: ClassId) -> Option<Way> {
    with_graph(|graph| {
        if SEEN[from.index()][to.index() / 64].fetch_or(bit(to), Ordering::Relaxed) & bit(to) != 0 {
            return None;
        }
        if graph.reach(to, from) {
            return Some(graph.way(to, from));
        }
        graph.edges[from.index()][to.index() / 64] |= bit(to);
        if graph.count < PLACES_MAX {
            let place = Place { from: from.0, to: to.0, calls: calls_here() };
            graph.places[graph.count] = place;
            graph.count += 1;
        }
        None
    })
}

/// Whether the pair, which is no order, is reported for the first time.
pub(super) fn note_reported(from: ClassId, to: ClassId) -> bool {
    SEEN[from.index()][to.index() / 64].fetch_or(bit(to), Ordering::Relaxed) & bit(to) == 0
}

/// Who called, innermost first.
pub(super) fn calls_here() -> [usize; CALLS] {
    let mut calls = [0; CALLS];
    for (slot, address) in calls.iter_mut().zip(Backtrace::here().addresses().skip(2)) {
        *slot = address;
    }
    calls
}

/// Calls `body` with each order there is.
pub(super) fn for_each(mut body: impl FnMut(ClassId, ClassId)) {
    for from in ClassId::all() {
        for to in ClassId::all() {
            let there = with_graph(|graph| graph.edges[from.index()][to.index() / 64] & bit(to) != 0);
            if there {
                body(from, to);
            }
        }
    }
}

impl Graph {
    /// Whether there is a way; `reached_from` tells it then.
    fn reach(&mut self, start: ClassId, end: ClassId) -> bool {
        self.reached_from.fill(0);
        let mut waiting = 1;
        self.to_visit[0] = start.0;
        self.reached_from[start.index()] = start.0 + 1;
        while waiting > 0 {
            waiting -= 1;
            let at = self.to_visit[waiting];
            for next in 0..CLASSES_MAX as u16 {
                let there = self.edges[usize::from(at)][usize::from(next) / 64] & bit(ClassId(next)) != 0;
                if !there || self.reached_from[usize::from(next)] != 0 {
                    continue;
                }
                self.reached_from[usize::from(next)] = at + 1;
                if next == end.0 {
                    return true;
                }
                self.to_visit[waiting] = next;
                waiting += 1;
            }
        }
        false
    }

    /// The way that `reach` has just found, its last steps if it is long.
    fn way(&self, start: ClassId, end: ClassId) -> Way {
        let mut way = Way { steps: [(start, end, [0; CALLS]); STEPS_MAX], length: 0 };
        let mut at = end.0;
        while at != start.0 && way.length < STEPS_MAX {
            let before = self.reached_from[usize::from(at)] - 1;
            let place = self.places[..self.count].iter().find(|place| place.from == before && place.to == at);
            let calls = place.map_or([0; CALLS], |place| place.calls);
            way.steps[way.length] = (ClassId(before), ClassId(at), calls);
            way.length += 1;
            at = before;
        }
        way
    }
}
