//! Cancellation, and threads that end in every state.

use super::{Actor, KERNEL, boot, cpu, eventually};
use crate::{Caller, Endpoint, Error, Failure, Operation, Options, Refusal, ThreadId, Timeout, cancel};

const NEVER: Timeout = Timeout::Never;

fn failed(error: Error) -> Result<crate::Received, Failure> {
    Err(Failure::Ipc(error))
}

#[test]
fn cancel_ends_either_half_here_and_there() {
    let machine = boot(2);
    let me = Endpoint::register(KERNEL, Options::default()).unwrap();
    for there in 0..2 {
        let sender = Actor::doing(cpu(&machine, there), Operation::call(me.id(), [0; 3], NEVER, NEVER));
        sender.await_sleep();
        assert_eq!(cancel(sender.id, KERNEL, Some(&me)), Ok(true));
        assert_eq!(sender.result(), failed(Error::SendCanceled));
        let receiver = Actor::doing(cpu(&machine, there), Operation::receive(None, NEVER));
        receiver.await_sleep();
        assert_eq!(cancel(receiver.id, KERNEL, Some(&me)), Ok(true));
        assert_eq!(receiver.result(), failed(Error::ReceiveCanceled));
    }
}

#[test]
fn attention_ends_either_half() {
    let machine = boot(2);
    let me = Endpoint::register(KERNEL, Options::default()).unwrap();
    for there in 0..2 {
        let sender = Actor::doing(cpu(&machine, there), Operation::send(me.id(), [0; 3], NEVER));
        sender.await_sleep();
        sender.thread.set_attention(true);
        assert_eq!(sender.result(), failed(Error::SendCanceled));
        let receiver = Actor::doing(cpu(&machine, there), Operation::receive(Some(me.id()), NEVER));
        receiver.await_sleep();
        receiver.thread.set_attention(true);
        assert_eq!(receiver.result(), failed(Error::ReceiveCanceled));
    }
}

#[test]
fn senders_to_a_thread_that_ends_learn_of_it() {
    let machine = boot(2);
    let gone = Actor::start(cpu(&machine, 1), |endpoint| {
        sched::block_uninterruptible(|| false, Some(machine::time::now_ns() + 1_000_000_000));
        endpoint.operate(&Operation::receive(None, Timeout::Zero), KERNEL)
    });
    let senders: Vec<_> = (0..10)
        .map(|number| Actor::doing(cpu(&machine, number % 2), Operation::call(gone.id, [0; 3], NEVER, NEVER)))
        .collect();
    senders.iter().for_each(Actor::await_sleep);
    machine::hosted::advance(2_000_000_000);
    assert!(gone.result().is_ok(), "it takes one message and ends");
    let mut outcomes: Vec<_> = senders.iter().map(Actor::result).collect();
    outcomes.sort_by_key(|outcome| outcome == &failed(Error::NotExistent));
    assert_eq!(outcomes[0], failed(Error::ReceiveAborted), "it was heard and waits for the answer");
    assert!(outcomes[1..].iter().all(|outcome| *outcome == failed(Error::NotExistent)));
}

#[test]
fn dead_and_wrong_numbers_fail() {
    let machine = boot(2);
    let mut me = Endpoint::register(KERNEL, Options::default()).unwrap();
    let other = Actor::doing(cpu(&machine, 1), Operation::receive(None, Timeout::Zero));
    assert!(other.result().is_err());
    eventually(|| other.thread.state() == sched::RunState::Dead);
    for id in [0, 1, 7 << 32, u64::MAX, u64::MAX >> 1, other.id.to_bits(), other.id.to_bits() ^ 1 << 40] {
        let id = ThreadId::from_bits(id);
        let not_existent = failed(Error::NotExistent);
        assert_eq!(me.operate(&Operation::send(id, [0; 3], NEVER), KERNEL), not_existent, "{id:?}");
        assert_eq!(me.operate(&Operation::call(id, [0; 3], NEVER, NEVER), KERNEL), not_existent);
        if id != ThreadId::ANYBODY {
            assert_eq!(me.operate(&Operation::receive(Some(id), NEVER), KERNEL), not_existent);
        }
        assert_eq!(cancel(id, KERNEL, Some(&me)), Err(Failure::Ipc(Error::NotExistent)));
    }
    let own = Err(Failure::Refused(Refusal::OwnId));
    assert_eq!(me.operate(&Operation::send(me.id(), [0; 3], Timeout::Zero), KERNEL), own);
    assert_eq!(me.operate(&Operation::receive(Some(me.id()), Timeout::Zero), KERNEL), own);
    assert_eq!(cancel(me.id(), KERNEL, Some(&me)), Err(Failure::Refused(Refusal::OwnId)));
}

#[test]
fn strangers_are_refused_unless_the_receiver_admits_them() {
    let machine = boot(2);
    let stranger = &Caller { real: 1000, effective: 1000, saved: 1000, privileged: false };
    let mut me = Endpoint::register(KERNEL, Options::default()).unwrap();
    let closed = Actor::doing(cpu(&machine, 1), Operation::receive(None, NEVER));
    closed.await_sleep();
    let refused = Err(Failure::Refused(Refusal::NotPermitted));
    assert_eq!(me.operate(&Operation::send(closed.id, [0; 3], NEVER), stranger), refused);
    assert_eq!(cancel(closed.id, stranger, Some(&me)).map(|_| ()), refused.map(|_: crate::Received| ()));
    let options = Options { open_to_all: true, ..Options::default() };
    let open = Actor::start_with(cpu(&machine, 1), options, |endpoint| {
        endpoint.operate(&Operation::receive(None, NEVER), KERNEL)
    });
    open.await_sleep();
    assert!(me.operate(&Operation::send(open.id, [0; 3], NEVER), stranger).is_ok());
    let client = Actor::doing(cpu(&machine, 1), Operation::call(me.id(), [0; 3], NEVER, NEVER));
    client.await_sleep();
    assert!(me.operate(&Operation::receive(None, NEVER), stranger).is_ok());
    assert!(me.operate(&Operation::send(client.id, [5; 3], Timeout::Zero), stranger).is_ok(), "an answer");
    assert_eq!(cancel(closed.id, KERNEL, Some(&me)), Ok(true));
}

#[test]
fn partitioned_threads_act_on_other_cpus_by_messages_only() {
    let machine = boot(2);
    let options = Options { partitioned: true, ..Options::default() };
    let there = Actor::start_with(cpu(&machine, 1), options, |endpoint| {
        endpoint.operate(&Operation::receive(None, NEVER), KERNEL)
    });
    there.await_sleep();
    let (first, count) = crate::range_of(there.thread.cpu());
    assert!((first..first + count).contains(&there.id.index()));
    let mut me = Endpoint::register(KERNEL, Options::default()).unwrap();
    assert_eq!(cancel(there.id, KERNEL, Some(&me)), Err(Failure::Refused(Refusal::OtherCpu)));
    assert!(me.operate(&Operation::send(there.id, [0; 3], NEVER), KERNEL).is_ok());
    assert!(there.result().is_ok());
}
