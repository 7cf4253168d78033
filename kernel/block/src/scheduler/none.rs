//! First come, first served: for devices whose own queues know better.

use alloc::collections::VecDeque;

use super::interface::Scheduler;
use crate::driver::Limits;
use crate::request::Request;
use crate::{Error, Result};

/// How many waiting requests a new one is compared with.
const LOOK_BACK: usize = 8;

/// The scheduler `none`.
#[derive(Default)]
pub struct First {
    waiting: VecDeque<Request>,
}

impl Scheduler for First {
    fn name(&self) -> &'static str {
        "none"
    }

    fn reserve(&mut self) -> Result<()> {
        self.waiting.try_reserve(1).map_err(|_| Error::OutOfMemory)
    }

    fn insert(&mut self, mut request: Request, limits: &Limits) -> bool {
        for waiting in self.waiting.iter_mut().rev().take(LOOK_BACK) {
            match waiting.absorb(request, limits) {
                Ok(()) => return true,
                Err(back) => request = back,
            }
        }
        self.waiting.push_back(request);
        false
    }

    fn next(&mut self, _now_ns: u64) -> Option<Request> {
        self.waiting.pop_front()
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
