//! Sockets that only messages hold which nobody can receive.
//!
//! A socket can be sent through a socket. When all descriptors of a socket are closed while it lies in the inbox of another
//! one that is lost in the same way, or in its own, reference counts never fall to zero. So sockets in flight are
//! registered, each with the socket in whose inbox it lies, and a collection looks for those that can't be reached: its
//! nodes are the sockets in flight; one whose references are not all from messages is reachable, and so is what lies in the
//! inbox of a reachable one. Inboxes of the others are emptied.
//!
//! # Why a snapshot suffices
//! A socket that is found without a reference from outside gets one only by being received, which takes a reference to
//! the socket in whose inbox it lies, and registration ([`take_off`], [`land`]) takes the registry's lock, as does who only looks at a
//! message and so has its sockets too ([`between_counts`]). References that go while the
//! collection looks only make it keep more; the next one finds it.
//!
//! # Connections that wait
//! The inbox of a connection that waits to be accepted ([`listen`](super::listen)) counts as the listening socket's, which nobody but a
//! receiver of that one can accept from. Which connections wait is looked up after the references were counted: with a listening
//! socket that is lost nothing is accepted since then, and what was accepted before is a holder of its own.
//!
//! # When, and what it costs
//! A collection costs n log n for n sockets in flight, so one runs after every n/16 ends of sockets and sendings of some:
//! each of them pays for a few steps. With few in flight every end of a socket runs one. Of a long chain of sockets that
//! end one after the other ([`rights`](super::rights)), only the last end does.
//!
//! # Locking
//! The registry is a sleeping lock under which nothing else is locked, and no file is dropped.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use vfs::{OpenFile, Result, allocation};

use super::endpoint::Endpoint;
use super::socket::UnixSocket;

/// One socket in one message.
struct Entry {
    /// The socket in whose inbox it lies.
    holder: Endpoint,
    /// The socket in flight.
    target: u64,
    file: Weak<OpenFile>,
}

/// Entries by place; places without one are in `free`, which always has room for all of them.
struct Registry {
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
}

/// A place in the registry.
pub(super) struct Flight(usize);

static REGISTRY: sched::Mutex<Registry> =
    sched::Mutex::new(Registry { entries: Vec::new(), free: Vec::new() });
/// Entries in use; changed under the lock.
static FLIGHTS: AtomicUsize = AtomicUsize::new(0);
static COLLECTING: AtomicBool = AtomicBool::new(false);
static AGAIN: AtomicBool = AtomicBool::new(false);

/// Ends and sendings of sockets since the last collection.
static EVENTS: AtomicUsize = AtomicUsize::new(0);

/// So many sockets in flight are looked at for each event.
const FLIGHTS_PER_EVENT: usize = 16;
/// Passes of one collection at most: what one sets free may hold what the next one finds.
const PASSES_MAX: usize = 8;

/// Registers a socket that is about to lie in the inbox of `holder`.
pub(super) fn take_off(holder: &Endpoint, target: u64, file: &Arc<OpenFile>) -> Result<Flight> {
    collect_if_due();
    let mut registry = REGISTRY.lock();
    let entry = Entry { holder: holder.clone(), target, file: Arc::downgrade(file) };
    let place = match registry.free.pop() {
        Some(place) => {
            registry.entries[place] = Some(entry);
            place
        }
        None => {
            let places = registry.entries.len() + 1;
            allocation::reserve_total(&mut registry.free, places)?;
            allocation::push(&mut registry.entries, Some(entry))?;
            places - 1
        }
    };
    FLIGHTS.fetch_add(1, Ordering::Relaxed);
    Ok(Flight(place))
}

/// Takes a socket off the registry.
pub(super) fn land(flight: Flight) {
    // What the entry refers to is dropped after the lock.
    let entry;
    let mut registry = REGISTRY.lock();
    entry = registry.entries[flight.0].take();
    debug_assert!(entry.is_some(), "a flight ends once");
    debug_assert!(registry.free.len() < registry.free.capacity());
    registry.free.push(flight.0);
    if FLIGHTS.fetch_sub(1, Ordering::Relaxed) == 1 {
        registry.entries = Vec::new();
        registry.free = Vec::new();
    }
}

/// Runs while no collection counts references: for who takes one from a message that stays where it is.
pub(super) fn between_counts<R>(act: impl FnOnce() -> R) -> R {
    let _registry = REGISTRY.lock();
    act()
}

/// A socket has ended or is about to be sent: runs a collection when it is time. Without sockets in flight: one load.
pub(super) fn collect_if_due() {
    let flights = FLIGHTS.load(Ordering::Relaxed);
    if flights == 0 {
        return;
    }
    // Relaxed: a count that may be a little off.
    let events = EVENTS.fetch_add(1, Ordering::Relaxed) + 1;
    if events * FLIGHTS_PER_EVENT >= flights {
        collect();
    }
}

/// Empties the inboxes of sockets that nobody can reach.
fn collect() {
    if COLLECTING.swap(true, Ordering::AcqRel) {
        // Within a collection's own disposal, or beside another one, which will look again.
        AGAIN.store(true, Ordering::Release);
        return;
    }
    EVENTS.store(0, Ordering::Relaxed);
    for _ in 0..PASSES_MAX {
        AGAIN.store(false, Ordering::Release);
        // Without memory to look there is nothing to find; the next collection may have it.
        let lost = find_lost().unwrap_or_default();
        for file in &lost {
            if let Some(socket) = file.object::<UnixSocket>() {
                socket.purge();
            }
        }
        drop(lost);
        if !AGAIN.load(Ordering::Acquire) {
            break;
        }
    }
    COLLECTING.store(false, Ordering::Release);
}

/// A socket in flight.
struct Node {
    id: u64,
    file: Arc<OpenFile>,
    reachable: bool,
}

/// The sockets that can't be reached.
fn find_lost() -> Result<Vec<Arc<OpenFile>>> {
    let mut nodes = Vec::new();
    let lost = {
        let registry = REGISTRY.lock();
        let edges = edges(&registry)?;
        collect_nodes(&registry, &edges, &mut nodes)?;
        // Only now, see "Connections that wait".
        let by_holder = by_holder(&registry)?;
        mark(&by_holder, &mut nodes)?;
        nodes.iter().filter(|node| !node.reachable).count()
    };
    // From here on files may be dropped.
    let mut files = Vec::new();
    allocation::reserve(&mut files, lost)?;
    files.extend(nodes.into_iter().filter(|node| !node.reachable).map(|node| node.file));
    Ok(files)
}

/// A socket in an inbox: target and place in the registry.
type Edge = (u64, usize);

/// All flights by target.
fn edges(registry: &Registry) -> Result<Vec<Edge>> {
    let mut edges = Vec::new();
    allocation::reserve(&mut edges, registry.entries.len())?;
    for (place, entry) in registry.entries.iter().enumerate() {
        if let Some(entry) = entry {
            edges.push((entry.target, place));
        }
    }
    sorting::sort(&mut edges);
    Ok(edges)
}

/// The sockets in flight by number; reachable are for now those that something else than messages refers to.
fn collect_nodes(registry: &Registry, edges: &[Edge], nodes: &mut Vec<Node>) -> Result<()> {
    allocation::reserve(nodes, edges.len())?;
    for group in edges.chunk_by(|a, b| a.0 == b.0) {
        let (id, place) = group[0];
        let Some(file) = registry.entries[place].as_ref().and_then(|entry| entry.file.upgrade()) else {
            continue;
        };
        // One of the references is ours.
        let reachable = Arc::strong_count(&file) - 1 > group.len();
        nodes.push(Node { id, file, reachable });
    }
    Ok(())
}

/// All flights by holder: holder and target. What waits to be accepted is part of the socket where it waits.
fn by_holder(registry: &Registry) -> Result<Vec<(u64, u64)>> {
    let mut by_holder = Vec::new();
    allocation::reserve(&mut by_holder, registry.entries.len())?;
    for entry in registry.entries.iter().flatten() {
        // Acquire: pairs with the Release when it is queued and when it is accepted.
        let holder = match entry.holder.end().queued_at.load(Ordering::Acquire) {
            0 => entry.holder.id(),
            listener => listener,
        };
        by_holder.push((holder, entry.target));
    }
    sorting::sort(&mut by_holder);
    Ok(by_holder)
}

/// Marks what lies in the inboxes of reachable sockets, and what lies in the inboxes of that.
fn mark(by_holder: &[(u64, u64)], nodes: &mut [Node]) -> Result<()> {
    let index_of = |nodes: &[Node], id: u64| nodes.binary_search_by_key(&id, |node| node.id).ok();
    let mut work = Vec::new();
    allocation::reserve(&mut work, nodes.len())?;
    // A holder that is not in flight itself is somebody's.
    for &(holder, target) in by_holder {
        if index_of(nodes, holder).is_none()
            && let Some(index) = index_of(nodes, target)
        {
            nodes[index].reachable = true;
        }
    }
    work.extend(nodes.iter().filter(|node| node.reachable).map(|node| node.id));
    while let Some(holder) = work.pop() {
        let first = by_holder.partition_point(|&(other, _)| other < holder);
        for &(_, target) in by_holder[first..].iter().take_while(|&&(other, _)| other == holder) {
            if let Some(index) = index_of(nodes, target)
                && !nodes[index].reachable
            {
                nodes[index].reachable = true;
                // Each node is entered once: there is room.
                work.push(target);
            }
        }
    }
    Ok(())
}
