//! Recovery from errors: what drivers have to say, and in which order they are asked.
//!
//! | error | what happens to the hierarchy in question |
//! |---|---|
//! | non-fatal | `error_detected(Normal)` for all; if one asks for a reset, as for a fatal one from there on; else `mmio_enabled` if all can recover; `resume` |
//! | fatal | `error_detected(Frozen)` for all; the bus is reset above the originator; `slot_reset` for all; `resume` |
//!
//! A driver that says [`Verdict::Disconnect`], or still wants a reset after one, ends the recovery: all are told
//! `error_detected(Failed)`. A function without a driver takes no part; a driver without handlers can't go on after a fatal error.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::model::Binding;

/// What the way to a device is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChannelState {
    /// Accesses work.
    Normal,
    /// Accesses give all ones; nothing gets through until a reset.
    Frozen,
    /// It will not work again.
    Failed,
}

/// What a driver makes of it. In ascending order of what counts more when drivers differ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// The driver does not care.
    None,
    /// Recovered.
    Recovered,
    /// It can recover if it may access the device.
    CanRecover,
    /// It needs a reset.
    NeedReset,
    /// It gives the device up.
    Disconnect,
}

/// What a driver does about errors of its device. All may sleep.
pub trait ErrorHandlers: Send + Sync {
    /// There was an error; start nothing new.
    fn error_detected(&self, state: ChannelState) -> Verdict;

    /// The device can be accessed; no reset is needed so far.
    fn mmio_enabled(&self) -> Verdict {
        Verdict::Recovered
    }

    /// The device was reset; make it work again.
    fn slot_reset(&self) -> Verdict {
        Verdict::Recovered
    }

    /// All is well again; go on.
    fn resume(&self) {}
}

/// How recovery ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// All go on.
    Recovered,
    /// Somebody gave up.
    Failed,
}

/// Runs the recovery of a hierarchy whose drivers these are, those of bridges first. `tell` hears of each callback, by its name, before drivers
/// are called; `reset` resets the bus and says whether what is behind answers again.
pub fn recover(
    drivers: &[Arc<dyn Binding>],
    is_fatal: bool,
    tell: impl Fn(&str),
    mut reset: impl FnMut() -> bool,
) -> Outcome {
    let handlers: Vec<_> = drivers.iter().map(|driver| driver.error_handlers()).collect();
    let all = |ask: &dyn Fn(&dyn ErrorHandlers) -> Verdict, without: Verdict| {
        let answers = handlers.iter().map(|handler| handler.map_or(without, ask));
        answers.max().unwrap_or(Verdict::None)
    };
    let fail = || {
        tell("permanent failure");
        all(&|handler| handler.error_detected(ChannelState::Failed), Verdict::None);
        Outcome::Failed
    };
    tell("error_detected");
    let mut verdict = if is_fatal {
        let worst = all(&|handler| handler.error_detected(ChannelState::Frozen), Verdict::Disconnect);
        if worst == Verdict::Disconnect { worst } else { Verdict::NeedReset }
    } else {
        all(&|handler| handler.error_detected(ChannelState::Normal), Verdict::None)
    };
    if verdict == Verdict::CanRecover {
        tell("mmio_enabled");
        verdict = all(&|handler| handler.mmio_enabled(), Verdict::None);
    }
    if verdict == Verdict::NeedReset {
        if !reset() {
            return fail();
        }
        tell("slot_reset");
        verdict = all(&|handler| handler.slot_reset(), Verdict::None);
    }
    if verdict >= Verdict::NeedReset {
        return fail();
    }
    tell("resume");
    for handler in handlers.iter().flatten() {
        handler.resume();
    }
    Outcome::Recovered
}

#[cfg(test)]
mod tests {
    use super::*;
    use sync::SpinLock;

    struct Actor {
        log: Arc<SpinLock<Vec<&'static str>>>,
        detected: Verdict,
        after_reset: Verdict,
    }

    impl Binding for Actor {
        fn remove(&self) {}

        fn error_handlers(&self) -> Option<&dyn ErrorHandlers> {
            Some(self)
        }
    }

    impl ErrorHandlers for Actor {
        fn error_detected(&self, state: ChannelState) -> Verdict {
            self.log.lock().push(match state {
                ChannelState::Normal => "detected",
                ChannelState::Frozen => "frozen",
                ChannelState::Failed => "failed",
            });
            self.detected
        }

        fn mmio_enabled(&self) -> Verdict {
            self.log.lock().push("mmio");
            Verdict::Recovered
        }

        fn slot_reset(&self) -> Verdict {
            self.log.lock().push("slot reset");
            self.after_reset
        }

        fn resume(&self) {
            self.log.lock().push("resume");
        }
    }

    struct Plain;

    impl Binding for Plain {
        fn remove(&self) {}
    }

    fn run(
        verdicts: &[(Verdict, Verdict)],
        is_fatal: bool,
        reset_works: bool,
    ) -> (Outcome, Vec<&'static str>) {
        let log = Arc::new(SpinLock::new(Vec::new()));
        let drivers: Vec<Arc<dyn Binding>> = verdicts
            .iter()
            .map(|&(detected, after_reset)| {
                Arc::new(Actor { log: log.clone(), detected, after_reset }) as Arc<dyn Binding>
            })
            .collect();
        let outcome = recover(
            &drivers,
            is_fatal,
            |_| {},
            || {
                log.lock().push("RESET");
                reset_works
            },
        );
        let seen = log.lock().clone();
        (outcome, seen)
    }

    #[test]
    fn fatal_error_resets_between_detection_and_slot_reset() {
        let well = (Verdict::NeedReset, Verdict::Recovered);
        let (outcome, seen) = run(&[well, well], true, true);
        assert_eq!(outcome, Outcome::Recovered);
        assert_eq!(seen, ["frozen", "frozen", "RESET", "slot reset", "slot reset", "resume", "resume"]);
    }

    #[test]
    fn non_fatal_error_resets_only_on_demand() {
        let able = (Verdict::CanRecover, Verdict::Recovered);
        assert_eq!(
            run(&[able], false, true),
            (Outcome::Recovered, alloc::vec!["detected", "mmio", "resume"])
        );
        let (_, seen) = run(&[able, (Verdict::NeedReset, Verdict::Recovered)], false, true);
        assert_eq!(seen[..3], ["detected", "detected", "RESET"]);
        let (outcome, seen) = run(&[], false, true);
        assert_eq!((outcome, seen.len()), (Outcome::Recovered, 0));
    }

    /// specs/pcie-port-bus.md, feature 16: a reset only if one asks; one that gives up decides for all.
    #[test]
    fn votes_are_combined_by_what_counts_more() {
        let [nothing, able, reset, lost] =
            [Verdict::None, Verdict::CanRecover, Verdict::NeedReset, Verdict::Disconnect];
        let steps = |votes: &[Verdict]| {
            let votes: Vec<_> = votes.iter().map(|vote| (*vote, Verdict::Recovered)).collect();
            let (_, seen) = run(&votes, false, true);
            let mut steps = seen;
            steps.dedup();
            steps
        };
        assert_eq!(steps(&[nothing, nothing]), ["detected", "resume"]);
        for votes in [[nothing, able], [able, nothing], [able, able]] {
            assert_eq!(steps(&votes), ["detected", "mmio", "resume"], "{votes:?}");
        }
        for votes in [[able, reset], [reset, able], [reset, nothing], [reset, reset]] {
            assert_eq!(steps(&votes), ["detected", "RESET", "slot reset", "resume"], "{votes:?}");
        }
        for votes in [[able, lost], [lost, reset], [lost, nothing]] {
            assert_eq!(steps(&votes), ["detected", "failed"], "{votes:?}");
        }
    }

    #[test]
    fn giving_up_and_failed_resets_end_in_failure() {
        let well = (Verdict::NeedReset, Verdict::Recovered);
        assert_eq!(run(&[well], true, false).0, Outcome::Failed);
        assert_eq!(run(&[well, (Verdict::Disconnect, Verdict::None)], true, true).0, Outcome::Failed);
        assert_eq!(run(&[(Verdict::NeedReset, Verdict::NeedReset)], true, true).0, Outcome::Failed);
        let plain: [Arc<dyn Binding>; 1] = [Arc::new(Plain)];
        assert_eq!(recover(&plain, true, |_| {}, || true), Outcome::Failed);
        assert_eq!(recover(&plain, false, |_| {}, || false), Outcome::Recovered);
    }
}
