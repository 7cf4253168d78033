//! The properties of a region, in one word.

use crate::address_space::Protection;
use bitflags::bitflags;

bitflags! {
    /// Properties of a region. Regions merge only when all of them agree.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RegionFlags: u32 {
        /// Loads are allowed.
        const READ = 1 << 0;
        /// Stores are allowed.
        const WRITE = 1 << 1;
        /// Instruction fetches are allowed.
        const EXECUTE = 1 << 2;
        /// READ may be granted.
        const MAY_READ = 1 << 3;
        /// WRITE may be granted.
        const MAY_WRITE = 1 << 4;
        /// EXECUTE may be granted.
        const MAY_EXECUTE = 1 << 5;
        /// Stores go to the object.
        const SHARED = 1 << 6;
        /// The region grows towards lower addresses when touched below.
        const GROWS_DOWN = 1 << 7;
        /// Its pages count as committed memory.
        const ACCOUNTED = 1 << 8;
        /// The program asked not to count it.
        const NO_RESERVE = 1 << 9;
        /// Its pages are kept present.
        const LOCKED = 1 << 10;
        /// With LOCKED: only once they have been touched.
        const LOCK_ON_FAULT = 1 << 11;
        /// Not inherited by fork.
        const DONT_FORK = 1 << 12;
        /// Reads as zeros after fork.
        const WIPE_ON_FORK = 1 << 13;
        /// Not dumped.
        const DONT_DUMP = 1 << 14;
        /// References in ascending order.
        const SEQUENTIAL = 1 << 15;
        /// References in random order.
        const RANDOM = 1 << 16;
        /// Large pages wanted.
        const HUGE_PAGE = 1 << 17;
        /// Large pages unwanted.
        const NO_HUGE_PAGE = 1 << 18;
        /// Made by brk.
        const HEAP = 1 << 19;
        /// The main thread's stack.
        const STACK = 1 << 20;
        /// The region may hold private pages: it is anonymous, or was writable at some time.
        const MAY_HAVE_PRIVATE = 1 << 21;
        /// Not ready: accesses are refused while another part of the kernel fills the range.
        const RESERVED = 1 << 22;
        /// Equal pages may be merged (a hint).
        const MERGEABLE = 1 << 23;
        /// Its pages are huge ones of the pool. It begins and ends at multiples of them.
        const POOLED = 1 << 24;
        /// Of a private one: the pool has promised a page for each place of it that is empty.
        const PROMISED = 1 << 25;
        /// From which nodes its pages shall come: a number, 0 for none of its own. See [`RegionFlags::policy`].
        const POLICY = 0x3f << 26;
    }
}

const POLICY_SHIFT: u32 = 26;

impl RegionFlags {
    /// The bits that say what is allowed now.
    pub const PROTECTION: RegionFlags =
        RegionFlags::READ.union(RegionFlags::WRITE).union(RegionFlags::EXECUTE);

    /// The number of its memory policy, which the personality gives a meaning.
    #[must_use]
    pub fn policy(self) -> u8 {
        (self.intersection(RegionFlags::POLICY).bits() >> POLICY_SHIFT) as u8
    }

    /// The same with another policy.
    #[must_use]
    pub fn with_policy(self, policy: u8) -> RegionFlags {
        debug_assert!(u32::from(policy) <= u32::MAX >> POLICY_SHIFT, "a policy has six bits");
        let policy = RegionFlags::from_bits_truncate(u32::from(policy) << POLICY_SHIFT);
        self.difference(RegionFlags::POLICY) | policy
    }

    /// What is allowed now.
    #[must_use]
    pub fn protection(self) -> Protection {
        Protection::from_bits_truncate(self.bits() & 7)
    }

    /// What may ever be allowed.
    #[must_use]
    pub fn maximum(self) -> Protection {
        Protection::from_bits_truncate((self.bits() >> 3) & 7)
    }

    /// The flags for this protection.
    #[must_use]
    pub fn from_protection(protection: Protection) -> RegionFlags {
        RegionFlags::from_bits_truncate(protection.bits())
    }

    /// The flags that let this protection be granted.
    #[must_use]
    pub fn from_maximum(protection: Protection) -> RegionFlags {
        RegionFlags::from_bits_truncate(protection.bits() << 3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_stands_beside_all_other_properties() {
        let others = RegionFlags::all().difference(RegionFlags::POLICY);
        for policy in 0..64 {
            let flags = others.with_policy(63).with_policy(policy);
            assert_eq!((flags.policy(), flags.difference(RegionFlags::POLICY)), (policy, others));
        }
    }
}
