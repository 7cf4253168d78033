//! Who may do what.

use vfs::Error;
use vfs::attributes::{AttributeChange, FileKind, TimeChange, Timestamp};
use vfs::credentials::{Capabilities, Credentials};
use vfs::flags::{Access, LookupFlags, OpenFlags};

use super::World;

fn chmod(world: &World, path: &str, mode: u32) -> vfs::Result<()> {
    let change = AttributeChange { mode: Some(mode), ..AttributeChange::default() };
    world.context().change_attributes(&world.walk(path).unwrap(), &change)
}

fn chown(world: &World, path: &str, user: Option<u32>, group: Option<u32>) -> vfs::Result<()> {
    let change = AttributeChange { user, group, ..AttributeChange::default() };
    world.context().change_attributes(&world.walk(path).unwrap(), &change)
}

#[test]
fn mode_bits_count_for_the_first_class_that_matches() {
    let mut world = World::new();
    world.write_file("/file", b"x").unwrap();
    chmod(&world, "/file", 0o047).unwrap();
    chown(&world, "/file", Some(10), Some(20)).unwrap();
    let may =
        |world: &World, access| world.context().access(world.cwd(), b"/file", access, LookupFlags::FOLLOW);
    world.credentials = Credentials::ordinary(10, 20);
    assert_eq!(may(&world, Access::READ).unwrap_err(), Error::AccessDenied);
    world.credentials = Credentials::ordinary(11, 20);
    may(&world, Access::READ).unwrap();
    assert_eq!(may(&world, Access::WRITE).unwrap_err(), Error::AccessDenied);
    world.credentials = Credentials::ordinary(11, 21);
    may(&world, Access::READ | Access::WRITE | Access::EXECUTE).unwrap();
}

#[test]
fn capabilities_override_but_do_not_make_executable() {
    let mut world = World::new();
    world.write_file("/file", b"x").unwrap();
    chmod(&world, "/file", 0).unwrap();
    let may =
        |world: &World, access| world.context().access(world.cwd(), b"/file", access, LookupFlags::FOLLOW);
    may(&world, Access::READ | Access::WRITE).unwrap();
    assert_eq!(may(&world, Access::EXECUTE).unwrap_err(), Error::AccessDenied);
    world.credentials = Credentials::ordinary(5, 5);
    world.credentials.capabilities = Capabilities::DAC_READ_SEARCH;
    may(&world, Access::READ).unwrap();
    assert_eq!(may(&world, Access::WRITE).unwrap_err(), Error::AccessDenied);
}

#[test]
fn directories_on_the_way_must_be_searchable() {
    let mut world = World::new();
    world.mkdir("/closed").unwrap();
    world.write_file("/closed/file", b"x").unwrap();
    assert!(world.stat("/closed/file").is_ok());
    chmod(&world, "/closed", 0o700).unwrap();
    world.become_user(5);
    assert_eq!(world.stat("/closed/file").unwrap_err(), Error::AccessDenied);
    assert_eq!(world.stat("/closed/none").unwrap_err(), Error::AccessDenied);
    assert!(world.stat("/closed").is_ok());
}

#[test]
fn in_a_sticky_directory_only_owners_remove() {
    let mut world = World::new();
    world.mkdir("/tmp").unwrap();
    chmod(&world, "/tmp", 0o1777).unwrap();
    world.become_user(5);
    world.write_file("/tmp/mine", b"").unwrap();
    world.become_user(6);
    assert_eq!(world.unlink("/tmp/mine").unwrap_err(), Error::NotPermitted);
    assert_eq!(world.rename("/tmp/mine", "/tmp/yours").unwrap_err(), Error::NotPermitted);
    world.become_user(5);
    world.unlink("/tmp/mine").unwrap();
}

#[test]
fn set_group_id_directories_hand_their_group_down() {
    let mut world = World::new();
    world.mkdir("/shared").unwrap();
    chown(&world, "/shared", None, Some(42)).unwrap();
    chmod(&world, "/shared", 0o2777).unwrap();
    world.become_user(5);
    world.write_file("/shared/file", b"").unwrap();
    world.mkdir("/shared/dir").unwrap();
    assert_eq!(world.stat("/shared/file").unwrap().group, 42);
    let directory = world.stat("/shared/dir").unwrap();
    assert_eq!((directory.group, directory.mode & 0o7000), (42, 0o2000));
}

#[test]
fn the_mask_applies_to_new_files() {
    let world = World::new();
    world.write_file("/file", b"").unwrap();
    world.mkdir("/dir").unwrap();
    assert_eq!(world.stat("/file").unwrap().mode, 0o100644);
    assert_eq!(world.stat("/dir").unwrap().mode, 0o040755);
}

#[test]
fn owners_and_modes_change_only_as_allowed() {
    let mut world = World::new();
    world.write_file("/file", b"").unwrap();
    chmod(&world, "/file", 0o6755).unwrap();
    chown(&world, "/file", Some(5), Some(5)).unwrap();
    assert_eq!(world.stat("/file").unwrap().mode & 0o7777, 0o755, "a new owner loses set-id bits");
    world.become_user(5);
    chmod(&world, "/file", 0o4700).unwrap();
    assert_eq!(chown(&world, "/file", Some(6), None).unwrap_err(), Error::NotPermitted);
    assert_eq!(chown(&world, "/file", None, Some(7)).unwrap_err(), Error::NotPermitted);
    world.write_file("/file", b"changed").unwrap_or(());
    world.become_user(6);
    assert_eq!(chmod(&world, "/file", 0o777).unwrap_err(), Error::NotPermitted);
}

#[test]
fn writing_takes_set_id_bits_away() {
    let world = World::new();
    world.write_file("/file", b"").unwrap();
    chmod(&world, "/file", 0o6777).unwrap();
    world.write_file("/file", b"x").unwrap();
    assert_eq!(world.stat("/file").unwrap().mode & 0o7777, 0o777);
}

#[test]
fn times_are_set_by_owners_and_touched_by_writers() {
    let mut world = World::new();
    world.write_file("/file", b"").unwrap();
    chmod(&world, "/file", 0o666).unwrap();
    let then = Timestamp { seconds: 1_000_000, nanoseconds: 7 };
    let to = AttributeChange {
        accessed: Some(TimeChange::To(then)),
        modified: Some(TimeChange::To(then)),
        ..AttributeChange::default()
    };
    let now = AttributeChange {
        accessed: Some(TimeChange::Now),
        modified: Some(TimeChange::Now),
        ..AttributeChange::default()
    };
    let place = world.walk("/file").unwrap();
    world.context().change_attributes(&place, &to).unwrap();
    assert_eq!(world.stat("/file").unwrap().modified, then);
    world.become_user(5);
    assert_eq!(world.context().change_attributes(&place, &to).unwrap_err(), Error::NotPermitted);
    world.context().change_attributes(&place, &now).unwrap();
    assert!(world.stat("/file").unwrap().modified > then);
    world.become_root();
    chmod(&world, "/file", 0o644).unwrap();
    world.become_user(5);
    assert_eq!(world.context().change_attributes(&place, &now).unwrap_err(), Error::AccessDenied);
}

#[test]
fn devices_need_a_capability() {
    let mut world = World::new();
    chmod(&world, "/", 0o777).unwrap();
    world.become_user(5);
    let device = vfs::attributes::DeviceNumber::new(1, 3);
    let made = world.context().make_node(world.cwd(), b"/null", FileKind::CharacterDevice, 0o666, device);
    assert_eq!(made.unwrap_err(), Error::NotPermitted);
    world.context().make_node(world.cwd(), b"/fifo", FileKind::Fifo, 0o666, device).unwrap();
}

#[test]
fn not_updating_access_times_is_for_owners() {
    let mut world = World::new();
    world.write_file("/file", b"").unwrap();
    chmod(&world, "/file", 0o666).unwrap();
    world.become_user(5);
    assert_eq!(world.open("/file", OpenFlags::NO_ACCESS_TIME).err(), Some(Error::NotPermitted));
}

#[test]
fn a_change_to_no_owner_still_takes_set_id_bits_away() {
    let world = World::new();
    world.write_file("/file", b"x").unwrap();
    chmod(&world, "/file", 0o6755).unwrap();
    chown(&world, "/file", None, None).unwrap();
    assert_eq!(world.stat("/file").unwrap().mode & 0o7777, 0o755);
}
