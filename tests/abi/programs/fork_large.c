/* Forks of a process with many megabytes: children and parent see their own stores only, whatever is unmapped, protected or moved. */
#include "abi.h"

#define MIB (1 << 20)
#define SIZE (40L * MIB)
#define PAGES (SIZE / 4096)

static volatile unsigned char *area;
static volatile int stop;

static unsigned char value_of(long page, int who)
{
    return (unsigned char)(page * 7 + who * 31 + 1);
}

static void fill(int who, long first, long step)
{
    for (long page = first; page < PAGES; page += step)
        area[page * 4096] = value_of(page, who);
}

/* Pages that do not have the value that `who` gave them, of those in steps from the first. */
static long wrong(int who, long first, long step)
{
    long count = 0;
    for (long page = first; page < PAGES; page += step)
        count += area[page * 4096] != value_of(page, who);
    return count;
}

static int child_status(pid_t child)
{
    int status;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void generations(void)
{
    fill(0, 0, 1);
    pid_t child = fork();
    if (child == 0) {
        fill(1, 0, 100);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            fill(2, 1, 100);
            _exit(wrong(1, 0, 100) || wrong(2, 1, 100) || wrong(0, 2, 100));
        }
        int below = child_status(grandchild);
        _exit(below || wrong(1, 0, 100) || wrong(0, 1, 100) || wrong(0, 2, 100));
    }
    fill(3, 3, 100);
    SHOW(child_status(child));
    SHOW(wrong(3, 3, 100));
    SHOW(wrong(0, 4, 100));
    SHOW(wrong(0, 0, 100));
}

static void changes(void)
{
    fill(0, 0, 1);
    char *base = (char *)area;
    pid_t child = fork();
    if (child == 0) {
        munmap(base + 5 * MIB + 4096, 3 * MIB);
        mprotect(base + 10 * MIB + 8192, 4096, PROT_READ);
        madvise(base + 15 * MIB + 4096, 4 * MIB, MADV_DONTNEED);
        char *moved = mremap(base + 20 * MIB + 4096, 4 * MIB, 4 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, base + 2 * SIZE);
        int good = base[5 * MIB] == (char)value_of(5 * MIB / 4096, 0) && base[15 * MIB + 4096] == 0
            && moved[4096] == (char)value_of(20 * MIB / 4096 + 2, 0);
        _exit(good ? 7 : 1);
    }
    SHOW(child_status(child));
    SHOW(wrong(0, 0, 1));
    child = fork();
    if (child == 0) {
        mprotect(base + 10 * MIB, 4 * MIB, PROT_READ);
        base[11 * MIB] = 1;
        _exit(1);
    }
    SHOW(child_status(child));
    base[11 * MIB] = 1;
    child = fork();
    if (child == 0)
        execl("/proc/self/exe", "fork_large", "child", NULL);
    SHOW(child_status(child));
    munmap(base + 2 * MIB, 20 * MIB);
    child = fork();
    if (child == 0)
        _exit(base[2 * MIB - 4096] == (char)value_of((2 * MIB - 4096) / 4096, 0) ? 9 : 1);
    SHOW(child_status(child));
    child = fork();
    if (child == 0)
        _exit(base[2 * MIB]);
    SHOW(child_status(child));
}

/* Counts up in the pages of its own, the higher one first. */
static void *counts(void *argument)
{
    long first = (long)argument;
    for (unsigned round = 1; !stop; round++) {
        for (long page = PAGES - 4 + first; page >= 0; page -= 997 * 4)
            *(volatile unsigned *)(area + page * 4096 + 8) = round;
        if (round % 100 == 0)
            usleep(1000);
    }
    return NULL;
}

static int snapshot_is_still(void)
{
    unsigned seen[64];
    long count = 0;
    for (long page = PAGES - 4; page >= 0 && count < 64; page -= 997 * 4)
        seen[count++] = *(volatile unsigned *)(area + page * 4096 + 8);
    for (int i = 0; i < 5; i++)
        sched_yield();
    long again = 0;
    for (long page = PAGES - 4; again < count; page -= 997 * 4)
        if (*(volatile unsigned *)(area + page * 4096 + 8) != seen[again++])
            return 0;
    return 1;
}

static void while_threads_store(void)
{
    pthread_t threads[3];
    for (long i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, counts, (void *)i);
    int bad = 0;
    for (int i = 0; i < 10; i++) {
        pid_t child = fork();
        if (child == 0) {
            int still = snapshot_is_still();
            fill(i, 3, 50);
            _exit(still && !wrong(i, 3, 50) ? 0 : 1);
        }
        bad += child_status(child) != 0;
    }
    stop = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    SHOW(bad);
}

int main(int count, char **arguments)
{
    if (count > 1 && !strcmp(arguments[1], "child"))
        return 8;
    area = mmap((void *)0x10000000000, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    generations();
    while_threads_store();
    changes();
    return 0;
}
