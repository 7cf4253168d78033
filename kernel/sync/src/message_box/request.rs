//! What CPUs can ask of each other, and who answers.
//!
//! Each type of request has one handler, registered once by the layer that knows what to do. A handler runs on the target's CPU with
//! interrupts off, from the interrupt or while the CPU itself waits for an answer: it is short, takes only locks that
//! nobody holds while he sends, and sends nothing itself (checked).

use core::sync::atomic::{AtomicPtr, Ordering};

use machine::cpu::CpuId;

use super::protocol::WORDS;

/// The types of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    /// Nothing; to measure what a request costs.
    Noop = 1,
    /// Answers with the complement of each word.
    Echo,
    /// Enters the kernel debugger in the handler.
    EnterDebugger,
    /// A test's: its handler sends a request back, which handlers must not.
    Nested,
    /// Makes a page of the target's thread control blocks visible.
    ResolvePageFault,
    /// A message for a thread of the target.
    IpcSend,
    /// The end of a send that a thread of the target waits for.
    IpcWakeup,
    /// Takes a send back that waits at the target.
    IpcCancel,
    /// Hands a control block over to the CPU that its thread has migrated to.
    IpcAdopt,
    /// Calls a function: see [`crate::remote::call`].
    Call,
    /// Calls a function that makes the target forget translations: see [`crate::remote::flush_tlb`].
    FlushTlb,
}

impl Kind {
    /// All types.
    pub const ALL: [Kind; 11] = [
        Kind::Noop,
        Kind::Echo,
        Kind::EnterDebugger,
        Kind::Nested,
        Kind::ResolvePageFault,
        Kind::IpcSend,
        Kind::IpcWakeup,
        Kind::IpcCancel,
        Kind::IpcAdopt,
        Kind::Call,
        Kind::FlushTlb,
    ];

    /// The type's name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Noop => "noop",
            Kind::Echo => "echo",
            Kind::EnterDebugger => "enter_debugger",
            Kind::Nested => "nested",
            Kind::ResolvePageFault => "resolve_page_fault",
            Kind::IpcSend => "ipc_send",
            Kind::IpcWakeup => "ipc_wakeup",
            Kind::IpcCancel => "ipc_cancel",
            Kind::IpcAdopt => "ipc_adopt",
            Kind::Call => "call",
            Kind::FlushTlb => "flush_tlb",
        }
    }

    /// Its place in [`Kind::ALL`].
    pub(super) const fn index(self) -> usize {
        self as usize - 1
    }

    /// The type that a box holds.
    pub(super) fn from_number(number: u32) -> Option<Kind> {
        Self::ALL.get((number as usize).checked_sub(1)?).copied()
    }
}

/// What one CPU asks of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// The type.
    pub kind: Kind,
    /// Parameters, as the type's handler takes them.
    pub words: [u64; WORDS],
}

/// What a handler answered.
pub type Response = [u64; WORDS];

/// Answers a request of that CPU.
pub type Handler = fn(sender: CpuId, words: [u64; WORDS]) -> Response;

/// A [`Handler`] for each type; null while there is none.
static HANDLERS: [AtomicPtr<()>; Kind::ALL.len()] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; Kind::ALL.len()];

/// Registers who answers requests of a type. At start-up, before the first one is sent; tests may replace theirs.
pub fn set_handler(kind: Kind, handler: Handler) {
    assert!(!matches!(kind, Kind::Call | Kind::FlushTlb), "calls are handled here");
    // Release: what the layer has initialised before is seen by its handler.
    HANDLERS[kind.index()].store(handler as *mut (), Ordering::Release);
}

/// Answers a request. A type without a handler answers with its own words.
pub(super) fn handle(sender: CpuId, number: u32, words: [u64; WORDS]) -> Response {
    let kind = Kind::from_number(number).expect("only types are put into boxes");
    match kind {
        Kind::Noop => words,
        Kind::Echo => words.map(|word| !word),
        Kind::Call | Kind::FlushTlb => {
            // SAFETY: `sending::call` alone sends these types, and puts a `fn(usize)` into the first word; the word was
            // seen by way of the type's Acquire.
            let function = unsafe { core::mem::transmute::<usize, fn(usize)>(words[0] as usize) };
            function(words[1] as usize);
            words
        }
        _ => {
            let pointer = HANDLERS[kind.index()].load(Ordering::Acquire);
            if pointer.is_null() {
                return words;
            }
            // SAFETY: a non-null pointer was made from a `Handler` in `set_handler`, the only writer.
            let handler = unsafe { core::mem::transmute::<*mut (), Handler>(pointer) };
            handler(sender, words)
        }
    }
}
