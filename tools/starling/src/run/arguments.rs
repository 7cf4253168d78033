//! The options of `starling run`, named and meant as those of `docker run` where both have them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::quantity;
use crate::machine::Build;

/// Run a command, or a shell, on the Starling kernel in a virtual machine of its own.
#[derive(Args, Clone, Debug)]
#[command(
    args_override_self = true,
    after_help = "\
Without COMMAND: an interactive shell. The exit status is the command's (128+n when signal n killed it), or
124 when --timeout ran out, 125 for a fault of starling or its usage, 126 when the command cannot be executed,
127 when it does not exist. On a terminal, Ctrl-] pressed three times ends the virtual machine."
)]
pub(crate) struct RunArguments {
    /// Root file system: a directory, a .tar, .tar.gz or .cpio archive, an OCI image layout, an archive of docker save, an ext2, ext3, ext4 or
    /// squashfs file system in a file, or a name that starling image ls lists [default: BusyBox]
    pub(crate) image: Option<PathBuf>,

    /// Use this directory of the host as the root file system, where it is; what the guest changes is kept in its memory
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "image", value_parser = host_directory)]
    pub(crate) root: Option<PathBuf>,

    /// With --root: the guest changes the directory; with an image that is an ext4 file system: the image
    #[arg(long)]
    pub(crate) rw: bool,

    /// Show a directory of the host in the guest, which changes it unless :ro says that it may not
    #[arg(short, long, value_name = "HOST:GUEST[:ro]", value_parser = Volume::parse)]
    pub(crate) volume: Vec<Volume>,

    /// The command to run in the guest and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,

    /// Number of processors, 1 to 64 [default: the host's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) cpus: Option<u32>,

    /// Memory, with a suffix b, k, m or g
    #[arg(short, long, value_name = "SIZE", default_value = "512M", value_parser = quantity::memory)]
    pub(crate) memory: u64,

    /// Kind of virtual machine
    #[arg(long, value_enum, default_value = "microvm")]
    pub(crate) machine: MachineKind,

    /// What carries the command's streams: a port of a virtio console, or the serial port alone, which is a hundred times slower
    #[arg(long, value_enum, default_value = "virtio")]
    pub(crate) link: LinkKind,

    /// What executes the guest's instructions; auto takes KVM if it runs a guest at speed
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) accel: AcceleratorChoice,

    /// Set an environment variable; without a value it is taken from the host's environment
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<OsString>,

    /// The program that gets COMMAND as its arguments, instead of the image's; empty: none
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) entrypoint: Option<OsString>,

    /// Working directory of the command
    #[arg(short, long, value_name = "DIRECTORY", value_parser = quantity::absolute_path)]
    pub(crate) workdir: Option<String>,

    /// User the command runs as, by number or by a name that the image knows
    #[arg(short, long, value_name = "USER[:GROUP]")]
    pub(crate) user: Option<String>,

    /// Host name of the guest
    #[arg(long, value_name = "NAME", default_value = "starling", value_parser = quantity::host_name)]
    pub(crate) hostname: String,

    /// End the run after so many seconds, with exit status 124
    #[arg(long, value_name = "SECONDS", value_parser = quantity::seconds)]
    pub(crate) timeout: Option<Duration>,

    /// Give the command a terminal
    #[arg(short, long)]
    pub(crate) tty: bool,

    /// Forward standard input (it always is; accepted because docker wants it)
    #[arg(short, long)]
    pub(crate) interactive: bool,

    /// Print the kernel log to standard error
    #[arg(long)]
    pub(crate) verbose: bool,

    /// Wait for a debugger on this TCP port of the local host
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "1234")]
    pub(crate) gdb: Option<u16>,

    /// Switch the kernel debugger on and talk to it on this terminal; Ctrl-] g enters it. With a file, its lines are the commands
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub(crate) debugger: Option<Option<PathBuf>>,

    /// Append a word to the kernel command line
    #[arg(long, value_name = "WORD", value_parser = quantity::kernel_word, allow_hyphen_values = true)]
    pub(crate) kernel_arg: Vec<String>,

    /// Print to standard error where the time went between the start of QEMU and the command's first instruction
    #[arg(long)]
    pub(crate) boot_trace: bool,

    /// Add a device to the machine, as QEMU's -device takes it; a microvm gets a PCI bus for it
    #[arg(long, value_name = "MODEL,PROPERTY=VALUE...")]
    pub(crate) device: Vec<String>,

    /// Give the machine a disk: a file with its contents, which the guest changes unless :ro says that it may not. /dev/vda is the first, or, of those
    /// with :nvme, /dev/nvme0n1
    #[arg(long, value_name = "FILE[:ro][,nvme]", value_parser = Disk::parse)]
    pub(crate) disk: Vec<Disk>,

    /// Append a word to QEMU's command line
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    pub(crate) qemu_arg: Vec<String>,

    /// Load a plugin into QEMU
    #[arg(long, value_name = "file=FILE,ARGUMENT...", hide = true)]
    pub(crate) qemu_plugin: Option<String>,

    /// Variant of the kernel to build and boot [default: release, or what STARLING_BUILD in the environment names]
    #[arg(long, value_enum, conflicts_with = "kernel")]
    pub(crate) build: Option<Build>,

    /// Boot this kernel instead of building the one in this repository
    #[arg(long, value_name = "FILE")]
    pub(crate) kernel: Option<PathBuf>,
}

/// A disk of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Disk {
    /// The file with its contents.
    pub(crate) file: PathBuf,
    /// Whether the guest may only read.
    pub(crate) read_only: bool,
    /// What kind of device it is.
    pub(crate) model: DiskModel,
}

/// The kinds of disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskModel {
    /// Virtio's
    Virtio,
    /// An NVMe controller with one namespace, on PCI
    Nvme,
}

impl Disk {
    /// A file's name, perhaps with a colon and words behind it: `ro` or `rw`, `virtio` or `nvme`.
    fn parse(text: &str) -> Result<Self, String> {
        let usual = (false, DiskModel::Virtio);
        let understood = |words: &str| {
            words.split(',').try_fold(usual, |(read_only, model), word| match word {
                "ro" => Some((true, model)),
                "rw" => Some((false, model)),
                "virtio" => Some((read_only, DiskModel::Virtio)),
                "nvme" => Some((read_only, DiskModel::Nvme)),
                _ => None,
            })
        };
        let with_words = text.rsplit_once(':').and_then(|(file, words)| Some((file, understood(words)?)));
        let (file, (read_only, model)) = with_words.unwrap_or((text, usual));
        let metadata = std::fs::metadata(file).map_err(|error| format!("{file}: {error}"))?;
        if metadata.is_dir() {
            return Err(format!("{file} is a directory"));
        }
        // QEMU takes what is before a colon for a protocol, unless it has a slash.
        let file = std::path::absolute(file).map_err(|error| format!("{file}: {error}"))?;
        Ok(Self { file, read_only, model })
    }
}

/// A directory of the host that exists.
fn host_directory(text: &str) -> Result<PathBuf, String> {
    let path = std::fs::canonicalize(text).map_err(|error| format!("{text}: {error}"))?;
    if path.is_dir() { Ok(path) } else { Err(format!("{text} is not a directory")) }
}

/// A directory of the host in the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Volume {
    /// The host's.
    pub(crate) directory: PathBuf,
    /// Where the guest sees it.
    pub(crate) place: String,
    /// Whether the guest may only read.
    pub(crate) read_only: bool,
    /// Whether the guest may keep what it knows: nobody else changes the files.
    pub(crate) cached: bool,
}

impl Volume {
    /// As docker writes it: `HOST:GUEST`, perhaps with words behind it.
    fn parse(text: &str) -> Result<Self, String> {
        let mut parts = text.split(':');
        let (Some(host), Some(place)) = (parts.next(), parts.next()) else {
            return Err("not HOST:GUEST".into());
        };
        let place = quantity::absolute_path(place)?;
        let mut volume = Self { directory: host_directory(host)?, place, read_only: false, cached: false };
        for word in parts.flat_map(|words| words.split(',')) {
            match word {
                "ro" => volume.read_only = true,
                "rw" => volume.read_only = false,
                "cached" | "delegated" => volume.cached = true,
                "consistent" => volume.cached = false,
                other => return Err(format!("{other}: not ro, rw, cached or consistent")),
            }
        }
        Ok(volume)
    }
}

/// The virtual machines that the kernel knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MachineKind {
    /// A PC with PCI Express
    Q35,
    /// The smallest machine: starts fastest, has no PCI bus
    Microvm,
}

impl MachineKind {
    /// QEMU's arguments for a machine with devices beyond those: native hot-plug instead of ACPI's on q35; on microvm a PCI bus, which only ACPI's
    /// tables tell of.
    pub(crate) const fn options_with_devices(self) -> &'static str {
        match self {
            Self::Q35 => {
                "-machine q35,smm=off,i8042=off,vmport=off,sata=off,smbus=off,usb=off \
                 -global ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off"
            }
            Self::Microvm => "-machine microvm,acpi=on,pic=on,pit=on,rtc=on,pcie=on,usb=off,isa-serial=on",
        }
    }

    /// Its name, as `--machine` takes it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Q35 => "q35",
            Self::Microvm => "microvm",
        }
    }

    /// QEMU's arguments for it, stripped to what the kernel uses. A microvm's ACPI tables tell nothing that its MP tables
    /// do not, QEMU takes 4 ms to build them, and Debian's Linux stops when it finds them without a timer of theirs.
    pub(crate) const fn options(self) -> &'static str {
        match self {
            Self::Q35 => "-machine q35,smm=off,i8042=off,vmport=off,sata=off,smbus=off,usb=off",
            Self::Microvm => "-machine microvm,acpi=off,pic=on,pit=on,rtc=on,pcie=off,usb=off,isa-serial=on",
        }
    }
}

/// The devices that carry the command's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LinkKind {
    /// The serial port at first, then a port of a virtio console
    Virtio,
    /// The serial port
    Serial,
}

/// What the user wants to execute the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AcceleratorChoice {
    /// KVM if it runs a guest at speed, else TCG
    Auto,
    /// The host's processors
    Kvm,
    /// QEMU's translator
    Tcg,
    /// QEMU's translator on one processor, with a clock that counts instructions: repeats exactly
    Icount,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_written_as_docker_writes_them() {
        let volume = Volume::parse("/:/host:ro").expect("the root is there");
        assert_eq!((volume.directory, volume.place), (PathBuf::from("/"), "/host".to_string()));
        assert!(volume.read_only && !volume.cached);
        let volume = Volume::parse("/usr:/usr:rw,cached").expect("it is there");
        assert!(!volume.read_only && volume.cached);
    }

    #[test]
    fn a_disk_is_the_file_of_that_name_whatever_colons_are_in_it() {
        let folder = tempfile::tempdir().expect("there is room");
        let name = |name: &str| folder.path().join(name).display().to_string();
        for file in ["disk", "nbd:disk", "disk:ro,large"] {
            std::fs::write(folder.path().join(file), "").expect("there is room");
            let disk = Disk::parse(&name(file)).expect("it is there");
            assert_eq!(
                (disk.file, disk.read_only, disk.model),
                (name(file).into(), false, DiskModel::Virtio)
            );
        }
        let disk = Disk::parse(&name("nbd:disk:ro,nvme")).expect("it is there");
        assert_eq!((disk.read_only, disk.model), (true, DiskModel::Nvme));
        let disk = Disk::parse("Cargo.toml").expect("tests run beside it");
        assert!(disk.file.is_absolute(), "{}", disk.file.display());
        assert!(Disk::parse(&name("none")).is_err());
    }

    #[test]
    fn bad_volumes_are_refused() {
        for text in ["/", "/:x", "/:/x:wo", "/no/such/place:/x", "/etc/passwd:/x", ""] {
            assert!(Volume::parse(text).is_err(), "{text}");
        }
    }
}
