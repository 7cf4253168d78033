/* Name spaces of users: maps and who may write them, ids as they are seen, capabilities inside and outside. */
#include "abi.h"
#include <linux/capability.h>
#include <linux/nsfs.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/shm.h>
#include <sys/socket.h>

static int put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    if (fd < 0)
        return -1;
    ssize_t bytes = write(fd, text, strlen(text));
    int error = errno;
    close(fd);
    errno = error;
    return bytes < 0 ? -1 : (int)bytes;
}

static int put_of(pid_t pid, const char *file, const char *text)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    return put(path, text);
}

static void show_file(const char *path)
{
    char text[256] = "";
    int fd = open(path, O_RDONLY);
    ssize_t bytes = read(fd, text, sizeof text - 1);
    printf("%s: %s", path, bytes > 0 ? text : "nothing\n");
    close(fd);
}

static void ids(const char *who)
{
    uid_t r, e, s;
    gid_t gr, ge, gs;
    getresuid(&r, &e, &s);
    getresgid(&gr, &ge, &gs);
    gid_t groups[8];
    int count = getgroups(8, groups);
    printf("%s: %u %u %u, %u %u %u, groups", who, r, e, s, gr, ge, gs);
    for (int index = 0; index < count; index++)
        printf(" %u", groups[index]);
    printf("\n");
}

static void become(uid_t user)
{
    gid_t groups[] = { 7, 3000 };
    setgroups(2, groups);
    setresgid(user, user, user);
    setresuid(user, user, user);
    prctl(PR_SET_DUMPABLE, 1);
}

static void capabilities(const char *who)
{
    struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct data[2] = { 0 };
    syscall(SYS_capget, &header, data);
    int last = 40;
    unsigned long long all = (2ull << last) - 1;
    unsigned long long have[3] = { data[0].effective | (unsigned long long)data[1].effective << 32,
                                   data[0].permitted | (unsigned long long)data[1].permitted << 32,
                                   data[0].inheritable | (unsigned long long)data[1].inheritable << 32 };
    printf("%s:", who);
    for (int set = 0; set < 3; set++)
        printf(" %s", (have[set] & all) == all ? "all" : have[set] & all ? "some" : "none");
    printf(", bounding %d, securebits %d\n", prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN), prctl(PR_GET_SECUREBITS));
}

static void own_maps(void)
{
    REAP(CHILD({
        become(1000);
        SHOW(sethostname("x", 1));
        SHOW(unshare(CLONE_NEWUTS));
        SHOW(unshare(CLONE_NEWUSER));
        ids("not mapped");
        capabilities("new");
        show_file("/proc/self/uid_map");
        show_file("/proc/self/setgroups");
        SHOW(setuid(0));
        SHOW(setuid(65534));
        SHOW(setgroups(0, NULL));
        SHOW(put("/proc/self/uid_map", "0 0 1"));
        SHOW(put("/proc/self/uid_map", "0 1000 2"));
        SHOW(put("/proc/self/uid_map", "0 1001 1"));
        SHOW(put("/proc/self/uid_map", "0 1000"));
        SHOW(put("/proc/self/uid_map", ""));
        SHOW(put("/proc/self/uid_map", "5 1000 1\n5 1000 1\n"));
        SHOW(put("/proc/self/uid_map", "4294967295 1000 1\n"));
        SHOW(put("/proc/self/uid_map", "0 1000 0\n"));
        SHOW(put("/proc/self/uid_map", "0 1000 1\n"));
        SHOW(put("/proc/self/uid_map", "0 1000 1\n"));
        ids("user mapped");
        SHOW(put("/proc/self/gid_map", "0 1000 1\n"));
        SHOW(put("/proc/self/setgroups", "never"));
        SHOW(put("/proc/self/setgroups", "allow"));
        SHOW(put("/proc/self/setgroups", "deny"));
        SHOW(put("/proc/self/setgroups", "allow"));
        SHOW(put("/proc/self/gid_map", "0 1000 1\n"));
        SHOW(put("/proc/self/setgroups", "deny"));
        ids("mapped");
        show_file("/proc/self/uid_map");
        show_file("/proc/self/gid_map");
        show_file("/proc/self/projid_map");
        SHOW(put("/proc/self/projid_map", "0 0 5\n"));
        show_file("/proc/self/projid_map");
        SHOW(setgroups(0, NULL));
        SHOW(setuid(1));
        SHOW(setresgid(-1, 1, -1));
        SHOW(setfsuid(1));
        SHOW(setfsuid(-1));
        SHOW(unshare(CLONE_NEWUTS));
        SHOW(sethostname("inner", 5));
        SHOW(unshare(CLONE_NEWNS | CLONE_NEWIPC));
        SHOW(chroot("/"));
        SHOW(prctl(PR_CAPBSET_DROP, CAP_SYS_TIME));
        SHOW(mknod("/dev/shm/ns_users_device", S_IFCHR | 0600, makedev(1, 3)));
    }));
}

static void long_maps(void)
{
    int ready[2], done[2];
    pipe(ready);
    pipe(done);
    pid_t child = CHILD({
        SHOW(unshare(CLONE_NEWUSER));
        fflush(stdout);
        tell(ready[1]);
        hear(done[0]);
        ids("by the parent");
        SHOW(setresuid(20, 21, 22));
        ids("after");
        capabilities("after");
    });
    hear(ready[0]);
    static char text[16384];
    int length = 0;
    for (int line = 0; line < 341; line++)
        length += snprintf(text + length, sizeof text - length, "%d %d 1\n", line, line + 100);
    SHOW(put_of(child, "uid_map", text));
    length = 0;
    for (int line = 0; line < 340; line++)
        length += snprintf(text + length, sizeof text - length, "%d %d 1\n", line, 10000 - 7 * line);
    OK(put_of(child, "uid_map", text));
    SHOW(put_of(child, "gid_map", "0 0 10\n100 50 20\n"));
    SHOW(put_of(child, "gid_map", "0 0 10\n"));
    fflush(stdout);
    tell(done[1]);
    REAP(child);
}

static void files(void)
{
    char path[] = "/tmp/ns_users_file";
    int fd = open(path, O_CREAT | O_RDWR, 0600);
    fchown(fd, 1000, 1000);
    char other[] = "/tmp/ns_users_other";
    int other_fd = open(other, O_CREAT | O_RDWR, 0640);
    fchown(other_fd, 1000, 0);
    REAP(CHILD({
        become(1000);
        unshare(CLONE_NEWUSER);
        struct stat seen;
        stat(path, &seen);
        printf("not mapped: %u %u\n", seen.st_uid, seen.st_gid);
        put("/proc/self/setgroups", "deny");
        put("/proc/self/uid_map", "0 1000 1");
        put("/proc/self/gid_map", "0 1000 1");
        stat(path, &seen);
        printf("mapped: %u %u\n", seen.st_uid, seen.st_gid);
        stat("/", &seen);
        printf("root: %u %u\n", seen.st_uid, seen.st_gid);
        SHOW(chown(path, 0, 0));
        SHOW(chown(path, 1, -1));
        SHOW(chown(path, -1, 1000));
        SHOW(chown(path, -1, -1));
        SHOW(chown("/", 0, 0));
        SHOW(chmod(other, 0660));
        SHOW(chown(other, -1, 0));
        OK(open("/etc/shadow", O_RDONLY));
        int made = open("/tmp/ns_users_made", O_CREAT | O_RDWR, 0644);
        fstat(made, &seen);
        printf("made: %u %u\n", seen.st_uid, seen.st_gid);
    }));
    struct stat seen;
    stat("/tmp/ns_users_made", &seen);
    printf("from outside: %u %u\n", seen.st_uid, seen.st_gid);
    unlink("/tmp/ns_users_made");
    unlink(path);
    unlink(other);
}

static void credentials_of(int end, const char *who)
{
    char byte;
    char control[CMSG_SPACE(sizeof(struct ucred))];
    struct iovec part = { &byte, 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    if (recvmsg(end, &message, 0) != 1)
        return;
    struct ucred *sender = (struct ucred *)CMSG_DATA(CMSG_FIRSTHDR(&message));
    printf("%s: %u %u\n", who, sender->uid, sender->gid);
}

static void messages(void)
{
    int ends[2];
    socketpair(AF_UNIX, SOCK_DGRAM, 0, ends);
    int one = 1;
    setsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &one, sizeof one);
    setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &one, sizeof one);
    pid_t child = CHILD({
        become(1000);
        unshare(CLONE_NEWUSER);
        put("/proc/self/setgroups", "deny");
        put("/proc/self/uid_map", "5 1000 1");
        put("/proc/self/gid_map", "6 1000 1");
        write(ends[1], "x", 1);
        credentials_of(ends[1], "root as it is seen inside");
        struct ucred peer = { 0 };
        socklen_t length = sizeof peer;
        getsockopt(ends[1], SOL_SOCKET, SO_PEERCRED, &peer, &length);
        printf("peer: %u %u\n", peer.uid, peer.gid);
        char control[CMSG_SPACE(sizeof(struct ucred))] = { 0 };
        struct iovec part = { "x", 1 };
        struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        *header = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(struct ucred)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_CREDENTIALS };
        struct ucred *claim = (struct ucred *)CMSG_DATA(header);
        *claim = (struct ucred){ getpid(), 5, 6 };
        SHOW(sendmsg(ends[1], &message, 0));
        *claim = (struct ucred){ getpid(), 1000, 6 };
        SHOW(sendmsg(ends[1], &message, 0));
        *claim = (struct ucred){ 1, 5, 6 };
        SHOW(sendmsg(ends[1], &message, 0));
    });
    credentials_of(ends[0], "inside as it is seen outside");
    write(ends[0], "x", 1);
    REAP(child);
    credentials_of(ends[0], "as it says");
}

static void signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    pid_t parent = getpid();
    siginfo_t told;
    int ready[2];
    pipe(ready);
    pid_t child = CHILD({
        pid_t inner = CHILD({
            become(1000);
            unshare(CLONE_NEWUSER);
            put("/proc/self/setgroups", "deny");
            put("/proc/self/uid_map", "5 1000 1");
            tell(ready[1]);
            sigset_t only;
            sigemptyset(&only);
            sigaddset(&only, SIGUSR1);
            SHOW(kill(parent, SIGUSR1));
            sigwaitinfo(&only, &told);
            printf("from outside: %u\n", told.si_uid);
        });
        hear(ready[0]);
        kill(inner, SIGUSR1);
        sigset_t only;
        sigemptyset(&only);
        sigaddset(&only, SIGCHLD);
        sigwaitinfo(&only, &told);
        printf("child's user: %u\n", told.si_uid);
        siginfo_t waited;
        waitid(P_PID, inner, &waited, WEXITED);
        printf("waited for: %u\n", waited.si_uid);
    });
    REAP(child);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static void looks(void)
{
    int ready[2], done[2];
    pipe(ready);
    pipe(done);
    pid_t outer = CHILD({
        become(1000);
        tell(ready[1]);
        hear(done[0]);
    });
    hear(ready[0]);
    pid_t inner = CHILD({
        become(1000);
        unshare(CLONE_NEWUSER);
        put("/proc/self/setgroups", "deny");
        put("/proc/self/uid_map", "0 1000 1");
        put("/proc/self/gid_map", "0 1000 1");
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/environ", outer);
        OK(open(path, O_RDONLY));
        OK(open("/proc/1/environ", O_RDONLY));
        snprintf(path, sizeof path, "/proc/%d/ns/user", outer);
        OK(open(path, O_RDONLY));
        SHOW(kill(outer, 0));
        SHOW(kill(1, 0));
        tell(ready[1]);
        hear(done[0]);
    });
    hear(ready[0]);
    REAP(CHILD({
        become(1000);
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/environ", inner);
        OK(open(path, O_RDONLY));
        snprintf(path, sizeof path, "/proc/%d/ns/user", inner);
        int space = open(path, O_RDONLY);
        TRUE(space >= 0);
        uid_t owner = 0;
        SHOW(ioctl(space, NS_GET_NSTYPE) == CLONE_NEWUSER);
        SHOW(ioctl(space, NS_GET_OWNER_UID, &owner));
        printf("owner: %u\n", owner);
        int above = ioctl(space, NS_GET_PARENT);
        TRUE(above >= 0);
        SHOW(ioctl(above, NS_GET_PARENT));
        SHOW(setns(above, CLONE_NEWUSER));
        SHOW(setns(space, CLONE_NEWUTS));
        SHOW(setns(space, CLONE_NEWUSER));
        ids("entered");
        capabilities("entered");
        SHOW(ioctl(space, NS_GET_PARENT));
        SHOW(ioctl(space, NS_GET_USERNS));
        SHOW(setns(above, CLONE_NEWUSER));
        SHOW(setns(space, CLONE_NEWUSER));
    }));
    REAP(CHILD({
        become(1001);
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/ns/user", inner);
        OK(open(path, O_RDONLY));
    }));
    tell(done[1]);
    tell(done[1]);
    REAP(outer);
    REAP(inner);
}

static void *idle(void *nothing)
{
    pause();
    return nothing;
}

static int nested(void *level)
{
    long deep = (long)level;
    put("/proc/self/setgroups", "deny");
    if (unshare(CLONE_NEWUSER) < 0) {
        printf("at level %ld: %s\n", deep, ERRNO_NAME(errno));
        return 0;
    }
    put("/proc/self/setgroups", "deny");
    put("/proc/self/uid_map", "0 0 1");
    put("/proc/self/gid_map", "0 0 1");
    return nested((void *)(deep + 1));
}

static void refused(void)
{
    REAP(CHILD({
        pthread_t thread;
        pthread_create(&thread, NULL, idle, NULL);
        SHOW(unshare(CLONE_NEWUSER));
    }));
    SHOW(syscall(SYS_clone, CLONE_NEWUSER | CLONE_FS | SIGCHLD, NULL, NULL, NULL, 0));
    SHOW(syscall(SYS_clone, CLONE_NEWUSER | CLONE_THREAD | CLONE_SIGHAND | CLONE_VM, NULL, NULL, NULL, 0));
    REAP(CHILD({
        chroot("/tmp");
        SHOW(unshare(CLONE_NEWUSER));
        SHOW(unshare(CLONE_NEWNS));
    }));
    REAP(CHILD({
        become(1000);
        unshare(CLONE_NEWUSER);
        SHOW(unshare(CLONE_NEWUSER));
    }));
    REAP(CHILD(nested(0)));
}

/* Who mounts a file system in memory owns its root. */
static void own_mounts(void)
{
    puts("-- mounts");
    mkdir("own", 0777);
    REAP(CHILD({
        become(1000);
        SHOW(unshare(CLONE_NEWUSER | CLONE_NEWNS));
        put("/proc/self/setgroups", "deny");
        SHOW(put("/proc/self/uid_map", "1000 1000 1") > 0);
        SHOW(put("/proc/self/gid_map", "1000 1000 1") > 0);
        SHOW(mount("tmpfs", "own", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755"));
        struct stat about;
        SHOW(stat("own", &about));
        printf("%o, owner %u %u\n", about.st_mode, about.st_uid, about.st_gid);
        int fd = open("own/file", O_CREAT | O_WRONLY | O_TRUNC, 0444);
        TRUE(fd >= 0);
        close(fd);
        SHOW(umount("own"));
        SHOW(mount("tmpfs", "own", "tmpfs", 0, "uid=1001"));
        SHOW(mount("tmpfs", "own", "tmpfs", 0, "uid=1000,gid=1000"));
    }));
    rmdir("own");
}

int main(void)
{
    umask(022);
    own_mounts();
    own_maps();
    long_maps();
    files();
    messages();
    signals();
    looks();
    refused();
    return 0;
}
