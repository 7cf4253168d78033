/* Ten thousand sleeping threads in one process and two thousand sleeping processes: what each costs the kernel.
 *
 * abi: guest
 * abi: alone
 * abi: memory 512M
 * abi: limit 300
 */
#include "guest.h"

enum { THREADS = 10000, PROCESSES = 2000, STACK_BYTES = 16384 };

static const char *const rows[] = { "MemFree", "AnonPages", "KernelStack", "PageTables", "Slab", "SReclaimable", "SUnreclaim", "Shmem" };
enum { ROWS = sizeof rows / sizeof *rows };

static void measure(long *values)
{
    for (int i = 0; i < ROWS; i++)
        values[i] = figure("/proc/meminfo", rows[i]);
}

static void table(const char *what, const long *before, const long *after, int count)
{
    printf("%s\n  %-14s %10s %10s %12s\n", what, "KiB", "before", "after", "bytes each");
    for (int i = 0; i < ROWS; i++)
        printf("  %-14s %10ld %10ld %12.1f\n", rows[i], before[i], after[i], (after[i] - before[i]) * 1024.0 / count);
    static const char *const counters[] = { "nr_kernel_stack", "nr_dynamic_stacks_faults", "kstack_1k", "kstack_2k", "kstack_4k",
                                            "kstack_8k", "kstack_16k", "kstack_32k" };
    for (unsigned i = 0; i < sizeof counters / sizeof *counters; i++)
        if (figure("/proc/vmstat", counters[i]) >= 0)
            printf("  vmstat %-26s %ld\n", counters[i], figure("/proc/vmstat", counters[i]));
}

static int asleep;

static void *sleeps(void *unused)
{
    __atomic_add_fetch(&asleep, 1, __ATOMIC_SEQ_CST);
    for (;;)
        pause();
    return unused;
}

/* Threads in a child, so that they are gone afterwards. */
static void many_threads(void)
{
    long before[ROWS], after[ROWS];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_attr_setguardsize(&attributes, 0);
    measure(before);
    int made = 0;
    for (; made < THREADS; made++) {
        pthread_t thread;
        int code = pthread_create(&thread, &attributes, sleeps, NULL);
        if (code) {
            printf("thread %d: %s\n", made, ERRNO_NAME(code));
            break;
        }
    }
    long long until = now_ms() + 300000;
    while (__atomic_load_n(&asleep, __ATOMIC_SEQ_CST) < made && now_ms() < until)
        pause_ms(20);
    pause_ms(500);
    measure(after);
    EXPECT(made == THREADS, "only %d threads", made);
    table("10,000 sleeping threads in one process", before, after, made ? made : 1);
    double all = (before[0] - after[0]) * 1024.0 / made, user = (after[1] - before[1]) * 1024.0 / made;
    printf("  by the fall of MemFree %.1f bytes each, of them the user's own pages %.1f, the kernel's %.1f\n", all, user, all - user);
    EXPECT(all - user <= 8192, "kernel memory per sleeping thread is over 8 KiB");
    EXPECT(all <= 14336, "memory per sleeping thread with the user's pages is over 14 KiB");
    fflush(stdout);
    _exit(verdict_failed);
}

static void many_processes(void)
{
    long before[ROWS], after[ROWS];
    static pid_t children[PROCESSES];
    measure(before);
    int made = 0;
    for (; made < PROCESSES; made++) {
        children[made] = fork();
        if (children[made] == 0)
            for (;;)
                pause();
        if (children[made] < 0) {
            printf("process %d: %s\n", made, ERRNO_NAME(errno));
            break;
        }
    }
    pause_ms(500);
    measure(after);
    EXPECT(made == PROCESSES, "only %d processes", made);
    table("2,000 sleeping processes", before, after, made ? made : 1);
    for (int i = 0; i < made; i++)
        kill(children[i], SIGKILL);
    for (int i = 0; i < made; i++)
        waitpid(children[i], NULL, 0);
}

int main(void)
{
    long before = free_kib();
    progress("threads10000: threads");
    int status = 0;
    pid_t child = CHILD(many_threads());
    waitpid(child, &status, 0);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s", how_ended(status));
    memory_is_back("after the threads", before);
    progress("threads10000: processes");
    many_processes();
    memory_is_back("after the processes", before);
    return verdict_failed;
}
