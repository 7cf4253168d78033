//! `epoll`, `poll`, `inotify`, descriptors and locks.

use std::sync::Arc;

use vfs::credentials::Credentials;
use vfs::epoll::{Epoll, EpollEvent, EpollEvents, create_epoll};
use vfs::file::{DescriptorFlags, Descriptors};
use vfs::flags::OpenFlags;
use vfs::inotify::{EventMask, Inotify, create_inotify};
use vfs::lock::{FlockHolder, FlockKind, LockKind, LockOwner, RecordRequest};
use vfs::pipe::create_pipe;
use vfs::poll::{PollEvents, PollRequest, PollWaiter, poll};
use vfs::{Error, WatchAccount};

use super::{World, read_some, write};

fn interest(events: EpollEvents, data: u64) -> EpollEvent {
    EpollEvent { events, data }
}

const INPUT: EpollEvents = EpollEvents::from_bits_retain(1);

fn collect(epoll: &Epoll) -> Vec<(u32, u64)> {
    let mut events = Vec::new();
    epoll
        .wait(10, Some(0), &mut |event| {
            events.push((event.events.bits(), event.data));
            Ok(())
        })
        .unwrap();
    events
}

#[test]
fn level_triggered_interests_report_a_state() {
    sched::current();
    let (reader, writer) = create_pipe(OpenFlags::NON_BLOCK, &Credentials::root()).unwrap();
    let file = create_epoll(&alloc::sync::Arc::default()).unwrap();
    let epoll = Epoll::of(&file).unwrap();
    epoll.add(3, &reader, interest(INPUT, 7)).unwrap();
    assert_eq!(epoll.add(3, &reader, interest(INPUT, 7)).unwrap_err(), Error::Exists);
    assert_eq!(collect(epoll), []);
    write(&writer, b"xy").unwrap();
    assert!(file.poll(None).contains(PollEvents::READABLE));
    assert_eq!(collect(epoll), [(1, 7)]);
    assert_eq!(collect(epoll), [(1, 7)]);
    read_some(&reader, 2).unwrap();
    assert_eq!(collect(epoll), []);
    assert_eq!(file.poll(None), PollEvents::empty());
    epoll.remove(3, &reader).unwrap();
    write(&writer, b"x").unwrap();
    assert_eq!(collect(epoll), []);
    assert_eq!(epoll.remove(3, &reader).unwrap_err(), Error::NotFound);
}

#[test]
fn edge_triggered_interests_report_each_change_and_one_shot_ones_once() {
    sched::current();
    let (reader, writer) = create_pipe(OpenFlags::NON_BLOCK, &Credentials::root()).unwrap();
    let file = create_epoll(&alloc::sync::Arc::default()).unwrap();
    let epoll = Epoll::of(&file).unwrap();
    epoll.add(3, &reader, interest(INPUT | EpollEvents::EDGE_TRIGGERED, 1)).unwrap();
    write(&writer, b"x").unwrap();
    assert_eq!(collect(epoll), [(1, 1)]);
    assert_eq!(collect(epoll), []);
    write(&writer, b"y").unwrap();
    assert_eq!(collect(epoll), [(1, 1)]);
    epoll.modify(3, &reader, interest(INPUT | EpollEvents::ONE_SHOT, 2)).unwrap();
    assert_eq!(collect(epoll), [(1, 2)]);
    write(&writer, b"z").unwrap();
    assert_eq!(collect(epoll), []);
    epoll.modify(3, &reader, interest(INPUT | EpollEvents::ONE_SHOT, 3)).unwrap();
    assert_eq!(collect(epoll), [(1, 3)]);
}

#[test]
fn interests_end_with_their_file() {
    sched::current();
    let (reader, writer) = create_pipe(OpenFlags::NON_BLOCK, &Credentials::root()).unwrap();
    let file = create_epoll(&alloc::sync::Arc::default()).unwrap();
    let epoll = Epoll::of(&file).unwrap();
    epoll.add(3, &reader, interest(INPUT, 1)).unwrap();
    write(&writer, b"x").unwrap();
    drop(reader);
    assert_eq!(collect(epoll), []);
    let mut number = 0;
    epoll.for_each(|_, _| number += 1);
    assert_eq!(number, 0);
    assert_eq!(epoll.add(4, &writer, interest(INPUT, 2)), Ok(()));
    drop(file);
    let _ = write(&writer, b"x");
}

#[test]
fn instances_may_watch_each_other_but_not_in_circles() {
    sched::current();
    let (reader, writer) = create_pipe(OpenFlags::NON_BLOCK, &Credentials::root()).unwrap();
    let files: Vec<_> = (0..7).map(|_| create_epoll(&alloc::sync::Arc::default()).unwrap()).collect();
    let of = |index: usize| Epoll::of(&files[index]).unwrap();
    assert_eq!(of(0).add(1, &files[0], interest(INPUT, 0)).unwrap_err(), Error::Invalid);
    of(0).add(1, &reader, interest(INPUT, 0)).unwrap();
    for index in 1..5 {
        of(index).add(1, &files[index - 1], interest(INPUT, index as u64)).unwrap();
    }
    assert_eq!(of(5).add(1, &files[4], interest(INPUT, 0)).unwrap_err(), Error::Loop);
    assert_eq!(of(0).add(2, &files[3], interest(INPUT, 0)).unwrap_err(), Error::Loop);
    assert_eq!(collect(of(4)), []);
    write(&writer, b"x").unwrap();
    assert_eq!(collect(of(4)), [(1, 4)]);
    read_some(&reader, 1).unwrap();
    assert_eq!(collect(of(4)), []);
}

#[test]
fn regular_files_can_not_be_watched() {
    let world = World::new();
    world.write_file("/file", b"").unwrap();
    let file = world.open("/file", OpenFlags::empty()).unwrap();
    let epoll = create_epoll(&alloc::sync::Arc::default()).unwrap();
    assert_eq!(
        Epoll::of(&epoll).unwrap().add(1, &file, interest(INPUT, 0)).unwrap_err(),
        Error::NotPermitted
    );
    assert_eq!(Epoll::of(&file).err(), Some(Error::Invalid));
}

#[test]
fn polling_finds_what_is_ready() {
    let world = World::new();
    world.write_file("/file", b"").unwrap();
    let (reader, writer) = create_pipe(OpenFlags::NON_BLOCK, &Credentials::root()).unwrap();
    let waiter = PollWaiter::create().unwrap();
    let request = |file, events| PollRequest { file: Some(file), events, ready: PollEvents::empty() };
    let mut requests = [
        request(reader.clone(), PollEvents::READABLE),
        request(writer.clone(), PollEvents::READABLE),
        PollRequest { file: None, events: PollEvents::READABLE, ready: PollEvents::INVALID },
    ];
    assert_eq!(poll(&waiter, &mut requests, Some(0)).unwrap(), 1);
    write(&writer, b"x").unwrap();
    assert_eq!(poll(&waiter, &mut requests, None).unwrap(), 2);
    assert_eq!(requests[0].ready, PollEvents::READABLE);
    assert_eq!(requests[1].ready, PollEvents::empty());
    read_some(&reader, 1).unwrap();
    let mut one = [request(reader, PollEvents::READABLE)];
    let deadline = machine::time::now_ns() + 1000;
    assert_eq!(poll(&waiter, &mut one, Some(deadline)).unwrap(), 0);
}

#[test]
fn inotify_tells_what_happens_in_a_directory() {
    let world = World::new();
    world.mkdir("/dir").unwrap();
    let file = create_inotify(OpenFlags::NON_BLOCK, &Arc::new(WatchAccount::new())).unwrap();
    let instance = Inotify::of(&file).unwrap();
    let place = world.walk("/dir").unwrap();
    let watch = instance.add(&world.context(), &place, EventMask::EVENTS).unwrap();
    world.write_file("/dir/file", b"x").unwrap();
    world.rename("/dir/file", "/dir/other").unwrap();
    world.unlink("/dir/other").unwrap();
    let bytes = read_some(&file, 4096).unwrap();
    let mut events = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let word = |index: usize| u32::from_ne_bytes(bytes[at + index..at + index + 4].try_into().unwrap());
        assert_eq!(word(0), watch as u32);
        let name = &bytes[at + 16..at + 16 + word(12) as usize];
        let name: Vec<u8> = name.iter().copied().take_while(|&byte| byte != 0).collect();
        events.push((word(4), String::from_utf8(name).unwrap()));
        at += 16 + word(12) as usize;
    }
    let expected =
        [(0x100, "file"), (0x20, "file"), (0x2, "file"), (0x8, "file"), (0x40, "file"), (0x80, "other")];
    let expected: Vec<_> = expected.iter().map(|(mask, name)| (*mask, (*name).to_owned())).collect();
    assert_eq!(events[..6], expected[..]);
    assert_eq!(events.last().unwrap(), &(0x200, "other".to_owned()));
    assert_eq!(read_some(&file, 4096).unwrap_err(), Error::WouldBlock);
    instance.remove(watch).unwrap();
    assert_eq!(read_some(&file, 16).unwrap()[4..8], 0x8000u32.to_ne_bytes());
}

#[test]
fn a_user_has_so_many_inotify_instances_and_no_more() {
    const INSTANCES: usize = 128;
    let account = Arc::new(WatchAccount::new());
    let mut made: Vec<_> =
        (0..INSTANCES).map(|_| create_inotify(OpenFlags::empty(), &account).unwrap()).collect();
    let refused = create_inotify(OpenFlags::empty(), &account);
    assert_eq!(refused.err(), Some(Error::TooManyDescriptors));
    create_inotify(OpenFlags::empty(), &Arc::new(WatchAccount::new())).expect("another user");
    drop(made.pop());
    create_inotify(OpenFlags::empty(), &account).expect("one is gone");
}

#[test]
fn a_watch_that_has_ended_is_followed_by_a_new_one() {
    let world = World::new();
    world.mkdir("/dir").unwrap();
    let file = create_inotify(OpenFlags::NON_BLOCK, &Arc::new(WatchAccount::new())).unwrap();
    let instance = Inotify::of(&file).unwrap();
    let place = world.walk("/dir").unwrap();
    let add = |mask| instance.add(&world.context(), &place, mask).unwrap();
    let first = add(EventMask::CREATE | EventMask::ONE_SHOT);
    assert_eq!(add(EventMask::CREATE | EventMask::ONE_SHOT | EventMask::MASK_ADD), first);
    world.write_file("/dir/file", b"x").unwrap();
    assert_ne!(add(EventMask::CREATE), first);
    assert_eq!(instance.remove(first), Err(Error::Invalid));
}

#[test]
fn lost_events_are_told_of_once_until_that_is_read() {
    const MOST: usize = 16_384;
    const HEADER: usize = 16;
    const OVERFLOW: u32 = 0x4000;
    let world = World::new();
    world.write_file("/file", b"x").unwrap();
    let file = create_inotify(OpenFlags::NON_BLOCK, &Arc::new(WatchAccount::new())).unwrap();
    let instance = Inotify::of(&file).unwrap();
    let watched = EventMask::OPEN | EventMask::CLOSE_NO_WRITE;
    instance.add(&world.context(), &world.walk("/file").unwrap(), watched).unwrap();
    let make_events = |number: usize| {
        for _ in 0..number / 2 {
            drop(world.open("/file", OpenFlags::empty()).unwrap());
        }
    };
    let read_mask = || {
        let bytes = read_some(&file, HEADER).ok()?;
        bytes[4..].first_chunk().map(|mask| u32::from_ne_bytes(*mask))
    };
    make_events(MOST + 10);
    // There is no room yet for one that comes now, and the reader will hear that it was lost.
    assert_ne!(read_mask(), Some(OVERFLOW));
    make_events(2);
    let masks: Vec<u32> = core::iter::from_fn(read_mask).collect();
    assert_eq!(masks.iter().filter(|&&mask| mask == OVERFLOW).count(), 1);
    assert_eq!(masks.last(), Some(&OVERFLOW));
    make_events(2);
    assert_ne!(read_mask(), Some(OVERFLOW));
}

#[test]
fn descriptors_are_the_lowest_free_ones() {
    let world = World::new();
    let file = world.open("/", OpenFlags::empty()).unwrap();
    let table = Descriptors::new().unwrap();
    let add = || table.install(file.clone(), DescriptorFlags::empty(), 0, 100);
    assert_eq!((0..70).map(|_| add().unwrap()).collect::<Vec<_>>(), (0..70).collect::<Vec<_>>());
    table.close(5).unwrap();
    table.close(66).unwrap();
    assert_eq!((add(), add(), add()), (Ok(5), Ok(66), Ok(70)));
    assert_eq!(table.install(file.clone(), DescriptorFlags::empty(), 80, 100), Ok(80));
    assert_eq!(table.install(file.clone(), DescriptorFlags::empty(), 100, 100), Err(Error::Invalid));
    assert_eq!(table.close(5000), Err(Error::BadDescriptor));
    let reserved = table.reserve(100).unwrap();
    assert_eq!(reserved.descriptor(), 71);
    assert_eq!(table.get(71).err(), Some(Error::BadDescriptor));
    assert_eq!(add(), Ok(72));
    assert_eq!(table.replace(file.clone(), DescriptorFlags::empty(), 71, 100).err(), Some(Error::Busy));
    drop(reserved);
    assert_eq!(add(), Ok(71));
    for _ in 0..27 {
        let _ = add();
    }
    assert_eq!(add(), Err(Error::TooManyDescriptors));
}

#[test]
fn descriptor_tables_grow_without_allocating_under_their_lock() {
    let world = World::new();
    let file = world.open("/", OpenFlags::empty()).unwrap();
    let table = Descriptors::new().unwrap();
    let before = memory::fallible::passed_with_preemption_off();
    for expected in 0..300 {
        assert_eq!(table.install(file.clone(), DescriptorFlags::empty(), 0, 5000), Ok(expected));
    }
    let reserved: Vec<_> = (0..300).map(|_| table.reserve(5000).unwrap()).collect();
    assert!(table.replace(file.clone(), DescriptorFlags::CLOSE_ON_EXEC, 4000, 5000).unwrap().is_none());
    assert_eq!(memory::fallible::passed_with_preemption_off(), before);
    assert_eq!((table.size(), table.open_count()), (4096, 601));
    assert_eq!(
        (table.flags(299), table.flags(4000)),
        (Ok(DescriptorFlags::empty()), Ok(DescriptorFlags::CLOSE_ON_EXEC))
    );
    drop(reserved);
    assert_eq!((table.next_open(300), table.next_open(4001)), (Some(4000), None));
}

#[test]
fn threads_that_grow_a_table_together_lose_no_file() {
    const THREADS: usize = 4;
    const EACH: usize = 500;
    let world = World::new();
    let file = world.open("/", OpenFlags::empty()).unwrap();
    let table = Descriptors::new().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let (own, file) = (table.share(), &file);
            scope.spawn(move || {
                for _ in 0..EACH {
                    own.install(file.clone(), DescriptorFlags::empty(), 0, 5000).unwrap();
                }
            });
        }
    });
    assert!((0..(THREADS * EACH) as u32).all(|descriptor| table.get(descriptor).is_ok()));
    assert_eq!(table.open_count(), THREADS * EACH);
    drop(table);
    assert_eq!(std::sync::Arc::strong_count(&file), 1);
}

#[test]
fn fork_copies_and_exec_closes_marked_descriptors() {
    let world = World::new();
    let file = world.open("/", OpenFlags::empty()).unwrap();
    let table = Descriptors::new().unwrap();
    for index in 0..10 {
        let flags = if index % 2 == 1 { DescriptorFlags::CLOSE_ON_EXEC } else { DescriptorFlags::empty() };
        table.install(file.clone(), flags, 0, 100).unwrap();
    }
    let copy = table.duplicate().unwrap();
    copy.close_on_exec();
    assert_eq!((copy.open_count(), table.open_count()), (5, 10));
    assert_eq!(copy.flags(2), Ok(DescriptorFlags::empty()));
    table.close_range(3, 100);
    assert_eq!(table.open_count(), 3);
    let old = table.replace(file.clone(), DescriptorFlags::CLOSE_ON_EXEC, 50, 100).unwrap();
    assert!(old.is_none() && table.flags(50) == Ok(DescriptorFlags::CLOSE_ON_EXEC));
    drop((table, copy));
    assert_eq!(std::sync::Arc::strong_count(&file), 1);
}

#[test]
fn record_locks_exclude_and_detect_deadlock() {
    let world = World::new();
    world.write_file("/file", b"").unwrap();
    let inode = world.walk("/file").unwrap().inode().unwrap().clone();
    let request = |id, kind, start, end| RecordRequest {
        owner: LockOwner::Process { id, pid: id as i32 },
        kind,
        start,
        end,
    };
    let locks = inode.locks().unwrap();
    locks.set_record(&request(1, Some(LockKind::Write), 0, 9), false).unwrap();
    let blocked = request(2, Some(LockKind::Read), 5, 15);
    assert_eq!(locks.set_record(&blocked, false), Err(Error::WouldBlock));
    let found = locks.test_record(&blocked).unwrap();
    assert_eq!((found.start, found.end, found.kind), (0, 9, LockKind::Write));
    locks.release_owner(1);
    locks.set_record(&blocked, false).unwrap();
    locks.set_flock(FlockHolder { file: 10, pid: 1 }, Some(FlockKind::Shared), false).unwrap();
    locks.set_flock(FlockHolder { file: 11, pid: 1 }, Some(FlockKind::Shared), false).unwrap();
    assert_eq!(
        locks.set_flock(FlockHolder { file: 12, pid: 1 }, Some(FlockKind::Exclusive), false),
        Err(Error::WouldBlock)
    );
    locks.release_file(10);
    locks.release_file(11);
    locks.set_flock(FlockHolder { file: 12, pid: 1 }, Some(FlockKind::Exclusive), false).unwrap();
}

#[test]
fn an_end_is_reported_to_who_asked_for_nothing_but_not_after_a_single_shot() {
    sched::current();
    let (reader, writer) = create_pipe(OpenFlags::NON_BLOCK, &Credentials::root()).unwrap();
    let file = create_epoll(&alloc::sync::Arc::default()).unwrap();
    let epoll = Epoll::of(&file).unwrap();
    let hang_up = PollEvents::HANG_UP.bits();
    epoll.add(3, &reader, interest(EpollEvents::empty(), 7)).unwrap();
    write(&writer, b"x").unwrap();
    assert_eq!(collect(epoll), []);
    drop(writer);
    assert_eq!(collect(epoll), [(hang_up, 7)]);
    epoll.modify(3, &reader, interest(EpollEvents::ONE_SHOT, 8)).unwrap();
    assert_eq!(collect(epoll), [(hang_up, 8)]);
    assert_eq!(collect(epoll), []);
}
