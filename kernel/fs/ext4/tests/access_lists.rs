//! Access lists through the file layer: what the disk has of them is what calls see, before and after a mount, and `e2fsck` and `debugfs` find
//! it sound.
//!
//! Needs Debian's package `e2fsprogs` (`apt-get install e2fsprogs`); `./starling test` installs it.

mod image;
mod world;

use image::Image;
use vfs::credentials::Credentials;
use vfs::flags::{LookupFlags, OpenFlags};
use vfs::inode::SetAttribute;
use vfs::permission::check_access;
use vfs::tree::{change_inode, get_attribute, list_attributes, remove_attribute, set_attribute};
use vfs::{Access, AttributeChange, Error, Result};
use world::{Device, ONE_AT_A_TIME, World, judge};

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Owner, two users, the group, a group, mask, others.
fn value(mask: u16) -> Vec<u8> {
    let none = u32::MAX;
    let entries: [(u16, u16, u32); 7] =
        [(1, 6, none), (2, 7, 1000), (2, 0, 1001), (4, 4, none), (8, 6, 50), (16, mask, none), (32, 4, none)];
    entries.iter().fold(2u32.to_le_bytes().to_vec(), |mut value, (who, access, id)| {
        value.extend(who.to_le_bytes());
        value.extend(access.to_le_bytes());
        value.extend(id.to_le_bytes());
        value
    })
}

impl World {
    fn set(&self, path: &[u8], name: &[u8], value: &[u8]) -> Result<()> {
        let place = self.context().walk(&self.places.root, path, LookupFlags::empty())?;
        set_attribute(place.inode()?, name, value, SetAttribute::Any, &self.credentials)
    }

    fn get(&self, path: &[u8], name: &[u8]) -> Result<Vec<u8>> {
        let place = self.context().walk(&self.places.root, path, LookupFlags::empty())?;
        let mut bytes = vec![0; 4096];
        let length = get_attribute(place.inode()?, name, &mut bytes, &self.credentials)?;
        bytes.truncate(length);
        Ok(bytes)
    }

    fn names(&self, path: &[u8]) -> Vec<u8> {
        let place = self.context().walk(&self.places.root, path, LookupFlags::empty()).expect("it is there");
        list_attributes(place.inode().expect("it is there"), &self.credentials).expect("they can be read")
    }

    fn mode(&self, path: &[u8]) -> u32 {
        let place = self.context().walk(&self.places.root, path, LookupFlags::empty()).expect("it is there");
        place.inode().expect("it is there").mode() & 0o7777
    }

    fn may(&self, path: &[u8], user: u32, group: u32, access: Access) -> bool {
        let place = self.context().walk(&self.places.root, path, LookupFlags::empty()).expect("it is there");
        let who = Credentials::ordinary(user, group);
        check_access(place.inode().expect("it is there"), access, &who).is_ok()
    }
}

/// What is kept must be the same whether the inode has room for it or a block is needed, and with an inode that has none at all.
const OPTIONS: [&[&str]; 3] = [&["-t", "ext4"], &["-t", "ext4", "-I", "128"], &["-t", "ext2", "-b", "1024"]];

#[test]
fn a_list_counts_and_stays_over_mounts() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for options in OPTIONS {
        let image = Image::make(options, 16 << 20, None);
        let device = Device::new(&image.bytes());
        let world = device.mount(false).expect("a sound image");
        drop(world.create(b"/f").expect("space"));
        assert_eq!(world.get(b"/f", ACCESS), Err(Error::NoData));
        world.set(b"/f", ACCESS, &value(6)).expect("space");
        assert_eq!(world.set(b"/f", DEFAULT, &value(6)), Err(Error::AccessDenied));
        world.context().make_directory(&world.places.root, b"/d", 0o755).expect("space");
        world.set(b"/d", DEFAULT, &value(7)).expect("space");
        drop(world.create(b"/d/below").expect("space"));
        world.context().make_directory(&world.places.root, b"/d/e", 0o777).expect("space");
        let check = |world: &World| {
            assert_eq!(world.get(b"/f", ACCESS), Ok(value(6)), "{options:?}");
            assert_eq!(world.names(b"/f"), [ACCESS, b"\0"].concat());
            assert_eq!(world.mode(b"/f"), 0o664);
            assert!(world.may(b"/f", 1000, 1, Access::READ | Access::WRITE));
            assert!(!world.may(b"/f", 1001, 0, Access::READ), "one may have less than all others");
            assert!(world.may(b"/f", 1, 50, Access::WRITE));
            assert!(!world.may(b"/f", 1, 1, Access::WRITE));
            assert_eq!(world.get(b"/d", DEFAULT), Ok(value(7)));
            assert_eq!(world.get(b"/d/e", DEFAULT), Ok(value(7)));
            // Made with mode 0640, 0777 below.
            assert_eq!(world.mode(b"/d/below"), 0o640);
            assert_eq!(world.get(b"/d/below", DEFAULT), Err(Error::NoData));
            assert!(world.may(b"/d/below", 1000, 1, Access::READ));
            assert!(!world.may(b"/d/below", 1000, 1, Access::WRITE));
            assert_eq!(world.mode(b"/d/e"), 0o674);
        };
        check(&world);
        world.unmount();
        judge(&image, &device.bytes());
        let (_, said) = image.run_to_end("debugfs", &["-R", "ea_list /f"]);
        assert!(said.contains("system.posix_acl_access"), "{options:?}: {said}");
        let world = device.mount(false).expect("a sound image");
        check(&world);
        let f = world.context().walk(&world.places.root, b"/f", LookupFlags::empty()).expect("it is there");
        let inode = f.inode().expect("it is there");
        let change = AttributeChange { mode: Some(0o640), ..AttributeChange::default() };
        change_inode(inode, &change, &world.credentials).expect("space");
        let mut masked = value(4);
        // The others have nothing any more.
        let others = masked.len() - 6;
        masked[others] = 0;
        assert_eq!(world.get(b"/f", ACCESS), Ok(masked.clone()));
        assert!(!world.may(b"/f", 1000, 1, Access::WRITE));
        remove_attribute(inode, DEFAULT, &world.credentials).expect("there is none, and that is no error");
        drop(f);
        world.unmount();
        judge(&image, &device.bytes());
        let world = device.mount(false).expect("a sound image");
        assert_eq!(world.get(b"/f", ACCESS), Ok(masked));
        assert_eq!(world.mode(b"/f"), 0o640);
        for (path, name) in [(&b"/f"[..], ACCESS), (b"/d", DEFAULT), (b"/d/e", DEFAULT), (b"/d/e", ACCESS)] {
            let place =
                world.context().walk(&world.places.root, path, LookupFlags::empty()).expect("it is there");
            remove_attribute(place.inode().expect("it is there"), name, &world.credentials)
                .expect("it is there");
        }
        assert_eq!(world.names(b"/f"), b"");
        assert_eq!(world.mode(b"/f"), 0o640, "the mask becomes the group's");
        drop(world.open(b"/d/plain", OpenFlags::READ_WRITE | OpenFlags::CREATE).expect("space"));
        assert_eq!(world.names(b"/d/plain"), b"");
        world.unmount();
        judge(&image, &device.bytes());
    }
}

#[test]
fn without_the_option_lists_do_not_count() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let image = Image::make(&["-t", "ext4"], 16 << 20, None);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("a sound image");
    drop(world.create(b"/f").expect("space"));
    world.set(b"/f", ACCESS, &value(6)).expect("space");
    world.unmount();
    let world = device.mount_with(b"noacl").expect("a sound image");
    assert_eq!(world.get(b"/f", ACCESS), Err(Error::NotSupported));
    assert_eq!(world.set(b"/f", ACCESS, &value(7)), Err(Error::NotSupported));
    assert_eq!(world.names(b"/f"), b"");
    assert!(world.may(b"/f", 1001, 0, Access::READ), "the mode alone counts");
    let remount = |options: &[u8]| {
        world.places.namespace.remount(&world.places.root, vfs::MountFlags::empty(), Some(options))
    };
    remount(b"acl").expect("it is known");
    assert!(!world.may(b"/f", 1001, 0, Access::READ));
    assert_eq!(world.get(b"/f", ACCESS), Ok(value(6)));
    assert_eq!(remount(b"acls"), Err(Error::Invalid));
    world.unmount();
    judge(&image, &device.bytes());
}

#[test]
fn who_may_use_a_file_whose_list_is_damaged_is_not_known() {
    let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // Without checksums, so that the damage is in the list alone.
    let image = Image::make(&["-t", "ext4", "-O", "^metadata_csum"], 16 << 20, None);
    let device = Device::new(&image.bytes());
    let world = device.mount(false).expect("a sound image");
    drop(world.create(b"/f").expect("space"));
    world.set(b"/f", ACCESS, &value(6)).expect("space");
    world.unmount();
    let mut bytes = device.bytes();
    let whole = [1u32.to_le_bytes(), [1, 0, 6, 0], [2, 0, 7, 0], 1000u32.to_le_bytes()].concat();
    let places: Vec<usize> =
        (0..bytes.len() - whole.len()).filter(|&at| bytes[at..].starts_with(&whole)).collect();
    assert!(!places.is_empty(), "the list is somewhere");
    for at in places {
        bytes[at + 4] = 9;
    }
    drop(device);
    let device = Device::new(&bytes);
    let world = device.mount(false).expect("the rest is sound");
    assert!(!world.may(b"/f", 1, 1, Access::READ));
    assert!(world.may(b"/f", 0, 0, Access::READ), "it is the owner's");
    assert_eq!(world.get(b"/f", ACCESS), Err(Error::Io));
    world.set(b"/f", ACCESS, &value(6)).expect("a new list replaces it");
    assert!(world.may(b"/f", 1000, 1, Access::READ));
    world.unmount();
}
