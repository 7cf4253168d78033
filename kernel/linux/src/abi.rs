//! Structures of the x86-64 Linux ABI that cross the user boundary, laid out byte for byte.
//!
//! Each one derives zerocopy's traits, so that it moves to and from user memory as bytes without unsafe code
//! (see [`crate::user_pointer`]). Sizes are asserted at compile time. Constants come from `linux-raw-sys`.

pub use net::bpf::Instruction as FilterInstruction;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! abi_structures {
    ($($(#[$doc:meta])* $name:ident, $size:expr, { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            #[allow(missing_docs, reason = "the fields are the manual's")]
            pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }

            const _: () = assert!(size_of::<$name>() == $size);

            impl Default for $name {
                fn default() -> Self {
                    <$name as zerocopy::FromZeros>::new_zeroed()
                }
            }
        )*
    };
}

abi_structures! {
    /// `struct timespec`.
    Timespec, 16, { seconds: i64, nanoseconds: i64, }
    /// `struct iocb`: what is to be transferred.
    IoControlBlock, 64, {
        data: u64, key: u32, transfer_flags: u32, operation: u16, priority: i16, descriptor: u32, memory: u64, bytes: u64,
        position: i64, reserved: u64, flags: u32, told: u32,
    }
    /// `struct io_event`: how that ended.
    IoEvent, 32, { data: u64, block: u64, result: i64, second_result: i64, }
    /// `struct mq_attr`.
    QueueAttributes, 64, { flags: i64, messages_max: i64, bytes_max: i64, messages: i64, reserved: [u64; 4], }
    /// `struct ptrace_syscall_info`, with what depends on the operation as words.
    SystemCallInformation, 88, {
        operation: u8, padding: [u8; 3], architecture: u32, instruction: u64, stack: u64, words: [u64; 8],
    }
    /// `struct ptrace_rseq_configuration`.
    SequenceConfiguration, 24, { address: u64, bytes: u32, signature: u32, flags: u32, padding: u32, }
    /// `struct ptrace_peeksiginfo_args`.
    PeekSignals, 16, { offset: u64, flags: u32, count: i32, }
    /// `struct sock_fprog`: a program of classic BPF.
    FilterProgram, 16, { count: u16, padding: [u16; 3], instructions: u64, }
    /// `struct timeval`.
    Timeval, 16, { seconds: i64, microseconds: i64, }
    /// `struct timezone`.
    Timezone, 8, { minutes_west: i32, dst_time: i32, }
    /// `struct itimerval`.
    IntervalTimerValue, 32, { interval: Timeval, value: Timeval, }
    /// `struct itimerspec`.
    IntervalTimerSpec, 32, { interval: Timespec, value: Timespec, }
    /// `struct rlimit64`.
    ResourceLimit, 16, { current: u64, maximum: u64, }
    /// `struct rusage`.
    ResourceUsage, 144, {
        user_time: Timeval, system_time: Timeval, maximum_resident_kib: i64, shared_text: i64, unshared_data: i64,
        unshared_stack: i64, minor_faults: i64, major_faults: i64, swaps: i64, blocks_in: i64, blocks_out: i64,
        messages_sent: i64, messages_received: i64, signals: i64, voluntary_switches: i64, involuntary_switches: i64,
    }
    /// `struct tms`.
    ProcessTimes, 32, { user: i64, system: i64, children_user: i64, children_system: i64, }
    /// `struct sysinfo`.
    SystemInformation, 112, {
        uptime: i64, loads: [u64; 3], total_ram: u64, free_ram: u64, shared_ram: u64, buffer_ram: u64, total_swap: u64,
        free_swap: u64, processes: u16, padding: [u8; 6], total_high: u64, free_high: u64, memory_unit: u32, tail: [u8; 4],
    }
    /// `struct new_utsname`.
    UnameNames, 390, {
        system: [u8; 65], node: [u8; 65], release: [u8; 65], version: [u8; 65], machine: [u8; 65], domain: [u8; 65],
    }
    /// `struct sigaction` as the kernel takes it.
    SignalActionWords, 32, { handler: u64, flags: u64, restorer: u64, mask: u64, }
    /// `stack_t`.
    AlternateStack, 24, { base: u64, flags: i32, padding: i32, size: u64, }
    /// `siginfo_t`; `fields` holds the union.
    SignalInfoWords, 128, { signal: i32, error: i32, code: i32, padding: i32, fields: [u64; 4], rest: [u64; 10], }
    /// `struct sigcontext`.
    SignalContext, 256, {
        r8: u64, r9: u64, r10: u64, r11: u64, r12: u64, r13: u64, r14: u64, r15: u64, rdi: u64, rsi: u64, rbp: u64, rbx: u64,
        rdx: u64, rax: u64, rcx: u64, rsp: u64, rip: u64, rflags: u64, cs: u16, gs: u16, fs: u16, ss: u16, error: u64,
        trap: u64, old_mask: u64, cr2: u64, fpu_state: u64, reserved: [u64; 8],
    }
    /// `struct ucontext`.
    UserContextWords, 304, {
        flags: u64, link: u64, stack: AlternateStack, context: SignalContext, mask: u64,
    }
    /// `struct rt_sigframe` without the FPU state, which lies above it.
    SignalFrame, 440, { return_address: u64, user: UserContextWords, info: SignalInfoWords, }
    /// `struct _fpx_sw_bytes`, which sits in the software-reserved bytes of the FPU state in a signal frame.
    FpuSoftwareBytes, 48, { magic: u32, extended_size: u32, features: u64, state_size: u32, padding: [u32; 7], }
    /// `struct clone_args`.
    CloneArguments, 88, {
        flags: u64, pidfd: u64, child_tid: u64, parent_tid: u64, exit_signal: u64, stack: u64, stack_size: u64, tls: u64,
        set_tid: u64, set_tid_size: u64, cgroup: u64,
    }
    /// `struct robust_list_head`.
    RobustListHead, 24, { list: u64, futex_offset: i64, pending: u64, }
    /// `struct rseq` as first registered (32 bytes).
    RestartableSequence, 32, {
        cpu_id_start: u32, cpu_id: u32, section: u64, flags: u32, node_id: u32, mm_cid: u32, padding: u32,
    }
    /// `struct rseq_cs`.
    CriticalSection, 32, { version: u32, flags: u32, start: u64, length: u64, abort: u64, }
    /// `struct __user_cap_header_struct`.
    CapabilityHeader, 8, { version: u32, pid: i32, }
    /// `struct __user_cap_data_struct`.
    CapabilityData, 12, { effective: u32, permitted: u32, inheritable: u32, }
    /// `struct sched_attr` of the first published size.
    SchedulingAttributes, 48, {
        size: u32, policy: u32, flags: u64, nice: i32, priority: u32, runtime: u64, deadline: u64, period: u64,
    }
    /// `struct sigevent`.
    SignalEvent, 64, { value: u64, signal: i32, notify: i32, thread: i32, tail: [u32; 11], }
    /// `struct signalfd_siginfo`.
    SignalFdInformation, 128, {
        signal: u32, error: i32, code: i32, pid: u32, uid: u32, descriptor: i32, timer: u32, band: u32, overrun: u32,
        trap: u32, status: i32, integer: i32, pointer: u64, user_time: u64, system_time: u64, address: u64,
        address_lsb: u16, padding_2: u16, syscall: i32, call_address: u64, architecture: u32, tail: [u8; 28],
    }
    /// One element of `futex_waitv`.
    FutexWaiter, 24, { value: u64, address: u64, flags: u32, reserved: u32, }
    /// `struct iovec`.
    IoVector, 16, { base: u64, length: u64, }
    /// `struct msghdr`.
    MessageHeader, 56, {
        name: u64, name_length: u32, padding: u32, vector_list: u64, vectors: u64, control: u64, control_length: u64,
        flags: u32, tail: u32,
    }
    /// `struct cmsghdr`.
    ControlHeader, 16, { length: u64, level: i32, kind: i32, }
    /// `struct ucred`.
    UserCredentials, 12, { process: u32, user: u32, group: u32, }
    /// The last argument of `pselect6`.
    PselectMask, 16, { mask: u64, size: u64, }
    /// `struct ipc64_perm`.
    IpcPermissions, 48, {
        key: i32, user: u32, group: u32, creator_user: u32, creator_group: u32, mode: u32, sequence: u16, padding: [u16; 3],
        unused: [u64; 2],
    }
    /// `struct msqid64_ds`.
    MessageQueueStatus, 120, {
        permissions: IpcPermissions, sent: u64, received: u64, changed: u64, bytes: u64, messages: u64, capacity: u64,
        last_sender: u32, last_receiver: u32, unused: [u64; 2],
    }
    /// `struct msginfo`.
    MessageLimits, 32, {
        pool: i32, map: i32, bytes_max: i32, capacity: i32, queues_max: i32, segment_bytes: i32, headers: i32, segments_max: u16,
        padding: u16,
    }
    /// `struct semid64_ds`.
    SemaphoreSetStatus, 104, {
        permissions: IpcPermissions, operated: u64, unused_1: u64, changed: u64, unused_2: u64, semaphores: u64, unused: [u64; 2],
    }
    /// `struct seminfo`.
    SemaphoreLimits, 40, {
        map: i32, sets_max: i32, semaphores_max: i32, undos_max: i32, set_max: i32, operations_max: i32, undo_entries_max: i32,
        undo_bytes: i32, value_max: i32, adjustment_max: i32,
    }
    /// `struct sembuf`.
    SemaphoreOperation, 6, { semaphore: u16, change: i16, flags: i16, }
    /// `struct shmid64_ds`.
    SharedMemoryStatus, 112, {
        permissions: IpcPermissions, bytes: u64, attached: u64, detached: u64, changed: u64, creator: u32, last_process: u32,
        attachments: u64, unused: [u64; 2],
    }
    /// `struct shminfo64`.
    SharedMemoryLimits, 72, {
        bytes_max: u64, bytes_least: u64, segments_max: u64, attachments_max: u64, pages_max: u64, unused: [u64; 4],
    }
    /// `struct shm_info`.
    SharedMemoryTotals, 48, {
        segments: i32, padding: i32, pages: u64, resident: u64, swapped: u64, swap_attempts: u64, swap_successes: u64,
    }
}

/// Nanoseconds in a second.
pub const NANOSECONDS: u64 = 1_000_000_000;

impl Timespec {
    /// The time of a count of nanoseconds.
    pub fn from_ns(ns: u64) -> Timespec {
        Timespec { seconds: (ns / NANOSECONDS) as i64, nanoseconds: (ns % NANOSECONDS) as i64 }
    }

    /// The count of nanoseconds, at most `i64::MAX`; `None` when the fields are out of range.
    pub fn to_ns(self) -> Option<u64> {
        if self.seconds < 0 || !(0..NANOSECONDS as i64).contains(&self.nanoseconds) {
            return None;
        }
        let ns = (self.seconds as u64).saturating_mul(NANOSECONDS).saturating_add(self.nanoseconds as u64);
        Some(ns.min(i64::MAX as u64))
    }
}

impl Timeval {
    /// The time of a count of nanoseconds, rounded down to microseconds.
    pub fn from_ns(ns: u64) -> Timeval {
        Timeval { seconds: (ns / NANOSECONDS) as i64, microseconds: (ns % NANOSECONDS / 1000) as i64 }
    }

    /// The count of nanoseconds; `None` when the fields are out of range.
    pub fn to_ns(self) -> Option<u64> {
        if self.seconds < 0 || !(0..1_000_000).contains(&self.microseconds) {
            return None;
        }
        let ns =
            (self.seconds as u64).saturating_mul(NANOSECONDS).saturating_add(self.microseconds as u64 * 1000);
        Some(ns.min(i64::MAX as u64))
    }
}

impl ResourceUsage {
    /// The sum of two usages: times and counts add, the resident maximum is the greater one.
    pub fn add(&mut self, other: &ResourceUsage) {
        let sum = |a: Timeval, b: Timeval| {
            Timeval::from_ns(a.to_ns().unwrap_or(0).saturating_add(b.to_ns().unwrap_or(0)))
        };
        self.user_time = sum(self.user_time, other.user_time);
        self.system_time = sum(self.system_time, other.system_time);
        self.maximum_resident_kib = self.maximum_resident_kib.max(other.maximum_resident_kib);
        self.minor_faults += other.minor_faults;
        self.major_faults += other.major_faults;
        self.voluntary_switches += other.voluntary_switches;
        self.involuntary_switches += other.involuntary_switches;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timespec_rejects_fields_out_of_range() {
        assert_eq!(Timespec { seconds: 0, nanoseconds: 1_000_000_000 }.to_ns(), None);
        assert_eq!(Timespec { seconds: -1, nanoseconds: 0 }.to_ns(), None);
        assert_eq!(Timespec { seconds: i64::MAX, nanoseconds: 5 }.to_ns(), Some(i64::MAX as u64));
        assert_eq!(Timespec::from_ns(1_500_000_000), Timespec { seconds: 1, nanoseconds: 500_000_000 });
    }
}
