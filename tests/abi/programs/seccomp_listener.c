/* seccomp_unotify(2): another process decides about calls. Every answer, descriptors that are added, signals, threads, ends of both sides. */
#include "abi.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <sys/socket.h>

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif
#ifndef SECCOMP_ADDFD_FLAG_SEND
#define SECCOMP_ADDFD_FLAG_SEND (1UL << 1)
#endif

#define PROGRAM(...)                                                                                                   \
    struct sock_filter code_[] = { __VA_ARGS__ };                                                                      \
    struct sock_fprog program = { sizeof code_ / sizeof *code_, code_ }
#define NUMBER BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define UNLESS(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip)
#define RETURN(action) BPF_STMT(BPF_RET | BPF_K, action)
#define ONLY(call, action) PROGRAM(NUMBER, UNLESS(call, 1), RETURN(action), RETURN(SECCOMP_RET_ALLOW))

/* A call that nothing else makes here, with arguments to tell them apart. */
#define CALL SYS_getpriority
#define ASK(a, b) syscall(CALL, (long)(a), (long)(b), 0x1122334455667788)

static long install(unsigned long flags, struct sock_fprog *program)
{
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, program);
}

static int listener(unsigned long flags)
{
    ONLY(CALL, SECCOMP_RET_USER_NOTIF);
    return (int)install(SECCOMP_FILTER_FLAG_NEW_LISTENER | flags, &program);
}

static struct seccomp_notif got;

static int receive(int fd)
{
    for (;;) {
        memset(&got, 0, sizeof got);
        int result = ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &got);
        if (result >= 0 || (errno != EINTR && errno != ENOENT))
            return result;
        /* A call that has left since it was told of, unless nobody can call any more. */
        int error = errno;
        struct pollfd one = { fd, 0, 0 };
        poll(&one, 1, 0);
        errno = error;
        if (one.revents & POLLHUP)
            return result;
    }
}

static int answer(int fd, uint64_t id, long long value, int error, unsigned flags)
{
    struct seccomp_notif_resp response = { id, value, error, flags };
    return ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, &response);
}

static int add(int fd, uint64_t id, unsigned flags, int source, int number, unsigned number_flags)
{
    struct seccomp_notif_addfd added = { id, flags, (unsigned)source, (unsigned)number, number_flags };
    return ioctl(fd, SECCOMP_IOCTL_NOTIF_ADDFD, &added);
}

static void events(int fd)
{
    struct pollfd one = { fd, POLLIN | POLLOUT, 0 };
    int ready = poll(&one, 1, 0);
    printf("events: %d%s%s%s\n", ready, one.revents & POLLIN ? " in" : "", one.revents & POLLOUT ? " out" : "",
           one.revents & POLLHUP ? " hangup" : "");
}

static void wait_event(int fd, short event)
{
    struct pollfd one = { fd, event, 0 };
    while (poll(&one, 1, -1) < 0 && errno == EINTR)
        ;
}

/* A descriptor of this process that a child which shares its descriptors has made. */
static int shared_fd;

/* A child that makes the filter itself shares the table of descriptors with its supervisor, until it has told of the listener. */
#define TARGET(flags, ...)                                                                                             \
    ({                                                                                                                 \
        int sockets_[2];                                                                                               \
        socketpair(AF_UNIX, SOCK_STREAM, 0, sockets_);                                                                 \
        pid_t target_ = CHILD({                                                                                        \
            close(sockets_[0]);                                                                                        \
            prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);                                                                    \
            int listener_ = listener(flags);                                                                           \
            send_fd(sockets_[1], listener_);                                                                           \
            close(listener_);                                                                                          \
            close(sockets_[1]);                                                                                        \
            __VA_ARGS__;                                                                                               \
        });                                                                                                            \
        close(sockets_[1]);                                                                                            \
        shared_fd = take_fd(sockets_[0]);                                                                              \
        close(sockets_[0]);                                                                                            \
        target_;                                                                                                       \
    })

static void send_fd(int socket, int fd)
{
    char byte = 0, room[CMSG_SPACE(sizeof(int))] = "";
    struct iovec piece = { &byte, 1 };
    struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    if (sendmsg(socket, &message, 0) != 1)
        printf("cannot send: %s\n", ERRNO_NAME(errno));
}

static int take_fd(int socket)
{
    char byte, room[CMSG_SPACE(sizeof(int))] = "";
    struct iovec piece = { &byte, 1 };
    struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
    if (recvmsg(socket, &message, 0) != 1)
        return -1;
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

static void refused(void)
{
    struct {
        uint16_t sizes[4];
    } sizes = { { 0, 0, 0, 7 } };
    SHOW(syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes));
    printf("%d %d %d %d\n", sizes.sizes[0], sizes.sizes[1], sizes.sizes[2], sizes.sizes[3]);
    SHOW(syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 1, &sizes));
    SHOW(syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, NULL));
    unsigned action = SECCOMP_RET_USER_NOTIF;
    SHOW(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action));
    ONLY(CALL, SECCOMP_RET_USER_NOTIF);
    SHOW(install(SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_TSYNC, &program));
    SHOW(install(SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, &program));
    SHOW(install(SECCOMP_FILTER_FLAG_NEW_LISTENER, NULL));
    REAP(CHILD({
        /* A filter without a listener. */
        SHOW(install(0, &program));
        SHOW(ASK(1, 2));
        /* One more may have one; of two filters that say it, the last one's is asked. */
        int fd = listener(0);
        TRUE(fd > 2 && fcntl(fd, F_GETFD) == FD_CLOEXEC && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR);
        SHOW(listener(0));
        SHOW(install(0, &program));
        SHOW(ASK(1, 2));
        char name[64] = "", path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        readlink(path, name, sizeof name - 1);
        puts(name);
        events(fd);
        char byte;
        SHOW(read(fd, &byte, 1));
        SHOW(write(fd, &byte, 1));
        SHOW(lseek(fd, 0, SEEK_SET));
        memset(&got, 0, sizeof got);
        got.pid = 1;
        SHOW(ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &got));
        SHOW(ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, NULL));
        SHOW(ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, NULL));
        SHOW(ioctl(fd, SECCOMP_IOCTL_NOTIF_ID_VALID, NULL));
        uint64_t id = 5;
        SHOW(ioctl(fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &id));
        SHOW(ioctl(fd, SECCOMP_IOR(2, uint64_t), &id));
        SHOW(answer(fd, 5, 0, 0, 0));
        SHOW(answer(fd, 5, 0, 0, 2));
        SHOW(answer(fd, 5, 1, 0, 1));
        SHOW(answer(fd, 5, 0, -1, 1));
        SHOW(add(fd, 5, 0, 0, 0, 0));
        SHOW(add(fd, 5, 4, 0, 0, 0));
        SHOW(add(fd, 5, 0, 0, 7, 0));
        SHOW(add(fd, 5, 0, 0, 0, O_NONBLOCK));
        SHOW(add(fd, 5, 0, 99, 0, 0));
        char large[64] = "";
        SHOW(ioctl(fd, SECCOMP_IOC_MAGIC << 8 | 3 | 1u << 30 | 23 << 16, large));
        SHOW(ioctl(fd, SECCOMP_IOC_MAGIC << 8 | 3 | 1u << 30 | 4096 << 16, large));
        SHOW(ioctl(fd, SECCOMP_IOC_MAGIC << 8 | 3 | 1u << 30 | 40 << 16, large));
        large[39] = 1;
        SHOW(ioctl(fd, SECCOMP_IOC_MAGIC << 8 | 3 | 1u << 30 | 40 << 16, large));
        SHOW(ioctl(fd, SECCOMP_IOC_MAGIC << 8 | 3 | 1u << 30 | 24 << 16, NULL));
        SHOW(ioctl(fd, SECCOMP_IO(9), &id));
        SHOW(ioctl(fd, TCGETS, &id));
        struct rlimit none = { 3, 3 };
        setrlimit(RLIMIT_NOFILE, &none);
        REAP(CHILD(SHOW(listener(0))));
    }));
    REAP(CHILD({
        struct rlimit none = { 3, 3 };
        setrlimit(RLIMIT_NOFILE, &none);
        SHOW(listener(0));
        SHOW(prctl(PR_GET_SECCOMP));
    }));
    REAP(CHILD({
        setresuid(1000, 1000, 1000);
        SHOW(listener(0));
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        OK(listener(0));
    }));
}

static void answers(void)
{
    pid_t target = TARGET(0, {
        SHOW(ASK(1, 2));
        SHOW(ASK(3, 4));
        SHOW(ASK(5, 6));
        SHOW(ASK(PRIO_PROCESS, 0));
        SHOW(ASK(77, 0));
        REAP(CHILD(SHOW(ASK(7, 8))));
    });
    int fd = shared_fd;
    wait_event(fd, POLLIN);
    events(fd);
    SHOW(receive(fd));
    TRUE(got.pid == target);
    events(fd);
    printf("%d %x %u:", got.data.nr == CALL, got.data.arch, got.flags);
    for (int i = 0; i < 3; i++)
        printf(" %llx", got.data.args[i]);
    printf("\n");
    TRUE(got.data.instruction_pointer != 0);
    uint64_t first = got.id;
    SHOW(ioctl(fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &first));
    SHOW(ioctl(fd, SECCOMP_IOR(2, uint64_t), &first));
    SHOW(answer(fd, first + 1, 0, 0, 0));
    SHOW(answer(fd, first, 4711, 0, 0));
    TRUE(answer(fd, first, 4711, 0, 0) == -1 && (errno == EINPROGRESS || errno == ENOENT));
    SHOW(receive(fd));
    TRUE(got.id == first + 1);
    SHOW(ioctl(fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &first));
    SHOW(answer(fd, got.id, 5, -EXDEV, 0));
    SHOW(receive(fd));
    SHOW(answer(fd, got.id, 0, 12, 0));
    SHOW(receive(fd));
    SHOW(answer(fd, got.id, 0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE));
    SHOW(receive(fd));
    SHOW(answer(fd, got.id, 0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE));
    SHOW(receive(fd));
    TRUE(got.pid != target && got.data.args[0] == 7);
    SHOW(answer(fd, got.id, -7, 0, 0));
    wait_event(fd, 0);
    events(fd);
    SHOW(receive(fd));
    REAP(target);
    close(fd);
}

static void bad_memory(void)
{
    pid_t target = TARGET(0, SHOW(ASK(1, 2)));
    int fd = shared_fd;
    wait_event(fd, POLLIN);
    char *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SHOW(ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, page));
    events(fd);
    SHOW(receive(fd));
    SHOW(answer(fd, got.id, 1, 0, 0));
    REAP(target);
    munmap(page, 4096);
    close(fd);
}

static void descriptors(void)
{
    int pipe_[2];
    pipe(pipe_);
    int high = fcntl(pipe_[1], F_DUPFD, 200);
    pid_t target = TARGET(0, {
        close(pipe_[0]);
        close(pipe_[1]);
        close(high);
        int fd = (int)ASK(1, 2);
        SHOW(fd);
        SHOW(write(fd, "one", 3));
        SHOW(fcntl(fd, F_GETFD));
        fd = (int)ASK(1, 2);
        SHOW(fd);
        SHOW(write(50, "two", 3));
        SHOW(fcntl(50, F_GETFD));
        fd = (int)ASK(1, 2);
        SHOW(fd == 60);
        SHOW(write(60, "three", 5));
        SHOW(write(50, "gone", 4));
        struct rlimit few = { 5, 5 };
        setrlimit(RLIMIT_NOFILE, &few);
        SHOW(ASK(1, 2));
    });
    int fd = shared_fd;
    char text[64] = "";
    receive(fd);
    SHOW(add(fd, got.id, 0, 99, 0, 0));
    int number = add(fd, got.id, 0, pipe_[1], 0, O_CLOEXEC);
    SHOW(number);
    SHOW(answer(fd, got.id, number, 0, 0));
    receive(fd);
    SHOW(add(fd, got.id, SECCOMP_ADDFD_FLAG_SETFD, pipe_[1], 50, 0));
    SHOW(answer(fd, got.id, 0, 0, 0));
    receive(fd);
    SHOW(add(fd, got.id, SECCOMP_ADDFD_FLAG_SETFD, open("/dev/null", O_RDONLY), 50, 0));
    SHOW(add(fd, got.id, SECCOMP_ADDFD_FLAG_SETFD | SECCOMP_ADDFD_FLAG_SEND, high, 60, 0));
    TRUE(answer(fd, got.id, 0, 0, 0) == -1);
    receive(fd);
    uint64_t id = got.id;
    SHOW(add(fd, id, 0, pipe_[1], 0, 0));
    SHOW(add(fd, id, 0, pipe_[1], 0, 0));
    SHOW(add(fd, id, 0, pipe_[1], 0, 0));
    SHOW(add(fd, id, SECCOMP_ADDFD_FLAG_SEND, pipe_[1], 0, 0));
    SHOW(add(fd, id, SECCOMP_ADDFD_FLAG_SETFD, pipe_[1], 70, 0));
    SHOW(add(fd, id, SECCOMP_ADDFD_FLAG_SETFD | SECCOMP_ADDFD_FLAG_SEND, pipe_[1], 70, 0));
    SHOW(ioctl(fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &id));
    SHOW(answer(fd, id, 3, 0, 0));
    REAP(target);
    close(pipe_[1]);
    close(high);
    SHOW(read(pipe_[0], text, sizeof text));
    puts(text);
    close(pipe_[0]);
    close(fd);
}

static volatile sig_atomic_t handled;

static void on_signal(int number)
{
    (void)number;
    handled++;
}

static void handle(int flags)
{
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = flags };
    sigaction(SIGUSR1, &action, NULL);
}

static void signals(void)
{
    /* Before somebody has received it, and after: the call fails, and nobody waits for the answer. */
    pid_t target = TARGET(0, {
        handle(0);
        SHOW(ASK(1, 2));
        SHOW(ASK(3, 4));
        SHOW(handled);
        handle(SA_RESTART);
        SHOW(ASK(5, 6));
        SHOW(handled);
    });
    int fd = shared_fd;
    wait_event(fd, POLLIN);
    wait_state(target, "S");
    kill(target, SIGUSR1);
    receive(fd);
    TRUE(got.data.args[0] == 1 || got.data.args[0] == 3);
    if (got.data.args[0] == 1) {
        /* The signal comes after all. */
        wait_event(fd, POLLIN);
        receive(fd);
    }
    uint64_t old = got.id;
    SHOW(got.data.args[0]);
    kill(target, SIGUSR1);
    wait_event(fd, POLLIN);
    SHOW(ioctl(fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &old));
    SHOW(answer(fd, old, 0, 0, 0));
    SHOW(add(fd, old, 0, 0, 0, 0));
    receive(fd);
    SHOW(got.data.args[0]);
    old = got.id;
    kill(target, SIGUSR1);
    wait_event(fd, POLLIN);
    receive(fd);
    TRUE(got.id != old && got.data.args[0] == 5);
    SHOW(answer(fd, got.id, 55, 0, 0));
    REAP(target);
    close(fd);
}

static void only_death(void)
{
    pid_t target = TARGET(SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, {
        handle(0);
        SHOW(ASK(1, 2));
        SHOW(handled);
        SHOW(ASK(3, 4));
        SHOW(handled);
        ASK(5, 6);
        printf("not reached\n");
    });
    int fd = shared_fd;
    wait_event(fd, POLLIN);
    wait_state(target, "SD");
    kill(target, SIGUSR1);
    wait_event(fd, POLLIN);
    receive(fd);
    if (got.data.args[0] == 1) {
        /* Received before the signal had its effect: an answer is taken, and then the signal. */
        answer(fd, got.id, -1, -EINTR, 0);
        receive(fd);
    }
    SHOW(got.data.args[0]);
    uint64_t id = got.id;
    kill(target, SIGUSR1);
    kill(target, SIGSTOP);
    SHOW(ioctl(fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &id));
    kill(target, SIGCONT);
    pause_ms(5);
    SHOW(ioctl(fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &id));
    SHOW(answer(fd, id, 33, 0, 0));
    receive(fd);
    SHOW(got.data.args[0]);
    kill(target, SIGKILL);
    REAP(target);
    SHOW(ioctl(fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &got.id));
    SHOW(answer(fd, got.id, 0, 0, 0));
    events(fd);
    close(fd);
}

static void ends(void)
{
    /* The listener goes: before the call, while it waits, and after it was received. */
    int go[2];
    pipe(go);
    pid_t target = TARGET(0, {
        SHOW(ASK(1, 2));
        SHOW(ASK(3, 4));
        hear(go[0]);
        SHOW(ASK(5, 6));
    });
    int fd = shared_fd;
    receive(fd);
    answer(fd, got.id, 9, 0, 0);
    receive(fd);
    close(fd);
    tell(go[1]);
    REAP(target);
    target = TARGET(0, SHOW(ASK(1, 2)));
    wait_event(shared_fd, POLLIN);
    close(shared_fd);
    REAP(target);
    /* The target goes. */
    target = TARGET(0, ASK(1, 2));
    fd = shared_fd;
    wait_event(fd, POLLIN);
    kill(target, SIGKILL);
    wait_event(fd, 0);
    events(fd);
    SHOW(receive(fd));
    REAP(target);
    close(fd);
}

static void *asks(void *which)
{
    long result = ASK(100 + (long)which, 2);
    return (void *)result;
}

static int bystander_result;

static void *bystander(void *go)
{
    hear((int)(long)go);
    bystander_result = (int)ASK(200, 0);
    return NULL;
}

static void threads(void)
{
    enum { COUNT = 8 };
    pid_t target = TARGET(0, {
        pthread_t all[COUNT];
        for (long i = 0; i < COUNT; i++)
            pthread_create(&all[i], NULL, asks, (void *)i);
        for (long i = 0; i < COUNT; i++) {
            void *result;
            pthread_join(all[i], &result);
            printf("thread %ld: %ld\n", i, (long)result);
        }
    });
    int fd = shared_fd;
    uint64_t ids[COUNT];
    for (int i = 0; i < COUNT; i++) {
        receive(fd);
        TRUE(got.pid != target);
        ids[got.data.args[0] - 100] = got.id;
    }
    for (int i = COUNT; i-- > 0;)
        SHOW(answer(fd, ids[i], 1000 + i, 0, 0));
    REAP(target);
    close(fd);

    /* All threads get the filter of one, with its listener. */
    REAP(CHILD({
        int go[2];
        pipe(go);
        pthread_t thread;
        pthread_create(&thread, NULL, bystander, (void *)(long)go[0]);
        fd = listener(SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_TSYNC_ESRCH);
        tell(go[1]);
        receive(fd);
        TRUE(got.pid != (unsigned)getpid());
        SHOW(got.data.args[0]);
        SHOW(answer(fd, got.id, 17, 0, 0));
        pthread_join(thread, NULL);
        SHOW(bystander_result);
    }));
}

static void stricter(void)
{
    /* Another filter may be stricter, and then nobody is asked; or less, and then somebody is. */
    pid_t target = TARGET(0, {
        {
            ONLY(CALL, SECCOMP_RET_LOG);
            install(0, &program);
            SHOW(ASK(1, 2));
        }
        {
            ONLY(CALL, SECCOMP_RET_ERRNO | EXDEV);
            install(0, &program);
            SHOW(ASK(3, 4));
        }
    });
    receive(shared_fd);
    SHOW(got.data.args[0]);
    SHOW(answer(shared_fd, got.id, 8, 0, 0));
    REAP(target);
    close(shared_fd);
}

static void with_epoll(void)
{
    pid_t target = TARGET(0, {
        SHOW(ASK(1, 2));
        SHOW(ASK(3, 4));
    });
    int fd = shared_fd;
    int epoll = epoll_create1(0);
    struct epoll_event event = { .events = EPOLLIN };
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    for (int i = 0; i < 2; i++) {
        SHOW(epoll_wait(epoll, &event, 1, -1));
        SHOW(event.events);
        receive(fd);
        SHOW(answer(fd, got.id, i, 0, 0));
    }
    SHOW(epoll_wait(epoll, &event, 1, -1));
    SHOW(event.events);
    REAP(target);
    close(epoll);
    close(fd);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    SHOW(sizeof got);
    refused();
    answers();
    bad_memory();
    descriptors();
    signals();
    only_death();
    ends();
    threads();
    stricter();
    with_epoll();
    return 0;
}
