//! The end of a mount while programs are at it still: files without names that are open, and deletions beside it.

mod image;
mod world;

use image::Image;
use vfs::flags::OpenFlags;
use world::{Device, ONE_AT_A_TIME, judge, outcome_of, read, write};

static CONTENTS: [u8; 100_000] = [0x5a; 100_000];

/// Where the superblock counts the errors that were found.
const ERRORS_AT: usize = 1024 + 0x194;

fn image() -> Image {
    Image::make(&["-t", "ext4", "-b", "1024"], 8 << 20, None)
}

fn errors_found(device: &Device) -> u32 {
    let bytes = device.bytes();
    u32::from_le_bytes(bytes[ERRORS_AT..][..4].try_into().expect("four bytes"))
}

#[test]
fn what_is_open_when_the_machine_ends_is_there_until_then() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = image();
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("it is sound");
    let file = world.create(b"/nameless").expect("there is space");
    assert_eq!(write(&file, 0, &CONTENTS), Ok(CONTENTS.len()));
    world.context().unlink(&world.places.root, b"/nameless").expect("it is there");
    world.superblock.operations().finish();
    assert_eq!(write(&file, 0, b"late"), Err(vfs::Error::ReadOnly));
    assert_eq!(read(&file, 0, CONTENTS.len()), CONTENTS);
    drop(file);
    world.unmount();
    assert_eq!(errors_found(&device), 0);
    // The next mount deletes it.
    device.mount(false).expect("it is sound").unmount();
    judge(&image, &device.bytes());
}

#[test]
fn nothing_is_deleted_twice_at_the_end() {
    const ROUNDS: usize = 40;
    const FILES: usize = 7;
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = image();
    let device = Device::new(&image.bytes());
    for round in 0..ROUNDS {
        let world = device.mount(false).expect("it is sound");
        for number in 0..FILES {
            let path = format!("/{number}");
            let flags = OpenFlags::READ_WRITE | OpenFlags::CREATE;
            let file = world.open(path.as_bytes(), flags).expect("there is space");
            write(&file, 0, &CONTENTS[..3000]).expect("there is space");
            world.context().unlink(&world.places.root, path.as_bytes()).expect("it is there");
        }
        sync::rcu::barrier_expedited();
        // Fewer than removals delete on their way wait now. Who asks how much room there is deletes them; so does the end.
        std::thread::scope(|scope| {
            let asker = scope.spawn(|| world.superblock.operations().status());
            world.superblock.operations().finish();
            outcome_of(asker);
        });
        world.unmount();
        assert_eq!(errors_found(&device), 0, "round {round}");
    }
    judge(&image, &device.bytes());
}
