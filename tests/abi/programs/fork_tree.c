/* Families of forks: a chain of generations whose parents leave, and processes that fork, store and leave in any order. Each knows
 * what its memory must contain and looks.
 *
 * Arguments: generations of the chain, rounds of each of the sixteen processes, and seconds for which these go on at the least.
 * abi: limit 60
 * abi: args 1000 60
 * abi: long-args 10000 40000
 * abi: long-limit 2400
 * abi: long-cpus 8
 */
#include "abi.h"
#include <sys/prctl.h>
#include <time.h>

#define SIZE (5L << 20)
#define PAGES (SIZE / 4096)
#define FAMILIES 16

static volatile unsigned char *area;
/* What each page must contain; it is forked along with the pages. */
static unsigned char *expected;

static long wrong(void)
{
    long count = 0;
    for (long page = 0; page < PAGES; page++)
        count += area[page * 4096] != expected[page];
    return count;
}

static void store(unsigned long page, unsigned char value)
{
    area[page % PAGES * 4096] = value;
    expected[page % PAGES] = value;
}

static unsigned long next(unsigned long *seed)
{
    *seed = *seed * 6364136223846793005UL + 1442695040888963407UL;
    return *seed >> 33;
}

/* Each generation touches one page, forks, and leaves. The last one says what it sees. */
static void chain(long generations)
{
    int ends[2];
    pipe(ends);
    if (fork() == 0) {
        for (long generation = 0; generation < generations; generation++) {
            store((unsigned long)generation * 7, (unsigned char)generation);
            pid_t child = fork();
            if (child < 0)
                _exit(1);
            if (child > 0)
                _exit(0);
        }
        long bad = wrong();
        write(ends[1], &bad, sizeof bad);
        _exit(0);
    }
    close(ends[1]);
    long bad = -1, failed = 0, ended = 0;
    SHOW(read(ends[0], &bad, sizeof bad));
    SHOW(bad);
    close(ends[0]);
    for (int status; wait(&status) > 0; ended++)
        failed += status != 0;
    SHOW(ended == generations + 1);
    SHOW(failed);
}

static time_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec;
}

/* A process of a family: stores, forks, throws pages away; its children do the same for a while, and leave before or after it. It does
 * all its rounds, and goes on until the end has come. */
static int live(unsigned long seed, long rounds, time_t end, int depth)
{
    int children = 0, bad = 0;
    for (long round = 0; round < rounds || now() < end; round++) {
        unsigned long page = next(&seed) % PAGES;
        switch (next(&seed) % 4) {
        case 0:
        case 1:
            store(page, (unsigned char)next(&seed));
            break;
        case 2:
            madvise((char *)area + page * 4096, 4096, MADV_DONTNEED);
            expected[page] = 0;
            break;
        default:
            if (depth == 3)
                break;
            pid_t child = fork();
            if (child == 0)
                _exit(live(seed + 1, 1 + (long)(next(&seed) % 8), 0, depth + 1));
            children += child > 0;
            /* One in two is waited for at once; the others live beside this one. */
            if (child > 0 && next(&seed) % 2) {
                int status;
                waitpid(child, &status, 0);
                bad += status != 0;
                children--;
            }
        }
        if (round % 16 == 0)
            bad += wrong() != 0;
        int status;
        while (children > 8 && wait(&status) > 0) {
            bad += status != 0;
            children--;
        }
    }
    bad += wrong() != 0;
    /* Half of the processes leave their children to whoever reaps orphans. */
    int status;
    while (seed % 2 && wait(&status) > 0)
        bad += status != 0;
    return bad != 0;
}

static void families(long rounds, time_t end)
{
    for (int family = 0; family < FAMILIES; family++)
        if (fork() == 0)
            _exit(live((unsigned long)family * 1000003, rounds, end, 0));
    long bad = 0, ended = 0;
    for (int status; wait(&status) > 0; ended++)
        bad += status != 0;
    SHOW(ended >= FAMILIES);
    SHOW(bad);
    SHOW(wrong());
}

int main(int argc, char **argv)
{
    long generations = argc > 1 ? atol(argv[1]) : 1000;
    long rounds = argc > 2 ? atol(argv[2]) : 60;
    time_t end = argc > 3 ? now() + atol(argv[3]) : 0;
    area = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expected = mmap(NULL, PAGES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (long page = 0; page < PAGES; page++)
        store((unsigned long)page, (unsigned char)(page * 13 + 1));
    chain(generations);
    families(rounds, end);
    return 0;
}
