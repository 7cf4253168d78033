//! Ports and messages on the host.

use alloc::string::String;
use std::sync::Mutex;

use memory::buffer::{Sink, Source};
use vfs::{Error, Result};

use super::*;
use crate::link::{self, Loopback};
use crate::unix::{Direction, Identity, Receiving};

/// Ports are the machine's, so tests take turns.
static TURN: Mutex<()> = Mutex::new(());

const ROOT: Identity = Identity { process: 700, user: 0, group: 0 };

struct Listener(alloc::sync::Arc<vfs::OpenFile>);

impl Listener {
    fn new(groups: u32) -> Self {
        sched::current();
        let listener = Self(create(DEVICE_EVENTS, false, vfs::flags::OpenFlags::NON_BLOCK, 0, 0).unwrap());
        if groups != 0 {
            listener.socket().bind(Address { port: 0, groups }, 700).unwrap();
        }
        listener
    }

    fn socket(&self) -> &NetlinkSocket {
        self.0.object().unwrap()
    }

    fn receive_with(&self, room: usize, how: Receiving) -> Result<(Received, String)> {
        let mut bytes = alloc::vec![0; room];
        let received = self.socket().receive(&mut Sink::kernel(&mut bytes), how)?;
        bytes.truncate(received.result.min(room));
        Ok((received, String::from_utf8(bytes).unwrap()))
    }

    fn receive(&self) -> Result<String> {
        let how = Receiving { non_block: true, ..Receiving::default() };
        self.receive_with(100, how).map(|(_, text)| text)
    }
}

fn tell(text: &str) {
    publish(KERNEL_GROUP, || Ok(text.into())).unwrap();
}

#[test]
fn a_filter_drops_messages_or_cuts_them_and_nothing_is_lost_by_it() {
    use crate::bpf::machine::code::{JEQ, JMP, LD_B_ABS, RET_K};
    use crate::bpf::{Filter, Instruction};
    let _turn = TURN.lock().unwrap();
    let code = |code, constant| Instruction { code, if_true: 0, if_false: 0, constant };
    let begins = Instruction { if_false: 1, ..code(JMP | JEQ, u32::from(b'k')) };
    let program = alloc::vec![code(LD_B_ABS, 0), begins, code(RET_K, 4), code(RET_K, 0)];
    let (listener, other) = (Listener::new(1), Listener::new(1));
    let filter = alloc::sync::Arc::new(Filter::new(program).unwrap());
    listener.socket().options().filter.attach(filter).unwrap();
    tell("dropped");
    tell("kept");
    tell("kept in part");
    assert_eq!((listener.receive().unwrap(), listener.receive().unwrap()), ("kept".into(), "kept".into()));
    assert_eq!(listener.receive(), Err(Error::WouldBlock));
    assert_eq!(other.receive().unwrap(), "dropped");
    assert_eq!(other.receive().unwrap(), "kept");
    assert_eq!(other.receive().unwrap(), "kept in part");
    for _ in 0..1000 {
        tell("dropped");
    }
    assert!(listener.socket().take_error().is_none() && other.socket().take_error().is_some());
}

#[test]
fn message_with_a_place_comes_though_the_inbox_is_full() {
    let _turn = TURN.lock().unwrap();
    let listener = Listener::new(1);
    let reserved = listener.socket().reserve(b"kept?").unwrap();
    let given_back = listener.socket().reserve(b"never sent").unwrap();
    let mut sent = 0;
    while listener.socket().take_error().is_none() {
        tell("many");
        sent += 1;
    }
    assert_eq!(listener.socket().reserve(b"late").err(), Some(Error::WouldBlock));
    reserved.send(|bytes| bytes[4] = b'!');
    for _ in 1..sent {
        assert_eq!(listener.receive(), Ok("many".into()));
    }
    assert_eq!(listener.receive(), Ok("kept!".into()));
    assert_eq!(listener.receive(), Err(Error::WouldBlock));
    drop(given_back);
    // What was dropped leaves nothing behind: as many fit as before, and two more.
    let mut again = 0;
    while listener.socket().take_error().is_none() {
        tell("many");
        again += 1;
    }
    assert!(again >= sent, "{again} and {sent}");
}

#[test]
fn members_get_what_is_sent_to_their_group() {
    let _turn = TURN.lock().unwrap();
    let (first, second, other) = (Listener::new(1), Listener::new(3), Listener::new(2));
    assert!(has_members(1) && has_members(2) && !has_members(3) && !has_members(0));
    tell("one");
    tell("two");
    for listener in [&first, &second] {
        assert_eq!(listener.receive(), Ok("one".into()));
        assert_eq!(listener.receive(), Ok("two".into()));
        assert_eq!(listener.receive(), Err(Error::WouldBlock));
    }
    assert_eq!(other.receive(), Err(Error::WouldBlock));
    drop((first, second));
    assert!(!has_members(1));
}

#[test]
fn peeking_and_small_buffers_tell_the_length() {
    let _turn = TURN.lock().unwrap();
    let listener = Listener::new(1);
    listener.socket().options().set_passes_identity(true);
    tell("a message");
    let how = Receiving { non_block: true, peek: true, whole_length: true, ..Receiving::default() };
    let (received, text) = listener.receive_with(4, how).unwrap();
    assert_eq!((received.result, received.truncated, text.as_str()), (9, true, "a me"));
    assert_eq!(received.from, Address { port: 0, groups: 1 });
    assert_eq!(received.identity, Some(Identity { process: 0, user: 0, group: 0 }));
    assert_eq!(listener.receive(), Ok("a message".into()));
}

#[test]
fn who_falls_behind_is_told_once_and_goes_on() {
    let _turn = TURN.lock().unwrap();
    let (slow, fast) = (Listener::new(1), Listener::new(1));
    slow.socket().options().set_buffer(Direction::Receive, 0);
    for _ in 0..50 {
        tell("event");
        assert_eq!(fast.receive(), Ok("event".into()));
    }
    assert_eq!(slow.receive(), Err(Error::NoBufferSpace));
    // Until all is read nothing more comes.
    assert_eq!(slow.receive(), Ok("event".into()));
    tell("late");
    let mut received = 1;
    while let Ok(text) = slow.receive() {
        assert_eq!(text, "event");
        received += 1;
    }
    assert!((2..50).contains(&received));
    tell("again");
    assert_eq!(slow.receive(), Ok("again".into()));
}

#[test]
fn who_does_not_want_to_know_is_not_told() {
    let _turn = TURN.lock().unwrap();
    let slow = Listener::new(1);
    slow.socket().options().set_buffer(Direction::Receive, 0);
    slow.socket().set_quiet(true);
    (0..50).for_each(|_| tell("event"));
    assert_eq!(slow.receive(), Ok("event".into()));
}

#[test]
fn without_memory_a_message_is_lost_and_that_is_told() {
    let _turn = TURN.lock().unwrap();
    memory::fallible::exhaust_from("a message for one", |failure| {
        let listener = Listener::new(1);
        let report = failure.arm();
        let told = publish(KERNEL_GROUP, || Ok("event".into()));
        memory::fallible::disarm();
        drop(report);
        let expected = match told {
            Ok(()) => [Ok("event".into()), Err(Error::NoBufferSpace)],
            Err(error) => [Err(Error::WouldBlock), Err(error)],
        };
        assert!(expected.contains(&listener.receive()));
    });
}

#[test]
fn numbers_are_given_once() {
    let _turn = TURN.lock().unwrap();
    let (first, second) = (Listener::new(1), Listener::new(1));
    assert_eq!(first.socket().address(), Address { port: 700, groups: 1 });
    let other = second.socket().address().port;
    assert!(other > 1 << 31);
    let third = Listener::new(0);
    let bind = |port, groups| third.socket().bind(Address { port, groups }, 700);
    assert_eq!(bind(700, 1), Err(Error::AddressInUse));
    assert_eq!(bind(5, 0), Ok(()));
    assert_eq!(bind(6, 0), Err(Error::Invalid));
    assert_eq!(bind(0, 1), Err(Error::Invalid));
    assert_eq!(bind(5, 4), Ok(()));
    assert_eq!(third.socket().address(), Address { port: 5, groups: 4 });
    assert_eq!(third.socket().set_member(33, true), Err(Error::Invalid));
    assert_eq!(third.socket().set_member(0, true), Err(Error::Invalid));
    third.socket().set_member(32, true).unwrap();
    third.socket().set_member(3, false).unwrap();
    assert_eq!(third.socket().address().groups, 1 << 31);
    drop(first);
    assert_eq!(Listener::new(1).socket().address().port, 700);
}

#[test]
fn programs_send_to_groups_and_to_each_other() {
    let _turn = TURN.lock().unwrap();
    let (sender, receiver) = (Listener::new(2), Listener::new(2));
    let send = |bytes: &[u8], to| sender.socket().send(&mut Source::kernel(bytes), to, ROOT);
    assert_eq!(send(b"all", Address { port: 0, groups: 2 }), Ok(3));
    let how = Receiving { non_block: true, ..Receiving::default() };
    let (received, text) = receiver.receive_with(9, how).unwrap();
    assert_eq!((received.from, text.as_str()), (Address { port: 700, groups: 2 }, "all"));
    assert_eq!(sender.receive(), Err(Error::WouldBlock), "who sends does not get it");
    let to = Address { port: receiver.socket().address().port, groups: 0 };
    assert_eq!(send(b"one", to), Ok(3));
    assert_eq!(receiver.receive(), Ok("one".into()));
    assert_eq!(send(b"none", Address { port: 12_345, groups: 0 }), Err(Error::ConnectionRefused));
    assert_eq!(send(b"kernel", Address::default()), Ok(6));
    assert_eq!(send(b"", Address::default()), Err(Error::NoData));
    assert_eq!(send(&[0; 300_000], Address::default()), Err(Error::MessageTooLong));
}

#[test]
fn the_kernel_lists_the_loopback_and_says_what_it_does_not_know() {
    static LOOPBACK: Loopback = Loopback::first();
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    sched::current();
    link::register_network(|look| look(&LOOPBACK, true));
    let file = create(ROUTES, true, vfs::flags::OpenFlags::NON_BLOCK, 0, 0).unwrap();
    let socket: &NetlinkSocket = file.object().unwrap();
    socket.bind(Address { port: 901, groups: 0 }, 901).unwrap();
    let ask = |kind: u16, flags: u16| {
        let mut request = alloc::vec![0_u8; 32];
        request[0] = 32;
        request[4..6].copy_from_slice(&kind.to_le_bytes());
        request[6..8].copy_from_slice(&flags.to_le_bytes());
        request[8] = 77;
        socket.send(&mut Source::kernel(&request), Address::default(), ROOT).unwrap();
    };
    let next = || {
        let mut bytes = [0; 1024];
        let how = Receiving { non_block: true, ..Receiving::default() };
        socket.receive(&mut Sink::kernel(&mut bytes), how).map(|received| {
            assert_eq!((received.result, bytes[8]), (bytes[0] as usize + bytes[1] as usize * 256, 77));
            bytes
        })
    };
    ask(18, 0x301);
    let link = next().unwrap();
    assert_eq!((link[4], link[6]), (16, 2));
    assert!(link.windows(3).any(|bytes| bytes == b"lo\0"));
    assert_eq!(next().unwrap()[4], 3);
    ask(22, 0x301);
    let address = next().unwrap();
    assert_eq!((address[4], &address[16..20]), (20, &[2, 8, 0x80, 254][..]));
    assert!(address.windows(4).any(|bytes| bytes == [127, 0, 0, 1]));
    assert_eq!(next().unwrap()[4], 3);
    // One link without a number or a name.
    ask(18, 1);
    let refused = next().unwrap();
    assert_eq!((refused[4], i32::from_le_bytes(refused[16..20].try_into().unwrap())), (2, -22));
    // A second address, twice, taken away, and once more.
    for (kind, outcome) in [(20_u16, 0), (20, -17), (21, 0), (21, -99)] {
        let mut request = alloc::vec![0_u8; 32];
        request[0] = 32;
        request[4..6].copy_from_slice(&kind.to_le_bytes());
        request[6..12].copy_from_slice(&[5, 0, 77, 0, 0, 0]);
        request[16..32].copy_from_slice(&[2, 8, 0, 254, 1, 0, 0, 0, 8, 0, 2, 0, 127, 1, 1, 1]);
        socket.send(&mut Source::kernel(&request), Address::default(), ROOT).unwrap();
        let answer = next().unwrap();
        assert_eq!((answer[4], i32::from_le_bytes(answer[16..20].try_into().unwrap())), (2, outcome));
    }
    assert_eq!(next().err(), Some(Error::WouldBlock));
}
