/* Arguments that fit together, and what calls must find to get beyond their first checks: for the fuzzer's calls that single plausible values
 * hardly ever take deep.
 *
 * - What a victim has from the start: a socket that listens, queues of messages, groups of fanotify that are told of its directory and ask about a file.
 * - Children that may be traced, compared, advised and answered: they sleep, make calls, ask to be traced, or make calls that a supervisor decides about.
 * - `deepen` changes arguments of a call that was drawn, two times of three.
 * - `answer_questions` answers what fanotify and seccomp ask, most of the time, so that who asks goes on.
 */
#ifndef FUZZ_DEPTH_H
#define FUZZ_DEPTH_H
#include "fuzz_values.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/fanotify.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/un.h>

#ifndef SECCOMP_ADDFD_FLAG_SEND
#define SECCOMP_ADDFD_FLAG_SEND (1UL << 1)
#endif
#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif

#define PICK(array) ((array)[below(sizeof(array) / sizeof *(array))])
#define LOCAL(structure) ((uintptr_t)memcpy(room(sizeof(structure)), &(structure), sizeof(structure)))

/* What the command for the validity of a question was at first, with its direction the wrong way round. */
#define ID_VALID_FROM_OUT _IOR('!', 2, uint64_t)

enum { HANDLE_BYTES = 128 };

static struct { int door, queue, notices, questions, setting; } known;
/* The descriptor by which calls of children are decided about; children write it. */
static atomic_int *listener;

static void one_call(int may_fork);

static const struct sockaddr_un door = { AF_UNIX, "/field/door" };

static void open_known(void)
{
    listener = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (listener == MAP_FAILED)
        _exit(1);
    *listener = -1;
    unlink("/field/door");
    known.door = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
    bind(known.door, (const struct sockaddr *)&door, sizeof door);
    listen(known.door, 4);
    uint64_t name = queue_name(below(QUEUE_NAMES));
    known.queue = (int)syscall(SYS_mq_open, &name, O_CREAT | O_RDWR | O_NONBLOCK, 0666, (uint64_t[8]){ 0, 8, 64 });
    known.notices = fanotify_init(FAN_CLASS_NOTIF | FAN_NONBLOCK | (below(2) ? FAN_REPORT_DFID_NAME : FAN_REPORT_FID), O_RDONLY);
    fanotify_mark(known.notices, FAN_MARK_ADD, FAN_OPEN | FAN_CREATE | FAN_DELETE | FAN_MODIFY | FAN_CLOSE | FAN_ONDIR | FAN_EVENT_ON_CHILD, AT_FDCWD,
                  ".");
    known.questions = fanotify_init((below(2) ? FAN_CLASS_CONTENT : FAN_CLASS_PRE_CONTENT) | FAN_NONBLOCK, O_RDONLY);
    fanotify_mark(known.questions, FAN_MARK_ADD, FAN_OPEN_PERM | FAN_ACCESS_PERM | FAN_CLOSE, AT_FDCWD, below(2) ? "file" : "dir");
    known.setting = -1;
}

/* A filter: some call has a fate of its own, all others are allowed. */
static uint64_t filter(unsigned call, unsigned fate)
{
    struct sock_filter code[] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, fate), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
    struct { uint64_t count, code; } program = { sizeof code / sizeof *code, LOCAL(code) };
    return record((uint64_t *)&program, 2);
}

enum child_kind { SLEEPS, WAKES, WANTS_A_TRACER, MAKES_CALLS, IS_SUPERVISED, CHILD_KINDS };

static void __attribute__((noreturn)) child_life(enum child_kind kind)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    random_state += (uint64_t)syscall(SYS_gettid);
    struct timespec moment = { 0, 100000 };
    struct itimerval often = { { 0, 5000 }, { 0, 5000 } };
    switch (kind) {
    case WANTS_A_TRACER:
        syscall(SYS_ptrace, PTRACE_TRACEME, 0, 0, 0);
        syscall(SYS_kill, getpid(), SIGSTOP);
        break;
    case MAKES_CALLS:
        setitimer(ITIMER_REAL, &often, NULL);
        for (int i = 0; i < 200; i++)
            one_call(0);
        syscall(SYS_exit_group, 0);
        break;
    case IS_SUPERVISED:
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        *listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                                 SECCOMP_FILTER_FLAG_NEW_LISTENER | (below(2) ? SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV : 0),
                                 filter(SYS_getpriority, SECCOMP_RET_USER_NOTIF));
        break;
    default:
        break;
    }
    for (;;) {
        if (kind == SLEEPS)
            syscall(SYS_pause);
        syscall(SYS_getpriority, below(3), 0, draw());
        syscall(SYS_nanosleep, &moment, NULL);
    }
}

/* A process that may be traced and its like. One that is supervised shares its descriptors, so that its listener is there. */
static uint64_t own_child(void)
{
    static __thread pid_t child;
    static __thread int is_child;
    if (is_child)
        return (uint64_t)getpid();
    if (child <= 0 || below(60) == 0) {
        enum child_kind kind = (enum child_kind)below(CHILD_KINDS);
        pid_t made = (pid_t)syscall(SYS_clone, SIGCHLD | (kind == IS_SUPERVISED ? CLONE_FILES : 0), 0, 0, 0, 0);
        if (made == 0) {
            is_child = 1;
            child_life(kind);
        }
        child = made;
    }
    return child > 0 && below(30) ? (uint64_t)child : (uint64_t)getpid();
}

/* A text for a file that takes settings, which is opened: what groups limit, and clocks of a name space. */
static void choose_setting(uint64_t *a)
{
    static const struct { const char *file, *texts[5]; } settings[] = {
        { "memory.max", { "max", "64M", "8M", "1M", "0" } }, { "memory.high", { "max", "16M", "4M", "1M", "0" } },
        { "memory.low", { "max", "1M", "0", "4096", "x" } }, { "memory.min", { "max", "1M", "0", "4096", "x" } },
        { "memory.reclaim", { "1M", "64M", "4096", "0", "max" } }, { "memory.oom.group", { "0", "1", "2", "", "x" } },
        { "memory.swap.max", { "max", "0", "1M", "x", "4096" } }, { "pids.max", { "max", "40", "10", "1", "-1" } },
        { "io.max", { "7:0 rbps=1048576", "7:0 wiops=10 rbps=max", "7:0 max", "7:0 rbps=max wbps=max riops=max wiops=max", "1:3 rbps=0" } },
        { "cpu.max", { "max", "50000 100000", "1000 1000", "max 1000000", "0" } }, { "cpu.weight", { "1", "100", "10000", "0", "x" } },
        { "cgroup.freeze", { "0", "1", "0", "1", "2" } }, { "cgroup.kill", { "1", "1", "0", "2", "" } },
        { "cgroup.procs", { "0", "1", "2", "99", "x" } }, { "cgroup.threads", { "0", "1", "2", "99", "x" } },
        { "cgroup.type", { "threaded", "domain", "", "x", "threaded" } }, { "cgroup.max.depth", { "max", "0", "2", "-1", "9" } },
        { "cgroup.max.descendants", { "max", "0", "2", "-1", "9" } },
        { "cgroup.subtree_control", { "+memory +io", "-memory", "+cpu +pids", "+memory +nothing", "-io -cpu" } } };
    static const char *const offsets[] = { "1 100 0", "7 -1 5", "monotonic 86400 0\nboottime 1 1", "1 99999999999 0", "1 0 1000000000" };
    char path[64], child[24];
    const char *text;
    if (below(8) == 0) {
        snprintf(path, sizeof path, "/proc/self/timens_offsets");
        text = PICK(offsets);
    } else {
        uint64_t chosen = below(sizeof settings / sizeof *settings);
        /* The group of the whole batch is not stopped or ended all the time. */
        int all = strstr("cgroup.freeze cgroup.kill memory.max cgroup.type", settings[chosen].file) ? below(60) == 0 : below(4) == 0;
        mkdir("/group/a", 0755);
        snprintf(path, sizeof path, "/group/%s%s", all ? "" : "a/", settings[chosen].file);
        text = settings[chosen].texts[below(5)];
        if (strstr("cgroup.procs cgroup.threads", settings[chosen].file) && below(3)) {
            snprintf(child, sizeof child, "%d", (int)own_child());
            text = child;
        }
    }
    close(known.setting);
    known.setting = open(path, O_RDWR | O_NONBLOCK);
    a[0] = (uint64_t)known.setting;
    a[1] = (uintptr_t)strcpy(room(strlen(text) + 1), text);
    a[2] = strlen(text);
}

static void trace(uint64_t *a)
{
    static const uint16_t requests[] = { PTRACE_PEEKTEXT, PTRACE_PEEKUSER, PTRACE_POKEDATA, PTRACE_POKEUSER, PTRACE_CONT, PTRACE_KILL,
        PTRACE_SINGLESTEP, PTRACE_GETREGS, PTRACE_SETREGS, PTRACE_GETFPREGS, PTRACE_SETFPREGS, PTRACE_ATTACH, PTRACE_DETACH, PTRACE_SYSCALL,
        31, 32, 30, PTRACE_SETOPTIONS, PTRACE_GETEVENTMSG, PTRACE_GETSIGINFO, PTRACE_SETSIGINFO, PTRACE_GETREGSET, PTRACE_SETREGSET, PTRACE_SEIZE,
        PTRACE_INTERRUPT, PTRACE_LISTEN, PTRACE_PEEKSIGINFO, PTRACE_GETSIGMASK, PTRACE_SETSIGMASK, PTRACE_SECCOMP_GET_FILTER, 0x420d, 0x420e,
        0x420f, 0x4210 };
    /* A tracer goes on with what it stopped, and begins with somebody else. */
    static const uint16_t usual[] = { PTRACE_SEIZE, PTRACE_ATTACH, PTRACE_CONT, PTRACE_SYSCALL, PTRACE_SINGLESTEP, PTRACE_INTERRUPT };
    static const uint16_t notes[] = { 1, 2, 0x202, 4, 0x1000 };
    uint64_t regs[28] = { 0 }, room_for[2] = { buffer(), below(900) };
    int status;
    a[0] = below(3) ? PICK(requests) : PICK(usual);
    a[1] = own_child();
    syscall(SYS_wait4, a[1], &status, WNOHANG | __WALL, NULL);
    switch (a[0]) {
    case PTRACE_SEIZE: a[2] = 0; a[3] = below(2) ? 0 : draw() & 0x3001ff; break;
    case PTRACE_SETOPTIONS: a[3] = draw() & 0x3001ff; break;
    case PTRACE_CONT: case PTRACE_SYSCALL: case PTRACE_SINGLESTEP: case 31: case 32: case PTRACE_DETACH: a[3] = below(3) ? 0 : below(65); break;
    case PTRACE_PEEKTEXT: case PTRACE_POKEDATA: a[2] = buffer(); break;
    case PTRACE_PEEKUSER: case PTRACE_POKEUSER: a[2] = below(8) ? below(120) * 8 : anything(); break;
    case PTRACE_GETREGSET: case PTRACE_SETREGSET: a[2] = PICK(notes); a[3] = record(room_for, 2); break;
    case PTRACE_SETREGS:
        syscall(SYS_ptrace, PTRACE_GETREGS, a[1], 0, regs);
        regs[below(27)] = anything();
        a[3] = LOCAL(regs);
        break;
    case PTRACE_PEEKSIGINFO: { uint64_t words[2] = { below(3), below(4) << 32 | below(2) }; a[2] = record(words, 2); break; }
    case PTRACE_GETSIGMASK: case PTRACE_SETSIGMASK: a[2] = 8; break;
    case PTRACE_SECCOMP_GET_FILTER: case 0x420d: a[2] = below(3); break;
    case 0x420e: a[2] = below(120); break;
    default: break;
    }
}

static void mark(uint64_t *a)
{
    static const uint32_t kinds[] = { 0, FAN_MARK_MOUNT, FAN_MARK_FILESYSTEM }, extras[] = { 0, 0, 0, FAN_MARK_ONLYDIR, FAN_MARK_DONT_FOLLOW,
        FAN_MARK_IGNORED_MASK, FAN_MARK_IGNORED_MASK | FAN_MARK_IGNORED_SURV_MODIFY, 0x200, 0x400 };
    static const uint32_t actions[] = { FAN_MARK_ADD, FAN_MARK_ADD, FAN_MARK_ADD, FAN_MARK_REMOVE, FAN_MARK_FLUSH };
    a[0] = (uint64_t)(below(2) ? known.notices : known.questions);
    a[1] = PICK(actions) | PICK(kinds) | PICK(extras);
    /* Permissions only of few: their askers wait. */
    a[2] = (draw() & draw() & 0x1fff) | (below(4) ? 0 : FAN_ONDIR) | (below(3) ? 0 : FAN_EVENT_ON_CHILD) | (below(8) ? 0 : draw() & 0x70000) |
           (below(8) ? 0 : FAN_RENAME);
    a[3] = (uint64_t)AT_FDCWD;
    a[4] = path();
}

/* A valid handle, or one of which a bit is not. */
static uint64_t handle(void)
{
    union { struct file_handle head; char bytes[sizeof(struct file_handle) + HANDLE_BYTES]; } made = { .head.handle_bytes = HANDLE_BYTES };
    int mount;
    name_to_handle_at(AT_FDCWD, (const char *)path(), &made.head, &mount, 0);
    if (below(4) == 0)
        made.bytes[below(sizeof(struct file_handle) + 24)] ^= (char)(1 << below(8));
    return LOCAL(made);
}

/* A record of a lock or an owner, and the commands of fcntl(2) that take more than a number. */
static void control(uint64_t *a)
{
    static const uint16_t commands[] = { F_GETLK, F_SETLK, 36, 37, F_SETLEASE, F_SETLEASE, F_GETLEASE, F_NOTIFY, F_NOTIFY, F_SETSIG, F_ADD_SEALS,
        F_GET_SEALS, F_SETPIPE_SZ, 1035, 1036, 1037, 1038 };
    a[1] = PICK(commands);
    switch (a[1]) {
    case F_SETLEASE: a[0] = (uint64_t)open("file", O_RDONLY | O_NONBLOCK); a[2] = below(3); break;
    case F_NOTIFY: a[0] = (uint64_t)open(".", O_RDONLY | O_NONBLOCK); a[2] = (draw() & 0x3f) | (below(2) ? 0x80000000 : 0); break;
    case F_SETSIG: a[2] = below(65); break;
    case F_ADD_SEALS: a[2] = below(32); break;
    case F_SETPIPE_SZ: a[2] = below(1 << 18); break;
    default: { uint64_t words[4] = { below(3) | below(3) << 16, below(100), below(100), 0 }; a[2] = record(words, 4); }
    }
}

static void supervise(uint64_t *a)
{
    static const uint32_t commands[] = { SECCOMP_IOCTL_NOTIF_RECV, SECCOMP_IOCTL_NOTIF_SEND, SECCOMP_IOCTL_NOTIF_ID_VALID, ID_VALID_FROM_OUT, SECCOMP_IOCTL_NOTIF_ADDFD };
    static _Atomic uint64_t told;
    struct pollfd one = { *listener, POLLIN, 0 };
    a[0] = (uint64_t)*listener;
    a[1] = PICK(commands);
    switch (a[1]) {
    case SECCOMP_IOCTL_NOTIF_RECV:
        if (poll(&one, 1, 0) == 1 && one.revents & POLLIN) {
            struct seccomp_notif notice = { 0 };
            if (syscall(SYS_ioctl, *listener, SECCOMP_IOCTL_NOTIF_RECV, &notice) == 0)
                told = notice.id;
        }
        a[1] = SECCOMP_IOCTL_NOTIF_ID_VALID;
        /* fall through */
    case SECCOMP_IOCTL_NOTIF_ID_VALID: case ID_VALID_FROM_OUT: { uint64_t words[1] = { told }; a[2] = record(words, 1); break; }
    case SECCOMP_IOCTL_NOTIF_SEND: { uint64_t words[3] = { told, below(9), below(3) ? below(2) << 32 : (uint32_t)-(int)below(40) }; a[2] = record(words, 3); break; }
    default: { uint64_t words[3] = { told, (3 + below(20)) << 32 | below(4), below(2) ? 0 : 3 + below(40) }; a[2] = record(words, 3); }
    }
}

/* Enters some name space that exists. */
static void enter(uint64_t *a)
{
    static const char *const spaces[] = { "mnt", "uts", "ipc", "net", "pid", "pid_for_children", "cgroup", "user", "time", "time_for_children" };
    char name[64];
    snprintf(name, sizeof name, "/proc/%d/ns/%s", (int)(below(2) ? own_child() : (uint64_t)getpid()), PICK(spaces));
    a[0] = (uint64_t)(below(4) ? open(name, O_RDONLY) : (int)syscall(SYS_pidfd_open, own_child(), 0));
    a[1] = below(3) ? 0 : unshared();
}

static void deepen(long number, uint64_t *a)
{
    static const uint32_t fates[] = { SECCOMP_RET_ALLOW, SECCOMP_RET_LOG, SECCOMP_RET_TRACE | 3, SECCOMP_RET_ERRNO | 5, SECCOMP_RET_TRAP | 9,
        SECCOMP_RET_USER_NOTIF, SECCOMP_RET_KILL_THREAD };
    if (below(3) == 0)
        return;
    switch (number) {
    case SYS_write: if (below(4) == 0) choose_setting(a); break;
    case SYS_read: if (below(6) == 0) { a[0] = (uint64_t)(below(2) ? known.notices : known.questions); a[2] = below(2000); } break;
    case SYS_ioctl: if (below(3) == 0) supervise(a); break;
    case SYS_fcntl: if (below(2)) control(a); break;
    case SYS_ptrace: trace(a); break;
    case SYS_wait4: a[0] = own_child(); a[2] = WNOHANG | __WALL | below(16); break;
    case SYS_fanotify_init: a[0] = FAN_NONBLOCK | FAN_CLOEXEC | below(3) << 2 | (below(2) ? 0 : (draw() & 0x1f) << 7) | (below(4) ? 0 : 0x30); a[1] = below(3); break;
    case SYS_fanotify_mark: mark(a); break;
    case SYS_name_to_handle_at: a[2] = handle(); a[4] = below(2) ? 0 : AT_SYMLINK_FOLLOW; break;
    case SYS_open_by_handle_at: a[0] = (uint64_t)AT_FDCWD; a[1] = handle(); break;
    case SYS_process_madvise: a[0] = (uint64_t)syscall(SYS_pidfd_open, own_child(), 0); a[3] = 20 + below(6); a[4] = 0; break;
    case SYS_setns: enter(a); break;
    case SYS_seccomp: a[0] = SECCOMP_SET_MODE_FILTER; a[1] = below(2) ? 0 : 1u << below(6); a[2] = filter((unsigned)below(450), PICK(fates)); break;
    case SYS_connect: a[1] = LOCAL(door); a[2] = sizeof door; break;
    case SYS_accept: case SYS_accept4: {
        int guest = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        connect(guest, (const struct sockaddr *)&door, sizeof door);
        uint64_t words[1] = { sizeof door };
        a[0] = (uint64_t)known.door;
        a[2] = record(words, 1);
        a[3] &= O_NONBLOCK | O_CLOEXEC;
        break;
    }
    case SYS_mq_open: a[1] = O_CREAT | O_RDWR | O_NONBLOCK; a[3] = below(2) ? 0 : a[3]; break;
    case SYS_mq_timedsend: a[0] = (uint64_t)known.queue; a[2] = below(70); break;
    case SYS_mq_timedreceive: a[0] = (uint64_t)known.queue; a[2] = 64 + below(9000); break;
    case SYS_mq_notify: case SYS_mq_getsetattr: a[0] = (uint64_t)known.queue; break;
    case SYS_pivot_root: {
        static const char *const olds[] = { "tmpfs", "tmpfs/a", "." };
        mount("tmpfs", "tmpfs", "tmpfs", 0, NULL);
        mkdir("tmpfs/a", 0777);
        const char *put_old = PICK(olds);
        if (below(20) == 0) {
            a[0] = (uintptr_t)strcpy(room(8), "tmpfs");
            a[1] = (uintptr_t)strcpy(room(8), put_old);
        }
        break;
    }
    default: break;
    }
}

/* What fanotify and seccomp ask the victim about; who asks waits for the answer. */
static void answer_questions(void)
{
    char events[1024] __attribute__((aligned(8)));
    struct pollfd asked[2] = { { known.questions, POLLIN, 0 }, { *listener, POLLIN, 0 } };
    if (poll(asked, 2, 0) <= 0 || below(8) == 0)
        return;
    ssize_t count = asked[0].revents & POLLIN ? read(known.questions, events, sizeof events) : 0;
    const struct fanotify_event_metadata *event = (void *)events;
    for (; count > 0 && FAN_EVENT_OK(event, count); event = FAN_EVENT_NEXT(event, count)) {
        struct fanotify_response response = { event->fd, below(4) ? FAN_ALLOW : FAN_DENY };
        if (event->mask & (FAN_OPEN_PERM | FAN_ACCESS_PERM | 0x40000) && write(known.questions, &response, sizeof response) < 0)
            count = 0;
        if (event->fd >= 0)
            close(event->fd);
    }
    struct seccomp_notif notice = { 0 };
    if (asked[1].revents & POLLIN && ioctl(*listener, SECCOMP_IOCTL_NOTIF_RECV, &notice) == 0) {
        struct seccomp_notif_addfd added = { notice.id, below(2) ? SECCOMP_ADDFD_FLAG_SEND : 0, (unsigned)(3 + below(20)), 0, 0 };
        if (below(3) == 0)
            ioctl(*listener, SECCOMP_IOCTL_NOTIF_ADDFD, &added);
        struct seccomp_notif_resp answer = { notice.id, 0, below(2) ? 0 : -1, below(2) ? SECCOMP_USER_NOTIF_FLAG_CONTINUE : 0 };
        ioctl(*listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
}
#endif
