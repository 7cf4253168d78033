//! Mount options.

use core::fmt;

use block::registry::BlockDevice;
use vfs::{Error, Result};

/// What a mount can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// Access lists are shown and count (`acl`, `noacl`).
    pub(super) access_lists: bool,
}

/// Options that are known and change nothing here.
const ACCEPTED: [&[u8]; 7] =
    [b"", b"ro", b"noload", b"norecovery", b"errors=remount-ro", b"errors=continue", b"user_xattr"];

impl Options {
    /// Those of a mount that says nothing.
    pub(super) const fn new() -> Self {
        Self { access_lists: true }
    }

    /// Changes what a text with commas says.
    ///
    /// # Errors
    /// `EINVAL` for what is not known.
    pub(super) fn parse(mut self, text: &[u8], device: &BlockDevice) -> Result<Self> {
        for option in text.split(|&byte| byte == b',') {
            match option {
                b"acl" => self.access_lists = true,
                b"noacl" => self.access_lists = false,
                known if ACCEPTED.contains(&known) => {}
                unknown => {
                    log::warn!("ext4 on {}: unknown option {}", device.name(), unknown.escape_ascii());
                    return Err(Error::Invalid);
                }
            }
        }
        Ok(self)
    }

    /// Shows what differs from a mount that says nothing.
    pub(super) fn show(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        if self.access_lists { Ok(()) } else { out.write_str(",noacl") }
    }
}
