/* Submission rings in the midst of things: two threads submit, completions race with being taken back, processes end, are killed or
 * execute a program while requests are under way, and a program writes nonsense all over its rings.
 *
 * abi: limit 60
 * abi: cpus 1,2,4,8
 */
#include "ring.h"
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#define SQE(...) ((struct io_uring_sqe){ __VA_ARGS__ })
#define P(...) ((unsigned long long)(uintptr_t)(__VA_ARGS__))

static struct ring shared;
static pthread_mutex_t filling = PTHREAD_MUTEX_INITIALIZER;

enum { EACH = 400 };

static void *submits(void *argument)
{
    unsigned long base = (unsigned long)argument;
    for (int i = 0; i < EACH; i++) {
        pthread_mutex_lock(&filling);
        ring_add(&shared, SQE(.opcode = IORING_OP_NOP, .user_data = base + i));
        pthread_mutex_unlock(&filling);
        /* Takes the other one's entry, or lets it take this one's. */
        ring_enter(shared.fd, 1, 0, 0);
        sched_yield();
    }
    return NULL;
}

static void two_threads(void)
{
    static char seen[2 * EACH];
    shared = ring_of(1024, 0);
    pthread_t threads[2];
    for (long i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, submits, (void *)(i * EACH));
    int wrong = 0;
    for (int i = 0; i < 2 * EACH; i++) {
        struct completion cqe = ring_next(&shared);
        wrong += cqe.user_data >= 2 * EACH || seen[cqe.user_data]++ || cqe.res != 0;
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    printf("two threads: %d wrong, %u left\n", wrong, ring_ready(&shared));
    ring_close(&shared);
}

static int writer;

static void *writes(void *unused)
{
    (void)unused;
    for (int i = 0; i < EACH; i++)
        if (write(writer, "x", 1) != 1)
            return "failed";
    return NULL;
}

/* A read that is taken back while it is told of has one outcome. */
static void taken_back(void)
{
    struct ring r = ring_of(8, 0);
    int pipes[2], received = 0, wrong = 0, rest = 0;
    char byte;
    if (pipe(pipes) < 0)
        exit(1);
    writer = pipes[1];
    pthread_t thread;
    pthread_create(&thread, NULL, writes, NULL);
    while (received < EACH) {
        ring_add(&r, SQE(.opcode = IORING_OP_READ, .fd = pipes[0], .addr = P(&byte), .len = 1, .user_data = 1));
        ring_add(&r, SQE(.opcode = IORING_OP_ASYNC_CANCEL, .addr = 1, .user_data = 2));
        ring_submit(&r, 2);
        struct completion one = ring_next(&r), other = ring_next(&r);
        if (one.user_data != 1) {
            struct completion swap = one;
            one = other;
            other = swap;
        }
        wrong += one.user_data != 1 || other.user_data != 2;
        wrong += !(one.res == 1 || one.res == -ECANCELED || one.res == -EINTR);
        wrong += !(other.res == 0 || other.res == -ENOENT || other.res == -EALREADY);
        received += one.res == 1;
    }
    pthread_join(thread, NULL);
    ioctl(pipes[0], FIONREAD, &rest);
    printf("taken back: %d wrong, %d left, %u completions left\n", wrong, rest, ring_ready(&r));
    close(pipes[0]), close(pipes[1]);
    ring_close(&r);
}

/* Time and data come at once. */
static void limited(void)
{
    struct ring r = ring_of(8, 0);
    int pipes[2], wrong = 0;
    char byte;
    if (pipe(pipes) < 0)
        exit(1);
    for (int i = 0; i < EACH; i++) {
        struct __kernel_timespec time = { .tv_nsec = i * 100 };
        ring_add(&r, SQE(.opcode = IORING_OP_READ, .flags = IOSQE_IO_LINK, .fd = pipes[0], .addr = P(&byte), .len = 1, .user_data = 1));
        ring_add(&r, SQE(.opcode = IORING_OP_LINK_TIMEOUT, .addr = P(&time), .len = 1, .user_data = 2));
        ring_submit(&r, 0);
        wrong += write(pipes[1], "x", 1) != 1;
        struct completion one = ring_next(&r), other = ring_next(&r);
        if (one.user_data != 1) {
            struct completion swap = one;
            one = other;
            other = swap;
        }
        wrong += !(one.res == 1 || one.res == -ECANCELED || one.res == -EINTR) || other.res >= 0;
        if (one.res != 1)
            wrong += read(pipes[0], &byte, 1) != 1;
    }
    printf("limited: %d wrong, %u left\n", wrong, ring_ready(&r));
    close(pipes[0]), close(pipes[1]);
    ring_close(&r);
}

/* Requests of all kinds that will not end by themselves. */
static void never_ending(struct ring *r, int pipe_end, int socket)
{
    static char buffer[64];
    static struct __kernel_timespec late = { .tv_sec = 1000 };
    ring_add(r, SQE(.opcode = IORING_OP_READ, .fd = pipe_end, .addr = P(buffer), .len = 1, .user_data = 1));
    ring_add(r, SQE(.opcode = IORING_OP_READ, .flags = IOSQE_ASYNC, .fd = pipe_end, .addr = P(buffer), .len = 1, .user_data = 2));
    ring_add(r, SQE(.opcode = IORING_OP_RECV, .fd = socket, .addr = P(buffer), .len = 64, .msg_flags = MSG_WAITALL, .user_data = 3));
    ring_add(r, SQE(.opcode = IORING_OP_POLL_ADD, .fd = pipe_end, .poll32_events = POLLIN, .len = IORING_POLL_ADD_MULTI, .user_data = 4));
    ring_add(r, SQE(.opcode = IORING_OP_TIMEOUT, .addr = P(&late), .len = 1, .user_data = 5));
    ring_add(r, SQE(.opcode = IORING_OP_READ, .flags = IOSQE_IO_LINK, .fd = pipe_end, .addr = P(buffer), .len = 1, .user_data = 6));
    ring_add(r, SQE(.opcode = IORING_OP_LINK_TIMEOUT, .addr = P(&late), .len = 1, .user_data = 7));
    ring_add(r, SQE(.opcode = IORING_OP_NOP, .flags = IOSQE_IO_DRAIN, .user_data = 8));
    if (ring_submit(r, 0) != 8)
        printf("not submitted\n");
}

/* Waits until nobody has the reading end any more. */
static void wait_for_end(const char *what, int end)
{
    struct pollfd poll_fd = { .fd = end, .events = 0 };
    while (poll(&poll_fd, 1, -1) < 0)
        ;
    printf("%s: %s\n", what, poll_fd.revents & POLLERR ? "let go" : "kept");
}

enum { CLOSED, EXITED, KILLED, EXECUTED, WAYS };

static void in_flight(int way)
{
    static const char *names[] = { "closed", "exited", "killed", "executed" };
    int pipes[2], sockets[2], ready[2];
    if (pipe(pipes) < 0 || pipe(ready) < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) < 0)
        exit(1);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct ring r = ring_of(16, 0);
        close(pipes[1]), close(sockets[1]);
        never_ending(&r, pipes[0], sockets[0]);
        if (way == CLOSED)
            ring_close(&r);
        if (way != EXITED && way != EXECUTED) {
            close(pipes[0]), close(sockets[0]);
        }
        if (way == EXECUTED) {
            fcntl(pipes[0], F_SETFD, FD_CLOEXEC);
            fcntl(sockets[0], F_SETFD, FD_CLOEXEC);
            char number[12];
            snprintf(number, sizeof number, "%d", ready[1]);
            execl("/proc/self/exe", "race_rings", number, NULL);
            _exit(9);
        }
        if (write(ready[1], "r", 1) != 1)
            _exit(9);
        if (way == EXITED)
            _exit(3);
        pause();
        _exit(0);
    }
    char byte;
    close(pipes[0]), close(sockets[0]);
    if (read(ready[0], &byte, 1) != 1)
        printf("no sign\n");
    if (way == KILLED)
        kill(child, SIGKILL);
    wait_for_end(names[way], pipes[1]);
    if (way != EXITED && way != KILLED)
        kill(child, SIGKILL);
    REAP(child);
    close(pipes[1]), close(sockets[1]), close(ready[0]), close(ready[1]);
}

static atomic_int stop;

static void *scribbles(void *unused)
{
    (void)unused;
    unsigned seed = 1;
    unsigned *words = shared.rings;
    while (!stop)
        words[rand_r(&seed) % (shared.bytes / sizeof(unsigned))] = rand_r(&seed);
    return NULL;
}

static void nonsense(void)
{
    shared = ring_of(16, 0);
    pthread_t thread;
    pthread_create(&thread, NULL, scribbles, NULL);
    unsigned seed = 7;
    for (int i = 0; i < 5000; i++) {
        struct io_uring_sqe *sqe = &shared.sqes[i % 16];
        unsigned char *bytes = (void *)sqe;
        for (unsigned at = 0; at < sizeof *sqe; at++)
            bytes[at] = rand_r(&seed);
        /* Nothing that changes what the test itself uses. */
        sqe->opcode = (int[]){ IORING_OP_NOP, IORING_OP_TIMEOUT, IORING_OP_POLL_ADD, IORING_OP_ASYNC_CANCEL, 200 }[i % 5];
        ring_enter(shared.fd, rand_r(&seed) % 20, 0, i % 3 ? 0 : IORING_ENTER_GETEVENTS);
    }
    stop = 1;
    pthread_join(thread, NULL);
    ring_close(&shared);
    struct ring r = ring_of(4, 0);
    ring_one(&r, "after nonsense", SQE(.opcode = IORING_OP_NOP, .user_data = 5));
    ring_close(&r);
}

/* A poll with several completions is changed, and in the end taken back, right after a completion was seen: whoever tells of events may not have armed it again. */
static void changed(void)
{
    struct ring r = ring_of(8, 0);
    int counter = eventfd(0, 0), wrong = 0;
    unsigned long long one = 1;
    ring_add(&r, SQE(.opcode = IORING_OP_POLL_ADD, .fd = counter, .poll32_events = POLLIN, .len = IORING_POLL_ADD_MULTI, .user_data = 1));
    ring_submit(&r, 0);
    for (int round = 1; round <= EACH; round++) {
        wrong += write(counter, &one, 8) != 8;
        struct completion told = ring_next(&r);
        wrong += told.user_data != (unsigned)round || told.res != POLLIN || read(counter, &one, 8) != 8;
        ring_add(&r, SQE(.opcode = IORING_OP_POLL_REMOVE, .addr = round, .off = round + 1, .len = IORING_POLL_UPDATE_USER_DATA));
        ring_submit(&r, 1);
        struct completion change = ring_next(&r);
        wrong += change.user_data != 0 || change.res != 0;
    }
    wrong += write(counter, &one, 8) != 8;
    struct completion told = ring_next(&r);
    wrong += told.user_data != EACH + 1;
    ring_add(&r, SQE(.opcode = IORING_OP_POLL_REMOVE, .addr = EACH + 1));
    ring_submit(&r, 2);
    struct completion first = ring_next(&r), second = ring_next(&r);
    printf("changed: %d wrong, %d and %d\n", wrong, first.res + second.res, first.res * second.res);
    close(counter);
    ring_close(&r);
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        if (write(atoi(argv[1]), "r", 1) != 1)
            return 9;
        pause();
    }
    two_threads();
    taken_back();
    changed();
    limited();
    for (int way = 0; way < WAYS; way++)
        in_flight(way);
    nonsense();
    return 0;
}
