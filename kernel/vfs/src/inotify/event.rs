//! Events and how they are laid out for reading.

use bitflags::bitflags;

use crate::name::Name;

bitflags! {
    /// Events and flags, as in `inotify(7)`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct EventMask: u32 {
        /// The file was read.
        const ACCESS = 0x1;
        /// The file was written.
        const MODIFY = 0x2;
        /// Its attributes changed.
        const ATTRIBUTE = 0x4;
        /// A file open for writing was closed.
        const CLOSE_WRITE = 0x8;
        /// A file not open for writing was closed.
        const CLOSE_NO_WRITE = 0x10;
        /// It was opened.
        const OPEN = 0x20;
        /// A name was moved away.
        const MOVED_FROM = 0x40;
        /// A name was moved here.
        const MOVED_TO = 0x80;
        /// A name was created.
        const CREATE = 0x100;
        /// A name was deleted.
        const DELETE = 0x200;
        /// The watched file itself was deleted.
        const DELETE_SELF = 0x400;
        /// The watched file itself was moved.
        const MOVE_SELF = 0x800;
        /// Its file system was unmounted.
        const UNMOUNT = 0x2000;
        /// Events were lost.
        const OVERFLOW = 0x4000;
        /// The watch is gone.
        const IGNORED = 0x8000;
        /// Watch directories only.
        const ONLY_DIRECTORY = 0x0100_0000;
        /// Do not follow a symbolic link.
        const DO_NOT_FOLLOW = 0x0200_0000;
        /// No events for files whose name is gone.
        const EXCLUDE_UNLINKED = 0x0400_0000;
        /// Fail when the file is watched already.
        const MASK_CREATE = 0x1000_0000;
        /// Add to the mask of an existing watch.
        const MASK_ADD = 0x2000_0000;
        /// The event is about a directory.
        const IS_DIRECTORY = 0x4000_0000;
        /// Remove the watch after one event.
        const ONE_SHOT = 0x8000_0000;
    }
}

impl EventMask {
    /// Everything that a watch can ask for.
    pub const EVENTS: Self = Self::from_bits_retain(0xfff);
}

/// Bytes of an event without its name.
pub(super) const HEADER_BYTES: usize = 16;

/// An event that waits to be read.
#[derive(Clone, PartialEq)]
pub(super) struct Event {
    pub(super) watch: i32,
    pub(super) mask: EventMask,
    pub(super) cookie: u32,
    pub(super) name: Option<Name>,
}

impl Event {
    /// Bytes of the name with its padding: a multiple of the header's size.
    pub(super) fn name_bytes(&self) -> usize {
        self.name.as_ref().map_or(0, |name| (name.as_bytes().len() + 1).next_multiple_of(HEADER_BYTES))
    }

    pub(super) fn header(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.watch.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.mask.bits().to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.cookie.to_ne_bytes());
        bytes[12..].copy_from_slice(&(self.name_bytes() as u32).to_ne_bytes());
        bytes
    }
}
