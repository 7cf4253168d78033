//! What programs see of buses, devices and drivers: `/sys/bus`, `/sys/devices/pci*`, `/proc/bus/pci`.
//!
//! | module | what it shows |
//! |---|---|
//! | `contents` | directories whose entries are computed when they are looked at |
//! | `bus` | a bus: its devices and drivers |
//! | `pci` | the directory of a PCI function |
//! | `attributes` | its files about processors, interrupts, resets and drivers |
//! | `block` | disks and partitions: `/sys/block`, `/sys/class/block`, `/proc/partitions`, `/proc/diskstats` |
//! | `class` | devices on no bus: `/sys/class`, `/sys/devices/virtual`, `/sys/dev` |
//! | `block_requests` | what programs ask of block devices by `ioctl` |
//! | `express` | service devices, hot-plug slots, error counters |
//! | `inject` | `/dev/aer_inject` |
//! | `config` | configuration space as a file |
//! | `irq` | `/proc/irq` |
//! | `proc` | `/proc/bus/pci` |
//! | `latency` | `/dev/cpu_dma_latency` |
//! | `virtio` | virtio devices |
//! | `random` | `/dev/hwrng`, `/sys/class/misc/hw_random` |
//!
//! Nothing is made in advance: the trees are computed from the lists of crate `device` at each look, so that devices may come and go at any
//! time. The first look finds the devices, if nobody has before.
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod attributes;
mod block;
mod block_partitions;
mod block_requests;
mod bus;
mod class;
mod config;
mod contents;
mod express;
mod inject;
mod irq;
mod latency;
mod pci;
mod proc;
mod random;
mod virtio;

/// Names what fills `/sys` and `/proc`, when somebody looks. Once, at start-up.
pub fn register() {
    inject::register();
    random::register();
    latency::register();
    vfs::disk::device::set_requests(block_requests::answer);
    sysfs::fill_also(bus::fill);
    procfs::fill_also(proc::fill);
    procfs::fill_also(irq::fill);
}
