//! A disk comes, is divided, changes its size, goes.
//!
//! # Tables of partitions
//! A driver's probe holds its bus, so it must not wait for a disk that may not answer: [`attach_by_driver`] leaves the reading of the table to a thread, one for each disk.
//! [`wait_for_partitions`] waits for these threads; at start-up, for those who count on partitions.
//!
//! # Locking
//! `CHANGING` is held while disks and partitions come and go, and never while a disk is waited for; the registry's lock is taken inside of it. A disk's `scanning` is held
//! around it by who reads the disk's table. `DISKS` is a spin lock under which everybody reads.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;
use core::sync::atomic::{AtomicU64, Ordering};

use device::model::BusDevice;
use device::model::uevent::{self, Action};
use memory::fallible;
use sched::{Completion, Mutex};
use sync::SpinLock;

use super::family::{EXTENDED_MAJOR, Family, partition_name};
use crate::partition::{self, Partition};
use crate::queue::Queue;
use crate::registry::{self, BlockDevice, DeviceNumber};
use crate::{Error, Result, Volume};

/// What a driver says of a disk.
pub struct Description {
    /// How it is called.
    pub family: Family,
    /// The directory of the device that it is a part of, below `/sys`: `/devices/virtual` if there is none.
    pub parent: String,
    /// The name that it has from its maker or its user; empty if none.
    pub serial: String,
    /// Whether the medium can be taken out of it.
    pub removable: bool,
}

/// A disk.
pub struct Disk {
    /// What its driver says of it.
    pub description: Description,
    /// Counts the disks that the machine ever had.
    pub sequence: u64,
    /// All of it, as programs reach it.
    pub device: Arc<BlockDevice>,
    index: u32,
    pub(super) parts: SpinLock<Vec<(Partition, Arc<BlockDevice>)>>,
    /// Held while its table is read and followed.
    pub(super) scanning: Mutex<()>,
    /// Its table was read for the first time, or could not be.
    pub(super) is_read: Completion,
}

pub(super) static CHANGING: Mutex<()> = Mutex::named("disks", ());
static DISKS: SpinLock<Vec<Arc<Disk>>> = SpinLock::named("list of disks", Vec::new());
static SEQUENCE: AtomicU64 = AtomicU64::new(1);

/// A copy of a list that is kept under a lock, with room for one more.
fn copy<T: Clone>(list: &SpinLock<Vec<T>>) -> Result<Vec<T>> {
    let mut copy = Vec::new();
    loop {
        let wanted = list.lock().len() + 1;
        fallible::try_reserve(&mut copy, wanted)?;
        let list = list.lock();
        if list.len() < copy.capacity() {
            copy.extend(list.iter().cloned());
            return Ok(copy);
        }
    }
}

/// Replaces a list by another one. With `CHANGING` held.
pub(super) fn replace<T>(list: &SpinLock<Vec<T>>, new: Vec<T>) {
    let old = core::mem::replace(&mut *list.lock(), new);
    drop(old);
}

impl Disk {
    /// Its name, as in `/sys/block`.
    pub fn name(&self) -> &str {
        self.device.name()
    }

    /// Sleeps until its table of partitions was read once, or could not be.
    pub fn wait_for_partitions(&self) {
        self.is_read.wait();
    }

    /// Its queue.
    pub fn queue(&self) -> &Arc<Queue> {
        self.device.volume().queue()
    }

    /// Its partitions, with what the table says of them.
    ///
    /// # Errors
    /// No memory for the list.
    pub fn partitions(&self) -> Result<Vec<(Partition, Arc<BlockDevice>)>> {
        copy(&self.parts)
    }

    /// The directory of the disk, or of a partition of it, below `/sys`.
    pub fn path_of(&self, device: &BlockDevice) -> String {
        let mut path = alloc::format!("{}/block/{}", self.description.parent, self.name());
        if device.part() > 0 {
            path.push('/');
            path.push_str(device.name());
        }
        path
    }

    /// What `uevent` says of the disk, or of a partition of it.
    ///
    /// # Errors
    /// Those of the text.
    pub fn describe(&self, device: &BlockDevice, out: &mut dyn Write) -> core::fmt::Result {
        let DeviceNumber { major, minor } = device.number();
        let kind = if device.part() > 0 { "partition" } else { "disk" };
        writeln!(out, "MAJOR={major}\nMINOR={minor}\nDEVNAME={}\nDEVTYPE={kind}", device.name())?;
        writeln!(out, "DISKSEQ={}", self.sequence)?;
        if device.part() > 0 {
            writeln!(out, "PARTN={}", device.part())?;
        }
        Ok(())
    }
}

/// A disk or partition in an event for user space.
struct Subject {
    disk: Arc<Disk>,
    device: Arc<BlockDevice>,
}

impl BusDevice for Subject {
    fn name(&self) -> String {
        self.device.name().into()
    }

    fn subsystem(&self) -> &'static str {
        "block"
    }

    fn path(&self) -> String {
        self.disk.path_of(&self.device)
    }

    fn describe(&self, out: &mut String) {
        // Writing into a string does not fail.
        let _ = self.disk.describe(&self.device, out);
    }
}

pub(super) fn emit(action: Action, disk: &Arc<Disk>, device: &Arc<BlockDevice>) {
    uevent::emit(action, &Subject { disk: disk.clone(), device: device.clone() });
}

impl Disk {
    /// Has an event of the disk or a partition of it happen that a program asks for.
    pub fn pretend(self: &Arc<Self>, device: &Arc<BlockDevice>, request: &uevent::Request) {
        let subject = Subject { disk: self.clone(), device: device.clone() };
        uevent::emit_with(request.action, &subject, &request.properties);
    }
}

/// All disks.
///
/// # Errors
/// No memory for the list.
pub fn all() -> Result<Vec<Arc<Disk>>> {
    copy(&DISKS)
}

/// The disk that a device is, or is a part of; None if no driver has attached it.
pub fn of(device: &BlockDevice) -> Option<Arc<Disk>> {
    let queue = device.volume().queue();
    DISKS.lock().iter().find(|disk| Arc::ptr_eq(disk.queue(), queue)).cloned()
}

/// Adds a disk under the first free name of its family, and its partitions. May sleep, and reads from the disk.
///
/// # Errors
/// No memory. That the table of partitions can't be read is logged.
pub fn attach(description: Description, queue: Arc<Queue>) -> Result<Arc<Disk>> {
    enter(description, Wanted::Free, queue)
}

/// Adds a disk as [`attach`] does, or under a name that its driver chooses and with any number. The disk is not waited for: its partitions follow, and a thread reads which
/// they are.
///
/// # Errors
/// [`Error::Busy`] if there is a disk of that name; else as [`attach`].
pub fn attach_by_driver(
    description: Description,
    name: Option<&str>,
    queue: Arc<Queue>,
) -> Result<Arc<Disk>> {
    let disk = announce(description, name.map_or(Wanted::Free, Wanted::Name), queue)?;
    let scanned = disk.clone();
    let thread =
        fallible::try_box(move || scan_first(&scanned)).map(|body| -> Box<dyn FnOnce() + Send> { body });
    let is_started = thread.is_ok_and(|body| sched::spawn(sched::Builder::new("partitions"), body).is_ok());
    if !is_started {
        log::error!("{}: no memory to look for partitions", disk.name());
        disk.is_read.complete();
    }
    Ok(disk)
}

/// Sleeps until the tables of all disks that there are were read once, or could not be.
pub fn wait_for_partitions() {
    if let Ok(disks) = all() {
        disks.iter().for_each(|disk| disk.wait_for_partitions());
    }
}

/// The same as the disk of its family that has this index.
///
/// # Errors
/// [`Error::Busy`] if there is one; else as [`attach`].
pub fn attach_at(description: Description, index: u32, queue: Arc<Queue>) -> Result<Arc<Disk>> {
    enter(description, Wanted::Index(index), queue)
}

/// What a new disk shall be.
#[derive(Clone, Copy)]
enum Wanted<'a> {
    /// The first of its family that is not there.
    Free,
    /// This one of its family.
    Index(u32),
    /// Called so.
    Name(&'a str),
}

/// What a new disk is called, and its number and index.
fn place(family: Family, wanted: Wanted<'_>, disks: &[Arc<Disk>]) -> Result<(String, DeviceNumber, u32)> {
    let is_free =
        |index: &u32| !disks.iter().any(|disk| disk.description.family == family && disk.index == *index);
    let index = match wanted {
        Wanted::Name(name) if disks.iter().any(|disk| disk.name() == name) => return Err(Error::Busy),
        Wanted::Name(name) => return Ok((fallible::try_string(name)?, extended_number()?, 0)),
        Wanted::Index(index) => Some(index).filter(is_free).ok_or(Error::Busy)?,
        Wanted::Free => (0..u32::MAX / family.minors.max(1)).find(is_free).ok_or(Error::OutOfMemory)?,
    };
    Ok((family.name(index), family.number(index), index))
}

fn enter(description: Description, wanted: Wanted<'_>, queue: Arc<Queue>) -> Result<Arc<Disk>> {
    let disk = announce(description, wanted, queue)?;
    scan_first(&disk);
    Ok(disk)
}

/// Adds a disk, so far without partitions.
fn announce(description: Description, wanted: Wanted<'_>, queue: Arc<Queue>) -> Result<Arc<Disk>> {
    let _changing = CHANGING.lock();
    let mut disks = all()?;
    let (name, number, index) = place(description.family, wanted, &disks)?;
    let device = BlockDevice::disk(&name, number, Volume::whole(queue))?;
    let sequence = SEQUENCE.fetch_add(1, Ordering::Relaxed);
    let parts = SpinLock::named("partitions of a disk", Vec::new());
    let (scanning, is_read) = (Mutex::named("table of a disk", ()), Completion::new());
    let disk = fallible::try_arc(Disk { description, sequence, device, index, parts, scanning, is_read })?;
    disks.push(disk.clone());
    replace(&DISKS, disks);
    if let Err(error) = registry::register(&disk.device) {
        forget(&disk);
        return Err(error);
    }
    emit(Action::Add, &disk, &disk.device);
    Ok(disk)
}

/// Finds the partitions of a new disk.
fn scan_first(disk: &Arc<Disk>) {
    if let Err(error) = rescan(disk) {
        log::warn!("{}: no partitions: {error}", disk.name());
    }
    disk.is_read.complete();
}

/// Takes a disk out, with its partitions: what waits for it fails with `ENODEV`.
pub fn detach(disk: &Arc<Disk>) {
    disk.queue().remove();
    let _changing = CHANGING.lock();
    registry::remove(&disk.device);
    let parts = core::mem::take(&mut *disk.parts.lock());
    for (_, part) in parts.iter().rev() {
        emit(Action::Remove, disk, part);
    }
    emit(Action::Remove, disk, &disk.device);
    forget(disk);
}

/// Takes a disk off the list, which needs no memory. With `CHANGING` held.
fn forget(disk: &Arc<Disk>) {
    let mut disks = DISKS.lock();
    if let Some(at) = disks.iter().position(|known| Arc::ptr_eq(known, disk)) {
        // Not the last reference: the caller has one.
        disks.remove(at);
    }
}

/// A number that belongs to no family. With `CHANGING` held.
fn extended_number() -> Result<DeviceNumber> {
    /// Linux has 20 bits for them.
    const MINORS: u32 = 1 << 20;
    let is_free =
        |minor: &u32| registry::find(DeviceNumber { major: EXTENDED_MAJOR, minor: *minor }).is_none();
    let minor = (0..MINORS).find(is_free).ok_or(Error::OutOfMemory)?;
    Ok(DeviceNumber { major: EXTENDED_MAJOR, minor })
}

/// A number for a partition.
fn partition_number(disk: &Disk, number: u32) -> Result<DeviceNumber> {
    let family = disk.description.family;
    if number < family.minors {
        let first = family.number(disk.index);
        return Ok(DeviceNumber { minor: first.minor + number, ..first });
    }
    extended_number()
}

/// Reads the disk's table again. Partitions that are as before stay; others go and come.
///
/// # Errors
/// [`Error::Busy`] if somebody has claimed one that would go; [`Error::NoDevice`] if the disk has gone; what reading says.
pub fn rescan(disk: &Arc<Disk>) -> Result<()> {
    let _scanning = disk.scanning.lock();
    let table = partition::scan(disk.device.volume())?;
    let _changing = CHANGING.lock();
    if disk.queue().is_gone() {
        // Who has detached it has taken, or will take, the partitions that it had.
        return Err(Error::NoDevice);
    }
    let (mut staying, going): (Vec<_>, Vec<_>) =
        disk.partitions()?.into_iter().partition(|(known, _)| table.partitions.contains(known));
    if going.iter().any(|(_, part)| part.is_claimed()) {
        return Err(Error::Busy);
    }
    for (_, part) in &going {
        registry::remove(part);
        emit(Action::Remove, disk, part);
    }
    let added = table.partitions.into_iter().try_for_each(|partition| {
        if staying.iter().any(|(known, _)| *known == partition) {
            return Ok(());
        }
        fallible::try_reserve(&mut staying, 1)?;
        let part = add_partition(disk, &partition)?;
        staying.push((partition, part));
        Ok(())
    });
    // Whether all of them could be added or not: what is registered is in the list.
    sorting::sort_by_key(&mut staying, |(partition, _)| partition.number);
    replace(&disk.parts, staying);
    added
}

pub(super) fn add_partition(disk: &Arc<Disk>, partition: &Partition) -> Result<Arc<BlockDevice>> {
    let volume = disk.device.volume().part(partition.start, partition.sectors)?;
    let volume = volume.counted_for(partition.number)?;
    let name = partition_name(disk.name(), partition.number);
    let number = partition_number(disk, partition.number)?;
    let part = BlockDevice::partition(&disk.device, partition.number, &name, number, volume)?;
    registry::register(&part)?;
    emit(Action::Add, disk, &part);
    Ok(part)
}

/// The device has another size now.
pub fn resize(disk: &Arc<Disk>, sectors: u64) {
    disk.queue().set_sectors(sectors);
    log::debug!("{}: {sectors} sectors now", disk.name());
    emit(Action::Change, disk, &disk.device);
}
