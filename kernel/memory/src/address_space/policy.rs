//! Memory policies of ranges (mbind): kept for who asks. Where frames come from does not depend on them, as there is one node of memory.

use super::error::MapError;
use super::space::AddressSpace;
use super::unmap::page_range;
use crate::region::Region;
use machine::address::UserAddr;

impl AddressSpace {
    /// Gives what is mapped of a range the policy that is said of each region, a number below 64 of which 0 means none; `None` leaves it.
    ///
    /// # Errors
    /// Those of `wanted`, which end it there; `InvalidArgument` for no range; `OutOfMemory` for a hole, of which the rest has been done.
    pub fn set_policies(
        &self,
        start: UserAddr,
        length: u64,
        mut wanted: impl FnMut(&Region) -> Result<Option<u8>, MapError>,
    ) -> Result<(), MapError> {
        let range = page_range(start, length)?;
        let _layout = self.change.lock();
        self.each_piece(range, |piece| match wanted(&piece)? {
            Some(policy) if policy != piece.flags().policy() => {
                self.change_flags(piece.start()..piece.end(), |region| region.flags().with_policy(policy))
            }
            _ => Ok(()),
        })
    }
}
