/* SO_TIMESTAMP and SO_TIMESTAMPNS of local sockets, by their old and new numbers: when messages were sent, as control data. */
#include "abi.h"
#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/un.h>

#define MICROSECONDS 29
#define NANOSECONDS 35
#define NEW_MICROSECONDS 63
#define NEW_NANOSECONDS 64

static int get(int fd, int name)
{
    int value = -7;
    socklen_t length = sizeof value;
    return getsockopt(fd, SOL_SOCKET, name, &value, &length) ? -1 : value;
}

static int set(int fd, int name, int value)
{
    return setsockopt(fd, SOL_SOCKET, name, &value, sizeof value);
}

static void states(const char *what, int fd)
{
    printf("%s: %d %d %d %d\n", what, get(fd, MICROSECONDS), get(fd, NANOSECONDS), get(fd, NEW_MICROSECONDS), get(fd, NEW_NANOSECONDS));
}

static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/* Shows what comes with a message, and returns its time. */
static long long show(const char *what, int fd, size_t room, int flags)
{
    char text[32] = {0}, control[256];
    long long ns = 0;
    struct iovec vector = {text, sizeof text - 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = room ? control : NULL, .msg_controllen = room};
    memset(control, 0xee, sizeof control);
    if (recvmsg(fd, &message, flags | MSG_DONTWAIT) < 0) {
        printf("%s: %s\n", what, ERRNO_NAME(errno));
        return 0;
    }
    printf("%s: \"%s\", flags %#x, control %zu:", what, text, message.msg_flags, message.msg_controllen);
    for (struct cmsghdr *record = CMSG_FIRSTHDR(&message); record; record = CMSG_NXTHDR(&message, record)) {
        long long both[2];
        printf(" (%d %d %zu)", record->cmsg_level, record->cmsg_type, record->cmsg_len);
        memcpy(both, CMSG_DATA(record), sizeof both);
        if (record->cmsg_len < CMSG_LEN(sizeof both))
            continue;
        if (record->cmsg_type == MICROSECONDS || record->cmsg_type == NEW_MICROSECONDS)
            ns = both[0] * 1000000000 + both[1] * 1000;
        if (record->cmsg_type == NANOSECONDS || record->cmsg_type == NEW_NANOSECONDS)
            ns = both[0] * 1000000000 + both[1];
        if (record->cmsg_type == SCM_RIGHTS)
            close(*(int *)CMSG_DATA(record));
    }
    putchar('\n');
    return ns;
}

static void of_kind(const char *name, int kind)
{
    int pair[2], names[] = {MICROSECONDS, NANOSECONDS, NEW_MICROSECONDS, NEW_NANOSECONDS};
    printf("- %s\n", name);
    SHOW(socketpair(AF_UNIX, kind, 0, pair));
    states("fresh", pair[0]);
    for (int index = 0; index < 4; index++) {
        SHOW(set(pair[0], names[index], 7));
        states("on", pair[0]);
        long long before = now_ns() / 1000 * 1000;
        SHOW(write(pair[1], "message", 7));
        long long after = now_ns();
        pause_ms(2);
        long long sent = show("received", pair[0], 256, 0);
        SHOW(sent == 0);
        SHOW(sent >= before && sent <= after);
    }
    /* One ends the other, by whichever number. */
    SHOW(set(pair[0], MICROSECONDS, 0));
    states("off", pair[0]);
    SHOW(write(pair[1], "before", 6));
    SHOW(set(pair[0], NANOSECONDS, 1));
    pause_ms(2);
    long long before = now_ns();
    long long sent = show("look at what was sent before", pair[0], 256, MSG_PEEK);
    SHOW(sent >= before);
    SHOW(show("the same", pair[0], 256, 0) == sent);
    /* No room, or too little. */
    for (size_t room = 0; room < 36; room += 7) {
        SHOW(write(pair[1], "short", 5));
        show("room", pair[0], room, 0);
    }
    /* In this order: time, who, files. */
    SHOW(set(pair[0], SO_PASSCRED, 1));
    union { struct cmsghdr header; char bytes[CMSG_SPACE(sizeof(int))]; } control;
    struct iovec vector = {"all", 3};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    control.header.cmsg_len = CMSG_LEN(sizeof(int));
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    memcpy(CMSG_DATA(&control.header), &pair[1], sizeof(int));
    SHOW(sendmsg(pair[1], &message, 0));
    show("all of it", pair[0], 256, 0);
    /* Times are not sent. */
    control.header.cmsg_type = MICROSECONDS;
    SHOW(sendmsg(pair[1], &message, 0));
    close(pair[0]);
    close(pair[1]);
}

static void by_name(void)
{
    puts("- by name");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int bytes = snprintf(address.sun_path + 1, 64, "unix_timestamps.%d", getpid());
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + 1 + bytes;
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0), other = socket(AF_UNIX, SOCK_DGRAM, 0);
    SHOW(bind(fd, (void *)&address, length));
    SHOW(set(fd, SO_TIMESTAMPNS, 1));
    long long before = now_ns();
    SHOW(sendto(other, "named", 5, 0, (void *)&address, length));
    long long after = now_ns();
    pause_ms(2);
    long long sent = show("received", fd, 256, 0);
    SHOW(sent >= before && sent <= after);
    close(fd);
    close(other);
    int listener = socket(AF_UNIX, SOCK_SEQPACKET, 0), client = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    SHOW(bind(listener, (void *)&address, length));
    SHOW(listen(listener, 1));
    SHOW(set(listener, SO_TIMESTAMP, 1));
    SHOW(connect(client, (void *)&address, length));
    int accepted = accept(listener, NULL, NULL);
    states("accepted", accepted);
}

int main(void)
{
    int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT);
    setvbuf(stdout, NULL, _IOLBF, 0);
    SHOW(set(fd, MICROSECONDS, 1));
    states("netlink", fd);
    of_kind("datagrams", SOCK_DGRAM);
    of_kind("packets", SOCK_SEQPACKET);
    of_kind("stream", SOCK_STREAM);
    by_name();
    return 0;
}
