/* Submission rings (io_uring): what is refused, operations one by one, chains, drains, timeouts, polls, buffers, taking back, overflow. */
#include "ring.h"
#include <sys/socket.h>
#include <sys/un.h>

#define SQE(...) ((struct io_uring_sqe){ __VA_ARGS__ })
#define P(...) ((unsigned long long)(uintptr_t)(__VA_ARGS__))

static void refusals(void)
{
    struct io_uring_params p = { 0 };
    SHOW(ring_setup(0, &p));
    SHOW(ring_setup(1 << 20, &p));
    SHOW(ring_setup(4, NULL));
    p = (struct io_uring_params){ .flags = 1u << 31 };
    SHOW(ring_setup(4, &p));
    p = (struct io_uring_params){ .flags = IORING_SETUP_CQSIZE, .cq_entries = 2 };
    SHOW(ring_setup(4, &p));
    p = (struct io_uring_params){ .flags = IORING_SETUP_TASKRUN_FLAG };
    SHOW(ring_setup(4, &p));
    p = (struct io_uring_params){ .flags = 1u << 13 };
    SHOW(ring_setup(4, &p));
    p = (struct io_uring_params){ .resv = { 1 } };
    SHOW(ring_setup(4, &p));
    p = (struct io_uring_params){ .flags = IORING_SETUP_CLAMP };
    int fd = ring_setup(1 << 20, &p);
    printf("clamped: %u %u\n", p.sq_entries, p.cq_entries);
    close(fd);
    p = (struct io_uring_params){ .flags = IORING_SETUP_CQSIZE, .cq_entries = 9 };
    fd = ring_setup(5, &p);
    printf("sizes: %u %u\n", p.sq_entries, p.cq_entries);
    TRUE(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    SHOW(ring_enter(fd, 0, 0, 1u << 30));
    SHOW(ring_enter(1, 0, 0, 0));
    SHOW(ring_enter(-1, 0, 0, 0));
    SHOW(ring_enter(fd, 0, 0, 0));
    SHOW(ring_enter(fd, 5, 0, 0));
    SHOW(ring_register(fd, 1000, NULL, 0));
    SHOW(ring_register(fd, IORING_UNREGISTER_FILES, NULL, 0));
    SHOW(ring_register(fd, IORING_UNREGISTER_BUFFERS, NULL, 0));
    SHOW(ring_register(fd, IORING_UNREGISTER_EVENTFD, NULL, 0));
    char b;
    SHOW(read(fd, &b, 1));
    SHOW(write(fd, &b, 1));
    SHOW(lseek(fd, 0, SEEK_SET));
    OK(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 1));
    struct pollfd poll_fd = { .fd = fd, .events = POLLIN | POLLOUT };
    SHOW(poll(&poll_fd, 1, 0));
    printf("ready %#x\n", poll_fd.revents);
    close(fd);
}

static void files(struct ring *r)
{
    char buffer[64] = "the quick brown fox", other[64] = "";
    int fd = ring_one(r, "openat", SQE(.opcode = IORING_OP_OPENAT, .fd = AT_FDCWD, .addr = P("file"), .open_flags = O_RDWR | O_CREAT, .len = 0644));
    ring_one(r, "openat missing", SQE(.opcode = IORING_OP_OPENAT, .fd = AT_FDCWD, .addr = P("missing/x"), .open_flags = O_RDWR));
    ring_one(r, "write", SQE(.opcode = IORING_OP_WRITE, .fd = fd, .addr = P(buffer), .len = 19, .user_data = 5));
    ring_one(r, "write at", SQE(.opcode = IORING_OP_WRITE, .fd = fd, .addr = P("SLOW "), .len = 5, .off = 4));
    ring_one(r, "write here", SQE(.opcode = IORING_OP_WRITE, .fd = fd, .addr = P("es"), .len = 2, .off = -1));
    ring_one(r, "read", SQE(.opcode = IORING_OP_READ, .fd = fd, .addr = P(other), .len = 63));
    printf("%s\n", other);
    ring_one(r, "read fault", SQE(.opcode = IORING_OP_READ, .fd = fd, .addr = 8, .len = 63));
    struct iovec vectors[2] = { { other, 3 }, { other + 10, 5 } };
    ring_one(r, "readv", SQE(.opcode = IORING_OP_READV, .fd = fd, .addr = P(vectors), .len = 2, .off = 1));
    ring_one(r, "writev", SQE(.opcode = IORING_OP_WRITEV, .fd = fd, .addr = P(vectors), .len = 2, .off = 30));
    ring_one(r, "readv fault", SQE(.opcode = IORING_OP_READV, .fd = fd, .addr = 16, .len = 2));
    ring_one(r, "fsync", SQE(.opcode = IORING_OP_FSYNC, .fd = fd));
    ring_one(r, "fdatasync", SQE(.opcode = IORING_OP_FSYNC, .fd = fd, .fsync_flags = IORING_FSYNC_DATASYNC));
    ring_one(r, "fsync flags", SQE(.opcode = IORING_OP_FSYNC, .fd = fd, .fsync_flags = 8));
    ring_one(r, "sync_file_range", SQE(.opcode = IORING_OP_SYNC_FILE_RANGE, .fd = fd, .len = 10));
    ring_one(r, "fallocate", SQE(.opcode = IORING_OP_FALLOCATE, .fd = fd, .addr = 8192));
    struct statx status;
    memset(&status, 0, sizeof status);
    ring_one(r, "statx", SQE(.opcode = IORING_OP_STATX, .fd = AT_FDCWD, .addr = P("file"), .len = STATX_SIZE, .off = P(&status)));
    printf("size %llu\n", (unsigned long long)status.stx_size);
    ring_one(r, "fadvise", SQE(.opcode = IORING_OP_FADVISE, .fd = fd, .fadvise_advice = POSIX_FADV_RANDOM));
    ring_one(r, "madvise", SQE(.opcode = IORING_OP_MADVISE, .addr = P(buffer) & ~4095ull, .len = 4096, .fadvise_advice = MADV_NORMAL));
    ring_one(r, "bad descriptor", SQE(.opcode = IORING_OP_READ, .fd = 999, .addr = P(other), .len = 5));
    ring_one(r, "bad operation", SQE(.opcode = 250, .user_data = 9));
    ring_one(r, "bad flags", SQE(.opcode = IORING_OP_NOP, .flags = 128));
    ring_one(r, "bad priority", SQE(.opcode = IORING_OP_FSYNC, .fd = fd, .ioprio = 99));
    ring_one(r, "asynchronous", SQE(.opcode = IORING_OP_READ, .flags = IOSQE_ASYNC, .fd = fd, .addr = P(other), .len = 10));
    ring_one(r, "write-only", SQE(.opcode = IORING_OP_WRITE, .fd = open("file", O_RDONLY), .addr = P(other), .len = 10));
    ring_one(r, "mkdirat", SQE(.opcode = IORING_OP_MKDIRAT, .fd = AT_FDCWD, .addr = P("dir"), .len = 0755));
    ring_one(r, "mkdirat again", SQE(.opcode = IORING_OP_MKDIRAT, .fd = AT_FDCWD, .addr = P("dir"), .len = 0755));
    ring_one(r, "renameat", SQE(.opcode = IORING_OP_RENAMEAT, .fd = AT_FDCWD, .addr = P("file"), .len = AT_FDCWD, .off = P("dir/file")));
    ring_one(r, "linkat", SQE(.opcode = IORING_OP_LINKAT, .fd = AT_FDCWD, .addr = P("dir/file"), .len = AT_FDCWD, .off = P("second")));
    ring_one(r, "symlinkat", SQE(.opcode = IORING_OP_SYMLINKAT, .fd = AT_FDCWD, .addr = P("second"), .off = P("symbolic")));
    ring_one(r, "unlinkat", SQE(.opcode = IORING_OP_UNLINKAT, .fd = AT_FDCWD, .addr = P("dir/file")));
    ring_one(r, "unlinkat dir", SQE(.opcode = IORING_OP_UNLINKAT, .fd = AT_FDCWD, .addr = P("dir"), .unlink_flags = AT_REMOVEDIR));
    OK(access("symbolic", R_OK));
    int pipes[2];
    OK(pipe(pipes));
    ring_one(r, "splice", SQE(.opcode = IORING_OP_SPLICE, .fd = pipes[1], .off = -1, .splice_fd_in = fd, .splice_off_in = 0, .len = 10));
    memset(other, 0, sizeof other);
    SHOW(read(pipes[0], other, 20));
    printf("%s\n", other);
    ring_one(r, "close", SQE(.opcode = IORING_OP_CLOSE, .fd = fd));
    ring_one(r, "close again", SQE(.opcode = IORING_OP_CLOSE, .fd = fd));
    ring_one(r, "close ring", SQE(.opcode = IORING_OP_CLOSE, .fd = r->fd));
    int set = epoll_create1(0);
    struct epoll_event event = { .events = EPOLLIN, .data.u64 = 3 };
    ring_one(r, "epoll_ctl", SQE(.opcode = IORING_OP_EPOLL_CTL, .fd = set, .len = EPOLL_CTL_ADD, .off = pipes[0], .addr = P(&event)));
    ring_one(r, "epoll_ctl again", SQE(.opcode = IORING_OP_EPOLL_CTL, .fd = set, .len = EPOLL_CTL_ADD, .off = pipes[0], .addr = P(&event)));
    close(set), close(pipes[0]), close(pipes[1]);
}

static void links(struct ring *r)
{
    char buffer[16];
    int fd = open("links", O_RDWR | O_CREAT, 0644);
    SHOW(write(fd, "0123456789", 10));
    for (int hard = 0; hard < 2; hard++) {
        unsigned flag = hard ? IOSQE_IO_HARDLINK : IOSQE_IO_LINK;
        ring_add(r, SQE(.opcode = IORING_OP_READ, .flags = flag, .fd = fd, .addr = P(buffer), .len = 16, .user_data = 1));
        ring_add(r, SQE(.opcode = IORING_OP_NOP, .flags = flag, .user_data = 2));
        ring_add(r, SQE(.opcode = IORING_OP_NOP, .user_data = 3));
        ring_add(r, SQE(.opcode = IORING_OP_NOP, .user_data = 4));
        SHOW(ring_submit(r, 4));
        ring_show(r, hard ? "hard chain" : "chain", 4);
    }
    ring_add(r, SQE(.opcode = IORING_OP_NOP, .flags = IOSQE_IO_LINK, .user_data = 1));
    ring_add(r, SQE(.opcode = 250, .flags = IOSQE_IO_LINK, .user_data = 2));
    ring_add(r, SQE(.opcode = IORING_OP_NOP, .user_data = 3));
    SHOW(ring_submit(r, 3));
    ring_show(r, "chain without sense", 3);
    ring_add(r, SQE(.opcode = IORING_OP_NOP, .flags = IOSQE_CQE_SKIP_SUCCESS, .user_data = 1));
    ring_add(r, SQE(.opcode = IORING_OP_READ, .flags = IOSQE_CQE_SKIP_SUCCESS, .fd = 999, .user_data = 2));
    SHOW(ring_submit(r, 1));
    ring_show(r, "skipped", 1);
    SHOW(ring_ready(r));
    /* An entry without sense ends the call. */
    ring_add(r, SQE(.opcode = 250, .user_data = 1));
    ring_add(r, SQE(.opcode = IORING_OP_NOP, .user_data = 2));
    SHOW(ring_submit(r, 1));
    SHOW(ring_submit(r, 1));
    ring_show(r, "stopped", 2);
    close(fd);
}

static void waiting(struct ring *r)
{
    int pipes[2], sockets[2];
    char buffer[16] = "";
    OK(pipe(pipes));
    ring_add(r, SQE(.opcode = IORING_OP_READ, .fd = pipes[0], .addr = P(buffer), .len = 16, .user_data = 1));
    SHOW(ring_submit(r, 0));
    SHOW(ring_ready(r));
    SHOW(write(pipes[1], "abc", 3));
    ring_show(r, "pipe", 1);
    printf("%.3s\n", buffer);
    ring_add(r, SQE(.opcode = IORING_OP_READ, .fd = pipes[0], .addr = P(buffer), .len = 1, .flags = IOSQE_IO_LINK, .user_data = 1));
    ring_add(r, SQE(.opcode = IORING_OP_WRITE, .fd = pipes[1], .addr = P("more"), .len = 4, .user_data = 2));
    SHOW(ring_submit(r, 0));
    SHOW(write(pipes[1], "x", 1));
    ring_show(r, "then", 2);
    SHOW(read(pipes[0], buffer, 16));
    ring_add(r, SQE(.opcode = IORING_OP_READ, .fd = pipes[0], .addr = P(buffer), .len = 16, .user_data = 1));
    SHOW(ring_submit(r, 0));
    ring_one(r, "cancel missing", SQE(.opcode = IORING_OP_ASYNC_CANCEL, .addr = 77, .user_data = 2));
    ring_add(r, SQE(.opcode = IORING_OP_ASYNC_CANCEL, .addr = 1, .user_data = 2));
    SHOW(ring_submit(r, 2));
    struct completion first = ring_next(r), second = ring_next(r);
    ring_print("cancelled", first.user_data == 1 ? first : second);
    ring_print("cancelled", first.user_data == 1 ? second : first);
    OK(fcntl(pipes[0], F_SETFL, O_NONBLOCK));
    ring_add(r, SQE(.opcode = IORING_OP_READ, .fd = pipes[0], .addr = P(buffer), .len = 16, .user_data = 1));
    SHOW(ring_submit(r, 0));
    SHOW(write(pipes[1], "xy", 2));
    ring_show(r, "waits although it need not", 1);
    OK(fcntl(pipes[0], F_SETFL, 0));
    ring_add(r, SQE(.opcode = IORING_OP_READ, .fd = pipes[0], .addr = P(buffer), .len = 16, .user_data = 1));
    SHOW(ring_submit(r, 0));
    close(pipes[1]);
    ring_show(r, "hung up", 1);
    close(pipes[0]);

    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
    ring_add(r, SQE(.opcode = IORING_OP_RECV, .fd = sockets[0], .addr = P(buffer), .len = 16, .user_data = 1));
    SHOW(ring_submit(r, 0));
    ring_add(r, SQE(.opcode = IORING_OP_SEND, .fd = sockets[1], .addr = P("hello"), .len = 5, .user_data = 2));
    SHOW(ring_submit(r, 2));
    ring_show(r, "received and sent", 2);
    ring_one(r, "does not wait", SQE(.opcode = IORING_OP_RECV, .fd = sockets[0], .addr = P(buffer), .len = 16, .msg_flags = MSG_DONTWAIT, .user_data = 1));
    struct iovec vector = { "message", 7 };
    struct msghdr header = { .msg_iov = &vector, .msg_iovlen = 1 };
    ring_one(r, "sendmsg", SQE(.opcode = IORING_OP_SENDMSG, .fd = sockets[1], .addr = P(&header), .len = 1));
    vector = (struct iovec){ buffer, 16 };
    ring_one(r, "recvmsg", SQE(.opcode = IORING_OP_RECVMSG, .fd = sockets[0], .addr = P(&header), .len = 1));
    printf("%.7s\n", buffer);
    ring_add(r, SQE(.opcode = IORING_OP_RECV, .fd = sockets[0], .addr = P(buffer), .len = 8, .msg_flags = MSG_WAITALL, .user_data = 1));
    SHOW(ring_submit(r, 0));
    SHOW(write(sockets[1], "1234", 4));
    SHOW(write(sockets[1], "5678", 4));
    ring_show(r, "all", 1);
    ring_one(r, "recv of a file", SQE(.opcode = IORING_OP_RECV, .fd = open("links", O_RDONLY), .addr = P(buffer), .len = 8));
    ring_one(r, "shutdown", SQE(.opcode = IORING_OP_SHUTDOWN, .fd = sockets[1], .len = SHUT_WR));
    ring_one(r, "end", SQE(.opcode = IORING_OP_RECV, .fd = sockets[0], .addr = P(buffer), .len = 8));
    close(sockets[0]);
    ring_one(r, "broken", SQE(.opcode = IORING_OP_SEND, .fd = sockets[1], .addr = P("hello"), .len = 5, .user_data = 2));
    close(sockets[1]);

    struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "listener" };
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    OK(bind(listener, (void *)&address, sizeof address));
    OK(listen(listener, 8));
    ring_add(r, SQE(.opcode = IORING_OP_ACCEPT, .fd = listener, .user_data = 1, .accept_flags = SOCK_CLOEXEC));
    SHOW(ring_submit(r, 0));
    int client = socket(AF_UNIX, SOCK_STREAM, 0);
    ring_add(r, SQE(.opcode = IORING_OP_CONNECT, .fd = client, .addr = P(&address), .off = sizeof address, .user_data = 2));
    SHOW(ring_submit(r, 2));
    first = ring_next(r), second = ring_next(r);
    if (first.user_data == 2) {
        struct completion swap = first;
        first = second;
        second = swap;
    }
    TRUE(first.res > 0 && fcntl(first.res, F_GETFD) == FD_CLOEXEC);
    ring_print("connect", second);
    close(first.res);
    close(client);
    ring_add(r, SQE(.opcode = IORING_OP_ACCEPT, .fd = listener, .user_data = 1, .ioprio = IORING_ACCEPT_MULTISHOT));
    SHOW(ring_submit(r, 0));
    for (int i = 0; i < 3; i++) {
        client = socket(AF_UNIX, SOCK_STREAM, 0);
        OK(connect(client, (void *)&address, sizeof address));
        struct completion cqe = ring_next(r);
        printf("accepted: %d more %d\n", cqe.res > 0, !!(cqe.flags & IORING_CQE_F_MORE));
        close(cqe.res), close(client);
    }
    ring_add(r, SQE(.opcode = IORING_OP_ASYNC_CANCEL, .fd = listener, .cancel_flags = IORING_ASYNC_CANCEL_FD, .user_data = 2, .flags = IOSQE_CQE_SKIP_SUCCESS));
    SHOW(ring_submit(r, 1));
    ring_show(r, "multiple accept ends", 1);
    close(listener);
}

static void polls(struct ring *r)
{
    int counter = eventfd(0, 0);
    unsigned long long one = 1;
    ring_add(r, SQE(.opcode = IORING_OP_POLL_ADD, .fd = counter, .poll32_events = POLLIN, .user_data = 1));
    SHOW(ring_submit(r, 0));
    SHOW(write(counter, &one, 8));
    ring_show(r, "poll", 1);
    ring_one(r, "poll ready", SQE(.opcode = IORING_OP_POLL_ADD, .fd = counter, .poll32_events = POLLIN | POLLOUT, .user_data = 1));
    SHOW(read(counter, &one, 8));
    ring_add(r, SQE(.opcode = IORING_OP_POLL_ADD, .fd = counter, .poll32_events = POLLIN, .len = IORING_POLL_ADD_MULTI, .user_data = 1));
    SHOW(ring_submit(r, 0));
    for (int i = 0; i < 3; i++) {
        SHOW(write(counter, &one, 8));
        ring_show(r, "poll again", 1);
        SHOW(read(counter, &one, 8));
    }
    SHOW(ring_ready(r));
    ring_one(r, "update", SQE(.opcode = IORING_OP_POLL_REMOVE, .addr = 1, .off = 8, .len = IORING_POLL_UPDATE_USER_DATA, .user_data = 2));
    SHOW(write(counter, &one, 8));
    ring_show(r, "poll updated", 1);
    ring_one(r, "remove missing", SQE(.opcode = IORING_OP_POLL_REMOVE, .addr = 1, .user_data = 2));
    ring_add(r, SQE(.opcode = IORING_OP_POLL_REMOVE, .addr = 8, .user_data = 2));
    SHOW(ring_submit(r, 2));
    struct completion first = ring_next(r), second = ring_next(r);
    ring_print("removed", first.user_data == 8 ? first : second);
    ring_print("removed", first.user_data == 8 ? second : first);
    close(counter);
}

static void timeouts(struct ring *r)
{
    struct __kernel_timespec soon = { .tv_nsec = 1000000 }, late = { .tv_sec = 1000 }, bad = { .tv_nsec = -1 };
    ring_one(r, "timeout", SQE(.opcode = IORING_OP_TIMEOUT, .addr = P(&soon), .len = 1, .user_data = 1));
    ring_one(r, "timeout of success", SQE(.opcode = IORING_OP_TIMEOUT, .addr = P(&soon), .len = 1, .timeout_flags = IORING_TIMEOUT_ETIME_SUCCESS));
    ring_one(r, "bad time", SQE(.opcode = IORING_OP_TIMEOUT, .addr = P(&bad), .len = 1));
    ring_one(r, "no length", SQE(.opcode = IORING_OP_TIMEOUT, .addr = P(&soon)));
    ring_one(r, "lonely limit", SQE(.opcode = IORING_OP_LINK_TIMEOUT, .addr = P(&soon), .len = 1));
    ring_add(r, SQE(.opcode = IORING_OP_TIMEOUT, .addr = P(&late), .len = 1, .off = 2, .user_data = 1));
    SHOW(ring_submit(r, 0));
    ring_add(r, SQE(.opcode = IORING_OP_NOP, .user_data = 2));
    ring_add(r, SQE(.opcode = IORING_OP_NOP, .user_data = 3));
    SHOW(ring_submit(r, 3));
    ring_show(r, "counted", 3);
    ring_add(r, SQE(.opcode = IORING_OP_TIMEOUT, .addr = P(&late), .len = 1, .user_data = 1));
    SHOW(ring_submit(r, 0));
    ring_one(r, "remove missing", SQE(.opcode = IORING_OP_TIMEOUT_REMOVE, .addr = 7, .user_data = 2));
    ring_add(r, SQE(.opcode = IORING_OP_TIMEOUT_REMOVE, .addr = 1, .user_data = 2));
    SHOW(ring_submit(r, 2));
    struct completion first = ring_next(r), second = ring_next(r);
    ring_print("removed", first.user_data == 1 ? first : second);
    ring_print("removed", first.user_data == 1 ? second : first);
    ring_add(r, SQE(.opcode = IORING_OP_TIMEOUT, .addr = P(&late), .len = 1, .user_data = 1));
    SHOW(ring_submit(r, 0));
    ring_add(r, SQE(.opcode = IORING_OP_TIMEOUT_REMOVE, .addr = 1, .addr2 = P(&soon), .timeout_flags = IORING_TIMEOUT_UPDATE, .user_data = 2));
    SHOW(ring_submit(r, 2));
    ring_show(r, "updated", 2);

    int pipes[2];
    char buffer[8];
    OK(pipe(pipes));
    ring_add(r, SQE(.opcode = IORING_OP_READ, .flags = IOSQE_IO_LINK, .fd = pipes[0], .addr = P(buffer), .len = 8, .user_data = 1));
    ring_add(r, SQE(.opcode = IORING_OP_LINK_TIMEOUT, .addr = P(&soon), .len = 1, .user_data = 2));
    SHOW(ring_submit(r, 2));
    first = ring_next(r), second = ring_next(r);
    ring_print("limited", first.user_data == 1 ? first : second);
    ring_print("limit", first.user_data == 1 ? second : first);
    ring_add(r, SQE(.opcode = IORING_OP_READ, .flags = IOSQE_IO_LINK, .fd = pipes[0], .addr = P(buffer), .len = 8, .user_data = 1));
    ring_add(r, SQE(.opcode = IORING_OP_LINK_TIMEOUT, .addr = P(&late), .len = 1, .user_data = 2));
    SHOW(ring_submit(r, 0));
    SHOW(write(pipes[1], "12345678", 8));
    first = ring_next(r), second = ring_next(r);
    ring_print("not limited", first.user_data == 1 ? first : second);
    ring_print("limit", first.user_data == 1 ? second : first);
    close(pipes[0]), close(pipes[1]);
    struct io_uring_getevents_arg argument = { .ts = P(&soon) };
    SHOW(syscall(SYS_io_uring_enter, r->fd, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &argument, sizeof argument));
    SHOW(syscall(SYS_io_uring_enter, r->fd, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &argument, 5));
}

static void drains(struct ring *r)
{
    int pipes[2];
    char buffer[8];
    OK(pipe(pipes));
    ring_add(r, SQE(.opcode = IORING_OP_READ, .fd = pipes[0], .addr = P(buffer), .len = 8, .user_data = 1));
    ring_add(r, SQE(.opcode = IORING_OP_NOP, .flags = IOSQE_IO_DRAIN, .user_data = 2));
    ring_add(r, SQE(.opcode = IORING_OP_NOP, .user_data = 3));
    SHOW(ring_submit(r, 0));
    SHOW(ring_ready(r));
    SHOW(write(pipes[1], "x", 1));
    ring_show(r, "drained", 3);
    close(pipes[0]), close(pipes[1]);
}

static void registered(struct ring *r)
{
    char buffer[32] = "registered", other[32] = "";
    int fd = open("registered", O_RDWR | O_CREAT, 0644);
    int table[4] = { fd, -1, -1, r->fd };
    SHOW(ring_register(r->fd, IORING_REGISTER_FILES, table, 4));
    SHOW(ring_register(r->fd, IORING_REGISTER_FILES, table, 3));
    SHOW(ring_register(r->fd, IORING_REGISTER_FILES, table, 3));
    close(fd);
    ring_one(r, "fixed write", SQE(.opcode = IORING_OP_WRITE, .flags = IOSQE_FIXED_FILE, .fd = 0, .addr = P(buffer), .len = 10));
    ring_one(r, "fixed nothing", SQE(.opcode = IORING_OP_WRITE, .flags = IOSQE_FIXED_FILE, .fd = 1, .addr = P(buffer), .len = 10));
    ring_one(r, "fixed beyond", SQE(.opcode = IORING_OP_WRITE, .flags = IOSQE_FIXED_FILE, .fd = 9, .addr = P(buffer), .len = 10));
    struct iovec vectors[2] = { { buffer, sizeof buffer }, { other, sizeof other } };
    SHOW(ring_register(r->fd, IORING_REGISTER_BUFFERS, vectors, 0));
    SHOW(ring_register(r->fd, IORING_REGISTER_BUFFERS, vectors, 2));
    SHOW(ring_register(r->fd, IORING_REGISTER_BUFFERS, vectors, 2));
    ring_one(r, "read fixed", SQE(.opcode = IORING_OP_READ_FIXED, .flags = IOSQE_FIXED_FILE, .fd = 0, .addr = P(other + 2), .len = 20, .buf_index = 1));
    printf("%s\n", other + 2);
    ring_one(r, "write fixed", SQE(.opcode = IORING_OP_WRITE_FIXED, .flags = IOSQE_FIXED_FILE, .fd = 0, .addr = P(buffer), .len = 5, .off = 10, .buf_index = 0));
    ring_one(r, "wrong buffer", SQE(.opcode = IORING_OP_READ_FIXED, .flags = IOSQE_FIXED_FILE, .fd = 0, .addr = P(other), .len = 20, .buf_index = 0));
    ring_one(r, "no buffer", SQE(.opcode = IORING_OP_READ_FIXED, .flags = IOSQE_FIXED_FILE, .fd = 0, .addr = P(other), .len = 20, .buf_index = 7));
    SHOW(ring_register(r->fd, IORING_UNREGISTER_BUFFERS, NULL, 0));
    SHOW(ring_register(r->fd, IORING_UNREGISTER_BUFFERS, NULL, 0));
    int number = 1;
    (void)number;
    struct io_uring_files_update update = { .offset = 1, .fds = P((int[]){ 1, -2 }) };
    SHOW(ring_register(r->fd, IORING_REGISTER_FILES_UPDATE, &update, 2));
    SHOW(ring_register(r->fd, IORING_REGISTER_FILES_UPDATE, &update, 5));
    ring_one(r, "files update", SQE(.opcode = IORING_OP_FILES_UPDATE, .addr = P((int[]){ -1 }), .len = 1, .off = 1));
    ring_one(r, "open in a place", SQE(.opcode = IORING_OP_OPENAT, .fd = AT_FDCWD, .addr = P("registered"), .open_flags = O_RDONLY, .file_index = 2));
    ring_one(r, "read there", SQE(.opcode = IORING_OP_READ, .flags = IOSQE_FIXED_FILE, .fd = 1, .addr = P(other), .len = 4));
    ring_one(r, "close there", SQE(.opcode = IORING_OP_CLOSE, .file_index = 2));
    ring_one(r, "close there again", SQE(.opcode = IORING_OP_CLOSE, .file_index = 2));
    SHOW(ring_register(r->fd, IORING_UNREGISTER_FILES, NULL, 0));

    int counter = eventfd(0, EFD_NONBLOCK);
    unsigned long long value = 0;
    SHOW(ring_register(r->fd, IORING_REGISTER_EVENTFD, &counter, 1));
    SHOW(ring_register(r->fd, IORING_REGISTER_EVENTFD, &counter, 1));
    ring_one(r, "nop", SQE(.opcode = IORING_OP_NOP));
    SHOW(read(counter, &value, 8));
    printf("told %llu\n", value);
    SHOW(ring_register(r->fd, IORING_UNREGISTER_EVENTFD, NULL, 0));
    ring_one(r, "nop", SQE(.opcode = IORING_OP_NOP));
    SHOW(read(counter, &value, 8));
    close(counter);

    ring_one(r, "no group", SQE(.opcode = IORING_OP_READ, .flags = IOSQE_BUFFER_SELECT, .fd = fd = open("registered", O_RDONLY), .len = 4, .buf_group = 3));
    char provided[4][8];
    ring_one(r, "provide", SQE(.opcode = IORING_OP_PROVIDE_BUFFERS, .fd = 4, .addr = P(provided), .len = 8, .off = 20, .buf_group = 3));
    ring_one(r, "selected", SQE(.opcode = IORING_OP_READ, .flags = IOSQE_BUFFER_SELECT, .fd = fd, .len = 4, .buf_group = 3));
    printf("%.4s\n", provided[0]);
    ring_one(r, "selected", SQE(.opcode = IORING_OP_READ, .flags = IOSQE_BUFFER_SELECT, .fd = fd, .len = 99, .buf_group = 3));
    ring_one(r, "remove", SQE(.opcode = IORING_OP_REMOVE_BUFFERS, .fd = 9, .buf_group = 3));
    ring_one(r, "remove missing", SQE(.opcode = IORING_OP_REMOVE_BUFFERS, .fd = 9, .buf_group = 77));
    ring_one(r, "none left", SQE(.opcode = IORING_OP_READ, .flags = IOSQE_BUFFER_SELECT, .fd = fd, .len = 4, .buf_group = 3));
    ring_one(r, "not for writes", SQE(.opcode = IORING_OP_FSYNC, .flags = IOSQE_BUFFER_SELECT, .fd = fd));
    close(fd);

    struct ring second = ring_of(4, 0);
    ring_one(r, "message", SQE(.opcode = IORING_OP_MSG_RING, .fd = second.fd, .len = 17, .off = 99));
    ring_show(&second, "message", 1);
    ring_one(r, "message to a file", SQE(.opcode = IORING_OP_MSG_RING, .fd = 1, .len = 17, .off = 99));
    ring_close(&second);
    struct { struct io_uring_probe probe; struct io_uring_probe_op ops[8]; } probe;
    memset(&probe, 0, sizeof probe);
    SHOW(ring_register(r->fd, IORING_REGISTER_PROBE, &probe, 8));
    for (int i = 0; i < 8; i++)
        printf("operation %d: %d\n", probe.probe.ops[i].op, probe.probe.ops[i].flags);
    int personality = ring_register(r->fd, IORING_REGISTER_PERSONALITY, NULL, 0);
    TRUE(personality > 0);
    OK(seteuid(12345));
    ring_one(r, "not allowed", SQE(.opcode = IORING_OP_OPENAT, .fd = AT_FDCWD, .addr = P("forbidden"), .open_flags = O_RDWR | O_CREAT, .len = 0644));
    int forbidden = ring_one(r, "allowed", SQE(.opcode = IORING_OP_OPENAT, .fd = AT_FDCWD, .addr = P("forbidden"), .open_flags = O_RDWR | O_CREAT, .len = 0644, .personality = personality)) ;
    close(forbidden);
    OK(seteuid(0));
    SHOW(ring_register(r->fd, IORING_UNREGISTER_PERSONALITY, NULL, personality));
    SHOW(ring_register(r->fd, IORING_UNREGISTER_PERSONALITY, NULL, personality));
    ring_one(r, "no personality", SQE(.opcode = IORING_OP_NOP, .personality = personality));
}

static void overflow(void)
{
    struct ring r = ring_of(4, 0);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 4; i++)
            ring_add(&r, SQE(.opcode = IORING_OP_NOP, .user_data = round * 4 + i));
        SHOW(ring_submit(&r, 0));
    }
    printf("ready %u, overflowed %d\n", ring_ready(&r), !!(*r.sq_flags & IORING_SQ_CQ_OVERFLOW));
    for (int i = 0; i < 20; i++) {
        struct completion cqe = ring_next(&r);
        if (cqe.user_data != (unsigned)i)
            printf("lost %d\n", i);
    }
    printf("ready %u, overflowed %d\n", ring_ready(&r), !!(*r.sq_flags & IORING_SQ_CQ_OVERFLOW));
    /* Numbers of entries that there are none of. */
    unsigned tail = *r.sq_tail;
    r.sq_array[tail & *r.sq_mask] = 77;
    *r.sq_tail = tail + 1;
    ring_add(&r, SQE(.opcode = IORING_OP_NOP, .user_data = 5));
    SHOW(ring_enter(r.fd, 2, 0, 0));
    SHOW(*r.sq_dropped);
    SHOW(ring_submit(&r, 1));
    ring_show(&r, "after", 1);
    ring_close(&r);
}

static void restricted(void)
{
    struct ring r = ring_of(8, IORING_SETUP_R_DISABLED);
    struct io_uring_restriction list[] = {
        { .opcode = IORING_RESTRICTION_SQE_OP, .sqe_op = IORING_OP_NOP },
        { .opcode = IORING_RESTRICTION_SQE_FLAGS_ALLOWED, .sqe_flags = IOSQE_IO_LINK },
        { .opcode = IORING_RESTRICTION_REGISTER_OP, .register_op = IORING_REGISTER_ENABLE_RINGS },
    };
    SHOW(ring_submit(&r, 1));
    SHOW(ring_register(r.fd, IORING_REGISTER_RESTRICTIONS, list, 3));
    SHOW(ring_register(r.fd, IORING_REGISTER_RESTRICTIONS, list, 3));
    SHOW(ring_register(r.fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0));
    SHOW(ring_register(r.fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0));
    SHOW(ring_register(r.fd, IORING_REGISTER_PERSONALITY, NULL, 0));
    ring_one(&r, "allowed", SQE(.opcode = IORING_OP_NOP));
    ring_one(&r, "refused", SQE(.opcode = IORING_OP_READ, .fd = 0));
    ring_one(&r, "refused flag", SQE(.opcode = IORING_OP_NOP, .flags = IOSQE_ASYNC));
    ring_close(&r);
}

int main(void)
{
    refusals();
    struct ring r = ring_of(8, 0);
    files(&r);
    links(&r);
    waiting(&r);
    polls(&r);
    timeouts(&r);
    registered(&r);
    ring_close(&r);
    r = ring_of(8, 0);
    drains(&r);
    ring_close(&r);
    overflow();
    restricted();
    return 0;
}
