//! Queues with controllers that keep to the rules, and with controllers that do anything at all.
//!
//! The fake controller sees the queues' memory as a real one would and follows the specification by itself. The hostile one writes anything into what it
//! may write: each command must end once at most, nothing else may, and nothing may panic.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use std::sync::Mutex;

use super::*;

/// Memory that both sides see.
#[derive(Clone)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Shared {
    fn new(bytes: usize) -> Self {
        Self(Arc::new(Mutex::new(vec![0; bytes])))
    }

    fn read<const N: usize>(&self, offset: usize) -> [u8; N] {
        assert!(offset.is_multiple_of(N), "accesses are aligned");
        self.0.lock().unwrap()[offset..offset + N].try_into().unwrap()
    }

    fn write(&self, offset: usize, value: &[u8]) {
        assert!(offset.is_multiple_of(value.len()), "accesses are aligned");
        self.0.lock().unwrap()[offset..offset + value.len()].copy_from_slice(value);
    }
}

impl QueueMemory for Shared {
    fn read_u32(&self, offset: usize) -> u32 {
        u32::from_le_bytes(self.read(offset))
    }

    fn write_u32(&self, offset: usize, value: u32) {
        self.write(offset, &value.to_le_bytes());
    }

    fn write_u64(&self, offset: usize, value: u64) {
        self.write(offset, &value.to_le_bytes());
    }

    fn address(&self) -> PhysAddr {
        PhysAddr::new(0x10_0000)
    }
}

/// A generator of numbers that repeats with its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

const ENTRIES: u16 = 8;
const ID: u16 = 3;

fn fixture(entries: u16) -> (Pair<u32, Shared>, Controller) {
    let submissions = Shared::new(Pair::<u32, Shared>::submission_bytes(entries));
    let completions = Shared::new(Pair::<u32, Shared>::completion_bytes(entries));
    let pair = Pair::new(ID, entries, submissions.clone(), completions.clone()).unwrap();
    let controller = Controller {
        submissions,
        completions,
        entries,
        head: 0,
        tail: 0,
        phase: true,
        fetched: VecDeque::new(),
    };
    (pair, controller)
}

/// A controller that keeps to the rules.
struct Controller {
    submissions: Shared,
    completions: Shared,
    entries: u16,
    /// Next command to fetch, next end to tell.
    head: u16,
    tail: u16,
    phase: bool,
    /// Numbers of commands with their first words 10.
    fetched: VecDeque<(u16, u32)>,
}

impl Controller {
    fn fetch(&mut self, until: u16) {
        while self.head != until {
            let offset = usize::from(self.head) * 64;
            let number = (self.submissions.read_u32(offset) >> 16) as u16;
            self.fetched.push_back((number, self.submissions.read_u32(offset + 40)));
            self.head = (self.head + 1) % self.entries;
        }
    }

    fn end(&mut self, number: u16, status: u16, result: u32) {
        let offset = usize::from(self.tail) * 16;
        self.completions.write_u32(offset, result);
        self.completions.write_u32(offset + 8, u32::from(self.head) | u32::from(ID) << 16);
        let last = u32::from(number) | u32::from(self.phase) << 16 | u32::from(status) << 17;
        self.completions.write_u32(offset + 12, last);
        self.tail = (self.tail + 1) % self.entries;
        self.phase ^= self.tail == 0;
    }
}

fn command(value: u32) -> Command {
    Command { opcode: 2, namespace: 1, data: [0x1000, 0x2000], words: [value, 0, 7, 0] }
}

#[test]
fn commands_are_written_as_the_specification_says() {
    let (mut pair, controller) = fixture(4);
    assert_eq!(pair.add(9, |_, _| command(0xaabb)), Ok(1));
    let words: Vec<u32> = (0..16).map(|index| controller.submissions.read_u32(index * 4)).collect();
    assert_eq!(words, [2, 1, 0, 0, 0, 0, 0x1000, 0, 0x2000, 0, 0xaabb, 0, 7, 0, 0, 0]);
}

#[test]
fn commands_end_in_any_order_round_after_round() {
    let mut random = Random(7);
    for entries in [2, 3, ENTRIES, 64] {
        let (mut pair, mut controller) = fixture(entries);
        let mut expected = BTreeMap::new();
        let mut next = 0;
        for _ in 0..2000 {
            while random.below(4) > 0 {
                match pair.add(next, |_, token| command(*token)) {
                    Ok(tail) => controller.fetch(tail),
                    Err(token) => {
                        assert_eq!((token, expected.len()), (next, usize::from(entries) - 1));
                        break;
                    }
                }
                expected.insert(next, ());
                next += 1;
            }
            while random.below(4) > 0 && !controller.fetched.is_empty() {
                let chosen = random.below(controller.fetched.len() as u64) as usize;
                let (number, value) = controller.fetched.remove(chosen).unwrap();
                controller.end(number, (value & 0x7ff) as u16, value);
            }
            while let Some((token, ending)) = pair.take().unwrap() {
                assert_eq!(ending, Ending { status: (token & 0x7ff) as u16, result: token });
                assert!(expected.remove(&token).is_some(), "each ends once");
            }
            assert_eq!(expected.len(), controller.fetched.len());
        }
    }
}

#[test]
fn ends_that_nobody_waits_for_are_trouble() {
    let trouble = |change: fn(&Controller)| {
        let (mut pair, mut controller) = fixture(ENTRIES);
        let tail = pair.add(1, |_, _| command(1)).unwrap();
        controller.fetch(tail);
        let (number, _) = controller.fetched[0];
        controller.end(number, 0, 0);
        change(&controller);
        pair.take().unwrap_err()
    };
    assert_eq!(trouble(|fake| fake.completions.write_u32(12, 1 << 16 | 5)), Trouble::UnknownCommand);
    assert_eq!(trouble(|fake| fake.completions.write_u32(12, 1 << 16 | 0xffff)), Trouble::UnknownCommand);
    assert_eq!(trouble(|fake| fake.completions.write_u32(8, 1 | 4 << 16)), Trouble::OtherQueue);
    assert_eq!(trouble(|fake| fake.completions.write_u32(8, 8 | 3 << 16)), Trouble::OutsideOfQueue);
}

#[test]
fn command_that_ends_twice_is_trouble() {
    let (mut pair, mut controller) = fixture(ENTRIES);
    let tail = pair.add(1, |_, _| command(1)).unwrap();
    controller.fetch(tail);
    let (number, _) = controller.fetched[0];
    controller.end(number, 0, 0);
    controller.end(number, 0, 0);
    assert!(pair.take().unwrap().is_some());
    assert_eq!(pair.take(), Err(Trouble::UnknownCommand));
}

#[test]
fn queue_works_again_after_it_was_emptied() {
    let (mut pair, mut controller) = fixture(ENTRIES);
    for token in 0..5 {
        let tail = pair.add(token, |_, token| command(*token)).unwrap();
        controller.fetch(tail);
    }
    let (number, _) = controller.fetched[2];
    controller.end(number, 0, 2);
    let left: BTreeSet<u32> = core::iter::from_fn(|| pair.take_away()).collect();
    assert_eq!(left, (0..5).collect());
    assert_eq!(pair.under_way(0), None);
    pair.restart();
    assert_eq!(pair.take(), Ok(None), "what was told before is not heard any more");
    let places = (0..).take_while(|token| pair.add(*token, |_, token| command(*token)).is_ok()).count();
    assert_eq!(places, pair.places());
}

/// Rounds of the hostile controller; more if the environment says so.
fn rounds() -> u64 {
    std::env::var("NVME_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20_000)
}

#[test]
fn hostile_controller_ends_nothing_twice_and_breaks_nothing() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..rounds() / 20 {
        let entries = 2 + random.below(9) as u16;
        let (mut pair, mut controller) = fixture(entries);
        let mut with_controller = BTreeSet::new();
        let mut next = 0;
        for _ in 0..20 {
            match random.below(6) {
                0 | 1 => {
                    if let Ok(tail) = pair.add(next, |_, token| command(*token)) {
                        controller.fetch(tail);
                        with_controller.insert(next);
                    }
                    next += 1;
                }
                2 => {
                    if let Some((number, value)) = controller.fetched.pop_front() {
                        controller.end(number, 0, value);
                    }
                }
                3 => controller.end(
                    random.below(1 << 16) as u16 % (entries + 2),
                    random.below(1 << 15) as u16,
                    0,
                ),
                4 => {
                    // Anything anywhere in both queues.
                    let (memory, bytes) = match random.below(2) {
                        0 => (&controller.submissions, usize::from(entries) * 64),
                        _ => (&controller.completions, usize::from(entries) * 16),
                    };
                    let value = random.below(u64::MAX) as u32;
                    memory.write_u32(random.below(bytes as u64 / 4) as usize * 4, value);
                }
                _ => {}
            }
            let mut trouble = false;
            for _ in 0..usize::from(entries) * 3 {
                match pair.take() {
                    Ok(Some((token, _))) => assert!(with_controller.remove(&token), "nothing ends twice"),
                    Ok(None) => break,
                    Err(_) => {
                        trouble = true;
                        break;
                    }
                }
            }
            if trouble {
                let left: BTreeSet<u32> = core::iter::from_fn(|| pair.take_away()).collect();
                assert_eq!(left, with_controller, "all that did not end is there");
                break;
            }
        }
    }
}
