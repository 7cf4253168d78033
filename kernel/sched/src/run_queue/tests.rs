//! Which thread a queue picks, with time and threads made up.

use std::sync::Arc;

use machine::cpu::CpuSet;

use super::{Activation, RunQueue};
use crate::policy::{Nice, Policy};
use crate::thread::Thread;

const MS: u64 = 1_000_000;

fn thread(name: &str, policy: Policy, nice: i32) -> Arc<Thread> {
    let thread = Thread::adopt_current(name, CpuSet::ALL);
    thread.entity.set_policy(policy, Nice::clamped(nice));
    thread
}

/// A queue whose idle thread runs at time 0.
fn queue() -> (RunQueue, Arc<Thread>) {
    let idle = thread("idle", Policy::Normal, 0);
    let mut queue = RunQueue::new();
    queue.start(&idle, Arc::as_ptr(&idle), 0);
    (queue, idle)
}

/// Picks at that time and makes the choice the running thread.
fn run_next(queue: &mut RunQueue, now_ns: u64) -> Option<String> {
    queue.update_current(now_ns);
    let stays = !queue.is_idle();
    let next = queue.pick(stays)?;
    // SAFETY: the tests keep their threads alive.
    let next = unsafe { &*next };
    if !core::ptr::eq(next, queue.current()) {
        queue.set_current(next, now_ns);
    }
    Some(String::from_utf8_lossy(next.name().as_bytes()).into_owned())
}

/// Lets the queue run slice after slice; returns how long each name ran, in the order of `names`.
fn shares(queue: &mut RunQueue, names: &[&str], until_ns: u64) -> Vec<u64> {
    let mut now_ns = 0;
    let mut shares = vec![0; names.len()];
    while now_ns < until_ns {
        let name = run_next(queue, now_ns).expect("somebody is runnable");
        queue.start_slice(now_ns);
        let end_ns = queue.slice_end_ns().min(until_ns).max(now_ns + 1);
        shares[names.iter().position(|known| *known == name).expect("a known name")] += end_ns - now_ns;
        now_ns = end_ns;
        queue.update_current(now_ns);
        queue.balance_is_due(now_ns);
        queue.end_slice();
    }
    shares
}

#[test]
fn equal_threads_share_equally() {
    let (mut queue, _idle) = queue();
    let threads: Vec<_> = ["a", "b", "c"].map(|name| thread(name, Policy::Normal, 0)).into();
    for thread in &threads {
        queue.activate(thread, Activation::New);
    }
    let shares = shares(&mut queue, &["a", "b", "c"], 3_000 * MS);
    assert!(shares.iter().all(|share| share.abs_diff(1_000 * MS) < 10 * MS), "{shares:?}");
}

#[test]
fn nice_values_divide_the_time_by_weight() {
    let (mut queue, _idle) = queue();
    let (low, high) = (thread("low", Policy::Normal, 10), thread("high", Policy::Normal, 0));
    queue.activate(&low, Activation::New);
    queue.activate(&high, Activation::New);
    let shares = shares(&mut queue, &["low", "high"], 10_000 * MS);
    let ratio = shares[1] as f64 / shares[0] as f64;
    assert!((8.8..9.8).contains(&ratio), "1024 to 110 is 9.3, got {ratio}");
}

#[test]
fn idle_policy_gets_what_is_left() {
    let (mut queue, _idle) = queue();
    let (normal, idle) = (thread("normal", Policy::Normal, 0), thread("batch", Policy::Idle, 0));
    queue.activate(&normal, Activation::New);
    queue.activate(&idle, Activation::New);
    let shares = shares(&mut queue, &["normal", "batch"], 10_000 * MS);
    assert!(shares[1] > 0 && shares[1] < 100 * MS, "{shares:?}");
}

#[test]
fn fifo_keeps_its_rank_when_preempted_and_round_robin_takes_turns() {
    let (mut queue, _idle) = queue();
    let threads: Vec<_> = [("first", 10), ("second", 10), ("urgent", 20)]
        .map(|(name, priority)| thread(name, Policy::Fifo(priority), 0))
        .into();
    queue.activate(&threads[0], Activation::New);
    assert_eq!(run_next(&mut queue, 0).as_deref(), Some("first"));
    assert!(!queue.activate(&threads[1], Activation::New), "equals do not preempt");
    assert!(queue.activate(&threads[2], Activation::New));
    assert_eq!(run_next(&mut queue, MS).as_deref(), Some("urgent"));
    queue.deactivate_current();
    assert_eq!(
        queue.pick(false).map(|next| next == Arc::as_ptr(&threads[0])),
        Some(true),
        "it was preempted, not ended"
    );
    let (mut queue, _idle) = self::queue();
    let turns: Vec<_> = ["a", "b"].map(|name| thread(name, Policy::RoundRobin(5), 0)).into();
    for thread in &turns {
        queue.activate(thread, Activation::New);
    }
    for (round, expected) in ["a", "b", "a", "b"].into_iter().enumerate() {
        assert_eq!(run_next(&mut queue, round as u64 * 100 * MS).as_deref(), Some(expected));
        queue.update_current((round as u64 + 1) * 100 * MS);
        assert!(queue.end_slice());
    }
}

#[test]
fn preempted_round_robin_thread_goes_on_with_the_rest_of_its_turn() {
    let (mut queue, _idle) = queue();
    let turns: Vec<_> = ["a", "b"].map(|name| thread(name, Policy::RoundRobin(5), 0)).into();
    for thread in &turns {
        queue.activate(thread, Activation::New);
    }
    let urgent = thread("urgent", Policy::Fifo(6), 0);
    assert_eq!(run_next(&mut queue, 0).as_deref(), Some("a"));
    queue.update_current(60 * MS);
    assert!(queue.activate(&urgent, Activation::Wakeup));
    assert_eq!(run_next(&mut queue, 60 * MS).as_deref(), Some("urgent"));
    queue.deactivate_current();
    let next = queue.pick(false).expect("both wait");
    assert_eq!(next, Arc::as_ptr(&turns[0]), "it keeps its place");
    // SAFETY: the test keeps its threads alive.
    queue.set_current(unsafe { &*next }, 70 * MS);
    queue.update_current(100 * MS);
    assert!(queue.end_slice());
    assert_eq!(run_next(&mut queue, 100 * MS).as_deref(), Some("a"), "the balancing tick ends no turn");
    queue.update_current(110 * MS);
    assert!(queue.end_slice());
    assert_eq!(run_next(&mut queue, 110 * MS).as_deref(), Some("b"), "60 and 40 ms are a turn");
}

#[test]
fn lonely_round_robin_thread_has_the_rest_of_a_turn_when_an_equal_comes() {
    let (mut queue, _idle) = queue();
    let turns: Vec<_> = ["a", "b"].map(|name| thread(name, Policy::RoundRobin(5), 0)).into();
    queue.activate(&turns[0], Activation::New);
    assert_eq!(run_next(&mut queue, 0).as_deref(), Some("a"));
    queue.update_current(730 * MS);
    queue.activate(&turns[1], Activation::Wakeup);
    queue.update_current(790 * MS);
    queue.end_slice();
    assert_eq!(run_next(&mut queue, 790 * MS).as_deref(), Some("a"));
    queue.update_current(800 * MS);
    queue.end_slice();
    assert_eq!(run_next(&mut queue, 800 * MS).as_deref(), Some("b"));
}

#[test]
fn lowered_real_time_thread_goes_before_its_new_equals_and_a_raised_one_behind() {
    let (mut queue, _idle) = queue();
    let threads: Vec<_> = [("a", 10), ("b", 10), ("high", 20), ("low", 5)]
        .map(|(name, priority)| thread(name, Policy::Fifo(priority), 0))
        .into();
    for thread in &threads {
        queue.activate(thread, Activation::New);
    }
    for changed in &threads[2..] {
        let before = changed.entity.policy();
        queue.deactivate_waiting(changed);
        changed.entity.set_policy(Policy::Fifo(10), Nice::default());
        queue.readmit_waiting(changed, before);
    }
    let order: Vec<_> = (0..4)
        .map(|_| {
            let next = queue.pick(false).expect("somebody waits");
            // SAFETY: the test keeps its threads alive.
            let next = unsafe { &*next };
            queue.set_current(next, 0);
            queue.deactivate_current();
            String::from_utf8_lossy(next.name().as_bytes()).into_owned()
        })
        .collect();
    assert_eq!(order, ["high", "a", "b", "low"]);
}

#[test]
fn balancing_is_due_however_often_threads_take_turns() {
    let (mut queue, _idle) = queue();
    let threads: Vec<_> = ["a", "b"].map(|name| thread(name, Policy::Normal, 0)).into();
    for thread in &threads {
        queue.activate(thread, Activation::New);
    }
    let mut now_ns = 0;
    while !queue.balance_is_due(now_ns) {
        now_ns += MS / 4;
        assert!(now_ns <= 4 * MS, "each turn put it off");
        run_next(&mut queue, now_ns);
        queue.yield_current();
    }
    assert!(!queue.balance_is_due(now_ns), "a new interval has begun");
}

#[test]
fn looping_real_time_thread_leaves_five_percent() {
    let (mut queue, _idle) = queue();
    let (hog, shell) = (thread("hog", Policy::Fifo(99), 0), thread("shell", Policy::Normal, 0));
    queue.activate(&hog, Activation::New);
    queue.activate(&shell, Activation::New);
    let shares = shares(&mut queue, &["hog", "shell"], 10_000 * MS);
    assert!((300 * MS..800 * MS).contains(&shares[1]), "{shares:?}");
}

#[test]
fn thread_alone_has_no_slice() {
    let (mut queue, _idle) = queue();
    let alone = thread("alone", Policy::Normal, 0);
    queue.activate(&alone, Activation::New);
    run_next(&mut queue, 0);
    assert_eq!(queue.slice_end_ns(), super::NO_SLICE_END);
    let hog = thread("hog", Policy::Normal, 0);
    queue.activate(&hog, Activation::New);
    assert!(queue.start_slice(0));
}

/// Two threads that wake each other and sleep, a tenth of a millisecond each, beside one that computes: each has half of the time off, and yet
/// the third has its share.
#[test]
fn threads_that_wake_each_other_in_turn_starve_nobody() {
    let (mut queue, _idle) = queue();
    let pair = ["a", "b"].map(|name| thread(name, Policy::Normal, 0));
    let third = thread("third", Policy::Normal, 0);
    queue.activate(&third, Activation::New);
    queue.activate(&pair[0], Activation::New);
    let (mut now_ns, mut ran_ns) = (0, 0);
    let mut awake = 0;
    while now_ns < 300 * MS {
        let name = run_next(&mut queue, now_ns).expect("somebody is runnable");
        now_ns += MS / 10;
        queue.update_current(now_ns);
        if name == "third" {
            ran_ns += MS / 10;
        } else {
            awake = 1 - awake;
            queue.activate(&pair[awake], Activation::Wakeup);
            queue.deactivate_current();
            let next = queue.pick(false).expect("somebody is runnable");
            // SAFETY: the threads are alive.
            queue.set_current(unsafe { &*next }, now_ns);
        }
    }
    assert!(ran_ns > 80 * MS, "it ran {} ms of 300", ran_ns / MS);
}

#[test]
fn long_sleep_gives_a_head_start_but_no_credit() {
    let (mut queue, _idle) = queue();
    let (hog, sleeper) = (thread("hog", Policy::Normal, 0), thread("sleeper", Policy::Normal, 0));
    queue.activate(&sleeper, Activation::New);
    run_next(&mut queue, 0);
    queue.deactivate_current();
    queue.activate(&hog, Activation::New);
    let next = queue.pick(false).expect("the hog is runnable");
    // SAFETY: the hog is alive.
    queue.set_current(unsafe { &*next }, 0);
    queue.update_current(5_000 * MS);
    assert!(queue.activate(&sleeper, Activation::Wakeup), "it preempts the hog");
    let mut now_ns = 5_000 * MS;
    while now_ns < 6_000 * MS {
        run_next(&mut queue, now_ns);
        now_ns += 2 * MS;
    }
    assert!(sleeper.entity.runtime_ns() < 520 * MS, "5 s of sleep are not made up for");
}

#[test]
fn batch_threads_do_not_preempt() {
    let (mut queue, _idle) = queue();
    let (hog, batch) = (thread("hog", Policy::Normal, 0), thread("batch", Policy::Batch, 0));
    queue.activate(&hog, Activation::New);
    run_next(&mut queue, 0);
    queue.update_current(1_000 * MS);
    assert!(!queue.activate(&batch, Activation::Wakeup));
}

#[test]
fn books_balance_after_everything_has_left() {
    let (mut queue, _idle) = queue();
    let threads: Vec<_> = (0..10).map(|nice| thread("x", Policy::Normal, nice)).collect();
    for thread in &threads {
        queue.activate(thread, Activation::New);
    }
    assert_eq!(queue.count(), 10);
    for thread in &threads {
        queue.deactivate_waiting(thread);
    }
    assert_eq!(queue.count(), 0);
    assert_eq!(queue.pick(false), None);
}
