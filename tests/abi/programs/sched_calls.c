/* Scheduling calls: affinity, policies, priorities, intervals, yield. */
#include "abi.h"

struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

static void affinity(void)
{
    cpu_set_t all, one, got;
    TRUE(syscall(SYS_sched_getaffinity, 0, sizeof all, &all) > 0);
    sched_getaffinity(0, sizeof all, &all);
    TRUE(CPU_COUNT(&all) >= 1);
    int good = 1;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all)) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            good &= sched_setaffinity(0, sizeof one, &one) == 0;
            good &= sched_getcpu() == cpu;
            sched_getaffinity(0, sizeof got, &got);
            good &= CPU_EQUAL(&one, &got);
        }
    printf("moved to each before the call returned: %d\n", good);
    pid_t child = CHILD({ sched_getaffinity(0, sizeof got, &got); TRUE(CPU_EQUAL(&one, &got)); });
    REAP(child);
    SHOW(sched_setaffinity(0, sizeof all, &all));
    CPU_ZERO(&one);
    SHOW(sched_setaffinity(0, sizeof one, &one));
    CPU_SET(1000, &one);
    SHOW(sched_setaffinity(0, sizeof one, &one));
    SHOW(sched_setaffinity(0x3fffffff, sizeof all, &all));
    SHOW(syscall(SYS_sched_getaffinity, 0, 4, &all));
    SHOW(syscall(SYS_sched_getaffinity, 0, 0, &all));
    SHOW(syscall(SYS_sched_getaffinity, 0, 128, (void *)8));
    SHOW(syscall(SYS_sched_setaffinity, 0, 128, (void *)8));
    SHOW(sched_getaffinity(0x3fffffff, sizeof all, &all));
    pid_t other = CHILD({ for (;;) pause(); });
    SHOW(sched_setaffinity(other, sizeof all, &all));
    REAP(CHILD({ setresuid(1, 1, 1); SHOW(sched_setaffinity(other, sizeof all, &all)); }));
    kill(other, SIGKILL);
    REAP(other);
}

static void policies(void)
{
    struct sched_param parameter = { 0 };
    SHOW(sched_getscheduler(0));
    SHOW(sched_getparam(0, &parameter));
    SHOW(parameter.sched_priority);
    int names[] = { SCHED_OTHER, SCHED_FIFO, SCHED_RR, SCHED_BATCH, SCHED_IDLE, 77 };
    for (int i = 0; i < 6; i++) {
        printf("policy %d\n", names[i]);
        SHOW(sched_get_priority_min(names[i]));
        SHOW(sched_get_priority_max(names[i]));
        parameter.sched_priority = 0;
        SHOW(sched_setscheduler(0, names[i], &parameter));
        parameter.sched_priority = 10;
        SHOW(sched_setscheduler(0, names[i], &parameter));
        SHOW(sched_getscheduler(0));
        sched_getparam(0, &parameter);
        SHOW(parameter.sched_priority);
        SHOW(sched_yield());
        parameter.sched_priority = 0;
        sched_setscheduler(0, SCHED_OTHER, &parameter);
    }
    parameter.sched_priority = 100;
    SHOW(sched_setscheduler(0, SCHED_FIFO, &parameter));
    parameter.sched_priority = 5;
    SHOW(sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &parameter));
    SHOW(sched_getscheduler(0) == (SCHED_FIFO | SCHED_RESET_ON_FORK));
    REAP(CHILD(SHOW(sched_getscheduler(0))));
    SHOW(sched_setparam(0, &(struct sched_param){ 7 }));
    SHOW(sched_setparam(0, &(struct sched_param){ 0 }));
    struct timespec interval;
    SHOW(sched_rr_get_interval(0, &interval));
    sched_setscheduler(0, SCHED_OTHER, &(struct sched_param){ 0 });
    SHOW(sched_setparam(0, &(struct sched_param){ 7 }));
    SHOW(sched_setscheduler(0x3fffffff, SCHED_OTHER, &(struct sched_param){ 0 }));
    SHOW(sched_setscheduler(-1, SCHED_OTHER, &(struct sched_param){ 0 }));
    SHOW(sched_getscheduler(-1));
    SHOW(sched_getscheduler(0x3fffffff));
    SHOW(sched_setscheduler(0, SCHED_OTHER, NULL));
    SHOW(sched_getparam(0, NULL));
    REAP(CHILD({
        struct rlimit none = { 0, 0 };
        setrlimit(RLIMIT_RTPRIO, &none);
        setresuid(1, 1, 1);
        SHOW(sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){ 1 }));
        SHOW(sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){ 0 }));
        SHOW(sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){ 0 }));
        SHOW(sched_setscheduler(1, SCHED_OTHER, &(struct sched_param){ 0 }));
    }));
    struct attributes attributes = { 0 };
    SHOW(syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0));
    printf("%u %u %d %u\n", attributes.size, attributes.policy, attributes.nice, attributes.priority);
    attributes.nice = 4;
    SHOW(syscall(SYS_sched_setattr, 0, &attributes, 0));
    SHOW(getpriority(PRIO_PROCESS, 0));
    attributes.policy = 77;
    SHOW(syscall(SYS_sched_setattr, 0, &attributes, 0));
    SHOW(syscall(SYS_sched_getattr, 0, &attributes, 4, 0));
}

int main(void)
{
    affinity();
    policies();
    return 0;
}
