//! The hash table of a directory's cached entries.
//!
//! Read under RCU; changed under a spin lock of its own by replacing whole buckets, which hold one or two entries at
//! the table's load. Readers see a bucket as it was before or after a change. An entry in a bucket counts only if it
//! still has the parent and the name it is looked up under: what was renamed away or unhashed is passed over, and goes
//! when the bucket is next rewritten. So removing an entry can do without memory: if there is none for the smaller
//! bucket, the dead entry just stays.

use alloc::boxed::Box;
use alloc::sync::Arc;

use smallvec::SmallVec;
use sync::SpinLock;
use sync::rcu::{self, RcuBox, RcuReadGuard};

use super::entry::{Dentry, DentryFlags};
use crate::{Error, Result, allocation};

/// Buckets of a directory's first table: they fill a cache line, which no other directory's are in then.
const FIRST_BUCKETS: usize = 8;
/// Largest table: beyond it buckets just grow.
const MAXIMUM_BUCKETS: usize = 1 << 16;

/// Entries whose names hash alike.
#[derive(Default)]
pub(super) struct Bucket(pub(super) SmallVec<[(u32, Arc<Dentry>); 2]>);

struct Table {
    buckets: Box<[rcu::Pointer<Bucket>]>,
}

impl Table {
    fn new(length: usize) -> Result<Self> {
        debug_assert!(length.is_power_of_two());
        let mut buckets = alloc::vec::Vec::new();
        allocation::reserve(&mut buckets, length)?;
        buckets.resize_with(length, rcu::Pointer::null);
        Ok(Self { buckets: buckets.into_boxed_slice() })
    }

    #[inline]
    fn bucket(&self, hash: u32) -> &rcu::Pointer<Bucket> {
        &self.buckets[hash as usize & (self.buckets.len() - 1)]
    }
}

/// A directory's cached entries.
pub(super) struct Children {
    table: rcu::Pointer<Table>,
    /// The number of entries, dead ones included; holding it allows changes.
    count: SpinLock<usize>,
}

impl Children {
    pub(super) const fn new() -> Self {
        Self { table: rcu::Pointer::null(), count: SpinLock::named("dentry children", 0) }
    }

    #[inline]
    pub(super) fn find<'guard>(
        &self,
        parent: &Arc<Dentry>,
        name: &[u8],
        hash: u32,
        guard: &'guard RcuReadGuard,
    ) -> Option<&'guard Arc<Dentry>>
    where
        Self: 'guard,
    {
        let bucket = self.table.read(guard)?.bucket(hash).read(guard)?;
        bucket
            .0
            .iter()
            .find(|(entry_hash, entry)| *entry_hash == hash && entry.is_at(parent, name, guard))
            .map(|(_, entry)| entry)
    }

    /// Adds an entry unless there is one of that name already; returns the one that is in, and whether it is new. `EIO` if it would be the second of its
    /// directory.
    pub(super) fn insert(
        &self,
        parent: &Arc<Dentry>,
        entry: Arc<Dentry>,
        hash: u32,
        name: &[u8],
    ) -> Result<(Arc<Dentry>, bool)> {
        let mut count = self.count.lock();
        let guard = rcu::read();
        if let Some(existing) = self.find(parent, name, hash, &guard) {
            return Ok((existing.clone(), false));
        }
        self.grow(&count, &guard)?;
        let table = self.table.read(&guard).expect("made by `grow`");
        let pointer = table.bucket(hash);
        let old = pointer.read(&guard);
        let mut bucket = live_entries(parent, old, 1)?;
        bucket.0.push((hash, entry.clone()));
        let (before, after) = (old.map_or(0, |bucket| bucket.0.len()), bucket.0.len());
        let bucket = allocation::rcu(bucket)?;
        if !entry.take_directory() {
            return Err(Error::Io);
        }
        pointer.replace(Some(bucket));
        *count = *count - before + after;
        Ok((entry, true))
    }

    /// Doubles the table when there are two entries a bucket. Failing to is not an error once there is a table.
    fn grow(&self, count: &usize, guard: &RcuReadGuard) -> Result<()> {
        let Some(old) = self.table.read(guard) else {
            self.table.replace(Some(allocation::rcu(Table::new(FIRST_BUCKETS)?)?));
            return Ok(());
        };
        let length = old.buckets.len();
        if *count < 2 * length || length >= MAXIMUM_BUCKETS {
            return Ok(());
        }
        if let Ok(table) = Self::spread(old, guard).and_then(allocation::rcu) {
            self.table.replace(Some(table));
        }
        Ok(())
    }

    /// A table of four times the size with the same entries.
    fn spread(old: &Table, guard: &RcuReadGuard) -> Result<Table> {
        let length = (old.buckets.len() * 4).min(MAXIMUM_BUCKETS);
        let table = Table::new(length)?;
        for (index, pointer) in old.buckets.iter().enumerate() {
            let Some(bucket) = pointer.read(guard) else { continue };
            let mut target = index;
            while target < length {
                let mut part = Bucket::default();
                let belongs = |hash: u32| hash as usize & (length - 1) == target;
                let number = bucket.0.iter().filter(|(hash, _)| belongs(*hash)).count();
                if number > 0 {
                    reserve(&mut part, number)?;
                    part.0.extend(bucket.0.iter().filter(|(hash, _)| belongs(*hash)).cloned());
                    table.buckets[target].replace(Some(allocation::rcu(part)?));
                }
                target += old.buckets.len();
            }
        }
        Ok(table)
    }

    /// Takes an entry out if there are no more than `references` of it. Allocates nothing, since memory may be short: the
    /// entry stays in its bucket, dead, until all others there are.
    pub(super) fn evict(
        &self,
        parent: &Arc<Dentry>,
        entry: &Arc<Dentry>,
        hash: u32,
        references: usize,
    ) -> bool {
        let mut count = self.count.lock();
        let guard = rcu::read();
        // Renamed or removed since it was looked at: not ours to judge.
        if !is_alive(parent, hash, entry, &guard) || !entry.unhash_unused(references) {
            return false;
        }
        if let Some(table) = self.table.read(&guard)
            && let Some(old) = table.bucket(hash).read(&guard)
            && old.0.iter().all(|(hash, entry)| !is_alive(parent, *hash, entry, &guard))
        {
            *count -= old.0.len();
            table.bucket(hash).replace(None);
        }
        true
    }

    /// Drops dead entries from the bucket of `hash`, as far as there is memory to do so.
    pub(super) fn sweep(&self, parent: &Arc<Dentry>, hash: u32) {
        let mut count = self.count.lock();
        let guard = rcu::read();
        let Some(table) = self.table.read(&guard) else { return };
        let pointer = table.bucket(hash);
        let Some(old) = pointer.read(&guard) else { return };
        let Ok(bucket) = live_entries(parent, Some(old), 0) else { return };
        let (before, after) = (old.0.len(), bucket.0.len());
        if after == 0 {
            pointer.replace(None);
        } else if after < before {
            let Ok(bucket) = allocation::rcu(bucket) else { return };
            pointer.replace(Some(bucket));
        }
        *count = *count - before + after;
    }

    /// Prepares a bucket with what is alive in that of `hash` but for `without`, and with `with` added.
    pub(super) fn prepare(
        &self,
        parent: &Arc<Dentry>,
        hash: u32,
        without: &[&Arc<Dentry>],
        with: &[(u32, &Arc<Dentry>)],
    ) -> Result<RcuBox<Bucket>> {
        let count = self.count.lock();
        let guard = rcu::read();
        self.grow(&count, &guard)?;
        let table = self.table.read(&guard).expect("made by `grow`");
        let mut bucket = live_entries(parent, table.bucket(hash).read(&guard), with.len())?;
        bucket.0.retain(|(_, entry)| !without.iter().any(|gone| Arc::ptr_eq(entry, gone)));
        bucket.0.extend(with.iter().map(|&(hash, entry)| (hash, entry.clone())));
        allocation::rcu(bucket)
    }

    /// Whether both hashes share a bucket now.
    pub(super) fn share_bucket(&self, first: u32, second: u32) -> bool {
        let guard = rcu::read();
        let length = self.table.read(&guard).map_or(FIRST_BUCKETS, |table| table.buckets.len());
        (first ^ second) as usize & (length - 1) == 0
    }

    /// Puts a prepared bucket in place. Since preparation the directory's lock was held exclusively, so at most
    /// evictions happened: evicted entries come back as dead ones.
    pub(super) fn commit(&self, hash: u32, bucket: RcuBox<Bucket>) {
        let mut count = self.count.lock();
        let guard = rcu::read();
        let table = self.table.read(&guard).expect("made by `prepare`");
        let pointer = table.bucket(hash);
        let before = pointer.read(&guard).map_or(0, |old| old.0.len());
        *count = *count - before + bucket.0.len();
        pointer.replace(Some(bucket));
    }

    /// Any entry that is in the table.
    pub(super) fn any(&self, guard: &RcuReadGuard) -> Option<Arc<Dentry>> {
        // Not while an eviction tries whether an entry is unused: it would be passed over, and stay with all below it.
        let _no_eviction = self.count.lock();
        let table = self.table.read(guard)?;
        table.buckets.iter().find_map(|pointer| {
            let bucket = pointer.read(guard)?;
            bucket
                .0
                .iter()
                .find(|(_, entry)| !entry.flags().contains(DentryFlags::UNHASHED))
                .map(|(_, e)| e.clone())
        })
    }

    /// Whether there are entries, dead ones included.
    pub(super) fn is_empty(&self) -> bool {
        // Also asked of an entry by who evicts it from its directory.
        *self.count.lock_nested(1) == 0
    }

    /// Drops the whole table.
    pub(super) fn clear(&self) {
        let mut count = self.count.lock();
        *count = 0;
        self.table.replace(None);
    }
}

fn reserve(bucket: &mut Bucket, room: usize) -> Result<()> {
    if room > bucket.0.inline_size() {
        crate::allocation::fail_point()?;
        bucket.0.try_reserve_exact(room).map_err(|_| Error::OutOfMemory)?;
    }
    Ok(())
}

/// A bucket with the entries that still are where this table has them, and room for `additional` ones.
fn live_entries(parent: &Arc<Dentry>, old: Option<&Bucket>, additional: usize) -> Result<Bucket> {
    let mut bucket = Bucket::default();
    let Some(old) = old else { return Ok(bucket) };
    reserve(&mut bucket, old.0.len() + additional)?;
    let guard = rcu::read();
    bucket.0.extend(old.0.iter().filter(|(hash, entry)| is_alive(parent, *hash, entry, &guard)).cloned());
    Ok(bucket)
}

/// Whether the entry still is where the table has it.
fn is_alive(parent: &Arc<Dentry>, hash: u32, entry: &Arc<Dentry>, guard: &RcuReadGuard) -> bool {
    !entry.flags().contains(DentryFlags::UNHASHED)
        && entry.place.read(guard).is_some_and(|place| {
            place.hash == hash && place.parent.as_ref().is_some_and(|own| Arc::ptr_eq(own, parent))
        })
}
