//! A console device: start, control messages, removal.
//!
//! # Queues
//! Two for each port, of which the first [`PORTS_MAX`] are used, and two for messages about ports if the device has more than one. Messages are taken
//! by a thread of the device, which also hands terminals their input. Messages to the device are few: they are written one by one, each waited for.
//!
//! # States
//! Working or *gone*, for good: pulled out, or broken the rules. What waits for a port then ends.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use device::dma::Buffer;
use device::model::{Binding, DriverError, Number, Numbers};
use device::signal::Signal;
use machine::address::PhysAddr;
use memory::fallible;
use sched::{Completion, Mutex, WaitQueue};
use sync::{Once, SpinLock};

use super::control::{self, Message, event};
use super::port::{BUFFERS, Direction, Port};
use super::{file, kept, terminal};
use crate::ring::{Piece, Ring};
use crate::start;
use crate::transport::{Connection, Handlers, Notifier, Transport};

/// Features.
const SIZE: u64 = 1 << 0;
const MULTIPORT: u64 = 1 << 1;
/// Ports of a device that are used.
pub(super) const PORTS_MAX: u32 = 8;
/// Bytes of a message from the device, with a name behind it.
const MESSAGE_BYTES: usize = 128;
/// How long the device may take to read a message.
const MESSAGE_NS: u64 = 1_000_000_000;
/// Between looks whether it has: twice as long each time.
const PAUSE_NS: u64 = 20_000;
const PAUSE_MAX_NS: u64 = 1_000_000;
/// The queues of messages; those of port 0 are before, those of the others behind.
const CONTROL: u16 = 2;

/// What interrupts wake.
pub(super) struct Events {
    data: Vec<WaitQueue>,
    room: Vec<WaitQueue>,
    /// The device's thread.
    signal: Signal,
    broken: AtomicBool,
    /// Those that are woken for the port that the kernel keeps.
    kept: Once<kept::Queues>,
}

impl Events {
    pub(super) fn new(ports: u32) -> Result<Self, memory::OutOfMemory> {
        let queues = || {
            let mut queues = fallible::try_vec(ports as usize)?;
            queues.extend((0..ports).map(|_| WaitQueue::new()));
            Ok::<_, memory::OutOfMemory>(queues)
        };
        Ok(Self {
            data: queues()?,
            room: queues()?,
            signal: Signal::default(),
            broken: AtomicBool::new(false),
            kept: Once::new(),
        })
    }

    fn kept(&self, port: u32) -> Option<&kept::Queues> {
        self.kept.get().filter(|kept| kept.port == port)
    }

    pub(super) fn data(&self, port: u32) -> &WaitQueue {
        self.kept(port).map_or_else(|| &self.data[port as usize], |kept| kept.data)
    }

    pub(super) fn room(&self, port: u32) -> &WaitQueue {
        self.kept(port).map_or_else(|| &self.room[port as usize], |kept| kept.room)
    }

    /// The device is to be stopped.
    pub(super) fn set_broken(&self) {
        self.broken.store(true, Ordering::Release);
        self.signal.raise();
    }

    /// Has the device's thread look.
    pub(super) fn attend(&self) {
        self.signal.raise();
    }
}

/// The port of a queue, and whether it is the one for what comes in. None for those of messages.
fn port_of(queue: usize) -> Option<(usize, bool)> {
    let port = match queue / 2 {
        0 => 0,
        1 => return None,
        more => more - 1,
    };
    Some((port, queue.is_multiple_of(2)))
}

impl Handlers for Events {
    fn queue(&self, index: usize) {
        match port_of(index) {
            Some((port, _)) if port >= self.data.len() => {}
            Some((port, comes_in)) => {
                let queue = if comes_in { self.data(port as u32) } else { self.room(port as u32) };
                queue.wake_all();
                // The device's thread serves terminals.
                if self.kept(port as u32).is_none() {
                    self.signal.raise();
                }
            }
            None => self.signal.raise(),
        }
    }

    fn configuration(&self) {
        self.signal.raise();
    }

    fn queue_name(&self, index: usize) -> String {
        let comes_in = index.is_multiple_of(2);
        let name = match (port_of(index), comes_in) {
            (Some(_), true) => "input",
            (Some(_), false) => "output",
            (None, true) => "control-i",
            (None, false) => "control-o",
        };
        name.into()
    }
}

/// The queues of messages.
struct Control {
    incoming: Ring<u16, Buffer>,
    incoming_notifier: Notifier,
    outgoing: Ring<(), Buffer>,
    outgoing_notifier: Notifier,
    /// Buffers of the first, then one of the second.
    memory: Buffer,
    buffers: u16,
}

/// See the theory of this file.
pub(super) struct Console {
    transport: Box<dyn Transport>,
    pub(super) number: Number,
    has_size: bool,
    ports: Vec<Arc<Port>>,
    terminals: Mutex<Vec<Arc<terminal::Hvc>>>,
    control: Option<SpinLock<Control>>,
    events: Arc<Events>,
    gone: AtomicBool,
    ended: Completion,
    /// Held by who sends a message.
    sending: Mutex<()>,
    connection: SpinLock<Option<Connection>>,
}

fn exhausted(_: memory::OutOfMemory) -> DriverError {
    DriverError::Exhausted
}

/// Takes a device that is a console.
pub(crate) fn probe(transport: Box<dyn Transport>) -> Result<Arc<dyn Binding>, DriverError> {
    static NUMBERS: Numbers = Numbers::new();
    let number = NUMBERS.take().ok_or(DriverError::Exhausted)?;
    let begun = begin(&*transport).inspect_err(|_| {
        start::stop(&*transport, "virtio-console");
        transport.disconnect();
        start::give_up(&*transport);
    })?;
    let console = Arc::new(Console {
        transport,
        number,
        has_size: begun.features & SIZE != 0,
        ports: begun.ports,
        terminals: Mutex::named("virtio terminals", Vec::new()),
        control: begun.control.map(|control| SpinLock::named("virtio console control", control)),
        events: begun.events,
        gone: AtomicBool::new(false),
        ended: Completion::default(),
        sending: Mutex::named("virtio console messages", ()),
        connection: SpinLock::named("virtio interrupts", Some(begun.connection)),
    });
    start::go(&*console.transport);
    let own = console.clone();
    if sched::spawn(sched::Builder::new("virtio-console"), Box::new(move || own.serve())).is_err() {
        console.ended.complete();
        console.end();
        return Err(DriverError::Exhausted);
    }
    console.begin_ports();
    Ok(console)
}

struct Begun {
    features: u64,
    events: Arc<Events>,
    connection: Connection,
    ports: Vec<Arc<Port>>,
    control: Option<Control>,
}

fn begin(transport: &dyn Transport) -> Result<Begun, DriverError> {
    let features = start::negotiate(transport, SIZE | MULTIPORT)?;
    let is_multiport = features & MULTIPORT != 0;
    let said = start::read_configuration(transport, |window| window.read_u32(4));
    let count = if is_multiport { said.clamp(1, PORTS_MAX) } else { 1 };
    let events = fallible::try_arc(Events::new(count).map_err(exhausted)?).map_err(exhausted)?;
    let queues = if is_multiport { 2 * (count as usize + 1) } else { 2 };
    let connection = transport.connect(queues, events.clone()).ok_or(DriverError::Exhausted)?;
    let mut ports = fallible::try_vec(count as usize).map_err(exhausted)?;
    for id in 0..count {
        let first = if id == 0 { 0 } else { 2 * (id as u16 + 1) };
        let direction = |queue| {
            let (ring, notifier, size) = start::start_queue(transport, queue, features, BUFFERS, 1)?;
            Ok(Direction::new(ring, notifier, size))
        };
        let (receive, transmit) = (direction(first)?, direction(first + 1)?);
        ports.push(Arc::new(Port::new(id, events.clone(), receive, transmit)));
    }
    let control = if is_multiport { Some(Control::start(transport, features)?) } else { None };
    Ok(Begun { features, events, connection, ports, control })
}

impl Control {
    fn start(transport: &dyn Transport, features: u64) -> Result<Self, DriverError> {
        let memory = Buffer::allocate((usize::from(BUFFERS) + 1) * MESSAGE_BYTES);
        let memory = memory.map_err(|error| start::stopped(transport, exhausted(error)))?;
        let (incoming, incoming_notifier, buffers) =
            start::start_queue(transport, CONTROL, features, BUFFERS, 1)?;
        let (outgoing, outgoing_notifier, _) =
            start::start_queue(transport, CONTROL + 1, features, BUFFERS, 1)?;
        let mut control = Self { incoming, incoming_notifier, outgoing, outgoing_notifier, memory, buffers };
        (0..buffers).for_each(|number| control.give(number));
        Ok(control)
    }

    fn address(&self, number: u16) -> PhysAddr {
        PhysAddr::new(self.memory.physical().as_u64() + (usize::from(number) * MESSAGE_BYTES) as u64)
    }

    fn give(&mut self, number: u16) {
        let piece = Piece::written(self.address(number), MESSAGE_BYTES as u32);
        let added = self.incoming.add(&[piece], number);
        debug_assert!(added.is_ok(), "there are no more buffers than descriptors");
    }

    /// Shows the device what was given to it.
    fn publish(&mut self) {
        if self.incoming.publish() {
            self.incoming_notifier.notify();
        }
    }
}

impl Console {
    /// Asks the device for its ports, or has the only one.
    fn begin_ports(&self) {
        match &self.control {
            Some(control) => {
                control.lock().publish();
                self.events.attend();
                self.send(Message { port: 0, event: event::DEVICE_READY, value: 1 });
            }
            None => {
                if let Ok(true) = self.ports[0].appear() {
                    self.ports[0].set_connected(true);
                    self.make_terminal(&self.ports[0]);
                }
            }
        }
    }

    /// Tells the device something, and waits until it has read it.
    pub(super) fn send(&self, message: Message) {
        let Some(control) = &self.control else { return };
        let _sending = self.sending.lock();
        {
            let mut control = control.lock();
            if self.gone.load(Ordering::Acquire) {
                return;
            }
            let buffers = control.buffers;
            control.memory.write(usize::from(buffers) * MESSAGE_BYTES, &message.encode());
            let piece = Piece::read(control.address(buffers), Message::BYTES as u32);
            control.outgoing.refuse_interrupts();
            if control.outgoing.add(&[piece], ()).is_err() {
                return;
            }
            if control.outgoing.publish() {
                control.outgoing_notifier.notify();
            }
        }
        let until_ns = machine::time::now_ns() + MESSAGE_NS;
        let mut pause_ns = PAUSE_NS;
        loop {
            match control.lock().outgoing.take() {
                Ok(Some(((), _))) => return,
                Ok(None) => {}
                Err(trouble) => {
                    log::error!("virtio console: the device breaks the rules: {trouble:?}");
                    return self.events.set_broken();
                }
            }
            let now_ns = machine::time::now_ns();
            if self.gone.load(Ordering::Acquire) {
                return;
            }
            if now_ns > until_ns {
                log::error!("virtio console: the device does not read messages");
                return self.events.set_broken();
            }
            sched::timer::sleep_until_uninterruptible(now_ns + pause_ns);
            pause_ns = (2 * pause_ns).min(PAUSE_MAX_NS);
        }
    }

    fn serve(self: Arc<Self>) {
        loop {
            self.events.signal.wait();
            if self.events.broken.load(Ordering::Acquire) {
                self.stop();
            }
            if self.gone.load(Ordering::Acquire) {
                break;
            }
            while self.is_at_work() && self.take_message() {}
            if self.has_size && self.control.is_none() {
                self.take_size();
            }
            self.terminals.lock().iter().for_each(|terminal| terminal.serve());
        }
        self.clear();
        self.ended.complete();
    }

    /// Whether the device neither is gone nor is to be stopped.
    fn is_at_work(&self) -> bool {
        !self.gone.load(Ordering::Acquire) && !self.events.broken.load(Ordering::Acquire)
    }

    /// The size of the only terminal, as the configuration says.
    fn take_size(&self) {
        let (columns, rows) =
            start::read_configuration(&*self.transport, |window| (window.read_u16(0), window.read_u16(2)));
        if let Some(terminal) = self.terminals.lock().first() {
            terminal.resize(rows, columns);
        }
    }

    /// Takes a message. False if there is none.
    fn take_message(self: &Arc<Self>) -> bool {
        let Some(control) = &self.control else { return false };
        let mut bytes = [0; MESSAGE_BYTES];
        let length = {
            let mut control = control.lock();
            let taken = match control.incoming.take() {
                Ok(None) if control.incoming.want_interrupt() => return true,
                taken => taken,
            };
            match taken {
                Ok(None) => return false,
                Ok(Some((number, length))) => {
                    control.memory.read(usize::from(number) * MESSAGE_BYTES, &mut bytes);
                    control.give(number);
                    control.publish();
                    (length as usize).min(MESSAGE_BYTES)
                }
                Err(trouble) => {
                    log::error!("virtio console: the device breaks the rules: {trouble:?}");
                    drop(control);
                    self.events.set_broken();
                    return false;
                }
            }
        };
        if let Some((message, rest)) = Message::decode(&bytes[..length]) {
            self.understand(message, rest);
        }
        true
    }

    fn understand(self: &Arc<Self>, message: Message, rest: &[u8]) {
        let Message { port: id, event, value } = message;
        let Some(port) = self.ports.get(id as usize) else {
            if event == event::PORT_ADDED {
                log::warn!("virtio console: port {id} is one too many");
                self.send(Message { port: id, event: event::PORT_READY, value: 0 });
            }
            return;
        };
        match event {
            event::PORT_ADDED => self.add(port),
            event::PORT_REMOVED => self.remove_port(port),
            event::IS_CONSOLE if port.is_there() => {
                self.make_terminal(port);
                self.send(Message { port: id, event: event::OPEN, value: 1 });
            }
            event::RESIZE => {
                let terminals = self.terminals.lock();
                if let (Some(terminal), Some((columns, rows))) =
                    (terminals.iter().find(|terminal| terminal.is_of(port)), control::size(rest))
                {
                    terminal.resize(rows, columns);
                }
            }
            event::OPEN if port.is_there() => port.set_connected(value != 0),
            event::NAME if port.is_there() => {
                let text = rest.split(|byte| *byte == 0).next().unwrap_or_default();
                let name: String = text
                    .iter()
                    .filter(|byte| byte.is_ascii_graphic())
                    .map(|byte| char::from(*byte))
                    .collect();
                let kept = kept::wanted(id, &name);
                file::name(self, port, name);
                kept.into_iter().for_each(|queues| self.keep(port, queues));
            }
            _ => {}
        }
    }

    fn add(self: &Arc<Self>, port: &Arc<Port>) {
        match port.appear() {
            Ok(true) => {
                file::appear(self, port);
                self.send(Message { port: port.id, event: event::PORT_READY, value: 1 });
            }
            Ok(false) => {}
            Err(memory::OutOfMemory) => {
                log::error!("virtio console: no memory for port {}", port.id);
                self.send(Message { port: port.id, event: event::PORT_READY, value: 0 });
            }
        }
    }

    /// Hands a port over to who has waited for one of its name, unless a program was first.
    fn keep(&self, port: &Arc<Port>, queues: kept::Queues) {
        if !port.is_there() || port.is_open.swap(true, Ordering::AcqRel) {
            return;
        }
        self.events.kept.call_once(|| queues);
        self.send(Message { port: port.id, event: event::OPEN, value: 1 });
        kept::hand_over(port);
    }

    fn remove_port(&self, port: &Arc<Port>) {
        if port.disappear() {
            file::disappear(self, port);
        }
        let mut terminals = self.terminals.lock();
        if let Some(at) = terminals.iter().position(|terminal| terminal.is_of(port)) {
            let terminal = terminals.swap_remove(at);
            drop(terminals);
            terminal.end();
        }
    }

    /// Whether the port is a terminal.
    pub(super) fn is_terminal(&self, port: &Arc<Port>) -> bool {
        self.terminals.lock().iter().any(|terminal| terminal.is_of(port))
    }

    fn make_terminal(&self, port: &Arc<Port>) {
        let mut terminals = self.terminals.lock();
        if terminals.iter().any(|terminal| terminal.is_of(port)) {
            return;
        }
        match terminal::Hvc::make(port, &self.events) {
            Ok(terminal) => terminals.push(terminal),
            Err(error) => log::error!("virtio console: no terminal for port {}: {error}", port.id),
        }
    }

    /// The device is at work no more: its ports are at their end.
    fn stop(&self) {
        if self.gone.swap(true, Ordering::AcqRel) {
            return;
        }
        start::stop(&*self.transport, "virtio-console");
        self.ports.iter().for_each(|port| port.end());
    }

    /// Takes away what there was of the device. By its thread, which also makes such things, as the last that it does.
    fn clear(&self) {
        for port in &self.ports {
            if port.disappear() {
                file::disappear(self, port);
            }
        }
        let terminals = core::mem::take(&mut *self.terminals.lock());
        terminals.iter().for_each(|terminal| terminal.end());
    }

    fn end(&self) {
        self.stop();
        self.events.attend();
        self.ended.wait();
        let connection = self.connection.lock().take();
        drop(connection);
        self.transport.disconnect();
        self.transport.shut_off();
        self.number.release();
    }
}

impl Binding for Console {
    fn remove(&self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_belong_to_ports_as_the_specification_says() {
        let found: Vec<_> = (0..8).map(port_of).collect();
        let port = |port, comes_in| Some((port, comes_in));
        let expected = [port(0, true), port(0, false), None, None, port(1, true), port(1, false)];
        assert_eq!(found[..6], expected);
        assert_eq!(found[6..], [port(2, true), port(2, false)]);
    }
}
