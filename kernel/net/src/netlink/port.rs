//! Ports: where messages wait, and who gets which.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use sched::{WaitError, WaitQueue};
use vfs::poll::{PollEvents, PollList};
use vfs::{Error, Result, allocation};

use super::{DEVICE_EVENTS, GROUPS};
use crate::unix::{Direction, Identity, Options};

/// What a message takes besides its bytes, as far as buffers count.
const OVERHEAD_BYTES: usize = 768;
/// What numbers have in common that are given to ports which would have their process's if another one did not have it. No process has such a number.
const OTHER: u32 = 1 << 31;
/// The next of them: they go down, and begin anew when none is left.
static OTHERS: AtomicU32 = AtomicU32::new(-4097_i32 as u32);

/// A port's number and groups. Of a destination: 0 is the kernel, or no group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// The number; 0: the kernel, or a socket that is not bound.
    pub port: u32,
    /// A bit for each group.
    pub groups: u32,
}

/// A message.
pub struct Message {
    /// What is in it.
    pub bytes: Vec<u8>,
    /// Who sent it, and the group it was sent to.
    pub from: Address,
    /// On whose behalf.
    pub identity: Identity,
}

/// What waits to be received.
struct Inbox {
    messages: VecDeque<Arc<Message>>,
    /// What they count, and those that have a place reserved.
    charged: usize,
    /// Messages that have a place reserved.
    reserved: usize,
    /// Something was lost, and nothing is put in until there is no message.
    congested: bool,
}

fn charge_of(message: &Message) -> usize {
    message.bytes.len() + OVERHEAD_BYTES
}

/// A message that is sent later: it has its place in the inbox already, so that nothing can come in between. If it is dropped, the place is free again.
pub struct Reserved {
    port: Arc<Port>,
    /// Until it is sent; nobody else has it.
    message: Option<Arc<Message>>,
}

impl Reserved {
    /// Sends it, after a last change.
    pub fn send(mut self, change: impl FnOnce(&mut [u8])) {
        let Some(mut message) = self.message.take() else { return };
        if let Some(message) = Arc::get_mut(&mut message) {
            change(&mut message.bytes);
        }
        let mut inbox = self.port.inbox.lock();
        inbox.reserved -= 1;
        self.port.finish_put(inbox, message);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if let Some(message) = &self.message {
            let mut inbox = self.port.inbox.lock();
            inbox.reserved -= 1;
            inbox.charged -= charge_of(message);
        }
    }
}

/// See the theory of this module.
pub(super) struct Port {
    /// What it speaks: numbers and groups of one protocol are not those of another.
    protocol: u32,
    /// Changed with the list of ports locked.
    number: AtomicU32,
    /// As `number`.
    groups: AtomicU32,
    inbox: sched::Mutex<Inbox>,
    /// How many messages there are in the inbox: for who waits or polls.
    queued: AtomicUsize,
    /// Something was lost that nobody was told of.
    overrun: AtomicBool,
    /// Losses are not told.
    pub(super) quiet: AtomicBool,
    readers: WaitQueue,
    pub(super) pollers: PollList,
    pub(super) options: Options,
}

/// All ports that are bound or members of a group.
static PORTS: sched::Mutex<Vec<Arc<Port>>> = sched::Mutex::named("netlink ports", Vec::new());
/// How many members each group for events of devices has.
static MEMBERS: [AtomicU32; GROUPS as usize] = [const { AtomicU32::new(0) }; GROUPS as usize];

/// Whether somebody is in a group for events of devices.
pub fn has_members(group: u32) -> bool {
    MEMBERS.get(group.wrapping_sub(1) as usize).is_some_and(|count| count.load(Ordering::Acquire) > 0)
}

const fn bit_of(group: u32) -> u32 {
    if group >= 1 && group <= GROUPS { 1 << (group - 1) } else { 0 }
}

/// Sends the members of a group for events of devices what `make` makes. It is called once, and before it no message that is made later is sent.
///
/// # Errors
/// Those of `make`.
pub fn publish(group: u32, make: impl FnOnce() -> Result<Vec<u8>>) -> Result<()> {
    let ports = PORTS.lock();
    let from = Address { port: 0, groups: bit_of(group) };
    let identity = Identity { process: 0, user: 0, group: 0 };
    let message = allocation::arc(Message { bytes: make()?, from, identity })?;
    deliver(&ports, DEVICE_EVENTS, group, &message, None);
    Ok(())
}

/// Sends the members of a group a message of one of the ports, which does not get it itself.
pub(super) fn multicast(group: u32, message: &Arc<Message>, sender: &Port) {
    deliver(&PORTS.lock(), sender.protocol, group, message, Some(sender));
}

/// Sends one port a message.
///
/// # Errors
/// `ECONNREFUSED` if there is none of that number; `EAGAIN` if there is no room, `ENOMEM`.
pub(super) fn unicast(protocol: u32, number: u32, message: &Arc<Message>) -> Result<()> {
    let ports = PORTS.lock();
    let is_it =
        |port: &&Arc<Port>| port.protocol == protocol && port.number.load(Ordering::Relaxed) == number;
    let port = ports.iter().find(is_it);
    let port = port.ok_or(Error::ConnectionRefused)?;
    port.put(message)
}

fn deliver(ports: &[Arc<Port>], protocol: u32, group: u32, message: &Arc<Message>, sender: Option<&Port>) {
    let is_sender = |port: &Port| sender.is_some_and(|sender| core::ptr::eq(sender, port));
    let is_member = |port: &Port| port.protocol == protocol && port.address().groups & bit_of(group) != 0;
    for port in ports.iter().filter(|port| is_member(port) && !is_sender(port)) {
        if port.put(message).is_err() {
            port.lose();
        }
    }
}

/// Counts a member that comes or goes, for each group.
fn count_members(before: u32, after: u32) {
    for (index, count) in MEMBERS.iter().enumerate() {
        // Release: pairs with the load in `has_members`.
        match (before >> index & 1, after >> index & 1) {
            (0, 1) => count.fetch_add(1, Ordering::Release),
            (1, 0) => count.fetch_sub(1, Ordering::Release),
            _ => 0,
        };
    }
}

impl Port {
    pub(super) const fn new(protocol: u32) -> Self {
        Self {
            protocol,
            number: AtomicU32::new(0),
            groups: AtomicU32::new(0),
            inbox: sched::Mutex::new(Inbox {
                messages: VecDeque::new(),
                charged: 0,
                reserved: 0,
                congested: false,
            }),
            queued: AtomicUsize::new(0),
            overrun: AtomicBool::new(false),
            quiet: AtomicBool::new(false),
            readers: WaitQueue::new(),
            pollers: PollList::new(),
            options: Options::new(),
        }
    }

    pub(super) fn protocol(&self) -> u32 {
        self.protocol
    }

    pub(super) fn address(&self) -> Address {
        Address { port: self.number.load(Ordering::Relaxed), groups: self.groups.load(Ordering::Relaxed) }
    }

    /// Gives it the number, or one for the process if that is 0; and its groups, if any are named.
    ///
    /// # Errors
    /// `EINVAL` if it has another number; `EADDRINUSE`, `ENOMEM`.
    pub(super) fn bind(self: &Arc<Self>, wanted: Address, process: u32) -> Result<()> {
        let mut ports = PORTS.lock();
        let own = self.address();
        if own.port != 0 && own.port != wanted.port {
            return Err(Error::Invalid);
        }
        self.claim(&mut ports, wanted.port, process)?;
        self.set_groups(wanted.groups);
        Ok(())
    }

    /// Takes the number, or one for the process if that is 0.
    fn claim(self: &Arc<Self>, ports: &mut Vec<Arc<Self>>, wanted: u32, process: u32) -> Result<()> {
        let is_taken = |number: u32| {
            ports.iter().any(|port| {
                port.protocol == self.protocol
                    && port.number.load(Ordering::Relaxed) == number
                    && !Arc::ptr_eq(port, self)
            })
        };
        let number = match wanted {
            0 if !is_taken(process) => process,
            0 => {
                // There are fewer ports than numbers.
                let others = core::iter::repeat_with(|| OTHERS.fetch_sub(1, Ordering::Relaxed) | OTHER);
                others.into_iter().find(|number| !is_taken(*number)).ok_or(Error::AddressInUse)?
            }
            number if is_taken(number) => return Err(Error::AddressInUse),
            number => number,
        };
        self.enter(ports)?;
        self.number.store(number, Ordering::Relaxed);
        Ok(())
    }

    /// Gives it a number if it has none.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub(super) fn bind_if_not(self: &Arc<Self>, process: u32) -> Result<()> {
        if self.address().port != 0 {
            return Ok(());
        }
        let mut ports = PORTS.lock();
        // Another thread may have bound it since.
        if self.address().port != 0 { Ok(()) } else { self.claim(&mut ports, 0, process) }
    }

    /// Makes it a member of a group, or no member.
    ///
    /// # Errors
    /// `EINVAL` if there is no such group, `ENOMEM`.
    pub(super) fn set_member(self: &Arc<Self>, group: u32, member: bool) -> Result<()> {
        let bit = bit_of(group);
        if bit == 0 {
            return Err(Error::Invalid);
        }
        let mut ports = PORTS.lock();
        self.enter(&mut ports)?;
        let groups = self.address().groups;
        self.set_groups(if member { groups | bit } else { groups & !bit });
        Ok(())
    }

    /// With the list locked.
    fn set_groups(&self, groups: u32) {
        let before = self.groups.swap(groups, Ordering::Relaxed);
        if self.protocol == DEVICE_EVENTS {
            count_members(before, groups);
        }
    }

    fn enter(self: &Arc<Self>, ports: &mut Vec<Arc<Self>>) -> Result<()> {
        if ports.iter().any(|port| Arc::ptr_eq(port, self)) {
            return Ok(());
        }
        allocation::push(ports, self.clone())
    }

    /// Its socket is gone.
    pub(super) fn leave(self: &Arc<Self>) {
        let mut ports = PORTS.lock();
        self.set_groups(0);
        ports.retain(|port| !Arc::ptr_eq(port, self));
        drop(ports);
        let left = core::mem::take(&mut self.inbox.lock().messages);
        drop(left);
    }

    /// What its filter keeps of a message.
    fn kept(&self, message: &Arc<Message>) -> Result<Option<Arc<Message>>> {
        Ok(match self.options.filter.kept(message.bytes.as_slice()) {
            None => None,
            Some(kept) if kept == message.bytes.len() => Some(message.clone()),
            Some(kept) => {
                let mut bytes = Vec::new();
                allocation::extend(&mut bytes, &message.bytes[..kept])?;
                Some(allocation::arc(Message { bytes, ..**message })?)
            }
        })
    }

    /// Puts a message in, or what the port's filter keeps of it. Fails with `EAGAIN` when there is no room.
    pub(super) fn put(&self, message: &Arc<Message>) -> Result<()> {
        let Some(message) = self.kept(message)? else { return Ok(()) };
        let mut inbox = self.inbox.lock();
        if inbox.congested || inbox.charged > self.options.buffer(Direction::Receive) {
            return Err(Error::WouldBlock);
        }
        self.make_place(&mut inbox)?;
        inbox.charged += charge_of(&message);
        self.finish_put(inbox, message);
        Ok(())
    }

    /// Makes a place for one message more than there are, and have places reserved.
    fn make_place(&self, inbox: &mut Inbox) -> Result<()> {
        allocation::fail_point()?;
        let places = inbox.reserved + 1;
        inbox.messages.try_reserve(places).map_err(|_| Error::OutOfMemory)
    }

    /// Puts in a message that has a place and is charged.
    fn finish_put(&self, mut inbox: sched::MutexGuard<'_, Inbox>, message: Arc<Message>) {
        inbox.messages.push_back(message);
        self.publish_length(&inbox);
        drop(inbox);
        self.readers.wake_one();
        self.pollers.notify(PollEvents::INPUT);
    }

    /// Reserves a place. Fails as [`put`](Self::put) does.
    pub(super) fn reserve(self: &Arc<Self>, message: Arc<Message>) -> Result<Reserved> {
        let mut inbox = self.inbox.lock();
        if inbox.congested || inbox.charged > self.options.buffer(Direction::Receive) {
            return Err(Error::WouldBlock);
        }
        self.make_place(&mut inbox)?;
        inbox.charged += charge_of(&message);
        inbox.reserved += 1;
        drop(inbox);
        Ok(Reserved { port: self.clone(), message: Some(message) })
    }

    /// A message found no room.
    pub(super) fn lose(&self) {
        let mut inbox = self.inbox.lock();
        if inbox.congested || self.quiet.load(Ordering::Relaxed) {
            return;
        }
        // Whoever takes the last one out ends it.
        inbox.congested = !inbox.messages.is_empty();
        self.overrun.store(true, Ordering::Release);
        drop(inbox);
        self.readers.wake_all();
        self.pollers.notify(PollEvents::INPUT | PollEvents::ERROR);
    }

    /// With the inbox locked.
    fn publish_length(&self, inbox: &Inbox) {
        // Release: pairs with the Acquire in `is_empty`.
        self.queued.store(inbox.messages.len(), Ordering::Release);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queued.load(Ordering::Acquire) == 0
    }

    pub(super) fn has_overrun(&self) -> bool {
        self.overrun.load(Ordering::Acquire)
    }

    /// Whether something was lost that nobody was told of; now somebody is.
    pub(super) fn take_overrun(&self) -> bool {
        self.has_overrun() && self.overrun.swap(false, Ordering::AcqRel)
    }

    /// The first message, which stays.
    pub(super) fn first(&self) -> Option<Arc<Message>> {
        self.inbox.lock().messages.front().cloned()
    }

    /// The first message, which goes.
    pub(super) fn take(&self) -> Option<Arc<Message>> {
        if self.is_empty() {
            return None;
        }
        let mut inbox = self.inbox.lock();
        let message = inbox.messages.pop_front()?;
        inbox.charged -= charge_of(&message);
        inbox.congested &= !inbox.messages.is_empty();
        self.publish_length(&inbox);
        let more = !inbox.messages.is_empty();
        drop(inbox);
        if more {
            // A wake-up that this call has had may be for what it left.
            self.readers.wake_one();
        }
        Some(message)
    }

    /// Waits until there is something to receive or to be told of.
    pub(super) fn wait(&self, deadline_ns: Option<u64>) -> Result<()> {
        let ready = || !self.is_empty() || self.has_overrun();
        let outcome = self.readers.wait_interruptible_deadline(ready, deadline_ns);
        outcome.map_err(|error| match error {
            WaitError::Interrupted => Error::Interrupted,
            WaitError::TimedOut => Error::WouldBlock,
        })
    }
}
