//! Messages between threads on real CPUs: the tests of specs/fiasco-mp.md item 47 by their names. What races it hunts, and whether it
//! would notice the historic bugs, is in `ipc_races`; the model of the protocol with all interleavings is `kernel/ipc/tests/model.rs`.
//!
//! Sender and receiver count what succeeded; the counts must be equal.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use ::ipc::{Caller, Endpoint, Error, Failure, Operation, Options, Received, ThreadId, Timeout};
use ::machine::cpu::{self, CpuId};
use ::machine::time;
use ::sched::{RunState, ThreadRef, timer};
use ::sync::Once;

use super::kit::{Meeting, Sweep, Team, delay};
use super::{HANG_NS, Outcome, Test, check};

pub(crate) const TESTS: &[Test] = &[
    Test { name: "ipc::test_ipc_pingpong_call", run: test_ipc_pingpong_call },
    Test { name: "ipc::test_ipc_pingpong_nocall", run: test_ipc_pingpong_nocall },
    Test { name: "ipc::test_ipc_send", run: test_ipc_send },
    Test { name: "ipc::test_ipc_noblock_send", run: test_ipc_noblock_send },
    Test { name: "ipc::test_ipc_cancel", run: test_ipc_cancel },
    Test { name: "ipc::test_ipc_timeout_send", run: test_ipc_timeout_send },
    Test { name: "ipc::test_stress_cross_pingpong", run: test_stress_cross_pingpong },
    Test { name: "ipc::test_stress_rcv_sync_send", run: test_stress_rcv_sync_send },
    Test { name: "ipc::test_stress_rcv_fail_send", run: test_stress_rcv_fail_send },
    Test { name: "ipc::test_stress_rcv_mixed", run: test_stress_rcv_mixed },
    Test { name: "ipc::test_ipc_kill", run: test_ipc_kill },
];

pub(super) const NEVER: Timeout = Timeout::Never;
pub(super) const ZERO: Timeout = Timeout::Zero;

/// An operation's outcome.
pub(super) type Result = core::result::Result<Received, Failure>;

/// The calling thread's endpoint.
pub(super) fn endpoint() -> Endpoint {
    Endpoint::register(&Caller::KERNEL, Options::default()).expect("a test's threads have numbers")
}

pub(super) fn operate(endpoint: &mut Endpoint, operation: &Operation) -> Result {
    endpoint.operate(operation, &Caller::KERNEL)
}

/// Whether the operation failed, and so.
pub(super) fn failed_with(result: &Result, error: Error) -> bool {
    *result == Err(Failure::Ipc(error))
}

/// Where a thread leaves its number for the others.
#[derive(Clone, Default)]
pub(super) struct Address(Arc<AtomicU64>);

impl Address {
    pub(super) fn publish(&self, endpoint: &Endpoint) {
        self.0.store(endpoint.id().to_bits(), SeqCst);
    }

    /// The number, when it is there.
    pub(super) fn get(&self) -> ThreadId {
        loop {
            match self.0.load(SeqCst) {
                0 => {
                    let _ = timer::sleep_until(time::now_ns() + 20_000);
                }
                bits => return ThreadId::from_bits(bits),
            }
        }
    }
}

/// CPU 0 and each other one, and CPU 0 with itself.
fn pairs() -> impl Iterator<Item = (CpuId, CpuId)> {
    cpu::online().iter().map(|other| (CpuId::from_index(0), other))
}

/// A call and its answer, so many times; `calls` or separate sends and receives. Counts what went wrong.
pub(super) fn ping_pong(
    team: &mut Team,
    (client, server): (CpuId, CpuId),
    rounds: u64,
    calls: bool,
    wrong: &Arc<AtomicU64>,
) -> Outcome {
    let address = Address::default();
    let (own, bad) = (address.clone(), wrong.clone());
    team.start(server, move || {
        let mut me = endpoint();
        own.publish(&me);
        let mut next = operate(&mut me, &Operation::receive(None, NEVER));
        for round in 0..rounds {
            let Ok(request) = next else { break };
            if request.message[0] != round {
                bad.fetch_add(1, Relaxed);
            }
            let answer = [round + 1, request.message[1], !round];
            next = match (calls, round + 1 == rounds) {
                (true, false) => {
                    operate(&mut me, &Operation::reply_and_wait(request.from, answer, ZERO, NEVER))
                }
                (true, true) => operate(&mut me, &Operation::send(request.from, answer, ZERO)),
                (false, last) => {
                    let sent = operate(&mut me, &Operation::send(request.from, answer, NEVER));
                    if sent.is_err() || last {
                        sent
                    } else {
                        operate(&mut me, &Operation::receive(None, NEVER))
                    }
                }
            };
        }
        if next.is_err() {
            bad.fetch_add(1, Relaxed);
        }
    })?;
    let bad = wrong.clone();
    team.start(client, move || {
        let (to, mut me) = (address.get(), endpoint());
        for round in 0..rounds {
            let message = [round, round ^ 5, 0];
            let answer = if calls {
                operate(&mut me, &Operation::call(to, message, NEVER, NEVER))
            } else {
                operate(&mut me, &Operation::send(to, message, NEVER))
                    .and_then(|_| operate(&mut me, &Operation::receive(Some(to), NEVER)))
            };
            match answer {
                Ok(answer) if answer.message == [round + 1, round ^ 5, !round] && answer.from == to => {}
                _ => {
                    bad.fetch_add(1, Relaxed);
                    return;
                }
            }
        }
    })?;
    Ok(())
}

fn ping_pongs(calls: bool) -> Outcome {
    const ROUNDS: u64 = 300;
    let wrong = Arc::new(AtomicU64::new(0));
    for pair in pairs() {
        let mut team = Team::new();
        ping_pong(&mut team, pair, ROUNDS, calls, &wrong)?;
        team.join()?;
    }
    let wrong = wrong.load(Relaxed);
    check!(wrong == 0, "{wrong} round trips went wrong");
    Ok(())
}

fn test_ipc_pingpong_call() -> Outcome {
    ping_pongs(true)
}

fn test_ipc_pingpong_nocall() -> Outcome {
    ping_pongs(false)
}

/// Both directions on every pair of neighbours at once.
fn test_stress_cross_pingpong() -> Outcome {
    const ROUNDS: u64 = 200;
    let wrong = Arc::new(AtomicU64::new(0));
    let count = cpu::online().count();
    let mut team = Team::new();
    for index in 0..count {
        let (this, next) = (CpuId::from_index(index), CpuId::from_index((index + 1) % count));
        ping_pong(&mut team, (this, next), ROUNDS, true, &wrong)?;
        ping_pong(&mut team, (next, this), ROUNDS, index % 2 == 0, &wrong)?;
    }
    team.join()?;
    let wrong = wrong.load(Relaxed);
    check!(wrong == 0, "{wrong} round trips went wrong");
    Ok(())
}

const SWEEP: Sweep = Sweep::new(3_000, 60);
/// Sweeps of each race.
const SWEEPS: u32 = 3;

/// The other CPU of a race; `None` where there is only one.
fn other() -> Option<CpuId> {
    cpu::online().iter().nth(1)
}

/// What the sender and the receiver of a race know of each other, for the rounds in which one of them must be first.
#[derive(Default)]
struct Pair {
    sender: Once<ThreadRef>,
    receiver: Once<ThreadRef>,
    /// Sends that have failed, in the rounds that say so.
    failed: AtomicU32,
}

impl Pair {
    /// Waits until the thread of that place sleeps: in its operation, because it has come to the meeting of the round.
    fn await_sleep(thread: &Once<ThreadRef>) {
        spin_until(|| thread.get().is_some_and(|thread| thread.state() == RunState::Sleeping));
    }

    fn note_failure(&self) {
        self.failed.fetch_add(1, SeqCst);
    }

    fn await_failure(&self) {
        spin_until(|| self.failed.load(SeqCst) > 0);
    }
}

/// Spins until the condition holds. Gives up when the test hangs: then it fails for another reason.
fn spin_until(condition: impl Fn() -> bool) {
    let limit = time::now_ns() + HANG_NS / 2;
    while !condition() && time::now_ns() < limit {
        cpu::relax();
    }
}

/// One round of a race, as one of the two sees it.
struct Turn<'a> {
    partner: ThreadId,
    number: u32,
    pair: &'a Pair,
}

impl Turn<'_> {
    /// In this round the send fails for sure, because the receiver comes only then.
    fn is_too_early(&self) -> bool {
        self.number == 0
    }

    /// In this round the send succeeds for sure, because the partner waits for it.
    fn is_expected(&self) -> bool {
        self.number == 1
    }
}

/// Rounds of a race.
const ROUNDS: u32 = SWEEP.rounds * SWEEPS;

/// Rounds of a sender and a receiver on two CPUs that leave a meeting together. Each says what it achieved in a round; the sums must
/// be the same. Returns how many messages were sent in [`ROUNDS`]; None where there is only one CPU.
fn race(
    send: impl Fn(&mut Endpoint, &Turn<'_>) -> bool + Send + 'static,
    receive: impl Fn(&mut Endpoint, &Turn<'_>) -> bool + Send + 'static,
) -> core::result::Result<Option<u32>, super::Failure> {
    let Some(there) = other() else { return Ok(None) };
    let meeting = Arc::new(Meeting::new(2));
    let (sent, received) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (sender, receiver) = (Address::default(), Address::default());
    let pair = Arc::new(Pair::default());
    let mut team = Team::new();
    let (meet, count, own, partner) = (meeting.clone(), sent.clone(), sender.clone(), receiver.clone());
    let ours = pair.clone();
    let thread = team.start(CpuId::from_index(0), move || {
        let mut me = endpoint();
        own.publish(&me);
        let partner = partner.get();
        for number in 0..ROUNDS {
            meet.meet();
            let sent = send(&mut me, &Turn { partner, number, pair: &ours });
            count.fetch_add(u32::from(sent), SeqCst);
        }
        meet.meet();
    })?;
    pair.sender.call_once(|| thread);
    let (count, ours) = (received.clone(), pair.clone());
    let thread = team.start(there, move || {
        let mut me = endpoint();
        receiver.publish(&me);
        let partner = sender.get();
        for number in 0..ROUNDS {
            meeting.meet();
            let received = receive(&mut me, &Turn { partner, number, pair: &ours });
            count.fetch_add(u32::from(received), SeqCst);
        }
        meeting.meet();
    })?;
    pair.receiver.call_once(|| thread);
    team.join()?;
    let (sent, received) = (sent.load(SeqCst), received.load(SeqCst));
    check!(sent == received, "{sent} messages sent, {received} received");
    Ok(Some(sent))
}

/// A race with time-outs must have both outcomes, or its sweep met nothing.
fn both_outcomes(sent: Option<u32>) -> Outcome {
    let Some(sent) = sent else { return Ok(()) };
    log::info!("{sent} messages of {ROUNDS} were sent");
    check!(
        (1..ROUNDS).contains(&sent),
        "{sent} messages of {ROUNDS} were sent: the others' case did not occur"
    );
    Ok(())
}

fn test_ipc_send() -> Outcome {
    for sender_swept in [false, true] {
        let sent = race(
            move |me, turn| {
                if sender_swept {
                    SWEEP.delay_swept(turn.number)
                } else {
                    SWEEP.delay_fixed()
                }
                operate(me, &Operation::send(turn.partner, [u64::from(turn.number); 3], NEVER)).is_ok()
            },
            move |me, turn| {
                if sender_swept {
                    SWEEP.delay_fixed()
                } else {
                    SWEEP.delay_swept(turn.number)
                }
                let from = (turn.number % 2 == 0).then_some(turn.partner);
                let received = operate(me, &Operation::receive(from, NEVER));
                received.is_ok_and(|received| received.message == [u64::from(turn.number); 3])
            },
        )?;
        check!(sent.is_none_or(|sent| sent == ROUNDS), "{sent:?} messages of {ROUNDS} were sent");
    }
    Ok(())
}

/// A word of messages that are not counted: they free a receiver whose sender came too early.
const UNCOUNTED: u64 = u64::MAX;

fn test_ipc_noblock_send() -> Outcome {
    let sent = race(
        |me, turn| {
            if turn.is_expected() {
                Pair::await_sleep(&turn.pair.receiver);
            } else {
                SWEEP.delay_swept(turn.number);
            }
            if operate(me, &Operation::send(turn.partner, [1; 3], ZERO)).is_ok() {
                return true;
            }
            turn.pair.note_failure();
            let _freed = operate(me, &Operation::send(turn.partner, [UNCOUNTED; 3], NEVER));
            false
        },
        |me, turn| {
            if turn.is_too_early() {
                turn.pair.await_failure();
            } else {
                SWEEP.delay_fixed();
            }
            let received = operate(me, &Operation::receive(Some(turn.partner), NEVER));
            received.is_ok_and(|received| received.message[0] != UNCOUNTED)
        },
    )?;
    both_outcomes(sent)
}

fn test_ipc_timeout_send() -> Outcome {
    /// The send's time-out, in place of the fixed delay.
    const TIMEOUT_NS: u64 = 150_000;
    let sent = race(
        |me, turn| {
            let timeout_ns = if turn.is_expected() { HANG_NS / 2 } else { TIMEOUT_NS };
            let sent = operate(me, &Operation::send(turn.partner, [1; 3], Timeout::After(timeout_ns)));
            if failed_with(&sent, Error::SendTimeout) {
                turn.pair.note_failure();
            }
            sent.is_ok()
        },
        |me, turn| {
            if turn.is_too_early() {
                turn.pair.await_failure();
            } else if turn.is_expected() {
                Pair::await_sleep(&turn.pair.sender);
            } else {
                let wait_ns =
                    2 * TIMEOUT_NS * u64::from(turn.number % SWEEP.rounds) / u64::from(SWEEP.rounds);
                let end_ns = time::now_ns() + wait_ns;
                while time::now_ns() < end_ns {
                    cpu::relax();
                }
            }
            operate(me, &Operation::receive(Some(turn.partner), ZERO)).is_ok()
        },
    )?;
    both_outcomes(sent)
}

/// A helper on the sender's CPU cancels the send while a receiver on the other CPU comes for it. In the first round the receiver comes
/// when the send is cancelled, in the second the helper when the message is taken.
fn test_ipc_cancel() -> Outcome {
    const ROUNDS: u32 = 120;
    let Some(there) = other() else { return Ok(()) };
    let here = CpuId::from_index(0);
    // The round that runs; the sender's and the receiver's outcome: 1 + success.
    let (round, ends) = (Arc::new(AtomicU32::new(0)), Arc::new([const { AtomicU32::new(0) }; 2]));
    let stop = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = (Address::default(), Address::default());
    let mut team = Team::new();
    let pause = || {
        let _ = timer::sleep_until(time::now_ns() + 10_000);
    };
    let (now, end, over) = (round.clone(), ends.clone(), stop.clone());
    let (own, partner) = (sender.clone(), receiver.clone());
    team.start(here, move || {
        let mut me = endpoint();
        own.publish(&me);
        let to = partner.get();
        let mut done = 0;
        while !over.load(SeqCst) {
            if now.load(SeqCst) == done {
                pause();
                continue;
            }
            done += 1;
            let sent = operate(&mut me, &Operation::send(to, [1; 3], NEVER)).is_ok();
            end[0].store(1 + u32::from(sent), SeqCst);
        }
    })?;
    let (now, end, over, from) = (round.clone(), ends.clone(), stop.clone(), sender.clone());
    team.start(there, move || {
        let mut me = endpoint();
        receiver.publish(&me);
        let from = from.get();
        let mut done = 0;
        while !over.load(SeqCst) {
            if now.load(SeqCst) == done {
                pause();
                continue;
            }
            let mut timeout = ZERO;
            match done {
                0 => spin_until(|| end[0].load(SeqCst) != 0),
                1 => timeout = Timeout::After(HANG_NS / 2),
                _ => delay(SWEEP.swept(done) * 4),
            }
            done += 1;
            let received = operate(&mut me, &Operation::receive(Some(from), timeout)).is_ok();
            end[1].store(1 + u32::from(received), SeqCst);
        }
    })?;
    let (mismatches, taken) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (count, success) = (mismatches.clone(), taken.clone());
    team.start(here, move || {
        let victim = sender.get();
        for number in 0..ROUNDS {
            round.fetch_add(1, SeqCst);
            pause();
            if number == 1 {
                while ends[1].load(SeqCst) == 0 {
                    pause();
                }
            }
            SWEEP.delay_fixed();
            while ends[0].load(SeqCst) == 0 {
                let _ = ::ipc::cancel(victim, &Caller::KERNEL, None);
                ::sched::yield_now();
            }
            while ends[1].load(SeqCst) == 0 {
                pause();
            }
            let outcomes = [ends[0].swap(0, SeqCst), ends[1].swap(0, SeqCst)];
            count.fetch_add(u32::from(outcomes[0] != outcomes[1]), SeqCst);
            success.fetch_add(outcomes[0] - 1, SeqCst);
        }
        stop.store(true, SeqCst);
    })?;
    team.join()?;
    let (mismatches, taken) = (mismatches.load(SeqCst), taken.load(SeqCst));
    check!(mismatches == 0, "{mismatches} messages were taken and cancelled, or neither");
    log::info!("{taken} messages of {ROUNDS} were taken before they were cancelled");
    check!(
        (1..ROUNDS).contains(&taken),
        "{taken} messages of {ROUNDS} were taken: the others' case did not occur"
    );
    Ok(())
}

/// Senders on all CPUs to one receiver.
struct Crowd {
    team: Team,
    succeeded: Arc<AtomicU32>,
    timed_out: Arc<AtomicU32>,
    ended: Arc<AtomicU32>,
    senders: u32,
}

/// Messages of each sender of a crowd.
const MESSAGES: u32 = 40;

fn crowd(to: ThreadId, timeout_of: fn(u32) -> Timeout) -> core::result::Result<Crowd, super::Failure> {
    const SENDERS_ON_EACH: u32 = 3;
    let counter = || Arc::new(AtomicU32::new(0));
    let mut crowd = Crowd {
        team: Team::new(),
        succeeded: counter(),
        timed_out: counter(),
        ended: counter(),
        senders: cpu::online().count() as u32 * SENDERS_ON_EACH,
    };
    let cpus: Vec<CpuId> = cpu::online().iter().collect();
    for number in 0..crowd.senders {
        let (good, late, end) = (crowd.succeeded.clone(), crowd.timed_out.clone(), crowd.ended.clone());
        crowd.team.start(cpus[number as usize % cpus.len()], move || {
            let mut me = endpoint();
            for message in 0..MESSAGES {
                let operation = Operation::send(to, [u64::from(message); 3], timeout_of(number));
                match operate(&mut me, &operation) {
                    Ok(_) => good.fetch_add(1, SeqCst),
                    Err(Failure::Ipc(Error::SendTimeout)) => late.fetch_add(1, SeqCst),
                    Err(_) => 0,
                };
            }
            end.fetch_add(1, SeqCst);
        })?;
    }
    Ok(crowd)
}

fn test_stress_rcv_sync_send() -> Outcome {
    let mut me = endpoint();
    let crowd = crowd(me.id(), |_| NEVER)?;
    let total = crowd.senders * MESSAGES;
    for _ in 0..total {
        check!(operate(&mut me, &Operation::receive(None, NEVER)).is_ok(), "a receive failed");
    }
    crowd.team.join()?;
    let sent = crowd.succeeded.load(SeqCst);
    check!(sent == total, "{sent} sends of {total} succeeded");
    check!(operate(&mut me, &Operation::receive(None, ZERO)).is_err(), "a message too much");
    Ok(())
}

fn test_stress_rcv_fail_send() -> Outcome {
    let me = endpoint();
    let crowd = crowd(me.id(), |number| if number % 3 == 0 { ZERO } else { Timeout::After(200_000) })?;
    crowd.team.join()?;
    let (sent, late) = (crowd.succeeded.load(SeqCst), crowd.timed_out.load(SeqCst));
    check!(sent == 0 && late == crowd.senders * MESSAGES, "{sent} sends succeeded, {late} timed out");
    Ok(())
}

fn test_stress_rcv_mixed() -> Outcome {
    let mut me = endpoint();
    let timeout_of = |number: u32| match number % 3 {
        0 => NEVER,
        1 => Timeout::After(300_000),
        _ => ZERO,
    };
    let crowd = crowd(me.id(), timeout_of)?;
    let (mut received, mut round) = (0, 0);
    while crowd.ended.load(SeqCst) < crowd.senders {
        delay(SWEEP.swept(round));
        round += 1;
        received += u32::from(operate(&mut me, &Operation::receive(None, Timeout::After(2_000_000))).is_ok());
    }
    crowd.team.join()?;
    let (sent, late) = (crowd.succeeded.load(SeqCst), crowd.timed_out.load(SeqCst));
    check!(sent == received, "{sent} messages sent, {received} received");
    check!(sent + late == crowd.senders * MESSAGES, "{sent} sent and {late} late of all");
    Ok(())
}

/// A receiver that ends: those that wait for it learn of it, and one that leaves the queue before leaves the others in it.
fn test_ipc_kill() -> Outcome {
    const SENDERS: u32 = 10;
    let cpus: Vec<CpuId> = cpu::online().iter().collect();
    let me = endpoint();
    let to = me.id();
    let (not_existent, cancelled) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut team = Team::new();
    let mut threads = Vec::new();
    for number in 0..SENDERS {
        let (gone, left) = (not_existent.clone(), cancelled.clone());
        threads.push(team.start(cpus[number as usize % cpus.len()], move || {
            let mut me = endpoint();
            let result = operate(&mut me, &Operation::call(to, [0; 3], NEVER, NEVER));
            gone.fetch_add(u32::from(failed_with(&result, Error::NotExistent)), SeqCst);
            left.fetch_add(u32::from(failed_with(&result, Error::SendCanceled)), SeqCst);
        })?);
    }
    while threads.iter().any(|thread| thread.state() != RunState::Sleeping) {
        let _ = timer::sleep_until(time::now_ns() + 100_000);
    }
    threads[4].set_attention(true);
    while cancelled.load(SeqCst) == 0 {
        let _ = timer::sleep_until(time::now_ns() + 100_000);
    }
    drop(me);
    team.join()?;
    let (gone, left) = (not_existent.load(SeqCst), cancelled.load(SeqCst));
    check!(gone == SENDERS - 1 && left == 1, "{gone} senders saw the end, {left} had left");
    Ok(())
}
