/* /dev/cpu_dma_latency: requests for how late processors may be. The node is made here, by the number that /proc/misc says: each kernel chooses its own. */
#include "abi.h"

static const char name[] = "cpu_dma_latency", node[] = "latency";

static void make_node(void)
{
    char line[128], found[64];
    unsigned minor;
    FILE *list = fopen("/proc/misc", "r");
    while (list && fgets(line, sizeof line, list))
        if (sscanf(line, "%u %63s", &minor, found) == 2 && !strcmp(found, name))
            SHOW(mknod(node, S_IFCHR | 0600, makedev(10, minor)));
    if (list)
        fclose(list);
}

static int latency(int fd)
{
    int32_t value = -99;
    return pread(fd, &value, sizeof value, 0) == sizeof value ? value : -99;
}

static void text(int fd, const char *bytes, size_t count)
{
    SHOW(write(fd, bytes, count));
    printf("%d\n", latency(fd));
}

static void number(int fd, int32_t value)
{
    SHOW(write(fd, &value, sizeof value));
    printf("%d\n", latency(fd));
}

static void values(int fd)
{
    static const char *const texts[] = {
        "0x00000010", "0x5", "10", "7\n", "zz", "", "-5", "-1", "ffffffff", "80000000", "-80000000", "-80000001",
        "7fffffff", "100000000000", "0x123456789", "0x00000000011", "  3", "3 ", "+6", "+-6", "0x", "x1",
        "0000000000000000000000000000000000000000000009", "0x0000000a\n", "1\n\n", "\n", "0x00000020z", "0x1f",
        "ffffffffffffffffffffffffffffffff",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        printf("text %zu\n", i);
        text(fd, texts[i], strlen(texts[i]));
    }
    text(fd, "0x1\0", 5);
    text(fd, "12\00034", 5);
    static const int32_t numbers[] = { 5, 0, -1, 100, -2, 50, INT32_MAX, 2000000000, 1999999999, INT32_MIN };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        number(fd, numbers[i]);
}

/* The smallest counts, and the last descriptor of an open file takes its request back. */
static void several(void)
{
    int reader = open(node, O_RDONLY);
    int one = open(node, O_RDWR), other = open(node, O_WRONLY);
    printf("%d\n", latency(reader));
    number(one, 50);
    int32_t more = 70, less = 40;
    SHOW(write(other, &more, sizeof more));
    printf("%d\n", latency(reader));
    SHOW(write(other, &less, sizeof less));
    printf("%d\n", latency(reader));
    SHOW(close(other));
    printf("%d\n", latency(reader));
    int copy = dup(one);
    SHOW(close(one));
    printf("%d\n", latency(reader));
    SHOW(close(copy));
    printf("%d\n", latency(reader));
    pid_t pid = CHILD({
        int mine = open(node, O_RDWR);
        number(mine, 3);
        pause();
    });
    while (latency(reader) != 3)
        usleep(1000);
    kill(pid, SIGKILL);
    REAP(pid);
    printf("%d\n", latency(reader));
    SHOW(close(reader));
}

static void positions(void)
{
    char bytes[9];
    int fd = open(node, O_RDWR);
    SHOW(read(fd, bytes, 2));
    SHOW(lseek(fd, 1, SEEK_SET));
    SHOW(read(fd, bytes, sizeof bytes));
    SHOW(read(fd, bytes, sizeof bytes));
    SHOW(lseek(fd, 0, SEEK_SET));
    SHOW(lseek(fd, -9, SEEK_END));
    SHOW(pread(fd, bytes, sizeof bytes, 3));
    SHOW(pread(fd, bytes, sizeof bytes, 4));
    SHOW(pread(fd, bytes, sizeof bytes, 1ll << 40));
    SHOW(pread(fd, bytes, 0, 0));
    SHOW(pread(fd, (void *)1, 4, 0));
    SHOW(write(fd, (void *)1, 4));
    SHOW(write(fd, (void *)1, 5));
    int32_t value = 9;
    SHOW(pwrite(fd, &value, sizeof value, 100));
    printf("%d\n", latency(fd));
    struct pollfd ready = { fd, POLLIN | POLLOUT | POLLPRI, 0 };
    SHOW(poll(&ready, 1, 0));
    printf("%#x\n", ready.revents);
    SHOW(ioctl(fd, 0x1234, 0));
    SHOW(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED);
    SHOW(ftruncate(fd, 0));
    SHOW(fsync(fd));
    struct stat about;
    SHOW(fstat(fd, &about));
    printf("%o %u\n", about.st_mode, major(about.st_rdev));
    SHOW(close(fd));
    SHOW(write(open(node, O_RDONLY), &value, sizeof value));
    SHOW(read(open(node, O_WRONLY), bytes, sizeof bytes));
}

int main(void)
{
    make_node();
    int fd = open(node, O_RDWR);
    printf("%d\n", latency(fd));
    values(fd);
    SHOW(close(fd));
    several();
    positions();
    REAP(CHILD({
        SHOW(setuid(65534));
        SHOW(open(node, O_RDONLY));
    }));
    return 0;
}
