//! Why an operation on an address space is refused: one variant for each errno it can mean.

use crate::OutOfMemory;
use machine::fault::{Fault, FaultError};

/// Reason of a refusal. The comments name the errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// ENOMEM: no memory, a limit is exceeded, or the range is not mapped.
    OutOfMemory,
    /// EINVAL: an argument is not aligned, out of range, or contradicts another.
    InvalidArgument,
    /// EEXIST: the fixed range is in use.
    Exists,
    /// EACCES: the mapped object does not allow the protection.
    AccessDenied,
    /// EAGAIN: more memory would be locked than is allowed, or a page can't be moved just now.
    TooMuchLocked,
    /// EPERM: not allowed to the caller.
    NotPermitted,
    /// EBUSY: the range is locked.
    Busy,
    /// EFAULT: the range is not mapped (mremap), or a program's pointer is bad.
    BadAddress,
    /// EBADF: the range maps no file.
    NoFile,
    /// EIO: the mapped object could not be read or written.
    InputOutput,
    /// EOVERFLOW: a file offset is beyond what can be expressed.
    Overflow,
}

impl From<OutOfMemory> for MapError {
    fn from(_: OutOfMemory) -> MapError {
        MapError::OutOfMemory
    }
}

impl From<Fault> for MapError {
    fn from(_: Fault) -> MapError {
        MapError::BadAddress
    }
}

impl From<FaultError> for MapError {
    fn from(error: FaultError) -> MapError {
        match error {
            FaultError::OutOfMemory => MapError::OutOfMemory,
            FaultError::NotMapped | FaultError::AccessDenied | FaultError::Bus | FaultError::Pager => {
                MapError::BadAddress
            }
        }
    }
}
