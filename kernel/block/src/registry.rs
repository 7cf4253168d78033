//! The block devices that there are: disks, and parts of them, by number and by name.
//!
//! A driver registers a disk when it has found it ([`register`]) and takes it away when it is gone ([`remove`]); partitions are registered
//! beside it, with the disk as their [`BlockDevice::whole`]. Listeners are told of both: device nodes, `/sys/block` and
//! `/proc/partitions` are made by them. A device lives on while somebody uses it; once removed, its transfers fail with `ENODEV`.
//!
//! # Who may have it
//! A *claim* makes a device somebody's alone: a mounted file system, a program that opened it with `O_EXCL`. Claims of a disk and of its partitions exclude each
//! other, so that a partition is not written behind the back of who has the disk; two partitions do not meet.
//!
//! # Locks
//! The list is under a sleeping lock, which is held while listeners are told, so they see devices come and go in one order. They
//! must not register or remove devices themselves. Claims are under one spin lock for all devices.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, Ordering::Relaxed};

use memory::fallible;
use sync::{Once, SpinLock};

use crate::statistics::{Snapshot, Statistics};
use crate::volume::Volume;
use crate::{Error, Result};

/// A device's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber {
    /// Its driver's.
    pub major: u32,
    /// Which of the driver's.
    pub minor: u32,
}

/// Who has a device for himself: what claims are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder(
    /// Unique among living holders, and not 0: an address, usually.
    pub usize,
);

/// The claims on a device; all changed and read under [`CLAIMS`].
#[derive(Default)]
struct Claims {
    /// [`Holder`]; 0: nobody.
    holder: AtomicUsize,
    /// How often that one has claimed it.
    count: AtomicU32,
    /// Claims of its parts.
    of_parts: AtomicU32,
}

/// See the theory of this file.
pub struct BlockDevice {
    name: String,
    number: DeviceNumber,
    volume: Volume,
    whole: Option<Arc<BlockDevice>>,
    /// Which part; 0: it is a disk.
    part: u32,
    removed: AtomicBool,
    /// Set by programs; what the disk itself refuses it refuses in any case.
    read_only: AtomicBool,
    claims: Claims,
    /// Of a disk: how often it and its parts are open or claimed. Of a part: how often it is.
    users: AtomicU32,
    /// Of a part: what earlier ones of its number had done when it came.
    before: Snapshot,
    files: Once<Arc<dyn Any + Send + Sync>>,
}

/// Somebody who is told of devices.
pub trait Listener: Send + Sync {
    /// A device is there.
    fn added(&self, device: &Arc<BlockDevice>);

    /// A device has gone: what is under way fails or has failed.
    fn removed(&self, device: &Arc<BlockDevice>);
}

struct Registry {
    devices: Vec<Arc<BlockDevice>>,
    listeners: Vec<&'static dyn Listener>,
}

static REGISTRY: sched::Mutex<Registry> =
    sched::Mutex::named("block devices", Registry { devices: Vec::new(), listeners: Vec::new() });

/// Orders claims of disks and of their parts.
static CLAIMS: SpinLock<()> = SpinLock::named("claims of block devices", ());

impl BlockDevice {
    /// A disk, not registered yet.
    ///
    /// # Errors
    /// No memory.
    pub fn disk(name: &str, number: DeviceNumber, volume: Volume) -> Result<Arc<Self>> {
        Self::build(name, number, volume, None, 0)
    }

    /// The part of a disk with this number (1 and up), not registered yet.
    ///
    /// # Errors
    /// No memory.
    pub fn partition(
        whole: &Arc<Self>,
        part: u32,
        name: &str,
        number: DeviceNumber,
        volume: Volume,
    ) -> Result<Arc<Self>> {
        debug_assert!(part > 0 && whole.whole.is_none(), "parts have no parts");
        Self::build(name, number, volume, Some(whole.clone()), part)
    }

    fn build(
        name: &str,
        number: DeviceNumber,
        volume: Volume,
        whole: Option<Arc<Self>>,
        part: u32,
    ) -> Result<Arc<Self>> {
        let before = match part {
            0 => Snapshot::default(),
            _ => volume.queue().partition_statistics(part).map(Statistics::snapshot).unwrap_or_default(),
        };
        Ok(fallible::try_arc(Self {
            name: fallible::try_string(name)?,
            number,
            volume,
            whole,
            part,
            removed: AtomicBool::new(false),
            read_only: AtomicBool::new(false),
            claims: Claims::default(),
            users: AtomicU32::new(0),
            before,
            files: Once::new(),
        })?)
    }

    /// The name in `/dev` and `/sys/block`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number.
    pub fn number(&self) -> DeviceNumber {
        self.number
    }

    /// Its sectors.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// The disk that it is a part of.
    pub fn whole(&self) -> Option<&Arc<Self>> {
        self.whole.as_ref()
    }

    /// Which part of a disk; 0: it is the disk.
    pub fn part(&self) -> u32 {
        self.part
    }

    /// What it has done.
    pub fn statistics(&self) -> Snapshot {
        let queue = self.volume.queue();
        let all = match self.part {
            0 => queue.statistics().snapshot(),
            part => queue.partition_statistics(part).map(Statistics::snapshot).unwrap_or_default(),
        };
        all.since(&self.before)
    }

    /// Whether it has gone.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// Whether it may not be written: a part of a disk that may not may not either.
    pub fn is_read_only(&self) -> bool {
        let of_whole = self.whole.as_deref().is_some_and(|whole| whole.read_only.load(Relaxed));
        self.volume.queue().limits().read_only || self.read_only.load(Relaxed) || of_whole
    }

    /// Forbids writing, or allows it again; what the disk itself refuses it refuses in any case.
    pub fn set_read_only(&self, read_only: bool) {
        self.read_only.store(read_only, Relaxed);
    }

    fn disk_users(&self) -> &AtomicU32 {
        &self.whole.as_deref().unwrap_or(self).users
    }

    /// How often the disk and its parts are open or claimed.
    pub fn users(&self) -> u32 {
        self.disk_users().load(Ordering::Acquire)
    }

    /// Whether it is open or claimed, or, if it is a disk, any of its parts.
    pub fn is_used(&self) -> bool {
        self.users.load(Ordering::Acquire) > 0
    }

    /// Somebody opens it.
    pub fn begin_use(&self) {
        if self.part > 0 {
            self.users.fetch_add(1, Relaxed);
        }
        self.disk_users().fetch_add(1, Relaxed);
    }

    /// Ends what [`begin_use`](Self::begin_use) began. The last one's end is told to the [driver](crate::Driver::unused).
    pub fn end_use(&self) {
        if self.part > 0 {
            self.users.fetch_sub(1, Ordering::Release);
        }
        // AcqRel: what each user did comes before what the driver does then.
        if self.disk_users().fetch_sub(1, Ordering::AcqRel) == 1 {
            self.volume.queue().driver().unused();
        }
    }

    /// Whether somebody has claimed it.
    pub fn is_claimed(&self) -> bool {
        let _order = CLAIMS.lock();
        self.claims.holder.load(Relaxed) != 0
    }

    /// What the file layer keeps of the device: its pages. Made by the first who asks.
    ///
    /// # Errors
    /// What `make` says.
    pub fn files(
        &self,
        make: impl FnOnce() -> Result<Arc<dyn Any + Send + Sync>>,
    ) -> Result<&Arc<dyn Any + Send + Sync>> {
        if let Some(files) = self.files.get() {
            return Ok(files);
        }
        let fresh = make()?;
        Ok(self.files.call_once(|| fresh))
    }

    /// The same if somebody asked before.
    pub fn existing_files(&self) -> Option<&Arc<dyn Any + Send + Sync>> {
        self.files.get()
    }

    /// Makes it the holder's, who may claim it more than once.
    ///
    /// # Errors
    /// [`Error::Busy`] when somebody else has it, the disk it is part of, or a part of it.
    pub fn claim(&self, holder: Holder) -> Result<()> {
        let _order = CLAIMS.lock();
        let taken = |claims: &Claims| ![0, holder.0].contains(&claims.holder.load(Relaxed));
        let of_whole = self.whole.as_ref().is_some_and(|whole| whole.claims.holder.load(Relaxed) != 0);
        if taken(&self.claims) || self.claims.of_parts.load(Relaxed) > 0 || of_whole {
            return Err(Error::Busy);
        }
        self.claims.holder.store(holder.0, Relaxed);
        self.claims.count.fetch_add(1, Relaxed);
        if let Some(whole) = &self.whole {
            whole.claims.of_parts.fetch_add(1, Relaxed);
        }
        self.begin_use();
        Ok(())
    }

    /// Makes a claim somebody else's, without a moment between in which the device is nobody's.
    ///
    /// # Panics
    /// When `from` has none.
    pub fn hand_over(&self, from: Holder, to: Holder) {
        let _order = CLAIMS.lock();
        assert_eq!(self.claims.holder.load(Relaxed), from.0, "who has claimed a device hands it over");
        self.claims.holder.store(to.0, Relaxed);
    }

    /// Ends a claim.
    ///
    /// # Panics
    /// When the holder has none.
    pub fn release(&self, holder: Holder) {
        let order = CLAIMS.lock();
        assert_eq!(self.claims.holder.load(Relaxed), holder.0, "who has claimed a device releases it");
        if self.claims.count.fetch_sub(1, Relaxed) == 1 {
            self.claims.holder.store(0, Relaxed);
        }
        if let Some(whole) = &self.whole {
            whole.claims.of_parts.fetch_sub(1, Relaxed);
        }
        drop(order);
        self.end_use();
    }
}

/// Makes a device known.
///
/// # Errors
/// [`Error::Busy`] when its name or number is taken, or no memory.
pub fn register(device: &Arc<BlockDevice>) -> Result<()> {
    let mut registry = REGISTRY.lock();
    let taken = |other: &Arc<BlockDevice>| other.number == device.number || other.name == device.name;
    if registry.devices.iter().any(taken) {
        return Err(Error::Busy);
    }
    fallible::try_push(&mut registry.devices, device.clone())?;
    for listener in &registry.listeners {
        listener.added(device);
    }
    Ok(())
}

/// Takes a device away, and before it its parts.
pub fn remove(device: &Arc<BlockDevice>) {
    let mut registry = REGISTRY.lock();
    let belongs = |other: &Arc<BlockDevice>| {
        Arc::ptr_eq(other, device) || other.whole.as_ref().is_some_and(|whole| Arc::ptr_eq(whole, device))
    };
    while let Some(position) = registry.devices.iter().rposition(belongs) {
        let gone = registry.devices.remove(position);
        // Release: pairs with the load in `is_removed`.
        gone.removed.store(true, Ordering::Release);
        for listener in &registry.listeners {
            listener.removed(&gone);
        }
    }
}

/// The device of that number.
pub fn find(number: DeviceNumber) -> Option<Arc<BlockDevice>> {
    REGISTRY.lock().devices.iter().find(|device| device.number == number).cloned()
}

/// The device of that name.
pub fn find_name(name: &str) -> Option<Arc<BlockDevice>> {
    REGISTRY.lock().devices.iter().find(|device| device.name == name).cloned()
}

/// Calls `each` with all devices, in the order they came, without a lock.
pub fn for_each(mut each: impl FnMut(&Arc<BlockDevice>)) {
    let mut index = 0;
    loop {
        let device = REGISTRY.lock().devices.get(index).cloned();
        let Some(device) = device else { return };
        each(&device);
        index += 1;
    }
}

/// Tells somebody of all devices that are there, and from now on of those that come and go. At start-up.
pub fn listen(listener: &'static dyn Listener) {
    let mut registry = REGISTRY.lock();
    registry.listeners.push(listener);
    for device in &registry.devices {
        listener.added(device);
    }
}

/// A test's thread is no thread of the scheduler: it can't sleep on the registry's lock, so tests take turns.
#[cfg(test)]
pub(crate) static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Queue, RamDisk};

    fn disk(name: &str, minor: u32) -> Arc<BlockDevice> {
        let queue = Queue::new(Arc::new(RamDisk::new(64).unwrap())).unwrap();
        let number = DeviceNumber { major: 240, minor };
        BlockDevice::disk(name, number, Volume::whole(queue)).unwrap()
    }

    fn part(whole: &Arc<BlockDevice>, part: u32) -> Arc<BlockDevice> {
        let number = DeviceNumber { major: 240, minor: whole.number().minor + part };
        let volume = whole.volume().part(u64::from(part) * 8, 8).unwrap();
        BlockDevice::partition(whole, part, &format!("{}p{part}", whole.name()), number, volume).unwrap()
    }

    #[test]
    fn names_and_numbers_are_taken_once_and_parts_go_with_their_disk() {
        let _turn = TURN.lock().unwrap();
        let first = disk("registry0", 0);
        let second = part(&first, 1);
        register(&first).unwrap();
        register(&second).unwrap();
        assert_eq!(register(&disk("registry0", 9)), Err(Error::Busy));
        assert_eq!(register(&disk("registry9", 1)), Err(Error::Busy));
        assert!(find_name("registry0p1").is_some() && find(first.number()).is_some());
        remove(&first);
        assert!(find_name("registry0p1").is_none() && find(first.number()).is_none());
        assert!(first.is_removed() && second.is_removed());
    }

    #[test]
    fn claims_of_a_disk_and_of_its_parts_exclude_each_other() {
        let whole = disk("claims0", 100);
        let (one, two) = (part(&whole, 1), part(&whole, 2));
        let (me, you) = (Holder(1), Holder(2));
        one.claim(me).unwrap();
        one.claim(me).unwrap();
        assert_eq!(one.claim(you), Err(Error::Busy));
        assert_eq!(whole.claim(me), Err(Error::Busy));
        two.claim(you).unwrap();
        one.release(me);
        one.release(me);
        two.release(you);
        whole.claim(you).unwrap();
        assert_eq!(two.claim(me), Err(Error::Busy));
        whole.release(you);
    }
}
