//! The driver against a UART made of memory.

use crate::{Port, Registers};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};
use machine::uart::Register;
use sched::Waker;
use std::sync::{Arc, Mutex};

/// What the UART has seen and will say.
#[derive(Default)]
struct Wire {
    sent: Vec<u8>,
    arriving: Vec<u8>,
    /// The other side takes nothing at the moment.
    stuck: bool,
    /// It takes nothing more after so many bytes.
    sticks_at: Option<usize>,
    interrupt_enable: u8,
    divisor_access: bool,
}

#[derive(Clone, Default)]
struct Fake(Arc<Mutex<Wire>>);

impl Registers for Fake {
    fn read(&self, register: Register) -> u8 {
        let mut wire = self.0.lock().expect("no test panics with the lock held");
        let received = !wire.arriving.is_empty();
        match register {
            Register::Data => wire.arriving.remove(0),
            Register::LineStatus => u8::from(received) | u8::from(!wire.stuck) << 5,
            Register::InterruptCause => {
                let pending = (received && wire.interrupt_enable & 1 != 0)
                    || (!wire.stuck && wire.interrupt_enable & 2 != 0);
                u8::from(!pending)
            }
            _ => 0,
        }
    }

    fn write(&self, register: Register, value: u8) {
        let mut wire = self.0.lock().expect("no test panics with the lock held");
        match register {
            Register::LineControl => wire.divisor_access = value & 0x80 != 0,
            Register::Data if !wire.divisor_access => {
                wire.sent.push(value);
                wire.stuck |= wire.sticks_at == Some(wire.sent.len());
            }
            Register::InterruptEnable if !wire.divisor_access => wire.interrupt_enable = value,
            _ => {}
        }
    }
}

fn open() -> (Fake, Port<Fake>) {
    let fake = Fake::default();
    let port = Port::new(fake.clone()).expect("memory");
    port.start();
    (fake, port)
}

impl Fake {
    fn with<T>(&self, action: impl FnOnce(&mut Wire) -> T) -> T {
        action(&mut self.0.lock().expect("no test panics with the lock held"))
    }
}

#[test]
fn bytes_leave_at_once_while_the_transmitter_takes_them() {
    let (fake, port) = open();
    assert!(port.try_write_all(&[b"head", &[7; 100]]));
    assert!(port.is_drained());
    fake.with(|wire| {
        assert_eq!(&wire.sent[..4], b"head");
        assert_eq!(wire.sent.len(), 104);
        assert_eq!(wire.interrupt_enable, 1, "no transmit interrupt without need");
    });
}

#[test]
fn slow_transmitter_is_served_by_its_interrupt() {
    let (fake, port) = open();
    fake.with(|wire| wire.stuck = true);
    assert!(port.try_write_all(&[&[9; 1000]]));
    fake.with(|wire| assert_eq!((wire.sent.len(), wire.interrupt_enable), (0, 3)));
    fake.with(|wire| wire.stuck = false);
    while !port.is_drained() {
        port.interrupt();
    }
    port.interrupt();
    fake.with(|wire| assert_eq!((wire.sent.len(), wire.interrupt_enable), (1000, 1)));
}

/// Counts wake-ups.
#[derive(Default)]
struct Count(AtomicU32);

impl Waker for Count {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn who_waits_until_all_has_left_is_woken_when_the_fifo_is_empty() {
    let (fake, port) = open();
    fake.with(|wire| wire.sticks_at = Some(4));
    assert!(port.try_write_all(&[b"last"]));
    assert!(!port.is_drained(), "the bytes are in the FIFO");
    fake.with(|wire| assert_eq!((wire.sent.len(), wire.interrupt_enable), (4, 3)));
    let woken = Arc::new(Count::default());
    let _registration = port.room_queue().register(woken.clone());
    fake.with(|wire| wire.stuck = false);
    port.interrupt();
    assert!(port.is_drained());
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    fake.with(|wire| assert_eq!(wire.interrupt_enable, 1));
}

#[test]
fn message_that_does_not_fit_is_not_begun() {
    let (fake, port) = open();
    fake.with(|wire| wire.stuck = true);
    let room = port.transmit_room();
    assert!(!port.try_write_all(&[&[0], &std::vec![1; room]]));
    assert_eq!(port.transmit_room(), room);
    assert!(port.try_write_all(&[&std::vec![1; room]]));
    assert!(!port.try_write_all(&[b"x"]));
}

#[test]
fn full_receiver_pauses_and_goes_on_after_a_read() {
    let (fake, port) = open();
    let all: Vec<u8> = (0..5000_u32).map(|number| number as u8).collect();
    fake.with(|wire| wire.arriving = all.clone());
    for _ in 0..100 {
        port.interrupt();
    }
    fake.with(|wire| assert_eq!((wire.arriving.len(), wire.interrupt_enable), (5000 - 4096, 0)));
    let mut got = Vec::new();
    let mut piece = [0; 300];
    loop {
        let count = port.read(&mut piece);
        if count == 0 {
            break;
        }
        got.extend_from_slice(&piece[..count]);
        port.interrupt();
    }
    assert!(got == all, "bytes arrive complete and in order");
}

#[test]
fn panic_output_follows_what_was_queued() {
    let (fake, port) = open();
    fake.with(|wire| wire.stuck = true);
    assert!(port.try_write_all(&[b"queued "]));
    fake.with(|wire| wire.stuck = false);
    port.write_in_panic(b"last words");
    fake.with(|wire| assert_eq!(wire.sent, b"queued last words"));
}

#[test]
fn retired_port_has_room_for_the_last_bytes_only() {
    let (fake, port) = open();
    fake.with(|wire| wire.stuck = true);
    let room = port.transmit_room();
    assert!(port.try_write_all(&[&std::vec![1; room]]));
    port.retire(b"last");
    port.retire(b"not again");
    fake.with(|wire| wire.stuck = false);
    while !port.is_drained() {
        port.interrupt();
    }
    assert_eq!(port.transmit_room(), 0);
    assert!(!port.try_write_all(&[b"x"]));
    port.write_in_panic(b"!");
    fake.with(|wire| assert_eq!(&wire.sent[room..], b"last!"));
    port.resume();
    assert!(port.try_write_all(&[b"on"]));
    fake.with(|wire| assert_eq!(&wire.sent[room..], b"last!on"));
}
