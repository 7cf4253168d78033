//! What programs and the kernel agree on: entries, completions, parameters, flags (io_uring_setup(2), io_uring_enter(2)).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A submission: `struct io_uring_sqe`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Entry {
    pub(super) operation: u8,
    pub(super) flags: u8,
    /// The operation's own, a priority for some.
    pub(super) priority: u16,
    pub(super) descriptor: i32,
    pub(super) offset: u64,
    pub(super) address: u64,
    pub(super) length: u32,
    pub(super) operation_flags: u32,
    pub(super) user_data: u64,
    /// The registered buffer, or the group of provided ones.
    pub(super) buffer: u16,
    pub(super) personality: u16,
    /// Another descriptor, or one more than the place in the table of files.
    pub(super) other: u32,
    pub(super) address3: u64,
    pub(super) padding: u64,
}

/// A completion: `struct io_uring_cqe`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Completion {
    pub(super) user_data: u64,
    pub(super) result: i32,
    pub(super) flags: u32,
}

/// Where the parts of the submission ring are: `struct io_sqring_offsets`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct SubmissionOffsets {
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) mask: u32,
    pub(super) entries: u32,
    pub(super) flags: u32,
    pub(super) dropped: u32,
    pub(super) array: u32,
    pub(super) reserved: [u32; 3],
}

/// Where the parts of the completion ring are: `struct io_cqring_offsets`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct CompletionOffsets {
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) mask: u32,
    pub(super) entries: u32,
    pub(super) overflow: u32,
    pub(super) completions: u32,
    pub(super) flags: u32,
    pub(super) reserved: [u32; 3],
}

/// `struct io_uring_params`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Parameters {
    pub(super) submission_entries: u32,
    pub(super) completion_entries: u32,
    pub(super) flags: u32,
    pub(super) thread_cpu: u32,
    pub(super) thread_idle_ms: u32,
    pub(super) features: u32,
    pub(super) attached_to: u32,
    pub(super) reserved: [u32; 3],
    pub(super) submission: SubmissionOffsets,
    pub(super) completion: CompletionOffsets,
}

const _: () = assert!(size_of::<Entry>() == 64 && size_of::<Completion>() == 16);
const _: () = assert!(size_of::<Parameters>() == 120);

/// Flags of io_uring_setup.
pub(super) mod setup {
    pub(crate) const OWN_COMPLETIONS: u32 = 1 << 3;
    pub(crate) const CLAMP: u32 = 1 << 4;
    pub(crate) const ATTACH_WORKERS: u32 = 1 << 5;
    pub(crate) const DISABLED: u32 = 1 << 6;
    pub(crate) const SUBMIT_ALL: u32 = 1 << 7;
    pub(crate) const COOPERATIVE: u32 = 1 << 8;
    pub(crate) const FLAG_TASK_WORK: u32 = 1 << 9;
    pub(crate) const SINGLE_ISSUER: u32 = 1 << 12;
    pub(crate) const DEFER_TASK_WORK: u32 = 1 << 13;
    /// Those that are known here.
    pub(crate) const KNOWN: u32 = OWN_COMPLETIONS
        | CLAMP
        | ATTACH_WORKERS
        | DISABLED
        | SUBMIT_ALL
        | COOPERATIVE
        | FLAG_TASK_WORK
        | SINGLE_ISSUER
        | DEFER_TASK_WORK;
}

/// What io_uring_setup says that it can do.
pub(super) mod feature {
    const SINGLE_MAP: u32 = 1 << 0;
    const NO_DROP: u32 = 1 << 1;
    const STABLE_SUBMISSIONS: u32 = 1 << 2;
    const CURRENT_POSITION: u32 = 1 << 3;
    const CURRENT_PERSONALITY: u32 = 1 << 4;
    const FAST_POLL: u32 = 1 << 5;
    const POLL_32_BITS: u32 = 1 << 6;
    const EXTENDED_ARGUMENT: u32 = 1 << 8;
    const NATIVE_WORKERS: u32 = 1 << 9;
    const SKIP_COMPLETIONS: u32 = 1 << 11;
    const LINKED_FILES: u32 = 1 << 12;
    /// All that are true.
    pub(crate) const ALL: u32 = SINGLE_MAP
        | NO_DROP
        | STABLE_SUBMISSIONS
        | CURRENT_POSITION
        | CURRENT_PERSONALITY
        | FAST_POLL
        | POLL_32_BITS
        | EXTENDED_ARGUMENT
        | NATIVE_WORKERS
        | SKIP_COMPLETIONS
        | LINKED_FILES;
}

/// Flags of an entry.
pub(super) mod entry {
    pub(crate) const FIXED_FILE: u8 = 1;
    pub(crate) const DRAIN: u8 = 2;
    pub(crate) const LINK: u8 = 4;
    pub(crate) const HARD_LINK: u8 = 8;
    pub(crate) const ASYNCHRONOUS: u8 = 16;
    pub(crate) const SELECT_BUFFER: u8 = 32;
    pub(crate) const SKIP_COMPLETION: u8 = 64;
    pub(crate) const KNOWN: u8 = 127;
}

/// Flags of a completion.
pub(super) mod completion {
    /// The upper half is the number of a provided buffer.
    pub(crate) const BUFFER: u32 = 1;
    /// More completions will come.
    pub(crate) const MORE: u32 = 2;
    /// There is more in the socket.
    pub(crate) const SOCKET_NOT_EMPTY: u32 = 4;
    pub(crate) const BUFFER_SHIFT: u32 = 16;
}

/// Flags of io_uring_enter.
pub(super) mod enter {
    pub(crate) const GET_EVENTS: u32 = 1;
    pub(crate) const WAKE_THREAD: u32 = 2;
    pub(crate) const WAIT_FOR_ROOM: u32 = 4;
    pub(crate) const EXTENDED_ARGUMENT: u32 = 8;
    pub(crate) const REGISTERED_RING: u32 = 16;
}

/// In the submission ring's flags: completions wait for room.
pub(super) const COMPLETIONS_OVERFLOWED: u32 = 2;
/// In the completion ring's flags, set by the program: its event counter is not told.
pub(super) const EVENTS_DISABLED: u32 = 1;

/// Operations by number.
pub(super) mod operation {
    pub(crate) const NOP: u8 = 0;
    pub(crate) const READ_VECTORS: u8 = 1;
    pub(crate) const WRITE_VECTORS: u8 = 2;
    pub(crate) const SYNC: u8 = 3;
    pub(crate) const READ_FIXED: u8 = 4;
    pub(crate) const WRITE_FIXED: u8 = 5;
    pub(crate) const POLL_ADD: u8 = 6;
    pub(crate) const POLL_REMOVE: u8 = 7;
    pub(crate) const SYNC_RANGE: u8 = 8;
    pub(crate) const SEND_MESSAGE: u8 = 9;
    pub(crate) const RECEIVE_MESSAGE: u8 = 10;
    pub(crate) const TIMEOUT: u8 = 11;
    pub(crate) const TIMEOUT_REMOVE: u8 = 12;
    pub(crate) const ACCEPT: u8 = 13;
    pub(crate) const CANCEL: u8 = 14;
    pub(crate) const LINK_TIMEOUT: u8 = 15;
    pub(crate) const CONNECT: u8 = 16;
    pub(crate) const ALLOCATE: u8 = 17;
    pub(crate) const OPEN: u8 = 18;
    pub(crate) const CLOSE: u8 = 19;
    pub(crate) const FILES_UPDATE: u8 = 20;
    pub(crate) const STATUS: u8 = 21;
    pub(crate) const READ: u8 = 22;
    pub(crate) const WRITE: u8 = 23;
    pub(crate) const ADVISE_FILE: u8 = 24;
    pub(crate) const ADVISE_MEMORY: u8 = 25;
    pub(crate) const SEND: u8 = 26;
    pub(crate) const RECEIVE: u8 = 27;
    pub(crate) const OPEN2: u8 = 28;
    pub(crate) const EPOLL_CONTROL: u8 = 29;
    pub(crate) const SPLICE: u8 = 30;
    pub(crate) const PROVIDE_BUFFERS: u8 = 31;
    pub(crate) const REMOVE_BUFFERS: u8 = 32;
    pub(crate) const TEE: u8 = 33;
    pub(crate) const SHUT_DOWN: u8 = 34;
    pub(crate) const RENAME: u8 = 35;
    pub(crate) const UNLINK: u8 = 36;
    pub(crate) const MAKE_DIRECTORY: u8 = 37;
    pub(crate) const SYMBOLIC_LINK: u8 = 38;
    pub(crate) const HARD_LINK: u8 = 39;
    pub(crate) const MESSAGE_RING: u8 = 40;
    pub(crate) const SET_XATTR_OF_FILE: u8 = 41;
    pub(crate) const SET_XATTR: u8 = 42;
    pub(crate) const GET_XATTR_OF_FILE: u8 = 43;
    pub(crate) const GET_XATTR: u8 = 44;
    pub(crate) const SOCKET: u8 = 45;
    /// One more than the last.
    pub(crate) const COUNT: u8 = 46;
}
