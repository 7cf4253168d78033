//! Pairs as their users see them.

use alloc::sync::Arc;
use alloc::vec::Vec;

use memory::buffer::{Sink, Source};
use vfs::flags::OpenFlags;
use vfs::poll::PollEvents;
use vfs::{Error, OpenFile};

use super::{
    Half, Identity, Kind, Ownership, Receiving, Rights, Sending, UnixSocket, create_pair, in_flight,
};

const OWNER: Ownership =
    Ownership { identity: Identity { process: 7, user: 8, group: 9 }, user: 8, group: 9 };

fn pair(kind: Kind) -> (Arc<OpenFile>, Arc<OpenFile>) {
    sched::current();
    create_pair(kind, OpenFlags::NON_BLOCK, OWNER).unwrap()
}

fn socket(file: &OpenFile) -> &UnixSocket {
    file.object().unwrap()
}

fn write(file: &Arc<OpenFile>, bytes: &[u8]) -> Result<usize, Error> {
    file.write(&mut Source::kernel(bytes))
}

fn read(file: &Arc<OpenFile>, room: usize) -> Result<Vec<u8>, Error> {
    let mut buffer = vec![0; room];
    let length = file.read(&mut Sink::kernel(&mut buffer))?;
    buffer.truncate(length);
    Ok(buffer)
}

fn pass(from: &OpenFile, files: Vec<Arc<OpenFile>>) -> Result<usize, Error> {
    let rights = Rights::new(socket(from), files, None)?;
    let how = Sending { non_block: true, rights: Some(rights), ..Sending::default() };
    socket(from).send(&mut Source::kernel(b"x"), how)
}

#[test]
fn a_stream_has_no_borders_and_messages_do() {
    let _alone = alone();
    let (left, right) = pair(Kind::Stream);
    write(&left, b"hello ").unwrap();
    write(&left, b"world").unwrap();
    assert_eq!(read(&right, 8).unwrap(), b"hello wo");
    assert_eq!(read(&right, 8).unwrap(), b"rld");
    let (left, right) = pair(Kind::SequentialPacket);
    write(&left, b"hello ").unwrap();
    write(&left, b"world").unwrap();
    assert_eq!(read(&right, 3).unwrap(), b"hel");
    assert_eq!(read(&right, 30).unwrap(), b"world");
    assert_eq!(read(&right, 30).unwrap_err(), Error::WouldBlock);
}

#[test]
fn what_is_sent_is_limited_and_room_comes_back() {
    let _alone = alone();
    let (left, right) = pair(Kind::Stream);
    let sent = write(&left, &[1; 1 << 20]).unwrap();
    assert!((100_000..300_000).contains(&sent));
    assert_eq!(write(&left, b"x").unwrap_err(), Error::WouldBlock);
    assert!(!left.poll(None).contains(PollEvents::WRITABLE));
    assert_eq!(read(&right, 1 << 20).unwrap().len(), sent);
    assert!(left.poll(None).contains(PollEvents::WRITABLE));
    assert_eq!(socket(&left).own().charged(), 0);
}

#[test]
fn a_peer_learns_of_the_end() {
    let _alone = alone();
    let (left, right) = pair(Kind::Stream);
    write(&left, b"last").unwrap();
    drop(left);
    assert!(right.poll(None).contains(PollEvents::HANG_UP | PollEvents::READABLE));
    assert_eq!(read(&right, 9).unwrap(), b"last");
    assert_eq!(read(&right, 9).unwrap(), b"");
    assert_eq!(write(&right, b"x").unwrap_err(), Error::BrokenPipe);
    let (left, right) = pair(Kind::Stream);
    write(&left, b"unread").unwrap();
    drop(right);
    assert_eq!(read(&left, 9).unwrap_err(), Error::ConnectionReset);
    assert_eq!(read(&left, 9).unwrap(), b"");
}

#[test]
fn a_datagram_without_a_receiver_is_refused_once() {
    let _alone = alone();
    let (left, right) = pair(Kind::Datagram);
    drop(right);
    assert_eq!(write(&left, b"x").unwrap_err(), Error::ConnectionRefused);
    assert_eq!(write(&left, b"x").unwrap_err(), Error::NotConnected);
    assert!(!socket(&left).is_connected());
}

#[test]
fn a_half_shut_connection_goes_the_other_way() {
    let _alone = alone();
    let (left, right) = pair(Kind::Stream);
    socket(&left).shut_down(Half::Send);
    assert_eq!(write(&left, b"x").unwrap_err(), Error::BrokenPipe);
    assert_eq!(read(&right, 1).unwrap(), b"");
    write(&right, b"back").unwrap();
    assert_eq!(read(&left, 9).unwrap(), b"back");
}

#[test]
fn a_peek_leaves_bytes_and_files() {
    let _alone = alone();
    let (left, right) = pair(Kind::Stream);
    let (other, _end) = pair(Kind::Stream);
    pass(&left, vec![other.clone()]).unwrap();
    let mut buffer = [0; 4];
    let peek = Receiving { non_block: true, peek: true, ..Receiving::default() };
    for _ in 0..2 {
        let seen = socket(&right).receive(&mut Sink::kernel(&mut buffer), peek).unwrap();
        assert_eq!((seen.result, seen.files.len()), (1, 1));
        assert!(Arc::ptr_eq(&seen.files[0], &other));
    }
    let taken = Receiving { peek: false, ..peek };
    assert_eq!(socket(&right).receive(&mut Sink::kernel(&mut buffer), taken).unwrap().files.len(), 1);
}

/// The collector is one for all: tests that look at what is in flight do not run beside each other.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn sockets_in_each_others_messages_are_collected() {
    let _alone = alone();
    let (left, right) = pair(Kind::Stream);
    let (third, fourth) = pair(Kind::Datagram);
    pass(&left, vec![left.clone(), right.clone(), third.clone()]).unwrap();
    pass(&third, vec![left.clone(), fourth.clone()]).unwrap();
    let watched = [&left, &right, &third, &fourth].map(Arc::downgrade);
    drop((left, right, third, fourth));
    assert!(watched.iter().all(|file| file.strong_count() > 0));
    drop(pair(Kind::Stream));
    assert!(watched.iter().all(|file| file.strong_count() == 0));
}

#[test]
fn a_socket_in_the_inbox_of_a_living_one_lives() {
    let _alone = alone();
    let (left, right) = pair(Kind::Stream);
    let (inner, other) = pair(Kind::Stream);
    pass(&left, vec![inner]).unwrap();
    drop(pair(Kind::Stream));
    write(&other, b"still there").unwrap();
    let mut byte = [0];
    let how = Receiving { non_block: true, ..Receiving::default() };
    let received = socket(&right).receive(&mut Sink::kernel(&mut byte), how).unwrap();
    assert_eq!(read(&received.files[0], 64).unwrap(), b"still there");
}

#[test]
fn a_long_chain_of_sockets_in_messages_ends_without_deep_calls() {
    let _alone = alone();
    let mut previous = pair(Kind::Stream);
    let first = Arc::downgrade(&previous.0);
    for _ in 0..4_000 {
        let next = pair(Kind::Stream);
        pass(&next.0, vec![previous.0, previous.1]).unwrap();
        previous = next;
    }
    drop(previous);
    assert_eq!(first.strong_count(), 0);
    assert_eq!(in_flight(), 0);
}

#[test]
fn nothing_is_left_when_memory_runs_out() {
    let _alone = alone();
    memory::fallible::exhaust("unix sockets", || {
        let result =
            create_pair(Kind::SequentialPacket, OpenFlags::NON_BLOCK, OWNER).and_then(|(left, right)| {
                pass(&left, vec![right.clone()])?;
                write(&left, &[1; 10_000])?;
                read(&right, 10)
            });
        assert!(matches!(result.as_deref(), Ok(b"x") | Err(Error::OutOfMemory)));
        drop(create_pair(Kind::Stream, OpenFlags::empty(), OWNER));
    });
    // What a collection without memory could not see, the next one does.
    drop(pair(Kind::Stream));
    assert_eq!(in_flight(), 0);
}
