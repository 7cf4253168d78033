/* I/O priorities: words and errors, whom they are for, who may, what children inherit and what CLONE_IO shares. */
#include "abi.h"

enum { NONE, REAL_TIME, BEST_EFFORT, IDLE };
enum { WHO_PROCESS = 1, WHO_PGRP, WHO_USER };
#define PRIORITY(class, level) ((class) << 13 | (level))
#define GET(who, id) syscall(SYS_ioprio_get, who, id)
#define SET(who, id, priority) syscall(SYS_ioprio_set, who, id, priority)

static void words(void)
{
    SHOW(GET(WHO_PROCESS, 0));
    for (int class = NONE; class <= IDLE; class++) {
        printf("class %d\n", class);
        for (int level = 0; level < 8; level += 7) {
            SHOW(SET(WHO_PROCESS, 0, PRIORITY(class, level)));
            SHOW(GET(WHO_PROCESS, 0));
            SHOW(GET(WHO_PROCESS, getpid()));
        }
    }
    SHOW(SET(WHO_PROCESS, 0, PRIORITY(4, 0)));
    SHOW(SET(WHO_PROCESS, 0, PRIORITY(7, 0)));
    SHOW(SET(0, 0, PRIORITY(BEST_EFFORT, 1)));
    SHOW(SET(4, 0, PRIORITY(BEST_EFFORT, 1)));
    SHOW(SET(4, 0, PRIORITY(7, 0)));
    SHOW(GET(0, 0));
    SHOW(GET(4, 0));
    SHOW(SET(WHO_PROCESS, 0x3fffffff, PRIORITY(BEST_EFFORT, 1)));
    SHOW(SET(WHO_PROCESS, -1, PRIORITY(BEST_EFFORT, 1)));
    SHOW(SET(WHO_PGRP, 0x3fffffff, PRIORITY(BEST_EFFORT, 1)));
    SHOW(SET(WHO_USER, 54321, PRIORITY(BEST_EFFORT, 1)));
    SHOW(GET(WHO_PROCESS, 0x3fffffff));
    SHOW(GET(WHO_PROCESS, -1));
    SHOW(GET(WHO_PGRP, 0x3fffffff));
    SHOW(GET(WHO_USER, 54321));
    SHOW(SET(WHO_PROCESS, 0, PRIORITY(NONE, 0)));
    SHOW(GET(WHO_PROCESS, 0));
}

static void inherited(void)
{
    SHOW(SET(WHO_PROCESS, 0, PRIORITY(BEST_EFFORT, 6)));
    REAP(CHILD({
        SHOW(GET(WHO_PROCESS, 0));
        SHOW(SET(WHO_PROCESS, 0, PRIORITY(IDLE, 0)));
        SHOW(GET(WHO_PROCESS, getppid()));
        REAP(CHILD(SHOW(GET(WHO_PROCESS, 0))));
    }));
    SHOW(GET(WHO_PROCESS, 0));
}

static int child_sets(void *unused)
{
    (void)unused;
    SHOW(GET(WHO_PROCESS, 0));
    SHOW(SET(WHO_PROCESS, 0, PRIORITY(BEST_EFFORT, 1)));
    fflush(stdout);
    return 0;
}

static void shared(void)
{
    static char stack[65536] __attribute__((aligned(16)));
    int flags[] = { 0, CLONE_IO, CLONE_VM, CLONE_VM | CLONE_IO };
    for (int i = 0; i < 4; i++) {
        printf("clone %#x\n", flags[i]);
        fflush(stdout);
        SET(WHO_PROCESS, 0, PRIORITY(BEST_EFFORT, 5));
        REAP(clone(child_sets, stack + sizeof stack, flags[i] | SIGCHLD, NULL));
        SHOW(GET(WHO_PROCESS, 0));
    }
    /* A context whose priority was taken back is shared all the same. */
    SET(WHO_PROCESS, 0, PRIORITY(NONE, 0));
    fflush(stdout);
    REAP(clone(child_sets, stack + sizeof stack, CLONE_IO | SIGCHLD, NULL));
    SHOW(GET(WHO_PROCESS, 0));
    /* Threads of a process have contexts of their own without it. */
    SET(WHO_PROCESS, 0, PRIORITY(BEST_EFFORT, 3));
}

static void *thread_sets(void *unused)
{
    (void)unused;
    SHOW(GET(WHO_PROCESS, 0));
    SHOW(SET(WHO_PROCESS, 0, PRIORITY(BEST_EFFORT, 2)));
    SHOW(GET(WHO_PROCESS, getpid()));
    return NULL;
}

static void threads(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, thread_sets, NULL);
    pthread_join(thread, NULL);
    SHOW(GET(WHO_PROCESS, 0));
}

/* In a group and with a user that nobody else has. */
static void several(void)
{
    int ready[2], hold[2];
    char byte;
    pipe(ready);
    pipe(hold);
    fflush(stdout);
    setpgid(0, 0);
    SET(WHO_PROCESS, 0, PRIORITY(BEST_EFFORT, 7));
    setresuid(54321, 54321, 54321);
    pid_t other = fork();
    if (other == 0) {
        SET(WHO_PROCESS, 0, PRIORITY(BEST_EFFORT, 3));
        write(ready[1], "", 1);
        close(hold[1]);
        read(hold[0], &byte, 1);
        _exit(0);
    }
    read(ready[0], &byte, 1);
    SHOW(GET(WHO_PGRP, 0));
    SHOW(GET(WHO_PGRP, getpgrp()));
    SHOW(GET(WHO_USER, 0));
    SHOW(GET(WHO_USER, 54321));
    SHOW(GET(WHO_PROCESS, 0));
    SHOW(SET(WHO_PGRP, 0, PRIORITY(BEST_EFFORT, 5)));
    SHOW(GET(WHO_PROCESS, 0));
    SHOW(GET(WHO_PROCESS, other));
    SHOW(SET(WHO_USER, 54321, PRIORITY(IDLE, 0)));
    SHOW(GET(WHO_PROCESS, other));
    SHOW(SET(WHO_PROCESS, other, PRIORITY(BEST_EFFORT, 0)));
    SHOW(SET(WHO_PROCESS, 0, PRIORITY(REAL_TIME, 0)));
    SHOW(SET(WHO_PGRP, getpgrp(), PRIORITY(REAL_TIME, 4)));
    SHOW(SET(WHO_PROCESS, 0x3fffffff, PRIORITY(REAL_TIME, 0)));
    SHOW(SET(WHO_PROCESS, 1, PRIORITY(BEST_EFFORT, 4)));
    close(hold[1]);
    REAP(other);
}

/* The best of several is what they get, set or not. */
static void by_nice_value(void)
{
    setpgid(0, 0);
    SET(WHO_PROCESS, 0, PRIORITY(NONE, 0));
    SHOW(GET(WHO_PROCESS, 0));
    SHOW(GET(WHO_PGRP, 0));
    setpriority(PRIO_PROCESS, 0, 10);
    SHOW(GET(WHO_PGRP, 0));
    setpriority(PRIO_PROCESS, 0, 19);
    SHOW(GET(WHO_PGRP, 0));
    sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){ 0 });
    SHOW(GET(WHO_PGRP, 0));
    sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){ 1 });
    SHOW(GET(WHO_PGRP, 0));
    SHOW(GET(WHO_PROCESS, 0));
}

int main(void)
{
    words();
    inherited();
    shared();
    threads();
    REAP(CHILD(several()));
    REAP(CHILD(by_nice_value()));
    pid_t zombie = CHILD();
    siginfo_t information;
    waitid(P_PID, zombie, &information, WEXITED | WNOWAIT);
    SHOW(GET(WHO_PROCESS, zombie));
    SHOW(SET(WHO_PROCESS, zombie, PRIORITY(BEST_EFFORT, 1)));
    REAP(zombie);
    return 0;
}
