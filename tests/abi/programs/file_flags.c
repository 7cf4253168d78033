/* Flags of files (chattr) on a tmpfs: who may set which, by both requests, what they forbid, and to whom. */
#include "abi.h"
#include <linux/fs.h>

struct status {
    uint32_t mask, block_size;
    uint64_t attributes;
    uint32_t fields[4];
    uint64_t inode, size, blocks, attributes_mask;
    uint64_t rest[24];
};

static int get(int fd)
{
    int flags = 0;
    return ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0 ? -1 : flags;
}

static int set(int fd, int flags)
{
    return ioctl(fd, FS_IOC_SETFLAGS, &flags);
}

static int set_extended(int fd, unsigned flags, unsigned extent_bytes, unsigned project)
{
    struct fsxattr wanted = { .fsx_xflags = flags, .fsx_extsize = extent_bytes, .fsx_projid = project };
    return ioctl(fd, FS_IOC_FSSETXATTR, &wanted);
}

static void show_extended(const char *name, int fd)
{
    struct fsxattr told;
    memset(&told, 0x55, sizeof told);
    if (ioctl(fd, FS_IOC_FSGETXATTR, &told) < 0)
        printf("   %s: %s\n", name, ERRNO_NAME(errno));
    else
        printf("   %s: flags %#x, extents %u of %u, project %u, %u\n", name, told.fsx_xflags, told.fsx_nextents,
               told.fsx_extsize, told.fsx_projid, told.fsx_cowextsize);
}

static void show_status(const char *name)
{
    struct status status;
    memset(&status, 0, sizeof status);
    SHOW(syscall(SYS_statx, AT_FDCWD, name, AT_SYMLINK_NOFOLLOW, 0xfff, &status));
    printf("   %s: attributes %#lx of %#lx\n", name, status.attributes & 0xfff, status.attributes_mask & ~0x2000ul);
}

static int open_and_close(const char *name, int flags)
{
    int fd = open(name, flags, 0644);
    return fd < 0 ? -1 : close(fd);
}

/* Whether it can be mapped so. */
static int map_file(int fd, int protection, int flags)
{
    void *map = mmap(NULL, 4096, protection, flags, fd, 0);
    return map == MAP_FAILED ? -1 : munmap(map, 4096);
}

/* Which bits each request takes. */
static void bits(const char *name, int fd)
{
    printf("-- bits of %s\n", name);
    for (int bit = 0; bit < 32; bit++) {
        int taken = set(fd, (int)(1u << bit));
        const char *why = taken < 0 ? ERRNO_NAME(errno) : "ok";
        printf("   %#x: %s, %#x\n", 1u << bit, why, get(fd));
        set(fd, 0);
    }
    for (int bit = 0; bit < 17; bit++) {
        int taken = set_extended(fd, 1u << bit, 0, 0);
        const char *why = taken < 0 ? ERRNO_NAME(errno) : "ok";
        printf("   extended %#x: %s, %#x\n", 1u << bit, why, get(fd));
        set(fd, 0);
    }
    SHOW(set_extended(fd, 0, 0, 7));
    SHOW(set_extended(fd, 0, 0, -1u));
    SHOW(set_extended(fd, 0x800, 4096, 0));
    SHOW(set_extended(fd, 0x80 | 0x40, 0, 0));
    show_extended(name, fd);
    SHOW(set(fd, 0));
}

static void immutable(void)
{
    printf("-- immutable\n");
    put_text("file", "text");
    int before = open("file", O_RDWR);
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, before, 0);
    int fd = open("file", O_RDONLY);
    SHOW(set(fd, FS_IMMUTABLE_FL));
    show_status("file");
    SHOW(open_and_close("file", O_RDWR));
    SHOW(open_and_close("file", O_WRONLY | O_APPEND));
    SHOW(open_and_close("file", O_RDONLY | O_TRUNC));
    SHOW(open_and_close("file", O_RDONLY));
    SHOW(access("file", W_OK));
    SHOW(access("file", R_OK));
    SHOW(truncate("file", 1));
    SHOW(unlink("file"));
    SHOW(link("file", "other"));
    SHOW(rename("file", "other"));
    put_text("other", "other");
    SHOW(rename("other", "file"));
    SHOW(renameat2(AT_FDCWD, "other", AT_FDCWD, "file", RENAME_EXCHANGE));
    SHOW(chmod("file", 0600));
    SHOW(chown("file", 1, 1));
    SHOW(chown("file", -1, -1));
    SHOW(utimensat(AT_FDCWD, "file", NULL, 0));
    struct timespec times[2] = { { 1, 0 }, { 2, 0 } }, kept[2] = { { 0, UTIME_OMIT }, { 0, UTIME_NOW } };
    SHOW(utimensat(AT_FDCWD, "file", times, 0));
    SHOW(utimensat(AT_FDCWD, "file", kept, 0));
    SHOW(setxattr("file", "trusted.name", "value", 5, 0));
    SHOW(removexattr("file", "trusted.name"));
    SHOW(fallocate(before, 0, 0, 100));
    /* What was opened before may go on. */
    SHOW(write(before, "more", 4));
    SHOW(ftruncate(before, 3));
    map[0] = 'T';
    SHOW(map_file(before, PROT_READ | PROT_WRITE, MAP_SHARED));
    SHOW(fsync(before));
    SHOW(fchmod(before, 0600));
    SHOW(set(fd, 0));
    show_status("file");
    SHOW(unlink("file"));
    SHOW(unlink("other"));
    munmap(map, 4096);
    close(before);
    close(fd);
}

static void append_only(void)
{
    printf("-- append-only\n");
    put_text("file", "text");
    int before = open("file", O_RDWR | O_APPEND);
    int fd = open("file", O_RDONLY);
    SHOW(set(fd, FS_APPEND_FL));
    show_status("file");
    SHOW(open_and_close("file", O_RDWR));
    SHOW(open_and_close("file", O_RDWR | O_APPEND));
    SHOW(open_and_close("file", O_WRONLY | O_APPEND | O_CREAT));
    SHOW(open_and_close("file", O_WRONLY | O_APPEND | O_TRUNC));
    SHOW(open_and_close("file", O_RDONLY | O_TRUNC));
    SHOW(access("file", W_OK));
    SHOW(truncate("file", 1));
    SHOW(ftruncate(before, 1));
    SHOW(write(before, "more", 4));
    SHOW(fcntl(before, F_SETFL, 0));
    SHOW(fcntl(before, F_SETFL, O_APPEND | O_NONBLOCK));
    SHOW(fallocate(before, FALLOC_FL_KEEP_SIZE, 0, 100));
    SHOW(fallocate(before, 0, 0, 100));
    SHOW(fallocate(before, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 0, 100));
    SHOW(map_file(before, PROT_READ | PROT_WRITE, MAP_SHARED));
    SHOW(map_file(before, PROT_READ, MAP_SHARED));
    SHOW(map_file(before, PROT_READ | PROT_WRITE, MAP_PRIVATE));
    SHOW(map_file(fd, PROT_READ, MAP_SHARED));
    SHOW(unlink("file"));
    SHOW(rename("file", "other"));
    SHOW(link("file", "other"));
    SHOW(chmod("file", 0600));
    SHOW(utimensat(AT_FDCWD, "file", NULL, 0));
    struct timespec times[2] = { { 1, 0 }, { 2, 0 } };
    SHOW(utimensat(AT_FDCWD, "file", times, 0));
    SHOW(setxattr("file", "trusted.name", "value", 5, 0));
    SHOW(set(fd, 0));
    SHOW(unlink("file"));
    close(before);
    close(fd);
}

static void directories(void)
{
    printf("-- directories\n");
    mkdir("d", 0755);
    mkdir("d/sub", 0755);
    put_text("d/file", "text");
    int fd = open("d", O_RDONLY);
    SHOW(set(fd, FS_IMMUTABLE_FL));
    SHOW(open_and_close("d/new", O_WRONLY | O_CREAT));
    SHOW(open_and_close("d/file", O_WRONLY | O_CREAT));
    SHOW(open_and_close("d", O_TMPFILE | O_RDWR));
    SHOW(mkdir("d/new", 0755));
    SHOW(mkdir("d/sub", 0755));
    SHOW(symlink("x", "d/new"));
    SHOW(mknod("d/new", S_IFIFO | 0644, 0));
    SHOW(link("d/file", "d/new"));
    SHOW(unlink("d/file"));
    SHOW(unlink("d/none"));
    SHOW(rmdir("d/sub"));
    SHOW(rename("d/file", "file"));
    SHOW(rename("d/file", "d/other"));
    SHOW(rmdir("d"));
    SHOW(set(fd, FS_APPEND_FL));
    SHOW(open_and_close("d/new", O_WRONLY | O_CREAT));
    SHOW(unlink("d/new"));
    SHOW(rmdir("d/sub"));
    SHOW(rename("d/file", "d/other"));
    put_text("outside", "text");
    SHOW(rename("outside", "d/inside"));
    SHOW(rename("d/inside", "outside"));
    SHOW(chmod("d", 0700));
    /* What is made inside has what such a file may have. */
    SHOW(set(fd, FS_NODUMP_FL | FS_NOATIME_FL));
    int made = open("d/made", O_RDWR | O_CREAT, 0644);
    SHOW(get(made));
    close(made);
    mkdir("d/made2", 0755);
    made = open("d/made2", O_RDONLY);
    SHOW(get(made));
    close(made);
    SHOW(set(fd, 0));
    close(fd);
}

static void access_time(void)
{
    printf("-- no access time\n");
    put_text("file", "text");
    int fd = open("file", O_RDONLY);
    struct timespec times[2] = { { 1, 0 }, { 2, 0 } };
    char byte;
    for (int flags = FS_NOATIME_FL; flags >= 0; flags -= FS_NOATIME_FL) {
        set(fd, 0);
        utimensat(AT_FDCWD, "file", times, 0);
        SHOW(set(fd, flags));
        SHOW(pread(fd, &byte, 1, 0));
        struct stat status;
        stat("file", &status);
        TRUE(status.st_atime == 1);
    }
    close(fd);
}

static void others(void)
{
    printf("-- who else\n");
    put_text("mine", "text");
    put_text("theirs", "text");
    chown("theirs", 1000, 1000);
    chmod("theirs", 0666);
    int mine = open("mine", O_RDONLY), theirs = open("theirs", O_RDONLY);
    REAP(CHILD({
        setresgid(1000, 1000, 1000);
        setresuid(1000, 1000, 1000);
        SHOW(set(mine, FS_NODUMP_FL));
        SHOW(get(mine));
        SHOW(set(theirs, FS_NODUMP_FL));
        SHOW(set(theirs, FS_NODUMP_FL | FS_IMMUTABLE_FL));
        SHOW(set(theirs, FS_APPEND_FL));
        SHOW(set_extended(theirs, 0x10, 0, 0));
        SHOW(set_extended(theirs, 0x40, 0, 0));
        SHOW(get(theirs));
    }));
    SHOW(set(theirs, FS_IMMUTABLE_FL));
    REAP(CHILD({
        setresgid(1000, 1000, 1000);
        setresuid(1000, 1000, 1000);
        SHOW(open_and_close("theirs", O_WRONLY));
        SHOW(set(theirs, 0));
        SHOW(set(theirs, FS_IMMUTABLE_FL | FS_NODUMP_FL));
    }));
    SHOW(set(theirs, 0));
    close(mine);
    close(theirs);
}

static void wrong(void)
{
    printf("-- wrong\n");
    int ends[2], value = 0;
    int handle = open("mine", O_PATH), fd = open("mine", O_RDONLY), process = open("/proc/self/stat", O_RDONLY);
    mknod("fifo", S_IFIFO | 0644, 0);
    int fifo = open("fifo", O_RDWR);
    pipe(ends);
    SHOW(get(ends[0]));
    SHOW(set(ends[0], 0));
    SHOW(get(fifo));
    SHOW(set(fifo, 0));
    SHOW(get(process));
    SHOW(set(process, 0));
    SHOW(set_extended(process, 0, 0, 0));
    show_extended("process", process);
    SHOW(get(handle));
    SHOW(get(-1));
    SHOW(ioctl(fd, FS_IOC_GETFLAGS, NULL));
    SHOW(ioctl(fd, FS_IOC_SETFLAGS, NULL));
    SHOW(ioctl(ends[0], FS_IOC_SETFLAGS, NULL));
    SHOW(ioctl(fd, FS_IOC_FSGETXATTR, (void *)1));
    SHOW(ioctl(fd, FS_IOC_FSSETXATTR, (void *)1));
    SHOW(ioctl(fd, FS_IOC_GETVERSION, &value));
    SHOW(ioctl(ends[0], FS_IOC_GETVERSION, &value));
    SHOW(mount(NULL, ".", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL));
    SHOW(set(fd, 0));
    SHOW(get(fd));
    close(process);
    close(handle);
    close(fifo);
    close(fd);
}

int main(void)
{
    mkdir("m", 0755);
    SHOW(mount("m", "m", "tmpfs", 0, NULL));
    SHOW(chdir("m"));
    put_text("file", "");
    mkdir("dir", 0755);
    int file = open("file", O_RDONLY), directory = open("dir", O_RDONLY);
    bits("file", file);
    bits("dir", directory);
    show_extended("file", file);
    close(file);
    close(directory);
    immutable();
    append_only();
    directories();
    access_time();
    others();
    wrong();
    SHOW(chdir(".."));
    SHOW(umount("m"));
    return 0;
}
