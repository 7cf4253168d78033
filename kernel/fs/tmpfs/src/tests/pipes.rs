//! Pipes, FIFOs and moving bytes.

use alloc::sync::Arc;

use vfs::Error;
use vfs::attributes::{DeviceNumber, FileKind};
use vfs::credentials::Credentials;
use vfs::file::OpenFile;
use vfs::flags::OpenFlags;
use vfs::pipe::{copy_file_range, create_pipe, sendfile, splice, tee};
use vfs::poll::PollEvents;

use super::{World, read_some, write};

fn pipe() -> (Arc<OpenFile>, Arc<OpenFile>) {
    sched::current();
    create_pipe(OpenFlags::NON_BLOCK, &Credentials::root()).unwrap()
}

#[test]
fn bytes_come_out_as_they_went_in() {
    let (reader, writer) = pipe();
    assert_eq!(read_some(&reader, 10).unwrap_err(), Error::WouldBlock);
    write(&writer, b"hello ").unwrap();
    write(&writer, b"world").unwrap();
    assert_eq!(read_some(&reader, 3).unwrap(), b"hel");
    assert_eq!(read_some(&reader, 100).unwrap(), b"lo world");
    drop(writer);
    assert_eq!(read_some(&reader, 10).unwrap(), b"");
}

#[test]
fn a_full_pipe_takes_small_writes_whole_or_not_at_all() {
    let (reader, writer) = pipe();
    assert_eq!(write(&writer, &[1; 100_000]).unwrap(), 65536);
    assert_eq!(write(&writer, b"x").unwrap_err(), Error::WouldBlock);
    assert!(!writer.poll(None).contains(PollEvents::WRITABLE));
    read_some(&reader, 4095).unwrap();
    assert_eq!(write(&writer, &[2; 4096]).unwrap_err(), Error::WouldBlock);
    read_some(&reader, 1).unwrap();
    assert!(writer.poll(None).contains(PollEvents::WRITABLE));
    assert_eq!(write(&writer, &[2; 4096]).unwrap(), 4096);
    let all = read_all_available(&reader);
    assert_eq!(all.len(), 65536);
    assert!(all[..61440].iter().all(|&byte| byte == 1) && all[61440..].iter().all(|&byte| byte == 2));
}

fn read_all_available(reader: &Arc<OpenFile>) -> Vec<u8> {
    let mut all = Vec::new();
    while let Ok(bytes) = read_some(reader, 5000) {
        if bytes.is_empty() {
            break;
        }
        all.extend(bytes);
    }
    all
}

#[test]
fn ends_learn_of_each_others_end() {
    let (reader, writer) = pipe();
    assert_eq!(reader.poll(None), PollEvents::empty());
    write(&writer, b"x").unwrap();
    assert_eq!(reader.poll(None), PollEvents::INPUT);
    drop(writer);
    assert_eq!(reader.poll(None), PollEvents::INPUT | PollEvents::HANG_UP);
    let (reader, writer) = pipe();
    drop(reader);
    assert_eq!(write(&writer, b"x").unwrap_err(), Error::BrokenPipe);
    assert!(writer.poll(None).contains(PollEvents::ERROR));
}

#[test]
fn the_capacity_can_be_changed() {
    let (_reader, writer) = pipe();
    let pipe = writer.operations().pipe().unwrap();
    assert_eq!(pipe.set_capacity(5000, false).unwrap(), 8192);
    assert_eq!(write(&writer, &[1; 20_000]).unwrap(), 8192);
    assert_eq!(pipe.set_capacity(4096, false).unwrap_err(), Error::Busy);
    assert_eq!(pipe.set_capacity(2 << 20, false).unwrap_err(), Error::NotPermitted);
    assert_eq!(pipe.set_capacity(2 << 20, true).unwrap(), 2 << 20);
    assert_eq!(pipe.set_capacity(0, true).unwrap_err(), Error::Invalid);
}

#[test]
fn tee_copies_and_splice_moves() {
    let (from, into_from) = pipe();
    let (to, into_to) = pipe();
    write(&into_from, b"payload").unwrap();
    assert_eq!(tee(&from, &into_to, 100, true).unwrap(), 7);
    assert_eq!(read_some(&to, 100).unwrap(), b"payload");
    write(&into_from, b" more").unwrap();
    assert_eq!(splice(&from, None, &into_to, None, 100, true).unwrap(), 12);
    assert_eq!(read_some(&from, 1).unwrap_err(), Error::WouldBlock);
    assert_eq!(read_some(&to, 100).unwrap(), b"payload more");
    assert_eq!(splice(&from, None, &into_from, None, 1, true).unwrap_err(), Error::Invalid);
}

#[test]
fn files_are_spliced_by_sharing_their_pages() {
    let world = World::new();
    let bytes: Vec<u8> = (0..9000u32).map(|number| number as u8).collect();
    world.write_file("/from", &bytes).unwrap();
    let from = world.open("/from", OpenFlags::empty()).unwrap();
    let to = world.open("/to", OpenFlags::CREATE | OpenFlags::WRITE_ONLY).unwrap();
    let (reader, writer) = pipe();
    let mut offset = 100;
    assert_eq!(splice(&from, Some(&mut offset), &writer, None, 100_000, false).unwrap(), 8900);
    assert_eq!(offset, 9000);
    assert_eq!(splice(&reader, None, &to, None, 100_000, true).unwrap(), 8900);
    assert_eq!(world.read_file("/to").unwrap(), &bytes[100..]);
    assert_eq!(splice(&from, None, &to, None, 1, true).unwrap_err(), Error::Invalid);
    assert_eq!(splice(&reader, Some(&mut 0), &to, None, 1, true).unwrap_err(), Error::IllegalSeek);
}

#[test]
fn sendfile_and_copy_file_range_copy() {
    let world = World::new();
    world.write_file("/from", &[7; 10_000]).unwrap();
    let from = world.open("/from", OpenFlags::empty()).unwrap();
    let to = world.open("/to", OpenFlags::CREATE | OpenFlags::READ_WRITE).unwrap();
    assert_eq!(sendfile(&to, &from, None, 6000).unwrap(), 6000);
    assert_eq!((from.position(), to.position()), (6000, 6000));
    let (mut input, mut output) = (0, 6000);
    assert_eq!(copy_file_range(&from, Some(&mut input), &to, Some(&mut output), 50_000).unwrap(), 10_000);
    assert_eq!(world.read_file("/to").unwrap(), [7; 16_000]);
    let (mut input, mut output) = (0, 5);
    let overlapping = copy_file_range(&to, Some(&mut input), &to, Some(&mut output), 10);
    assert_eq!(overlapping.unwrap_err(), Error::Invalid);
}

#[test]
fn fifos_open_without_waiting_when_told_to() {
    let world = World::new();
    world.context().make_node(world.cwd(), b"/fifo", FileKind::Fifo, 0o666, DeviceNumber::default()).unwrap();
    let non_block = OpenFlags::NON_BLOCK;
    assert_eq!(world.open("/fifo", non_block | OpenFlags::WRITE_ONLY).err(), Some(Error::NoDeviceAddress));
    let reader = world.open("/fifo", non_block).unwrap();
    assert_eq!(reader.poll(None), PollEvents::empty(), "no hang-up before the first writer");
    assert_eq!(read_some(&reader, 1).unwrap(), b"");
    let writer = world.open("/fifo", non_block | OpenFlags::WRITE_ONLY).unwrap();
    write(&writer, b"through").unwrap();
    assert_eq!(read_some(&reader, 100).unwrap(), b"through");
    write(&writer, b"lost").unwrap();
    drop((reader, writer));
    let both = world.open("/fifo", non_block | OpenFlags::READ_WRITE).unwrap();
    assert_eq!(read_some(&both, 1).unwrap_err(), Error::WouldBlock, "what was left went with the last end");
    assert_eq!(world.path_of(both.path().unwrap()), "/fifo");
}

#[test]
fn pipes_are_known_by_their_inode() {
    let (reader, writer) = pipe();
    let mut name = Vec::new();
    reader.write_name(&mut name).unwrap();
    assert_eq!(name, format!("pipe:[{}]", writer.inode().number).as_bytes());
    assert_eq!(reader.status().mode, 0o010600);
    assert_eq!(reader.seek(vfs::file::SeekFrom::Start(0)).unwrap_err(), Error::IllegalSeek);
}

#[test]
fn moved_bytes_stay_as_they_are_while_the_first_pipe_goes_on() {
    let (reader, writer) = pipe();
    let (second_reader, second_writer) = pipe();
    let (third_reader, third_writer) = pipe();
    write(&writer, &[1; 3000]).unwrap();
    assert_eq!(splice(&reader, None, &second_writer, None, 1000, false).unwrap(), 1000);
    write(&writer, &[2; 1000]).unwrap();
    assert_eq!(splice(&reader, None, &third_writer, None, 2000, false).unwrap(), 2000);
    assert_eq!(read_some(&reader, 5000).unwrap(), [2; 1000]);
    // The emptied frame must not be written to again either.
    write(&writer, &[3; 4096]).unwrap();
    write(&second_writer, &[4; 100]).unwrap();
    assert_eq!(read_all_available(&second_reader), [[1; 1000].as_slice(), &[4; 100]].concat());
    assert_eq!(read_all_available(&third_reader), [1; 2000]);
    assert_eq!(read_all_available(&reader), [3; 4096]);
}

#[test]
fn an_end_can_be_opened_again_by_its_place() {
    let world = World::new();
    let (reader, writer) = pipe();
    let place = reader.path_or_detached().unwrap();
    let again = world.context().open_existing(place, OpenFlags::WRITE_ONLY).unwrap();
    write(&again, b"through").unwrap();
    assert_eq!(read_some(&reader, 10).unwrap(), b"through");
    drop(writer);
    assert_eq!(read_some(&reader, 10).unwrap_err(), Error::WouldBlock);
    drop(again);
    assert_eq!(read_some(&reader, 10).unwrap(), b"");
}
