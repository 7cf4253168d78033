//! Handles of files in memory: number and nothing else, since numbers are not used again.
//!
//! Nothing says which inode has a number, so those whose handles were asked for are noted. What is gone is cleared away when twice as much is known as was left by
//! the last clearing.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use sync::SpinLock;
use vfs::dentry::Dentry;
use vfs::handle::{FileHandle, Handles};
use vfs::superblock::Superblock;
use vfs::{Error, Inode, Result, allocation};

/// `FILEID_INO32_GEN`, as Linux calls handles of such files.
const KIND: i32 = 1;
/// A generation, which is always the same, and the number, its lower half first.
const WORDS: usize = 3;
const BYTES: usize = WORDS * 4;
/// Inodes below which nothing is cleared away.
const KNOWN_MIN: usize = 64;

struct Known {
    number: u64,
    inode: Weak<Inode>,
    /// Where it was found.
    entry: Weak<Dentry>,
}

struct Table {
    /// By ascending numbers.
    known: Vec<Known>,
    clear_from: usize,
}

/// The inodes of an instance whose handles were asked for.
pub(crate) struct Exported(SpinLock<Table>);

impl Exported {
    pub(crate) const fn new() -> Self {
        Self(SpinLock::named("inodes with handles", Table { known: Vec::new(), clear_from: KNOWN_MIN }))
    }

    fn note(&self, inode: &Arc<Inode>, entry: Option<&Arc<Dentry>>) -> Result<()> {
        let mut table = allocation::lock_with_room(|| self.0.lock(), 1, |table| &mut table.known)?;
        if table.known.len() >= table.clear_from {
            table.known.retain(|known| known.inode.strong_count() > 0);
            table.clear_from = KNOWN_MIN.max(2 * table.known.len());
        }
        let entry = entry.map(Arc::downgrade);
        match table.known.binary_search_by_key(&inode.number, |known| known.number) {
            Ok(index) => table.known[index].entry = entry.unwrap_or_else(|| table.known[index].entry.clone()),
            Err(index) => {
                let entry = entry.unwrap_or_default();
                table
                    .known
                    .insert(index, Known { number: inode.number, inode: Arc::downgrade(inode), entry });
            }
        }
        Ok(())
    }

    fn find<R>(&self, number: u64, look: impl FnOnce(&Known) -> Option<R>) -> Option<R> {
        let table = self.0.lock();
        let index = table.known.binary_search_by_key(&number, |known| known.number).ok()?;
        look(&table.known[index])
    }
}

impl Handles for Exported {
    fn encode(&self, inode: &Arc<Inode>, entry: Option<&Arc<Dentry>>) -> Result<FileHandle> {
        self.note(inode, entry)?;
        let mut bytes = [0; BYTES];
        bytes[4..].copy_from_slice(&inode.number.to_ne_bytes());
        FileHandle::new(KIND, &bytes)
    }

    fn decode(&self, _superblock: &Superblock, handle: &FileHandle) -> Result<Arc<Inode>> {
        let number = handle.as_bytes().get(4..BYTES).and_then(|bytes| bytes.first_chunk());
        let number = number.filter(|_| handle.kind() == KIND && handle.as_bytes()[..4] == [0; 4]);
        let inode =
            number.and_then(|number| self.find(u64::from_ne_bytes(*number), |known| known.inode.upgrade()));
        // Without a name it is only there while somebody has it open.
        inode.filter(|inode| inode.links() > 0).ok_or(Error::Stale)
    }

    fn entry(&self, inode: &Arc<Inode>) -> Option<Arc<Dentry>> {
        self.find(inode.number, |known| known.entry.upgrade())
    }
}
