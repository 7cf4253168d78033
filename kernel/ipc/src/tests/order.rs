//! Who is served first.

use super::{Actor, KERNEL, boot, cpu};
use crate::{Endpoint, Operation, Options, Timeout};
use sched::{Policy, Thread};

/// Senders of given priorities, started in this order, and the order in which they are received.
fn served(priorities: &[u8], closed_first: Option<usize>) -> Vec<u64> {
    let machine = boot(2);
    let mut me = Endpoint::register(KERNEL, Options::default()).unwrap();
    let to = me.id();
    let mut senders = Vec::new();
    for (number, &priority) in priorities.iter().enumerate() {
        let sender = Actor::start(cpu(&machine, number % 2), move |endpoint| {
            if priority > 0 {
                Thread::set_policy(&sched::current(), Policy::Fifo(priority));
            }
            endpoint.operate(&Operation::send(to, [number as u64; 3], Timeout::Never), KERNEL)
        });
        sender.await_sleep();
        senders.push(sender);
    }
    let mut order = Vec::new();
    if let Some(index) = closed_first {
        let closed = Operation::receive(Some(senders[index].id), Timeout::Zero);
        order.push(me.operate(&closed, KERNEL).unwrap().message[0]);
    }
    while order.len() < priorities.len() {
        let received = me.operate(&Operation::receive(None, Timeout::Zero), KERNEL).unwrap();
        order.push(received.message[0]);
    }
    assert!(me.operate(&Operation::receive(None, Timeout::Zero), KERNEL).is_err());
    for sender in &senders {
        assert!(sender.result().is_ok());
    }
    order
}

#[test]
fn equals_are_served_in_the_order_they_came() {
    assert_eq!(served(&[0, 0, 0, 0], None), [0, 1, 2, 3]);
}

#[test]
fn urgent_senders_go_first() {
    assert_eq!(served(&[0, 5, 0, 9, 5, 9, 1], None), [3, 5, 1, 4, 6, 0, 2]);
}

#[test]
fn a_closed_receive_takes_its_partner_from_the_middle() {
    assert_eq!(served(&[5, 0, 5, 0, 9], Some(0)), [0, 4, 2, 1, 3]);
    assert_eq!(served(&[5, 5, 0, 0], Some(2)), [2, 0, 1, 3]);
    assert_eq!(served(&[7, 5, 3], Some(1)), [1, 0, 2]);
}
