//! The command whose threads are traced: the library and its recorder are built, and the command is run under them.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;

use crate::failure::{Context, Failure, Outcome, STATUS_SIGNAL_BASE};
use crate::machine::Repository;
use crate::run::{self, RunArguments, Volume, size};

/// The sources, in the repository.
const SOURCES: &str = "user/threads";
const LIBRARY: &str = "libthreads.so";
const RECORDER: &str = "record";
/// What the recorder consists of; all other files are the library's.
const OF_RECORDER: [&str; 2] = ["record.c", "options.c"];
/// Where the guest sees them.
const PLACE: &str = "/starling-threads";
/// What the recorder appends to the name of a file whose successor it writes.
const BEFORE: &str = ".before";
const USUAL_OUTPUT: &str = "threads.trace";
const BUFFER_MIN: u64 = 4096;
const BUFFER_MAX: u64 = 1 << 32;
/// The buffer is that part of the memory, for each processor.
const PART_OF_MEMORY: u64 = 128;

#[derive(Args, Debug)]
pub(super) struct RecordArguments {
    /// The file with the records
    #[arg(short, long, value_name = "FILE", default_value = USUAL_OUTPUT)]
    output: PathBuf,

    /// Size of the buffer that the threads write to, a power of two [default: memory times processors, divided by 128]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    buffer: Option<u64>,

    /// Keep the last records only, of this size at most and of a third of it at least
    #[arg(long, value_name = "SIZE", value_parser = size)]
    last: Option<u64>,

    /// Record nothing more when there are that many bytes
    #[arg(long, value_name = "SIZE", value_parser = size, conflicts_with = "last")]
    limit: Option<u64>,

    /// What is recorded: ALL, IO (entries and exits of functions only) or NONE, or some of PROCESS, THREAD, MUTEX, COND, BARRIER, SEM, RWLOCK, SPIN,
    /// TIMER, QUEUE, DATA with _ALL or _IO behind it and commas between
    #[arg(long, value_name = "LEVEL", default_value = "ALL")]
    level: String,

    /// Stop the command when its threads have waited for room in the buffer for so long
    #[arg(long, value_name = "MILLISECONDS", default_value = "10000")]
    patience: u32,

    /// Run the command on this machine instead of a virtual one
    #[arg(long)]
    host: bool,

    #[command(flatten)]
    run: RunArguments,
}

/// Runs the command and returns its exit status.
///
/// # Errors
/// When it can't be started, or the records can't be had.
pub(super) fn record(arguments: &RecordArguments) -> Outcome<u8> {
    if arguments.run.command.is_empty() {
        return Err(Failure::ours("which command? (starling trace threads -- COMMAND)"));
    }
    let folder = tempfile::tempdir().context(|| "a directory for what is recorded".into())?;
    let every_user = fs::Permissions::from_mode(0o777);
    fs::set_permissions(folder.path(), every_user).context(|| "a directory for what is recorded".into())?;
    build(&Repository::find()?, folder.path())?;
    if arguments.host {
        on_this_machine(arguments, folder.path())
    } else {
        in_the_guest(arguments, folder.path())
    }
}

/// Compiles the recorder and the library.
fn build(repository: &Repository, folder: &Path) -> Outcome<()> {
    let sources = repository.root().join(SOURCES);
    let entries = fs::read_dir(&sources).context(|| sources.display().to_string())?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let (recorder, library): (Vec<_>, Vec<_>) = names
        .filter(|name| Path::new(name).extension().is_some_and(|extension| extension == "c"))
        .partition(|name| OF_RECORDER.contains(&name.as_str()));
    compile(&sources, &recorder, &["-static", "-pthread"], &folder.join(RECORDER))?;
    // Cancellation unwinds through the library's functions, and its variables are there from the start of each thread.
    let options = ["-shared", "-fPIC", "-fexceptions", "-ftls-model=initial-exec"];
    compile(&sources, &library, &options, &folder.join(LIBRARY))
}

fn compile(sources: &Path, files: &[String], options: &[&str], output: &Path) -> Outcome<()> {
    let mut compiler = Command::new("cc");
    compiler.current_dir(sources).args(["-O2", "-std=gnu11", "-Wall", "-Wextra"]).args(options);
    compiler.arg("-o").arg(output).args(files).stdin(Stdio::null());
    let output = compiler.output().context(|| "cc".into())?;
    if output.status.success() {
        return Ok(());
    }
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    Err(Failure::ours("the tracer does not build"))
}

/// The recorder's words before the command: it, its files and its options.
fn words(
    arguments: &RecordArguments,
    place: &Path,
    file: &Path,
    memory: u64,
    cpus: u64,
) -> Outcome<Vec<OsString>> {
    let buffer = match arguments.buffer {
        Some(size) => size,
        None => usual_buffer(memory, cpus),
    };
    if !buffer.is_power_of_two() || !(BUFFER_MIN..=BUFFER_MAX).contains(&buffer) {
        return Err(Failure::ours("--buffer: the size is a power of two from 4096 bytes to 4 GiB"));
    }
    let mut words: Vec<OsString> = vec![place.join(RECORDER).into(), "-o".into(), file.into()];
    words.extend(["-p".into(), place.join(LIBRARY).into()]);
    let mut add = |option: &str, value: String| words.extend([option.into(), value.into()]);
    add("-s", buffer.to_string());
    add("-l", arguments.level.clone());
    add("-t", arguments.patience.to_string());
    for (option, size) in [("-k", arguments.last), ("-m", arguments.limit)] {
        if let Some(size) = size {
            add(option, size.to_string());
        }
    }
    words.push("--".into());
    Ok(words)
}

/// A power of two below the share of memory.
fn usual_buffer(memory: u64, cpus: u64) -> u64 {
    let share = (memory * cpus / PART_OF_MEMORY).clamp(BUFFER_MIN, BUFFER_MAX);
    1 << share.ilog2()
}

fn on_this_machine(arguments: &RecordArguments, folder: &Path) -> Outcome<u8> {
    let memory = memory_of_this_machine()?;
    let cpus = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    // Straight into the output, which may be no file: there is room in it or there is not.
    let words = words(arguments, folder, &arguments.output, memory, cpus)?;
    let mut recorder = Command::new(&words[0]);
    recorder.args(&words[1..]).args(&arguments.run.command);
    let status = recorder.status().context(|| RECORDER.into())?;
    if arguments.last.is_some() {
        join(&arguments.output, &arguments.output)?;
    }
    let signal = std::os::unix::process::ExitStatusExt::signal(&status);
    let code = status.code().or(signal.map(|signal| i32::from(STATUS_SIGNAL_BASE) + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}

fn memory_of_this_machine() -> Outcome<u64> {
    let text = fs::read_to_string("/proc/meminfo").context(|| "/proc/meminfo".into())?;
    let total =
        text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
    Ok(total.unwrap_or(0u64) * 1024)
}

fn in_the_guest(arguments: &RecordArguments, folder: &Path) -> Outcome<u8> {
    let run = &arguments.run;
    let cpus = run.cpus.map_or_else(
        || std::thread::available_parallelism().map_or(1, |count| count.get() as u64),
        u64::from,
    );
    let place = Path::new(PLACE);
    let mut command = words(arguments, place, &place.join("trace"), run.memory, cpus)?;
    command.extend(run.entrypoint.iter().filter(|program| !program.is_empty()).cloned());
    command.extend(run.command.iter().cloned());
    let mut run = run.clone();
    run.command = command;
    // The image's would come before the recorder.
    run.entrypoint = Some(OsString::new());
    run.volume.push(Volume {
        directory: folder.to_path_buf(),
        place: PLACE.into(),
        read_only: false,
        cached: false,
    });
    let status = run::run(&run);
    let trace = folder.join("trace");
    // The command may not even have begun: then its failure says more.
    if trace.exists() {
        join(&trace, &arguments.output)?;
    }
    status
}

/// Puts the file's records behind those of the one before it, if there is one, and the whole where it was wanted.
fn join(file: &Path, output: &Path) -> Outcome<()> {
    let mut name = file.as_os_str().to_owned();
    name.push(BEFORE);
    let before = PathBuf::from(name);
    let last = fs::read(file).context(|| file.display().to_string())?;
    let whole = if before.exists() {
        let mut whole = fs::read(&before).context(|| before.display().to_string())?;
        whole.extend_from_slice(super::file::records_of(&last).unwrap_or_default());
        fs::remove_file(&before).context(|| before.display().to_string())?;
        whole
    } else {
        last
    };
    fs::write(output, whole).context(|| output.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffer_is_a_share_of_memory_for_each_processor() {
        assert_eq!(usual_buffer(1 << 30, 2), 16 << 20);
        assert_eq!(usual_buffer(1000 << 20, 1), 4 << 20);
        assert_eq!(usual_buffer(0, 1), BUFFER_MIN);
    }
}
