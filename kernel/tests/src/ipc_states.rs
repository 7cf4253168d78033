//! What happens to a thread in each state of Figure 10 (specs/fiasco-mp.md) when its partner ends, somebody cancels it, a signal comes, its
//! time runs out, or others come with bad input: the defined result, and both threads go on.
//!
//! A thread, the *subject*, is brought into a state by an operation with its *partner*; it sleeps there. Then the event comes. The
//! states between two instructions, and those in which a processor waits for an answer, are in `ipc_moments`.
//!
//! | state | the subject |
//! |---|---|
//! | SENDING, CALLING, REPLYING | polls for its receiver, and then: nothing follows, it receives from the partner, from anybody |
//! | AWAITING, RECEIVING | receives from its partner, after its message was taken or without having sent any |
//! | REPLIED, OPEN | receives from anybody, likewise |

use alloc::boxed::Box;
use alloc::sync::Arc;

use ::ipc::{Caller, Endpoint, Error, Failure, Operation, Received, Refusal, ThreadId, Timeout, cancel};
use ::machine::cpu::{self, CpuId};
use ::machine::time;
use ::sched::{RunState, ThreadRef, timer};
use ::sync::SpinLock;

use super::ipc::{Address, NEVER, Result, ZERO, endpoint, operate};
use super::kit::Team;
use super::{HANG_NS, Outcome, Test, check};

pub(crate) const TESTS: &[Test] = &[
    Test { name: "ipc_states::events_in_each_state_have_their_results", run: events_in_each_state },
    Test { name: "ipc_states::bad_input_disturbs_nobody", run: bad_input_in_each_state },
    Test { name: "ipc_states::bad_numbers_are_refused_in_each_operation", run: bad_numbers },
];

/// A result of something that can fail as a test.
pub(super) type Checked<T> = core::result::Result<T, super::Failure>;

fn pause() {
    let _ = timer::sleep_until(time::now_ns() + 20_000);
}

/// Waits for something; it is a hang if it never comes.
pub(super) fn await_that(what: &str, condition: impl Fn() -> bool) -> Outcome {
    let limit = time::now_ns() + HANG_NS;
    while !condition() {
        check!(time::now_ns() < limit, "never: {what}");
        pause();
    }
    Ok(())
}

/// What an actor does next. If it takes the endpoint away, the actor's number means nobody any more, and it ends.
type Step = Box<dyn FnOnce(&mut Option<Endpoint>) -> Result + Send>;

/// What an actor that has no endpoint any more leaves as its result.
pub(super) const NOTHING: Result =
    Ok(Received { from: ThreadId::from_bits(0), message: [0; ::ipc::WORDS], remote: false });

/// The result of an actor's operation.
pub(super) fn act(me: &mut Option<Endpoint>, operation: &Operation) -> Result {
    let me = me.as_mut().expect("an actor without an endpoint has ended");
    operate(me, operation)
}

/// A step that waits, and what came of the last one.
#[derive(Default)]
struct Desk {
    next: Option<Step>,
    result: Option<Result>,
    ended: bool,
}

/// A thread on a CPU that does one operation after the other, as told.
pub(super) struct Actor {
    thread: ThreadRef,
    pub(super) id: ThreadId,
    desk: Arc<SpinLock<Desk>>,
}

impl Actor {
    pub(super) fn start(team: &mut Team, on: CpuId) -> Checked<Actor> {
        let (address, desk) = (Address::default(), Arc::new(SpinLock::new(Desk::default())));
        let (own, orders) = (address.clone(), desk.clone());
        let thread = team.start(on, move || {
            let mut me = Some(endpoint());
            me.iter().for_each(|me| own.publish(me));
            while me.is_some() {
                let step = orders.lock().next.take();
                match step {
                    None => pause(),
                    Some(step) => {
                        let result = step(&mut me);
                        let mut desk = orders.lock();
                        desk.result = Some(result);
                        desk.ended = me.is_none();
                    }
                }
            }
        })?;
        Ok(Actor { thread, id: address.get(), desk })
    }

    /// It does this; the last result is forgotten.
    pub(super) fn order(&self, step: impl FnOnce(&mut Option<Endpoint>) -> Result + Send + 'static) {
        let step = Box::new(step);
        let mut desk = self.desk.lock();
        desk.result = None;
        desk.next = Some(step);
    }

    /// It does the operation.
    pub(super) fn begin(&self, operation: Operation) {
        self.order(move |me| act(me, &operation));
    }

    /// Waits until it sleeps in its operation.
    fn await_sleep(&self) -> Outcome {
        // Before its operation it sleeps with the step still on its desk; after it with the result there.
        await_that("sleep in an operation", || {
            let desk = self.desk.lock();
            desk.next.is_none() && desk.result.is_none() && self.thread.state() == RunState::Sleeping
        })
    }

    pub(super) fn is_in_operation(&self) -> bool {
        self.desk.lock().result.is_none()
    }

    pub(super) fn result(&self) -> Checked<Result> {
        await_that("the end of an operation", || self.desk.lock().result.is_some())?;
        Ok(self.desk.lock().result.expect("it was there"))
    }

    /// Does an operation and waits for its end.
    fn perform(&self, operation: Operation) -> Checked<Result> {
        self.begin(operation);
        self.result()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.desk.lock().ended
    }

    /// Its number means nobody any more.
    pub(super) fn end(&self) -> Outcome {
        self.order(|me| {
            drop(me.take());
            NOTHING
        });
        await_that("the end of a thread", || self.has_ended())
    }

    /// It still takes messages, and can send.
    pub(super) fn goes_on(&self, me: &mut Endpoint, after: &str) -> Outcome {
        self.begin(Operation::receive(None, NEVER));
        let sent = operate(me, &Operation::send(self.id, [0x60; 3], NEVER));
        check!(sent.is_ok(), "{after}: a send to it afterwards ended with {sent:?}");
        let received = self.result()?;
        let good = received.is_ok_and(|received| received.from == me.id() && received.message == [0x60; 3]);
        check!(good, "{after}: it received {received:?} afterwards");
        self.begin(Operation::send(me.id(), [0x61; 3], NEVER));
        let received = operate(me, &Operation::receive(Some(self.id), NEVER));
        check!(received.is_ok_and(|received| received.message == [0x61; 3]), "{after}: it sent {received:?}");
        let sent = self.result()?;
        check!(sent.is_ok(), "{after}: its send ended with {sent:?}");
        Ok(())
    }
}

/// The states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Sending,
    Calling,
    Replying,
    Awaiting,
    Receiving,
    Replied,
    Open,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    PartnerEnds,
    Cancelled,
    Signalled,
    TimesOut,
}

const EVENTS: [Event; 4] = [Event::PartnerEnds, Event::Cancelled, Event::Signalled, Event::TimesOut];

/// What the subject gets in each state, in the order of [`EVENTS`]; `None`: it does not notice.
const RESULTS: &[(State, [Option<Error>; 4])] = {
    use Error::{NotExistent, ReceiveAborted, ReceiveCanceled, ReceiveTimeout, SendCanceled, SendTimeout};
    const POLLING: [Option<Error>; 4] =
        [Some(NotExistent), Some(SendCanceled), Some(SendCanceled), Some(SendTimeout)];
    const CLOSED: [Option<Error>; 4] =
        [Some(ReceiveAborted), Some(ReceiveCanceled), Some(ReceiveCanceled), Some(ReceiveTimeout)];
    const FROM_ANYBODY: [Option<Error>; 4] =
        [None, Some(ReceiveCanceled), Some(ReceiveCanceled), Some(ReceiveTimeout)];
    &[
        (State::Sending, POLLING),
        (State::Calling, POLLING),
        (State::Replying, POLLING),
        (State::Awaiting, CLOSED),
        (State::Receiving, CLOSED),
        (State::Replied, FROM_ANYBODY),
        (State::Open, FROM_ANYBODY),
    ]
};

/// What a subject says, and its partner.
const WORDS: [u64; 3] = [0x51, 0x52, 0x53];
const ANSWER: [u64; 3] = [0xa1, 0xa2, 0xa3];

impl State {
    /// The operation that leads there, and waits there so long.
    fn operation(self, partner: ThreadId, patience: Timeout) -> Operation {
        match self {
            State::Sending => Operation::send(partner, WORDS, patience),
            State::Calling => Operation::call(partner, WORDS, patience, NEVER),
            State::Replying => Operation::reply_and_wait(partner, WORDS, patience, NEVER),
            State::Awaiting => Operation::call(partner, WORDS, NEVER, patience),
            State::Receiving => Operation::receive(Some(partner), patience),
            State::Replied => Operation::reply_and_wait(partner, WORDS, NEVER, patience),
            State::Open => Operation::receive(None, patience),
        }
    }

    /// Whether its message has been taken.
    fn is_heard(self) -> bool {
        matches!(self, State::Awaiting | State::Replied)
    }

    fn is_polling(self) -> bool {
        matches!(self, State::Sending | State::Calling | State::Replying)
    }

    fn is_open(self) -> bool {
        matches!(self, State::Replied | State::Open)
    }
}

/// A subject in its state, and its partner.
struct Scene {
    team: Team,
    subject: Actor,
    partner: Actor,
    state: State,
}

impl Scene {
    fn set(state: State, (subject, partner): (CpuId, CpuId), patience: Timeout) -> Checked<Scene> {
        let mut team = Team::new();
        let (subject, partner) = (Actor::start(&mut team, subject)?, Actor::start(&mut team, partner)?);
        subject.begin(state.operation(partner.id, patience));
        if state.is_heard() {
            let received = partner.perform(Operation::receive(Some(subject.id), NEVER))?;
            check!(received.is_ok_and(|received| received.message == WORDS), "{state:?}: {received:?}");
        }
        if patience == NEVER {
            subject.await_sleep()?;
        }
        Ok(Scene { team, subject, partner, state })
    }

    /// The subject is still where it was; its partner does what it waits for.
    fn resolve(&self, me: &mut Endpoint, after: &str) -> Outcome {
        let state = self.state;
        check!(self.subject.is_in_operation(), "{after} in {state:?}: its operation has ended");
        self.subject.await_sleep()?;
        let partner_is_there = !self.partner.has_ended();
        if state.is_polling() {
            let received = self.partner.perform(Operation::receive(Some(self.subject.id), NEVER))?;
            check!(
                received.is_ok_and(|received| received.message == WORDS),
                "{after} in {state:?}: {received:?}"
            );
        }
        if state != State::Sending {
            let answer = Operation::send(self.subject.id, ANSWER, ZERO);
            let sent = if partner_is_there { self.partner.perform(answer)? } else { operate(me, &answer) };
            check!(sent.is_ok(), "{after} in {state:?}: what it waited for ended with {sent:?}");
        }
        let result = self.subject.result()?;
        let expected = if state == State::Sending { [0; 3] } else { ANSWER };
        check!(
            result.is_ok_and(|received| received.message == expected),
            "{after} in {state:?}: its operation ended with {result:?}"
        );
        Ok(())
    }

    /// Both threads go on, then end.
    fn close(self, me: &mut Endpoint, after: &str) -> Outcome {
        self.subject.goes_on(me, after)?;
        if !self.partner.has_ended() {
            self.partner.goes_on(me, after)?;
            self.partner.end()?;
        }
        self.subject.end()?;
        self.team.join()
    }
}

/// Where subject and partner are.
fn places() -> impl Iterator<Item = (CpuId, CpuId)> {
    let (a, b) = (CpuId::from_index(0), CpuId::from_index(1));
    let across = [(a, b), (b, a)];
    core::iter::once((a, a)).chain(across.into_iter().filter(|_| cpu::online().count() > 1))
}

fn events_in_each_state() -> Outcome {
    let mut me = endpoint();
    for place in places() {
        for (state, results) in RESULTS {
            for (event, expected) in EVENTS.iter().zip(results) {
                event_in(&mut me, *state, place, *event, *expected)?;
            }
        }
    }
    Ok(())
}

fn event_in(
    me: &mut Endpoint,
    state: State,
    place: (CpuId, CpuId),
    event: Event,
    expected: Option<Error>,
) -> Outcome {
    let patience = if event == Event::TimesOut { Timeout::After(200_000) } else { NEVER };
    let scene = Scene::set(state, place, patience)?;
    match event {
        Event::PartnerEnds => scene.partner.end()?,
        Event::Cancelled => {
            let cancelled = cancel(scene.subject.id, &Caller::KERNEL, Some(me));
            check!(cancelled == Ok(true), "a cancellation in {state:?} said {cancelled:?}");
        }
        Event::Signalled => scene.subject.thread.set_attention(true),
        Event::TimesOut => {}
    }
    match expected {
        Some(error) => {
            let result = scene.subject.result()?;
            scene.subject.thread.set_attention(false);
            check!(result == Err(Failure::Ipc(error)), "{event:?} in {state:?} at {place:?}: {result:?}");
        }
        None => scene.resolve(me, "an end that is none of its business")?,
    }
    scene.close(me, "an event")
}

/// Numbers that are nobody's, some of them close to somebody's.
fn wrong_numbers(id: ThreadId) -> [ThreadId; 7] {
    let bits = id.to_bits();
    [0, 1, bits + (1 << 32), bits ^ 1 << 62, bits & 0xffff_ffff, u64::MAX >> 1, bits + 20_000]
        .map(ThreadId::from_bits)
}

const STRANGER: Caller = Caller { real: 1000, effective: 1000, saved: 1000, privileged: false };

fn bad_input_in_each_state() -> Outcome {
    let mut me = endpoint();
    for place in places() {
        for (state, _) in RESULTS {
            let scene = Scene::set(*state, place, NEVER)?;
            disturb(&mut me, &scene)?;
            scene.resolve(&mut me, "bad input")?;
            scene.close(&mut me, "bad input")?;
        }
    }
    Ok(())
}

/// All that must not matter to a subject in its state.
fn disturb(me: &mut Endpoint, scene: &Scene) -> Outcome {
    let (state, id) = (scene.state, scene.subject.id);
    let not_existent = Err(Failure::Ipc(Error::NotExistent));
    for wrong in wrong_numbers(id) {
        for timeout in [ZERO, NEVER] {
            let sent = operate(me, &Operation::send(wrong, [1; 3], timeout));
            check!(sent == not_existent, "a send to {wrong:?} in {state:?} ended with {sent:?}");
        }
        let cancelled = cancel(wrong, &Caller::KERNEL, Some(me));
        check!(cancelled == Err(Failure::Ipc(Error::NotExistent)), "{wrong:?} in {state:?}: {cancelled:?}");
    }
    let refused = Failure::Refused(Refusal::NotPermitted);
    for timeout in [ZERO, Timeout::After(1_000), NEVER] {
        let sent = me.operate(&Operation::send(id, [2; 3], timeout), &STRANGER);
        check!(sent == Err(refused), "a stranger's send in {state:?} ended with {sent:?}");
        let called = me.operate(&Operation::call(id, [2; 3], timeout, timeout), &STRANGER);
        check!(called == Err(refused), "a stranger's call in {state:?} ended with {called:?}");
    }
    let cancelled = cancel(id, &STRANGER, Some(me));
    check!(cancelled == Err(refused), "a stranger's cancellation in {state:?} said {cancelled:?}");
    if !state.is_open() {
        for timeout in [ZERO, Timeout::After(50_000), Timeout::After(1)] {
            let sent = operate(me, &Operation::call(id, [3; 3], timeout, NEVER));
            let late = Err(Failure::Ipc(Error::SendTimeout));
            check!(sent == late, "a third thread's call in {state:?} ended with {sent:?}");
        }
    }
    let received = operate(me, &Operation::receive(Some(id), ZERO));
    check!(received == Err(Failure::Ipc(Error::ReceiveTimeout)), "from one in {state:?}: {received:?}");
    Ok(())
}

/// The subject's own operations with numbers that are nobody's, with its own, and with one that ended a moment ago.
fn bad_numbers() -> Outcome {
    for place in places() {
        let mut team = Team::new();
        let (subject, dead) = (Actor::start(&mut team, place.0)?, Actor::start(&mut team, place.1)?);
        dead.end()?;
        let wrong = wrong_numbers(subject.id).into_iter().chain([dead.id]);
        let own = Some(Failure::Refused(Refusal::OwnId));
        let gone = Some(Failure::Ipc(Error::NotExistent));
        for (partner, expected) in wrong.map(|id| (id, gone)).chain([(subject.id, own)]) {
            for patience in [ZERO, Timeout::After(1), Timeout::After(u64::MAX), NEVER] {
                for (state, _) in RESULTS.iter().filter(|(state, _)| *state != State::Open) {
                    let result = subject.perform(state.operation(partner, patience))?;
                    check!(
                        result.err() == expected,
                        "{state:?} with {partner:?} for {patience:?} ended with {result:?}"
                    );
                }
            }
        }
        subject.goes_on(&mut endpoint(), "bad numbers")?;
        subject.end()?;
        team.join()?;
    }
    Ok(())
}
