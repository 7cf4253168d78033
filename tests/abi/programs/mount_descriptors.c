/* Mounts by descriptor: open_tree, move_mount, fsopen, fsconfig, fsmount, fspick, mount_setattr, and wrong uses of them. */
#include "abi.h"
#include <linux/mount.h>

static int tree_of(int directory, const char *path, unsigned flags)
{
    return (int)syscall(SYS_open_tree, directory, path, flags);
}

static int move(int from, const char *from_path, int to, const char *to_path, unsigned flags)
{
    return (int)syscall(SYS_move_mount, from, from_path, to, to_path, flags);
}

static int attributes(int directory, const char *path, unsigned flags, uint64_t set, uint64_t clear, uint64_t propagation)
{
    struct mount_attr wanted = { .attr_set = set, .attr_clr = clear, .propagation = propagation };
    return (int)syscall(SYS_mount_setattr, directory, path, flags, &wanted, sizeof wanted);
}

static int configure(int fd, unsigned command, const char *key, const void *value, int extra)
{
    return (int)syscall(SYS_fsconfig, fd, command, key, value, extra);
}

/* The mount's line, without numbers. */
static void line(const char *name)
{
    static char here[4096], path[4200], text[8192];
    getcwd(here, sizeof here);
    snprintf(path, sizeof path, "%s/%s", here, name);
    FILE *file = fopen("/proc/self/mountinfo", "r");
    int found = 0;
    while (fgets(text, sizeof text, file)) {
        char *words[40], *next = text;
        int number = 0;
        while (number < 40 && (words[number] = strsep(&next, " \n")))
            number++;
        if (strcmp(words[4], path))
            continue;
        found = 1;
        printf("   %s: [%s] %s", name, words[3], words[5]);
        for (int word = 6; word < number && strcmp(words[word], "-"); word++)
            printf(" %.*s", (int)strcspn(words[word], ":"), words[word]);
        printf("\n");
    }
    if (!found)
        printf("   %s: not mounted\n", name);
    fclose(file);
}

static void trees(void)
{
    mkdir("a", 0755);
    mkdir("b", 0755);
    mount("a", "a", "tmpfs", MS_NOEXEC, NULL);
    mkdir("a/sub", 0755);
    mount("sub", "a/sub", "tmpfs", 0, NULL);
    put_text("a/sub/file", "text");
    int fd = tree_of(AT_FDCWD, "a", 0);
    TRUE(fd >= 0);
    SHOW(fcntl(fd, F_GETFL) & O_PATH ? 1 : 0);
    SHOW(fcntl(fd, F_GETFD));
    SHOW(move(fd, "", AT_FDCWD, "b", 0));
    SHOW(move(fd, "", AT_FDCWD, "b", MOVE_MOUNT_F_EMPTY_PATH));
    line("a");
    line("b");
    line("b/sub");
    SHOW(move(AT_FDCWD, "b", AT_FDCWD, "a", 0));
    close(fd);
    fd = tree_of(AT_FDCWD, "a", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    SHOW(fcntl(fd, F_GETFD));
    SHOW(faccessat(fd, "sub", F_OK, 0));
    SHOW(faccessat(fd, "sub/file", F_OK, 0));
    SHOW(move(fd, "sub", AT_FDCWD, "b", 0));
    SHOW(move(fd, "", AT_FDCWD, "b", MOVE_MOUNT_F_EMPTY_PATH));
    line("b");
    SHOW(umount("b"));
    close(fd);
    SHOW(umount("b"));
    fd = tree_of(AT_FDCWD, "a", OPEN_TREE_CLONE | AT_RECURSIVE);
    SHOW(faccessat(fd, "sub/file", F_OK, 0));
    int file = openat(fd, "sub/file", O_RDONLY);
    close(fd);
    char byte;
    SHOW(read(file, &byte, 1));
    close(file);
    fd = tree_of(AT_FDCWD, "a", OPEN_TREE_CLONE | AT_RECURSIVE);
    SHOW(attributes(fd, "", AT_EMPTY_PATH | AT_RECURSIVE, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID, 0, MS_SHARED));
    SHOW(openat(fd, "sub/new", O_CREAT | O_WRONLY, 0644));
    SHOW(move(fd, "", AT_FDCWD, "b", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_SYMLINKS));
    close(fd);
    line("b");
    line("b/sub");
    SHOW(umount2("b", MNT_DETACH));
    SHOW(tree_of(AT_FDCWD, "absent", OPEN_TREE_CLONE));
    SHOW(tree_of(AT_FDCWD, "a", AT_RECURSIVE));
    SHOW(tree_of(AT_FDCWD, "a", 0x40000000));
    SHOW(tree_of(-1, "", AT_EMPTY_PATH));
    SHOW(tree_of(-1, (void *)8, 0));
    SHOW(move(AT_FDCWD, "a/sub", AT_FDCWD, "a/sub", 0x80000000u));
    SHOW(move(AT_FDCWD, "b", AT_FDCWD, "a", 0));
    SHOW(move(AT_FDCWD, "a", AT_FDCWD, "a/sub", 0));
    SHOW(move(AT_FDCWD, "a/sub", AT_FDCWD, "a/sub/file", 0));
    mount(NULL, "a", NULL, MS_UNBINDABLE, NULL);
    SHOW(tree_of(AT_FDCWD, "a", OPEN_TREE_CLONE));
    mount(NULL, "a", NULL, MS_PRIVATE, NULL);
    REAP(CHILD({
        setresuid(1, 1, 1);
        OK(tree_of(AT_FDCWD, "a", 0));
        SHOW(tree_of(AT_FDCWD, "a", OPEN_TREE_CLONE));
        SHOW(move(AT_FDCWD, "a/sub", AT_FDCWD, "b", 0));
        SHOW(attributes(AT_FDCWD, "a", 0, MOUNT_ATTR_RDONLY, 0, 0));
        SHOW(syscall(SYS_fsopen, "tmpfs", 0));
        SHOW(syscall(SYS_fspick, AT_FDCWD, "a", 0));
    }));
}

static void groups(void)
{
    mkdir("g", 0755);
    mkdir("h", 0755);
    mount("g", "g", "tmpfs", 0, NULL);
    mount("g", "h", NULL, MS_BIND, NULL);
    mount(NULL, "g", NULL, MS_SHARED, NULL);
    line("h");
    SHOW(move(AT_FDCWD, "g", AT_FDCWD, "h", MOVE_MOUNT_SET_GROUP));
    line("h");
    SHOW(move(AT_FDCWD, "g", AT_FDCWD, "h", MOVE_MOUNT_SET_GROUP));
    SHOW(move(AT_FDCWD, "g", AT_FDCWD, "a", MOVE_MOUNT_SET_GROUP));
    mkdir("g/in", 0755);
    mount("in", "g/in", "tmpfs", 0, NULL);
    line("h/in");
    SHOW(umount("h/in"));
    SHOW(umount("h"));
    SHOW(umount("g"));
}

static void setting(void)
{
    line("a");
    SHOW(attributes(AT_FDCWD, "a", 0, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC, 0));
    line("a");
    line("a/sub");
    SHOW(attributes(AT_FDCWD, "a", AT_RECURSIVE, MOUNT_ATTR_NOSUID, MOUNT_ATTR_RDONLY, 0));
    line("a");
    line("a/sub");
    SHOW(attributes(AT_FDCWD, "a", 0, MOUNT_ATTR_NOATIME, 0, 0));
    SHOW(attributes(AT_FDCWD, "a", 0, MOUNT_ATTR_NOATIME | MOUNT_ATTR_NODIRATIME, MOUNT_ATTR__ATIME, 0));
    line("a");
    SHOW(attributes(AT_FDCWD, "a", 0, MOUNT_ATTR_STRICTATIME, MOUNT_ATTR__ATIME, 0));
    line("a");
    SHOW(attributes(AT_FDCWD, "a", 0, 0x30, MOUNT_ATTR__ATIME, 0));
    SHOW(attributes(AT_FDCWD, "a", 0, 0, MOUNT_ATTR_NOATIME, 0));
    SHOW(attributes(AT_FDCWD, "a", 0, 0, MOUNT_ATTR__ATIME, MS_SHARED));
    line("a");
    SHOW(attributes(AT_FDCWD, "a", 0, 0, 0, MS_SHARED | MS_PRIVATE));
    SHOW(attributes(AT_FDCWD, "a", 0, 0, 0, MS_BIND));
    SHOW(attributes(AT_FDCWD, "a", 0, 0, 0, MS_PRIVATE));
    SHOW(attributes(AT_FDCWD, "a", 0, 1ul << 40, 0, 0));
    SHOW(attributes(AT_FDCWD, "a", 0, 0, 0, 0));
    SHOW(attributes(AT_FDCWD, "a/sub/file", 0, MOUNT_ATTR_RDONLY, 0, 0));
    SHOW(attributes(AT_FDCWD, "absent", 0, MOUNT_ATTR_RDONLY, 0, 0));
    SHOW(attributes(AT_FDCWD, "a", 0x40000000, MOUNT_ATTR_RDONLY, 0, 0));
    /* All or none. */
    int fd = open("a/sub/file", O_WRONLY);
    SHOW(attributes(AT_FDCWD, "a", AT_RECURSIVE, MOUNT_ATTR_RDONLY, 0, 0));
    line("a");
    close(fd);
    SHOW(attributes(AT_FDCWD, "a", AT_RECURSIVE, MOUNT_ATTR_RDONLY, 0, 0));
    SHOW(attributes(AT_FDCWD, "a", AT_RECURSIVE, 0, MOUNT_ATTR_RDONLY, 0));
    char longer[64] = { MOUNT_ATTR_NODEV };
    SHOW(syscall(SYS_mount_setattr, AT_FDCWD, "a", 0, longer, 64));
    longer[40] = 1;
    SHOW(syscall(SYS_mount_setattr, AT_FDCWD, "a", 0, longer, 64));
    SHOW(syscall(SYS_mount_setattr, AT_FDCWD, "a", 0, longer, 16));
    SHOW(syscall(SYS_mount_setattr, AT_FDCWD, "a", 0, longer, 100000));
    SHOW(syscall(SYS_mount_setattr, AT_FDCWD, "a", 0, (void *)8, 32));
}

static void contexts(void)
{
    int fs = (int)syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);
    TRUE(fs >= 0);
    SHOW(fcntl(fs, F_GETFD));
    SHOW(configure(fs, FSCONFIG_SET_STRING, "source", "mine", 0));
    SHOW(configure(fs, FSCONFIG_SET_STRING, "source", "other", 0));
    SHOW(configure(fs, FSCONFIG_SET_STRING, "size", "1m", 0));
    SHOW(configure(fs, FSCONFIG_SET_STRING, "mode", "0711", 0));
    SHOW(configure(fs, FSCONFIG_SET_FLAG, "ro", "x", 0));
    SHOW(configure(fs, FSCONFIG_SET_STRING, "size", NULL, 0));
    SHOW(configure(fs, FSCONFIG_SET_FLAG, NULL, NULL, 0));
    SHOW(configure(fs, FSCONFIG_CMD_CREATE, "x", NULL, 0));
    SHOW(configure(fs, 99, NULL, NULL, 0));
    SHOW(configure(-1, FSCONFIG_CMD_CREATE, NULL, NULL, 0));
    SHOW(configure(99, FSCONFIG_CMD_CREATE, NULL, NULL, 0));
    SHOW(configure(0, FSCONFIG_CMD_CREATE, NULL, NULL, 0));
    SHOW(syscall(SYS_fsmount, fs, 0, 0));
    SHOW(configure(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0));
    SHOW(configure(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0));
    SHOW(configure(fs, FSCONFIG_SET_STRING, "size", "2m", 0));
    SHOW(syscall(SYS_fsmount, fs, 0x100, 0));
    SHOW(syscall(SYS_fsmount, fs, 0, 0x1000000));
    int mounted = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME);
    TRUE(mounted >= 0);
    SHOW(syscall(SYS_fsmount, fs, 0, 0));
    close(fs);
    SHOW(mkdirat(mounted, "made", 0755));
    mkdir("c", 0755);
    SHOW(move(mounted, "", AT_FDCWD, "c", MOVE_MOUNT_F_EMPTY_PATH));
    line("c");
    SHOW(access("c/made", F_OK));
    struct stat about;
    stat("c", &about);
    printf("mode %o\n", about.st_mode);
    SHOW(move(mounted, "", AT_FDCWD, "b", MOVE_MOUNT_F_EMPTY_PATH));
    line("b");
    SHOW(umount2("b", MNT_DETACH));
    SHOW(faccessat(mounted, "made", F_OK, 0));
    SHOW(move(mounted, "", AT_FDCWD, "b", MOVE_MOUNT_F_EMPTY_PATH));
    close(mounted);
    SHOW(syscall(SYS_fsopen, "nonsense", 0));
    SHOW(syscall(SYS_fsopen, "tmpfs", 8));
    SHOW(syscall(SYS_fsopen, (void *)8, 0));
    SHOW(syscall(SYS_fsmount, 0, 0, 0));
    fs = (int)syscall(SYS_fsopen, "tmpfs", 0);
    char text[256];
    SHOW(read(fs, text, sizeof text));
    close(fs);
    mount("c", "c", "tmpfs", 0, "size=1m");
    int pick = (int)syscall(SYS_fspick, AT_FDCWD, "c", 0);
    TRUE(pick >= 0);
    SHOW(configure(pick, FSCONFIG_SET_STRING, "size", "64k", 0));
    SHOW(configure(pick, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0));
    struct statfs size;
    statfs("c", &size);
    SHOW(size.f_blocks * size.f_bsize);
    SHOW(syscall(SYS_fspick, AT_FDCWD, "c/..", 0x100));
    SHOW(syscall(SYS_fspick, AT_FDCWD, "absent", 0));
    mkdir("plain", 0755);
    SHOW(syscall(SYS_fspick, AT_FDCWD, "plain", 0));
    close(pick);
    SHOW(umount("c"));
}

int main(void)
{
    SHOW(unshare(CLONE_NEWNS));
    SHOW(mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL));
    mkdir("w", 0755);
    mount("w", "w", "tmpfs", 0, NULL);
    chdir("w");
    trees();
    groups();
    setting();
    contexts();
    return 0;
}
