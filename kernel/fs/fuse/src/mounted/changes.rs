//! What changes names and attributes. The file layer holds the locks of the directories and files.
//!
//! The server is asked first; what it answers is then shown in the inodes in memory.

use alloc::sync::Arc;

use vfs::attributes::{MODE_MASK, SET_GROUP_ID, SET_USER_ID, TimeChange};
use vfs::flags::{AllocateMode, OpenFlags, RenameFlags};
use vfs::inode::{Asked, Inode, NewFile, Rename};
use vfs::{AttributeChange, Error, FileKind, Result, Timestamp};

use super::handle::{self, Handle};
use super::names::Name;
use super::node::{Node, node_of, this_thread};
use crate::connection::{Call, Room};
use crate::wire::init::Flags;
use crate::wire::reply::{self, ENTRY_BYTES, OPENED_BYTES, TIMED_ATTRIBUTES_BYTES};
use crate::wire::{Body, Decoder, change, opcode};

/// What is to be set at the server.
#[derive(Default)]
struct Wanted {
    valid: u32,
    handle: u64,
    size: u64,
    accessed: Timestamp,
    modified: Timestamp,
    mode: u32,
    user: u32,
    group: u32,
}

impl Wanted {
    fn body(&self) -> Body {
        let seconds = |time: Timestamp| time.seconds.cast_unsigned();
        let times = [self.accessed.nanoseconds, self.modified.nanoseconds, 0];
        Body::new()
            .u32s(&[self.valid, 0])
            .u64s(&[self.handle, self.size, 0, seconds(self.accessed), seconds(self.modified), 0])
            .u32s(&times)
            .u32s(&[self.mode, 0, self.user, self.group, 0])
    }

    fn time(&mut self, time: TimeChange, flag: u32, now: u32) -> Timestamp {
        self.valid |= flag;
        match time {
            TimeChange::Now => {
                self.valid |= now;
                Timestamp::coarse()
            }
            TimeChange::To(stamp) => stamp,
        }
    }
}

impl Node {
    /// Makes a file.
    pub(super) fn make(
        &self,
        directory: &Arc<Inode>,
        name: &[u8],
        new: &NewFile<'_>,
        asked: &Asked,
    ) -> Result<Arc<Inode>> {
        self.connection().admit()?;
        let is_unmasked = self.connection().flags().contains(Flags::NO_MASK);
        let mode = if is_unmasked { asked.mode } else { new.mode } & MODE_MASK;
        if new.kind == FileKind::Regular
            && let Some(flags) = asked.open
        {
            match self.make_open(directory, name, mode, asked.umask, flags) {
                Err(Error::NotImplemented) => {}
                outcome => return outcome,
            }
        }
        let typed = mode | new.kind.mode_bits();
        let (opcode, body) = match new.kind {
            FileKind::Directory => {
                (opcode::MAKE_DIRECTORY, Body::new().u32s(&[mode, asked.umask]).name(name))
            }
            FileKind::SymbolicLink => (opcode::SYMBOLIC_LINK, Body::new().name(name).name(new.target)),
            _ => {
                let device = new.special.encode() as u32;
                (opcode::MAKE_NODE, Body::new().u32s(&[typed, device, asked.umask, 0]).name(name))
            }
        };
        let (place, moment) = (self.name(name), self.connection().moment());
        let call = Call::new(opcode, self.number, body, Room::exactly(ENTRY_BYTES));
        let answer = self.connection().call(call)?;
        let inode = self.made(directory, place, new.kind, &answer, moment)?;
        Ok(inode)
    }

    /// Makes a file and opens it; who makes it opens it next.
    fn make_open(
        &self,
        directory: &Arc<Inode>,
        name: &[u8],
        mode: u32,
        umask: u32,
        flags: OpenFlags,
    ) -> Result<Arc<Inode>> {
        let connection = self.connection();
        let kept = OpenFlags::CREATE | OpenFlags::EXCLUSIVE | OpenFlags::TRUNCATE;
        let told = handle::told(connection, flags) | (flags & kept).bits();
        let body = Body::new().u32s(&[told, mode | FileKind::Regular.mode_bits(), umask, 0]).name(name);
        let (place, moment) = (self.name(name), connection.moment());
        let room = Room::exactly(ENTRY_BYTES + OPENED_BYTES);
        let answer = connection.call_if_known(Call::new(opcode::CREATE, self.number, body, room))?;
        let opened = reply::opened(&mut Decoder::new(&answer[ENTRY_BYTES..]))?;
        let node = reply::entry(&mut Decoder::new(&answer))?.node;
        let give_back = |_: &Error| connection.release(opcode::RELEASE, node, opened.handle, told);
        let inode = self.made(directory, place, FileKind::Regular, &answer, moment).inspect_err(give_back)?;
        let handle = Handle::new(connection, node, opened, flags, FileKind::Regular)?;
        let before = node_of(&inode)?.made.lock().replace((this_thread(), handle));
        drop(before);
        Ok(inode)
    }

    /// The inode of a file that was made.
    fn made(
        &self,
        directory: &Arc<Inode>,
        name: Name,
        kind: FileKind,
        answer: &[u8],
        moment: u64,
    ) -> Result<Arc<Inode>> {
        let (inode, _) = self.child(directory, name, answer, moment).map_err(|error| match error {
            // A server that has made nothing breaks the rules.
            Error::NotFound => Error::Io,
            error => error,
        })?;
        self.note_change();
        if inode.kind == kind { Ok(inode) } else { Err(Error::Io) }
    }

    pub(super) fn add_name(&self, directory: &Arc<Inode>, name: &[u8], inode: &Arc<Inode>) -> Result<()> {
        let linked = node_of(inode)?;
        let body = Body::new().u64s(&[linked.number]).name(name);
        let (place, moment) = (self.name(name), self.connection().moment());
        let call = Call::new(opcode::LINK, self.number, body, Room::exactly(ENTRY_BYTES));
        let answer = self.connection().call(call)?;
        // What the server shows there is found by the next look-up, if it is another file.
        self.child(directory, place, &answer, moment)?;
        self.note_change();
        linked.doubt();
        Ok(())
    }

    pub(super) fn remove_name(&self, directory: &Arc<Inode>, name: &[u8], inode: &Arc<Inode>) -> Result<()> {
        self.check_sticky(directory, inode)?;
        let is_directory = inode.kind == FileKind::Directory;
        let opcode = if is_directory { opcode::REMOVE_DIRECTORY } else { opcode::UNLINK };
        self.connection().call(Call::new(opcode, self.number, Body::new().name(name), Room::NONE))?;
        self.note_change();
        lose_name(inode)
    }

    pub(super) fn move_name(&self, rename: &Rename<'_>) -> Result<()> {
        let to = node_of(rename.new_directory)?;
        self.check_sticky(rename.old_directory, rename.inode)?;
        if let Some(replaced) = rename.replaced {
            self.check_sticky(rename.new_directory, replaced)?;
        }
        let (opcode, body) = if rename.flags.is_empty() {
            (opcode::RENAME, Body::new().u64s(&[to.number]))
        } else {
            (opcode::RENAME_FLAGGED, Body::new().u64s(&[to.number]).u32s(&[rename.flags.bits(), 0]))
        };
        let body = body.name(rename.old_name).name(rename.new_name.as_bytes());
        let call = Call::new(opcode, self.number, body, Room::NONE);
        if opcode == opcode::RENAME {
            self.connection().call(call)?;
        } else {
            let told = self.connection().call_if_known(call);
            told.map_err(|error| if error == Error::NotImplemented { Error::Invalid } else { error })?;
        }
        self.note_change();
        to.note_change();
        node_of(rename.inode)?.doubt();
        match rename.replaced {
            Some(exchanged) if rename.flags.contains(RenameFlags::EXCHANGE) => node_of(exchanged)?.doubt(),
            Some(replaced) if !Arc::ptr_eq(replaced, rename.inode) => lose_name(replaced)?,
            _ => {}
        }
        Ok(())
    }

    /// Whether the caller may change attributes, where the server leaves that to us.
    pub(super) fn permit_change(&self, inode: &Inode) -> Result<()> {
        if !self.connection().options.default_permissions {
            return Ok(());
        }
        self.update(inode).map(|_| ())
    }

    fn set(&self, inode: &Inode, wanted: &Wanted) -> Result<()> {
        self.connection().admit()?;
        let moment = self.connection().moment();
        let room = Room::exactly(TIMED_ATTRIBUTES_BYTES);
        let call = Call::new(opcode::SET_ATTRIBUTES, self.number, wanted.body(), room);
        let answer = self.connection().call(call)?;
        self.show_answer(inode, &answer, moment)
    }

    /// What `chmod`, `chown` and `utimensat` are about to set.
    pub(super) fn store_attributes(&self, inode: &Inode, asked: &AttributeChange) -> Result<()> {
        let mut wanted = Wanted::default();
        let space = &self.connection().space;
        let mut mode = asked.mode.map(|mode| mode & MODE_MASK);
        if let Some(user) = asked.user {
            (wanted.valid, wanted.user) = (wanted.valid | change::USER, space.shown_user(user));
        }
        if let Some(group) = asked.group {
            (wanted.valid, wanted.group) = (wanted.valid | change::GROUP, space.shown_group(group));
        }
        let changes_owner = asked.user.is_some() || asked.group.is_some();
        if changes_owner && mode.is_none() && inode.kind == FileKind::Regular {
            // Who executes it would else act for the new owner.
            let group = if inode.mode() & 0o010 != 0 { SET_GROUP_ID } else { 0 };
            let stripped = inode.mode() & MODE_MASK & !(SET_USER_ID | group);
            mode = (stripped != inode.mode() & MODE_MASK).then_some(stripped);
        }
        if let Some(mode) = mode {
            (wanted.valid, wanted.mode) = (wanted.valid | change::MODE, mode | inode.kind.mode_bits());
        }
        if let Some(time) = asked.accessed {
            wanted.accessed = wanted.time(time, change::ACCESSED, change::ACCESSED_NOW);
        }
        if let Some(time) = asked.modified {
            wanted.modified = wanted.time(time, change::MODIFIED, change::MODIFIED_NOW);
        }
        if wanted.valid == 0 { Ok(()) } else { self.set(inode, &wanted) }
    }

    /// Sets the size, unless the opening has done that.
    pub(super) fn store_size(&self, inode: &Inode, size: u64) -> Result<()> {
        let cache = self.pages()?;
        let mut truncated_by = self.truncated_by.lock();
        if size == 0 && truncated_by.take_if(|thread| *thread == this_thread()).is_some() {
            drop(truncated_by);
            cache.adopt_size(0);
            self.note_change();
            return Ok(());
        }
        drop(truncated_by);
        let mut wanted = Wanted { valid: change::SIZE, size, ..Wanted::default() };
        if let Some(handle) = self.contents.handle(true) {
            (wanted.valid, wanted.handle) = (wanted.valid | change::HANDLE, handle.number);
        }
        // A write of pages that is read by the server afterwards would make the file longer again.
        self.contents.without_writes(|| {
            self.note_change();
            self.set(inode, &wanted)?;
            cache.adopt_size(inode.size());
            Ok(())
        })
    }

    pub(super) fn allocate_range(
        &self,
        inode: &Inode,
        mode: AllocateMode,
        offset: u64,
        length: u64,
    ) -> Result<()> {
        let handle = self.contents.handle(true).ok_or(Error::BadDescriptor)?;
        if !mode.is_empty() {
            // What was stored before is not to come back by being written afterwards.
            self.write_pages()?;
        }
        let body = Body::new().u64s(&[handle.number, offset, length]).u32s(&[mode.bits(), 0]);
        let call = Call::new(opcode::ALLOCATE, self.number, body, Room::NONE);
        let told = self.connection().call_if_known(call);
        told.map_err(|error| if error == Error::NotImplemented { Error::NotSupported } else { error })?;
        self.note_change();
        let cache = self.pages()?;
        let end = offset.saturating_add(length);
        if !mode.contains(AllocateMode::KEEP_SIZE)
            && !mode.intersects(AllocateMode::MOVES)
            && end > inode.size()
        {
            inode.set_size(end);
            cache.adopt_size(end);
        }
        if !mode.is_empty() {
            cache.drop_clean(0, u64::MAX, usize::MAX);
        }
        Ok(())
    }
}

/// A name of the file has gone.
fn lose_name(inode: &Inode) -> Result<()> {
    let is_last = inode.links() <= 1 || inode.kind == FileKind::Directory;
    inode.set_links(if is_last { 0 } else { inode.links() - 1 });
    inode.touch_changed();
    node_of(inode)?.doubt();
    Ok(())
}
