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
use ::sched::timer;

use super::kit::{Meeting, Sweep, Team, delay};
use super::{Outcome, Test, check};

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

/// Rounds of a sender and a receiver on two CPUs that leave a meeting together. Each says what it achieved in a round; the sums must
/// be the same.
fn race(
    send: impl Fn(&mut Endpoint, ThreadId, u32) -> bool + Send + 'static,
    receive: impl Fn(&mut Endpoint, ThreadId, u32) -> bool + Send + 'static,
) -> Outcome {
    let Some(there) = other() else { return Ok(()) };
    let meeting = Arc::new(Meeting::new(2));
    let (sent, received) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (sender, receiver) = (Address::default(), Address::default());
    let mut team = Team::new();
    let (meet, count, own, partner) = (meeting.clone(), sent.clone(), sender.clone(), receiver.clone());
    team.start(CpuId::from_index(0), move || {
        let mut me = endpoint();
        own.publish(&me);
        let to = partner.get();
        for round in 0..SWEEP.rounds * SWEEPS {
            meet.meet();
            count.fetch_add(u32::from(send(&mut me, to, round)), SeqCst);
        }
        meet.meet();
    })?;
    let count = received.clone();
    team.start(there, move || {
        let mut me = endpoint();
        receiver.publish(&me);
        let from = sender.get();
        for round in 0..SWEEP.rounds * SWEEPS {
            meeting.meet();
            count.fetch_add(u32::from(receive(&mut me, from, round)), SeqCst);
        }
        meeting.meet();
    })?;
    team.join()?;
    let (sent, received) = (sent.load(SeqCst), received.load(SeqCst));
    check!(sent == received, "{sent} messages sent, {received} received");
    Ok(())
}

fn test_ipc_send() -> Outcome {
    for sender_swept in [false, true] {
        race(
            move |me, to, round| {
                if sender_swept {
                    SWEEP.delay_swept(round)
                } else {
                    SWEEP.delay_fixed()
                }
                operate(me, &Operation::send(to, [u64::from(round); 3], NEVER)).is_ok()
            },
            move |me, from, round| {
                if sender_swept {
                    SWEEP.delay_fixed()
                } else {
                    SWEEP.delay_swept(round)
                }
                let from = (round % 2 == 0).then_some(from);
                let received = operate(me, &Operation::receive(from, NEVER));
                received.is_ok_and(|received| received.message == [u64::from(round); 3])
            },
        )?;
    }
    Ok(())
}

/// A word of messages that are not counted: they free a receiver whose sender came too early.
const UNCOUNTED: u64 = u64::MAX;

fn test_ipc_noblock_send() -> Outcome {
    race(
        |me, to, round| {
            SWEEP.delay_swept(round);
            if operate(me, &Operation::send(to, [1; 3], ZERO)).is_ok() {
                return true;
            }
            let _freed = operate(me, &Operation::send(to, [UNCOUNTED; 3], NEVER));
            false
        },
        |me, from, _round| {
            SWEEP.delay_fixed();
            let received = operate(me, &Operation::receive(Some(from), NEVER));
            received.is_ok_and(|received| received.message[0] != UNCOUNTED)
        },
    )
}

fn test_ipc_timeout_send() -> Outcome {
    /// The send's time-out, in place of the fixed delay.
    const TIMEOUT_NS: u64 = 150_000;
    race(
        |me, to, _round| operate(me, &Operation::send(to, [1; 3], Timeout::After(TIMEOUT_NS))).is_ok(),
        |me, from, round| {
            let begin = time::now_ns();
            let wait_ns = 2 * TIMEOUT_NS * u64::from(round % SWEEP.rounds) / u64::from(SWEEP.rounds);
            while time::now_ns() < begin + wait_ns {
                cpu::relax();
            }
            operate(me, &Operation::receive(Some(from), ZERO)).is_ok()
        },
    )
}

/// A helper on the sender's CPU cancels the send while a receiver on the other CPU comes for it.
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
            delay(SWEEP.swept(done) * 4);
            done += 1;
            let received = operate(&mut me, &Operation::receive(Some(from), ZERO)).is_ok();
            end[1].store(1 + u32::from(received), SeqCst);
        }
    })?;
    let mismatches = Arc::new(AtomicU32::new(0));
    let count = mismatches.clone();
    team.start(here, move || {
        let victim = sender.get();
        for _ in 0..ROUNDS {
            round.fetch_add(1, SeqCst);
            pause();
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
        }
        stop.store(true, SeqCst);
    })?;
    team.join()?;
    let mismatches = mismatches.load(SeqCst);
    check!(mismatches == 0, "{mismatches} messages were taken and cancelled, or neither");
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
    while threads.iter().any(|thread| thread.state() != ::sched::RunState::Sleeping) {
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
