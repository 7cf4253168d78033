//! What messages between threads cost: Tables 3 to 5 of specs/fiasco-mp.md, printed. (Tables 1 and 2 are `message_box_costs`.)
//!
//! | row | what is measured, in cycles of the time-stamp counter for a round trip |
//! |---|---|
//! | local | call and reply-and-wait of two threads of one CPU |
//! | local, yield | the same two threads sleeping and waking by a wait queue each, for comparison |
//! | cross | call and reply-and-wait across two CPUs |
//! | cross, loaded | the same while two threads of one of the CPUs play ping-pong |
//! | expected | two requests that do nothing: what the boxes alone take of `cross` |
//!
//! In a kernel built with `--features local-ipc` the rows across CPUs are missing: it has no cross-processor path, and row `local`
//! shows what that path costs those who do not need it.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use ::ipc::Operation;
use ::machine::cpu::{self, CpuId};
use ::machine::time;
use ::sched::WaitQueue;
use ::sync::message_box::{self, Kind, Request, WORDS};

use super::ipc::{Address, NEVER, ZERO, endpoint, operate};
use super::kit::Team;
use super::{Failure, Outcome, Test, check};

pub(crate) const TESTS: &[Test] = &[Test { name: "ipc_costs::table", run: table }];

pub(super) const ROUNDS: usize = 3_000;
const A: CpuId = CpuId::from_index(0);
const B: CpuId = CpuId::from_index(1);

/// What most of the rounds took, and the longest.
#[derive(Clone, Copy)]
pub(super) struct Spent {
    pub(super) median: u64,
    /// All but one of a hundred took less.
    pub(super) p99: u64,
    pub(super) longest: u64,
}

/// Prints what was measured in all rounds of a row of a table.
pub(super) fn print(table: &str, name: &str, mut cycles: Vec<u64>) -> Result<Spent, Failure> {
    check!(cycles.len() == ROUNDS, "{name}: {} rounds of {ROUNDS}", cycles.len());
    cycles.sort_unstable();
    let mean = cycles.iter().sum::<u64>() / ROUNDS as u64;
    let best = cycles[0];
    let spent =
        Spent { median: cycles[ROUNDS / 2], p99: cycles[ROUNDS * 99 / 100], longest: cycles[ROUNDS - 1] };
    check!(best > 0, "{name}: a round took no time");
    let Spent { median, p99, longest } = spent;
    ::machine::console::print(format_args!(
        "{table} {name:<14} mean {mean:>9} median {median:>9} best {best:>9} p99 {p99:>9} longest {longest:>9} cycles\n"
    ));
    Ok(spent)
}

/// Round trips of a client with a server; stops early when told.
pub(super) fn rounds(
    client: CpuId,
    server: CpuId,
    stop: Arc<AtomicBool>,
    count: usize,
) -> Result<Played, Failure> {
    let mut team = Team::new();
    let address = Address::default();
    let own = address.clone();
    team.start(server, move || {
        let mut me = endpoint();
        own.publish(&me);
        let mut next = operate(&mut me, &Operation::receive(None, NEVER));
        while let Ok(request) = next {
            if request.message[1] != 0 {
                return;
            }
            next = operate(&mut me, &Operation::reply_and_wait(request.from, request.message, ZERO, NEVER));
        }
    })?;
    let measured = Arc::new(::sync::SpinLock::new(Vec::with_capacity(count.min(ROUNDS))));
    let turns = Arc::new(AtomicU64::new(0));
    let (results, counter) = (measured.clone(), turns.clone());
    team.start(client, move || {
        let (to, mut me) = (address.get(), endpoint());
        for round in 0..count {
            let begin = time::cycles();
            let answer = operate(&mut me, &Operation::call(to, [round as u64, 0, 0], NEVER, NEVER));
            let spent = time::cycles() - begin;
            if answer.is_err() || stop.load(SeqCst) {
                break;
            }
            counter.fetch_add(1, SeqCst);
            if round < ROUNDS {
                results.lock().push(spent);
            }
        }
        let _over = operate(&mut me, &Operation::send(to, [0, 1, 0], NEVER));
    })?;
    Ok(Played { team, measured, turns })
}

/// Threads that measure something in rounds, or do it as a load.
#[derive(Default)]
pub(super) struct Played {
    pub(super) team: Team,
    pub(super) measured: Arc<::sync::SpinLock<Vec<u64>>>,
    /// Rounds of a load so far.
    pub(super) turns: Arc<AtomicU64>,
}

impl Played {
    pub(super) fn end(self) -> Result<Vec<u64>, Failure> {
        self.team.join()?;
        Ok(core::mem::take(&mut *self.measured.lock()))
    }
}

pub(super) fn play(client: CpuId, server: CpuId) -> Result<Vec<u64>, Failure> {
    rounds(client, server, Arc::default(), ROUNDS)?.end()
}

/// Two threads of one CPU that wake each other through wait queues.
fn wait_queues() -> Result<Vec<u64>, Failure> {
    struct Table {
        turn: AtomicU64,
        queues: [WaitQueue; 2],
    }
    let table = Arc::new(Table { turn: AtomicU64::new(0), queues: [WaitQueue::new(), WaitQueue::new()] });
    let mut team = Team::new();
    let other = table.clone();
    team.start(A, move || {
        for round in 0..ROUNDS as u64 {
            other.queues[1].wait_until(|| other.turn.load(SeqCst) == 2 * round + 1);
            other.turn.store(2 * round + 2, SeqCst);
            other.queues[0].wake_one_synchronous();
        }
    })?;
    let measured = Arc::new(::sync::SpinLock::new(Vec::with_capacity(ROUNDS)));
    let results = measured.clone();
    team.start(A, move || {
        for round in 0..ROUNDS as u64 {
            let begin = time::cycles();
            table.turn.store(2 * round + 1, SeqCst);
            table.queues[1].wake_one_synchronous();
            table.queues[0].wait_until(|| table.turn.load(SeqCst) == 2 * round + 2);
            results.lock().push(time::cycles() - begin);
        }
    })?;
    Played { team, measured, ..Played::default() }.end()
}

fn two_requests() -> Result<Vec<u64>, Failure> {
    let measured = Arc::new(::sync::SpinLock::new(Vec::with_capacity(ROUNDS)));
    let results = measured.clone();
    let mut team = Team::new();
    team.start(A, move || {
        for _ in 0..ROUNDS {
            let begin = time::cycles();
            for _ in 0..2 {
                message_box::request(B, Request { kind: Kind::Noop, words: [0; WORDS] });
            }
            results.lock().push(time::cycles() - begin);
        }
    })?;
    Played { team, measured, ..Played::default() }.end()
}

fn row(name: &str, cycles: Vec<u64>) -> Outcome {
    print("ipc_costs", name, cycles).map(drop)
}

fn table() -> Outcome {
    row("local", play(A, A)?)?;
    row("local, queues", wait_queues()?)?;
    if cpu::online().count() < 2 || cfg!(feature = "local-ipc") {
        return Ok(());
    }
    row("expected", two_requests()?)?;
    row("cross", play(A, B)?)?;
    let stop = Arc::new(AtomicBool::new(false));
    let load = rounds(B, B, stop.clone(), usize::MAX)?;
    let loaded = play(A, B);
    stop.store(true, SeqCst);
    load.end()?;
    row("cross, loaded", loaded?)
}
