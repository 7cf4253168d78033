/* Files as disks: every request of /dev/loopN and /dev/loop-control, what is read and written through them, partitions, and what is refused.
 *
 * abi: guest
 */
#include "guest.h"
#include <linux/fs.h>
#include <linux/loop.h>

#define SIZE (1 << 20)
#define CHECK(expr) EXPECT((expr) >= 0, "%s", ERRNO_NAME(errno))
#define REFUSED(expr, number)                                                                                          \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        int result_ = (int)(expr);                                                                                     \
        EXPECT(result_ == -1 && errno == (number), "%s = %d %s", #expr, result_, ERRNO_NAME(errno));                   \
    } while (0)

static int control;

static int file_of(const char *name, int byte, int size)
{
    static char block[4096];
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    memset(block, byte, sizeof block);
    for (int done = 0; done < size; done += (int)sizeof block)
        CHECK(write(fd, block, sizeof block));
    return fd;
}

static int device(int number, int flags)
{
    char path[32];
    snprintf(path, sizeof path, "/dev/loop%d", number);
    int fd = open(path, flags);
    EXPECT(fd >= 0, "%s: %s", path, ERRNO_NAME(errno));
    return fd;
}

static long size_of(int fd)
{
    unsigned long long bytes = 0;
    CHECK(ioctl(fd, BLKGETSIZE64, &bytes));
    return (long)bytes;
}

static const char *shown(int number, const char *what)
{
    char path[96];
    snprintf(path, sizeof path, "/sys/block/loop%d/%s", number, what);
    return contents_of(path);
}

/* What is written through one of both is read through the other. */
static void transfers(void)
{
    char page[4096], seen[4096];
    int file = file_of("data", 'f', SIZE), number = ioctl(control, LOOP_CTL_GET_FREE), fd = device(number, O_RDWR);
    struct loop_info64 info;
    EXPECT(size_of(fd) == 0, "%ld bytes without a file", size_of(fd));
    REFUSED(ioctl(fd, LOOP_GET_STATUS64, &info), ENXIO);
    REFUSED(ioctl(fd, LOOP_CLR_FD), ENXIO);
    CHECK(ioctl(fd, LOOP_SET_FD, file));
    REFUSED(ioctl(fd, LOOP_SET_FD, file), EBUSY);
    EXPECT(size_of(fd) == SIZE, "%ld bytes", size_of(fd));
    EXPECT(atol(shown(number, "size")) == SIZE / 512, "%s", shown(number, "size"));
    EXPECT(strstr(shown(number, "loop/backing_file"), "/data\n"), "%s", shown(number, "loop/backing_file"));
    CHECK(pread(fd, seen, sizeof seen, 8192));
    EXPECT(seen[0] == 'f' && seen[4095] == 'f', "%d", seen[0]);
    memset(page, 'd', sizeof page);
    for (int at = 0; at < SIZE; at += 8192)
        CHECK(pwrite(fd, page, sizeof page, at));
    CHECK(fsync(fd));
    for (int at = 0; at < SIZE; at += 4096) {
        CHECK(pread(file, seen, sizeof seen, at));
        EXPECT(seen[5] == (at % 8192 ? 'f' : 'd'), "%c at %d", seen[5], at);
    }
    struct stat about, of_file;
    fstat(file, &of_file);
    CHECK(ioctl(fd, LOOP_GET_STATUS64, &info));
    EXPECT(info.lo_inode == of_file.st_ino && info.lo_number == (unsigned)number && info.lo_flags == 0, "%llu %u %x",
           (unsigned long long)info.lo_inode, info.lo_number, info.lo_flags);
    /* A hole in the disk is one in the file. */
    unsigned long long range[2] = {0, SIZE / 2};
    CHECK(ioctl(fd, BLKDISCARD, range));
    fstat(file, &about);
    EXPECT(about.st_blocks < of_file.st_blocks && about.st_size == SIZE, "%ld blocks", (long)about.st_blocks);
    /* What the file loses reads as zeros, and does not come back. */
    CHECK(ftruncate(file, SIZE / 4));
    CHECK(ioctl(fd, BLKFLSBUF));
    CHECK(pread(fd, seen, sizeof seen, SIZE / 2 + 4096));
    EXPECT(seen[0] == 0, "%d", seen[0]);
    CHECK(ioctl(fd, LOOP_SET_CAPACITY));
    EXPECT(size_of(fd) == SIZE / 4, "%ld", size_of(fd));
    CHECK(ioctl(fd, LOOP_CLR_FD));
    EXPECT(size_of(fd) == 0, "%ld bytes after the end", size_of(fd));
    close(fd);
    close(file);
}

/* A window of the file; what is refused. */
static void settings(void)
{
    char seen[512];
    int file = file_of("window", 'w', SIZE), number = ioctl(control, LOOP_CTL_GET_FREE), fd = device(number, O_RDWR);
    CHECK(pwrite(file, "here", 4, 5120));
    CHECK(ioctl(fd, LOOP_SET_FD, file));
    struct loop_info64 info = {.lo_offset = 5120, .lo_sizelimit = 8192, .lo_file_name = "a name"};
    CHECK(ioctl(fd, LOOP_SET_STATUS64, &info));
    EXPECT(size_of(fd) == 8192, "%ld", size_of(fd));
    CHECK(pread(fd, seen, sizeof seen, 0));
    EXPECT(!memcmp(seen, "herew", 5), "%.5s", seen);
    EXPECT(read(fd, seen, 0) == 0 && pread(fd, seen, sizeof seen, 8192) == 0, "reads beyond the end");
    REFUSED(pwrite(fd, seen, sizeof seen, 8192), ENOSPC);
    struct loop_info64 got;
    CHECK(ioctl(fd, LOOP_GET_STATUS64, &got));
    EXPECT(got.lo_offset == 5120 && got.lo_sizelimit == 8192 && !strcmp((char *)got.lo_file_name, "a name"), "%llu %s",
           (unsigned long long)got.lo_offset, got.lo_file_name);
    struct loop_info old;
    CHECK(ioctl(fd, LOOP_GET_STATUS, &old));
    EXPECT(old.lo_offset == 5120 && old.lo_number == number && !strcmp(old.lo_name, "a name"), "%d", old.lo_offset);
    info.lo_offset = 1ull << 63;
    REFUSED(ioctl(fd, LOOP_SET_STATUS64, &info), EOVERFLOW);
    info.lo_offset = 1ull << 40;
    CHECK(ioctl(fd, LOOP_SET_STATUS64, &info));
    EXPECT(size_of(fd) == 0, "%ld", size_of(fd));
    CHECK(ioctl(fd, LOOP_GET_STATUS64, &got));
    REFUSED(ioctl(fd, LOOP_GET_STATUS, &old), EOVERFLOW);
    REFUSED(ioctl(fd, LOOP_GET_STATUS64, 1), EFAULT);
    REFUSED(ioctl(fd, LOOP_SET_BLOCK_SIZE, 100), EINVAL);
    CHECK(ioctl(fd, LOOP_CLR_FD));

    int directory = open(".", O_RDONLY), nothing[2];
    EXPECT(!pipe(nothing), "pipe");
    REFUSED(ioctl(fd, LOOP_SET_FD, directory), EINVAL);
    REFUSED(ioctl(fd, LOOP_SET_FD, nothing[0]), EINVAL);
    REFUSED(ioctl(fd, LOOP_SET_FD, -1), EBADF);
    REFUSED(ioctl(fd, LOOP_SET_FD, 900), EBADF);
    REFUSED(ioctl(fd, LOOP_SET_FD, fd), EBADF);

    /* A file that may only be read makes a disk that may only be read. */
    int reader = open("window", O_RDONLY);
    CHECK(ioctl(fd, LOOP_SET_FD, reader));
    CHECK(ioctl(fd, LOOP_GET_STATUS64, &got));
    EXPECT(got.lo_flags == LO_FLAGS_READ_ONLY && atol(shown(number, "ro")) == 1, "%x", got.lo_flags);
    REFUSED(pwrite(fd, seen, sizeof seen, 0), EPERM);
    char path[32];
    snprintf(path, sizeof path, "/dev/loop%d", number);
    REFUSED(open(path, O_RDWR), EACCES);

    /* A loop on a loop works; back to itself it does not. */
    int upper = ioctl(control, LOOP_CTL_GET_FREE), over = device(upper, O_RDWR);
    CHECK(ioctl(over, LOOP_SET_FD, fd));
    EXPECT(size_of(over) == SIZE, "%ld", size_of(over));
    CHECK(pread(over, seen, sizeof seen, 5120));
    EXPECT(!memcmp(seen, "herew", 5), "%.5s", seen);
    int third = ioctl(control, LOOP_CTL_GET_FREE);
    EXPECT(third != upper && third != number, "%d is in use", third);
    CHECK(ioctl(over, LOOP_CLR_FD));
    CHECK(ioctl(fd, LOOP_CLR_FD));
    CHECK(ioctl(fd, LOOP_SET_FD, over));
    REFUSED(ioctl(over, LOOP_SET_FD, fd), EBADF);
    CHECK(ioctl(fd, LOOP_CLR_FD));
    close(over);
    close(fd);
    close(reader);
    close(directory);
    close(nothing[0]);
    close(nothing[1]);
    close(file);
}

/* Bindings that end with the last user, and those that end while somebody else has the device. */
static void ends(void)
{
    int file = file_of("ends", 'e', SIZE), number = ioctl(control, LOOP_CTL_GET_FREE), fd = device(number, O_RDWR);
    struct loop_config config = {.fd = (unsigned)file};
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
    config.info.lo_offset = 4096;
    CHECK(ioctl(fd, LOOP_CONFIGURE, &config));
    int second = device(number, O_RDONLY);
    close(fd);
    EXPECT(size_of(second) == SIZE - 4096, "%ld", size_of(second));
    close(second);
    fd = device(number, O_RDWR);
    EXPECT(size_of(fd) == 0, "%ld bytes though nobody had it", size_of(fd));
    config.info.lo_flags = 1 << 20;
    REFUSED(ioctl(fd, LOOP_CONFIGURE, &config), EINVAL);
    CHECK(ioctl(fd, LOOP_SET_FD, file));
    second = device(number, O_RDONLY);
    CHECK(ioctl(fd, LOOP_CLR_FD));
    EXPECT(size_of(second) == SIZE, "%ld: others still have it", size_of(second));
    close(fd);
    close(second);
    EXPECT(ioctl(control, LOOP_CTL_GET_FREE) == number, "%d", ioctl(control, LOOP_CTL_GET_FREE));
    close(file);
}

/* Partitions come when they are asked for, and go with the binding. */
static void partitions(void)
{
    unsigned char sector[512] = {0};
    int file = file_of("parts", 0, SIZE), number = ioctl(control, LOOP_CTL_GET_FREE), fd = device(number, O_RDWR);
    sector[446 + 4] = 0x83;
    sector[446 + 8] = 8;
    sector[446 + 12] = 16;
    sector[510] = 0x55;
    sector[511] = 0xaa;
    CHECK(pwrite(file, sector, sizeof sector, 0));
    CHECK(pwrite(file, "first", 5, 8 * 512));
    struct loop_config config = {.fd = (unsigned)file};
    config.info.lo_flags = LO_FLAGS_PARTSCAN;
    CHECK(ioctl(fd, LOOP_CONFIGURE, &config));
    char path[32], seen[5];
    snprintf(path, sizeof path, "/dev/loop%dp1", number);
    int part = open(path, O_RDWR);
    EXPECT(part >= 0, "%s: %s", path, ERRNO_NAME(errno));
    EXPECT(size_of(part) == 16 * 512, "%ld", size_of(part));
    CHECK(pread(part, seen, sizeof seen, 0));
    EXPECT(!memcmp(seen, "first", 5), "%.5s", seen);
    REFUSED(ioctl(control, LOOP_CTL_REMOVE, number), EBUSY);
    close(part);
    CHECK(ioctl(fd, LOOP_CLR_FD));
    REFUSED(open(path, O_RDWR), ENOENT);
    close(fd);
    close(file);
}

static void numbers(void)
{
    EXPECT(ioctl(control, LOOP_CTL_ADD, 77) == 77, "%s", ERRNO_NAME(errno));
    REFUSED(ioctl(control, LOOP_CTL_ADD, 77), EEXIST);
    int fd = device(77, O_RDWR);
    REFUSED(ioctl(control, LOOP_CTL_REMOVE, 77), EBUSY);
    close(fd);
    EXPECT(ioctl(control, LOOP_CTL_REMOVE, 77) == 77, "%s", ERRNO_NAME(errno));
    REFUSED(ioctl(control, LOOP_CTL_REMOVE, 77), ENODEV);
    REFUSED(ioctl(control, LOOP_CTL_REMOVE, -1), EINVAL);
    REFUSED(open("/dev/loop77", O_RDWR), ENOENT);
}

/* Threads write through one device, each its own blocks, while another one is bound and cleared. */
static int shared;

static void *writer(void *argument)
{
    char block[4096], seen[4096];
    int own = (int)(long)argument;
    for (int round = 0; round < 20; round++) {
        memset(block, 'A' + round, sizeof block);
        for (int at = own * 4096; at < SIZE; at += 4 * 4096)
            CHECK(pwrite(shared, block, sizeof block, at));
        CHECK(fdatasync(shared));
        CHECK(pread(shared, seen, sizeof seen, own * 4096));
        EXPECT(seen[0] == 'A' + round, "%c in round %d", seen[0], round);
    }
    return NULL;
}

static void together(void)
{
    pthread_t threads[4];
    int file = file_of("shared", 0, SIZE), other = file_of("other", 'o', SIZE);
    shared = device(ioctl(control, LOOP_CTL_GET_FREE), O_RDWR);
    CHECK(ioctl(shared, LOOP_SET_FD, file));
    for (long own = 0; own < 4; own++)
        pthread_create(&threads[own], NULL, writer, (void *)own);
    for (int round = 0; round < 50; round++) {
        char byte = 0;
        int fd = device(ioctl(control, LOOP_CTL_GET_FREE), O_RDWR);
        CHECK(ioctl(fd, LOOP_SET_FD, other));
        CHECK(pread(fd, &byte, 1, round * 4096));
        EXPECT(byte == 'o', "%d", byte);
        CHECK(ioctl(fd, LOOP_CLR_FD));
        close(fd);
    }
    for (int own = 0; own < 4; own++)
        pthread_join(threads[own], NULL);
    CHECK(ioctl(shared, LOOP_CLR_FD));
    char seen;
    CHECK(pread(file, &seen, 1, SIZE - 1));
    EXPECT(seen == 'A' + 19, "%c", seen);
    close(shared);
    close(file);
    close(other);
}

int main(void)
{
    control = open("/dev/loop-control", O_RDWR);
    EXPECT(control >= 0, "/dev/loop-control: %s", ERRNO_NAME(errno));
    transfers();
    settings();
    ends();
    partitions();
    numbers();
    together();
    return verdict_failed;
}
