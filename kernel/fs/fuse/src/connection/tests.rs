//! The dialogue, with a server that is this test.

use alloc::sync::Arc;
use alloc::vec::Vec;

use vfs::{Error, UserSpace};

use super::{Call, Connection, Message, Request, Room};
use crate::options::Options;
use crate::wire::init::Flags;
use crate::wire::{Body, opcode};

/// Room for any message.
const ROOM: usize = 1 << 20;
const DEVICE: u64 = 1;

fn connection() -> Arc<Connection> {
    let text = b"fd=0,rootmode=40755,user_id=0,group_id=0";
    let options = Options::parse(text, UserSpace::FIRST).expect("known words");
    let connection = Connection::new(options, UserSpace::FIRST.clone()).expect("memory");
    connection.add_device();
    connection
}

/// What the server reads next, without waiting.
fn next(connection: &Connection) -> vfs::Result<Message> {
    connection.next_message(ROOM, true, DEVICE)
}

fn next_request(connection: &Connection) -> Arc<Request> {
    match next(connection) {
        Ok(Message::Request(request)) => request,
        Ok(_) => panic!("another message"),
        Err(error) => panic!("no message: {error}"),
    }
}

/// The server answers a request that it has read.
fn answer(connection: &Connection, request: &Request, bytes: Vec<u8>) {
    let request = connection.take_sent(request.unique(), DEVICE).expect("it was read");
    connection.finish(&request, Ok(bytes));
}

fn agreement(minor: u32, flags: Flags) -> Vec<u8> {
    let words = [7, minor, 0, flags.bits() as u32, 0, 65536];
    Body::new().u32s(&words).finish().expect("memory")
}

/// A connection that is open.
fn open(minor: u32, flags: Flags) -> Arc<Connection> {
    let connection = connection();
    connection.begin().expect("memory");
    let first = next_request(&connection);
    assert_eq!(first.opcode, opcode::INIT);
    answer(&connection, &first, agreement(minor, flags));
    connection
}

fn flush(node: u64) -> Call {
    Call::new(opcode::FLUSH, node, Body::new(), Room::NONE)
}

fn entry(node: u64) -> Body {
    Body::new().u64s(&[node, 1, 0, 0]).u32s(&[0, 0]).bytes(&[0; crate::wire::reply::ATTRIBUTES_BYTES])
}

#[test]
fn nothing_but_the_agreement_is_sent_before_it() {
    let connection = connection();
    connection.begin().expect("memory");
    assert_eq!(connection.send(flush(5), None), Err(Error::NotConnected));
    let first = next_request(&connection);
    assert!(matches!(next(&connection), Err(Error::WouldBlock)));
    answer(&connection, &first, agreement(31, Flags::BIG_WRITES));
    assert_eq!(connection.flags(), Flags::BIG_WRITES);
    assert_eq!(connection.send(flush(5), None), Ok(()));
    assert_eq!(next_request(&connection).node, 5);
}

#[test]
fn who_speaks_another_protocol_is_asked_nothing() {
    let connection = connection();
    connection.begin().expect("memory");
    let first = next_request(&connection);
    answer(&connection, &first, Body::new().u32s(&[8, 0]).finish().expect("memory"));
    assert_eq!(connection.send(flush(5), None), Err(Error::ConnectionRefused));
}

#[test]
fn requests_in_the_background_wait_for_their_turn() {
    let connection = open(31, Flags::empty());
    connection.set_background_limits(Some(1), None);
    for node in [5, 6] {
        connection.send(flush(node), None).expect("memory");
    }
    let first = next_request(&connection);
    assert!(matches!(next(&connection), Err(Error::WouldBlock)));
    answer(&connection, &first, Vec::new());
    assert_eq!((first.node, next_request(&connection).node), (5, 6));
}

#[test]
fn an_answer_comes_by_the_device_that_the_request_was_read_by_and_once() {
    let connection = open(31, Flags::empty());
    connection.send(flush(5), None).expect("memory");
    let request = next_request(&connection);
    assert_eq!(connection.take_sent(request.unique(), DEVICE + 1).err(), Some(Error::NotFound));
    assert_eq!(connection.take_sent(request.unique() + 2, DEVICE).err(), Some(Error::NotFound));
    answer(&connection, &request, Vec::new());
    assert_eq!(connection.take_sent(request.unique(), DEVICE).err(), Some(Error::NotFound));
    assert_eq!(connection.waiting_count(), 0);
}

#[test]
fn a_request_that_the_server_has_no_room_for_fails() {
    let connection = open(31, Flags::empty());
    let told = Arc::new(sync::SpinLock::new(None));
    let own = told.clone();
    let call = Call::new(opcode::WRITE, 5, Body::new().bytes(&[0; 9000]), Room::exactly(8));
    let ending: super::Ending = alloc::boxed::Box::new(move |answer| *own.lock() = Some(answer));
    connection.send(call, Some(ending)).expect("memory");
    assert!(matches!(connection.next_message(8192, true, DEVICE), Err(Error::WouldBlock)));
    assert_eq!(told.lock().take(), Some(Err(Error::Io)));
}

#[test]
fn files_are_forgotten_together_if_the_server_knows_how() {
    for (minor, together) in [(31, 3), (15, 1)] {
        let connection = open(minor, Flags::empty());
        for node in 5..8 {
            connection.forget(node, node);
        }
        connection.forget(crate::wire::ROOT, 1);
        connection.forget(9, 0);
        match next(&connection) {
            Ok(Message::Forget(files)) => assert_eq!((files.len(), files[0]), (together, (5, 5))),
            _ => panic!("files to forget"),
        }
    }
}

#[test]
fn what_nobody_waits_for_any_more_is_given_back() {
    let connection = open(31, Flags::empty());
    let reply = entry(77).u64s(&[1234]).u32s(&[0, 0]).finish().expect("memory");
    let room = Room::exactly(reply.len());
    let call = Call::new(opcode::CREATE, 1, Body::new(), room);
    let request = connection.submit(call).expect("memory");
    assert_eq!(next_request(&connection).unique(), request.unique());
    assert!(!connection.abandon(&request));
    answer(&connection, &request, reply);
    let release = next_request(&connection);
    assert_eq!(
        (release.opcode, release.node, &release.take_body()[..8]),
        (opcode::RELEASE, 77, &1234u64.to_le_bytes()[..])
    );
    assert!(matches!(next(&connection), Ok(Message::Forget(files)) if files == [(77, 1)]));
}

#[test]
fn a_request_that_was_not_read_is_taken_back() {
    let connection = open(31, Flags::empty());
    let request = connection.submit(flush(5)).expect("memory");
    assert!(!connection.abandon(&request));
    assert!(matches!(next(&connection), Err(Error::WouldBlock)));
    assert_eq!(connection.waiting_count(), 0);
}

#[test]
fn the_last_device_ends_the_connection() {
    let connection = open(31, Flags::ABORT_ERROR);
    connection.add_device();
    let request = connection.submit(flush(5)).expect("memory");
    assert_eq!(next_request(&connection).unique(), request.unique());
    connection.device_closed(DEVICE + 1);
    assert!(!connection.is_over() && !request.is_over());
    connection.device_closed(DEVICE);
    assert!(connection.is_over() && request.take() == Err(Error::ConnectionAborted));
    assert_eq!(connection.send(flush(5), None), Err(Error::NotConnected));
    assert!(matches!(next(&connection), Err(Error::NoDevice)));
}

#[test]
fn an_end_by_hand_is_told_to_servers_that_want_to_know() {
    let connection = open(31, Flags::ABORT_ERROR);
    connection.end(true);
    assert!(matches!(next(&connection), Err(Error::ConnectionAborted)));
    let connection = open(31, Flags::empty());
    connection.end(true);
    assert!(matches!(next(&connection), Err(Error::NoDevice)));
}

#[test]
fn a_server_that_wants_to_hear_of_a_signal_again_hears_of_it_once() {
    let connection = open(31, Flags::empty());
    let request = connection.submit(flush(5)).expect("memory");
    let unique = next_request(&connection).unique();
    assert_eq!(connection.interrupt_again(unique, DEVICE), Err(Error::Invalid));
    connection.interrupt(&request);
    for _ in 0..3 {
        connection.interrupt(&request);
        assert_eq!(connection.interrupt_again(unique, DEVICE), Ok(()));
    }
    assert!(matches!(next(&connection), Ok(Message::Interrupt(heard)) if heard == unique));
    assert!(matches!(next(&connection), Err(Error::WouldBlock)));
}

#[test]
fn what_a_server_wants_to_know_and_does_not_read_is_limited() {
    let connection = open(31, Flags::empty());
    let tell = || connection.tell(5, Body::new().bytes(&[0; 100]), 2);
    for _ in 0..super::TOLD_MAX {
        assert_eq!(tell(), Ok(()));
    }
    assert_eq!(tell(), Err(Error::OutOfMemory));
    assert_eq!(next_request(&connection).opcode, opcode::NOTIFY_REPLY);
    assert_eq!((tell(), tell()), (Ok(()), Err(Error::OutOfMemory)));
}

#[test]
fn who_owes_too_many_answers_to_the_killed_is_asked_nothing() {
    let connection = open(31, Flags::empty());
    let mut first = None;
    for _ in 0..super::OWED_MAX {
        let request = connection.submit(flush(5)).expect("memory");
        assert_eq!(next_request(&connection).unique(), request.unique());
        assert!(!connection.abandon(&request));
        first.get_or_insert(request);
    }
    assert_eq!(connection.submit(flush(5)).err(), Some(Error::OutOfMemory));
    answer(&connection, &first.expect("one at least"), Vec::new());
    assert!(connection.submit(flush(5)).is_ok());
    connection.end(true);
    assert_eq!(connection.waiting_count(), 0);
}

#[test]
fn requests_in_the_background_are_limited() {
    let connection = open(31, Flags::empty());
    let count = super::BACKGROUND_MAX + usize::from(super::BACKGROUND);
    for _ in 0..count {
        assert_eq!(connection.send(flush(5), None), Ok(()));
    }
    assert_eq!(connection.send(flush(5), None), Err(Error::OutOfMemory));
}
