//! From the boot archive to the first program.
//!
//! The initramfs becomes the root file system, the device, process and terminal file systems are mounted into it, and
//! the command that the host asked for (the run request in the archive) becomes process 2. Without a request it is
//! an interactive shell on the console. Its end is reported to the host, which ends the machine; without a host
//! link the machine powers itself off.
//!
//! # Two at a time
//! The files and the process need nothing of each other before the program is executed. So the boot thread unpacks and mounts
//! while a second thread starts the personality and makes the process, on another processor where there is one.
//! Who is ready last ([`meet`]) starts the command; nobody waits.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::{host_link, root, shared_folders};
use hostlink::{ExitKind, Link};
use hostlink_protocol::request::{self, Key, Records};
use linux::errno::Errno;
use linux::process::init::MachineEnd;
use linux::signal::set::Signal;
use linux::start::{Command, Prepared};
use machine::boot;
use sched::WaitQueue;
use sync::{Once, SpinLock};
use tmpfs::archive::{self, BootArchive};
use vfs::credentials::Credentials;
use vfs::file::OpenFile;
use vfs::flags::{LookupFlags, MountFlags, OpenFlags};
use vfs::mount::{Mount, MountNamespace, MountSource, Path};
use vfs::superblock::{Superblock, find_file_system};
use vfs::tree::OpenHow;
use vfs::walk::{FileSystemContext, PathContext};

/// Largest run request: what `execve` would take as arguments and environment, roughly.
const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// Where file systems are mounted: type, place, flags, options.
const MOUNTS: [(&str, &str, MountFlags, &[u8]); 5] = [
    ("devtmpfs", "dev", MountFlags::NO_SET_ID, b""),
    ("proc", "proc", NO_PROGRAMS, b""),
    ("sysfs", "sys", NO_PROGRAMS, b""),
    ("devpts", "dev/pts", MountFlags::NO_SET_ID.union(MountFlags::NO_EXECUTE), b"mode=620,ptmxmode=666"),
    ("tmpfs", "dev/shm", MountFlags::NO_SET_ID.union(MountFlags::NO_DEVICES), b"mode=1777"),
];
const NO_PROGRAMS: MountFlags =
    MountFlags::NO_SET_ID.union(MountFlags::NO_DEVICES).union(MountFlags::NO_EXECUTE);

/// Input, output and error.
const STANDARD_DESCRIPTORS: usize = 3;
/// The thread that looks for devices leaves the first program nearly all of the time.
const DEVICES_NICE: i32 = 19;
/// Permission bits of directories made here.
pub(crate) const DIRECTORY_MODE: u32 = 0o755;

/// What the host asked for.
#[derive(Default)]
struct Request {
    arguments: Vec<Vec<u8>>,
    environment: Vec<Vec<u8>>,
    working_directory: Option<Vec<u8>>,
    on_terminal: bool,
    rows: u16,
    columns: u16,
    user: (u32, u32),
    host_name: Option<Vec<u8>>,
    /// As [`Key::Root`] says.
    root: Option<Vec<u8>>,
    /// As [`Key::Volume`] says.
    volumes: Vec<Vec<u8>>,
}

impl Request {
    fn parse(bytes: &[u8]) -> Request {
        let mut request =
            Request { on_terminal: bytes.is_empty(), rows: 24, columns: 80, ..Request::default() };
        for (key, value) in Records::new(bytes) {
            match key {
                Key::Argument => request.arguments.push(value.to_vec()),
                Key::Environment => request.environment.push(value.to_vec()),
                Key::WorkingDirectory => request.working_directory = Some(value.to_vec()),
                Key::Terminal => request.on_terminal = value == b"1",
                Key::Rows => request.rows = number(value).unwrap_or(request.rows),
                Key::Columns => request.columns = number(value).unwrap_or(request.columns),
                Key::User => request.user = parse_user(value),
                Key::HostName => request.host_name = Some(value.to_vec()),
                Key::Root => request.root = Some(value.to_vec()),
                Key::Volume => request.volumes.push(value.to_vec()),
            }
        }
        if request.arguments.is_empty() {
            request.arguments.push(b"/bin/sh".to_vec());
        }
        request
    }
}

fn number<T: core::str::FromStr>(text: &[u8]) -> Option<T> {
    core::str::from_utf8(text).ok()?.parse().ok()
}

fn parse_user(text: &[u8]) -> (u32, u32) {
    let mut parts = text.splitn(2, |&byte| byte == b':');
    let user = parts.next().and_then(number).unwrap_or(0);
    (user, parts.next().and_then(number).unwrap_or(0))
}

/// Why the command can't be started before its program is even looked at.
pub(crate) struct CannotStart {
    errno: u16,
    what: Cow<'static, str>,
}

impl CannotStart {
    pub(crate) fn new(what: impl Into<Cow<'static, str>>, error: vfs::Error) -> CannotStart {
        CannotStart { errno: error.errno() as u16, what: what.into() }
    }

    fn no_memory() -> CannotStart {
        CannotStart::new("memory", vfs::Error::OutOfMemory)
    }
}

/// Starts the host link and the first program and keeps the boot thread parked; the machine ends with the program.
pub(crate) fn run() -> ! {
    // First of all, so that another processor has something to do.
    let beside = alloc::boxed::Box::new(|| conclude(make_process()));
    let beside = sched::spawn(sched::Builder::new("start"), beside);
    host_link::start();
    boot::trace("host link");
    conclude(beside.map_err(|_| CannotStart::no_memory()).and_then(|_| place_files()));
    park()
}

/// The calling thread has nothing more to do.
fn park() -> ! {
    loop {
        WaitQueue::new().wait_until(|| false);
    }
}

/// Tells the host when one of the two halves has failed.
fn conclude(outcome: Result<(), CannotStart>) {
    let Err(reason) = outcome else { return };
    log::error!("cannot start the command: {} (errno {})", reason.what, reason.errno);
    root::end();
    match Link::get() {
        Some(link) => link.start_failed(reason.errno, &reason.what),
        None => machine::power::power_off(),
    }
}

/// What the two threads of the start-up have ready for each other.
static MEETING: SpinLock<Meeting> = SpinLock::new(Meeting { wanted: None, files: None, process: None });
/// Where the second thread waits for what is wanted.
static TOLD: WaitQueue = WaitQueue::new();

struct Meeting {
    /// What the process shall be, and where it shall look for files.
    wanted: Option<(Request, Arc<FileSystemContext>)>,
    /// All files are in their places.
    files: Option<Files>,
    /// The process, and whether it has its open files.
    process: Option<(Prepared, bool)>,
}

/// The boot thread's half: the files. Beside it, another processor makes the process that shall use them.
fn place_files() -> Result<(), CannotStart> {
    register_file_systems();
    let archive = BootArchive::new();
    let request = match &archive {
        Some(archive) => archive::find(archive, request::FILE.as_bytes(), REQUEST_BYTES_MAX)
            .map_err(|error| CannotStart::new("image: cannot be unpacked", error))?,
        None => None,
    };
    let mut request = Request::parse(request.as_deref().unwrap_or_default());
    let working_directory = request.working_directory.take();
    let volumes = core::mem::take(&mut request.volumes);
    let is_elsewhere = request.root.is_some();
    let (root, mount) = match request.root.take() {
        Some(wanted) => root::mount(&wanted)?,
        None => {
            let root = tmpfs::new_instance("tmpfs", DIRECTORY_MODE).map_err(root_error)?;
            let flags = MountFlags::RELATIVE_ACCESS_TIME;
            let mount = Mount::new(root.clone(), root.root().clone(), b"tmpfs", flags);
            (root, mount.map_err(root_error)?)
        }
    };
    let namespace = MountNamespace::new(mount).map_err(root_error)?;
    let context = FileSystemContext::initial(namespace).map_err(root_error)?;
    MEETING.lock().wanted = Some((request, context.clone()));
    TOLD.wake_all();

    match archive {
        Some(archive) if is_elsewhere => archive.release(),
        Some(archive) => fill_root(&root, archive)?,
        None => {}
    }
    boot::trace("unpack initramfs");
    let files = Files { context, credentials: Credentials::root() };
    files.with_walk(mount_all);
    for volume in volumes {
        files.with_walk(|walk| shared_folders::mount(walk, &volume)).map_err(|error| {
            log::error!("volume {}: {error}", volume.escape_ascii());
            CannotStart::new("volume: the directory cannot be mounted in the guest", error)
        })?;
    }
    boot::trace("mount");
    if let Some(directory) = working_directory {
        let place = files.with_walk(|walk| walk.walk_to_directory(&walk.places.cwd, &directory)).map_err(
            |error| CannotStart::new("workdir: the working directory does not exist in the image", error),
        )?;
        files.context.set_cwd(&place).map_err(|_| CannotStart::no_memory())?;
    }
    meet(|meeting| meeting.files = Some(files))
}

/// The other half: the personality, and process 2. Nothing here may look at a file of the image.
fn make_process() -> Result<(), CannotStart> {
    linux::start::initialize(&Ended).map_err(|_| CannotStart::no_memory())?;
    boot::trace("personality");
    let mut wanted = None;
    TOLD.wait_until(|| {
        wanted = MEETING.lock().wanted.take();
        wanted.is_some()
    });
    let Some((request, context)) = wanted else { return Ok(()) };
    // These have one instance each. It is made here, where there is time; the boot thread finds it when it mounts it.
    for kind in ["devtmpfs", "proc", "sysfs", "devpts"] {
        let _ = find_file_system(kind.as_bytes()).and_then(|found| found.mount(kind.as_bytes(), b""));
    }
    boot::trace("file systems");
    if let Some(name) = &request.host_name {
        linux::identity::set_host_name(name);
    }
    let mut terminal = None;
    let mut streams = Vec::new();
    if let Some(link) = Link::get() {
        link.set_control(&HostControl);
        let console = console::terminal::start(link, request.rows, request.columns)
            .map_err(|_| CannotStart::no_memory())?;
        if request.on_terminal {
            terminal = Some(console);
        } else {
            streams = open_streams(link)?;
        }
    }
    let has_streams = !streams.is_empty();
    boot::trace("standard streams");
    let command = Command {
        arguments: request.arguments,
        environment: request.environment,
        user: request.user,
        file_system: context,
        files: streams,
        terminal,
    };
    let process = linux::start::prepare(command, program_started).map_err(|_| CannotStart::no_memory())?;
    boot::trace("process");
    meet(|meeting| meeting.process = Some((process, has_streams)))
}

/// Lays down what the calling thread has ready. If it comes second, it starts the command.
fn meet(lay_down: impl FnOnce(&mut Meeting)) -> Result<(), CannotStart> {
    let (files, (process, has_streams)) = {
        let mut meeting = MEETING.lock();
        lay_down(&mut meeting);
        match (meeting.files.take(), meeting.process.take()) {
            (Some(files), Some(process)) => (files, process),
            (files, process) => {
                (meeting.files, meeting.process) = (files, process);
                return Ok(());
            }
        }
    };
    if !has_streams {
        let device: &[u8] = if Link::get().is_some() { b"dev/console" } else { b"dev/null" };
        let file = files.with_walk(|walk| open_device(walk, device))?;
        for _ in 0..STANDARD_DESCRIPTORS {
            process.give(file.clone()).map_err(|_| CannotStart::no_memory())?;
        }
    }
    if devices_come_first() {
        look_for_devices();
        boot::trace("devices");
        process.start();
    } else {
        process.start();
        find_devices();
    }
    Ok(())
}

/// Whether the machine is meant to have its devices from the first program on: because it is told so, or told of devices
/// beyond the one that the host link moves to.
fn devices_come_first() -> bool {
    boot::info().option("devices") == Some("first") || virtio::count_named() > usize::from(host_link::moves())
}

/// Finds the devices that are on no bus, and those on PCI where ACPI tells of any, and the partitions of disks.
pub(crate) fn look_for_devices() {
    host_link::move_when_found();
    virtio::initialize();
    nvme::initialize();
    if boot::has_firmware_tables() {
        device::pci::initialize();
    }
    block::disk::wait_for_partitions();
}

/// Has devices looked for where ACPI or the command line tells of them, beside the first program and after it: ports of PCI Express have to hear of
/// events whether somebody looks at them or not.
fn find_devices() {
    if !boot::has_firmware_tables() && virtio::count_named() == 0 {
        return;
    }
    let mut builder = sched::Builder::new("devices");
    builder.nice = sched::Nice::clamped(DEVICES_NICE);
    if sched::spawn(builder, alloc::boxed::Box::new(look_for_devices)).is_err() {
        log::warn!("no memory to look for devices; the first look at /sys will");
    }
}

/// The files that the command finds, and who put them there.
struct Files {
    context: Arc<FileSystemContext>,
    credentials: Credentials,
}

impl Files {
    fn with_walk<R>(&self, work: impl FnOnce(&PathContext<'_>) -> R) -> R {
        let places = self.context.places();
        work(&PathContext { places: &places, credentials: &self.credentials, umask: 0 })
    }
}

fn register_file_systems() {
    vfs::superblock::register_file_system(&tmpfs::TMPFS);
    vfs::superblock::register_file_system(&tmpfs::RAMFS);
    vfs::superblock::register_file_system(&tmpfs::HUGETLBFS);
    devfs::register(linux::random::fill);
    vfs::initialize();
    vfs::superblock::register_file_system(&procfs::PROCFS);
    vfs::superblock::register_file_system(&sysfs::SYSFS);
    vfs::superblock::register_file_system(&debugfs::DEBUGFS);
    devpts::register();
    cgroup::register();
    console::nodes::register(devpts::find);
    device_files::register();
    loop_device::register();
    vfs::superblock::register_file_system(&linux::binfmt_misc::BINFMT_MISC);
    vfs::superblock::register_file_system(&linux::mqueue::MQUEUE);
    virtio::register(linux::random::mix);
    linux::proc::register_devices();
    ext4::mounted::register();
    squashfs::mounted::register();
    vfs::superblock::register_file_system(&overlay::OVERLAY);
    fuse::register();
    devfs::nodes::add(devfs::nodes::Node {
        path: "fuse",
        kind: vfs::FileKind::CharacterDevice,
        number: fuse::device::NUMBER,
        mode: 0o666,
    });
    p9::mounted::register();
    p9::set_killed(linux::start::is_caller_killed);
    p9::stream::set_opened(linux::start::opened_by_caller);
    linux::proc::profile::start();
    if let Err(error) = block::ram_disk::attach_wanted() {
        log::error!("disks in memory: {error}");
    }
}

fn root_error(error: vfs::Error) -> CannotStart {
    CannotStart::new("root", error)
}

/// Unpacks the boot archive into the root of the first name space. That is called `tmpfs`, as where a tmpfs was mounted
/// over Linux's rootfs: programs such as df leave a file system of the name `rootfs` out. The run request becomes no file.
fn fill_root(root: &Superblock, archive: BootArchive) -> Result<(), CannotStart> {
    let directory = root.root().existing().map_err(root_error)?;
    archive::unpack_except(directory, &archive, request::FILE.as_bytes())
        .map_err(|error| CannotStart::new("image: cannot be unpacked", error))?;
    archive.release();
    // The archive's memory counts from now on: the limit is half of all, as that of any tmpfs.
    root.remount(b"size=50%").map_err(root_error)
}

/// Mounts what every program expects. An image whose directories can't be made lacks them; it may not need them.
fn mount_all(walk: &PathContext<'_>) {
    for (kind, place, flags, options) in MOUNTS {
        if let Err(error) = mount(walk, kind, place, flags, options) {
            log::warn!("{kind} is not mounted on /{place}: {error}");
        }
    }
}

fn mount(
    walk: &PathContext<'_>,
    kind: &str,
    place: &str,
    flags: MountFlags,
    options: &[u8],
) -> vfs::Result<()> {
    let file_system = find_file_system(kind.as_bytes())?;
    let root = &walk.places.root;
    let find = || walk.walk(root, place.as_bytes(), LookupFlags::DIRECTORY);
    let target: Path = match find() {
        Err(vfs::Error::NotFound) => {
            walk.make_directory(root, place.as_bytes(), DIRECTORY_MODE)?;
            find()?
        }
        found => found?,
    };
    let source = MountSource::New { file_system, source: kind.as_bytes(), options };
    walk.places.namespace.mount(source, &target, flags | MountFlags::RELATIVE_ACCESS_TIME)
}

/// Descriptors 0, 1 and 2 of a command without a terminal.
fn open_streams(link: &'static Link) -> Result<Vec<Arc<OpenFile>>, CannotStart> {
    use console::stream::{self, Stream};
    let mut files = Vec::new();
    for stream in [Stream::Input, Stream::Output, Stream::Error] {
        files.push(stream::open(link, stream).map_err(|error| CannotStart::new("streams", error))?);
    }
    Ok(files)
}

fn open_device(walk: &PathContext<'_>, path: &[u8]) -> Result<Arc<OpenFile>, CannotStart> {
    let flags = OpenFlags::READ_WRITE | OpenFlags::NO_CONTROLLING_TERMINAL;
    walk.open(&walk.places.root, path, &OpenHow { flags, ..OpenHow::default() })
        .map_err(|error| CannotStart::new("console", error))
}

/// Hears whether the program could be executed; in its thread, right before its first instruction.
fn program_started(outcome: Result<(), Errno>) {
    boot::trace("execute");
    match outcome {
        Ok(()) => _ = Link::get().map(Link::first_user),
        // The process ends now. The host ends the machine when it hears of it, so that comes last of all.
        Err(errno) => _ = NOT_STARTED.call_once(|| errno),
    }
}

/// Why the program could not be executed.
static NOT_STARTED: Once<Errno> = Once::new();

/// Set when the host is about to be told, and the command's end says nothing new: a program ends the machine.
static ANSWERED: Once<()> = Once::new();

/// Prints whole lines with a mark in front by which `starling trace locks` finds them.
struct TraceLines(String);

impl core::fmt::Write for TraceLines {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for part in text.split_inclusive('\n') {
            self.0.push_str(part);
            if part.ends_with('\n') {
                machine::console::print(format_args!("lock-trace {}", self.0));
                self.0.clear();
            }
        }
        Ok(())
    }
}

struct Ended;

impl linux::process::init::EndOfCommand for Ended {
    fn command_ended(&self, status: u32) {
        if ANSWERED.get().is_some() {
            return;
        }
        if machine::boot::info().flag("trace-locks") {
            // What the text has no memory for is not printed.
            let _ = sync::classes::write_calls(&mut TraceLines(String::new()));
        }
        root::end();
        let Some(link) = Link::get() else { machine::power::power_off() };
        console::terminal::settle();
        let signal = (status & 0x7f) as u8;
        match NOT_STARTED.get() {
            // The host knows what it asked for, and has words for the number.
            Some(errno) => link.start_failed(errno.number(), ""),
            None if signal == 0 => link.exit(ExitKind::Exited((status >> 8) as u8)),
            None => link.exit(ExitKind::Killed(signal)),
        }
    }

    /// The host hears what reboot(2) says of a container: its first process dies of SIGHUP when it restarts, of SIGINT when it is
    /// halted or turned off. It then ends the machine.
    fn machine_ended(&self, how: MachineEnd) -> ! {
        // The command is among those that are killed now.
        ANSWERED.call_once(|| ());
        root::end();
        console::terminal::settle();
        let signal = if how == MachineEnd::Restart { Signal::SIGHUP } else { Signal::SIGINT };
        match (Link::get(), how) {
            (Some(link), _) => link.exit(ExitKind::Killed(signal.number())),
            (None, MachineEnd::Restart) => machine::power::reboot(),
            (None, MachineEnd::Halt | MachineEnd::PowerOff) => machine::power::power_off(),
        }
        park()
    }
}

struct HostControl;

impl hostlink::Control for HostControl {
    fn signal(&self, number: u8) {
        linux::start::signal_command(number);
    }

    fn terminate(&self) {
        root::end();
        machine::power::power_off();
    }
}
