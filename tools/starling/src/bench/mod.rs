//! `starling bench`: the same static program on Starling and on a stock Linux kernel, in the same virtual machine, in turns.
//!
//! * [`system`]: what is compared, and one boot of it
//! * [`linux_kernel`], [`revision`]: where the other kernels come from
//! * [`guest_image`]: the initramfs with the benchmark program (`user/bench`)
//! * [`start_up`]: the suite that is measured from outside
//! * [`figures`]: values of many runs, medians and ratios
//! * [`table`], [`json`], [`report`]: what is made of them
//! * [`record`]: instruction counts that are kept, to notice regressions

mod figures;
mod guest_image;
mod json;
mod linux_kernel;
mod record;
mod report;
mod revision;
mod start_up;
mod system;
mod table;

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::failure::{Failure, Outcome};
use crate::image::Tree;
use crate::machine::{Accelerator, Kernel, Repository};
use crate::progress::Progress;
use crate::run::{AcceleratorChoice, MachineKind};
use figures::Figures;
use system::{Boot, Kind, System};

/// Measure Starling against Linux, or against another commit of Starling, in one run.
#[derive(Args, Debug)]
#[command(after_help = "\
Values are medians over the runs; a ratio below 1 is in Starling's favour. `~` marks what varied by more than 15 %.
The Linux kernel is Debian's linux-image-cloud-amd64, downloaded with apt-get and unpacked into the cache.")]
pub(crate) struct BenchArguments {
    /// Suites to run [default: all]
    #[arg(value_enum)]
    suites: Vec<Suite>,

    /// Number of processors [default: the host's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    cpus: Option<u32>,

    /// How often each system is booted for each suite
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,

    /// Memory of the virtual machines
    #[arg(short, long, value_name = "SIZE", default_value = "1G", value_parser = crate::run::memory_size)]
    memory: u64,

    /// Kind of virtual machine; the suite boot uses all
    #[arg(long, value_enum, default_value = "q35")]
    machine: MachineKind,

    /// What executes the guest's instructions
    #[arg(long, value_enum, default_value = "auto")]
    accel: AcceleratorChoice,

    /// Count instructions instead of time, on one processor: repeats exactly
    #[arg(long, conflicts_with_all = ["accel", "cpus"])]
    icount: bool,

    /// Compare with `linux`, with a commit of this repository, or with `none`
    #[arg(long, value_name = "linux|COMMIT|none", default_value = "linux")]
    against: String,

    /// Fail if an instruction count differs by more than 3 % from the one in this file
    #[arg(long, value_name = "FILE", requires = "icount", conflicts_with = "record")]
    check: Option<PathBuf>,

    /// Write the instruction counts to this file, for --check
    #[arg(long, value_name = "FILE", requires = "icount")]
    record: Option<PathBuf>,

    /// Write the figures to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write a page with charts to this file
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Suite {
    /// From the start of QEMU to the first program; memory after that
    Boot,
    /// Single system calls
    Calls,
    /// Processes and threads: start, end, execution, switches
    Process,
    /// Page faults and mappings
    Memory,
    /// Files on a file system in memory
    Files,
    /// The five tests of the thesis on demand-paged kernel stacks
    Unixbench,
    /// Memory of sleeping threads and processes
    Threads,
    /// The same work on 1, 2, ... processors
    Scale,
}

impl Suite {
    /// Its name.
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Whether counting instructions makes sense for it.
    fn runs_on_one_processor(self) -> bool {
        !matches!(self, Self::Boot | Self::Scale)
    }
}

/// Runs the suites and shows what they found.
///
/// # Errors
/// When a kernel cannot be had or a system does not run a suite to its end.
pub(crate) fn bench(arguments: &BenchArguments) -> Outcome<u8> {
    let progress = Progress::new();
    let repository = Repository::find()?;
    let chosen = suites(arguments)?;
    let tree = guest_image::tree(&repository, &progress)?;
    let systems = systems(arguments, &repository, &progress)?;
    let boot = Boot {
        machine: arguments.machine,
        accelerator: accelerator(arguments, &progress)?,
        cpus: if arguments.icount { 1 } else { arguments.cpus.unwrap_or_else(crate::run::host_processors) },
        memory: arguments.memory,
    };
    let mut figures = Figures::new(boot, &systems, arguments.runs);
    for suite in chosen {
        run_suite(suite, arguments.runs, &boot, &systems, &tree, &progress, &mut figures)?;
    }
    progress.finish();
    print!("{}", table::text(&figures));
    if let Some(path) = &arguments.json {
        json::write(path, &figures)?;
    }
    if let Some(path) = &arguments.report {
        report::write(path, &figures)?;
    }
    if let Some(path) = &arguments.record {
        record::write(path, &figures)?;
    }
    match &arguments.check {
        Some(path) => Ok(u8::from(!record::holds(path, &figures)?)),
        None => Ok(0),
    }
}

/// The suites that were asked for, or all that make sense.
fn suites(arguments: &BenchArguments) -> Outcome<Vec<Suite>> {
    let all = || Suite::value_variants().iter().copied();
    let fits = |suite: &Suite| !arguments.icount || suite.runs_on_one_processor();
    if arguments.suites.is_empty() {
        return Ok(all().filter(fits).collect());
    }
    match arguments.suites.iter().find(|suite| !fits(suite)) {
        Some(suite) => Err(Failure::ours(format!("the suite {} does not go with --icount", suite.name()))),
        None => Ok(arguments.suites.clone()),
    }
}

/// What is compared; Starling comes first.
fn systems(arguments: &BenchArguments, repository: &Repository, progress: &Progress) -> Outcome<Vec<System>> {
    let own = Kernel::build(repository, progress)?.image;
    let mut systems = vec![System::new("starling", Kind::Starling, own)];
    match arguments.against.as_str() {
        "none" => {}
        "linux" => systems.push(System::new("linux", Kind::Linux, linux_kernel::find(progress)?)),
        commit => {
            systems.push(System::new(commit, Kind::Starling, revision::kernel(repository, commit, progress)?))
        }
    }
    Ok(systems)
}

fn accelerator(arguments: &BenchArguments, progress: &Progress) -> Outcome<Accelerator> {
    if arguments.icount {
        Ok(Accelerator::Icount)
    } else {
        crate::run::accelerator(arguments.accel, progress)
    }
}

fn run_suite(
    suite: Suite,
    runs: u32,
    boot: &Boot,
    systems: &[System],
    tree: &Tree,
    progress: &Progress,
    figures: &mut Figures,
) -> Outcome<()> {
    let mut systems = systems.to_vec();
    if suite == Suite::Unixbench {
        // The thesis compares with stacks that are mapped from the start.
        let own = &systems[0];
        systems.push(own.with_kernel_argument("starling kstack=static", "kstack=static"));
    }
    if suite == Suite::Boot {
        start_up::once(boot, &systems, tree, progress, figures)?;
    }
    for run in 1..=runs {
        // In turns, so that what changes on the host with time changes for all.
        for system in &systems {
            progress.say(&format!("{}: {}, run {run} of {runs}", suite.name(), system.name));
            if suite == Suite::Boot {
                start_up::each(boot, system, tree, figures)?;
            } else {
                let name = suite.name();
                let samples = if boot.accelerator == Accelerator::Icount { &["short"][..] } else { &[] };
                let output = system::run(boot, system, tree, &[samples, &[name.as_str()]].concat())?;
                figures.add_lines(&system.name, &output.lines)?;
            }
        }
    }
    progress.finish();
    eprintln!("{}: done", suite.name());
    Ok(())
}
