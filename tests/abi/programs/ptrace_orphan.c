/* A tracer that inherits its tracee after that has ended waits for it once: it is the parent then, and not told twice. */
#include "tracing.h"

int main(void)
{
    int told[2], over[2];
    pid_t tracee, other;
    siginfo_t information;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (pipe(told) < 0 || pipe(over) < 0)
        return 1;
    pid_t parent = fork();
    if (parent == 0) {
        other = fork();
        if (other == 0)
            for (;;)
                pause();
        char byte;
        close(over[1]);
        if (write(told[1], &other, sizeof other) < 0 || read(over[0], &byte, 1) < 0)
            _exit(1);
        _exit(0);
    }
    if (read(told[0], &tracee, sizeof tracee) < 0)
        return 1;
    printf("attach: %ld\n", request(ATTACH, tracee, 0, 0));
    wait_for("attached", tracee);
    kill(tracee, SIGKILL);
    printf("its end is there: %d\n", waitid(P_PID, (id_t)tracee, &information, WEXITED | WNOWAIT | __WALL));
    close(over[1]);
    wait_for("its parent", parent);
    printf("its end is still there: %d\n", waitid(P_PID, (id_t)tracee, &information, WEXITED | WNOWAIT | __WALL));
    wait_for("waited", tracee);
    wait_for("once more", tracee);
    wait_for("for any", -1);
    printf("kill: %s\n", ERRNO_NAME(kill(tracee, 0) < 0 ? errno : 0));
    return 0;
}
