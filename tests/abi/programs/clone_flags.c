/* clone, clone3, vfork: what is shared, tids that are written, exit signals, bad flags. */
#include "abi.h"
#include <linux/sched.h>

static char stack[4][65536] __attribute__((aligned(16)));
static volatile int shared;

static int body(void *argument)
{
    shared += (int)(long)argument;
    return (int)(long)argument;
}

static int opens(void *unused)
{
    (void)unused;
    chdir("/");
    int fd = open("/dev/null", O_RDONLY);
    return dup2(fd, 50) == 50 ? 1 : 2;
}

static volatile int caught;

static void handler(int number)
{
    caught = number;
}

static long clone3(uint64_t flags, int signal, int *parent_tid, int *child_tid, int *pidfd)
{
    struct clone_args arguments = { .flags = flags, .exit_signal = signal };
    arguments.parent_tid = (uintptr_t)parent_tid;
    arguments.child_tid = (uintptr_t)child_tid;
    arguments.pidfd = (uintptr_t)pidfd;
    return syscall(SYS_clone3, &arguments, sizeof arguments);
}

int main(void)
{
    int status;
    pid_t child = clone(body, stack[0] + sizeof stack[0], SIGCHLD, (void *)3);
    REAP(child);
    SHOW(shared);
    child = clone(body, stack[0] + sizeof stack[0], CLONE_VM | SIGCHLD, (void *)4);
    REAP(child);
    SHOW(shared);
    child = clone(body, stack[0] + sizeof stack[0], CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)5);
    SHOW(shared);
    REAP(child);
    child = clone(opens, stack[0] + sizeof stack[0], CLONE_FILES | CLONE_FS | SIGCHLD, NULL);
    REAP(child);
    SHOW(fcntl(50, F_GETFD));
    char where[256];
    printf("cwd %s\n", getcwd(where, sizeof where));
    chdir("/tmp/clone_flags");
    close(50);
    child = clone(opens, stack[0] + sizeof stack[0], SIGCHLD, NULL);
    REAP(child);
    SHOW(fcntl(50, F_GETFD));
    printf("cwd %s\n", getcwd(where, sizeof where));

    signal(SIGUSR1, handler);
    child = clone(body, stack[0] + sizeof stack[0], SIGUSR1, (void *)6);
    for (int i = 0; i < LOOKS && !caught; i++)
        pause_ms(1);
    SHOW(caught);
    SHOW(waitpid(child, &status, 0));
    TRUE(waitpid(child, &status, __WCLONE) == child);
    printf("%s\n", how_ended(status));
    child = clone(body, stack[0] + sizeof stack[0], 0, (void *)7);
    TRUE(waitpid(child, &status, __WALL) == child);
    printf("%s\n", how_ended(status));

    int parent_tid = 0, child_tid = 1;
    child = clone(body, stack[0] + sizeof stack[0], CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | SIGCHLD, (void *)8,
                  &parent_tid, NULL, &child_tid);
    TRUE(parent_tid == child);
    SHOW(child_tid);
    REAP(child);
    child = clone(body, stack[0] + sizeof stack[0],
                  CLONE_VM | CLONE_CHILD_CLEARTID | CLONE_CHILD_SETTID | SIGCHLD, (void *)9, NULL, NULL, &child_tid);
    REAP(child);
    SHOW(child_tid);

    SHOW(clone(body, stack[0] + sizeof stack[0], CLONE_THREAD, NULL));
    SHOW(clone(body, stack[0] + sizeof stack[0], CLONE_SIGHAND, NULL));
    SHOW(clone(body, stack[0] + sizeof stack[0], CLONE_FS | CLONE_NEWNS, NULL));
    SHOW(syscall(SYS_clone3, NULL, 64));
    SHOW(syscall(SYS_clone3, &status, 8));
    SHOW(syscall(SYS_clone3, (void *)16, 88));
    SHOW(clone3(0, 100, NULL, NULL, NULL));
    SHOW(clone3(CLONE_DETACHED, SIGCHLD, NULL, NULL, NULL));

    child = clone3(CLONE_PARENT_SETTID, SIGCHLD, &parent_tid, NULL, NULL);
    if (child == 0)
        _exit(11);
    TRUE(parent_tid == child);
    REAP(child);
    int descriptor = -1;
    child = clone3(CLONE_PIDFD, SIGCHLD, NULL, NULL, &descriptor);
    if (child == 0)
        _exit(12);
    TRUE(descriptor > 2);
    SHOW(poll(&(struct pollfd){ .fd = descriptor, .events = POLLIN }, 1, -1));
    siginfo_t info;
    SHOW(waitid(P_PIDFD, descriptor, &info, WEXITED));
    SHOW(info.si_status);
    close(descriptor);

    static volatile int order;
    child = vfork();
    if (child == 0) {
        order = 1;
        _exit(13);
    }
    SHOW(order);
    REAP(child);
    child = vfork();
    if (child == 0) {
        execl("/abi/hello", "hello", "after vfork", NULL);
        _exit(99);
    }
    REAP(child);
    return 0;
}
