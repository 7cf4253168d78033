/* Reading directories, the current directory, stat and statx, statfs, extended attributes. */
#include "abi.h"

struct entry {
    uint64_t inode;
    int64_t offset;
    unsigned short length;
    unsigned char type;
    char name[];
};

static int compare(const void *one, const void *other)
{
    return strcmp(*(char *const *)one, *(char *const *)other);
}

static void listing(void)
{
    mkdir("d", 0755);
    for (int i = 0; i < 300; i++) {
        char name[64];
        snprintf(name, sizeof name, "d/file-with-a-long-name-%03d", i);
        close(open(name, O_CREAT | O_WRONLY, 0600));
    }
    mkdir("d/sub", 0755);
    symlink("x", "d/sym");
    mkfifo("d/pipe", 0600);
    int fd = open("d", O_RDONLY);
    static char buffer[1000];
    static char *names[400];
    int count = 0, calls = 0, good = 1;
    long got;
    while ((got = syscall(SYS_getdents64, fd, buffer, sizeof buffer)) > 0) {
        calls++;
        for (long at = 0; at < got;) {
            struct entry *entry = (struct entry *)(buffer + at);
            char text[80];
            snprintf(text, sizeof text, "%s %d", entry->name, entry->type);
            if (count < 400)
                names[count++] = strdup(text);
            good &= entry->inode != 0 && entry->length % 8 == 0;
            at += entry->length;
        }
    }
    qsort(names, (size_t)count, sizeof *names, compare);
    SHOW(count);
    SHOW(good);
    TRUE(calls > 10);
    printf("%s, %s, %s, %s, %s\n", names[0], names[1], names[2], names[count - 2], names[count - 1]);
    printf("%s\n", names[count - 3]);
    SHOW(syscall(SYS_getdents64, fd, buffer, sizeof buffer));
    lseek(fd, 0, SEEK_SET);
    TRUE(syscall(SYS_getdents64, fd, buffer, sizeof buffer) > 0);
    lseek(fd, 0, SEEK_SET);
    SHOW(syscall(SYS_getdents64, fd, buffer, 10));
    SHOW(syscall(SYS_getdents64, fd, (void *)8, 1000));
    int file = open("plain", O_CREAT | O_RDWR, 0600);
    SHOW(syscall(SYS_getdents64, file, buffer, sizeof buffer));
    SHOW(syscall(SYS_getdents64, 99, buffer, sizeof buffer));
    /* Removing while reading neither loops nor loses. */
    DIR *folder = opendir("d");
    struct dirent *entry;
    int removed = 0;
    while ((entry = readdir(folder)))
        if (entry->d_name[0] == 'f') {
            char path[300];
            snprintf(path, sizeof path, "d/%s", entry->d_name);
            removed += unlink(path) == 0;
        }
    closedir(folder);
    SHOW(removed);
    SHOW(rmdir("d/sub"));
    SHOW(unlink("d/sym"));
    SHOW(unlink("d/pipe"));
    /* A folder that is removed while it is open reads as empty. */
    SHOW(rmdir("d"));
    lseek(fd, 0, SEEK_SET);
    SHOW(syscall(SYS_getdents64, fd, buffer, sizeof buffer));
}

static void current(void)
{
    char where[512];
    mkdir("a", 0755);
    mkdir("a/b", 0755);
    symlink("a/b", "short");
    SHOW(chdir("short"));
    printf("%s\n", getcwd(where, sizeof where));
    SHOW(syscall(SYS_getcwd, where, 10));
    SHOW(syscall(SYS_getcwd, where, 0));
    SHOW(syscall(SYS_getcwd, (void *)8, 100));
    SHOW(syscall(SYS_getcwd, where, 512));
    SHOW(chdir(".."));
    printf("%s\n", getcwd(where, sizeof where));
    SHOW(chdir(".."));
    SHOW(chdir("plain"));
    SHOW(chdir("absent"));
    SHOW(chdir(""));
    SHOW(fchdir(99));
    int file = open("plain", O_RDONLY);
    SHOW(fchdir(file));
    int folder = open("a", O_PATH);
    SHOW(fchdir(folder));
    printf("%s\n", getcwd(where, sizeof where));
    chdir("..");
}

static void status(void)
{
    struct stat about;
    put_text("s", "twelve bytes");
    SHOW(stat("s", &about));
    printf("%o %ld %ld %ld %ld\n", about.st_mode, (long)about.st_nlink, (long)about.st_size, (long)about.st_blocks,
           (long)about.st_blksize);
    struct stat link;
    symlink("s", "sl");
    lstat("sl", &link);
    printf("%o %ld\n", link.st_mode, (long)link.st_size);
    stat("sl", &link);
    TRUE(link.st_ino == about.st_ino && link.st_dev == about.st_dev);
    TRUE(about.st_ino != 0);
    stat("/dev/null", &about);
    printf("null %o %d:%d\n", about.st_mode, major(about.st_rdev), minor(about.st_rdev));
    stat(".", &about);
    printf(". %o links %ld\n", about.st_mode, (long)about.st_nlink);
    SHOW(stat("absent", &about));
    SHOW(stat("s/x", &about));
    SHOW(stat("s", (void *)8));
    SHOW(stat((void *)8, &about));
    SHOW(fstat(99, &about));
    SHOW(fstatat(AT_FDCWD, "s", &about, 0x10000));
    struct statx more;
    memset(&more, 0, sizeof more);
    SHOW(statx(AT_FDCWD, "s", 0, STATX_BASIC_STATS | STATX_BTIME, &more));
    printf("mask basic %d, size %llu mode %o links %u\n", (more.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS,
           more.stx_size, more.stx_mode, more.stx_nlink);
    SHOW(statx(AT_FDCWD, "sl", AT_SYMLINK_NOFOLLOW, STATX_TYPE, &more));
    printf("%o\n", more.stx_mode & S_IFMT);
    SHOW(statx(AT_FDCWD, "", AT_EMPTY_PATH, STATX_TYPE, &more));
    SHOW(statx(AT_FDCWD, "s", 0x8000000, STATX_TYPE, &more));
    SHOW(statx(AT_FDCWD, "s", 0, 0x80000000, &more));
    SHOW(statx(99, "s", 0, 0, &more));
    SHOW(statx(AT_FDCWD, "s", 0, 0, (void *)8));
    struct statfs system;
    SHOW(statfs(".", &system));
    printf("type %#lx block %ld name %ld\n", (long)system.f_type, (long)system.f_bsize, (long)system.f_namelen);
    SHOW(statfs("/proc", &system));
    printf("type %#lx\n", (long)system.f_type);
    SHOW(statfs("absent", &system));
    SHOW(fstatfs(99, &system));
    SHOW(access("s", F_OK));
    SHOW(syscall(SYS_faccessat2, AT_FDCWD, "s", R_OK, AT_EACCESS));
    SHOW(syscall(SYS_faccessat2, AT_FDCWD, "s", R_OK, 0x1));
}

int main(void)
{
    listing();
    current();
    status();
    return 0;
}
