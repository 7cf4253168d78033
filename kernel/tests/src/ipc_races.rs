//! Races of messages across CPUs, hit exactly: time windows (specs/fiasco-mp.md items 46, 47 and 51).
//!
//! - `test_ipc_msg_*`: something comes to CPU 0 while a send request of CPU 0 is under way. CPU 1 is held just before it puts its own request
//!   into the box, until CPU 0's is in its box; so each waits for the other.
//! - The last moment of a time-out, and a cancellation that comes too late, each with and without the historic bug: with it the counts
//!   of sender and receiver must differ, or the test would not notice.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};

use ::ipc::defects::{BEFORE_REQUEST, SENDER_WOKEN, inject_defects};
use ::ipc::{Endpoint, Error, Operation, ThreadId, Timeout};
use ::machine::cpu::{self, CpuId};
use ::machine::{interrupt, time};
use ::sched::{RunState, ThreadRef, timer};
use ::sync::message_box::{self, BETWEEN_LOOKS, Kind, Request, WORDS};

use super::debugger::{said, scripted};
use super::ipc::{Address, NEVER, Result, ZERO, endpoint, failed_with, operate};
use super::kit::{Team, window};
use super::{Failure, HANG_NS, Outcome, Test, check, fail};

pub(crate) const TESTS: &[Test] = &[
    Test { name: "ipc_races::test_ipc_msg_dbg", run: debugger_comes_while_sending },
    Test { name: "ipc_races::test_ipc_msg_pgfault", run: || comes_while_sending(Incoming::PageFault) },
    Test { name: "ipc_races::test_ipc_msg_send", run: || comes_while_sending(Incoming::Send) },
    Test { name: "ipc_races::test_ipc_msg_cancel", run: || comes_while_sending(Incoming::Cancel) },
    Test { name: "ipc_races::test_ipc_msg_rcvd", run: || comes_while_sending(Incoming::Received) },
    Test { name: "ipc_races::a_message_taken_at_the_deadline_was_sent", run: taken_at_the_deadline },
    Test { name: "ipc_races::the_deadline_test_notices_pp_enqueue", run: notices_pp_enqueue },
    Test { name: "ipc_races::a_send_deadline_does_not_end_the_receive", run: deadline_ends_with_the_send },
    Test { name: "ipc_races::the_reset_test_notices_no_timeout_reset", run: notices_no_timeout_reset },
    Test { name: "ipc_races::the_reset_test_notices_pp_timeout", run: notices_pp_timeout },
    Test { name: "ipc_races::a_cancellation_that_is_too_late_is_a_success", run: late_cancellation },
    Test { name: "ipc_races::the_cancellation_test_notices_late_cancel", run: notices_late_cancel },
    Test { name: "ipc_races::a_queued_caller_is_answered_at_once", run: queued_caller_is_answered },
    Test { name: "ipc_races::the_answer_test_notices_late_receive", run: notices_late_receive },
    Test {
        name: "ipc_races::the_end_of_a_receiver_notices_kill_forgets_queue",
        run: notices_forgotten_queue,
    },
];

const A: CpuId = CpuId::from_index(0);
const B: CpuId = CpuId::from_index(1);

fn there_are_two() -> bool {
    cpu::online().count() >= 2
}

fn pause() {
    let _ = timer::sleep_until(time::now_ns() + 50_000);
}

/// Waits until the thread sleeps in an operation.
fn await_sleep(thread: &ThreadRef) -> Outcome {
    let limit = time::now_ns() + HANG_NS;
    while thread.state() != RunState::Sleeping {
        check!(time::now_ns() < limit, "a thread never went to sleep");
        pause();
    }
    Ok(())
}

/// Waits until the thread sleeps in its operation, or has ended it.
fn await_sleep_or_end(thread: &ThreadRef, done: &Done) -> Outcome {
    let limit = time::now_ns() + HANG_NS;
    while thread.state() != RunState::Sleeping && !done.is_set() {
        check!(time::now_ns() < limit, "a thread neither went to sleep nor ended its operation");
        pause();
    }
    Ok(())
}

/// A thread that does one operation; what came of it.
#[derive(Clone, Default)]
struct Done(Arc<::sync::SpinLock<Option<Result>>>);

impl Done {
    fn set(&self, result: Result) {
        *self.0.lock() = Some(result);
    }

    fn is_set(&self) -> bool {
        self.0.lock().is_some()
    }

    fn get(&self) -> core::result::Result<Result, Failure> {
        let limit = time::now_ns() + HANG_NS;
        loop {
            if let Some(result) = *self.0.lock() {
                return Ok(result);
            }
            check!(time::now_ns() < limit, "an operation did not end");
            pause();
        }
    }
}

fn start(
    team: &mut Team,
    on: CpuId,
    address: &Address,
    body: impl FnOnce(&mut Endpoint) -> Result + Send + 'static,
) -> core::result::Result<(ThreadRef, Done), Failure> {
    let (done, own) = (Done::default(), address.clone());
    let report = done.clone();
    let thread = team.start(on, move || {
        let mut me = endpoint();
        own.publish(&me);
        report.set(body(&mut me));
    })?;
    Ok((thread, done))
}

/// What comes to CPU 0.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Incoming {
    Debugger,
    PageFault,
    Send,
    Cancel,
    Received,
}

/// Rounds of each case.
const ROUNDS: u32 = 20;

/// A number of no thread.
const NO_THREAD: u64 = 1 << 32 | 30_000;
/// What a number that was looked up in a handler answers if it is nobody's.
const NOBODY: u64 = u64::MAX;
/// The answers to the last request: where its sender's thread lives, and one that does not exist.
static LOOKED_UP: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Looks up control blocks, those that are there and others: that must work in a handler, and must not ask anybody. The kernel has no
/// handler of its own for these requests, for nobody has to ask: blocks are found without the one who owns them.
fn look_up(_sender: CpuId, words: [u64; WORDS]) -> [u64; WORDS] {
    words.map(|bits| ::ipc::cpu_of(ThreadId::from_bits(bits)).map_or(NOBODY, |cpu| cpu.index() as u64))
}

/// A request of CPU 0 waits in its box for CPU 1.
fn sent_by_a() -> bool {
    message_box::state_of(A, B).is_some()
}

/// CPU 0 handles the request of CPU 1, or has answered it: then CPU 1 was in the debugger meanwhile.
fn handled_by_a() -> bool {
    message_box::in_handler(A) || message_box::state_of(B, A).is_none()
}

/// The thread that sends has seen another window open than the one it waits for.
static SEES_ANOTHER: AtomicBool = AtomicBool::new(false);

/// CPU 0 sends, with time-out zero, to a thread of CPU 1 that does not receive, when CPU 1 is in its window.
fn provoke(team: &mut Team, to: ThreadId) -> core::result::Result<Done, Failure> {
    let (_, done) = start(team, A, &Address::default(), move |me| {
        let limit = time::now_ns() + HANG_NS / 2;
        while !window::is_open_at(BEFORE_REQUEST) && time::now_ns() < limit {
            if window::is_open() {
                SEES_ANOTHER.store(true, SeqCst);
            }
            cpu::relax();
        }
        operate(me, &Operation::send(to, [9; 3], ZERO))
    })?;
    Ok(done)
}

/// The debugger stops all CPUs. The one that handles the request for it has a send under way: it has not taken the answer to that.
fn debugger_comes_while_sending() -> Outcome {
    if !there_are_two() {
        return Ok(());
    }
    for _ in 0..ROUNDS {
        let happened = scripted(&["boxes", "continue"], || {
            comes_once(Incoming::Debugger)?;
            said(&["enter_debugger->0", "  waits handles"])
        })?;
        check!(happened.sessions == 1, "{} sessions", happened.sessions);
    }
    Ok(())
}

fn comes_while_sending(incoming: Incoming) -> Outcome {
    if !there_are_two() {
        return Ok(());
    }
    (0..ROUNDS).try_for_each(|_| comes_once(incoming))
}

fn comes_once(incoming: Incoming) -> Outcome {
    let mut team = Team::new();
    // Who is on CPU 0 as the partner of what comes, and who on CPU 1 lets it come.
    let (partner, actor) = (Address::default(), Address::default());
    LOOKED_UP.iter().for_each(|answer| answer.store(0, SeqCst));
    SEES_ANOTHER.store(false, SeqCst);
    let on_a = partner.clone();
    let acted = Arc::new(AtomicBool::new(false));
    let over = acted.clone();
    let partner_done = match incoming {
        Incoming::Send => {
            let (thread, done) =
                start(&mut team, A, &partner, |me| operate(me, &Operation::receive(None, NEVER)))?;
            on_a.get();
            await_sleep(&thread)?;
            Some(done)
        }
        Incoming::Cancel => {
            // It does not receive, so that the actor is queued, and stays until that is over.
            start(&mut team, A, &partner, move |me| {
                let limit = time::now_ns() + HANG_NS;
                while !over.load(SeqCst) && time::now_ns() < limit {
                    pause();
                }
                operate(me, &Operation::receive(None, ZERO))
            })?;
            None
        }
        _ => None,
    };
    let queued = incoming == Incoming::Received;
    let (actor_done, sender_done) = if queued {
        let is_queued = Arc::new(AtomicBool::new(false));
        let told = is_queued.clone();
        let (_, done) = start(&mut team, B, &actor, move |me| {
            let limit = time::now_ns() + HANG_NS;
            while !told.load(SeqCst) && time::now_ns() < limit {
                pause();
            }
            // Taking the message of the queued sender ends in a wakeup request.
            window::arm(BEFORE_REQUEST, B, Some(sent_by_a));
            operate(me, &Operation::receive(Some(on_a.get()), ZERO))
        })?;
        let to = actor.get();
        let (sender, sent) =
            start(&mut team, A, &partner, move |me| operate(me, &Operation::send(to, [1; 3], NEVER)))?;
        partner.get();
        await_sleep(&sender)?;
        is_queued.store(true, SeqCst);
        (done, Some(sent))
    } else {
        let (_, done) = start(&mut team, B, &actor, move |me| {
            let result = act(me, incoming, on_a);
            acted.store(true, SeqCst);
            result
        })?;
        (done, None)
    };
    let provoked = provoke(&mut team, actor.get())?.get()?;
    check!(failed_with(&provoked, Error::SendTimeout), "the send under way ended with {provoked:?}");
    let acted = actor_done.get()?;
    match incoming {
        // Its script tells what it saw.
        Incoming::Debugger => {}
        Incoming::PageFault => {
            let answers = [0, 1].map(|index: usize| LOOKED_UP[index].load(SeqCst));
            check!(answers == [B.index() as u64, NOBODY], "the threads were said to live on {answers:x?}");
        }
        Incoming::Send => {
            check!(acted.is_ok(), "the send that came ended with {acted:?}");
            let received = partner_done.map(|done| done.get()).transpose()?;
            check!(received.is_some_and(|result| result.is_ok()), "its receiver got nothing");
        }
        Incoming::Cancel => {
            check!(failed_with(&acted, Error::SendTimeout), "the cancelled send ended with {acted:?}");
        }
        Incoming::Received => {
            let sent = sender_done.map(|done| done.get()).transpose()?;
            let both = acted.is_ok() && sent.is_some_and(|sent| sent.is_ok());
            check!(both, "received with {acted:?}, sent with {sent:?}");
        }
    }
    window::disarm();
    team.join()
}

/// What the thread on CPU 1 does that leads to a request to CPU 0.
fn act(me: &mut Endpoint, incoming: Incoming, partner: Address) -> Result {
    match incoming {
        Incoming::Debugger | Incoming::PageFault => {
            let kind =
                if incoming == Incoming::Debugger { Kind::EnterDebugger } else { Kind::ResolvePageFault };
            if incoming == Incoming::PageFault {
                message_box::set_handler(kind, look_up);
            }
            let mut words = [0; WORDS];
            words[0] = me.id().to_bits();
            words[1] = NO_THREAD;
            window::arm(BEFORE_REQUEST, B, Some(sent_by_a));
            let interrupts = interrupt::disable();
            ::machine::time_window!(BEFORE_REQUEST);
            if incoming == Incoming::Debugger {
                // CPU 0 gets no answer before it handles this, which lasts until the end of the session.
                window::arm(BETWEEN_LOOKS, B, Some(handled_by_a));
            }
            let answer = message_box::request(A, Request { kind, words });
            drop(interrupts);
            LOOKED_UP.iter().zip(answer).for_each(|(place, answer)| place.store(answer, SeqCst));
            operate(me, &Operation::receive(None, ZERO))
        }
        Incoming::Send => {
            let to = partner.get();
            window::arm(BEFORE_REQUEST, B, Some(sent_by_a));
            operate(me, &Operation::send(to, [7; 3], ZERO))
        }
        Incoming::Cancel => {
            let to = partner.get();
            // The first request is the send; the one after the time-out is held.
            let result = operate_then_arm(me, to);
            window::disarm();
            result
        }
        Incoming::Received => operate(me, &Operation::receive(None, ZERO)),
    }
}

/// A send whose time-out passes; the place is armed when it sleeps.
fn operate_then_arm(me: &mut Endpoint, to: ThreadId) -> Result {
    window::arm(SENDER_WOKEN, B, Some(arm_next));
    operate(me, &Operation::send(to, [1; 3], Timeout::After(2_000_000)))
}

/// The sender has been woken: the request that follows is the cancellation. Who waits for the window of that one has seen this
/// one open, and must not take it for the other.
fn arm_next() -> bool {
    if !SEES_ANOTHER.load(SeqCst) {
        return false;
    }
    window::close();
    window::arm(BEFORE_REQUEST, B, Some(sent_by_a));
    true
}

/// A receiver on CPU 1 takes the message of a sender on CPU 0 after its deadline has woken it, and before it looks. Returns what the two got.
fn take_at_the_deadline(
    follow: bool,
    place: u32,
    until: Option<fn() -> bool>,
) -> core::result::Result<(Result, Result), Failure> {
    let mut team = Team::new();
    let (sender, receiver) = (Address::default(), Address::default());
    let from = sender.clone();
    let caller: Arc<::sync::SpinLock<Option<(ThreadRef, Done)>>> = Arc::default();
    let started = caller.clone();
    let (_, received) = start(&mut team, B, &receiver, move |me| {
        let (from, limit) = (from.get(), time::now_ns() + HANG_NS);
        while !window::is_open() && time::now_ns() < limit {
            cpu::relax();
        }
        let received = operate(me, &Operation::receive(Some(from), ZERO));
        window::close();
        while received.is_ok() && follow && time::now_ns() < limit {
            let Some((caller, done)) = started.lock().clone() else { continue };
            // Answered when the caller has looked at its state: it waits for that, or has given up.
            let _looked = await_sleep_or_end(&caller, &done);
            let _answered = operate(me, &Operation::send(from, [2; 3], Timeout::After(HANG_NS / 2)));
            break;
        }
        received
    })?;
    let to = receiver.get();
    window::arm(place, A, until);
    let (thread, sent) = start(&mut team, A, &sender, move |me| {
        let timeout = Timeout::After(1_000_000);
        let operation = match follow {
            true => Operation::call(to, [1; 3], timeout, NEVER),
            false => Operation::send(to, [1; 3], timeout),
        };
        // The first request is the offer; in the place before requests only the next one counts.
        operate(me, &operation)
    })?;
    *caller.lock() = Some((thread, sent.clone()));
    let outcomes = (sent.get()?, received.get()?);
    window::disarm();
    team.join()?;
    Ok(outcomes)
}

/// Calls `test` with a bug in; it must see that something is wrong.
fn notices(bug: &str, test: fn() -> Outcome) -> Outcome {
    if !there_are_two() {
        return Ok(());
    }
    /// A race that the window does not force may be missed.
    const ATTEMPTS: u32 = 5;
    check!(inject_defects(bug), "no such bug: {bug}");
    let noticed = (0..ATTEMPTS).any(|_| test().is_err());
    inject_defects("");
    check!(noticed, "it notices no {bug}");
    Ok(())
}

fn taken_at_the_deadline() -> Outcome {
    if !there_are_two() {
        return Ok(());
    }
    let (sent, received) = take_at_the_deadline(false, SENDER_WOKEN, None)?;
    check!(received.is_ok(), "the receiver found {received:?}");
    check!(sent.is_ok(), "the message was taken, and its sender got {sent:?}");
    Ok(())
}

fn notices_pp_enqueue() -> Outcome {
    notices("pp_enqueue", taken_at_the_deadline)
}

fn deadline_ends_with_the_send() -> Outcome {
    if !there_are_two() {
        return Ok(());
    }
    let (sent, received) = take_at_the_deadline(true, SENDER_WOKEN, None)?;
    check!(received.is_ok(), "the receiver found {received:?}");
    check!(sent.is_ok_and(|answer| answer.message == [2; 3]), "the call was taken, and got {sent:?}");
    Ok(())
}

fn notices_pp_timeout() -> Outcome {
    notices("pp_timeout", deadline_ends_with_the_send)
}

fn notices_no_timeout_reset() -> Outcome {
    notices("no_timeout_reset", deadline_ends_with_the_send)
}

/// A wakeup request of CPU 1 waits in its box for CPU 0.
fn woken_by_b() -> bool {
    message_box::state_of(B, A) == Some(Kind::IpcWakeup)
}

fn late_cancellation() -> Outcome {
    if !there_are_two() {
        return Ok(());
    }
    let mut team = Team::new();
    let (sender, receiver) = (Address::default(), Address::default());
    let from = sender.clone();
    let (_, received) = start(&mut team, B, &receiver, move |me| {
        let (from, limit) = (from.get(), time::now_ns() + HANG_NS);
        while !window::is_open_at(BEFORE_REQUEST) && time::now_ns() < limit {
            cpu::relax();
        }
        operate(me, &Operation::receive(Some(from), ZERO))
    })?;
    let to = receiver.get();
    // Woken by its deadline, the sender goes on at once to the place before its cancellation.
    window::arm(SENDER_WOKEN, A, Some(hold_cancellation));
    let (_, sent) = start(&mut team, A, &sender, move |me| {
        operate(me, &Operation::send(to, [1; 3], Timeout::After(1_000_000)))
    })?;
    let outcomes = (sent.get()?, received.get()?);
    window::disarm();
    team.join()?;
    let (sent, received) = outcomes;
    check!(sent.is_ok() == received.is_ok(), "sent with {sent:?}, received with {received:?}");
    Ok(())
}

fn hold_cancellation() -> bool {
    window::close();
    window::arm(BEFORE_REQUEST, A, Some(woken_by_b));
    true
}

fn notices_late_cancel() -> Outcome {
    notices("late_cancel", late_cancellation)
}

/// A caller that had to queue is taken and answered with time-out zero, again and again.
fn queued_caller_is_answered() -> Outcome {
    if !there_are_two() {
        return Ok(());
    }
    const ROUNDS: u32 = 40;
    let mut team = Team::new();
    let (client, server) = (Address::default(), Address::default());
    let failures = Arc::new(AtomicU32::new(0));
    let count = failures.clone();
    let (_, served) = start(&mut team, B, &server, move |me| {
        let mut last = operate(me, &Operation::receive(None, ZERO));
        for _ in 0..ROUNDS {
            // It queues meanwhile.
            let _ = timer::sleep_until(time::now_ns() + 300_000);
            last = operate(me, &Operation::receive(None, NEVER));
            if let Ok(request) = last
                && operate(me, &Operation::send(request.from, [3; 3], ZERO)).is_err()
            {
                count.fetch_add(1, SeqCst);
                let _freed = operate(me, &Operation::send(request.from, [3; 3], NEVER));
            }
        }
        last
    })?;
    let to = server.get();
    let (_, called) = start(&mut team, A, &client, move |me| {
        let mut last = operate(me, &Operation::receive(None, ZERO));
        for _ in 0..ROUNDS {
            last = operate(me, &Operation::call(to, [1; 3], NEVER, NEVER));
        }
        last
    })?;
    let (called, served) = (called.get()?, served.get()?);
    team.join()?;
    check!(called.is_ok() && served.is_ok(), "called with {called:?}, served with {served:?}");
    let failures = failures.load(SeqCst);
    check!(failures == 0, "{failures} answers of {ROUNDS} found nobody waiting");
    Ok(())
}

fn notices_late_receive() -> Outcome {
    notices("late_receive", queued_caller_is_answered)
}

fn end_of_a_receiver(timeout: Timeout) -> Outcome {
    let mut team = Team::new();
    let address = Address::default();
    let receiver = endpoint();
    let to = receiver.id();
    let (thread, sent) =
        start(&mut team, B, &address, move |me| operate(me, &Operation::send(to, [1; 3], timeout)))?;
    address.get();
    await_sleep_or_end(&thread, &sent)?;
    drop(receiver);
    let sent = sent.get()?;
    team.join()?;
    if !failed_with(&sent, Error::NotExistent) {
        fail!("the receiver ended, and its sender got {sent:?}");
    }
    Ok(())
}

fn notices_forgotten_queue() -> Outcome {
    if there_are_two() {
        end_of_a_receiver(NEVER)?;
    }
    // Whom the end forgets, the deadline wakes.
    notices("kill_forgets_queue", || end_of_a_receiver(Timeout::After(50_000_000)))
}
