//! Something that waits for a grace period, and the box that can be handed over without allocating.
//!
//! A callback is linked through a header inside its own allocation ([`RcuBox`]), so handing something over never allocates and
//! never fails. Its life (specs/scalability.md §L49): queued → waiting for grace period n → done → run, which consumes the allocation. There is no
//! way back.

use alloc::boxed::Box;
use core::alloc::Layout;
use core::ops::Deref;
use core::ptr::{self, NonNull};

use super::flavour::Kind;
use super::{pressure, queue};

/// Link and action of something that waits for a grace period.
pub(super) struct Header {
    next: *mut Header,
    /// Consumes the allocation that the header lies in; returns its size.
    run: unsafe fn(*mut Header) -> usize,
}

impl Header {
    pub(super) const fn new(run: unsafe fn(*mut Header) -> usize) -> Self {
        Self { next: ptr::null_mut(), run }
    }
}

#[repr(C)]
pub(super) struct Node<T> {
    header: Header,
    pub(super) value: T,
}

/// A boxed value that can be handed to RCU for a deferred drop without allocating.
pub struct RcuBox<T: Send + 'static> {
    node: NonNull<Node<T>>,
}

// SAFETY: an RcuBox owns its value like a Box.
unsafe impl<T: Send> Send for RcuBox<T> {}
// SAFETY: sharing the box shares the value.
unsafe impl<T: Send + Sync> Sync for RcuBox<T> {}

impl<T: Send + 'static> RcuBox<T> {
    /// Boxes the value. Where sleeping is possible, it may wait until fewer objects wait for grace periods on this CPU.
    pub fn new(value: T) -> Self {
        pressure::pace();
        let node = Box::new(Node { header: Header::new(drop_node::<T>), value });
        Self { node: NonNull::from(Box::leak(node)) }
    }

    /// Boxes the value unless there is no memory for it; then the value is dropped. It may wait like [`RcuBox::new`].
    pub fn try_new(value: T) -> Option<Self> {
        pressure::pace();
        // SAFETY: a node has a header, so the layout has a size.
        let memory = unsafe { alloc::alloc::alloc(Layout::new::<Node<T>>()) };
        let node = NonNull::new(memory.cast::<Node<T>>())?;
        // SAFETY: fresh memory of a node's layout from the global allocator, as `drop_node` and `drop` give it back.
        unsafe { node.write(Node { header: Header::new(drop_node::<T>), value }) };
        Some(Self { node })
    }

    /// The layout of its allocation.
    pub const LAYOUT: Layout = Layout::new::<Node<T>>();

    /// Gives up ownership, for structures that keep plain pointers.
    #[inline]
    pub fn into_pointer(self) -> NonNull<T> {
        let node = self.into_raw();
        // SAFETY: the node is alive, so its field has an address, which is not null.
        unsafe { NonNull::new_unchecked(&raw mut (*node).value) }
    }

    /// Takes back what [`RcuBox::into_pointer`] gave away.
    ///
    /// # Safety
    /// The pointer came from `into_pointer`, with its provenance, and is turned back only once.
    #[inline]
    pub unsafe fn from_pointer(value: NonNull<T>) -> Self {
        // SAFETY: the value is a field of a node that `into_pointer` leaked.
        let node = unsafe { value.as_ptr().byte_sub(core::mem::offset_of!(Node<T>, value)) };
        // SAFETY: the same, and the caller's promise.
        unsafe { Self::from_raw(node.cast()) }
    }

    /// As [`RcuBox::try_new`], for a large value, which is made in its place and not on the stack first.
    #[inline(always)]
    pub fn try_new_with(make: impl FnOnce() -> T) -> Option<Self> {
        pressure::pace();
        // SAFETY: a node has a header, so the layout has a size.
        let memory = unsafe { alloc::alloc::alloc(Layout::new::<Node<T>>()) };
        let node = NonNull::new(memory.cast::<Node<T>>())?;
        // SAFETY: fresh memory of a node's layout from the global allocator, as `drop_node` and `drop` give it back.
        unsafe {
            (&raw mut (*node.as_ptr()).header).write(Header::new(drop_node::<T>));
            (&raw mut (*node.as_ptr()).value).write(make());
        }
        Some(Self { node })
    }

    /// Drops the value after a grace period. From any context.
    pub fn defer_drop(self) {
        self.defer_drop_of(Kind::Classic);
    }

    /// Drops the value after a grace period of flavour [`super::Bh`]. From any context.
    pub fn defer_drop_bh(self) {
        self.defer_drop_of(Kind::Bh);
    }

    #[inline]
    pub(super) fn defer_drop_of(self, kind: Kind) {
        queue::enqueue(kind, self.into_raw().cast(), size_of::<Node<T>>());
    }

    pub(super) fn into_raw(self) -> *mut Node<T> {
        let node = self.node.as_ptr();
        core::mem::forget(self);
        node
    }

    /// # Safety
    /// `node` came from `into_raw` and nobody else will make a box of it.
    pub(super) unsafe fn from_raw(node: *mut Node<T>) -> Self {
        // SAFETY: `into_raw` never returns null.
        Self { node: unsafe { NonNull::new_unchecked(node) } }
    }
}

impl<T: Send> Deref for RcuBox<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the box owns a live node.
        unsafe { &self.node.as_ref().value }
    }
}

impl<T: Send + 'static> Drop for RcuBox<T> {
    fn drop(&mut self) {
        // SAFETY: the node was leaked from a Box in `new` and is dropped once.
        drop(unsafe { Box::from_raw(self.node.as_ptr()) });
    }
}

/// # Safety
/// `header` is that of a leaked `Node<T>`, which nobody else can reach any more.
unsafe fn drop_node<T>(header: *mut Header) -> usize {
    // SAFETY: the header is the first field of a `repr(C)` Node<T> that was leaked from a Box.
    drop(unsafe { Box::from_raw(header.cast::<Node<T>>()) });
    size_of::<Node<T>>()
}

/// Runs the closure after a grace period, in softirq context: it must not sleep.
pub fn call(closure: Box<dyn FnOnce() + Send>) {
    struct Call(Option<Box<dyn FnOnce() + Send>>);
    impl Drop for Call {
        fn drop(&mut self) {
            if let Some(closure) = self.0.take() {
                closure();
            }
        }
    }
    RcuBox::new(Call(Some(closure))).defer_drop();
}

/// A first-in-first-out list of headers.
pub(super) struct List {
    first: *mut Header,
    last: *mut Header,
}

// SAFETY: the headers belong to the list; what they own is Send (RcuBox's bound).
unsafe impl Send for List {}

impl List {
    pub(super) const fn new() -> Self {
        Self { first: ptr::null_mut(), last: ptr::null_mut() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    pub(super) fn push(&mut self, header: *mut Header) {
        if self.first.is_null() {
            self.first = header;
        } else {
            // SAFETY: `last` is a live header of this list, which owns it.
            unsafe { (*self.last).next = header };
        }
        self.last = header;
    }

    pub(super) fn pop(&mut self) -> Option<*mut Header> {
        let first = NonNull::new(self.first)?;
        // SAFETY: `first` is a live header of this list, which owns it.
        self.first = unsafe { first.as_ref().next };
        Some(first.as_ptr())
    }

    pub(super) fn append(&mut self, other: &mut List) {
        if other.is_empty() {
            return;
        }
        self.push(other.first);
        self.last = other.last;
        *other = List::new();
    }

    /// Takes up to so many headers from the front; returns how many.
    pub(super) fn take(&mut self, count: u64) -> (List, u64) {
        let mut taken = List::new();
        let mut number = 0;
        while number < count
            && let Some(header) = self.pop()
        {
            // SAFETY: the header is live and now belongs to neither list.
            unsafe { (*header).next = ptr::null_mut() };
            taken.push(header);
            number += 1;
        }
        (taken, number)
    }

    /// Runs all callbacks; returns how many bytes they gave back. Their grace periods are over.
    pub(super) fn run_all(mut self) -> usize {
        let mut bytes = 0;
        while let Some(header) = self.pop() {
            // SAFETY: the list owned the header; its grace period is over; `run` consumes it.
            bytes += unsafe { ((*header).run)(header) };
        }
        bytes
    }
}
