//! Programs that listen to events of devices by netlink: busybox's `uevent` and `mdev -d`, unmodified, while a disk with a partition is plugged in and
//! out through QEMU's monitor.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use crate::devices::Machine;
use crate::disks::text;
use crate::images;

/// What is promised.
pub(crate) const NAME: &str = "busybox hears by netlink of a disk that comes and goes";

const DISK_BYTES: u64 = 8 << 20;
/// What `mdev` does for disks. Others it leaves alone.
const RULES: &str = "vd.* 0:0 660 *echo $ACTION $MDEV >> /tmp/mdev\n-.* 0:0 660\n";
/// What `uevent` runs for each event.
const PROGRAM: &str =
    "echo $ACTION $DEVPATH $SUBSYSTEM $MAJOR:$MINOR $DEVNAME $DEVTYPE $DRIVER >> /tmp/uevent";

/// Plugs the disk in and out.
pub(crate) fn check() -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(text)?;
    let root = folder.path().join("root");
    images::make_folder_with_busybox(&root).map_err(text)?;
    fs::create_dir_all(root.join("etc")).map_err(text)?;
    fs::write(root.join("etc/mdev.conf"), RULES).map_err(text)?;
    let path = folder.path().join("disk");
    let disk = File::create(&path).map_err(text)?;
    disk.set_len(DISK_BYTES).map_err(text)?;
    // One partition, from sector 2048 to the end.
    disk.write_all_at(&[0, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 0x38, 0, 0], 446).map_err(text)?;
    disk.write_all_at(&[0x55, 0xaa], 510).map_err(text)?;
    let drive = format!("if=none,id=disk,format=raw,file={}", path.display());
    let arguments = [
        "--machine",
        "q35",
        "--cpus",
        "2",
        "--timeout",
        "300",
        "--device",
        "pcie-root-port,id=rp0,chassis=1,slot=1",
        "--qemu-arg=-drive",
        &format!("--qemu-arg={drive}"),
        "--kernel-arg",
        "devices=first",
    ];
    let mut machine = Machine::with(&arguments, &root)?;
    machine.guest("mkdir -p /tmp; touch /tmp/uevent /tmp/mdev")?;
    machine.guest(&format!("uevent sh -c '{PROGRAM}' > /dev/null 2>&1 &"))?;
    machine.guest("mdev -df > /dev/null 2>&1 &")?;
    // Both listen when what is asked for by hand arrives.
    let ask = "echo change > /sys/class/mem/null/uevent; usleep 50000";
    machine.until(
        &format!("{ask}; grep -q 'change /devices/virtual/mem/null mem 1:3 null' /tmp/uevent && echo yes"),
        "yes",
    )?;
    machine.monitor("device_add virtio-blk-pci,disable-legacy=on,drive=disk,bus=rp0,id=disk0")?;
    machine.until("grep -c '^add .* block 254:[01] vda1* ' /tmp/uevent", "2")?;
    machine.until("grep -c -E '^bind /devices/pci.* pci : virtio-pci$' /tmp/uevent", "1")?;
    machine.until("grep -E '^add .*/block/vda/vda1 block 254:1 vda1 partition$' /tmp/uevent | wc -l", "1")?;
    machine.until(
        "for name in vda vda1; do echo add > /sys/class/block/$name/uevent; done; usleep 50000; grep -q 'add vda$' /tmp/mdev && grep -q 'add vda1$' /tmp/mdev && echo yes",
        "yes",
    )?;
    machine.unplug("disk0")?;
    machine.monitor_line("DEVICE_DELETED")?;
    machine.until("grep -c '^remove .*/block/vda' /tmp/uevent", "2")?;
    machine.until("grep -q 'remove vda$' /tmp/mdev && grep -q 'remove vda1$' /tmp/mdev && echo yes", "yes")
}
