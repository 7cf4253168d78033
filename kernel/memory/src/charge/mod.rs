//! Who pays for pages: accounts, with limits, of which each thread has one at most.
//!
//! # What is charged
//! A frame is charged to the account of the thread that allocates it, if that has one, and stays so until it is free, whoever uses it
//! and wherever that thread is by then. Charged are private memory, pages of files, shared memory, page tables of programs, and
//! what is under way in pipes and local sockets (`pay::is_charged`). Kernel stacks and objects of the heap are not: both are kept for the next one
//! who needs such a thing, who is anybody.
//!
//! # Where it is noted
//! The account's number goes along with the thread ([`machine::preempt::payer`]) in a word that each switch of threads saves and loads anyway, and stands in
//! the frame's metadata, in the word that says what the frame is used for, which each release reads anyway. So who has no account pays three
//! instructions for an allocation and two for a release.
//!
//! # Counting
//! Accounts form a tree. One's *usage* is what is charged to it and to those below. A CPU takes pages for an account in batches and keeps the rest as its
//! *stock*, for one account at a time; frames that are freed refill it. So the counters are touched once in `stock::BATCH` pages, and
//! usage is too high by what is in stock, which who reads it subtracts. What has become of pages by kind is noted in the stock likewise.
//!
//! # Life of an account
//! It is referred to by its group, by the threads that pay with it, and by accounts below: [`Account`]. When the last of these has gone and nothing is charged to it
//! any more, its number is free. Whoever takes away the last reference or the last page looks at the other one, and of several that find both zero one wins. Pages
//! that outlive the group stay charged to its account, and through it to those above, as on Linux: nobody needs to look for them. What stocks say about
//! a number is brought in before the number is given to another account.
//!
//! # Beyond a limit
//! See `room.rs`.
//!
//! # Locking
//! None: counters are atomic, stocks belong to their CPUs, with interrupts off.

mod account;
mod events;
mod limits;
mod pay;
mod room;
pub(crate) mod stock;
#[cfg(test)]
mod tests;
mod whose;

pub use account::{Account, AccountNumber};
pub use events::{EVENTS, Event, set_listener};
pub use limits::{Limit, UNLIMITED};
pub(crate) use pay::{allocate_charged, charge_at_once, is_charged, uncharge};
pub use pay::{is_of_current, of_current, pay_with};
pub use room::{excessive, pause_ns, reclaim, set_hold_back, shortage, shrink};
pub use stock::Kind;
pub use whose::{Protection, Whose};
