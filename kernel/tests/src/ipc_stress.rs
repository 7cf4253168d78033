//! Messages between threads for as long as one likes: everything at once on all CPUs, and many round trips.
//!
//! *Stress*: a server, three clients and a canceller for each CPU. Clients send and call with all kinds of time-outs; servers answer with
//! time-out zero; both migrate, and end and begin again under a new number; the cancellers end operations of either. So partners die, migrate
//! and are cancelled in every state of Figure 10. What must hold: a message was delivered exactly if its sender was told so (the sums
//! are equal at the end), every answer belongs to its call, and something always goes on.
//!
//! `ipc.stress_secs=` on the command line says how long (2 s), `ipc.rounds=` how many round trips (20,000).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use ::ipc::{Caller, Endpoint, Error, Failure, Operation, ThreadId, Timeout};
use ::machine::cpu::{self, CpuId, CpuSet};
use ::machine::{boot, time};
use ::sched::timer;

use super::ipc::{NEVER, Result, ZERO, endpoint, operate, ping_pong};
use super::kit::{Random, Team};
use super::{HANG_NS, Outcome, Test, check};

pub(crate) const TESTS: &[Test] = &[
    Test { name: "ipc_stress::everything_at_once", run: everything_at_once },
    Test { name: "ipc_stress::many_round_trips", run: many_round_trips },
];

const SECOND_NS: u64 = 1_000_000_000;
const CLIENTS_ON_EACH: usize = 3;
/// Second words of messages: an answer is wanted, or not.
const CALL: u64 = 1;
const SEND: u64 = 2;

fn option(name: &str, usual: u64) -> u64 {
    boot::info().option(name).and_then(|text| text.parse().ok()).unwrap_or(usual)
}

struct Stress {
    /// Numbers of the servers; 0 while there is none.
    servers: Vec<AtomicU64>,
    clients: Vec<AtomicU64>,
    clients_stop: AtomicBool,
    servers_stop: AtomicBool,
    /// Operations that have ended, by whatever.
    operations: AtomicU64,
    /// Messages whose senders were told that they were delivered, and those that were received.
    delivered: AtomicU64,
    received: AtomicU64,
    cancelled: AtomicU64,
    wrong: AtomicU64,
}

fn random_of(slot: usize) -> Random {
    Random(0x9e37_79b9_7f4a_7c15 ^ (slot as u64 + 1) << 20)
}

/// A thread's endpoint, entered in its slot.
fn register(slot: &AtomicU64) -> Endpoint {
    let me = endpoint();
    slot.store(me.id().to_bits(), SeqCst);
    me
}

/// Begins again under a new number. Who waits for the old one learns of its end.
fn begin_again(slot: &AtomicU64, old: Endpoint) -> Endpoint {
    slot.store(0, SeqCst);
    drop(old);
    register(slot)
}

fn migrate(random: &mut Random) {
    let cpus: Vec<CpuId> = cpu::online().iter().collect();
    let to = cpus[random.below(cpus.len() as u64) as usize];
    ::sched::current().set_affinity(CpuSet::only(to));
}

fn any_timeout(random: &mut Random) -> Timeout {
    match random.below(4) {
        0 => ZERO,
        1 => Timeout::After(random.below(500_000)),
        _ => NEVER,
    }
}

impl Stress {
    fn new(cpus: usize) -> Self {
        let slots = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        Self {
            servers: slots(cpus),
            clients: slots(cpus * CLIENTS_ON_EACH),
            clients_stop: AtomicBool::new(false),
            servers_stop: AtomicBool::new(false),
            operations: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            received: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
        }
    }

    /// Counts what became of an operation.
    fn count(&self, result: &Result) {
        self.operations.fetch_add(1, SeqCst);
        if let Err(Failure::Ipc(Error::SendCanceled | Error::ReceiveCanceled)) = result {
            self.cancelled.fetch_add(1, SeqCst);
        }
    }

    fn serve(&self, slot: usize) {
        let mut random = random_of(slot);
        let own = &self.servers[slot];
        let mut me = register(own);
        let mut client = None;
        while !self.servers_stop.load(SeqCst) {
            let wait = Timeout::After(1_000_000);
            let operation = match client.take() {
                Some((to, answer)) => Operation::reply_and_wait(to, answer, ZERO, wait),
                None => Operation::receive(None, wait),
            };
            let result = operate(&mut me, &operation);
            self.count(&result);
            if let Ok(request) = result {
                self.received.fetch_add(1, SeqCst);
                let [number, kind, check] = request.message;
                if check != !(number ^ request.from.to_bits()) {
                    self.wrong.fetch_add(1, SeqCst);
                }
                client = (kind == CALL).then_some((request.from, [!number, number, me.id().to_bits()]));
            }
            match random.below(512) {
                0 => {
                    client = None;
                    me = begin_again(own, me);
                }
                1..4 => migrate(&mut random),
                4..8 => random.delay(2_000),
                _ => {}
            }
        }
        own.store(0, SeqCst);
    }

    fn request(&self, slot: usize) {
        let mut random = random_of(self.servers.len() + slot);
        let own = &self.clients[slot];
        let mut me = register(own);
        let mut number = 0;
        while !self.clients_stop.load(SeqCst) {
            let server = &self.servers[random.below(self.servers.len() as u64) as usize];
            let to = ThreadId::from_bits(server.load(SeqCst));
            if to == ThreadId::NOBODY {
                ::sched::yield_now();
                continue;
            }
            number += 1;
            let is_call = random.below(2) == 0;
            let message = [number, if is_call { CALL } else { SEND }, !(number ^ me.id().to_bits())];
            let (send, receive) = (any_timeout(&mut random), any_timeout(&mut random));
            let operation = match is_call {
                true => Operation::call(to, message, send, receive),
                false => Operation::send(to, message, send),
            };
            let result = operate(&mut me, &operation);
            self.count(&result);
            self.judge(&result, is_call.then_some((to, number)));
            match random.below(256) {
                0 => me = begin_again(own, me),
                1..4 => migrate(&mut random),
                4..8 => random.delay(2_000),
                _ => {}
            }
        }
        own.store(0, SeqCst);
    }

    /// Whether a client's message was delivered, by what it was told; and whether the answer is that to its call.
    fn judge(&self, result: &Result, call: Option<(ThreadId, u64)>) {
        let delivered = match result {
            Ok(answer) => {
                let right = call.is_none_or(|(to, number)| {
                    answer.from == to && answer.message == [!number, number, to.to_bits()]
                });
                if !right {
                    self.wrong.fetch_add(1, SeqCst);
                }
                true
            }
            Err(Failure::Ipc(Error::ReceiveTimeout | Error::ReceiveCanceled | Error::ReceiveAborted)) => true,
            Err(Failure::Ipc(Error::SendTimeout | Error::SendCanceled | Error::NotExistent)) => false,
            Err(Failure::Refused(_)) => {
                self.wrong.fetch_add(1, SeqCst);
                false
            }
        };
        self.delivered.fetch_add(u64::from(delivered), SeqCst);
    }

    fn cancel(&self, slot: usize) {
        let mut random = random_of(self.servers.len() + self.clients.len() + slot);
        while !self.servers_stop.load(SeqCst) {
            let all = || self.servers.iter().chain(&self.clients);
            let victim = random.below(all().count() as u64) as usize;
            let id = all().nth(victim).map_or(0, |slot| slot.load(SeqCst));
            let _ = ::ipc::cancel(ThreadId::from_bits(id), &Caller::KERNEL, None);
            let _ = timer::sleep_until(time::now_ns() + 50_000 + random.below(1_000_000));
        }
    }
}

fn everything_at_once() -> Outcome {
    let end_ns = time::now_ns() + option("ipc.stress_secs", 2) * SECOND_NS;
    let cpus = cpu::online();
    let stress = Arc::new(Stress::new(cpus.count()));
    let (mut servers, mut clients) = (Team::new(), Team::new());
    for (place, cpu) in cpus.iter().enumerate() {
        let all = stress.clone();
        servers.start(cpu, move || all.serve(place))?;
        let all = stress.clone();
        servers.start(cpu, move || all.cancel(place))?;
        for client in 0..CLIENTS_ON_EACH {
            let all = stress.clone();
            clients.start(cpu, move || all.request(place * CLIENTS_ON_EACH + client))?;
        }
    }
    let (mut before, mut since_ns) = (0, time::now_ns());
    while time::now_ns() < end_ns {
        let _ = timer::sleep_until(time::now_ns() + SECOND_NS / 10);
        let operations = stress.operations.load(SeqCst);
        if operations != before {
            (before, since_ns) = (operations, time::now_ns());
        }
        check!(time::now_ns() - since_ns < HANG_NS, "nothing goes on after {operations} operations");
    }
    stress.clients_stop.store(true, SeqCst);
    clients.join()?;
    stress.servers_stop.store(true, SeqCst);
    servers.join()?;
    let sum = |counter: &AtomicU64| counter.load(SeqCst);
    let (delivered, received) = (sum(&stress.delivered), sum(&stress.received));
    ::machine::console::print(format_args!(
        "ipc_stress: {} operations, {delivered} messages, {} cancelled\n",
        sum(&stress.operations),
        sum(&stress.cancelled)
    ));
    check!(sum(&stress.wrong) == 0, "{} messages or answers were wrong", sum(&stress.wrong));
    check!(delivered == received, "{delivered} messages delivered, {received} received");
    Ok(())
}

/// Calls and answers on one CPU, and between two.
fn many_round_trips() -> Outcome {
    /// Played at a time, so that a hang shows.
    const CHUNK: u64 = 5_000;
    let rounds = option("ipc.rounds", 20_000);
    let first = CpuId::from_index(0);
    let wrong = Arc::new(AtomicU64::new(0));
    let last = cpu::online().iter().last().filter(|cpu| *cpu != first);
    for other in core::iter::once(first).chain(last) {
        let begin_ns = time::now_ns();
        let mut left = rounds;
        while left > 0 {
            let mut team = Team::new();
            ping_pong(&mut team, (first, other), left.min(CHUNK), true, &wrong)?;
            team.join()?;
            left -= left.min(CHUNK);
        }
        let each_ns = (time::now_ns() - begin_ns) / rounds.max(1);
        ::machine::console::print(format_args!(
            "ipc_stress: {rounds} round trips between CPUs {first} and {other}, {each_ns} ns each\n"
        ));
    }
    check!(wrong.load(SeqCst) == 0, "{} round trips went wrong", wrong.load(SeqCst));
    Ok(())
}
