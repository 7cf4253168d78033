//! What the arguments of calls are called in the manual: flags, commands and values that a kernel may have or lack.
//!
//! An argument that the kernel's table says nothing of need not be here.

/// How an argument has its names.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// Each bit that is set has one.
    Flags,
    /// The bits of this mask are one number, and the number has one.
    Value(u64),
}

/// Where it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place {
    /// In a register, counted from 0.
    Register(usize),
    /// In memory that a register points to: the register, how far behind it, and how many bytes it has.
    Memory(usize, u64, u32),
}

/// One argument of some calls.
#[derive(Debug)]
pub(super) struct Argument {
    pub(super) calls: &'static [&'static str],
    pub(super) place: Place,
    /// Counts only if another register has this value.
    pub(super) when: Option<(usize, u64)>,
    pub(super) form: Form,
    pub(super) names: &'static [(&'static str, u64)],
}

impl Argument {
    /// What a value of it is called. What has no name is called by its number.
    pub(super) fn names_in(&self, value: u64) -> Vec<String> {
        let named = |wanted: u64| self.names.iter().find(|(_, value)| *value == wanted);
        match self.form {
            Form::Flags => {
                let is_set = |(_, bits): &&(&str, u64)| value & bits == *bits;
                self.names.iter().filter(is_set).map(|(name, _)| (*name).to_owned()).collect()
            }
            Form::Value(mask) => {
                let number = value & mask;
                vec![named(number).map_or_else(|| format!("{number:#x}"), |(name, _)| (*name).to_owned())]
            }
        }
    }
}

/// A command or value in a register's lower half.
const INT: Form = Form::Value(0xffff_ffff);
/// The level of socket options.
const SOL_SOCKET: u64 = 1;
const AF_NETLINK: u64 = 16;

const CLONE: &[(&str, u64)] = &[
    ("CLONE_PIDFD", 0x1000),
    ("CLONE_NEWTIME", 0x80),
    ("CLONE_NEWNS", 0x2_0000),
    ("CLONE_NEWCGROUP", 0x0200_0000),
    ("CLONE_NEWUTS", 0x0400_0000),
    ("CLONE_NEWIPC", 0x0800_0000),
    ("CLONE_NEWUSER", 0x1000_0000),
    ("CLONE_NEWPID", 0x2000_0000),
    ("CLONE_NEWNET", 0x4000_0000),
    ("CLONE_IO", 0x8000_0000),
    ("CLONE_CLEAR_SIGHAND", 1 << 32),
    ("CLONE_INTO_CGROUP", 1 << 33),
];

/// The bits in which `clone` has a signal are time name spaces for the others.
const CLONE_SIGNAL_FREE: &[(&str, u64)] = CLONE.split_at(2).1;

const MESSAGE: &[(&str, u64)] = &[
    ("MSG_OOB", 0x1),
    ("MSG_PEEK", 0x2),
    ("MSG_TRUNC", 0x20),
    ("MSG_WAITALL", 0x100),
    ("MSG_ERRQUEUE", 0x2000),
    ("MSG_ZEROCOPY", 0x0400_0000),
    ("MSG_FASTOPEN", 0x2000_0000),
];

/// All that are known.
pub(super) const ARGUMENTS: &[Argument] = &[
    Argument {
        calls: &["mmap"],
        place: Place::Register(3),
        when: None,
        form: Form::Flags,
        names: &[
            ("MAP_32BIT", 0x40),
            ("MAP_GROWSDOWN", 0x100),
            ("MAP_LOCKED", 0x2000),
            ("MAP_POPULATE", 0x8000),
            ("MAP_STACK", 0x2_0000),
            ("MAP_HUGETLB", 0x4_0000),
            ("MAP_SYNC", 0x8_0000),
            ("MAP_FIXED_NOREPLACE", 0x10_0000),
        ],
    },
    Argument {
        calls: &["mprotect", "pkey_mprotect"],
        place: Place::Register(2),
        when: None,
        form: Form::Flags,
        names: &[("PROT_GROWSDOWN", 0x0100_0000), ("PROT_GROWSUP", 0x0200_0000)],
    },
    Argument {
        calls: &["madvise", "process_madvise"],
        place: Place::Register(2),
        when: None,
        form: INT,
        names: &[
            ("MADV_NORMAL", 0),
            ("MADV_RANDOM", 1),
            ("MADV_SEQUENTIAL", 2),
            ("MADV_WILLNEED", 3),
            ("MADV_DONTNEED", 4),
            ("MADV_FREE", 8),
            ("MADV_REMOVE", 9),
            ("MADV_DONTFORK", 10),
            ("MADV_DOFORK", 11),
            ("MADV_MERGEABLE", 12),
            ("MADV_UNMERGEABLE", 13),
            ("MADV_HUGEPAGE", 14),
            ("MADV_NOHUGEPAGE", 15),
            ("MADV_DONTDUMP", 16),
            ("MADV_DODUMP", 17),
            ("MADV_WIPEONFORK", 18),
            ("MADV_KEEPONFORK", 19),
            ("MADV_COLD", 20),
            ("MADV_PAGEOUT", 21),
            ("MADV_POPULATE_READ", 22),
            ("MADV_POPULATE_WRITE", 23),
            ("MADV_DONTNEED_LOCKED", 24),
            ("MADV_COLLAPSE", 25),
            ("MADV_HWPOISON", 100),
            ("MADV_SOFT_OFFLINE", 101),
        ],
    },
    Argument {
        calls: &["shmget"],
        place: Place::Register(2),
        when: None,
        form: Form::Flags,
        names: &[("SHM_HUGETLB", 0x800)],
    },
    Argument {
        calls: &["memfd_create"],
        place: Place::Register(1),
        when: None,
        form: Form::Flags,
        names: &[("MFD_CLOEXEC", 1), ("MFD_ALLOW_SEALING", 2), ("MFD_HUGETLB", 4)],
    },
    Argument {
        calls: &["clone"],
        place: Place::Register(0),
        when: None,
        form: Form::Flags,
        names: CLONE_SIGNAL_FREE,
    },
    Argument { calls: &["unshare"], place: Place::Register(0), when: None, form: Form::Flags, names: CLONE },
    Argument {
        calls: &["clone3"],
        place: Place::Memory(0, 0, 8),
        when: None,
        form: Form::Flags,
        names: CLONE,
    },
    Argument {
        calls: &["socket", "socketpair"],
        place: Place::Register(0),
        when: None,
        form: INT,
        names: &[
            ("AF_UNIX", 1),
            ("AF_INET", 2),
            ("AF_AX25", 3),
            ("AF_INET6", 10),
            ("AF_KEY", 15),
            ("AF_NETLINK", AF_NETLINK),
            ("AF_PACKET", 17),
            ("AF_RDS", 21),
            ("AF_CAN", 29),
            ("AF_TIPC", 30),
            ("AF_BLUETOOTH", 31),
            ("AF_ALG", 38),
            ("AF_VSOCK", 40),
            ("AF_XDP", 44),
        ],
    },
    Argument {
        calls: &["socket"],
        place: Place::Register(2),
        when: Some((0, AF_NETLINK)),
        form: INT,
        names: &[
            ("NETLINK_ROUTE", 0),
            ("NETLINK_SOCK_DIAG", 4),
            ("NETLINK_XFRM", 6),
            ("NETLINK_SELINUX", 7),
            ("NETLINK_AUDIT", 9),
            ("NETLINK_CONNECTOR", 11),
            ("NETLINK_NETFILTER", 12),
            ("NETLINK_KOBJECT_UEVENT", 15),
            ("NETLINK_GENERIC", 16),
            ("NETLINK_CRYPTO", 21),
        ],
    },
    Argument {
        calls: &["sendto", "recvfrom"],
        place: Place::Register(3),
        when: None,
        form: Form::Flags,
        names: MESSAGE,
    },
    Argument {
        calls: &["sendmsg", "recvmsg"],
        place: Place::Register(2),
        when: None,
        form: Form::Flags,
        names: MESSAGE,
    },
    Argument {
        calls: &["setsockopt", "getsockopt"],
        place: Place::Register(2),
        when: Some((1, SOL_SOCKET)),
        form: INT,
        names: &[
            ("SO_DEBUG", 1),
            ("SO_REUSEADDR", 2),
            ("SO_TYPE", 3),
            ("SO_ERROR", 4),
            ("SO_SNDBUF", 7),
            ("SO_RCVBUF", 8),
            ("SO_PASSCRED", 16),
            ("SO_PEERCRED", 17),
            ("SO_RCVTIMEO", 20),
            ("SO_SNDTIMEO", 21),
            ("SO_ATTACH_FILTER", 26),
            ("SO_TIMESTAMP", 29),
            ("SO_TIMESTAMPNS", 35),
            ("SO_TIMESTAMPING", 37),
            ("SO_PEEK_OFF", 42),
            ("SO_LOCK_FILTER", 44),
            ("SO_ATTACH_BPF", 50),
        ],
    },
    Argument {
        calls: &["fcntl"],
        place: Place::Register(1),
        when: None,
        form: INT,
        names: &[
            ("F_DUPFD", 0),
            ("F_GETFD", 1),
            ("F_SETFD", 2),
            ("F_GETFL", 3),
            ("F_SETFL", 4),
            ("F_GETLK", 5),
            ("F_SETLK", 6),
            ("F_SETLKW", 7),
            ("F_SETOWN", 8),
            ("F_GETOWN", 9),
            ("F_SETSIG", 10),
            ("F_GETSIG", 11),
            ("F_SETOWN_EX", 15),
            ("F_GETOWN_EX", 16),
            ("F_OFD_GETLK", 36),
            ("F_OFD_SETLK", 37),
            ("F_OFD_SETLKW", 38),
            ("F_SETLEASE", 1024),
            ("F_GETLEASE", 1025),
            ("F_NOTIFY", 1026),
            ("F_DUPFD_CLOEXEC", 1030),
            ("F_SETPIPE_SZ", 1031),
            ("F_GETPIPE_SZ", 1032),
            ("F_ADD_SEALS", 1033),
            ("F_GET_SEALS", 1034),
            ("F_GET_RW_HINT", 1035),
            ("F_SET_RW_HINT", 1036),
            ("F_GET_FILE_RW_HINT", 1037),
            ("F_SET_FILE_RW_HINT", 1038),
        ],
    },
    Argument {
        calls: &["futex"],
        place: Place::Register(1),
        when: None,
        // Without the bits for private memory and the clock.
        form: Form::Value(0x7f),
        names: &[
            ("FUTEX_WAIT", 0),
            ("FUTEX_WAKE", 1),
            ("FUTEX_FD", 2),
            ("FUTEX_REQUEUE", 3),
            ("FUTEX_CMP_REQUEUE", 4),
            ("FUTEX_WAKE_OP", 5),
            ("FUTEX_LOCK_PI", 6),
            ("FUTEX_UNLOCK_PI", 7),
            ("FUTEX_TRYLOCK_PI", 8),
            ("FUTEX_WAIT_BITSET", 9),
            ("FUTEX_WAKE_BITSET", 10),
            ("FUTEX_WAIT_REQUEUE_PI", 11),
            ("FUTEX_CMP_REQUEUE_PI", 12),
            ("FUTEX_LOCK_PI2", 13),
        ],
    },
    Argument {
        calls: &["prctl"],
        place: Place::Register(0),
        when: None,
        form: INT,
        names: &[
            ("PR_SET_PDEATHSIG", 1),
            ("PR_GET_DUMPABLE", 3),
            ("PR_SET_DUMPABLE", 4),
            ("PR_GET_KEEPCAPS", 7),
            ("PR_SET_KEEPCAPS", 8),
            ("PR_GET_TIMING", 13),
            ("PR_SET_TIMING", 14),
            ("PR_SET_NAME", 15),
            ("PR_GET_NAME", 16),
            ("PR_GET_SECCOMP", 21),
            ("PR_SET_SECCOMP", 22),
            ("PR_CAPBSET_READ", 23),
            ("PR_CAPBSET_DROP", 24),
            ("PR_GET_TSC", 25),
            ("PR_SET_TSC", 26),
            ("PR_SET_TIMERSLACK", 29),
            ("PR_GET_TIMERSLACK", 30),
            ("PR_MCE_KILL", 33),
            ("PR_SET_MM", 35),
            ("PR_SET_CHILD_SUBREAPER", 36),
            ("PR_SET_NO_NEW_PRIVS", 38),
            ("PR_GET_NO_NEW_PRIVS", 39),
            ("PR_SET_THP_DISABLE", 41),
            ("PR_CAP_AMBIENT", 47),
            ("PR_GET_SPECULATION_CTRL", 52),
            ("PR_SET_SPECULATION_CTRL", 53),
            ("PR_SET_IO_FLUSHER", 57),
            ("PR_SET_SYSCALL_USER_DISPATCH", 59),
            ("PR_SCHED_CORE", 62),
            ("PR_SET_VMA", 0x5356_4d41),
            ("PR_SET_PTRACER", 0x5961_6d61),
        ],
    },
    Argument {
        calls: &["arch_prctl"],
        place: Place::Register(0),
        when: None,
        form: INT,
        names: &[
            ("ARCH_SET_GS", 0x1001),
            ("ARCH_SET_FS", 0x1002),
            ("ARCH_GET_FS", 0x1003),
            ("ARCH_GET_GS", 0x1004),
            ("ARCH_GET_CPUID", 0x1011),
            ("ARCH_SET_CPUID", 0x1012),
            ("ARCH_SHSTK_ENABLE", 0x5001),
        ],
    },
    Argument {
        calls: &["seccomp"],
        place: Place::Register(0),
        when: None,
        form: INT,
        names: &[
            ("SECCOMP_SET_MODE_STRICT", 0),
            ("SECCOMP_SET_MODE_FILTER", 1),
            ("SECCOMP_GET_ACTION_AVAIL", 2),
            ("SECCOMP_GET_NOTIF_SIZES", 3),
        ],
    },
    Argument {
        calls: &["seccomp"],
        place: Place::Register(1),
        when: Some((0, 1)),
        form: Form::Flags,
        names: &[
            ("SECCOMP_FILTER_FLAG_TSYNC", 1),
            ("SECCOMP_FILTER_FLAG_LOG", 2),
            ("SECCOMP_FILTER_FLAG_SPEC_ALLOW", 4),
            ("SECCOMP_FILTER_FLAG_NEW_LISTENER", 8),
        ],
    },
    Argument {
        calls: &["membarrier"],
        place: Place::Register(0),
        when: None,
        form: INT,
        names: &[
            ("MEMBARRIER_CMD_QUERY", 0),
            ("MEMBARRIER_CMD_GLOBAL", 1),
            ("MEMBARRIER_CMD_PRIVATE_EXPEDITED", 8),
            ("MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED", 16),
            ("MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ", 128),
            ("MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ", 256),
        ],
    },
    Argument {
        calls: &["clock_nanosleep", "timer_create", "timerfd_create"],
        place: Place::Register(0),
        when: None,
        form: INT,
        names: &[
            ("CLOCK_REALTIME", 0),
            ("CLOCK_MONOTONIC", 1),
            ("CLOCK_PROCESS_CPUTIME_ID", 2),
            ("CLOCK_THREAD_CPUTIME_ID", 3),
            ("CLOCK_BOOTTIME", 7),
            ("CLOCK_REALTIME_ALARM", 8),
            ("CLOCK_BOOTTIME_ALARM", 9),
            ("CLOCK_TAI", 11),
        ],
    },
    Argument {
        calls: &["sched_setscheduler", "sched_get_priority_max", "sched_get_priority_min"],
        place: Place::Register(1),
        when: None,
        form: INT,
        names: &[("SCHED_OTHER", 0), ("SCHED_FIFO", 1), ("SCHED_RR", 2), ("SCHED_DEADLINE", 6)],
    },
    Argument {
        calls: &["sched_setattr"],
        place: Place::Memory(1, 4, 4),
        when: None,
        form: INT,
        names: &[("SCHED_OTHER", 0), ("SCHED_FIFO", 1), ("SCHED_RR", 2), ("SCHED_DEADLINE", 6)],
    },
    Argument {
        calls: &["mq_notify"],
        place: Place::Memory(1, 12, 4),
        when: None,
        form: INT,
        names: &[("SIGEV_SIGNAL", 0), ("SIGEV_NONE", 1), ("SIGEV_THREAD", 2)],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn argument(call: &str) -> &'static Argument {
        ARGUMENTS.iter().find(|argument| argument.calls.contains(&call)).expect("it is known")
    }

    #[test]
    fn flags_are_told_one_by_one() {
        assert_eq!(argument("mmap").names_in(0x4_0022), ["MAP_HUGETLB"]);
        assert_eq!(argument("unshare").names_in(0x1000_0080), ["CLONE_NEWTIME", "CLONE_NEWUSER"]);
        assert!(argument("clone").names_in(0x11).is_empty(), "a signal is no flag");
    }

    #[test]
    fn values_without_a_name_are_told_by_number() {
        assert_eq!(argument("socket").names_in(2), ["AF_INET"]);
        assert_eq!(argument("socket").names_in(27), ["0x1b"]);
        assert_eq!(argument("futex").names_in(0x86), ["FUTEX_LOCK_PI"]);
    }

    #[test]
    fn clocks_and_signals_do_not_hide_flags() {
        assert!(CLONE_SIGNAL_FREE.iter().all(|(_, value)| value & 0xff == 0));
    }
}
