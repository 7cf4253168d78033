//! Each rule is broken once, by classes of the test's own.

use super::{order, registry::ClassId};
use crate::{IrqSpinLock, SpinLock};

/// The message with which `body` panics.
fn violation(body: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let error = std::panic::catch_unwind(body).expect_err("the rule is broken");
    error.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn two_classes_in_both_orders_are_reported() {
    static A: SpinLock<()> = SpinLock::named("test a", ());
    static B: SpinLock<()> = SpinLock::named("test b", ());
    let take = |first: &SpinLock<()>, second: &SpinLock<()>| {
        let _first = first.lock();
        let _second = second.lock();
    };
    take(&A, &B);
    take(&A, &B);
    let report = violation(|| take(&B, &A));
    assert!(report.contains("test a:spin is taken while test b:spin is held"), "{report}");
    assert!(order::violations() > 0);
}

#[test]
fn a_way_round_over_a_third_class_is_reported() {
    static LOCKS: [SpinLock<()>; 3] = [
        SpinLock::named("test way 0", ()),
        SpinLock::named("test way 1", ()),
        SpinLock::named("test way 2", ()),
    ];
    let take = |first: usize, second: usize| {
        let _first = LOCKS[first].lock();
        let _second = LOCKS[second].lock();
    };
    take(0, 1);
    take(1, 2);
    assert!(violation(|| take(2, 0)).contains("the other way round"));
}

#[test]
fn two_locks_of_a_class_are_reported_unless_they_are_nested_on_purpose() {
    static PARENT: SpinLock<u8> = SpinLock::named("test family", 0);
    static CHILD: SpinLock<u8> = SpinLock::named("test family", 0);
    {
        let _parent = PARENT.lock();
        let _child = CHILD.lock_nested(1);
    }
    let report = violation(|| {
        let _parent = PARENT.lock();
        let _child = CHILD.lock();
    });
    assert!(report.contains("another lock of its class"), "{report}");
}

#[test]
fn locks_that_are_only_tried_have_no_order() {
    static A: SpinLock<()> = SpinLock::named("test try a", ());
    static B: SpinLock<()> = SpinLock::named("test try b", ());
    let _ = (A.lock(), B.try_lock().is_some());
    let _ = (B.lock(), A.try_lock().is_some());
}

#[test]
fn locks_may_be_released_in_any_order() {
    static A: SpinLock<()> = SpinLock::named("test release a", ());
    static B: IrqSpinLock<()> = IrqSpinLock::named("test release b", ());
    let a = A.lock();
    let b = B.lock();
    drop(a);
    drop(b);
    super::nothing_held();
}

#[test]
fn a_remote_call_under_a_spin_lock_is_reported() {
    static LOCK: SpinLock<()> = SpinLock::named("test remote", ());
    let report = violation(|| {
        let _guard = LOCK.lock();
        super::may_call_remotely();
    });
    assert!(report.contains("test remote:spin"), "{report}");
}

#[test]
fn a_remote_call_under_a_lock_that_is_only_tried_is_allowed_until_somebody_waits() {
    static LOCK: SpinLock<()> = SpinLock::named("test remote try", ());
    {
        let _guard = LOCK.try_lock();
        super::may_call_remotely();
    }
    assert!(violation(|| drop(LOCK.lock())).contains("it is waited for"));
}

#[test]
fn names_are_the_last_parts_of_paths() {
    struct Guarded;
    static LOCK: SpinLock<Option<Guarded>> = SpinLock::new(None);
    drop(LOCK.lock());
    let names: Vec<_> = ClassId::all().map(|class| class.to_string()).collect();
    assert!(
        names
            .iter()
            .any(|name| name == "option::Option<tests::names_are_the_last_parts_of_paths::Guarded>:spin"
                || name == "option::Option<names_are_the_last_parts_of_paths::Guarded>:spin"),
        "{names:?}"
    );
}
