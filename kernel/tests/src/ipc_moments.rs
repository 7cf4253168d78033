//! The states of Figure 10 (specs/fiasco-mp.md) that last for a moment only: what happens to a thread there when its partner ends, takes its
//! message, or somebody cancels it. `ipc_states` has those in which it sleeps.
//!
//! The *subject* is on CPU 0, its *partner* on CPU 1. Who holds whom:
//!
//! | moment | of the subject | held by |
//! |---|---|---|
//! | PREPARED | the request is not yet in the box | a time window before the request |
//! | OFFERED | waits for reply 1 | CPU 1 keeps interrupts off until it has acted |
//! | WOKEN | its deadline has woken it, and it has not looked yet | a time window behind the wait |
//! | LEAVING | wants its offer back; that request is not yet in the box | a time window before the request |
//! | TAKING BACK | waits for reply 2 | CPU 1 keeps interrupts off until it has acted |
//! | LATE | a receiver whose deadline has woken it, and that has not looked yet | a time window behind the wait |
//!
//! Nothing here depends on how fast anybody is: a deadline only wakes the subject, and the window that follows waits for the partner.

use core::sync::atomic::{AtomicBool, Ordering::SeqCst};

use ::ipc::defects::{BEFORE_REQUEST, RECEIVER_WOKEN, SENDER_WOKEN};
use ::ipc::{Caller, Endpoint, Error, Failure, Operation, ThreadId, Timeout, cancel};
use ::machine::cpu::{self, CpuId};
use ::machine::{interrupt, time};
use ::sync::message_box::{self, Kind};

use super::ipc::{NEVER, Result, ZERO, endpoint};
use super::ipc_states::{Actor, Checked, NOTHING, act};
use super::kit::{Team, window};
use super::{HANG_NS, Outcome, Test, check};

pub(crate) const TESTS: &[Test] =
    &[Test { name: "ipc_moments::events_at_each_moment_have_their_results", run: events_at_each_moment }];

const A: CpuId = CpuId::from_index(0);
const B: CpuId = CpuId::from_index(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Prepared,
    Offered,
    Woken,
    Leaving,
    TakingBack,
    Late,
}

/// What the partner does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Nothing,
    Ends,
    Cancels,
    /// Takes the message; answers it if an answer is awaited.
    Takes,
    TakesAndCancels,
    TakesAndEnds,
    Sends,
}

/// What the subject does: a send, or a call; where it is LATE, a receive or a call whose answer does not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Alone,
    Calling,
}

/// What the subject gets alone and calling.
type Results = [Option<Error>; 2];

/// `None` is success.
const TABLE: &[(Moment, Event, Results)] = {
    use Error::{NotExistent, ReceiveAborted, ReceiveCanceled, ReceiveTimeout, SendCanceled, SendTimeout};
    const fn both(error: Error) -> Results {
        [Some(error); 2]
    }
    &[
        (Moment::Prepared, Event::Ends, both(NotExistent)),
        (Moment::Prepared, Event::Cancels, both(SendCanceled)),
        (Moment::Offered, Event::Ends, both(NotExistent)),
        (Moment::Offered, Event::Cancels, both(SendCanceled)),
        (Moment::Woken, Event::Nothing, both(SendTimeout)),
        (Moment::Woken, Event::Ends, both(NotExistent)),
        (Moment::Woken, Event::Cancels, both(SendCanceled)),
        (Moment::Woken, Event::Takes, [None, None]),
        (Moment::Woken, Event::TakesAndCancels, [None, Some(ReceiveCanceled)]),
        (Moment::Woken, Event::TakesAndEnds, [None, Some(ReceiveAborted)]),
        // Why it leaves is settled by then.
        (Moment::Leaving, Event::Nothing, both(SendTimeout)),
        (Moment::Leaving, Event::Ends, both(NotExistent)),
        (Moment::Leaving, Event::Cancels, both(SendTimeout)),
        (Moment::Leaving, Event::Takes, [None, None]),
        (Moment::Leaving, Event::TakesAndCancels, [None, Some(ReceiveCanceled)]),
        (Moment::Leaving, Event::TakesAndEnds, [None, Some(ReceiveAborted)]),
        (Moment::TakingBack, Event::Nothing, both(SendTimeout)),
        (Moment::TakingBack, Event::Ends, both(NotExistent)),
        (Moment::TakingBack, Event::Cancels, both(SendTimeout)),
        (Moment::TakingBack, Event::Takes, [None, None]),
        (Moment::TakingBack, Event::TakesAndCancels, [None, Some(ReceiveCanceled)]),
        (Moment::TakingBack, Event::TakesAndEnds, [None, Some(ReceiveAborted)]),
        (Moment::Late, Event::Nothing, both(ReceiveTimeout)),
        (Moment::Late, Event::Ends, both(ReceiveAborted)),
        (Moment::Late, Event::Cancels, both(ReceiveCanceled)),
        (Moment::Late, Event::Sends, [None, None]),
    ]
};

/// The partner holds CPU 1's interrupts off.
static PARTNER_IS_READY: AtomicBool = AtomicBool::new(false);
/// The partner has done its part.
static PARTNER_HAS_ACTED: AtomicBool = AtomicBool::new(false);

/// What the partner does needs the subject's CPU, which keeps interrupts off in the window: it goes on and serves.
fn partner_has_acted_or_asks() -> bool {
    PARTNER_HAS_ACTED.load(SeqCst) || message_box::state_of(B, A).is_some()
}

fn partner_has_acted() -> bool {
    PARTNER_HAS_ACTED.load(SeqCst)
}

fn partner_is_ready() -> bool {
    PARTNER_IS_READY.load(SeqCst)
}

/// The subject has been woken; its next request is to take the offer back.
fn hold_the_next_request() -> bool {
    window::close();
    window::arm(BEFORE_REQUEST, A, Some(partner_has_acted_or_asks));
    true
}

const MESSAGE: [u64; 3] = [0x71; 3];
/// A deadline that only wakes.
const SOON: Timeout = Timeout::After(100_000);

fn operation(moment: Moment, doing: Doing, partner: ThreadId) -> Operation {
    let patience = match moment {
        Moment::Prepared | Moment::Offered => NEVER,
        _ => SOON,
    };
    match (moment, doing) {
        (Moment::Late, Doing::Alone) => Operation::receive(Some(partner), patience),
        (Moment::Late, Doing::Calling) => Operation::call(partner, MESSAGE, NEVER, patience),
        (_, Doing::Alone) => Operation::send(partner, MESSAGE, patience),
        (_, Doing::Calling) => Operation::call(partner, MESSAGE, patience, NEVER),
    }
}

/// Spins until the subject is there.
fn await_moment(condition: impl Fn() -> bool) {
    let limit = time::now_ns() + HANG_NS / 2;
    while !condition() && time::now_ns() < limit {
        cpu::relax();
    }
}

/// Spins with interrupts off until CPU 0 has asked for this. What else it asks for is served, or neither would go on.
fn await_request(kind: Kind) {
    await_moment(|| match message_box::state_of(A, B) {
        Some(found) if found == kind => true,
        Some(_) => {
            message_box::serve();
            false
        }
        None => false,
    });
}

/// Brings CPU 1 to where it holds the subject at the moment, and does the partner's part there.
fn at(moment: Moment, doing: Doing, event: Event, subject: ThreadId, me: &mut Option<Endpoint>) -> Result {
    let mut off = None;
    match moment {
        Moment::Prepared | Moment::Leaving => await_moment(|| window::is_open_at(BEFORE_REQUEST)),
        Moment::Woken => await_moment(|| window::is_open_at(SENDER_WOKEN)),
        Moment::Late => {
            if doing == Doing::Calling {
                act(me, &Operation::receive(Some(subject), NEVER))?;
            }
            await_moment(|| window::is_open_at(RECEIVER_WOKEN));
        }
        Moment::Offered => {
            off = Some(interrupt::disable());
            PARTNER_IS_READY.store(true, SeqCst);
            await_request(Kind::IpcSend);
        }
        Moment::TakingBack => {
            await_moment(|| window::is_open_at(SENDER_WOKEN));
            off = Some(interrupt::disable());
            PARTNER_IS_READY.store(true, SeqCst);
            await_request(Kind::IpcCancel);
        }
    }
    let result = do_part(doing, event, subject, me);
    drop(off);
    PARTNER_HAS_ACTED.store(true, SeqCst);
    result
}

fn do_part(doing: Doing, event: Event, subject: ThreadId, me: &mut Option<Endpoint>) -> Result {
    let take = Operation::receive(Some(subject), ZERO);
    let send = Operation::send(subject, MESSAGE, ZERO);
    match event {
        Event::Nothing => NOTHING,
        Event::Sends => act(me, &send),
        Event::Takes => {
            let taken = act(me, &take)?;
            match doing {
                Doing::Alone => Ok(taken),
                // A caller receives from the moment its message is taken.
                Doing::Calling => act(me, &send),
            }
        }
        Event::Ends | Event::TakesAndEnds => {
            if event == Event::TakesAndEnds {
                act(me, &take)?;
            }
            drop(me.take());
            NOTHING
        }
        Event::Cancels | Event::TakesAndCancels => {
            if event == Event::TakesAndCancels {
                act(me, &take)?;
            }
            let canceled = cancel(subject, &Caller::KERNEL, me.as_ref());
            canceled.and(NOTHING)
        }
    }
}

fn events_at_each_moment() -> Outcome {
    if cpu::online().count() < 2 {
        return Ok(());
    }
    let mut me = endpoint();
    for (moment, event, results) in TABLE {
        for (doing, expected) in [Doing::Alone, Doing::Calling].into_iter().zip(results) {
            event_at(&mut me, *moment, doing, *event, *expected)?;
        }
    }
    Ok(())
}

fn event_at(
    me: &mut Endpoint,
    moment: Moment,
    doing: Doing,
    event: Event,
    expected: Option<Error>,
) -> Outcome {
    let mut team = Team::new();
    let (subject, partner) = (Actor::start(&mut team, A)?, Actor::start(&mut team, B)?);
    PARTNER_IS_READY.store(false, SeqCst);
    PARTNER_HAS_ACTED.store(false, SeqCst);
    match moment {
        Moment::Prepared => window::arm(BEFORE_REQUEST, A, Some(partner_has_acted_or_asks)),
        Moment::Offered => {}
        Moment::Woken => window::arm(SENDER_WOKEN, A, Some(partner_has_acted)),
        Moment::Leaving => window::arm(SENDER_WOKEN, A, Some(hold_the_next_request)),
        Moment::TakingBack => window::arm(SENDER_WOKEN, A, Some(partner_is_ready)),
        Moment::Late => window::arm(RECEIVER_WOKEN, A, Some(partner_has_acted)),
    }
    let (to, from) = (partner.id, subject.id);
    partner.order(move |me| at(moment, doing, event, from, me));
    subject.order(move |me| {
        if moment == Moment::Offered {
            await_moment(partner_is_ready);
        }
        act(me, &operation(moment, doing, to))
    });
    let outcomes = outcomes(&subject, &partner);
    window::disarm();
    let (got, acted) = outcomes?;
    let place = alloc::format!("{event:?} while {doing:?} at {moment:?}");
    check!(acted.is_ok(), "{place}: the partner's part ended with {acted:?}");
    let good = match expected {
        None => got.is_ok(),
        Some(error) => got == Err(Failure::Ipc(error)),
    };
    check!(good, "{place}: the subject got {got:?}");
    for actor in [&subject, &partner] {
        if !actor.has_ended() {
            actor.goes_on(me, &place)?;
            actor.end()?;
        }
    }
    team.join()
}

fn outcomes(subject: &Actor, partner: &Actor) -> Checked<(Result, Result)> {
    Ok((subject.result()?, partner.result()?))
}
