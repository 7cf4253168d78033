//! `epoll`: watching many files at a cost that follows the number of ready ones.

mod instance;
mod item;
mod nesting;

pub use instance::{Epoll, create_epoll};
pub use item::{EpollEvent, EpollEvents, EpollItem};
