use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::account::is_in_use;
use super::*;
use crate::frame::huge::HugeFrame;
use crate::frame::{Frame, Purpose, Zeroed};

/// Tests share processors and their stocks.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn account(parent: Option<&Account>) -> Account {
    Account::new(parent).expect("memory")
}

/// Frames that a thread has allocated that pays with an account.
fn frames_of(payer: &Account, count: usize, purpose: Purpose) -> Vec<Frame> {
    let former = pay_with(Some(payer.clone()));
    let frames = (0..count).map_while(|_| Frame::allocate(purpose, Zeroed::No).ok()).collect();
    drop(pay_with(former));
    frames
}

#[test]
fn who_allocates_pays_until_the_frame_is_free() {
    let _alone = alone();
    let top = account(None);
    let below = account(Some(&top));
    let frames = frames_of(&below, 100, Purpose::Anonymous);
    let shared = frames_of(&top, 3, Purpose::Shmem);
    assert_eq!((below.number().usage(), top.number().usage()), (100, 103));
    assert_eq!(top.number().of_kind(Kind::Anonymous), 100);
    assert_eq!(top.number().of_kind(Kind::SharedMemory), 3);
    assert_eq!(below.number().of_kind(Kind::SharedMemory), 0);
    drop((frames, shared));
    assert_eq!((below.number().usage(), top.number().usage()), (0, 0));
    assert_eq!(top.number().of_kind(Kind::Anonymous), 0);
    assert!(top.number().peak() >= 103);
}

#[test]
fn the_kernels_own_frames_are_nobodys() {
    let _alone = alone();
    let payer = account(None);
    let frames = frames_of(&payer, 10, Purpose::Kernel);
    assert_eq!(payer.number().usage(), 0);
    drop(frames);
}

#[test]
fn a_limit_above_holds_for_all_below_exactly() {
    let _alone = alone();
    let top = account(None);
    let (one, other) = (account(Some(&top)), account(Some(&top)));
    top.number().set_limit(Limit::Max, 70);
    let first = frames_of(&one, 50, Purpose::Anonymous);
    let second = frames_of(&other, 50, Purpose::Anonymous);
    assert_eq!((first.len(), second.len()), (50, 20), "what is in stock for one is had by the other");
    assert_eq!(top.number().usage(), 70);
    assert!(top.number().events(Event::Max).0 > 0);
    assert_eq!(other.number().events(Event::Max), (0, 0), "it is not this one's limit");
    drop((first, second));
    assert_eq!(top.number().usage(), 0);
}

#[test]
fn an_account_lives_as_long_as_something_is_charged_to_it() {
    let _alone = alone();
    let top = account(None);
    let below = account(Some(&top));
    let (number, above) = (below.number(), top.number());
    let frames = frames_of(&below, 5, Purpose::Pipe);
    below.bring_in_stocks();
    drop(below);
    assert!(is_in_use(number));
    assert_eq!(above.usage(), 5, "those above pay for what a removed one left");
    drop(top);
    assert!(is_in_use(above), "the one below refers to it");
    drop(frames);
    stock::bring_in(|known| known == number);
    assert!(!is_in_use(number) && !is_in_use(above));
}

/// The last page and the last reference go at the same time, a thousand times: the number is always given back, and once.
#[test]
fn of_the_last_page_and_the_last_reference_one_ends_the_account() {
    let _alone = alone();
    for _ in 0..1000 {
        let payer = account(None);
        let number = payer.number();
        let frames = frames_of(&payer, 1, Purpose::Anonymous);
        let go = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !go.load(Relaxed) {
                    std::hint::spin_loop();
                }
                drop(frames);
                stock::bring_in(|known| known == number);
            });
            go.store(true, Relaxed);
            payer.bring_in_stocks();
            drop(payer);
        });
        stock::bring_in(|known| known == number);
        assert!(!is_in_use(number));
    }
}

#[test]
fn many_threads_charge_and_nothing_is_left() {
    let _alone = alone();
    let top = account(None);
    let accounts: Vec<Account> = (0..3).map(|_| account(Some(&top))).collect();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let accounts = &accounts;
            scope.spawn(move || {
                let mut held = Vec::new();
                for round in 0..200 {
                    let payer = &accounts[(round + thread) % accounts.len()];
                    held.extend(frames_of(payer, 1 + round % 40, Purpose::Anonymous));
                    if held.len() > 300 {
                        held.drain(..held.len() / 2);
                    }
                }
            });
        }
    });
    let left: Vec<u64> = accounts.iter().map(|account| account.number().usage()).collect();
    assert_eq!((left, top.number().usage()), (vec![0, 0, 0], 0));
    assert_eq!(top.number().of_kind(Kind::Anonymous), 0);
}

#[test]
fn a_protection_is_no_more_than_that_of_those_above() {
    let _alone = alone();
    let top = account(None);
    let below = account(Some(&top));
    let frames = frames_of(&below, 64, Purpose::FileCache);
    let goes = |protection| Whose::Unprotected(protection).admits(&frames[0]);
    below.number().set_limit(Limit::Low, 1000);
    assert!(goes(Protection::Low), "nothing above it protects");
    top.number().set_limit(Limit::Low, 1000);
    assert!(!goes(Protection::Low));
    assert!(goes(Protection::Hard));
    assert_eq!(Whose::in_turn().len(), 2);
    below.number().set_limit(Limit::Min, 1000);
    top.number().set_limit(Limit::Min, 10);
    assert!(goes(Protection::Hard), "it has more than that");
    top.number().set_limit(Limit::Min, 1000);
    assert!(!goes(Protection::Hard));
    assert!(
        Whose::Of(top.number()).admits(&frames[0]) && !Whose::Of(account(None).number()).admits(&frames[0])
    );
}

#[test]
fn a_huge_page_is_charged_as_a_whole_or_not_had() {
    let _alone = alone();
    let payer = account(None);
    payer.number().set_limit(Limit::Max, 600);
    let huge = || {
        let former = pay_with(Some(payer.clone()));
        let page = HugeFrame::allocate(Purpose::Anonymous);
        drop(pay_with(former));
        page
    };
    let charged = || (payer.number().usage(), payer.number().of_kind(Kind::Anonymous));
    let page = huge().expect("the limit permits it");
    assert_eq!(charged(), (512, 512));
    assert!(huge().is_err(), "a second one is beyond the limit");
    assert_eq!(charged(), (512, 512));
    drop(page);
    assert_eq!(charged(), (0, 0));
}
