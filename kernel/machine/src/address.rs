//! Addresses: physical, kernel-virtual and user, each its own type.

use core::fmt;

/// log2 of the page size.
pub const PAGE_SHIFT: u32 = 12;
/// Bytes of a page.
pub const PAGE_SIZE: usize = 1 << PAGE_SHIFT;
/// Where all physical memory is visible.
pub const DIRECT_MAP_BASE: usize = 0xffff_8000_0000_0000;
/// Device registers and non-contiguous kernel mappings.
pub const DEVICE_MAP_BASE: usize = 0xffff_c000_0000_0000;
/// Thread slots: kernel stacks and thread control blocks.
pub const THREAD_SLOT_BASE: usize = 0xffff_d000_0000_0000;
/// Frame metadata.
pub const FRAME_METADATA_BASE: usize = 0xffff_e000_0000_0000;
/// The kernel image.
pub const KERNEL_IMAGE_BASE: usize = 0xffff_ffff_8000_0000;
/// One past the highest user address.
pub const USER_END: usize = 0x7fff_ffff_f000;

macro_rules! address {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(u64);

        impl $name {
            /// The address with this value.
            pub const fn new(value: u64) -> $name {
                $name(value)
            }

            /// The value.
            pub const fn as_u64(self) -> u64 {
                self.0
            }

            /// The value.
            pub const fn as_usize(self) -> usize {
                self.0 as usize
            }

            /// The address this many bytes further, unless that overflows.
            pub const fn checked_add(self, bytes: u64) -> Option<$name> {
                match self.0.checked_add(bytes) {
                    Some(value) => Some($name(value)),
                    None => None,
                }
            }

            /// The start of its page.
            pub const fn page_floor(self) -> $name {
                $name(self.0 & !(PAGE_SIZE as u64 - 1))
            }

            /// The offset within its page.
            pub const fn page_offset(self) -> usize {
                self.0 as usize & (PAGE_SIZE - 1)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{:#x}", self.0)
            }
        }
    };
}

address!(
    /// A physical address.
    PhysAddr
);
address!(
    /// A virtual address of the kernel.
    VirtAddr
);
address!(
    /// An address that a program gave us: only a claim until it is checked.
    UserAddr
);
