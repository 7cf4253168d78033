/* A fuzzer of system calls, from several processes of several threads, as root and as nobody.
 *
 * Each worker starts one victim after another in a jail (fuzz_jail.h) that root can't leave, either. Two threads of a victim make calls from the
 * table in fuzz_calls.h with arguments that are mostly plausible (fuzz_values.h) and often fit together (fuzz_depth.h); a third takes pages of the
 * arguments away, sends signals, closes descriptors, and answers what others wait for. Now and then a call is any number with any arguments. Victims fork,
 * clone with all combinations of flags, trace their children, and execute programs; their handlers break the signal frames they return through.
 *
 * Half of the victims are the first process of their name space, half are the second. All of a batch ends with the first, which its worker kills; then its
 * control group can be taken away, or something leaked.
 *
 * Each batch has a seed that is printed on the progress channel before it starts; an even seed is root's, an odd one
 * nobody's. `fuzz replay SEED` runs that batch again and prints its calls; threads may meet in another order.
 *
 * usage: fuzz SECONDS [SEED] [root|nobody]... | fuzz replay SEED [TIMES]
 *
 * abi: guest
 * abi: alone
 * abi: cpus 2,4
 * abi: args 20
 * abi: limit 120
 * abi: long-cpus 4
 * abi: long-args 600 0 root nobody
 * abi: long-limit 1500
 */
#include "fuzz_calls.h"
#include "fuzz_depth.h"
#include "fuzz_jail.h"
#include <sys/shm.h>

enum { WORKERS_MAX = 6, BATCH = 400, VICTIM_MS = 1500, BATCHES_A_JAIL = 24, UNKILLABLE_MS = 20000,
    GAP_PAGES = 512 };

/* Calls made, calls that did not fail, and calls that failed otherwise than with ENOSYS, by number; for all processes. */
struct counts {
    atomic_uint made[NUMBERS], worked[NUMBERS], known[NUMBERS];
};
static struct counts *counts;
static int tracing;

/* Not with any arguments: they end the caller, or act on others. */
static const short never_raw[] = { 15, 60, 231, 34, 130, 62, 129, 200, 234, 297, 424, 434, 72, 141, 142, 144, 203, 302, 310, 311, 314, 251,
    109, 101, 169, 246, 320, 153, 167, 168, 56, 57, 58, 435, 59, 322, 219 };

static void one_call(int may_fork);

/* What a process or thread does that was made by a call: some calls, and out. */
static void __attribute__((used, noreturn)) fuzz_child(void) __asm__("fuzz_child");
static void fuzz_child(void)
{
    random_state += (uint64_t)syscall(SYS_gettid);
    for (uint64_t count = below(24); count > 0; count--)
        one_call(0);
    if (below(4) == 0)
        syscall(SYS_execve, "/field/tiny", (char *[]){ "tiny", NULL }, NULL);
    if (below(8) == 0)
        syscall(SYS_exit_group, 0);
    for (;;)
        syscall(SYS_exit, 0);
}

/* A call whose child may come back on another stack, or on ours beneath what we use of it. */
static __attribute__((noinline)) long call_that_forks(long number, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
    long result;
    register uint64_t r10 __asm__("r10") = d;
    register uint64_t r8 __asm__("r8") = e;
    __asm__ volatile("syscall\n\ttest %%rax, %%rax\n\tjnz 1f\n\txor %%ebp, %%ebp\n\tsub $512, %%rsp\n\tand $-16, %%rsp\n\t"
                     "call fuzz_child\n1:"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
}

static uint64_t clone_flags(void)
{
    static const uint32_t some[] = { CLONE_VM, CLONE_FS, CLONE_FILES, CLONE_SIGHAND, CLONE_PTRACE, CLONE_VFORK, CLONE_PARENT, CLONE_THREAD,
        CLONE_NEWNS, CLONE_SYSVSEM, CLONE_SETTLS, CLONE_PARENT_SETTID, CLONE_CHILD_CLEARTID, CLONE_UNTRACED, CLONE_CHILD_SETTID,
        CLONE_NEWUTS, CLONE_NEWPID, CLONE_NEWUSER, CLONE_IO, CLONE_PIDFD, CLONE_NEWIPC, CLONE_NEWNET, CLONE_NEWCGROUP, 0x80 /* CLONE_NEWTIME */ };
    uint64_t value = 0;
    for (uint64_t count = below(7); count > 0; count--)
        value |= some[below(sizeof some / sizeof *some)];
    if (value & CLONE_THREAD && below(8))
        value |= CLONE_SIGHAND;
    if (value & CLONE_SIGHAND && below(8))
        value |= CLONE_VM;
    return value;
}

static long make_child(long number)
{
    uint64_t wanted = clone_flags();
    uint64_t stack = wanted & CLONE_VM || below(4) == 0 ? (uintptr_t)arena + (STRUCT_PAGES + 2 + below(20)) * PAGE : 0;
    if (wanted & CLONE_VM && wanted & CLONE_VFORK && below(2))
        stack = 0;
    if (number == SYS_fork || number == SYS_vfork)
        return call_that_forks(number, 0, 0, 0, 0, 0);
    if (number == SYS_clone) {
        uint64_t leaving = below(4) ? SIGCHLD : below(65);
        return call_that_forks(number, wanted | leaving, stack, buffer(), buffer(), buffer());
    }
    uint64_t set[1] = { below(40) };
    uint64_t words[11] = { wanted, buffer(), buffer(), buffer(), wanted & CLONE_THREAD ? 0 : SIGCHLD, stack ? stack - 2 * PAGE : 0,
        stack ? 2 * PAGE : 0, buffer(), below(8) ? 0 : record(set, 1), 0, 0 };
    words[9] = words[8] != 0;
    return call_that_forks(number, record(words, 11), below(8) ? 88 : 64, 0, 0, 0);
}

static void count(long call, long result)
{
    int number = place_of(call);
    if (number < 0)
        return;
    atomic_fetch_add(&counts->made[number], 1);
    if (result >= 0 || (result < -4095))
        atomic_fetch_add(&counts->worked[number], 1);
    if (result != -ENOSYS)
        atomic_fetch_add(&counts->known[number], 1);
}

static int raw_call(void)
{
    long number = (long)(below(24) ? below(LINUX_NUMBERS) : below(0x1400));
    uint64_t a = anything(), b = anything(), c = anything(), d = anything(), e = anything(), f = anything();
    for (unsigned i = 0; i < sizeof never_raw / sizeof *never_raw; i++)
        if (never_raw[i] == number)
            return 0;
    if (tracing)
        fprintf(stderr, "%d raw %ld(%#lx, %#lx, %#lx, %#lx, %#lx, %#lx)\n", (int)syscall(SYS_gettid), number, a, b, c, d, e, f);
    long result = syscall(number, a, b, c, d, e, f);
    count(number, result < 0 ? -errno : result);
    return 1;
}

static void one_call(int may_fork)
{
    if (below(16) == 0 && raw_call())
        return;
    const struct call *call = &calls[below(CALLS)];
    if (below((uint64_t)call->rarity))
        return;
    uint64_t a[6] = { 0 };
    size_t kinds = strlen(call->kinds);
    for (size_t i = 0; i < kinds && i < 6; i++)
        a[i] = value(call->kinds[i]);
    if (call->number == SYS_fcntl && (a[1] == F_SETOWN || a[1] == F_SETOWN_EX))
        a[1] = F_GETOWN;
    deepen(call->number, a);
    if (tracing)
        fprintf(stderr, "%d %s(%#lx, %#lx, %#lx, %#lx, %#lx, %#lx)\n", (int)syscall(SYS_gettid), call->name, a[0], a[1], a[2], a[3],
                a[4], a[5]);
    long result;
    switch (call->number) {
    case SYS_fork: case SYS_vfork: case SYS_clone: case SYS_clone3:
        if (!may_fork)
            return;
        /* Counted before: what comes back may be two. */
        result = make_child(call->number);
        count(call->number, result);
        return;
    case SYS_exit: case SYS_exit_group: case SYS_execve: case SYS_execveat:
        /* They may not come back. */
        count(call->number, 0);
    }
    result = syscall(call->number, a[0], a[1], a[2], a[3], a[4], a[5]);
    count(call->number, result < 0 ? -errno : result);
}

/* A handler that at times breaks the frame it returns through. */
static void nothing(int number, siginfo_t *info, void *context)
{
    (void)number, (void)info;
    ucontext_t *frame = context;
    uint64_t choice = draw();
    int error = errno;
    if (choice % 64 == 0)
        frame->uc_mcontext.gregs[(choice >> 8) % NGREG] ^= 1ll << (choice >> 16) % 64;
    else if (choice % 64 == 1 && frame->uc_mcontext.fpregs)
        ((uint64_t *)frame->uc_mcontext.fpregs)[(choice >> 8) % 104] ^= 1ull << (choice >> 16) % 64;
    else if (choice % 64 == 2)
        frame->uc_mcontext.fpregs = (void *)(uintptr_t)anything();
    else if (choice % 64 == 3)
        memset(&frame->uc_sigmask, (int)(choice >> 8), 8);
    errno = error;
}

/* Pages of the arena that were taken away come back when the fuzzer itself needs them. */
static void faulted(int number, siginfo_t *info, void *context)
{
    (void)context;
    int error = errno;
    uintptr_t at = (uintptr_t)info->si_addr & ~(uintptr_t)(PAGE - 1);
    if (at - (uintptr_t)arena < ARENA_PAGES * PAGE)
        mmap((void *)at, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    else
        signal(number, SIG_DFL);
    errno = error;
}

static void set_handlers(void)
{
    struct sigaction action = { .sa_sigaction = nothing, .sa_flags = SA_SIGINFO };
    for (int number = 1; number < 65; number++)
        sigaction(number, &action, NULL);
    action = (struct sigaction){ .sa_sigaction = faulted, .sa_flags = SA_SIGINFO | SA_NODEFER };
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    struct { void *handler; unsigned long flags, restorer, mask; } found = { 0 };
    syscall(SYS_rt_sigaction, SIGUSR1, NULL, &found, 8);
    restorer = found.restorer;
}

static void open_descriptors(void)
{
    int ends[2];
    uint64_t set = ~0ull;
    for (int fd = 3; fd < FILES_MAX; fd++)
        close(fd);
    if (pipe2(ends, O_NONBLOCK) < 0 || pipe(ends) < 0)
        _exit(1);
    open("file", O_RDWR | O_CREAT, 0666);
    open("file", O_PATH);
    open(".", O_RDONLY);
    open("/", O_PATH | O_DIRECTORY);
    epoll_create1(0);
    eventfd(0, EFD_NONBLOCK);
    timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    syscall(SYS_signalfd4, -1, &set, 8, O_NONBLOCK);
    syscall(SYS_memfd_create, "memory", 2);
    int master = open("/dev/ptmx", O_RDWR | O_NONBLOCK), zero = 0;
    ioctl(master, TIOCSPTLCK, &zero);
    ioctl(master, TIOCGPTPEER, O_RDWR | O_NONBLOCK);
    open("fifo", O_RDWR | O_NONBLOCK);
    syscall(SYS_pidfd_open, getpid(), 0);
    syscall(SYS_inotify_init1, O_NONBLOCK);
    open("/proc/self/maps", O_RDONLY);
    open("/proc/self/oom_score_adj", O_RDWR);
    open("/proc", O_RDONLY);
    open("/dev/zero", O_RDWR);
}

static void set_limits(void)
{
    static const struct { int resource; rlim_t limit; } limits[] = { { RLIMIT_CPU, 2 }, { RLIMIT_AS, 192 << 20 },
        { RLIMIT_NOFILE, FILES_MAX }, { RLIMIT_CORE, 0 }, { RLIMIT_FSIZE, 128 << 10 }, { RLIMIT_NPROC, 60 }, { RLIMIT_SIGPENDING, 100 } };
    for (unsigned i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct rlimit both = { limits[i].limit, limits[i].limit };
        setrlimit((__rlimit_resource_t)limits[i].resource, &both);
    }
}

static void prepare(int nobody)
{
    /* Far from everything else, so that calls that change mappings next to it hit nothing. */
    char *reserved = mmap(NULL, (2 * GAP_PAGES + ARENA_PAGES) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    arena = reserved + GAP_PAGES * PAGE;
    mprotect(arena, ARENA_PAGES * PAGE, PROT_READ | PROT_WRITE);
    int adjustment = open("/proc/self/oom_score_adj", O_WRONLY);
    if (adjustment >= 0 && write(adjustment, "1000", 4) == 4)
        close(adjustment);
    set_limits();
    /* Not the one in the jail, which others may have taken away. */
    int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < (tracing ? 2 : 3); fd++)
        if (dup2(null, fd) < 0)
            _exit(1);
    /* What a batch may find mounted. */
    if (below(2))
        mount("tmpfs", "tmpfs", "tmpfs", 0, NULL);
    if (below(2))
        mount("dir", "bound", NULL, MS_BIND, NULL);
    if (below(3) == 0)
        mount(NULL, "/", NULL, MS_REC | (below(2) ? MS_SHARED : MS_SLAVE), NULL);
    if (nobody) {
        setresgid(65534, 65534, 65534);
        setresuid(65534, 65534, 65534);
    }
    open_descriptors();
    open_known();
    set_handlers();
    struct itimerval often = { { 0, 5000 }, { 0, 5000 } };
    setitimer(ITIMER_REAL, &often, NULL);
}

static void *caller(void *seed)
{
    random_state = (uint64_t)(uintptr_t)seed;
    thread_ids[1] = (int)syscall(SYS_gettid);
    for (int i = 0; i < BATCH; i++)
        one_call(1);
    return NULL;
}

/* Takes away what the others are using. */
static void *saboteur(void *seed)
{
    random_state = (uint64_t)(uintptr_t)seed;
    thread_ids[2] = (int)syscall(SYS_gettid);
    for (int i = 0; i < BATCH; i++) {
        char *page = arena + below(ARENA_PAGES) * PAGE;
        answer_questions();
        switch (below(11)) {
        case 0: munmap(page, PAGE * (1 + below(3))); break;
        case 1: mprotect(page, PAGE, (int)below(8)); break;
        case 2: madvise(page, PAGE * 2, MADV_DONTNEED); break;
        case 3: mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_SHARED | (below(2) ? MAP_ANONYMOUS : 0), 7, 0); break;
        case 4: syscall(SYS_close, 3 + below(40)); break;
        case 5: syscall(SYS_dup2, 3 + below(24), 3 + below(40)); break;
        case 6: case 7: syscall(SYS_tgkill, getpid(), thread_ids[below(2)], below(8) ? 34 + below(20) : 10); break;
        case 8: syscall(SYS_futex, arena + below(64) * 4, below(2) ? 129 : 1, 1 + below(3), 0, 0, 0); break;
        case 9: syscall(SYS_fcntl, 3 + below(FILES_MAX), F_SETLEASE, F_UNLCK); break;
        default: mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); break;
        }
        struct timespec moment = { 0, (long)below(200000) };
        nanosleep(&moment, NULL);
    }
    return NULL;
}

static void victim(uint64_t seed)
{
    prepare((int)(seed & 1));
    thread_ids[0] = thread_ids[1] = thread_ids[2] = (int)syscall(SYS_gettid);
    syscall(SYS_io_setup, 8, &transfer_context);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 128 << 10);
    pthread_t thread;
    pthread_create(&thread, &attributes, saboteur, (void *)(uintptr_t)draw());
    pthread_create(&thread, &attributes, caller, (void *)(uintptr_t)draw());
    for (int i = 0; i < BATCH; i++)
        one_call(1);
    syscall(SYS_exit_group, 0);
}

/* The first process of a batch: a victim, or what waits for one. */
static void __attribute__((noreturn)) run_batch(const char *jail, const char *group, uint64_t seed)
{
    setpgid(0, 0);
    random_state = seed;
    int failed = enter_jail(jail, group);
    if (failed)
        _exit(NO_JAIL + failed);
    pid_t second = seed & 2 ? (pid_t)syscall(SYS_fork) : 0;
    if (second == 0)
        victim(seed);
    while (waitpid(second, NULL, 0) < 0 && errno == EINTR)
        ;
    _exit(0);
}

/* Starts a batch in a control group and name spaces of its own. */
static pid_t start_batch(const char *jail, const char *group, uint64_t seed)
{
    static const struct sched_param usual = { 0 };
    fflush(stdout);
    pid_t first = (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
    if (first == 0) {
        sched_setscheduler(0, SCHED_OTHER, &usual);
        run_batch(jail, group, seed);
    }
    return first;
}

/* Segments of shared memory and named queues outlive their makers: removes all. */
static void remove_segments(void)
{
    for (unsigned queue = 0; queue < QUEUE_NAMES; queue++) {
        uint64_t name = queue_name(queue);
        syscall(SYS_mq_unlink, &name);
    }
    struct shmid_ds status;
    int highest = shmctl(0, SHM_INFO, (struct shmid_ds *)&(struct shm_info){ 0 });
    for (int place = 0; place <= highest; place++) {
        int id = shmctl(place, SHM_STAT, &status);
        if (id >= 0)
            shmctl(id, IPC_RMID, NULL);
    }
}

/* Kills the children of this process that are not zombies. */
static void kill_children(void)
{
    DIR *folder = opendir("/proc");
    struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        char name[300], text[512];
        int id = atoi(entry->d_name);
        snprintf(name, sizeof name, "/proc/%d/stat", id);
        int fd = id > 1 ? open(name, O_RDONLY | O_CLOEXEC) : -1;
        ssize_t got = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
        close(fd);
        text[got > 0 ? got : 0] = 0;
        char *end = strrchr(text, ')');
        if (end && atoi(end + 4) == getpid())
            kill(id, SIGKILL);
    }
    if (folder)
        closedir(folder);
}

/* Who does not die, of all workers' batches, which have name spaces of their own: number, name, state, what it waits in. */
static void show_batches(void)
{
    DIR *folder = opendir("/proc");
    struct dirent *entry;
    char own[64] = "", name[300], space[64];
    if (readlink("/proc/self/ns/pid", own, sizeof own - 1) < 0)
        printf("no link\n");
    while (folder && (entry = readdir(folder))) {
        if (atoi(entry->d_name) <= 1)
            continue;
        memset(space, 0, sizeof space);
        snprintf(name, sizeof name, "/proc/%s/ns/pid", entry->d_name);
        if (readlink(name, space, sizeof space - 1) > 0 && !strcmp(own, space))
            continue;
        static const char *const files[] = { "stat", "syscall", "status" };
        for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
            snprintf(name, sizeof name, "/proc/%s/%s", entry->d_name, files[i]);
            printf("%s", get_text(name));
        }
    }
    if (folder)
        closedir(folder);
}

/* Kills and reaps everything a victim left; false when something does not die. */
static int clear_away(pid_t child)
{
    long long limit = now_ms() + UNKILLABLE_MS;
    kill(-child, SIGKILL);
    kill(child, SIGKILL);
    for (;;) {
        pid_t found = waitpid(-1, NULL, WNOHANG | __WALL);
        if (found < 0 && errno == ECHILD)
            return 1;
        if (found > 0)
            continue;
        if (now_ms() > limit)
            return 0;
        kill_children();
        pause_ms(2);
    }
}

static int worker(int me, uint64_t seed, int nobody, long long until_ms)
{
    uint64_t own = seed + (uint64_t)me * 1000003;
    long batches = 0, stopped = 0, signalled = 0, outside = 0;
    char jail[64], group[64];
    snprintf(jail, sizeof jail, "/tmp/fuzz/%d", me);
    snprintf(group, sizeof group, "fuzz-%d", me);
    setsid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    /* Above whatever the victims make of themselves, so that they can be ended. */
    struct sched_param above = { .sched_priority = 99 };
    sched_setscheduler(0, SCHED_FIFO, &above);
    if (!make_jail(me, jail, UNKILLABLE_MS))
        return 1;
    while (now_ms() < until_ms) {
        uint64_t batch_seed = (next_random(&own) & ~1ull) | (uint64_t)nobody;
        if (batches % 16 == 0)
            progress("fuzz worker %d batch %ld seed %llu", me, batches, (unsigned long long)batch_seed);
        if (++batches % BATCHES_A_JAIL == 0) {
            drop_jail(jail);
            if (!make_jail(me, jail, UNKILLABLE_MS))
                return 1;
            remove_segments();
        }
        int error = make_group(group, batch_seed);
        pid_t child = error ? -1 : start_batch(jail, group, batch_seed);
        if (child < 0) {
            outside++;
            if (error && error != ENOMEM && error != ENFILE && error != EEXIST) {
                printf("FAILED: worker %d: no group: %s\n", me, ERRNO_NAME(error));
                return 1;
            }
            drop_group(group);
            pause_ms(10);
            continue;
        }
        long long limit = now_ms() + VICTIM_MS;
        int status = 0;
        pid_t found;
        while ((found = waitpid(child, &status, WNOHANG)) == 0 && now_ms() < limit) {
            kill(-child, SIGCONT);
            pause_ms(2);
        }
        stopped += found == 0;
        signalled += WIFSIGNALED(status) && found != 0;
        if (WIFEXITED(status) && WEXITSTATUS(status) > NO_JAIL && WEXITSTATUS(status) < NO_JAIL + JAIL_STEPS && outside++ == 0)
            progress("fuzz worker %d batch %ld: no jail: step %d", me, batches, WEXITSTATUS(status) - NO_JAIL);
        if (!clear_away(child)) {
            printf("FAILED: worker %d: what batch %llu left does not die\n", me, (unsigned long long)batch_seed);
            show_batches();
            progress("fuzz worker %d: what batch %llu left does not die", me, (unsigned long long)batch_seed);
            return 1;
        }
        if (!drop_group(group)) {
            printf("FAILED: worker %d: the group of batch %llu is not empty: %s\n", me, (unsigned long long)batch_seed, get("cgroup.stat"));
            return 1;
        }
    }
    drop_jail(jail);
    printf("worker %d as %s: %ld batches, %ld stopped after %d ms, %ld ended by a signal, %ld not in a jail\n", me, nobody ? "nobody" : "root",
           batches, stopped, VICTIM_MS, signalled, outside);
    return outside == batches && batches > 4;
}

/* Runs the workers for a while: all as root, all as nobody, or half and half. Afterwards the memory is back. */
static void phase(const char *who, uint64_t seed, long seconds, long before_kib)
{
    long workers = figure("/proc/meminfo", "MemTotal") < 100000 ? 3 : WORKERS_MAX;
    long long until = now_ms() + seconds * 1000;
    printf("seed %llu, %ld s as %s\n", (unsigned long long)seed, seconds, who);
    progress("fuzz seed %llu as %s", (unsigned long long)seed, who);
    for (int me = 0; me < workers; me++)
        CHILD({
            int nobody = !strcmp(who, "nobody") || (strcmp(who, "root") && me % 2);
            int failed = worker(me, seed, nobody, until);
            fflush(stdout);
            _exit(failed);
        });
    int status;
    while (wait(&status) > 0)
        EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a worker: %s", how_ended(status));
    EXPECT(kill_user(65534), "processes of nobody live on");
    remove_segments();
    memory_is_back(who, before_kib);
}

static void show_memory(const char *when)
{
    static const char *const names[] = { "MemFree", "Slab", "Shmem", "AnonPages", "KernelStack", "PageTables" };
    printf("%s:", when);
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        printf(" %s %ld", names[i], figure("/proc/meminfo", names[i]));
    printf(" KiB\n");
}

static void report(void)
{
    long reached = 0, total = 0;
    for (int i = 0; i < CALLS; i++) {
        reached += atomic_load(&counts->made[place_of(calls[i].number)]) > 0;
        if (atomic_load(&counts->made[place_of(calls[i].number)]) == 0)
            printf("not reached: %s\n", calls[i].name);
    }
    printf("never worked:");
    for (int i = 0; i < CALLS; i++)
        if (atomic_load(&counts->known[place_of(calls[i].number)]) && atomic_load(&counts->worked[place_of(calls[i].number)]) == 0)
            printf(" %s", calls[i].name);
    printf("\nnot described:");
    for (int number = 0; number < NUMBERS; number++) {
        int described = 0;
        for (int i = 0; i < CALLS; i++)
            described |= place_of(calls[i].number) == number;
        /* A broken signal frame makes a few results up. */
        if (!described && atomic_load(&counts->known[number]) > atomic_load(&counts->made[number]) / 2)
            printf(" %d", number);
        total += atomic_load(&counts->made[number]);
    }
    printf("\n%ld calls made, %ld of %d described calls reached\n", total, reached, CALLS);
}

int main(int count, char **words)
{
    counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    mkdir("/tmp/fuzz", 0755);
    /* 16 MiB at most in segments, which nobody frees when memory is short. */
    put_text("/proc/sys/kernel/shmall", "4096");
    /* Nor does a lease hold who opens the file for longer than a batch lasts. */
    put_text("/proc/sys/fs/lease-break-time", "1");
    mount_groups();
    static const char *const controllers[] = { "+memory", "+io", "+pids", "+cpu" };
    for (unsigned i = 0; i < sizeof controllers / sizeof *controllers; i++)
        WORKS(put("cgroup.subtree_control", controllers[i]));
    if (count > 2 && !strcmp(words[1], "replay")) {
        uint64_t seed = strtoull(words[2], NULL, 0);
        tracing = 1;
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        for (long times = count > 3 ? atol(words[3]) : 1; times > 0; times--) {
            if (!make_jail(0, "/tmp/fuzz/replay", UNKILLABLE_MS))
                return 1;
            EXPECT(make_group("fuzz-replay", seed) == 0, "no group");
            pid_t child = start_batch("/tmp/fuzz/replay", "fuzz-replay", seed);
            pause_ms(VICTIM_MS);
            clear_away(child);
            EXPECT(drop_group("fuzz-replay"), "the group is not empty");
            drop_jail("/tmp/fuzz/replay");
        }
        return 0;
    }
    long seconds = count > 1 ? atol(words[1]) : 10;
    uint64_t seed = count > 2 ? strtoull(words[2], NULL, 0) : 0;
    if (seed == 0)
        syscall(SYS_getrandom, &seed, sizeof seed, 0);
    show_memory("before");
    long before = free_kib();
    if (count <= 3)
        phase("root and nobody", seed, seconds, before);
    for (int i = 3; i < count; i++)
        phase(words[i], seed + (uint64_t)i, seconds, before);
    report();
    show_memory("after");
    REAP(CHILD(execl("/abi/hello", "hello", "alive", NULL)));
    return verdict_failed;
}
