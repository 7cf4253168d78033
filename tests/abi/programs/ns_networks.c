/* Name spaces of networks: abstract names of local sockets are those of the one in which the socket was made. */
#include "abi.h"
#include <linux/nsfs.h>
#include <sys/socket.h>
#include <sys/un.h>

static int named(int fd, int (*call)(int, const struct sockaddr *, socklen_t))
{
    struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "\0ns_networks" };
    return call(fd, (struct sockaddr *)&address, offsetof(struct sockaddr_un, sun_path) + 12);
}

static int name(int fd)
{
    return named(fd, bind);
}

static int reach(int fd)
{
    return named(fd, connect);
}

int main(void)
{
    int outside = socket(AF_UNIX, SOCK_STREAM, 0);
    SHOW(name(outside));
    SHOW(listen(outside, 5));
    int other = socket(AF_UNIX, SOCK_STREAM, 0);
    SHOW(name(other));
    int own = open("/proc/self/ns/net", O_RDONLY);
    int ready[2];
    int done[2];
    pipe(ready);
    pipe(done);
    pid_t child = CHILD({
        SHOW(unshare(CLONE_NEWNET));
        int inside = socket(AF_UNIX, SOCK_STREAM, 0);
        SHOW(reach(inside));
        SHOW(name(inside));
        SHOW(listen(inside, 5));
        /* A socket stays in the name space in which it was made. */
        SHOW(reach(other));
        fflush(stdout);
        tell(ready[1]);
        hear(done[0]);
        SHOW(setns(own, CLONE_NEWNET));
        int back = socket(AF_UNIX, SOCK_STREAM, 0);
        SHOW(name(back));
    });
    hear(ready[0]);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/net", child);
    int space = open(path, O_RDONLY);
    SHOW(ioctl(space, NS_GET_NSTYPE) == CLONE_NEWNET);
    SHOW(ioctl(space, NS_GET_PARENT));
    SHOW(setns(space, CLONE_NEWUTS));
    SHOW(setns(space, CLONE_NEWNET));
    struct stat a;
    struct stat b;
    stat("/proc/self/ns/net", &a);
    stat(path, &b);
    TRUE(a.st_ino == b.st_ino);
    SHOW(reach(socket(AF_UNIX, SOCK_STREAM, 0)));
    SHOW(reach(socket(AF_UNIX, SOCK_DGRAM, 0)));
    tell(done[1]);
    REAP(child);
    SHOW(setns(own, 0));
    REAP(CHILD({
        setresuid(1000, 1000, 1000);
        SHOW(unshare(CLONE_NEWNET));
        SHOW(setns(own, CLONE_NEWNET));
        SHOW(unshare(CLONE_NEWUSER | CLONE_NEWNET));
        SHOW(setns(own, CLONE_NEWNET));
        SHOW(reach(socket(AF_UNIX, SOCK_STREAM, 0)));
    }));
    return 0;
}
