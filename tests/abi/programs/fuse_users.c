/* Who reaches a file server: its mounter only, neither by a path nor by /proc/PID/root, unless the mount says so; and nothing is sent for others. */
#include "fuse.h"

/* Requests so far, but for forgotten files and the end of open ones. */
static int requests(void)
{
    int sum = 0;
    for (int opcode = 1; opcode < 64; opcode++)
        if (opcode != FUSE_FORGET && opcode != FUSE_BATCH_FORGET && opcode != FUSE_RELEASE && opcode != FUSE_RELEASEDIR)
            sum += asked(opcode);
    return sum;
}

static void become(uid_t user, gid_t group)
{
    if (setgroups(0, NULL) || setresgid(group, group, group) || setresuid(user, user, user))
        printf("cannot become %d\n", user);
}

static void look(const char *root)
{
    char path[100], text[20], target[20];
    struct stat found;
    struct statfs status;
#define AT(name) (snprintf(path, sizeof path, "%s/%s", root, name), path)
    SHOW(stat(AT(""), &found));
    SHOW(stat(AT("file"), &found));
    SHOW(lstat(AT("link"), &found));
    SHOW(stat(AT("dir/in"), &found));
    SHOW(stat(AT(".."), &found));
    SHOW(access(AT("file"), F_OK));
    SHOW(access(AT(""), F_OK));
    SHOW(chdir(AT("")));
    SHOW(open(AT("file"), O_RDONLY));
    SHOW(open(AT("new"), O_RDWR | O_CREAT, 0600));
    SHOW(open(AT(""), O_RDONLY | O_DIRECTORY));
    SHOW(readlink(AT("link"), target, sizeof target));
    SHOW(mkdir(AT("made"), 0700));
    SHOW(unlink(AT("file")));
    SHOW(rename(AT("file"), "elsewhere"));
    SHOW(truncate(AT("file"), 0));
    SHOW(chmod(AT("file"), 0777));
    SHOW(chmod(AT(""), 0777));
    SHOW(utimensat(AT_FDCWD, AT(""), NULL, 0));
    SHOW(getxattr(AT("file"), "user.a", text, sizeof text));
    SHOW(getxattr(AT(""), "user.a", text, sizeof text));
    SHOW(listxattr(AT(""), text, sizeof text));
    SHOW(execl(AT("file"), "file", NULL));
    SHOW(statfs(AT(""), &status));
    SHOW(status.f_blocks);
}

static void refused(const char *words, uid_t user, uid_t effective)
{
    printf("-- %s\n", words);
    int before = requests();
    REAP(CHILD({
        if (user != effective) {
            setgroups(0, NULL);
            SHOW(setresuid(user, effective, user));
        } else {
            become(user, user);
        }
        look("m");
    }));
    TRUE(requests() == before);
}

static void hand_over(void)
{
    printf("-- open files that are handed over\n");
    int fd = open("m/file", O_RDWR), dir = open("m", O_RDONLY | O_DIRECTORY);
    REAP(CHILD({
        become(2000, 2000);
        char text[20];
        struct stat found;
        SHOW(read(fd, text, sizeof text));
        SHOW(pwrite(fd, "Z", 1, 0));
        SHOW(fsync(fd));
        SHOW(fstat(fd, &found));
        SHOW(ftruncate(fd, 3));
        SHOW(fchmod(fd, 0777));
        SHOW(fstat(dir, &found));
        SHOW(fstatat(dir, "file", &found, 0));
        SHOW(openat(dir, "file", O_RDONLY));
        SHOW(fchdir(dir));
        SHOW(syscall(SYS_getdents64, dir, text, sizeof text) < 0 ? errno == EINVAL : 0);
    }));
    close(fd);
    close(dir);
}

static void through_proc(pid_t owner)
{
    printf("-- by /proc/PID/root\n");
    char here[2000], path[2100];
    getcwd(here, sizeof here);
    snprintf(path, sizeof path, "/proc/%d/root%s/m/file", owner, here);
    struct stat found;
    int before = requests();
    SHOW(stat(path, &found));
    SHOW(open(path, O_RDONLY));
    *strrchr(path, '/') = 0;
    SHOW(stat(path, &found));
    snprintf(path, sizeof path, "/proc/%d/cwd", owner);
    SHOW(stat(path, &found));
    TRUE(requests() == before);
}

static void of_owner(void)
{
    char text[20];
    int fd = open("m/file", O_RDONLY);
    SHOW(read(fd, text, sizeof text));
    close(fd);
    struct stat found;
    SHOW(stat("m", &found));
    printf("   %d %d\n", world->last_uid, world->last_gid);
}

/* Mounts and serves as a user in a name space of users of his own, where he is root; others look from outside. */
static void in_user_namespace(void)
{
    printf("-- in a name space of users\n");
    int ready[2], done[2];
    if (pipe(ready) || pipe(done))
        return;
    chmod(".", 0777);
    pid_t owner = CHILD({
        become(1000, 1000);
        prctl(PR_SET_DUMPABLE, 1);
        SHOW(unshare(CLONE_NEWUSER | CLONE_NEWNS));
        put_text("/proc/self/setgroups", "deny");
        put_text("/proc/self/uid_map", "0 1000 1");
        put_text("/proc/self/gid_map", "0 1000 1");
        world->device = open("device", O_RDWR | O_CLOEXEC);
        char options[100];
        snprintf(options, sizeof options, "fd=%d,rootmode=40755,user_id=0,group_id=0", world->device);
        SHOW(mount("hand", "m", "fuse.hand", MS_NOSUID | MS_NODEV, options));
        world->pid = CHILD(serve());
        close(world->device);
        of_owner();
        chdir("m");
        tell(ready[1]);
        hear(done[0]);
        chdir("..");
        SHOW(umount("m"));
        end_server();
    });
    hear(ready[0]);
    through_proc(owner);
    REAP(CHILD({
        become(2000, 2000);
        through_proc(owner);
    }));
    tell(done[1]);
    REAP(owner);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    mkdir("m", 0755);
    chmod(".", 0755);
    make_world();
    add_node(1, "file", S_IFREG | 0755, "0123456789");
    add_node(1, "link", S_IFLNK | 0777, "file");
    int dir = add_node(1, "dir", S_IFDIR | 0755, NULL);
    add_node(dir, "in", S_IFREG | 0644, "in");
    SHOW(mount_world("m", 0, ""));
    of_owner();
    refused("another user", 2000, 2000);
    refused("root for others", 0, 2000);
    refused("another one as root", 2000, 0);
    hand_over();
    SHOW(umount("m"));
    end_server();

    printf("-- allow_other\n");
    SHOW(mount_world("m", 0, ",allow_other,default_permissions"));
    REAP(CHILD({
        become(2000, 2000);
        struct stat found;
        SHOW(stat("m/file", &found));
        SHOW(open("m/file", O_RDWR));
        SHOW(open("m/new", O_RDWR | O_CREAT, 0600));
        int fd = open("m/file", O_RDONLY);
        TRUE(fd >= 0);
        SHOW(chmod("m/file", 0777));
        SHOW(access("m/file", W_OK));
        printf("   %d %d\n", world->last_uid, world->last_gid);
    }));
    SHOW(umount("m"));
    end_server();
    in_user_namespace();
    return 0;
}
