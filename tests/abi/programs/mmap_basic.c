/* mmap, munmap, mprotect, mremap: placement, splitting, sharing, protections and every refusal. */
#include "abi.h"
#include <setjmp.h>

static sigjmp_buf back;
static volatile int seen_signal, seen_code;
static volatile long seen_offset;
static char *base;

static void fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    seen_signal = number;
    seen_code = info->si_code;
    seen_offset = (char *)info->si_addr - base;
    siglongjmp(back, 1);
}

/* "r", "w" or the signal that reading and writing a byte gives. */
static void probe(const char *what, char *address)
{
    char text[2][64];
    base = address;
    for (int write = 0; write < 2; write++) {
        seen_signal = 0;
        if (!sigsetjmp(back, 1)) {
            volatile char *at = address;
            if (write)
                *at = *at;
            else
                (void)*at;
        }
        if (seen_signal)
            snprintf(text[write], 64, "%s code %d offset %ld", signal_name(seen_signal), seen_code, seen_offset);
        else
            strcpy(text[write], "fine");
    }
    printf("%s: read %s, write %s\n", what, text[0], text[1]);
}

enum { PAGE = 4096 };
#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS)

static void protections(void)
{
    char *area = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, ANONYMOUS, -1, 0);
    memset(area, 'x', 8 * PAGE);
    probe("fresh", area);
    SHOW(mprotect(area + PAGE, PAGE, PROT_READ));
    SHOW(mprotect(area + 3 * PAGE, PAGE, PROT_NONE));
    SHOW(munmap(area + 5 * PAGE, PAGE));
    for (int i = 0; i < 7; i++) {
        char name[16];
        snprintf(name, sizeof name, "page %d", i);
        probe(name, area + i * PAGE);
    }
    SHOW(mprotect(area + 4 * PAGE, 3 * PAGE, PROT_READ));
    probe("page 4 after", area + 4 * PAGE);
    probe("page 6 after", area + 6 * PAGE);
    SHOW(mprotect(area, 5 * PAGE, PROT_READ | PROT_WRITE));
    SHOW(area[3 * PAGE]);
    SHOW(mprotect(area + 1, PAGE, PROT_READ));
    SHOW(mprotect(area, 0, PROT_READ));
    SHOW(mprotect(area, PAGE, 0x1000));
    SHOW(mprotect((void *)0x7fffffffffff000, PAGE, PROT_READ));
    SHOW(munmap(area + 1, PAGE));
    SHOW(munmap(area, 0));
    SHOW(munmap((void *)0x7ffffffff000, PAGE * 2));
    SHOW(munmap(area, 8 * PAGE));
    SHOW(munmap(area, 8 * PAGE));
    probe("unmapped", area);
    /* Code that is written, then executed; data that is not executable. */
    unsigned char *code = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, ANONYMOUS, -1, 0);
    memcpy(code, "\xb8\x2a\x00\x00\x00\xc3", 6);
    mprotect(code, PAGE, PROT_READ | PROT_EXEC);
    SHOW(((int (*)(void))code)());
    mprotect(code, PAGE, PROT_READ);
    base = (char *)code;
    seen_signal = 0;
    if (!sigsetjmp(back, 1))
        ((int (*)(void))code)();
    printf("execute data: %s code %d offset %ld\n", signal_name(seen_signal), seen_code, seen_offset);
}

static void placement(void)
{
    char *area = mmap(NULL, 16 * PAGE, PROT_READ, ANONYMOUS, -1, 0);
    munmap(area, 16 * PAGE);
    TRUE(mmap(area, PAGE, PROT_READ, ANONYMOUS, -1, 0) == area);
    TRUE(mmap(area, PAGE, PROT_READ, ANONYMOUS, -1, 0) != area);
    TRUE(mmap(area + 4 * PAGE, PAGE, PROT_READ | PROT_WRITE, ANONYMOUS | MAP_FIXED, -1, 0) == area + 4 * PAGE);
    area[4 * PAGE] = 7;
    TRUE(mmap(area, 8 * PAGE, PROT_READ, ANONYMOUS | MAP_FIXED, -1, 0) == area);
    SHOW(area[4 * PAGE]);
    OK(mmap(area, PAGE, PROT_READ, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
    TRUE(mmap(area + 8 * PAGE, PAGE, PROT_READ, ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == area + 8 * PAGE);
    OK(mmap(area + 1, PAGE, PROT_READ, ANONYMOUS | MAP_FIXED, -1, 0));
    OK(mmap(NULL, 0, PROT_READ, ANONYMOUS, -1, 0));
    OK(mmap(NULL, PAGE, PROT_READ, MAP_ANONYMOUS, -1, 0));
    OK(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, -1, 0));
    OK(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, 55, 0));
    OK(mmap(NULL, (size_t)-1, PROT_READ, ANONYMOUS, -1, 0));
    OK(mmap(NULL, 1ull << 47, PROT_READ, ANONYMOUS, -1, 0));
    OK(mmap((void *)0x7ffffffff000, PAGE, PROT_READ, ANONYMOUS | MAP_FIXED, -1, 0));
    OK(syscall(SYS_mmap, NULL, PAGE, PROT_READ, ANONYMOUS, -1, 5));
    char *low = mmap((void *)0x10000, PAGE, PROT_READ, ANONYMOUS, -1, 0);
    TRUE(low == (char *)0x10000);
    TRUE((uintptr_t)mmap(NULL, PAGE, PROT_READ, ANONYMOUS | MAP_32BIT, -1, 0) < 1ul << 31);
    /* A hint that is not aligned is rounded. */
    char *hinted = mmap((char *)0x200000 + 5, PAGE, PROT_READ, ANONYMOUS, -1, 0);
    TRUE(((uintptr_t)hinted & 4095) == 0);
}

static void files(void)
{
    int fd = open("file", O_RDWR | O_CREAT, 0644), read_only = open("file", O_RDONLY);
    int write_only = open("file", O_WRONLY), folder = open(".", O_RDONLY);
    ftruncate(fd, PAGE + 100);
    pwrite(fd, "first", 5, 0);
    pwrite(fd, "second", 6, PAGE);
    char *map = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *copy = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    printf("%.5s %.6s [%d]\n", map, map + PAGE, map[PAGE + 2000]);
    map[0] = 'F';
    copy[1] = 'I';
    char text[16] = "";
    pread(fd, text, 5, 0);
    printf("file %s, shared %.5s, private %.5s\n", text, map, copy);
    pwrite(fd, "AGAIN", 5, PAGE);
    printf("shared %.6s, private %.6s\n", map + PAGE, copy + PAGE);
    probe("page past the end", map + 2 * PAGE);
    probe("private past the end", copy + 2 * PAGE);
    map[PAGE + 200] = 'z';
    ftruncate(fd, PAGE + 300);
    text[0] = 1;
    pread(fd, text, 1, PAGE + 200);
    SHOW(text[0]);
    ftruncate(fd, 3 * PAGE);
    probe("after growing", map + 2 * PAGE);
    ftruncate(fd, 10);
    probe("after shrinking", map + PAGE);
    probe("private after shrinking", copy + PAGE);
    probe("the page that stays", map);
    SHOW(map[12]);
    OK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, write_only, 0));
    OK(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, read_only, 0));
    OK(mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, read_only, 0));
    OK(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, folder, 0));
    OK(mmap(NULL, PAGE, PROT_READ, MAP_SHARED, read_only, 1));
    char *view = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, read_only, 0);
    SHOW(mprotect(view, PAGE, PROT_READ | PROT_WRITE));
    SHOW(msync(map, PAGE, MS_SYNC));
    SHOW(msync(map, PAGE, MS_SYNC | MS_ASYNC));
    SHOW(msync(map + 1, PAGE, MS_SYNC));
    SHOW(msync((void *)0x1000, PAGE, MS_SYNC));
    unlink("file");
    close(fd);
    map[3] = 'Q';
    pread(read_only, text, 5, 0);
    printf("unlinked file: %.5s\n", text);
    int zero = open("/dev/zero", O_RDWR);
    char *zeros = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, zero, 0);
    SHOW(zeros[100]);
    zeros[100] = 1;
    char *shared_zeros = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, zero, 0);
    REAP(CHILD(shared_zeros[0] = 9));
    SHOW(shared_zeros[0]);
}

static void moves(void)
{
    char *area = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, ANONYMOUS, -1, 0);
    for (int i = 0; i < 4; i++)
        area[i * PAGE] = (char)('a' + i);
    TRUE(mremap(area, 4 * PAGE, 2 * PAGE, 0) == area);
    probe("cut off", area + 2 * PAGE);
    char *wall = mmap(area + 2 * PAGE, PAGE, PROT_READ, ANONYMOUS | MAP_FIXED, -1, 0);
    OK(mremap(area, 2 * PAGE, 4 * PAGE, 0));
    char *moved = mremap(area, 2 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
    TRUE(moved != area && moved != MAP_FAILED);
    printf("%c%c%d\n", moved[0], moved[PAGE], moved[2 * PAGE]);
    probe("old place", area);
    probe("wall", wall);
    char *target = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, ANONYMOUS, -1, 0);
    target[0] = 'T';
    TRUE(mremap(moved, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target);
    SHOW(target[0]);
    probe("moved away", moved);
    SHOW(moved[PAGE]);
    OK(mremap(moved + 1, PAGE, PAGE, 0));
    OK(mremap(target, PAGE, 0, 0));
    OK(mremap(target, PAGE, PAGE, MREMAP_FIXED, moved));
    OK(mremap(target, 2 * PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, target + PAGE));
    OK(mremap((void *)0x1000, PAGE, 2 * PAGE, MREMAP_MAYMOVE));
    OK(mremap(target, PAGE, PAGE, 0x40));
    char *keep = mremap(target, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP);
    if (keep != MAP_FAILED)
        printf("kept %d moved %d\n", target[0], keep[0]);
    char *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared[0] = 5;
    char *twin = mremap(shared, 0, PAGE, MREMAP_MAYMOVE);
    twin[1] = 6;
    printf("twin %d %d\n", twin[0], shared[1]);
}

static void sharing(void)
{
    volatile int *shared = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    volatile int *own = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, ANONYMOUS, -1, 0);
    shared[0] = own[0] = 1;
    REAP(CHILD({
        shared[0]++;
        own[0]++;
        shared[2000] = own[2000] = 77;
        REAP(CHILD({ shared[0] += 10; own[0] += 10; }));
        printf("child %d %d\n", shared[0], own[0]);
    }));
    printf("parent %d %d %d %d\n", shared[0], own[0], shared[2000], own[2000]);
}

/* What may be done with memory, from the beginning of the region that it is in: for stacks. */
static void growing(void)
{
    enum { DOWN = 0x01000000, UP = 0x02000000 };
    static const char *const names[] = { "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth" };
    char *area = mmap(NULL, 64 * PAGE, PROT_NONE, ANONYMOUS | MAP_NORESERVE, -1, 0);
    munmap(area, 48 * PAGE);
    char *stack = mmap(area + 48 * PAGE, 8 * PAGE, PROT_READ | PROT_WRITE, ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED, -1, 0);
    SHOW(stack == area + 48 * PAGE);
    SHOW(mprotect(stack + 4 * PAGE, PAGE, PROT_READ | DOWN | UP));
    SHOW(mprotect(stack + 4 * PAGE + 1, PAGE, PROT_READ | DOWN));
    SHOW(mprotect(stack + 4 * PAGE, 0, PROT_READ | DOWN));
    SHOW(mprotect(stack + 4 * PAGE, -1ul, PROT_READ | DOWN));
    SHOW(mprotect(stack + 4 * PAGE, PAGE, 0x40 | DOWN));
    SHOW(mprotect(stack + 4 * PAGE, PAGE, PROT_READ | UP));
    SHOW(mprotect(stack + 8 * PAGE, PAGE, PROT_READ | DOWN));
    SHOW(mprotect(stack + 8 * PAGE, PAGE, PROT_READ | UP));
    SHOW(mprotect(stack - 30 * PAGE, PAGE, PROT_READ | DOWN));
    SHOW(mprotect(stack - 30 * PAGE, PAGE, PROT_READ | UP));
    SHOW(mprotect(stack + 4 * PAGE, PAGE, PROT_READ | DOWN));
    for (int page = 0; page < 8; page++)
        probe(names[page], stack + page * PAGE);
    /* One that begins below a region goes up into it. */
    SHOW(mprotect(stack - PAGE, 6 * PAGE + 1, PROT_READ | PROT_WRITE | DOWN));
    for (int page = 0; page < 8; page++)
        probe(names[page], stack + page * PAGE);
}

int main(void)
{
    struct sigaction action = { .sa_flags = SA_SIGINFO | SA_NODEFER };
    action.sa_sigaction = fault;
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    protections();
    growing();
    placement();
    files();
    moves();
    sharing();
    return 0;
}
