/* Mounts of normal users in name spaces that are private to them: what is allowed, what not, what it costs, and that nothing is left of it.
 *
 * abi: guest
 * abi: alone
 * abi: cpus 1,4
 * abi: limit 60
 */
#include "guest.h"

enum { USER = 1000, LIMIT = 40 };

static void set(const char *path, const char *value)
{
    int fd = open(path, O_WRONLY);
    EXPECT(fd >= 0 && write(fd, value, strlen(value)) > 0, "%s can't be set: %s\n", path, strerror(errno));
    close(fd);
}

static int is_mounted(const char *table, const char *place)
{
    char line[1024];
    int found = 0;
    FILE *file = fopen(table, "r");
    if (!file)
        return -1;
    while (fgets(line, sizeof line, file)) {
        char point[512];
        if (sscanf(line, "%*s %511s", point) == 1 && !strcmp(point, place))
            found++;
    }
    fclose(file);
    return found;
}

/* What a copy begins with, also what is not seen in a changed root directory. */
static int inherited;

static int mounts_here(void)
{
    char line[1024];
    int count = 0;
    FILE *file = fopen("/proc/self/mounts", "r");
    while (fgets(line, sizeof line, file))
        count++;
    fclose(file);
    return count;
}

#define FAILS(error, ...)                                                                                              \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        int result_ = (int)(__VA_ARGS__);                                                                              \
        EXPECT(result_ == -1 && errno == (error), "%s = %d %s\n", #__VA_ARGS__, result_, strerrorname_np(errno));      \
    } while (0)
#define WORKS(...)                                                                                                     \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        int result_ = (int)(__VA_ARGS__);                                                                              \
        EXPECT(result_ >= 0, "%s = %d %s\n", #__VA_ARGS__, result_, strerrorname_np(errno));                           \
    } while (0)

static void as(uid_t user)
{
    setgroups(0, NULL);
    WORKS(setresgid(user, user, user));
    WORKS(setresuid(user, user, user));
}

/* Runs the body as a process of its own, whose failures are this one's. */
#define APART(...)                                                                                                     \
    do {                                                                                                               \
        fflush(stdout);                                                                                                \
        pid_t child_ = fork();                                                                                         \
        if (child_ == 0) {                                                                                             \
            __VA_ARGS__;                                                                                               \
            fflush(stdout);                                                                                            \
            _exit(verdict_failed);                                                                                     \
        }                                                                                                              \
        int status_;                                                                                                   \
        waitpid(child_, &status_, 0);                                                                                  \
        EXPECT(status_ == 0, "status %#x\n", status_);                                                                 \
    } while (0)

static void inside(void)
{
    struct stat about;
    as(USER);
    FAILS(EPERM, mount("/home/u/a", "/home/u/b", NULL, MS_BIND, NULL));
    WORKS(unshare(CLONE_NEWNS));
    FAILS(EPERM, unshare(CLONE_NEWNS | CLONE_NEWUTS));
    WORKS(mount("/home/u/a", "/home/u/b", NULL, MS_BIND, NULL));
    WORKS(access("/home/u/b/file", F_OK));
    EXPECT(is_mounted("/proc/1/mounts", "/home/u/b") <= 0, "a user's mount is everybody's\n");
    FAILS(EPERM, mount("/home/u/a", "/etc", NULL, MS_BIND, NULL));
    FAILS(EPERM, mount("/home/u/a/file", "/etc/passwd", NULL, MS_BIND, NULL));
    WORKS(mount("/home/u/a", "/sticky", NULL, MS_BIND, NULL));
    WORKS(umount("/sticky"));
    /* Set-user-ID programs and devices are of no use, and can't be made so. */
    WORKS(mount("/programs", "/home/u/c", NULL, MS_BIND, NULL));
    FAILS(EACCES, open("/home/u/c/null", O_RDWR));
    FAILS(EPERM, mount(NULL, "/home/u/c", NULL, MS_REMOUNT | MS_BIND, NULL));
    FAILS(EPERM, mount(NULL, "/home/u/c", NULL, MS_REMOUNT, NULL));
    WORKS(mount(NULL, "/home/u/c", NULL, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV | MS_RDONLY, NULL));
    WORKS(mount("/home/u/c", "/home/u/d", NULL, MS_BIND, NULL));
    FAILS(EPERM, mount(NULL, "/home/u/d", NULL, MS_REMOUNT | MS_BIND | MS_NODEV, NULL));
    struct statvfs flags;
    WORKS(statvfs("/home/u/d", &flags));
    EXPECT(flags.f_flag & ST_NOSUID, "set-user-ID programs count\n");
    /* Types. */
    WORKS(mount("none", "/home/u/a", "tmpfs", 0, NULL));
    WORKS(mkdir("/home/u/a/mine", 0755));
    FAILS(EPERM, mount("/dev/vda", "/home/u/a/mine", "ext4", 0, NULL));
    /* A file server of his own, without a set-user-ID program; it is gone with its descriptor. */
    char options[100];
    int device = open("/server", O_RDWR | O_CLOEXEC);
    EXPECT(device >= 0, "%s\n", strerrorname_np(errno));
    snprintf(options, sizeof options, "fd=%d,rootmode=40755,user_id=%d,group_id=%d", device, USER, USER);
    WORKS(mount("server", "/home/u/a/mine", "fuse", 0, options));
    EXPECT(is_mounted("/proc/self/mounts", "/home/u/a/mine") > 0, "the server's file system is nowhere\n");
    EXPECT(is_mounted("/proc/1/mounts", "/home/u/a/mine") <= 0, "a user's server is everybody's\n");
    close(device);
    FAILS(ENOTCONN, stat("/home/u/a/mine/file", &about));
    WORKS(umount("/home/u/a/mine"));
    FAILS(EPERM, mount("none", "/home/u/a/mine", "proc", 0, NULL));
    FAILS(EPERM, mount("none", "/home/u/a/mine", "devtmpfs", 0, NULL));
    FAILS(EPERM, mount("none", "/etc", "tmpfs", 0, NULL));
    /* What came with it stays. */
    FAILS(EINVAL, umount("/inherited"));
    FAILS(EINVAL, umount2("/inherited", MNT_DETACH));
    FAILS(EINVAL, mount("/inherited", "/home/u/a/mine", NULL, MS_MOVE, NULL));
    FAILS(EPERM, syscall(SYS_pivot_root, "/home/u/a", "/home/u/a/mine"));
    FAILS(EPERM, sethostname("x", 1));
    /* What it is for. */
    WORKS(mount("/home/u/d", "/home/u/a/mine", NULL, MS_MOVE, NULL));
    WORKS(umount("/home/u/a/mine"));
    WORKS(stat("/home/u/a/mine", &about));
    /* Nobody else may do so in it. */
    EXPECT(geteuid() == USER, "somebody else\n");
}

static void limits(void)
{
    as(USER);
    WORKS(unshare(CLONE_NEWNS));
    int made = 0;
    while (mount("none", "/home/u/a", "tmpfs", 0, NULL) == 0 && made <= LIMIT)
        made++;
    EXPECT(errno == ENOSPC, "%s instead of ENOSPC\n", strerrorname_np(errno));
    EXPECT(inherited + made == LIMIT, "%d mounts and %d more, of %d\n", inherited, made, LIMIT);
    APART(FAILS(ENOSPC, unshare(CLONE_NEWNS)));
    for (int index = 0; index < made; index++)
        WORKS(umount("/home/u/a"));
    APART(WORKS(unshare(CLONE_NEWNS)));
}

static void jailed(void)
{
    WORKS(chroot("/jail"));
    WORKS(chdir("/"));
    as(USER);
    struct stat root, now;
    WORKS(stat("/", &root));
    WORKS(unshare(CLONE_NEWNS));
    for (int index = 0; index < 100; index++)
        WORKS(chdir(".."));
    WORKS(stat(".", &now));
    EXPECT(now.st_ino == root.st_ino && now.st_dev == root.st_dev, "out of the jail\n");
}

static void received(void)
{
    int ends[2], back[2];
    char byte = 0;
    WORKS(pipe(ends));
    WORKS(pipe(back));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        as(USER);
        WORKS(unshare(CLONE_NEWNS));
        WORKS(write(ends[1], &byte, 1));
        WORKS(read(back[0], &byte, 1));
        WORKS(access("/usb/plugged", F_OK));
        FAILS(EINVAL, umount2("/inherited", 0));
        WORKS(mount("none", "/home/u/a", "tmpfs", 0, NULL));
        WORKS(write(ends[1], &byte, 1));
        WORKS(read(back[0], &byte, 1));
        FAILS(ENOENT, access("/usb/plugged", F_OK));
        _exit(verdict_failed);
    }
    WORKS(read(ends[0], &byte, 1));
    WORKS(mount("usb", "/usb", "tmpfs", 0, NULL));
    WORKS(mkdir("/usb/plugged", 0755));
    WORKS(write(back[1], &byte, 1));
    WORKS(read(ends[0], &byte, 1));
    EXPECT(is_mounted("/proc/self/mounts", "/home/u/a") == 0, "a user's mount came out\n");
    WORKS(umount("/usb"));
    WORKS(write(back[1], &byte, 1));
    int status;
    waitpid(child, &status, 0);
    EXPECT(status == 0, "status %#x\n", status);
}

int main(void)
{
    WORKS(unshare(CLONE_NEWNS));
    WORKS(mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL));
    WORKS(mount("root", "/tmp", "tmpfs", 0, "mode=755"));
    static const char *const made[] = { "etc", "home", "home/u", "home/u/a", "home/u/b", "home/u/c", "home/u/d", "programs", "inherited",
        "jail", "jail/in", "usb", "proc", "dev" };
    WORKS(chdir("/tmp"));
    for (size_t index = 0; index < sizeof made / sizeof *made; index++)
        WORKS(mkdir(made[index], 0755));
    static const char *const his[] = { "home/u", "home/u/a", "home/u/b", "home/u/c", "home/u/d" };
    for (size_t index = 0; index < sizeof his / sizeof *his; index++)
        WORKS(chown(his[index], USER, USER));
    WORKS(mkdir("sticky", 0777));
    WORKS(chmod("sticky", 01777));
    close(open("etc/passwd", O_CREAT | O_WRONLY, 0644));
    int file = open("home/u/a/file", O_CREAT | O_WRONLY, 0666);
    WORKS(fchown(file, USER, USER));
    close(file);
    WORKS(mknod("programs/null", S_IFCHR | 0666, makedev(1, 3)));
    WORKS(mknod("server", S_IFCHR, makedev(10, 229)));
    WORKS(chmod("server", 0666));
    WORKS(chmod("programs/null", 0666));
    WORKS(mount("inherited", "inherited", "tmpfs", 0, NULL));
    WORKS(mount("proc", "proc", "proc", 0, NULL));
    WORKS(mount(NULL, "/tmp", NULL, MS_SHARED, NULL));
    inherited = mounts_here();
    WORKS(chroot("."));
    WORKS(chdir("/"));
    /* Not before it is allowed. */
    APART({
        as(USER);
        FAILS(EPERM, unshare(CLONE_NEWNS));
    });
    set("/proc/sys/fs/user_mounts", "1");
    APART(inside());
    set("/proc/sys/fs/user_mounts_sticky", "1");
    APART({
        as(USER);
        WORKS(unshare(CLONE_NEWNS));
        FAILS(EPERM, mount("/home/u/a", "/sticky", NULL, MS_BIND, NULL));
    });
    set("/proc/sys/fs/user_mounts_sticky", "0");
    char limit[16];
    snprintf(limit, sizeof limit, "%d", LIMIT);
    set("/proc/sys/user/max_mounts", limit);
    APART(limits());
    APART(limits());
    set("/proc/sys/user/max_mounts", "4096");
    APART(jailed());
    received();
    set("/proc/sys/fs/user_mounts", "0");
    APART({
        as(USER);
        FAILS(EPERM, unshare(CLONE_NEWNS));
    });
    return verdict_failed;
}
