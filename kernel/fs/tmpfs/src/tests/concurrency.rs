//! Several processors in one tree, and threads that wait for each other.

use alloc::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use machine::hosted::Machine;
use vfs::Error;
use vfs::credentials::Credentials;
use vfs::epoll::{Epoll, EpollEvent, EpollEvents, create_epoll};
use vfs::flags::OpenFlags;
use vfs::lock::{FileLocks, LockKind, LockOwner, RecordRequest};
use vfs::pipe::create_pipe;
use vfs::poll::{PollEvents, PollRequest, PollWaiter, poll};

use super::{World, read_some, write};

fn boot(cpus: usize) -> Machine {
    sched::current();
    Machine::boot(cpus, |_| sched::enter_application_processor())
}

/// Runs the bodies in threads of their own and waits for all of them.
fn run_all(bodies: Vec<Box<dyn FnOnce() + Send>>) {
    let left = Arc::new(AtomicUsize::new(bodies.len()));
    for body in bodies {
        let left = left.clone();
        let counted = move || {
            body();
            left.fetch_sub(1, Ordering::SeqCst);
        };
        sched::spawn(sched::Builder::new("worker"), Box::new(counted)).expect("memory for a test's thread");
    }
    while left.load(Ordering::SeqCst) > 0 {
        sched::yield_now();
        machine::cpu::relax();
    }
}

#[test]
fn walks_see_a_renamed_directory_under_one_of_its_names() {
    let _machine = boot(3);
    let world = Arc::new(World::new());
    world.mkdir("/a").unwrap();
    world.write_file("/a/file", b"x").unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let renamer = {
        let (world, done) = (world.clone(), done.clone());
        move || {
            for _ in 0..500 {
                world.rename("/a", "/b").unwrap();
                world.rename("/b", "/a").unwrap();
            }
            done.store(true, Ordering::SeqCst);
        }
    };
    let walker = || {
        let (world, done) = (world.clone(), done.clone());
        move || {
            while !done.load(Ordering::SeqCst) {
                for path in ["/a/file", "/b/file", "/a/../a/file"] {
                    match world.stat(path) {
                        Ok(status) => assert_eq!(status.size, 1),
                        Err(error) => assert_eq!(error, Error::NotFound),
                    }
                }
                sched::yield_now();
            }
        }
    };
    run_all(vec![Box::new(renamer), Box::new(walker()), Box::new(walker())]);
    assert!(world.stat("/a/file").is_ok());
    assert_eq!(world.list("/").unwrap(), [".", "..", "a"]);
}

#[test]
fn names_made_and_removed_on_several_processors_do_not_get_lost() {
    let _machine = boot(3);
    let world = Arc::new(World::new());
    for path in ["/one", "/two"] {
        world.mkdir(path).unwrap();
    }
    let worker = |own: usize| {
        let world = world.clone();
        move || {
            for round in 0..200 {
                let (from, to) = if round % 2 == 0 { ("one", "two") } else { ("two", "one") };
                let old = format!("/{from}/file{own}");
                let new = format!("/{to}/file{own}");
                world.write_file(&old, b"x").unwrap();
                world.rename(&old, &new).unwrap();
                assert_eq!(world.stat(&old).unwrap_err(), Error::NotFound);
                world.unlink(&new).unwrap();
            }
        }
    };
    run_all(vec![Box::new(worker(0)), Box::new(worker(1)), Box::new(worker(2))]);
    assert_eq!(world.list("/one").unwrap().len() + world.list("/two").unwrap().len(), 4);
}

#[test]
fn a_byte_goes_round_two_pipes() {
    let _machine = boot(2);
    let (there_out, there_in) = create_pipe(OpenFlags::empty(), &Credentials::root()).unwrap();
    let (back_out, back_in) = create_pipe(OpenFlags::empty(), &Credentials::root()).unwrap();
    let pong = move || {
        while let Ok(bytes) = read_some(&there_out, 1) {
            if bytes.is_empty() || write(&back_in, &bytes).is_err() {
                return;
            }
        }
    };
    let ping = move || {
        for number in 0..500u32 {
            write(&there_in, &[number as u8]).unwrap();
            assert_eq!(read_some(&back_out, 1).unwrap(), [number as u8]);
        }
    };
    run_all(vec![Box::new(ping), Box::new(pong)]);
}

#[test]
fn a_full_pipe_makes_the_writer_wait_and_keeps_every_byte() {
    let _machine = boot(2);
    let (reader, writer) = create_pipe(OpenFlags::empty(), &Credentials::root()).unwrap();
    const TOTAL: usize = 400_000;
    let fill = move || {
        let bytes: Vec<u8> = (0..TOTAL).map(|index| (index % 253) as u8).collect();
        assert_eq!(write(&writer, &bytes).unwrap(), TOTAL);
    };
    let drain = move || {
        let mut index = 0;
        loop {
            let bytes = read_some(&reader, 7001).unwrap();
            if bytes.is_empty() {
                break;
            }
            for byte in bytes {
                assert_eq!(byte, (index % 253) as u8);
                index += 1;
            }
        }
        assert_eq!(index, TOTAL);
    };
    run_all(vec![Box::new(fill), Box::new(drain)]);
}

#[test]
fn sleeping_pollers_are_woken() {
    let _machine = boot(2);
    let (reader, writer) = create_pipe(OpenFlags::empty(), &Credentials::root()).unwrap();
    let (go_out, go_in) = create_pipe(OpenFlags::empty(), &Credentials::root()).unwrap();
    let epoll = create_epoll(&Arc::default()).unwrap();
    let event = EpollEvent { events: EpollEvents::from_bits_retain(1), data: 5 };
    Epoll::of(&epoll).unwrap().add(0, &reader, event).unwrap();
    let watcher = move || {
        let waiter = PollWaiter::create().unwrap();
        for round in 0..100 {
            write(&go_in, b"g").unwrap();
            if round % 2 == 0 {
                let mut got = 0;
                let report = &mut |event: EpollEvent| {
                    got = event.data;
                    Ok(())
                };
                assert_eq!(Epoll::of(&epoll).unwrap().wait(1, None, report).unwrap(), 1);
                assert_eq!(got, 5);
            } else {
                let file = Some(reader.clone());
                let mut one =
                    [PollRequest { file, events: PollEvents::READABLE, ready: PollEvents::empty() }];
                assert_eq!(poll(&waiter, &mut one, None).unwrap(), 1);
            }
            assert_eq!(read_some(&reader, 1).unwrap(), b"x");
        }
    };
    let teller = move || {
        for _ in 0..100 {
            assert_eq!(read_some(&go_out, 1).unwrap(), b"g");
            sched::yield_now();
            write(&writer, b"x").unwrap();
        }
    };
    run_all(vec![Box::new(watcher), Box::new(teller)]);
}

#[test]
fn two_processes_that_wait_for_each_others_locks_learn_of_it() {
    let _machine = boot(2);
    let locks = Arc::new(FileLocks::new(vfs::DeviceNumber::default(), 1));
    let request = |id: u64, start: u64, kind| RecordRequest {
        owner: LockOwner::Process { id: id + 1_000_000, pid: id as i32 },
        kind,
        start,
        end: start,
    };
    let write_lock = Some(LockKind::Write);
    locks.set_record(&request(1, 0, write_lock), false).unwrap();
    locks.set_record(&request(2, 1, write_lock), false).unwrap();
    let waiter = {
        let locks = locks.clone();
        move || locks.set_record(&request(1, 1, write_lock), true).unwrap()
    };
    let closer = {
        let locks = locks.clone();
        move || {
            let error = loop {
                match locks.set_record(&request(2, 0, write_lock), false) {
                    Err(Error::WouldBlock) => {}
                    other => panic!("{other:?}"),
                }
                // Once the other one waits, waiting too would close the circle.
                sched::yield_now();
                if locks.has_waiters() {
                    break locks.set_record(&request(2, 0, write_lock), true);
                }
            };
            assert_eq!(error, Err(Error::Deadlock));
            locks.release_owner(1_000_002);
        }
    };
    run_all(vec![Box::new(waiter), Box::new(closer)]);
}

#[test]
fn every_writer_gets_its_turn_when_the_pipe_is_emptied_at_once() {
    const WRITERS: usize = 4;
    const ROUNDS: usize = 30;
    let _machine = boot(3);
    let (reader, writer) = create_pipe(OpenFlags::default(), &Credentials::root()).unwrap();
    let mut bodies: Vec<Box<dyn FnOnce() + Send>> = Vec::new();
    for _ in 0..WRITERS {
        let writer = writer.clone();
        bodies.push(Box::new(move || {
            for _ in 0..ROUNDS {
                write(&writer, &[7; 65536]).unwrap();
                write(&writer, b"x").unwrap();
            }
        }));
    }
    drop(writer);
    bodies.push(Box::new(move || {
        let mut total = 0;
        loop {
            let bytes = read_some(&reader, 70_000).unwrap();
            if bytes.is_empty() {
                break;
            }
            total += bytes.len();
        }
        assert_eq!(total, WRITERS * ROUNDS * 65537);
    }));
    run_all(bodies);
}
