//! Rename in the cache: what can fail is prepared before the file system renames, the rest can't fail.
//!
//! Both directories' locks are held exclusively from preparation to commit, so nobody enters names meanwhile. Between
//! the steps of a commit a reader may find neither name; it then asks the file system, which waits for the
//! directory's lock.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use sync::rcu::RcuBox;
use sync::{PerCpu, per_cpu};

use super::children::Bucket;
use super::entry::{Dentry, DentryFlags, Place};
use crate::attributes::FileKind;
use crate::name::{Name, hash_name};
use crate::{Result, allocation};

/// Counts renames of directories on each CPU: whoever climbs parents compares the sum before and after. What is not a
/// directory is nobody's parent, and its name and its parent are read together.
static RENAMES: PerCpu<AtomicU64> = per_cpu!(AtomicU64::new(0));

impl Dentry {
    /// The number of renames of directories so far: unchanged means that none moved in between, since no CPU's part goes back.
    pub fn rename_count() -> u64 {
        // Acquire: pairs with the AcqRel in `count_rename`.
        RENAMES.iter().map(|renames| renames.load(Ordering::Acquire)).sum()
    }

    fn own_place(&self) -> (Option<Arc<Dentry>>, u32) {
        let guard = sync::rcu::read();
        self.place.read(&guard).map_or((None, 0), |place| (place.parent.clone(), place.hash))
    }
}

fn count_rename(moved: &[&Arc<Dentry>]) {
    let is_directory =
        |entry: &&Arc<Dentry>| entry.inode().is_some_and(|inode| inode.kind == FileKind::Directory);
    if moved.iter().any(is_directory) {
        RENAMES.of(machine::cpu::current()).fetch_add(1, Ordering::AcqRel);
    }
}

/// A prepared move of one entry.
pub struct Relocation {
    entry: Arc<Dentry>,
    target: Option<Arc<Dentry>>,
    parent: Arc<Dentry>,
    hash: u32,
    place: RcuBox<Place>,
    bucket: RcuBox<Bucket>,
}

impl Relocation {
    /// Prepares the move of `entry` to `name` in `parent`, where `target` (possibly negative) is cached now.
    pub fn prepare(
        entry: &Arc<Dentry>,
        parent: &Arc<Dentry>,
        name: &Name,
        target: Option<&Arc<Dentry>>,
    ) -> Result<Self> {
        let hash = hash_name(name.as_bytes());
        let place = allocation::rcu(Place { parent: Some(parent.clone()), name: name.clone(), hash })?;
        let gone = [entry, target.unwrap_or(entry)];
        let bucket = parent.children.prepare(parent, hash, &gone, &[(hash, entry)])?;
        Ok(Self {
            entry: entry.clone(),
            target: target.cloned(),
            parent: parent.clone(),
            hash,
            place,
            bucket,
        })
    }

    /// Makes the move; the target's entry is gone. A directory that is replaced is locked exclusively.
    pub fn commit(self) {
        let (old_parent, old_hash) = self.entry.own_place();
        if let Some(target) = &self.target {
            target.set_flags(DentryFlags::UNHASHED | DentryFlags::DELETED);
            target.leave_directory();
        }
        self.entry.place.replace(Some(self.place));
        self.parent.children.commit(self.hash, self.bucket);
        self.entry.note_parent(&self.parent);
        count_rename(&[&self.entry]);
        if let Some(old_parent) = old_parent {
            old_parent.children.sweep(&old_parent, old_hash);
        }
        if let Some(target) = self.target {
            target.forget_children();
        }
    }
}

/// A bucket to be rewritten: the directory, the hash that leads to it, and its new contents.
type Rewrite = (Arc<Dentry>, u32, RcuBox<Bucket>);

/// A prepared exchange of two entries.
pub struct Exchange {
    first: Arc<Dentry>,
    second: Arc<Dentry>,
    /// Places of the first and second entry after the exchange.
    places: [RcuBox<Place>; 2],
    /// One, if the two share it, or two.
    buckets: [Option<Rewrite>; 2],
}

impl Exchange {
    /// Prepares that the entries swap places.
    pub fn prepare(first: &Arc<Dentry>, second: &Arc<Dentry>) -> Result<Self> {
        let (Some(first_parent), first_hash) = first.own_place() else { return Err(crate::Error::Busy) };
        let (Some(second_parent), second_hash) = second.own_place() else { return Err(crate::Error::Busy) };
        let places = [
            allocation::rcu(Place {
                parent: Some(second_parent.clone()),
                name: second.name()?,
                hash: second_hash,
            })?,
            allocation::rcu(Place {
                parent: Some(first_parent.clone()),
                name: first.name()?,
                hash: first_hash,
            })?,
        ];
        let both = [first, second];
        let to_second = (second_hash, first);
        let to_first = (first_hash, second);
        let shared = Arc::ptr_eq(&first_parent, &second_parent)
            && first_parent.children.share_bucket(first_hash, second_hash);
        let buckets = if shared {
            let bucket =
                first_parent.children.prepare(&first_parent, first_hash, &both, &[to_first, to_second])?;
            [Some((first_parent, first_hash, bucket)), None]
        } else {
            let one = first_parent.children.prepare(&first_parent, first_hash, &both, &[to_first])?;
            let two = second_parent.children.prepare(&second_parent, second_hash, &both, &[to_second])?;
            [Some((first_parent, first_hash, one)), Some((second_parent, second_hash, two))]
        };
        Ok(Self { first: first.clone(), second: second.clone(), places, buckets })
    }

    /// Swaps the places.
    pub fn commit(self) {
        let [first_place, second_place] = self.places;
        self.first.place.replace(Some(first_place));
        self.second.place.replace(Some(second_place));
        for (parent, hash, bucket) in self.buckets.into_iter().flatten() {
            parent.children.commit(hash, bucket);
        }
        for entry in [&self.first, &self.second] {
            if let (Some(parent), _) = entry.own_place() {
                entry.note_parent(&parent);
            }
        }
        count_rename(&[&self.first, &self.second]);
    }
}
