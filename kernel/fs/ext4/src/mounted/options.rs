//! Mount options.

use core::fmt;

use block::registry::BlockDevice;
use vfs::{Error, Result};

/// What a mount can choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// Access lists are shown and count (`acl`, `noacl`).
    pub(super) access_lists: bool,
    /// Who may use the blocks that are kept for the superuser (`resuid=`).
    pub(super) reserved_user: u32,
    /// The same for a group, unless it is 0 (`resgid=`).
    pub(super) reserved_group: u32,
}

/// Options that are known and change nothing here.
const ACCEPTED: [&[u8]; 7] =
    [b"", b"ro", b"noload", b"norecovery", b"errors=remount-ro", b"errors=continue", b"user_xattr"];

impl Options {
    /// Those of a mount that says nothing, of a file system that names a user and a group.
    pub(super) const fn new(reserved_user: u32, reserved_group: u32) -> Self {
        Self { access_lists: true, reserved_user, reserved_group }
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
                id if id.starts_with(b"resuid=") => self.reserved_user = number(&id[7..])?,
                id if id.starts_with(b"resgid=") => self.reserved_group = number(&id[7..])?,
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
    pub(super) fn show(&self, silent: &Self, out: &mut dyn fmt::Write) -> fmt::Result {
        if !self.access_lists {
            out.write_str(",noacl")?;
        }
        if self.reserved_user != silent.reserved_user {
            write!(out, ",resuid={}", self.reserved_user)?;
        }
        if self.reserved_group != silent.reserved_group {
            write!(out, ",resgid={}", self.reserved_group)?;
        }
        Ok(())
    }
}

fn number(text: &[u8]) -> Result<u32> {
    core::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Error::Invalid)
}
