//! Which device carries the host link.

use hostlink::{Link, Transport};
use sched::WaitQueue;
use serial::Port;
use sync::Once;

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

    fn room_queue(&self) -> &WaitQueue {
        self.0.room_queue()
    }

    fn read(&self, target: &mut [u8]) -> usize {
        self.0.read(target)
    }

    fn has_data(&self) -> bool {
        self.0.has_data()
    }

    fn data_queue(&self) -> &WaitQueue {
        self.0.data_queue()
    }

    fn write_in_panic(&self, bytes: &[u8]) {
        self.0.write_in_panic(bytes);
    }
}

/// Says hello to the host, if the machine has the port for it.
pub(crate) fn start() {
    static TRANSPORT: Once<SerialTransport> = Once::new();
    match Port::open(PORT) {
        Ok(port) => {
            if Link::start(TRANSPORT.call_once(|| SerialTransport(port))).is_err() {
                log::error!("no memory for the host link");
            }
        }
        Err(reason) => log::info!("no host link: {reason:?}"),
    }
}
