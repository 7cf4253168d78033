//! Disks as their drivers see them: [`attach()`] finds a name and a number for a queue, enters it into the [registry](crate::registry), and looks for partitions.

mod attach;
pub mod by_hand;
mod family;
#[cfg(test)]
mod tests;

pub use attach::{
    Description, Disk, all, attach, attach_at, attach_by_driver, detach, of, rescan, resize,
    wait_for_partitions,
};
pub use family::{EXTENDED_MAJOR, Family, LOOP, NVME, RAM, VIRTIO};
