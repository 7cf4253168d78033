/* Huge pages of the pool (MAP_HUGETLB): promises, what is refused within a page, forks, moves, surplus pages.
 *
 * abi: alone
 * abi: limit 60
 */
#include "abi.h"
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

#define PAGE 4096L
#define HUGE (2L << 20)
#define ANY (PROT_READ | PROT_WRITE)
#define POOLED (MAP_ANONYMOUS | MAP_HUGETLB)

/* A number of a file, behind a name or the first one. */
static long number(const char *path, const char *name)
{
    FILE *file = fopen(path, "r");
    char line[200];
    long value = -1;
    while (file && value < 0 && fgets(line, sizeof line, file))
        if (!name || (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':'))
            value = strtol(line + (name ? strlen(name) + 1 : 0), NULL, 10);
    if (file)
        fclose(file);
    return value;
}

static void pool(const char *when)
{
    printf("  %s:", when);
    for (const char **name = (const char *[]){ "Total", "Free", "Rsvd", "Surp", NULL }; *name; name++) {
        char full[40];
        snprintf(full, sizeof full, "HugePages_%s", *name);
        printf(" %s %ld", *name, number("/proc/meminfo", full));
    }
    printf("\n");
    fflush(stdout);
}

static void set(const char *path, long value)
{
    FILE *file = fopen(path, "w");
    fprintf(file, "%ld\n", value);
    fclose(file);
}

#define SIZE "/proc/sys/vm/nr_hugepages"
#define SURPLUS "/proc/sys/vm/nr_overcommit_hugepages"

static sigjmp_buf back;

static void caught(int signal, siginfo_t *info, void *context)
{
    (void)context;
    siglongjmp(back, signal * 10 + info->si_code);
}

/* The signal that an access ends in, and why; 0 for none. */
static int reads(volatile unsigned char *place)
{
    int signal = sigsetjmp(back, 1);
    if (signal == 0)
        (void)*place;
    return signal;
}

static int writes(volatile unsigned char *place)
{
    int signal = sigsetjmp(back, 1);
    if (signal == 0)
        *place = 1;
    return signal;
}

static unsigned char *map(long pages, int flags)
{
    return mmap(NULL, pages * HUGE, ANY, flags | POOLED, -1, 0);
}

/* What a call that returns an address comes to. */
#define MAPS(call) SHOW((call) == MAP_FAILED ? -1 : 0)

/* The lines of smaps that tell of pages of the pool. */
static void smaps(const unsigned char *place)
{
    static const char *const names[] = { "Size:", "KernelPageSize:", "MMUPageSize:", "Rss:", "Pss:", "Anonymous:",
        "AnonHugePages:", "Shared_Hugetlb:", "Private_Hugetlb:", "Locked:", "THPeligible:" };
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[400];
    unsigned long start, end;
    int inside = 0;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2) {
            inside = start <= (unsigned long)place && (unsigned long)place < end;
            if (inside)
                printf("  %s", strchr(line, '/') ? strchr(line, '/') : "\n");
        }
        for (unsigned at = 0; inside && at < sizeof names / sizeof *names; at++)
            if (strncmp(line, names[at], strlen(names[at])) == 0)
                printf("  %s", line);
    }
    fclose(file);
    printf("  HugetlbPages %ld\n", number("/proc/self/status", "HugetlbPages"));
}

static void promises(void)
{
    printf("promises\n");
    unsigned char *place = map(2, MAP_PRIVATE);
    pool("promised");
    SHOW(reads(place));
    SHOW(writes(place + HUGE + 5));
    pool("touched");
    smaps(place);
    MAPS(map(3, MAP_PRIVATE));
    MAPS(map(3, MAP_SHARED));
    pool("refused");
    unsigned char *more = map(3, MAP_PRIVATE | MAP_NORESERVE);
    SHOW(writes(more) + writes(more + HUGE));
    SHOW(writes(more + 2 * HUGE));
    pool("used up");
    munmap(more, 3 * HUGE);
    SHOW(madvise(place, HUGE, MADV_DONTNEED));
    pool("dropped");
    SHOW(writes(place));
    SHOW(madvise(place, PAGE, MADV_DONTNEED));
    SHOW(place[0]);
    SHOW(madvise(place, HUGE + PAGE, MADV_DONTNEED));
    SHOW(place[0]);
    SHOW(place[HUGE + 5]);
    munmap(place, 2 * HUGE);
    place = mmap(NULL, HUGE + 1, ANY, MAP_PRIVATE | POOLED | MAP_POPULATE, -1, 0);
    pool("populated");
    munmap(place, 2 * HUGE);
    place = mmap(NULL, HUGE, ANY, MAP_PRIVATE | POOLED | 21 << 26, -1, 0);
    SHOW(place != MAP_FAILED);
    munmap(place, HUGE);
    MAPS(mmap(NULL, HUGE, ANY, MAP_PRIVATE | POOLED | 30 << 26, -1, 0));
    MAPS(mmap(NULL, HUGE, ANY, MAP_PRIVATE | POOLED | 22 << 26, -1, 0));
    MAPS(mmap(NULL, HUGE, ANY, MAP_PRIVATE | MAP_HUGETLB, 0, 0));
    pool("none");
    SHOW(number("/proc/meminfo", "Hugetlb"));
    SHOW(number("/proc/meminfo", "Hugepagesize"));
}

static void parts(void)
{
    printf("parts\n");
    unsigned char *place = map(2, MAP_PRIVATE), resident[1024];
    place[5] = 7;
    place[HUGE] = 8;
    SHOW(munmap(place, PAGE));
    SHOW(munmap(place + PAGE, HUGE));
    SHOW(munmap(place, HUGE + PAGE));
    SHOW(mprotect(place, PAGE, PROT_READ));
    SHOW(mprotect(place + PAGE, PAGE, PROT_READ));
    SHOW(mprotect(place, HUGE, PROT_NONE));
    SHOW(reads(place));
    SHOW(mprotect(place, HUGE, PROT_READ));
    SHOW(place[5]);
    SHOW(writes(place));
    SHOW(mprotect(place, HUGE, ANY));
    SHOW(writes(place));
    SHOW(madvise(place, PAGE, MADV_DONTFORK));
    SHOW(madvise(place + PAGE, HUGE, MADV_DONTNEED));
    SHOW(madvise(place, PAGE, MADV_HUGEPAGE));
    SHOW(madvise(place, HUGE, MADV_HUGEPAGE));
    SHOW(madvise(place, HUGE, MADV_NOHUGEPAGE));
    SHOW(madvise(place, HUGE, MADV_FREE));
    SHOW(madvise(place, HUGE, MADV_WIPEONFORK));
    SHOW(madvise(place, HUGE, MADV_COLLAPSE));
    SHOW(madvise(place, HUGE, MADV_COLD));
    SHOW(madvise(place, HUGE, MADV_PAGEOUT));
    SHOW(madvise(place, HUGE, MADV_REMOVE));
    SHOW(madvise(place, HUGE, MADV_WILLNEED));
    SHOW(madvise(place, HUGE, MADV_DONTDUMP));
    SHOW(madvise(place, HUGE, MADV_DODUMP));
    SHOW(madvise(place, PAGE, MADV_RANDOM));
    SHOW(mlock(place, PAGE));
    SHOW(mlock(place, HUGE));
    SHOW(number("/proc/self/status", "VmLck"));
    SHOW(munlock(place, HUGE));
    SHOW(msync(place, HUGE, MS_SYNC));
    SHOW(mincore(place, 2 * HUGE, resident));
    SHOW(resident[0] + resident[511] + resident[512]);
    SHOW(madvise(place, HUGE, MADV_DONTNEED));
    SHOW(mincore(place, 2 * HUGE, resident));
    SHOW(resident[0] * 100 + resident[511] * 10 + resident[512]);
    MAPS(mmap(place, PAGE, ANY, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    SHOW(place[HUGE]);
    munmap(place, 2 * HUGE);
    pool("none");
}

static void moves(void)
{
    printf("moves\n");
    unsigned char *hole = mmap(NULL, 8 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *target = (unsigned char *)(((unsigned long)hole + HUGE - 1) & ~(HUGE - 1));
    unsigned char *place = map(3, MAP_PRIVATE);
    place[HUGE + 5] = 9;
    MAPS(mremap(place, 3 * HUGE, 4 * HUGE, MREMAP_MAYMOVE));
    MAPS(mremap(place + PAGE, PAGE, PAGE, MREMAP_MAYMOVE));
    MAPS(mremap(place, 3 * HUGE, 3 * HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, target + PAGE));
    MAPS(mremap(place, 3 * HUGE, 3 * HUGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0));
    SHOW(mremap(place, 3 * HUGE, 3 * HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, target) == target);
    SHOW(target[HUGE + 5]);
    pool("moved");
    SHOW(mremap(target, 3 * HUGE, 2 * HUGE, 0) == target);
    pool("shorter");
    SHOW(mremap(target, 2 * HUGE, HUGE + 1, 0) == target);
    SHOW(writes(target));
    MAPS(mmap(target + PAGE, HUGE, ANY, MAP_PRIVATE | POOLED | MAP_FIXED, -1, 0));
    SHOW(mmap(target + 2 * HUGE, PAGE, ANY, MAP_PRIVATE | POOLED | MAP_FIXED, -1, 0) == target + 2 * HUGE);
    SHOW(munmap(target + 2 * HUGE, PAGE));
    SHOW(munmap(target + 2 * HUGE, HUGE));
    munmap(hole, target - hole);
    SHOW(munmap(target, 2 * HUGE));
    munmap(target + 3 * HUGE, hole + 8 * HUGE - target - 3 * HUGE);
    pool("none");
}

static void forks(void)
{
    printf("forks\n");
    unsigned char *place = map(3, MAP_PRIVATE);
    place[0] = 1;
    place[HUGE] = 2;
    pid_t child = CHILD({
        pool("child");
        SHOW(place[0] + place[HUGE]);
        SHOW(writes(place + 2 * HUGE));
        pool("of its own");
        SHOW(writes(place));
        SHOW(writes(place + HUGE));
        fflush(stdout);
    });
    REAP(child);
    pool("reaped");
    int ready[2], go[2];
    char byte = 0;
    if (pipe(ready) || pipe(go))
        return;
    child = CHILD({
        write(ready[1], &byte, 1);
        read(go[0], &byte, 1);
        SHOW(reads(place));
        SHOW(reads(place + HUGE));
        SHOW(writes(place + HUGE));
        fflush(stdout);
    });
    read(ready[0], &byte, 1);
    SHOW(writes(place));
    pool("the one that was free");
    SHOW(writes(place + HUGE));
    pool("the child's");
    SHOW(writes(place + 2 * HUGE));
    fflush(stdout);
    write(go[1], &byte, 1);
    REAP(child);
    munmap(place, 3 * HUGE);
    place = map(2, MAP_SHARED);
    place[0] = 3;
    child = CHILD({
        place[0]++;
        place[HUGE] = 9;
    });
    REAP(child);
    SHOW(place[0] * 10 + place[HUGE]);
    smaps(place);
    munmap(place, 2 * HUGE);
    pool("none");
}

static void surplus(void)
{
    printf("surplus\n");
    set(SURPLUS, 2);
    SHOW(number(SURPLUS, NULL));
    unsigned char *place = map(5, MAP_PRIVATE);
    pool("five");
    munmap(place, 5 * HUGE);
    pool("four");
    MAPS(map(7, MAP_PRIVATE));
    pool("refused");
    place = map(4, MAP_PRIVATE | MAP_POPULATE);
    set(SIZE, 1);
    pool("in use");
    set(SIZE, 3);
    pool("three");
    munmap(place, 4 * HUGE);
    pool("home");
    set(SURPLUS, 0);
    place = map(3, MAP_PRIVATE);
    set(SIZE, 1);
    pool("promised");
    set(SIZE, 4);
    munmap(place, 3 * HUGE);
    pool("four");
}

int main(void)
{
    struct sigaction action = { .sa_sigaction = caught, .sa_flags = SA_SIGINFO };
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
    set(SIZE, 4);
    pool("begin");
    promises();
    parts();
    moves();
    forks();
    surplus();
    set(SIZE, 0);
    pool("end");
    return 0;
}
