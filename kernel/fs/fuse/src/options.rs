//! What `mount -o` says.

use alloc::sync::Arc;
use core::fmt;

use vfs::{Error, FileKind, Result, UserSpace};

/// What `max_read=` says at least.
const READ_BYTES_MIN: u32 = 4096;

/// Options of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// What the mounting program has `/dev/fuse` open as.
    pub(crate) descriptor: i32,
    /// Permission bits of the root directory.
    pub(crate) root_mode: u32,
    /// What the root is.
    pub(crate) root_kind: FileKind,
    /// Who may have the server asked.
    pub(crate) user: u32,
    /// His group.
    pub(crate) group: u32,
    /// Others may, too.
    pub(crate) allow_other: bool,
    /// Owners and modes say who may do what; else the server does.
    pub(crate) default_permissions: bool,
    /// Bytes of a read at most.
    pub(crate) read_bytes: u32,
    /// The name of the program that makes the files.
    pub(crate) subtype: Option<Arc<[u8]>>,
}

/// What is said, in any order.
#[derive(Default)]
struct Words<'a> {
    descriptor: Option<u32>,
    root_mode: Option<u32>,
    user: Option<u32>,
    group: Option<u32>,
    read_bytes: Option<u32>,
    allow_other: bool,
    default_permissions: bool,
    subtype: Option<&'a [u8]>,
}

fn number(text: &[u8], base: u32) -> Result<u32> {
    let text = core::str::from_utf8(text).map_err(|_| Error::Invalid)?;
    if text.starts_with('+') {
        return Err(Error::Invalid);
    }
    u32::from_str_radix(text, base).map_err(|_| Error::Invalid)
}

impl<'a> Words<'a> {
    fn set(&mut self, name: &[u8], value: Option<&'a [u8]>) -> Result<()> {
        let given = || value.ok_or(Error::Invalid);
        match (name, value) {
            (b"fd", _) => self.descriptor = Some(number(given()?, 10)?),
            (b"rootmode", _) => self.root_mode = Some(number(given()?, 8)?),
            (b"user_id", _) => self.user = Some(number(given()?, 10)?),
            (b"group_id", _) => self.group = Some(number(given()?, 10)?),
            (b"max_read", _) => self.read_bytes = Some(number(given()?, 10)?),
            (b"allow_other", None) => self.allow_other = true,
            (b"default_permissions", None) => self.default_permissions = true,
            (b"subtype", _) => self.subtype = Some(given()?),
            // Mounting programs tell their name for the source so.
            (b"source", Some(_)) => {}
            _ => return Err(Error::Invalid),
        }
        Ok(())
    }
}

impl Options {
    /// Reads them; ids are those that the name space of users of who mounts has for them.
    ///
    /// # Errors
    /// `EINVAL` for what is not known, makes no sense or is missing.
    pub(crate) fn parse(text: &[u8], space: &UserSpace) -> Result<Self> {
        let mut words = Words::default();
        for word in text.split(|&byte| byte == b',').filter(|word| !word.is_empty()) {
            let mut parts = word.splitn(2, |&byte| byte == b'=');
            let name = parts.next().unwrap_or_default();
            words
                .set(name, parts.next())
                .inspect_err(|_| log::warn!("fuse: option {}", word.escape_ascii()))?;
        }
        let root_mode = words.root_mode.ok_or(Error::Invalid)?;
        let descriptor = words.descriptor.ok_or(Error::Invalid)?;
        let read_bytes = words.read_bytes.map_or(u32::MAX, |bytes| bytes.max(READ_BYTES_MIN));
        Ok(Self {
            descriptor: i32::try_from(descriptor).map_err(|_| Error::Invalid)?,
            root_mode: root_mode & vfs::attributes::MODE_MASK,
            root_kind: crate::wire::kind_of(root_mode).ok_or(Error::Invalid)?,
            user: words.user.and_then(|id| space.kernel_user(id)).ok_or(Error::Invalid)?,
            group: words.group.and_then(|id| space.kernel_group(id)).ok_or(Error::Invalid)?,
            allow_other: words.allow_other,
            default_permissions: words.default_permissions,
            read_bytes,
            subtype: words.subtype.map(vfs::allocation::arc_bytes).transpose()?,
        })
    }

    /// As `/proc/mounts` shows them.
    pub(crate) fn show(&self, space: &UserSpace, out: &mut dyn fmt::Write) -> fmt::Result {
        let (user, group) = (space.shown_user(self.user), space.shown_group(self.group));
        write!(out, ",user_id={user},group_id={group}")?;
        if self.default_permissions {
            out.write_str(",default_permissions")?;
        }
        if self.allow_other {
            out.write_str(",allow_other")?;
        }
        if self.read_bytes != u32::MAX {
            write!(out, ",max_read={}", self.read_bytes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::*;

    fn parse(text: &str) -> Result<Options> {
        Options::parse(text.as_bytes(), UserSpace::FIRST)
    }

    #[test]
    fn options_are_those_of_linux() {
        let options = parse("fd=5,rootmode=40755,user_id=1000,group_id=7,max_read=100,allow_other,subtype=x");
        let options = options.expect("known words");
        assert_eq!(
            (options.descriptor, options.root_mode, options.root_kind),
            (5, 0o755, FileKind::Directory)
        );
        assert_eq!(options.subtype.as_deref(), Some(&b"x"[..]));
        let mut shown = String::new();
        options.show(UserSpace::FIRST, &mut shown).expect("memory");
        assert_eq!(shown, ",user_id=1000,group_id=7,allow_other,max_read=4096");
    }

    #[test]
    fn what_is_missing_or_senseless_is_refused() {
        for text in [
            "",
            "fd=3,user_id=0,group_id=0",
            "fd=3,rootmode=755,user_id=0,group_id=0",
            "rootmode=40000,user_id=0,group_id=0",
            "fd=3,rootmode=40000,group_id=0",
            "fd=3,rootmode=40000,user_id=0",
            "fd=x,rootmode=40000,user_id=0,group_id=0",
            "fd=3,rootmode=48000,user_id=0,group_id=0",
            "fd=3,rootmode=40000,user_id=0,group_id=0,blksize=512",
            "fd=3,rootmode=40000,user_id=0,group_id=0,allow_other=1",
            "fd=3,rootmode=40000,user_id=-1,group_id=0",
            "fd=3,rootmode=40000,user_id=+1,group_id=0",
            "fd=3000000000,rootmode=40000,user_id=0,group_id=0",
        ] {
            assert_eq!(parse(text).err(), Some(Error::Invalid), "{text}");
        }
    }
}
