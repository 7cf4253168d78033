//! Message boxes on real CPUs: the tests of specs/fiasco-mp.md item 47 that concern them, by their names, and whether they would notice
//! the historic bugs.
//!
//! The protocol's own model, with all interleavings, is `kernel/sync/tests/models.rs`.

use alloc::sync::Arc;
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

use ::machine::cpu::{self, CpuId, MAX_CPUS};
use ::machine::ipi::{self, Ipi};
use ::machine::{boot, interrupt, preempt};
use ::sync::message_box::{self, BEFORE_TAKING, BETWEEN_LOOKS, Kind, Request, Response, WORDS};

use super::kit::{Meeting, Sweep, Team, Watchdog, window};
use super::{Failure, HANG_NS, Outcome, Test, check, fail};

pub(crate) const TESTS: &[Test] = &[
    Test { name: "message_box::test_msg_echo", run: test_msg_echo },
    Test { name: "message_box::test_msg_nested", run: test_msg_nested },
    Test { name: "message_box::test_msg_parallel", run: test_msg_parallel },
    Test { name: "message_box::test_msg_tcb_pf", run: test_msg_tcb_pf },
    Test { name: "message_box::test_msg_order", run: test_msg_order },
    Test { name: "message_box::test_msg_aggregation", run: test_msg_aggregation },
    Test { name: "message_box::postponed_requests_are_served_after_the_answer", run: postponed_are_served },
    Test { name: "message_box::requests_wait_until_the_answer_is_taken", run: requests_wait_for_taking },
    Test { name: "message_box::the_ring_notices_who_serves_nobody", run: ring_notices_who_serves_nobody },
    Test { name: "message_box::the_window_notices_a_swapped_order", run: window_notices_swapped_order },
];

/// Requests of each pair in the echo test.
const ECHOES: u64 = 50;
/// No CPU makes progress for so long: a deadlock, where one is expected. If it is only the host that took the processors away, the
/// test ends early. Where none is expected it takes as long as any hang.
const DEADLOCK_NS: u64 = 4_000_000_000;

/// All pairs of different CPUs that are online.
fn pairs() -> impl Iterator<Item = (CpuId, CpuId)> {
    let online = cpu::online();
    online
        .iter()
        .flat_map(move |from| online.iter().map(move |to| (from, to)))
        .filter(|(from, to)| from != to)
}

fn bugs() -> &'static str {
    boot::info().option("bug").unwrap_or("")
}

/// Runs a test with the bugs in that `bug=` on the command line names.
fn with_bugs(test: impl FnOnce() -> Outcome) -> Outcome {
    if !message_box::inject_defects(bugs()) {
        fail!("no such bug: {}", bugs());
    }
    let outcome = test();
    message_box::inject_defects("");
    outcome
}

fn echo_of(words: [u64; WORDS]) -> Request {
    Request { kind: Kind::Echo, words }
}

/// Sends an echo and says whether the answer is right.
fn echo(target: CpuId, seed: u64, interrupts_on: bool) -> bool {
    let words = core::array::from_fn(|index| seed.wrapping_mul(index as u64 + 3));
    let interrupts = (!interrupts_on).then(interrupt::disable);
    let answer = message_box::request(target, echo_of(words));
    drop(interrupts);
    answer == words.map(|word| !word)
}

fn test_msg_echo() -> Outcome {
    let wrong = Arc::new(AtomicU64::new(0));
    for (from, to) in pairs() {
        let before = message_box::served(from, to);
        let mut team = Team::new();
        let count = wrong.clone();
        team.start(from, move || {
            for turn in 0..ECHOES {
                if !echo(to, turn, turn % 2 == 0) {
                    count.fetch_add(1, Relaxed);
                }
            }
        })?;
        team.join()?;
        check!(message_box::served(from, to) - before >= ECHOES, "{to} has served too few of {from}");
    }
    let wrong = wrong.load(Relaxed);
    check!(wrong == 0, "{wrong} answers were wrong");
    // To oneself, no box is used.
    let _preemption = preempt::disable();
    check!(echo(cpu::current(), 7, true), "the answer of this CPU was wrong");
    Ok(())
}

/// What the handler of the nested test found: its own request's answer was right.
const NESTED_ANSWERED: u64 = 1;
/// Its CPU had a request outstanding.
const NESTED_REFUSED: u64 = 2;

fn handle_nested(sender: CpuId, words: [u64; WORDS]) -> Response {
    let mut answer = [0; WORDS];
    answer[0] = match message_box::request_from_handler(sender, echo_of(words)) {
        Some(answer) if answer == words.map(|word| !word) => NESTED_ANSWERED,
        Some(_) => 0,
        None => NESTED_REFUSED,
    };
    answer
}

/// The handler sends a request back to the CPU that waits for it: that one must serve while it waits.
fn test_msg_nested() -> Outcome {
    message_box::set_handler(Kind::Nested, handle_nested);
    for (from, to) in pairs() {
        for interrupts_on in [false, true] {
            let found = Arc::new(AtomicU64::new(u64::MAX));
            let report = found.clone();
            let mut team = Team::new();
            team.start(from, move || {
                let interrupts = (!interrupts_on).then(interrupt::disable);
                let answer = message_box::request(to, Request { kind: Kind::Nested, words: [5; WORDS] });
                drop(interrupts);
                report.store(answer[0], Release);
            })?;
            team.join()?;
            let found = found.load(Acquire);
            check!(found == NESTED_ANSWERED, "{from} asked {to}, whose handler's request came to {found}");
        }
    }
    Ok(())
}

static RING_DOG: Watchdog = Watchdog::new();
static RING_PATIENCE_NS: AtomicU64 = AtomicU64::new(0);
static RING_STUCK: AtomicBool = AtomicBool::new(false);

/// Called by each CPU of a ring between its looks: ends a deadlock by taking the bug out that makes it.
fn look_for_deadlock(_place: u32) {
    if RING_DOG.barks(RING_PATIENCE_NS.load(Relaxed)) && !RING_STUCK.swap(true, SeqCst) {
        message_box::inject_defects("");
    }
}

/// Each of the first `size` CPUs sends to the next one, `rounds` times, with delays that shift them against each other. Returns whether they came to
/// stand: nobody made progress for so long.
fn run_ring(size: usize, rounds: u32, patience_ns: u64) -> Result<bool, Failure> {
    let sweep = Sweep::new(300, 40);
    let wrong = Arc::new(AtomicU64::new(0));
    let meeting = Arc::new(Meeting::new(size as u32));
    RING_STUCK.store(false, SeqCst);
    RING_PATIENCE_NS.store(patience_ns, Relaxed);
    RING_DOG.feed();
    ::machine::window::set_hook(Some(look_for_deadlock));
    let mut team = Team::new();
    for index in 0..size {
        let (wrong, meeting) = (wrong.clone(), meeting.clone());
        let next = CpuId::from_index((index + 1) % size);
        team.start(CpuId::from_index(index), move || {
            for round in 0..rounds {
                if round % 8 == 0 {
                    meeting.meet();
                }
                if round == 0 {
                    // With interrupts off from before all meet until each has its answer, everybody waits at the same time.
                    let _interrupts = interrupt::disable();
                    meeting.meet_spinning();
                    if !echo(next, 0, false) {
                        wrong.fetch_add(1, Relaxed);
                    }
                }
                if index % 2 == 0 {
                    sweep.delay_fixed()
                } else {
                    sweep.delay_swept(round)
                }
                if !echo(next, u64::from(round), false) {
                    wrong.fetch_add(1, Relaxed);
                }
                RING_DOG.feed();
            }
        })?;
    }
    let joined = team.join();
    ::machine::window::set_hook(None);
    joined?;
    let wrong = wrong.load(Relaxed);
    check!(wrong == 0, "{wrong} answers were wrong");
    Ok(RING_STUCK.load(SeqCst))
}

/// The sizes of ring that fit this machine: small ones are more prone to deadlock.
fn ring_sizes() -> impl Iterator<Item = usize> {
    let online = cpu::online().count();
    [2, 3, 4, 8].into_iter().filter(move |&size| size <= online)
}

fn test_msg_parallel() -> Outcome {
    const ROUNDS: u32 = 240;
    with_bugs(|| {
        let patience_ns = if bugs().is_empty() { HANG_NS } else { DEADLOCK_NS };
        for size in ring_sizes() {
            check!(!run_ring(size, ROUNDS, patience_ns)?, "{size} CPUs in a ring came to stand");
        }
        Ok(())
    })
}

fn ring_notices_who_serves_nobody() -> Outcome {
    const ROUNDS: u32 = 8;
    let Some(size) = ring_sizes().next() else { return Ok(()) };
    message_box::inject_defects("no_serve_while_waiting");
    let stuck = run_ring(size, ROUNDS, DEADLOCK_NS);
    message_box::inject_defects("");
    if stuck? {
        return Ok(());
    }
    fail!("{size} CPUs that serve nobody while they wait did not come to stand")
}

/// The pair of the order test: the first asks, the second answers and then asks.
const ASKER: CpuId = CpuId::from_index(0);
const ANSWERER: CpuId = CpuId::from_index(1);

/// Answers that the asker has seen, and the answers that the answerer's requests said it must have seen by then.
static ANSWERS_SEEN: AtomicU64 = AtomicU64::new(0);
static EARLY: AtomicU64 = AtomicU64::new(0);
static COMPARED: AtomicU64 = AtomicU64::new(0);

/// The answerer's request tells how many answers it has given: each must have been seen.
fn handle_order(_sender: CpuId, words: [u64; WORDS]) -> Response {
    COMPARED.fetch_add(1, SeqCst);
    if ANSWERS_SEEN.load(SeqCst) < words[0] {
        EARLY.fetch_add(1, SeqCst);
    }
    words
}

/// The answerer's later request is in its box, and so is its answer.
fn later_request_is_there() -> bool {
    message_box::state_of(ANSWERER, ASKER).is_some() && message_box::state_of(ASKER, ANSWERER).is_none()
}

/// How many requests were handled before the answer that was sent earlier, of those in `rounds` rounds.
fn run_order(rounds: u32, with_window: bool) -> Result<u64, Failure> {
    let sweep = Sweep::new(400, 40);
    let meeting = Arc::new(Meeting::new(2));
    // Other threads of the asker's CPU may ask as well, but for no echo.
    let answers_given = || message_box::counts(ANSWERER, Kind::Echo).1;
    let base = answers_given();
    message_box::set_handler(Kind::Nested, handle_order);
    ANSWERS_SEEN.store(0, SeqCst);
    EARLY.store(0, SeqCst);
    COMPARED.store(0, SeqCst);
    let mut team = Team::new();
    let met = meeting.clone();
    team.start(ASKER, move || {
        for round in 0..rounds {
            met.meet();
            // First, so that it is this thread's request that the window opens for.
            let interrupts = interrupt::disable();
            if with_window {
                window::arm(BETWEEN_LOOKS, ASKER, Some(later_request_is_there));
            }
            sweep.delay_fixed();
            message_box::request(ANSWERER, echo_of([u64::from(round); WORDS]));
            ANSWERS_SEEN.fetch_add(1, SeqCst);
            drop(interrupts);
            if with_window {
                window::disarm();
            }
        }
    })?;
    team.start(ANSWERER, move || {
        for round in 0..rounds {
            meeting.meet();
            sweep.delay_swept(round);
            // With a window: answer and ask while the asker stands between its looks.
            while with_window && answers_given() - base <= u64::from(round) {
                cpu::relax();
            }
            let _interrupts = interrupt::disable();
            let answered = answers_given() - base;
            message_box::request(ASKER, Request { kind: Kind::Nested, words: [answered; WORDS] });
        }
    })?;
    team.join()?;
    let compared = COMPARED.load(SeqCst);
    check!(compared == u64::from(rounds), "{compared} requests of {rounds} were handled");
    Ok(EARLY.load(SeqCst))
}

/// Answers count before later requests of the same CPU.
fn test_msg_order() -> Outcome {
    if cpu::online().count() < 2 {
        return Ok(());
    }
    with_bugs(|| {
        let early = run_order(400, false)? + run_order(40, true)?;
        check!(early == 0, "{early} requests were handled before the answer that was sent earlier");
        Ok(())
    })
}

fn window_notices_swapped_order() -> Outcome {
    if cpu::online().count() < 2 {
        return Ok(());
    }
    message_box::inject_defects("order_swapped");
    let early = run_order(40, true);
    message_box::inject_defects("");
    check!(early? > 0, "no request was handled early although the order of the looks was swapped");
    Ok(())
}

/// An entry of a table whose pages come on demand, as threads' control blocks lie in one.
#[repr(align(512))]
struct Block(AtomicU64);

static AREA: ::memory::LazyTable<Block> = ::memory::LazyTable::new();

/// Requests that this CPU has sent to have others forget translations. Interrupts are off, so nobody else sends any meanwhile.
fn flushes_sent() -> u64 {
    message_box::counts(cpu::current(), Kind::FlushTlb).0
}

/// The owner says what an entry holds, and that it exists, and how many flushes that took; it makes nothing.
fn handle_resolve(_sender: CpuId, words: [u64; WORDS]) -> Response {
    let before = flushes_sent();
    let found = AREA.get(words[0] as usize);
    let mut answer = [0; WORDS];
    answer[0] = u64::from(found.is_some());
    answer[1] = found.map_or(0, |block| block.0.load(Acquire));
    answer[2] = flushes_sent() - before;
    answer
}

/// CPU 0 reads control blocks of CPU 1 that exist and that don't. A walk through the page tables shows that the ones are there, that
/// asking for the others has made no page, and nobody had to forget translations.
fn test_msg_tcb_pf() -> Outcome {
    const EXISTING: usize = 3;
    const MISSING: usize = 100 * ::memory::LazyTable::<Block>::PER_PAGE;
    const VALUE: u64 = 0x7cb;
    if cpu::online().count() < 2 {
        return Ok(());
    }
    message_box::set_handler(Kind::ResolvePageFault, handle_resolve);
    let made = Arc::new(AtomicU64::new(0));
    let report = made.clone();
    let mut team = Team::new();
    team.start(ANSWERER, move || {
        if let Ok(block) = AREA.make(EXISTING, || Block(AtomicU64::new(0))) {
            block.0.store(VALUE, Release);
            report.store(core::ptr::from_ref(block) as u64, Release);
        }
    })?;
    team.join()?;
    let address = made.load(Acquire);
    check!(address != 0, "no memory for a page");
    let pages = AREA.pages();
    let asked = Arc::new([const { AtomicU64::new(0) }; 4]);
    let flushed = Arc::new(AtomicU64::new(0));
    let (report, flushes) = (asked.clone(), flushed.clone());
    let mut team = Team::new();
    team.start(ASKER, move || {
        let _interrupts = interrupt::disable();
        let before = flushes_sent();
        for (place, number) in [EXISTING, MISSING].into_iter().enumerate() {
            let words = [number as u64, 0, 0, 0, 0, 0];
            let answer = message_box::request(ANSWERER, Request { kind: Kind::ResolvePageFault, words });
            report[2 * place].store(answer[0], Relaxed);
            report[2 * place + 1].store(AREA.get(number).map_or(0, |block| block.0.load(Acquire)), Relaxed);
            flushes.fetch_add(answer[2], Relaxed);
        }
        flushes.fetch_add(flushes_sent() - before, Relaxed);
    })?;
    team.join()?;
    let asked = [0, 1, 2, 3].map(|index: usize| asked[index].load(Relaxed));
    check!(asked == [1, VALUE, 0, 0], "the owner and its memory say {asked:x?}");
    let mapping = |address| ::machine::mmu::kernel_mapping(::machine::address::VirtAddr::new(address));
    let missing = address + ((MISSING - EXISTING) * size_of::<Block>()) as u64;
    check!(
        mapping(address).is_some_and(|page| page.writable && !page.executable),
        "the page is not as it should be"
    );
    check!(mapping(missing).is_none(), "asking has made a page");
    check!(AREA.pages() == pages, "{} pages became {}", pages, AREA.pages());
    let flushed = flushed.load(Relaxed);
    check!(flushed == 0, "translations were flushed {flushed} times");
    Ok(())
}

/// Requests that a CPU has handled: those of the aggregation test, and all others.
fn handled_by(cpu: CpuId) -> [u64; 2] {
    let handled = |kind: Kind| message_box::counts(cpu, kind).1;
    let all: u64 = Kind::ALL.into_iter().map(handled).sum();
    [handled(Kind::Noop), all - handled(Kind::Noop)]
}

/// All other CPUs send to one that has interrupts off: that costs it two interrupts at most, and one for each request of somebody else
/// that comes meanwhile.
fn test_msg_aggregation() -> Outcome {
    const INTERRUPTS_MAX: u64 = 2;
    let online = cpu::online();
    if online.count() < 2 {
        return Ok(());
    }
    let target = CpuId::BOOT;
    let senders = online.difference(cpu::CpuSet::only(target));
    let result = Arc::new([const { AtomicU64::new(0) }; 3]);
    let ready = Arc::new(AtomicBool::new(false));
    let mut team = Team::new();
    let told = ready.clone();
    // First, because this thread is the target's: it gets no further while that has interrupts off.
    team.start_on_each(senders, move |_| {
        while !told.load(Acquire) {
            cpu::relax();
        }
        message_box::request(target, Request { kind: Kind::Noop, words: [0; WORDS] });
    })?;
    let (report, go) = (result.clone(), ready);
    team.start(target, move || {
        let interrupts = interrupt::disable();
        let (before, [served_before, others_before]) = (ipi::count(target, Ipi::Call), handled_by(target));
        go.store(true, Release);
        while !senders.iter().all(|sender| message_box::state_of(sender, target).is_some()) {
            cpu::relax();
        }
        drop(interrupts);
        // Somebody else's request may have been in a box, and kept its sender's from it until now.
        while handled_by(target)[0] - served_before < senders.count() as u64 {
            cpu::relax();
        }
        report[0].store(ipi::count(target, Ipi::Call) - before, Relaxed);
        let [served, others] = handled_by(target);
        report[1].store(served - served_before, Relaxed);
        report[2].store(others - others_before, Relaxed);
    })?;
    team.join()?;
    let [interrupts, served, others] = [0, 1, 2].map(|index: usize| result[index].load(Relaxed));
    check!(served == senders.count() as u64, "{served} of {} were served", senders.count());
    check!(
        interrupts <= INTERRUPTS_MAX + others,
        "{interrupts} interrupts for {served} requests, and {others} of others"
    );
    Ok(())
}

/// Interrupts of the boxes that the asker had got when its window opened; all ones before.
static INTERRUPTS_BEFORE: AtomicU64 = AtomicU64::new(u64::MAX);
/// Requests that were handled while the asker stood in its window.
static IN_WINDOW: AtomicU64 = AtomicU64::new(0);

fn handle_in_window(_sender: CpuId, words: [u64; WORDS]) -> Response {
    COMPARED.fetch_add(1, SeqCst);
    if window::is_open() {
        IN_WINDOW.fetch_add(1, SeqCst);
    }
    words
}

/// The later request has interrupted the asker in its window.
fn asker_was_interrupted() -> bool {
    let interrupts = ipi::count(ASKER, Ipi::Call);
    match INTERRUPTS_BEFORE.load(SeqCst) {
        u64::MAX => {
            INTERRUPTS_BEFORE.store(interrupts, SeqCst);
            false
        }
        before => interrupts > before,
    }
}

/// With interrupts on, a later request interrupts the asker when it knows that its answer is there and has not taken it: the
/// request waits, and is handled afterwards.
fn requests_wait_for_taking() -> Outcome {
    const ROUNDS: u64 = 40;
    if cpu::online().count() < 2 {
        return Ok(());
    }
    message_box::set_handler(Kind::Nested, handle_in_window);
    IN_WINDOW.store(0, SeqCst);
    COMPARED.store(0, SeqCst);
    let meeting = Arc::new(Meeting::new(2));
    let mut team = Team::new();
    let met = meeting.clone();
    team.start(ASKER, move || {
        for round in 0..ROUNDS {
            INTERRUPTS_BEFORE.store(u64::MAX, SeqCst);
            met.meet();
            // No other thread's request passes the window.
            let preemption = preempt::disable();
            window::arm(BEFORE_TAKING, ASKER, Some(asker_was_interrupted));
            echo(ANSWERER, round, true);
            drop(preemption);
            met.meet();
            window::disarm();
        }
    })?;
    team.start(ANSWERER, move || {
        for _ in 0..ROUNDS {
            meeting.meet();
            while INTERRUPTS_BEFORE.load(SeqCst) == u64::MAX {
                cpu::relax();
            }
            message_box::request(ASKER, Request { kind: Kind::Nested, words: [0; WORDS] });
            meeting.meet();
        }
    })?;
    team.join()?;
    let (early, handled) = (IN_WINDOW.load(SeqCst), COMPARED.load(SeqCst));
    check!(handled == ROUNDS, "{handled} requests of {ROUNDS} were handled");
    check!(early == 0, "{early} requests were handled before the earlier answer was taken");
    Ok(())
}

/// With interrupts on, the interrupt may find the answer there and postpone a request; it is served after.
fn postponed_are_served() -> Outcome {
    const ROUNDS: u32 = 400;
    let size = cpu::online().count();
    if size < 2 {
        return Ok(());
    }
    let sweep = Sweep::new(200, 40);
    let handled = Arc::new([const { AtomicU32::new(0) }; MAX_CPUS]);
    let mut team = Team::new();
    let meeting = Arc::new(Meeting::new(size as u32));
    let counts = handled.clone();
    team.start_on_each(cpu::online(), move |cpu| {
        let others = cpu::online().difference(cpu::CpuSet::only(cpu));
        for round in 0..ROUNDS {
            if round % 16 == 0 {
                meeting.meet();
            }
            sweep.delay_swept(round + 7 * cpu.index() as u32);
            match others.iter().nth(round as usize % others.count()) {
                Some(target) if echo(target, u64::from(round), round % 4 != 0) => {
                    counts[cpu.index()].fetch_add(1, Relaxed);
                }
                _ => {}
            }
        }
    })?;
    team.join()?;
    for cpu in cpu::online().iter() {
        let right = handled[cpu.index()].load(Relaxed);
        check!(right == ROUNDS, "{right} of {ROUNDS} answers that {cpu} got were right");
        for sender in cpu::online().iter() {
            check!(message_box::state_of(sender, cpu).is_none(), "a request of {sender} stayed in its box");
        }
    }
    Ok(())
}
