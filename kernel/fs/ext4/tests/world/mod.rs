//! An image on a disk in memory, mounted through the file layer.
#![allow(dead_code, reason = "each test program uses its part")]

use std::sync::{Arc, Mutex, Once};

use block::disk::{self, Description, Disk, Family};
use block::{FaultyDisk, Queue};
use memory::buffer::{Sink, Source};
use vfs::Result;
use vfs::credentials::Credentials;
use vfs::file::OpenFile;
use vfs::flags::{LookupFlags, MountFlags, OpenFlags};
use vfs::mount::{Mount, MountNamespace};
use vfs::superblock::{Superblock, find_file_system, mount_device};
use vfs::tree::OpenHow;
use vfs::walk::{PathContext, Places};

use crate::image::Image;

/// Names of disks are the machine's: one test at a time makes them.
pub(crate) static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A mounted image.
pub(crate) struct World {
    pub(crate) places: Places,
    pub(crate) credentials: Credentials,
    pub(crate) superblock: Arc<Superblock>,
}

/// A disk with an image on it.
pub(crate) struct Device {
    pub(crate) faults: Arc<FaultyDisk>,
    pub(crate) disk: Arc<Disk>,
}

impl Device {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        static REGISTERED: Once = Once::new();
        REGISTERED.call_once(ext4::mounted::register);
        let faults = Arc::new(FaultyDisk::new(bytes).expect("there is memory"));
        let family = Family { prefix: "tst", letters: true, major: 240, minors: 4 };
        let description =
            Description { family, parent: "/devices/virtual".into(), serial: "".into(), removable: true };
        let queue = Queue::new(faults.clone()).expect("a sound device");
        Self { faults, disk: disk::attach(description, queue).expect("there is memory") }
    }

    pub(crate) fn mount(&self, read_only: bool) -> Result<World> {
        self.mount_as(read_only, b"", MountFlags::empty())
    }

    pub(crate) fn mount_with(&self, options: &[u8]) -> Result<World> {
        self.mount_as(false, options, MountFlags::empty())
    }

    pub(crate) fn mount_through(&self, flags: MountFlags) -> Result<World> {
        self.mount_as(false, b"", flags)
    }

    fn mount_as(&self, read_only: bool, options: &[u8], flags: MountFlags) -> Result<World> {
        let kind = find_file_system(b"ext4")?;
        let superblock = mount_device(kind, &self.disk.device, read_only, options)?;
        let mount = Mount::new(superblock.clone(), superblock.root().clone(), b"/dev/tsta", flags)?;
        let namespace = MountNamespace::new(mount)?;
        let root = namespace.root();
        let places = Places { cwd: root.clone(), root, namespace };
        Ok(World { places, credentials: Credentials::root(), superblock })
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.faults.contents().expect("there is memory")
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        disk::detach(&self.disk);
    }
}

impl World {
    pub(crate) fn context(&self) -> PathContext<'_> {
        PathContext { places: &self.places, credentials: &self.credentials, umask: 0 }
    }

    pub(crate) fn open(&self, path: &[u8], flags: OpenFlags) -> Result<Arc<OpenFile>> {
        let how = OpenHow { flags, mode: 0o640, resolve: LookupFlags::empty() };
        self.context().open(&self.places.root, path, &how)
    }

    pub(crate) fn create(&self, path: &[u8]) -> Result<Arc<OpenFile>> {
        self.open(path, OpenFlags::READ_WRITE | OpenFlags::CREATE)
    }

    /// As `umount` does.
    pub(crate) fn unmount(self) {
        let Self { places, superblock, .. } = self;
        drop(places);
        sync::rcu::barrier_expedited();
        superblock.finish();
        drop(superblock);
    }
}

pub(crate) fn write(file: &Arc<OpenFile>, offset: i64, bytes: &[u8]) -> Result<usize> {
    file.write_at(offset, &mut Source::kernel(bytes))
}

pub(crate) fn read(file: &Arc<OpenFile>, offset: i64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let count = file.read_at(offset, &mut Sink::kernel(&mut bytes)).expect("the disk works");
    bytes.truncate(count);
    bytes
}

/// What a thread of the host ends with. It is a processor of its own and may wait for threads of the calling one (those that write back), which run meanwhile.
pub(crate) fn outcome_of<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    while !thread.is_finished() {
        sched::yield_now();
        machine::cpu::relax();
    }
    thread.join().expect("it does not panic")
}

pub(crate) fn judge(image: &Image, bytes: &[u8]) {
    image.set_bytes(bytes);
    let (sound, said) = image.run_to_end("e2fsck", &["-fn"]);
    assert!(sound, "{said}");
}
