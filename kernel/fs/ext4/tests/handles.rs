//! Files by their handles: where they are is known again, whatever was renamed meanwhile.
//!
//! Needs Debian's package `e2fsprogs` (`apt-get install e2fsprogs`); `./starling test` installs it.

mod image;
mod world;

use image::Image;
use vfs::flags::{LookupFlags, OpenFlags, RenameFlags};
use world::{Device, ONE_AT_A_TIME, World, judge};

/// The path of a file that is opened by the handle of another one.
fn path_by_handle(world: &World, file: &vfs::file::OpenFile) -> String {
    let inode = file.path().and_then(|path| path.inode().ok()).expect("it has a place");
    let handle = vfs::handle::encode(inode).expect("there is memory");
    let root = &world.places.root;
    let opened =
        world.context().open_by_handle(&root.mount, &handle, OpenFlags::empty()).expect("it is there");
    let mut path = Vec::new();
    opened.path().expect("it has a place").write_to(root, true, &mut path).expect("there is memory");
    String::from_utf8(path).expect("an ASCII name")
}

#[test]
fn a_file_that_is_opened_by_its_handle_has_the_path_that_it_was_found_at() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = Image::make(&["-t", "ext4"], 16 << 20, None);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("a sound image");
    let (context, root) = (world.context(), &world.places.root);
    for name in [&b"/a"[..], b"/a/b", b"/c"] {
        context.make_directory(root, name, 0o755).expect("space");
    }
    let file = world.create(b"/a/b/file").expect("space");
    assert_eq!(path_by_handle(&world, &file), "/a/b/file");
    context.rename(root, b"/a/b", root, b"/c/d", RenameFlags::empty()).expect("it is there");
    assert_eq!(path_by_handle(&world, &file), "/c/d/file");
    context.rename(root, b"/c/d/file", root, b"/a/moved", RenameFlags::empty()).expect("it is there");
    assert_eq!(path_by_handle(&world, &file), "/a/moved");
    let other = world.create(b"/c/other").expect("space");
    context.rename(root, b"/a/moved", root, b"/c/other", RenameFlags::EXCHANGE).expect("both are there");
    assert_eq!(path_by_handle(&world, &file), "/c/other");
    assert_eq!(path_by_handle(&world, &other), "/a/moved");
    // Two names: the later one, and after its removal none that is known.
    context.make_hard_link(root, b"/c/other", root, b"/a/second", LookupFlags::empty()).expect("space");
    assert_eq!(path_by_handle(&world, &file), "/a/second");
    context.unlink(root, b"/a/second").expect("it is there");
    assert_eq!(path_by_handle(&world, &file), "/");
    // Nor where the directory is gone, whose number may be another file's by now.
    context.make_hard_link(root, b"/c/other", root, b"/c/d/last", LookupFlags::empty()).expect("space");
    context.unlink(root, b"/c/d/last").expect("it is there");
    context.remove_directory(root, b"/c/d").expect("it is empty");
    assert_eq!(path_by_handle(&world, &file), "/");
    drop((file, other));
    world.unmount();
    judge(&image, &device.bytes());
    // A new mount knows only what was found in it.
    let world = device.mount(true).expect("a sound image");
    let file = world.open(b"/c/other", OpenFlags::empty()).expect("it was made");
    assert_eq!(path_by_handle(&world, &file), "/c/other");
    drop(file);
    world.unmount();
}
