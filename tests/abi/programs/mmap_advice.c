/* madvise, mincore, mlock, brk, the stack, copy-on-write in bulk, memfd. */
#include "abi.h"

enum { PAGE = 4096 };
#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS)

static void advice(void)
{
    char *area = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, ANONYMOUS, -1, 0);
    memset(area, 'a', 8 * PAGE);
    SHOW(madvise(area + PAGE, 2 * PAGE, MADV_DONTNEED));
    printf("%d %d %d %d\n", area[0], area[PAGE], area[2 * PAGE], area[3 * PAGE]);
    SHOW(madvise(area, PAGE, MADV_NORMAL));
    SHOW(madvise(area, PAGE, MADV_RANDOM));
    SHOW(madvise(area, PAGE, MADV_SEQUENTIAL));
    SHOW(madvise(area, PAGE, MADV_WILLNEED));
    SHOW(madvise(area, PAGE, MADV_FREE));
    SHOW(madvise(area + 1, PAGE, MADV_DONTNEED));
    SHOW(madvise(area, PAGE, 9999));
    SHOW(madvise(area, 0, MADV_DONTNEED));
    munmap(area + 4 * PAGE, PAGE);
    SHOW(madvise(area, 8 * PAGE, MADV_DONTNEED));
    SHOW(area[7 * PAGE]);
    SHOW(madvise(area, PAGE, MADV_DONTFORK));
    REAP(CHILD(*(volatile char *)area = 1));
    SHOW(madvise(area, PAGE, MADV_DOFORK));
    REAP(CHILD(*(volatile char *)area = 1));
    area[PAGE] = 3;
    SHOW(madvise(area + PAGE, PAGE, MADV_WIPEONFORK));
    REAP(CHILD(printf("wiped %d\n", area[PAGE])));
    int fd = open("file", O_RDWR | O_CREAT, 0600);
    ftruncate(fd, 2 * PAGE);
    char *shared = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *own = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    shared[0] = own[0] = 8;
    own[0] = 9;
    SHOW(madvise(own, PAGE, MADV_DONTNEED));
    SHOW(own[0]);
    SHOW(madvise(shared, PAGE, MADV_DONTNEED));
    SHOW(shared[0]);
    SHOW(madvise(shared, PAGE, MADV_REMOVE));
    SHOW(shared[0]);
}

static void residence(void)
{
    char *area = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, ANONYMOUS, -1, 0);
    area[0] = area[2 * PAGE] = area[7 * PAGE] = 1;
    unsigned char vector[8];
    memset(vector, 0xff, sizeof vector);
    SHOW(mincore(area, 8 * PAGE, vector));
    for (int i = 0; i < 8; i++)
        printf("%d", vector[i] & 1);
    printf("\n");
    SHOW(mincore(area + 1, PAGE, vector));
    SHOW(mincore((void *)0x1000, PAGE, vector));
    SHOW(mincore(area, PAGE, (void *)8));
    SHOW(mlock(area, 8 * PAGE));
    SHOW(mincore(area, 8 * PAGE, vector));
    for (int i = 0; i < 8; i++)
        printf("%d", vector[i] & 1);
    printf("\n");
    SHOW(munlock(area, 8 * PAGE));
    SHOW(mlock((void *)0x1000, PAGE));
    SHOW(mlockall(0));
    SHOW(mlockall(MCL_CURRENT | MCL_FUTURE));
    SHOW(munlockall());
    char *filled = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, ANONYMOUS | MAP_POPULATE, -1, 0);
    SHOW(mincore(filled, 4 * PAGE, vector));
    printf("%d%d%d%d\n", vector[0] & 1, vector[1] & 1, vector[2] & 1, vector[3] & 1);
}

static void heap(void)
{
    char *start = (char *)syscall(SYS_brk, 0);
    TRUE(syscall(SYS_brk, start + 3 * PAGE) == (long)(start + 3 * PAGE));
    memset(start, 1, 3 * PAGE);
    TRUE(syscall(SYS_brk, start + 3 * PAGE + 10) == (long)(start + 3 * PAGE + 10));
    TRUE(syscall(SYS_brk, start) == (long)start);
    TRUE(syscall(SYS_brk, start + PAGE) == (long)(start + PAGE));
    SHOW(start[PAGE / 2]);
    TRUE(syscall(SYS_brk, 16) == (long)(start + PAGE));
    TRUE(syscall(SYS_brk, 0x7fffffff0000) == (long)(start + PAGE));
    char *wall = mmap(start + 8 * PAGE, PAGE, PROT_READ, ANONYMOUS | MAP_FIXED, -1, 0);
    TRUE(wall == start + 8 * PAGE);
    TRUE(syscall(SYS_brk, start + 32 * PAGE) == (long)(start + PAGE));
    struct rlimit limit = { 1 << 20, RLIM_INFINITY };
    REAP(CHILD({
        munmap(wall, PAGE);
        setrlimit(RLIMIT_DATA, &limit);
        TRUE(syscall(SYS_brk, start + (8 << 20)) == (long)(start + PAGE));
    }));
}

static int deep(int depth)
{
    volatile char frame[4096];
    frame[0] = (char)depth;
    return depth ? deep(depth - 1) + (frame[0] == (char)depth) : 0;
}

static void stack(void)
{
    SHOW(deep(1000));
    REAP(CHILD({ printf("%d\n", deep(1500)); }));
    REAP(CHILD({
        char here;
        /* Far below the stack pointer, inside the limit: the stack grows to it. */
        volatile uintptr_t base = (uintptr_t)&here;
        volatile char *far = (char *)(base - (4 << 20));
        *far = 1;
        printf("far touch %d\n", *far);
    }));
    REAP(CHILD({
        char here;
        volatile uintptr_t base = (uintptr_t)&here;
        volatile char *far = (char *)(base - (64 << 20));
        *far = 1;
    }));
}

static void copies(void)
{
    enum { COUNT = 256 };
    unsigned char *area = mmap(NULL, COUNT * PAGE, PROT_READ | PROT_WRITE, ANONYMOUS, -1, 0);
    for (int i = 0; i < COUNT; i++)
        area[i * PAGE] = (unsigned char)i;
    pid_t children[8];
    for (int c = 0; c < 8; c++)
        children[c] = CHILD({
            unsigned sum = 0;
            for (int i = c; i < COUNT; i += 3)
                area[i * PAGE] = (unsigned char)(area[i * PAGE] + c);
            for (int i = 0; i < COUNT; i++)
                sum += area[i * PAGE];
            unsigned expected = 0;
            for (int i = 0; i < COUNT; i++)
                expected += (unsigned char)(i + (i >= c && (i - c) % 3 == 0 ? c : 0));
            _exit(sum == expected ? 50 + c : 1);
        });
    for (int i = 0; i < COUNT; i += 2)
        area[i * PAGE] = 200;
    for (int c = 0; c < 8; c++)
        REAP(children[c]);
    SHOW(area[4 * PAGE]);
    SHOW(area[5 * PAGE]);
    /* A chain of forks, each of which changes one page. */
    volatile int *counter = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REAP(CHILD({
        for (int depth = 0; depth < 12; depth++) {
            area[depth * PAGE] = 99;
            pid_t next = fork();
            if (next) {
                waitpid(next, NULL, 0);
                _exit(0);
            }
            ++*counter;
        }
        int good = 0;
        for (int depth = 0; depth < 12; depth++)
            good += area[depth * PAGE] == 99;
        printf("deep chain: %d pages\n", good);
    }));
    SHOW(*counter);
    SHOW(area[0]);
}

static void memory_files(void)
{
    int fd = memfd_create("name", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    TRUE(fd >= 0);
    if (fd < 0)
        return;
    SHOW(ftruncate(fd, 2 * PAGE));
    char *map = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    strcpy(map, "in memory");
    char text[16] = "";
    SHOW(read(fd, text, 9));
    printf("%s\n", text);
    struct stat about;
    fstat(fd, &about);
    SHOW(about.st_size);
    SHOW(about.st_nlink);
    printf("mode %o\n", about.st_mode);
    SHOW(memfd_create("name", 0x100));
}

int main(void)
{
    advice();
    residence();
    heap();
    stack();
    copies();
    memory_files();
    return 0;
}
