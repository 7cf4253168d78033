//! How the disks of a driver are called and numbered.

use alloc::format;
use alloc::string::String;

use crate::registry::DeviceNumber;

/// Major number of partitions that have no room among the numbers of their disk.
pub const EXTENDED_MAJOR: u32 = 259;

/// Disks with a common name and major number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Family {
    /// What all names begin with.
    pub prefix: &'static str,
    /// What follows: letters (`vda`), or digits (`ram0`).
    pub letters: bool,
    /// Their major number.
    pub major: u32,
    /// Minor numbers of each disk: its own, and those of its first partitions.
    pub minors: u32,
}

/// Disks in memory.
pub const RAM: Family = Family { prefix: "ram", letters: false, major: 1, minors: 1 };
/// Files that are used as disks.
pub const LOOP: Family = Family { prefix: "loop", letters: false, major: 7, minors: 1 };
/// Disks of virtual machines. The number is the one that Linux gives to the first driver that asks for any.
pub const VIRTIO: Family = Family { prefix: "vd", letters: true, major: 254, minors: 16 };
/// Namespaces of NVMe controllers, whose names their driver chooses. All their numbers are among those of partitions without a place.
pub const NVME: Family = Family { prefix: "nvme", letters: false, major: EXTENDED_MAJOR, minors: 0 };

/// `a` to `z`, then `aa` to `zz` and so on.
fn letters(index: u32) -> String {
    let mut rest = index;
    let mut reversed = String::new();
    loop {
        reversed.push(char::from(b'a' + (rest % 26) as u8));
        match (rest / 26).checked_sub(1) {
            Some(next) => rest = next,
            None => break,
        }
    }
    reversed.chars().rev().collect()
}

impl Family {
    /// The name of the disk with this index.
    pub fn name(&self, index: u32) -> String {
        if self.letters {
            format!("{}{}", self.prefix, letters(index))
        } else {
            format!("{}{index}", self.prefix)
        }
    }

    /// Its number.
    pub fn number(&self, index: u32) -> DeviceNumber {
        DeviceNumber { major: self.major, minor: index * self.minors }
    }
}

/// The name of a disk's partition.
pub(super) fn partition_name(disk: &str, number: u32) -> String {
    let separator = if disk.ends_with(|last: char| last.is_ascii_digit()) { "p" } else { "" };
    format!("{disk}{separator}{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_on_after_z() {
        let names = [0, 1, 25, 26, 27, 701, 702].map(|index| VIRTIO.name(index));
        assert_eq!(names, ["vda", "vdb", "vdz", "vdaa", "vdab", "vdzz", "vdaaa"]);
        assert_eq!(VIRTIO.number(2), DeviceNumber { major: 254, minor: 32 });
        assert_eq!((RAM.name(3), RAM.number(3).minor), ("ram3".into(), 3));
    }

    #[test]
    fn partitions_of_disks_with_numbers_have_a_separator() {
        assert_eq!(partition_name("vda", 1), "vda1");
        assert_eq!(partition_name("nvme0n1", 12), "nvme0n1p12");
    }
}
