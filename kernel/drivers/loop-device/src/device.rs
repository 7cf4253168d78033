//! The devices there are, and what each is bound to.
//!
//! A device comes when its node is first opened or `/dev/loop-control` is asked for it, as a disk without sectors. Binding a file gives it the file's size;
//! the end of the binding takes that away.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use block::disk::{self, Description, Disk};
use block::registry::BlockDevice;
use block::{Driver, Limits, Queue, Request, SECTOR_BYTES};
use sched::work::Work;
use sched::{Completion, Mutex, WaitQueue};
use sync::SpinLock;
use vfs::attributes::FileKind;
use vfs::disk::{DeviceFiles, DiskFile};
use vfs::file::OpenFile;
use vfs::flags::OpenFlags;
use vfs::{Error, Result, allocation};

use crate::layout::{AUTOCLEAR, NAME_BYTES, PARTSCAN, READ_ONLY, Status};
use crate::transfer;

/// Requests that a device takes at the same time.
const DEPTH: u32 = 128;
/// Devices at most: as many as Linux has minor numbers.
const DEVICES_MAX: u32 = 1 << 20;
/// Flags that a program may set, and those it may unset.
const SETTABLE: u32 = AUTOCLEAR | PARTSCAN;
const UNSETTABLE: u32 = AUTOCLEAR;
/// Files on loop devices on files and so on, at most.
const DEPTH_OF_FILES_MAX: u32 = 8;

/// What a program has set.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) offset: u64,
    pub(crate) size_limit: u64,
    pub(crate) flags: u32,
    pub(crate) name: [u8; NAME_BYTES],
}

impl Settings {
    /// Fails for what Linux refuses too.
    fn of(status: &Status) -> Result<Self> {
        if status.encryption != 0 {
            return Err(Error::Invalid);
        }
        if i64::try_from(status.offset).is_err() || i64::try_from(status.size_limit).is_err() {
            return Err(Error::Overflow);
        }
        let Status { offset, size_limit, flags, name, .. } = status.clone();
        Ok(Self { offset, size_limit, flags, name })
    }
}

/// A file in use as a disk.
pub(crate) struct Binding {
    pub(crate) file: Arc<OpenFile>,
    pub(crate) settings: SpinLock<Settings>,
    waiting: SpinLock<VecDeque<Request>>,
    arrived: WaitQueue,
    /// No request comes any more.
    ending: AtomicBool,
    /// The thread has let go of the file too.
    ended: Arc<Completion>,
}

impl Binding {
    fn new(file: Arc<OpenFile>, settings: Settings) -> Result<Arc<Self>> {
        let mut waiting = VecDeque::new();
        waiting.try_reserve_exact(DEPTH as usize).map_err(|_| Error::OutOfMemory)?;
        allocation::arc(Self {
            file,
            settings: SpinLock::named("settings of a loop device", settings),
            waiting: SpinLock::named("requests of a loop device", waiting),
            arrived: WaitQueue::new(),
            ending: AtomicBool::new(false),
            ended: allocation::arc(Completion::new())?,
        })
    }

    /// Gives the request back if there is no room.
    fn take(&self, request: Request) -> core::result::Result<(), Request> {
        {
            let mut waiting = self.waiting.lock();
            if waiting.len() == waiting.capacity() {
                return Err(request);
            }
            waiting.push_back(request);
        }
        self.arrived.wake_one();
        Ok(())
    }

    /// What the device's thread does until the binding ends.
    fn serve(&self) {
        let mut room = transfer::Room::new();
        loop {
            self.arrived.wait_until(|| {
                // Acquire: pairs with the store in `end`, after which nothing comes.
                self.ending.load(Ordering::Acquire) || !self.waiting.lock().is_empty()
            });
            let next = self.waiting.lock().pop_front();
            let Some(mut request) = next else { break };
            let offset = self.settings.lock().offset;
            let outcome = transfer::perform(&self.file, offset, &mut request, &mut room);
            request.complete(outcome);
        }
    }

    /// Waits until everything that waits is done. Nothing may come any more.
    fn end(&self) {
        self.ending.store(true, Ordering::Release);
        self.arrived.wake_all();
        self.ended.wait();
    }

    /// Sectors of the disk that the file makes.
    fn sectors(&self) -> u64 {
        let Settings { offset, size_limit, .. } = *self.settings.lock();
        let file = match DiskFile::device_of(&self.file) {
            Some(device) => device.volume().sectors() * SECTOR_BYTES as u64,
            None => self.file.status().size,
        };
        let left = file.saturating_sub(offset);
        let bytes = if size_limit > 0 { left.min(size_limit) } else { left };
        bytes / SECTOR_BYTES as u64
    }
}

/// The driver's side of a device, as the block layer knows it.
struct Side {
    index: u32,
    binding: SpinLock<Option<Arc<Binding>>>,
}

impl Driver for Side {
    fn limits(&self) -> Limits {
        let mut limits = Limits::of_size(0);
        limits.depth = DEPTH;
        limits.write_cache = true;
        limits.discard_sectors_max = u32::MAX >> 9;
        limits.zeroes_sectors_max = u32::MAX >> 9;
        limits
    }

    fn submit(&self, _cpu: usize, request: Request) -> core::result::Result<(), Request> {
        // Under the lock, so that the end of a binding finds all that it was given.
        let binding = self.binding.lock();
        match &*binding {
            Some(binding) => binding.take(request),
            None => {
                drop(binding);
                request.complete(Err(block::Error::Io));
                Ok(())
            }
        }
    }

    fn unused(&self) {
        let clears = |binding: &Arc<Binding>| binding.settings.lock().flags & AUTOCLEAR != 0;
        if self.binding.lock().as_ref().is_some_and(clears) {
            // Without memory it stays bound until its next user has gone.
            if let Ok(work) = Work::prepare(clear_unused) {
                CLEARING.count.fetch_add(1, Ordering::Relaxed);
                work.queue(self.index);
            }
        }
    }

    fn details(&self) -> Option<(&'static str, Vec<(&'static str, String)>)> {
        let binding = self.binding.lock().clone()?;
        let settings = binding.settings.lock().clone();
        let mut name = Vec::new();
        match binding.file.path() {
            Some(path) => path.write_as_seen(&mut name).ok()?,
            None => binding.file.write_name(&mut name).ok()?,
        }
        let flag = |flag| String::from(if settings.flags & flag != 0 { "1" } else { "0" });
        let mut files = Vec::new();
        files.try_reserve_exact(6).ok()?;
        files.push(("backing_file", String::from_utf8_lossy(&name).into_owned()));
        files.push(("offset", alloc::format!("{}", settings.offset)));
        files.push(("sizelimit", alloc::format!("{}", settings.size_limit)));
        files.push(("autoclear", flag(AUTOCLEAR)));
        files.push(("partscan", flag(PARTSCAN)));
        files.push(("dio", String::from("0")));
        Some(("loop", files))
    }
}

/// A loop device.
pub(crate) struct Device {
    index: u32,
    disk: Arc<Disk>,
    side: Arc<Side>,
    /// Held while a binding begins, changes or ends.
    changing: Mutex<()>,
}

/// Held from the check that a file does not lead back to its device until it is bound: two devices can't be bound to each other.
static CHAINING: Mutex<()> = Mutex::named("files of loop devices", ());
static DEVICES: Mutex<Vec<Arc<Device>>> = Mutex::named("loop devices", Vec::new());

/// The device of that index, made if there is none yet.
pub(crate) fn find_or_make(index: u32) -> Result<Arc<Device>> {
    let mut devices = DEVICES.lock();
    match devices.iter().find(|device| device.index == index) {
        Some(device) => Ok(device.clone()),
        None => make(&mut devices, index),
    }
}

/// A device that was not there before, of that index or the first that is free.
pub(crate) fn add(index: Option<u32>) -> Result<Arc<Device>> {
    let mut devices = DEVICES.lock();
    let is_free = |index: &u32| !devices.iter().any(|device| device.index == *index);
    let index = match index {
        Some(index) => Some(index).filter(is_free).ok_or(Error::Exists)?,
        None => (0..DEVICES_MAX).find(is_free).ok_or(Error::NoSpace)?,
    };
    make(&mut devices, index)
}

fn make(devices: &mut Vec<Arc<Device>>, index: u32) -> Result<Arc<Device>> {
    if index >= DEVICES_MAX {
        return Err(Error::NoDeviceAddress);
    }
    allocation::reserve(devices, 1)?;
    let binding = SpinLock::named("file of a loop device", None);
    let side = allocation::arc(Side { index, binding })?;
    let description = Description {
        family: disk::LOOP,
        parent: String::from("/devices/virtual"),
        serial: String::new(),
        removable: false,
    };
    let disk = disk::attach_at(description, index, Queue::new(side.clone())?)?;
    let changing = Mutex::named("binding of a loop device", ());
    match allocation::arc(Device { index, disk: disk.clone(), side, changing }) {
        Ok(device) => {
            devices.push(device.clone());
            Ok(device)
        }
        Err(error) => {
            disk::detach(&disk);
            Err(error)
        }
    }
}

/// The first device without a file, made if there is none.
pub(crate) fn unbound() -> Result<Arc<Device>> {
    {
        let devices = DEVICES.lock();
        let free = devices.iter().filter(|device| device.binding().is_err());
        let first = free.min_by_key(|device| device.index).cloned();
        let is_gap = |index: &u32| !devices.iter().any(|device| device.index == *index);
        let gap = (0..DEVICES_MAX).find(is_gap).unwrap_or(DEVICES_MAX);
        if let Some(first) = first.filter(|device| device.index < gap) {
            return Ok(first);
        }
    }
    add(None)
}

/// Takes away a device that nobody uses.
pub(crate) fn remove(index: u32) -> Result<()> {
    let mut devices = DEVICES.lock();
    let place = devices.iter().position(|device| device.index == index).ok_or(Error::NoDevice)?;
    let device = &devices[place];
    if device.binding().is_ok() || device.disk.device.users() > 0 {
        return Err(Error::Busy);
    }
    disk::detach(&device.disk);
    devices.remove(place);
    Ok(())
}

/// Bindings on their end because nobody uses their device any more: whoever closed it last does not wait, whoever comes next does.
struct Clearing {
    count: AtomicU32,
    done: WaitQueue,
}

static CLEARING: Clearing = Clearing { count: AtomicU32::new(0), done: WaitQueue::new() };

/// Waits until devices that nobody uses any more have been cleared.
pub(crate) fn settle() {
    // Acquire: pairs with the end of `clear_unused`.
    CLEARING.done.wait_until(|| CLEARING.count.load(Ordering::Acquire) == 0);
}

/// The last user of a device that wants its binding to end with him has gone, or so it seemed.
fn clear_unused(index: u32) {
    let device = DEVICES.lock().iter().find(|device| device.index == index).cloned();
    if let Some(device) = device {
        device.clear_if_unused();
    }
    CLEARING.count.fetch_sub(1, Ordering::Release);
    CLEARING.done.wake_all();
}

impl Device {
    /// The number after `loop` in its name.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    fn binding(&self) -> Result<Arc<Binding>> {
        self.side.binding.lock().clone().ok_or(Error::NoDeviceAddress)
    }

    /// Begins to use a file as the disk. `read_only`: the device was opened so.
    pub(crate) fn bind(&self, file: Arc<OpenFile>, read_only: bool, status: &Status) -> Result<()> {
        let _changing = self.changing.lock();
        if self.binding().is_ok() {
            return Err(Error::Busy);
        }
        let mut settings = Settings::of(status)?;
        if settings.flags & !(SETTABLE | READ_ONLY) != 0 {
            return Err(Error::Invalid);
        }
        let chaining = CHAINING.lock();
        self.check_file(&file)?;
        if read_only || !file.flags().writable() {
            settings.flags |= READ_ONLY;
        }
        let is_read_only = settings.flags & READ_ONLY != 0;
        let looks_for_parts = settings.flags & PARTSCAN != 0;
        let binding = Binding::new(file, settings)?;
        let (own, ended) = (binding.clone(), binding.ended.clone());
        let life = move || {
            own.serve();
            // Whoever waits for the end may unmount what the file is on.
            drop(own);
            ended.complete();
        };
        let name = alloc::format!("loop{}", self.index);
        sched::spawn(sched::Builder::new(&name), allocation::boxed(life)?)?;
        *self.side.binding.lock() = Some(binding.clone());
        drop(chaining);
        self.disk.device.set_read_only(is_read_only);
        if let Err(error) = self.resize(binding.sectors()) {
            self.unbind(&binding);
            return Err(error);
        }
        if looks_for_parts {
            self.look_for_parts();
        }
        Ok(())
    }

    /// Whether a file can be bound: `EINVAL` if it is no file of bytes, `EBADF` if it leads back here.
    fn check_file(&self, file: &Arc<OpenFile>) -> Result<()> {
        if file.flags().contains(OpenFlags::PATH) {
            return Err(Error::BadDescriptor);
        }
        if !matches!(file.inode().kind, FileKind::Regular | FileKind::BlockDevice) {
            return Err(Error::Invalid);
        }
        let mut under = DiskFile::device_of(file);
        for _ in 0..DEPTH_OF_FILES_MAX {
            let Some(device) = under else { return Ok(()) };
            if Arc::ptr_eq(device.volume().queue(), self.disk.queue()) {
                return Err(Error::BadDescriptor);
            }
            under = file_under(&device).and_then(|file| DiskFile::device_of(&file));
        }
        Err(Error::Invalid)
    }

    /// Ends the binding; with other users of the device, when the last of them goes.
    pub(crate) fn clear(&self) -> Result<()> {
        let _changing = self.changing.lock();
        let binding = self.binding()?;
        if self.disk.device.users() > 1 {
            binding.settings.lock().flags |= AUTOCLEAR;
        } else {
            self.unbind(&binding);
        }
        Ok(())
    }

    fn clear_if_unused(&self) {
        let _changing = self.changing.lock();
        let Ok(binding) = self.binding() else { return };
        let clears = binding.settings.lock().flags & AUTOCLEAR != 0;
        // Who opens it from now on finds it without a file.
        if clears && self.disk.device.users() == 0 {
            self.unbind(&binding);
        }
    }

    fn unbind(&self, binding: &Arc<Binding>) {
        if let Err(error) = DeviceFiles::of(&self.disk.device).and_then(|files| files.empty()) {
            log::warn!("loop{}: what was written last is lost: {error}", self.index);
        }
        *self.side.binding.lock() = None;
        binding.end();
        if let Err(error) = self.resize(0) {
            log::warn!("loop{}: {error}", self.index);
        }
        self.look_for_parts();
        self.disk.device.set_read_only(false);
    }

    fn resize(&self, sectors: u64) -> Result<()> {
        disk::resize(&self.disk, sectors);
        DeviceFiles::of(&self.disk.device)?.resize(sectors)
    }

    fn look_for_parts(&self) {
        if let Err(error) = disk::rescan(&self.disk) {
            log::warn!("loop{}: no partitions: {error}", self.index);
        }
    }

    /// What there is to say about the binding.
    pub(crate) fn status(&self) -> Result<Status> {
        let binding = self.binding()?;
        let settings = binding.settings.lock().clone();
        let file = binding.file.status();
        Ok(Status {
            device: file.device.encode(),
            inode: file.inode,
            special: file.special.encode(),
            offset: settings.offset,
            size_limit: settings.size_limit,
            number: self.index,
            encryption: 0,
            flags: settings.flags,
            name: settings.name,
        })
    }

    /// Changes what can be changed of a binding.
    pub(crate) fn set_status(&self, status: &Status) -> Result<()> {
        let _changing = self.changing.lock();
        let binding = self.binding()?;
        let mut new = Settings::of(status)?;
        let old = binding.settings.lock().clone();
        let moves = (old.offset, old.size_limit) != (new.offset, new.size_limit);
        new.flags = (old.flags & !UNSETTABLE) | (new.flags & SETTABLE);
        let looks_for_parts = new.flags & !old.flags & PARTSCAN != 0;
        if moves {
            // What is in memory belongs to the old place.
            DeviceFiles::of(&self.disk.device)?.empty()?;
        }
        *binding.settings.lock() = new;
        if moves {
            self.resize(binding.sectors())?;
        }
        if looks_for_parts {
            self.look_for_parts();
        }
        Ok(())
    }

    /// The file has another size now.
    pub(crate) fn set_capacity(&self) -> Result<()> {
        let _changing = self.changing.lock();
        let binding = self.binding()?;
        self.resize(binding.sectors())
    }
}

/// The file that a loop device is bound to.
fn file_under(device: &Arc<BlockDevice>) -> Option<Arc<OpenFile>> {
    let disk = disk::of(device)?;
    let found = DEVICES.lock().iter().find(|device| Arc::ptr_eq(&device.disk, &disk)).cloned()?;
    found.binding().ok().map(|binding| binding.file.clone())
}
