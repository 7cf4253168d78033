//! How a transfer can end.

use core::fmt;

/// Why a transfer failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The medium or the way to it (`EIO`).
    Io,
    /// A thinly provisioned device is full (`ENOSPC`).
    NoSpace,
    /// The device did not answer in time (`ETIMEDOUT`).
    TimedOut,
    /// The device is gone (`ENODEV`).
    NoDevice,
    /// The device cannot do this (`EOPNOTSUPP`).
    NotSupported,
    /// Data did not pass the device's check of integrity (`EILSEQ`).
    Protection,
    /// Outside the device, or not a multiple of its blocks (`EINVAL`).
    Invalid,
    /// The device may not be written (`EROFS`).
    ReadOnly,
    /// No memory for the transfer (`ENOMEM`).
    OutOfMemory,
    /// Somebody else has it (`EBUSY`).
    Busy,
}

/// The result of a transfer.
pub type Result<T> = core::result::Result<T, Error>;

impl Error {
    /// The number, as in `errno(3)`.
    pub const fn errno(self) -> i32 {
        match self {
            Self::Io => 5,
            Self::OutOfMemory => 12,
            Self::Busy => 16,
            Self::NoDevice => 19,
            Self::Invalid => 22,
            Self::NoSpace => 28,
            Self::ReadOnly => 30,
            Self::Protection => 84,
            Self::NotSupported => 95,
            Self::TimedOut => 110,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Io => "input/output error",
            Self::NoSpace => "no space left on the device",
            Self::TimedOut => "the device did not answer in time",
            Self::NoDevice => "the device is gone",
            Self::NotSupported => "not supported by the device",
            Self::Protection => "the data is damaged",
            Self::Invalid => "outside the device or not aligned",
            Self::ReadOnly => "the device is read-only",
            Self::OutOfMemory => "out of memory",
            Self::Busy => "in use",
        })
    }
}

impl From<memory::OutOfMemory> for Error {
    fn from(_: memory::OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}
