//! `starling run`: from the options to the exit status.

mod arguments;
mod quantity;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

pub(crate) use arguments::{AcceleratorChoice, Disk, DiskModel, LinkKind, MachineKind, RunArguments, Volume};
use hostlink_protocol::ExitKind;
pub(crate) use quantity::{memory as memory_size, size};

use crate::failure::{
    Context, Failure, Outcome, STATUS_NOT_EXECUTABLE, STATUS_NOT_FOUND, STATUS_OURS, STATUS_SIGNAL_BASE,
    STATUS_TIMEOUT,
};
use crate::image::oci::Execution;
use crate::image::{self, FileSystem, Image, Initramfs, RunRequest, Tree, UserId};
use crate::machine::{
    Accelerator, Build, Configuration, Kernel, ROOT_DISK, Repository, Share, VirtualMachine,
};
use crate::progress::Progress;
use crate::session::{self, Conclusion, Dialogue, Options, Proxy};

const ENOENT: u16 = 2;
/// The size of a terminal that does not say.
const USUAL_TERMINAL: (u16, u16) = (24, 80);
/// The search path of a command, unless `--env` says otherwise.
const SEARCH_PATH: &[u8] = b"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs the command and returns the exit status of the tool.
///
/// # Errors
/// For whatever is not the command's own failure.
pub(crate) fn run(arguments: &RunArguments) -> Outcome<u8> {
    let (terminal, input) = streams(arguments)?;
    let progress = Progress::new();
    let shares = shares(arguments);
    let image = match &arguments.root {
        Some(root) => Image::from(image::accounts(root)),
        None => image::open(arguments.image.as_deref(), &progress)?,
    };
    let root_disk = root_disk(arguments, &image)?;
    let request = request(arguments, &image, terminal)?;
    let nothing = Tree::default();
    let tree = if arguments.root.is_some() { &nothing } else { &image.tree };
    let initramfs = Initramfs::build(tree, Some(&request), &progress)?;
    if initramfs.bytes >= arguments.memory {
        let mebibytes = |bytes: u64| bytes.div_ceil(1 << 20);
        return Err(Failure::ours(format!(
            "the image ({}M) does not fit into the memory ({}M): see --memory",
            mebibytes(initramfs.bytes),
            mebibytes(arguments.memory)
        )));
    }
    let kernel = match &arguments.kernel {
        Some(kernel) => Kernel::given(kernel)?,
        None => {
            let build = arguments.build.map_or_else(Build::from_environment, Ok)?;
            let build = build.able_to(arguments.kernel_arg.iter().map(String::as_str));
            Kernel::build_as(build, &Repository::find()?, &progress)?
        }
    };
    let accelerator = accelerator(arguments.accel, &progress)?;
    let debugger = debugger(arguments)?;
    progress.finish();
    let machine = VirtualMachine::start(&Configuration {
        machine: arguments.machine,
        accelerator,
        cpus: arguments.cpus.unwrap_or_else(host_processors),
        link: arguments.link,
        memory: arguments.memory,
        kernel: &kernel.image,
        kernel_arguments: &kernel_arguments(arguments, root_disk.is_some()),
        initramfs: &initramfs.file,
        devices: &arguments.device,
        disks: &arguments.disk,
        root: root_disk.as_ref(),
        shares: &shares,
        more: &arguments.qemu_arg,
        gdb: arguments.gdb,
        debugger: debugger.is_some(),
        plugin: arguments.qemu_plugin.as_deref(),
    })?;
    drop(initramfs);
    if let Some(port) = arguments.gdb {
        eprintln!(
            "starling: waiting for: gdb -ex 'target remote localhost:{port}' {}",
            kernel.symbols.display()
        );
    }
    let options = Options {
        terminal,
        input,
        verbose: arguments.verbose,
        timeout: arguments.timeout,
        boot_trace: arguments.boot_trace,
    };
    let end = Proxy::run(machine, options, debugger)?;
    if matches!(end.conclusion, Conclusion::Broken(_)) && !arguments.verbose {
        eprint!("{}", String::from_utf8_lossy(&end.log));
    }
    status(end.conclusion, arguments, request.arguments.first())
}

/// Whether the command gets a terminal, and whether standard input is forwarded to it.
fn streams(arguments: &RunArguments) -> Outcome<(bool, bool)> {
    let on_terminal = session::is_terminal();
    let terminal = arguments.tty || (arguments.command.is_empty() && on_terminal);
    if terminal && arguments.interactive && !on_terminal {
        return Err(Failure::ours("--tty and --interactive together want a terminal as standard input"));
    }
    Ok((terminal, !terminal || on_terminal))
}

/// The other end of the kernel debugger's dialogue, if there is to be one.
///
/// # Errors
/// When its script cannot be read.
fn debugger(arguments: &RunArguments) -> Outcome<Option<Dialogue>> {
    let Some(script) = &arguments.debugger else { return Ok(None) };
    let Some(path) = script else { return Ok(Some(Dialogue::with_the_user())) };
    let text = std::fs::read_to_string(path).context(|| path.display().to_string())?;
    Ok(Some(Dialogue::with_script(&text)))
}

/// The kernel command line. The kernel logs only errors unless it is told to log more, to start faster.
fn kernel_arguments(arguments: &RunArguments, has_root_disk: bool) -> Vec<String> {
    let mut words = arguments.kernel_arg.clone();
    if arguments.verbose && !words.iter().any(|word| word.starts_with("log=")) {
        words.insert(0, "log=info".into());
    }
    if arguments.boot_trace {
        words.push("boot-trace".into());
    }
    if arguments.debugger.is_some() {
        words.push("debugger=on".into());
    }
    if has_root_disk || !arguments.disk.is_empty() || !shares(arguments).is_empty() {
        words.push("devices=first".into());
    }
    if arguments.link == LinkKind::Virtio {
        words.push("link=virtio".into());
    }
    words
}

/// The disk that the image is, if it is a file system.
///
/// # Errors
/// When the guest is to change what it can't.
fn root_disk(arguments: &RunArguments, image: &Image) -> Outcome<Option<Disk>> {
    let can_be_written =
        arguments.root.is_some() || image.file_system.is_some_and(FileSystem::can_be_written);
    if arguments.rw && !can_be_written {
        return Err(Failure::ours(
            "--rw: only --root and an image that is an ext2, ext3 or ext4 file system can be written",
        ));
    }
    let (Some(_), Some(path)) = (image.file_system, &arguments.image) else { return Ok(None) };
    // QEMU takes what a relative name has before a colon for a protocol.
    let file = path.canonicalize().context(|| format!("image {}", path.display()))?;
    Ok(Some(Disk { file, read_only: !arguments.rw, model: DiskModel::Virtio }))
}

/// Where the root file system is, if it is not in the initramfs.
fn root(arguments: &RunArguments, image: &Image) -> Option<String> {
    let access = if arguments.rw { "rw" } else { "ro" };
    match image.file_system {
        Some(file_system) => Some(format!("{ROOT_DISK} {access} {}", file_system.name())),
        None => arguments.root.as_ref().map(|_| format!("{} {access}", Share::tag(0))),
    }
}

/// The directories of the host that the machine is given: first the root, then the volumes.
fn shares(arguments: &RunArguments) -> Vec<Share<'_>> {
    let root = arguments.root.iter().map(|directory| Share { directory, read_only: !arguments.rw });
    let volumes = arguments
        .volume
        .iter()
        .map(|volume| Share { directory: &volume.directory, read_only: volume.read_only });
    root.chain(volumes).collect()
}

/// What the kernel is to mount of them, besides the root.
fn volumes(arguments: &RunArguments) -> Vec<Vec<u8>> {
    let first = usize::from(arguments.root.is_some());
    let describe = |(index, volume): (usize, &Volume)| {
        let access = if volume.read_only { "ro" } else { "rw" };
        let caching = if volume.cached { ",loose" } else { "" };
        format!("{} {access}{caching} {}", Share::tag(index), volume.place).into_bytes()
    };
    (first..).zip(&arguments.volume).map(describe).collect()
}

/// The host's processors, as many as a machine may have.
pub(crate) fn host_processors() -> u32 {
    /// What the kernel supports.
    const MOST: usize = 64;
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(MOST);
    u32::try_from(count).unwrap_or(1)
}

/// The accelerator that the user wants.
///
/// # Errors
/// When the cache cannot be written.
pub(crate) fn accelerator(choice: AcceleratorChoice, progress: &Progress) -> Outcome<Accelerator> {
    match choice {
        AcceleratorChoice::Auto => Accelerator::detect(progress),
        AcceleratorChoice::Kvm => Ok(Accelerator::Kvm),
        AcceleratorChoice::Tcg => Ok(Accelerator::Tcg),
        AcceleratorChoice::Icount => Ok(Accelerator::Icount),
    }
}

fn request(arguments: &RunArguments, image: &Image, terminal: bool) -> Outcome<RunRequest> {
    let execution = &image.execution;
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let user = arguments.user.clone().or_else(|| given(&execution.user));
    let user = user.map_or(Ok(UserId::ROOT), |user| {
        UserId::parse(&user, &image.tree).map_err(|failure| match image.file_system {
            Some(_) => Failure::ours(format!(
                "user {user}: names are not looked up in an image that is a file system: give numbers"
            )),
            None => failure,
        })
    })?;
    let directory = arguments.workdir.clone().or_else(|| given(&execution.working_dir));
    let size = || session::terminal_size().unwrap_or(USUAL_TERMINAL);
    Ok(RunRequest {
        arguments: command(arguments, execution),
        environment: environment(arguments, execution, user, terminal)?,
        working_directory: directory.unwrap_or_else(|| "/".into()),
        terminal: terminal.then(size),
        user,
        host_name: arguments.hostname.clone(),
        root: root(arguments, image),
        volumes: volumes(arguments),
    })
}

/// The command's words, as docker puts them together: the image's entry point, then the user's words or the image's. An entry point of
/// the user's takes the place of both of the image's.
fn command(arguments: &RunArguments, execution: &Execution) -> Vec<Vec<u8>> {
    let of_image = |words: &Option<Vec<String>>| -> Vec<Vec<u8>> {
        words.iter().flatten().map(|word| word.clone().into_bytes()).collect()
    };
    let given = arguments.command.iter().map(|word| word.clone().into_vec());
    let (mut words, usual) = match &arguments.entrypoint {
        Some(program) if program.is_empty() => (Vec::new(), Vec::new()),
        Some(program) => (vec![program.clone().into_vec()], Vec::new()),
        None => (of_image(&execution.entrypoint), of_image(&execution.cmd)),
    };
    if arguments.command.is_empty() {
        words.extend(usual)
    } else {
        words.extend(given)
    }
    words
}

/// The command's environment: what docker sets, then what the image sets, then what the user sets.
fn environment(
    arguments: &RunArguments,
    execution: &Execution,
    user: UserId,
    terminal: bool,
) -> Outcome<Vec<Vec<u8>>> {
    let mut variables = vec![SEARCH_PATH.to_vec(), format!("HOSTNAME={}", arguments.hostname).into_bytes()];
    variables.push(if user == UserId::ROOT { b"HOME=/root".to_vec() } else { b"HOME=/".to_vec() });
    if terminal {
        let kind = std::env::var_os("TERM").unwrap_or_else(|| "linux".into());
        variables.push([b"TERM=", kind.as_bytes()].concat());
    }
    let mut set = |name: &[u8], value: &[u8]| {
        let start = [name, b"="].concat();
        variables.retain(|variable| !variable.starts_with(&start));
        variables.push([&start, value].concat());
    };
    for (name, value) in execution.env.iter().flatten().filter_map(|setting| setting.split_once('=')) {
        set(name.as_bytes(), value.as_bytes());
    }
    for setting in &arguments.env {
        let (name, value) = split_setting(setting)?;
        if let Some(value) = value.or_else(|| std::env::var_os(&name).map(OsStringExt::into_vec)) {
            set(name.as_bytes(), &value);
        }
    }
    Ok(variables)
}

fn split_setting(setting: &OsString) -> Outcome<(OsString, Option<Vec<u8>>)> {
    let bytes = setting.as_bytes();
    let (name, value) = match bytes.iter().position(|byte| *byte == b'=') {
        Some(end) => (&bytes[..end], Some(bytes[end + 1..].to_vec())),
        None => (bytes, None),
    };
    if name.is_empty() {
        return Err(Failure::ours(format!("--env {}: no name", setting.display())));
    }
    Ok((OsString::from_vec(name.to_vec()), value))
}

/// The exit status that says how the session ended, as docker's do.
fn status(conclusion: Conclusion, arguments: &RunArguments, program: Option<&Vec<u8>>) -> Outcome<u8> {
    match conclusion {
        Conclusion::Exit(ExitKind::Exited(status)) => Ok(status),
        Conclusion::Exit(ExitKind::Killed(signal)) | Conclusion::Interrupted(signal) => {
            Ok(STATUS_SIGNAL_BASE.saturating_add(signal))
        }
        Conclusion::TimedOut => {
            Err(Failure::with_status(STATUS_TIMEOUT, format!("timed out after {}", seconds(arguments))))
        }
        Conclusion::StartFailed(errno, text) => {
            let status = match errno {
                _ if ["workdir", "root", "volume"].iter().any(|what| text.starts_with(what)) => STATUS_OURS,
                ENOENT => STATUS_NOT_FOUND,
                _ => STATUS_NOT_EXECUTABLE,
            };
            let command = program.map_or("/bin/sh".into(), |word| String::from_utf8_lossy(word));
            let mut message = match (text.strip_prefix("root: "), &arguments.image) {
                (Some(reason), Some(image)) => format!("image {}: {reason}", image.display()),
                _ if text.is_empty() => command.into_owned(),
                _ => text,
            };
            if message.is_empty() || !message.contains(':') {
                let reason = std::io::Error::from_raw_os_error(errno.into()).to_string();
                let _ = write!(message, ": {}", reason.split(" (os error").next().unwrap_or(&reason));
            }
            Err(Failure::with_status(status, message))
        }
        Conclusion::Broken(how) => Err(Failure::ours(how)),
        Conclusion::Panicked => Err(Failure::ours("the kernel panicked")),
    }
}

fn seconds(arguments: &RunArguments) -> String {
    arguments.timeout.map_or_else(String::new, |timeout| format!("{} s", timeout.as_secs_f64()))
}
