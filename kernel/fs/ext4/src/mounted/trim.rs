//! `FITRIM`: a program (`fstrim`) has the device told which blocks are free.

use machine::address::UserAddr;
use machine::user_memory;
use vfs::credentials::{Capabilities, caller_has};
use vfs::{Error, Result};

use super::instance::{Instance, error_of};

/// The request's number.
pub(super) const FITRIM: u32 = 0xc018_5879;
/// `struct fstrim_range`: three numbers, where the range begins, how long it is, which free runs are worth telling; all in bytes.
const RANGE_BYTES: usize = 24;

impl Instance {
    /// Tells the device what is free in the range that the program gives, which is told how many bytes that were.
    pub(super) fn trim(&self, argument: UserAddr) -> Result<usize> {
        if !caller_has(Capabilities::SYS_ADMIN) {
            return Err(Error::NotPermitted);
        }
        if !self.system().cache.can_discard() {
            return Err(Error::NotSupported);
        }
        let mut bytes = [0; RANGE_BYTES];
        user_memory::read(&mut bytes, argument).map_err(|_| Error::BadAddress)?;
        let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
        let mut next = || words.next().unwrap_or_default();
        let (start, length, least) = (next(), next(), next());
        let geometry = &self.system().geometry;
        let unit = geometry.block_bytes as u64;
        let (first, blocks, least) = (start / unit, length / unit, (least / unit).max(1));
        if least > geometry.blocks_per_group || first >= geometry.blocks || length < unit {
            return Err(Error::Invalid);
        }
        let writer = self.writer()?;
        // What was removed is free when it has been deleted, and nobody's any more when that is committed.
        self.delete_gone();
        writer.commit().map_err(error_of)?;
        let goes_on = || !sched::current().is_killed();
        let told =
            writer.trim(first..first.saturating_add(blocks), least as u32, goes_on).map_err(error_of)?;
        bytes[8..16].copy_from_slice(&(told * unit).to_ne_bytes());
        user_memory::write(argument, &bytes).map_err(|_| Error::BadAddress)?;
        Ok(0)
    }
}
