//! What a lock's word says, and what an operation makes of it.

use crate::errno::Errno;

/// Somebody waits in the kernel.
pub(super) const WAITERS: u32 = 0x8000_0000;
/// The last owner ended without unlocking.
pub(super) const OWNER_DIED: u32 = 0x4000_0000;
const NUMBER: u32 = 0x3fff_ffff;

/// A lock's word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) u32);

impl Word {
    /// The owner's thread number; 0 if it is free.
    pub(super) fn owner(self) -> u32 {
        self.0 & NUMBER
    }

    /// Taken by who finds no owner in it. That the last one died stays known.
    pub(super) fn taken_by(self, number: u32, others_wait: bool) -> Word {
        Word(self.0 & OWNER_DIED | number | if others_wait { WAITERS } else { 0 })
    }

    pub(super) fn with_waiters(self) -> Word {
        Word(self.0 | WAITERS)
    }

    /// Passed on by its owner.
    pub(super) fn passed_to(number: u32) -> Word {
        Word(number | WAITERS)
    }

    /// Written by who has it from an owner that died.
    pub(super) fn inherited_by(number: u32) -> Word {
        Word(number | WAITERS | OWNER_DIED)
    }

    /// Whether it agrees with the kernel's knowledge of the owner. A robust list that was worked off has removed the number.
    pub(super) fn agrees_with(self, owner: u32) -> Result<(), Errno> {
        let marked = self.0 & OWNER_DIED != 0 && self.owner() == 0;
        if marked || self.owner() == owner { Ok(()) } else { Err(Errno::EINVAL) }
    }
}
