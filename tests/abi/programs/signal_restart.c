/* Interrupted calls: which restart under SA_RESTART, which end with EINTR, what a stop and a continue do. */
#include "abi.h"

static int ready[2], feed[2], quiet[2];
/* Signals that the parent has handled, for its children to see. */
static volatile int *handled;
#define hits (*handled)
/* Milliseconds after which a call that nothing interrupts would end by itself: later than any signal comes. */
#define LATE 50000

static void handler(int number)
{
    (void)number;
    hits++;
}

static void install(int flags)
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = flags };
    sigaction(SIGUSR1, &action, NULL);
    hits = 0;
}

/* Sends SIGUSR1 to the parent when it sleeps, then lets its read succeed. */
static pid_t disturber(int restart)
{
    return CHILD({
        pid_t parent = getppid();
        wait_state(parent, "S");
        pause_ms(20);
        kill(parent, SIGUSR1);
        if (restart) {
            pause_ms(20);
            wait_state(parent, "S");
            tell(feed[1]);
        }
    });
}

#define CASE(restart, expr)                                                                                            \
    do {                                                                                                               \
        install(restart ? SA_RESTART : 0);                                                                             \
        pid_t helper = disturber(restart);                                                                             \
        errno = 0;                                                                                                     \
        long result = (expr);                                                                                          \
        int error = errno;                                                                                             \
        waitpid(helper, NULL, 0);                                                                                      \
        printf("%s %s: %ld %s hits %d\n", restart ? "restart" : "plain", #expr, result,                                \
               result < 0 ? ERRNO_NAME(error) : "-", hits);                                                            \
        struct pollfd poll_ = { .fd = feed[0], .events = POLLIN };                                                     \
        while (poll(&poll_, 1, 0) > 0)                                                                                 \
            hear(feed[0]);                                                                                             \
    } while (0)

static struct timespec *spec(long milliseconds)
{
    static struct timespec value;
    value.tv_sec = milliseconds / 1000;
    value.tv_nsec = milliseconds % 1000 * 1000000;
    return &value;
}

int main(void)
{
    handled = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pipe(ready);
    pipe(feed);
    pipe(quiet);
    char byte;
    for (int restart = 0; restart < 2; restart++) {
        CASE(restart, read(feed[0], &byte, 1));
        CASE(restart, readv(feed[0], &(struct iovec){ &byte, 1 }, 1));
        CASE(restart, poll(&(struct pollfd){ .fd = feed[0], .events = POLLIN }, 1, LATE));
        fd_set set;
        FD_ZERO(&set);
        FD_SET(feed[0], &set);
        CASE(restart, select(feed[0] + 1, &set, NULL, NULL, NULL));
        int epoll = epoll_create1(0);
        struct epoll_event event = { .events = EPOLLIN }, found;
        epoll_ctl(epoll, EPOLL_CTL_ADD, feed[0], &event);
        CASE(restart, epoll_wait(epoll, &found, 1, LATE));
        close(epoll);
        CASE(restart, nanosleep(spec(LATE), NULL));
        CASE(restart, clock_nanosleep(CLOCK_MONOTONIC, 0, spec(LATE), NULL));
        CASE(restart, pause());
        CASE(restart, sigsuspend(&(sigset_t){ { 0 } }));
        sigset_t other;
        sigemptyset(&other);
        sigaddset(&other, SIGUSR2);
        CASE(restart, sigtimedwait(&other, NULL, spec(LATE)));
        static int word;
        CASE(restart, syscall(SYS_futex, &word, 0 /* FUTEX_WAIT */, 0, spec(LATE), NULL, 0));
    }
    /* wait4 restarts until the child it waits for ends. */
    for (int restart = 0; restart < 2; restart++) {
        install(restart ? SA_RESTART : 0);
        pid_t parent = getpid();
        pid_t target = CHILD({
            wait_state(parent, "S");
            kill(parent, SIGUSR1);
            /* Not before the signal has interrupted the wait. */
            for (int tries = 0; tries < LOOKS && !hits; tries++)
                pause_ms(1);
            _exit(7);
        });
        int status = 0;
        long result = waitpid(target, &status, 0);
        printf("%s waitpid: %s hits %d\n", restart ? "restart" : "plain", result == target ? "found" : ERRNO_NAME(errno), hits);
        if (result != target)
            REAP(target);
    }
    /* The rest of an interrupted sleep is reported. */
    install(0);
    pid_t helper = disturber(0);
    struct timespec rest = { 0, 0 };
    SHOW(nanosleep(spec(50000), &rest));
    TRUE(rest.tv_sec >= 30 && rest.tv_sec < 50);
    REAP(helper);
    /* A stop and a continue without a handler do not end a read or a sleep. */
    signal(SIGCONT, SIG_DFL);
    pid_t reader = CHILD({ char b; long got = read(quiet[0], &b, 1); printf("read after stop: %ld\n", got); });
    wait_state(reader, "S");
    kill(reader, SIGSTOP);
    wait_state(reader, "T");
    kill(reader, SIGCONT);
    wait_state(reader, "S");
    tell(quiet[1]);
    REAP(reader);
    reader = CHILD({ struct timespec t = { 0, 300000000 }; printf("sleep after stop: %d\n", nanosleep(&t, NULL)); });
    wait_state(reader, "S");
    kill(reader, SIGSTOP);
    wait_state(reader, "T");
    kill(reader, SIGCONT);
    REAP(reader);
    /* A write into a full pipe reports what it has written when a signal comes. */
    install(0);
    fcntl(quiet[1], F_SETPIPE_SZ, 4096);
    static char big[65536];
    helper = disturber(0);
    SHOW(write(quiet[1], big, sizeof big));
    REAP(helper);
    SHOW(hits);
    return 0;
}
