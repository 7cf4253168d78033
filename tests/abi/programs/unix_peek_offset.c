/* SO_PEEK_OFF of local sockets: where looks begin, how they and reads move it, and what there is behind it. */
#include "abi.h"
#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/un.h>

static int get_offset(int fd)
{
    int value = -7;
    socklen_t length = sizeof value;
    return getsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &value, &length) ? -1000 - errno : value;
}

static int set_offset(int fd, int value)
{
    return setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &value, sizeof value);
}

static void show(const char *what, int fd, size_t room, int flags)
{
    char buffer[64] = {0};
    struct iovec vector = {buffer, room};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    ssize_t got = recvmsg(fd, &message, flags | MSG_DONTWAIT);
    if (got < 0)
        printf("%s: %s", what, ERRNO_NAME(errno));
    else
        printf("%s: %zd \"%s\"%s", what, got, buffer, message.msg_flags & MSG_TRUNC ? " cut" : "");
    printf(", offset %d\n", get_offset(fd));
}

static void pass(int fd, const char *text, int file)
{
    union { struct cmsghdr header; char bytes[CMSG_SPACE(sizeof(int))]; } control;
    struct iovec vector = {(char *)text, strlen(text)};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    control.header.cmsg_len = CMSG_LEN(sizeof file);
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    memcpy(CMSG_DATA(&control.header), &file, sizeof file);
    SHOW(sendmsg(fd, &message, 0));
}

static void of_kind(const char *name, int kind)
{
    int pair[2], count;
    printf("- %s\n", name);
    SHOW(socketpair(AF_UNIX, kind, 0, pair));
    SHOW(get_offset(pair[0]));
    SHOW(set_offset(pair[0], -5));
    SHOW(get_offset(pair[0]));
    SHOW(set_offset(pair[0], INT_MAX));
    SHOW(get_offset(pair[0]));
    SHOW(get_offset(pair[1]));
    SHOW(write(pair[1], "abcd", 4));
    show("far behind", pair[0], 9, MSG_PEEK);
    SHOW(set_offset(pair[0], 0));
    SHOW(write(pair[1], "efgh", 4));
    SHOW(write(pair[1], "ij", 2));
    show("first", pair[0], 3, MSG_PEEK);
    show("next", pair[0], 3, MSG_PEEK);
    show("next, whole length", pair[0], 1, MSG_PEEK | MSG_TRUNC);
    SHOW(ioctl(pair[0], FIONREAD, &count));
    show("read", pair[0], 2, 0);
    show("next", pair[0], 9, MSG_PEEK);
    show("next", pair[0], 9, MSG_PEEK);
    show("next", pair[0], 9, MSG_PEEK);
    struct pollfd poller = {pair[0], POLLIN, 0};
    SHOW(poll(&poller, 1, 0));
    SHOW(write(pair[1], "kl", 2));
    show("what came", pair[0], 9, MSG_PEEK);
    SHOW(set_offset(pair[0], 5));
    show("from five on", pair[0], 1, MSG_PEEK);
    show("read", pair[0], 9, 0);
    show("read", pair[0], 9, 0);
    SHOW(set_offset(pair[0], -1));
    show("without", pair[0], 9, MSG_PEEK);
    show("without", pair[0], 9, MSG_PEEK);
    while (recv(pair[0], (char[64]){0}, 64, MSG_DONTWAIT) > 0)
        ;
    /* Files come with a look at their message only. */
    SHOW(set_offset(pair[0], 0));
    pass(pair[1], "with", pair[1]);
    SHOW(write(pair[1], "out", 3));
    show("with a file", pair[0], 9, MSG_PEEK);
    show("without one", pair[0], 9, MSG_PEEK);
    show("read", pair[0], 9, 0);
    show("read", pair[0], 9, 0);
    /* An address that is none. */
    SHOW(write(pair[1], "fault", 5));
    SHOW(recv(pair[0], (void *)8, 3, MSG_PEEK | MSG_DONTWAIT));
    SHOW(get_offset(pair[0]));
    SHOW(set_offset(pair[0], 5));
    /* The end. */
    SHOW(shutdown(pair[1], SHUT_WR));
    show("behind the end", pair[0], 9, MSG_PEEK);
    SHOW(set_offset(pair[0], 2));
    show("before the end", pair[0], 9, MSG_PEEK);
    show("read", pair[0], 9, 0);
    close(pair[0]);
    close(pair[1]);
}

static void empty_messages(void)
{
    int pair[2];
    puts("- empty messages");
    SHOW(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    SHOW(set_offset(pair[0], 0));
    SHOW(send(pair[1], "", 0, 0));
    SHOW(send(pair[1], "ab", 2, 0));
    SHOW(send(pair[1], "", 0, 0));
    for (int count = 0; count < 4; count++)
        show("look", pair[0], 9, MSG_PEEK);
    SHOW(set_offset(pair[0], 0));
    show("again", pair[0], 9, MSG_PEEK);
    SHOW(set_offset(pair[0], -1));
    show("without", pair[0], 9, MSG_PEEK);
    show("read", pair[0], 9, 0);
    close(pair[0]);
    close(pair[1]);
}

static void waiting(int kind)
{
    int pair[2];
    puts("- waiting");
    SHOW(socketpair(AF_UNIX, kind, 0, pair));
    SHOW(set_offset(pair[0], 3));
    SHOW(write(pair[1], "abc", 3));
    pid_t child = CHILD({
        char text[9] = {0};
        SHOW(recv(pair[0], text, 8, MSG_PEEK));
        puts(text);
    });
    TRUE(wait_state(child, "S"));
    ssize_t sent = write(pair[1], "de", 2);
    REAP(child);
    SHOW(sent);
    SHOW(get_offset(pair[0]));
    /* Another message instead of the one that was there. */
    child = CHILD({
        char text[9] = {0};
        SHOW(recv(pair[0], text, 8, MSG_PEEK));
        puts(text);
    });
    TRUE(wait_state(child, "S"));
    show("read", pair[0], 3, 0);
    sent = write(pair[1], "fg", 2);
    REAP(child);
    SHOW(sent);
    close(pair[0]);
    close(pair[1]);
}

int main(void)
{
    int value = 1, fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT);
    setvbuf(stdout, NULL, _IOLBF, 0);
    SHOW(set_offset(fd, 1));
    SHOW(get_offset(fd) == -1000 - EOPNOTSUPP);
    close(fd);
    fd = socket(AF_UNIX, SOCK_STREAM, 0);
    SHOW(setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &value, 3));
    SHOW(set_offset(fd, 1));
    SHOW(get_offset(fd));
    close(fd);
    of_kind("stream", SOCK_STREAM);
    of_kind("datagrams", SOCK_DGRAM);
    of_kind("packets", SOCK_SEQPACKET);
    empty_messages();
    waiting(SOCK_DGRAM);
    return 0;
}
