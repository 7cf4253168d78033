//! Files in memory without a name (memfd_create(2)).

use crate::errno::{Errno, SysResult};
use crate::memory::check_huge_size;
use crate::task::Task;
use crate::user_pointer::read_string;

const MFD_CLOEXEC: u32 = 1;
const MFD_ALLOW_SEALING: u32 = 2;
const MFD_HUGETLB: u32 = 4;
/// Which huge pages, as `mmap` has it.
const MFD_HUGE_SIZE: u32 = 0x3f << 26;
const MFD_NOEXEC_SEAL: u32 = 8;
const MFD_EXEC: u32 = 16;
/// Room for the longest name and its NUL.
const NAME_BYTES: usize = 250;

/// Makes a file in memory.
#[inline(never)]
pub fn memfd_create(task: &mut Task, name: u64, flags: u32) -> SysResult {
    let huge = flags & MFD_HUGETLB != 0;
    let sizes = if huge { MFD_HUGETLB | MFD_HUGE_SIZE } else { 0 };
    let known = MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL | MFD_EXEC | sizes;
    let both = MFD_NOEXEC_SEAL | MFD_EXEC;
    if flags & !known != 0 || flags & both == both {
        return Err(Errno::EINVAL);
    }
    let mut buffer = [0; NAME_BYTES];
    let length = read_string(name, &mut buffer).map_err(|error| match error {
        Errno::ENAMETOOLONG => Errno::EINVAL,
        other => other,
    })?;
    if huge {
        check_huge_size(flags).map_err(|_| Errno::ENODEV)?;
    }
    let no_execute = flags & MFD_NOEXEC_SEAL != 0;
    let sealing = flags & MFD_ALLOW_SEALING != 0;
    let file =
        tmpfs::memory_file::create(&buffer[..length], sealing, no_execute, huge, &task.credentials.file)?;
    task.install_file(file, flags & MFD_CLOEXEC != 0)
}
