/* Huge pages of anonymous memory: what a program sees of its memory must not depend on them, whatever is done to a part of one.
 *
 * abi: limit 120
 */
#include "abi.h"
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define PAGE 4096L
#define HUGE (2L << 20)
#define COUNT 4

/* Memory that begins at a multiple of 2 MiB. */
static unsigned char *memory(void)
{
    unsigned char *place = mmap(NULL, (COUNT + 1) * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    place = (unsigned char *)(((unsigned long)place + HUGE - 1) & ~(HUGE - 1));
    return mmap(place, COUNT * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

static void drop(unsigned char *place)
{
    munmap(place, COUNT * HUGE);
}

/* Whether smaps says that the region of an address has huge pages. */
static int has_huge(const void *address)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[400];
    unsigned long start, end, amount = 0;
    int inside = 0;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            inside = start <= (unsigned long)address && (unsigned long)address < end;
        if (inside && sscanf(line, "AnonHugePages: %lu", &amount) == 1)
            break;
    }
    fclose(file);
    return inside && amount > 0;
}

static void fill(unsigned char *place)
{
    for (long page = 0; page < COUNT * HUGE / PAGE; page++)
        place[page * PAGE + page % PAGE] = (unsigned char)(page * 7 + 1);
}

/* How many pages of a range do not hold what `fill` stored. */
static long wrong(const unsigned char *place, long first, long end)
{
    long count = 0;
    for (long page = first; page < end; page++)
        count += place[page * PAGE + page % PAGE] != (unsigned char)(page * 7 + 1);
    return count;
}

#define ALL (COUNT * HUGE / PAGE)
/* A page in the midst of the second huge page. */
#define PART (HUGE / PAGE + 100)

static void parts(void)
{
    unsigned char *place = memory(), *other;
    printf("parts\n");
    SHOW(madvise(place, COUNT * HUGE, MADV_HUGEPAGE));
    fill(place);
    SHOW(has_huge(place));
    SHOW(wrong(place, 0, ALL));
    SHOW(munmap(place + PART * PAGE, PAGE));
    SHOW(wrong(place, 0, PART) + wrong(place, PART + 1, ALL));
    SHOW(mprotect(place + 2 * HUGE + PAGE, PAGE, PROT_READ));
    SHOW(wrong(place, PART + 1, ALL));
    SHOW(mprotect(place + 2 * HUGE + PAGE, PAGE, PROT_READ | PROT_WRITE));
    place[2 * HUGE + PAGE] = 1;
    SHOW(madvise(place + 3 * HUGE, 3 * PAGE, MADV_DONTNEED));
    SHOW(place[3 * HUGE + 3 * HUGE / PAGE % PAGE]);
    SHOW(wrong(place, 3 * HUGE / PAGE + 3, ALL));
    other = mremap(place + 3 * HUGE + 8 * PAGE, 8 * PAGE, 8 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place + PART * PAGE);
    SHOW(other == place + PART * PAGE);
    SHOW(other[(3 * HUGE / PAGE + 9) % PAGE + PAGE] == (unsigned char)((3 * HUGE / PAGE + 9) * 7 + 1));
    SHOW(mlock(place + 5 * PAGE, PAGE));
    SHOW(munlock(place + 5 * PAGE, PAGE));
    SHOW(wrong(place, 0, HUGE / PAGE));
    drop(place);
}

static void forks(void)
{
    unsigned char *place = memory();
    printf("forks\n");
    madvise(place, COUNT * HUGE, MADV_HUGEPAGE);
    fill(place);
    pid_t child = CHILD({
        place[PART * PAGE] ^= 1;
        munmap(place + HUGE, PAGE);
        SHOW(wrong(place, 0, HUGE / PAGE) + wrong(place, PART + 1, ALL));
        fflush(stdout);
    });
    place[3 * HUGE] ^= 0;
    REAP(child);
    SHOW(wrong(place, 0, ALL));
    fill(place);
    SHOW(wrong(place, 0, ALL));
    unsigned char bytes[2 * PAGE];
    struct iovec local = { bytes, sizeof bytes }, remote = { place + HUGE - PAGE, sizeof bytes };
    SHOW(process_vm_readv(getpid(), &local, 1, &remote, 1, 0));
    SHOW(memcmp(bytes, place + HUGE - PAGE, sizeof bytes));
    drop(place);
}

static void refusals(void)
{
    unsigned char *place = memory();
    printf("refusals\n");
    SHOW(madvise(place + 1, HUGE, MADV_HUGEPAGE));
    SHOW(madvise(place, HUGE, MADV_COLLAPSE));
    place[5] = 1;
    SHOW(madvise(place, HUGE, MADV_NOHUGEPAGE));
    SHOW(madvise(place, HUGE, MADV_COLLAPSE));
    SHOW(has_huge(place));
    fill(place);
    SHOW(madvise(place, COUNT * HUGE, MADV_HUGEPAGE));
    SHOW(madvise(place, COUNT * HUGE, MADV_COLLAPSE));
    SHOW(has_huge(place));
    SHOW(wrong(place, 0, ALL));
    SHOW(madvise(place + 7 * PAGE, PAGE, MADV_COLLAPSE));
    drop(place);
    SHOW(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
    SHOW(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0));
    SHOW(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
    SHOW(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 9));
    place = memory();
    madvise(place, COUNT * HUGE, MADV_HUGEPAGE);
    fill(place);
    SHOW(has_huge(place));
    pid_t child = CHILD({
        SHOW(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
        fflush(stdout);
    });
    REAP(child);
    SHOW(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0));
    drop(place);
}

static unsigned char *arena;
static pthread_barrier_t barrier;

/* Each thread has every fourth page to itself; one changes what the pages have to do with each other. */
static void *race(void *number)
{
    long own = (long)number, bad = 0;
    for (long round = 0; round < 30; round++) {
        pthread_barrier_wait(&barrier);
        for (long page = own; page < HUGE / PAGE; page += 4) {
            volatile unsigned char *byte = arena + page * PAGE;
            *byte = (unsigned char)(round + page);
            bad += *byte != (unsigned char)(round + page);
        }
        if (own == 0) {
            mprotect(arena + HUGE / 2, PAGE, PROT_READ);
            mprotect(arena + HUGE / 2, PAGE, PROT_READ | PROT_WRITE);
        }
        if (own == 1 && round % 4 == 0) {
            pid_t child = fork();
            if (child == 0)
                _exit(arena[PAGE] != (unsigned char)(round + 1));
            int status;
            waitpid(child, &status, 0);
            bad += status != 0;
        }
        if (own == 2)
            madvise(arena, HUGE, MADV_COLLAPSE);
        for (long page = own; page < HUGE / PAGE; page += 4)
            bad += arena[page * PAGE] != (unsigned char)(round + page);
        pthread_barrier_wait(&barrier);
        if (own == 3)
            madvise(arena, HUGE, MADV_DONTNEED);
    }
    return (void *)bad;
}


static void races(void)
{
    pthread_t threads[4];
    long bad = 0;
    printf("races\n");
    arena = memory();
    madvise(arena, HUGE, MADV_HUGEPAGE);
    pthread_barrier_init(&barrier, NULL, 4);
    for (long number = 0; number < 4; number++)
        pthread_create(&threads[number], NULL, race, (void *)number);
    for (long number = 0; number < 4; number++) {
        void *result;
        pthread_join(threads[number], &result);
        bad += (long)result;
    }
    SHOW(bad);
    drop(arena);
}

int main(void)
{
    parts();
    forks();
    refusals();
    races();
    return 0;
}
