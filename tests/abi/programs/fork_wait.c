/* fork, exit, wait4, waitid: which child, which status, which options; zombies; orphans. */
#include "abi.h"

static void statuses(void)
{
    int codes[] = { 0, 1, 127, 255, 256, -1 };
    for (unsigned i = 0; i < sizeof codes / sizeof *codes; i++)
        REAP(CHILD(_exit(codes[i])));
    int signals[] = { SIGTERM, SIGKILL, SIGUSR1, SIGPIPE, SIGALRM, SIGRTMIN, SIGRTMAX };
    for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++)
        REAP(CHILD(raise(signals[i])));
}

static void waits(void)
{
    int status = 0;
    SHOW(waitpid(-1, &status, 0));
    SHOW(waitpid(getpid(), &status, 0));
    SHOW(waitpid(-1, &status, 0x1234));
    SHOW(wait4(INT_MIN, &status, 0, NULL));
    pid_t child = CHILD(pause());
    SHOW(waitpid(child, &status, WNOHANG));
    SHOW(waitpid(-child, &status, WNOHANG));
    SHOW(waitpid(0, &status, WNOHANG));
    siginfo_t info;
    memset(&info, 0xff, sizeof info);
    SHOW(waitid(P_PID, child, &info, WEXITED | WNOHANG));
    SHOW(info.si_pid);
    SHOW(waitid(P_PID, child, &info, WNOHANG));
    SHOW(waitid(7, child, &info, WEXITED));
    SHOW(waitid(P_PID, 0, &info, WEXITED));
    kill(child, SIGSTOP);
    SHOW(waitid(P_PID, child, &info, WSTOPPED));
    TRUE(info.si_pid == child);
    SHOW(info.si_code);
    TRUE(info.si_code == CLD_STOPPED);
    SHOW(info.si_status);
    SHOW(info.si_signo);
    TRUE(waitpid(child, &status, WUNTRACED | WNOHANG) == 0);
    kill(child, SIGCONT);
    SHOW(waitid(P_PID, child, &info, WCONTINUED | WNOWAIT));
    SHOW(info.si_code);
    TRUE(waitpid(child, &status, WCONTINUED) == child);
    TRUE(WIFCONTINUED(status));
    kill(child, SIGKILL);
    SHOW(waitid(P_ALL, 0, &info, WEXITED | WNOWAIT));
    SHOW(info.si_code);
    SHOW(info.si_status);
    SHOW(waitid(P_PGID, 0, &info, WEXITED | WNOWAIT));
    REAP(child);
    SHOW(waitpid(child, &status, 0));
    SHOW(kill(child, 0));
}

static void zombie(void)
{
    pid_t child = CHILD(_exit(5));
    TRUE(wait_state(child, "Z"));
    SHOW(kill(child, 0));
    SHOW(kill(child, SIGKILL));
    TRUE(getpgid(child) == getpgrp());
    REAP(child);
    SHOW(kill(child, 0));
}

static void orphan(void)
{
    int up[2], down[2];
    pipe(up);
    pipe(down);
    pid_t child = CHILD({
        pid_t middle = getpid();
        if (fork() == 0) {
            hear(down[0]);
            for (int tries = 0; getppid() == middle && tries < LOOKS; tries++)
                pause_ms(2);
            printf("the orphan's parent is now 1: %s\n", getppid() == 1 ? "yes" : "no");
            fflush(stdout);
            tell(up[1]);
            _exit(0);
        }
    });
    REAP(child);
    tell(down[1]);
    hear(up[0]);
    SHOW(waitpid(-1, NULL, 0));
}

static void subreaper(void)
{
    SHOW(prctl(PR_SET_CHILD_SUBREAPER, 1));
    int value = 0;
    SHOW(prctl(PR_GET_CHILD_SUBREAPER, &value));
    SHOW(value);
    pid_t self = getpid();
    pid_t child = CHILD({
        pid_t middle = getpid();
        if (fork() == 0) {
            for (int tries = 0; getppid() == middle && tries < LOOKS; tries++)
                pause_ms(2);
            _exit(getppid() == self ? 33 : 44);
        }
    });
    REAP(child);
    REAP(-1);
    SHOW(prctl(PR_SET_CHILD_SUBREAPER, 0));
}

static void ignored_children(void)
{
    signal(SIGCHLD, SIG_IGN);
    pid_t child = CHILD(_exit(1));
    SHOW(waitpid(child, NULL, 0));
    signal(SIGCHLD, SIG_DFL);
    struct sigaction action = { .sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT };
    sigaction(SIGCHLD, &action, NULL);
    child = CHILD(_exit(1));
    SHOW(waitpid(-1, NULL, 0));
    action.sa_flags = 0;
    sigaction(SIGCHLD, &action, NULL);
}

static void many(void)
{
    enum { COUNT = 40 };
    pid_t children[COUNT];
    for (int i = 0; i < COUNT; i++)
        children[i] = CHILD(_exit(i));
    int sum = 0, status;
    for (int i = COUNT - 1; i >= 0; i--)
        if (waitpid(children[i], &status, 0) == children[i])
            sum += WEXITSTATUS(status);
    SHOW(sum);
    SHOW(wait(NULL));
}

static void memory_is_copied(void)
{
    static int value = 1;
    int *heap = malloc(sizeof *heap);
    *heap = 2;
    REAP(CHILD({ value = 10; *heap = 20; printf("child %d %d\n", value, *heap); }));
    printf("parent %d %d\n", value, *heap);
    free(heap);
}

int main(void)
{
    statuses();
    waits();
    zombie();
    orphan();
    subreaper();
    ignored_children();
    many();
    memory_is_copied();
    return 3;
}
