//! Which devices carry the host link: a serial port from the start, and a port of a virtio console from when that is found.

use hostlink::{FirstTransport, Link, Queues, SecondTransport, Transport};
use hostlink_protocol::{MAX_FRAME, PORT_NAME};
use machine::boot;
use serial::Port;
use sync::Once;
use virtio::KeptPort;

/// The serial port that carries the host link: COM2.
const PORT: usize = 1;

/// A serial port as the link sees it.
struct SerialTransport(&'static Port);

impl Transport for SerialTransport {
    fn try_write_all(&self, pieces: &[&[u8]]) -> bool {
        self.0.try_write_all(pieces)
    }

    fn transmit_room(&self) -> usize {
        self.0.transmit_room()
    }

    fn is_drained(&self) -> bool {
        self.0.is_drained()
    }

    fn read(&self, target: &mut [u8]) -> usize {
        self.0.read(target)
    }

    fn has_data(&self) -> bool {
        self.0.has_data()
    }
}

impl FirstTransport for SerialTransport {
    fn retire(&self, last: &[u8]) {
        self.0.retire(last);
    }

    fn resume(&self) {
        self.0.resume();
    }

    fn write_in_panic(&self, bytes: &[u8]) {
        self.0.write_in_panic(bytes);
    }
}

/// A port of a virtio console as the link sees it.
struct ConsoleTransport(KeptPort);

impl Transport for ConsoleTransport {
    fn try_write_all(&self, pieces: &[&[u8]]) -> bool {
        self.0.try_write_all(pieces)
    }

    fn transmit_room(&self) -> usize {
        self.0.room(MAX_FRAME)
    }

    fn is_drained(&self) -> bool {
        self.0.is_drained()
    }

    fn read(&self, target: &mut [u8]) -> usize {
        self.0.read(target)
    }

    fn has_data(&self) -> bool {
        self.0.has_data()
    }
}

impl SecondTransport for ConsoleTransport {
    fn is_gone(&self) -> bool {
        self.0.is_gone()
    }
}

/// Says hello to the host, if the machine has the serial port for it.
pub(crate) fn start() {
    static TRANSPORT: Once<SerialTransport> = Once::new();
    match Port::open(PORT) {
        Ok(port) => {
            let queues = Queues { room: port.room_queue(), data: port.data_queue() };
            if Link::start(TRANSPORT.call_once(|| SerialTransport(port)), queues).is_err() {
                log::error!("no memory for the host link");
            }
        }
        Err(reason) => log::info!("no host link: {reason:?}"),
    }
}

/// Whether the host has a console for the link to move to.
pub(crate) fn moves() -> bool {
    boot::info().option("link") == Some("virtio")
}

/// Has the link move when that console is found.
pub(crate) fn move_when_found() {
    if let (true, Some(link)) = (moves(), Link::get()) {
        let queues = link.queues();
        virtio::keep_port(PORT_NAME, queues.room, queues.data, move_to);
    }
}

fn move_to(port: KeptPort) {
    let transport = memory::fallible::try_box(ConsoleTransport(port));
    match (Link::get(), transport) {
        (Some(link), Ok(transport)) => link.move_to(transport),
        _ => log::error!("no memory to move the host link"),
    }
}
