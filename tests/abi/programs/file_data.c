/* Reading and writing: offsets, append, vectors, holes, truncation, fallocate, limits, copies between files. */
#include "abi.h"

static void offsets(void)
{
    char text[64];
    int fd = open("data", O_RDWR | O_CREAT | O_TRUNC, 0644);
    SHOW(write(fd, "0123456789", 10));
    SHOW(lseek(fd, 3, SEEK_SET));
    SHOW(read(fd, text, 4));
    printf("%.4s\n", text);
    SHOW(lseek(fd, -2, SEEK_CUR));
    SHOW(lseek(fd, -2, SEEK_END));
    SHOW(read(fd, text, 64));
    SHOW(read(fd, text, 64));
    SHOW(lseek(fd, -20, SEEK_END));
    SHOW(lseek(fd, 5, SEEK_END));
    SHOW(read(fd, text, 1));
    SHOW(write(fd, "x", 1));
    SHOW(pread(fd, text, 64, 8));
    for (int i = 0; i < 8; i++)
        printf("%d ", text[i]);
    printf("\n");
    SHOW(pread(fd, text, 1, -1));
    SHOW(pwrite(fd, "yy", 2, 1));
    SHOW(lseek(fd, 0, SEEK_CUR));
    SHOW(lseek(fd, 0, 77));
    SHOW(lseek(fd, LONG_MAX, SEEK_SET));
    SHOW(lseek(fd, 1, SEEK_CUR));
    SHOW(write(fd, "z", 1));
    int two = dup(fd);
    lseek(two, 4, SEEK_SET);
    SHOW(lseek(fd, 0, SEEK_CUR));
    int other = open("data", O_RDWR);
    SHOW(lseek(other, 0, SEEK_CUR));
    REAP(CHILD(read(fd, text, 3)));
    SHOW(lseek(fd, 0, SEEK_CUR));
    SHOW(read(fd, text, 0));
    SHOW(write(fd, text, 0));
    int append = open("data", O_WRONLY | O_APPEND);
    SHOW(write(append, "AP", 2));
    SHOW(lseek(append, 0, SEEK_CUR));
    SHOW(pwrite(append, "PW", 2, 0));
    SHOW(lseek(append, 0, SEEK_END));
    struct iovec parts[3] = { { "ab", 2 }, { NULL, 0 }, { "cde", 3 } };
    SHOW(pwritev(fd, parts, 3, 0));
    char one[3] = "", three[9] = "";
    struct iovec into[2] = { { one, 2 }, { three, 8 } };
    SHOW(preadv(fd, into, 2, 0));
    printf("%s %s\n", one, three);
    SHOW(readv(fd, into, 0));
    SHOW(readv(fd, into, 1025));
    SHOW(readv(fd, into, -1));
    struct iovec too_big[2] = { { text, SSIZE_MAX }, { text, SSIZE_MAX } };
    SHOW(readv(fd, too_big, 2));
    struct iovec bad[2] = { { text, 2 }, { (void *)8, 8 } };
    lseek(fd, 0, SEEK_SET);
    SHOW(readv(fd, bad, 2));
    SHOW(writev(fd, bad, 2));
    SHOW(preadv2(fd, into, 2, 0, 0));
    SHOW(preadv2(fd, into, 2, 0, 0x8000));
    SHOW(preadv2(fd, into, 2, -1, 0));
}

static void map_holes(int fd)
{
    off_t at = 0;
    struct stat about;
    fstat(fd, &about);
    printf("size %ld blocks %ld:", (long)about.st_size, (long)about.st_blocks);
    for (int i = 0; i < 20; i++) {
        off_t data = lseek(fd, at, SEEK_DATA);
        if (data < 0) {
            printf(" end %s", ERRNO_NAME(errno));
            break;
        }
        off_t hole = lseek(fd, data, SEEK_HOLE);
        printf(" data %ld-%ld", (long)data, (long)hole);
        at = hole;
    }
    printf("\n");
}

static void holes(void)
{
    int fd = open("sparse", O_RDWR | O_CREAT, 0644);
    map_holes(fd);
    SHOW(ftruncate(fd, 1 << 20));
    map_holes(fd);
    pwrite(fd, "x", 1, 8192);
    pwrite(fd, "y", 1, 500000);
    map_holes(fd);
    char byte = 1;
    SHOW(pread(fd, &byte, 1, 300000));
    SHOW(byte);
    SHOW(lseek(fd, 2 << 20, SEEK_HOLE));
    SHOW(lseek(fd, 8192, SEEK_DATA));
    SHOW(lseek(fd, 9000, SEEK_DATA));
    SHOW(lseek(fd, -1, SEEK_DATA));
    SHOW(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 8192));
    map_holes(fd);
    SHOW(fallocate(fd, 0, 0, 4096));
    SHOW(fallocate(fd, 0, 1 << 20, 4096));
    fallocate(fd, FALLOC_FL_KEEP_SIZE, 2 << 20, 4096);
    struct stat about;
    fstat(fd, &about);
    SHOW(about.st_size);
    SHOW(fallocate(fd, 0, -1, 10));
    SHOW(fallocate(fd, 0, 0, 0));
    SHOW(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 0, 10));
    SHOW(fallocate(fd, 0x4000, 0, 10));
    pwrite(fd, "abcdefgh", 8, 0);
    SHOW(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2, 3));
    char text[9] = "";
    pread(fd, text, 8, 0);
    for (int i = 0; i < 8; i++)
        printf("%d ", text[i]);
    printf("\n");
    SHOW(ftruncate(fd, 3));
    SHOW(ftruncate(fd, 6));
    pread(fd, text, 8, 0);
    for (int i = 0; i < 6; i++)
        printf("%d ", text[i]);
    printf("\n");
    SHOW(ftruncate(fd, -1));
    SHOW(truncate("sparse", 1000));
    SHOW(truncate("absent", 1000));
    SHOW(truncate(".", 1000));
    SHOW(truncate("sparse/x", 1));
    fstat(fd, &about);
    SHOW(about.st_size);
    SHOW(posix_fallocate(fd, 0, 5000));
    SHOW(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
    SHOW(posix_fadvise(fd, 0, 0, 99));
    SHOW(fsync(fd));
    SHOW(fdatasync(fd));
    SHOW(syncfs(fd));
    SHOW(sync_file_range(fd, 0, 0, 0));
    SHOW(readahead(fd, 0, 10));
}

static void copies(void)
{
    static char big[100000], back[100000];
    for (unsigned i = 0; i < sizeof big; i++)
        big[i] = (char)(i * 7 + i / 251);
    int from = open("from", O_RDWR | O_CREAT, 0644), to = open("to", O_RDWR | O_CREAT, 0644);
    SHOW(write(from, big, sizeof big));
    off_t offset = 10;
    SHOW(sendfile(to, from, &offset, 70000));
    SHOW(offset);
    SHOW(lseek(from, 0, SEEK_CUR));
    lseek(from, 70010, SEEK_SET);
    SHOW(sendfile(to, from, NULL, 70000));
    SHOW(lseek(from, 0, SEEK_CUR));
    SHOW(pread(to, back, sizeof back, 0));
    TRUE(memcmp(back, big + 10, sizeof big - 10) == 0);
    off_t in = 5, out = 200000;
    SHOW(copy_file_range(from, &in, to, &out, 50000, 0));
    SHOW(in);
    SHOW(out);
    SHOW(pread(to, back, 50000, 200000));
    TRUE(memcmp(back, big + 5, 50000) == 0);
    in = 0;
    out = 100;
    SHOW(copy_file_range(from, &in, from, &out, 1000, 0));
    SHOW(copy_file_range(from, &in, to, &out, 1000, 1));
    int reader = open("from", O_RDONLY), append = open("to", O_WRONLY | O_APPEND);
    SHOW(copy_file_range(from, NULL, reader, NULL, 10, 0));
    SHOW(copy_file_range(from, NULL, append, NULL, 10, 0));
    SHOW(sendfile(append, from, NULL, 10));
    SHOW(sendfile(reader, from, NULL, 10));
    offset = -1;
    SHOW(sendfile(to, from, &offset, 10));
    in = 1000000;
    SHOW(copy_file_range(from, &in, to, NULL, 10, 0));
    int folder = open(".", O_RDONLY);
    SHOW(copy_file_range(folder, NULL, to, NULL, 10, 0));
    SHOW(sendfile(to, folder, NULL, 10));
}

static volatile int limited;

static void handler(int number)
{
    limited = number;
}

static void limits(void)
{
    struct rlimit limit = { 5000, RLIM_INFINITY };
    REAP(CHILD({
        setrlimit(RLIMIT_FSIZE, &limit);
        signal(SIGXFSZ, handler);
        static char block[4000];
        int fd = open("limited", O_RDWR | O_CREAT, 0644);
        SHOW(write(fd, block, 4000));
        SHOW(write(fd, block, 4000));
        SHOW(write(fd, block, 4000));
        SHOW(limited);
        limited = 0;
        SHOW(ftruncate(fd, 6000));
        SHOW(limited);
        SHOW(pwrite(fd, block, 1, 4999));
        SHOW(pwrite(fd, block, 1, 5000));
        SHOW(fallocate(fd, 0, 0, 6000));
        signal(SIGXFSZ, SIG_DFL);
        write(fd, block, 4000);
    }));
}

int main(void)
{
    offsets();
    holes();
    copies();
    limits();
    return 0;
}
