/* Files and their pages: what sync_file_range, posix_fadvise, readahead and msync refuse; maps beside reads and writes; the end of a file under a map. */
#include "abi.h"
#include <setjmp.h>
#include <sys/socket.h>

#define PAGE 4096

static sigjmp_buf back;

static void fault(int number, siginfo_t *information, void *context)
{
    (void)context;
    siglongjmp(back, number == SIGBUS ? (information->si_code == BUS_ADRERR ? 1 : 2) : 3);
}

/* Reads or writes a byte, and says what comes of it. */
static void touch(const char *what, volatile char *place, int write)
{
    switch (sigsetjmp(back, 1)) {
    case 0:
        if (write)
            *place = 'w';
        else
            (void)*place;
        printf("%s: done\n", what);
        break;
    case 1:
        printf("%s: SIGBUS BUS_ADRERR\n", what);
        break;
    default:
        printf("%s: another signal\n", what);
    }
}

static void ranges(void)
{
    int fd = open("ranges", O_RDWR | O_CREAT | O_TRUNC, 0600), pair[2], path = open("ranges", O_PATH);
    int read_only = open("ranges", O_RDONLY), folder = open(".", O_RDONLY | O_DIRECTORY), null = open("/dev/null", O_RDWR);
    int local[2];
    SHOW(pipe(pair));
    SHOW(socketpair(AF_UNIX, SOCK_STREAM, 0, local));
    SHOW(write(fd, "0123456789", 10));
    for (unsigned flags = 0; flags < 8; flags++)
        SHOW(sync_file_range(fd, 0, 0, flags));
    SHOW(sync_file_range(fd, 0, 0, 8));
    SHOW(sync_file_range(fd, 0, 0, ~0u));
    SHOW(sync_file_range(fd, -1, 0, 7));
    SHOW(sync_file_range(fd, 0, -1, 7));
    SHOW(sync_file_range(fd, LONG_MAX, 1, 7));
    SHOW(sync_file_range(fd, LONG_MAX, 0, 7));
    SHOW(sync_file_range(fd, 1 << 30, PAGE, 7));
    SHOW(sync_file_range(fd, 3, 2, 7));
    SHOW(sync_file_range(read_only, 0, 0, 7));
    SHOW(sync_file_range(folder, 0, 0, 7));
    SHOW(sync_file_range(pair[1], 0, 0, 7));
    SHOW(sync_file_range(pair[1], 0, 0, 8));
    SHOW(sync_file_range(pair[1], -1, 0, 7));
    SHOW(sync_file_range(local[0], 0, 0, 7));
    SHOW(sync_file_range(null, 0, 0, 7));
    SHOW(sync_file_range(path, 0, 0, 7));
    SHOW(sync_file_range(path, 0, 0, 8));
    SHOW(sync_file_range(-1, 0, 0, 8));
    SHOW(fsync(path));
    SHOW(fdatasync(path));
    SHOW(syncfs(path));
    SHOW(fsync(read_only));
    SHOW(syncfs(read_only));
    SHOW(fsync(folder));
    SHOW(syncfs(folder));
    SHOW(fsync(pair[0]));
    SHOW(syncfs(pair[0]));

    const int advice[] = { 0, 1, 2, 3, 4, 5, 6, -1 };
    for (unsigned i = 0; i < sizeof advice / sizeof *advice; i++) {
        printf("advice %d\n", advice[i]);
        SHOW(syscall(SYS_fadvise64, fd, 0, 0, advice[i]));
        SHOW(syscall(SYS_fadvise64, fd, 3, 4, advice[i]));
        SHOW(syscall(SYS_fadvise64, fd, -1L, 4, advice[i]));
        SHOW(syscall(SYS_fadvise64, fd, LONG_MIN, 0, advice[i]));
        SHOW(syscall(SYS_fadvise64, fd, LONG_MAX, LONG_MAX, advice[i]));
        SHOW(syscall(SYS_fadvise64, fd, 0, -1L, advice[i]));
        SHOW(syscall(SYS_fadvise64, pair[0], 0, -1L, advice[i]));
        SHOW(syscall(SYS_fadvise64, folder, 0, 0, advice[i]));
        SHOW(syscall(SYS_fadvise64, path, 0, 0, advice[i]));
        SHOW(syscall(SYS_fadvise64, -1, 0, -1L, advice[i]));
    }
    int writer = open("ranges", O_WRONLY);
    SHOW(readahead(read_only, 0, PAGE));
    SHOW(readahead(writer, 0, PAGE));
    SHOW(readahead(pair[0], 0, PAGE));
    SHOW(readahead(path, 0, PAGE));

    /* What writes through to a device has no meaning for a pipe, and is no error there. */
    struct iovec vector = { "x", 1 };
    SHOW(pwritev2(pair[1], &vector, 1, -1, RWF_DSYNC));
    SHOW(pwritev2(pair[1], &vector, 1, -1, RWF_SYNC));
    SHOW(pwritev2(local[0], &vector, 1, -1, RWF_SYNC));
    SHOW(pwritev2(fd, &vector, 1, -1, RWF_DSYNC));
    SHOW(pwritev2(fd, &vector, 1, 0, RWF_SYNC));
    SHOW(pwritev2(fd, &vector, 0, 0, RWF_SYNC));
    SHOW(pwritev2(read_only, &vector, 1, 0, RWF_SYNC));
}

static void synced(void)
{
    int fd = open("map", O_RDWR | O_CREAT | O_TRUNC, 0600);
    SHOW(ftruncate(fd, 4 * PAGE));
    char *map = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    memset(map, 'm', 4 * PAGE);
    SHOW(msync(map, 4 * PAGE, MS_ASYNC));
    SHOW(msync(map, 4 * PAGE, MS_SYNC));
    SHOW(msync(map, 4 * PAGE, MS_INVALIDATE));
    SHOW(msync(map, 4 * PAGE, MS_SYNC | MS_INVALIDATE));
    SHOW(msync(map, 4 * PAGE, 0));
    SHOW(msync(map, 4 * PAGE, MS_SYNC | MS_ASYNC));
    SHOW(msync(map, 4 * PAGE, 8));
    SHOW(msync(map, 0, MS_SYNC));
    SHOW(msync(map + 1, PAGE, MS_SYNC));
    SHOW(msync(map + 1, 0, MS_SYNC));
    SHOW(msync(map, PAGE / 2, MS_SYNC));
    SHOW(msync(map, (size_t)-1, MS_SYNC));
    SHOW(msync(map, (size_t)-PAGE, MS_SYNC));
    SHOW(mlock(map + PAGE, PAGE));
    SHOW(msync(map, 4 * PAGE, MS_SYNC));
    SHOW(msync(map, 4 * PAGE, MS_ASYNC | MS_INVALIDATE));
    SHOW(msync(map, PAGE, MS_SYNC | MS_INVALIDATE));
    SHOW(munlock(map + PAGE, PAGE));
    SHOW(msync(map, 4 * PAGE, MS_SYNC | MS_INVALIDATE));
    SHOW(munmap(map + 2 * PAGE, PAGE));
    SHOW(msync(map, 4 * PAGE, MS_SYNC));
    SHOW(msync(map, 4 * PAGE, MS_ASYNC));
    SHOW(msync(map + 2 * PAGE, PAGE, MS_SYNC));
    SHOW(msync(map, 2 * PAGE, MS_SYNC));
    char *own = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SHOW(msync(own, PAGE, MS_SYNC));
}

static void coherence(void)
{
    int fd = open("shared", O_RDWR | O_CREAT | O_TRUNC, 0600);
    int direct = open("shared", O_RDWR | O_DIRECT), again = open("shared", O_RDWR);
    static char block[PAGE] __attribute__((aligned(PAGE)));
    SHOW(ftruncate(fd, 3 * PAGE));
    char *map = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *twin = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0);
    char *own = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    SHOW(pwrite(fd, "written", 7, PAGE - 3));
    printf("%.7s %.7s %.7s\n", map + PAGE - 3, twin + PAGE - 3, own + PAGE - 3);
    memcpy(map + PAGE - 2, "stored", 6);
    SHOW(pread(again, block, 7, PAGE - 3));
    printf("%.7s %.7s\n", block, twin + PAGE - 3);
    own[0] = 'P';
    memcpy(map, "common", 6);
    printf("private: %c, shared: %.6s\n", own[0], twin);
    /* Past the pages, or as if: what was stored is read, what is written is seen. */
    TRUE(direct >= 0);
    memcpy(map + 2 * PAGE, "before", 6);
    SHOW(pread(direct, block, PAGE, 2 * PAGE));
    printf("read directly: %.6s\n", block);
    memset(block, 'd', PAGE);
    SHOW(pwrite(direct, block, PAGE, 2 * PAGE));
    printf("mapped: %.3s, ", map + 2 * PAGE);
    printf("the twin: %.3s\n", twin + 2 * PAGE + PAGE - 3);
    map[2 * PAGE] = 'e';
    SHOW(pread(again, block, 3, 2 * PAGE));
    printf("read: %.3s\n", block);
    SHOW(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED));
    printf("after the advice: %.3s %.6s\n", map + 2 * PAGE, twin);
    SHOW(pread(direct, block, PAGE, 0));
    printf("read directly: %.6s\n", block);
    /* A buffer that is the map of what is read or written. */
    SHOW(pread(fd, map + PAGE, PAGE, 0));
    printf("copied: %.6s\n", map + PAGE);
    SHOW(pwrite(fd, map, PAGE, 2 * PAGE));
    printf("copied: %.6s\n", twin + 2 * PAGE);
    REAP(CHILD({
        memcpy(map, "a child's", 9);
    }));
    SHOW(pread(again, block, 9, 0));
    printf("%.9s\n", block);
}

static void ends(void)
{
    struct sigaction action = { .sa_sigaction = fault, .sa_flags = SA_SIGINFO };
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
    int fd = open("cut", O_RDWR | O_CREAT | O_TRUNC, 0600), null = open("/dev/null", O_WRONLY);
    char text[8] = "";
    SHOW(ftruncate(fd, 4 * PAGE));
    char *map = mmap(NULL, 6 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *own = mmap(NULL, 6 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    touch("beyond the end", map + 4 * PAGE, 0);
    touch("beyond the end, private", own + 4 * PAGE, 1);
    memset(map, 'x', 4 * PAGE);
    own[3 * PAGE] = 'p';
    SHOW(ftruncate(fd, PAGE + 100));
    touch("the first page", map, 1);
    touch("the last page, beyond the end", map + PAGE + 200, 1);
    touch("what was cut off", map + 2 * PAGE, 0);
    touch("what was cut off, to be written", map + 3 * PAGE, 1);
    touch("a private copy of what was cut off", own + 3 * PAGE, 0);
    SHOW(write(null, map + 2 * PAGE, 1) >= 0 ? 0 : 0);
    SHOW(pwrite(fd, map + 2 * PAGE, 1, 0));
    SHOW(pread(fd, map + 3 * PAGE, 1, 0));
    SHOW(msync(map, 6 * PAGE, MS_SYNC));
    /* Longer again: what was cut off is zeros, also where the map was written to behind the end. */
    SHOW(ftruncate(fd, 4 * PAGE));
    touch("there again", map + 2 * PAGE, 0);
    SHOW(map[PAGE + 99]);
    SHOW(map[PAGE + 100]);
    SHOW(map[PAGE + 200]);
    SHOW(map[3 * PAGE]);
    SHOW(pread(fd, text, 8, PAGE + 98));
    SHOW(text[1]);
    SHOW(text[2]);
    SHOW(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE));
    SHOW(map[0]);
}

int main(void)
{
    ranges();
    synced();
    coherence();
    ends();
    return 0;
}
