//! Blocks that are kept for the superuser: who takes them, for what.
//!
//! Needs Debian's package `e2fsprogs` (`apt-get install e2fsprogs`); `./starling test` installs it.

mod image;
mod world;

use std::sync::{Mutex, Once};

use image::Image;
use vfs::Error;
use vfs::credentials::{Capabilities, Credentials, register_caller};
use vfs::flags::{LookupFlags, RenameFlags};
use vfs::inode::SetAttribute;
use vfs::tree::set_attribute;
use world::{Device, ONE_AT_A_TIME, World, judge, write};

/// Who the program is that calls.
static CALLER: Mutex<Credentials> = Mutex::new(Credentials::root());

fn call_as(user: u32, group: u32, capabilities: Capabilities) {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| register_caller(|look| look(&CALLER.lock().expect("nobody panics with it"))));
    *CALLER.lock().expect("nobody panics with it") =
        Credentials { capabilities, ..Credentials::ordinary(user, group) };
}

/// Names that fill blocks of a directory.
fn name(directory: &str, index: u32) -> Vec<u8> {
    format!("/{directory}/{}{index:03}", "n".repeat(200)).into_bytes()
}

/// What `tune2fs` changes, options of the mount, who calls, and whether they may have what is kept.
type Case = (&'static [&'static str], &'static [u8], (u32, u32, Capabilities), bool);

/// Takes all blocks that ordinary users may have.
fn fill(world: &World) {
    call_as(9, 9, Capabilities::empty());
    let file = world.create(b"/filling").expect("there is space");
    for offset in 0.. {
        match write(&file, offset * 1024, &[7; 1024]) {
            Ok(_) => {}
            Err(error) => {
                assert_eq!(error, Error::NoSpace);
                break;
            }
        }
    }
    file.sync(false).expect("it has its space");
    // What was put aside for its map. The last one may have needed two blocks, where one is left: each attribute takes one.
    let (context, root) = (world.context(), &world.places.root);
    let path = |index: u32| format!("/directory{index}").into_bytes();
    let made = |index: u32| context.make_directory(root, &path(index), 0o777);
    assert_eq!((0..).map(made).find_map(Result::err), Some(Error::NoSpace));
    let described = |index: u32| {
        let place = context.walk(root, &path(index), LookupFlags::empty())?;
        let value = [index as u8; 700];
        set_attribute(place.inode()?, b"user.filling", &value, SetAttribute::Any, &world.credentials)
    };
    assert_eq!((0..).map(described).find_map(Result::err), Some(Error::NoSpace));
    assert_eq!(world.superblock.status().blocks_available, 0);
}

/// What the caller's links, renames and attributes come to: all of them, or none.
fn grows(world: &World, directory: &str) -> Result<(), Error> {
    let (context, root) = (world.context(), &world.places.root);
    let linked = (0..20).try_for_each(|index| {
        context.make_hard_link(root, b"/file", root, &name(directory, index), LookupFlags::empty())
    });
    let moved = (20..40).try_for_each(|index| {
        let old = format!("/many/{index}").into_bytes();
        let new = name(directory, index);
        context.rename(root, &old, root, &new, RenameFlags::empty())?;
        context.rename(root, &new, root, &old, RenameFlags::empty())
    });
    let place = context.walk(root, b"/file", LookupFlags::empty())?;
    let inode = place.inode()?;
    let attribute = set_attribute(inode, b"user.great", &[5; 700], SetAttribute::Any, &world.credentials);
    assert_eq!(linked, attribute, "an attribute is as much as a link");
    assert!(linked.is_err() || moved.is_ok(), "a rename is no more than links");
    linked
}

#[test]
fn links_renames_and_attributes_leave_what_is_kept_for_the_superuser() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let root = Capabilities::all();
    let none = Capabilities::empty();
    let cases: [Case; 8] = [
        (&[], b"", (1, 1, none), false),
        (&[], b"", (0, 0, none), true),
        (&[], b"", (1, 1, root), true),
        (&[], b"resuid=1", (1, 1, none), true),
        (&[], b"resuid=2,resgid=0", (1, 0, none), false),
        (&[], b"resgid=5", (1, 5, none), true),
        (&["-u", "7"], b"", (7, 1, none), true),
        (&[], b"resuid=5", (0, 0, none), false),
    ];
    for (more, options, (user, group, capabilities), may) in cases {
        let image = Image::make(&["-t", "ext4", "-b", "1024", "-I", "128", "-m", "20"], 8 << 20, None);
        if !more.is_empty() {
            image.run("tune2fs", more);
        }
        let device = Device::new(&image.bytes());
        let world = device.mount_with(options).expect("a sound image");
        call_as(0, 0, root);
        let (context, top) = (world.context(), &world.places.root);
        drop(world.create(b"/file").expect("there is space"));
        for directory in [&b"/many"[..], b"/grown"] {
            context.make_directory(top, directory, 0o777).expect("there is space");
        }
        for index in 20..40 {
            drop(world.create(format!("/many/{index}").as_bytes()).expect("there is space"));
        }
        fill(&world);
        call_as(user, group, capabilities);
        let outcome = grows(&world, "grown");
        let wanted = if may { Ok(()) } else { Err(Error::NoSpace) };
        assert_eq!(outcome, wanted, "{}: {user}:{group}", String::from_utf8_lossy(options));
        call_as(0, 0, root);
        world.unmount();
        judge(&image, &device.bytes());
    }
}
