//! Local sockets by name.

use linux_raw_sys::general as abi;

use crate::machine_under_test::exhaust;
use crate::program::{ARENA, Program};

const FAMILY: u64 = 1;
const STREAM: u64 = 1;
const DATAGRAM: u64 = 2;
/// Bytes of an address with a path.
const LENGTH: u64 = 2 + PATH.len() as u64 + 1;
const PATH: &str = "/tmp/socket";

/// An address with a name of the length of [`PATH`].
fn address(program: &mut Program<'_>, name: &[u8]) -> u64 {
    let mut bytes = vec![FAMILY as u8, 0];
    bytes.extend_from_slice(name);
    bytes.push(0);
    program.bytes(&bytes)
}

#[test]
fn a_connection_from_its_name_to_its_end() {
    exhaust("connections by name", 30, |program| {
        let name = address(program, PATH.as_bytes());
        let listener = program.must(abi::__NR_socket, &[FAMILY, STREAM, 0]);
        let path = program.text(PATH);
        program.must(abi::__NR_bind, &[listener, name, LENGTH]);
        program.must(abi::__NR_listen, &[listener, 3]);
        let client = program.must(abi::__NR_socket, &[FAMILY, STREAM, 0]);
        program.must(abi::__NR_connect, &[client, name, LENGTH]);
        assert_eq!(program.must(abi::__NR_write, &[client, ARENA, 5000]), 5000);
        let accepted = program.must(abi::__NR_accept4, &[listener, 0, 0, 0]);
        let got = program.must(abi::__NR_read, &[accepted, ARENA, 5000]);
        assert!(got > 0);
        program.must(abi::__NR_close, &[client]);
        program.must(abi::__NR_close, &[accepted]);
        program.must(abi::__NR_close, &[listener]);
        program.must(abi::__NR_unlink, &[path]);
    });
}

#[test]
fn datagrams_to_a_name() {
    exhaust("datagrams to a name", 15, |program| {
        let name = address(program, b"\0abstracted");
        let receiver = program.must(abi::__NR_socket, &[FAMILY, DATAGRAM, 0]);
        program.must(abi::__NR_bind, &[receiver, name, LENGTH]);
        let sender = program.must(abi::__NR_socket, &[FAMILY, DATAGRAM, 0]);
        assert_eq!(program.must(abi::__NR_sendto, &[sender, ARENA, 3000, 0, name, LENGTH]), 3000);
        program.must(abi::__NR_connect, &[sender, name, LENGTH]);
        assert_eq!(program.must(abi::__NR_write, &[sender, ARENA, 10]), 10);
        assert_eq!(program.must(abi::__NR_read, &[receiver, ARENA, 5000]), 3000);
        program.must(abi::__NR_close, &[receiver]);
        program.must(abi::__NR_close, &[sender]);
    });
}
