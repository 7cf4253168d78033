/* `starve` of specs/scalability.md: a program on a CPU that softirqs and timers flood at full rate: it is never away for longer than 20 ms.
 *
 * The host may take the processor away for any time, so the best of many short floods decides.
 *
 * abi: guest
 * abi: alone
 * abi: cpus 1,2
 * abi: limit 120
 */
#include "guest.h"

#define DEBUG "/sys/kernel/debug"
enum { FLOOD_MS = 100, ATTEMPTS = 1000, LIMIT_US = 20000 };

static long now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000L + now.tv_nsec / 1000;
}

/* The longest time away during a flood of this CPU. */
static long longest_gap(void)
{
    char text[16];
    snprintf(text, sizeof text, "%d\n", FLOOD_MS);
    int fd = open(DEBUG "/softirq_flood", O_WRONLY);
    EXPECT(fd >= 0 && write(fd, text, strlen(text)) > 0, "%s", ERRNO_NAME(errno));
    long start = now_us(), last = start, longest = 0;
    while (last < start + FLOOD_MS * 1000L) {
        long now = now_us();
        longest = now - last > longest ? now - last : longest;
        last = now;
    }
    close(fd);
    return longest;
}

int main(void)
{
    EXPECT(mount("debugfs", DEBUG, "debugfs", 0, NULL) == 0, "%s", ERRNO_NAME(errno));
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(sysconf(_SC_NPROCESSORS_ONLN) - 1, &set);
    sched_setaffinity(0, sizeof set, &set);
    long softirqs = atol(contents_of(DEBUG "/softirq_flood"));
    long best = 1L << 40;
    for (int i = 0; i < ATTEMPTS && best > LIMIT_US && !verdict_failed; i++) {
        long gap = longest_gap();
        best = gap < best ? gap : best;
    }
    softirqs = atol(contents_of(DEBUG "/softirq_flood")) - softirqs;
    printf("%ld softirqs; away for %ld us at most\n", softirqs, best);
    EXPECT(softirqs > 100, "%ld softirqs are no flood", softirqs);
    EXPECT(best <= LIMIT_US, "away for %ld us", best);
    return verdict_failed;
}
