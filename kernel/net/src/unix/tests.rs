//! Pairs as their users see them.

use alloc::sync::Arc;
use alloc::vec::Vec;

use memory::buffer::{Sink, Source};
use vfs::flags::OpenFlags;
use vfs::poll::PollEvents;
use vfs::{Error, OpenFile};

use crate::bpf::machine::code::{JEQ, JMP, LD_B_ABS, RET_K};
use crate::bpf::{Filter, Instruction};

use super::{
    Flags, Half, Identity, Kind, Ownership, Principal, Receiving, Rights, Sending, Stamping, UnixSocket,
    create, create_pair, find_abstract, in_flight,
};

const MAKER: Principal = Principal { identity: Identity { process: 7, user: 8, group: 9 }, groups: None };
const OWNER: Ownership = Ownership { maker: MAKER, user: 8, group: 9, network: 0 };

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
    let rights = Rights::new(files, None)?;
    let how = Sending { non_block: true, rights: Some(rights), ..Sending::default() };
    socket(from).send(&mut Source::kernel(b"x"), how)
}

/// A file whose end takes as long as the test wants.
struct Slow(std::sync::mpsc::SyncSender<()>, std::sync::Mutex<std::sync::mpsc::Receiver<()>>);

impl vfs::FileOperations for Slow {
    fn release(&self, _file: &OpenFile) {
        self.0.send(()).unwrap();
        self.1.lock().unwrap().recv().unwrap();
    }
}

#[test]
fn each_thread_drops_the_sockets_of_messages_that_it_ends() {
    let _alone = alone();
    sched::current();
    let (begun, has_begun) = std::sync::mpsc::sync_channel(1);
    let (go_on, goes_on) = std::sync::mpsc::sync_channel(1);
    let other = std::thread::spawn(move || {
        let slow = Arc::new(Slow(begun, std::sync::Mutex::new(goes_on)));
        let inode = vfs::anonymous::shared_inode().unwrap();
        let slow = OpenFile::anonymous(inode, slow, OpenFlags::READ_WRITE).unwrap();
        Rights::new(vec![pair(Kind::Stream).0, slow], None).unwrap().discard();
    });
    has_begun.recv().unwrap();
    // The other one is at work. What this one ends is gone when that returns, to the last socket of a chain.
    let (mut inner, _end) = pair(Kind::Stream);
    let innermost = Arc::downgrade(&inner);
    for _ in 0..3 {
        let (sender, outer) = pair(Kind::Stream);
        pass(&sender, vec![inner]).unwrap();
        inner = outer;
    }
    Rights::new(vec![inner], None).unwrap().discard();
    assert_eq!(innermost.strong_count(), 0);
    go_on.send(()).unwrap();
    other.join().unwrap();
}

#[test]
fn abstract_names_are_those_of_a_network() {
    let _alone = alone();
    let made = |network| create(Kind::Datagram, OpenFlags::NON_BLOCK, (8, 9), network).unwrap();
    let (one, other) = (made(1), made(2));
    socket(&one).bind_abstract(b"\0same").unwrap();
    socket(&other).bind_abstract(b"\0same").unwrap();
    assert_eq!(socket(&made(1)).bind_abstract(b"\0same"), Err(Error::AddressInUse));
    assert_eq!(find_abstract(b"\0same", Kind::Datagram, 3).err(), Some(Error::ConnectionRefused));
    assert!(find_abstract(b"\0same", Kind::Datagram, 2).is_ok());
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

/// What a look shows, and what the call would return.
fn peek(file: &Arc<OpenFile>, room: usize, whole_length: bool) -> Result<(Vec<u8>, usize), Error> {
    let how = Receiving { non_block: true, peek: true, whole_length, ..Receiving::default() };
    let mut buffer = vec![0; room];
    let received = socket(file).receive(&mut Sink::kernel(&mut buffer), how)?;
    buffer.truncate(received.result.min(room));
    Ok((buffer, received.result))
}

#[test]
fn peeks_with_an_offset_go_on_and_reads_move_it_back() {
    let _alone = alone();
    let (left, right) = pair(Kind::Stream);
    let offset = || socket(&right).options().peek_offset();
    write(&left, b"abcd").unwrap();
    write(&left, b"efgh").unwrap();
    assert_eq!((peek(&right, 3, false).unwrap().0, offset()), (b"abc".to_vec(), -1));
    socket(&right).set_peek_offset(1);
    assert_eq!((peek(&right, 5, false).unwrap().0, offset()), (b"bcdef".to_vec(), 6));
    assert_eq!((peek(&right, 5, false).unwrap().0, offset()), (b"gh".to_vec(), 8));
    assert_eq!(peek(&right, 5, false).unwrap_err(), Error::WouldBlock);
    assert_eq!((read(&right, 3).unwrap(), offset()), (b"abc".to_vec(), 5));
    write(&left, b"ij").unwrap();
    assert_eq!((peek(&right, 9, false).unwrap().0, offset()), (b"ij".to_vec(), 7));
    assert_eq!((read(&right, 9).unwrap(), offset()), (b"defghij".to_vec(), 0));
    // Nothing goes below the first byte, and what is shut ends behind the offset.
    write(&left, b"last").unwrap();
    assert_eq!((read(&right, 2).unwrap(), offset()), (b"la".to_vec(), 0));
    socket(&left).shut_down(Half::Send);
    assert_eq!(peek(&right, 9, false).unwrap().0, b"st");
    assert_eq!(peek(&right, 9, false).unwrap().1, 0);
    assert_eq!(read(&right, 9).unwrap(), b"st");
}

#[test]
fn peeks_with_an_offset_begin_inside_of_a_message() {
    let _alone = alone();
    for kind in [Kind::Datagram, Kind::SequentialPacket] {
        let (left, right) = pair(kind);
        for message in [b"abcd".as_slice(), b"", b"efgh"] {
            write(&left, message).unwrap();
        }
        socket(&right).set_peek_offset(0);
        assert_eq!(peek(&right, 3, false).unwrap(), (b"abc".to_vec(), 3));
        assert_eq!(peek(&right, 0, true).unwrap(), (Vec::new(), 1));
        assert_eq!(peek(&right, 3, false).unwrap(), (b"d".to_vec(), 1));
        // One that is empty is seen once.
        assert_eq!(peek(&right, 3, false).unwrap(), (Vec::new(), 0));
        assert_eq!(peek(&right, 2, true).unwrap(), (b"ef".to_vec(), 4));
        assert_eq!(read(&right, 1).unwrap(), b"a");
        assert_eq!(socket(&right).options().peek_offset(), 2);
        assert_eq!(peek(&right, 9, false).unwrap().0, b"gh");
        assert_eq!(peek(&right, 9, false).unwrap_err(), Error::WouldBlock);
        socket(&right).set_peek_offset(-1);
        assert_eq!(peek(&right, 9, false).unwrap().0, b"");
    }
}

#[test]
fn a_peek_waits_for_what_is_behind_its_offset() {
    let _alone = alone();
    for kind in [Kind::Stream, Kind::Datagram] {
        let (left, right) = pair(kind);
        write(&left, b"abc").unwrap();
        socket(&right).set_peek_offset(3);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let mut buffer = [0; 9];
                let how = Receiving { peek: true, ..Receiving::default() };
                let length = socket(&right).receive(&mut Sink::kernel(&mut buffer), how).unwrap().result;
                buffer[..length].to_vec()
            });
            // As many messages as before are there, but not the same.
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert_eq!(read(&right, 9).unwrap(), b"abc");
            write(&left, b"de").unwrap();
            assert_eq!(waiting.join().unwrap(), b"de");
        });
    }
}

#[test]
fn messages_tell_when_they_were_sent_and_streams_do_not() {
    let _alone = alone();
    let how = Receiving { non_block: true, ..Receiving::default() };
    let stamp = |file: &OpenFile, how| socket(file).receive(&mut Sink::kernel(&mut [0]), how).unwrap().stamp;
    let now = || vfs::attributes::time_of_day_base_ns() + machine::time::now_ns();
    let wanted = Stamping::ON | Stamping::NANOSECONDS;
    for kind in [Kind::Datagram, Kind::SequentialPacket] {
        let (left, right) = pair(kind);
        write(&left, b"x").unwrap();
        assert!(stamp(&right, how).is_none());
        write(&left, b"before").unwrap();
        socket(&right).options().set_stamping(wanted);
        let begun = now();
        write(&left, b"after").unwrap();
        let sent = now();
        let looked = stamp(&right, Receiving { peek: true, ..how }).unwrap();
        assert!(looked.0 >= sent && looked.1 == wanted);
        assert_eq!(stamp(&right, how).unwrap(), looked);
        assert!((begun..=sent).contains(&stamp(&right, how).unwrap().0));
    }
    let (left, right) = pair(Kind::Stream);
    socket(&right).options().set_stamping(wanted);
    write(&left, b"x").unwrap();
    assert!(stamp(&right, how).is_none());
    // To one that is not the other side of a pair.
    let (one, other) = (datagram(b"\0one").unwrap(), datagram(b"\0other").unwrap());
    socket(&other).options().set_stamping(Stamping::ON);
    socket(&one).redirect(Some(find_abstract(b"\0other", Kind::Datagram, 0).unwrap())).unwrap();
    let begun = now();
    write(&one, b"x").unwrap();
    let sent = now();
    assert!((begun..=sent).contains(&stamp(&other, how).unwrap().0));
}

/// Keeps four bytes of messages that begin with `k`, and nothing of others.
fn attach_filter(file: &OpenFile) {
    let code = |code, constant| Instruction { code, if_true: 0, if_false: 0, constant };
    let begins = Instruction { if_false: 1, ..code(JMP | JEQ, u32::from(b'k')) };
    let program = vec![code(LD_B_ABS, 0), begins, code(RET_K, 4), code(RET_K, 0)];
    socket(file).options().filter.attach(Arc::new(Filter::new(program).unwrap())).unwrap();
}

#[test]
fn a_filter_drops_messages_or_cuts_them() {
    let _alone = alone();
    for kind in [Kind::Datagram, Kind::SequentialPacket] {
        let (left, right) = pair(kind);
        attach_filter(&right);
        assert_eq!(write(&left, b"dropped"), Ok(7));
        assert_eq!(write(&left, b""), Ok(0));
        assert_eq!(write(&left, b"keep"), Ok(4));
        assert_eq!(write(&left, &[b'k'; 10_000]), Ok(10_000));
        pass(&left, vec![left.clone()]).unwrap();
        assert_eq!(in_flight(), 0);
        assert_eq!(read(&right, 20_000).unwrap(), b"keep");
        assert_eq!(read(&right, 20_000).unwrap(), b"kkkk");
        assert_eq!(read(&right, 9).unwrap_err(), Error::WouldBlock);
        assert_eq!(socket(&left).own().charged(), 0);
        // It is the receiver's, and only while it is there.
        assert_eq!(write(&right, b"other"), Ok(5));
        assert_eq!(read(&left, 9).unwrap(), b"other");
        socket(&right).options().filter.detach().unwrap();
        assert_eq!(write(&left, b"other"), Ok(5));
        assert_eq!(read(&right, 9).unwrap(), b"other");
    }
    let (left, right) = pair(Kind::Stream);
    attach_filter(&right);
    assert_eq!(write(&left, b"stream"), Ok(6));
    assert_eq!(read(&right, 9).unwrap(), b"stream");
    let (one, other) = (datagram(b"\0one").unwrap(), datagram(b"\0other").unwrap());
    attach_filter(&other);
    socket(&one).redirect(Some(find_abstract(b"\0other", Kind::Datagram, 0).unwrap())).unwrap();
    assert_eq!(write(&one, b"dropped"), Ok(7));
    assert_eq!(write(&one, b"kept by name"), Ok(12));
    assert_eq!(read(&other, 20).unwrap(), b"kept");
}

/// Sends bytes, the last one out of band.
fn urge(file: &OpenFile, bytes: &[u8]) -> Result<usize, Error> {
    let how = Sending { non_block: true, urgent: true, ..Sending::default() };
    socket(file).send(&mut Source::kernel(bytes), how)
}

fn take_urgent(file: &OpenFile, peek: bool) -> Result<u8, Error> {
    let mut byte = [0];
    let how = Receiving { non_block: true, urgent: true, peek, ..Receiving::default() };
    let received = socket(file).receive(&mut Sink::kernel(&mut byte), how)?;
    assert!(received.urgent && received.result == 1);
    Ok(byte[0])
}

#[test]
fn reads_end_at_the_mark_and_pass_the_urgent_byte_over() {
    let _alone = alone();
    let (left, right) = pair(Kind::Stream);
    assert_eq!(urge(&left, b""), Err(Error::NotSupported));
    assert_eq!(take_urgent(&right, false), Err(Error::Invalid));
    for is_received in [false, true] {
        assert_eq!((urge(&left, b"abc!"), write(&left, b"def")), (Ok(4), Ok(3)));
        assert!(right.poll(None).contains(PollEvents::PRIORITY));
        assert_eq!(take_urgent(&right, true), Ok(b'!'));
        if is_received {
            assert_eq!(take_urgent(&right, false), Ok(b'!'));
        }
        assert_eq!(peek(&right, 9, false).unwrap().0, b"abc");
        assert!(!socket(&right).is_at_mark());
        assert_eq!(read(&right, 9).unwrap(), b"abc");
        assert!(socket(&right).is_at_mark());
        assert_eq!(peek(&right, 9, false).unwrap().0, b"def");
        assert_eq!(read(&right, 9).unwrap(), b"def");
        assert_eq!(take_urgent(&right, false), Err(Error::Invalid));
        assert!(!right.poll(None).contains(PollEvents::PRIORITY));
        assert_eq!(read(&right, 9).unwrap_err(), Error::WouldBlock);
        assert_eq!(socket(&left).own().charged(), 0);
    }
    // A second one makes the first one a byte like others.
    assert_eq!((urge(&left, b"a!"), urge(&left, b"b?")), (Ok(2), Ok(2)));
    assert_eq!(read(&right, 9).unwrap(), b"a!b");
    assert_eq!(take_urgent(&right, false), Ok(b'?'));
    assert_eq!(read(&right, 9).unwrap_err(), Error::WouldBlock);
    // Alone it is nothing to read.
    urge(&left, b"!").unwrap();
    assert_eq!(peek(&right, 9, false).unwrap_err(), Error::WouldBlock);
    assert_eq!(read(&right, 9).unwrap_err(), Error::WouldBlock);
    assert!(right.poll(None).intersection(PollEvents::INPUT).is_empty());
}

#[test]
fn an_urgent_byte_in_line_is_read_like_others() {
    let _alone = alone();
    let (left, right) = pair(Kind::Stream);
    socket(&right).options().set_flag(Flags::OUT_OF_BAND_INLINE, true);
    assert_eq!((urge(&left, b"abc!"), write(&left, b"def")), (Ok(4), Ok(3)));
    assert_eq!(take_urgent(&right, false), Err(Error::Invalid));
    assert_eq!(read(&right, 9).unwrap(), b"abc");
    assert_eq!(peek(&right, 9, false).unwrap().0, b"!def");
    assert!(socket(&right).is_at_mark());
    assert_eq!(read(&right, 9).unwrap(), b"!def");
    assert!(!right.poll(None).contains(PollEvents::PRIORITY));
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

fn listening(kind: Kind, name: &[u8]) -> Result<Arc<OpenFile>, Error> {
    let file = create(kind, OpenFlags::NON_BLOCK, (8, 9), 0)?;
    socket(&file).bind_abstract(name)?;
    socket(&file).listen(3, MAKER)?;
    Ok(file)
}

fn connected(kind: Kind, name: &[u8]) -> Result<Arc<OpenFile>, Error> {
    let file = create(kind, OpenFlags::NON_BLOCK, (8, 9), 0)?;
    socket(&file).connect(|| find_abstract(name, kind, 0), true, &MAKER)?;
    Ok(file)
}

fn accept(listener: &OpenFile) -> Result<Arc<OpenFile>, Error> {
    socket(listener).accept(true, OpenFlags::NON_BLOCK, 8, 9)
}

fn datagram(name: &[u8]) -> Result<Arc<OpenFile>, Error> {
    let file = create(Kind::Datagram, OpenFlags::NON_BLOCK, (8, 9), 0)?;
    socket(&file).bind_abstract(name)?;
    Ok(file)
}

fn send_to(from: &OpenFile, name: &[u8], bytes: &[u8]) -> Result<usize, Error> {
    let to = Some(find_abstract(name, Kind::Datagram, 0)?);
    socket(from).send(&mut Source::kernel(bytes), Sending { non_block: true, to, ..Sending::default() })
}

#[test]
fn who_connects_may_send_before_it_is_accepted() {
    let _alone = alone();
    let listener = listening(Kind::Stream, b"\0early").unwrap();
    let client = connected(Kind::Stream, b"\0early").unwrap();
    write(&client, b"hello").unwrap();
    assert!(listener.poll(None).contains(PollEvents::READABLE));
    let accepted = accept(&listener).unwrap();
    assert_eq!(read(&accepted, 9).unwrap(), b"hello");
    assert_eq!(accept(&listener).err(), Some(Error::WouldBlock));
    assert_eq!(socket(&client).peer_name().unwrap().unwrap().as_bytes(), b"\0early");
    drop(accepted);
    assert_eq!(read(&client, 9).unwrap(), b"");
}

#[test]
fn a_name_is_free_when_its_socket_ends() {
    let _alone = alone();
    let first = listening(Kind::Stream, b"\0name").unwrap();
    assert_eq!(listening(Kind::Stream, b"\0name").err(), Some(Error::AddressInUse));
    let client = connected(Kind::Stream, b"\0name").unwrap();
    let accepted = accept(&first).unwrap();
    drop(first);
    assert_eq!(connected(Kind::Stream, b"\0name").err(), Some(Error::ConnectionRefused));
    let second = listening(Kind::Stream, b"\0name").unwrap();
    // The end of a connection that has the name as well takes it from nobody.
    drop((client, accepted));
    drop(connected(Kind::Stream, b"\0name").unwrap());
    drop(second);
}

#[test]
fn connections_that_wait_are_limited_and_reset_with_the_listener() {
    let _alone = alone();
    let listener = listening(Kind::SequentialPacket, b"\0limited").unwrap();
    let clients: Vec<_> = (0..4).map(|_| connected(Kind::SequentialPacket, b"\0limited").unwrap()).collect();
    assert_eq!(connected(Kind::SequentialPacket, b"\0limited").err(), Some(Error::WouldBlock));
    drop(listener);
    for client in clients {
        assert_eq!(read(&client, 1).unwrap_err(), Error::ConnectionReset);
        assert!(client.poll(None).contains(PollEvents::HANG_UP));
    }
}

#[test]
fn datagrams_of_others_are_limited_and_count_with_their_senders() {
    let _alone = alone();
    let (receiver, sender) = (datagram(b"\0to").unwrap(), datagram(b"\0from").unwrap());
    for _ in 0..11 {
        send_to(&sender, b"\0to", b"m").unwrap();
    }
    assert_eq!(send_to(&sender, b"\0to", b"m").unwrap_err(), Error::WouldBlock);
    assert!(socket(&sender).own().charged() > 0);
    drop(receiver);
    assert_eq!(socket(&sender).own().charged(), 0);
    assert_eq!(send_to(&sender, b"\0to", b"m").unwrap_err(), Error::ConnectionRefused);
}

#[test]
fn a_connected_datagram_socket_takes_messages_of_its_peer() {
    let _alone = alone();
    let [one, two, three] = [b"\x001", b"\x002", b"\x003"].map(|name| datagram(name).unwrap());
    socket(&one).redirect(Some(find_abstract(b"\x002", Kind::Datagram, 0).unwrap())).unwrap();
    assert_eq!(send_to(&three, b"\x001", b"m").unwrap_err(), Error::NotPermitted);
    send_to(&two, b"\x001", b"m").unwrap();
    socket(&one).redirect(None).unwrap();
    assert_eq!(read(&one, 1).unwrap_err(), Error::WouldBlock);
    send_to(&three, b"\x001", b"m").unwrap();
    // Connected to each other and to itself: no pair keeps another one.
    socket(&one).redirect(Some(find_abstract(b"\x002", Kind::Datagram, 0).unwrap())).unwrap();
    socket(&two).redirect(Some(find_abstract(b"\x001", Kind::Datagram, 0).unwrap())).unwrap();
    socket(&three).redirect(Some(find_abstract(b"\x003", Kind::Datagram, 0).unwrap())).unwrap();
    write(&three, b"own").unwrap();
    let pairs = [&one, &two, &three].map(|file| Arc::downgrade(&socket(file).at.pair));
    drop((one, two, three));
    assert!(pairs.iter().all(|pair| pair.strong_count() == 0));
}

#[test]
fn a_listener_in_the_inbox_of_who_waits_there_is_collected() {
    let _alone = alone();
    let listener = listening(Kind::Stream, b"\0cycle").unwrap();
    let client = connected(Kind::Stream, b"\0cycle").unwrap();
    pass(&client, vec![listener.clone(), client.clone()]).unwrap();
    let watched = [&listener, &client].map(Arc::downgrade);
    drop(client);
    drop(pair(Kind::Stream));
    assert!(watched.iter().all(|file| file.strong_count() > 0), "somebody has the listener");
    drop(listener);
    drop(pair(Kind::Stream));
    assert!(watched.iter().all(|file| file.strong_count() == 0));
    assert_eq!(in_flight(), 0);
}

#[test]
fn what_waits_at_a_listener_in_flight_lives_when_it_is_received() {
    let _alone = alone();
    let listener = listening(Kind::Stream, b"\0travels").unwrap();
    let client = connected(Kind::Stream, b"\0travels").unwrap();
    let (inner, other) = pair(Kind::Stream);
    pass(&client, vec![inner]).unwrap();
    let (left, right) = pair(Kind::Stream);
    pass(&left, vec![listener]).unwrap();
    drop(pair(Kind::Stream));
    let how = Receiving { non_block: true, ..Receiving::default() };
    let mut byte = [0];
    let listener = socket(&right).receive(&mut Sink::kernel(&mut byte), how).unwrap().files.remove(0);
    let accepted = accept(&listener).unwrap();
    drop(listener);
    drop(pair(Kind::Stream));
    write(&other, b"there").unwrap();
    let received = socket(&accepted).receive(&mut Sink::kernel(&mut byte), how).unwrap();
    assert_eq!(read(&received.files[0], 9).unwrap(), b"there");
}

#[test]
fn each_side_of_a_connection_sees_the_others_groups() {
    let _alone = alone();
    let of = |group: u32| Principal { groups: Some(Arc::new(vec![group])), ..MAKER };
    let groups = |file: &OpenFile| socket(file).peer_principal().map(|peer| peer.groups);
    let listener = listening(Kind::Stream, b"\0groups").unwrap();
    assert_eq!(groups(&listener), Some(None));
    socket(&listener).listen(1, of(1)).unwrap();
    assert_eq!(groups(&listener), Some(of(1).groups));
    let client = create(Kind::Stream, OpenFlags::NON_BLOCK, (8, 9), 0).unwrap();
    assert!(groups(&client).is_none());
    socket(&client).connect(|| find_abstract(b"\0groups", Kind::Stream, 0), true, &of(2)).unwrap();
    // What the listener has become since is not what it was.
    socket(&listener).listen(1, of(3)).unwrap();
    let accepted = accept(&listener).unwrap();
    assert_eq!((groups(&client), groups(&accepted)), (Some(of(1).groups), Some(of(2).groups)));
}

#[test]
fn names_and_connections_are_undone_when_memory_runs_out() {
    let _alone = alone();
    memory::fallible::exhaust("unix names", || {
        let result = listening(Kind::Stream, b"\0memory").and_then(|listener| {
            let client = connected(Kind::Stream, b"\0memory")?;
            pass(&client, vec![listener.clone(), client.clone()])?;
            let accepted = accept(&listener)?;
            write(&accepted, b"answer")?;
            let (one, two) = (datagram(b"\0one")?, datagram(b"\0two")?);
            socket(&one).redirect(Some(find_abstract(b"\0two", Kind::Datagram, 0)?))?;
            write(&one, &[1; 5000])?;
            read(&two, 1)?;
            read(&client, 10)
        });
        assert!(matches!(result.as_deref(), Ok(b"answer") | Err(Error::OutOfMemory)), "{result:?}");
        // A listener that is lost keeps its name until it is found; one of the two collections may be without memory.
        for _ in 0..2 {
            drop(create_pair(Kind::Stream, OpenFlags::empty(), OWNER));
        }
    });
    drop(pair(Kind::Stream));
    assert_eq!(in_flight(), 0);
    for (name, kind) in
        [(b"\0memory".as_slice(), Kind::Stream), (b"\0one", Kind::Datagram), (b"\0two", Kind::Datagram)]
    {
        assert_eq!(find_abstract(name, kind, 0).err(), Some(Error::ConnectionRefused));
    }
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
