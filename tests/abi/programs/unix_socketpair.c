/* Connected pairs of local sockets: streams, datagrams and sequences of packets, what ends them, their options, what goes
 * along with messages, and sockets that only messages hold. */
#include "abi.h"
#include <sys/socket.h>
#include <sys/un.h>

static const char *kind_name(int kind)
{
    return kind == SOCK_STREAM ? "stream" : kind == SOCK_DGRAM ? "datagram" : "seqpacket";
}

static void pair_of(int kind, int pair[2])
{
    if (socketpair(AF_UNIX, kind, 0, pair)) {
        perror("socketpair");
        exit(1);
    }
}

static void close_pair(int pair[2])
{
    close(pair[0]);
    close(pair[1]);
}

/* What poll says now. */
static void show_poll(const char *what, int fd)
{
    struct pollfd poller = {fd, POLLIN | POLLOUT | POLLPRI | POLLRDHUP | POLLRDNORM | POLLWRNORM | POLLWRBAND, 0};
    int count = poll(&poller, 1, 0);
    printf("%s: poll %d %x\n", what, count, poller.revents);
}

static void show_bytes(const char *what, int fd, size_t length, int flags)
{
    char buffer[256] = {0};
    errno = 0;
    ssize_t got = recv(fd, buffer, length, flags | MSG_DONTWAIT);
    printf("%s: %zd %s \"%.*s\"\n", what, got, got < 0 ? ERRNO_NAME(errno) : "", got > 0 ? (int)(got > 255 ? 255 : got) : 0,
           buffer);
}

static int pipes_signalled;

static void on_pipe(int number)
{
    pipes_signalled += number == SIGPIPE;
}

static void making(void)
{
    int pair[2];
    puts("- making");
    SHOW(socketpair(AF_UNIX, SOCK_STREAM | 0x100, 0, pair));
    SHOW(socketpair(AF_UNIX, SOCK_RDM, 0, pair));
    SHOW(socketpair(AF_UNIX, 12, 0, pair));
    SHOW(socketpair(AF_UNIX, SOCK_STREAM, 2, pair));
    SHOW(socketpair(77, SOCK_STREAM, 0, pair));
    SHOW(socketpair(-1, SOCK_STREAM, 0, pair));
    SHOW(socketpair(AF_UNIX, SOCK_STREAM, 0, (int *)8));
    SHOW(socketpair(AF_UNIX, SOCK_STREAM, AF_UNIX, pair));
    close_pair(pair);
    SHOW(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair));
    SHOW(fcntl(pair[0], F_GETFD));
    SHOW(fcntl(pair[1], F_GETFD));
    SHOW(fcntl(pair[0], F_GETFL) == (O_RDWR | O_NONBLOCK));
    struct stat status;
    SHOW(fstat(pair[0], &status));
    printf("mode %o links %ld size %ld blocks %ld\n", status.st_mode, (long)status.st_nlink, (long)status.st_size,
           (long)status.st_blocks);
    char link[64], text[64], expected[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", pair[0]);
    ssize_t length = readlink(link, text, sizeof text - 1);
    text[length > 0 ? length : 0] = 0;
    snprintf(expected, sizeof expected, "socket:[%lu]", (unsigned long)status.st_ino);
    TRUE(strcmp(text, expected) == 0);
    SHOW(open(link, O_RDWR));
    SHOW(lseek(pair[0], 0, SEEK_SET));
    SHOW(pread(pair[0], text, 1, 0));
    SHOW(ftruncate(pair[0], 0));
    SHOW(fsync(pair[0]));
    OK(mmap(0, 4096, PROT_READ, MAP_SHARED, pair[0], 0));
    close_pair(pair);
    SHOW(send(-1, "x", 1, 0));
    SHOW(send(0x7000, "x", 1, 0));
    int pipe_ends[2];
    SHOW(pipe(pipe_ends));
    SHOW(send(pipe_ends[1], "x", 1, 0));
    SHOW(shutdown(pipe_ends[1], SHUT_WR));
    close_pair(pipe_ends);
    struct rlimit limit, before;
    getrlimit(RLIMIT_NOFILE, &before);
    int lowest = dup(0);
    close(lowest);
    limit = before;
    limit.rlim_cur = lowest + 1;
    setrlimit(RLIMIT_NOFILE, &limit);
    SHOW(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    setrlimit(RLIMIT_NOFILE, &before);
}

static void transfer(int kind)
{
    int pair[2];
    pair_of(kind, pair);
    printf("- transfer: %s\n", kind_name(kind));
    show_poll("new", pair[0]);
    show_bytes("empty", pair[0], 10, 0);
    SHOW(write(pair[0], "hello ", 6));
    SHOW(send(pair[0], "world", 5, 0));
    show_poll("two messages", pair[1]);
    int queued = -1;
    SHOW(ioctl(pair[1], FIONREAD, &queued));
    SHOW(queued);
    show_bytes("peek", pair[1], 8, MSG_PEEK);
    show_bytes("peek all", pair[1], 100, MSG_PEEK);
    show_bytes("part", pair[1], 3, 0);
    show_bytes("rest", pair[1], 100, 0);
    show_bytes("more", pair[1], 100, 0);
    SHOW(write(pair[1], "", 0));
    show_poll("after an empty write", pair[0]);
    show_bytes("empty message", pair[0], 10, 0);
    show_bytes("after it", pair[0], 10, 0);
    struct iovec parts[3] = {{"ab", 2}, {"", 0}, {"cde", 3}};
    SHOW(writev(pair[0], parts, 3));
    show_bytes("truncated, whole length", pair[1], 2, MSG_TRUNC);
    show_bytes("after the truncated", pair[1], 10, 0);
    show_bytes("recv nothing", pair[1], 0, MSG_PEEK);
    /* A bad address. */
    SHOW(send(pair[0], (void *)8, 10, 0));
    SHOW(send(pair[0], "xyz", 3, 0));
    SHOW(recv(pair[1], (void *)8, 10, MSG_DONTWAIT));
    show_bytes("after the fault", pair[1], 10, 0);
    close_pair(pair);
    /* As big as it gets. */
    pair_of(kind, pair);
    static char big[400000];
    memset(big, 'q', sizeof big);
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    ssize_t sent = send(pair[0], big, sizeof big, 0);
    int error = errno;
    if (kind == SOCK_STREAM)
        printf("big: %s\n", sent > 100000 && sent < 300000 ? "part" : "?");
    else
        printf("big: %zd %s\n", sent, ERRNO_NAME(error));
    SHOW(send(pair[0], big, 150000, 0) > 0 || errno == EAGAIN);
    while (recv(pair[1], big, sizeof big, MSG_DONTWAIT) > 0)
        ;
    int small = 0;
    while (send(pair[0], "x", 1, 0) == 1)
        small++;
    printf("small ones until full: %d %s\n", small, ERRNO_NAME(errno));
    show_poll("full", pair[0]);
    int under_way = 0;
    ioctl(pair[0], TIOCOUTQ, &under_way);
    printf("under way: %s\n", under_way >= small ? "yes" : "no");
    for (int taken = 0; taken < small / 2; taken++)
        recv(pair[1], big, 1, 0);
    show_poll("half empty", pair[0]);
    while (recv(pair[1], big, 1, MSG_DONTWAIT) > 0)
        ;
    show_poll("empty again", pair[0]);
    close_pair(pair);
}

static void ending(int kind)
{
    int pair[2];
    printf("- ending: %s\n", kind_name(kind));
    /* Data stays readable after the other end is closed. */
    pair_of(kind, pair);
    send(pair[1], "last", 4, 0);
    close(pair[1]);
    show_poll("peer closed, data left", pair[0]);
    show_bytes("data left", pair[0], 10, 0);
    show_bytes("end", pair[0], 10, 0);
    show_bytes("end again", pair[0], 10, 0);
    show_poll("peer closed", pair[0]);
    pipes_signalled = 0;
    SHOW(write(pair[0], "x", 1));
    SHOW(pipes_signalled);
    SHOW(send(pair[0], "x", 1, 0));
    SHOW(pipes_signalled);
    SHOW(send(pair[0], "x", 1, MSG_NOSIGNAL));
    SHOW(pipes_signalled);
    SHOW(write(pair[0], "", 0));
    struct sockaddr_un name;
    socklen_t length = sizeof name;
    SHOW(getpeername(pair[0], (void *)&name, &length));
    close(pair[0]);
    /* Closed with data unread. */
    pair_of(kind, pair);
    send(pair[0], "unread", 6, 0);
    close(pair[1]);
    show_poll("peer closed with data unread", pair[0]);
    int error = -1;
    length = sizeof error;
    if (kind == SOCK_SEQPACKET) {
        SHOW(getsockopt(pair[0], SOL_SOCKET, SO_ERROR, &error, &length));
        printf("error %s\n", error ? ERRNO_NAME(error) : "none");
    } else {
        SHOW(recv(pair[0], &error, 1, MSG_DONTWAIT));
    }
    SHOW(recv(pair[0], &error, 1, MSG_DONTWAIT));
    show_poll("after that", pair[0]);
    close(pair[0]);
    /* Shut down. */
    pair_of(kind, pair);
    SHOW(shutdown(pair[0], 3));
    SHOW(shutdown(pair[0], -1));
    send(pair[0], "before", 6, 0);
    SHOW(shutdown(pair[0], SHUT_WR));
    show_poll("own sending shut", pair[0]);
    show_poll("peer's sending shut", pair[1]);
    SHOW(send(pair[0], "x", 1, MSG_NOSIGNAL));
    show_bytes("what was sent before", pair[1], 10, 0);
    show_bytes("end", pair[1], 10, 0);
    SHOW(send(pair[1], "back", 4, MSG_NOSIGNAL));
    show_bytes("other way", pair[0], 10, 0);
    SHOW(shutdown(pair[0], SHUT_RD));
    show_poll("own both shut", pair[0]);
    show_poll("peer's both shut", pair[1]);
    SHOW(send(pair[1], "x", 1, MSG_NOSIGNAL));
    show_bytes("own end", pair[0], 10, 0);
    close_pair(pair);
    pair_of(kind, pair);
    send(pair[1], "queued", 6, 0);
    SHOW(shutdown(pair[0], SHUT_RD));
    show_poll("receiving shut", pair[0]);
    show_bytes("what was queued", pair[0], 3, 0);
    show_bytes("the rest", pair[0], 10, 0);
    show_bytes("nothing", pair[0], 10, 0);
    close_pair(pair);
}

static int get_option(int fd, int name)
{
    int value = -1;
    socklen_t length = sizeof value;
    return getsockopt(fd, SOL_SOCKET, name, &value, &length) ? -errno : value;
}

static int set_option(int fd, int name, int value)
{
    return setsockopt(fd, SOL_SOCKET, name, &value, sizeof value);
}

static void options(void)
{
    int pair[2];
    puts("- options");
    pair_of(SOCK_SEQPACKET, pair);
    int numbers[] = {SO_TYPE, SO_DOMAIN, SO_PROTOCOL, SO_ERROR, SO_SNDBUF, SO_RCVBUF, SO_PASSCRED, SO_ACCEPTCONN, SO_RCVLOWAT,
                     SO_SNDLOWAT, SO_REUSEADDR, SO_KEEPALIVE, SO_BROADCAST, SO_PRIORITY, SO_OOBINLINE, SO_DEBUG, SO_DONTROUTE};
    for (size_t index = 0; index < sizeof numbers / sizeof *numbers; index++)
        printf("option %d: %d\n", numbers[index], get_option(pair[0], numbers[index]));
    SHOW(set_option(pair[0], SO_REUSEADDR, 7));
    SHOW(get_option(pair[0], SO_REUSEADDR));
    SHOW(set_option(pair[0], SO_KEEPALIVE, 1));
    SHOW(get_option(pair[0], SO_KEEPALIVE));
    SHOW(set_option(pair[0], SO_SNDBUF, 1));
    SHOW(get_option(pair[0], SO_SNDBUF));
    SHOW(set_option(pair[0], SO_RCVBUF, 1));
    SHOW(get_option(pair[0], SO_RCVBUF));
    SHOW(set_option(pair[0], SO_SNDBUF, 10000));
    SHOW(get_option(pair[0], SO_SNDBUF));
    SHOW(set_option(pair[0], SO_SNDBUF, 106496));
    SHOW(get_option(pair[0], SO_SNDBUF));
    SHOW(set_option(pair[0], SO_TYPE, 1));
    SHOW(set_option(pair[0], SO_ERROR, 1));
    SHOW(set_option(pair[0], 999, 1));
    SHOW(get_option(pair[0], 999));
    int value = 1;
    SHOW(setsockopt(pair[0], SOL_SOCKET, SO_KEEPALIVE, &value, 3));
    SHOW(setsockopt(pair[0], SOL_SOCKET, SO_KEEPALIVE, &value, -1));
    SHOW(setsockopt(pair[0], SOL_SOCKET, SO_KEEPALIVE, (void *)8, 4));
    SHOW(setsockopt(pair[0], 6, 1, &value, 4));
    socklen_t length = 2;
    value = -1;
    SHOW(getsockopt(pair[0], SOL_SOCKET, SO_TYPE, &value, &length));
    printf("length %d value %x\n", (int)length, value);
    length = -1;
    SHOW(getsockopt(pair[0], SOL_SOCKET, SO_TYPE, &value, &length));
    SHOW(getsockopt(pair[0], SOL_SOCKET, SO_TYPE, &value, (void *)8));
    length = 4;
    SHOW(getsockopt(pair[0], 6, 1, &value, &length));
    struct ucred maker;
    length = sizeof maker;
    SHOW(getsockopt(pair[0], SOL_SOCKET, SO_PEERCRED, &maker, &length));
    TRUE(maker.pid == getpid());
    SHOW(maker.uid);
    SHOW(maker.gid);
    struct linger linger = {1, 5};
    SHOW(setsockopt(pair[0], SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    struct linger read_back = {0};
    length = sizeof read_back;
    SHOW(getsockopt(pair[0], SOL_SOCKET, SO_LINGER, &read_back, &length));
    printf("linger %d %d\n", read_back.l_onoff, read_back.l_linger);
    struct timeval timeout = {0, 20000};
    SHOW(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout));
    timeout.tv_usec = 1000000;
    SHOW(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout));
    SHOW(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, 8));
    length = sizeof timeout;
    SHOW(getsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, &length));
    printf("timeout %ld.%06ld\n", (long)timeout.tv_sec, (long)timeout.tv_usec);
    SHOW(recv(pair[0], &value, 4, 0));
    struct sockaddr_un name;
    memset(&name, 0xee, sizeof name);
    length = sizeof name;
    SHOW(getsockname(pair[0], (void *)&name, &length));
    printf("length %d family %d\n", (int)length, name.sun_family);
    length = sizeof name;
    SHOW(getpeername(pair[0], (void *)&name, &length));
    printf("length %d\n", (int)length);
    length = -1;
    SHOW(getsockname(pair[0], (void *)&name, &length));
    length = 1;
    SHOW(getsockname(pair[0], (void *)&name, &length));
    printf("length %d\n", (int)length);
    send(pair[1], "x", 1, 0);
    length = sizeof name;
    SHOW(recvfrom(pair[0], &value, 4, 0, (void *)&name, &length));
    printf("length %d\n", (int)length);
    memset(&name, 0, sizeof name);
    name.sun_family = AF_UNIX;
    strcpy(name.sun_path, "/nonexistent");
    SHOW(sendto(pair[0], "x", 1, 0, (void *)&name, sizeof name));
    close_pair(pair);
    pair_of(SOCK_STREAM, pair);
    SHOW(sendto(pair[0], "x", 1, 0, (void *)&name, sizeof name));
    SHOW(sendto(pair[0], "x", 1, 0, (void *)&name, 1000));
    SHOW(sendto(pair[0], "x", 1, 0, (void *)8, sizeof name));
    close_pair(pair);
}

/* Sends bytes with descriptors. */
static ssize_t send_files(int socket, const char *text, const int *files, int count)
{
    char control[CMSG_SPACE(sizeof(int) * 300)] = {0};
    struct iovec part = {(void *)text, strlen(text)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE(sizeof(int) * count)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * count);
    if (count)
        memcpy(CMSG_DATA(header), files, sizeof(int) * count);
    return sendmsg(socket, &message, MSG_NOSIGNAL);
}

/* Receives, shows what came, and closes the descriptors; returns the number of them. */
static int receive_files(const char *what, int socket, size_t length, size_t room, int flags)
{
    char bytes[256] = {0}, control[2048] = {0};
    struct iovec part = {bytes, length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = room};
    errno = 0;
    ssize_t got = recvmsg(socket, &message, flags | MSG_DONTWAIT);
    int error = errno, files = 0;
    printf("%s: %zd %s \"%s\"", what, got, got < 0 ? ERRNO_NAME(error) : "", bytes);
    if (got >= 0) {
        printf(" flags %x control %zu name %d", message.msg_flags, (size_t)message.msg_controllen, (int)message.msg_namelen);
        for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
            printf(" [%d:%d %zu", header->cmsg_level, header->cmsg_type, (size_t)header->cmsg_len);
            if (header->cmsg_type == SCM_RIGHTS) {
                int count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
                for (int index = 0; index < count; index++) {
                    int fd;
                    memcpy(&fd, CMSG_DATA(header) + index * sizeof fd, sizeof fd);
                    if (index < 4)
                        printf(" fd%s", fcntl(fd, F_GETFD) & FD_CLOEXEC ? "(cloexec)" : "");
                    close(fd);
                }
                files += count;
            } else {
                struct ucred sender;
                memcpy(&sender, CMSG_DATA(header), sizeof sender);
                printf(" %s %d %d", sender.pid == getpid() ? "self" : sender.pid ? "other" : "unknown", sender.uid, sender.gid);
            }
            printf("]");
        }
    }
    puts("");
    return files;
}

static void passing(int kind)
{
    int pair[2], ends[2];
    printf("- passing: %s\n", kind_name(kind));
    pair_of(kind, pair);
    pipe(ends);
    SHOW(send_files(pair[0], "one", ends, 1));
    SHOW(send_files(pair[0], "two", ends, 2));
    SHOW(send(pair[0], "none", 4, 0));
    receive_files("peek", pair[1], 100, 200, MSG_PEEK);
    receive_files("first", pair[1], 100, 200, 0);
    receive_files("second", pair[1], 100, 200, MSG_CMSG_CLOEXEC);
    receive_files("third", pair[1], 100, 200, 0);
    /* The part that a descriptor comes with. */
    send_files(pair[0], "abcdef", ends, 2);
    receive_files("a part of it", pair[1], 2, 200, 0);
    receive_files("the rest", pair[1], 100, 200, 0);
    /* Room for less. */
    send_files(pair[0], "less", ends, 2);
    receive_files("room for one", pair[1], 100, CMSG_LEN(sizeof(int)), 0);
    send_files(pair[0], "less", ends, 2);
    receive_files("room for a header", pair[1], 100, CMSG_LEN(0), 0);
    send_files(pair[0], "less", ends, 2);
    receive_files("room for nothing", pair[1], 100, 0, 0);
    send_files(pair[0], "read", ends, 1);
    char text[8] = {0};
    SHOW(read(pair[1], text, 8));
    /* What is passed works. */
    send_files(pair[0], "w", ends + 1, 1);
    close(ends[1]);
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec part = {text, sizeof text};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    SHOW(recvmsg(pair[1], &message, 0));
    int passed;
    memcpy(&passed, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof passed);
    SHOW(write(passed, "through", 7));
    close(passed);
    SHOW(read(ends[0], text, 8));
    SHOW(read(ends[0], text, 8));
    close(ends[0]);
    /* Errors. */
    int bad[300];
    for (int index = 0; index < 300; index++)
        bad[index] = 0;
    SHOW(send_files(pair[0], "x", bad, 253));
    SHOW(receive_files("many", pair[1], 10, 2048, 0));
    SHOW(send_files(pair[0], "x", bad, 254));
    bad[0] = -1;
    SHOW(send_files(pair[0], "x", bad, 1));
    bad[0] = 999;
    SHOW(send_files(pair[0], "x", bad, 1));
    SHOW(send_files(pair[0], "x", bad, 0));
    receive_files("of none", pair[1], 10, 100, 0);
    struct cmsghdr header = {CMSG_LEN(0) - 1, SOL_SOCKET, SCM_RIGHTS};
    struct msghdr odd = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &header, .msg_controllen = sizeof header};
    SHOW(sendmsg(pair[0], &odd, 0));
    header.cmsg_len = 100;
    SHOW(sendmsg(pair[0], &odd, 0));
    header = (struct cmsghdr){CMSG_LEN(0), SOL_SOCKET, 77};
    SHOW(sendmsg(pair[0], &odd, 0));
    header = (struct cmsghdr){CMSG_LEN(0), 5, 77};
    SHOW(sendmsg(pair[0], &odd, 0));
    receive_files("of another level", pair[1], 10, 100, 0);
    odd.msg_controllen = 5;
    SHOW(sendmsg(pair[0], &odd, 0));
    receive_files("a short one", pair[1], 10, 100, 0);
    odd = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1025};
    SHOW(sendmsg(pair[0], &odd, 0));
    SHOW(recvmsg(pair[0], &odd, 0));
    SHOW(sendmsg(pair[0], (void *)8, 0));
    SHOW(recvmsg(pair[0], (void *)8, 0));
    close_pair(pair);
}

static ssize_t send_identity(int socket, pid_t pid, uid_t uid, gid_t gid)
{
    char control[CMSG_SPACE(sizeof(struct ucred))] = {0};
    struct iovec part = {"me", 2};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_CREDENTIALS;
    header->cmsg_len = CMSG_LEN(sizeof(struct ucred));
    struct ucred claim = {pid, uid, gid};
    memcpy(CMSG_DATA(header), &claim, sizeof claim);
    return sendmsg(socket, &message, 0);
}

static void identities(int kind)
{
    int pair[2];
    printf("- identities: %s\n", kind_name(kind));
    pair_of(kind, pair);
    write(pair[0], "before", 6);
    set_option(pair[1], SO_PASSCRED, 1);
    SHOW(get_option(pair[1], SO_PASSCRED));
    receive_files("sent before it was wanted", pair[1], 100, 200, 0);
    write(pair[0], "plain", 5);
    receive_files("plain", pair[1], 100, 200, 0);
    SHOW(send_identity(pair[0], getpid(), 0, 0));
    SHOW(send_identity(pair[0], getpid(), 1234, 5678));
    write(pair[0], "self", 4);
    receive_files("self", pair[1], 100, 200, 0);
    receive_files("claimed", pair[1], 100, 200, 0);
    receive_files("self again", pair[1], 100, 200, 0);
    int file = 0;
    send_files(pair[0], "both", &file, 1);
    receive_files("with a file", pair[1], 100, 200, 0);
    write(pair[0], "cut", 3);
    receive_files("cut short", pair[1], 100, 20, 0);
    write(pair[0], "none", 4);
    receive_files("without room", pair[1], 100, 0, 0);
    SHOW(send_identity(pair[0], 999999, 0, 0));
    pid_t child = CHILD({
        setresgid(65534, 65534, 65534);
        setresuid(65534, 65534, 65534);
        SHOW(send_identity(pair[0], getpid(), 0, 0));
        SHOW(send_identity(pair[0], getppid(), 65534, 65534));
        SHOW(send_identity(pair[0], getpid(), 65534, 0));
        SHOW(send_identity(pair[0], getpid(), 65534, 65534));
    });
    REAP(child);
    receive_files("from the child", pair[1], 100, 200, 0);
    close_pair(pair);
}

static void *write_much(void *argument)
{
    static char bytes[700000];
    memset(bytes, 'w', sizeof bytes);
    ssize_t sent = write(*(int *)argument, bytes, sizeof bytes);
    printf("the writer wrote %zd\n", sent);
    return NULL;
}

static void on_alarm(int number)
{
    (void)number;
}

static void waiting(void)
{
    int pair[2];
    puts("- waiting");
    pair_of(SOCK_STREAM, pair);
    pthread_t thread;
    pthread_create(&thread, NULL, write_much, pair);
    static char bytes[700000];
    ssize_t got = recv(pair[1], bytes, sizeof bytes, MSG_WAITALL);
    pthread_join(thread, NULL);
    printf("received %zd, right: %s\n", got, got == sizeof bytes && memchr(bytes, 0, sizeof bytes) == NULL ? "yes" : "no");
    /* A reader learns of the end. */
    pid_t child = CHILD({
        close(pair[1]);
        char byte;
        SHOW(read(pair[0], &byte, 1));
    });
    close(pair[0]);
    close(pair[1]);
    REAP(child);
    /* A writer does. */
    pair_of(SOCK_STREAM, pair);
    child = CHILD({
        close(pair[1]);
        signal(SIGPIPE, SIG_IGN);
        while (write(pair[0], bytes, sizeof bytes) > 0)
            ;
        printf("the writer's end: %s\n", ERRNO_NAME(errno));
    });
    close(pair[0]);
    recv(pair[1], bytes, 100, MSG_WAITALL);
    close(pair[1]);
    REAP(child);
    /* A signal interrupts. */
    pair_of(SOCK_DGRAM, pair);
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {{0, 20000}, {0, 20000}};
    setitimer(ITIMER_REAL, &timer, NULL);
    SHOW(recv(pair[0], bytes, 1, 0));
    SHOW(recv(pair[0], bytes, 1, MSG_WAITALL | MSG_PEEK));
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    struct timeval timeout = {5, 0};
    setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    SHOW(recv(pair[0], bytes, 1, 0));
    memset(&timer, 0, sizeof timer);
    setitimer(ITIMER_REAL, &timer, NULL);
    close_pair(pair);
}

static void watching(void)
{
    int pair[2];
    puts("- watching");
    pair_of(SOCK_STREAM, pair);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    SHOW(epoll_ctl(epoll, EPOLL_CTL_ADD, pair[0], &event));
    SHOW(epoll_wait(epoll, &event, 1, 0));
    printf("events %x\n", event.events);
    SHOW(epoll_wait(epoll, &event, 1, 0));
    write(pair[1], "x", 1);
    SHOW(epoll_wait(epoll, &event, 1, 0));
    printf("events %x\n", event.events);
    SHOW(epoll_wait(epoll, &event, 1, 0));
    shutdown(pair[1], SHUT_WR);
    SHOW(epoll_wait(epoll, &event, 1, 0));
    printf("events %x\n", event.events);
    close(pair[1]);
    SHOW(epoll_wait(epoll, &event, 1, 0));
    printf("events %x\n", event.events);
    close(pair[0]);
    SHOW(epoll_wait(epoll, &event, 1, 0));
    close(epoll);
}

static void several(void)
{
    int pair[2];
    puts("- several at once");
    pair_of(SOCK_DGRAM, pair);
    char in[3][8] = {0};
    struct iovec out_parts[3] = {{"a", 1}, {"bc", 2}, {"def", 3}};
    struct iovec in_parts[3] = {{in[0], 8}, {in[1], 8}, {in[2], 2}};
    struct mmsghdr out[3] = {0}, back[3] = {0};
    for (int index = 0; index < 3; index++) {
        out[index].msg_hdr = (struct msghdr){.msg_iov = &out_parts[index], .msg_iovlen = 1};
        back[index].msg_hdr = (struct msghdr){.msg_iov = &in_parts[index], .msg_iovlen = 1};
    }
    SHOW(sendmmsg(pair[0], out, 3, 0));
    printf("lengths %u %u %u\n", out[0].msg_len, out[1].msg_len, out[2].msg_len);
    SHOW(recvmmsg(pair[1], back, 2, 0, NULL));
    SHOW(recvmmsg(pair[1], back + 2, 1, MSG_WAITFORONE, NULL));
    printf("lengths %u %u %u \"%s\" \"%s\" \"%.2s\" flags %x\n", back[0].msg_len, back[1].msg_len, back[2].msg_len, in[0],
           in[1], in[2], back[2].msg_hdr.msg_flags);
    SHOW(recvmmsg(pair[1], back, 3, MSG_DONTWAIT, NULL));
    send(pair[0], "x", 1, 0);
    SHOW(recvmmsg(pair[1], back, 3, MSG_WAITFORONE, NULL));
    close_pair(pair);
}

static long open_files(void)
{
    FILE *file = fopen("/proc/sys/fs/file-nr", "r");
    long count = -1;
    if (!file || fscanf(file, "%ld", &count) != 1)
        return -1;
    fclose(file);
    return count;
}

/* Sockets that are only in messages to each other must not stay for ever. */
static void loops(void)
{
    puts("- loops");
    long before = open_files();
    for (int round = 0; round < 2000; round++) {
        int one[2], two[2];
        pair_of(round % 2 ? SOCK_STREAM : SOCK_DGRAM, one);
        pair_of(SOCK_STREAM, two);
        send_files(one[0], "own end", &one[1], 1);
        send_files(one[1], "other end", &one[1], 1);
        send_files(two[0], "across", one, 2);
        send_files(one[0], "back", two, 2);
        close_pair(one);
        close_pair(two);
    }
    /* The end of a socket is what starts a search. */
    int last[2];
    for (int round = 0; round < 10 || (open_files() - before >= 500 && round < 5000); round++) {
        pair_of(SOCK_STREAM, last);
        close_pair(last);
        usleep(10000);
    }
    printf("left over: %s\n", open_files() - before < 500 ? "little" : "much");
    /* A long chain: each one in the inbox of the next. */
    int previous[2], next[2];
    pair_of(SOCK_STREAM, previous);
    int sent = 0;
    for (int length = 0; length < 1500; length++) {
        pair_of(SOCK_STREAM, next);
        sent += send_files(next[0], "chain", previous, 2) == 5;
        close_pair(previous);
        previous[0] = next[0];
        previous[1] = next[1];
    }
    TRUE(sent > 0);
    close_pair(previous);
    for (int round = 0; round < 10 || (open_files() - before >= 500 && round < 5000); round++) {
        pair_of(SOCK_STREAM, last);
        close_pair(last);
        usleep(10000);
    }
    printf("left over: %s\n", open_files() - before < 500 ? "little" : "much");
    /* One that lies in a message is still alive. */
    int outer[2], inner[2];
    pair_of(SOCK_STREAM, outer);
    pair_of(SOCK_STREAM, inner);
    send_files(outer[0], "inner", inner, 1);
    close(inner[0]);
    SHOW(send(inner[1], "to a socket in a message", 24, MSG_NOSIGNAL));
    for (int round = 0; round < 3; round++) {
        pair_of(SOCK_STREAM, last);
        close_pair(last);
    }
    char control[CMSG_SPACE(sizeof(int))], text[64] = {0};
    struct iovec part = {text, sizeof text};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    SHOW(recvmsg(outer[1], &message, 0));
    int passed;
    memcpy(&passed, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof passed);
    show_bytes("received", passed, 64, 0);
    close(passed);
    close(inner[1]);
    close_pair(outer);
    /* As many as one may have open, and no more. */
    pid_t child = CHILD({
        struct rlimit limit = {20, 20};
        setrlimit(RLIMIT_NOFILE, &limit);
        setresuid(65534, 65534, 65534);
        pair_of(SOCK_DGRAM, outer);
        int count = 0;
        while (count < 100 && send_files(outer[0], "x", outer, 1) == 1)
            count++;
        printf("in messages: %d %s\n", count, ERRNO_NAME(errno));
    });
    REAP(child);
}

int main(void)
{
    const int kinds[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    struct sigaction action = {.sa_handler = on_pipe};
    sigaction(SIGPIPE, &action, NULL);
    making();
    for (int index = 0; index < 3; index++) {
        transfer(kinds[index]);
        ending(kinds[index]);
        passing(kinds[index]);
        identities(kinds[index]);
    }
    options();
    waiting();
    watching();
    several();
    loops();
    return 0;
}
