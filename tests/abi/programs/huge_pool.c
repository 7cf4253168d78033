/* Huge pages of the pool (MAP_HUGETLB): promises, what is refused within a page, forks, moves, surplus pages.
 *
 * abi: alone
 * abi: limit 60
 */
#include "huge_pool.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

static unsigned char *map(long pages, int flags)
{
    return mmap(NULL, pages * HUGE, ANY, flags | POOLED, -1, 0);
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
    catch_signals();
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
