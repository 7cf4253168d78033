/* How often threads give up their processor and lose it, as getrusage and /proc/PID/status count it; execution domain and timer slack in /proc/PID. */
#include "abi.h"
#include <sys/personality.h>

static long from_status(const char *name)
{
    const char *found = strstr(get_text("/proc/self/status"), name);
    return found ? atol(found + strlen(name)) : -1;
}

static void set_knob(const char *path, const char *text)
{
    int file = open(path, O_WRONLY);
    ssize_t done = write(file, text, strlen(text));
    printf("%s < %s: %s\n", path, text, done < 0 ? ERRNO_NAME(errno) : "ok");
    close(file);
}

static struct rusage usage(int who)
{
    struct rusage used;
    getrusage(who, &used);
    return used;
}

static void *naps(void *count)
{
    for (int i = 0; i < *(int *)count; i++)
        usleep(1000);
    struct rusage mine = usage(RUSAGE_THREAD);
    TRUE(mine.ru_nvcsw >= *(int *)count && mine.ru_nvcsw < 10 * *(int *)count + 50);
    return NULL;
}

/* Two on one processor, each of whom wants it all. */
static void spin(void)
{
    cpu_set_t first;
    CPU_ZERO(&first);
    CPU_SET(0, &first);
    sched_setaffinity(0, sizeof first, &first);
    for (;;) {
        struct rusage mine = usage(RUSAGE_SELF);
        if (mine.ru_nivcsw >= 3)
            break;
    }
}

int main(void)
{
    int count = 20;
    long before = usage(RUSAGE_SELF).ru_nvcsw;
    for (int i = 0; i < count; i++)
        usleep(1000);
    TRUE(usage(RUSAGE_SELF).ru_nvcsw >= before + count);
    TRUE(from_status("\nvoluntary_ctxt_switches:\t") >= before + count);
    TRUE(usage(RUSAGE_SELF).ru_nvcsw >= from_status("\nvoluntary_ctxt_switches:\t"));
    pthread_t thread;
    before = usage(RUSAGE_SELF).ru_nvcsw;
    pthread_create(&thread, NULL, naps, &count);
    pthread_join(thread, NULL);
    TRUE(usage(RUSAGE_SELF).ru_nvcsw >= before + count);
    pid_t first = CHILD(spin());
    pid_t second = CHILD(spin());
    /* One of them stays alone: the parent competes until it has ended, too. */
    cpu_set_t cpu;
    CPU_ZERO(&cpu);
    CPU_SET(0, &cpu);
    sched_setaffinity(0, sizeof cpu, &cpu);
    while (waitpid(first, NULL, WNOHANG) == 0)
        ;
    while (waitpid(second, NULL, WNOHANG) == 0)
        ;
    TRUE(usage(RUSAGE_CHILDREN).ru_nivcsw >= 6);

    printf("%s", get_text("/proc/self/personality"));
    personality(ADDR_NO_RANDOMIZE);
    printf("%s", get_text("/proc/self/personality"));
    printf("%s", get_text("/proc/self/timerslack_ns"));
    set_knob("/proc/self/timerslack_ns", "1234");
    SHOW(prctl(PR_GET_TIMERSLACK));
    set_knob("/proc/self/timerslack_ns", "x");
    set_knob("/proc/self/timerslack_ns", "0");
    SHOW(prctl(PR_GET_TIMERSLACK));
    REAP(CHILD({
        SHOW(prctl(PR_SET_TIMERSLACK, 77));
        setresuid(1000, 1000, 1000);
        char path[60];
        snprintf(path, sizeof path, "/proc/%d/timerslack_ns", getppid());
        int file = open(path, O_RDWR);
        char text[20];
        printf("another one's: %d %s\n", file >= 0, read(file, text, sizeof text) < 0 ? ERRNO_NAME(errno) : "read");
        printf("%d %s\n", file >= 0, write(file, "5", 1) < 0 ? ERRNO_NAME(errno) : "written");
        SHOW(prctl(PR_GET_TIMERSLACK));
    }));
    return 0;
}
