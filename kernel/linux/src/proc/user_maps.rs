//! `uid_map`, `gid_map`, `projid_map` and `setgroups` (user_namespaces(7)).
//!
//! Who may write is asked of who opened the file as well as of who writes: a descriptor handed to a privileged program gives no more than its opener had.

use alloc::sync::Arc;

use memory::buffer::{Sink, Source};
use vfs::file::{FileFeatures, FileOperations, SeekFrom};
use vfs::generated::{File, GeneratedFile};
use vfs::text::Text;
use vfs::user_space::{IdMap, Ids};
use vfs::{Capabilities, Error, OpenFile, OpenFlags, Result, UserSpace};

use super::process::Subject;
use crate::credentials::identity::Credentials;
use crate::terminal::calling_thread;

/// A page: a map takes less.
const MAP_BYTES: usize = machine::address::PAGE_SIZE;
/// `allow` with a newline and more.
const WORD_BYTES: usize = 8;

/// Which of the files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Map(Ids),
    SetGroups,
}

/// An open one.
struct Opened {
    text: Arc<GeneratedFile>,
    what: What,
    space: UserSpace,
    opener: Arc<Credentials>,
}

struct Shown {
    what: What,
    space: UserSpace,
    opener: Arc<Credentials>,
}

impl File for Shown {
    fn show(&self, out: &mut Text) -> Result<()> {
        use core::fmt::Write;
        // A text remembers when memory ran out.
        let _ = match self.what {
            What::Map(ids) => self.space.show_map(ids, self.opener.space(), out),
            What::SetGroups => {
                writeln!(out, "{}", if self.space.lets_set_groups() { "allow" } else { "deny" })
            }
        };
        Ok(())
    }
}

pub(super) fn users(subject: &Subject, flags: OpenFlags) -> Result<Arc<dyn FileOperations>> {
    open(subject, What::Map(Ids::User), flags)
}

pub(super) fn groups(subject: &Subject, flags: OpenFlags) -> Result<Arc<dyn FileOperations>> {
    open(subject, What::Map(Ids::Group), flags)
}

pub(super) fn projects(subject: &Subject, flags: OpenFlags) -> Result<Arc<dyn FileOperations>> {
    open(subject, What::Map(Ids::Project), flags)
}

pub(super) fn set_groups(subject: &Subject, flags: OpenFlags) -> Result<Arc<dyn FileOperations>> {
    open(subject, What::SetGroups, flags)
}

fn open(subject: &Subject, what: What, flags: OpenFlags) -> Result<Arc<dyn FileOperations>> {
    let space = subject.process()?.credentials().space().clone();
    let opener = calling_thread().ok_or(Error::Invalid)?.credentials();
    if what == What::SetGroups && flags.writable() && !opener.has_in(&space, Capabilities::SYS_ADMIN) {
        return Err(Error::AccessDenied);
    }
    let shown = vfs::allocation::arc(Shown { what, space: space.clone(), opener: opener.clone() })?;
    let opened = Opened { text: GeneratedFile::new(shown)?, what, space, opener };
    let opened: Arc<dyn FileOperations> = vfs::allocation::arc(opened)?;
    Ok(opened)
}

impl FileOperations for Opened {
    fn features(&self) -> FileFeatures {
        self.text.features()
    }

    fn read(&self, file: &OpenFile, position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        self.text.read(file, position, sink)
    }

    fn seek(&self, file: &OpenFile, current: u64, target: SeekFrom) -> Result<u64> {
        self.text.seek(file, current, target)
    }

    fn write(&self, _file: &OpenFile, position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        let most = if self.what == What::SetGroups { WORD_BYTES } else { MAP_BYTES };
        let length = source.remaining();
        if let What::Map(_) = self.what {
            let parent = self.space.parent().ok_or(Error::NotPermitted)?;
            let from = self.opener.space();
            if !from.is_same(&self.space) && !from.is_same(parent) {
                return Err(Error::NotPermitted);
            }
        }
        if *position != 0 || length >= most {
            return Err(Error::Invalid);
        }
        let mut text = vfs::allocation::filled(0u8, length)?;
        source.read(&mut text)?;
        match self.what {
            What::Map(ids) => self.write_map(ids, &text)?,
            What::SetGroups => self.write_set_groups(&text)?,
        }
        *position += length as u64;
        Ok(length)
    }
}

impl Opened {
    fn write_set_groups(&self, text: &[u8]) -> Result<()> {
        let lets = match text.trim_ascii_end() {
            b"allow" => true,
            b"deny" => false,
            _ => return Err(Error::Invalid),
        };
        self.space.set_lets_set_groups(lets)
    }

    fn write_map(&self, ids: Ids, text: &[u8]) -> Result<()> {
        if self.space.has_map(ids) {
            return Err(Error::NotPermitted);
        }
        let writer = calling_thread().ok_or(Error::Invalid)?.credentials();
        let parent = self.space.parent().ok_or(Error::NotPermitted)?;
        if ids != Ids::Project && !self.both(&writer, &self.space, Capabilities::SYS_ADMIN) {
            return Err(Error::NotPermitted);
        }
        let map = IdMap::parse(text)?;
        if !self.may_map(&writer, ids, &map, parent) {
            return Err(Error::NotPermitted);
        }
        let map = map.lowered(|first, count| parent.kernel_range(ids, first, count))?;
        // A single group of one's own may be mapped only while setgroups(2) is forbidden, which stays so.
        self.space.set_map(ids, map)
    }

    /// Whether writer and opener have a capability.
    fn both(&self, writer: &Credentials, space: &UserSpace, capability: Capabilities) -> bool {
        writer.has_in(space, capability) && self.opener.has_in(space, capability)
    }

    /// "Defining user and group ID mappings: writing to uid_map and gid_map".
    fn may_map(&self, writer: &Credentials, ids: Ids, map: &IdMap, parent: &UserSpace) -> bool {
        if ids == Ids::User && !self.may_map_root(map) {
            return false;
        }
        let opener = &self.opener;
        if let [only] = map.extents()
            && only.count == 1
            && self.space.owner() == opener.user.effective
        {
            let is_own = match ids {
                Ids::User => parent.kernel_user(only.lower) == Some(opener.user.effective),
                Ids::Group => {
                    !self.space.lets_set_groups()
                        && parent.kernel_group(only.lower) == Some(opener.group.effective)
                }
                Ids::Project => false,
            };
            if is_own {
                return true;
            }
        }
        match ids {
            Ids::Project => true,
            Ids::User => self.both(writer, parent, Capabilities::SETUID),
            Ids::Group => self.both(writer, parent, Capabilities::SETGID),
        }
    }

    /// User 0 of the parent may be mapped only by who could give files capabilities there, which would have effect outside.
    fn may_map_root(&self, map: &IdMap) -> bool {
        if !map.extents().iter().any(|line| line.lower == 0) {
            return true;
        }
        match self.space.parent() {
            _ if self.opener.space().is_same(&self.space) => self.space.maker_had_setfcap(),
            Some(parent) => self.opener.has_in(parent, Capabilities::SETFCAP),
            None => false,
        }
    }
}
