//! The pages of a block device, and opening its node.
//!
//! All open files of a device share one cache ([`DeviceFiles`]), which stays as long as the device. The last close writes it back and gives its pages up, so
//! that a file system that is mounted next, and reads past this cache, finds what was written.
//!
//! `O_EXCL` claims the device, as a mounted file system does: both fail with `EBUSY` while somebody else has it. Opening for writing is not
//! refused while a file system is mounted, as on Linux.

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;

use block::registry::{self, BlockDevice, Holder};
use block::{BioFlags, Operation, SECTOR_BYTES, Volume};
use machine::address::{PAGE_SIZE, UserAddr};
use memory::file_cache::{BackingDevice, CacheError, FileCache, FileRepresentative, PageRun};
use sync::{Once, SpinLock};

use super::file::{DiskFile, Home};
use super::transfer::{PAGE_SECTORS, submit};
use super::{flusher, shrink};
use crate::attributes::DeviceNumber;
use crate::file::{FileOperations, OpenFile};
use crate::flags::OpenFlags;
use crate::inode::Inode;
use crate::{Error, Result, allocation};

/// What the file layer keeps of a block device.
pub struct DeviceFiles {
    /// The device's own pages.
    cache: Arc<FileCache>,
    backing: Arc<BackingDevice>,
    /// Open files.
    openers: sched::Mutex<u32>,
}

/// Pages to and from a device.
struct Sectors(Volume);

impl Sectors {
    fn transfer(&self, operation: Operation, run: PageRun) {
        let sector = run.first() * PAGE_SECTORS;
        let Some(left) = self.0.sectors().checked_sub(sector).filter(|&left| left > 0) else {
            return run.complete(Err(CacheError::InputOutput));
        };
        let bytes = (run.pages() * PAGE_SIZE)
            .min(usize::try_from(left).unwrap_or(usize::MAX).saturating_mul(SECTOR_BYTES));
        submit(&self.0, operation, sector, bytes, run, BioFlags::empty());
    }
}

impl FileRepresentative for Sectors {
    fn fill(&self, pages: PageRun) {
        self.transfer(Operation::Read, pages);
    }

    fn write_back(&self, pages: PageRun) {
        self.transfer(Operation::Write, pages);
    }
}

/// Answers an `ioctl` on a block device.
pub type Requests = fn(&OpenFile, &Arc<BlockDevice>, u32, UserAddr) -> Result<usize>;

/// Requests of block devices; the first who sets it decides.
static REQUESTS: Once<Requests> = Once::new();
/// Requests that only the devices of a major number know.
static OWN_REQUESTS: SpinLock<Vec<(u32, Requests)>> =
    SpinLock::named("requests of block devices", Vec::new());

/// Sets what answers `ioctl` on block devices. At start-up.
pub fn set_requests(requests: Requests) {
    REQUESTS.call_once(|| requests);
}

/// Sets what is asked first for devices of a major number: `ENOTTY` leads to the general answers. At start-up.
pub fn set_own_requests(major: u32, requests: Requests) {
    OWN_REQUESTS.lock().push((major, requests));
}

fn own_requests(major: u32) -> Option<Requests> {
    OWN_REQUESTS.lock().iter().find(|(of, _)| *of == major).map(|(_, requests)| *requests)
}

impl DeviceFiles {
    /// Those of a device, made when they are first asked for.
    ///
    /// # Errors
    /// No memory.
    pub fn of(device: &BlockDevice) -> Result<Arc<Self>> {
        let files = device.files(|| match Self::make(device) {
            Ok(files) => Ok(files),
            Err(_) => Err(block::Error::OutOfMemory),
        })?;
        files.clone().downcast().map_err(|_| Error::NoDevice)
    }

    fn make(device: &BlockDevice) -> Result<Arc<dyn Any + Send + Sync>> {
        let backing = flusher::add_device(device.name())?;
        let made = Self::with_backing(device.volume(), &backing);
        if made.is_err() {
            flusher::remove_device(&backing);
        }
        made
    }

    fn with_backing(volume: &Volume, backing: &Arc<BackingDevice>) -> Result<Arc<dyn Any + Send + Sync>> {
        backing.share_read_ahead(volume.queue().read_ahead().clone());
        let size = volume.sectors() * SECTOR_BYTES as u64;
        let sectors = allocation::arc(Sectors(volume.clone()))?;
        let cache = FileCache::with_representative(size, sectors, backing.clone())?;
        shrink::enter(&cache)?;
        let openers = sched::Mutex::named("openers of a block device", 0);
        Ok(allocation::arc(Self { cache, backing: backing.clone(), openers })?)
    }

    /// The device's own pages.
    pub fn cache(&self) -> &Arc<FileCache> {
        &self.cache
    }

    /// What write-back and read-ahead know of the device; file systems on it use the same.
    pub fn backing(&self) -> &Arc<BackingDevice> {
        &self.backing
    }

    /// Writes the device's own pages back and gives them up: what is on the device is what counts.
    ///
    /// # Errors
    /// What the device says.
    pub fn empty(&self) -> Result<()> {
        let written = self.cache.write_back(0, u64::MAX);
        self.cache.drop_clean(0, u64::MAX, usize::MAX);
        Ok(written?)
    }

    /// The device has another size now, open or not.
    ///
    /// # Errors
    /// What writing the last page says.
    pub fn resize(&self, sectors: u64) -> Result<()> {
        let _openers = self.openers.lock();
        Ok(self.cache.truncate(sectors.saturating_mul(SECTOR_BYTES as u64))?)
    }
}

impl Drop for DeviceFiles {
    fn drop(&mut self) {
        flusher::remove_device(&self.backing);
    }
}

/// An open device.
struct OpenDevice {
    device: Arc<BlockDevice>,
    files: Arc<DeviceFiles>,
    exclusive: bool,
}

impl OpenDevice {
    fn holder(&self) -> Holder {
        Holder(core::ptr::from_ref(self).addr())
    }
}

impl Home for OpenDevice {
    fn commit(&self, _inode: &Inode, _data_only: bool) -> Result<()> {
        Ok(self.device.volume().flush()?)
    }

    fn direct_bytes(&self) -> usize {
        self.device.volume().queue().limits().logical_block_bytes as usize
    }

    fn before_write(&self, _file: &OpenFile, _position: u64, _bytes: u64) -> Result<()> {
        if self.device.is_read_only() { Err(Error::NotPermitted) } else { Ok(()) }
    }

    fn ioctl(&self, file: &OpenFile, command: u32, argument: UserAddr) -> Result<usize> {
        if let Some(own) = own_requests(self.device.number().major) {
            match own(file, &self.device, command, argument) {
                Err(Error::NotTerminal) => {}
                answer => return answer,
            }
        }
        match REQUESTS.get() {
            Some(requests) => requests(file, &self.device, command, argument),
            None => Err(Error::NotTerminal),
        }
    }

    fn device(&self) -> Option<&Arc<BlockDevice>> {
        Some(&self.device)
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        if self.exclusive {
            self.device.release(self.holder());
        }
        let mut openers = self.files.openers.lock();
        *openers -= 1;
        if *openers == 0 && self.files.empty().is_err() {
            log::warn!("{}: what was written last is lost", self.device.name());
        }
        drop(openers);
        self.device.end_use();
    }
}

/// Opens the block device of that number.
///
/// # Errors
/// `ENXIO` if there is none, `EACCES` for writing to one that refuses it, `EBUSY` if it is to be had alone and is not.
pub fn open_device(number: DeviceNumber, flags: OpenFlags) -> Result<Arc<dyn FileOperations>> {
    let wanted = registry::DeviceNumber { major: number.major, minor: number.minor };
    let device = registry::find(wanted).ok_or(Error::NoDeviceAddress)?;
    if flags.writable() && device.is_read_only() {
        return Err(Error::AccessDenied);
    }
    let files = DeviceFiles::of(&device)?;
    let cache = files.cache.clone();
    {
        let mut openers = files.openers.lock();
        let size = device.volume().sectors() * SECTOR_BYTES as u64;
        if *openers == 0 && size != cache.size() {
            cache.truncate(size)?;
        }
        *openers += 1;
        device.begin_use();
    }
    let open = OpenDevice { device, files, exclusive: false };
    let mut open = allocation::arc(open)?;
    if flags.contains(OpenFlags::EXCLUSIVE) {
        let holder = open.holder();
        open.device.claim(holder)?;
        Arc::get_mut(&mut open).expect("nobody else has it yet").exclusive = true;
    }
    DiskFile::open(cache, Some(open))
}

/// The name that `/proc/mounts` and messages use.
pub fn path_of(device: &BlockDevice) -> alloc::string::String {
    let mut path = "/dev/".to_string();
    path.push_str(device.name());
    path
}
