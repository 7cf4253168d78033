//! The lock-free parts of the queue under loom: `RUSTFLAGS="--cfg loom" cargo test --release -p block --test models`.
//!
//! `one_runner` and `outstanding` are the crate's own source, compiled against loom's atomics.
#![cfg(loom)]

#[path = "../src/one_runner.rs"]
#[allow(dead_code, reason = "the models use a part of it")]
mod one_runner;
#[path = "../src/outstanding.rs"]
#[allow(dead_code, reason = "the models use a part of it")]
mod outstanding;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use one_runner::OneRunner;
use outstanding::Outstanding;

/// Each of them puts a mark up, which no lock guards, and runs; who runs takes the marks down that it sees.
fn marks_are_taken(submitters: usize, preemptions: Option<usize>) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = preemptions;
    model.check(move || {
        let lane: Arc<(OneRunner, Vec<AtomicBool>, AtomicU32)> = Arc::new((
            OneRunner::new(),
            (0..submitters).map(|_| AtomicBool::new(false)).collect(),
            AtomicU32::new(0),
        ));
        let submit = |lane: &(OneRunner, Vec<AtomicBool>, AtomicU32), own: usize| {
            let (runner, marks, inside) = lane;
            marks[own].store(true, Ordering::Relaxed);
            runner.run(|| {
                assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "two run at once");
                for mark in marks {
                    if mark.load(Ordering::Relaxed) {
                        mark.store(false, Ordering::Relaxed);
                    }
                }
                inside.fetch_sub(1, Ordering::Relaxed);
            });
        };
        let others: Vec<_> = (1..submitters)
            .map(|own| {
                let lane = lane.clone();
                loom::thread::spawn(move || submit(&lane, own))
            })
            .collect();
        submit(&lane, 0);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert!(lane.1.iter().all(|mark| !mark.load(Ordering::Relaxed)), "what waits was left by all");
    });
}

#[test]
fn what_waits_is_seen_by_one_of_two() {
    marks_are_taken(2, None);
}

#[test]
fn what_waits_is_seen_by_one_of_three() {
    marks_are_taken(3, Some(3));
}

/// The watch expires while the device has nothing to do, and a request begins.
#[test]
fn a_request_that_begins_is_watched() {
    loom::model(|| {
        let outstanding = Arc::new(Outstanding::new());
        assert!(outstanding.claim_watch());
        let submitter = outstanding.clone();
        let submitter = loom::thread::spawn(move || {
            submitter.begin(1);
            submitter.claim_watch()
        });
        let armed_by_timer = outstanding.end_watch() && outstanding.claim_watch();
        let armed_by_submitter = submitter.join().unwrap();
        assert!(armed_by_timer != armed_by_submitter, "one of them has armed the watch");
    });
}

/// Whoever sees a request sees that the device had it just now.
#[test]
fn a_request_that_begins_is_not_late() {
    loom::model(|| {
        let outstanding = Arc::new(Outstanding::new());
        let submitter = outstanding.clone();
        let submitter = loom::thread::spawn(move || submitter.begin(1));
        assert_ne!(outstanding.silent_since(), Some(0), "nothing has moved since boot");
        submitter.join().unwrap();
    });
}
