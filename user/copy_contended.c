/* Threads that store into one page at the same moment after each fork: one copies it, and all go on with the same copy.
 *
 * A thread that copied the copy another one has just put in, which that one would copy again, would go on so for long. That costs
 * an interrupt of the other processors each time, so they are counted: a round needs the fork's, and two copies at most by each thread of
 * the page itself, beside the first stores into stacks.
 *
 * abi: guest
 * abi: cpus 2,4,8
 * abi: limit 120
 */
#include "guest.h"

enum { THREADS = 4, ROUNDS = 30, LINE = 64, CALLS_A_ROUND = 100 };

/* Shared memory, so that waiting for the next round is no store into a page that is to be copied. */
static struct {
    atomic_int round, done;
} *turn;

static char *page;

static void *stores(void *argument)
{
    long me = (long)argument;
    for (int round = 1; round <= ROUNDS; round++) {
        while (atomic_load(&turn->round) < round)
            sched_yield();
        page[me * LINE] = (char)round;
        atomic_fetch_add(&turn->done, 1);
    }
    return NULL;
}

/* Interrupts by which processors were told to forget pages. */
static long calls(void)
{
    const char *line = strstr(get_text("/proc/interrupts"), "CAL:");
    long sum = 0;
    for (char *at = line ? strchr(line, ':') + 1 : NULL, *end; at; at = end == at ? NULL : end)
        sum += strtol(at, &end, 10);
    return sum;
}

int main(void)
{
    pthread_t threads[THREADS];
    long lost = 0, seen = 0, children = 0;
    turn = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page[0] = 0;
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, stores, (void *)i);
    long before = calls();
    for (int round = 1; round <= ROUNDS; round++) {
        int ends[2], status;
        pipe(ends);
        pid_t child = fork();
        if (child == 0) {
            char byte;
            close(ends[1]);
            read(ends[0], &byte, 1);
            /* What was stored after the fork is not the child's. */
            for (int i = 0; i < THREADS; i++)
                if (page[i * LINE] != (char)(round - 1))
                    _exit(1);
            _exit(0);
        }
        close(ends[0]);
        atomic_store(&turn->round, round);
        while (atomic_load(&turn->done) < THREADS * round)
            sched_yield();
        for (int i = 0; i < THREADS; i++)
            lost += page[i * LINE] != (char)round;
        close(ends[1]);
        children += waitpid(child, &status, 0) == child;
        seen += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    long each = (calls() - before) / ROUNDS;
    printf("%ld interrupts a round for %d threads\n", each, THREADS);
    EXPECT(lost == 0, "%ld stores were lost", lost);
    EXPECT(seen == 0, "%ld children saw what was stored after their fork", seen);
    EXPECT(children == ROUNDS, "%ld children", children);
    EXPECT(each <= CALLS_A_ROUND, "copies of copies");
    return verdict_failed;
}
