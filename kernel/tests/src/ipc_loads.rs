//! Messages and interrupts beside other work: Figures 16 to 18 of specs/fiasco-mp.md as tables, printed.
//!
//! | row | what is measured, in cycles of the time-stamp counter | what goes on meanwhile |
//! |---|---|---|
//! | local a | call and reply-and-wait of two threads of CPU A | nothing |
//! | local b | the same | the same between two threads of CPU B |
//! | local c | the same | a ping-pong of another thread of A with one of B |
//! | interrupt a | A interrupts B, until B's handler runs; A sends at varied times | nothing |
//! | interrupt b | the same | B allocates and frees frames |
//! | interrupt c | the same | a ping-pong of two threads of B |
//! | interrupt d | the same | a ping-pong of a thread of B with one of a third CPU |
//! | request, on | the same | B sends the third CPU requests that do nothing, and takes interrupts while it waits for the answers |
//! | request, off | the same | the same with interrupts off |
//!
//! B's handler takes the time, not A when it sees the flag: with instructions as the clock the CPUs take turns, and B's turn does not end
//! with its handler.
//!
//! How many requests the messages take is tested on every clock. How long they take, and the interrupts, with instructions as the clock.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

use ::ipc::statistics::{self, Counter};
use ::machine::cpu::{self, CpuId};
use ::machine::interrupt::{self, Vector};
use ::machine::{ipi, time};
use ::memory::frame::{Frame, Purpose, Zeroed};
use ::sched::timer;
use ::sync::SpinLock;
use ::sync::message_box::{self, Kind, Request, WORDS};

use super::ipc_costs::{Played, ROUNDS, Spent, play, print, rounds};
use super::kit::sleep_ns;
use super::{Failure, Outcome, Test, check, counts_instructions, fail};

pub(crate) const TESTS: &[Test] = &[
    Test { name: "ipc_loads::local_messages", run: local_messages },
    Test { name: "ipc_loads::interrupt_latency", run: interrupt_latency },
];

const A: CpuId = CpuId::from_index(0);
const B: CpuId = CpuId::from_index(1);
const THIRD: CpuId = CpuId::from_index(2);

/// Instructions from the sending of an interrupt until its handler runs: what no load may make it exceed.
const LATENCY_MAX: u64 = 10_000;

/// What goes on beside what is measured.
#[derive(Clone, Copy)]
enum Load {
    Nothing,
    /// Messages between threads of two CPUs, or of one.
    Messages(CpuId, CpuId),
    /// B does this again and again.
    Work(fn()),
}

/// Measures beside a load that goes on from before until after; returns how often that did what it does, too.
fn beside<T>(load: Load, measure: impl FnOnce() -> Result<T, Failure>) -> Result<(T, u64), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let played = match load {
        Load::Nothing => return Ok((measure()?, 0)),
        Load::Messages(client, server) => rounds(client, server, stop.clone(), usize::MAX)?,
        Load::Work(work) => {
            let mut played = Played::default();
            let (told, turns) = (stop.clone(), played.turns.clone());
            played.team.start(B, move || {
                while !told.load(SeqCst) {
                    work();
                    turns.fetch_add(1, SeqCst);
                }
            })?;
            played
        }
    };
    let turns = played.turns.clone();
    while turns.load(SeqCst) == 0 {
        sleep_ns(10_000);
    }
    let measured = measure();
    stop.store(true, SeqCst);
    played.end()?;
    Ok((measured?, turns.load(SeqCst)))
}

fn local_beside(name: &str, load: Load) -> Result<Spent, Failure> {
    let before = statistics::total(Counter::SendRequests);
    let (cycles, turns) = beside(load, || play(A, A))?;
    let requests = statistics::total(Counter::SendRequests) - before;
    let least = match load {
        // A message there and one back for each round, and one that ends them; of the last round nobody may have counted two.
        Load::Messages(client, server) if client != server => 2 * turns + 1,
        _ => 0,
    };
    check!((least..=least + least.min(2)).contains(&requests), "{name}: {requests} requests, not {least}");
    print("ipc_loads", name, cycles)
}

/// Figures 16 and 17.
fn local_messages() -> Outcome {
    if cpu::online().count() < 2 || cfg!(feature = "local-ipc") {
        return Ok(());
    }
    let alone = local_beside("local a", Load::Nothing)?;
    let elsewhere = local_beside("local b", Load::Messages(B, B))?;
    let here = local_beside("local c", Load::Messages(A, B))?;
    if counts_instructions() {
        // The way through the scheduler varies a little.
        let most = alone.median * 110 / 100;
        check!(elsewhere.median <= most, "b: {} for {}", elsewhere.median, alone.median);
        check!(here.median <= most, "c: {} for {}", here.median, alone.median);
    }
    Ok(())
}

/// When B's handler ran; 0 while it has not.
static ARRIVED: AtomicU64 = AtomicU64::new(0);
/// How often it did.
static ARRIVALS: AtomicU64 = AtomicU64::new(0);

fn arrive(_: usize) {
    ARRIVED.store(time::cycles(), Release);
    ARRIVALS.fetch_add(1, Relaxed);
    // With instructions as the clock it is A's turn now.
    cpu::relax();
}

/// From the sending of an interrupt until its handler runs, in all rounds.
fn latencies(vector: Vector) -> Result<Vec<u64>, Failure> {
    let measured = Arc::new(SpinLock::new(Vec::with_capacity(ROUNDS)));
    let mut played = Played { measured: measured.clone(), ..Played::default() };
    played.team.start(A, move || {
        for round in 0..ROUNDS as u64 {
            // A's timer ends B's turn wherever B is.
            timer::sleep_until_uninterruptible(time::now_ns() + 10_000 + round * 7_919 % 20_000);
            let off = interrupt::disable();
            ARRIVED.store(0, SeqCst);
            let sent = time::cycles();
            ipi::send_vector(B, vector);
            let mut arrived = 0;
            while arrived == 0 {
                cpu::relax();
                arrived = ARRIVED.load(Acquire);
            }
            drop(off);
            measured.lock().push(arrived.saturating_sub(sent));
        }
    })?;
    played.end()
}

fn request() {
    message_box::request(THIRD, Request { kind: Kind::Noop, words: [0; WORDS] });
}

fn request_with_interrupts_off() {
    let _off = interrupt::disable();
    request();
}

/// Figure 18.
fn interrupt_latency() -> Outcome {
    if cpu::online().count() < 3 || cfg!(feature = "local-ipc") {
        return Ok(());
    }
    let Some(vector) = interrupt::allocate_vector(arrive, 0) else { fail!("no vector is free") };
    let frames = || drop(Frame::allocate(Purpose::Kernel, Zeroed::No));
    let measure = |name, load| {
        ARRIVALS.store(0, Relaxed);
        let (cycles, _) = beside(load, || latencies(vector))?;
        let arrivals = ARRIVALS.load(Relaxed);
        check!(arrivals == ROUNDS as u64, "{name}: {arrivals} interrupts of {ROUNDS}");
        print("ipc_loads", name, cycles)
    };
    let alone = measure("interrupt a", Load::Nothing)?;
    let allocating = measure("interrupt b", Load::Work(frames))?;
    let local = measure("interrupt c", Load::Messages(B, B))?;
    let across = measure("interrupt d", Load::Messages(B, THIRD))?;
    let open = measure("request, on", Load::Work(request))?;
    let closed = measure("request, off", Load::Work(request_with_interrupts_off))?;
    if counts_instructions() {
        let order = [alone, allocating, local, across].map(|spent| spent.p99);
        check!(order.is_sorted(), "loads a to d delay interrupts by {order:?}");
        check!(open.p99 < closed.p99, "{} with interrupts on, {} with them off", open.p99, closed.p99);
        check!(across.longest <= LATENCY_MAX, "{} instructions", across.longest);
    }
    Ok(())
}
