//! A mounted tree, its inodes in memory, and its thread.
//!
//! An inode is found by the server's number for the file as long as somebody has it, so that all names of a file lead to the same pages. The table holds weak references; it is
//! cleaned when it has doubled.
//!
//! # The thread
//! tells the server which numbers are not needed any more, and transfers what is left of runs of pages. It ends with the mount.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;
use core::hash::{BuildHasherDefault, Hasher};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};

use hashbrown::HashMap;
use memory::file_cache::{BackingDevice, FileCache};
use sync::SpinLock;
use vfs::attributes::FileSystemStatus;
use vfs::disk::flusher;
use vfs::inode::{Inode, InodeAttributes};
use vfs::superblock::{Superblock, SuperblockOperations};
use vfs::{DeviceNumber, Error, FileKind, Result, Timestamp, allocation};

use super::file::File;
use super::node::Node;
use super::pages::Rest;
use crate::client::Client;
use crate::fid::Fid;
use crate::options::{Caching, Options};
use crate::transport::Taken;
use crate::wire::{Attributes, Request, reply};

/// Inodes in the table before those that have gone are looked for.
const CLEAN_FROM: usize = 256;

/// Mixes the numbers of files, which often are neighbours.
#[derive(Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
}

/// An inode, and its pages: as long as some are dirty they are there without the inode, and whoever looks the file up again must get them.
struct Entry {
    inode: Weak<Inode>,
    pages: Option<(Weak<File>, Weak<FileCache>)>,
}

impl Entry {
    fn is_used(&self) -> bool {
        self.inode.strong_count() > 0
            || self.pages.as_ref().is_some_and(|(_, cache)| cache.strong_count() > 0)
    }

    /// Pages that outlived their inode.
    fn pages(&self) -> Option<(Arc<File>, Arc<FileCache>)> {
        let (file, cache) = self.pages.as_ref()?;
        let (file, cache) = (file.upgrade()?, cache.upgrade()?);
        (!file.is_nameless()).then_some((file, cache))
    }
}

struct Known {
    table: HashMap<u64, Entry, BuildHasherDefault<NumberHasher>>,
    clean_at: usize,
}

/// See the theory of this file.
pub(super) struct Instance {
    pub(super) client: Arc<Client>,
    pub(super) options: Options,
    pub(super) backing: Arc<BackingDevice>,
    inodes: sched::Mutex<Known>,
    rests: SpinLock<Vec<Rest>>,
    /// Nobody has the mount any more; the thread has it ended.
    left: AtomicBool,
    ended: AtomicBool,
}

/// What a server says of a file, as the file layer has it.
pub(super) fn kind_of(found: &Attributes) -> Result<FileKind> {
    FileKind::from_mode(found.mode).ok_or(Error::Io)
}

/// A server's time.
pub(super) fn stamp((seconds, nanoseconds): (u64, u64)) -> Timestamp {
    Timestamp {
        seconds: seconds.cast_signed().clamp(Timestamp::MINIMUM.seconds, Timestamp::MAXIMUM.seconds),
        nanoseconds: nanoseconds.min(999_999_999) as u32,
    }
}

/// What `stat` shows of a file.
pub(super) fn attributes(client: &Client, fid: &Fid) -> Result<Attributes> {
    let mut found = client.ask(&Request::GetAttributes { fid: fid.number() }, reply::attributes)?;
    found.size = found.size.min(memory::file_cache::MAX_FILE_BYTES);
    Ok(found)
}

impl Instance {
    /// Begins the dialogue, and starts the thread.
    pub(super) fn open(taken: Taken, source: &[u8], options: Options) -> Result<Arc<Self>> {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let client = Client::new(taken, options.message_bytes)?;
        Self::with_client(&client, source, options, NUMBER.fetch_add(1, Relaxed))
            .inspect_err(|_| client.close())
    }

    fn with_client(client: &Arc<Client>, source: &[u8], options: Options, number: u32) -> Result<Arc<Self>> {
        let mut name = vfs::text::Text::new();
        let _ = fmt::Write::write_fmt(&mut name, format_args!("9p-{number}"));
        let name = name.finish()?;
        let name = core::str::from_utf8(&name).map_err(|_| Error::Invalid)?;
        let backing = flusher::add_device(name)?;
        let known = Known { table: HashMap::default(), clean_at: CLEAN_FROM };
        let instance = allocation::arc(Self {
            client: client.clone(),
            options,
            backing,
            inodes: sched::Mutex::named("inodes of 9p in memory", known),
            rests: SpinLock::named("rests of transfers", Vec::new()),
            left: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        })?;
        let own = instance.clone();
        let body = allocation::boxed(move || own.run())?;
        sched::spawn(sched::Builder::new(name), body)
            .inspect_err(|_| flusher::remove_device(&instance.backing))?;
        log::info!("{name}: {} with messages of {} bytes", source.escape_ascii(), client.message_bytes());
        Ok(instance)
    }

    /// Whether nobody else changes the files.
    pub(super) fn is_loose(&self) -> bool {
        self.options.caching == Caching::Loose
    }

    /// The thread.
    fn run(self: Arc<Self>) {
        let client = &self.client;
        let mut is_ending = false;
        loop {
            client.fids.waiting.wait_until(|| {
                let has_work = client.fids.has_gone() || !self.rests.lock().is_empty();
                has_work || self.ended.load(SeqCst) || (!is_ending && self.left.load(SeqCst))
            });
            loop {
                let rest = self.rests.lock().pop();
                let Some(rest) = rest else { break };
                rest.finish();
            }
            client.fids.clunk(client);
            if self.ended.load(SeqCst) {
                return;
            }
            if self.left.load(SeqCst) && !is_ending {
                is_ending = true;
                self.end_beside();
            }
        }
    }

    /// Has another thread end the mount: this one is needed for that.
    fn end_beside(self: &Arc<Self>) {
        let own = self.clone();
        let body = allocation::boxed(move || own.end());
        let spawned = body.and_then(|body| Ok(sched::spawn(sched::Builder::new("9p-end"), body)?));
        if spawned.is_err() {
            log::error!("9p: no memory to write back; what was written last is lost");
            self.client.close();
            self.ended.store(true, SeqCst);
        }
    }

    /// What is left of a transfer is transferred by the thread.
    pub(super) fn transfer_rest(&self, rest: Rest) {
        // Without memory the run is dropped, which says so.
        if let Ok(mut rests) = allocation::lock_with_room(|| self.rests.lock(), 1, |rests| rests) {
            rests.push(rest);
            drop(rests);
            self.client.fids.waiting.wake_all();
        }
    }

    /// The mount's end: everything is written, and the server forgets us.
    pub(super) fn end(&self) {
        if self.ended.load(SeqCst) {
            return;
        }
        flusher::sync_device(&self.backing);
        if !self.ended.swap(true, SeqCst) {
            self.client.finish();
            flusher::remove_device(&self.backing);
            self.client.fids.waiting.wake_all();
        }
    }

    /// The root directory.
    pub(super) fn root(self: &Arc<Self>, superblock: &Arc<Superblock>) -> Result<Arc<Inode>> {
        let (fid, _) = self.client.attach(&self.options.user_name, &self.options.tree, 0)?;
        let found = attributes(&self.client, &fid)?;
        if kind_of(&found)? != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        self.enter(fid, &found, |attributes, node| Ok(Inode::new(superblock, attributes, node)?))
    }

    /// The inode of a file that was found by a name.
    pub(super) fn inode(
        self: &Arc<Self>,
        beside: &Inode,
        fid: Fid,
        found: &Attributes,
    ) -> Result<Arc<Inode>> {
        self.enter(fid, found, |attributes, node| Ok(Inode::beside(beside, attributes, node)?))
    }

    fn enter(
        self: &Arc<Self>,
        fid: Fid,
        found: &Attributes,
        make: impl FnOnce(InodeAttributes, Node) -> Result<Arc<Inode>>,
    ) -> Result<Arc<Inode>> {
        let number = found.identity.path;
        let kind = kind_of(found)?;
        let links = u32::try_from(found.links).unwrap_or(u32::MAX);
        if kind == FileKind::Directory {
            return self.enter_directory(fid, found, links, make);
        }
        let mut known = self.inodes.lock();
        let present = known.table.get(&number).and_then(|entry| entry.inode.upgrade());
        if let Some(inode) = present
            && let Some(node) = inode.downcast::<Node>()
            && inode.kind == kind
            && !node.file.is_nameless()
        {
            drop(known);
            node.file.found_by(fid, links)?;
            node.show(&inode, found);
            return Ok(inode);
        }
        if known.table.len() >= known.clean_at {
            known.table.retain(|_, entry| entry.is_used());
            known.clean_at = (known.table.len() * 2).max(CLEAN_FROM);
        }
        known.table.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
        let pages = known.table.get(&number).and_then(Entry::pages).filter(|_| kind == FileKind::Regular);
        let size = pages.as_ref().map_or(found.size, |(_, cache)| cache.size());
        let special =
            if kind.is_device() { DeviceNumber::decode(found.special) } else { DeviceNumber::default() };
        let mode = found.mode & vfs::attributes::MODE_MASK;
        let attributes = InodeAttributes {
            number,
            kind,
            mode,
            user: found.user,
            group: found.group,
            links,
            special,
            size,
        };
        let node = match pages {
            Some((file, cache)) => {
                file.found_by(fid, links)?;
                Node::again(self, file, cache)
            }
            None => Node::new(self, File::new(&self.client, number, fid)?, kind, size)?,
        };
        let pages = node.cache.as_ref().map(|cache| (Arc::downgrade(&node.file), Arc::downgrade(cache)));
        let inode = make(attributes, node)?;
        if kind == FileKind::Regular {
            // The server knows.
            inode.expect_capabilities(true);
        }
        known.table.insert(number, Entry { inode: Arc::downgrade(&inode), pages });
        drop(known);
        if let Some(node) = inode.downcast::<Node>() {
            node.show(&inode, found);
        }
        Ok(inode)
    }
}

impl Instance {
    /// A directory is not in the table: each time that it is found it gets an inode of its own. A server that shows a directory inside of itself would else have the file layer
    /// wait for locks that it holds.
    fn enter_directory(
        self: &Arc<Self>,
        fid: Fid,
        found: &Attributes,
        links: u32,
        make: impl FnOnce(InodeAttributes, Node) -> Result<Arc<Inode>>,
    ) -> Result<Arc<Inode>> {
        let (number, kind) = (found.identity.path, FileKind::Directory);
        let attributes = InodeAttributes {
            number,
            kind,
            mode: found.mode & vfs::attributes::MODE_MASK,
            user: found.user,
            group: found.group,
            links,
            special: DeviceNumber::default(),
            size: found.size,
        };
        let node = Node::new(self, File::new(&self.client, number, fid)?, kind, found.size)?;
        let inode = make(attributes, node)?;
        if let Some(node) = inode.downcast::<Node>() {
            node.show(&inode, found);
        }
        Ok(inode)
    }
}

/// What the file layer asks of the file system as a whole.
pub(super) struct Operations {
    instance: Arc<Instance>,
}

impl Operations {
    pub(super) fn new(instance: &Arc<Instance>) -> Self {
        Self { instance: instance.clone() }
    }
}

impl Drop for Operations {
    fn drop(&mut self) {
        // After a lazy unmount the thread ends it: here nothing may sleep.
        self.instance.left.store(true, SeqCst);
        self.instance.client.fids.waiting.wake_all();
    }
}

impl SuperblockOperations for Operations {
    fn status(&self) -> FileSystemStatus {
        let client = &self.instance.client;
        let attached = client.attach(&self.instance.options.user_name, &self.instance.options.tree, 0);
        let asked =
            attached.and_then(|(fid, _)| client.ask(&Request::Status { fid: fid.number() }, reply::status));
        let Ok(status) = asked else { return FileSystemStatus::default() };
        FileSystemStatus {
            magic: 0,
            block_size: status.block_bytes.into(),
            blocks: status.blocks,
            blocks_free: status.blocks_free,
            blocks_available: status.blocks_available,
            files: status.files,
            files_free: status.files_free,
            name_length: status.name_bytes.into(),
            id: 0,
        }
    }

    fn sync(&self) -> Result<()> {
        flusher::sync_device(&self.instance.backing);
        Ok(())
    }

    fn finish(&self) {
        self.instance.end();
    }

    fn show_options(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        self.instance.options.show(out)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
