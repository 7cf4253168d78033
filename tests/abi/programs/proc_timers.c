/* /proc/PID/timers and /proc/PID/sched. */
#include "abi.h"
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>

/* Prints the file with this process's number as PID. */
static void show(void)
{
    char line[256], number[32];
    snprintf(number, sizeof number, ".%d\n", getpid());
    FILE *file = fopen("/proc/self/timers", "r");
    while (fgets(line, sizeof line, file)) {
        char *found = strstr(line, number);
        if (found)
            strcpy(found, ".PID\n");
        printf("  %s", line);
    }
    fclose(file);
    printf("end\n");
}

static void make(int clock, int notify, int signal, long value)
{
    struct sigevent event;
    memset(&event, 0, sizeof event);
    event.sigev_notify = notify;
    event.sigev_signo = signal;
    event.sigev_value.sival_ptr = (void *)value;
    event._sigev_un._tid = getpid();
    int id;
    OK(syscall(SYS_timer_create, clock, &event, &id));
}

static void scheduler(const char *path)
{
    char line[256], key[64], value[64];
    FILE *file = fopen(path, "r");
    printf("first line %s", fgets(line, sizeof line, file) && strstr(line, ", #threads: 1)\n") ? "tells threads\n" : line);
    int switches = -1, parts = 0;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%63[^: ] : %63s", key, value) != 2)
            continue;
        if (!strcmp(key, "policy") || !strcmp(key, "prio"))
            printf("%s %s\n", key, value);
        if (!strcmp(key, "nr_switches"))
            switches = atoi(value);
        if (!strcmp(key, "nr_voluntary_switches") || !strcmp(key, "nr_involuntary_switches"))
            parts += atoi(value);
        if (!strcmp(key, "se.sum_exec_runtime"))
            printf("%s %d\n", key, atof(value) > 0);
    }
    printf("switches add up: %d\n", switches == parts && switches > 0);
    fclose(file);
}

int main(void)
{
    show();
    make(CLOCK_REALTIME, SIGEV_NONE, 0, 0);
    make(CLOCK_MONOTONIC, SIGEV_SIGNAL, 60, 0x7fff12345678);
    make(CLOCK_PROCESS_CPUTIME_ID, SIGEV_SIGNAL, SIGALRM, 1);
    make(CLOCK_BOOTTIME, SIGEV_THREAD_ID, SIGUSR1, -1);
    SHOW(access("/proc/thread-self/timers", F_OK));
    show();
    fflush(stdout);
    pid_t child = CHILD({ show(); });
    REAP(child);
    usleep(1000);
    scheduler("/proc/self/sched");
    scheduler("/proc/thread-self/sched");
    struct sched_param param = { 10 };
    OK(sched_setscheduler(0, SCHED_FIFO, &param));
    scheduler("/proc/self/sched");
    return 0;
}
