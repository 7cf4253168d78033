/* Details of processes, signals, futexes, timers and credentials that programs seldom ask about. */
#include "abi.h"
#include <linux/capability.h>
#include <linux/futex.h>
#include <sys/fsuid.h>

#define F(...) syscall(SYS_futex, __VA_ARGS__)

static int word, other;

static void futexes(void)
{
    struct timespec none = { 0, 0 };
    struct timespec bad = { 0, 1000000000 };
    puts("- futexes");
    SHOW(F(&word, FUTEX_WAIT, 1, NULL, NULL, 0));
    SHOW(F(&word, FUTEX_WAIT, 0, &none, NULL, 0));
    SHOW(F(&word, FUTEX_WAIT, 0, &bad, NULL, 0));
    SHOW(F((char *)&word + 1, FUTEX_WAIT, 0, &none, NULL, 0));
    SHOW(F((char *)&word + 1, FUTEX_WAKE, 1, NULL, NULL, 0));
    SHOW(F(&word, FUTEX_WAKE, 1, NULL, NULL, 0));
    SHOW(F(NULL, FUTEX_WAKE, 1, NULL, NULL, 0));
    SHOW(F(8, FUTEX_WAKE, 1, NULL, NULL, 0));
    SHOW(F(8, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0));
    SHOW(F(&word, FUTEX_WAIT_BITSET, 0, &none, NULL, 0));
    SHOW(F(&word, FUTEX_WAIT_BITSET, 0, &none, NULL, 1));
    SHOW(F(&word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, &none, NULL, 1));
    SHOW(F(&word, FUTEX_WAKE_BITSET, 1, NULL, NULL, 0));
    SHOW(F(&word, FUTEX_WAKE | FUTEX_CLOCK_REALTIME, 1, NULL, NULL, 0));
    SHOW(F(&word, FUTEX_REQUEUE, 1, 1, &other, 0));
    SHOW(F(&word, FUTEX_REQUEUE, -1, 1, &other, 0));
    SHOW(F(&word, FUTEX_CMP_REQUEUE, 1, 1, &other, 5));
    SHOW(F(&word, FUTEX_CMP_REQUEUE, 1, 1, &other, 0));
    SHOW(F(&word, FUTEX_CMP_REQUEUE, 1, -1, &other, 0));
    SHOW(F(&word, FUTEX_WAKE_OP, 1, 1, &other, FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 0)));
    SHOW(other);
    SHOW(F(&word, FUTEX_WAKE_OP, 1, 1, &other, FUTEX_OP(FUTEX_OP_OR | FUTEX_OP_OPARG_SHIFT, 4, FUTEX_OP_CMP_GT, 0)));
    SHOW(other);
    SHOW(F(&word, FUTEX_WAKE_OP, 1, 1, &other, FUTEX_OP(7, 4, FUTEX_OP_CMP_GT, 0)));
    SHOW(F(&word, 99, 1, NULL, NULL, 0));
    struct { uint64_t value, address; uint32_t flags, reserved; } waiters[2] = {
        { 0, (uintptr_t)&word, 2, 0 }, { 3, (uintptr_t)&other, 2, 0 } };
    SHOW(syscall(449, waiters, 0, 0, NULL, 0));
    SHOW(syscall(449, waiters, 200, 0, NULL, 0));
    SHOW(syscall(449, waiters, 2, 1, NULL, 0));
    SHOW(syscall(449, waiters, 2, 0, NULL, 0));
    SHOW(syscall(SYS_set_robust_list, NULL, 7));
    SHOW(syscall(SYS_get_robust_list, 0x3fffffff, &word, &other));
}

static void *waits_for_ever(void *unused)
{
    for (;;)
        pause();
    return unused;
}

static void processes(void)
{
    puts("- processes");
    pid_t zombie = CHILD(_exit(300));
    wait_state(zombie, "Z");
    SHOW(kill(zombie, 0));
    SHOW(kill(zombie, SIGTERM));
    SHOW(syscall(SYS_tgkill, zombie, zombie, 0));
    SHOW(syscall(SYS_tkill, zombie, SIGTERM));
    TRUE(getpgid(zombie) == getpgrp());
    TRUE(getsid(zombie) == getsid(0));
    SHOW(setpgid(zombie, 0));
    SHOW(getpriority(PRIO_PROCESS, zombie));
    SHOW(sched_getscheduler(zombie));
    struct rlimit limit;
    SHOW(prlimit(zombie, RLIMIT_CORE, NULL, &limit));
    int fd = syscall(SYS_pidfd_open, zombie, 0);
    TRUE(fd >= 0);
    SHOW(syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0));
    SHOW(syscall(SYS_pidfd_send_signal, fd, 999, NULL, 0));
    SHOW(syscall(SYS_pidfd_send_signal, 0, SIGTERM, NULL, 0));
    SHOW(syscall(SYS_pidfd_getfd, fd, 0, 0));
    struct pollfd poller = { fd, POLLIN, 0 };
    SHOW(poll(&poller, 1, 0));
    /* A process's directory does for signals only. */
    char path[64];
    snprintf(path, sizeof path, "/proc/%d", zombie);
    int directory = open(path, O_RDONLY | O_DIRECTORY);
    SHOW(syscall(SYS_pidfd_send_signal, directory, SIGTERM, NULL, 0));
    SHOW(syscall(SYS_pidfd_send_signal, directory, 999, NULL, 0));
    SHOW(syscall(SYS_pidfd_getfd, directory, 0, 0));
    snprintf(path, sizeof path, "/proc/%d/task/%d", zombie, zombie);
    int thread = open(path, O_RDONLY | O_DIRECTORY);
    SHOW(syscall(SYS_pidfd_send_signal, thread, 0, NULL, 0));
    close(thread);
    int other = open("/proc", O_RDONLY | O_DIRECTORY);
    SHOW(syscall(SYS_pidfd_send_signal, other, 0, NULL, 0));
    close(other);
    siginfo_t info = { 0 };
    SHOW(waitid(P_PIDFD, fd, &info, WEXITED | WNOWAIT));
    printf("%d %d %d\n", info.si_signo, info.si_code, info.si_status);
    SHOW(waitid(P_PIDFD, 0, &info, WEXITED));
    SHOW(waitid(P_PIDFD, -1, &info, WEXITED));
    SHOW(waitid(P_PID, -1, &info, WEXITED));
    SHOW(waitid(P_PGID, -1, &info, WEXITED));
    REAP(zombie);
    SHOW(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0));
    SHOW(syscall(SYS_pidfd_send_signal, directory, 0, NULL, 0));
    close(directory);
    SHOW(waitid(P_PIDFD, fd, &info, WEXITED));
    SHOW(poll(&poller, 1, 0));
    close(fd);
    SHOW(kill(zombie, 0));
    SHOW(kill(-0x3fffffff, 0));
    SHOW(syscall(SYS_tgkill, 0, getpid(), 0));
    SHOW(syscall(SYS_tgkill, getpid(), -1, 0));
    SHOW(syscall(SYS_tgkill, getpid(), 0x3fffffff, 0));
    SHOW(syscall(SYS_tkill, -1, 0));
    SHOW(setpgid(-1, 0));
    SHOW(setpgid(0, -1));
    SHOW(setpgid(1, 0));
    SHOW(getpgid(-1));
    SHOW(getsid(0x3fffffff));
    REAP(CHILD({ SHOW(setsid() == getpid()); SHOW(setsid()); SHOW(setpgid(0, 0)); }));
    REAP(CHILD({ setpgid(0, 0); SHOW(setsid()); SHOW(setpgid(0, 0x3fffffff)); }));
    /* A leader that is gone, seen from outside. */
    int ends[2];
    pipe(ends);
    pid_t child = CHILD({
        pthread_t thread;
        pthread_create(&thread, NULL, waits_for_ever, NULL);
        tell(ends[1]);
        syscall(SYS_exit, 0);
    });
    hear(ends[0]);
    wait_state(child, "Z");
    SHOW(kill(child, 0));
    SHOW(syscall(SYS_tgkill, child, child, 0));
    snprintf(path, sizeof path, "/proc/%d/status", child);
    const char *threads = strstr(get_text(path), "Threads:");
    printf("%.10s\n", threads ? threads : "?");
    kill(child, SIGTERM);
    REAP(child);
}

static volatile int count_handled;

static void handled(int number)
{
    count_handled += number > 0;
}

static void signals(void)
{
    puts("- signals");
    struct sigaction action = { .sa_handler = handled };
    SHOW(sigaction(SIGKILL, &action, NULL));
    SHOW(sigaction(SIGSTOP, &action, NULL));
    SHOW(sigaction(SIGKILL, NULL, &action));
    SHOW(syscall(SYS_rt_sigaction, 0, NULL, NULL, 8));
    SHOW(syscall(SYS_rt_sigaction, 65, NULL, NULL, 8));
    SHOW(syscall(SYS_rt_sigaction, SIGUSR1, NULL, NULL, 4));
    stack_t stack = { .ss_sp = &word, .ss_size = 100 };
    stack_t old = { 0 };
    SHOW(sigaltstack(&stack, &old));
    printf("flags %d size %zu\n", old.ss_flags, old.ss_size);
    stack.ss_flags = 99;
    SHOW(sigaltstack(&stack, NULL));
    stack.ss_flags = SS_DISABLE;
    SHOW(sigaltstack(&stack, NULL));
    siginfo_t forged = { .si_code = SI_USER };
    SHOW(syscall(SYS_rt_sigqueueinfo, getppid(), 0, &forged));
    forged.si_code = SI_TKILL;
    SHOW(syscall(SYS_rt_sigqueueinfo, getppid(), 0, &forged));
    forged.si_code = SI_QUEUE;
    SHOW(syscall(SYS_rt_sigqueueinfo, getppid(), 0, &forged));
    SHOW(syscall(SYS_rt_sigqueueinfo, getpid(), 99, &forged));
    forged.si_code = SI_USER;
    SHOW(syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), 0, &forged));
    SHOW(syscall(SYS_rt_tgsigqueueinfo, -1, gettid(), 0, &forged));
    action = (struct sigaction){ .sa_handler = handled, .sa_flags = SA_RESETHAND };
    sigaction(SIGUSR1, &action, NULL);
    raise(SIGUSR1);
    sigaction(SIGUSR1, NULL, &action);
    SHOW(count_handled);
    TRUE(action.sa_handler == SIG_DFL);
    printf("flags %x\n", action.sa_flags & ~0x04000000);
    action = (struct sigaction){ .sa_handler = handled, .sa_flags = 0x7f000000 | 0xfff0 };
    SHOW(sigaction(SIGUSR2, &action, NULL));
    sigaction(SIGUSR2, NULL, &action);
    printf("flags %x\n", action.sa_flags & ~0x04000000);
    REAP(CHILD({ struct rlimit core = { 0, 0 }; setrlimit(RLIMIT_CORE, &core); abort(); }));
    REAP(CHILD({ signal(SIGABRT, SIG_IGN); abort(); }));
    REAP(CHILD(raise(SIGSTKFLT)));
    REAP(CHILD(raise(SIGURG)));
    REAP(CHILD(raise(SIGRTMAX)));
    REAP(CHILD({ signal(SIGSEGV, SIG_IGN); raise(SIGSEGV); *(volatile int *)16 = 0; }));
    REAP(CHILD({ sigset_t all; sigfillset(&all); sigprocmask(SIG_BLOCK, &all, NULL); __asm__ volatile("ud2"); }));
}

static void timers(void)
{
    puts("- timers");
    timer_t timer;
    struct sigevent none = { .sigev_notify = SIGEV_NONE };
    struct itimerspec set = { .it_value = { 0, -1 } };
    static const clockid_t clocks[] = { CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_TAI, CLOCK_PROCESS_CPUTIME_ID,
                                        CLOCK_THREAD_CPUTIME_ID, CLOCK_MONOTONIC_RAW, CLOCK_REALTIME_COARSE, CLOCK_MONOTONIC_COARSE };
    for (unsigned i = 0; i < sizeof clocks / sizeof *clocks; i++) {
        printf("clock %d\n", clocks[i]);
        SHOW(timer_create(clocks[i], &none, &timer));
        /* A process that sleeps uses no processor time. */
        if (clocks[i] != CLOCK_PROCESS_CPUTIME_ID)
            SHOW(clock_nanosleep(clocks[i], 0, &(struct timespec){ 0, 1 }, NULL));
        SHOW(clock_nanosleep(clocks[i], 0, &(struct timespec){ 0, -1 }, NULL));
        struct timespec time = { 0, 0 };
        errno = 0;
        int result = clock_settime(clocks[i], &(struct timespec){ -1, 0 });
        printf("set %d %s\n", result, ERRNO_NAME(errno));
        SHOW(clock_getres(clocks[i], &time));
    }
    timer_create(CLOCK_MONOTONIC, &none, &timer);
    SHOW(timer_settime(timer, 0, &set, NULL));
    set.it_value = (struct timespec){ 5, 0 };
    set.it_interval = (struct timespec){ 0, 2000000000 };
    SHOW(timer_settime(timer, 0, &set, NULL));
    SHOW(timer_getoverrun(timer));
    SHOW(syscall(SYS_timer_settime, -1, 0, &set, NULL));
    SHOW(syscall(SYS_timer_delete, 12345));
    SHOW(syscall(SYS_timer_getoverrun, 12345));
    struct itimerval wrong = { { 0, 0 }, { -1, 0 } };
    SHOW(setitimer(ITIMER_REAL, &wrong, NULL));
}

static void credentials(void)
{
    puts("- credentials");
    gid_t groups[4];
    REAP(CHILD({
        SHOW(setgroups(3, (gid_t[]){ 30, 10, 20 }));
        SHOW(getgroups(0, NULL));
        SHOW(getgroups(2, groups));
        SHOW(getgroups(-1, groups));
        SHOW(getgroups(4, groups));
        printf("%d %d %d\n", groups[0], groups[1], groups[2]);
        SHOW(setgroups(65537, groups));
        SHOW(syscall(SYS_setgroups, -1, groups));
        SHOW(setfsuid(77));
        SHOW(setfsuid(-1));
        SHOW(setresuid(10, 20, 30));
        SHOW(setfsuid(40));
        SHOW(setfsuid(-1));
        SHOW(setuid(30));
        SHOW(seteuid(10));
        SHOW(setreuid(20, -1));
        SHOW(setreuid(30, 10));
        SHOW(setresuid(-1, 99, -1));
        uid_t real; uid_t effective; uid_t saved;
        getresuid(&real, &effective, &saved);
        printf("%d %d %d\n", real, effective, saved);
        SHOW(setgid(5));
        SHOW(setgroups(0, NULL));
    }));
    struct __user_cap_header_struct header = { 0x1234, 0 };
    struct __user_cap_data_struct data[2] = { 0 };
    SHOW(syscall(SYS_capget, &header, data));
    printf("version %x\n", header.version);
    header.version = 0x1234;
    SHOW(syscall(SYS_capget, &header, NULL));
    header = (struct __user_cap_header_struct){ _LINUX_CAPABILITY_VERSION_3, -1 };
    SHOW(syscall(SYS_capget, &header, data));
    header.pid = 0x3fffffff;
    SHOW(syscall(SYS_capget, &header, data));
    header.pid = getppid();
    SHOW(syscall(SYS_capset, &header, data));
    REAP(CHILD({
        header.pid = 0;
        syscall(SYS_capget, &header, data);
        data[0].effective = 0;
        SHOW(syscall(SYS_capset, &header, data));
        SHOW(setresuid(-1, 5, -1));
        data[0].permitted = 0;
        SHOW(syscall(SYS_capset, &header, data));
        data[0].effective = 1;
        SHOW(syscall(SYS_capset, &header, data));
        data[0].permitted = 1;
        SHOW(syscall(SYS_capset, &header, data));
    }));
    REAP(CHILD({
        SHOW(prctl(PR_SET_KEEPCAPS, 1));
        setresuid(9, 9, 9);
        syscall(SYS_capget, &(struct __user_cap_header_struct){ _LINUX_CAPABILITY_VERSION_3, 0 }, data);
        printf("permitted %s effective %x\n", data[0].permitted ? "some" : "none", data[0].effective);
    }));
    SHOW(prctl(PR_CAPBSET_READ, 99));
    SHOW(prctl(PR_CAPBSET_DROP, 99));
    SHOW(prctl(PR_CAP_AMBIENT, 99, 0, 0, 0));
    SHOW(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, 99, 0, 0));
    SHOW(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0));
    SHOW(prctl(PR_SET_NO_NEW_PRIVS, 1, 1, 0, 0));
    SHOW(prctl(PR_GET_NO_NEW_PRIVS, 1, 0, 0, 0));
    SHOW(prctl(PR_SET_NAME, NULL));
    SHOW(prctl(PR_GET_TID_ADDRESS, 8));
    SHOW(prctl(PR_SET_TSC, 99));
    SHOW(prctl(PR_SET_UNALIGN, 1));
    SHOW(prctl(PR_GET_THP_DISABLE, 1, 0, 0, 0));
    SHOW(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0));
}

int main(void)
{
    futexes();
    processes();
    signals();
    timers();
    credentials();
    return 0;
}
