//! QEMU: its command line, and the process with its connections.
//!
//! | connection | QEMU's end | carries |
//! |---|---|---|
//! | first link | standard input and output | the host link from the start (COM2) |
//! | second link | a socket | the host link, when the guest has found the virtio console that has this port |
//! | log | a pipe; with a debugger a socket | the kernel log (COM1), and the debugger's dialogue |
//! | complaints | standard error | what QEMU itself has to say |
//!
//! The machines are stripped to what the kernel uses, because every device costs start-up time. Measured under TCG, from
//! the start of QEMU to the kernel's first instruction: q35 with SeaBIOS 81 ms, with qboot 32 ms; microvm 25 ms.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::Instant;

use hostlink_protocol::PORT_NAME;
use rustix::io::FdFlags;
use rustix::pipe::PipeFlags;

use super::accelerator::Accelerator;
use crate::failure::{Context, Failure, Outcome};
use crate::run::{Disk, DiskModel, LinkKind, MachineKind};

/// Names another QEMU than the one in the search path.
const QEMU_VARIABLE: &str = "STARLING_QEMU";
/// A PC firmware that knows the way to a PVH kernel and nothing else. SeaBIOS takes 50 ms longer.
const QBOOT: &str = "/usr/share/qemu/qboot.rom";

/// Where the C library looks for the settings of its allocator.
const ALLOCATOR_VARIABLE: &str = "GLIBC_TUNABLES";
/// QEMU fills six mebibytes of heap before the guest runs. With one heap for all threads, on huge pages, that is a handful of
/// page faults instead of two thousand, and spares 4 ms of 30. A C library that does not know the words ignores them.
const ALLOCATOR: &str =
    "glibc.malloc.hugetlb=1:glibc.malloc.arena_max=1:glibc.malloc.mmap_threshold=16777216";

/// The serial number by which the guest knows the disk with its root file system.
pub(crate) const ROOT_DISK: &str = "starling-root";

/// The port of a virtio console to which the link moves. Nothing else is plugged into the console, and it comes behind all that the
/// user wants, so it is not in the way of the user's.
fn port_arguments(port: i32, on_pci: bool) -> Vec<String> {
    let console = if on_pci { "virtio-serial-pci,disable-legacy=on" } else { "virtio-serial-device" };
    let words = [
        "-chardev".into(),
        format!("socket,id=port,fd={port}"),
        "-device".into(),
        format!("{console},id=link,max_ports=2"),
        "-device".into(),
        format!("virtserialport,id={PORT_NAME},bus=link.0,nr=1,chardev=port,name={PORT_NAME}"),
    ];
    words.into()
}

/// What the virtual machine is made of.
#[derive(Debug)]
pub(crate) struct Configuration<'a> {
    /// Kind of machine.
    pub(crate) machine: MachineKind,
    /// What executes instructions.
    pub(crate) accelerator: Accelerator,
    /// Number of processors.
    pub(crate) cpus: u32,
    /// What carries the guest's streams.
    pub(crate) link: LinkKind,
    /// Bytes of memory, whole mebibytes.
    pub(crate) memory: u64,
    /// The kernel's ELF file.
    pub(crate) kernel: &'a Path,
    /// Words of the kernel command line.
    pub(crate) kernel_arguments: &'a [String],
    /// The initramfs.
    pub(crate) initramfs: &'a OwnedFd,
    /// Devices to add, as `-device` takes them.
    pub(crate) devices: &'a [String],
    /// Disks to add.
    pub(crate) disks: &'a [Disk],
    /// The disk with the root file system.
    pub(crate) root: Option<&'a Disk>,
    /// Directories of the host to share.
    pub(crate) shares: &'a [Share<'a>],
    /// More words for QEMU.
    pub(crate) more: &'a [String],
    /// Wait for a debugger on this port.
    pub(crate) gdb: Option<u16>,
    /// Somebody talks to the kernel debugger over the log's port.
    pub(crate) debugger: bool,
    /// A plugin for the translator, and its arguments.
    pub(crate) plugin: Option<&'a str>,
}

/// A directory of the host, served to the guest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share<'a> {
    /// Where it is.
    pub(crate) directory: &'a Path,
    /// Whether the guest may only read.
    pub(crate) read_only: bool,
}

impl Share<'_> {
    /// The name by which the guest mounts it.
    pub(crate) fn tag(index: usize) -> String {
        format!("starling{index}")
    }
}

/// A running virtual machine. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct VirtualMachine {
    child: Child,
    /// When it was started.
    pub(crate) started: Instant,
    /// What carries the host link: the serial port, and the port of a virtio console if there is one.
    pub(crate) links: Vec<UnixStream>,
    /// The kernel log. With a debugger, what is written there is for it.
    pub(crate) log: File,
    /// QEMU's own messages.
    pub(crate) complaints: ChildStderr,
}

/// The QEMU to use.
///
/// # Errors
/// When there is none.
pub(crate) fn program() -> Outcome<PathBuf> {
    if let Some(named) = env::var_os(QEMU_VARIABLE) {
        return Ok(named.into());
    }
    find("qemu-system-x86_64").ok_or_else(|| Failure::ours("no QEMU: install Debian's qemu-system-x86"))
}

fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|directory| directory.join(program)).find(|path| path.is_file())
}

impl VirtualMachine {
    /// Starts QEMU.
    ///
    /// # Errors
    /// When it cannot be executed. That it refuses its arguments is seen later: it ends and complains.
    pub(crate) fn start(configuration: &Configuration<'_>) -> Outcome<Self> {
        let qemu = program()?;
        let doing = || format!("starting {}", qemu.display());
        if !configuration.shares.is_empty() {
            check_sharing(&qemu)?;
        }
        let (link, qemu_link) = UnixStream::pair().context(doing)?;
        let (port, qemu_port) = UnixStream::pair().context(doing)?;
        let qemu_port = OwnedFd::from(qemu_port);
        let (log, qemu_log): (OwnedFd, OwnedFd) = if configuration.debugger {
            let (ours, theirs) = UnixStream::pair().context(doing)?;
            (ours.into(), theirs.into())
        } else {
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC).context(doing)?
        };
        let mut command = bound_to_parent(&qemu);
        command.args(arguments(configuration, qemu_log.as_raw_fd(), qemu_port.as_raw_fd()));
        // The terminal's signals are for us: QEMU must not see them.
        command.process_group(0);
        command.stdin(Stdio::from(OwnedFd::from(qemu_link.try_clone().context(doing)?)));
        command.stdout(Stdio::from(OwnedFd::from(qemu_link)));
        command.stderr(Stdio::piped());
        let started = Instant::now();
        let mut descriptors = vec![&qemu_log, configuration.initramfs];
        let mut links = vec![link];
        if configuration.link == LinkKind::Virtio {
            descriptors.push(&qemu_port);
            links.push(port);
        }
        let mut child = inherit(&descriptors, || command.spawn()).context(doing)?;
        drop((qemu_log, qemu_port));
        // `command` holds QEMU's end of the link: while it is open, the end of QEMU would not be seen.
        drop(command);
        for link in &links {
            link.set_nonblocking(true).context(doing)?;
        }
        rustix::io::ioctl_fionbio(&log, true).context(doing)?;
        let complaints = child.stderr.take().ok_or_else(|| Failure::ours("QEMU has no standard error"))?;
        rustix::io::ioctl_fionbio(&complaints, true).context(doing)?;
        Ok(Self { child, started, links, log: log.into(), complaints })
    }

    /// Ends QEMU, unless it has ended by itself, and waits until it is gone.
    pub(crate) fn end(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.child.try_wait()? {
            return Ok(status);
        }
        self.child.kill()?;
        self.child.wait()
    }
}

impl Drop for VirtualMachine {
    fn drop(&mut self) {
        // Nothing more can be done about a process that cannot be ended.
        let _ = self.end();
    }
}

/// Whether this QEMU can serve directories: not all are built with that.
fn check_sharing(qemu: &Path) -> Outcome<()> {
    let listing = Command::new(qemu).args(["-device", "help"]).output();
    let listing = listing.context(|| format!("starting {}", qemu.display()))?;
    if String::from_utf8_lossy(&listing.stdout).contains("\"virtio-9p-device\"") {
        return Ok(());
    }
    Err(Failure::ours(format!(
        "{} shares no directories with guests (it was built without virtfs), as --root and --volume need: \
         install Debian's qemu-system-x86, or name another QEMU in {QEMU_VARIABLE}",
        qemu.display()
    )))
}

/// QEMU under `setpriv`, if the host has it, so that the virtual machine ends with us even when we are killed; with an
/// allocator that takes [`ALLOCATOR`] to heart.
pub(crate) fn bound_to_parent(qemu: &Path) -> Command {
    let mut command = match find("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL", "--"]).arg(qemu);
            command
        }
        None => Command::new(qemu),
    };
    if env::var_os(ALLOCATOR_VARIABLE).is_none() {
        command.env(ALLOCATOR_VARIABLE, ALLOCATOR);
    }
    command
}

/// Runs `spawn` while the descriptors can be inherited. Only the main thread starts processes, so no other child gets them.
fn inherit<T>(descriptors: &[&OwnedFd], spawn: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    for descriptor in descriptors {
        rustix::io::fcntl_setfd(descriptor, FdFlags::empty())?;
    }
    let result = spawn();
    for descriptor in descriptors {
        rustix::io::fcntl_setfd(descriptor, FdFlags::CLOEXEC)?;
    }
    result
}

/// The machine and nothing that is connected to it: what all kernels that are compared get alike.
pub(crate) fn base_arguments(
    machine: &str,
    accelerator: Accelerator,
    cpus: u32,
    memory: u64,
) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    let mut add = |line: &str| words.extend(line.split(' ').map(OsString::from));
    add("-nodefaults -no-user-config -no-reboot -display none -vga none -net none");
    // What the guest runs is not trusted: QEMU itself may not start programs or gain rights. Costs no measurable time.
    add("-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
    add(machine);
    if machine.contains("q35") && Path::new(QBOOT).exists() {
        add(&format!("-bios {QBOOT}"));
    }
    add(accelerator.arguments());
    add(&format!("-cpu {} -smp {cpus} -m {}M", accelerator.processor(), memory >> 20));
    words
}

/// A disk: on PCI, or, if it is virtio's, on a microvm by registers in memory, in the layout of virtio 1.
pub(crate) fn disk_arguments(disk: &Disk, id: &str, on_pci: bool) -> Vec<OsString> {
    let mut drive = OsString::from(format!("if=none,id={id},format=raw,discard=unmap,readonly="));
    drive.push(if disk.read_only { "on" } else { "off" });
    drive.push(",file=");
    push_path(&mut drive, &disk.file);
    let mut words = vec![OsString::from("-drive"), drive];
    let model = match disk.model {
        DiskModel::Nvme => "nvme",
        DiskModel::Virtio if on_pci => "virtio-blk-pci,disable-legacy=on",
        DiskModel::Virtio => "virtio-blk-device",
    };
    words.extend(["-device".into(), format!("{model},drive={id},serial={id}").into()]);
    words
}

/// A path as a part of an option: a comma in it is written twice.
fn push_path(option: &mut OsString, path: &Path) {
    for (position, part) in path.as_os_str().as_bytes().split(|byte| *byte == b',').enumerate() {
        option.push(if position > 0 { ",," } else { "" });
        option.push(OsStr::from_bytes(part));
    }
}

/// A directory: owners and modes are the host's, as far as QEMU may set them; files of several file systems below it get numbers that differ.
fn share_arguments(share: &Share<'_>, index: usize, on_pci: bool) -> Vec<OsString> {
    let mut served =
        OsString::from(format!("local,id=share{index},security_model=none,multidevs=remap,readonly="));
    served.push(if share.read_only { "on" } else { "off" });
    served.push(",path=");
    push_path(&mut served, share.directory);
    let model = if on_pci { "virtio-9p-pci,disable-legacy=on" } else { "virtio-9p-device" };
    let device = format!("{model},fsdev=share{index},mount_tag={}", Share::tag(index));
    vec!["-fsdev".into(), served, "-device".into(), device.into()]
}

/// QEMU's command line.
fn arguments(configuration: &Configuration<'_>, log: i32, port: i32) -> Vec<OsString> {
    let Configuration { machine, accelerator, cpus, memory, link, .. } = *configuration;
    let on_pci = machine == MachineKind::Q35;
    let has_devices = !configuration.devices.is_empty()
        || configuration.disks.iter().any(|disk| disk.model == DiskModel::Nvme);
    let machine = if has_devices { machine.options_with_devices() } else { machine.options() };
    let mut words = base_arguments(machine, accelerator, cpus, memory);
    let mut add = |line: &str| words.extend(line.split(' ').map(OsString::from));
    if configuration.debugger {
        add(&format!("-chardev socket,id=log,fd={log} -serial chardev:log"));
    } else {
        add(&format!("-chardev file,id=log,path=/dev/fd/{log} -serial chardev:log"));
    }
    // The second UART as a device: microvm has no other way to have two.
    add("-chardev stdio,id=link,signal=off -device isa-serial,index=1,chardev=link");
    add(&format!("-initrd /dev/fd/{}", configuration.initramfs.as_raw_fd()));
    if let Some(port) = configuration.gdb {
        add(&format!("-gdb tcp:127.0.0.1:{port} -S"));
    }
    if let Some(plugin) = configuration.plugin {
        words.extend(["-plugin".into(), plugin.into()]);
    }
    for device in configuration.devices {
        words.extend(["-device".into(), device.into()]);
    }
    for (index, disk) in configuration.disks.iter().enumerate() {
        words.extend(disk_arguments(disk, &format!("disk{index}"), on_pci));
    }
    words.extend(configuration.root.map_or_else(Vec::new, |disk| disk_arguments(disk, ROOT_DISK, on_pci)));
    for (index, share) in configuration.shares.iter().enumerate() {
        words.extend(share_arguments(share, index, on_pci));
    }
    let disks = configuration.disks.iter().chain(configuration.root);
    let has_virtio = disks.count() > 0 || !configuration.shares.is_empty() || link == LinkKind::Virtio;
    if has_virtio && !on_pci {
        words.extend(["-global".into(), "virtio-mmio.force-legacy=false".into()]);
    }
    words.extend(configuration.more.iter().map(OsString::from));
    if link == LinkKind::Virtio {
        words.extend(port_arguments(port, on_pci).into_iter().map(OsString::from));
    }
    words.extend(["-kernel".into(), configuration.kernel.as_os_str().to_owned()]);
    if !configuration.kernel_arguments.is_empty() {
        words.extend(["-append".into(), configuration.kernel_arguments.join(" ").into()]);
    }
    words
}
