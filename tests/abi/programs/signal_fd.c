/* signalfd, sigtimedwait, sigwaitinfo, SIGCHLD and its flags. */
#include "abi.h"

static sigset_t set_of(int count, ...)
{
    sigset_t set;
    sigemptyset(&set);
    va_list list;
    va_start(list, count);
    while (count--)
        sigaddset(&set, va_arg(list, int));
    va_end(list);
    return set;
}

static void child_signals(void)
{
    sigset_t set = set_of(1, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    siginfo_t info;
    pid_t child = CHILD(_exit(6));
    SHOW(sigwaitinfo(&set, &info));
    TRUE(info.si_pid == child);
    SHOW(info.si_code);
    SHOW(info.si_status);
    SHOW(info.si_uid);
    REAP(child);
    child = CHILD(pause());
    kill(child, SIGSTOP);
    SHOW(sigwaitinfo(&set, &info));
    SHOW(info.si_code);
    SHOW(info.si_status);
    kill(child, SIGCONT);
    SHOW(sigwaitinfo(&set, &info));
    SHOW(info.si_code);
    SHOW(info.si_status);
    kill(child, SIGTERM);
    SHOW(sigwaitinfo(&set, &info));
    SHOW(info.si_code);
    SHOW(info.si_status);
    REAP(child);
    struct sigaction action = { .sa_handler = SIG_DFL, .sa_flags = SA_NOCLDSTOP };
    sigaction(SIGCHLD, &action, NULL);
    child = CHILD(pause());
    kill(child, SIGSTOP);
    waitpid(child, NULL, WUNTRACED);
    struct timespec none = { 0, 0 };
    SHOW(sigtimedwait(&set, &info, &none));
    kill(child, SIGKILL);
    REAP(child);
    SHOW(sigtimedwait(&set, &info, &none));
    SHOW(sigtimedwait(&set, &info, &none));
    struct timespec bad = { 0, 1000000000 };
    SHOW(sigtimedwait(&set, &info, &bad));
}

static void descriptor(void)
{
    sigset_t set = set_of(3, SIGUSR1, SIGRTMIN, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    TRUE(fd >= 0);
    SHOW(fcntl(fd, F_GETFD));
    TRUE(fcntl(fd, F_GETFL) & O_NONBLOCK);
    struct signalfd_siginfo info[4];
    SHOW(sizeof info[0]);
    SHOW(read(fd, info, sizeof info));
    raise(SIGUSR1);
    sigqueue(getpid(), SIGRTMIN, (union sigval){ .sival_int = 77 });
    sigqueue(getpid(), SIGRTMIN, (union sigval){ .sival_int = 78 });
    SHOW(poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 0));
    SHOW(read(fd, info, 10));
    long got = read(fd, info, sizeof info);
    for (int i = 0; i < got / (long)sizeof *info; i++)
        printf("signalfd: %d code %d int %d pid %d\n", info[i].ssi_signo, info[i].ssi_code, info[i].ssi_int,
               info[i].ssi_pid == (unsigned)getpid());
    SHOW(poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 0));
    sigset_t other = set_of(1, SIGUSR2);
    sigprocmask(SIG_BLOCK, &other, NULL);
    TRUE(signalfd(fd, &other, 0) == fd);
    raise(SIGUSR1);
    SHOW(read(fd, info, sizeof info));
    raise(SIGUSR2);
    SHOW(read(fd, info, sizeof info) / sizeof *info);
    SHOW(signalfd(99, &set, 0));
    SHOW(signalfd(0, &set, 0));
    SHOW(signalfd(-1, &set, 0x7f));
    SHOW(syscall(SYS_signalfd4, -1, &set, 4, 0));
    int epoll = epoll_create1(0);
    struct epoll_event event = { .events = EPOLLIN, .data.u32 = 5 };
    SHOW(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
    SHOW(epoll_wait(epoll, &event, 1, 0));
    raise(SIGUSR2);
    SHOW(epoll_wait(epoll, &event, 1, 1000));
    SHOW(write(fd, info, sizeof info));
    pid_t child = CHILD({ pause_ms(20); kill(getppid(), SIGUSR2); });
    fcntl(fd, F_SETFL, 0);
    read(fd, info, sizeof info);
    long bytes = read(fd, info, sizeof *info);
    printf("blocking read: %ld, from the child %d\n", bytes, info[0].ssi_pid == (unsigned)child);
    REAP(child);
}

static void *thread_body(void *unused)
{
    (void)unused;
    sigset_t set = set_of(2, SIGUSR1, SIGUSR2);
    int number = 0;
    sigwait(&set, &number);
    return (void *)(long)number;
}

static void threads(void)
{
    sigset_t set = set_of(2, SIGUSR1, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    struct timespec none = { 0, 0 };
    while (sigtimedwait(&set, NULL, &none) > 0)
        ;
    pthread_t thread;
    void *result;
    pthread_create(&thread, NULL, thread_body, NULL);
    pthread_kill(thread, SIGUSR2);
    pthread_join(thread, &result);
    SHOW((long)result);
    pthread_create(&thread, NULL, thread_body, NULL);
    kill(getpid(), SIGUSR1);
    pthread_join(thread, &result);
    SHOW((long)result);
    /* A signal for one thread stays with it. */
    pthread_kill(pthread_self(), SIGUSR1);
    pthread_create(&thread, NULL, thread_body, NULL);
    pause_ms(20);
    pthread_kill(thread, SIGUSR2);
    pthread_join(thread, &result);
    SHOW((long)result);
    SHOW(sigtimedwait(&set, NULL, &none));
}

static void *read_one(void *descriptor)
{
    struct signalfd_siginfo info = { 0 };
    read(*(int *)descriptor, &info, sizeof info);
    return (void *)(long)info.ssi_signo;
}

/* A descriptor that is read gets another set, of which a signal is pending already. */
static void changed_sets(void)
{
    sigset_t both = set_of(2, SIGUSR1, SIGUSR2), first = set_of(1, SIGUSR1), second = set_of(1, SIGUSR2);
    sigprocmask(SIG_BLOCK, &both, NULL);
    int seen = 0;
    for (int round = 0; round < 20; round++) {
        int fd = signalfd(-1, &first, 0);
        pthread_t thread;
        void *result;
        kill(getpid(), SIGUSR2);
        pthread_create(&thread, NULL, read_one, &fd);
        for (int turn = 0; turn < round * 10; turn++)
            sched_yield();
        signalfd(fd, &second, 0);
        pthread_join(thread, &result);
        seen += (long)result == SIGUSR2;
        close(fd);
    }
    SHOW(seen);
}

int main(void)
{
    child_signals();
    changed_sets();
    descriptor();
    threads();
    return 0;
}
