//! The suite `boot`: how soon the first program runs, and how little a machine needs. Measured from outside, on both machines.
//!
//! The time to the first program is that from the start of QEMU to the arrival of the first line that the program prints; Starling
//! can also tell when its first instruction was executed.

use std::time::Duration;

use super::figures::Figures;
use super::system::{self, Boot, Load, Output, System};
use crate::failure::Outcome;
use crate::image::Tree;
use crate::progress::Progress;
use crate::run::MachineKind;

/// Machines to boot.
const MACHINES: [MachineKind; 2] = [MachineKind::Microvm, MachineKind::Q35];
/// A machine that has not come up by then has too little memory.
const LIMIT: Duration = Duration::from_secs(60);
const SUITE: &str = "boot";
const MEBIBYTE: u64 = 1 << 20;

/// What is the same in every run: sizes.
///
/// # Errors
/// When QEMU cannot be started.
pub(super) fn once(
    boot: &Boot,
    systems: &[System],
    tree: &Tree,
    progress: &Progress,
    figures: &mut Figures,
) -> Outcome<()> {
    for system in systems {
        let bytes = system::file_size(&system.kernel)?;
        figures.add(&system.name, SUITE, "kernel_image", "KiB", bytes as f64 / 1024.0);
        progress.say(&format!("boot: the smallest memory for {}", system.name));
        let smallest = smallest_memory(boot, system, tree)?;
        figures.add(&system.name, SUITE, "smallest_memory", "MiB", smallest as f64);
    }
    Ok(())
}

/// Mebibytes with which the benchmark program comes to its end.
fn smallest_memory(boot: &Boot, system: &System, tree: &Tree) -> Outcome<u64> {
    let load = Load { tree, suites: &["boot"], disk: None };
    let (mut too_small, mut enough) = (1, boot.memory / MEBIBYTE);
    while enough - too_small > 1 {
        let middle = usize::midpoint(too_small as usize, enough as usize) as u64;
        let smaller = Boot { memory: middle * MEBIBYTE, ..*boot };
        if system::run_within(&smaller, system, &load, LIMIT)?.defect().is_none() {
            enough = middle;
        } else {
            too_small = middle;
        }
    }
    Ok(enough)
}

/// One run of a system, on each machine.
///
/// # Errors
/// When QEMU cannot be started.
pub(super) fn each(boot: &Boot, system: &System, tree: &Tree, figures: &mut Figures) -> Outcome<()> {
    for machine in MACHINES {
        let boot = Boot { machine, ..*boot };
        let name = |test: &str| format!("{test}_{}", machine.name());
        let output = checked(&boot, system, tree, "boot", figures)?;
        match output.first_instruction {
            Some(time) => {
                figures.add(&system.name, SUITE, &name("first_instruction"), "ms", milliseconds(time))
            }
            None => {
                let why = "it does not tell";
                figures.add_unsupported(&system.name, SUITE, &name("first_instruction"), "ms", why);
            }
        }
        add_moment(figures, system, &name("first_output"), &output);
        if machine == MachineKind::Q35 {
            figures.add_lines(&system.name, &output.lines)?;
        }
        let shell = checked(&boot, system, tree, "shell", figures)?;
        add_moment(figures, system, &name("shell_output"), &shell);
    }
    Ok(())
}

/// A boot that is expected to come to its end.
fn checked(boot: &Boot, system: &System, tree: &Tree, what: &str, figures: &mut Figures) -> Outcome<Output> {
    let output = system::run(boot, system, tree, &[what])?;
    if let Some(defect) = output.defect() {
        figures.add_failure(format!("{}: {what} on {}: {defect}", system.name, boot.machine.name()));
    }
    Ok(output)
}

/// The arrival of the first line, if there was one.
fn add_moment(figures: &mut Figures, system: &System, test: &str, output: &Output) {
    if !output.lines.is_empty() {
        figures.add(&system.name, SUITE, test, "ms", milliseconds(output.first_line));
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
