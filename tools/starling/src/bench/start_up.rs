//! The suite `boot`: how soon the first program runs, and how little a machine needs. Measured from outside, on both machines.
//!
//! The time to the first program is that from the start of QEMU to the arrival of the first line that the program prints; Starling
//! can also tell when its first instruction was executed.

use std::time::Duration;

use super::figures::Figures;
use super::system::{self, Boot, System};
use crate::failure::Outcome;
use crate::image::Tree;
use crate::progress::Progress;
use crate::run::MachineKind;

/// Machines to boot.
const MACHINES: [MachineKind; 2] = [MachineKind::Microvm, MachineKind::Q35];
/// A machine that has not come up by then has too little memory.
const LIMIT: Duration = Duration::from_secs(30);
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
        figures.add(&system.name, "boot", "kernel_image", "KiB", bytes as f64 / 1024.0);
        progress.say(&format!("boot: the smallest memory for {}", system.name));
        let smallest = smallest_memory(boot, system, tree)?;
        figures.add(&system.name, "boot", "smallest_memory", "MiB", smallest as f64);
    }
    Ok(())
}

/// Mebibytes with which the benchmark program comes to its end.
fn smallest_memory(boot: &Boot, system: &System, tree: &Tree) -> Outcome<u64> {
    let (mut too_small, mut enough) = (1, boot.memory / MEBIBYTE);
    while enough - too_small > 1 {
        let middle = usize::midpoint(too_small as usize, enough as usize) as u64;
        let smaller = Boot { memory: middle * MEBIBYTE, ..*boot };
        let output = system::try_run(&smaller, system, tree, &["boot"], LIMIT)?;
        if output.lines.last().is_some_and(|line| line == "bench done") {
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
/// When it does not come to its end.
pub(super) fn each(boot: &Boot, system: &System, tree: &Tree, figures: &mut Figures) -> Outcome<()> {
    for machine in MACHINES {
        let boot = Boot { machine, ..*boot };
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let mut add = |test: &str, value| {
            figures.add(&system.name, "boot", &format!("{test}_{}", machine.name()), "ms", value);
        };
        let output = system::run(&boot, system, tree, &["boot"])?;
        add("first_output", milliseconds(output.first_line));
        if let Some(time) = output.first_instruction {
            add("first_instruction", milliseconds(time));
        }
        let shell = system::run(&boot, system, tree, &["shell"])?;
        add("shell_output", milliseconds(shell.first_line));
        if machine == MachineKind::Q35 {
            figures.add_lines(&system.name, &output.lines)?;
        }
    }
    Ok(())
}
