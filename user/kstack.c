/* Kernel stacks grow to every depth of their slot while interrupts and migrations fly; beyond it only the caller dies.
 *
 * The test device's ioctl 0x4b01 recurses in the kernel to a depth of so many bytes and returns 0.
 *
 * abi: guest
 * abi: alone
 * abi: limit 120
 */
#include "guest.h"

enum { RECURSE = 0x4b01, STEP = 512, DEEPEST = 80 << 10 };

static volatile int stop;

static void *wanders(void *unused)
{
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof all, &all);
    int fd = open("/dev/kstack_test", O_RDONLY);
    for (int i = 0; !stop; i++) {
        CPU_ZERO(&one);
        CPU_SET(i % CPU_COUNT(&all), &one);
        sched_setaffinity(0, sizeof one, &one);
        ioctl(fd, RECURSE, 1024 + i % 8 * 1024);
    }
    return unused;
}

static void nothing(int number)
{
    (void)number;
}

/* 0: it returned; otherwise the signal that ended the process. */
static int descend(long bytes)
{
    pid_t child = fork();
    if (child == 0) {
        signal(SIGALRM, nothing);
        struct itimerval often = { { 0, 700 }, { 0, 700 } };
        setitimer(ITIMER_REAL, &often, NULL);
        int fd = open("/dev/kstack_test", O_RDONLY);
        for (int i = 0; i < 3; i++)
            if (ioctl(fd, RECURSE, bytes) != 0)
                _exit(errno == EINVAL ? 2 : 1);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        return WTERMSIG(status);
    return WEXITSTATUS(status) ? -WEXITSTATUS(status) : 0;
}

int main(void)
{
    int fd = open("/dev/kstack_test", O_RDONLY);
    if (fd < 0) {
        printf("/dev/kstack_test: %s\n", ERRNO_NAME(errno));
        return 1;
    }
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, wanders, NULL);
    long faults = figure("/proc/vmstat", "nr_dynamic_stacks_faults");
    long deepest = 0, killed_at = 0;
    int how = 0;
    for (long bytes = STEP; bytes <= DEEPEST && !killed_at; bytes += STEP) {
        how = descend(bytes);
        if (how)
            killed_at = bytes;
        else
            deepest = bytes;
        if (bytes % 4096 == 0)
            progress("kstack %ld bytes: %d", bytes, how);
    }
    printf("returns down to %ld bytes; at %ld bytes the process ends with %d\n", deepest, killed_at, how);
    printf("stack faults %ld\n", figure("/proc/vmstat", "nr_dynamic_stacks_faults") - faults);
    EXPECT(deepest >= 8192, "the stack does not grow to 8 KiB");
    EXPECT(killed_at > 0 && how > 0, "nothing stops it at %d bytes", DEEPEST);
    for (long bytes = killed_at + 4096; bytes < killed_at + (64 << 10); bytes += 8192)
        EXPECT(descend(bytes) > 0, "%ld bytes did not end the process", bytes);
    EXPECT(descend(1024) == 0, "a short descent afterwards fails");
    stop = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    return verdict_failed;
}
