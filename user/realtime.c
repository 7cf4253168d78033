/* Scheduling classes on one CPU, as sched(7) describes them: priorities, turns, shares, and what is left beside a real-time loop.
 *
 * Shares are of the guest's CPU time; since a busy host may take the CPU away in one process's time, the first good attempt decides.
 *
 * abi: guest
 * abi: limit 120
 */
#include "guest.h"
#include <sched.h>
#include <sys/resource.h>

enum { ATTEMPTS = 8 };

static volatile struct {
    int order[8], used;
    double cpu_ms[4];
    int ready, go, stop;
} *shared;

static double cpu_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static void note(int who)
{
    if (shared->used < 8)
        shared->order[shared->used++] = who;
}

static void become(int policy, int priority)
{
    struct sched_param parameters = { .sched_priority = priority };
    if (sched_setscheduler(0, policy, &parameters) < 0) {
        printf("policy %d, priority %d: %s\n", policy, priority, strerror(errno));
        verdict_failed = 1;
    }
}

static int order_is(const char *what, int count, const int *expected)
{
    int good = shared->used == count;
    for (int i = 0; good && i < count; i++)
        good = shared->order[i] == expected[i];
    printf("%s:", what);
    for (int i = 0; i < shared->used; i++)
        printf(" %d", shared->order[i]);
    printf("\n");
    shared->used = 0;
    return good;
}

/* A waker with priority 10 wakes 20, 10 and 5 in the wrong order: who is more urgent runs at once, the others when it sleeps. */
static void priorities(void)
{
    int gates[3][2], priority[3] = { 5, 10, 20 };
    pid_t children[3];
    become(SCHED_FIFO, 10);
    for (int i = 0; i < 3; i++) {
        if (pipe(gates[i]) < 0)
            return;
        children[i] = CHILD({
            char byte;
            become(SCHED_FIFO, priority[i]);
            shared->ready++;
            if (read(gates[i][0], &byte, 1) == 1)
                note(priority[i]);
        });
    }
    while (shared->ready < 3)
        pause_ms(1);
    pause_ms(10);
    for (int i = 0; i < 3; i++)
        if (write(gates[i][1], "x", 1) != 1)
            return;
    note(0);
    for (int i = 0; i < 3; i++)
        waitpid(children[i], NULL, 0);
    EXPECT(order_is("woken by priority 10 (0)", 4, (const int[]) { 20, 0, 10, 5 }), "not the order of priorities");
    become(SCHED_OTHER, 0);
}

/* A real-time loop beside which an equal wakes up; returns the CPU time after which the loop sees that the other has run. */
static double turn_ms(int policy)
{
    shared->go = shared->ready = 0;
    pid_t children[2];
    become(SCHED_FIFO, 50);
    for (int i = 0; i < 2; i++)
        children[i] = CHILD({
            become(policy, 10);
            double start = cpu_ms();
            if (i == 1) {
                /* Whoever wakes goes behind its equals. */
                pause_ms(20);
                shared->go = 1;
            } else {
                while (!shared->go && cpu_ms() < start + 400)
                    ;
                shared->cpu_ms[0] = cpu_ms() - start;
            }
        });
    for (int i = 0; i < 2; i++)
        waitpid(children[i], NULL, 0);
    become(SCHED_OTHER, 0);
    return shared->cpu_ms[0];
}

static void turns(void)
{
    double fifo = 0, round_robin = 0;
    for (int i = 0; i < ATTEMPTS && !(fifo >= 400); i++)
        fifo = turn_ms(SCHED_FIFO);
    for (int i = 0; i < ATTEMPTS && !(round_robin >= 90 && round_robin <= 130); i++)
        round_robin = turn_ms(SCHED_RR);
    printf("a loop lets its equal run after %.0f ms (SCHED_FIFO), %.0f ms (SCHED_RR)\n", fifo, round_robin);
    EXPECT(fifo >= 400, "SCHED_FIFO gave way to an equal");
    EXPECT(round_robin >= 90 && round_robin <= 130, "a turn of SCHED_RR is 100 ms");
}

/* Two loops on the CPU for a while; returns how much of the time of both the second one had. */
static double second_share(int policy, int nice_value)
{
    shared->stop = 0;
    pid_t children[2];
    for (int i = 0; i < 2; i++)
        children[i] = CHILD({
            if (i == 1 && policy != SCHED_OTHER)
                become(policy, 0);
            if (i == 1)
                setpriority(PRIO_PROCESS, 0, nice_value);
            while (!shared->stop)
                ;
            shared->cpu_ms[i] = cpu_ms();
        });
    pause_ms(1500);
    shared->stop = 1;
    for (int i = 0; i < 2; i++)
        waitpid(children[i], NULL, 0);
    return shared->cpu_ms[1] / (shared->cpu_ms[0] + shared->cpu_ms[1]);
}

static void shares(const char *what, int policy, int nice_value, double least, double most)
{
    double share = -1;
    for (int i = 0; i < ATTEMPTS && !(share >= least && share <= most); i++)
        share = second_share(policy, nice_value);
    printf("%s beside nice 0: %.1f %%\n", what, share * 100);
    EXPECT(share >= least && share <= most, "not from %.0f to %.0f %%", least * 100, most * 100);
}

/* A loop of the highest priority leaves a little time, in which it can be ended. */
static void loop_can_be_ended(void)
{
    double share = -1;
    for (int i = 0; i < ATTEMPTS && !(share >= 0.02 && share <= 0.12); i++) {
        become(SCHED_FIFO, 99);
        pid_t loop = CHILD(for (;;););
        become(SCHED_OTHER, 0);
        struct timespec start, now;
        clock_gettime(CLOCK_MONOTONIC, &start);
        double before = cpu_ms(), wall;
        do {
            clock_gettime(CLOCK_MONOTONIC, &now);
            wall = (now.tv_sec - start.tv_sec) * 1e3 + (now.tv_nsec - start.tv_nsec) / 1e6;
        } while (wall < 3000);
        share = (cpu_ms() - before) / wall;
        kill(loop, SIGKILL);
        waitpid(loop, NULL, 0);
    }
    printf("beside a real-time loop an ordinary process has %.1f %% of the CPU\n", share * 100);
    EXPECT(share >= 0.02 && share <= 0.12, "not about 5 %%");
}

int main(void)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof one, &one);
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    priorities();
    turns();
    shares("nice 0", SCHED_OTHER, 0, 0.44, 0.56);
    shares("nice 5", SCHED_OTHER, 5, 0.21, 0.29);
    shares("nice 19", SCHED_OTHER, 19, 0.005, 0.04);
    shares("SCHED_BATCH", SCHED_BATCH, 0, 0.42, 0.58);
    shares("SCHED_IDLE", SCHED_IDLE, 0, 0, 0.02);
    loop_can_be_ended();
    return verdict_failed;
}
