//! Tests of demand-paged kernel stacks on real processors (specs/kernel-stacks.md, acceptance checks).

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use ::machine::cpu::{self, CpuSet};
use ::machine::ipi::{self, Ipi};
use ::machine::{boot, interrupt, preempt, time};
use ::memory::kstack::{self, Exercise, KernelStack, Mode};
use ::memory::statistics;
use ::sched::{Builder, Completion, Policy, RunState, ThreadRef};

use super::{Outcome, Test, check, fail, kit};

pub(crate) const TESTS: &[Test] = &[
    Test { name: "kstack::every_depth_up_to_the_window_is_reached", run: every_depth_is_reached },
    Test { name: "kstack::large_windows_grow_to_their_end", run: large_windows_grow },
    Test { name: "kstack::it_grows_under_locks_with_interrupts_off", run: grows_in_atomic_sections },
    Test { name: "kstack::no_interrupt_is_lost_at_the_edge", run: no_interrupt_is_lost },
    Test { name: "kstack::growth_races_with_interrupts_trims_and_moves", run: growth_races },
    Test { name: "kstack::sleepers_are_trimmed_and_go_on", run: sleepers_are_trimmed },
    Test { name: "kstack::threads_that_compute_are_trimmed", run: computing_threads_are_trimmed },
    Test { name: "kstack::who_frees_memory_keeps_a_whole_stack", run: who_frees_memory_is_not_trimmed },
    Test { name: "kstack::failing_reserves_only_delay", run: failing_reserves_only_delay },
    Test { name: "kstack::growth_without_frames_only_delays", run: growth_without_frames_only_delays },
    Test { name: "kstack::an_overflow_ends_only_its_thread", run: overflow_ends_only_its_thread },
    Test { name: "kstack::real_time_threads_have_all_their_pages", run: realtime_threads_are_pinned },
    Test { name: "kstack::held_locks_go_along_with_their_thread", run: held_locks_go_along },
    Test { name: "kstack::ended_threads_are_counted_by_depth", run: ended_threads_are_counted },
    Test { name: "kstack::figure_7_shows_one_page_added", run: figure_7 },
    Test { name: "kstack::a_thousand_sleepers_have_a_page_each", run: a_thousand_sleepers },
];

/// Name of the tests' threads.
pub(super) const NAME: &str = "kstack-test";
/// What a thread has on its stack besides an exercise: the frames above and below it.
const OWN_BYTES: usize = 1600;
/// Bytes of the deepest frames of unoptimised code.
const SLACK_BYTES: usize = if cfg!(debug_assertions) { 2048 } else { 0 };
const PAGE_BYTES: usize = 4096;

/// Starts a thread with a window of `pages` pages (0: the default); the completion tells its end.
pub(super) fn spawn(
    pages: usize,
    affinity: CpuSet,
    body: impl FnOnce() + Send + 'static,
) -> Result<(ThreadRef, Arc<Completion>), super::Failure> {
    kit::spawn(Builder { affinity, stack_pages: pages, ..Builder::new(NAME) }, body)
}

/// Waits for a thread's end. However long that takes: how fast the host is proves nothing.
pub(super) fn join(done: &Completion) {
    done.wait();
}

/// Waits until the condition holds.
pub(super) fn await_that(condition: impl Fn() -> bool) {
    while !condition() {
        ::sched::timer::sleep_until_uninterruptible(time::now_ns() + 1_000_000);
    }
}

pub(super) fn usable_bytes(pages: usize) -> usize {
    pages * PAGE_BYTES - OWN_BYTES - SLACK_BYTES
}

/// Frames that are in use for stacks when those of ended threads are free: at most so many, unless some are lost. kstackd may be at
/// it at the same time, and other threads' stacks may have grown since they were trimmed.
fn settled_stack_pages(at_most: u64) -> u64 {
    let limit_ns = time::now_ns() + super::HANG_NS;
    loop {
        kstack::free_unused();
        let pages = kstack::statistics().mapped_pages;
        if pages <= at_most || time::now_ns() > limit_ns {
            return pages;
        }
        ::sched::timer::sleep_until_uninterruptible(time::now_ns() + 1_000_000);
        kstack::trim();
    }
}

pub(super) fn no_fault_without_frame() -> Outcome {
    let totals = kstack::statistics();
    check!(totals.without_frame == 0, "{} growth faults found no frame", totals.without_frame);
    Ok(())
}

fn every_depth_is_reached() -> Outcome {
    let pages = kstack::parameters().pages as usize;
    let before = (settled_stack_pages(u64::MAX), kstack::statistics().faults);
    for cpu in cpu::online().iter() {
        for depth in (0..usable_bytes(pages)).step_by(256) {
            let whole = Arc::new(AtomicBool::new(false));
            let result = whole.clone();
            let (thread, done) = spawn(0, CpuSet::only(cpu), move || {
                result.store(kstack::exercise(depth, Exercise::Recurse, &mut || {}), Relaxed);
            })?;
            join(&done);
            // Its stack is freed after its last word.
            await_that(|| Arc::strong_count(&thread) == 1);
            check!(whole.load(Relaxed), "a frame changed at depth {depth} on processor {cpu}");
        }
    }
    let faults = kstack::statistics().faults - before.1;
    check!(kstack::mode() != Mode::Fault || pages == 1 || faults > 0, "the stacks never grew");
    let after = settled_stack_pages(before.0 + 4);
    check!(after <= before.0 + 4, "{} stack pages before, {after} after", before.0);
    no_fault_without_frame()
}

fn large_windows_grow() -> Outcome {
    for pages in [2, 15, 16, 40, 127] {
        let (_thread, done) = spawn(pages, CpuSet::ALL, move || {
            assert!(kstack::exercise(usable_bytes(pages), Exercise::Recurse, &mut || {}));
        })?;
        join(&done);
    }
    check!(KernelStack::allocate(128).is_err(), "a window of 128 pages was given");
    no_fault_without_frame()
}

/// Runs `body` on a thread on each processor at once.
pub(super) fn on_all_processors(body: impl Fn(usize) + Send + Sync + Clone + 'static) -> Outcome {
    let mut threads = Vec::new();
    for cpu in cpu::online().iter() {
        let body = body.clone();
        threads.push(spawn(0, CpuSet::only(cpu), move || body(cpu.index()))?);
    }
    threads.iter().for_each(|(_, done)| join(done));
    Ok(())
}

fn grows_in_atomic_sections() -> Outcome {
    const ROUNDS: usize = 300;
    let depth = usable_bytes(kstack::parameters().pages as usize);
    // Each round in a thread of its own, because a stack that has grown does not fault again.
    for _ in 0..ROUNDS / cpu::count().max(1) {
        on_all_processors(move |_| {
            assert!(kstack::exercise(depth, Exercise::Atomic, &mut || assert!(!interrupt::are_enabled())));
        })?;
    }
    no_fault_without_frame()
}

/// Interrupts taken by this processor, of whatever kind.
fn interrupts_taken() -> u64 {
    (0..=255).map(|vector| interrupt::vector_count(cpu::current(), vector)).sum()
}

fn no_interrupt_is_lost() -> Outcome {
    const ROUNDS: u64 = 200;
    let lost = Arc::new(AtomicU64::new(0));
    let total = lost.clone();
    on_all_processors(move |_| {
        for round in 0..ROUNDS {
            let offset = 8 + round % 8 * 8;
            let mut before = 0;
            let stood = kstack::interrupt_at_edge(offset, &mut || {
                before = interrupts_taken();
                ipi::send(cpu::current(), Ipi::Call);
            });
            if stood && interrupts_taken() == before {
                total.fetch_add(1, Relaxed);
            }
        }
    })?;
    let lost = lost.load(Relaxed);
    check!(lost == 0, "{lost} interrupts were lost");
    Ok(())
}

/// Threads that grow their stacks by a modulated amount after a modulated delay, move to another processor or sleep at
/// depth, and come back, while others send interrupts to all processors and sleeping threads are trimmed.
fn growth_races() -> Outcome {
    const THREADS: u64 = 12;
    const ROUNDS: u64 = 60;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let (_trimmer, trimmer_done) = spawn(0, CpuSet::ALL, move || {
        while !stopped.load(Relaxed) {
            kstack::trim();
            cpu::online().iter().for_each(|cpu| ipi::send(cpu, Ipi::Call));
            ::sched::yield_now();
        }
    })?;
    let mut threads = Vec::new();
    for seed in 0..THREADS {
        threads.push(spawn(0, CpuSet::ALL, move || race(seed, ROUNDS))?);
    }
    threads.iter().for_each(|(_, done)| join(done));
    stop.store(true, Relaxed);
    join(&trimmer_done);
    no_fault_without_frame()
}

fn race(seed: u64, rounds: u64) {
    let most = usable_bytes(kstack::parameters().pages as usize) - 1500;
    for round in 0..rounds {
        let mixed = (seed * rounds + round).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
        for _ in 0..mixed % 512 {
            cpu::relax();
        }
        let kind = if mixed.is_multiple_of(7) { Exercise::Atomic } else { Exercise::Recurse };
        let whole = kstack::exercise(mixed as usize % most, kind, &mut || match (kind, mixed % 3) {
            (Exercise::Atomic, _) => cpu::relax(),
            (_, 0) => ::sched::yield_now(),
            (_, 1) => ::sched::timer::sleep_until_uninterruptible(time::now_ns() + mixed % 50_000),
            _ => {
                let count = cpu::online().count();
                let target =
                    cpu::online().iter().nth(mixed as usize / 8 % count).expect("processors stay online");
                ::sched::current().set_affinity(CpuSet::only(target));
                ::sched::current().set_affinity(CpuSet::ALL);
            }
        });
        assert!(whole, "thread {seed} found a frame changed in round {round}");
    }
}

fn sleepers_are_trimmed() -> Outcome {
    const SLEEPERS: usize = 20;
    let go_on = Arc::new(Completion::new());
    let deep = Arc::new(AtomicU32::new(0));
    let before = kstack::statistics().trimmed;
    let mut threads = Vec::new();
    for _ in 0..SLEEPERS {
        let (go_on, deep) = (go_on.clone(), deep.clone());
        threads.push(spawn(0, CpuSet::ALL, move || {
            let most = usable_bytes(kstack::parameters().pages as usize);
            assert!(kstack::exercise(most, Exercise::Recurse, &mut || {}));
            deep.fetch_add(1, Relaxed);
            go_on.wait();
            assert!(kstack::exercise(most, Exercise::Recurse, &mut || {}));
        })?);
    }
    await_that(|| deep.load(Relaxed) as usize == SLEEPERS);
    // The last ones may still be on their way to sleep; and kstackd may have trimmed some already.
    while kstack::mode() != Mode::Fixed && kstack::statistics().trimmed - before < SLEEPERS as u64 {
        kstack::trim();
        ::sched::yield_now();
    }
    go_on.complete();
    threads.iter().for_each(|(_, done)| join(done));
    no_fault_without_frame()
}

/// A thread on each processor grows its stack and computes until it has got no more than a page.
fn computing_threads_are_trimmed() -> Outcome {
    // Fixed stacks keep all their pages, and while a thread runs it is lent those that it has not.
    if matches!(kstack::mode(), Mode::Fixed | Mode::Lend) {
        return Ok(());
    }
    let seconds = kstack::trim_secs();
    kstack::set_trim_secs(1);
    let mut threads = Vec::new();
    for cpu in cpu::online().iter() {
        threads.push(spawn(0, CpuSet::only(cpu), || {
            let most = usable_bytes(kstack::parameters().pages as usize);
            assert!(kstack::exercise(most, Exercise::Recurse, &mut || {}));
            while kstack::own_window().is_some_and(|window| window.mapped > 1) {
                core::hint::spin_loop();
            }
        })?);
    }
    threads.iter().for_each(|(_, done)| join(done));
    kstack::set_trim_secs(seconds);
    no_fault_without_frame()
}

/// A thread sleeps while others wait for the memory that it makes free: it must be able to run without any frames.
fn who_frees_memory_is_not_trimmed() -> Outcome {
    const TRIMS: usize = 20;
    if kstack::mode() == Mode::Lend {
        return Ok(());
    }
    let (ready, go_on) = (Arc::new(Completion::new()), Arc::new(Completion::new()));
    let (is_ready, may_go_on) = (ready.clone(), go_on.clone());
    let (_thread, done) = spawn(0, CpuSet::ALL, move || {
        assert!(kstack::begin_freeing(|| false).is_none());
        let whole = kstack::begin_freeing(|| true);
        assert!(whole.is_some());
        let mapped = kstack::own_window().map(|window| window.mapped);
        is_ready.complete();
        may_go_on.wait();
        assert!(kstack::own_window().is_some_and(|window| window.growable() == 0));
        assert_eq!(kstack::own_window().map(|window| window.mapped), mapped);
    })?;
    ready.wait();
    for _ in 0..TRIMS {
        kstack::trim();
        ::sched::timer::sleep_until_uninterruptible(time::now_ns() + 1_000_000);
    }
    go_on.complete();
    join(&done);
    no_fault_without_frame()
}

fn failing_reserves_only_delay() -> Outcome {
    const THREADS: usize = 40;
    kstack::set_fail_reserve(3);
    let mut threads = Vec::new();
    for _ in 0..THREADS {
        threads.push(spawn(0, CpuSet::ALL, || {
            let most = usable_bytes(kstack::parameters().pages as usize) - 1500;
            for _ in 0..5 {
                assert!(kstack::exercise(most, Exercise::Recurse, &mut ::sched::yield_now));
            }
        })?);
    }
    threads.iter().for_each(|(_, done)| join(done));
    kstack::set_fail_reserve(0);
    no_fault_without_frame()
}

/// Growth faults that find no frame park their threads, which all go on.
fn growth_without_frames_only_delays() -> Outcome {
    const THREADS: usize = 40;
    // Stacks that have their pages from their last threads do not grow.
    kstack::free_unused();
    let before = kstack::statistics().parked;
    kstack::set_fail_growth(2);
    // All at once, so that none gets the grown stack of one that has ended.
    let go_on = Arc::new(Completion::new());
    let mut threads = Vec::new();
    for number in 0..THREADS {
        let go_on = go_on.clone();
        threads.push(spawn(0, CpuSet::ALL, move || {
            go_on.wait();
            let most = usable_bytes(kstack::parameters().pages as usize) - 1500;
            let kind = if number % 4 == 0 { Exercise::Atomic } else { Exercise::Recurse };
            for _ in 0..5 {
                assert!(kstack::exercise(most, kind, &mut || {
                    if kind == Exercise::Recurse {
                        ::sched::yield_now();
                    }
                }));
            }
        })?);
    }
    go_on.complete();
    threads.iter().for_each(|(_, done)| join(done));
    kstack::set_fail_growth(0);
    let parked = kstack::statistics().parked - before;
    check!(kstack::mode() != Mode::Fault || parked > 0, "no thread was parked");
    no_fault_without_frame()
}

/// The pages that the calling thread's stack may still grow by.
fn growable() -> u32 {
    kstack::own_window().map_or(0, |window| window.growable())
}

/// A thread that starts as a real-time thread, and one that becomes one while it runs elsewhere.
fn realtime_threads_are_pinned() -> Outcome {
    if kstack::mode() != Mode::Fault {
        return Ok(());
    }
    let missing = Arc::new(AtomicU32::new(u32::MAX));
    let result = missing.clone();
    let builder = Builder { policy: Policy::Fifo(20), ..Builder::new(NAME) };
    let (_thread, done) = kit::spawn(builder, move || result.store(growable(), Relaxed))?;
    join(&done);
    let missing = missing.load(Relaxed);
    check!(missing == 0, "{missing} pages of a real-time thread's stack are missing");
    let (stop, before) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let (stopped, seen) = (stop.clone(), before.clone());
    let (thread, done) = spawn(0, CpuSet::ALL, move || {
        while !stopped.load(Relaxed) {
            seen.store(growable(), Relaxed);
            // Only the stack of a thread that is off its processor can be trimmed.
            ::sched::timer::sleep_until_uninterruptible(time::now_ns() + 100_000);
        }
    })?;
    // It may have got the stack that the real-time thread left, with all its pages: an ordinary thread loses them.
    await_that(|| {
        kstack::trim();
        before.load(Relaxed) > 0
    });
    thread.set_policy(Policy::RoundRobin(5));
    await_that(|| before.load(Relaxed) == 0);
    // A pinned stack is left alone. The first look after the trim may have begun before it.
    let trimmed = kstack::trim();
    for _look in 0..2 {
        before.store(u32::MAX, Relaxed);
        await_that(|| before.load(Relaxed) != u32::MAX);
    }
    let lost = before.load(Relaxed);
    thread.set_policy(Policy::Normal);
    stop.store(true, Relaxed);
    join(&done);
    check!(lost == 0, "{lost} pages of a pinned stack went; {trimmed} pages trimmed in all");
    no_fault_without_frame()
}

/// A thread that overflows its stack may be ended only if it holds no lock; so the count of them must be right.
fn held_locks_go_along() -> Outcome {
    let lock = Arc::new(::sched::Mutex::new(()));
    let table = Arc::new(::sched::RwLock::new(()));
    let wrong = Arc::new(AtomicU32::new(0));
    let mut threads = Vec::new();
    for _ in 0..4 {
        let (lock, table, wrong) = (lock.clone(), table.clone(), wrong.clone());
        threads.push(spawn(0, CpuSet::ALL, move || {
            let expect = |count| {
                ::sched::yield_now();
                if preempt::locks_held() != count {
                    wrong.fetch_add(1, Relaxed);
                }
            };
            for _ in 0..20 {
                expect(0);
                let reading = table.read();
                expect(1);
                let alone = lock.lock();
                expect(2);
                drop(reading);
                expect(1);
                drop(alone);
                let _writing = table.write();
                expect(1);
            }
        })?);
    }
    threads.iter().for_each(|(_, done)| join(done));
    let wrong = wrong.load(Relaxed);
    check!(wrong == 0, "the number of held locks was wrong {wrong} times");
    Ok(())
}

/// What a thread used decides how it counts, not what it found mapped.
fn ended_threads_are_counted() -> Outcome {
    if kstack::mode() == Mode::Fixed {
        return Ok(());
    }
    /// What the kernel has by itself.
    const USUAL_SHARE: u32 = 16;
    kstack::set_measured_share(1);
    let outcome = each_depth_is_counted();
    kstack::set_measured_share(USUAL_SHARE);
    outcome
}

fn each_depth_is_counted() -> Outcome {
    let count = |index: usize| kstack::statistics().depths[index];
    for (bytes, least, most) in [(100, 0, 1), (2500, 2, 2), (6000, 3, 3), (100, 0, 1), (10_000, 4, 4)] {
        let before: u64 = (least..=most).map(count).sum();
        let (thread, done) = spawn(0, CpuSet::ALL, move || {
            assert!(kstack::exercise(bytes, Exercise::Recurse, &mut || {}));
        })?;
        join(&done);
        // Its stack is released after its last word, and later still if kstackd is just looking at it.
        await_that(|| thread.state() == RunState::Dead && Arc::strong_count(&thread) == 1);
        let after = || -> u64 { (least..=most).map(count).sum() };
        let limit_ns = time::now_ns() + super::HANG_NS;
        await_that(|| after() > before || cfg!(debug_assertions) || time::now_ns() > limit_ns);
        let after = after();
        check!(
            after > before || cfg!(debug_assertions),
            "a thread {bytes} bytes deep is not counted under {}",
            kstack::DEPTH_NAMES[most]
        );
    }
    Ok(())
}

fn overflow_ends_only_its_thread() -> Outcome {
    let before = kstack::statistics().overflows;
    let go_on = Arc::new(Completion::new());
    let signal = go_on.clone();
    let (_neighbour, neighbour_done) = spawn(0, CpuSet::ALL, move || {
        let most = usable_bytes(kstack::parameters().pages as usize) - 1500;
        assert!(kstack::exercise(most, Exercise::Recurse, &mut || signal.wait()));
    })?;
    let (offender, _) = spawn(0, CpuSet::ALL, || {
        kstack::expect_overflow(true);
        kstack::exercise(1 << 20, Exercise::Recurse, &mut || unreachable!("the stack is smaller"));
    })?;
    await_that(|| kstack::statistics().overflows > before && offender.state() == RunState::Dead);
    let overflows = kstack::statistics().overflows - before;
    check!(overflows == 1, "{overflows} overflows");
    check_report(kstack::parameters().pages)?;
    go_on.complete();
    join(&neighbour_done);
    // The processor that it happened on goes on, faults included.
    on_all_processors(|_| assert!(kstack::exercise(6000, Exercise::Recurse, &mut || {})))
}

/// The report of the last overflow names the thread and the function, once, and shows the window.
pub(super) fn check_report(pages: u32) -> Outcome {
    let mut text = Box::new(Text { bytes: [0; 2048], length: 0 });
    let copied = kstack::last_report(|report| core::fmt::Write::write_str(&mut *text, report));
    check!(copied.is_ok(), "the report is longer than expected");
    let text = text.as_str();
    check!(text.starts_with("kernel stack overflow: thread "), "{text}");
    check!(text.contains(NAME), "no thread is named: {text}");
    let lines = text.lines().filter(|line| line.contains("kstack::exercise::descend")).count();
    check!((1..=3).contains(&lines), "the function is named {lines} times: {text}");
    check!(text.contains(" more times"), "no recursion is shown: {text}");
    let entries = text.lines().filter(|line| line.contains("page table entry")).count();
    check!(entries == pages as usize, "{entries} page-table entries: {text}");
    Ok(())
}

/// Text of a fixed length.
struct Text {
    bytes: [u8; 2048],
    length: usize,
}

impl Text {
    fn as_str(&self) -> &str {
        core::str::from_utf8(&self.bytes[..self.length]).unwrap_or("not text")
    }
}

impl core::fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end).ok_or(core::fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

/// What a thread writes of its stack that has grown by a page; None if it did not begin with one page. Interrupts are off, because a
/// softirq on the same stack may need more.
fn growth_of_a_new_stack() -> Result<Option<Box<Text>>, super::Failure> {
    let text = Arc::new(::sync::SpinLock::new(None));
    let mut room = Box::new(Text { bytes: [0; 2048], length: 0 });
    let result = text.clone();
    kstack::free_unused();
    let (_thread, done) = spawn(0, CpuSet::ALL, move || {
        let _interrupts_off = interrupt::disable();
        if kstack::own_window().is_some_and(|window| window.mapped == 1) {
            assert!(kstack::exercise(5000, Exercise::Recurse, &mut || {}));
            kstack::write_own_trace(&mut *room).expect("there is room");
            *result.lock() = Some(room);
        }
    })?;
    join(&done);
    Ok(text.lock().take())
}

fn figure_7() -> Outcome {
    if kstack::mode() != Mode::Fault || kstack::parameters().pages != 4 {
        return Ok(());
    }
    const ATTEMPTS: usize = 1000;
    let mut found = None;
    for _ in 0..ATTEMPTS {
        found = growth_of_a_new_stack()?;
        if found.is_some() {
            break;
        }
        // The stack of a thread that ended came back after `free_unused`, pages and all.
        ::sched::timer::sleep_until_uninterruptible(time::now_ns() + 1_000_000);
    }
    let Some(text) = found else { fail!("no stack begins with one page") };
    let text = text.as_str();
    log::info!("{text}");
    let backed: Vec<bool> = text
        .lines()
        .filter(|line| line.starts_with("virtual address"))
        .map(|line| !line.ends_with("entry 0x0"))
        .collect();
    let layout_a = boot::info().option("kstack.layout") == Some("A");
    check!(backed == [layout_a, false, true, true], "pages from the lowest on: {backed:?}");
    check!(text.starts_with("Kernel page fault at address 0xffffd0"), "{text}");
    Ok(())
}

fn a_thousand_sleepers() -> Outcome {
    const SLEEPERS: u64 = 1000;
    let go_on = Arc::new(Completion::new());
    kstack::free_unused();
    let free = || {
        let memory = statistics::memory();
        memory.free_kib()
    };
    let before = (kstack::mapped_kib(), free());
    let mut threads = Vec::new();
    for _ in 0..SLEEPERS {
        let go_on = go_on.clone();
        threads.push(spawn(0, CpuSet::ALL, move || go_on.wait())?);
    }
    await_that(|| threads.iter().all(|(thread, _)| thread.state() == RunState::Uninterruptible));
    let parameters = kstack::parameters();
    let pages = match (parameters.mode, parameters.layout) {
        (Mode::Fixed, _) => u64::from(parameters.pages),
        (_, kstack::geometry::Layout::A) => 2,
        (_, kstack::geometry::Layout::B) => 1,
    };
    let limit_kib = SLEEPERS * pages * 4 * 11 / 10;
    let mapped_kib = || kstack::mapped_kib().saturating_sub(before.0);
    let used = before.1.saturating_sub(free());
    // What was interrupted on its way to sleep has grown: the slower the host, the more of them. A trim gives each what it needs.
    let hang_ns = time::now_ns() + super::HANG_NS;
    while mapped_kib() > limit_kib && time::now_ns() < hang_ns {
        kstack::trim();
        ::sched::timer::sleep_until_uninterruptible(time::now_ns() + 1_000_000);
    }
    let mapped = mapped_kib();
    go_on.complete();
    threads.iter().for_each(|(_, done)| join(done));
    log::info!("{SLEEPERS} sleeping threads: stacks {mapped} KiB, memory {used} KiB in all");
    check!(mapped <= limit_kib, "{mapped} KiB of stacks for {SLEEPERS} threads");
    Ok(())
}
