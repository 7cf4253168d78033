//! Readers of random bytes, with devices that have none.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use std::sync::{Mutex, MutexGuard, PoisonError};

use device::model::Binding;
use device::random_source::{self, Failure};
use sched::Completion;
use sync::SpinLock;

use super::device::{Character, Device, Registers};
use super::hostile::{initialize, pause};
use super::random::Random;

const KIND: u32 = 4;

/// There is one list of sources in the process.
pub(super) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A device that is driven.
struct Driven {
    device: Arc<Device>,
    binding: Arc<dyn Binding>,
}

fn driven(seed: u64, change: impl FnOnce(&mut Character)) -> Driven {
    let mut character = Character::good(KIND);
    change(&mut character);
    let device = Device::new(KIND, 1_000_000 + seed, character, Random::new(seed));
    device.start();
    let binding = crate::entropy::probe(Box::new(Registers(device.clone()))).expect("it keeps to the rules");
    Driven { device, binding }
}

impl Driven {
    fn remove(self) {
        self.binding.remove();
        drop(self.binding);
        self.device.finish();
        assert!(self.device.witness.faults().is_empty(), "{:?}", self.device.witness.faults());
    }
}

fn is_silent(character: &mut Character) {
    character.keeps = 1;
}

type Outcome = Result<usize, Failure>;

/// Threads that read, and what came of it.
struct Readers {
    outcomes: Arc<SpinLock<Vec<Outcome>>>,
    ended: Vec<Arc<Completion>>,
}

impl Readers {
    fn begin(count: usize) -> Self {
        let outcomes = Arc::new(SpinLock::named("outcomes", Vec::new()));
        let ended = (0..count).map(|_| {
            let ended = Arc::new(Completion::new());
            let (tell, outcomes) = (ended.clone(), outcomes.clone());
            let read = move || {
                let outcome = random_source::read(&mut [0; 16], true);
                outcomes.lock().push(outcome);
                tell.complete();
            };
            sched::spawn(sched::Builder::new("reader"), Box::new(read)).expect("memory for a test's thread");
            ended
        });
        let ended = ended.collect();
        // Virtual time passes when all sleep: so all of them wait for the device, or for who waits for it.
        pause(1_000_000_000);
        Self { outcomes, ended }
    }

    fn end(self) -> Vec<Outcome> {
        self.ended.iter().for_each(|ended| ended.wait());
        self.outcomes.lock().clone()
    }
}

#[test]
fn readers_that_wait_hear_that_the_last_source_is_gone() {
    let _turn = turn();
    initialize();
    let silent = driven(1, is_silent);
    let readers = Readers::begin(3);
    assert!(readers.outcomes.lock().is_empty(), "there is nothing to read");
    assert_eq!(
        random_source::read(&mut [0; 16], false),
        Err(Failure::NotNow),
        "who does not wait is told so"
    );
    silent.remove();
    assert_eq!(readers.end(), [Err(Failure::Gone); 3]);
    assert_eq!(random_source::read(&mut [0; 16], true), Err(Failure::Gone));
}

#[test]
fn readers_that_wait_go_on_with_the_next_source() {
    let _turn = turn();
    initialize();
    let (silent, good) = (driven(1, is_silent), driven(2, |_| ()));
    assert_eq!(random_source::names(), ["virtio_rng.0", "virtio_rng.1"]);
    let readers = Readers::begin(2);
    assert!(readers.outcomes.lock().is_empty(), "the first one is read");
    silent.remove();
    assert!(readers.end().iter().all(|outcome| outcome.is_ok_and(|count| (1..=16).contains(&count))));
    let third = driven(3, |_| ());
    assert_eq!(random_source::names(), ["virtio_rng.1", "virtio_rng.0"], "names are used again");
    good.remove();
    assert!(random_source::read(&mut [0; 16], true).is_ok());
    third.remove();
    assert!(random_source::names().is_empty());
}

#[test]
fn source_that_never_has_a_byte_breaks_the_rules() {
    let _turn = turn();
    initialize();
    let empty = driven(1, |character| character.is_empty = true);
    // The thread that reads the first bytes is the first to notice.
    let outcomes = Readers::begin(2).end();
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Err(Failure::Broken | Failure::Gone))));
    assert!(random_source::names().is_empty());
    empty.remove();
}
