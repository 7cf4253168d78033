//! What one fault of a kernel stack costs, beside the suite `unixbench`: the kernel's own test of it prints that. In cycles on the machine that
//! all tests run on, and in instructions where the clock counts them.

use std::process::{Command, Stdio};

use super::figures::{Figures, INSTRUCTIONS};
use super::system::{Boot, System};
use crate::failure::{Context, Failure, Outcome};
use crate::machine::Accelerator;

/// The kernel's test.
const TEST: &str = "kstack_costs::table";
/// Seconds that it may take.
const LIMIT: &str = "300";
const SUITE: &str = "unixbench";

/// Adds both costs. One that can't be had is reported as such.
///
/// # Errors
/// When the kernel cannot be started at all.
pub(super) fn measure(boot: &Boot, systems: &[System], figures: &mut Figures) -> Outcome<()> {
    let counted = (Accelerator::Icount, "stack_fault_instructions", INSTRUCTIONS);
    let timed = (boot.accelerator, "stack_fault_cycles", "cycles");
    // With a clock that counts instructions, a cycle is one.
    let ways = if boot.accelerator == Accelerator::Icount { &[counted][..] } else { &[timed, counted] };
    for (accelerator, test, unit) in ways.iter().copied() {
        let boot = Boot { accelerator, cpus: 1, ..*boot };
        let own = &systems[0];
        match cost(&kernel_log(&boot, own)?) {
            Some(cycles) => figures.add(&own.name, SUITE, test, unit, cycles),
            None => figures.add_unsupported(&own.name, SUITE, test, unit, "the kernel's test told nothing"),
        }
        if let Some(other) = figures.opponent().map(str::to_owned) {
            let why = "its stacks are mapped from the start";
            figures.add_unsupported(&other, SUITE, test, unit, why);
        }
    }
    Ok(())
}

/// What the kernel prints when it runs the test.
fn kernel_log(boot: &Boot, system: &System) -> Outcome<String> {
    let program = std::env::current_exe().context(|| "this program".into())?;
    let mut command = Command::new(program);
    command.args(["run", "--verbose", "--timeout", LIMIT, "--kernel-arg", &format!("test={TEST}")]);
    command.args(boot.options()).arg("--kernel").arg(&system.kernel).args(["--", "/bin/true"]);
    let output = command.stdin(Stdio::null()).output().context(|| "starling run".into())?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if text.is_empty() {
        Err(Failure::ours("the kernel's test of stack faults printed nothing"))
    } else {
        Ok(text)
    }
}

/// The first touch of a stack page without what a touch costs anyway.
fn cost(log: &str) -> Option<f64> {
    let median = |name: &str| -> Option<f64> {
        let line = log.lines().find(|line| line.contains(name))?;
        line.split_once("median ")?.1.split(' ').next()?.parse().ok()
    };
    Some(median("first touch of a stack page")? - median("cost of the second touch")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_the_first_touch_without_the_second() {
        let log = "\
[0.1] start\n\
cost of the first touch of a stack page: least 319 cycles (318 ns), median 320 cycles (319 ns), 792 samples\n\
cost of the second touch: least 5 cycles (4 ns), median 6 cycles (5 ns), 792 samples\n";
        assert_eq!(cost(log), Some(314.0));
        assert_eq!(cost("panic"), None);
    }
}
