/* sched_setaffinity moves a running thread before it returns: whoever looks afterwards finds it on a CPU that it may use.
 *
 * abi: guest
 * abi: cpus 2,4,8
 * abi: limit 60
 */
#include "guest.h"
#include <sched.h>

enum { ROUNDS = 400 };

/* The CPU that a process runs on or ran on last, by field 39 of its stat file. */
static int cpu_of(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    const char *text = get_text(path), *at = strrchr(text, ')');
    for (int field = 2; at && field < 39; field++)
        at = strchr(at + 1, ' ');
    return at ? atoi(at) : -1;
}

int main(void)
{
    int cpus = (int)sysconf(_SC_NPROCESSORS_ONLN), wrong = 0;
    pid_t child = CHILD(for (;;););
    for (int round = 0; round < ROUNDS; round++) {
        int target = (round * 7 + round / cpus) % cpus;
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(target, &set);
        EXPECT(sched_setaffinity(child, sizeof set, &set) == 0, "%s", strerror(errno));
        int found = cpu_of(child);
        if (found != target && wrong++ < 5)
            printf("round %d: on CPU %d after the move to %d\n", round, found, target);
    }
    EXPECT(wrong == 0, "%d of %d moves were not done when the call returned", wrong, ROUNDS);
    /* It moves itself, too. */
    for (int round = 0; round < ROUNDS; round++) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET(round % cpus, &set);
        EXPECT(sched_setaffinity(0, sizeof set, &set) == 0, "%s", strerror(errno));
        EXPECT(sched_getcpu() == round % cpus, "on CPU %d after the move to %d", sched_getcpu(), round % cpus);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return verdict_failed;
}
