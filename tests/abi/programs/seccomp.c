/* seccomp: the strict mode, filters with each action, what they are told, threads that get them, and programs that are refused. */
#include "abi.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#define PROGRAM(...)                                                                                                   \
    struct sock_filter code_[] = { __VA_ARGS__ };                                                                      \
    struct sock_fprog program = { sizeof code_ / sizeof *code_, code_ }
#define NUMBER BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define ARGUMENT(n, half) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args) + 8 * (n) + 4 * (half))
#define UNLESS(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip)
#define RETURN(action) BPF_STMT(BPF_RET | BPF_K, action)
/* One call comes to this, the rest is allowed. */
#define ONLY(call, action) PROGRAM(NUMBER, UNLESS(call, 1), RETURN(action), RETURN(SECCOMP_RET_ALLOW))

static long install(unsigned flags, struct sock_fprog *program)
{
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, program);
}

static void status(void)
{
    char line[128];
    FILE *file = fopen("/proc/thread-self/status", "r");
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, "NoNewPrivs", 10) || !strncmp(line, "Seccomp", 7))
            fputs(line, stdout);
    fclose(file);
}

static void strict(void)
{
    SHOW(prctl(PR_GET_SECCOMP));
    SHOW(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL));
    SHOW(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, &strict));
    SHOW(prctl(PR_SET_SECCOMP, 7, NULL));
    REAP(CHILD({
        syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL);
        write(1, "it writes\n", 10);
        syscall(SYS_exit, 7);
    }));
    REAP(CHILD({
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
        syscall(SYS_getpid);
        write(1, "not reached\n", 12);
    }));
    REAP(CHILD({
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
        prctl(PR_GET_SECCOMP);
    }));
}

static siginfo_t seen;
static long seen_result;

static void on_refusal(int number, siginfo_t *information, void *context)
{
    (void)number;
    seen = *information;
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    seen_result = registers[REG_RAX];
    TRUE(information->si_call_addr == (void *)registers[REG_RIP]);
    registers[REG_RAX] = 99;
}

static void actions(void)
{
    REAP(CHILD({
        ONLY(SYS_getppid, SECCOMP_RET_ERRNO | EXDEV);
        SHOW(install(0, &program));
        SHOW(syscall(SYS_getppid));
        status();
        SHOW(prctl(PR_GET_SECCOMP));
        REAP(CHILD({
            status();
            SHOW(syscall(SYS_getppid));
        }));
        SHOW(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 0, NULL));
        SHOW(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
        /* Of two the stricter one counts, and of equals the last. */
        {
            ONLY(SYS_getppid, SECCOMP_RET_ALLOW);
            SHOW(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
            SHOW(syscall(SYS_getppid));
        }
        {
            ONLY(SYS_getppid, SECCOMP_RET_ERRNO | EBADF);
            SHOW(install(SECCOMP_FILTER_FLAG_LOG | SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program));
            SHOW(syscall(SYS_getppid));
        }
        {
            ONLY(SYS_getppid, SECCOMP_RET_TRACE | 1);
            SHOW(install(0, &program));
            SHOW(syscall(SYS_getppid));
        }
        status();
    }));
    REAP(CHILD({
        ONLY(SYS_getppid, SECCOMP_RET_TRACE | 1);
        install(0, &program);
        SHOW(syscall(SYS_getppid));
    }));
    REAP(CHILD({
        ONLY(SYS_getppid, SECCOMP_RET_ERRNO);
        install(0, &program);
        SHOW(syscall(SYS_getppid));
    }));
    REAP(CHILD({
        ONLY(SYS_getppid, SECCOMP_RET_ERRNO | 0xffff);
        install(0, &program);
        long result;
        __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_getppid) : "rcx", "r11", "memory");
        SHOW(result);
    }));
    REAP(CHILD({
        ONLY(SYS_getppid, SECCOMP_RET_TRAP | 5);
        struct sigaction action = { .sa_sigaction = on_refusal, .sa_flags = SA_SIGINFO };
        sigaction(SIGSYS, &action, NULL);
        install(0, &program);
        SHOW(syscall(SYS_getppid));
        SHOW(seen_result == SYS_getppid);
        printf("%d %d %d %d %x\n", seen.si_signo, seen.si_code, seen.si_errno, seen.si_syscall, seen.si_arch);
        fflush(stdout);
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        syscall(SYS_getppid);
        printf("not reached\n");
    }));
    static const unsigned deadly[] = { SECCOMP_RET_TRAP, SECCOMP_RET_KILL_THREAD, SECCOMP_RET_KILL_PROCESS, 0x12340000 };
    for (int i = 0; i < 4; i++)
        REAP(CHILD({
            signal(SIGSYS, SIG_IGN);
            ONLY(SYS_getppid, deadly[i]);
            install(0, &program);
            syscall(SYS_getppid);
            printf("not reached\n");
        }));
}

static void arguments(void)
{
    REAP(CHILD({
        /* lseek of exactly this file to exactly this place says so, by both halves of its offset. */
        PROGRAM(NUMBER, UNLESS(SYS_lseek, 8), ARGUMENT(0, 0), UNLESS(77, 6), ARGUMENT(1, 0), UNLESS(0x9abcdef0, 4),
            ARGUMENT(1, 1), UNLESS(0x12345678, 2), ARGUMENT(2, 0), RETURN(SECCOMP_RET_ERRNO | 42), RETURN(SECCOMP_RET_ALLOW));
        SHOW(install(0, &program));
        SHOW(lseek(77, 0x123456789abcdef0, 3));
        SHOW(lseek(77, 0x123456789abcdef1, 3));
        SHOW(lseek(77, 0x133456789abcdef0, 3));
        SHOW(lseek(78, 0x123456789abcdef0, 3));
    }));
    REAP(CHILD({
        /* The architecture, and the number of a call that there is none of. */
        PROGRAM(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)), UNLESS(AUDIT_ARCH_X86_64, 4), NUMBER,
            UNLESS(100000, 1), RETURN(SECCOMP_RET_ERRNO | 43), RETURN(SECCOMP_RET_ALLOW), RETURN(SECCOMP_RET_KILL_PROCESS));
        SHOW(install(0, &program));
        SHOW(syscall(100000));
        SHOW(syscall(100001));
    }));
    REAP(CHILD({
        /* The errno is the third argument, computed. */
        PROGRAM(NUMBER, UNLESS(SYS_lseek, 6), ARGUMENT(2, 0), BPF_STMT(BPF_ST, 3), BPF_STMT(BPF_LDX | BPF_MEM, 3), BPF_STMT(BPF_LD | BPF_IMM, SECCOMP_RET_ERRNO),
            BPF_STMT(BPF_ALU | BPF_OR | BPF_X, 0), BPF_STMT(BPF_RET | BPF_A, 0), RETURN(SECCOMP_RET_ALLOW));
        SHOW(install(0, &program));
        SHOW(lseek(-1, 0, 5));
        SHOW(lseek(-1, 0, 17));
    }));
    REAP(CHILD({
        PROGRAM(NUMBER, UNLESS(SYS_lseek, 4), BPF_STMT(BPF_LDX | BPF_IMM, 0), BPF_STMT(BPF_LD | BPF_IMM, 1), BPF_STMT(BPF_ALU | BPF_DIV | BPF_X, 0), RETURN(SECCOMP_RET_ALLOW),
            RETURN(SECCOMP_RET_ALLOW));
        SHOW(install(0, &program));
        lseek(-1, 0, 0);
        printf("not reached\n");
    }));
}

static void refused(void)
{
    PROGRAM(RETURN(SECCOMP_RET_ALLOW));
    SHOW(install(1u << 30, &program));
    SHOW(install(0, NULL));
    SHOW(syscall(SYS_seccomp, 99, 0, &program));
    SHOW(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL));
    struct sock_fprog empty = { 0, code_ }, nowhere = { 1, NULL };
    struct sock_fprog large = { BPF_MAXINSNS + 1, code_ };
    SHOW(install(0, &empty));
    SHOW(install(0, &large));
    SHOW(install(0, &nowhere));
    static const unsigned known[] = { SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_KILL_THREAD, SECCOMP_RET_TRAP, SECCOMP_RET_ERRNO, SECCOMP_RET_TRACE,
        SECCOMP_RET_LOG, SECCOMP_RET_ALLOW, 0x12340000, SECCOMP_RET_ERRNO | 1 };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        SHOW(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &known[i]));
    SHOW(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 1, known));
    SHOW(syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, NULL));
    REAP(CHILD({
        setresuid(1, 1, 1);
        SHOW(install(0, &program));
        SHOW(install(0, &large));
        SHOW(install(0, &nowhere));
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        SHOW(install(0, &program));
        status();
    }));
    static const struct sock_filter bad[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 64), BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 2), BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 0),
        BPF_STMT(BPF_LD | BPF_W | BPF_IND, 0), BPF_STMT(BPF_LD | BPF_MEM, 0), BPF_STMT(BPF_ST, 16), BPF_STMT(BPF_ALU | BPF_DIV | BPF_K, 0),
        BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, 2), BPF_STMT(BPF_ALU | BPF_LSH | BPF_K, 32), BPF_STMT(BPF_JMP | BPF_JA, 1), BPF_STMT(BPF_JMP | BPF_JA, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0), BPF_STMT(BPF_LDX | BPF_MSH | BPF_B, 0), BPF_STMT(BPF_MISC | 0x40, 0), BPF_STMT(0xffff, 0),
        BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0), BPF_STMT(BPF_LDX | BPF_W | BPF_LEN, 0), BPF_STMT(BPF_ALU | BPF_NEG, 0), BPF_STMT(BPF_ALU | BPF_XOR | BPF_X, 0),
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        REAP(CHILD({
            struct sock_filter two[] = { bad[i], RETURN(SECCOMP_RET_ALLOW) };
            struct sock_fprog one = { 2, two };
            SHOW(install(0, &one));
        }));
    REAP(CHILD({
        static struct sock_filter long_code[BPF_MAXINSNS];
        for (int i = 0; i < BPF_MAXINSNS; i++)
            long_code[i] = (struct sock_filter)RETURN(SECCOMP_RET_ALLOW);
        struct sock_fprog longest = { BPF_MAXINSNS, long_code };
        while (install(0, &longest) == 0)
            ;
        printf("%s\n", ERRNO_NAME(errno));
        while (install(0, &program) == 0)
            ;
        printf("%s\n", ERRNO_NAME(errno));
    }));
}

static pthread_barrier_t barrier;
static _Atomic long results[3];
static int own_filter;

static void *thread(void *argument)
{
    long number = (long)argument;
    if (number == 1 && own_filter) {
        ONLY(SYS_getppid, SECCOMP_RET_ALLOW);
        install(0, &program);
    }
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    errno = 0;
    results[number] = syscall(SYS_getppid) == -1 ? errno : 0;
    if (number == 1)
        status();
    return NULL;
}

static void threads(void)
{
    for (own_filter = 0; own_filter < 2; own_filter++)
        REAP(CHILD({
            pthread_t others[2];
            pthread_barrier_init(&barrier, NULL, 3);
            prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            pthread_create(&others[0], NULL, thread, (void *)1);
            pthread_create(&others[1], NULL, thread, (void *)2);
            pthread_barrier_wait(&barrier);
            ONLY(SYS_getppid, SECCOMP_RET_ERRNO | 44);
            TRUE(install(SECCOMP_FILTER_FLAG_TSYNC, &program) > 0);
            SHOW(install(SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_TSYNC_ESRCH, &program));
            pthread_barrier_wait(&barrier);
            pthread_join(others[0], NULL);
            pthread_join(others[1], NULL);
            printf("%ld %ld\n", results[1], results[2]);
            OK(syscall(SYS_getppid));
        }));
    REAP(CHILD({
        /* Only the thread ends, and others go on. */
        pthread_t other;
        void *kill_me(void *argument)
        {
            (void)argument;
            ONLY(SYS_getppid, SECCOMP_RET_KILL_THREAD);
            install(0, &program);
            syscall(SYS_getppid);
            return (void *)1;
        }
        pthread_create(&other, NULL, kill_me, NULL);
        struct dirent **list;
        while (scandir("/proc/self/task", &list, NULL, NULL) > 3)
            ;
        printf("it goes on\n");
        fflush(stdout);
        _exit(3);
    }));
}

int main(int count, char **values)
{
    if (count > 1) {
        SHOW(syscall(SYS_getppid));
        status();
        return 0;
    }
    strict();
    actions();
    arguments();
    refused();
    threads();
    fflush(stdout);
    REAP(CHILD({
        ONLY(SYS_getppid, SECCOMP_RET_ERRNO | EXDEV);
        install(0, &program);
        execl("/proc/self/exe", values[0], "executed", NULL);
    }));
    return 0;
}
