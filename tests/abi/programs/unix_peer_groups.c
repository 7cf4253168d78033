/* SO_PEERGROUPS: the supplementary groups of who made the other end of a local connection, as they were then. */
#include "abi.h"
#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/un.h>

static void become(int count, gid_t first)
{
    gid_t groups[64];
    for (int index = 0; index < count; index++)
        groups[index] = first + index;
    SHOW(setgroups(count, groups));
}

static void show(const char *what, int fd, size_t room)
{
    gid_t groups[64];
    memset(groups, 0xee, sizeof groups);
    socklen_t length = room;
    int result = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &length);
    printf("%s: %s, length %u:", what, result ? ERRNO_NAME(errno) : "ok", length);
    for (size_t index = 0; !result && index < length / sizeof *groups; index++)
        printf(" %u", groups[index]);
    puts(groups[length / sizeof *groups] == 0xeeeeeeee ? "" : " and more");
}

int main(void)
{
    int pair[2], kinds[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    setvbuf(stdout, NULL, _IOLBF, 0);
    become(3, 100);
    for (int index = 0; index < 3; index++) {
        SHOW(socketpair(AF_UNIX, kinds[index], 0, pair));
        show("pair", pair[0], 64);
        show("pair", pair[1], 64);
        close(pair[0]);
        close(pair[1]);
    }
    SHOW(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    become(2, 200);
    show("as it was", pair[0], 64);
    show("just enough", pair[0], 12);
    show("too little", pair[0], 11);
    show("nothing", pair[0], 0);
    socklen_t length = 64;
    gid_t groups[16];
    SHOW(getsockopt(pair[0], SOL_SOCKET, SO_PEERGROUPS, (void *)8, &length));
    SHOW(getsockopt(pair[0], SOL_SOCKET, SO_PEERGROUPS, groups, (void *)8));
    length = -1;
    SHOW(getsockopt(pair[0], SOL_SOCKET, SO_PEERGROUPS, groups, &length));
    SHOW(setsockopt(pair[0], SOL_SOCKET, SO_PEERGROUPS, groups, 4));
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int bytes = snprintf(address.sun_path + 1, 64, "unix_peer_groups.%d", getpid());
    length = offsetof(struct sockaddr_un, sun_path) + 1 + bytes;
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    show("fresh", listener, 64);
    SHOW(bind(listener, (void *)&address, length));
    show("bound", listener, 64);
    SHOW(listen(listener, 2));
    show("listening", listener, 64);
    become(1, 300);
    SHOW(connect(client, (void *)&address, length));
    become(0, 0);
    int accepted = accept(listener, NULL, NULL);
    show("client", client, 64);
    show("accepted", accepted, 64);
    SHOW(listen(listener, 2));
    show("listening again", listener, 64);
    show("client", client, 64);
    close(client);
    client = socket(AF_UNIX, SOCK_STREAM, 0);
    SHOW(connect(client, (void *)&address, length));
    show("of one without groups", client, 0);
    int datagram = socket(AF_UNIX, SOCK_DGRAM, 0);
    show("datagrams", datagram, 64);
    int netlink = socket(AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT);
    show("netlink", netlink, 64);
    return 0;
}
