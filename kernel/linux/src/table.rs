//! The table of system calls: number, name, function, and what of the call works.
//!
//! Everything about calls is generated from this one list: the dispatch array, the reference page of the book, the names in
//! `/proc/starling/missing_syscalls` and the host-side check whether a program will run. A call that is not listed
//! returns ENOSYS and is counted by number.
//!
//! What is said of a call is for people and for the check. Its parts stand between `;`. A part that begins with `no` names flags, commands or values
//! that the call lacks, one that begins with `only` all that it has of their kind, and `as` another call of which the same is true. Names are those of the
//! manual.
//!
//! Dispatch costs a bounds check, a load and an indirect call; the function gets its arguments from the saved user registers,
//! converted by [`Argument`].

pub mod absent;

use core::sync::atomic::{AtomicU32, Ordering};

use crate::credentials::{calls as ids, capabilities};
use crate::errno::{Errno, SysResult};
use crate::file;
use crate::task::Task;
use crate::{
    accounting, barrier, exec, exit, fork, futex, hardware, identity, io_priority, io_ring, ipc, kcmp,
    lock_count, memory, memory_policy, mqueue, name_space, pager, pidfd, prctl, process, ptrace, reboot,
    remote_advice, rseq, scheduling, seccomp, signal, socket, syslog, sysv, terminal, time, timer, wait,
};

/// A value that a system call takes from a register.
pub trait Argument {
    /// Converts; like Linux, narrower types take the low bits.
    fn from_register(register: u64) -> Self;
}

macro_rules! arguments {
    ($($type:ty),*) => {
        $(impl Argument for $type {
            #[inline(always)]
            fn from_register(register: u64) -> Self {
                register as $type
            }
        })*
    };
}

arguments!(u64, usize, i64, u32, i32);

/// The implementation of a call.
pub type Implementation = fn(&mut Task) -> SysResult;

/// One call as the table describes it.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// Its number.
    pub number: usize,
    /// Its name.
    pub name: &'static str,
    /// What works, and where it deviates from the manual. Empty: all of it.
    pub coverage: &'static str,
}

/// One more than the greatest number whose calls that are not there are counted each for itself.
pub const COUNT: usize = 470;

/// One more than the greatest number of Linux 6.1's calls.
const COUNT_OF_6_1: usize = 451;
/// The first number of Starling's own calls.
pub const FIRST_NATIVE: usize = 0x1000;
/// Numbers of own calls.
pub const NATIVE_COUNT: usize = 16;

macro_rules! call {
    ($task:ident, $function:path,) => { $function($task) };
    ($task:ident, $function:path, $($register:ident)+) => {{
        let registers = &$task.user.registers;
        $(let $register = Argument::from_register(registers.$register);)+
        $function($task, $($register),+)
    }};
}

macro_rules! with_registers {
    ($task:ident, $function:path, 0) => { call!($task, $function,) };
    ($task:ident, $function:path, 1) => { call!($task, $function, rdi) };
    ($task:ident, $function:path, 2) => { call!($task, $function, rdi rsi) };
    ($task:ident, $function:path, 3) => { call!($task, $function, rdi rsi rdx) };
    ($task:ident, $function:path, 4) => { call!($task, $function, rdi rsi rdx r10) };
    ($task:ident, $function:path, 5) => { call!($task, $function, rdi rsi rdx r10 r8) };
    ($task:ident, $function:path, 6) => { call!($task, $function, rdi rsi rdx r10 r8 r9) };
}

macro_rules! system_calls {
    ($descriptions:ident, $implementations:ident[$length:ident] from $first:expr;
     $($number:literal $name:ident($count:tt) = $function:path: $coverage:literal;)*) => {
        static $descriptions: &[Description] = &[
            $(Description { number: $number, name: stringify!($name), coverage: $coverage },)*
        ];

        static $implementations: [Implementation; $length] = {
            let mut table: [Implementation; $length] = [missing; $length];
            $(
                // A number listed twice would silently lose one of its calls.
                table[$number - $first] =
                    |task: &mut Task| -> SysResult { with_registers!(task, $function, $count) };
            )*
            table
        };
    };
}

/// All calls there are, by number.
pub fn descriptions() -> impl Iterator<Item = &'static Description> {
    DESCRIPTIONS.iter().chain(NATIVE_DESCRIPTIONS)
}

system_calls! { NATIVE_DESCRIPTIONS, NATIVE_IMPLEMENTATIONS[NATIVE_COUNT] from FIRST_NATIVE;
    4096 ipc(6) = ipc::ipc: "Starling's own: see the chapter on messages between threads";
    4097 ipc_self(1) = ipc::ipc_self: "Starling's own";
    4098 ipc_cancel(1) = ipc::ipc_cancel: "Starling's own";
    4099 ipc_cpu(1) = ipc::ipc_cpu: "Starling's own";
    4100 ipc_pager(3) = pager::ipc_pager: "Starling's own: see the chapter on messages between threads";
    4101 ipc_unmap(3) = pager::ipc_unmap: "Starling's own";
    4108 get_lcount(1) = lock_count::get_lcount: "Starling's own: ENOSYS unless the kernel counts locks, see the chapter on locks";
}

system_calls! { DESCRIPTIONS, IMPLEMENTATIONS[COUNT] from 0;
    0 read(3) = file::transfer::read: "";
    1 write(3) = file::transfer::write: "";
    2 open(3) = file::open::open: "";
    3 close(1) = file::open::close: "";
    4 stat(2) = file::stat::stat: "";
    5 fstat(2) = file::stat::fstat: "";
    6 lstat(2) = file::stat::lstat: "";
    7 poll(3) = file::poll::poll: "";
    8 lseek(3) = file::transfer::lseek: "";
    9 mmap(6) = memory::mmap: "MAP_HUGETLB: of the two sizes, only 2 MiB";
    10 mprotect(3) = memory::mprotect: "";
    11 munmap(2) = memory::munmap: "";
    12 brk(1) = memory::brk: "";
    13 rt_sigaction(4) = signal::calls::rt_sigaction: "";
    14 rt_sigprocmask(4) = signal::calls::rt_sigprocmask: "";
    15 rt_sigreturn(0) = signal::frame::rt_sigreturn: "";
    16 ioctl(3) = file::ioctl::ioctl: "what the file supports";
    17 pread64(4) = file::transfer::pread64: "";
    18 pwrite64(4) = file::transfer::pwrite64: "";
    19 readv(3) = file::transfer::readv: "";
    20 writev(3) = file::transfer::writev: "";
    21 access(2) = file::stat::access: "";
    22 pipe(1) = file::pipe::pipe: "";
    23 select(5) = file::select::select: "";
    24 sched_yield(0) = scheduling::sched_yield: "";
    25 mremap(5) = memory::mremap: "";
    26 msync(3) = memory::msync: "";
    27 mincore(3) = memory::mincore: "";
    28 madvise(3) = memory::madvise: "no MADV_HWPOISON, MADV_SOFT_OFFLINE";
    29 shmget(3) = sysv::shm::shmget: "SHM_HUGETLB: only 2 MiB";
    30 shmat(3) = sysv::shm::shmat: "";
    31 shmctl(3) = sysv::shm::shmctl: "";
    32 dup(1) = file::open::dup: "";
    33 dup2(2) = file::open::dup2: "";
    34 pause(0) = signal::calls::pause: "";
    35 nanosleep(2) = time::sleep::nanosleep: "";
    36 getitimer(2) = timer::getitimer: "";
    37 alarm(1) = timer::alarm: "";
    38 setitimer(3) = timer::setitimer: "";
    39 getpid(0) = identity::getpid: "";
    40 sendfile(4) = file::splice::sendfile: "";
    41 socket(3) = socket::create::socket: "only AF_UNIX, AF_NETLINK; only NETLINK_KOBJECT_UEVENT, NETLINK_ROUTE; other families EAFNOSUPPORT; of links there is the loopback of each network";
    42 connect(3) = socket::create::connect: "AF_UNIX";
    43 accept(3) = socket::create::accept: "AF_UNIX";
    44 sendto(6) = socket::message::sendto: "";
    45 recvfrom(6) = socket::message::recvfrom: "";
    46 sendmsg(3) = socket::message::sendmsg: "SCM_RIGHTS and SCM_CREDENTIALS";
    47 recvmsg(3) = socket::message::recvmsg: "SCM_RIGHTS, SCM_CREDENTIALS, SCM_TIMESTAMP and SCM_TIMESTAMPNS";
    48 shutdown(2) = socket::create::shutdown: "";
    49 bind(3) = socket::create::bind: "AF_UNIX, AF_NETLINK";
    50 listen(2) = socket::create::listen: "AF_UNIX";
    51 getsockname(3) = socket::create::getsockname: "";
    52 getpeername(3) = socket::create::getpeername: "";
    53 socketpair(4) = socket::create::socketpair: "only AF_UNIX";
    54 setsockopt(5) = socket::options::setsockopt: "SOL_SOCKET; no SO_ATTACH_BPF, SO_TIMESTAMPING; SOL_NETLINK: memberships, NETLINK_NO_ENOBUFS";
    55 getsockopt(5) = socket::options::getsockopt: "as setsockopt";
    56 clone(5) = fork::clone: "";
    57 fork(0) = fork::fork: "";
    58 vfork(0) = fork::vfork: "";
    59 execve(3) = exec::execve: "ELF64, scripts, binfmt_misc";
    60 exit(1) = exit::exit: "";
    61 wait4(4) = wait::wait4: "__WNOTHREAD counts for tracees only";
    62 kill(2) = signal::calls::kill: "";
    63 uname(1) = identity::uname: "";
    64 semget(3) = sysv::semaphore::semget: "";
    65 semop(3) = sysv::semaphore::semop: "";
    66 semctl(4) = sysv::semaphore::semctl: "";
    67 shmdt(1) = sysv::shm::shmdt: "";
    68 msgget(2) = sysv::message::msgget: "";
    69 msgsnd(4) = sysv::message::msgsnd: "";
    70 msgrcv(5) = sysv::message::msgrcv: "";
    71 msgctl(3) = sysv::message::msgctl: "";
    72 fcntl(3) = file::fcntl::fcntl: "record locks of one user: as many as the machine has page frames";
    73 flock(2) = file::fcntl::flock: "";
    74 fsync(1) = file::sync::fsync: "";
    75 fdatasync(1) = file::sync::fdatasync: "";
    76 truncate(2) = file::attributes::truncate: "";
    77 ftruncate(2) = file::attributes::ftruncate: "";
    78 getdents(3) = file::directory::getdents: "";
    79 getcwd(2) = file::directory::getcwd: "";
    80 chdir(1) = file::directory::chdir: "";
    81 fchdir(1) = file::directory::fchdir: "";
    82 rename(2) = file::names::rename: "";
    83 mkdir(2) = file::directory::mkdir: "";
    84 rmdir(1) = file::directory::rmdir: "";
    85 creat(2) = file::open::creat: "";
    86 link(2) = file::names::link: "";
    87 unlink(1) = file::names::unlink: "";
    88 symlink(2) = file::names::symlink: "";
    89 readlink(3) = file::names::readlink: "";
    90 chmod(2) = file::attributes::chmod: "";
    91 fchmod(2) = file::attributes::fchmod: "";
    92 chown(3) = file::attributes::chown: "";
    93 fchown(3) = file::attributes::fchown: "";
    94 lchown(3) = file::attributes::lchown: "";
    95 umask(1) = file::directory::umask: "";
    96 gettimeofday(2) = time::clock::gettimeofday: "time zone reads as zero";
    97 getrlimit(2) = process::limits::getrlimit: "";
    98 getrusage(2) = time::usage::getrusage: "no faults of the kernel on the program's behalf, no block transfers";
    99 sysinfo(1) = identity::sysinfo: "no swap";
    100 times(1) = time::usage::times: "";
    101 ptrace(4) = ptrace::ptrace: "no PTRACE_SINGLEBLOCK, PTRACE_GET_THREAD_AREA, PTRACE_SET_THREAD_AREA (EIO); hardware breakpoints do not see what the kernel does for the program";
    102 getuid(0) = ids::getuid: "";
    103 syslog(3) = syslog::syslog: "the console's level has no effect";
    104 getgid(0) = ids::getgid: "";
    105 setuid(1) = ids::setuid: "";
    106 setgid(1) = ids::setgid: "";
    107 geteuid(0) = ids::geteuid: "";
    108 getegid(0) = ids::getegid: "";
    109 setpgid(2) = identity::setpgid: "";
    110 getppid(0) = identity::getppid: "";
    111 getpgrp(0) = identity::getpgrp: "";
    112 setsid(0) = identity::setsid: "";
    113 setreuid(2) = ids::setreuid: "";
    114 setregid(2) = ids::setregid: "";
    115 getgroups(2) = ids::getgroups: "";
    116 setgroups(2) = ids::setgroups: "";
    117 setresuid(3) = ids::setresuid: "";
    118 getresuid(3) = ids::getresuid: "";
    119 setresgid(3) = ids::setresgid: "";
    120 getresgid(3) = ids::getresgid: "";
    121 getpgid(1) = identity::getpgid: "";
    122 setfsuid(1) = ids::setfsuid: "";
    123 setfsgid(1) = ids::setfsgid: "";
    124 getsid(1) = identity::getsid: "";
    125 capget(2) = capabilities::capget: "";
    126 capset(2) = capabilities::capset: "";
    127 rt_sigpending(2) = signal::calls::rt_sigpending: "";
    128 rt_sigtimedwait(4) = signal::calls::rt_sigtimedwait: "";
    129 rt_sigqueueinfo(3) = signal::calls::rt_sigqueueinfo: "";
    130 rt_sigsuspend(2) = signal::calls::rt_sigsuspend: "";
    131 sigaltstack(2) = signal::calls::sigaltstack: "";
    132 utime(2) = file::attributes::utime: "";
    133 mknod(3) = file::names::mknod: "";
    135 personality(1) = exec::personality: "ADDR_NO_RANDOMIZE, ADDR_COMPAT_LAYOUT, READ_IMPLIES_EXEC, MMAP_PAGE_ZERO, UNAME26, PER_LINUX32; others are remembered";
    136 ustat(2) = file::statfs::ustat: "file systems that the caller sees mounted";
    137 statfs(2) = file::statfs::statfs: "";
    138 fstatfs(2) = file::statfs::fstatfs: "";
    139 sysfs(3) = file::statfs::sysfs: "";
    140 getpriority(2) = scheduling::getpriority: "";
    141 setpriority(3) = scheduling::setpriority: "";
    142 sched_setparam(2) = scheduling::sched_setparam: "";
    143 sched_getparam(2) = scheduling::sched_getparam: "";
    144 sched_setscheduler(3) = scheduling::sched_setscheduler: "";
    145 sched_getscheduler(1) = scheduling::sched_getscheduler: "";
    146 sched_get_priority_max(1) = scheduling::sched_get_priority_max: "";
    147 sched_get_priority_min(1) = scheduling::sched_get_priority_min: "";
    148 sched_rr_get_interval(2) = scheduling::sched_rr_get_interval: "";
    149 mlock(2) = memory::mlock: "";
    150 munlock(2) = memory::munlock: "";
    151 mlockall(1) = memory::mlockall: "";
    152 munlockall(0) = memory::munlockall: "";
    153 vhangup(0) = terminal::vhangup: "";
    155 pivot_root(2) = file::mount::pivot_root: "";
    157 prctl(5) = prctl::prctl: "no PR_SET_VMA, PR_SCHED_CORE, PR_TSC_SIGSEGV; PR_SET_MM is of the process, not of its memory; PR_SET_IO_FLUSHER has no effect";
    158 arch_prctl(2) = prctl::arch_prctl: "no ARCH_GET_CPUID, ARCH_SET_CPUID, ARCH_SHSTK_ENABLE";
    159 adjtimex(1) = time::adjustment::adjtimex: "the clock does not run faster or slower (EINVAL)";
    160 setrlimit(2) = process::limits::setrlimit: "";
    161 chroot(1) = file::directory::chroot: "";
    162 sync(0) = file::sync::sync: "";
    163 acct(1) = accounting::acct: "in the first name space of processes only";
    164 settimeofday(2) = time::clock::settimeofday: "time zone has no effect";
    165 mount(5) = file::mount::mount: "";
    166 umount2(2) = file::mount::umount2: "";
    169 reboot(4) = reboot::reboot: "no kexec, no hibernation";
    170 sethostname(2) = identity::sethostname: "";
    171 setdomainname(2) = identity::setdomainname: "";
    172 iopl(1) = hardware::iopl: "EPERM, as on a Linux that is locked down";
    173 ioperm(3) = hardware::ioperm: "EPERM, as on a Linux that is locked down";
    186 gettid(0) = identity::gettid: "";
    187 readahead(3) = file::sync::readahead: "";
    188 setxattr(5) = file::extended::setxattr: "";
    189 lsetxattr(5) = file::extended::lsetxattr: "";
    190 fsetxattr(5) = file::extended::fsetxattr: "";
    191 getxattr(4) = file::extended::getxattr: "";
    192 lgetxattr(4) = file::extended::lgetxattr: "";
    193 fgetxattr(4) = file::extended::fgetxattr: "";
    194 listxattr(3) = file::extended::listxattr: "";
    195 llistxattr(3) = file::extended::llistxattr: "";
    196 flistxattr(3) = file::extended::flistxattr: "";
    197 removexattr(2) = file::extended::removexattr: "";
    198 lremovexattr(2) = file::extended::lremovexattr: "";
    199 fremovexattr(2) = file::extended::fremovexattr: "";
    200 tkill(2) = signal::calls::tkill: "";
    201 time(1) = time::clock::time: "";
    202 futex(6) = futex::futex: "no FUTEX_FD";
    203 sched_setaffinity(3) = scheduling::sched_setaffinity: "";
    204 sched_getaffinity(3) = scheduling::sched_getaffinity: "";
    206 io_setup(2) = file::asynchronous::io_setup: "transfers are made while they are submitted";
    207 io_destroy(1) = file::asynchronous::io_destroy: "";
    208 io_getevents(5) = file::asynchronous::io_getevents: "";
    209 io_submit(3) = file::asynchronous::io_submit: "returns when the transfers have ended; no IOCB_CMD_POLL (EINVAL), IOCB_FLAG_IOPRIO has no effect";
    210 io_cancel(3) = file::asynchronous::io_cancel: "EINVAL: nothing is under way";
    213 epoll_create(1) = file::epoll::epoll_create: "";
    216 remap_file_pages(5) = memory::remap_file_pages: "";
    217 getdents64(3) = file::directory::getdents64: "";
    218 set_tid_address(1) = prctl::set_tid_address: "";
    219 restart_syscall(0) = signal::calls::restart_syscall: "";
    220 semtimedop(4) = sysv::semaphore::semtimedop: "";
    221 fadvise64(4) = file::sync::fadvise64: "";
    222 timer_create(3) = timer::timer_create: "";
    223 timer_settime(4) = timer::timer_settime: "";
    224 timer_gettime(2) = timer::timer_gettime: "";
    225 timer_getoverrun(1) = timer::timer_getoverrun: "";
    226 timer_delete(1) = timer::timer_delete: "";
    227 clock_settime(2) = time::clock::clock_settime: "";
    228 clock_gettime(2) = time::clock::clock_gettime: "";
    229 clock_getres(2) = time::clock::clock_getres: "";
    230 clock_nanosleep(4) = time::sleep::clock_nanosleep: "";
    231 exit_group(1) = exit::exit_group: "";
    232 epoll_wait(4) = file::epoll::epoll_wait: "";
    233 epoll_ctl(4) = file::epoll::epoll_ctl: "";
    234 tgkill(3) = signal::calls::tgkill: "";
    235 utimes(2) = file::attributes::utimes: "";
    237 mbind(6) = memory_policy::mbind: "one node";
    238 set_mempolicy(3) = memory_policy::set_mempolicy: "one node";
    239 get_mempolicy(5) = memory_policy::get_mempolicy: "one node";
    240 mq_open(4) = mqueue::mq_open: "";
    241 mq_unlink(1) = mqueue::mq_unlink: "";
    242 mq_timedsend(5) = mqueue::mq_timedsend: "";
    243 mq_timedreceive(5) = mqueue::mq_timedreceive: "";
    244 mq_notify(2) = mqueue::mq_notify: "";
    245 mq_getsetattr(3) = mqueue::mq_getsetattr: "";
    247 waitid(5) = wait::waitid: "__WNOTHREAD counts for tracees only";
    251 ioprio_set(3) = io_priority::ioprio_set: "felt by disks with the scheduler `mq-deadline`";
    252 ioprio_get(2) = io_priority::ioprio_get: "";
    253 inotify_init(0) = file::inotify::inotify_init: "";
    254 inotify_add_watch(3) = file::inotify::inotify_add_watch: "";
    255 inotify_rm_watch(2) = file::inotify::inotify_rm_watch: "";
    256 migrate_pages(4) = memory_policy::migrate_pages: "one node";
    257 openat(4) = file::open::openat: "";
    258 mkdirat(3) = file::directory::mkdirat: "";
    259 mknodat(4) = file::names::mknodat: "";
    260 fchownat(5) = file::attributes::fchownat: "";
    261 futimesat(3) = file::attributes::futimesat: "";
    262 newfstatat(4) = file::stat::newfstatat: "";
    263 unlinkat(3) = file::names::unlinkat: "";
    264 renameat(4) = file::names::renameat: "";
    265 linkat(5) = file::names::linkat: "";
    266 symlinkat(3) = file::names::symlinkat: "";
    267 readlinkat(4) = file::names::readlinkat: "";
    268 fchmodat(3) = file::attributes::fchmodat: "";
    269 faccessat(3) = file::stat::faccessat: "";
    270 pselect6(6) = file::select::pselect6: "";
    271 ppoll(5) = file::poll::ppoll: "";
    272 unshare(1) = fork::unshare: "";
    273 set_robust_list(2) = futex::robust::set_robust_list: "";
    274 get_robust_list(3) = futex::robust::get_robust_list: "";
    275 splice(6) = file::splice::splice: "";
    276 tee(4) = file::splice::tee: "";
    277 sync_file_range(4) = file::sync::sync_file_range: "";
    278 vmsplice(4) = file::splice::vmsplice: "";
    279 move_pages(6) = memory_policy::move_pages: "one node; pages of other processes are EFAULT";
    280 utimensat(4) = file::attributes::utimensat: "";
    281 epoll_pwait(6) = file::epoll::epoll_pwait: "";
    282 signalfd(3) = signal::source::signalfd: "";
    283 timerfd_create(2) = file::timerfd::timerfd_create: "";
    284 eventfd(1) = file::eventfd::eventfd: "";
    285 fallocate(4) = file::attributes::fallocate: "";
    286 timerfd_settime(4) = file::timerfd::timerfd_settime: "";
    287 timerfd_gettime(2) = file::timerfd::timerfd_gettime: "";
    288 accept4(4) = socket::create::accept4: "AF_UNIX";
    289 signalfd4(4) = signal::source::signalfd4: "";
    290 eventfd2(2) = file::eventfd::eventfd2: "";
    291 epoll_create1(1) = file::epoll::epoll_create1: "";
    292 dup3(3) = file::open::dup3: "";
    293 pipe2(2) = file::pipe::pipe2: "";
    294 inotify_init1(1) = file::inotify::inotify_init1: "";
    295 preadv(4) = file::transfer::preadv: "";
    296 pwritev(4) = file::transfer::pwritev: "";
    297 rt_tgsigqueueinfo(4) = signal::calls::rt_tgsigqueueinfo: "";
    299 recvmmsg(5) = socket::message::recvmmsg: "as recvmsg";
    300 fanotify_init(2) = file::fanotify::fanotify_init: "no FAN_ENABLE_AUDIT";
    301 fanotify_mark(5) = file::fanotify::fanotify_mark: "no FAN_FS_ERROR";
    302 prlimit64(4) = process::limits::prlimit64: "";
    303 name_to_handle_at(5) = file::handle::name_to_handle_at: "ext2, ext3, ext4, tmpfs";
    304 open_by_handle_at(3) = file::handle::open_by_handle_at: "";
    305 clock_adjtime(2) = time::adjustment::clock_adjtime: "as adjtimex; CLOCK_REALTIME";
    306 syncfs(1) = file::sync::syncfs: "";
    307 sendmmsg(4) = socket::message::sendmmsg: "as sendmsg";
    308 setns(2) = name_space::calls::setns: "";
    309 getcpu(2) = identity::getcpu: "";
    310 process_vm_readv(6) = memory::process_vm_readv: "";
    311 process_vm_writev(6) = memory::process_vm_writev: "";
    312 kcmp(5) = kcmp::kcmp: "no KCMP_EPOLL_TFD (EINVAL)";
    314 sched_setattr(3) = scheduling::sched_setattr: "of the flags only SCHED_FLAG_RESET_ON_FORK";
    315 sched_getattr(4) = scheduling::sched_getattr: "";
    316 renameat2(5) = file::names::renameat2: "";
    317 seccomp(3) = seccomp::seccomp: "";
    318 getrandom(3) = identity::getrandom: "";
    319 memfd_create(2) = file::memory_file::memfd_create: "MFD_HUGETLB: only 2 MiB";
    322 execveat(5) = exec::execveat: "as execve";
    324 membarrier(3) = barrier::membarrier: "";
    325 mlock2(3) = memory::mlock2: "";
    326 copy_file_range(6) = file::splice::copy_file_range: "";
    327 preadv2(6) = file::transfer::preadv2: "";
    328 pwritev2(6) = file::transfer::pwritev2: "";
    329 pkey_mprotect(4) = memory::pkey_mprotect: "key -1 only";
    330 pkey_alloc(2) = memory::pkey_alloc: "ENOSPC: the processor has no keys";
    331 pkey_free(1) = memory::pkey_free: "EINVAL";
    332 statx(5) = file::stat::statx: "";
    333 io_pgetevents(6) = file::asynchronous::io_pgetevents: "";
    334 rseq(4) = rseq::rseq: "";
    424 pidfd_send_signal(4) = signal::calls::pidfd_send_signal: "";
    425 io_uring_setup(2) = io_ring::calls::io_uring_setup: "no IORING_SETUP_IOPOLL, IORING_SETUP_SQPOLL, IORING_SETUP_SQ_AFF, IORING_SETUP_SQE128, IORING_SETUP_CQE32";
    426 io_uring_enter(6) = io_ring::calls::io_uring_enter: "no IORING_OP_URING_CMD, IORING_OP_SEND_ZC, IORING_OP_SENDMSG_ZC; see the chapter on submission rings";
    427 io_uring_register(4) = io_ring::calls::io_uring_register: "no IORING_REGISTER_BUFFERS2, IORING_REGISTER_BUFFERS_UPDATE, IORING_REGISTER_IOWQ_AFF, IORING_UNREGISTER_IOWQ_AFF; buffers are not pinned; tags of resources are EINVAL";
    428 open_tree(3) = file::mount_tree::open_tree: "";
    429 move_mount(5) = file::mount_tree::move_mount: "no MOVE_MOUNT_BENEATH (EINVAL)";
    430 fsopen(2) = file::mount_context::fsopen: "";
    431 fsconfig(5) = file::mount_context::fsconfig: "options are flags and texts without commas; no FSCONFIG_CMD_CREATE_EXCL";
    432 fsmount(3) = file::mount_context::fsmount: "";
    433 fspick(3) = file::mount_context::fspick: "";
    434 pidfd_open(2) = pidfd::pidfd_open: "";
    435 clone3(2) = fork::clone3: "as clone";
    436 close_range(3) = file::open::close_range: "";
    437 openat2(4) = file::open::openat2: "";
    438 pidfd_getfd(3) = pidfd::pidfd_getfd: "";
    439 faccessat2(4) = file::stat::faccessat2: "";
    440 process_madvise(5) = remote_advice::process_madvise: "";
    441 epoll_pwait2(6) = file::epoll::epoll_pwait2: "";
    442 mount_setattr(5) = file::mount_tree::mount_setattr: "no MOUNT_ATTR_IDMAP (EINVAL)";
    448 process_mrelease(2) = pidfd::process_mrelease: "frees nothing that would not be freed anyway";
    449 futex_waitv(5) = futex::futex_waitv: "";
    450 set_mempolicy_home_node(4) = memory_policy::set_mempolicy_home_node: "one node";
    451 cachestat(4) = file::sync::cachestat: "nothing is known of pages that were given up";
    452 fchmodat2(4) = file::attributes::fchmodat2: "";
}

static MISSING: [AtomicU32; COUNT] = [const { AtomicU32::new(0) }; COUNT];
static BEYOND: AtomicU32 = AtomicU32::new(0);

/// A call that there is none of.
fn missing(task: &mut Task) -> SysResult {
    let counter = MISSING.get(task.user.call as usize).unwrap_or(&BEYOND);
    if counter.fetch_add(1, Ordering::Relaxed) == 0 {
        log::debug!("process {} missed system call {}", task.process().pid(), task.user.call);
    }
    Err(Errno::ENOSYS)
}

/// Serves a call.
#[inline(always)]
pub fn dispatch(task: &mut Task, number: u64) -> SysResult {
    match IMPLEMENTATIONS.get(number as usize) {
        Some(implementation) => implementation(task),
        None => dispatch_native(task, number),
    }
}

/// Serves one of Starling's own calls.
#[inline(never)]
fn dispatch_native(task: &mut Task, number: u64) -> SysResult {
    match NATIVE_IMPLEMENTATIONS.get((number as usize).wrapping_sub(FIRST_NATIVE)) {
        Some(implementation) => implementation(task),
        None => missing(task),
    }
}

/// Numbers of calls that programs missed, and how often.
pub fn missed() -> impl Iterator<Item = (usize, u32)> {
    MISSING
        .iter()
        .enumerate()
        .map(|(number, count)| (number, count.load(Ordering::Relaxed)))
        .chain(core::iter::once((COUNT, BEYOND.load(Ordering::Relaxed))))
        .filter(|(_, count)| *count > 0)
}

/// The reference page of the book, as Markdown.
pub fn reference() -> alloc::string::String {
    let mut page = alloc::string::String::from(
        "# What each system call supports\n\n\
         This page is made from the kernel's table (`kernel/linux/src/table.rs`) by\n\n    \
         cargo run -p linux --example coverage > docs/src/coverage.md\n\n\
         A call that is not listed returns ENOSYS and is counted in `/proc/starling/missing_syscalls`. Where nothing is said\n\
         of a call, it does what the manual says.\n\n",
    );
    let linux = || descriptions().filter(|call| call.number < FIRST_NATIVE);
    let complete = linux().filter(|call| call.coverage.is_empty()).count();
    page.push_str(&alloc::format!(
        "The table has {} of Linux's calls, of which {complete} do all that the manual says.\n\n",
        linux().count()
    ));
    page.push_str("| number | call | what is missing or differs |\n|---:|---|---|\n");
    for call in descriptions() {
        page.push_str(&alloc::format!("| {} | `{}` | {} |\n", call.number, call.name, call.coverage));
    }
    page.push_str(&absent::reference());
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_ascend_and_occur_once() {
        let numbers: alloc::vec::Vec<_> = descriptions().map(|call| call.number).collect();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn the_page_of_the_book_is_that_of_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/src/coverage.md");
        let page = std::fs::read_to_string(path).unwrap_or_default();
        assert!(page == reference(), "stale: cargo run -p linux --example coverage > docs/src/coverage.md");
    }

    #[test]
    fn the_fuzzer_makes_all_calls() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../user/fuzz_calls.h");
        let text = std::fs::read_to_string(path).expect("the fuzzer's table is in the tree");
        // Entries are `{ NUMBER, "NAME", ...`.
        let made: alloc::collections::BTreeSet<_> = text
            .split("{ ")
            .filter_map(|entry| {
                let (number, rest) = entry.split_once(", \"")?;
                Some((number.parse::<usize>().ok()?, rest.split('"').next()?))
            })
            .collect();
        let served: alloc::collections::BTreeSet<_> =
            descriptions().map(|call| (call.number, call.name)).collect();
        let lacking: alloc::vec::Vec<_> = served.difference(&made).collect();
        assert!(lacking.is_empty(), "describe them in user/fuzz_calls.h: {lacking:?}");
        let unknown: alloc::vec::Vec<_> = made.difference(&served).collect();
        assert!(unknown.is_empty(), "calls that there are none of: {unknown:?}");
    }

    #[test]
    fn numbers_are_those_of_the_abi() {
        let number =
            |name: &str| descriptions().find(|call| call.name == name).map(|call| call.number as u32);
        assert_eq!(number("futex"), Some(linux_raw_sys::general::__NR_futex));
        assert_eq!(number("clone3"), Some(linux_raw_sys::general::__NR_clone3));
        assert_eq!(number("rseq"), Some(linux_raw_sys::general::__NR_rseq));
        assert_eq!(number("exit_group"), Some(linux_raw_sys::general::__NR_exit_group));
    }
}
