/* One CPU maps 64 MiB, touches them sparsely and unmaps them, again and again, while another one spins in user mode and the
 * rest, if there is one, idles. All that is thrown away, at once or after a grace period, comes back: free memory must
 * return to within 4 MiB of what it was.
 *
 * abi: guest
 * abi: alone
 * abi: cpus 2,4
 * abi: args 3
 * abi: long-args 60
 * abi: limit 120
 * abi: long-limit 300
 */
#include "guest.h"

enum { BYTES = 64 << 20, STRIDE = 64 << 10, SLACK_KIB = 4 << 10 };

static void stay_on(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static long rounds(double seconds)
{
    long count = 0;
    for (double end = now_s() + seconds; now_s() < end; count++) {
        char *area = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT(area != MAP_FAILED, "%s", ERRNO_NAME(errno));
        if (area == MAP_FAILED)
            break;
        for (size_t at = 0; at < BYTES; at += STRIDE)
            area[at] = 1;
        munmap(area, BYTES);
        /* Something that goes through RCU for certain: an entry of a directory. */
        mkdir("thrown_away", 0700);
        rmdir("thrown_away");
    }
    return count;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 3;
    pid_t spinner = fork();
    if (spinner == 0) {
        stay_on(1);
        for (;;)
            ;
    }
    stay_on(0);
    /* Once before the measurement: what is kept for the next time is kept by then. */
    rounds(0.2);
    pause_ms(500);
    long before = free_kib();
    long count = rounds(seconds);
    long after = 0;
    for (int tries = 0; tries < PATIENCE_CS / 10 && (after = free_kib()) < before - SLACK_KIB; tries++)
        pause_ms(100);
    kill(spinner, SIGKILL);
    waitpid(spinner, NULL, 0);
    printf("%ld rounds in %.0f s: MemFree %ld KiB before, %ld KiB after\n", count, seconds, before, after);
    EXPECT(count > 0, "nothing happened");
    EXPECT(after >= before - SLACK_KIB, "%ld KiB are missing", before - after);
    return verdict_failed;
}
