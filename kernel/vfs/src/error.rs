//! What can go wrong in the file layer.
//!
//! One variant for each errno value a file operation can end in; the personality turns them into
//! `-errno` with [`Error::errno`]. [`Error::Interrupted`] means that a signal is pending and nothing has
//! been done yet: the personality decides whether the call is restarted or fails with `EINTR`.

use core::fmt;

macro_rules! errors {
    ($($(#[$meta:meta])* $variant:ident = $number:literal, $name:literal;)*) => {
        /// The reason why a file operation failed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Error {
            $($(#[$meta])* $variant = $number,)*
        }

        impl Error {
            /// The reason that a number stands for, if it is one of those.
            #[must_use]
            pub const fn from_errno(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The symbolic name, as in `errno(3)`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

errors! {
    /// Operation not permitted.
    NotPermitted = 1, "EPERM";
    /// No such file or directory.
    NotFound = 2, "ENOENT";
    /// No such process.
    NoProcess = 3, "ESRCH";
    /// Interrupted by a signal before anything was done.
    Interrupted = 4, "EINTR";
    /// Input/output error.
    Io = 5, "EIO";
    /// No such device or address.
    NoDeviceAddress = 6, "ENXIO";
    /// Argument list too long (also: value too big for an extended attribute).
    TooBig = 7, "E2BIG";
    /// Bad executable format.
    NotExecutable = 8, "ENOEXEC";
    /// Bad file descriptor.
    BadDescriptor = 9, "EBADF";
    /// No child processes.
    NoChild = 10, "ECHILD";
    /// The operation would block.
    WouldBlock = 11, "EAGAIN";
    /// Out of memory.
    OutOfMemory = 12, "ENOMEM";
    /// Permission denied.
    AccessDenied = 13, "EACCES";
    /// Bad address given by the program.
    BadAddress = 14, "EFAULT";
    /// Block device required.
    NotBlockDevice = 15, "ENOTBLK";
    /// In use.
    Busy = 16, "EBUSY";
    /// File exists.
    Exists = 17, "EEXIST";
    /// Crosses mounts or file systems.
    CrossDevice = 18, "EXDEV";
    /// No such device.
    NoDevice = 19, "ENODEV";
    /// Not a directory.
    NotDirectory = 20, "ENOTDIR";
    /// Is a directory.
    IsDirectory = 21, "EISDIR";
    /// Invalid argument.
    Invalid = 22, "EINVAL";
    /// Too many open files in the system.
    FileTableFull = 23, "ENFILE";
    /// Too many open descriptors in the process.
    TooManyDescriptors = 24, "EMFILE";
    /// Inappropriate ioctl for this device.
    NotTerminal = 25, "ENOTTY";
    /// The program's text is being written.
    TextBusy = 26, "ETXTBSY";
    /// File too large.
    FileTooLarge = 27, "EFBIG";
    /// No space left on the device.
    NoSpace = 28, "ENOSPC";
    /// Illegal seek.
    IllegalSeek = 29, "ESPIPE";
    /// Read-only file system.
    ReadOnly = 30, "EROFS";
    /// Too many links.
    TooManyLinks = 31, "EMLINK";
    /// Broken pipe; the personality also sends `SIGPIPE`.
    BrokenPipe = 32, "EPIPE";
    /// Numerical argument out of domain.
    Domain = 33, "EDOM";
    /// Result out of range (an attribute buffer that is too small).
    Range = 34, "ERANGE";
    /// Waiting would deadlock.
    Deadlock = 35, "EDEADLK";
    /// A name or path is too long.
    NameTooLong = 36, "ENAMETOOLONG";
    /// No record locks available.
    NoLocks = 37, "ENOLCK";
    /// The call is not implemented.
    NotImplemented = 38, "ENOSYS";
    /// The directory is not empty.
    NotEmpty = 39, "ENOTEMPTY";
    /// Too many symbolic links.
    Loop = 40, "ELOOP";
    /// No such extended attribute.
    NoData = 61, "ENODATA";
    /// The value does not fit the data type.
    Overflow = 75, "EOVERFLOW";
    /// The file descriptor is in a bad state.
    BadDescriptorState = 77, "EBADFD";
    /// Not a socket.
    NotSocket = 88, "ENOTSOCK";
    /// The message is too long.
    MessageTooLong = 90, "EMSGSIZE";
    /// A socket of another type is there.
    WrongSocketType = 91, "EPROTOTYPE";
    /// The operation is not supported.
    NotSupported = 95, "EOPNOTSUPP";
    /// Address already in use.
    AddressInUse = 98, "EADDRINUSE";
    /// There is no such address here.
    AddressNotAvailable = 99, "EADDRNOTAVAIL";
    /// What was under way was given up.
    ConnectionAborted = 103, "ECONNABORTED";
    /// The other end is gone, with data of ours.
    ConnectionReset = 104, "ECONNRESET";
    /// No buffer space available: messages were lost.
    NoBufferSpace = 105, "ENOBUFS";
    /// There is another end already.
    IsConnected = 106, "EISCONN";
    /// There is no other end.
    NotConnected = 107, "ENOTCONN";
    /// The wait's time is over.
    TimedOut = 110, "ETIMEDOUT";
    /// The other end does not take messages.
    ConnectionRefused = 111, "ECONNREFUSED";
    /// It is being done, or was done.
    InProgress = 115, "EINPROGRESS";
    /// The file handle is no longer valid.
    Stale = 116, "ESTALE";
    /// A quota is used up.
    Quota = 122, "EDQUOT";
    /// The operation was cancelled.
    Cancelled = 125, "ECANCELED";
}

impl Error {
    /// The positive errno value.
    pub const fn errno(self) -> i32 {
        self as i32
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// What operations of this layer return.
pub type Result<T, E = Error> = core::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_linux() {
        assert_eq!(Error::NotPermitted.errno(), 1);
        assert_eq!(Error::WouldBlock.errno(), 11);
        assert_eq!(Error::Loop.errno(), 40);
        assert_eq!(Error::NotSupported.errno(), 95);
        assert_eq!(Error::Loop.name(), "ELOOP");
    }
}
