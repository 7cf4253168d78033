//! From the root file system to the command: what the machine was started for.
//!
//! The initramfs is unpacked into a tmpfs that becomes the root. Its last member, the run request, says what to run; the file is
//! removed before anything runs. The command is process 2; its end, told to the host, is the end of the machine.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use hostlink::{ExitKind, Link};
use hostlink_protocol::request::{FILE, Key, Records};
use linux::errno::Errno;
use linux::process::init::EndOfCommand;
use linux::start::Command;
use memory::buffer::Sink;
use memory::fallible;
use tmpfs::archive::{BootArchive, unpack};
use vfs::flags::MountFlags;
use vfs::mount::{Mount, MountNamespace};
use vfs::{FileSystemContext, LookupFlags, OpenFlags, OpenHow, PathContext, Result};

use crate::streams;

/// Largest run request.
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// Tells the host how the command ended.
struct Reporter;

impl EndOfCommand for Reporter {
    fn command_ended(&self, status: u32) {
        const SIGNAL_MASK: u32 = 0x7f;
        let kind = match status & SIGNAL_MASK {
            0 => ExitKind::Exited((status >> 8) as u8),
            signal => ExitKind::Killed(signal as u8),
        };
        if let Some(link) = Link::get() {
            link.exit(kind);
        }
        machine::power::power_off()
    }
}

/// What the run request says.
#[derive(Default)]
struct Request {
    arguments: Vec<Vec<u8>>,
    environment: Vec<Vec<u8>>,
    directory: Option<Vec<u8>>,
    terminal: bool,
    window: (u16, u16),
    user: (u32, u32),
}

impl Request {
    fn parse(bytes: &[u8]) -> Request {
        let number =
            |value: &[u8]| core::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut request = Request::default();
        for (key, value) in Records::new(bytes) {
            match key {
                Key::Argument => request.arguments.push(value.to_vec()),
                Key::Environment => request.environment.push(value.to_vec()),
                Key::WorkingDirectory => request.directory = Some(value.to_vec()),
                Key::Terminal => request.terminal = value == b"1",
                Key::Rows => request.window.0 = number(value) as u16,
                Key::Columns => request.window.1 = number(value) as u16,
                Key::User => {
                    let mut parts = value.split(|&byte| byte == b':').map(number);
                    request.user = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
                }
                Key::HostName => linux::identity::set_node_name(&String::from_utf8_lossy(value)),
            }
        }
        if request.arguments.is_empty() {
            request.arguments.push(b"/bin/sh".to_vec());
        }
        request
    }
}

/// Makes the root and runs the command. Returns when it has been started, or could not be.
pub(crate) fn run() {
    if let Err(errno) = linux::start::initialize(&Reporter) {
        log::error!("no memory for the personality: {errno:?}");
        return;
    }
    let prepared = prepare();
    machine::boot::trace("root file system");
    let outcome = prepared.map_err(Errno::from).and_then(|(context, request)| start(&context, request));
    if let Err(errno) = outcome {
        fail(errno, "the command could not be started");
    }
}

fn fail(errno: Errno, text: &str) {
    log::error!("{text}: {errno:?}");
    if let Some(link) = Link::get() {
        link.start_failed(errno.number(), text);
    }
    machine::power::power_off()
}

/// Unpacks the initramfs and reads the run request.
fn prepare() -> Result<(Arc<FileSystemContext>, Request)> {
    let superblock = tmpfs::new_instance("rootfs", 0o755)?;
    let root = superblock.root().clone();
    if let Some(archive) = BootArchive::new() {
        let unpacked = unpack(root.inode().ok_or(vfs::Error::Io)?, &archive)?;
        archive.release();
        log::info!("initramfs: {unpacked:?}");
    }
    let mount = Mount::new(superblock, root, b"rootfs", MountFlags::empty())?;
    let context = FileSystemContext::initial(MountNamespace::new(mount)?)?;
    let places = context.places();
    let credentials = vfs::Credentials::root();
    let walker = PathContext { places: &places, credentials: &credentials, umask: 0o022 };
    let bytes = read_file(&walker, FILE.as_bytes()).unwrap_or_default();
    if !bytes.is_empty() {
        walker.unlink(&places.root, FILE.as_bytes())?;
        // The directory goes too unless the image itself has files there.
        let _ = walker.remove_directory(&places.root, b".starling");
    }
    Ok((context, Request::parse(&bytes)))
}

fn read_file(walker: &PathContext<'_>, path: &[u8]) -> Result<Vec<u8>> {
    let how = OpenHow { flags: OpenFlags::empty(), mode: 0, resolve: LookupFlags::empty() };
    let file = walker.open(&walker.places.root, path, &how)?;
    let size = (file.status().size as usize).min(REQUEST_BYTES_MAX);
    let mut bytes = fallible::try_vec_of(0u8, size).map_err(|_| vfs::Error::OutOfMemory)?;
    let read = file.read_at(0, &mut Sink::kernel(&mut bytes))?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Starts process 2.
fn start(context: &Arc<FileSystemContext>, request: Request) -> core::result::Result<(), Errno> {
    let files = match Link::get() {
        Some(link) => streams::open(link)?.into(),
        None => Vec::new(),
    };
    if let Some(directory) = &request.directory
        && let Err(error) = enter(context, directory)
    {
        fail(error.into(), "workdir: no such directory");
    }
    let command = Command {
        arguments: request.arguments,
        environment: request.environment,
        user: request.user,
        file_system: context.clone(),
        files,
    };
    linux::start::run(command, started).map(drop)
}

fn enter(context: &FileSystemContext, directory: &[u8]) -> Result<()> {
    let places = context.places();
    let credentials = vfs::Credentials::root();
    let walker = PathContext { places: &places, credentials: &credentials, umask: 0o022 };
    let place = walker.walk_to_directory(&places.root, directory)?;
    context.set_cwd(&place)
}

/// Hears in the command's thread whether its program could be executed.
fn started(outcome: core::result::Result<(), Errno>) {
    match outcome {
        Ok(()) => {
            machine::boot::trace("command");
            if let Some(link) = Link::get() {
                link.first_user();
            }
        }
        Err(errno) => fail(errno, "the program could not be executed"),
    }
}
