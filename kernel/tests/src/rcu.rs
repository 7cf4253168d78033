//! Tests of RCU on real processors: torture of both flavours, progress under a flood, grace periods while others idle or
//! spin, the report of stalls, and the policies for callbacks compared.

use super::kit::{Random, join, on, sleep_ns, spawn};
use super::{HANG_NS, Outcome, Test, check, counts_instructions, fail};
use ::sched::{Builder, Completion, Policy, timer};
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use machine::cpu::{self, CpuId, CpuSet};
use machine::log_ring::{self, Cursor};
use machine::{boot, preempt, time};
use sync::rcu::{self, Bh, Classic, Flavour, Kind, Pointer, RcuBox, parameters};

pub(crate) const TESTS: &[Test] = &[
    Test { name: "rcu::torture_classic", run: torture_classic },
    Test { name: "rcu::torture_bh", run: torture_bh },
    Test { name: "rcu::forward_progress", run: forward_progress },
    Test { name: "rcu::grace_periods_end_while_others_idle", run: grace_periods_end_while_others_idle },
    Test { name: "rcu::grace_periods_end_while_others_spin", run: grace_periods_end_while_others_spin },
    Test { name: "rcu::stall_is_reported", run: stall_is_reported },
    Test { name: "rcu::stall_of_a_waiting_thread_is_reported", run: stall_of_a_waiting_thread_is_reported },
    Test { name: "rcu::stall_with_interrupts_off_is_reported", run: stall_with_interrupts_off_is_reported },
    Test { name: "rcu::policies_compared", run: policies_compared },
];

const SECOND_NS: u64 = 1_000_000_000;

const ALIVE: u32 = 0x600d_600d;
const DEAD: u32 = 0xdead_dead;

/// What readers look at: nobody may see it dead.
struct Object {
    number: u64,
    state: AtomicU32,
}

impl Object {
    fn boxed(number: u64) -> Option<RcuBox<Object>> {
        RcuBox::try_new(Object { number, state: AtomicU32::new(ALIVE) })
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.state.store(DEAD, Ordering::SeqCst);
    }
}

/// What the threads of a torture share.
struct Torture<F: Flavour> {
    pointers: [Pointer<Object, F>; 4],
    stop: AtomicBool,
    reads: AtomicU64,
    updates: AtomicU64,
    /// Readers that saw an object die.
    errors: AtomicU64,
}

impl<F: Flavour> Torture<F> {
    /// One read section with a delay in it.
    fn read(&self, enter: fn() -> F::Guard, random: &mut Random) {
        let guard = enter();
        let place = random.below(self.pointers.len() as u64) as usize;
        if let Some(object) = self.pointers[place].read(&guard) {
            let number = object.number;
            let first = object.state.load(Ordering::Relaxed);
            // Mostly short, now and then longer than a grace period needs otherwise.
            let longest = if random.below(200) == 0 { 20_000 } else { 50 };
            random.delay(longest);
            let whole =
                first == ALIVE && object.state.load(Ordering::Relaxed) == ALIVE && object.number == number;
            if !whole {
                self.errors.fetch_add(1, Ordering::Relaxed);
            }
        }
        drop(guard);
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    fn update(&self, random: &mut Random) {
        let number = self.updates.fetch_add(1, Ordering::Relaxed);
        let place = random.below(self.pointers.len() as u64) as usize;
        if let Some(new) = Object::boxed(number) {
            self.pointers[place].replace(Some(new));
        }
        match random.below(400) {
            0 => rcu::synchronize(),
            1 => rcu::synchronize_expedited(),
            2 => rcu::synchronize_bh(),
            3 => rcu::barrier(),
            4 => drop(rcu::barrier_expedited()),
            5 => sleep_ns(100_000),
            _ => random.delay(200),
        }
    }
}

fn torture_seconds() -> u64 {
    boot::info().option("rcu.torture_secs").and_then(|text| text.parse().ok()).unwrap_or(2)
}

/// Readers and updaters on each processor; `enter` begins a read section.
fn torture<F: Flavour>(enter: fn() -> F::Guard, with_softirqs: bool) -> Outcome
where
    F::Guard: 'static,
{
    let shared = Arc::new(Torture::<F> {
        pointers: [const { Pointer::null() }; 4],
        stop: AtomicBool::new(false),
        reads: AtomicU64::new(0),
        updates: AtomicU64::new(0),
        errors: AtomicU64::new(0),
    });
    let mut threads = Vec::new();
    let mut timers = Vec::new();
    for (index, target) in cpu::online().iter().enumerate() {
        let seed = 0x9e37_79b9 * (index as u64 + 1);
        for reader in 0..2 {
            let shared = shared.clone();
            // One stays, one may be moved.
            let affinity = if reader == 0 { CpuSet::only(target) } else { cpu::online() };
            threads.push(spawn(on(affinity), move || {
                let mut random = Random(seed + reader);
                while !shared.stop.load(Ordering::Relaxed) {
                    shared.read(enter, &mut random);
                    if random.below(1000) == 0 {
                        sleep_ns(200_000);
                    }
                }
            })?);
        }
        let updated = shared.clone();
        threads.push(spawn(on(cpu::online()), move || {
            let mut random = Random(seed + 77);
            while !updated.stop.load(Ordering::Relaxed) {
                updated.update(&mut random);
            }
        })?);
        if with_softirqs {
            timers.push(softirq_reader(&shared, enter, seed)?);
        }
    }
    sleep_ns(torture_seconds() * SECOND_NS);
    shared.stop.store(true, Ordering::Relaxed);
    threads.iter().try_for_each(|(_, done)| join(done))?;
    for timer in &timers {
        timer.cancel();
    }
    rcu::barrier();
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (reads, updates, errors) = (load(&shared.reads), load(&shared.updates), load(&shared.errors));
    log::info!(
        "torture of {}: {reads} reads, {updates} updates, {errors} errors; {}",
        F::KIND.name(),
        rcu::grace_periods(F::KIND)
    );
    check!(errors == 0, "{errors} of {reads} readers saw an object die");
    check!(reads > 0 && updates > 0, "{reads} reads, {updates} updates");
    Ok(())
}

/// A timer that reads in its softirq and arms itself again.
fn softirq_reader<F: Flavour>(
    shared: &Arc<Torture<F>>,
    enter: fn() -> F::Guard,
    seed: u64,
) -> Result<Arc<timer::Timer>, super::Failure>
where
    F::Guard: 'static,
{
    let own: Arc<sync::Once<Weak<timer::Timer>>> = Arc::new(sync::Once::new());
    let (shared, again) = (shared.clone(), own.clone());
    let state = AtomicU64::new(seed);
    let timer = timer::Timer::new(Box::new(move || {
        let mut random = Random(state.load(Ordering::Relaxed));
        shared.read(enter, &mut random);
        state.store(random.0, Ordering::Relaxed);
        if let Some(timer) = again.get().and_then(Weak::upgrade)
            && !shared.stop.load(Ordering::Relaxed)
        {
            timer.arm(time::now_ns() + 100_000 + random.below(400_000));
        }
    }));
    let Ok(timer) = timer else { fail!("no memory for a timer") };
    own.call_once(|| Arc::downgrade(&timer));
    timer.arm(time::now_ns() + 100_000);
    Ok(timer)
}

fn torture_classic() -> Outcome {
    torture::<Classic>(rcu::read, false)
}

fn torture_bh() -> Outcome {
    torture::<Bh>(rcu::read_bh, true)
}

#[derive(Default)]
struct Laundry {
    stop: AtomicBool,
    /// Callbacks that were laundered at least three times.
    clean: AtomicU64,
}

/// Hands over a callback that hands itself over again from within.
fn launder(laundry: Arc<Laundry>, rounds: u32) {
    const ENOUGH: u32 = 3;
    rcu::call(Box::new(move || {
        if rounds == ENOUGH {
            laundry.clean.fetch_add(1, Ordering::Relaxed);
        }
        if !laundry.stop.load(Ordering::Relaxed) {
            launder(laundry, rounds + 1);
        }
    }));
}

/// Callbacks as fast as possible for 8 s of guest time: those that hand themselves over again get through.
fn forward_progress() -> Outcome {
    const DURATION_NS: u64 = 8 * SECOND_NS;
    const LAUNDERED_MIN: u64 = 100;
    /// Callbacks that are laundered, of each CPU: they never end, so they must not be what the flood consists of.
    const LAUNDERED: u64 = 250;
    let laundry = Arc::new(Laundry::default());
    let end_ns = time::now_ns() + DURATION_NS;
    let mut threads = Vec::new();
    for target in cpu::online().iter() {
        let laundry = laundry.clone();
        threads.push(spawn(on(CpuSet::only(target)), move || {
            let mut posted = 0_u64;
            while time::now_ns() < end_ns {
                if posted < LAUNDERED {
                    launder(laundry.clone(), 0);
                }
                if let Some(boxed) = RcuBox::try_new([posted; 4]) {
                    boxed.defer_drop();
                }
                posted += 1;
            }
            log::info!("{posted} callbacks posted on one CPU");
        })?);
    }
    threads.iter().try_for_each(|(_, done)| join(done))?;
    laundry.stop.store(true, Ordering::Relaxed);
    rcu::barrier();
    let clean = laundry.clean.load(Ordering::Relaxed);
    let most = cpu::online().iter().map(|cpu| rcu::counts(cpu, Kind::Classic).most).max().unwrap_or(0);
    log::info!("{clean} callbacks laundered three times; at most {most} waited on a CPU");
    check!(clean >= LAUNDERED_MIN, "only {clean} callbacks were laundered three times");
    Ok(())
}

/// How long grace periods take, usual and expedited, in microseconds.
fn grace_period_us() -> (u64, u64) {
    const TIMES: u64 = 20;
    let measure = |wait: fn()| {
        let start_ns = time::now_ns();
        (0..TIMES).for_each(|_| wait());
        (time::now_ns() - start_ns) / TIMES / 1_000
    };
    (measure(rcu::synchronize), measure(rcu::synchronize_expedited))
}

fn grace_periods_end_while_others_idle() -> Outcome {
    let before = rcu::completed();
    let (usual_us, expedited_us) = grace_period_us();
    log::info!("grace periods among idle CPUs: {usual_us} us, expedited {expedited_us} us");
    // A machine with one CPU needs none: no other thread can be inside a read section.
    let is_alone = cpu::online().count() == 1;
    check!(is_alone || rcu::completed() >= before + 40, "{} of 40 grace periods", rcu::completed() - before);
    Ok(())
}

fn grace_periods_end_while_others_spin() -> Outcome {
    let (stop, spinning) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut threads = Vec::new();
    for target in cpu::online().iter() {
        let (stop, spinning) = (stop.clone(), spinning.clone());
        threads.push(spawn(on(CpuSet::only(target)), move || {
            spinning.fetch_add(1, Ordering::Relaxed);
            while !stop.load(Ordering::Relaxed) {
                cpu::relax();
            }
        })?);
    }
    while spinning.load(Ordering::Relaxed) < threads.len() as u64 {
        sleep_ns(1_000_000);
    }
    let (usual_us, expedited_us) = grace_period_us();
    stop.store(true, Ordering::Relaxed);
    log::info!("grace periods among spinning CPUs: {usual_us} us, expedited {expedited_us} us");
    threads.iter().try_for_each(|(_, done)| join(done))
}

/// A CPU that stays in a read section until it is let go.
struct Holdout {
    cpu: CpuId,
    leave: Arc<AtomicBool>,
    done: Arc<Completion>,
    /// Where the log ended before it went in.
    log: Cursor,
    hang_ns: u64,
}

/// Where a holdout stands: what its backtrace must name.
#[inline(never)]
fn stay_in_read_section(inside: &AtomicBool, leave: &AtomicBool) {
    let guard = rcu::read();
    inside.store(true, Ordering::Relaxed);
    while !leave.load(Ordering::Relaxed) {
        cpu::relax();
    }
    drop(guard);
}

/// The same with interrupts off, for a hundred reports at most: whoever is to let it go may have to wait for this CPU meanwhile.
#[inline(never)]
fn stay_with_interrupts_off(inside: &AtomicBool, leave: &AtomicBool) {
    let guard = rcu::read();
    let disabled = ::machine::interrupt::disable();
    let reports = rcu::stalls(Kind::Classic) + 100;
    inside.store(true, Ordering::Relaxed);
    while rcu::stalls(Kind::Classic) < reports && !leave.load(Ordering::Relaxed) {
        cpu::relax();
    }
    drop(disabled);
    drop(guard);
}

impl Holdout {
    /// On a CPU other than the boot processor; None where there is no other one.
    fn start() -> Result<Option<Holdout>, super::Failure> {
        Holdout::start_as(stay_in_read_section)
    }

    /// The same, which stays as it is told.
    fn start_as(stay: fn(&AtomicBool, &AtomicBool)) -> Result<Option<Holdout>, super::Failure> {
        let mut others = cpu::online().iter().filter(|&cpu| cpu != CpuId::BOOT);
        let Some(cpu) = others.next() else { return Ok(None) };
        let hang_ns = time::now_ns() + HANG_NS;
        let (leave, entered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (told, inside, log) = (leave.clone(), entered.clone(), log_ring::end());
        let (_thread, done) = spawn(on(CpuSet::only(cpu)), move || {
            stay(&inside, &told);
        })?;
        while !entered.load(Ordering::Relaxed) && time::now_ns() < hang_ns {
            sleep_ns(1_000_000);
        }
        Ok(Some(Holdout { cpu, leave, done, log, hang_ns }))
    }

    /// Waits for the report and for the backtrace of the CPU, which prints it when the interrupt reaches it.
    fn is_reported(&self) -> Outcome {
        self.is_reported_by(&format!("rcu: CPU {} runs", self.cpu), "stay_in_read_section")
    }

    /// The same with a backtrace that begins so, and names that function.
    fn is_reported_by(&self, stack: &str, function: &str) -> Outcome {
        let (mut reported, mut shown) = (false, false);
        while !(reported && shown) && time::now_ns() < self.hang_ns {
            sleep_ns(1_000_000);
            (reported, shown) = self.search_log(stack, function)?;
        }
        check!(reported, "nobody reported the stall of {}", self.cpu);
        check!(shown, "{} was reported, and nobody printed where it stays", self.cpu);
        Ok(())
    }

    /// Whether the log has the report since the CPU went in, and its backtrace: what begins so, and names that function.
    fn search_log(&self, stack: &str, function: &str) -> Result<(bool, bool), super::Failure> {
        let Ok(mut text) = memory::fallible::try_vec_of(0_u8, log_ring::TEXT_MAX) else {
            fail!("no memory for a line")
        };
        let (mut cursor, mut reported, mut shown) = (self.log, false, false);
        let report = format!("it waits for CPUs {:?}", CpuSet::only(self.cpu));
        while let Some(record) = log_ring::read(&mut cursor, &mut text) {
            let text = core::str::from_utf8(&text[..record.length]).unwrap_or("");
            reported |= text.contains(&report);
            shown |= text.contains(stack) && text.contains(function);
        }
        Ok((reported, shown))
    }

    fn let_go(self) -> Outcome {
        self.leave.store(true, Ordering::Relaxed);
        join(&self.done)
    }
}

/// Does something while grace periods are reported early.
fn with_early_reports(body: impl FnOnce() -> Outcome) -> Outcome {
    const TIMEOUT_MS: u64 = 100;
    // What was queued before ends here, so that no CPU has callbacks but those of the test.
    rcu::barrier();
    let usual_ms = parameters::stall_ns() / 1_000_000;
    parameters::set_stall_ms(TIMEOUT_MS);
    let outcome = body();
    parameters::set_stall_ms(usual_ms);
    rcu::barrier();
    outcome
}

/// A callback that tells that it ran.
fn telling_callback() -> (Arc<AtomicBool>, impl FnOnce() + Send + 'static) {
    let ran = Arc::new(AtomicBool::new(false));
    let flag = ran.clone();
    (ran, move || rcu::call(Box::new(move || flag.store(true, Ordering::Relaxed))))
}

/// A CPU stays in a read section beyond the time-out, and another one has a callback: that is reported, with what the CPU does.
fn stall_is_reported() -> Outcome {
    let (ran, post) = telling_callback();
    with_early_reports(|| {
        let before = rcu::stalls(Kind::Classic);
        let Some(holdout) = Holdout::start()? else { return Ok(()) };
        // From a CPU that is not held up.
        let (_poster, posted) = spawn(on(CpuSet::only(CpuId::BOOT)), post)?;
        join(&posted)?;
        let reported = holdout.is_reported();
        let ran_early = ran.load(Ordering::Relaxed);
        holdout.let_go()?;
        reported?;
        check!(rcu::stalls(Kind::Classic) > before, "the stall was not counted");
        check!(!ran_early, "the callback ran under the reader");
        rcu::barrier();
        check!(ran.load(Ordering::Relaxed), "the callback never ran");
        Ok(())
    })
}

/// The same when nobody has a callback, and a thread waits for the grace period.
fn stall_of_a_waiting_thread_is_reported() -> Outcome {
    with_early_reports(|| {
        let Some(holdout) = Holdout::start()? else { return Ok(()) };
        let (_waiter, waited) = spawn(on(CpuSet::only(CpuId::BOOT)), rcu::synchronize)?;
        let reported = holdout.is_reported();
        holdout.let_go()?;
        reported?;
        join(&waited)
    })
}

/// A CPU that takes no interrupts is asked where it is by one that it can't refuse, by whoever makes the second report.
fn stall_with_interrupts_off_is_reported() -> Outcome {
    let (ran, post) = telling_callback();
    with_early_reports(|| {
        let Some(holdout) = Holdout::start_as(stay_with_interrupts_off)? else { return Ok(()) };
        let (_poster, posted) = spawn(on(CpuSet::only(CpuId::BOOT)), post)?;
        let stack = format!("rcu: CPU {} keeps interrupts off", holdout.cpu);
        let reported = holdout.is_reported_by(&stack, "stay_with_interrupts_off");
        holdout.let_go()?;
        join(&posted)?;
        reported?;
        rcu::barrier();
        check!(ran.load(Ordering::Relaxed), "the callback never ran");
        Ok(())
    })
}

/// The three policies with thousands of callbacks that one grace period makes ready, and how long a real-time thread has to wait meanwhile. Who runs them is tested on every clock. With
/// instructions as the clock, on one processor, also that each policy keeps the thread waiting for a small part of what it waits when all
/// run in one go, and that the one that lets none wait keeps it for the least.
fn policies_compared() -> Outcome {
    use parameters::Policy;
    let usual = parameters::policy();
    let is_alone = cpu::online().count() == 1;
    let compare_all = || {
        let throttle_us = compare("throttle", Some(Policy::Throttle))?;
        let thread_us = compare("kthread", Some(Policy::Thread))?;
        if is_alone {
            let direct_us = compare("direct", Some(Policy::Direct))?;
            let unlimited_us = compare("none", None)?;
            if counts_instructions() {
                let most_us = throttle_us.max(thread_us);
                check!(direct_us <= most_us, "direct {direct_us} us, others {most_us} us");
                check!(most_us * 10 <= unlimited_us, "policies {most_us} us, none {unlimited_us} us");
            }
        }
        Ok(())
    };
    let outcome = compare_all();
    parameters::set_policy(usual);
    outcome
}

/// Callbacks of each comparison: fewer than make a flood, in which there is no limit.
const CALLBACKS: u64 = 9_000;

/// How many microseconds a real-time thread was late at most; with no policy, beside the same functions one after the other.
fn compare(name: &str, policy: Option<parameters::Policy>) -> Result<u64, super::Failure> {
    const PERIOD_NS: u64 = 200_000;
    policy.into_iter().for_each(parameters::set_policy);
    let target = CpuSet::only(cpu::current());
    let (stop, latest_ns) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    // Set when the callbacks are there, or from the beginning if none is to wait.
    let is_direct = policy == Some(parameters::Policy::Direct);
    let counts = Arc::new(AtomicBool::new(is_direct || policy.is_none()));
    let (end, latest, begun) = (stop.clone(), latest_ns.clone(), counts.clone());
    let builder = Builder { policy: Policy::Fifo(50), ..on(target) };
    let (_watcher, watched) = spawn(builder, move || {
        while !end.load(Ordering::Relaxed) {
            let (due_ns, counts) = (time::now_ns() + PERIOD_NS, begun.load(Ordering::Relaxed));
            timer::sleep_until_uninterruptible(due_ns);
            if counts {
                latest.fetch_max(time::now_ns() - due_ns, Ordering::Relaxed);
            }
        }
    })?;
    // Callbacks that ran: all, in a thread for callbacks, and before whoever handed them over went on.
    let callbacks: Arc<[AtomicU64; 3]> = Arc::default();
    let counters = callbacks.clone();
    let start_ns = time::now_ns();
    let (_poster, posted) = spawn(on(target), move || {
        // They wait for the end of this.
        let section = (!is_direct).then(rcu::read);
        for number in 1..=CALLBACKS {
            let counters = counters.clone();
            let counted = counters.clone();
            let callback = Box::new(move || {
                assert!(preempt::count() > 0, "callbacks run with preemption off");
                counters[0].fetch_add(1, Ordering::Relaxed);
                let is_own = ::sched::current().name().as_bytes().starts_with(b"rcuc/");
                counters[1].fetch_add(u64::from(is_own), Ordering::Relaxed);
            });
            if policy.is_some() {
                rcu::call(callback);
            } else {
                callback();
            }
            let ran_at_once = counted[0].load(Ordering::Relaxed) == number;
            counted[2].fetch_add(u64::from(ran_at_once), Ordering::Relaxed);
        }
        counts.store(true, Ordering::Relaxed);
        drop(section);
    })?;
    join(&posted)?;
    rcu::barrier();
    let taken_us = (time::now_ns() - start_ns) / 1_000;
    stop.store(true, Ordering::Relaxed);
    join(&watched)?;
    let late_us = latest_ns.load(Ordering::Relaxed) / 1_000;
    log::info!(
        "rcu.cb={name}: {CALLBACKS} callbacks in {taken_us} us; a real-time thread was at most {late_us} us late"
    );
    let [ran, in_thread, at_once] = [0, 1, 2].map(|index| callbacks[index].load(Ordering::Relaxed));
    check!(ran == CALLBACKS, "{ran} of {CALLBACKS} callbacks ran with {name}");
    if policy == Some(parameters::Policy::Thread) {
        check!(in_thread == CALLBACKS, "the thread ran {in_thread} of {CALLBACKS} callbacks");
    }
    if is_direct {
        check!(at_once == CALLBACKS, "{at_once} of {CALLBACKS} callbacks ran at once");
    }
    Ok(late_us)
}
