//! Tests of files whose pages have their home on a device (`test=disks`): on disks in memory that fail and go when they are told to.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use block::disk::{self, Description, Disk};
use block::{DiskEvent, FaultyDisk, Queue};
use machine::address::PAGE_SIZE;
use memory::buffer::{Sink, Source};
use memory::file_cache::FileCache;
use vfs::attributes::{DeviceNumber, FileKind};
use vfs::credentials::Credentials;
use vfs::disk::flusher::{self, SETTINGS};
use vfs::disk::{Advice, DeviceFiles, DiskFile};
use vfs::file::{OpenFile, SeekFrom};
use vfs::flags::{LookupFlags, MountFlags, OpenFlags};
use vfs::mount::{Mount, MountNamespace};
use vfs::tree::OpenHow;
use vfs::walk::{PathContext, Places};
use vfs::{Error, Result};

use super::kit::sleep_ns;
use super::percpu::on_each_cpu;
use super::{Outcome, Test, check, fail};

pub(crate) const TESTS: &[Test] = &[
    Test { name: "disks::what_is_written_is_on_the_disk_when_synced", run: synced_is_on_disk },
    Test { name: "disks::the_last_close_writes_back", run: last_close_writes_back },
    Test { name: "disks::an_error_is_told_once_to_each_open_file", run: errors_are_told_once },
    Test { name: "disks::a_device_that_went_is_enodev", run: removed_is_enodev },
    Test { name: "disks::direct_transfers_must_be_aligned", run: direct_is_aligned },
    Test { name: "disks::exclusive_opens_exclude_each_other", run: exclusive_opens },
    Test { name: "disks::sequential_reads_are_read_ahead", run: sequential_reads },
    Test { name: "disks::writers_are_held_back_at_the_limit", run: writers_are_held_back },
    Test { name: "disks::a_slow_device_has_only_so_much_on_its_way", run: slow_device_has_so_much },
    Test { name: "disks::a_new_period_of_write_back_counts_at_once", run: new_period_counts },
    Test { name: "disks::clean_pages_go_when_asked_for", run: clean_pages_go },
    Test { name: "disks::clean_pages_of_an_open_device_go_when_memory_is_wanted", run: device_pages_go },
    Test { name: "disks::only_synchronous_writes_are_flushed", run: synchronous_is_flushed },
    Test { name: "disks::advice_does_not_wait", run: advice_does_not_wait },
    Test { name: "disks::all_processors_write_and_sync", run: all_write_and_sync },
];

/// Of each disk, unless another size is said.
const DISK_BYTES: usize = 4 << 20;

const PAGE: u64 = PAGE_SIZE as u64;

/// A name space of its own, and a disk with a node in it.
struct World {
    places: Places,
    credentials: Credentials,
    faults: Arc<FaultyDisk>,
    disk: Arc<Disk>,
    attached: bool,
    /// `dirty_expire_centisecs` before.
    expire: u64,
}

impl World {
    fn new() -> Result<Self> {
        Self::with_disk_of(DISK_BYTES)
    }

    fn with_disk_of(bytes: usize) -> Result<Self> {
        let superblock = tmpfs::new_instance("rootfs", 0o755)?;
        let mount =
            Mount::new(superblock.clone(), superblock.root().clone(), b"rootfs", MountFlags::empty())?;
        let namespace = MountNamespace::new(mount)?;
        let root = namespace.root();
        let faults = Arc::new(FaultyDisk::new(&memory::fallible::try_vec_of(0x11, bytes)?)?);
        let family = block::disk::Family { prefix: "tst", letters: true, major: 240, minors: 4 };
        let description =
            Description { family, parent: "/devices/virtual".into(), serial: "".into(), removable: true };
        let disk = disk::attach(description, Queue::new(faults.clone())?)?;
        let world = Self {
            places: Places { cwd: root.clone(), root, namespace },
            credentials: Credentials::root(),
            faults,
            disk,
            attached: true,
            // Nothing is written back because it is old, however long a test takes.
            expire: SETTINGS.expire_centisecs.swap(u64::from(u32::MAX), Ordering::Relaxed),
        };
        let number = world.disk.device.number();
        let number = DeviceNumber::new(number.major, number.minor);
        world.context().make_special(&world.places.root, b"/disk", FileKind::BlockDevice, 0o600, number)?;
        Ok(world)
    }

    fn context(&self) -> PathContext<'_> {
        PathContext { places: &self.places, credentials: &self.credentials, umask: 0 }
    }

    fn open(&self, flags: OpenFlags) -> Result<Arc<OpenFile>> {
        let how = OpenHow { flags, mode: 0o600, resolve: LookupFlags::empty() };
        self.context().open(&self.places.root, b"/disk", &how)
    }

    fn on_disk(&self, offset: usize, bytes: usize) -> Result<Vec<u8>> {
        let all = self.faults.contents()?;
        Ok(memory::fallible::try_copy(&all[offset..offset + bytes])?)
    }

    fn cache(&self) -> Result<Arc<FileCache>> {
        Ok(DeviceFiles::of(&self.disk.device)?.cache().clone())
    }

    fn detach(&mut self) {
        if core::mem::take(&mut self.attached) {
            disk::detach(&self.disk);
        }
    }

    /// Requests that the disk has got: reads, or writes.
    fn requests(&self, kind: usize) -> u64 {
        self.disk.queue().statistics().snapshot().completed[kind]
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.detach();
        SETTINGS.expire_centisecs.store(self.expire, Ordering::Relaxed);
    }
}

fn write(file: &Arc<OpenFile>, offset: i64, bytes: &[u8]) -> Result<usize> {
    file.write_at(offset, &mut Source::kernel(bytes))
}

fn read(file: &Arc<OpenFile>, offset: i64, length: usize) -> Result<Vec<u8>> {
    let mut bytes = memory::fallible::try_vec_of(0, length)?;
    let count = file.read_at(offset, &mut Sink::kernel(&mut bytes))?;
    bytes.truncate(count);
    Ok(bytes)
}

/// What a step that must not fail came to.
fn went<T>(result: Result<T>, what: &str) -> core::result::Result<T, super::Failure> {
    result.or_else(|error| fail!("{what}: {error:?}"))
}

fn synced_is_on_disk() -> Outcome {
    let world = went(World::new(), "a disk")?;
    let file = went(world.open(OpenFlags::READ_WRITE), "open")?;
    check!(read(&file, 5000, 3) == Ok(vec_of(b"\x11\x11\x11")), "what was on the disk");
    check!(write(&file, 4090, b"over the edge") == Ok(13), "a write");
    check!(read(&file, 4090, 13) == Ok(vec_of(b"over the edge")), "read back from memory");
    check!(file.seek(SeekFrom::End(0)) == Ok(DISK_BYTES as u64), "the end is the disk's");
    check!(write(&file, DISK_BYTES as i64, b"x") == Err(Error::NoSpace), "nothing beyond the end");
    check!(write(&file, DISK_BYTES as i64 - 1, b"xy") == Ok(1), "as much as fits");
    check!(read(&file, DISK_BYTES as i64, 10) == Ok(Vec::new()), "the end");
    went(file.sync(false), "fsync")?;
    check!(world.on_disk(4090, 13) == Ok(vec_of(b"over the edge")), "on the disk");
    check!(went(world.cache(), "pages")?.dirty_pages() == 0, "nothing is dirty");
    let synced = went(world.open(OpenFlags::WRITE_ONLY | OpenFlags::DATA_SYNC), "open with O_DSYNC")?;
    check!(write(&synced, 0, b"at once") == Ok(7), "a write with O_DSYNC");
    check!(world.on_disk(0, 7) == Ok(vec_of(b"at once")), "on the disk when it returns");
    Ok(())
}

fn vec_of(bytes: &[u8]) -> Vec<u8> {
    Vec::from(bytes)
}

fn last_close_writes_back() -> Outcome {
    let world = went(World::new(), "a disk")?;
    let file = went(world.open(OpenFlags::READ_WRITE), "open")?;
    let other = went(world.open(OpenFlags::empty()), "open")?;
    check!(write(&file, 100, b"late") == Ok(4), "a write");
    drop(file);
    check!(read(&other, 100, 4) == Ok(vec_of(b"late")), "others see it");
    drop(other);
    check!(world.on_disk(100, 4) == Ok(vec_of(b"late")), "on the disk");
    check!(went(world.cache(), "pages")?.resident_pages() == 0, "no pages are kept");
    Ok(())
}

fn errors_are_told_once() -> Outcome {
    let world = went(World::new(), "a disk")?;
    let one = went(world.open(OpenFlags::READ_WRITE), "open")?;
    let two = went(world.open(OpenFlags::READ_WRITE), "open")?;
    check!(write(&one, 0, &[1; PAGE_SIZE]) == Ok(PAGE_SIZE), "a write");
    world.faults.fail_after(1, block::Error::Io, true);
    check!(one.sync(true) == Err(Error::Io), "the first is told");
    world.faults.fail_after(0, block::Error::Io, false);
    check!(one.sync(true) == Ok(()), "once");
    check!(two.sync(true) == Err(Error::Io), "the second is told, too");
    check!(two.sync(true) == Ok(()), "once");
    let three = went(world.open(OpenFlags::READ_WRITE), "open")?;
    check!(three.sync(true) == Ok(()), "who comes later is not told");
    world.faults.fail_after(1, block::Error::Io, true);
    check!(read(&three, 1 << 20, 10) == Err(Error::Io), "reading fails");
    world.faults.fail_after(0, block::Error::Io, false);
    check!(read(&three, 1 << 20, 1) == Ok(vec_of(b"\x11")), "and may be tried again");
    Ok(())
}

fn removed_is_enodev() -> Outcome {
    let mut world = went(World::new(), "a disk")?;
    let other = went(World::new(), "another disk")?;
    let file = went(world.open(OpenFlags::READ_WRITE), "open")?;
    let unaffected = went(other.open(OpenFlags::READ_WRITE), "open the other")?;
    check!(write(&file, 0, b"lost") == Ok(4), "a write");
    world.detach();
    check!(read(&file, 0, 4) == Err(Error::NoDevice), "reading");
    check!(write(&file, 0, b"x") == Err(Error::NoDevice), "writing");
    check!(file.sync(false) == Err(Error::NoDevice), "what was not written is lost, and said to be");
    check!(world.open(OpenFlags::empty()).err() == Some(Error::NoDeviceAddress), "opening again");
    check!(write(&unaffected, 0, b"fine") == Ok(4), "the other is written");
    check!(unaffected.sync(false) == Ok(()), "and synced");
    Ok(())
}

fn direct_is_aligned() -> Outcome {
    let world = went(World::new(), "a disk")?;
    let file = went(world.open(OpenFlags::READ_WRITE | OpenFlags::DIRECT), "open")?;
    check!(write(&file, 1, &[2; 512]) == Err(Error::Invalid), "a position between blocks");
    check!(write(&file, 0, &[2; 100]) == Err(Error::Invalid), "a part of a block");
    check!(read(&file, 0, 100) == Err(Error::Invalid), "reading a part of a block");
    check!(write(&file, 512, &[2; 1024]) == Ok(1024), "whole blocks");
    check!(world.on_disk(512, 3) == Ok(vec_of(&[2; 3])), "on the disk when it returns");
    let cached = went(world.open(OpenFlags::READ_WRITE), "open")?;
    check!(write(&cached, 0, b"cached") == Ok(6), "a write to the pages");
    check!(read(&file, 0, 512).is_ok_and(|bytes| bytes.starts_with(b"cached")), "is seen directly");
    check!(write(&file, 0, &[3; 512]) == Ok(512), "a direct write");
    check!(read(&cached, 0, 2) == Ok(vec_of(&[3; 2])), "is seen in the pages");
    world.faults.fail_after(1, block::Error::Io, true);
    check!(write(&file, 0, &[4; 512]) == Err(Error::Io), "its error is its own");
    world.faults.fail_after(0, block::Error::Io, false);
    Ok(())
}

fn exclusive_opens() -> Outcome {
    let world = went(World::new(), "a disk")?;
    let alone = went(world.open(OpenFlags::EXCLUSIVE), "open with O_EXCL")?;
    let again = world.open(OpenFlags::EXCLUSIVE).err();
    check!(again == Some(Error::Busy), "a second one");
    check!(world.open(OpenFlags::empty()).is_ok(), "without O_EXCL");
    drop(alone);
    check!(world.open(OpenFlags::EXCLUSIVE).is_ok(), "after its close");
    Ok(())
}

fn sequential_reads() -> Outcome {
    const READS: usize = 0;
    let world = went(World::new(), "a disk")?;
    let file = went(world.open(OpenFlags::empty()), "open")?;
    let before = world.requests(READS);
    let pages = 512;
    for page in 0..pages {
        check!(
            read(&file, page * PAGE as i64, PAGE_SIZE).is_ok_and(|bytes| bytes.len() == PAGE_SIZE),
            "page {page}"
        );
    }
    let sequential = world.requests(READS) - before;
    check!(sequential <= 32, "{pages} pages took {sequential} requests");
    let operations = file.operations();
    operations.advise(&file, 0, 0, Advice::DontNeed);
    check!(went(world.cache(), "pages")?.resident_pages() == 0, "pages that are not needed go");
    operations.advise(&file, 0, 0, Advice::Random);
    let before = world.requests(READS);
    for page in 0..64 {
        check!(read(&file, page * PAGE as i64, 10).is_ok(), "page {page}");
    }
    check!(world.requests(READS) - before == 64, "at random nothing is read ahead");
    operations.advise(&file, 0, 0, Advice::WillNeed);
    check!(read(&file, DISK_BYTES as i64 - 1, 1).is_ok(), "the last page");
    let cache = went(world.cache(), "pages")?;
    check!(cache.resident_pages() == DISK_BYTES as u64 / PAGE, "all pages are there");
    Ok(())
}

/// Changes limits, and sets them back.
struct Limits([u64; 4]);

impl Limits {
    fn of_bytes(limit: u64, background: u64) -> Self {
        let settings = [
            &SETTINGS.dirty_ratio,
            &SETTINGS.dirty_bytes,
            &SETTINGS.background_ratio,
            &SETTINGS.background_bytes,
        ];
        let former = settings.map(|setting| setting.load(Ordering::Relaxed));
        for (setting, value) in settings.into_iter().zip([0, limit, 0, background]) {
            setting.store(value, Ordering::Relaxed);
        }
        Self(former)
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        let settings = [
            &SETTINGS.dirty_ratio,
            &SETTINGS.dirty_bytes,
            &SETTINGS.background_ratio,
            &SETTINGS.background_bytes,
        ];
        for (setting, value) in settings.into_iter().zip(self.0) {
            setting.store(value, Ordering::Relaxed);
        }
    }
}

fn writers_are_held_back() -> Outcome {
    const LIMIT: u64 = 1 << 20;
    let world = went(World::new(), "a disk")?;
    let file = went(world.open(OpenFlags::WRITE_ONLY), "open")?;
    let cache = went(world.cache(), "pages")?;
    let _limits = Limits::of_bytes(LIMIT, LIMIT / 4);
    for round in 0..DISK_BYTES / (128 << 10) {
        let bytes = [round as u8; PAGE_SIZE];
        for page in 0..32 {
            let offset = (round * 32 + page) * PAGE_SIZE;
            check!(write(&file, offset as i64, &bytes) == Ok(PAGE_SIZE), "a write");
        }
        let dirty = (cache.dirty_pages() + cache.pages_under_write_back()) * PAGE;
        check!(dirty <= LIMIT + PAGE, "{dirty} bytes are dirty, the limit is {LIMIT}");
    }
    went(file.sync(true), "fsync")?;
    let all = went(world.faults.contents().map_err(Error::from), "contents")?;
    let right =
        all.chunks(128 << 10).enumerate().all(|(round, part)| part.iter().all(|&byte| byte == round as u8));
    check!(right, "all of it is on the disk");
    Ok(())
}

fn slow_device_has_so_much() -> Outcome {
    const BYTES: usize = 24 << 20;
    /// What a device may have on its way, and what may be begun of one file before that is looked at.
    const MOST: u64 = 2048 + 1024;
    let world = went(World::with_disk_of(BYTES), "a disk")?;
    let file = went(world.open(OpenFlags::WRITE_ONLY), "open")?;
    let cache = went(world.cache(), "pages")?;
    let _limits = Limits::of_bytes(1 << 30, PAGE);
    world.faults.hold();
    for offset in (0..BYTES).step_by(PAGE_SIZE) {
        check!(write(&file, offset as i64, &[7; PAGE_SIZE]) == Ok(PAGE_SIZE), "a write");
    }
    // The thread has had time to look again and again. Nothing fails if it is late.
    sleep_ns(600_000_000);
    let on_way = cache.pages_under_write_back();
    world.faults.let_go();
    check!(on_way <= MOST, "{on_way} pages are on their way");
    went(file.sync(true), "fsync")?;
    Ok(())
}

/// Sets the period of write-back back.
struct Period(u64);

impl Period {
    fn of_centisecs(centisecs: u64) -> Self {
        let former = SETTINGS.write_back_centisecs.load(Ordering::SeqCst);
        flusher::set_write_back_period(centisecs);
        Self(former)
    }
}

impl Drop for Period {
    fn drop(&mut self) {
        flusher::set_write_back_period(self.0);
    }
}

fn new_period_counts() -> Outcome {
    const NO_PERIOD: u64 = 0;
    const HOUR: u64 = 360_000;
    const AT_ONCE: u64 = 0;
    const NEVER: u64 = u32::MAX as u64;
    // A minute at the least: far from the hour that a thread must not sleep on, however slow the host is.
    const LOOKS: u32 = 60_000;
    for (former, age) in [(NO_PERIOD, AT_ONCE), (HOUR, NEVER)] {
        let world = went(World::new(), "a disk")?;
        let file = went(world.open(OpenFlags::READ_WRITE), "open")?;
        let cache = went(world.cache(), "pages")?;
        let _period = Period::of_centisecs(former);
        SETTINGS.expire_centisecs.store(age, Ordering::Relaxed);
        check!(write(&file, 0, b"old") == Ok(3), "a write");
        // The thread has heard of the file, finds nothing that it may write, and sleeps. Nothing fails if it is late.
        sleep_ns(50_000_000);
        check!(cache.dirty_pages() == 1, "written with a period of {former} and an age of {age}");
        SETTINGS.expire_centisecs.store(AT_ONCE, Ordering::Relaxed);
        flusher::set_write_back_period(1);
        let mut looks = 0;
        while cache.dirty_pages() + cache.pages_under_write_back() > 0 && looks < LOOKS {
            sleep_ns(1_000_000);
            looks += 1;
        }
        check!(looks < LOOKS, "nothing was written when the period was no longer {former}");
        check!(world.on_disk(0, 3) == Ok(vec_of(b"old")), "on the disk");
    }
    Ok(())
}

fn clean_pages_go() -> Outcome {
    let world = went(World::new(), "a disk")?;
    let file = went(world.open(OpenFlags::READ_WRITE), "open")?;
    let cache = went(world.cache(), "pages")?;
    check!(read(&file, 0, 1 << 20).is_ok(), "reading");
    check!(write(&file, 0, b"dirty") == Ok(5), "a write");
    check!(cache.resident_pages() >= 256, "pages are kept");
    cache.drop_clean(0, u64::MAX, usize::MAX);
    check!(cache.resident_pages() == 1, "only what is dirty stays");
    flusher::sync_all();
    check!(cache.dirty_pages() == 0, "sync writes it");
    check!(world.on_disk(0, 5) == Ok(vec_of(b"dirty")), "to the disk");
    cache.drop_clean(0, u64::MAX, usize::MAX);
    check!(cache.resident_pages() == 0, "and then it can go");
    check!(read(&file, 0, 5) == Ok(vec_of(b"dirty")), "and come again");
    Ok(())
}

fn device_pages_go() -> Outcome {
    let world = went(World::new(), "a disk")?;
    let file = went(world.open(OpenFlags::READ_WRITE), "open")?;
    let cache = went(world.cache(), "pages")?;
    check!(read(&file, 0, 1 << 20).is_ok(), "reading");
    check!(write(&file, 0, b"dirty") == Ok(5), "a write");
    check!(cache.resident_pages() >= 256, "pages are kept");
    vfs::disk::shrink::drop_all();
    check!(cache.resident_pages() == 1, "only what is dirty stays");
    check!(read(&file, 0, 5) == Ok(vec_of(b"dirty")), "and is what it was");
    Ok(())
}

fn synchronous_is_flushed() -> Outcome {
    let world = went(World::new(), "a disk")?;
    let both = OpenFlags::DATA_SYNC | OpenFlags::FILE_SYNC;
    world.faults.record();
    for (flags, flushes) in
        [(OpenFlags::DIRECT, 0), (OpenFlags::DATA_SYNC, 1), (both, 1), (both | OpenFlags::DIRECT, 1)]
    {
        let file = went(world.open(OpenFlags::READ_WRITE | flags), "open")?;
        for round in 0..3 {
            drop(world.faults.take_events());
            check!(write(&file, round * 512, &[round as u8; 512]) == Ok(512), "a write");
            let events = world.faults.take_events();
            let found = events.iter().filter(|event| **event == DiskEvent::Flush).count();
            check!(events.len() == 1 + flushes, "{flags:?}: {} requests", events.len());
            check!(found == flushes, "{flags:?}: {found} flushes");
            check!(flushes == 0 || events.last() == Some(&DiskEvent::Flush), "the flush comes last");
        }
    }
    Ok(())
}

fn advice_does_not_wait() -> Outcome {
    let world = went(World::new(), "a disk")?;
    let file = went(world.open(OpenFlags::READ_WRITE), "open")?;
    let cache = went(world.cache(), "pages")?;
    check!(read(&file, 0, 2 * PAGE_SIZE).is_ok(), "reading");
    check!(write(&file, 0, &[9; PAGE_SIZE]) == Ok(PAGE_SIZE), "a write");
    world.faults.hold();
    file.operations().advise(&file, 0, 0, Advice::DontNeed);
    let (on_way, resident) = (cache.pages_under_write_back(), cache.resident_pages());
    world.faults.let_go();
    check!(on_way == 1, "{on_way} pages are being written");
    check!(resident == 1, "{resident} pages are there: clean ones go, the dirty one does not");
    went(file.sync(true), "fsync")?;
    file.operations().advise(&file, 0, 0, Advice::DontNeed);
    check!(cache.resident_pages() == 0, "nor does it stay when it was written");
    Ok(())
}

fn all_write_and_sync() -> Outcome {
    const ROUNDS: usize = 40;
    let world = Arc::new(went(World::new(), "a disk")?);
    let file = went(world.open(OpenFlags::READ_WRITE), "open")?;
    let wrong = Arc::new(AtomicU32::new(0));
    let (told, shared) = (wrong.clone(), file.clone());
    on_each_cpu(move || {
        let first = machine::cpu::current().index() * 64;
        for round in 1..=ROUNDS {
            for page in 0..8 {
                let offset = ((first + page * 3) * PAGE_SIZE) as i64 + 10;
                let bytes = [round as u8; 100];
                let done = write(&shared, offset, &bytes) == Ok(100)
                    && read(&shared, offset, 100).is_ok_and(|read| read == bytes)
                    && (page != 5 || shared.sync(true).is_ok());
                told.fetch_add(u32::from(!done), Ordering::Relaxed);
            }
            if round % 8 == 0
                && let Some(device) = DiskFile::device_of(&shared)
                && let Ok(files) = DeviceFiles::of(&device)
            {
                files.cache().drop_clean(0, u64::MAX, usize::MAX);
            }
        }
    })?;
    check!(wrong.load(Ordering::Relaxed) == 0, "what was written was read");
    went(file.sync(false), "fsync")?;
    for cpu in 0..machine::cpu::online().iter().count() {
        let found = went(world.on_disk((cpu * 64 + 21) * PAGE_SIZE + 10, 100), "contents")?;
        check!(found == [ROUNDS as u8; 100], "processor {cpu}'s last round is on the disk");
    }
    Ok(())
}
