//! All states that processors can get into which send to each other through message boxes while their interrupts come and go: no request
//! stays in its box for ever, and none is handled between an answer's arrival and its taking.
//!
//! The steps are those of `message_box::sending` (`post`, `take_turn`, `conclude`, `arrival`), one access to shared memory each. Here a
//! processor that has nothing to send looks into its boxes only when it is interrupted, unlike in `message_box_ring.rs`. A sender does not
//! halt: to halt is to wait longer for the same step.

use std::collections::{HashMap, VecDeque};

/// How the source departs from what it should be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Defect {
    None,
    /// Who finds requests together with the last answer leaves no note, nor does the interrupt look again: those who came between its
    /// look and its serving, and so sent no interrupt, are forgotten.
    LooksOnce,
    /// Only an interrupt that finds the answer has later requests wait until it is taken.
    TakesLate,
}

/// What a processor does next, in its thread or in an interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Step {
    /// The thread puts its request into the box. Interrupts are off.
    Post,
    /// Sets its bit at the target.
    Notify,
    /// Interrupts the target, if it has to.
    Interrupt(bool),
    /// Waits, and is about to take a turn.
    Wait,
    /// A turn's first look.
    LookForRequests,
    /// A turn's second look, having seen these requests.
    LookForAnswer(u8),
    /// Clears the bits of the requests that it is going to handle.
    Clear(u8),
    /// Handles these.
    Handle(u8),
    /// Looks whether more have come: the interrupt of a processor that waits for nothing.
    LookAgain,
    /// Is about to take the answer.
    Take,
    /// Has taken the answer.
    Conclude,
    /// Interrupts are on for a moment between two requests.
    Between,
    /// Has sent all its requests.
    Done,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Processor {
    thread: Step,
    /// What its interrupt, or the look of a sender that has taken its answer, does.
    arrival: Option<Step>,
    /// An interrupt of the boxes is pending.
    pending: bool,
    waiting: bool,
    settled: bool,
    rescan: bool,
    arrived: u8,
    requested_of_target: bool,
    left: u8,
}

/// Which processor sends how many requests to which, and whether it has interrupts on meanwhile.
#[derive(Clone, Copy)]
struct Role {
    target: usize,
    requests: u8,
    interrupts_on: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State(Vec<Processor>);

struct Model {
    roles: Vec<Role>,
    defect: Defect,
}

impl Model {
    fn start(&self) -> State {
        let processor = |role: &Role| Processor {
            thread: if role.requests > 0 { Step::Post } else { Step::Done },
            arrival: None,
            pending: false,
            waiting: false,
            settled: false,
            rescan: false,
            arrived: 0,
            requested_of_target: false,
            left: role.requests,
        };
        State(self.roles.iter().map(processor).collect())
    }

    fn is_end(&self, state: &State) -> bool {
        state
            .0
            .iter()
            .all(|cpu| cpu.thread == Step::Done && cpu.arrival.is_none() && !cpu.requested_of_target)
    }

    /// Whether the thread's next step can be preceded by an interrupt.
    fn is_open(&self, cpu: usize, step: Step) -> bool {
        match step {
            Step::Between | Step::Done => true,
            Step::Interrupt(_) | Step::Wait | Step::Take => self.roles[cpu].interrupts_on,
            _ => false,
        }
    }

    /// The states after a processor's next step: of its thread or its interrupt.
    fn after(&self, state: &State, cpu: usize) -> Vec<State> {
        let own = &state.0[cpu];
        let mut next = Vec::new();
        if let Some(step) = own.arrival {
            next.push(self.step(state, cpu, step, true));
            return next;
        }
        if own.pending && self.is_open(cpu, own.thread) {
            let mut interrupted = state.clone();
            interrupted.0[cpu].pending = false;
            self.arrive(&mut interrupted.0[cpu]);
            next.push(interrupted);
        }
        if own.thread != Step::Done {
            next.push(self.step(state, cpu, own.thread, false));
        }
        next
    }

    /// The beginning of `arrival`.
    fn arrive(&self, own: &mut Processor) {
        if !own.waiting && own.settled {
            own.rescan = true;
        } else {
            own.arrival = Some(Step::LookForRequests);
        }
    }

    fn step(&self, state: &State, cpu: usize, step: Step, in_arrival: bool) -> State {
        let role = self.roles[cpu];
        let mut state = state.clone();
        let following = match step {
            Step::Post => {
                state.0[cpu].requested_of_target = true;
                Some(Step::Notify)
            }
            Step::Notify => {
                let target = &mut state.0[role.target];
                let first = target.arrived == 0;
                target.arrived |= 1 << cpu;
                state.0[cpu].waiting = true;
                Some(Step::Interrupt(first))
            }
            Step::Interrupt(first) => {
                state.0[role.target].pending |= first;
                Some(Step::Wait)
            }
            Step::Wait => Some(Step::LookForRequests),
            Step::LookForRequests => Some(self.look(&mut state.0[cpu], in_arrival)),
            Step::LookForAnswer(seen) => self.look_for_answer(&mut state.0[cpu], seen, in_arrival),
            Step::Clear(seen) => {
                state.0[cpu].arrived &= !seen;
                Some(Step::Handle(seen))
            }
            Step::Handle(seen) => self.handle(&mut state, cpu, seen, in_arrival),
            Step::LookAgain => {
                let own = &mut state.0[cpu];
                own.pending |= own.arrived != 0 && self.defect != Defect::LooksOnce;
                None
            }
            Step::Take => Some(Step::Conclude),
            Step::Conclude => Some(self.conclude(&mut state.0[cpu], role)),
            Step::Between => Some(Step::Post),
            Step::Done => unreachable!("who is done only takes interrupts"),
        };
        match (in_arrival, following) {
            (true, step) => state.0[cpu].arrival = step,
            (false, Some(step)) => state.0[cpu].thread = step,
            (false, None) => unreachable!("a thread has a next step"),
        }
        state
    }

    fn look(&self, own: &mut Processor, in_arrival: bool) -> Step {
        match (in_arrival && !own.waiting, own.arrived) {
            (true, 0) => Step::LookAgain,
            (true, seen) => Step::Clear(seen),
            (false, seen) => Step::LookForAnswer(seen),
        }
    }

    fn look_for_answer(&self, own: &mut Processor, seen: u8, in_arrival: bool) -> Option<Step> {
        if !own.requested_of_target || !own.waiting {
            own.waiting = false;
            own.settled |= in_arrival || self.defect != Defect::TakesLate;
            own.rescan |= seen != 0 && (in_arrival || self.defect != Defect::LooksOnce);
            return (!in_arrival).then_some(Step::Take);
        }
        match seen {
            0 => (!in_arrival).then_some(Step::Wait),
            seen => Some(Step::Clear(seen)),
        }
    }

    fn handle(&self, state: &mut State, cpu: usize, seen: u8, in_arrival: bool) -> Option<Step> {
        let sender = seen.trailing_zeros() as usize;
        assert!(state.0[sender].requested_of_target, "a bit stands for a request");
        assert!(in_arrival || state.0[cpu].waiting, "only who waits, or was interrupted, handles requests");
        assert!(
            state.0[cpu].waiting || !matches!(state.0[cpu].thread, Step::Take),
            "a request was handled before an answer was taken"
        );
        state.0[sender].requested_of_target = false;
        match (seen & (seen - 1), in_arrival, state.0[cpu].waiting) {
            (0, true, false) => Some(Step::LookAgain),
            (0, true, true) => None,
            (0, false, _) => Some(Step::Wait),
            (rest, ..) => Some(Step::Handle(rest)),
        }
    }

    fn conclude(&self, own: &mut Processor, role: Role) -> Step {
        own.settled = false;
        if core::mem::take(&mut own.rescan) {
            match role.interrupts_on {
                true => self.arrive(own),
                false => own.pending = true,
            }
        }
        own.left -= 1;
        if own.left > 0 { Step::Between } else { Step::Done }
    }

    /// How many states there are, and how many of them cannot come to the end any more.
    fn explore(&self) -> (usize, usize) {
        let start = self.start();
        let mut numbers = HashMap::from([(start.clone(), 0)]);
        let mut queue = VecDeque::from([start]);
        let mut ends = Vec::new();
        let mut before: Vec<Vec<usize>> = vec![Vec::new()];
        let mut number = 0;
        while let Some(state) = queue.pop_front() {
            if self.is_end(&state) {
                ends.push(number);
            }
            for successor in (0..self.roles.len()).flat_map(|cpu| self.after(&state, cpu)) {
                let known = numbers.len();
                let place = *numbers.entry(successor.clone()).or_insert_with(|| {
                    queue.push_back(successor);
                    known
                });
                if place == known {
                    before.push(Vec::new());
                }
                before[place].push(number);
            }
            number += 1;
        }
        let mut reaches = vec![false; before.len()];
        ends.iter().for_each(|&end| reaches[end] = true);
        while let Some(end) = ends.pop() {
            for &earlier in &before[end] {
                if !std::mem::replace(&mut reaches[earlier], true) {
                    ends.push(earlier);
                }
            }
        }
        (before.len(), reaches.iter().filter(|reaches| !**reaches).count())
    }
}

/// Everybody to its neighbour, two to one, and one who only answers; with interrupts on and off.
fn castings() -> Vec<Vec<Role>> {
    let mut castings = Vec::new();
    for modes in 0..8_u8 {
        let role =
            |cpu: u8, target, requests| Role { target, requests, interrupts_on: modes & 1 << cpu != 0 };
        if modes < 4 {
            castings.push(vec![role(0, 1, 2), role(1, 0, 2)]);
        }
        castings.push(vec![role(0, 1, 1), role(1, 0, 1), role(2, 0, 1)]);
        castings.push(vec![role(0, 1, 1), role(1, 2, 1), role(2, 0, 1)]);
        castings.push(vec![role(0, 1, 2), role(1, 0, 1), role(2, 1, 1)]);
    }
    castings
}

#[test]
fn no_request_is_forgotten_and_none_comes_before_an_answer_is_taken() {
    for roles in castings() {
        let model = Model { roles, defect: Defect::None };
        let (states, stuck) = model.explore();
        assert!(states > 100, "{states} states");
        assert_eq!(stuck, 0, "of {states} states of {} processors", model.roles.len());
    }
}

#[test]
fn who_looks_once_forgets_a_request() {
    let forgets = |roles| Model { roles, defect: Defect::LooksOnce }.explore().1 > 0;
    assert!(castings().into_iter().any(forgets));
}

#[test]
#[should_panic(expected = "handled before an answer was taken")]
fn who_does_not_settle_handles_a_later_request_first() {
    for roles in castings() {
        Model { roles, defect: Defect::TakesLate }.explore();
    }
}
