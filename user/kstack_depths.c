/* How deep kernel stacks are under blocked calls: each of them must get by with one page, since that is what a sleeping
 * thread costs.
 *
 * The test device forgets (0x4b05) and tells (0x4b06) how deep the caller's kernel stack was, and tells (0x4b07) its number
 * in /proc/kstack, where one can see how deep it sleeps.
 *
 * abi: guest
 * abi: alone
 * abi: limit 120
 */
#include "guest.h"
#include <linux/futex.h>
#include <sys/file.h>

enum { FORGET = 0x4b05, DEPTH = 0x4b06, NUMBER = 0x4b07, ROUNDS = 5, ROUNDS_MAX = 100, PAGE = 4096, MARGIN = 256 };

static int device, fds[2], word, second;
static pid_t child;
static pthread_t blocked;

static void no_signal(int number)
{
    (void)number;
}

static void nothing(void)
{
}

static void open_pipe(void)
{
    if (pipe(fds) < 0)
        exit(1);
}

static void close_both(void)
{
    close(fds[0]);
    close(fds[1]);
}

static void wake_pipe(void)
{
    if (write(fds[1], "x", 1) != 1)
        exit(1);
}

static void read_pipe(void)
{
    char byte;
    if (read(fds[0], &byte, 1) != 1)
        exit(1);
}

static void fill_pipe(void)
{
    static char block[65536];
    open_pipe();
    if (write(fds[1], block, sizeof block) != sizeof block)
        exit(1);
}

static void drain_pipe(void)
{
    static char block[65536];
    if (read(fds[0], block, sizeof block) < 0)
        exit(1);
}

static void wait_futex(void)
{
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

static void wake_futex(void)
{
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void sleep_shortly(void)
{
    struct timespec time = { 0, 60000000 };
    nanosleep(&time, NULL);
}

static void call_poll(void)
{
    struct pollfd one = { fds[0], POLLIN, 0 };
    poll(&one, 1, -1);
}

static void call_poll_many(void)
{
    struct pollfd many[64];
    for (int i = 0; i < 64; i++)
        many[i] = (struct pollfd) { fds[0], POLLIN, 0 };
    poll(many, 64, -1);
}

static void call_select(void)
{
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fds[0], &set);
    select(fds[0] + 1, &set, NULL, NULL, NULL);
}

static void open_epoll(void)
{
    open_pipe();
    struct epoll_event event = { EPOLLIN, { 0 } };
    second = epoll_create1(0);
    epoll_ctl(second, EPOLL_CTL_ADD, fds[0], &event);
}

static void call_epoll(void)
{
    struct epoll_event event;
    epoll_wait(second, &event, 1, -1);
}

static void close_three(void)
{
    close_both();
    close(second);
}

static void start_child(void)
{
    child = fork();
    if (child == 0)
        for (;;)
            pause();
}

static void kill_child(void)
{
    kill(child, SIGKILL);
}

static void call_wait4(void)
{
    wait4(child, NULL, 0, NULL);
}

static void call_waitid(void)
{
    siginfo_t info;
    waitid(P_PID, (id_t)child, &info, WEXITED);
}

static void call_pause(void)
{
    pause();
}

static void send_signal(void)
{
    pthread_kill(blocked, SIGUSR1);
}

static void call_sigtimedwait(void)
{
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigtimedwait(&set, &info, NULL);
}

static void send_blocked(void)
{
    pthread_kill(blocked, SIGUSR2);
}

static void open_event(void)
{
    fds[0] = fds[1] = eventfd(0, 0);
}

static void read_word(void)
{
    uint64_t value;
    if (read(fds[0], &value, sizeof value) != sizeof value)
        exit(1);
}

static void write_word(void)
{
    uint64_t value = 1;
    if (write(fds[1], &value, sizeof value) != sizeof value)
        exit(1);
}

static void open_timer(void)
{
    struct itimerspec time = { { 0, 0 }, { 0, 60000000 } };
    fds[0] = fds[1] = timerfd_create(CLOCK_MONOTONIC, 0);
    timerfd_settime(fds[0], 0, &time, NULL);
}

static void open_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    fds[0] = fds[1] = signalfd(-1, &set, 0);
}

static void read_signal(void)
{
    struct signalfd_siginfo info;
    if (read(fds[0], &info, sizeof info) < 0)
        exit(1);
}

static void open_locked(void)
{
    fds[0] = open("/tmp/kstack_depths", O_RDWR | O_CREAT, 0600);
    fds[1] = open("/tmp/kstack_depths", O_RDWR);
    flock(fds[0], LOCK_EX);
    struct flock lock = { .l_type = F_WRLCK };
    fcntl(fds[0], F_OFD_SETLK, &lock);
}

static void call_flock(void)
{
    flock(fds[1], LOCK_EX);
}

static void unlock(void)
{
    flock(fds[0], LOCK_UN);
}

static void call_record_lock(void)
{
    struct flock lock = { .l_type = F_WRLCK };
    fcntl(fds[1], F_OFD_SETLKW, &lock);
}

static void unlock_record(void)
{
    struct flock lock = { .l_type = F_UNLCK };
    fcntl(fds[0], F_OFD_SETLK, &lock);
}

static void open_terminal(void)
{
    fds[0] = posix_openpt(O_RDWR | O_NOCTTY);
    grantpt(fds[0]);
    unlockpt(fds[0]);
    fds[1] = open(ptsname(fds[0]), O_RDWR | O_NOCTTY);
}

static void read_terminal(void)
{
    char line[16];
    if (read(fds[1], line, sizeof line) < 0)
        exit(1);
}

static void type_line(void)
{
    if (write(fds[0], "a\n", 2) != 2)
        exit(1);
}

static void make_fifo(void)
{
    mkfifo("/tmp/kstack_fifo", 0600);
}

static void open_reader(void)
{
    fds[0] = open("/tmp/kstack_fifo", O_RDONLY);
}

static void open_writer(void)
{
    fds[1] = open("/tmp/kstack_fifo", O_WRONLY);
}

static void call_vfork(void)
{
    pid_t pid = vfork();
    if (pid == 0) {
        struct timespec time = { 0, 60000000 };
        syscall(SYS_nanosleep, &time, NULL);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}

static void call_fork(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    waitpid(pid, NULL, 0);
}

static void *ends(void *argument)
{
    return argument;
}

static void call_clone(void)
{
    pthread_t other;
    pthread_create(&other, NULL, ends, NULL);
    pthread_join(other, NULL);
}

static void call_exec(void)
{
    pid_t pid = vfork();
    if (pid == 0) {
        execl("/proc/self/exe", "kstack_depths", "exit", (char *)NULL);
        _exit(1);
    }
    waitpid(pid, NULL, 0);
}

/* Those that make processes and threads may be deeper: their stacks shrink again while they sleep. */
static const struct call {
    const char *name;
    void (*prepare)(void);
    void (*block)(void);
    void (*wake)(void);
    void (*clean)(void);
    int may_be_deep;
} calls[] = {
    { "futex wait", nothing, wait_futex, wake_futex, nothing, 0 },
    { "nanosleep", nothing, sleep_shortly, nothing, nothing, 0 },
    { "read, pipe", open_pipe, read_pipe, wake_pipe, close_both, 0 },
    { "write, pipe", fill_pipe, wake_pipe, drain_pipe, close_both, 0 },
    { "poll", open_pipe, call_poll, wake_pipe, close_both, 0 },
    { "poll, 64 files", open_pipe, call_poll_many, wake_pipe, close_both, 0 },
    { "select", open_pipe, call_select, wake_pipe, close_both, 0 },
    { "epoll_wait", open_epoll, call_epoll, wake_pipe, close_three, 0 },
    { "wait4", start_child, call_wait4, kill_child, nothing, 0 },
    { "waitid", start_child, call_waitid, kill_child, nothing, 0 },
    { "fork, wait4", nothing, call_fork, nothing, nothing, 1 },
    { "vfork", nothing, call_vfork, nothing, nothing, 1 },
    { "vfork, execve", nothing, call_exec, nothing, nothing, 1 },
    { "clone, futex", nothing, call_clone, nothing, nothing, 1 },
    { "pause, signal", nothing, call_pause, send_signal, nothing, 0 },
    { "sigtimedwait", nothing, call_sigtimedwait, send_blocked, nothing, 0 },
    { "read, eventfd", open_event, read_word, write_word, close_both, 0 },
    { "read, timerfd", open_timer, read_word, nothing, close_both, 0 },
    { "read, signalfd", open_signals, read_signal, send_blocked, close_both, 0 },
    { "flock", open_locked, call_flock, unlock, close_both, 0 },
    { "record lock", open_locked, call_record_lock, unlock_record, close_both, 0 },
    { "read, terminal", open_terminal, read_terminal, type_line, close_both, 0 },
    { "open, FIFO", make_fifo, open_reader, open_writer, close_both, 0 },
};
enum { CALLS = sizeof calls / sizeof *calls };

static const struct call *current;
static int thread_id, number, deepest;

static void *blocks(void *unused)
{
    __atomic_store_n(&number, ioctl(device, NUMBER), __ATOMIC_SEQ_CST);
    ioctl(device, FORGET);
    __atomic_store_n(&thread_id, gettid(), __ATOMIC_SEQ_CST);
    current->block();
    deepest = ioctl(device, DEPTH);
    return unused;
}

static char state_of(int tid)
{
    char path[64], text[256];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    int fd = open(path, O_RDONLY);
    ssize_t count = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    close(fd);
    if (count <= 0)
        return 'X';
    text[count] = 0;
    char *name_end = strrchr(text, ')');
    return name_end ? name_end[2] : 'X';
}

/* Bytes of the sleeping thread's stack above its stack pointer, and its pages; from its line in /proc/kstack. */
static void look(int *asleep, int *pages)
{
    FILE *file = fopen("/proc/kstack", "r");
    char line[256];
    while (file && fgets(line, sizeof line, file)) {
        int slot, thread, window, mapped, most, faults, trims, bytes;
        if (sscanf(line, "%d %d %d %d %d %d %d %d", &slot, &thread, &window, &mapped, &most, &faults, &trims, &bytes) == 8
            && thread == number) {
            *asleep = bytes;
            *pages = mapped;
        }
    }
    if (file)
        fclose(file);
}

int main(int count, char **arguments)
{
    if (count > 1)
        return arguments[1][0] != 'e';
    device = open("/dev/kstack_test", O_RDONLY);
    if (device < 0) {
        printf("/dev/kstack_test: %s\n", ERRNO_NAME(errno));
        return 1;
    }
    struct sigaction action = { .sa_handler = no_signal };
    sigaction(SIGUSR1, &action, NULL);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    printf("%-16s %12s %12s %6s\n", "blocked in", "bytes asleep", "bytes at most", "pages");
    for (int i = 0; i < CALLS; i++) {
        int least = 1 << 30, asleep = 0, pages = 0, limit = calls[i].may_be_deep ? 4 * PAGE : PAGE;
        current = &calls[i];
        /* The least of some rounds: a thread that is preempted, or interrupted, has more on its stack. On a busy host that may be so in
         * several of them. */
        for (int round = 0; round < ROUNDS || (round < ROUNDS_MAX && (least > limit || asleep > limit - MARGIN)); round++) {
            int bytes = 0;
            thread_id = 0;
            current->prepare();
            pthread_create(&blocked, NULL, blocks, NULL);
            while (!__atomic_load_n(&thread_id, __ATOMIC_SEQ_CST))
                sched_yield();
            for (int tries = 0; tries < LOOKS && state_of(thread_id) == 'R'; tries++)
                pause_ms(1);
            pause_ms(1);
            look(&bytes, &pages);
            if (bytes && (!asleep || bytes < asleep))
                asleep = bytes;
            current->wake();
            pthread_join(blocked, NULL);
            current->clean();
            if (deepest < least)
                least = deepest;
        }
        printf("%-16s %12d %12d %6d\n", current->name, asleep, least, pages);
        EXPECT(asleep + MARGIN <= PAGE || current->may_be_deep, "%s sleeps %d bytes deep", current->name, asleep);
        EXPECT(least <= limit, "%s takes %d bytes", current->name, least);
        progress("kstack_depths: %s", current->name);
    }
    return verdict_failed;
}
