//! All boots of a suite: each system in its turn, so that what changes on the host with time changes for all.
//!
//! A boot that does not come to its end is told at the end; what it had measured by then counts, and the other boots go on.

use super::Suite;
use super::apps::Apps;
use super::figures::Figures;
use super::fresh_disk::{self, FreshDisk};
use super::system::{self, Boot, System};
use super::{stack_fault, start_up};
use crate::failure::Outcome;
use crate::image::Tree;
use crate::machine::Accelerator;
use crate::progress::Progress;

/// What all suites of one call have in common.
#[derive(Debug)]
pub(super) struct Campaign<'a> {
    /// The machine.
    pub(super) boot: Boot,
    /// The compared, Starling first.
    pub(super) systems: &'a [System],
    /// The image of all.
    pub(super) tree: &'a Tree,
    /// The disk of the suite apps.
    pub(super) apps: Option<&'a Apps>,
    /// Boots of each for each suite.
    pub(super) runs: u32,
    /// Says what is being done.
    pub(super) progress: &'a Progress,
}

impl Campaign<'_> {
    /// Runs a suite.
    ///
    /// # Errors
    /// When QEMU cannot be started, or what a system prints cannot be read.
    pub(super) fn run(&self, suite: Suite, figures: &mut Figures) -> Outcome<()> {
        let mut systems = self.systems.to_vec();
        if suite == Suite::Unixbench {
            // The thesis compares with stacks that are mapped from the start.
            systems.push(self.systems[0].with_kernel_argument("kstack=static", "kstack=static"));
        }
        if suite == Suite::Scale {
            // What processors share without clustered objects and spread counts.
            systems.push(self.systems[0].with_kernel_argument("clustered=off", "clustered=off"));
        }
        if suite == Suite::Boot {
            figures.begin_run(0);
            start_up::once(&self.boot, &systems, self.tree, self.progress, figures)?;
        }
        for run in 1..=self.runs {
            figures.begin_run(run);
            for system in &systems {
                self.progress.say(&format!("{}: {}, run {run} of {}", suite.name(), system.name, self.runs));
                self.boot(suite, system, figures)?;
            }
            if suite == Suite::Unixbench {
                self.progress
                    .say(&format!("unixbench: the cost of a stack fault, run {run} of {}", self.runs));
                stack_fault::measure(&self.boot, self.systems, figures)?;
            }
        }
        Ok(())
    }

    fn boot(&self, suite: Suite, system: &System, figures: &mut Figures) -> Outcome<()> {
        if suite == Suite::Boot {
            return start_up::each(&self.boot, system, self.tree, figures);
        }
        let name = suite.name();
        let samples = if self.boot.accelerator == Accelerator::Icount { &["short"][..] } else { &[] };
        let words = [samples, &[name.as_str()]].concat();
        let output = match suite {
            Suite::Apps => match self.apps {
                Some(apps) => apps.run(&self.boot, system, &words)?,
                None => return Ok(()),
            },
            Suite::FilesExt4 if self.boot.accelerator == Accelerator::Icount => {
                let [number, size] = fresh_disk::words_for_memory();
                let system = system.with_kernel_argument(&system.name, &number);
                let system = system.with_kernel_argument(&system.name, &size);
                system::run(&self.boot, &system, self.tree, &words)?
            }
            Suite::FilesExt4 => {
                let disk = FreshDisk::make()?;
                system::run_with_disk(&self.boot, system, self.tree, &words, &disk.disk)?
            }
            _ => system::run(&self.boot, system, self.tree, &words)?,
        };
        figures.add_lines(&system.name, &output.lines)?;
        if let Some(defect) = output.defect() {
            figures.add_failure(format!("{}: {name}: {defect}", system.name));
        }
        Ok(())
    }
}
