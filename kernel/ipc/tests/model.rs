//! The protocol between CPUs under an exhaustive explorer (specs/fiasco-mp.md, acceptance check 3).
//!
//! A world is a few threads on two or three CPUs, and the message boxes between these. A step is what is atomic in the kernel: an atomic section
//! of a thread, or the handling of one request. The explorer tries every order of steps, time-outs and cancellations at every moment. The
//! threads' states are the kernel's own ([`State`]); the sections are those of `endpoint` and `handler`, one function each.
//!
//! Checked in every world that comes to rest: nobody is stuck; each message was taken at most once; a sender succeeded if and only if its message
//! was taken; an answer with time-out zero found its caller. Each of the historic bugs must be found out by one of the scenarios.

use std::collections::HashSet;

use ipc::Error;
use ipc::state::{Kind, State};

const CPUS: usize = 3;
const ANYBODY: u8 = 200;

/// A historic bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    TimeoutFirst,
    LateReceive,
    LateCancel,
    OrderSwapped,
    NoTimeoutReset,
    ServesNobody,
}

/// What a thread does, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operation {
    /// To whom; whether it may wait, and whether its wait may time out; whether the answer is received.
    Send { to: u8, may_wait: bool, times_out: bool, call: bool },
    /// From whom; whether the wait may time out.
    Receive { from: u8, times_out: bool },
    /// To the last sender, with time-out zero; must succeed.
    Reply,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Before its next operation.
    Between,
    AwaitsOffer,
    SleepsAsSender,
    AwaitsCancel(Error),
    SleepsAsReceiver,
    AwaitsWakeup,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Thread {
    cpu: u8,
    script: Vec<Operation>,
    at: usize,
    phase: Phase,
    state: State,
    expected: u8,
    queue: Vec<u8>,
    last_sender: u8,
    /// A cancellation from outside may still come.
    may_be_cancelled: bool,
    /// Its messages that were taken, and its sends that succeeded.
    taken: u8,
    succeeded: u8,
    /// Replies that found nobody.
    unanswered: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Request {
    Send { sender: u8, receiver: u8, may_wait: bool },
    Wakeup { thread: u8 },
    Cancel { sender: u8, receiver: u8 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Response {
    Done,
    Pending,
    NotDone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Box_ {
    Empty,
    Request(Request),
    Answer(Response),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    threads: Vec<Thread>,
    boxes: [[Box_; CPUS]; CPUS],
    /// The thread that waits for an answer, and from which CPU.
    waiting: [Option<(u8, u8)>; CPUS],
}

impl World {
    fn new(threads: &[(u8, &[Operation], bool)]) -> World {
        let threads = threads
            .iter()
            .map(|&(cpu, script, may_be_cancelled)| Thread {
                cpu,
                script: script.to_vec(),
                at: 0,
                phase: Phase::Between,
                state: State::READY,
                expected: ANYBODY,
                queue: Vec::new(),
                last_sender: ANYBODY,
                may_be_cancelled,
                taken: 0,
                succeeded: 0,
                unanswered: 0,
            })
            .collect();
        World { threads, boxes: [[Box_::Empty; CPUS]; CPUS], waiting: [None; CPUS] }
    }

    fn thread(&mut self, index: u8) -> &mut Thread {
        &mut self.threads[usize::from(index)]
    }

    // What CPUs do with what they own: `handler`.

    fn deliver(&mut self, sender: u8, receiver: u8, may_wait: bool) -> Response {
        let target = self.thread(receiver);
        let state = target.state;
        let accepts = state.kind() == Kind::Receiving
            && !state.is_canceled()
            && if target.expected == ANYBODY { target.queue.is_empty() } else { target.expected == sender };
        if accepts {
            target.state = state.delivered();
            target.last_sender = sender;
            self.thread(sender).taken += 1;
            return Response::Done;
        }
        if !may_wait {
            return Response::NotDone;
        }
        target.queue.push(sender);
        Response::Pending
    }

    fn accepted(&mut self, sender: u8, bug: Bug) {
        let thread = self.thread(sender);
        let mut next = thread.state.accepted();
        if bug == Bug::LateReceive && next.kind() == Kind::Receiving {
            next = State::READY;
        }
        if next.kind() == Kind::Receiving && !thread.queue.is_empty() {
            next = next.with_thread_needed();
        }
        thread.state = next;
    }

    fn take_back(&mut self, sender: u8, receiver: u8) -> Response {
        let queue = &mut self.thread(receiver).queue;
        match queue.iter().position(|queued| *queued == sender) {
            Some(place) => {
                queue.remove(place);
                Response::Done
            }
            None => Response::NotDone,
        }
    }

    fn handle(&mut self, request: Request, bug: Bug) -> Response {
        match request {
            Request::Send { sender, receiver, may_wait } => self.deliver(sender, receiver, may_wait),
            Request::Cancel { sender, receiver } => self.take_back(sender, receiver),
            Request::Wakeup { thread } => {
                if self.thread(thread).state.kind() == Kind::Polling {
                    self.accepted(thread, bug);
                    return Response::Done;
                }
                Response::NotDone
            }
        }
    }

    fn serve(&mut self, from: usize, at: usize, bug: Bug) {
        if let Box_::Request(request) = self.boxes[from][at] {
            self.boxes[from][at] = Box_::Answer(self.handle(request, bug));
        }
    }

    /// Does it here, or asks the CPU that owns the other thread. `None`: the answer comes later.
    fn ask(&mut self, asking: u8, owner: u8, request: Request, bug: Bug) -> Option<Response> {
        let here = self.thread(asking).cpu;
        let there = self.thread(owner).cpu;
        if here == there {
            return Some(self.handle(request, bug));
        }
        assert_eq!(self.boxes[usize::from(here)][usize::from(there)], Box_::Empty, "one request outstanding");
        self.boxes[usize::from(here)][usize::from(there)] = Box_::Request(request);
        self.waiting[usize::from(here)] = Some((asking, there));
        None
    }

    // The sections of a thread: `endpoint`.

    fn begin(&mut self, index: u8, bug: Bug) {
        let thread = self.thread(index);
        match thread.script[thread.at] {
            Operation::Send { to, may_wait, call, .. } => {
                thread.state = State::polling(call.then_some(false));
                thread.expected = if call { to } else { ANYBODY };
                self.offer(index, to, may_wait, bug);
            }
            Operation::Reply => {
                let to = thread.last_sender;
                thread.state = State::polling(None);
                self.offer(index, to, false, bug);
            }
            Operation::Receive { from, .. } => {
                thread.expected = from;
                self.receive(index, bug);
            }
        }
    }

    fn offer(&mut self, index: u8, to: u8, may_wait: bool, bug: Bug) {
        self.thread(index).phase = Phase::AwaitsOffer;
        if let Some(response) =
            self.ask(index, to, Request::Send { sender: index, receiver: to, may_wait }, bug)
        {
            self.offered(index, response, bug);
        }
    }

    fn offered(&mut self, index: u8, response: Response, bug: Bug) {
        match response {
            Response::Done => {
                if self.thread(index).state.kind() == Kind::Polling {
                    self.accepted(index, bug);
                }
                self.sent(index, bug);
            }
            Response::Pending => self.thread(index).phase = Phase::SleepsAsSender,
            Response::NotDone => {
                let thread = self.thread(index);
                if thread.script[thread.at] == Operation::Reply {
                    thread.unanswered += 1;
                }
                self.end(index);
            }
        }
    }

    /// The message was taken.
    fn sent(&mut self, index: u8, bug: Bug) {
        self.thread(index).succeeded += 1;
        let thread = self.thread(index);
        match thread.script[thread.at] {
            Operation::Send { call: true, .. } => self.receive(index, bug),
            _ => self.end(index),
        }
    }

    fn end(&mut self, index: u8) {
        let thread = self.thread(index);
        (thread.state, thread.phase, thread.expected) = (State::READY, Phase::Between, ANYBODY);
        thread.at += 1;
    }

    fn receive(&mut self, index: u8, bug: Bug) {
        let thread = self.thread(index);
        if thread.state.kind() == Kind::Done {
            return self.end(index);
        }
        if thread.state.is_canceled() {
            return self.end(index);
        }
        let expected = thread.expected;
        let place = thread.queue.iter().position(|sender| expected == ANYBODY || *sender == expected);
        if let Some(place) = place {
            let sender = thread.queue.remove(place);
            thread.state = State::READY;
            thread.last_sender = sender;
            thread.phase = Phase::AwaitsWakeup;
            self.thread(sender).taken += 1;
            if self.ask(index, sender, Request::Wakeup { thread: sender }, bug).is_some() {
                self.end(index);
            }
            return;
        }
        thread.state = State::receiving();
        thread.phase = Phase::SleepsAsReceiver;
    }

    /// A sender that slept looks why it was woken; `reason` if its deadline or somebody else has.
    fn sender_woken(&mut self, index: u8, reason: Option<Error>, bug: Bug) {
        let state = self.thread(index).state;
        let late = reason == Some(Error::SendTimeout)
            && match state.kind() {
                Kind::Done => bug == Bug::TimeoutFirst,
                Kind::Receiving => bug == Bug::NoTimeoutReset,
                _ => false,
            };
        if late {
            return self.end(index);
        }
        match (state.kind(), reason) {
            (Kind::Polling, Some(error)) => {
                self.thread(index).phase = Phase::AwaitsCancel(error);
                let thread = self.thread(index);
                let Operation::Send { to, .. } = thread.script[thread.at] else { unreachable!("it sends") };
                if let Some(response) =
                    self.ask(index, to, Request::Cancel { sender: index, receiver: to }, bug)
                {
                    self.cancelled(index, response, bug);
                }
            }
            (Kind::Polling, None) => {}
            _ => self.sent(index, bug),
        }
    }

    fn cancelled(&mut self, index: u8, response: Response, bug: Bug) {
        if response == Response::Done || bug == Bug::LateCancel {
            return self.end(index);
        }
        // The wakeup request is in the box already, or was served.
        let here = usize::from(self.thread(index).cpu);
        for from in 0..CPUS {
            if let Box_::Request(Request::Wakeup { thread }) = self.boxes[from][here]
                && thread == index
            {
                self.serve(from, here, bug);
            }
        }
        assert_ne!(
            self.thread(index).state.kind(),
            Kind::Polling,
            "a wakeup that is too late to cancel is there"
        );
        self.sent(index, bug);
    }

    fn answered(&mut self, cpu: usize, bug: Bug) {
        let (index, there) = self.waiting[cpu].take().expect("it waits");
        let Box_::Answer(response) = self.boxes[cpu][usize::from(there)] else { unreachable!("it has come") };
        self.boxes[cpu][usize::from(there)] = Box_::Empty;
        match self.thread(index).phase {
            Phase::AwaitsOffer => self.offered(index, response, bug),
            Phase::AwaitsCancel(_) => self.cancelled(index, response, bug),
            Phase::AwaitsWakeup => self.end(index),
            phase => unreachable!("{phase:?} waits for nobody"),
        }
    }

    /// All worlds one step later.
    fn steps(&self, bug: Bug) -> Vec<World> {
        let mut worlds = Vec::new();
        let mut step = |change: &dyn Fn(&mut World)| {
            let mut world = self.clone();
            change(&mut world);
            worlds.push(world);
        };
        for cpu in 0..CPUS {
            let answer_is_there = self.waiting[cpu]
                .is_some_and(|(_, there)| matches!(self.boxes[cpu][usize::from(there)], Box_::Answer(_)));
            if answer_is_there {
                step(&|world| world.answered(cpu, bug));
            }
            // The answer counts before later requests; who waits serves.
            let serves = match self.waiting[cpu] {
                None => true,
                Some(_) => (!answer_is_there || bug == Bug::OrderSwapped) && bug != Bug::ServesNobody,
            };
            for from in (0..CPUS).filter(|_| serves) {
                if let Box_::Request(_) = self.boxes[from][cpu] {
                    step(&|world| world.serve(from, cpu, bug));
                }
            }
            if self.waiting[cpu].is_some() {
                continue;
            }
            for index in 0..self.threads.len() as u8 {
                let thread = &self.threads[usize::from(index)];
                if usize::from(thread.cpu) != cpu || thread.at == thread.script.len() {
                    continue;
                }
                let times_out = match thread.script[thread.at] {
                    Operation::Send { times_out, .. } | Operation::Receive { times_out, .. } => times_out,
                    Operation::Reply => false,
                };
                match thread.phase {
                    Phase::Between => step(&|world| world.begin(index, bug)),
                    Phase::SleepsAsSender => {
                        if thread.state.needs_thread() || bug == Bug::LateReceive {
                            step(&|world| world.sender_woken(index, None, bug));
                        }
                        if times_out {
                            step(&|world| world.sender_woken(index, Some(Error::SendTimeout), bug));
                        }
                        if thread.may_be_cancelled {
                            step(&|world| {
                                world.thread(index).may_be_cancelled = false;
                                world.sender_woken(index, Some(Error::SendCanceled), bug);
                            });
                        }
                        // A caller that sleeps through: its answer wakes it.
                        if thread.state.kind() == Kind::Receiving {
                            step(&|world| world.sent(index, bug));
                        }
                    }
                    Phase::SleepsAsReceiver => {
                        if thread.state.needs_thread() {
                            step(&|world| world.receive(index, bug));
                        }
                        // A call's answer is waited for without end.
                        if matches!(thread.script[thread.at], Operation::Receive { times_out: true, .. })
                            && thread.state.kind() == Kind::Receiving
                        {
                            step(&|world| world.end(index));
                        }
                    }
                    Phase::AwaitsOffer | Phase::AwaitsCancel(_) | Phase::AwaitsWakeup => {}
                }
            }
        }
        worlds
    }

    /// What is wrong with a world that has come to rest.
    fn verdict(&self) -> Result<(), String> {
        for (index, thread) in self.threads.iter().enumerate() {
            if thread.at != thread.script.len() {
                return Err(format!("thread {index} is stuck in {:?} ({:?})", thread.phase, thread.state));
            }
            if thread.taken != thread.succeeded {
                let (taken, succeeded) = (thread.taken, thread.succeeded);
                return Err(format!(
                    "{taken} messages of thread {index} were taken, {succeeded} sends succeeded"
                ));
            }
            if thread.unanswered != 0 {
                return Err(format!("an answer of thread {index} found nobody"));
            }
        }
        Ok(())
    }
}

/// Explores all worlds; returns how many there are, or what is wrong with one.
fn explore(start: World, bug: Bug) -> Result<usize, String> {
    let mut seen = HashSet::new();
    let mut open = vec![start];
    while let Some(world) = open.pop() {
        if !seen.insert(world.clone()) {
            continue;
        }
        let next = world.steps(bug);
        if next.is_empty() {
            world.verdict()?;
        }
        open.extend(next);
    }
    Ok(seen.len())
}

const fn send(to: u8, times_out: bool) -> Operation {
    Operation::Send { to, may_wait: true, times_out, call: false }
}

const fn call(to: u8, times_out: bool) -> Operation {
    Operation::Send { to, may_wait: true, times_out, call: true }
}

const fn receive(times_out: bool) -> Operation {
    Operation::Receive { from: ANYBODY, times_out }
}

/// One sender with a time-out and one cancellation, one receiver whose wait may end.
fn race() -> World {
    World::new(&[(0, &[send(1, true), send(1, true)], true), (1, &[receive(true), receive(true)], false)])
}

/// A call that is answered with time-out zero, whose send may have had to wait with a deadline. A call that was not taken is made up
/// for, so that the server is not left waiting.
fn answer() -> World {
    World::new(&[
        (0, &[call(1, false), call(1, false)], false),
        (1, &[receive(false), Operation::Reply, receive(false), Operation::Reply], false),
    ])
}

/// The same with a deadline of the send, and a server that may give up.
fn answer_with_deadline() -> World {
    World::new(&[
        (0, &[call(1, true)], false),
        (1, &[receive(false), Operation::Reply], false),
        (
            // Makes up for a call that was not taken.
            2,
            &[call(1, true)],
            false,
        ),
    ])
}

/// Clients here and there, and a server in between.
fn two_clients() -> World {
    World::new(&[
        (0, &[call(2, false)], false),
        (1, &[call(2, false)], false),
        (1, &[receive(false), Operation::Reply, receive(false), Operation::Reply], false),
    ])
}

/// Each sends to the next, and receives.
fn ring() -> World {
    World::new(&[
        (0, &[send(1, true), receive(true)], false),
        (1, &[send(2, true), receive(true)], true),
        (2, &[send(0, true), receive(true)], false),
    ])
}

/// Two that send to each other at once, without end: each must be served while it waits.
fn crossing() -> World {
    World::new(&[
        (0, &[send(3, false)], false),
        (0, &[receive(false)], false),
        (1, &[send(1, false)], false),
        (1, &[receive(false)], false),
    ])
}

fn scenarios() -> [(&'static str, World); 5] {
    [
        ("race", race()),
        ("answer", answer()),
        ("two clients", two_clients()),
        ("ring", ring()),
        ("crossing", crossing()),
    ]
}

#[test]
fn no_order_of_steps_breaks_the_protocol() {
    for (name, world) in scenarios() {
        match explore(world, Bug::None) {
            Ok(worlds) => println!("{name}: {worlds} worlds"),
            Err(wrong) => panic!("{name}: {wrong}"),
        }
    }
}

/// A server that is left waiting because its caller's deadline has passed is no fault; anything else is.
#[test]
fn deadlines_of_calls_lose_nothing() {
    let is_fault = |wrong: &String| !wrong.contains("stuck in SleepsAsReceiver");
    let outcome = explore(answer_with_deadline(), Bug::None);
    assert!(!outcome.as_ref().is_err_and(is_fault), "{outcome:?}");
}

#[test]
fn the_explorer_notices_every_historic_bug() {
    for bug in [Bug::TimeoutFirst, Bug::LateReceive, Bug::LateCancel, Bug::OrderSwapped, Bug::ServesNobody] {
        let noticed =
            scenarios().into_iter().find_map(|(name, world)| Some((name, explore(world, bug).err()?)));
        let (name, wrong) = noticed.unwrap_or_else(|| panic!("nobody notices {bug:?}"));
        println!("{bug:?} breaks {name}: {wrong}");
    }
    let wrong = explore(answer_with_deadline(), Bug::NoTimeoutReset).expect_err("it is noticed");
    println!("NoTimeoutReset: {wrong}");
}
