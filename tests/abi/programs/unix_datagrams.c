/* Datagrams between local sockets: to names and to what a socket is connected to, who is told of what, how many may wait, and what polls say. */
#include "abi.h"
#include <sys/socket.h>
#include <sys/un.h>

static socklen_t named(struct sockaddr_un *address, const char *name)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    if (name[0] == '@') {
        int length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "%s.%d", name + 1, getpid());
        return offsetof(struct sockaddr_un, sun_path) + 1 + length;
    }
    strcpy(address->sun_path, name);
    return offsetof(struct sockaddr_un, sun_path) + strlen(name) + 1;
}

static int make(const char *name)
{
    struct sockaddr_un address;
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (fd < 0 || (name && bind(fd, (void *)&address, named(&address, name)))) {
        perror("make");
        exit(1);
    }
    return fd;
}

static int connect_to(int fd, const char *name)
{
    struct sockaddr_un address;
    socklen_t length = named(&address, name);
    return connect(fd, (void *)&address, length);
}

static int disconnect(int fd)
{
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    return connect(fd, &none, sizeof none);
}

static ssize_t send_to(int fd, const char *name, const char *text, int flags)
{
    struct sockaddr_un address;
    socklen_t length = named(&address, name);
    return sendto(fd, text, strlen(text), flags | MSG_DONTWAIT | MSG_NOSIGNAL, (void *)&address, length);
}

static ssize_t put(int fd, const char *text)
{
    return send(fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void show_received(const char *what, int fd, size_t room, int flags)
{
    char buffer[64] = {0};
    struct sockaddr_un from = {0};
    socklen_t length = sizeof from;
    ssize_t got = recvfrom(fd, buffer, room, flags | MSG_DONTWAIT, (void *)&from, &length);
    if (got < 0) {
        printf("%s: %s\n", what, ERRNO_NAME(errno));
        return;
    }
    const char *name = from.sun_path[0] ? from.sun_path : from.sun_path + 1;
    char *dot = strchr(name, '.');
    printf("%s: %zd \"%.*s\" from %.*s%s\n", what, got, (int)(got < (ssize_t)room ? got : (ssize_t)room), buffer,
           length == 0 ? 0 : dot ? (int)(dot - name) : (int)strlen(name), name, length == 0 ? "nobody" : "");
}

static void show_poll(const char *what, int fd)
{
    struct pollfd poller = {fd, POLLIN | POLLOUT | POLLPRI | POLLRDHUP | POLLRDNORM | POLLWRNORM | POLLWRBAND, 0};
    int count = poll(&poller, 1, 0);
    printf("%s: poll %d %x\n", what, count, poller.revents);
}

static int option(int fd, int name)
{
    int value = -7;
    socklen_t length = sizeof value;
    return getsockopt(fd, SOL_SOCKET, name, &value, &length) ? -1 : value;
}

static void by_name(void)
{
    puts("- by name");
    int fd = make("socket"), other = make(NULL), third = make("@third");
    show_poll("fresh", other);
    SHOW(put(other, "x"));
    SHOW(send_to(other, "socket", "unnamed", 0));
    SHOW(send_to(third, "socket", "from the third", 0));
    SHOW(send_to(fd, "@third", "back", 0));
    SHOW(send_to(fd, "socket", "own", 0));
    show_poll("with messages", fd);
    int count;
    SHOW(ioctl(fd, FIONREAD, &count));
    SHOW(count);
    show_received("peek", fd, 64, MSG_PEEK);
    show_received("first", fd, 64, 0);
    show_received("cut", fd, 4, 0);
    show_received("own", fd, 2, MSG_TRUNC);
    show_received("none", fd, 64, 0);
    show_received("third", third, 64, 0);
    SHOW(send_to(other, "missing", "x", 0));
    SHOW(send_to(other, "@missing", "x", 0));
    SHOW(send_to(other, "/", "x", 0));
    SHOW(send_to(other, "socket", "", 0));
    show_received("empty", fd, 64, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    SHOW(sendto(other, "x", 1, 0, (void *)&address, 2));
    SHOW(sendto(other, "x", 1, 0, (void *)&address, 120));
    SHOW(sendto(other, "x", 1, 0, (void *)&address, 200));
    SHOW(sendto(other, "x", 1, 0, (void *)8, 20));
    address.sun_family = AF_INET;
    SHOW(sendto(other, "x", 1, 0, (void *)&address, 20));
    int stream = socket(AF_UNIX, SOCK_STREAM, 0);
    SHOW(bind(stream, (void *)&address, named(&address, "stream")));
    SHOW(send_to(other, "stream", "x", 0));
    SHOW(connect_to(other, "stream"));
    SHOW(sendto(stream, "x", 1, MSG_NOSIGNAL, (void *)&address, sizeof address));
    close(stream);
    SHOW(unlink("stream"));
    close(fd);
    SHOW(send_to(other, "socket", "x", 0));
    SHOW(unlink("socket"));
    close(other);
    close(third);
}

static void connected(void)
{
    puts("- connected");
    int fd = make("socket"), other = make("other"), third = make("third");
    char buffer[8];
    struct sockaddr_un address;
    socklen_t length = sizeof address;
    SHOW(getpeername(fd, (void *)&address, &length));
    SHOW(connect_to(fd, "other"));
    length = sizeof address;
    SHOW(getpeername(fd, (void *)&address, &length));
    printf("%s\n", address.sun_path);
    SHOW(put(fd, "connected"));
    SHOW(send_to(fd, "third", "elsewhere", 0));
    show_received("other", other, 64, 0);
    show_received("third", third, 64, 0);
    /* It takes messages of its peer only. */
    SHOW(send_to(third, "socket", "stranger", 0));
    SHOW(connect_to(third, "socket"));
    SHOW(send_to(other, "socket", "peer", 0));
    SHOW(send_to(fd, "socket", "own", 0));
    show_received("peer's", fd, 64, 0);
    SHOW(connect_to(other, "socket"));
    SHOW(put(other, "mutual"));
    show_received("mutual", fd, 64, 0);
    /* What is there when it is connected elsewhere is void, and the one before is told. */
    SHOW(put(other, "void"));
    SHOW(connect_to(fd, "third"));
    show_received("elsewhere", fd, 64, 0);
    show_poll("told", other);
    SHOW(option(other, SO_ERROR));
    SHOW(put(other, "x"));
    SHOW(send_to(third, "socket", "third", 0));
    show_received("third's", fd, 64, 0);
    SHOW(disconnect(fd));
    SHOW(put(fd, "x"));
    length = sizeof address;
    SHOW(getpeername(fd, (void *)&address, &length));
    SHOW(send_to(other, "socket", "again", 0));
    show_received("again", fd, 64, 0);
    SHOW(disconnect(fd));
    SHOW(connect(fd, (void *)&address, 1));
    /* A peer that goes. */
    SHOW(connect_to(fd, "third"));
    close(third);
    show_poll("peer closed", fd);
    length = sizeof address;
    SHOW(getpeername(fd, (void *)&address, &length));
    SHOW(put(fd, "x"));
    SHOW(put(fd, "x"));
    SHOW(getpeername(fd, (void *)&address, &length));
    /* Shut down. */
    SHOW(connect_to(fd, "other"));
    SHOW(disconnect(other));
    SHOW(shutdown(other, SHUT_RD));
    SHOW(put(fd, "x"));
    SHOW(put(other, "x"));
    SHOW(recv(other, buffer, 1, MSG_DONTWAIT));
    SHOW(recv(other, buffer, 1, 0));
    show_poll("shut for reading", other);
    SHOW(shutdown(fd, SHUT_WR));
    SHOW(put(fd, "x"));
    SHOW(send_to(other, "socket", "x", 0));
    show_received("after shutdown", fd, 64, 0);
    show_poll("shut for writing", fd);
    close(fd);
    close(other);
    SHOW(unlink("socket"));
    SHOW(unlink("other"));
    SHOW(unlink("third"));
    /* Pairs are connected as others are. */
    int pair[2];
    SHOW(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    third = make("third");
    SHOW(bind(pair[0], (void *)&address, named(&address, "first")));
    SHOW(send_to(third, "first", "x", 0));
    SHOW(send_to(pair[1], "first", "named", 0));
    SHOW(send_to(pair[0], "third", "out", 0));
    show_received("named", pair[0], 64, 0);
    show_received("out", third, 64, 0);
    SHOW(put(pair[0], "in"));
    show_received("in", pair[1], 64, 0);
    SHOW(connect_to(pair[0], "third"));
    SHOW(put(pair[0], "third"));
    show_received("third", third, 64, 0);
    SHOW(put(pair[1], "left"));
    SHOW(send_to(third, "first", "answer", 0));
    show_received("answer", pair[0], 64, 0);
    SHOW(disconnect(pair[0]));
    SHOW(put(pair[1], "again"));
    show_received("again", pair[0], 64, 0);
    SHOW(unlink("first"));
    SHOW(unlink("third"));
    close(pair[0]);
    SHOW(put(pair[1], "x"));
    SHOW(put(pair[1], "x"));
    close(pair[1]);
    close(third);
}

/* Sends until it fails; how many, and why it failed. */
static int fill(int fd, const char *name)
{
    int count = 0;
    while (count < 100000 && (name ? send_to(fd, name, "m", 0) : put(fd, "m")) == 1)
        count++;
    printf("after %s: %s\n", count == 100000 ? "very many" : "some", ERRNO_NAME(errno));
    return count;
}

static void limits(void)
{
    puts("- limits");
    int limit = atoi(get_text("/proc/sys/net/unix/max_dgram_qlen"));
    TRUE(limit >= 10);
    int fd = make("socket"), other = make("other"), third = make(NULL);
    SHOW(fill(other, "socket") == limit + 1);
    SHOW(put(third, "x"));
    SHOW(send_to(third, "socket", "x", 0));
    show_poll("not connected", third);
    SHOW(connect_to(third, "socket"));
    show_poll("to a full one", third);
    SHOW(send_to(fd, "socket", "own", 0));
    SHOW(connect_to(other, "socket"));
    show_poll("the other, to a full one", other);
    SHOW(connect_to(fd, "other"));
    show_poll("mutual", other);
    SHOW(put(other, "mutual"));
    SHOW(disconnect(fd));
    show_received("void", fd, 64, 0);
    SHOW(fill(third, NULL) == limit + 1);
    show_poll("full again", third);
    /* Who waits for room is woken by a receiver. */
    pid_t child = CHILD(SHOW(send(third, "late", 4, 0)));
    TRUE(wait_state(child, "S"));
    struct pollfd poller = {third, POLLOUT, 0};
    SHOW(poll(&poller, 1, 0));
    char byte;
    int got = recv(fd, &byte, 1, MSG_DONTWAIT);
    REAP(child);
    SHOW(got);
    child = CHILD(SHOW(poll(&poller, 1, -1)));
    TRUE(wait_state(child, "S"));
    for (int count = 0; count < limit + 1; count++) {
        if (recv(fd, &byte, 1, MSG_DONTWAIT) != 1)
            printf("message %d is missing\n", count);
    }
    REAP(child);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLOUT | EPOLLET};
    SHOW(epoll_ctl(epoll, EPOLL_CTL_ADD, third, &event));
    SHOW(epoll_wait(epoll, &event, 1, -1));
    SHOW(fill(third, NULL) == limit + 1);
    SHOW(epoll_wait(epoll, &event, 1, 0));
    show_received("one", fd, 64, 0);
    SHOW(epoll_wait(epoll, &event, 1, -1));
    close(epoll);
    /* Time is limited. */
    SHOW(put(third, "m"));
    struct timeval soon = {0, 20000};
    SHOW(setsockopt(third, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon));
    SHOW(send(third, "m", 1, 0));
    soon.tv_usec = 0;
    SHOW(setsockopt(third, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon));
    /* Who waits is refused when the receiver goes. */
    child = CHILD({
        close(fd);
        SHOW(send(third, "m", 1, 0));
        SHOW(send(third, "m", 1, 0));
    });
    TRUE(wait_state(child, "S"));
    close(fd);
    REAP(child);
    close(other);
    close(third);
    SHOW(unlink("socket"));
    SHOW(unlink("other"));
    /* Too long for the buffer; and the buffer is full before the receiver. */
    fd = make("socket");
    other = make(NULL);
    SHOW(connect_to(other, "socket"));
    int bytes = 4096;
    SHOW(setsockopt(other, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes));
    SHOW(option(other, SO_SNDBUF));
    static char large[20000];
    SHOW(send(other, large, sizeof large, MSG_DONTWAIT));
    SHOW(send(other, large, 8192 - 32, MSG_DONTWAIT));
    SHOW(send(other, large, 1, MSG_DONTWAIT));
    show_poll("no room", other);
    SHOW(recv(fd, large, sizeof large, MSG_DONTWAIT));
    show_poll("room", other);
    SHOW(send(other, large, 1, MSG_DONTWAIT));
    /* The sender's end leaves its messages. */
    close(other);
    SHOW(recv(fd, large, sizeof large, MSG_DONTWAIT));
    close(fd);
    SHOW(unlink("socket"));
}

static void credentials(void)
{
    puts("- credentials");
    int fd = make("socket"), other = make(NULL), on = 1;
    SHOW(setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    SHOW(send_to(other, "socket", "x", 0));
    char byte;
    union { struct cmsghdr header; char bytes[CMSG_SPACE(sizeof(struct ucred))]; } control;
    struct iovec vector = {&byte, 1};
    struct sockaddr_un from;
    struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &vector, .msg_iovlen = 1,
                             .msg_control = &control, .msg_controllen = sizeof control};
    SHOW(recvmsg(fd, &message, 0));
    printf("name %u\n", message.msg_namelen);
    struct ucred *who = (void *)CMSG_DATA(&control.header);
    printf("process %s, user %d, group %d\n", who->pid == getpid() ? "own" : "another", (int)who->uid, (int)who->gid);
    /* A sender that wants to know gets a name. */
    SHOW(setsockopt(other, SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
    SHOW(send_to(other, "socket", "y", 0));
    message.msg_namelen = sizeof from;
    message.msg_controllen = sizeof control;
    SHOW(recvmsg(fd, &message, 0));
    printf("name %u, first %d\n", message.msg_namelen, from.sun_path[0]);
    socklen_t length = sizeof *who;
    struct ucred peer;
    SHOW(getsockopt(other, SOL_SOCKET, SO_PEERCRED, &peer, &length));
    printf("peer %d %d %d\n", peer.pid, (int)peer.uid, (int)peer.gid);
    close(fd);
    close(other);
    SHOW(unlink("socket"));
}

int main(void)
{
    char directory[] = "/tmp/unix_datagrams.XXXXXX";
    if (!mkdtemp(directory) || chdir(directory)) {
        perror("directory");
        return 1;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    by_name();
    connected();
    limits();
    credentials();
    return 0;
}
