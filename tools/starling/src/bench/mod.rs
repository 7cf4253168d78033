//! `starling bench`: the same static program on Starling and on a stock Linux kernel, in the same virtual machine, in turns.
//!
//! * [`system`]: what is compared, and one boot of it
//! * [`crate::linux::kernel`], [`revision`]: where the other kernels come from
//! * [`guest_image`]: the initramfs with the benchmark program, or that of traces (`user/bench`)
//! * [`fresh_disk`]: disks for suites that need one; [`apps`]: that with Debian's programs
//! * [`start_up`], [`stack_fault`]: what is measured from outside
//! * [`campaign`]: all boots of a suite
//! * [`figures`]: values of many runs, medians and ratios; [`environment`]: where they were taken
//! * [`table`], [`json`], [`report`], [`page`]: what is made of them
//! * [`record`]: instruction counts that are kept, to notice regressions

mod apps;
mod campaign;
mod charts;
mod environment;
mod figures;
pub(crate) mod fresh_disk;
pub(crate) mod guest_image;
mod json;
mod page;
mod record;
mod report;
pub(crate) mod revision;
mod stack_fault;
mod start_up;
mod system;
mod table;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::failure::{Failure, Outcome};
use crate::linux::kernel;
use crate::machine::{Accelerator, Kernel, Repository};
use crate::progress::Progress;
use crate::run::{AcceleratorChoice, MachineKind};
use campaign::Campaign;
use environment::Environment;
use figures::Figures;
use guest_image::Program;
use system::{Boot, Kind, System};

/// Measure Starling against Linux, or against another commit of Starling, in one run.
#[derive(Args, Debug)]
#[command(after_help = "\
Values are medians over the runs, with the extremes in percent; a ratio below 1 is in Starling's favour. `~` marks what
varied by more than 15 %. The exit status is 1 if a system did not run a suite to its end, or if --check found a difference.
The Linux kernel is Debian's linux-image-cloud-amd64, downloaded with apt-get and unpacked into the cache.")]
pub(crate) struct BenchArguments {
    /// Suites to run [default: all but apps]
    #[arg(value_enum)]
    suites: Vec<Suite>,

    /// What the suite `files` works on
    #[arg(long, value_enum, default_value = "memory")]
    fs: FileSystemKind,

    /// Number of processors [default: the host's; with --icount, 1]
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

    /// Count instructions instead of time: repeats, however busy the host is. With several processors, the suite scale
    #[arg(long, conflicts_with = "accel")]
    icount: bool,

    /// Compare with `linux`, with a commit of this repository, or with `none`
    #[arg(long, value_name = "linux|COMMIT|none", default_value = "linux")]
    against: String,

    /// Fail if an instruction count differs by more than 3 % from the one recorded in FILE [default: user/bench/instructions.txt]
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, conflicts_with_all = ["record", "accel", "cpus"])]
    check: Option<Option<PathBuf>>,

    /// Record the instruction counts in FILE, for --check [default: user/bench/instructions.txt]
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, conflicts_with_all = ["accel", "cpus"])]
    record: Option<Option<PathBuf>>,

    /// Write the figures to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write a page with charts to this file
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,

    /// Write the tables into this page, between its lines `<!-- figures -->`, with --icount `<!-- instruction figures -->`, and
    /// `<!-- end of figures -->`
    #[arg(long, value_name = "FILE.md")]
    table: Option<PathBuf>,
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
    /// Debian's programs, from a disk
    Apps,
    /// Files on an ext4: `files --fs ext4`
    #[value(skip)]
    FilesExt4,
}

/// Where the files of the suite `files` are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FileSystemKind {
    /// On a file system in memory
    Memory,
    /// On an ext4 on a virtio disk, or in memory with --icount; this is the only suite then
    Ext4,
}

/// The suites whose instruction counts are recorded.
const RECORDED: [Suite; 4] = [Suite::Calls, Suite::Process, Suite::Memory, Suite::Files];

impl Suite {
    /// Its name.
    fn name(self) -> String {
        self.to_possible_value().map_or_else(|| "files-ext4".into(), |value| value.get_name().to_owned())
    }

    /// Whether counting instructions on so many processors makes sense for it.
    fn counts_on(self, cpus: u32) -> bool {
        match self {
            Self::Boot => false,
            Self::Scale => cpus > 1,
            _ => cpus == 1,
        }
    }
}

impl BenchArguments {
    /// The file of recorded counts, if there is to do with it.
    fn recorded_counts(&self, repository: &Repository) -> Option<PathBuf> {
        let named = self.check.as_ref().or(self.record.as_ref())?;
        Some(named.clone().unwrap_or_else(|| repository.root().join(record::FILE)))
    }

    /// Whether the clock counts instructions.
    const fn counts_instructions(&self) -> bool {
        self.icount || self.check.is_some() || self.record.is_some()
    }

    /// Processors of the machine.
    fn processors(&self) -> u32 {
        self.cpus
            .unwrap_or_else(|| if self.counts_instructions() { 1 } else { crate::run::host_processors() })
    }

    /// What would only fail after a long time fails now.
    fn look_ahead(&self, recorded: Option<&Path>) -> Outcome<()> {
        for path in [&self.json, &self.report].into_iter().flatten().map(PathBuf::as_path).chain(recorded) {
            let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
            if path.is_dir() || directory.is_some_and(|directory| !directory.is_dir()) {
                return Err(Failure::ours(format!("{}: cannot be written", path.display())));
            }
        }
        if let Some(path) = &self.table {
            let accelerator = if self.counts_instructions() { Accelerator::Icount } else { Accelerator::Tcg };
            page::read(path, accelerator)?;
        }
        if let (true, Some(path)) = (self.check.is_some(), recorded) {
            record::read(path)?;
        }
        Ok(())
    }

    /// The suites that were asked for, or all that make sense.
    fn chosen_suites(&self) -> Outcome<Vec<Suite>> {
        if self.fs == FileSystemKind::Ext4 {
            let alone = self.suites.iter().all(|suite| *suite == Suite::Files);
            let recorded = self.check.is_some() || self.record.is_some();
            let fits = !self.counts_instructions() || Suite::FilesExt4.counts_on(self.processors());
            return if alone && !recorded && fits {
                Ok(vec![Suite::FilesExt4])
            } else {
                Err(Failure::ours(
                    "--fs ext4 goes with the suite files alone, without --check and --record, and with --icount on 1 CPU",
                ))
            };
        }
        let cpus = self.processors();
        let fits = |suite: &Suite| !self.counts_instructions() || suite.counts_on(cpus);
        if let Some(suite) = self.suites.iter().find(|suite| !fits(suite)) {
            let name = suite.name();
            return Err(Failure::ours(format!("the suite {name} does not go with --icount on {cpus} CPUs")));
        }
        let mut suites = match () {
            () if !self.suites.is_empty() => self.suites.clone(),
            () if self.check.is_some() || self.record.is_some() => RECORDED.to_vec(),
            // It needs root, and a way to Debian's packages.
            () => {
                let usual = Suite::value_variants().iter().copied().filter(|suite| *suite != Suite::Apps);
                usual.filter(fits).collect()
            }
        };
        let mut seen = Vec::new();
        suites.retain(|suite| {
            !seen.contains(suite) && {
                seen.push(*suite);
                true
            }
        });
        Ok(suites)
    }
}

/// Runs the suites and shows what they found.
///
/// # Errors
/// When a kernel cannot be had.
pub(crate) fn bench(arguments: &BenchArguments) -> Outcome<u8> {
    let progress = Progress::with_lines();
    let mut repository = Repository::find()?;
    let recorded = arguments.recorded_counts(&repository);
    if recorded.is_some() {
        repository = repository.with_declared_profile();
    }
    let suites = arguments.chosen_suites()?;
    arguments.look_ahead(recorded.as_deref())?;
    let (systems, opponent) = systems(arguments, recorded.is_some(), &repository, &progress)?;
    let mut tree = guest_image::tree(Program::Bench, &repository, &progress)?;
    if suites.contains(&Suite::FilesExt4) && systems.iter().any(|system| system.kind == Kind::Linux) {
        guest_image::add_modules(&mut tree, kernel::modules(&progress)?)?;
    }
    if suites.contains(&Suite::FilesExt4) && arguments.counts_instructions() {
        guest_image::add_disk(&mut tree, fresh_disk::FreshDisk::make()?.blocks()?)?;
    }
    let boot = Boot {
        machine: arguments.machine,
        accelerator: accelerator(arguments, &progress)?,
        cpus: arguments.processors(),
        memory: arguments.memory,
    };
    // Counts repeat, so that one run says all.
    let runs = if recorded.is_some() { 1 } else { arguments.runs };
    let mut figures = Figures::new(boot, &systems, runs);
    let apps = suites.contains(&Suite::Apps).then(|| apps::Apps::make(&repository, &progress)).transpose()?;
    let campaign =
        Campaign { boot, systems: &systems, tree: &tree, apps: apps.as_ref(), runs, progress: &progress };
    for suite in suites {
        campaign.run(suite, &mut figures)?;
        progress.finish();
        print(&table::suite(&figures, &suite.name()));
        // After each suite, so that an interruption costs only what it interrupts.
        figures.environment = Environment::look(&repository, opponent.clone())?;
        write(arguments, &figures)?;
    }
    println!("{}", environment::sentence(&figures));
    figures.failures.iter().for_each(|failure| println!("failed: {failure}"));
    let holds = recorded.map_or(Ok(true), |path| compare_or_record(arguments, &path, &figures))?;
    Ok(u8::from(!holds || !figures.failures.is_empty()))
}

/// Prints a part of the result, which is on its way before the next part is measured.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    // A closed standard output is no reason to lose what goes into files.
    let _ =
        std::io::Write::write_all(&mut out, text.as_bytes()).and_then(|()| std::io::Write::flush(&mut out));
}

/// Writes the files that were asked for.
fn write(arguments: &BenchArguments, figures: &Figures) -> Outcome<()> {
    if let Some(path) = &arguments.json {
        json::write(path, figures)?;
    }
    if let Some(path) = &arguments.report {
        report::write(path, figures)?;
    }
    match &arguments.table {
        Some(path) => page::write(path, figures),
        None => Ok(()),
    }
}

/// Compares with the recorded counts, and returns whether they hold, or records them.
fn compare_or_record(arguments: &BenchArguments, path: &Path, figures: &Figures) -> Outcome<bool> {
    if arguments.check.is_some() {
        return record::holds(path, figures);
    }
    // What did not run would be missing.
    if figures.failures.is_empty() {
        record::write(path, figures)?;
    }
    Ok(true)
}

/// What is compared, Starling first, and the other one in words.
fn systems(
    arguments: &BenchArguments,
    alone: bool,
    repository: &Repository,
    progress: &Progress,
) -> Outcome<(Vec<System>, String)> {
    let against = if alone { "none" } else { arguments.against.as_str() };
    let (other, words) = match against {
        "none" => (None, String::new()),
        "linux" => {
            let kernel = kernel::find(progress)?;
            let name = kernel.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            (Some(System::new("linux", Kind::Linux, kernel)), name)
        }
        commit => {
            let (name, kernel) = revision::kernel(repository, commit, progress)?;
            (Some(System::new(commit, Kind::Starling, kernel)), format!("commit {name}"))
        }
    };
    let own = Kernel::build(repository, progress)?.image;
    let own = System::new("starling", Kind::Starling, own);
    Ok(([own].into_iter().chain(other).collect(), words))
}

fn accelerator(arguments: &BenchArguments, progress: &Progress) -> Outcome<Accelerator> {
    if arguments.counts_instructions() {
        Ok(Accelerator::Icount)
    } else {
        crate::run::accelerator(arguments.accel, progress)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    /// What clap makes of a command line.
    #[derive(Parser, Debug)]
    struct Line {
        #[command(flatten)]
        arguments: BenchArguments,
    }

    fn parse(line: &str) -> BenchArguments {
        Line::try_parse_from(format!("bench {line}").split_whitespace()).expect("a good line").arguments
    }

    fn names(line: &str) -> String {
        let suites = parse(line).chosen_suites().expect("they fit");
        suites.into_iter().map(Suite::name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn all_suites_run_unless_some_are_named() {
        assert_eq!(names(""), "boot calls process memory files unixbench threads scale");
        assert_eq!(names("files calls files"), "files calls");
    }

    #[test]
    fn instructions_are_counted_on_one_processor_unless_processors_are_compared() {
        assert_eq!(names("--icount"), "calls process memory files unixbench threads");
        assert_eq!(names("--check"), "calls process memory files");
        assert!(parse("--icount scale").chosen_suites().is_err());
        assert_eq!(names("--icount --cpus 2"), "scale");
        assert!(parse("--icount --cpus 2 calls").chosen_suites().is_err());
    }

    #[test]
    fn instructions_of_an_ext4_are_counted_on_one_processor() {
        assert_eq!(names("--fs ext4"), "files-ext4");
        assert_eq!(names("--fs ext4 --icount files"), "files-ext4");
        for refused in
            ["--fs ext4 calls", "--fs ext4 --icount --cpus 2", "--fs ext4 --check", "--fs ext4 --record"]
        {
            assert!(parse(refused).chosen_suites().is_err(), "{refused}");
        }
    }

    #[test]
    fn recording_needs_no_further_option() {
        let arguments = parse("--record calls");
        assert!(arguments.counts_instructions());
        assert_eq!(arguments.record, Some(None));
        assert_eq!(parse("--check=/tmp/x").check, Some(Some("/tmp/x".into())));
    }

    #[test]
    fn files_that_cannot_be_written_are_refused_before_anything_runs() {
        assert!(parse("--json /nonexistent/x").look_ahead(None).is_err());
        assert!(parse("--report /tmp").look_ahead(None).is_err());
        assert!(parse("--table /nonexistent.md").look_ahead(None).is_err());
        assert!(parse("--json x.json").look_ahead(None).is_ok());
    }
}
