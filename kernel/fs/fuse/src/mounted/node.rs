//! An inode in memory, as the file layer uses it.
//!
//! # What is known, and for how long
//! The server says with each answer how long its names and attributes are believed. Attributes that came while something was changed here are shown, but not their size.
//!
//! # Who may
//! Each question of the file layer begins at [`permit`](InodeOperations::permit): who is not admitted is refused before anything is sent. With `default_permissions` owners
//! and modes decide then; without, the server does, when it is asked for what the program wants.
//!
//! # Locking
//! The file layer's. What is here is shown as it comes: the last answer counts.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use machine::address::PAGE_SIZE;
use memory::file_cache::FileCache;
use sync::SpinLock;
use vfs::attributes::STICKY;
use vfs::credentials::Credentials;
use vfs::disk::shrink;
use vfs::file::{FileOperations, NoOperations};
use vfs::flags::{Access, AllocateMode, OpenFlags};
use vfs::inode::{
    Asked, DirectorySink, Identity, Inode, InodeOperations, LinkTarget, NewFile, Question, Rename,
    SetAttribute,
};
use vfs::name::{Name as FileName, hash_name};
use vfs::permission::check_attributes;
use vfs::{AttributeChange, Error, FileKind, Result, allocation};

use super::directory::{self, OpenDirectory};
use super::file::OpenRegular;
use super::handle::Handle;
use super::instance::Instance;
use super::names::{self, Name, Names};
use super::pages::{Contents, Pages};
use crate::connection::{Call, Connection, Room};
use crate::wire::init::Flags;
use crate::wire::reply::{self, Attributes, ENTRY_BYTES, Entry, TIMED_ATTRIBUTES_BYTES};
use crate::wire::{Body, Decoder, opcode};

/// See the theory of this file.
pub(super) struct Node {
    pub(super) instance: Arc<Instance>,
    /// The server's number for the file.
    pub(super) number: u64,
    generation: u64,
    /// How often the server has told us of it.
    lookups: AtomicU64,
    pub(super) cache: Option<Arc<FileCache>>,
    /// Blocks of 512 bytes, as the server said.
    blocks: AtomicU64,
    /// Until when attributes are believed.
    believed_until_ns: AtomicU64,
    /// The server was read from since: the time of the last access is another one.
    is_accessed: AtomicBool,
    /// The server has said of it what can't be.
    is_bad: AtomicBool,
    names: SpinLock<Names>,
    /// Of a directory: names found before it changed are asked for again.
    epoch: AtomicU64,
    pub(super) contents: Arc<Contents>,
    /// A file that was opened when it was made, by this thread.
    pub(super) made: SpinLock<Option<(usize, Arc<Handle>)>>,
    /// The thread whose opening truncated the file.
    pub(super) truncated_by: SpinLock<Option<usize>>,
}

/// The part of an inode that is this file system's.
///
/// # Errors
/// `EXDEV` for inodes of others.
pub(super) fn node_of(inode: &Inode) -> Result<&Node> {
    inode.downcast::<Node>().ok_or(Error::CrossDevice)
}

/// What tells the calling thread from others.
pub(super) fn this_thread() -> usize {
    core::ptr::from_ref(&*sched::current()).addr()
}

fn now_ns() -> u64 {
    machine::time::now_ns()
}

impl Node {
    pub(super) fn new(
        instance: &Arc<Instance>,
        number: u64,
        generation: u64,
        kind: FileKind,
    ) -> Result<Self> {
        let contents = Contents::new(&instance.connection, number)?;
        let cache = if kind == FileKind::Regular {
            let pages = allocation::arc(Pages(contents.clone()))?;
            let cache = FileCache::with_representative(0, pages, instance.backing.clone())?;
            shrink::enter(&cache)?;
            contents.set_cache(&cache);
            Some(cache)
        } else {
            None
        };
        Ok(Self {
            instance: instance.clone(),
            number,
            generation,
            lookups: AtomicU64::new(0),
            cache,
            blocks: AtomicU64::new(0),
            believed_until_ns: AtomicU64::new(0),
            is_accessed: AtomicBool::new(false),
            is_bad: AtomicBool::new(false),
            names: SpinLock::named("names of a file at a server", Names::new()),
            epoch: AtomicU64::new(0),
            contents,
            made: SpinLock::named("file that was made open", None),
            truncated_by: SpinLock::named("thread that truncated by opening", None),
        })
    }

    pub(super) fn connection(&self) -> &Arc<Connection> {
        &self.instance.connection
    }

    /// Whether an entry is of this file.
    pub(super) fn is_same(&self, entry: &Entry) -> bool {
        self.number == entry.node && self.generation == entry.generation && !self.is_bad.load(Relaxed)
    }

    /// The server has told us of it once more.
    pub(super) fn found_again(&self) {
        self.lookups.fetch_add(1, Relaxed);
    }

    /// It is not what it was.
    pub(super) fn spoil(&self) {
        self.is_bad.store(true, Relaxed);
    }

    /// What is known of its attributes is not believed any more.
    pub(super) fn doubt(&self) {
        self.believed_until_ns.store(0, Relaxed);
    }

    /// Something was changed here: answers from before do not tell the size.
    pub(super) fn note_change(&self) {
        self.contents.changed();
        self.doubt();
    }

    /// The server was read from.
    pub(super) fn note_access(&self) {
        self.is_accessed.store(true, Relaxed);
    }

    /// The names in this directory are asked for again.
    pub(super) fn doubt_names(&self) {
        self.epoch.fetch_add(1, Relaxed);
    }

    /// Its pages.
    pub(super) fn pages(&self) -> Result<&Arc<FileCache>> {
        self.cache.as_ref().ok_or(Error::Invalid)
    }

    /// Shows what the server said of the file at a moment.
    pub(super) fn show(&self, inode: &Inode, found: &Attributes, valid_ns: u64, moment: u64) {
        if found.kind != inode.kind {
            return self.spoil();
        }
        let (user, group) = self.instance.ids(found);
        inode.set_identity(Identity { mode: found.mode, user, group });
        inode.set_links(found.links);
        inode.accessed().set(found.accessed);
        let is_modified = inode.modified().get() != found.modified;
        inode.modified().set(found.modified);
        inode.changed().set(found.changed);
        self.blocks.store(found.blocks, Relaxed);
        if self.contents.is_changed_since(moment) {
            return self.doubt();
        }
        self.believed_until_ns.store(now_ns().saturating_add(valid_ns), Relaxed);
        let is_resized = inode.size() != found.size;
        inode.set_size(found.size);
        if let Some(cache) = &self.cache {
            if cache.size() != found.size {
                cache.adopt_size(found.size);
            }
            let flags = self.connection().flags();
            let by_time = is_modified && flags.contains(Flags::INVALIDATE_BY_TIME);
            if by_time || is_resized && !flags.contains(Flags::INVALIDATE_EXPLICITLY) {
                cache.drop_clean(0, u64::MAX, usize::MAX);
            }
        }
    }

    /// The server, asked at a moment, had no more than this: the file ends there, unless it was changed since, and its attributes are asked for again.
    pub(super) fn cut_short(&self, inode: &Inode, end: u64, moment: u64) {
        if end >= inode.size() {
            return;
        }
        if !self.contents.is_changed_since(moment) {
            inode.set_size(end);
            if let Some(cache) = &self.cache {
                cache.adopt_size(end);
            }
        }
        self.doubt();
    }

    /// Asks the server for the attributes.
    pub(super) fn fetch(&self, inode: &Inode) -> Result<()> {
        let moment = self.connection().moment();
        let body = Body::new().u32s(&[0, 0]).u64s(&[0]);
        let room = Room::exactly(TIMED_ATTRIBUTES_BYTES);
        let answer = self.connection().call(Call::new(opcode::GET_ATTRIBUTES, self.number, body, room))?;
        self.show_answer(inode, &answer, moment)
    }

    /// Shows the attributes that the server answered with.
    pub(super) fn show_answer(&self, inode: &Inode, answer: &[u8], moment: u64) -> Result<()> {
        let (found, valid_ns) = reply::timed_attributes(&mut Decoder::new(answer))?;
        self.show(inode, &found, valid_ns, moment);
        if self.is_bad.load(Relaxed) { Err(Error::Io) } else { Ok(()) }
    }

    /// Asks for the attributes unless they are still believed. True: it was asked.
    pub(super) fn update(&self, inode: &Inode) -> Result<bool> {
        if now_ns() < self.believed_until_ns.load(Relaxed) {
            return Ok(false);
        }
        self.fetch(inode).map(|()| true)
    }

    fn permit_access(&self, inode: &Inode, access: Access, who: &Credentials) -> Result<()> {
        let executes = access.contains(Access::EXECUTE) && inode.kind == FileKind::Regular;
        let by_attributes = self.connection().options.default_permissions;
        let is_new = if executes || by_attributes { self.update(inode)? } else { false };
        if by_attributes {
            return match check_attributes(inode, access, who) {
                Err(Error::AccessDenied) if !is_new => {
                    self.fetch(inode)?;
                    check_attributes(inode, access, who)
                }
                outcome => outcome,
            };
        }
        let is_program = || inode.mode() & 0o111 != 0;
        if executes && !is_program() {
            if !is_new {
                self.fetch(inode)?;
            }
            return if is_program() { Ok(()) } else { Err(Error::AccessDenied) };
        }
        Ok(())
    }

    /// Whether a program that only wants to know may access the file.
    fn permit_wish(&self, inode: &Inode, access: Access, who: &Credentials) -> Result<()> {
        if self.connection().options.default_permissions {
            return self.permit_access(inode, access, who);
        }
        let body = Body::new().u32s(&[access.bits(), 0]);
        let call = Call::new(opcode::ACCESS, self.number, body, Room::NONE);
        match self.connection().call_if_known(call) {
            // Whether it is a program shows when somebody executes it.
            Ok(_) | Err(Error::NotImplemented) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Where sticky directories let only owners remove names, and the server leaves that to us.
    pub(super) fn check_sticky(&self, directory: &Inode, victim: &Inode) -> Result<()> {
        if !self.connection().options.default_permissions || directory.mode() & STICKY == 0 {
            return Ok(());
        }
        let may = vfs::credentials::caller_is(|who| {
            let is_owner = who.user == victim.user() || who.user == directory.user();
            is_owner || who.has_over(victim, vfs::Capabilities::FOWNER)
        });
        if may { Ok(()) } else { Err(Error::NotPermitted) }
    }

    /// The name of a child, as it is kept. Made before the server is asked: what it says of the name by itself afterwards counts.
    pub(super) fn name(&self, name: &[u8]) -> Name {
        Name { directory: self.number, epoch: self.epoch.load(Relaxed), hash: hash_name(name) }
    }

    /// The inode of a child that the server answered with.
    pub(super) fn child(
        &self,
        directory: &Inode,
        name: Name,
        answer: &[u8],
        moment: u64,
    ) -> Result<(Arc<Inode>, Entry)> {
        let mut values = Decoder::new(answer);
        let entry = reply::entry(&mut values)?;
        if entry.node == 0 {
            return Err(Error::NotFound);
        }
        let found =
            reply::attributes(&mut values).inspect_err(|_| self.connection().forget(entry.node, 1))?;
        let inode = self.instance.enter(directory, &entry, &found, moment)?;
        node_of(&inode)?.believe(name, &entry);
        Ok((inode, entry))
    }

    fn believe(&self, name: Name, entry: &Entry) {
        names::note(&self.names, name, now_ns().saturating_add(entry.name_ns));
    }

    fn is_still(&self, name: &[u8], child: &Inode) -> Result<bool> {
        let node = node_of(child)?;
        if node.is_bad.load(Relaxed) {
            return Ok(false);
        }
        let place = self.name(name);
        if node.names.lock().believes(place, now_ns()) || !self.connection().admits_caller() {
            return Ok(true);
        }
        let moment = self.connection().moment();
        let answer = self.look_up(name)?;
        let mut values = Decoder::new(&answer);
        let entry = reply::entry(&mut values)?;
        if entry.node == 0 {
            return Ok(false);
        }
        let found = reply::attributes(&mut values);
        let is_same = node.is_same(&entry) && found.is_ok_and(|found| found.kind == child.kind);
        match found {
            Ok(found) if is_same => {
                node.found_again();
                node.show(child, &found, entry.attributes_ns, moment);
                node.believe(place, &entry);
            }
            _ => self.connection().forget(entry.node, 1),
        }
        Ok(is_same)
    }

    fn look_up(&self, name: &[u8]) -> Result<Vec<u8>> {
        let room = Room::exactly(ENTRY_BYTES);
        self.connection().call(Call::new(opcode::LOOKUP, self.number, Body::new().name(name), room))
    }

    /// Makes pages of bytes that were read at a moment, unless they were changed since.
    pub(super) fn keep(&self, first: u64, pages: usize, bytes: Vec<u8>, moment: u64) {
        let Some(cache) = &self.cache else { return };
        let is_old = || self.contents.is_changed_since(moment);
        if is_old() {
            return;
        }
        self.contents.keep(cache, first, pages, bytes);
        if is_old() {
            cache.drop_clean(first, first + pages as u64, usize::MAX);
        }
    }

    /// What programs have stored by mappings is at the server.
    pub(super) fn write_pages(&self) -> Result<()> {
        self.cache.as_ref().map_or(Ok(()), |cache| self.contents.write_pages(cache))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let times = *self.lookups.get_mut();
        self.connection().forget(self.number, times);
    }
}

impl InodeOperations for Node {
    fn permit(&self, inode: &Inode, question: Question<'_>) -> Result<()> {
        self.connection().admit()?;
        if self.is_bad.load(Relaxed) {
            return Err(Error::Io);
        }
        match question {
            Question::Access(access, who) => self.permit_access(inode, access, who),
            Question::Wish(access, who) => self.permit_wish(inode, access, who),
            Question::Status if self.is_accessed.swap(false, Relaxed) => self.fetch(inode),
            Question::Status => self.update(inode).map(|_| ()),
            Question::Change => self.permit_change(inode),
            Question::Other => Ok(()),
        }
    }

    fn goes_by_attributes(&self) -> bool {
        self.connection().options.default_permissions
    }

    fn lookup(&self, directory: &Arc<Inode>, name: &[u8]) -> Result<Arc<Inode>> {
        self.connection().admit()?;
        let (place, moment) = (self.name(name), self.connection().moment());
        let answer = self.look_up(name)?;
        self.child(directory, place, &answer, moment).map(|(inode, _)| inode)
    }

    fn still_valid(&self, _directory: &Inode, name: &[u8], child: &Inode) -> bool {
        match self.is_still(name, child) {
            Ok(is_still) => is_still,
            // Who asked was killed, or could not ask: what is mounted on the entry must not go for that.
            Err(Error::Interrupted | Error::OutOfMemory) => true,
            Err(_) => false,
        }
    }

    fn create(&self, directory: &Arc<Inode>, name: &FileName, new: &NewFile<'_>) -> Result<Arc<Inode>> {
        self.create_asked(directory, name, new, &Asked { mode: new.mode, umask: 0, open: None })
    }

    fn create_asked(
        &self,
        directory: &Arc<Inode>,
        name: &FileName,
        new: &NewFile<'_>,
        asked: &Asked,
    ) -> Result<Arc<Inode>> {
        self.make(directory, name.as_bytes(), new, asked)
    }

    fn link(&self, directory: &Arc<Inode>, name: &FileName, inode: &Arc<Inode>) -> Result<()> {
        self.add_name(directory, name.as_bytes(), inode)
    }

    fn unlink(&self, directory: &Arc<Inode>, name: &[u8], inode: &Arc<Inode>) -> Result<()> {
        self.remove_name(directory, name, inode)
    }

    fn remove_directory(&self, directory: &Arc<Inode>, name: &[u8], inode: &Arc<Inode>) -> Result<()> {
        self.remove_name(directory, name, inode)
    }

    fn rename(&self, rename: &Rename<'_>) -> Result<()> {
        self.move_name(rename)
    }

    fn read_directory(&self, inode: &Inode, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        let handle = Handle::open(self.connection(), self.number, OpenFlags::DIRECTORY, FileKind::Directory)?;
        directory::list(&handle, position, sink).inspect(|_| _ = inode)
    }

    fn link_target(&self, _inode: &Arc<Inode>) -> Result<LinkTarget> {
        self.connection().admit()?;
        let room = Room::up_to(PAGE_SIZE - 1);
        let answer = self.connection().call(Call::new(opcode::READ_LINK, self.number, Body::new(), room))?;
        let end = answer.iter().position(|&byte| byte == 0).unwrap_or(answer.len());
        Ok(LinkTarget::Text(allocation::arc_bytes(&answer[..end])?))
    }

    fn change_attributes(&self, inode: &Inode, change: &AttributeChange) -> Result<()> {
        self.store_attributes(inode, change)
    }

    fn truncate(&self, inode: &Inode, size: u64) -> Result<()> {
        self.store_size(inode, size)
    }

    fn allocate(&self, inode: &Inode, mode: AllocateMode, offset: u64, length: u64) -> Result<()> {
        self.allocate_range(inode, mode, offset, length)
    }

    fn blocks(&self, _inode: &Inode) -> u64 {
        self.blocks.load(Relaxed)
    }

    fn extended_attribute(&self, _inode: &Inode, name: &[u8], buffer: &mut [u8]) -> Result<usize> {
        self.read_extended(name, buffer)
    }

    fn set_extended_attribute(
        &self,
        _inode: &Inode,
        name: &[u8],
        value: &[u8],
        how: SetAttribute,
    ) -> Result<()> {
        self.write_extended(name, value, how)
    }

    fn remove_extended_attribute(&self, _inode: &Inode, name: &[u8]) -> Result<()> {
        self.remove_extended(name)
    }

    fn list_extended_attributes(
        &self,
        _inode: &Inode,
        each: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.list_extended(each)
    }

    fn open(&self, inode: &Arc<Inode>, flags: OpenFlags) -> Result<Option<Arc<dyn FileOperations>>> {
        match inode.kind {
            FileKind::Regular => OpenRegular::open(self, inode, flags).map(Some),
            FileKind::Directory => OpenDirectory::open(self, flags).map(Some),
            _ => Ok(None),
        }
    }

    fn file_operations(&self) -> &dyn FileOperations {
        &NoOperations
    }

    fn cache(&self) -> Option<&Arc<FileCache>> {
        self.cache.as_ref()
    }
}
