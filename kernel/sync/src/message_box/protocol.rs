//! The matrix of message boxes and its protocol (specs/fiasco-mp.md rules 18 to 24).
//!
//! Box (sender, target) carries one request of the sender to the target and the target's answer. It is a variant record: a type and six
//! words, together one cache line. States, told by the type:
//!
//! ```text
//! EMPTY ── post: words, then type (sender) ──► request ── answer: words, then EMPTY (target) ──► EMPTY, an answer
//! ```
//!
//! Rules:
//! - A CPU waits for the answers to one request (which it may have sent to several CPUs at once) before it sends the next,
//!   and runs no other thread meanwhile.
//! - While it waits it serves others ([`Matrix::turn`]), or two CPUs that ask each other would wait for ever.
//! - Who serves sends nothing.
//! - *Order*: a partner's answer counts before its later request. The order is that of the stores to the types. So a turn looks for
//!   requests **first** and for its own answers **second**: with all answers there, the request may be later than they are, and stays
//!   in its box (it is *postponed*); with one missing, the request was sent before it and is handled now.
//!   Every CPU's stores to types are releases, and the loads acquire: who sees a request sees all answers that came before it,
//!   also by way of a third CPU.
//! - *Notification*: a word of each target has a bit for each sender. The sender who finds the word empty interrupts the target;
//!   for all others an interrupt is under way. So n requests cost one interrupt, and it does no harm if several become one.
//!   A request that was postponed keeps its bit, and so does one that comes between a look and the serving of what it saw; its interrupt
//!   may be used up, or was never sent: the caller looks again when it is done.
//! - *Bound*: the senders of one look are served in turn, beginning behind the one served last, and each has one box. So a request is
//!   served after at most n − 2 others, and a wait takes at most D + (n − 1) · H: the longest section with interrupts off and
//!   the longest handler.
//!
//! Everything here works with interrupts off or on plain data; nothing here blocks.

#[cfg(not(all(loom, test)))]
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::CachePadded;

/// Words that a request or an answer can carry.
pub const WORDS: usize = if cfg!(all(loom, test)) { 1 } else { 6 };

/// The type of a box that holds an answer or nothing.
pub(crate) const EMPTY: u32 = 0;

/// One request and its answer.
#[repr(C, align(64))]
pub(crate) struct MessageBox {
    /// What the request is, or [`EMPTY`]. The sender stores requests, the target stores `EMPTY`.
    kind: AtomicU32,
    /// The sender's while `EMPTY`, else the target's.
    words: [AtomicU64; WORDS],
    /// Requests that were answered. The target's.
    served: AtomicU64,
}

const _: () = assert!(cfg!(all(loom, test)) || size_of::<MessageBox>() == 64);

impl MessageBox {
    #[cfg(not(all(loom, test)))]
    const fn new() -> Self {
        Self {
            kind: AtomicU32::new(EMPTY),
            words: [const { AtomicU64::new(0) }; WORDS],
            served: AtomicU64::new(0),
        }
    }

    #[cfg(all(loom, test))]
    fn new() -> Self {
        Self {
            kind: AtomicU32::new(EMPTY),
            words: core::array::from_fn(|_| AtomicU64::new(0)),
            served: AtomicU64::new(0),
        }
    }

    fn write(&self, words: &[u64; WORDS]) {
        for (place, word) in self.words.iter().zip(words) {
            place.store(*word, Ordering::Relaxed);
        }
    }

    fn read(&self) -> [u64; WORDS] {
        core::array::from_fn(|index| self.words[index].load(Ordering::Relaxed))
    }
}

/// What a CPU needs to receive.
struct Receiver {
    /// Bit n: CPU n has put a request into its box. Senders set, the CPU clears.
    arrived: CachePadded<AtomicU64>,
    /// The sender served last. The CPU's own.
    last_served: AtomicU32,
}

/// All boxes of `CPUS` processors.
pub(crate) struct Matrix<const CPUS: usize> {
    receivers: [Receiver; CPUS],
    /// By target, then by sender.
    boxes: [[MessageBox; CPUS]; CPUS],
}

/// What a turn of waiting came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// All answers are there. `postponed`: so are requests, which stay in their boxes.
    Answered {
        /// Whether requests wait in their boxes.
        postponed: bool,
    },
    /// Others were served; their answers are for these CPUs (a set of bits).
    Served(u64),
    /// Nothing has come.
    Nothing,
}

/// How a turn departs from the rules: bugs that tests put in.
#[derive(Clone, Copy, Default)]
pub(crate) struct Departure {
    /// Looks for answers first and for requests second.
    pub(crate) order_swapped: bool,
    /// Serves nobody while it waits.
    pub(crate) serves_nobody: bool,
}

#[cfg(not(all(loom, test)))]
impl<const CPUS: usize> Matrix<CPUS> {
    /// Empty boxes.
    pub(crate) const fn new() -> Self {
        Self {
            receivers: [const {
                Receiver { arrived: CachePadded::new(AtomicU64::new(0)), last_served: AtomicU32::new(0) }
            }; CPUS],
            boxes: [const { [const { MessageBox::new() }; CPUS] }; CPUS],
        }
    }
}

#[cfg(all(loom, test))]
impl<const CPUS: usize> Matrix<CPUS> {
    /// Empty boxes.
    pub(crate) fn new() -> Self {
        let receiver =
            |_| Receiver { arrived: CachePadded::new(AtomicU64::new(0)), last_served: AtomicU32::new(0) };
        Self {
            receivers: core::array::from_fn(receiver),
            boxes: core::array::from_fn(|_| core::array::from_fn(|_| MessageBox::new())),
        }
    }
}

impl<const CPUS: usize> Matrix<CPUS> {
    /// Puts a request into its box. Says whether the target is to be interrupted.
    pub(crate) fn post(&self, sender: usize, target: usize, kind: u32, words: &[u64; WORDS]) -> bool {
        let message = &self.boxes[target][sender];
        debug_assert_ne!(kind, EMPTY, "a request has a type");
        debug_assert_eq!(message.kind.load(Ordering::Relaxed), EMPTY, "the last request was answered");
        message.write(words);
        // Release: pairs with the Acquire in `serve`; the words, and all answers that this CPU gave before.
        message.kind.store(kind, Ordering::Release);
        // AcqRel: the request is in its box before the bit says so.
        self.receivers[target].arrived.fetch_or(1 << sender, Ordering::AcqRel) == 0
    }

    /// The CPUs whose requests wait for this one, as bits.
    pub(crate) fn arrived(&self, this: usize) -> u64 {
        // SeqCst: who is about to halt announces it before it looks.
        self.receivers[this].arrived.load(Ordering::SeqCst)
    }

    /// Those of the CPUs in `waiting` that have answered this one.
    pub(crate) fn answered(&self, this: usize, waiting: u64) -> u64 {
        // SeqCst: as for `arrived`. Acquire would do otherwise; it pairs with the store in `serve`.
        bits(waiting)
            .filter(|&target| self.boxes[target][this].kind.load(Ordering::SeqCst) == EMPTY)
            .fold(0, |set, target| set | 1 << target)
    }

    /// The answer of a CPU that has answered.
    pub(crate) fn answer(&self, this: usize, target: usize) -> [u64; WORDS] {
        self.boxes[target][this].read()
    }

    /// What the box of a pair holds, for reports: the type, the words, and how many requests were answered before. All change
    /// at any time.
    #[cfg_attr(all(loom, test), allow(dead_code, reason = "models need no reports"))]
    pub(crate) fn look(&self, sender: usize, target: usize) -> (u32, [u64; WORDS], u64) {
        let message = &self.boxes[target][sender];
        (message.kind.load(Ordering::Relaxed), message.read(), message.served.load(Ordering::Relaxed))
    }

    /// One turn of a CPU that waits for answers: see the module's theory. Interrupts are off.
    ///
    /// CPUs that have answered are taken out of `waiting`. `between` is called between the two looks: tests use the moment.
    pub(crate) fn turn(
        &self,
        this: usize,
        waiting: &mut u64,
        departure: Departure,
        between: impl FnOnce(),
        handle: impl FnMut(usize, u32, [u64; WORDS]) -> [u64; WORDS],
    ) -> Turn {
        let requested;
        if departure.order_swapped {
            *waiting &= !self.answered(this, *waiting);
            between();
            requested = self.arrived(this);
        } else {
            requested = self.arrived(this);
            between();
            *waiting &= !self.answered(this, *waiting);
        }
        if *waiting == 0 {
            return Turn::Answered { postponed: requested != 0 };
        }
        if requested == 0 || departure.serves_nobody {
            return Turn::Nothing;
        }
        Turn::Served(self.serve(this, requested, handle))
    }

    /// Has the requests of these CPUs handled and answers them; returns who was answered. Interrupts are off.
    pub(crate) fn serve(
        &self,
        this: usize,
        senders: u64,
        mut handle: impl FnMut(usize, u32, [u64; WORDS]) -> [u64; WORDS],
    ) -> u64 {
        if senders == 0 {
            return 0;
        }
        let receiver = &self.receivers[this];
        // AcqRel: pairs with the one in `post`. Bits first: a request that comes from here on sets its bit anew.
        receiver.arrived.fetch_and(!senders, Ordering::AcqRel);
        let start = (receiver.last_served.load(Ordering::Relaxed) + 1) % u64::BITS;
        let mut answered = 0;
        for sender in bits_from(senders, start) {
            let message = &self.boxes[this][sender];
            // Acquire: pairs with the Release in `post`.
            let kind = message.kind.load(Ordering::Acquire);
            if kind == EMPTY {
                continue;
            }
            let answer = handle(sender, kind, message.read());
            message.write(&answer);
            message.served.store(message.served.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            receiver.last_served.store(sender as u32, Ordering::Relaxed);
            // Release: the answer, and what the handler did. SeqCst: who halts announces it before it looks for this.
            message.kind.store(EMPTY, Ordering::SeqCst);
            answered |= 1 << sender;
        }
        answered
    }
}

/// The numbers of the bits that are set, ascending.
pub(crate) fn bits(set: u64) -> impl Iterator<Item = usize> {
    bits_from(set, 0)
}

/// The numbers of the bits that are set, ascending from `start` on and then from 0 on.
fn bits_from(set: u64, start: u32) -> impl Iterator<Item = usize> {
    let mut rest = set.rotate_right(start);
    core::iter::from_fn(move || {
        if rest == 0 {
            return None;
        }
        let offset = rest.trailing_zeros();
        rest &= rest - 1;
        Some(((offset + start) % u64::BITS) as usize)
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn echo(_: usize, _: u32, words: [u64; WORDS]) -> [u64; WORDS] {
        words.map(|word| !word)
    }

    const REQUEST: u32 = 1;

    #[test]
    fn requests_of_several_senders_cost_one_interrupt() {
        let matrix = Box::new(Matrix::<8>::new());
        let interrupts: Vec<bool> =
            (1..8).map(|sender| matrix.post(sender, 0, REQUEST, &[sender as u64; WORDS])).collect();
        assert_eq!(interrupts, [true, false, false, false, false, false, false]);
        assert_eq!(matrix.serve(0, matrix.arrived(0), echo), 0b1111_1110);
        for sender in 1..8 {
            assert_eq!(matrix.answered(sender, 1), 1);
            assert_eq!(matrix.answer(sender, 0), [!(sender as u64); WORDS]);
        }
    }

    #[test]
    fn who_comes_between_look_and_serving_sends_no_interrupt_and_stays_for_another_look() {
        let matrix = Box::new(Matrix::<4>::new());
        assert!(matrix.post(1, 0, REQUEST, &[0; WORDS]));
        let seen = matrix.arrived(0);
        assert!(!matrix.post(2, 0, REQUEST, &[0; WORDS]));
        assert_eq!(matrix.serve(0, seen, echo), 1 << 1);
        assert_eq!(matrix.arrived(0), 1 << 2, "the caller looks again, or nobody ever does");
    }

    #[test]
    fn serving_begins_behind_the_last_one_served() {
        let matrix = Box::new(Matrix::<8>::new());
        let mut order = Vec::new();
        for round in 0..2 {
            for sender in [1, 3, 5, 7] {
                matrix.post(sender, 0, REQUEST, &[0; WORDS]);
            }
            let senders = if round == 0 { 1 << 3 } else { matrix.arrived(0) };
            matrix.serve(0, senders, |sender, _, words| {
                order.push(sender);
                words
            });
            if round == 0 {
                matrix.serve(0, matrix.arrived(0), echo);
                matrix.serve(0, 0, echo);
                matrix.receivers[0].last_served.store(3, Ordering::Relaxed);
            }
        }
        assert_eq!(order, [3, 5, 7, 1, 3]);
    }

    #[test]
    fn a_request_is_postponed_when_the_answer_is_there() {
        let matrix = Box::new(Matrix::<2>::new());
        let mut waiting = 1 << 1;
        matrix.post(0, 1, REQUEST, &[0; WORDS]);
        matrix.serve(1, 1, echo);
        matrix.post(1, 0, REQUEST, &[0; WORDS]);
        let turn = matrix.turn(0, &mut waiting, Departure::default(), || {}, echo);
        assert_eq!(turn, Turn::Answered { postponed: true });
        assert_eq!(matrix.arrived(0), 1 << 1, "the request stays in its box");
    }

    #[test]
    fn a_request_is_served_while_the_answer_is_missing() {
        let matrix = Box::new(Matrix::<2>::new());
        let mut waiting = 1 << 1;
        matrix.post(0, 1, REQUEST, &[0; WORDS]);
        matrix.post(1, 0, REQUEST, &[7; WORDS]);
        let turn = matrix.turn(0, &mut waiting, Departure::default(), || {}, echo);
        assert_eq!(turn, Turn::Served(1 << 1));
        assert_eq!(matrix.answer(1, 0), [!7; WORDS]);
        assert_eq!(waiting, 1 << 1);
    }

    #[test]
    fn with_the_order_swapped_a_later_request_is_served_before_the_answer_counts() {
        let matrix = Box::new(Matrix::<2>::new());
        let mut waiting = 1 << 1;
        matrix.post(0, 1, REQUEST, &[0; WORDS]);
        let answer_and_ask = || {
            matrix.serve(1, 1, echo);
            matrix.post(1, 0, REQUEST, &[0; WORDS]);
        };
        let departure = Departure { order_swapped: true, ..Departure::default() };
        assert_eq!(matrix.turn(0, &mut waiting, departure, answer_and_ask, echo), Turn::Served(1 << 1));
    }

    #[test]
    fn bits_are_walked_around() {
        assert!(bits_from(1 << 63 | 1 << 5 | 1, 6).eq([63, 0, 5]));
        assert_eq!(bits(0).count(), 0);
    }
}
