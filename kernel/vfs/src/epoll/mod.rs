//! `epoll`: watching many files at a cost that follows the number of ready ones.

pub(crate) mod account;
mod instance;
mod item;
mod nesting;

pub use account::{Account, max_user_watches, set_max_user_watches};
pub use instance::{Epoll, create_epoll};
pub use item::{EpollEvent, EpollEvents, EpollItem};
