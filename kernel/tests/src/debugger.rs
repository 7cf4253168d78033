//! The kernel debugger: how all CPUs come to it and leave it, what it shows, and that no input brings it down.
//!
//! A script speaks in place of the serial port, so each session takes a moment and can be repeated often. That it works over the serial
//! port as well is tested from outside (`tests/command`).

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hint::black_box;
use core::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

use ::machine::address::VirtAddr;
use ::machine::cpu::{self, CpuId};
use ::machine::debugger::{self as machine_debugger, Access};
use ::machine::{boot, interrupt, ipi};
use ::sync::message_box::{self, Kind, Request, WORDS};
use ::trace::debugger::{self, Statistics};

use super::kit::{Meeting, Team, window};
use super::{Failure, Outcome, Test, check, fail};

pub(crate) const TESTS: &[Test] = &[
    Test { name: "debugger::test_msg_dbg", run: || repeated(test_msg_dbg) },
    Test { name: "debugger::test_dbg_breakpoints", run: || repeated(test_dbg_breakpoints) },
    Test {
        name: "debugger::a_hardware_breakpoint_stops_all",
        run: || repeated(hardware_breakpoint_stops_all),
    },
    Test { name: "debugger::the_breakpoint_test_notices_dbg_vec3", run: notices_dbg_vec3 },
    Test { name: "debugger::entry_on_any_cpu_stops_all", run: entry_on_any_cpu_stops_all },
    Test { name: "debugger::entry_on_all_cpus_at_once_leaves_nobody_behind", run: entry_on_all_at_once },
    Test { name: "debugger::a_cpu_with_interrupts_off_comes_by_force", run: || repeated(masked_cpu_comes) },
    Test { name: "debugger::a_cpu_that_waits_for_an_answer_comes", run: || repeated(waiting_cpu_comes) },
    Test { name: "debugger::the_button_stops_all", run: || repeated(button_stops_all) },
    Test {
        name: "debugger::the_button_is_heard_after_interrupts_that_became_one",
        run: || repeated(button_after_merged),
    },
    Test {
        name: "debugger::the_button_is_heard_by_a_cpu_on_its_way_out",
        run: || repeated(button_on_the_way_out),
    },
    Test {
        name: "debugger::a_cpu_that_is_woken_before_it_halts_goes_on",
        run: || repeated(woken_before_it_halts),
    },
    Test { name: "debugger::off_it_is_entered_by_nothing", run: off_nothing_enters },
    Test { name: "debugger::another_cpu_can_be_made_active", run: || repeated(another_cpu_becomes_active) },
    Test { name: "debugger::commands_show_what_they_promise", run: commands_show },
    Test { name: "debugger::no_input_brings_it_down", run: no_input_brings_it_down },
];

/// The vector of non-maskable interrupts.
const NON_MASKABLE: u8 = 2;

/// Repetitions that `debugger.repetitions=` on the command line asks for.
fn asked_repetitions() -> Option<u64> {
    boot::info().option("debugger.repetitions")?.parse().ok()
}

/// Sessions in a row. Without being asked, fewer on many CPUs, for a host with few processors needs its time to run all of them once.
fn repetitions() -> u64 {
    const ALL: u64 = 64;
    let cpus = cpu::online().count() as u64;
    asked_repetitions().unwrap_or((ALL / (cpus * cpus)).max(4))
}

/// A test that sets up a case of its own each time: once, or as often as asked.
fn repeated(test: fn() -> Outcome) -> Outcome {
    (0..asked_repetitions().unwrap_or(1)).try_for_each(|_| test())
}

/// Runs a test with the debugger on and a script in place of the serial port. Returns what has happened since.
pub(super) fn scripted(
    lines: &'static [&'static str],
    test: impl FnOnce() -> Outcome,
) -> Result<Statistics, Failure> {
    let before = debugger::statistics();
    debugger::run_script(Some(lines));
    // A busy host may have stopped a processor for longer than anybody at the keyboard would wait for it.
    debugger::set_patience_ns(super::HANG_NS / 2);
    debugger::enable(true, false);
    let outcome = test();
    debugger::enable(false, false);
    debugger::set_patience_ns(debugger::LEAVE_BEHIND_NS);
    debugger::run_script(None);
    outcome?;
    let after = debugger::statistics();
    check!(after.most_active <= 1, "{} instances were active at a time", after.most_active);
    check!(
        machine_debugger::requests().is_empty(),
        "requests of {:?} are left",
        machine_debugger::requests()
    );
    Ok(Statistics {
        sessions: after.sessions - before.sessions,
        spurious: after.spurious - before.spurious,
        local: after.local - before.local,
        turns: after.turns - before.turns,
        most_active: after.most_active,
    })
}

/// Whether the debugger has said all of that, in any order.
pub(super) fn said(what: &[&str]) -> Outcome {
    debugger::transcript(|text| match what.iter().find(|what| !text.contains(**what)) {
        Some(missing) => fail!("{missing:?} was not said, but: {}", &text[..text.len().min(150)]),
        None => Ok(()),
    })
}

/// Runs the body on a CPU, to its end.
fn run_on(cpu: CpuId, body: impl FnOnce() + Send + 'static) -> Outcome {
    let mut team = Team::new();
    team.start(cpu, body)?;
    team.join()
}

fn last_cpu() -> CpuId {
    CpuId::from_index(cpu::online().count() - 1)
}

/// The debugger is entered in a handler, while the sender waits with interrupts off; then it answers.
fn test_msg_dbg() -> Outcome {
    let (sender, target) = (CpuId::BOOT, last_cpu());
    if sender == target {
        return Ok(());
    }
    let answered = Arc::new(AtomicU64::new(0));
    let report = answered.clone();
    let happened = scripted(&["cpus", "boxes", "backtrace", "continue"], || {
        run_on(sender, move || {
            let _interrupts = interrupt::disable();
            let request = Request { kind: Kind::EnterDebugger, words: [9; WORDS] };
            report.store(message_box::request(target, request)[0], Release);
        })?;
        said(&["waits for an answer", "handles a request", "enter_debugger->"])
    })?;
    check!(answered.load(Acquire) == 9, "the handler did not answer");
    check!(happened.sessions == 1, "{} sessions", happened.sessions);
    Ok(())
}

/// What is watched.
static WATCHED: AtomicU64 = AtomicU64::new(0);

#[inline(never)]
extern "C" fn landmark() {
    // Of its own: functions with the same code are one in the kernel's file, and others would be stopped here, too.
    black_box(0x6c61_6e64_6d61_726b_u64);
}

/// Arms the first hardware breakpoint of every CPU, or disarms it.
fn arm_everywhere(watch: Option<(u64, Access)>) {
    static ADDRESS: AtomicU64 = AtomicU64::new(0);
    static ACCESS: AtomicU64 = AtomicU64::new(0);
    ADDRESS.store(watch.map_or(0, |(address, _)| address), SeqCst);
    let number = watch.map_or(0, |(_, access)| match access {
        Access::Execute => 1,
        Access::Write => 2,
        Access::ReadWrite => 3,
    });
    ACCESS.store(number, SeqCst);
    let arm = |_| {
        let address = VirtAddr::new(ADDRESS.load(SeqCst));
        let access = match ACCESS.load(SeqCst) {
            1 => Some(Access::Execute),
            2 => Some(Access::Write),
            3 => Some(Access::ReadWrite),
            _ => None,
        };
        machine_debugger::set_watch(0, access.map(|access| (address, access)));
    };
    ::sync::remote::call(cpu::online(), arm, 0);
}

/// One CPU reads, another writes, each so often; hits are counted and stop nobody.
fn test_dbg_breakpoints() -> Outcome {
    const ACCESSES: u64 = 20;
    let (reader, writer) = (CpuId::BOOT, last_cpu());
    if reader == writer {
        return Ok(());
    }
    let data = (&raw const WATCHED) as u64;
    let code = landmark as extern "C" fn() as usize as u64;
    // Access, address, hits of the reader and of the writer.
    let cases = [
        (Access::Write, data, 0, ACCESSES),
        (Access::ReadWrite, data, ACCESSES, ACCESSES),
        (Access::Execute, code, ACCESSES, ACCESSES),
    ];
    for (access, address, by_reader, by_writer) in cases {
        let happened = scripted(&[], || {
            debugger::count_hits(true);
            arm_everywhere(Some((address, access)));
            let mut team = Team::new();
            team.start(reader, || {
                for _ in 0..ACCESSES {
                    black_box(WATCHED.load(Relaxed));
                    landmark();
                }
            })?;
            team.start(writer, || {
                for value in 0..ACCESSES {
                    WATCHED.store(value, Relaxed);
                    landmark();
                }
            })?;
            team.join()?;
            arm_everywhere(None);
            Ok(())
        });
        let hits = [reader, writer].map(|cpu| debugger::hits(cpu, 0));
        debugger::count_hits(false);
        let happened = happened?;
        check!(hits == [by_reader, by_writer], "{access:?}: {hits:?} hits, not {by_reader} and {by_writer}");
        check!(happened.sessions == 0, "{access:?}: counting stopped everybody");
        check!(happened.local == by_reader + by_writer, "{access:?}: {} handled locally", happened.local);
    }
    Ok(())
}

/// One that is not only counted stops all processors, whichever hits it. It is set and taken away in the dialogue. (With Fiasco's bug, for
/// which breakpoint instructions alone were requests, nobody else comes, and there is no session.)
fn hardware_breakpoint_stops_all() -> Outcome {
    let watch: &'static str =
        Box::leak(alloc::format!("watch {:x}", (&raw const WATCHED) as u64).into_boxed_str());
    let script: &'static [&'static str] =
        Box::leak(Box::new([watch, "continue", "cpus", "unwatch 0", "continue"]));
    for cpu in cpu::online().iter() {
        let happened = scripted(script, || {
            run_on(CpuId::BOOT, machine_debugger::breakpoint)?;
            run_on(cpu, || WATCHED.store(1, Relaxed))?;
            debugger::transcript(|text| {
                check!(!text.contains("left behind"), "a CPU did not come to {cpu}: {}", &text[..150]);
                Ok(())
            })?;
            said(&["(Watch)"])?;
            // It is gone from all of them.
            run_on(cpu, || WATCHED.store(2, Relaxed))
        })?;
        check!(
            happened.sessions == 2,
            "{} sessions, not one to set it and one for its hit",
            happened.sessions
        );
    }
    Ok(())
}

fn notices_dbg_vec3() -> Outcome {
    debugger::inject_defect(true);
    let outcome = hardware_breakpoint_stops_all();
    debugger::inject_defect(false);
    // There was no session to take the breakpoint back in.
    scripted(&["unwatch 0", "continue"], || run_on(CpuId::BOOT, machine_debugger::breakpoint))?;
    check!(outcome.is_err(), "a hit that stops nobody was not noticed");
    Ok(())
}

/// Repetitions of one team: a team that takes too long is taken for one that hangs.
const AT_A_TIME: u64 = 20;

/// The repetitions, in numbers for one team each.
fn teams() -> impl Iterator<Item = u64> {
    let all = repetitions();
    (0..all).step_by(AT_A_TIME as usize).map(move |done| AT_A_TIME.min(all - done))
}

fn entry_on_any_cpu_stops_all() -> Outcome {
    for cpu in cpu::online().iter() {
        let happened = scripted(&["cpus"], || {
            for times in teams() {
                run_on(cpu, move || (0..times).for_each(|_| machine_debugger::breakpoint()))?;
            }
            debugger::transcript(|text| {
                check!(!text.contains("left behind"), "a CPU did not come to {cpu}: {}", &text[..150]);
                Ok(())
            })
        })?;
        check!(
            happened.sessions == repetitions(),
            "{} sessions of {} on {cpu}",
            happened.sessions,
            repetitions()
        );
    }
    Ok(())
}

fn entry_on_all_at_once() -> Outcome {
    let cpus = cpu::online().count() as u64;
    let happened = scripted(&[], || {
        for times in teams() {
            let meeting = Arc::new(Meeting::new(cpus as u32));
            let mut team = Team::new();
            team.start_on_each(cpu::online(), move |_| {
                for _ in 0..times {
                    meeting.meet();
                    machine_debugger::breakpoint();
                }
            })?;
            team.join()?;
        }
        Ok(())
    })?;
    let sessions = happened.sessions;
    check!(
        (repetitions()..=repetitions() * cpus).contains(&sessions),
        "{sessions} sessions for {} requests",
        repetitions() * cpus
    );
    Ok(())
}

fn masked_cpu_comes() -> Outcome {
    let (asker, masked) = (CpuId::BOOT, last_cpu());
    if asker == masked {
        return Ok(());
    }
    let before = debugger::statistics().sessions;
    let is_masked = Arc::new(AtomicBool::new(false));
    let happened = scripted(&["cpus"], || {
        let mut team = Team::new();
        let told = is_masked.clone();
        team.start(masked, move || {
            let _interrupts = interrupt::disable();
            told.store(true, Release);
            while debugger::statistics().sessions == before {
                cpu::relax();
            }
        })?;
        team.start(asker, move || {
            while !is_masked.load(Acquire) {
                cpu::relax();
            }
            machine_debugger::breakpoint();
        })?;
        team.join()?;
        debugger::transcript(|text| {
            check!(!text.contains("left behind"), "the CPU did not come: {}", &text[..150]);
            Ok(())
        })
    })?;
    check!(happened.sessions == 1, "{} sessions", happened.sessions);
    Ok(())
}

/// One CPU waits, with interrupts off, for the answer of one that has them off as well; a third one enters.
fn waiting_cpu_comes() -> Outcome {
    if cpu::online().count() < 3 {
        return Ok(());
    }
    let [asker, waiter, masked] = [0, 1, 2].map(CpuId::from_index);
    let before = debugger::statistics().sessions;
    let stage = Arc::new(AtomicU64::new(0));
    let happened = scripted(&["cpus", "boxes"], || {
        let mut team = Team::new();
        let told = stage.clone();
        team.start(masked, move || {
            let _interrupts = interrupt::disable();
            told.store(1, Release);
            while debugger::statistics().sessions == before {
                cpu::relax();
            }
        })?;
        let told = stage.clone();
        team.start(waiter, move || {
            while told.load(Acquire) == 0 {
                cpu::relax();
            }
            let _interrupts = interrupt::disable();
            message_box::request(masked, Request { kind: Kind::Noop, words: [0; WORDS] });
        })?;
        team.start(asker, move || {
            while stage.load(Acquire) == 0 || message_box::state_of(waiter, masked).is_none() {
                cpu::relax();
            }
            machine_debugger::breakpoint();
        })?;
        team.join()?;
        said(&["waits for an answer", "noop->2"])
    })?;
    check!(happened.sessions == 1, "{} sessions", happened.sessions);
    Ok(())
}

/// Waits until every non-maskable interrupt that was sent to a CPU in here has arrived: with one of them the button's would become one.
fn await_non_maskable(cpu: CpuId) -> Outcome {
    let limit = ::machine::time::now_ns() + super::HANG_NS;
    while ipi::awaits_non_maskable(cpu) && ::machine::time::now_ns() < limit {
        cpu::relax();
    }
    check!(!ipi::awaits_non_maskable(cpu), "{cpu} still awaits a non-maskable interrupt");
    Ok(())
}

/// The button stops all, once.
fn press_and_look() -> Outcome {
    await_non_maskable(last_cpu())?;
    let happened = scripted(&["cpus"], || {
        let before = debugger::statistics().sessions;
        machine_debugger::press_button(last_cpu());
        let limit = ::machine::time::now_ns() + super::HANG_NS;
        while debugger::statistics().sessions == before && ::machine::time::now_ns() < limit {
            cpu::relax();
        }
        said(&["Button"])
    })?;
    check!(happened.sessions == 1, "{} sessions", happened.sessions);
    Ok(())
}

/// A non-maskable interrupt that nobody in here has sent.
fn button_stops_all() -> Outcome {
    press_and_look()?;
    // One that somebody in here has sent only counts.
    let happened = scripted(&[], || {
        let before = interrupt::vector_count(last_cpu(), NON_MASKABLE);
        ipi::send_non_maskable(last_cpu());
        await_non_maskable(last_cpu())?;
        check!(interrupt::vector_count(last_cpu(), NON_MASKABLE) > before, "it has not arrived");
        Ok(())
    })?;
    check!(happened.sessions == 0, "a test's own interrupt stopped everybody");
    Ok(())
}

/// A CPU that can't take a non-maskable interrupt yet remembers one, however many were sent.
fn button_after_merged() -> Outcome {
    if cpu::online().count() < 2 {
        return Ok(());
    }
    run_on(CpuId::BOOT, || {
        let arrived = || interrupt::vector_count(last_cpu(), NON_MASKABLE);
        let (before, mut sent) = (arrived(), 0);
        // At most one is on its way, so with two that have not arrived some have become one.
        while sent < arrived() - before + 2 {
            ipi::send_non_maskable(last_cpu());
            sent += 1;
        }
    })?;
    press_and_look()
}

/// Non-maskable interrupts that the last CPU had taken before the button was pressed; all ones before that.
static TAKEN_BEFORE: AtomicU64 = AtomicU64::new(u64::MAX);

fn button_has_arrived() -> bool {
    let before = TAKEN_BEFORE.load(SeqCst);
    before != u64::MAX && interrupt::vector_count(last_cpu(), NON_MASKABLE) > before
}

/// A CPU that is slow to leave a session, when all others go on already, gets the button's interrupt. It has asked for the session itself:
/// one that was brought to it by a non-maskable interrupt takes no other before it has left.
fn button_on_the_way_out() -> Outcome {
    if cpu::online().count() < 2 {
        return Ok(());
    }
    await_non_maskable(last_cpu())?;
    // A session of the test before may have brought that CPU by a non-maskable interrupt, and it may not have left: the window would open on
    // that way out, where the button's interrupt cannot come. When a thread has run there, it has left.
    run_on(last_cpu(), || ())?;
    let happened = scripted(&["cpus", "continue", "cpus", "continue"], || {
        TAKEN_BEFORE.store(u64::MAX, SeqCst);
        window::arm(debugger::LEAVING, last_cpu(), Some(button_has_arrived));
        let sessions = debugger::statistics().sessions;
        let mut team = Team::new();
        team.start(CpuId::BOOT, move || {
            let limit = ::machine::time::now_ns() + super::HANG_NS / 2;
            while !window::is_open() && ::machine::time::now_ns() < limit {
                cpu::relax();
            }
            TAKEN_BEFORE.store(interrupt::vector_count(last_cpu(), NON_MASKABLE), SeqCst);
            machine_debugger::press_button(last_cpu());
            while debugger::statistics().sessions < sessions + 2 && ::machine::time::now_ns() < limit {
                cpu::relax();
            }
        })?;
        team.start(last_cpu(), machine_debugger::breakpoint)?;
        team.join()?;
        check!(window::disarm(), "the CPU did not pass the way out");
        said(&["Breakpoint", "Button"])
    })?;
    check!(happened.sessions == 2, "{} sessions", happened.sessions);
    Ok(())
}

/// A CPU that has made up its mind to halt until the session is over is woken before it does.
fn woken_before_it_halts() -> Outcome {
    if cpu::online().count() < 2 {
        return Ok(());
    }
    let limit = ::machine::time::now_ns() + super::HANG_NS;
    scripted(&[], || {
        loop {
            await_non_maskable(last_cpu())?;
            run_on(last_cpu(), || ())?;
            TAKEN_BEFORE.store(interrupt::vector_count(last_cpu(), NON_MASKABLE), SeqCst);
            window::arm(machine_debugger::HALTING, last_cpu(), Some(button_has_arrived));
            run_on(CpuId::BOOT, machine_debugger::breakpoint)?;
            run_on(last_cpu(), || ())?;
            // One that comes when the session is over already does not halt, and one that was forced to come neither.
            if window::disarm() {
                return Ok(());
            }
            check!(::machine::time::now_ns() < limit, "{} never halts", last_cpu());
        }
    })?;
    Ok(())
}

/// With the debugger off, what asks for it does nothing, and is no bug of the kernel's either.
fn off_nothing_enters() -> Outcome {
    let before = debugger::statistics();
    for cpu in cpu::online().iter() {
        await_non_maskable(cpu)?;
        run_on(cpu, || {
            machine_debugger::breakpoint();
            machine_debugger::press_button(cpu::current());
        })?;
    }
    check!(debugger::statistics() == before, "{:?}, not {before:?}", debugger::statistics());
    Ok(())
}

fn another_cpu_becomes_active() -> Outcome {
    if cpu::online().count() < 2 {
        return Ok(());
    }
    let script = &["cpu 1", "registers", "cpu 63", "cpu", "cpu x", "cpu 0", "registers", "continue"];
    let happened = scripted(script, || {
        run_on(last_cpu(), machine_debugger::breakpoint)?;
        said(&[
            "kdb 0> cpu 1",
            "kdb 1> registers",
            "no such processor here",
            "kdb 1> cpu 0",
            "kdb 0> continue",
        ])
    })?;
    check!(happened.sessions == 1 && happened.turns == 3, "{happened:?}");
    Ok(())
}

fn commands_show() -> Outcome {
    let script = &[
        "help",
        "cpus",
        "registers",
        "backtrace",
        "threads",
        "backtrace 1",
        "queues",
        "boxes",
        "rcu",
        "pages ffffffff80200000",
        "memory ffffffff80200000 4",
        "memory 0",
        "slot 4",
        "bogus",
        "",
    ];
    scripted(script, || {
        run_on(CpuId::BOOT, machine_debugger::breakpoint)?;
        said(&[
            "all processors go on",
            "active, Breakpoint",
            "rip",
            "starling_thread_start",
            "Sleeping",
            "runnable",
            "flush_tlb",
            "pml4e",
            "ffffffff80200000:",
            "no such command",
        ])
    })?;
    Ok(())
}

/// A pseudo-random number.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// A line that a mad user might type.
fn mad_line(state: &mut u64) -> String {
    const WORDS: [&str; 20] = [
        "memory",
        "pages",
        "backtrace",
        "slot",
        "threads",
        "cpus",
        "queues",
        "boxes",
        "rcu",
        "registers",
        "help",
        "m",
        "p",
        "b",
        "0",
        "ffffffffffffffff",
        "ffffd00000000000",
        "-1",
        "0x",
        "99999999999999999999",
    ];
    let mut line = String::new();
    for _ in 0..next(state) % 5 {
        match next(state) % 4 {
            0 => line.push_str(&alloc::format!("{:x}", next(state))),
            1 => line.extend((0..next(state) % 40).map(|_| char::from((next(state) % 95 + 32) as u8))),
            _ => line.push_str(WORDS[next(state) as usize % WORDS.len()]),
        }
        line.push(' ');
    }
    // These would end the session, or stop the CPUs again later.
    if ["con", "cpu", "br", "wa", "unw"].iter().any(|start| line.trim_start().starts_with(start)) {
        line.insert(0, '!');
    }
    line
}

fn no_input_brings_it_down() -> Outcome {
    const LINES: usize = 400;
    let mut state = 0x2545_f491_4f6c_dd1d;
    let lines: Vec<&'static str> =
        (0..LINES).map(|_| &*Box::leak(mad_line(&mut state).into_boxed_str())).collect();
    let happened =
        scripted(Box::leak(lines.into_boxed_slice()), || run_on(last_cpu(), machine_debugger::breakpoint))?;
    check!(happened.sessions == 1, "{} sessions", happened.sessions);
    // Breakpoints that are not there, or not for the taking.
    let script = &[
        "watch",
        "watch 3",
        "break zz",
        "unwatch 9",
        "unwatch x",
        "watch 8",
        "watch 8",
        "watch 8 rw",
        "break 10",
        "break 18",
        "unwatch 0",
        "unwatch 1",
        "unwatch 2",
        "unwatch 3",
        "cpus",
    ];
    let happened = scripted(script, || {
        run_on(CpuId::BOOT, machine_debugger::breakpoint)?;
        said(&["breakpoint 3", "there are four breakpoints", "numbered from 0 to 3"])
    })?;
    check!(happened.sessions == 1, "{} sessions", happened.sessions);
    Ok(())
}
