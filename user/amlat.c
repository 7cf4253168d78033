/* How late a real-time thread is that a high-resolution timer wakes, beside programs that compute and programs that write files.
 *
 * usage: amlat [-n WAKE-UPS] [-i MICROSECONDS] [-l PROGRAMS] [-m MICROSECONDS]
 *   -n  wake-ups (1000)
 *   -i  from one to the next (1000)
 *   -l  ordinary programs beside it on its processor, half of them compute, half write (4)
 *   -m  fails if more than one wake-up of a thousand is later than this (what is late by the clock is the host's doing, too, so this is for
 *       machines whose clock are instructions; without it latencies are printed only)
 *
 * A wake-up that comes before its time is an error in any case.
 *
 * abi: guest
 * abi: cpus 1,2,4
 * abi: limit 60
 */
#include "guest.h"
#include <sched.h>
#include <sys/prctl.h>

enum { BUCKETS = 24, PRIORITY = 90, FILE_BYTES = 1 << 16 };

static long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

/* One of those beside: even ones compute, odd ones write and truncate a file. */
static void load(int which)
{
    static char bytes[4096];
    char path[32];
    snprintf(path, sizeof path, "/tmp/amlat.%d", which);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (volatile unsigned long rounds = 0; which % 2 == 0; rounds++)
        ;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    unlink(path);
    for (long written = 0;; written += sizeof bytes) {
        if (fd < 0 || pwrite(fd, bytes, sizeof bytes, written % FILE_BYTES) != sizeof bytes)
            _exit(1);
        if (written % FILE_BYTES == 0 && ftruncate(fd, 0) < 0)
            _exit(1);
    }
}

static int compare(const void *one, const void *other)
{
    long a = *(const long *)one, b = *(const long *)other;
    return (a > b) - (a < b);
}

/* Bounds are powers of two of microseconds. */
static void print_histogram(const long *late_ns, long count)
{
    long buckets[BUCKETS] = { 0 };
    int first = BUCKETS, last = 0;
    for (long i = 0; i < count; i++) {
        int bucket = 0;
        while (bucket < BUCKETS - 1 && late_ns[i] > 1000L << bucket)
            bucket++;
        buckets[bucket]++;
        first = bucket < first ? bucket : first;
        last = bucket > last ? bucket : last;
    }
    for (int bucket = first; bucket <= last; bucket++)
        printf("%s %8ld us: %8ld\n", bucket == BUCKETS - 1 ? "over   " : "at most",
               1L << (bucket == BUCKETS - 1 ? bucket - 1 : bucket), buckets[bucket]);
}

int main(int argc, char **argv)
{
    long wakeups = 1000, interval_us = 1000, programs = 4, most_us = 0;
    for (int option; (option = getopt(argc, argv, "n:i:l:m:")) != -1;) {
        long number = optarg ? atol(optarg) : 0;
        switch (option) {
        case 'n': wakeups = number; break;
        case 'i': interval_us = number; break;
        case 'l': programs = number; break;
        case 'm': most_us = number; break;
        default: return 2;
        }
    }
    long *late_ns = calloc(wakeups > 0 ? (size_t)wakeups : 1, sizeof *late_ns);
    if (wakeups < 1 || interval_us < 1 || programs < 0 || programs > 64 || !late_ns)
        return 2;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(sysconf(_SC_NPROCESSORS_ONLN) - 1, &set);
    EXPECT(sched_setaffinity(0, sizeof set, &set) == 0, "%s", ERRNO_NAME(errno));
    pid_t children[64];
    for (int i = 0; i < programs; i++)
        children[i] = CHILD(load(i));
    struct sched_param parameters = { .sched_priority = PRIORITY };
    EXPECT(sched_setscheduler(0, SCHED_FIFO, &parameters) == 0, "%s", ERRNO_NAME(errno));
    long early = 0, beyond = 0, due_ns = now_ns();
    for (long i = 0; i < wakeups; i++) {
        /* What is missed is skipped, so that one long absence is one late wake-up. */
        long now = now_ns();
        do
            due_ns += interval_us * 1000;
        while (due_ns <= now);
        struct timespec due = { due_ns / 1000000000, due_ns % 1000000000 };
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) == EINTR)
            ;
        late_ns[i] = now_ns() - due_ns;
        early += late_ns[i] < 0;
        beyond += late_ns[i] > most_us * 1000;
    }
    for (int i = 0; i < programs; i++) {
        int status = 0;
        EXPECT(waitpid(children[i], &status, WNOHANG) == 0, "program %d ended: %x", i, status);
        kill(children[i], SIGKILL);
        waitpid(children[i], NULL, 0);
    }
    print_histogram(late_ns, wakeups);
    qsort(late_ns, (size_t)wakeups, sizeof *late_ns, compare);
    printf("%ld wake-ups: median %.1f, 99th percentile %.1f, 99.9th %.1f, most %.1f us late\n", wakeups,
           late_ns[wakeups / 2] / 1e3, late_ns[wakeups * 99 / 100] / 1e3, late_ns[wakeups * 999 / 1000] / 1e3,
           late_ns[wakeups - 1] / 1e3);
    EXPECT(early == 0, "%ld wake-ups were early", early);
    EXPECT(most_us == 0 || beyond * 1000 <= wakeups, "%ld of %ld were more than %ld us late", beyond, wakeups, most_us);
    return verdict_failed;
}
