//! How many locks the calling thread has taken: one of Starling's own system calls.

use crate::errno::{Errno, SysResult};
use crate::task::Task;
use crate::user_pointer::UserPointer;

/// `get_lcount(&count)`: stores the number of locks that the thread has taken, not counting what interrupts took that came while it
/// ran. ENOSYS from a kernel that doesn't count.
pub fn get_lcount(_task: &mut Task, count: u64) -> SysResult {
    let taken = sync::classes::locks_taken().ok_or(Errno::ENOSYS)?;
    UserPointer::<u64>::new(count).write(&taken)?;
    Ok(0)
}
