/* Kernel stacks grow to every depth of their slot while interrupts and migrations fly; beyond it only the caller dies.
 *
 * The test device's ioctl 0x4b01 recurses in the kernel to a depth of so many bytes and returns 0. After 0x4b04 with 1 the
 * report of an overflow is found in /proc/kstack_overflow only. /proc/kstack_trace shows the reader's own page-table entries.
 *
 * abi: guest
 * abi: alone
 * abi: limit 120
 */
#include "guest.h"

enum { RECURSE = 0x4b01, EXPECT_OVERFLOW = 0x4b04, STEP = 512, DEEPEST = 80 << 10 };

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
        ioctl(fd, EXPECT_OVERFLOW, 1);
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

static int count_of(const char *text, const char *what)
{
    int count = 0;
    for (; (text = strstr(text, what)); text++)
        count++;
    return count;
}

static const char growth[] = "Kernel page fault at address 0xffffd0";

static void *looks_at_its_trace(void *attempts)
{
    int fd = open("/dev/kstack_test", O_RDONLY);
    ioctl(fd, RECURSE, 5000);
    const char *text = contents_of("/proc/kstack_trace");
    if (attempts && strncmp(text, growth, sizeof growth - 1)) {
        /* It has the stack of one that ended, with all its pages. As long as it lives, the next one gets another. */
        pthread_t next;
        pthread_create(&next, NULL, looks_at_its_trace, (char *)attempts - 1);
        pthread_join(next, NULL);
        close(fd);
        return NULL;
    }
    printf("%s", text);
    EXPECT(!strncmp(text, growth, sizeof growth - 1), "no growth is shown");
    EXPECT(count_of(text, "virtual address") == 5, "a page-table trace of four pages and its title");
    EXPECT(count_of(text, "entry 0x8") >= 2, "at least two pages are there");
    close(fd);
    return NULL;
}

int main(void)
{
    int fd = open("/dev/kstack_test", O_RDONLY);
    if (fd < 0) {
        printf("/dev/kstack_test: %s\n", ERRNO_NAME(errno));
        return 1;
    }
    pthread_t threads[3], one;
    pthread_create(&one, NULL, looks_at_its_trace, (void *)100);
    pthread_join(one, NULL);
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
    EXPECT(deepest >= (4 << 12) - 2048, "the stack does not grow to its four pages");
    EXPECT(killed_at > 0 && how > 0, "nothing stops it at %d bytes", DEEPEST);
    for (long bytes = killed_at + 4096; bytes < killed_at + (64 << 10); bytes += 8192)
        EXPECT(descend(bytes) > 0, "%ld bytes did not end the process", bytes);
    const char *report = contents_of("/proc/kstack_overflow");
    printf("%s", report);
    EXPECT(!strncmp(report, "kernel stack overflow: thread ", 30), "no report");
    EXPECT(strstr(report, "kstack::exercise::descend"), "the report names no function");
    EXPECT(strstr(report, " more times"), "the report shows no recursion");
    EXPECT(descend(1024) == 0, "a short descent afterwards fails");
    stop = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    return verdict_failed;
}
