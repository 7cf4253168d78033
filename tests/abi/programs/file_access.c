/* Permissions: owners, groups, other users, sticky and set-id bits, umask, chown, access, utimensat. */
#include "abi.h"

#define AS(uid_, gid_, ...)                                                                                            \
    REAP(CHILD({                                                                                                       \
        setgroups(0, NULL);                                                                                            \
        setresgid(gid_, gid_, gid_);                                                                                   \
        setresuid(uid_, uid_, uid_);                                                                                   \
        __VA_ARGS__;                                                                                                   \
    }))

static void show(const char *name)
{
    struct stat about;
    if (lstat(name, &about) < 0)
        printf("%s: %s\n", name, ERRNO_NAME(errno));
    else
        printf("%s: %o %d:%d size %ld\n", name, about.st_mode, about.st_uid, about.st_gid,
               S_ISDIR(about.st_mode) ? 0 : (long)about.st_size);
}

static int try_open(const char *name, int flags)
{
    int fd = open(name, flags, 0644);
    if (fd < 0)
        return -1;
    close(fd);
    return 0;
}

static void matrix(void)
{
    for (int mode = 0; mode <= 0777; mode += 0111) {
        put_text("m", "x");
        chmod("m", (mode_t)mode);
        chown("m", 1000, 2000);
        printf("mode %o\n", mode);
        AS(1000, 1, printf(" owner r%d w%d x%d\n", access("m", R_OK), access("m", W_OK), access("m", X_OK)));
        AS(1, 2000, printf(" group r%d w%d x%d\n", access("m", R_OK), access("m", W_OK), access("m", X_OK)));
        AS(1, 1, printf(" other r%d w%d x%d\n", access("m", R_OK), access("m", W_OK), access("m", X_OK)));
        printf(" root r%d w%d x%d\n", access("m", R_OK), access("m", W_OK), access("m", X_OK));
        unlink("m");
    }
    put_text("m", "x");
    chown("m", 1000, 2000);
    chmod("m", 0604);
    AS(1, 2000, { SHOW(try_open("m", O_RDONLY)); SHOW(try_open("m", O_WRONLY)); });
    AS(1, 1, { SHOW(try_open("m", O_RDONLY)); SHOW(try_open("m", O_WRONLY)); SHOW(try_open("m", O_RDONLY | O_TRUNC)); });
    AS(1000, 1, { SHOW(try_open("m", O_RDWR)); SHOW(chmod("m", 0777)); SHOW(chown("m", 1, 1)); });
    AS(1, 1, { SHOW(chmod("m", 0)); SHOW(chown("m", -1, -1)); SHOW(chown("m", 1, -1)); SHOW(unlink("m")); SHOW(try_open("new", O_CREAT)); });
    SHOW(access("m", 8));
    SHOW(access("absent", F_OK));
    unlink("m");
}

static void folders(void)
{
    mkdir("d", 0755);
    put_text("d/f", "x");
    chmod("d", 0444);
    AS(1, 1, {
        SHOW(try_open("d", O_RDONLY));
        SHOW(try_open("d/f", O_RDONLY));
        SHOW(access("d/f", F_OK));
        SHOW(chdir("d"));
    });
    chmod("d", 0111);
    AS(1, 1, { SHOW(try_open("d", O_RDONLY)); SHOW(try_open("d/f", O_RDONLY)); SHOW(chdir("d")); SHOW(unlink("f")); });
    chmod("d", 01777);
    put_text("d/mine", "x");
    chown("d/mine", 1, 1);
    AS(2, 2, { SHOW(unlink("d/mine")); SHOW(rename("d/mine", "d/other")); SHOW(try_open("d/his", O_CREAT)); });
    AS(1, 1, { SHOW(unlink("d/mine")); SHOW(unlink("d/his")); SHOW(unlink("d/f")); });
    show("d/his");
    unlink("d/his");
    unlink("d/f");
    chmod("d", 02775);
    chown("d", 1000, 2000);
    show("d");
    chmod("d", 02777);
    AS(1, 1, { mkdir("d/sub", 0755); put_text("d/file", "x"); symlink("x", "d/link"); mkfifo("d/fifo", 0600); });
    show("d/sub");
    show("d/file");
    show("d/link");
    show("d/fifo");
    AS(1000, 5, { SHOW(chmod("d", 02755)); show("d"); });
}

static void set_ids(void)
{
    put_text("s", "x");
    chmod("s", 06755);
    show("s");
    int fd = open("s", O_WRONLY);
    SHOW(write(fd, "y", 1));
    show("s");
    chown("s", 1, 1);
    show("s");
    chmod("s", 06755);
    AS(1, 1, { int f = open("s", O_WRONLY); write(f, "z", 1); show("s"); });
    chmod("s", 06755);
    AS(1, 1, { SHOW(truncate("s", 0)); show("s"); });
    chmod("s", 06745);
    SHOW(chown("s", 2, 2));
    show("s");
    chmod("s", 06755);
    SHOW(chown("s", -1, -1));
    show("s");
    AS(2, 9, { SHOW(chmod("s", 02755)); show("s"); });
    AS(2, 2, { SHOW(chmod("s", 02755)); show("s"); });
    SHOW(fchmodat(AT_FDCWD, "s", 0600, 0));
    show("s");
    symlink("s", "l");
    SHOW(lchown("l", 7, 8));
    show("l");
    SHOW(fchownat(AT_FDCWD, "l", 9, 9, AT_SYMLINK_NOFOLLOW));
    show("l");
    show("s");
    SHOW(chown("l", 3, 3));
    show("s");
    SHOW(fchown(fd, 4, 4));
    SHOW(fchmod(fd, 0123));
    show("s");
    SHOW(chmod("absent", 0));
    SHOW(fchmod(99, 0));
    SHOW(fchownat(AT_FDCWD, "s", 0, 0, 0x4));
}

static void masks(void)
{
    mode_t masks[] = { 0, 022, 077, 0777 };
    for (int i = 0; i < 4; i++) {
        umask(masks[i]);
        close(open("u", O_CREAT | O_WRONLY, 0777));
        mkdir("v", 0777);
        mkfifo("w", 0666);
        mknod("y", S_IFREG | 0666, 0);
        show("u");
        show("v");
        show("w");
        show("y");
        unlink("u");
        rmdir("v");
        unlink("w");
        unlink("y");
    }
    printf("%o\n", umask(022));
    printf("%o\n", umask(0xfffff));
    printf("%o\n", umask(022));
    SHOW(mknod("device", S_IFCHR | 0600, makedev(1, 3)));
    SHOW(try_open("device", O_RDWR));
    AS(1, 1, SHOW(mknod("/tmp/device2", S_IFCHR | 0600, makedev(1, 3))));
    SHOW(mknod("bad", S_IFDIR | 0600, 0));
    SHOW(mknod("sock", S_IFSOCK | 0600, 0));
    SHOW(try_open("sock", O_RDONLY));
    SHOW(mknod("device", S_IFREG, 0));
}

static void stamps(void)
{
    struct stat about;
    put_text("t", "x");
    struct timespec both[2] = { { 1000, 111 }, { 2000, 222 } };
    SHOW(utimensat(AT_FDCWD, "t", both, 0));
    stat("t", &about);
    printf("%ld.%09ld %ld.%09ld\n", about.st_atim.tv_sec, about.st_atim.tv_nsec, about.st_mtim.tv_sec, about.st_mtim.tv_nsec);
    both[0].tv_nsec = UTIME_OMIT;
    both[1].tv_sec = 3000;
    SHOW(utimensat(AT_FDCWD, "t", both, 0));
    stat("t", &about);
    printf("%ld %ld\n", about.st_atim.tv_sec, about.st_mtim.tv_sec);
    both[1].tv_nsec = UTIME_NOW;
    SHOW(utimensat(AT_FDCWD, "t", both, 0));
    stat("t", &about);
    TRUE(about.st_mtim.tv_sec > 1000000000);
    both[1].tv_nsec = 1000000000;
    SHOW(utimensat(AT_FDCWD, "t", both, 0));
    SHOW(utimensat(AT_FDCWD, "absent", NULL, 0));
    SHOW(utimensat(AT_FDCWD, "t", NULL, 0x1));
    symlink("t", "tl");
    struct timespec link_times[2] = { { 5, 0 }, { 6, 0 } };
    SHOW(utimensat(AT_FDCWD, "tl", link_times, AT_SYMLINK_NOFOLLOW));
    lstat("tl", &about);
    printf("%ld\n", about.st_mtim.tv_sec);
    chmod("t", 0666);
    struct timespec now[2] = { { 0, UTIME_NOW }, { 0, UTIME_NOW } };
    AS(1, 1, { SHOW(utimensat(AT_FDCWD, "t", NULL, 0)); SHOW(utimensat(AT_FDCWD, "t", now, 0)); SHOW(utimensat(AT_FDCWD, "t", link_times, 0)); });
    chmod("t", 0644);
    AS(1, 1, SHOW(utimensat(AT_FDCWD, "t", NULL, 0)));
    int fd = open("t", O_RDWR);
    SHOW(futimens(fd, link_times));
    fstat(fd, &about);
    printf("%ld %ld\n", about.st_atim.tv_sec, about.st_mtim.tv_sec);
    /* Which times do which calls change? */
    static const char *const names[] = { "read", "write", "chmod", "link", "rename", "truncate", "open" };
    for (int i = 0; i < 7; i++) {
        struct timespec old[2] = { { 100, 0 }, { 100, 0 } };
        futimens(fd, old);
        struct stat before, after;
        fstat(fd, &before);
        pause_ms(12);
        char byte;
        switch (i) {
        case 0: pread(fd, &byte, 1, 0); break;
        case 1: pwrite(fd, "q", 1, 0); break;
        case 2: fchmod(fd, 0600); break;
        case 3: link("t", "t2"); break;
        case 4: rename("t2", "t3"); break;
        case 5: ftruncate(fd, 5); break;
        case 6: close(open("t", O_RDONLY)); break;
        }
        fstat(fd, &after);
        printf("%s: atime %d mtime %d ctime %d\n", names[i], after.st_atim.tv_sec != 100, after.st_mtim.tv_sec != 100,
               after.st_ctim.tv_sec != before.st_ctim.tv_sec || after.st_ctim.tv_nsec != before.st_ctim.tv_nsec);
    }
    struct timespec old[2] = { { 100, 0 }, { 100, 0 } };
    mkdir("td", 0755);
    utimensat(AT_FDCWD, "td", old, 0);
    put_text("td/x", "");
    stat("td", &about);
    printf("folder after create: mtime %d\n", about.st_mtim.tv_sec != 100);
    utimensat(AT_FDCWD, "td", old, 0);
    unlink("td/x");
    stat("td", &about);
    printf("folder after unlink: mtime %d\n", about.st_mtim.tv_sec != 100);
}

int main(void)
{
    chmod(".", 0777);
    matrix();
    folders();
    set_ids();
    masks();
    stamps();
    return 0;
}
