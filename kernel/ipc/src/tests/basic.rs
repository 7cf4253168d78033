//! Messages go where they should, on one CPU and across.

use super::{Actor, KERNEL, boot, cpu};
use crate::{Endpoint, Error, Failure, Operation, Options, Timeout};

const NEVER: Timeout = Timeout::Never;

/// A server on one CPU that adds one to what it gets, and a client on another one that calls it.
fn ping_pong(cpus: usize, server_on: usize, client_on: usize, rounds: u64) {
    let machine = boot(cpus);
    let server = Actor::start(cpu(&machine, server_on), move |endpoint| {
        let mut request = endpoint.operate(&Operation::receive(None, NEVER), KERNEL)?;
        for _ in 1..rounds {
            let answer = [request.message[0] + 1, request.message[1], 7];
            let operation = Operation::reply_and_wait(request.from, answer, Timeout::Zero, NEVER);
            request = endpoint.operate(&operation, KERNEL)?;
        }
        endpoint.operate(&Operation::send(request.from, [request.message[0] + 1, 0, 7], NEVER), KERNEL)
    });
    let to = server.id;
    let client = Actor::start(cpu(&machine, client_on), move |endpoint| {
        let mut last = Err(Failure::Ipc(Error::NotExistent));
        for round in 0..rounds {
            let received =
                endpoint.operate(&Operation::call(to, [round, round * 2, 0], NEVER, NEVER), KERNEL)?;
            assert_eq!((received.from, received.message[0], received.message[2]), (to, round + 1, 7));
            assert_eq!(received.remote, server_on != client_on);
            last = Ok(received);
        }
        last
    });
    assert!(server.result().is_ok());
    assert!(client.result().is_ok());
}

#[test]
fn calls_are_answered_on_one_cpu() {
    ping_pong(1, 0, 0, 500);
}

#[test]
fn calls_are_answered_across_cpus() {
    ping_pong(2, 0, 1, 500);
}

#[test]
fn time_out_zero_fails_unless_the_partner_is_ready() {
    let machine = boot(2);
    for there in 0..2 {
        let quiet = Actor::start(cpu(&machine, there), |endpoint| {
            let received = endpoint.operate(&Operation::receive(None, Timeout::Zero), KERNEL);
            assert_eq!(received, Err(Failure::Ipc(Error::ReceiveTimeout)));
            sched::timer::sleep_until_uninterruptible(machine::time::now_ns() + 1_000_000);
            endpoint.operate(&Operation::receive(None, NEVER), KERNEL)
        });
        let to = quiet.id;
        let mut me = Endpoint::register(KERNEL, Options::default()).unwrap();
        let send = Operation::send(to, [1, 2, 3], Timeout::Zero);
        assert_eq!(me.operate(&send, KERNEL), Err(Failure::Ipc(Error::SendTimeout)));
        let mut tries = 0;
        while me.operate(&send, KERNEL).is_err() {
            sched::yield_now();
            machine::hosted::advance(1_000_000);
            tries += 1;
            assert!(tries < 100_000);
        }
        assert_eq!(quiet.result().unwrap().message, [1, 2, 3]);
        assert_eq!(quiet.result().unwrap().from, me.id());
    }
}

#[test]
fn finite_time_outs_end_both_halves() {
    let machine = boot(2);
    let deaf = Actor::start(cpu(&machine, 1), |endpoint| {
        sched::block_uninterruptible(|| false, Some(machine::time::now_ns() + 1_000_000_000));
        endpoint.operate(&Operation::receive(None, Timeout::After(50_000_000_000)), KERNEL)
    });
    for there in 0..2 {
        let (to, wait) = (deaf.id, Timeout::After(1_000_000));
        let sender = Actor::doing(cpu(&machine, there), Operation::send(to, [0; 3], wait));
        sender.await_sleep();
        machine::hosted::advance(2_000_000);
        assert_eq!(sender.result(), Err(Failure::Ipc(Error::SendTimeout)));
        let receiver = Actor::doing(cpu(&machine, there), Operation::receive(Some(to), wait));
        receiver.await_sleep();
        machine::hosted::advance(2_000_000);
        assert_eq!(receiver.result(), Err(Failure::Ipc(Error::ReceiveTimeout)));
    }
    let last = Actor::doing(cpu(&machine, 0), Operation::send(deaf.id, [4; 3], NEVER));
    last.await_sleep();
    machine::hosted::advance(2_000_000_000);
    assert!(last.result().is_ok());
    assert_eq!(deaf.result().unwrap().message, [4; 3]);
}

#[test]
fn a_thread_that_has_migrated_fetches_its_block() {
    let machine = boot(2);
    let adoptions = || crate::statistics::total(crate::statistics::Counter::Adoptions);
    let before = adoptions();
    let (here, there) = (cpu(&machine, 0), cpu(&machine, 1));
    let nomad = Actor::start(here, move |endpoint| {
        endpoint.operate(&Operation::receive(None, NEVER), KERNEL)?;
        sched::Thread::set_affinity(&sched::current(), there);
        endpoint.operate(&Operation::receive(None, NEVER), KERNEL)
    });
    for word in [1, 2] {
        let sender = Actor::doing(here, Operation::send(nomad.id, [word; 3], NEVER));
        assert!(sender.result().is_ok());
    }
    assert_eq!(nomad.result().unwrap().message, [2; 3]);
    assert!(nomad.result().unwrap().remote);
    assert!(adoptions() > before);
}
