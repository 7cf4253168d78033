//! What a file is: kind, mode bits, device numbers, times, and the record that `stat` shows.

use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Set-user-id bit of a mode.
pub const SET_USER_ID: u32 = 0o4000;
/// Set-group-id bit of a mode.
pub const SET_GROUP_ID: u32 = 0o2000;
/// Sticky bit of a mode: in such a directory only owners may delete.
pub const STICKY: u32 = 0o1000;
/// The bits that `chmod` can set.
pub const MODE_MASK: u32 = 0o7777;

/// The kind of a file; never changes during an inode's life. The values are the `S_IFMT` part of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum FileKind {
    /// A named pipe, or a pipe.
    Fifo = 0o010000,
    /// A character device.
    CharacterDevice = 0o020000,
    /// A directory.
    Directory = 0o040000,
    /// A block device.
    BlockDevice = 0o060000,
    /// A regular file.
    Regular = 0o100000,
    /// A symbolic link.
    SymbolicLink = 0o120000,
    /// A socket.
    Socket = 0o140000,
    /// No kind of its own: what `anon_inode` files show (mode bits only).
    Anonymous = 0,
}

impl FileKind {
    /// The kind that the `S_IFMT` bits of a mode name; `Regular` for 0, as `mknod` wants it.
    pub const fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & 0o170000 {
            0o010000 => Self::Fifo,
            0o020000 => Self::CharacterDevice,
            0o040000 => Self::Directory,
            0o060000 => Self::BlockDevice,
            0o100000 | 0 => Self::Regular,
            0o120000 => Self::SymbolicLink,
            0o140000 => Self::Socket,
            _ => return None,
        })
    }

    /// The `S_IFMT` bits.
    pub const fn mode_bits(self) -> u32 {
        self as u32
    }

    /// The `DT_*` value of directory entries.
    pub const fn directory_entry_type(self) -> u8 {
        (self as u16 >> 12) as u8
    }

    /// Whether it is a character or block device.
    pub const fn is_device(self) -> bool {
        matches!(self, Self::CharacterDevice | Self::BlockDevice)
    }
}

/// A device number: major and minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct DeviceNumber {
    /// Which driver.
    pub major: u32,
    /// Which device of the driver.
    pub minor: u32,
}

impl DeviceNumber {
    /// The device number (major, minor).
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// As programs see it in `st_dev` and `st_rdev`, and give it to `mknod`.
    pub const fn encode(self) -> u64 {
        let (major, minor) = (self.major as u64, self.minor as u64);
        (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & !0xff) << 12) | ((major & !0xfff) << 32)
    }

    /// As the kernel shows it where it shows the number as it is (`fdinfo`).
    pub const fn in_kernel(self) -> u64 {
        (self.major as u64) << 20 | self.minor as u64
    }

    /// The inverse of [`encode`](Self::encode).
    pub const fn decode(number: u64) -> Self {
        Self {
            major: (((number >> 8) & 0xfff) | ((number >> 32) & !0xfff)) as u32,
            minor: ((number & 0xff) | ((number >> 12) & 0xffff_ff00)) as u32,
        }
    }
}

/// A point in real time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Timestamp {
    /// Seconds since 1970, UTC.
    pub seconds: i64,
    /// Nanoseconds, below 10⁹.
    pub nanoseconds: u32,
}

/// What is added to the wall clock found at boot, in nanoseconds, since the time of day was set.
static CLOCK_OFFSET_NS: AtomicI64 = AtomicI64::new(0);

/// Sets the time of day: what it was when the monotonic clock began, in nanoseconds since 1970. Who waits for a time of day is told by
/// the caller.
pub fn set_time_of_day_base_ns(base_ns: u64) {
    // Relaxed: an independent number.
    CLOCK_OFFSET_NS
        .store(base_ns.wrapping_sub(machine::time::wall_clock_boot_ns()) as i64, Ordering::Relaxed);
}

/// What to add to the monotonic clock for the time of day in nanoseconds since 1970.
#[inline]
pub fn time_of_day_base_ns() -> u64 {
    // Relaxed: an independent number.
    machine::time::wall_clock_boot_ns().wrapping_add_signed(CLOCK_OFFSET_NS.load(Ordering::Relaxed))
}

impl Timestamp {
    /// The earliest time a file can carry: in December 1901, as on ext4.
    pub const MINIMUM: Self = Self { seconds: -(1 << 31), nanoseconds: 0 };
    /// The latest time a file can carry: in May 2446, as on ext4.
    pub const MAXIMUM: Self = Self { seconds: (1 << 34) - (1 << 31) - 1, nanoseconds: 999_999_999 };

    /// The time with these nanoseconds since 1970.
    pub const fn from_nanoseconds(nanoseconds: i64) -> Self {
        Self {
            seconds: nanoseconds.div_euclid(1_000_000_000),
            nanoseconds: nanoseconds.rem_euclid(1_000_000_000) as u32,
        }
    }

    /// The current time. Reads the cycle counter; takes no lock.
    #[inline]
    pub fn now() -> Self {
        Self::from_nanoseconds(time_of_day_base_ns().wrapping_add(machine::time::now_ns()) as i64)
    }

    /// The current time as files are stamped with it: in steps, as Linux's coarse clock goes, so that a file that is changed many times
    /// within one has one time, and is changed on its disk once.
    #[inline]
    pub fn coarse() -> Self {
        Self::from_nanoseconds(time_of_day_base_ns().wrapping_add(machine::time::coarse_now_ns()) as i64)
    }

    /// Packs into 64 bits: 34 bits of biased seconds, 30 of nanoseconds. Order-preserving; clamps to the range a
    /// file can carry, as Linux clamps to what a file system can store.
    const fn pack(self) -> u64 {
        if self.seconds < Self::MINIMUM.seconds {
            return 0;
        }
        if self.seconds > Self::MAXIMUM.seconds {
            return Self::MAXIMUM.pack();
        }
        (((self.seconds - Self::MINIMUM.seconds) as u64) << 30) | self.nanoseconds as u64
    }

    const fn unpack(packed: u64) -> Self {
        Self {
            seconds: (packed >> 30) as i64 + Self::MINIMUM.seconds,
            nanoseconds: (packed & 0x3fff_ffff) as u32,
        }
    }
}

/// A time stamp that is read and written without a lock.
#[derive(Debug)]
pub struct AtomicTimestamp(AtomicU64);

impl AtomicTimestamp {
    /// A stamp with this time.
    pub const fn new(time: Timestamp) -> Self {
        Self(AtomicU64::new(time.pack()))
    }

    /// The time.
    #[inline]
    pub fn get(&self) -> Timestamp {
        // Relaxed: each stamp stands for itself.
        Timestamp::unpack(self.0.load(Ordering::Relaxed))
    }

    /// Changes the time.
    #[inline]
    pub fn set(&self, time: Timestamp) {
        // Relaxed: as in `get`.
        self.0.store(time.pack(), Ordering::Relaxed);
    }

    /// Changes the time from what it was found to be, unless somebody else has changed it since.
    pub fn replace(&self, found: Timestamp, time: Timestamp) {
        // Relaxed: as in `get`.
        let _ = self.0.compare_exchange(found.pack(), time.pack(), Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// What `stat` and `statx` show of a file.
#[derive(Clone, Copy, Debug)]
pub struct FileStatus {
    /// Device of the file system.
    pub device: DeviceNumber,
    /// Inode number.
    pub inode: u64,
    /// Kind and permission bits.
    pub mode: u32,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// Which device a device node stands for.
    pub special: DeviceNumber,
    /// Bytes.
    pub size: u64,
    /// Preferred block size for I/O.
    pub block_size: u32,
    /// 512-byte blocks in use.
    pub blocks: u64,
    /// Last access.
    pub accessed: Timestamp,
    /// Last modification of the contents.
    pub modified: Timestamp,
    /// Last change of contents or attributes.
    pub changed: Timestamp,
    /// Creation.
    pub born: Timestamp,
    /// The mount it was reached through; 0 when none.
    pub mount_id: u64,
    /// Whether it is the root of that mount.
    pub mount_root: bool,
    /// Flags of the file, numbered as in [`FileFlags`](crate::file_flags::FileFlags), as far as `statx` shows them.
    pub attributes: u32,
    /// Those that files of the file system may have, and what is told of them besides.
    pub attributes_known: u32,
}

/// What a file system says about itself to `statfs`.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileSystemStatus {
    /// Magic number of the type.
    pub magic: u64,
    /// Block size.
    pub block_size: u64,
    /// Blocks altogether.
    pub blocks: u64,
    /// Free blocks.
    pub blocks_free: u64,
    /// Free blocks for unprivileged users.
    pub blocks_available: u64,
    /// Inodes altogether.
    pub files: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Longest name.
    pub name_length: u64,
    /// Identity of the file system.
    pub id: u64,
}

/// A change of attributes, as `chmod`, `chown`, `utimensat` and `truncate` ask for; `None` leaves as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributeChange {
    /// New permission bits.
    pub mode: Option<u32>,
    /// New owner.
    pub user: Option<u32>,
    /// New group.
    pub group: Option<u32>,
    /// New size.
    pub size: Option<u64>,
    /// New access time.
    pub accessed: Option<TimeChange>,
    /// New modification time.
    pub modified: Option<TimeChange>,
}

/// A new value for a time stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeChange {
    /// The current time: whoever may write the file may ask for it.
    Now,
    /// A given time: only for the owner.
    To(Timestamp),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive_encoding() {
        for (major, minor) in [(0, 0), (1, 3), (0xfff, 0xff), (0x1000, 0x100), (0xffff_ffff, 0xffff_ffff)] {
            let number = DeviceNumber::new(major, minor);
            assert_eq!(DeviceNumber::decode(number.encode()), number);
        }
        assert_eq!(DeviceNumber::new(5, 1).encode(), 0x501);
    }

    #[test]
    fn stamps_keep_nanoseconds_and_order() {
        let times = [
            Timestamp::MINIMUM,
            Timestamp { seconds: -1, nanoseconds: 5 },
            Timestamp { seconds: 0, nanoseconds: 0 },
            Timestamp { seconds: 4_000_000_000, nanoseconds: 999_999_999 },
            Timestamp::MAXIMUM,
        ];
        for time in times {
            assert_eq!(AtomicTimestamp::new(time).get(), time);
        }
        assert!(times.windows(2).all(|pair| pair[0].pack() < pair[1].pack()));
    }

    #[test]
    fn times_beyond_the_range_are_clamped() {
        let late = Timestamp { seconds: i64::MAX, nanoseconds: 1 };
        assert_eq!(AtomicTimestamp::new(late).get(), Timestamp::MAXIMUM);
        let early = Timestamp { seconds: i64::MIN, nanoseconds: 1 };
        assert_eq!(AtomicTimestamp::new(early).get(), Timestamp::MINIMUM);
    }

    #[test]
    fn negative_nanoseconds_round_down() {
        assert_eq!(Timestamp::from_nanoseconds(-1), Timestamp { seconds: -1, nanoseconds: 999_999_999 });
    }
}
