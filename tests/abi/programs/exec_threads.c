/* exec and exit with threads: exec from a thread that is not the leader, the leader's exit, exit_group. */
#include "abi.h"

static int report[2];

static void *sleeper(void *unused)
{
    (void)unused;
    for (;;)
        pause();
    return NULL;
}

static void *executes(void *unused)
{
    (void)unused;
    printf("the thread executes: tid != pid %s\n", gettid() != getpid() ? "yes" : "no");
    char pid[16];
    snprintf(pid, sizeof pid, "%d", getpid());
    execl("/abi/bin/exec_threads", "exec_threads", "after", pid, NULL);
    return NULL;
}

static void *races(void *unused)
{
    (void)unused;
    execl("/abi/bin/exec_threads", "exec_threads", "quiet", NULL);
    return NULL;
}

static void start(void *(*body)(void *))
{
    pthread_t thread;
    pthread_create(&thread, NULL, body, NULL);
}

static void *late(void *unused)
{
    (void)unused;
    hear(report[0]);
    printf("a thread goes on after its leader: %s\n", wait_state(getpid(), "Z") ? "leader is Z" : "leader is not Z");
    struct dirent *entry;
    int threads = 0;
    DIR *folder = opendir("/proc/self/task");
    while (folder && (entry = readdir(folder)))
        threads += entry->d_name[0] != '.';
    printf("tasks: %d\n", threads);
    exit(17);
}

static void *exits_alone(void *unused)
{
    (void)unused;
    syscall(SYS_exit, 55);
    return NULL;
}

static void *exits_all(void *unused)
{
    (void)unused;
    syscall(SYS_exit_group, 23);
    return NULL;
}

static void *dies(void *unused)
{
    (void)unused;
    *(volatile int *)16 = 1;
    return NULL;
}

static void *last(void *unused)
{
    (void)unused;
    pause_ms(30);
    syscall(SYS_exit, 88);
    return NULL;
}

int main(int count, char **words)
{
    if (count == 2)
        return 13;
    if (count > 2) {
        printf("the new program has the old pid: %s\n", atoi(words[2]) == getpid() ? "yes" : "no");
        printf("its only thread is the leader: %s\n", gettid() == getpid() ? "yes" : "no");
        struct dirent *entry;
        int threads = 0;
        DIR *folder = opendir("/proc/self/task");
        while (folder && (entry = readdir(folder)))
            threads += entry->d_name[0] != '.';
        printf("tasks: %d\n", threads);
        return 12;
    }
    pipe(report);
    REAP(CHILD({
        for (int i = 0; i < 6; i++)
            start(sleeper);
        start(executes);
        for (;;)
            pause();
    }));
    REAP(CHILD({
        for (int i = 0; i < 3; i++)
            start(sleeper);
        execl("/abi/bin/exec_threads", "exec_threads", "after", ({ static char pid[16]; snprintf(pid, 16, "%d", getpid()); pid; }), NULL);
    }));
    REAP(CHILD({
        start(late);
        tell(report[1]);
        syscall(SYS_exit, 3);
    }));
    REAP(CHILD({
        start(exits_alone);
        pause_ms(20);
        exit(4);
    }));
    REAP(CHILD({
        start(sleeper);
        start(exits_all);
        for (;;)
            pause();
    }));
    REAP(CHILD({
        start(sleeper);
        start(dies);
        for (;;)
            pause();
    }));
    REAP(CHILD({
        start(last);
        syscall(SYS_exit, 5);
    }));
    /* A leader that has exited is no zombie for wait until the last thread is gone. */
    pid_t child = CHILD({
        start(sleeper);
        syscall(SYS_exit, 6);
    });
    TRUE(wait_state(child, "Z"));
    SHOW(waitpid(child, NULL, WNOHANG));
    kill(child, SIGKILL);
    REAP(child);
    for (int i = 0; i < 10; i++) {
        pid_t racer = fork();
        if (racer == 0) {
            for (int j = 0; j < 4; j++)
                start(races);
            exit(0);
        }
        int status;
        waitpid(racer, &status, 0);
        if (!WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 13))
            printf("racing exec and exit: %s\n", how_ended(status));
    }
    return 0;
}
