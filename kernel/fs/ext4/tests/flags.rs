//! Flags of files and their projects through the file layer: who may set which, what they forbid, and how `debugfs` reads them.
//!
//! Needs Debian's package `e2fsprogs` (`apt-get install e2fsprogs`); `./starling test` installs it.

mod image;
mod world;

use std::sync::Arc;

use image::Image;
use memory::file_cache::{CacheError, Intent};
use vfs::credentials::Credentials;
use vfs::file_flags::{self, ExtendedFlags, FileFlags, FlagChange};
use vfs::flags::{AllocateMode, LookupFlags, OpenFlags, RenameFlags};
use vfs::{AttributeChange, Error, OpenFile, Result};
use world::{Device, ONE_AT_A_TIME, judge, read, write};

const EXTENTS: u32 = 0x8_0000;
const NO_DUMP: u32 = FileFlags::NO_DUMP.bits();
const IMMUTABLE: u32 = FileFlags::IMMUTABLE.bits();
const APPEND_ONLY: u32 = FileFlags::APPEND_ONLY.bits();

fn set(file: &Arc<OpenFile>, flags: u32) -> Result<()> {
    file_flags::change(file.path(), file.inode(), FlagChange::Flags(flags), &Credentials::root())
}

fn set_project(file: &Arc<OpenFile>, project: u32, flags: u32) -> Result<()> {
    let wanted = FlagChange::Extended(ExtendedFlags { flags, project, ..ExtendedFlags::default() });
    file_flags::change(file.path(), file.inode(), wanted, &Credentials::root())
}

fn flags(file: &Arc<OpenFile>) -> u32 {
    file_flags::settings(file.inode()).expect("the file system has flags").flags.bits()
}

#[test]
fn flags_are_on_the_disk_and_forbid_after_a_mount_what_they_forbade_before() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = Image::make(&["-t", "ext4"], 16 << 20, None);
    let device = Device::new(&image.bytes());
    let mut world = device.mount(false).expect("a sound image");
    for name in [&b"/immutable"[..], b"/append"] {
        let file = world.create(name).expect("space");
        assert_eq!(write(&file, 0, b"text"), Ok(4));
        let wanted = if name == b"/append" { APPEND_ONLY } else { IMMUTABLE };
        assert_eq!(set(&file, flags(&file) | wanted), Ok(()));
        assert_eq!(flags(&file), EXTENTS | wanted);
    }
    for mounted in 0..2 {
        let (context, root) = (world.context(), &world.places.root);
        for (name, appends) in [(&b"/immutable"[..], false), (b"/append", true)] {
            let refused = Some(Error::NotPermitted);
            assert_eq!(world.open(name, OpenFlags::READ_WRITE).err(), refused);
            let appending = world.open(name, OpenFlags::WRITE_ONLY | OpenFlags::APPEND);
            assert_eq!(appending.is_ok(), appends);
            if let Ok(appending) = appending {
                assert_eq!(write(&appending, 0, b"+"), Ok(1));
                assert_eq!(appending.truncate(1), Err(Error::NotPermitted));
                assert_eq!(appending.allocate(AllocateMode::KEEP_SIZE, 0, 8192), Ok(()));
                let punch = AllocateMode::KEEP_SIZE | AllocateMode::PUNCH_HOLE;
                assert_eq!(appending.allocate(punch, 0, 4096), Err(Error::NotPermitted));
            }
            assert_eq!(context.unlink(root, name), Err(Error::NotPermitted));
            assert_eq!(context.truncate(root, name, 0), Err(Error::NotPermitted));
            let nothing = LookupFlags::empty();
            assert_eq!(context.make_hard_link(root, name, root, b"/link", nothing), Err(Error::NotPermitted));
            let renamed = context.rename(root, name, root, b"/renamed", RenameFlags::empty());
            assert_eq!(renamed, Err(Error::NotPermitted));
            let place = context.walk(root, name, nothing).expect("it is there");
            let mode = AttributeChange { mode: Some(0o600), ..AttributeChange::default() };
            assert_eq!(context.change_attributes(&place, &mode), Err(Error::NotPermitted));
        }
        if mounted == 0 {
            world.unmount();
            world = device.mount(false).expect("a sound image");
        }
    }
    let file = world.open(b"/append", OpenFlags::empty()).expect("reading is allowed");
    assert_eq!(read(&file, 0, 10), b"text++");
    drop(file);
    world.unmount();
    judge(&image, &device.bytes());
    assert!(image.run("debugfs", &["-R", "stat /immutable"]).contains("Flags: 0x80010"));
    assert!(image.run("debugfs", &["-R", "stat /append"]).contains("Flags: 0x80020"));
}

#[test]
fn an_immutable_file_does_not_change_through_what_was_opened_before() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = Image::make(&["-t", "ext4"], 16 << 20, None);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("a sound image");
    let file = world.create(b"/file").expect("space");
    assert_eq!(write(&file, 0, &[1; 10_000]), Ok(10_000));
    assert_eq!(set(&file, EXTENTS | IMMUTABLE), Ok(()));
    assert_eq!(write(&file, 0, b"2"), Err(Error::NotPermitted));
    assert_eq!(file.truncate(5), Err(Error::NotPermitted));
    assert_eq!(file.allocate(AllocateMode::empty(), 0, 20_000), Err(Error::NotPermitted));
    // What a store through a mapping asks for, once the page was written back; and a write that had begun before.
    let cache = file.inode().operations().cache().expect("a regular file").clone();
    assert_eq!(cache.frame(0, Intent::Write).err(), Some(CacheError::NotPermitted));
    assert_eq!(set(&file, EXTENTS | IMMUTABLE | NO_DUMP), Err(Error::NotPermitted), "only one step back");
    assert_eq!(set(&file, EXTENTS | NO_DUMP), Ok(()));
    assert_eq!(write(&file, 0, b"2"), Ok(1));
    assert_eq!(file.status().size, 10_000);
    drop((file, cache));
    world.unmount();
    judge(&image, &device.bytes());
}

#[test]
fn what_a_file_cannot_have_is_refused_and_what_is_only_shown_is_left() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = Image::make(&["-t", "ext4"], 16 << 20, None);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("a sound image");
    let root = &world.places.root;
    let file = world.create(b"/file").expect("space");
    world.context().make_directory(root, b"/d", 0o755).expect("space");
    let directory = world.open(b"/d", OpenFlags::DIRECTORY).expect("it is there");
    let index = 0x1000;
    for (file, wanted, outcome) in [
        (&file, 0x2000, Err(Error::NotSupported)),
        (&file, EXTENTS | FileFlags::DIRECTORY_SYNCHRONOUS.bits(), Err(Error::NotSupported)),
        (&directory, EXTENTS | FileFlags::DIRECTORY_SYNCHRONOUS.bits() | NO_DUMP, Ok(())),
        (&file, EXTENTS | index, Ok(())),
        (&file, 0, Err(Error::NotSupported)),
        (&file, EXTENTS | 0x4000, Err(Error::NotSupported)),
    ] {
        assert_eq!(set(file, wanted), outcome, "{wanted:#x}");
    }
    assert_eq!(flags(&file), EXTENTS);
    assert_eq!(set_project(&file, 7, 0), Err(Error::NotSupported), "a file system without projects");
    // A new file has of its directory's flags what a file may have.
    let inner = world.create(b"/d/file").expect("space");
    assert_eq!(flags(&inner), EXTENTS | NO_DUMP);
    let ordinary = Credentials::ordinary(1000, 1000);
    let change =
        |wanted| file_flags::change(inner.path(), inner.inode(), FlagChange::Flags(wanted), &ordinary);
    assert_eq!(change(EXTENTS), Err(Error::NotPermitted));
    inner.inode().set_owner(1000, 1000);
    assert_eq!(change(EXTENTS | APPEND_ONLY), Err(Error::NotPermitted));
    assert_eq!(change(EXTENTS), Ok(()));
    // The name in a synchronous directory is on the disk already.
    let crashed = Image::make(&["-t", "ext4"], 16 << 20, None);
    crashed.set_bytes(&device.bytes());
    let system = ext4::FileSystem::mount(&crashed.volume()).expect("a sound image");
    let found = system.lookup(&system.root().expect("a root"), b"d").expect("made before");
    assert!(system.lookup(&found, b"file").is_ok());
    drop((file, directory, inner));
    world.unmount();
    judge(&image, &device.bytes());
}

#[test]
fn directories_give_their_project_on_and_take_no_name_of_another_one() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = Image::make(&["-t", "ext4", "-I", "256", "-O", "project"], 16 << 20, None);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("a sound image");
    let (context, root) = (world.context(), &world.places.root);
    const INHERIT: u32 = 0x200;
    for (name, project) in [(&b"/seven"[..], 7), (b"/eight", 8)] {
        context.make_directory(root, name, 0o755).expect("space");
        let directory = world.open(name, OpenFlags::DIRECTORY).expect("it is there");
        assert_eq!(set_project(&directory, project, INHERIT), Ok(()));
        assert_eq!(set_project(&directory, u32::MAX, INHERIT), Err(Error::Invalid));
    }
    let file = world.create(b"/seven/file").expect("space");
    assert_eq!(file_flags::settings(file.inode()).map(|settings| settings.project), Ok(7));
    let nothing = LookupFlags::empty();
    let linked = context.make_hard_link(root, b"/seven/file", root, b"/eight/file", nothing);
    assert_eq!(linked, Err(Error::CrossDevice));
    let renamed = context.rename(root, b"/seven/file", root, b"/eight/file", RenameFlags::empty());
    assert_eq!(renamed, Err(Error::CrossDevice));
    assert_eq!(context.rename(root, b"/seven/file", root, b"/file", RenameFlags::empty()), Ok(()));
    assert_eq!(set_project(&file, 8, 0), Ok(()));
    assert_eq!(context.rename(root, b"/file", root, b"/eight/file", RenameFlags::empty()), Ok(()));
    drop(file);
    world.unmount();
    judge(&image, &device.bytes());
    assert!(image.run("debugfs", &["-R", "stat /eight/file"]).contains("Project:     8"));
}
