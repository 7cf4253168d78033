//! Space that is there again.
//!
//! Needs Debian's package `e2fsprogs` (`apt-get install e2fsprogs`); `./starling test` installs it.

mod image;
mod world;

use image::Image;
use vfs::Error;
use world::{Device, ONE_AT_A_TIME, World, judge, write};

const PIECE: usize = 64 << 10;

/// Fills the disk with a file; returns how many pieces there was space for.
fn fill(world: &World) -> i64 {
    let file = world.create(b"/full").expect("there is space");
    let is_whole = |at: i64| match write(&file, at * PIECE as i64, &[7; PIECE]) {
        Ok(count) => count == PIECE,
        Err(error) => {
            assert_eq!(error, Error::NoSpace);
            false
        }
    };
    let whole = (0..).find(|at| !is_whole(*at)).expect("the disk is full some time");
    file.sync(false).expect("what was taken has its place");
    whole
}

#[test]
fn a_file_that_was_removed_has_no_space_any_more() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = Image::make(&["-t", "ext4", "-b", "1024", "-m", "0"], 8 << 20, None);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("it is sound");
    let whole = fill(&world);
    // The directory's former entries, which readers may still look at, keep the file for a grace period.
    world.context().unlink(&world.places.root, b"/full").expect("it is there");
    let file = world.create(b"/again").expect("there is space");
    for at in 0..whole {
        assert_eq!(write(&file, at * PIECE as i64, &[8; PIECE]), Ok(PIECE), "piece {at}");
    }
    file.sync(false).expect("there is space");
    drop(file);
    world.unmount();
    judge(&image, &device.bytes());
}

#[test]
fn one_file_that_has_gone_is_not_all_the_space_there_is() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = Image::make(&["-t", "ext4", "-b", "1024", "-m", "0"], 8 << 20, None);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("it is sound");
    let (context, root) = (world.context(), &world.places.root);
    drop(world.create(b"/empty").expect("there is space"));
    fill(&world);
    let make = |number: u32| context.make_directory(root, format!("/{number}").as_bytes(), 0o755);
    let refused = (0..).find_map(|number| make(number).err()).expect("nothing is left some time");
    assert_eq!(refused, Error::NoSpace);
    context.unlink(root, b"/empty").expect("it is there");
    sync::rcu::barrier_expedited();
    // The one has gone and gives no space; the other one, which gives it all, goes after a grace period.
    context.unlink(root, b"/full").expect("it is there");
    context.make_directory(root, b"/new", 0o755).expect("there is space");
    world.unmount();
    judge(&image, &device.bytes());
}
