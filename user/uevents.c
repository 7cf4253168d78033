/* Events of devices by netlink: what their messages are, who gets them, what happens to who is too slow, and what sockets say that are asked for what
 * they can't do.
 *
 * abi: guest
 */
#include "guest.h"
#include <linux/filter.h>
#include <linux/loop.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define LOOP "/devices/virtual/block/loop55"

static int control;

static void add(void)
{
    EXPECT(ioctl(control, LOOP_CTL_ADD, 55) == 55, "%s", ERRNO_NAME(errno));
}

static void take_away(void)
{
    EXPECT(ioctl(control, LOOP_CTL_REMOVE, 55) == 55, "%s", ERRNO_NAME(errno));
}

static int bind_to(int socket, unsigned port, unsigned groups)
{
    struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_pid = port, .nl_groups = groups};
    return bind(socket, (struct sockaddr *)&address, sizeof address);
}

static int listener(int flags)
{
    int new = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | flags, NETLINK_KOBJECT_UEVENT);
    EXPECT(new >= 0 && !bind_to(new, 0, 1), "%s", ERRNO_NAME(errno));
    return new;
}

/* A variable of the message. */
static const char *variable(const char *message, ssize_t length, const char *name)
{
    for (const char *at = message; at < message + length; at += strlen(at) + 1)
        if (!strncmp(at, name, strlen(name)) && at[strlen(name)] == '=')
            return at + strlen(name) + 1;
    return "-";
}

/* The next message that is about the test's device. */
static ssize_t next_message(int socket, char *message, size_t room)
{
    for (;;) {
        ssize_t length = recv(socket, message, room - 1, 0);
        if (length < 0)
            return length;
        message[length] = 0;
        if (strstr(message, LOOP))
            return length;
    }
}

static void messages(void)
{
    char message[2048], expected[256], seen[256];
    int first = listener(0), second = listener(0);
    int unbound = socket(AF_NETLINK, SOCK_DGRAM | SOCK_NONBLOCK, NETLINK_KOBJECT_UEVENT);
    add();
    ssize_t length = next_message(first, message, sizeof message);
    const char *begin = "add@" LOOP "\0ACTION=add\0DEVPATH=" LOOP "\0SUBSYSTEM=block\0MAJOR=7\0MINOR=55\0DEVNAME=loop55\0DEVTYPE=disk\0";
    size_t fixed = 2 * strlen(LOOP) + 5 + 11 + 9 + 16 + 8 + 9 + 15 + 13;
    EXPECT(length > (ssize_t)fixed && !memcmp(message, begin, fixed), "'%s' and '%s'", message, message + strlen(message) + 1);
    EXPECT(message[length - 1] == 0, "the last string has no end");
    long number = atol(variable(message, length, "SEQNUM"));
    snprintf(expected, sizeof expected, "SEQNUM=%ld", number);
    EXPECT(!strcmp(message + length - strlen(expected) - 1, expected), "the number comes last");
    EXPECT(atol(contents_of("/sys/kernel/uevent_seqnum")) >= number, "%s", contents_of("/sys/kernel/uevent_seqnum"));
    length = next_message(second, message, sizeof message);
    EXPECT(atol(variable(message, length, "SEQNUM")) == number, "%s", variable(message, length, "SEQNUM"));
    take_away();
    length = next_message(first, message, sizeof message);
    EXPECT(!strcmp(message, "remove@" LOOP) && atol(variable(message, length, "SEQNUM")) > number, "%s", message);
    next_message(second, message, sizeof message);
    EXPECT(recv(unbound, message, sizeof message, 0) == -1 && errno == EAGAIN, "%s", ERRNO_NAME(errno));

    /* By hand. */
    add();
    next_message(first, message, sizeof message);
    int fd = open("/sys" LOOP "/uevent", O_RDWR);
    const char *request = "change fe4d7c9d-b8c6-4a70-9ef1-3d8a58d18eed A=1 B=xyz\n";
    EXPECT(write(fd, request, strlen(request)) == (ssize_t)strlen(request), "%s", ERRNO_NAME(errno));
    length = next_message(first, message, sizeof message);
    EXPECT(!strcmp(message, "change@" LOOP), "%s", message);
    snprintf(seen, sizeof seen, "%s %s %s %s", variable(message, length, "SYNTH_UUID"), variable(message, length, "SYNTH_ARG_A"),
             variable(message, length, "SYNTH_ARG_B"), variable(message, length, "MAJOR"));
    EXPECT(!strcmp(seen, "fe4d7c9d-b8c6-4a70-9ef1-3d8a58d18eed 1 xyz 7"), "%s", seen);
    EXPECT(write(fd, "add", 3) == 3, "%s", ERRNO_NAME(errno));
    length = next_message(first, message, sizeof message);
    EXPECT(!strcmp(variable(message, length, "SYNTH_UUID"), "0"), "%s", variable(message, length, "SYNTH_UUID"));
    EXPECT(write(fd, "nonsense", 8) == -1 && errno == EINVAL, "%s", ERRNO_NAME(errno));
    EXPECT(write(fd, "add A=1", 7) == -1 && errno == EINVAL, "%s", ERRNO_NAME(errno));
    close(fd);
    take_away();
    next_message(first, message, sizeof message);
    /* Of a device on no bus. */
    fd = open("/sys/class/mem/null/uevent", O_WRONLY);
    EXPECT(write(fd, "change", 6) == 6, "%s", ERRNO_NAME(errno));
    close(fd);
    do
        length = recv(first, message, sizeof message, 0);
    while (length > 0 && !strstr(message, "/mem/null"));
    EXPECT(!strcmp(variable(message, length, "SUBSYSTEM"), "mem") && !strcmp(variable(message, length, "DEVNAME"), "null"), "%s", message);
    close(first), close(second), close(unbound);
}

/* How libudev receives. */
static void credentials(void)
{
    int fd = listener(SOCK_NONBLOCK), on = 1;
    EXPECT(!setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on), "%s", ERRNO_NAME(errno));
    EXPECT(recv(fd, 0, 0, MSG_PEEK | MSG_TRUNC) == -1 && errno == EAGAIN, "%s", ERRNO_NAME(errno));
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    EXPECT(epoll_wait(epoll, &event, 1, 0) == 0, "there is something to read");
    add();
    EXPECT(epoll_wait(epoll, &event, 1, -1) == 1 && event.events == EPOLLIN, "%x", event.events);
    ssize_t whole = recv(fd, 0, 0, MSG_PEEK | MSG_TRUNC);
    EXPECT(whole > 100, "%zd", whole);
    char message[2048], control_data[CMSG_SPACE(sizeof(struct ucred))];
    struct sockaddr_nl from;
    struct iovec vector = {message, sizeof message};
    struct msghdr header = {&from, sizeof from, &vector, 1, control_data, sizeof control_data, 0};
    EXPECT(recvmsg(fd, &header, 0) == whole, "%s", ERRNO_NAME(errno));
    EXPECT(header.msg_namelen == sizeof from && from.nl_family == AF_NETLINK && from.nl_pid == 0 && from.nl_groups == 1, "%u %u",
           from.nl_pid, from.nl_groups);
    struct cmsghdr *first = CMSG_FIRSTHDR(&header);
    EXPECT(first && first->cmsg_level == SOL_SOCKET && first->cmsg_type == SCM_CREDENTIALS, "no credentials");
    struct ucred who = {1, 1, 1};
    if (first)
        memcpy(&who, CMSG_DATA(first), sizeof who);
    EXPECT(who.pid == 0 && who.uid == 0 && who.gid == 0, "%d %u %u", who.pid, who.uid, who.gid);
    take_away();
    vector.iov_len = 6;
    EXPECT(recvmsg(fd, &header, 0) == 6 && header.msg_flags & MSG_TRUNC && !memcmp(message, "remove", 6), "%x", header.msg_flags);
    close(epoll), close(fd);
}

static void losses(void)
{
    char message[2048];
    int slow = listener(SOCK_NONBLOCK), fast = listener(SOCK_NONBLOCK), none = 0, size = 0;
    EXPECT(!setsockopt(slow, SOL_SOCKET, SO_RCVBUF, &none, sizeof none), "%s", ERRNO_NAME(errno));
    size = 1 << 20;
    EXPECT(!setsockopt(fast, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size), "%s", ERRNO_NAME(errno));
    socklen_t length = sizeof size;
    EXPECT(!getsockopt(fast, SOL_SOCKET, SO_RCVBUF, &size, &length) && size == 2 << 20, "%d", size);
    for (int round = 0; round < 20; round++)
        add(), take_away();
    struct pollfd polled = {slow, POLLIN, 0};
    EXPECT(poll(&polled, 1, 0) == 1 && polled.revents == (POLLIN | POLLERR), "%x", polled.revents);
    EXPECT(recv(slow, message, sizeof message, 0) == -1 && errno == ENOBUFS, "%s", ERRNO_NAME(errno));
    int few = 0, all = 0;
    long last = 0, gaps = 0;
    while (recv(slow, message, sizeof message, 0) > 0)
        few++;
    EXPECT(errno == EAGAIN && few > 0 && few < 40, "%d, then %s", few, ERRNO_NAME(errno));
    for (ssize_t got; (got = next_message(fast, message, sizeof message)) > 0; all++) {
        long number = atol(variable(message, got, "SEQNUM"));
        gaps += number <= last;
        last = number;
    }
    EXPECT(all == 40 && !gaps, "%d, %ld not in order", all, gaps);
    add();
    EXPECT(recv(slow, message, sizeof message, 0) > 0 && !strcmp(message, "add@" LOOP), "%s", ERRNO_NAME(errno));
    take_away();
    close(slow), close(fast);
}

static void refusals(void)
{
    char message[100];
    static char large[300000];
    EXPECT(socket(AF_NETLINK, SOCK_STREAM, NETLINK_KOBJECT_UEVENT) == -1 && errno == ESOCKTNOSUPPORT, "%s", ERRNO_NAME(errno));
    EXPECT(socket(AF_NETLINK, SOCK_RAW, NETLINK_FIREWALL) == -1 && errno == EPROTONOSUPPORT, "%s", ERRNO_NAME(errno));
    EXPECT(socket(AF_NETLINK, SOCK_RAW, 32) == -1 && errno == EPROTONOSUPPORT, "%s", ERRNO_NAME(errno));
    int pair[2];
    EXPECT(socketpair(AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT, pair) == -1 && errno == EOPNOTSUPP, "%s", ERRNO_NAME(errno));
    int fd = listener(SOCK_NONBLOCK), other = listener(SOCK_NONBLOCK), number = 0;
    struct sockaddr_nl address;
    socklen_t length = sizeof address;
    EXPECT(!getsockname(fd, (struct sockaddr *)&address, &length) && length == sizeof address, "%s", ERRNO_NAME(errno));
    EXPECT(address.nl_family == AF_NETLINK && address.nl_pid == (unsigned)getpid() && address.nl_groups == 1, "%u", address.nl_pid);
    getsockname(other, (struct sockaddr *)&address, &length);
    EXPECT(address.nl_pid > 1u << 31, "%u", address.nl_pid);
    EXPECT(!getpeername(fd, (struct sockaddr *)&address, &length) && !address.nl_pid && !address.nl_groups, "%u", address.nl_pid);
    EXPECT(bind_to(fd, 5, 1) == -1 && errno == EINVAL, "%s", ERRNO_NAME(errno));
    int third = socket(AF_NETLINK, SOCK_DGRAM, NETLINK_KOBJECT_UEVENT);
    EXPECT(bind_to(third, getpid(), 1) == -1 && errno == EADDRINUSE, "%s", ERRNO_NAME(errno));
    EXPECT(bind(third, (struct sockaddr *)&address, 11) == -1 && errno == EINVAL, "%s", ERRNO_NAME(errno));
    close(third);
    EXPECT(shutdown(fd, SHUT_RDWR) == -1 && errno == EOPNOTSUPP, "%s", ERRNO_NAME(errno));
    number = 33;
    EXPECT(setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &number, 4) == -1 && errno == EINVAL, "%s", ERRNO_NAME(errno));
    number = 2;
    EXPECT(!setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &number, 4), "%s", ERRNO_NAME(errno));
    EXPECT(setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &number, 4) == -1 && errno == ENOENT, "%s", ERRNO_NAME(errno));
    length = sizeof number;
    EXPECT(!getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &number, &length) && number == NETLINK_KOBJECT_UEVENT, "%d", number);
    EXPECT(!getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &number, &length) && number == AF_NETLINK, "%d", number);
    EXPECT(!getsockopt(fd, SOL_SOCKET, SO_TYPE, &number, &length) && number == SOCK_RAW, "%d", number);

    /* To the kernel, to a group, to each other. */
    EXPECT(send(fd, "abc", 3, 0) == 3, "%s", ERRNO_NAME(errno));
    EXPECT(send(fd, "", 0, 0) == -1 && errno == ENODATA, "%s", ERRNO_NAME(errno));
    EXPECT(send(fd, large, sizeof large, 0) == -1 && errno == EMSGSIZE, "%s", ERRNO_NAME(errno));
    struct sockaddr_nl group = {.nl_family = AF_NETLINK, .nl_groups = 2}, nobody = {.nl_family = AF_NETLINK, .nl_pid = 12345678};
    EXPECT(sendto(other, "group", 5, 0, (struct sockaddr *)&group, sizeof group) == 5, "%s", ERRNO_NAME(errno));
    length = sizeof address;
    EXPECT(recvfrom(fd, message, sizeof message, 0, (struct sockaddr *)&address, &length) == 5 && address.nl_groups == 2 && address.nl_pid,
           "%s", ERRNO_NAME(errno));
    EXPECT(sendto(fd, "abc", 3, 0, (struct sockaddr *)&nobody, sizeof nobody) == -1 && errno == ECONNREFUSED, "%s", ERRNO_NAME(errno));
    pid_t child = fork();
    if (!child) {
        int failed = setgid(65534) || setuid(65534);
        failed |= !(sendto(fd, "abc", 3, 0, (struct sockaddr *)&group, sizeof group) == -1 && errno == EPERM);
        failed |= send(fd, "abc", 3, 0) != 3;
        number = 1 << 20;
        failed |= !(setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &number, 4) == -1 && errno == EPERM);
        /* Everybody may listen. */
        listener(0);
        _exit(failed || verdict_failed);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && status == 0, "%x", status);
    close(fd), close(other);
}

/* Who waits is woken, and who sends and receives on several processors sees the numbers go up. */
static void waiting(void)
{
    enum { ROUNDS = 300 };
    char message[2048];
    int size = 1 << 22, fd = listener(0);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size);
    pid_t children[2];
    for (int index = 0; index < 2; index++)
        if (!(children[index] = fork())) {
            int uevent = open(index ? "/sys/class/mem/zero/uevent" : "/sys/class/mem/full/uevent", O_WRONLY);
            for (int round = 0; round < ROUNDS; round++)
                if (write(uevent, "change", 6) != 6)
                    _exit(1);
            _exit(0);
        }
    long last = 0, wrong = 0;
    for (int got = 0; got < 2 * ROUNDS;) {
        ssize_t length = recv(fd, message, sizeof message, 0);
        EXPECT(length > 0, "%s", ERRNO_NAME(errno));
        if (length <= 0)
            break;
        long number = atol(variable(message, length, "SEQNUM"));
        wrong += number <= last;
        last = number;
        got += !strcmp(variable(message, length, "SUBSYSTEM"), "mem");
    }
    EXPECT(!wrong, "%ld not in order", wrong);
    for (int index = 0; index < 2; index++) {
        int status;
        EXPECT(waitpid(children[index], &status, 0) == children[index] && status == 0, "%x", status);
    }
    close(fd);
}

int main(void)
{
    control = open("/dev/loop-control", O_RDWR);
    /* What the machine has is found at the first look: its events come before the test's. */
    contents_of("/sys/class/mem/null/dev");
    messages();
    credentials();
    losses();
    refusals();
    waiting();
    return verdict_failed;
}
