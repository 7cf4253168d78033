/* The calls that the fuzzer makes, and what kind of argument each takes: one letter an argument, read by fuzz_values.h.
 *
 * A call that is not here is still made now and then, with raw numbers; the fuzzer names those that the kernel knows.
 */
#ifndef FUZZ_CALLS_H
#define FUZZ_CALLS_H

struct call {
    short number;
    const char *name;
    const char *kinds;
    short rarity; /* Made once in so many times that it is drawn. */
};

static const struct call calls[] = {
    { 0, "read", "fbn", 1 }, { 1, "write", "fbn", 1 }, { 2, "open", "pom", 1 }, { 3, "close", "f", 3 }, { 4, "stat", "pb", 1 },
    { 5, "fstat", "fb", 1 }, { 6, "lstat", "pb", 1 }, { 7, "poll", "Nit", 1 }, { 8, "lseek", "fhi", 1 }, { 9, "mmap", "alrgfh", 1 },
    { 10, "mprotect", "alr", 1 }, { 11, "munmap", "al", 1 }, { 12, "brk", "D", 1 }, { 13, "rt_sigaction", "s@b8", 1 },
    { 14, "rt_sigprocmask", "iqb8", 1 }, { 15, "rt_sigreturn", "", 400 }, { 16, "ioctl", "fCS", 1 }, { 17, "pread64", "fbnh", 1 },
    { 18, "pwrite64", "fbnh", 1 }, { 19, "readv", "fvV", 1 }, { 20, "writev", "fvV", 1 }, { 21, "access", "pi", 1 },
    { 22, "pipe", "b", 1 }, { 23, "select", "i^^^K", 1 }, { 24, "sched_yield", "", 1 }, { 25, "mremap", "allBa", 1 },
    { 26, "msync", "ali", 1 }, { 27, "mincore", "alb", 1 }, { 28, "madvise", "alI", 1 }, { 29, "shmget", "YlZ", 1 },
    { 30, "shmat", "WaQ", 1 }, { 31, "shmctl", "WiS", 1 }, { 32, "dup", "f", 1 },
    { 33, "dup2", "fj", 1 }, { 34, "pause", "", 8 }, { 35, "nanosleep", "kb", 2 }, { 36, "getitimer", "ib", 1 },
    { 37, "alarm", "i", 1 }, { 38, "setitimer", "iJb", 1 }, { 39, "getpid", "", 1 }, { 40, "sendfile", "ffHn", 1 },
    { 41, "socket", "iiB", 1 }, { 42, "connect", "f+L", 1 }, { 43, "accept", "fSH", 1 }, { 44, "sendto", "fbnB+L", 1 },
    { 45, "recvfrom", "fbnBSH", 1 }, { 46, "sendmsg", "f:B", 1 }, { 47, "recvmsg", "f:B", 1 }, { 48, "shutdown", "fi", 1 },
    { 49, "bind", "f+L", 1 }, { 50, "listen", "fi", 1 }, { 51, "getsockname", "fSH", 1 }, { 52, "getpeername", "fSH", 1 },
    { 53, "socketpair", "1iBb", 1 }, { 54, "setsockopt", "fiISL", 1 }, { 55, "getsockopt", "fiISH", 1 }, { 56, "clone", "", 8 },
    { 57, "fork", "", 12 }, { 58, "vfork", "", 12 }, { 59, "execve", "PAA", 60 }, { 60, "exit", "i", 300 }, { 61, "wait4", "cbBb", 1 },
    { 62, "kill", "ts", 1 }, { 63, "uname", "b", 1 }, { 64, "semget", "YiZ", 1 }, { 65, "semop", "WSi", 1 }, { 66, "semctl", "WiiS", 1 },
    { 67, "shmdt", "a", 1 }, { 68, "msgget", "YZ", 1 }, { 69, "msgsnd", "WSnB", 1 }, { 70, "msgrcv", "WbniB", 1 }, { 71, "msgctl", "WiS", 1 }, { 72, "fcntl", "fFG", 1 }, { 73, "flock", "fB", 1 }, { 74, "fsync", "f", 1 },
    { 75, "fdatasync", "f", 1 }, { 76, "truncate", "ph", 1 }, { 77, "ftruncate", "fh", 1 }, { 78, "getdents", "fbn", 1 },
    { 79, "getcwd", "bn", 1 }, { 80, "chdir", "p", 1 }, { 81, "fchdir", "f", 1 }, { 82, "rename", "pp", 1 }, { 83, "mkdir", "pm", 1 },
    { 84, "rmdir", "p", 1 }, { 85, "creat", "pm", 1 }, { 86, "link", "pp", 1 }, { 87, "unlink", "p", 1 }, { 88, "symlink", "pp", 1 },
    { 89, "readlink", "pbn", 1 }, { 90, "chmod", "pm", 1 }, { 91, "fchmod", "fm", 1 }, { 92, "chown", "puu", 1 },
    { 93, "fchown", "fuu", 1 }, { 94, "lchown", "puu", 1 }, { 95, "umask", "m", 1 }, { 96, "gettimeofday", "bb", 1 },
    { 97, "getrlimit", "Ib", 1 }, { 98, "getrusage", "ib", 1 }, { 99, "sysinfo", "b", 1 }, { 100, "times", "b", 1 },
    { 102, "getuid", "", 1 }, { 104, "getgid", "", 1 }, { 105, "setuid", "u", 30 }, { 106, "setgid", "u", 10 },
    { 107, "geteuid", "", 1 }, { 108, "getegid", "", 1 }, { 109, "setpgid", "tt", 1 }, { 110, "getppid", "", 1 },
    { 111, "getpgrp", "", 1 }, { 112, "setsid", "", 4 }, { 113, "setreuid", "uu", 20 }, { 114, "setregid", "uu", 10 },
    { 115, "getgroups", "ib", 1 }, { 116, "setgroups", "iS", 1 }, { 117, "setresuid", "uuu", 20 }, { 118, "getresuid", "bbb", 1 },
    { 119, "setresgid", "uuu", 10 }, { 120, "getresgid", "bbb", 1 }, { 121, "getpgid", "t", 1 }, { 122, "setfsuid", "u", 10 },
    { 123, "setfsgid", "u", 10 }, { 124, "getsid", "t", 1 }, { 125, "capget", "*b", 1 }, { 126, "capset", "*S", 1 },
    { 127, "rt_sigpending", "b8", 1 }, { 128, "rt_sigtimedwait", "qbk8", 1 }, { 129, "rt_sigqueueinfo", "ts$", 1 },
    { 130, "rt_sigsuspend", "q8", 4 }, { 131, "sigaltstack", ")b", 4 }, { 132, "utime", "pb", 1 }, { 133, "mknod", "pmd", 1 },
    { 135, "personality", "B", 1 }, { 137, "statfs", "pb", 1 }, { 138, "fstatfs", "fb", 1 }, { 140, "getpriority", "it", 1 },
    { 141, "setpriority", "zTI", 1 }, { 142, "sched_setparam", "TS", 1 }, { 143, "sched_getparam", "Tb", 1 },
    { 144, "sched_setscheduler", "TiS", 1 }, { 145, "sched_getscheduler", "T", 1 }, { 146, "sched_get_priority_max", "i", 1 },
    { 147, "sched_get_priority_min", "i", 1 }, { 148, "sched_rr_get_interval", "Tb", 1 }, { 149, "mlock", "al", 1 },
    { 150, "munlock", "al", 1 }, { 151, "mlockall", "i", 2 }, { 152, "munlockall", "", 1 }, { 155, "pivot_root", "pp", 2 },
    { 157, "prctl", "\"GGGG", 1 }, { 158, "arch_prctl", "|S", 8 }, { 160, "setrlimit", "Iy", 8 }, { 161, "chroot", "p", 4 },
    { 162, "sync", "", 1 }, { 164, "settimeofday", "SS", 1 }, { 165, "mount", "ppMBp", 1 }, { 166, "umount2", "pB", 1 },
    { 170, "sethostname", "bn", 1 }, { 171, "setdomainname", "bn", 1 }, { 186, "gettid", "", 1 }, { 187, "readahead", "fhn", 1 },
    { 188, "setxattr", "pXbni", 1 }, { 189, "lsetxattr", "pXbni", 1 }, { 190, "fsetxattr", "fXbni", 1 },
    { 191, "getxattr", "pXbn", 1 }, { 192, "lgetxattr", "pXbn", 1 }, { 193, "fgetxattr", "fXbn", 1 }, { 194, "listxattr", "pbn", 1 },
    { 195, "llistxattr", "pbn", 1 }, { 196, "flistxattr", "fbn", 1 }, { 197, "removexattr", "pX", 1 },
    { 198, "lremovexattr", "pX", 1 }, { 199, "fremovexattr", "fX", 1 }, { 200, "tkill", "Ts", 1 }, { 201, "time", "b", 1 },
    { 202, "futex", "w?ikwi", 1 }, { 203, "sched_setaffinity", "Tn#", 1 }, { 204, "sched_getaffinity", "Tnb", 1 },
    { 206, "io_setup", "i4", 2 }, { 207, "io_destroy", "2", 20 }, { 208, "io_getevents", "2iibk", 1 }, { 209, "io_submit", "2i3", 1 },
    { 210, "io_cancel", "2bb", 4 }, { 213, "epoll_create", "i", 1 }, { 216, "remap_file_pages", "alzig", 1 },
    { 217, "getdents64", "fbn", 1 }, { 218, "set_tid_address", "b", 1 },
    { 219, "restart_syscall", "", 1 }, { 220, "semtimedop", "WSik", 1 }, { 221, "fadvise64", "fhhi", 1 }, { 222, "timer_create", "x&b", 1 },
    { 223, "timer_settime", "iBOb", 1 }, { 224, "timer_gettime", "ib", 1 }, { 225, "timer_getoverrun", "i", 1 },
    { 226, "timer_delete", "i", 1 }, { 227, "clock_settime", "xk", 1 }, { 228, "clock_gettime", "xb", 1 },
    { 229, "clock_getres", "xb", 1 }, { 230, "clock_nanosleep", "xikb", 2 }, { 231, "exit_group", "i", 2000 },
    { 232, "epoll_wait", "fbit", 1 }, { 233, "epoll_ctl", "f1fe", 1 }, { 234, "tgkill", "TTs", 1 }, { 235, "utimes", "pK", 1 },
    { 240, "mq_open", "5om&", 4 }, { 241, "mq_unlink", "5", 4 }, { 242, "mq_timedsend", "fbnik", 2 }, { 243, "mq_timedreceive", "fbnbk", 2 }, { 244, "mq_notify", "f&", 2 },
    { 245, "mq_getsetattr", "fbb", 1 }, { 247, "waitid", "ic$Bb", 1 }, { 251, "ioprio_set", "iTI", 1 }, { 252, "ioprio_get", "iT", 1 },
    { 253, "inotify_init", "", 1 }, { 254, "inotify_add_watch", "fpB", 1 }, { 255, "inotify_rm_watch", "fi", 1 },
    { 257, "openat", "dpom", 1 }, { 258, "mkdirat", "dpm", 1 }, { 259, "mknodat", "dpmd", 1 }, { 260, "fchownat", "dpuuE", 1 },
    { 261, "futimesat", "dpK", 1 }, { 262, "newfstatat", "dpbE", 1 }, { 263, "unlinkat", "dpE", 1 }, { 264, "renameat", "dpdp", 1 },
    { 265, "linkat", "dpdpE", 1 }, { 266, "symlinkat", "pdp", 1 }, { 267, "readlinkat", "dpbn", 1 }, { 268, "fchmodat", "dpm", 1 },
    { 269, "faccessat", "dpi", 1 }, { 270, "pselect6", "i^^^k~", 1 }, { 271, "ppoll", "Nikq8", 1 },
    { 273, "set_robust_list", "RL", 1 }, { 274, "get_robust_list", "Tbb", 1 }, { 275, "splice", "fHfHnB", 1 },
    { 276, "tee", "ffnB", 1 }, { 277, "sync_file_range", "fhhi", 1 }, { 278, "vmsplice", "fvVB", 1 },
    { 280, "utimensat", "dpkE", 1 }, { 281, "epoll_pwait", "fbitq8", 1 }, { 282, "signalfd", "fq8", 1 },
    { 283, "timerfd_create", "iB", 1 }, { 284, "eventfd", "i", 1 }, { 285, "fallocate", "fBhh", 1 }, { 286, "timerfd_settime", "fBOb", 1 },
    { 287, "timerfd_gettime", "fb", 1 }, { 288, "accept4", "fSHB", 1 }, { 289, "signalfd4", "fq8B", 1 }, { 290, "eventfd2", "iB", 1 },
    { 291, "epoll_create1", "B", 1 }, { 292, "dup3", "fjB", 1 }, { 293, "pipe2", "bB", 1 }, { 294, "inotify_init1", "B", 1 },
    { 295, "preadv", "fvVhz", 1 }, { 296, "pwritev", "fvVhz", 1 }, { 297, "rt_tgsigqueueinfo", "TTs$", 1 },
    { 299, "recvmmsg", "f:1Bk", 1 }, { 302, "prlimit64", "tIyb", 8 }, { 306, "syncfs", "f", 1 }, { 307, "sendmmsg", "f:1B", 1 },
    { 309, "getcpu", "bb", 1 }, { 310, "process_vm_readv", "tvVvVz", 1 }, { 311, "process_vm_writev", "tvVvVz", 1 },
    { 314, "sched_setattr", "T%z", 1 }, { 315, "sched_getattr", "Tbnz", 1 }, { 316, "renameat2", "dpdpi", 1 },
    { 308, "setns", "fB", 2 }, { 317, "seccomp", "1Bb", 10 }, { 318, "getrandom", "bni", 1 }, { 319, "memfd_create", "pB", 1 }, { 322, "execveat", "dPAAE", 60 }, { 324, "membarrier", "BzI", 1 },
    { 325, "mlock2", "ali", 1 }, { 326, "copy_file_range", "fHfHnz", 1 }, { 327, "preadv2", "fvVhzB", 1 },
    { 328, "pwritev2", "fvVhzB", 1 }, { 329, "pkey_mprotect", "alrx", 1 }, { 332, "statx", "dpEIb", 1 }, { 333, "io_pgetevents", "2iibk~", 2 },
    { 334, "rseq", "S(B\\", 2 },
    { 424, "pidfd_send_signal", "fs$z", 1 }, { 428, "open_tree", "dpB", 1 }, { 429, "move_mount", "dpdpB", 1 },
    { 430, "fsopen", "Mi", 1 }, { 431, "fsconfig", "fippi", 1 }, { 432, "fsmount", "fiB", 1 }, { 433, "fspick", "dpi", 1 },
    { 434, "pidfd_open", "tB", 1 }, { 435, "clone3", "", 8 }, { 436, "close_range", "jji", 8 },
    { 136, "ustat", "ib", 2 }, { 139, "sysfs", "ipb", 2 }, { 153, "vhangup", "", 1 }, { 163, "acct", "p", 2 }, { 159, "adjtimex", "b", 2 }, { 172, "iopl", "i", 2 }, { 173, "ioperm", "iii", 2 }, { 237, "mbind", "alibni", 2 }, { 450, "set_mempolicy_home_node", "alii", 2 },
    { 238, "set_mempolicy", "ibn", 2 }, { 239, "get_mempolicy", "bbnai", 2 }, { 256, "migrate_pages", "inbb", 2 }, { 279, "move_pages", "inbbbi", 2 },
    { 305, "clock_adjtime", "xb", 2 }, { 330, "pkey_alloc", "ii", 2 }, { 331, "pkey_free", "i", 2 }, { 448, "process_mrelease", "fB", 2 },
    { 425, "io_uring_setup", "ib", 2 }, { 426, "io_uring_enter", "fiiBbn", 1 }, { 427, "io_uring_register", "fiSi", 2 },
    { 437, "openat2", "dp=L", 1 }, { 438, "pidfd_getfd", "ffz", 1 }, { 439, "faccessat2", "dpiE", 1 }, { 441, "epoll_pwait2", "fbikq8", 1 },
    { 442, "mount_setattr", "dpEbn", 1 },
    { 449, "futex_waitv", "!izkB", 1 }, { 451, "cachestat", "f&bB", 1 }, { 452, "fchmodat2", "dpmE", 1 },
    { 101, "ptrace", "76GS", 1 }, { 103, "syslog", "<bn", 4 }, { 169, "reboot", "09;b", 200 }, { 272, "unshare", "U", 20 },
    { 300, "fanotify_init", "]B", 4 }, { 301, "fanotify_mark", "f]_dp", 1 }, { 303, "name_to_handle_at", "dp[bE", 1 },
    { 304, "open_by_handle_at", "d[o", 1 }, { 312, "kcmp", "66xff", 1 }, { 440, "process_madvise", "fvVIz", 1 },
    /* Starling's own. */
    { 4096, "ipc", "`{iii}", 1 }, { 4097, "ipc_self", "'", 1 }, { 4098, "ipc_cancel", "`", 1 }, { 4099, "ipc_cpu", "`", 1 },
    { 4108, "get_lcount", "b", 8 }, { 4096, "ipc", "`{aa1}", 1 }, { 4100, "ipc_pager", "al`", 12 }, { 4101, "ipc_unmap", "al1", 1 },
};

enum { CALLS = sizeof calls / sizeof *calls, LINUX_NUMBERS = 470, FIRST_NATIVE = 4096, NUMBERS = LINUX_NUMBERS + 16 };

/* The place of a call among the counters; -1 for numbers that have none. */
static inline int place_of(long number)
{
    if (number >= 0 && number < LINUX_NUMBERS)
        return (int)number;
    return number >= FIRST_NATIVE && number < FIRST_NATIVE + 16 ? (int)(number - FIRST_NATIVE) + LINUX_NUMBERS : -1;
}
#endif
