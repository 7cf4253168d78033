//! A mounted tree, and its inodes in memory.
//!
//! An inode is found by the server's number for the file as long as somebody has it, so that all names of a file lead to the same pages. A directory gets an inode of its own
//! each time that it is found: a server that shows a directory inside of itself would else have the file layer wait for locks that it holds. The table has the latest.
//! It holds weak references, and is cleaned when it has doubled.

use alloc::sync::{Arc, Weak};
use core::any::Any;
use core::fmt;
use core::hash::{BuildHasherDefault, Hasher};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};

use hashbrown::HashMap;
use memory::file_cache::BackingDevice;
use vfs::attributes::FileSystemStatus;
use vfs::disk::flusher;
use vfs::inode::{Inode, InodeAttributes};
use vfs::superblock::{Superblock, SuperblockOperations};
use vfs::{DeviceNumber, Error, FileKind, Result, allocation};

use super::node::Node;
use crate::connection::{Call, Connection, Room};
use crate::wire::reply::{Attributes, Entry, STATUS_BYTES};
use crate::wire::{Body, Decoder, ROOT, opcode};

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

struct Known {
    table: HashMap<u64, Weak<Inode>, BuildHasherDefault<NumberHasher>>,
    clean_at: usize,
}

/// See the theory of this file.
pub struct Instance {
    pub(crate) connection: Arc<Connection>,
    pub(super) backing: Arc<BackingDevice>,
    inodes: sched::Mutex<Known>,
    ended: AtomicBool,
}

impl Instance {
    pub(super) fn new(connection: &Arc<Connection>) -> Result<Arc<Self>> {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let mut name = vfs::text::Text::new();
        let _ = fmt::Write::write_fmt(&mut name, format_args!("fuse-{}", NUMBER.fetch_add(1, Relaxed)));
        let name = name.finish()?;
        let backing = flusher::add_device(core::str::from_utf8(&name).map_err(|_| Error::Invalid)?)?;
        let known = Known { table: HashMap::default(), clean_at: CLEAN_FROM };
        let made = allocation::arc(Self {
            connection: connection.clone(),
            backing: backing.clone(),
            inodes: sched::Mutex::named("inodes of a file server of the machine", known),
            ended: AtomicBool::new(false),
        });
        let instance = made.inspect_err(|_| flusher::remove_device(&backing))?;
        connection.set_instance(&instance);
        Ok(instance)
    }

    /// The end of the mount.
    pub(super) fn end(&self) {
        if !self.ended.swap(true, SeqCst) {
            self.connection.end(false);
            flusher::remove_device(&self.backing);
        }
    }

    /// The root, of which nothing is known but what the mount said.
    pub(super) fn root(self: &Arc<Self>, superblock: &Arc<Superblock>) -> Result<Arc<Inode>> {
        let options = &self.connection.options;
        let attributes = InodeAttributes {
            number: ROOT,
            kind: options.root_kind,
            mode: options.root_mode,
            user: options.user,
            group: options.group,
            links: 1,
            special: DeviceNumber::default(),
            size: 0,
        };
        let node = Node::new(self, ROOT, 0, options.root_kind)?;
        let inode: Arc<Inode> = Inode::new(superblock, attributes, node)?;
        inode.leave_to_file_system();
        let mut known = self.inodes.lock();
        known.table.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
        known.table.insert(ROOT, Arc::downgrade(&inode));
        Ok(inode)
    }

    /// The inode in memory of a file that the server names.
    pub(super) fn find(&self, node: u64) -> Option<Arc<Inode>> {
        self.inodes.lock().table.get(&node).and_then(Weak::upgrade)
    }

    /// The inode of a file that was found by a name. The server counts that; where nobody gets the inode, it is told to forget.
    pub(super) fn enter(
        self: &Arc<Self>,
        beside: &Inode,
        entry: &Entry,
        found: &Attributes,
        moment: u64,
    ) -> Result<Arc<Inode>> {
        if entry.node == 0 {
            return Err(Error::NotFound);
        }
        if entry.node == ROOT {
            return Err(Error::Io);
        }
        self.make_or_find(beside, entry, found, moment).inspect_err(|_| self.connection.forget(entry.node, 1))
    }

    fn make_or_find(
        self: &Arc<Self>,
        beside: &Inode,
        entry: &Entry,
        found: &Attributes,
        moment: u64,
    ) -> Result<Arc<Inode>> {
        let mut known = self.inodes.lock();
        let present = known.table.get(&entry.node).and_then(Weak::upgrade);
        if let Some(inode) = present.filter(|inode| inode.kind == found.kind)
            && found.kind != FileKind::Directory
            && let Some(node) = inode.downcast::<Node>()
            && node.is_same(entry)
        {
            node.found_again();
            drop(known);
            node.show(&inode, found, entry.attributes_ns, moment);
            return Ok(inode);
        }
        if known.table.len() >= known.clean_at {
            known.table.retain(|_, inode| inode.strong_count() > 0);
            known.clean_at = (known.table.len() * 2).max(CLEAN_FROM);
        }
        known.table.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
        let (user, group) = self.ids(found);
        let special = if found.kind.is_device() {
            DeviceNumber::decode(found.special.into())
        } else {
            DeviceNumber::default()
        };
        let attributes = InodeAttributes {
            number: found.number,
            kind: found.kind,
            mode: found.mode,
            user,
            group,
            links: found.links,
            special,
            size: found.size,
        };
        let node = Node::new(self, entry.node, entry.generation, found.kind)?;
        let inode: Arc<Inode> = Inode::beside(beside, attributes, node)?;
        inode.leave_to_file_system();
        known.table.insert(entry.node, Arc::downgrade(&inode));
        drop(known);
        if let Some(node) = inode.downcast::<Node>() {
            node.found_again();
            node.show(&inode, found, entry.attributes_ns, moment);
        }
        Ok(inode)
    }

    /// Owner and group, as the kernel has them.
    pub(super) fn ids(&self, found: &Attributes) -> (u32, u32) {
        let space = &self.connection.space;
        let user = space.kernel_user(found.user).unwrap_or(u32::MAX);
        (user, space.kernel_group(found.group).unwrap_or(u32::MAX))
    }

    fn status(&self) -> Result<FileSystemStatus> {
        if !self.connection.admits_caller() {
            return Ok(FileSystemStatus::default());
        }
        let call = Call::new(opcode::STATUS, ROOT, Body::new(), Room::exactly(STATUS_BYTES));
        let answer = self.connection.call(call)?;
        let mut values = Decoder::new(&answer);
        let mut next = || values.u64();
        let (blocks, blocks_free, blocks_available) = (next()?, next()?, next()?);
        let (files, files_free) = (next()?, next()?);
        let (block_size, name_length) = (values.u32()?.into(), values.u32()?.into());
        Ok(FileSystemStatus {
            magic: 0,
            block_size,
            blocks,
            blocks_free,
            blocks_available,
            files,
            files_free,
            name_length,
            id: 0,
        })
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
        self.instance.end();
    }
}

impl SuperblockOperations for Operations {
    fn status(&self) -> FileSystemStatus {
        FileSystemStatus::default()
    }

    fn status_for_caller(&self) -> Result<FileSystemStatus> {
        self.instance.status()
    }

    fn abort(&self) {
        self.instance.connection.end(true);
    }

    /// Who unmounts waits for what was stored by mappings, for a while.
    fn finish(&self) {
        let Instance { connection, backing, .. } = &*self.instance;
        if !connection.is_over() {
            connection.write_last(|| flusher::sync_device(backing), || backing.dirty_pages() > 0);
        }
        self.instance.end();
    }

    fn show_options(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        self.instance.connection.options.show(&self.instance.connection.space, out)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
