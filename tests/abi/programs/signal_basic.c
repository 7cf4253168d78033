/* Signals: handlers, masks, flags, queueing, siginfo, default actions, kill and its permissions. */
#include "abi.h"

static volatile int count, last, code, value, order[64];
static volatile pid_t sender;

static void simple(int number)
{
    last = number;
    order[count++ % 64] = number;
}

static void full(int number, siginfo_t *info, void *context)
{
    (void)context;
    last = number;
    code = info->si_code;
    value = info->si_value.sival_int;
    sender = info->si_pid;
    order[count++ % 64] = number;
}

static void install(int number, void *function, int flags)
{
    struct sigaction action = { .sa_flags = flags };
    action.sa_sigaction = function;
    sigaction(number, &action, NULL);
}

static void standard_do_not_queue(void)
{
    sigset_t set, pending;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGRTMIN + 1);
    sigaddset(&set, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    install(SIGUSR1, simple, 0);
    install(SIGRTMIN, full, SA_SIGINFO);
    install(SIGRTMIN + 1, full, SA_SIGINFO);
    count = 0;
    for (int i = 0; i < 5; i++)
        raise(SIGUSR1);
    for (int i = 0; i < 3; i++) {
        sigqueue(getpid(), SIGRTMIN + 1, (union sigval){ .sival_int = i });
        sigqueue(getpid(), SIGRTMIN, (union sigval){ .sival_int = 10 + i });
    }
    sigpending(&pending);
    printf("pending %d %d %d\n", sigismember(&pending, SIGUSR1), sigismember(&pending, SIGRTMIN),
           sigismember(&pending, SIGUSR2));
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    SHOW(count);
    /* All are delivered at once, so the frames nest: the last handler set up runs first. */
    for (int i = 0; i < count; i++)
        printf("%s%d", i ? " " : "order ", order[i] >= SIGRTMIN ? 100 + order[i] - SIGRTMIN : order[i]);
    printf("\n");
    SHOW(value);
    TRUE(code == SI_QUEUE);
    TRUE(sender == getpid());
}

static void one_at_a_time(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < 4; i++)
        sigqueue(getpid(), SIGRTMIN + 2, (union sigval){ .sival_int = i * i });
    for (int i = 0; i < 5; i++) {
        siginfo_t info;
        struct timespec none = { 0, 0 };
        int number = sigtimedwait(&set, &info, &none);
        if (number < 0)
            printf("sigtimedwait %s\n", ERRNO_NAME(errno));
        else
            printf("sigtimedwait RT+%d value %d code %d\n", number - SIGRTMIN, info.si_value.sival_int, info.si_code);
    }
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static void flags(void)
{
    install(SIGUSR1, simple, SA_RESETHAND);
    count = 0;
    raise(SIGUSR1);
    struct sigaction action;
    sigaction(SIGUSR1, NULL, &action);
    TRUE(action.sa_handler == SIG_DFL);
    SHOW(count);
    install(SIGUSR1, full, SA_SIGINFO);
    kill(getpid(), SIGUSR1);
    TRUE(code == SI_USER);
    raise(SIGUSR1);
    TRUE(code == SI_TKILL);
    pid_t child = CHILD(kill(getppid(), SIGUSR1));
    REAP(child);
    TRUE(sender == child);
    TRUE(code == SI_USER);
    SHOW(sigaction(SIGKILL, &action, NULL));
    SHOW(sigaction(SIGSTOP, &action, NULL));
    SHOW(sigaction(SIGKILL, NULL, &action));
    SHOW(sigaction(65, NULL, &action));
    SHOW(sigaction(0, NULL, &action));
    SHOW(kill(getpid(), 65));
    SHOW(kill(getpid(), -1));
    SHOW(kill(getpid(), 0));
    SHOW(kill(0x3fffffff, 0));
    SHOW(kill(-0x3fffffff, SIGTERM));
    SHOW(syscall(SYS_tgkill, getpid(), 0, 0));
    SHOW(syscall(SYS_tgkill, 0, getpid(), 0));
    SHOW(syscall(SYS_tgkill, getpid(), getpid(), 0));
    SHOW(syscall(SYS_tkill, -1, 0));
    SHOW(syscall(SYS_rt_sigaction, SIGUSR1, NULL, NULL, 4));
    SHOW(syscall(SYS_rt_sigprocmask, 9, &action, NULL, 8));
    SHOW(syscall(SYS_rt_sigprocmask, 9, NULL, NULL, 8));
    siginfo_t forged = { .si_code = SI_USER };
    SHOW(syscall(SYS_rt_sigqueueinfo, 1, SIGUSR1, &forged));
    sigset_t everything;
    sigfillset(&everything);
    sigprocmask(SIG_SETMASK, &everything, NULL);
    sigprocmask(SIG_SETMASK, NULL, &everything);
    printf("blocked KILL %d STOP %d TERM %d\n", sigismember(&everything, SIGKILL), sigismember(&everything, SIGSTOP),
           sigismember(&everything, SIGTERM));
    sigemptyset(&everything);
    sigprocmask(SIG_SETMASK, &everything, NULL);
}

static volatile int depth, deepest, rounds;

static void nested(int number)
{
    depth++;
    if (depth > deepest)
        deepest = depth;
    if (depth < 4 && rounds++ < 8)
        raise(number);
    depth--;
}

static void nesting(void)
{
    install(SIGUSR2, nested, SA_NODEFER);
    deepest = rounds = 0;
    raise(SIGUSR2);
    SHOW(deepest);
    install(SIGUSR2, nested, 0);
    deepest = rounds = 0;
    raise(SIGUSR2);
    SHOW(deepest);
    struct sigaction action = { .sa_handler = simple };
    sigaddset(&action.sa_mask, SIGUSR1);
    sigaction(SIGUSR2, &action, NULL);
    signal(SIGUSR2, SIG_DFL);
    signal(SIGUSR1, SIG_DFL);
}

static void defaults(void)
{
    for (int number = 1; number < 32; number++) {
        if (number == SIGKILL || number == SIGSTOP)
            continue;
        pid_t child = CHILD({ signal(number, SIG_DFL); raise(number); _exit(0); });
        int status;
        waitpid(child, &status, WUNTRACED);
        printf("default of %s: %s\n", signal_name(number), how_ended(status));
        if (WIFSTOPPED(status)) {
            kill(child, SIGCONT);
            REAP(child);
        }
    }
}

static void core_bit(void)
{
    pid_t child = CHILD({
        struct rlimit none = { 0, 0 };
        setrlimit(RLIMIT_CORE, &none);
        abort();
    });
    REAP(child);
    REAP(CHILD({ struct rlimit none = { 0, 0 }; setrlimit(RLIMIT_CORE, &none); *(volatile int *)0 = 0; }));
    REAP(CHILD({ struct rlimit none = { 0, 0 }; setrlimit(RLIMIT_CORE, &none); __builtin_trap(); }));
    REAP(CHILD({
        struct rlimit none = { 0, 0 };
        setrlimit(RLIMIT_CORE, &none);
        volatile int zero = 0, seven = 7;
        seven /= zero;
    }));
}

static void groups(void)
{
    int up[2];
    pipe(up);
    pid_t leader = CHILD({ setpgid(0, 0); tell(up[1]); for (;;) pause(); });
    hear(up[0]);
    pid_t member = CHILD({ setpgid(0, leader); tell(up[1]); for (;;) pause(); });
    hear(up[0]);
    SHOW(kill(-leader, 0));
    SHOW(kill(-leader, SIGTERM));
    REAP(leader);
    REAP(member);
    SHOW(kill(-leader, 0));
    pid_t other = CHILD({ setresuid(65534, 65534, 65534); printf("as nobody: %s\n", kill(getppid(), 0) < 0 ? ERRNO_NAME(errno) : "ok"); });
    REAP(other);
    pid_t stopped = CHILD({ for (;;) pause(); });
    kill(stopped, SIGSTOP);
    int status;
    waitpid(stopped, &status, WUNTRACED);
    kill(stopped, SIGTERM);
    TRUE(waitpid(stopped, &status, WNOHANG) == 0);
    kill(stopped, SIGCONT);
    REAP(stopped);
    stopped = CHILD({ for (;;) pause(); });
    kill(stopped, SIGSTOP);
    waitpid(stopped, &status, WUNTRACED);
    kill(stopped, SIGKILL);
    REAP(stopped);
}

int main(void)
{
    standard_do_not_queue();
    one_at_a_time();
    flags();
    nesting();
    defaults();
    core_bit();
    groups();
    return 0;
}
