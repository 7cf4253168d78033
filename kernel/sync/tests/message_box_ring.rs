//! All states that a ring of processors can get into, each of which sends to the next one through message boxes and waits with interrupts
//! off: whatever happens, all requests can still be answered.
//!
//! The steps are those of `message_box::protocol` (`post`, `turn`, `serve`), one access to shared memory each, in any order among the
//! processors. What the processor's memory may reorder is the business of the model of two (`models.rs`).

use std::collections::{HashMap, VecDeque};

/// What a processor does next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Step {
    /// Puts its request into the box of the next processor.
    Post,
    /// Sets its bit there.
    Notify,
    /// Looks for requests.
    LookForRequests,
    /// Looks for its answer, having seen these requests.
    LookForAnswer(u8),
    /// Clears the bits of the requests that it is going to handle; afterwards it waits on, or is done.
    Clear(u8, bool),
    /// Handles these requests.
    Handle(u8, bool),
    /// Has its answer, and interrupts are on: it serves what it finds.
    Done,
}

/// The shared memory, and where each processor is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    steps: Vec<Step>,
    /// For each sender: whether its request is in the box of the next one.
    requested: Vec<bool>,
    /// For each processor the bits of those whose requests have arrived.
    arrived: Vec<u8>,
    /// Requests that each processor has still to send.
    left: Vec<u8>,
}

impl State {
    fn start(size: usize, requests: u8) -> State {
        State {
            steps: vec![Step::Post; size],
            requested: vec![false; size],
            arrived: vec![0; size],
            left: vec![requests; size],
        }
    }

    fn is_end(&self) -> bool {
        self.steps.iter().all(|step| *step == Step::Done) && !self.requested.contains(&true)
    }

    /// The state after a processor's next step; None when it has nothing to do.
    fn after(&self, cpu: usize, serves: bool) -> Option<State> {
        let size = self.steps.len();
        let next = (cpu + 1) % size;
        let mut state = self.clone();
        state.steps[cpu] = match self.steps[cpu] {
            Step::Post => {
                assert!(!self.requested[cpu], "one request is outstanding");
                state.requested[cpu] = true;
                Step::Notify
            }
            Step::Notify => {
                state.arrived[next] |= 1 << cpu;
                Step::LookForRequests
            }
            Step::LookForRequests => Step::LookForAnswer(self.arrived[cpu]),
            Step::LookForAnswer(_) if !self.requested[cpu] => {
                state.left[cpu] -= 1;
                if state.left[cpu] > 0 { Step::Post } else { Step::Done }
            }
            Step::LookForAnswer(0) => Step::LookForRequests,
            Step::LookForAnswer(_) if !serves => Step::LookForRequests,
            Step::LookForAnswer(seen) => Step::Clear(seen, true),
            Step::Clear(seen, waits) => {
                state.arrived[cpu] &= !seen;
                Step::Handle(seen, waits)
            }
            Step::Handle(seen, waits) => {
                let sender = seen.trailing_zeros() as usize;
                assert!(self.requested[sender] && (sender + 1) % size == cpu, "a bit stands for a request");
                state.requested[sender] = false;
                match (seen & (seen - 1), waits) {
                    (0, true) => Step::LookForRequests,
                    (0, false) => Step::Done,
                    (rest, waits) => Step::Handle(rest, waits),
                }
            }
            Step::Done if self.arrived[cpu] != 0 => Step::Clear(self.arrived[cpu], false),
            Step::Done => return None,
        };
        Some(state)
    }
}

/// How many states there are, and how many of them cannot come to the end any more.
fn explore(size: usize, requests: u8, serves: bool) -> (usize, usize) {
    let mut numbers = HashMap::new();
    let mut queue = VecDeque::from([State::start(size, requests)]);
    let mut states = Vec::new();
    let mut before: Vec<Vec<usize>> = Vec::new();
    numbers.insert(queue[0].clone(), 0);
    before.push(Vec::new());
    while let Some(state) = queue.pop_front() {
        let number = states.len();
        for successor in (0..size).filter_map(|cpu| state.after(cpu, serves)) {
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
        states.push(state);
    }
    let mut reaches = vec![false; states.len()];
    let mut work: Vec<usize> = (0..states.len()).filter(|&number| states[number].is_end()).collect();
    work.iter().for_each(|&number| reaches[number] = true);
    while let Some(number) = work.pop() {
        for &earlier in &before[number] {
            if !std::mem::replace(&mut reaches[earlier], true) {
                work.push(earlier);
            }
        }
    }
    (states.len(), reaches.iter().filter(|reaches| !**reaches).count())
}

#[test]
fn from_every_state_of_a_ring_all_requests_can_be_answered() {
    for (size, requests) in [(2, 1), (2, 3), (3, 1), (3, 2)] {
        let (states, stuck) = explore(size, requests, true);
        assert!(states > 30, "{states} states of {size} processors");
        assert_eq!(stuck, 0, "of {states} states of {size} processors");
    }
}

#[test]
fn processors_that_serve_nobody_while_they_wait_come_to_stand() {
    for size in [2, 3] {
        assert!(explore(size, 1, false).1 > 0, "{size} processors");
    }
}
