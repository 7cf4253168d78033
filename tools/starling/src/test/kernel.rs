//! Steps that boot the kernel with its own tests on the command line.

use std::process::Command;
use std::time::Duration;

use super::step::Step;
use super::tally;
use crate::failure::{Context, Outcome};
use crate::machine::Repository;

/// Machines and numbers of processors to boot.
const MACHINES: [(&str, u32); 5] =
    [("microvm", 1), ("microvm", 2), ("microvm", 4), ("q35", 2), ("microvm", 8)];
/// And when there is time.
const LONG_MACHINES: [(&str, u32); 3] = [("q35", 1), ("q35", 4), ("q35", 8)];
/// What processors send each other is tested on an odd number of them as well (specs/fiasco-mp.md §14.3).
const MESSAGES: &str = "test=message_box,ipc,ipc_races";
const MESSAGES_CPUS: u32 = 3;
/// How long the tests may take on one machine before they are taken for hanging. Each of them tells its own hang much sooner.
const LIMIT: Duration = Duration::from_secs(900);
/// And how long the step may take, which builds the kernel before if it has changed.
const STEP_LIMIT: Duration = Duration::from_secs(3600);

/// A flood of garbage on a small machine with RCU's defences, and without them, when it must exhaust memory.
const FLOODS: [(&str, &str); 2] =
    [("with defences", "rcu.unprotected=0"), ("without defences", "rcu.unprotected=1")];
/// Processors that enter the kernel debugger a thousand times in each way.
const DEBUGGED: [u32; 3] = [2, 4, 8];
const DEBUGGER_REPETITIONS: &str = "debugger.repetitions=1000";
/// On a busy host a session of all processors takes seconds.
const DEBUGGER_LIMIT: Duration = Duration::from_secs(7200);
/// Softirqs that flood programs, with instructions as the clock.
const STARVATION: [&str; 6] = [
    "--accel",
    "icount",
    "--kernel-arg",
    "test=softirq_flood,starvation",
    "--kernel-arg",
    "softirq_flood.clock=instructions",
];
/// A short sleep, with instructions as the clock.
const SLEEPING: [&str; 6] = [
    "--accel",
    "icount",
    "--kernel-arg",
    "test=timing::short_sleep_is_short",
    "--kernel-arg",
    "timing.clock=instructions",
];
/// File systems that are unmounted, with instructions as the clock.
const UNMOUNTING: [&str; 6] = [
    "--accel",
    "icount",
    "--kernel-arg",
    "test=mounts::unmounting_waits_for_no_timer",
    "--kernel-arg",
    "mounts.clock=instructions",
];
/// Messages, interrupts and locks under load (Figures 16 to 18 of specs/fiasco-mp.md, §J38 of specs/scalability.md), with instructions as
/// the clock.
const LOADS: [&str; 6] = [
    "--accel",
    "icount",
    "--kernel-arg",
    "test=ipc_loads,locks::lockbench",
    "--kernel-arg",
    "test.clock=instructions",
];
const LOADS_CPUS: u32 = 8;
/// The policies for RCU's callbacks (§J39), likewise.
const CALLBACKS: [&str; 6] = [
    "--accel",
    "icount",
    "--kernel-arg",
    "test=rcu::policies_compared",
    "--kernel-arg",
    "test.clock=instructions",
];
/// Historic bugs of message boxes, each with the test of the paper that must fail with it.
const BUGS: [(&str, &str); 2] =
    [("no_serve_while_waiting", "test_msg_parallel"), ("order_swapped", "test_msg_order")];
/// Ten minutes of torture for each flavour.
const TORTURE: &str = "test=rcu::torture_classic,rcu::torture_bh";
const TORTURE_SECONDS: &str = "rcu.torture_secs=600";
const TORTURE_LIMIT: Duration = Duration::from_secs(1500);

/// A million calls and answers on one CPU, and as many between two.
const ROUND_TRIPS: &str = "test=ipc_stress::many_round_trips";
const ROUND_TRIPS_COUNT: &str = "ipc.rounds=1000000";
const ROUND_TRIPS_LIMIT: Duration = Duration::from_secs(1500);

/// What message boxes and messages cost, in instructions: the paper's Tables 1 to 5, printed by tests that miss no row.
const COSTS: [&str; 4] = ["--accel", "icount", "--kernel-arg", "test=message_box_costs,ipc_costs"];
const COSTS_CPUS: u32 = 2;

const STRESS: &str = "test=ipc_stress::everything_at_once";

/// Tests with the full numbers of what is measured in the others, and on how many processors.
const FULL: &str = "test=percpu_long,processes_long,clustered_long";
const FULL_CPUS: [u32; 2] = [4, 8];

/// The steps of this group; with the long ones, whose stress of messages takes so many seconds, if a number is given.
///
/// # Errors
/// When this program does not know where it is.
pub(super) fn steps(repository: &Repository, stress_seconds: Option<u64>) -> Outcome<Vec<Step>> {
    let long = stress_seconds.is_some();
    let program = std::env::current_exe().context(|| "this program".into())?;
    let more = if long { &LONG_MACHINES[..] } else { &[] };
    let kernel = |machine: &str, cpus: u32, limit: Duration, options: &[&str]| {
        let mut starling = Command::new(&program);
        starling.current_dir(repository.root()).args(["run", "--verbose", "--machine", machine]);
        starling.args(["--cpus", &cpus.to_string(), "--timeout", &limit.as_secs().to_string()]);
        starling.args(options).args(["--", "/bin/true"]);
        starling
    };
    let boot = |&(machine, cpus): &(&str, u32)| {
        let starling = kernel(machine, cpus, LIMIT, &["--kernel-arg", "test=all"]);
        Step::new(format!("kernel tests on {machine} with {cpus} CPUs"), starling, tally::kernel_log)
            .within(STEP_LIMIT)
    };
    let flood = |&(name, unprotected): &(&str, &str)| {
        let options = ["--memory", "64M", "--kernel-arg", "test=rcu_flood", "--kernel-arg", unprotected];
        Step::new(format!("RCU flood {name}"), kernel("microvm", 2, LIMIT, &options), tally::kernel_log)
            .within(STEP_LIMIT)
    };
    let mut steps: Vec<Step> =
        MACHINES.iter().chain(more).map(boot).chain(FLOODS.iter().map(flood)).collect();
    let starling = kernel("microvm", MESSAGES_CPUS, LIMIT, &["--kernel-arg", MESSAGES]);
    steps.push(
        Step::new(format!("messages with {MESSAGES_CPUS} CPUs"), starling, tally::kernel_log)
            .within(STEP_LIMIT),
    );
    let starling = kernel("microvm", 1, LIMIT, &STARVATION);
    steps.push(
        Step::new("softirqs starve nobody, in instructions", starling, tally::kernel_log).within(STEP_LIMIT),
    );
    let starling = kernel("microvm", 1, LIMIT, &SLEEPING);
    steps.push(
        Step::new("short sleeps are short, in instructions", starling, tally::kernel_log).within(STEP_LIMIT),
    );
    let starling = kernel("microvm", 4, LIMIT, &UNMOUNTING);
    steps.push(
        Step::new("unmounting waits for no timer, in instructions", starling, tally::kernel_log)
            .within(STEP_LIMIT),
    );
    let starling = kernel("microvm", LOADS_CPUS, LIMIT, &LOADS);
    steps.push(
        Step::new("messages, interrupts and locks under load, in instructions", starling, tally::kernel_log)
            .within(STEP_LIMIT),
    );
    let starling = kernel("microvm", 1, LIMIT, &CALLBACKS);
    steps.push(
        Step::new("policies for RCU's callbacks, in instructions", starling, tally::kernel_log)
            .within(STEP_LIMIT),
    );
    steps.extend(BUGS.map(|(bug, test)| {
        let (bug, test) = (format!("bug={bug}"), format!("test={test}"));
        let starling =
            kernel("microvm", 2, LIMIT, &["--kernel-arg", test.as_str(), "--kernel-arg", bug.as_str()]);
        Step::new(format!("{test} fails with {bug}"), starling, tally::failing_kernel_log).within(STEP_LIMIT)
    }));
    if long {
        steps.extend(FULL_CPUS.iter().map(|&cpus| {
            let starling = kernel("microvm", cpus, TORTURE_LIMIT, &["--kernel-arg", FULL]);
            Step::new(format!("kernel tests in full with {cpus} CPUs"), starling, tally::kernel_log)
                .within(TORTURE_LIMIT * 2)
        }));
        let starling = kernel("microvm", COSTS_CPUS, LIMIT, &COSTS);
        let name = format!("costs of messages with {COSTS_CPUS} CPUs");
        steps.push(Step::new(name, starling, tally::kernel_log).within(STEP_LIMIT));
        let mut starling = Command::new(&program);
        starling.current_dir(repository.root()).args(["trace", "messages", "--check"]);
        steps.push(
            Step::new("messages with and without other processors", starling, tally::closing_line)
                .within(STEP_LIMIT * 2),
        );
        let options = ["--kernel-arg", "test=debugger", "--kernel-arg", DEBUGGER_REPETITIONS];
        steps.extend(DEBUGGED.map(|cpus| {
            let starling = kernel("microvm", cpus, DEBUGGER_LIMIT, &options);
            let name = format!("kernel debugger, entered a thousand times with {cpus} CPUs");
            Step::new(name, starling, tally::kernel_log).within(DEBUGGER_LIMIT * 2)
        }));
        let options = ["--kernel-arg", TORTURE, "--kernel-arg", TORTURE_SECONDS];
        let starling = kernel("q35", 8, TORTURE_LIMIT, &options);
        steps.push(
            Step::new("RCU torture for 20 minutes", starling, tally::kernel_log).within(TORTURE_LIMIT * 2),
        );
        for cpus in [2, 4] {
            let options = ["--kernel-arg", ROUND_TRIPS, "--kernel-arg", ROUND_TRIPS_COUNT];
            let starling = kernel("microvm", cpus, ROUND_TRIPS_LIMIT, &options);
            let name = format!("a million round trips of messages with {cpus} CPUs");
            steps.push(Step::new(name, starling, tally::kernel_log).within(ROUND_TRIPS_LIMIT * 2));
        }
    }
    if let Some(seconds) = stress_seconds {
        let limit = Duration::from_secs(seconds) + LIMIT;
        let duration = format!("ipc.stress_secs={seconds}");
        let starling = kernel("q35", 8, limit, &["--kernel-arg", STRESS, "--kernel-arg", &duration]);
        let name = format!("messages under stress for {seconds} s");
        steps.push(Step::new(name, starling, tally::kernel_log).within(limit + STEP_LIMIT));
    }
    Ok(steps)
}
