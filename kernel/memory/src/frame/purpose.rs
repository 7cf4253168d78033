//! What a frame is used for.
//!
//! Every allocated frame carries one [`Purpose`]. It is counted per CPU with plain additions (the allocating and the
//! freeing CPU may differ, so a single CPU's number may be negative; only the sum means something) and feeds
//! `/proc/meminfo`.

/// What a frame is used for; counted for `/proc/meminfo`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Purpose {
    /// Kernel data that none of the others describes.
    Kernel,
    /// Private memory of user processes.
    Anonymous,
    /// Pages of files.
    FileCache,
    /// Pages of tmpfs files and of shared anonymous memory.
    Shmem,
    /// Page tables of user address spaces and of the kernel.
    PageTable,
    /// Pages of kernel stacks, and the frames of their reserves.
    KernelStack,
    /// Slabs and large objects of the kernel heap.
    Slab,
    /// Non-contiguous kernel memory.
    Area,
    /// Data under way in pipes and sockets.
    Pipe,
    /// Memory that devices read and write.
    Device,
    /// Per-CPU data.
    PerCpu,
    /// The pool of huge pages, in use or not.
    HugePage,
}

impl Purpose {
    /// How many purposes there are.
    pub const COUNT: usize = Self::ALL.len();

    /// All purposes, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::Kernel,
        Self::Anonymous,
        Self::FileCache,
        Self::Shmem,
        Self::PageTable,
        Self::KernelStack,
        Self::Slab,
        Self::Area,
        Self::Pipe,
        Self::Device,
        Self::PerCpu,
        Self::HugePage,
    ];

    /// The purpose with the given number, [`Purpose::Kernel`] for a number that none has.
    pub(crate) const fn from_number(number: u8) -> Self {
        if (number as usize) < Self::COUNT { Self::ALL[number as usize] } else { Self::Kernel }
    }

    /// Whether somebody may gain a reference to a frame of this purpose without holding one (a page cache looked up
    /// under RCU). Frames of other purposes whose only holder lets go need no atomic operation.
    pub(crate) const fn found_by_lookup(self) -> bool {
        matches!(self, Self::Anonymous | Self::FileCache | Self::Shmem | Self::HugePage)
    }
}

#[cfg(test)]
mod tests {
    use super::Purpose;

    #[test]
    fn numbers_and_purposes_agree() {
        for (number, purpose) in Purpose::ALL.into_iter().enumerate() {
            assert_eq!(purpose as usize, number);
            assert_eq!(Purpose::from_number(number as u8), purpose);
        }
        assert_eq!(Purpose::from_number(200), Purpose::Kernel);
    }
}
