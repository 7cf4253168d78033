/* Asynchronous transfers (io_setup and what goes with it): what is refused, what outcomes are, in which order they come, who is told. */
#include "abi.h"
#include <linux/aio_abi.h>

static long setup(unsigned room, aio_context_t *context) { return syscall(SYS_io_setup, room, context); }
static long destroy(aio_context_t context) { return syscall(SYS_io_destroy, context); }
static long submit(aio_context_t context, long count, struct iocb **list) { return syscall(SYS_io_submit, context, count, list); }
static long cancel(aio_context_t context, struct iocb *block, struct io_event *event) { return syscall(SYS_io_cancel, context, block, event); }
static long events(aio_context_t context, long least, long most, struct io_event *to, struct timespec *timeout)
{
    return syscall(SYS_io_getevents, context, least, most, to, timeout);
}

static aio_context_t context;

static struct iocb block_of(int operation, int fd, void *memory, size_t bytes, long long position)
{
    return (struct iocb){ .aio_lio_opcode = operation, .aio_fildes = fd, .aio_buf = (uintptr_t)memory, .aio_nbytes = bytes, .aio_offset = position, .aio_data = 7 };
}

static long submit_one(struct iocb *block) { return submit(context, 1, &block); }

/* The outcome of a transfer, or how it was refused. */
static void outcome(const char *what, struct iocb block)
{
    struct io_event event = { 0 };
    block.aio_key = 5;
    long submitted = submit_one(&block);
    if (submitted != 1) {
        printf("%s: refused %s\n", what, ERRNO_NAME(errno));
        return;
    }
    long taken = events(context, 1, 1, &event, NULL);
    printf("%s: %ld event, %lld %s, data %lld, block %d, key %u\n", what, taken, (long long)event.res,
        event.res < 0 ? ERRNO_NAME((int)-event.res) : "", (long long)event.data, event.obj == (uintptr_t)&block, block.aio_key);
}

static void contexts(void)
{
    aio_context_t other = 1, unknown = 0x1000;
    SHOW(setup(1, &other));
    other = 0;
    SHOW(setup(0, &other));
    SHOW(setup(-1, &other));
    SHOW(setup(1 << 22, &other));
    SHOW(setup(1, NULL));
    SHOW(setup(4, &other));
    TRUE(other != 0);
    SHOW(events(other, 0, 1, NULL, NULL));
    SHOW(submit(other, 0, NULL));
    SHOW(submit(other, -1, NULL));
    SHOW(submit(other, 1, NULL));
    struct iocb *nowhere = NULL;
    SHOW(submit(other, 1, &nowhere));
    SHOW(submit(unknown, 1, &nowhere));
    SHOW(events(unknown, 0, 0, NULL, NULL));
    SHOW(events(other, 2, 1, NULL, NULL));
    SHOW(events(other, -1, 1, NULL, NULL));
    SHOW(events(other, 0, 1, NULL, (struct timespec *)8));
    struct timespec little = { .tv_nsec = 1000000 }, none = { 0 };
    struct io_event event;
    SHOW(events(other, 1, 1, &event, &little));
    SHOW(events(other, 1, 1, &event, &none));
    pid_t child = CHILD(SHOW(events(other, 0, 1, &event, &none)); SHOW(destroy(other)));
    REAP(child);
    SHOW(destroy(other));
    SHOW(destroy(other));
    SHOW(destroy(0));
}

static void transfers(int fd)
{
    char bytes[64] = "what is written is read again", copy[64];
    struct iovec list[2] = { { bytes, 5 }, { bytes + 19, 4 } };
    outcome("write", block_of(IOCB_CMD_PWRITE, fd, bytes, 30, 100));
    outcome("read", block_of(IOCB_CMD_PREAD, fd, copy, 30, 100));
    TRUE(memcmp(bytes, copy, 30) == 0);
    outcome("read of a hole", block_of(IOCB_CMD_PREAD, fd, copy, 30, 90));
    TRUE(copy[9] == 0 && copy[10] == 'w');
    outcome("read across the end", block_of(IOCB_CMD_PREAD, fd, copy, 64, 120));
    outcome("read beyond the end", block_of(IOCB_CMD_PREAD, fd, copy, 64, 1000));
    outcome("read of nothing", block_of(IOCB_CMD_PREAD, fd, copy, 0, 0));
    outcome("write of a list", block_of(IOCB_CMD_PWRITEV, fd, list, 2, 0));
    list[0].iov_base = copy;
    list[1].iov_base = copy + 5;
    outcome("read of a list", block_of(IOCB_CMD_PREADV, fd, list, 2, 0));
    TRUE(memcmp(copy, "what read", 9) == 0);
    outcome("fsync", block_of(IOCB_CMD_FSYNC, fd, NULL, 0, 0));
    outcome("fdatasync", block_of(IOCB_CMD_FDSYNC, fd, NULL, 0, 0));
    SHOW(lseek(fd, 0, SEEK_CUR));
    struct iocb block = block_of(IOCB_CMD_PWRITE, fd, bytes, 1, 0);
    block.aio_rw_flags = RWF_DSYNC;
    outcome("durable write", block);
    block.aio_rw_flags = 1 << 20;
    outcome("unknown flag", block);
}

static void refusals(int fd)
{
    char bytes[16];
    struct iocb block;
    outcome("no descriptor", block_of(IOCB_CMD_PREAD, -1, bytes, 1, 0));
    outcome("closed descriptor", block_of(IOCB_CMD_PREAD, 900, bytes, 1, 0));
    outcome("unknown operation", block_of(4, fd, bytes, 1, 0));
    outcome("no operation", block_of(IOCB_CMD_NOOP, fd, bytes, 1, 0));
    outcome("negative position", block_of(IOCB_CMD_PREAD, fd, bytes, 1, -1));
    outcome("end that is none", block_of(IOCB_CMD_PREAD, fd, bytes, 2, LLONG_MAX));
    outcome("negative length", block_of(IOCB_CMD_PREAD, fd, bytes, -1, 0));
    outcome("memory that can't be", block_of(IOCB_CMD_PREAD, fd, (void *)-4096, 1, 0));
    outcome("memory that is not there", block_of(IOCB_CMD_PREAD, fd, (void *)4096, 1, 0));
    outcome("list that is not there", block_of(IOCB_CMD_PREADV, fd, (void *)4096, 1, 0));
    outcome("list that is too long", block_of(IOCB_CMD_PREADV, fd, bytes, 1025, 0));
    outcome("fsync of a range", block_of(IOCB_CMD_FSYNC, fd, NULL, 1, 0));
    block = block_of(IOCB_CMD_PREAD, fd, bytes, 1, 0);
    block.aio_reserved2 = 1;
    outcome("reserved", block);
    int directory = open(".", O_RDONLY), path = open(".", O_PATH), reader = open("file", O_RDONLY), writer = open("file", O_WRONLY);
    outcome("directory", block_of(IOCB_CMD_PREAD, directory, bytes, 1, 0));
    outcome("path", block_of(IOCB_CMD_PREAD, path, bytes, 1, 0));
    outcome("write to a reader", block_of(IOCB_CMD_PWRITE, reader, bytes, 1, 0));
    outcome("read from a writer", block_of(IOCB_CMD_PREAD, writer, bytes, 1, 0));
    close(directory), close(path), close(reader), close(writer);
    struct io_event event;
    SHOW(cancel(context, NULL, &event));
    block.aio_key = 0;
    SHOW(cancel(context, &block, &event));
    block.aio_key = 1;
    SHOW(cancel(context, &block, &event));
}

static void pipes(void)
{
    int ends[2];
    char bytes[4];
    pipe(ends);
    outcome("write to a pipe", block_of(IOCB_CMD_PWRITE, ends[1], "abcd", 4, 0));
    outcome("read from a pipe", block_of(IOCB_CMD_PREAD, ends[0], bytes, 4, 99));
    TRUE(memcmp(bytes, "abcd", 4) == 0);
    outcome("fsync of a pipe", block_of(IOCB_CMD_FSYNC, ends[1], NULL, 0, 0));
    close(ends[0]);
    signal(SIGPIPE, SIG_IGN);
    outcome("write to nobody", block_of(IOCB_CMD_PWRITE, ends[1], "abcd", 4, 0));
    close(ends[1]);
}

/* Several at a time; the first that makes no sense ends the call. */
static void lists(int fd)
{
    char bytes[4][8];
    struct iocb blocks[4], *list[4];
    struct io_event taken[4];
    for (int i = 0; i < 4; i++) {
        blocks[i] = block_of(IOCB_CMD_PWRITE, fd, "12345678", 8, 8 * i);
        blocks[i].aio_data = 100 + i;
        list[i] = &blocks[i];
    }
    SHOW(submit(context, 4, list));
    SHOW(events(context, 3, 3, taken, NULL));
    SHOW(events(context, 1, 4, taken + 3, NULL));
    uint64_t data = 0, bytes_done = 0;
    for (int i = 0; i < 4; i++)
        data += taken[i].data, bytes_done += taken[i].res;
    printf("data %lu, bytes %lu\n", (unsigned long)data, (unsigned long)bytes_done);
    for (int i = 0; i < 4; i++)
        blocks[i] = block_of(IOCB_CMD_PREAD, fd, bytes[i], 8, 8 * i);
    blocks[2].aio_fildes = -1;
    SHOW(submit(context, 4, list));
    SHOW(events(context, 2, 4, taken, NULL));
    SHOW(events(context, 0, 4, taken, NULL));
    list[2] = (struct iocb *)8;
    SHOW(submit(context, 4, list));
    SHOW(events(context, 2, 4, taken, NULL));
    /* What can't be told is not lost. */
    list[0] = &blocks[0];
    SHOW(submit(context, 1, list));
    SHOW(events(context, 1, 1, (struct io_event *)4096, NULL));
    SHOW(events(context, 1, 1, taken, NULL));
}

static void told(int fd)
{
    char bytes[8];
    uint64_t count;
    int counter = eventfd(0, EFD_NONBLOCK);
    struct io_event event;
    for (int i = 0; i < 2; i++) {
        struct iocb block = block_of(IOCB_CMD_PREAD, fd, bytes, 8, 0), *list = &block;
        block.aio_flags = IOCB_FLAG_RESFD;
        block.aio_resfd = counter;
        SHOW(submit(context, 1, &list));
        SHOW(events(context, 1, 1, &event, NULL));
    }
    SHOW(read(counter, &count, 8));
    SHOW(count);
    SHOW(read(counter, &count, 8));
    struct iocb block = block_of(IOCB_CMD_PREAD, fd, bytes, 8, 0);
    block.aio_flags = IOCB_FLAG_RESFD;
    block.aio_resfd = fd;
    outcome("tells a file", block);
    block.aio_resfd = -1;
    outcome("tells nobody", block);
    close(counter);
}

static void *submits_later(void *waiter)
{
    static char byte;
    wait_state((pid_t)(intptr_t)waiter, "S");
    static struct iocb block;
    block = block_of(IOCB_CMD_PREAD, open("file", O_RDONLY), &byte, 1, 0);
    submit_one(&block);
    return NULL;
}

static void *destroys_later(void *waiter)
{
    wait_state((pid_t)(intptr_t)waiter, "S");
    destroy(context);
    return NULL;
}

static void nothing(int signal) { (void)signal; }

/* Who waits for an outcome is woken by another thread's, by a signal, and by the end of the context. */
static void waiting(void)
{
    struct io_event event;
    pthread_t thread;
    pthread_create(&thread, NULL, submits_later, (void *)(intptr_t)gettid());
    SHOW(events(context, 1, 1, &event, NULL));
    pthread_join(thread, NULL);
    struct sigaction action = { .sa_handler = nothing, .sa_flags = SA_RESTART };
    sigaction(SIGALRM, &action, NULL);
    struct itimerval soon = { .it_interval.tv_usec = 20000, .it_value.tv_usec = 20000 }, never = { 0 };
    setitimer(ITIMER_REAL, &soon, NULL);
    SHOW(events(context, 1, 1, &event, NULL));
    setitimer(ITIMER_REAL, &never, NULL);
    uint64_t blocked = 1u << (SIGALRM - 1);
    struct { uint64_t *mask; size_t bytes; } mask = { &blocked, 8 };
    struct timespec little = { .tv_nsec = 1000000 };
    SHOW(syscall(SYS_io_pgetevents, context, 0, 1, &event, &little, &mask));
    SHOW(syscall(SYS_io_pgetevents, context, 1, 1, &event, &little, &mask));
    mask.bytes = 4;
    SHOW(syscall(SYS_io_pgetevents, context, 1, 1, &event, &little, &mask));
    /* A signal that the mask lets through ends the call, and finds the former mask when its handler has returned. */
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    sigprocmask(SIG_BLOCK, &alarm, NULL);
    raise(SIGALRM);
    blocked = 0, mask.bytes = 8;
    SHOW(syscall(SYS_io_pgetevents, context, 1, 1, &event, NULL, &mask));
    sigprocmask(SIG_BLOCK, NULL, &alarm);
    TRUE(sigismember(&alarm, SIGALRM));
    pthread_create(&thread, NULL, destroys_later, (void *)(intptr_t)gettid());
    SHOW(events(context, 1, 1, &event, NULL));
    pthread_join(thread, NULL);
}

/* There is room for as many as were asked for, and more. */
static void room(int fd)
{
    static const unsigned asked[] = { 1, 3, 64, 300, 2000 };
    static struct iocb blocks[4096], *list[4096];
    static struct io_event taken[4096];
    static char bytes[1];
    for (int i = 0; i < 4096; i++) {
        blocks[i] = block_of(IOCB_CMD_PREAD, fd, bytes, 1, 0);
        blocks[i].aio_data = i;
        list[i] = &blocks[i];
    }
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        context = 0;
        SHOW(setup(asked[i], &context));
        SHOW(submit(context, asked[i], list));
        SHOW(submit(context, asked[i] / 8 + 1, list + asked[i]));
        long submitted = asked[i] + asked[i] / 8 + 1, count = events(context, submitted, 4096, taken, NULL), sum = 0;
        for (long j = 0; j < count; j++)
            sum += taken[j].data;
        TRUE(count == submitted && sum == submitted * (submitted - 1) / 2);
        /* As often as one likes, if they are taken. */
        for (int j = 0; j < 3; j++)
            TRUE(submit(context, asked[i], list) == asked[i] && events(context, asked[i], asked[i], taken, NULL) == asked[i]);
        SHOW(destroy(context));
    }
    context = 0;
    SHOW(setup(8, &context));
    long submitted = 0;
    while (submit_one(&blocks[0]) == 1 && submitted < 4096)
        submitted++;
    TRUE(errno == EAGAIN && submitted >= 8 && submitted < 4096);
    SHOW(destroy(context));
}

int main(void)
{
    contexts();
    int fd = open("file", O_RDWR | O_CREAT | O_TRUNC, 0600);
    SHOW(setup(8, &context));
    transfers(fd);
    refusals(fd);
    pipes();
    lists(fd);
    told(fd);
    waiting();
    room(fd);
    /* A process has what it had when it ends. */
    pid_t child = CHILD(context = 0; SHOW(setup(8, &context)); struct iocb block = block_of(IOCB_CMD_PWRITE, fd, "x", 1, 0); SHOW(submit_one(&block)));
    REAP(child);
    return 0;
}
