/* POSIX message queues: names, modes, sizes, order, waiting, notices, limits, and name spaces. */
#include "abi.h"
#include <linux/netlink.h>
#include <mqueue.h>
#include <semaphore.h>
#include <sys/socket.h>

#define MQ_PRIO_MAX_TEST 32768

static void describe(const char *who, mqd_t queue)
{
    struct mq_attr about;
    mq_getattr(queue, &about);
    printf("%s: %lx %ld %ld %ld\n", who, about.mq_flags, about.mq_maxmsg, about.mq_msgsize, about.mq_curmsgs);
}

static mqd_t make(const char *name, long messages, long bytes, int flags)
{
    struct mq_attr wished = { .mq_maxmsg = messages, .mq_msgsize = bytes };
    return mq_open(name, O_CREAT | O_RDWR | flags, 0600, &wished);
}

static void put(mqd_t queue, const char *text, unsigned priority)
{
    SHOW(mq_send(queue, text, strlen(text), priority));
}

static void take(mqd_t queue)
{
    char text[64] = "";
    unsigned priority = 77;
    struct timespec past = { 1, 0 };
    ssize_t bytes = mq_timedreceive(queue, text, sizeof text, &priority, &past);
    if (bytes < 0)
        printf("%s\n", ERRNO_NAME(errno));
    else
        printf("%zd %s %u\n", bytes, text, priority);
}

static void names(void)
{
    SHOW(mq_open("/none", O_RDWR));
    SHOW(mq_open("/", O_RDWR | O_CREAT, 0600, NULL));
    SHOW(mq_open("/a/b", O_RDWR | O_CREAT, 0600, NULL));
    SHOW(syscall(SYS_mq_open, ".", O_RDWR | O_CREAT, 0600, NULL));
    SHOW(syscall(SYS_mq_open, "..", O_RDWR | O_CREAT, 0600, NULL));
    char long_name[300];
    memset(long_name, 'x', sizeof long_name);
    long_name[0] = '/';
    long_name[257] = 0;
    SHOW(mq_open(long_name, O_RDWR | O_CREAT, 0600, NULL));
    SHOW(syscall(SYS_mq_open, NULL, O_RDWR | O_CREAT, 0600, NULL));
    SHOW(syscall(SYS_mq_open, "x", O_RDWR | O_CREAT, 0600, 8));
    umask(027);
    mqd_t queue = mq_open("/usual", O_CREAT | O_RDONLY, 0666, NULL);
    TRUE(queue >= 0);
    umask(0);
    describe("usual", queue);
    struct stat about;
    fstat(queue, &about);
    printf("%o %ld %ld\n", about.st_mode, (long)about.st_size, (long)about.st_nlink);
    struct statfs system;
    fstatfs(queue, &system);
    printf("%lx\n", (long)system.f_type);
    SHOW(fcntl(queue, F_GETFD));
    SHOW(fcntl(queue, F_GETFL));
    SHOW(mq_open("/usual", O_CREAT | O_EXCL | O_RDWR, 0600, NULL));
    SHOW(mq_open("/usual", 3));
    char byte;
    SHOW(mq_send(queue, "x", 1, 0));
    SHOW(mq_receive(queue, &byte, 1, NULL));
    mqd_t writer = mq_open("/usual", O_WRONLY);
    char large[8192];
    SHOW(mq_receive(writer, large, sizeof large, NULL));
    SHOW(mq_send(writer, "x", 1, 0));
    char text[128] = "";
    SHOW(read(queue, text, sizeof text));
    printf("%s", text);
    SHOW(pread(queue, text, 5, 75));
    SHOW(write(writer, "x", 1));
    REAP(CHILD({
        setresgid(5, 5, 5);
        setgroups(0, NULL);
        setresuid(5, 5, 5);
        SHOW(mq_open("/usual", O_RDONLY));
        SHOW(mq_unlink("/usual"));
        SHOW(mq_unlink("/none"));
    }));
    SHOW(mq_unlink("/usual"));
    SHOW(mq_unlink("/usual"));
    SHOW(mq_open("/usual", O_RDONLY));
    fstat(queue, &about);
    SHOW(about.st_nlink);
    SHOW(mq_receive(queue, large, sizeof large, NULL));
    mq_close(writer);
    mq_close(queue);
    SHOW(mq_close(queue));
    int other = open("/", O_RDONLY);
    SHOW(mq_send(other, "x", 1, 0));
    SHOW(mq_receive(other, &byte, 1, NULL));
    SHOW(mq_notify(other, NULL));
    SHOW(syscall(SYS_mq_getsetattr, other, NULL, NULL));
    close(other);
}

static void sizes(void)
{
    SHOW(make("/size", 0, 1, 0));
    SHOW(make("/size", 1, 0, 0));
    SHOW(make("/size", -1, 1, 0));
    SHOW(make("/size", 65537, 1, 0));
    SHOW(make("/size", 1, (16 << 20) + 1, 0));
    REAP(CHILD({
        setresuid(5, 5, 5);
        SHOW(make("/size", 11, 1, 0));
        SHOW(make("/size", 1, 8193, 0));
        struct rlimit none = { 100, 100 };
        setrlimit(RLIMIT_MSGQUEUE, &none);
        SHOW(make("/size", 1, 5, 0));
        mqd_t queue = make("/size", 1, 4, 0);
        TRUE(queue >= 0);
        SHOW(make("/more", 1, 1, 0));
        mq_unlink("/size");
        SHOW(make("/more", 1, 1, 0));
        mq_close(queue);
        TRUE((queue = make("/more", 1, 1, 0)) >= 0);
        mq_unlink("/more");
    }));
    mqd_t queue = make("/size", 3, 16, 0);
    describe("three of sixteen", queue);
    char text[32];
    SHOW(mq_send(queue, "12345678901234567", 17, 0));
    SHOW(mq_send(queue, NULL, 0, 0));
    SHOW(mq_send(queue, (void *)8, 1, 0));
    SHOW(mq_receive(queue, text, 15, NULL));
    SHOW(mq_receive(queue, text, 16, NULL));
    SHOW(mq_send(queue, "x", 1, MQ_PRIO_MAX_TEST));
    SHOW(mq_send(queue, "x", 1, MQ_PRIO_MAX_TEST - 1));
    struct timespec wrong = { 1, 1000000000 };
    SHOW(mq_timedsend(queue, "x", 1, 0, &wrong));
    SHOW(syscall(SYS_mq_timedsend, queue, "x", 1, 0, 8));
    take(queue);
    mq_unlink("/size");
    mq_close(queue);
}

static void order(void)
{
    mqd_t queue = make("/order", 6, 32, 0);
    put(queue, "d", 1);
    put(queue, "a", 3);
    put(queue, "c", 2);
    put(queue, "b", 3);
    put(queue, "f", 0);
    put(queue, "e", 1);
    describe("full", queue);
    struct pollfd poller = { queue, POLLIN | POLLOUT, 0 };
    SHOW(poll(&poller, 1, 0));
    SHOW(poller.revents);
    struct timespec past = { 1, 0 };
    SHOW(mq_timedsend(queue, "x", 1, 0, &past));
    struct mq_attr waits_not = { .mq_flags = O_NONBLOCK }, before;
    SHOW(mq_setattr(queue, &waits_not, &before));
    SHOW(before.mq_flags);
    describe("does not wait", queue);
    SHOW(mq_send(queue, "x", 1, 0));
    SHOW(fcntl(queue, F_GETFL) == (O_RDWR | O_NONBLOCK));
    waits_not.mq_flags = O_APPEND;
    SHOW(mq_setattr(queue, &waits_not, NULL));
    for (int i = 0; i < 7; i++)
        take(queue);
    SHOW(poll(&poller, 1, 0));
    SHOW(poller.revents);
    waits_not.mq_flags = 0;
    SHOW(mq_setattr(queue, &waits_not, NULL));
    take(queue);
    mq_unlink("/order");
    mq_close(queue);
}

static void nothing(int number)
{
    (void)number;
}

static void waiting(void)
{
    mqd_t queue = make("/wait", 1, 32, 0);
    int ready[2];
    pipe(ready);
    pid_t child = CHILD({
        char text[32] = "";
        tell(ready[1]);
        SHOW(mq_receive(queue, text, sizeof text, NULL));
        printf("%s\n", text);
        SHOW(mq_receive(queue, text, sizeof text, NULL));
        printf("%s\n", text);
    });
    hear(ready[0]);
    wait_state(child, "S");
    int failed = mq_send(queue, "first", 5, 0) + mq_send(queue, "other", 5, 0);
    REAP(child);
    SHOW(failed);
    put(queue, "queued", 1);
    child = CHILD({
        tell(ready[1]);
        _exit(mq_send(queue, "waited", 6, 9) ? 1 : 7);
    });
    hear(ready[0]);
    wait_state(child, "S");
    char text[32] = "";
    failed = mq_receive(queue, text, sizeof text, NULL) != 6;
    REAP(child);
    SHOW(failed);
    printf("%s\n", text);
    take(queue);
    child = CHILD({
        struct sigaction action = { .sa_handler = nothing };
        sigaction(SIGUSR2, &action, NULL);
        char text[32];
        tell(ready[1]);
        SHOW(mq_receive(queue, text, sizeof text, NULL));
    });
    hear(ready[0]);
    wait_state(child, "S");
    kill(child, SIGUSR2);
    REAP(child);
    describe("nobody waits", queue);
    put(queue, "x", 0);
    take(queue);
    mq_unlink("/wait");
    mq_close(queue);
}

static void notices(void)
{
    mqd_t queue = make("/notice", 4, 32, 0);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 4711 };
    SHOW(syscall(SYS_mq_notify, queue, &event));
    SHOW(syscall(SYS_mq_notify, queue, &event));
    char text[128] = "";
    pread(queue, text, sizeof text, 0);
    printf("%.38s\n", text);
    REAP(CHILD({
        SHOW(syscall(SYS_mq_notify, queue, &event));
        SHOW(syscall(SYS_mq_notify, queue, NULL));
        SHOW(syscall(SYS_mq_notify, queue, &event));
        put(queue, "one", 0);
    }));
    siginfo_t information;
    SHOW(sigwaitinfo(&set, &information) == SIGUSR1);
    printf("%d %d %d\n", information.si_code, information.si_value.sival_int, information.si_uid);
    put(queue, "two", 0);
    struct timespec none = { 0, 0 };
    SHOW(sigtimedwait(&set, NULL, &none));
    /* Not empty: nobody is told. */
    SHOW(syscall(SYS_mq_notify, queue, &event));
    put(queue, "three", 0);
    SHOW(sigtimedwait(&set, NULL, &none));
    take(queue);
    take(queue);
    take(queue);
    put(queue, "four", 0);
    SHOW(sigtimedwait(&set, NULL, &none) == SIGUSR1);
    take(queue);
    /* Who closes it is not told any more. */
    SHOW(syscall(SYS_mq_notify, queue, &event));
    mq_close(dup(queue));
    put(queue, "five", 0);
    SHOW(sigtimedwait(&set, NULL, &none));
    take(queue);
    event.sigev_notify = SIGEV_NONE;
    SHOW(syscall(SYS_mq_notify, queue, &event));
    REAP(CHILD(SHOW(syscall(SYS_mq_notify, queue, &event))));
    put(queue, "six", 0);
    take(queue);
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = 65;
    SHOW(syscall(SYS_mq_notify, queue, &event));
    event.sigev_notify = 7;
    SHOW(syscall(SYS_mq_notify, queue, &event));
    SHOW(syscall(SYS_mq_notify, queue, 8));
    mq_unlink("/notice");
    mq_close(queue);
}

static sem_t started;
static int thread_is_own, thread_value;

static void on_message(union sigval value)
{
    thread_is_own = gettid() != getpid();
    thread_value = value.sival_int;
    sem_post(&started);
}

static void wait_for_thread(void)
{
    sem_wait(&started);
    printf("a thread of its own: %d, value %d\n", thread_is_own, thread_value);
}

/* As the C library has it: a thread for each notice. */
static void thread_notices(void)
{
    mqd_t queue = make("/threads", 4, 32, 0);
    sem_init(&started, 0, 0);
    struct sigevent event = { .sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_message };
    for (int round = 0; round < 3; round++) {
        event.sigev_value.sival_int = 100 + round;
        SHOW(mq_notify(queue, &event));
        SHOW(mq_notify(queue, &event));
        put(queue, "something", 1);
        wait_for_thread();
        take(queue);
    }
    SHOW(mq_notify(queue, &event));
    SHOW(mq_notify(queue, NULL));
    put(queue, "for nobody", 1);
    take(queue);
    /* From another process. */
    SHOW(mq_notify(queue, &event));
    REAP(CHILD(put(queue, "from a child", 1)));
    wait_for_thread();
    take(queue);
    mq_unlink("/threads");
    mq_close(queue);
}

static void hear_from(int socket)
{
    char text[64];
    struct sockaddr_nl from;
    socklen_t length = sizeof from;
    memset(text, '-', sizeof text);
    ssize_t bytes = recvfrom(socket, text, sizeof text, MSG_DONTWAIT, (struct sockaddr *)&from, &length);
    if (bytes < 0)
        printf("nothing: %s\n", ERRNO_NAME(errno));
    else
        printf("%zd bytes: %.31s, then %d; from %u, groups %u\n", bytes, text, text[31], from.nl_pid, from.nl_groups);
}

/* As the kernel has it: a message on a socket. */
static void socket_notices(void)
{
    mqd_t queue = make("/socket", 4, 32, 0);
    int netlink = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE), other = socket(AF_UNIX, SOCK_STREAM, 0);
    char cookie[32] = "this is what the program gave!!";
    struct sigevent event = { .sigev_notify = SIGEV_THREAD, .sigev_signo = netlink, .sigev_value.sival_ptr = cookie };
    SHOW(syscall(SYS_mq_notify, queue, &event));
    char text[128] = "";
    pread(queue, text, sizeof text, 0);
    printf("%.38s\n", text);
    SHOW(syscall(SYS_mq_notify, queue, &event));
    hear_from(netlink);
    put(queue, "one", 0);
    hear_from(netlink);
    hear_from(netlink);
    put(queue, "two", 0);
    hear_from(netlink);
    take(queue);
    take(queue);
    /* It is told that it will not be told. */
    SHOW(syscall(SYS_mq_notify, queue, &event));
    SHOW(syscall(SYS_mq_notify, queue, NULL));
    hear_from(netlink);
    SHOW(syscall(SYS_mq_notify, queue, &event));
    mq_close(dup(queue));
    hear_from(netlink);
    REAP(CHILD(SHOW(syscall(SYS_mq_notify, queue, &event))));
    hear_from(netlink);
    REAP(CHILD(SHOW(syscall(SYS_mq_notify, queue, &event)); kill(getpid(), SIGKILL)));
    hear_from(netlink);
    REAP(CHILD(SHOW(syscall(SYS_mq_notify, queue, &event)); fflush(stdout); execl("/bin/true", "true", NULL);
               execl("/abi/bin/true", "true", NULL)));
    hear_from(netlink);
    /* Another process's descriptor is its own business. */
    SHOW(syscall(SYS_mq_notify, queue, &event));
    REAP(CHILD(mq_close(queue)));
    hear_from(netlink);
    put(queue, "three", 0);
    hear_from(netlink);
    take(queue);
    /* Who listens has gone. */
    int gone = socket(AF_NETLINK, SOCK_DGRAM, NETLINK_ROUTE);
    event.sigev_signo = gone;
    SHOW(syscall(SYS_mq_notify, queue, &event));
    close(gone);
    put(queue, "four", 0);
    take(queue);
    event.sigev_signo = gone;
    SHOW(syscall(SYS_mq_notify, queue, &event));
    event.sigev_signo = other;
    SHOW(syscall(SYS_mq_notify, queue, &event));
    event.sigev_signo = queue;
    SHOW(syscall(SYS_mq_notify, queue, &event));
    event.sigev_signo = -1;
    SHOW(syscall(SYS_mq_notify, queue, &event));
    event.sigev_signo = netlink;
    SHOW(syscall(SYS_mq_notify, -1, &event));
    SHOW(syscall(SYS_mq_notify, other, &event));
    event.sigev_value.sival_ptr = (void *)8;
    SHOW(syscall(SYS_mq_notify, queue, &event));
    event.sigev_signo = other;
    SHOW(syscall(SYS_mq_notify, -1, &event));
    close(netlink);
    close(other);
    mq_unlink("/socket");
    mq_close(queue);
}

/* Who sent it is in the signal. */
static void senders_of_notices(void)
{
    mqd_t queue = make("/senders", 4, 32, 0);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = -7 };
    SHOW(mq_notify(queue, &event));
    pid_t child = CHILD({
        setresuid(1000, 1001, 1002);
        put(queue, "from somebody else", 0);
    });
    REAP(child);
    siginfo_t information;
    SHOW(sigwaitinfo(&set, &information) == SIGRTMIN);
    TRUE(information.si_pid == child);
    printf("%d %d %d\n", information.si_code == SI_MESGQ, information.si_value.sival_int, information.si_uid);
    mq_unlink("/senders");
    mq_close(queue);
}

static void setting(const char *path, const char *value)
{
    char text[32] = "";
    int fd = open(path, O_RDWR);
    if (value)
        SHOW(write(fd, value, strlen(value)));
    pread(fd, text, sizeof text - 1, 0);
    printf("%s: %s", path, text);
    close(fd);
}

static void spaces(void)
{
    setting("/proc/sys/fs/mqueue/queues_max", NULL);
    setting("/proc/sys/fs/mqueue/msg_max", NULL);
    setting("/proc/sys/fs/mqueue/msgsize_max", NULL);
    setting("/proc/sys/fs/mqueue/msg_default", NULL);
    setting("/proc/sys/fs/mqueue/msgsize_default", NULL);
    mqd_t queue = make("/here", 1, 32, 0);
    REAP(CHILD({
        SHOW(unshare(CLONE_NEWIPC));
        SHOW(mq_open("/here", O_RDWR));
        put(queue, "through a descriptor", 0);
        setting("/proc/sys/fs/mqueue/queues_max", "1");
        setting("/proc/sys/fs/mqueue/msg_default", "3");
        setting("/proc/sys/fs/mqueue/msg_max", "0");
        setting("/proc/sys/fs/mqueue/msgsize_max", "127");
        mqd_t own = mq_open("/own", O_CREAT | O_RDWR, 0666, NULL);
        describe("own", own);
        setresuid(5, 5, 5);
        SHOW(mq_open("/another", O_CREAT | O_RDWR, 0600, NULL));
        SHOW(mq_close(mq_open("/own", O_RDWR)));
    }));
    take(queue);
    setting("/proc/sys/fs/mqueue/queues_max", NULL);
    mq_unlink("/here");
}

int main(void)
{
    SHOW(unshare(CLONE_NEWIPC));
    names();
    sizes();
    order();
    waiting();
    notices();
    thread_notices();
    socket_notices();
    senders_of_notices();
    spaces();
    return 0;
}
