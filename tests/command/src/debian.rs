//! Debian's programs for disks and file systems, unmodified, with their libraries, in the guest: `sfdisk` makes partitions, `mke2fs` file systems, the others
//! look at them, change them, damage them and repair them. What they print is compared with what the same programs of the host say of the disk afterwards.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use crate::case::starling;
use crate::disks::{e2fsck, said, text};
use crate::images;

/// What is promised.
pub(crate) const NAME: &str = "Debian's programs make, see, damage and repair partitions and file systems";

/// Machines, with their numbers of processors, what is said of the disk's kind, and what it is called.
const MACHINES: [(&str, &str, &str, &str); 4] = [
    ("q35", "4", ":nvme", "nvme0n1"),
    ("microvm", "1", "", "vda"),
    ("q35", "2", "", "vda"),
    ("microvm", "4", ":nvme", "nvme0n1"),
];
/// So many of them when there is little time: a disk of each kind, with many processors and with one.
const SHORT: usize = 2;
const DISK_BYTES: u64 = 96 << 20;
/// The first one is the shell: BusyBox's prefers its own programs.
const PROGRAMS: [&str; 22] = [
    "dash",
    "lspci",
    "lsblk",
    "blkid",
    "mount",
    "umount",
    "findmnt",
    "df",
    "fdisk",
    "sfdisk",
    "partx",
    "addpart",
    "delpart",
    "resizepart",
    "blockdev",
    "losetup",
    "mke2fs",
    "e2fsck",
    "debugfs",
    "dumpe2fs",
    "tune2fs",
    "resize2fs",
];
/// What `sfdisk` is to make.
const TABLE: &str = "label: gpt
label-id: 11111111-2222-4333-8444-555555555555
first-lba: 2048
start=2048, size=81920, type=0FC63DAF-8483-4772-8E79-3D69D8477DE4, uuid=AAAAAAAA-0000-4000-8000-000000000001, name=\"first\"
start=83968, size=40960, type=0FC63DAF-8483-4772-8E79-3D69D8477DE4, uuid=AAAAAAAA-0000-4000-8000-000000000002, name=\"second\"
start=124928, size=65536, type=0657FD6D-A4AB-43C4-84E5-0933C84B4F4F, uuid=AAAAAAAA-0000-4000-8000-000000000003, name=\"third\"
";
const FIRST_BYTES: (u64, u64) = (2048 * 512, 81920 * 512);
const FIRST_ID: &str = "01234567-89ab-4cde-8f01-23456789abcd";
const SECOND_ID: &str = "fedcba98-7654-4321-8fed-cba987654321";

/// `$1` is the disk, `$2` the first partition without its number. What a section prints comes behind a line with `@` and its name.
const SCRIPT: &str = r#"
set -e
disk=$1 part=$2
say() { echo "@$1"; }
status() { want=$1; shift; s=0; "$@" > /tmp/said 2>&1 || s=$?; [ $s = $want ] || { echo "$*: status $s, not $want"; cat /tmp/said; exit 9; }; }
mkdir -p /m /n
say lspci; lspci -n 2>/dev/null || :
say drivers; lspci -k 2>/dev/null | sed -n 's/.*Kernel driver in use: //p' || :
status 0 sfdisk --no-tell-kernel --quiet $disk < /table
status 0 sfdisk --quiet --force $disk < /table
say fdisk; fdisk -l $disk
say dump; sfdisk -d $disk
say partitions; sed -n "s/.* \([0-9]*\) ${part#/dev/}\([0-9]\)$/\1 \2/p" /proc/partitions
# By hand, whatever the table says.
queue=/sys/block/${disk#/dev/}/queue
third() { [ "$(cat /sys/class/block/${part#/dev/}3/size)" = $1 ] && [ -b ${part}3 ] || { echo "third: not $1"; exit 9; }; }
no_third() { [ ! -e ${part}3 ] && [ ! -e /sys/class/block/${part#/dev/}3 ] || { echo 'still there'; exit 9; }; }
status 0 delpart $disk 3
no_third
status 1 delpart $disk 3
status 1 addpart $disk 3 2048 8
status 1 addpart $disk 1 124928 8
status 1 addpart $disk 3 124928 1000000000
status 0 addpart $disk 3 124928 4096
third 4096
status 0 resizepart $disk 3 65536
third 65536
status 1 resizepart $disk 3 1000000000
status 1 resizepart $disk 1 83968
status 1 delpart $disk 3 3< ${part}3
third 65536
status 0 partx -d --nr 3 $disk
no_third
status 0 partx -a --nr 3 $disk
third 65536
status 0 partx -u $disk
third 65536
status 0 blockdev --setra 1000 ${part}1
[ "$(blockdev --getra $disk) $(blockdev --getfra ${part}2) $(cat $queue/read_ahead_kb)" = '1000 1000 500' ] || { cat $queue/read_ahead_kb; exit 9; }
echo 128 > $queue/read_ahead_kb
[ "$(blockdev --getra ${part}1)" = 256 ] || exit 9
echo no 2>/dev/null > $queue/read_ahead_kb && exit 9
depth=$(cat $queue/nr_requests)
echo 1 > $queue/nr_requests
[ $(cat $queue/nr_requests) = 4 ] || exit 9
echo $((depth + 1)) 2>/dev/null > $queue/nr_requests && exit 9
echo $depth > $queue/nr_requests
status 0 mke2fs -q -t ext4 -U 01234567-89ab-4cde-8f01-23456789abcd -L first ${part}1
status 0 mke2fs -q -t ext2 -b 1024 -U fedcba98-7654-4321-8fed-cba987654321 -L second ${part}2
status 1 mke2fs -q -t ext4 -b 1000 ${part}3
say blkid; blkid -c /dev/null ${part}1 ${part}2
say probed; blkid -p -o export ${part}1 | sort
say model; lsblk -dnro MODEL,SERIAL $disk; fdisk -l $disk | sed -n 's/^Disk model: *\([^ ].*[^ ]\) *$/\1/p'
say controller; for c in /sys/class/nvme/*; do [ -e $c/model ] && echo ${c##*/} $(cat $c/transport $c/state) $(cat $c/device/class) $(ls $c/block) || :; done
say lsblk; lsblk -nrbo NAME,MAJ:MIN,SIZE,RO,TYPE $disk | sed 's/ [0-9]*:[0-9]* / /'
status 0 mount -t ext4 UUID=01234567-89ab-4cde-8f01-23456789abcd /m
status 0 mount LABEL=second /n
status 32 mount ${part}1 /m
say mount; mount | grep -e ' /m ' -e ' /n '
say findmnt; findmnt -nro SOURCE,TARGET,FSTYPE /m; findmnt -nro TARGET -S LABEL=second
say mounted; lsblk -nro MOUNTPOINT ${part}1 ${part}2
status 8 e2fsck -fy ${part}1
status 1 mke2fs -q ${part}1
cp -r /bin /lib /m/ 2>/dev/null; mkdir /m/d; for i in $(seq 200); do echo file $i > /m/d/f$i; done
busybox cp /bin/busybox /n/
sync
say types; df --output=source,fstype,target /m /n | sed 1d | tr -s ' '
status 0 mount -o remount,ro /m
echo no 2>/dev/null > /m/no && exit 9
say seen; debugfs -R 'cat /d/f77' ${part}1 2>/dev/null
say remounted; findmnt -nro FS-OPTIONS /m
status 0 umount /m
status 0 umount /n
status 32 umount /n
status 0 e2fsck -fn ${part}1
status 0 e2fsck -fn ${part}2
echo written by debugfs > /tmp/note
status 0 debugfs -w -R 'write /tmp/note note' ${part}1
status 0 debugfs -w -R 'symlink link note' ${part}1
status 0 debugfs -R 'dump /bin/busybox /tmp/dumped' ${part}1
cmp /bin/busybox /tmp/dumped
status 0 e2fsck -fn ${part}1
status 0 mount -t ext4 ${part}1 /m
say note; cat /m/link
rm -r /m/lib
status 0 umount /m
status 0 debugfs -w -R 'set_inode_field /note links_count 7' ${part}1
status 0 debugfs -w -R 'clri /d' ${part}1
status 4 e2fsck -fn ${part}1
status 1 e2fsck -fy ${part}1
status 0 e2fsck -fn ${part}1
status 0 tune2fs -L renamed -c 5 ${part}2
status 0 e2fsck -fp ${part}2
status 0 resize2fs ${part}2 16M
status 0 e2fsck -fn ${part}2
say resized; dumpe2fs -h ${part}2 2>/dev/null | grep -e '^Block count' -e '^Filesystem volume'
status 0 mount ${part}2 /n
cmp /bin/busybox /n/busybox
dd if=/dev/zero of=/n/image bs=1M count=4 2>/dev/null
status 0 mke2fs -q -F /n/image
status 0 mount -o loop /n/image /m
echo inside > /m/inside
say loop; losetup -nO BACK-FILE -j /n/image; cat /m/inside
status 0 umount /m
say unbound; losetup -a
status 0 umount /n
status 0 mount ${part}1 /m
say df; df -B1024 --output=size,used,avail,itotal,iused,iavail /m | sed 1d
status 0 umount /m
echo end
"#;

/// Runs the script on machines, all of them if there is time.
pub(crate) fn check(long: bool) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(text)?;
    let root = folder.path().join("root");
    images::make_folder_with_busybox(&root).map_err(text)?;
    for program in PROGRAMS {
        images::add_program(&root, program).map_err(text)?;
    }
    fs::create_dir_all(root.join("etc")).map_err(text)?;
    // Where `mke2fs` is told what a file system has.
    fs::copy("/etc/mke2fs.conf", root.join("etc/mke2fs.conf")).map_err(text)?;
    fs::write(root.join("table"), TABLE).map_err(text)?;
    fs::write(root.join("script"), SCRIPT).map_err(text)?;
    for machine in &MACHINES[..if long { MACHINES.len() } else { SHORT }] {
        on_machine(folder.path(), &root, machine).map_err(|why| format!("{machine:?}: {why}"))?;
    }
    Ok(())
}

fn on_machine(folder: &Path, root: &Path, machine: &(&str, &str, &str, &str)) -> Result<(), String> {
    let (kind, cpus, disk_kind, name) = *machine;
    let disk = folder.join("disk");
    // Behind what is on it from another machine nobody looks.
    let _ = fs::remove_file(&disk);
    File::create(&disk).and_then(|file| file.set_len(DISK_BYTES)).map_err(text)?;
    let device = format!("/dev/{name}");
    let part = if name.ends_with(|last: char| last.is_ascii_digit()) {
        device.clone() + "p"
    } else {
        device.clone()
    };
    let output = starling()
        .args(["--machine", kind, "--cpus", cpus, "--memory", "512M", "--timeout", "280"])
        .args(["--disk", &format!("{}{disk_kind}", disk.display())])
        .arg(root)
        .args(["--", "dash", "/script", &device, &part])
        .output()
        .map_err(text)?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() || !printed.ends_with("\nend\n") || !output.stderr.is_empty() {
        return Err(said(&output));
    }
    let sections = Sections::of(&printed);
    seen_in_the_guest(&sections, kind, name, &part)?;
    seen_on_the_host(&sections, folder, &disk, &device, &part)
}

/// What the guest's programs printed, by section.
struct Sections(BTreeMap<String, String>);

impl Sections {
    fn of(printed: &str) -> Self {
        let mut sections = BTreeMap::<String, String>::new();
        let mut name = "";
        for line in printed.lines() {
            match line.strip_prefix('@') {
                Some(next) => name = next,
                None => *sections.entry(name.to_owned()).or_default() += &format!("{line}\n"),
            }
        }
        Self(sections)
    }

    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", |section| section)
    }

    fn is(&self, name: &str, wanted: &str) -> Result<(), String> {
        let found = self.get(name);
        if found == wanted { Ok(()) } else { Err(format!("{name}: {found:?}, not {wanted:?}")) }
    }

    fn has(&self, name: &str, part: &str) -> Result<(), String> {
        let found = self.get(name);
        if found.contains(part) { Ok(()) } else { Err(format!("{name}: {found:?} without {part:?}")) }
    }
}

fn seen_in_the_guest(sections: &Sections, machine: &str, name: &str, part: &str) -> Result<(), String> {
    let (first, second) = (format!("{part}1"), format!("{part}2"));
    if name.starts_with("nvme") {
        sections.has("lspci", " 0108: 1b36:0010")?;
        sections.has("drivers", "nvme\n")?;
        sections.has("model", "QEMU\\x20NVMe\\x20Ctrl ")?;
        sections.has("model", "\nQEMU NVMe Ctrl\n")?;
        sections.is("controller", "nvme0 pcie live 0x010802 nvme0n1\n")?;
    } else if machine == "q35" {
        sections.has("lspci", " 0100: 1af4:1042")?;
        sections.has("drivers", "virtio-pci\n")?;
    }
    sections.is("partitions", "40960 1\n20480 2\n32768 3\n")?;
    sections.is(
        "blkid",
        &format!(
            "{first}: LABEL=\"first\" UUID=\"{FIRST_ID}\" BLOCK_SIZE=\"1024\" TYPE=\"ext4\" PARTLABEL=\"first\" \
            PARTUUID=\"aaaaaaaa-0000-4000-8000-000000000001\"\n\
            {second}: LABEL=\"second\" UUID=\"{SECOND_ID}\" BLOCK_SIZE=\"1024\" TYPE=\"ext2\" PARTLABEL=\"second\" \
            PARTUUID=\"aaaaaaaa-0000-4000-8000-000000000002\"\n"
        ),
    )?;
    sections.has(
        "probed",
        "PART_ENTRY_NUMBER=1\nPART_ENTRY_OFFSET=2048\nPART_ENTRY_SCHEME=gpt\nPART_ENTRY_SIZE=81920\n",
    )?;
    let short = |partition: u32| format!("{}{partition}", part.trim_start_matches("/dev/"));
    sections.is(
        "lsblk",
        &format!(
            "{name} {DISK_BYTES} 0 disk\n{} 41943040 0 part\n{} 20971520 0 part\n{} 33554432 0 part\n",
            short(1),
            short(2),
            short(3)
        ),
    )?;
    sections.is(
        "mount",
        &format!("{first} on /m type ext4 (rw,relatime)\n{second} on /n type ext2 (rw,relatime)\n"),
    )?;
    sections.is("findmnt", &format!("{first} /m ext4\n/n\n"))?;
    sections.is("mounted", "/m\n/n\n")?;
    sections.is("types", &format!("{first} ext4 /m\n{second} ext2 /n\n"))?;
    sections.is("seen", "file 77\n")?;
    sections.is("remounted", "ro\n")?;
    sections.is("note", "written by debugfs\n")?;
    sections.is("resized", "Filesystem volume name:   renamed\nBlock count:              16384\n")?;
    sections.is("loop", "/n/image\ninside\n")?;
    sections.is("unbound", "")
}

/// What a program of the host prints.
fn on_host(program: &str, arguments: &[&str], file: &Path) -> Result<String, String> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let output = Command::new(program).env("PATH", path).args(arguments).arg(file).output().map_err(text)?;
    if !output.status.success() {
        return Err(format!("{program}: {}", said(&output)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn seen_on_the_host(
    sections: &Sections,
    folder: &Path,
    disk: &Path,
    device: &str,
    part: &str,
) -> Result<(), String> {
    // Names of partitions are made of the disk's, which is a path here.
    let named = |text: String| {
        text.replace(&disk.display().to_string(), part).replace(&format!("{part}:"), &format!("{device}:"))
    };
    let dump = named(on_host("sfdisk", &["-d"], disk)?)
        .replace(&format!("device: {part}\n"), &format!("device: {device}\n"));
    sections.is("dump", &dump)?;
    // The table; above it is what the disk says of itself.
    let table = |listing: &str| {
        let lines = listing.lines().skip_while(|line| !line.starts_with("Disklabel"));
        lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    let (guest, host) = (table(sections.get("fdisk")), table(&named(on_host("fdisk", &["-l"], disk)?)));
    if guest != host || guest.len() < 6 {
        return Err(format!("fdisk: {guest:?}, not {host:?}"));
    }
    let first = folder.join("first");
    let bytes = fs::read(disk).map_err(text)?;
    let range = FIRST_BYTES.0 as usize..(FIRST_BYTES.0 + FIRST_BYTES.1) as usize;
    fs::write(&first, bytes.get(range).ok_or("the disk is shorter")?).map_err(text)?;
    e2fsck("-fn", &first, 0)?;
    let found = on_host("blkid", &["-p", "-s", "UUID", "-o", "value"], &first)?;
    if found.trim() != FIRST_ID {
        return Err(format!("the host's blkid says {found:?}"));
    }
    same_numbers(sections.get("df"), &on_host("dumpe2fs", &["-h"], &first)?)
}

/// What `df` said of the mounted file system, against what `dumpe2fs` says of it afterwards. Blocks have 1 KiB.
fn same_numbers(df: &str, dumped: &str) -> Result<(), String> {
    let numbers: Vec<u64> = df.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [size, used, available, inodes, inodes_used, inodes_free] = numbers[..] else {
        return Err(format!("df says {df:?}"));
    };
    let field = |name: &str| {
        let line = dumped.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|number| number.trim().parse::<u64>().ok()).ok_or_else(|| format!("{name}: {dumped}"))
    };
    let (blocks, free) = (field("Block count")?, field("Free blocks")?);
    let (all, left) = (field("Inode count")?, field("Free inodes")?);
    // The blocks that the format itself takes are not among those that `df` counts.
    let sizes_fit = size <= blocks && size > free && size - used == free;
    let shares_fit = available <= free - field("Reserved block count")? && available > free / 2;
    if sizes_fit && shares_fit && (inodes, inodes_used, inodes_free) == (all, all - left, left) {
        Ok(())
    } else {
        Err(format!("df says {df:?}, dumpe2fs {dumped}"))
    }
}
