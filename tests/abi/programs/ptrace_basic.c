/* ptrace(2): the life of a tracee that asks to be traced, or is attached to: stops at signals and calls, registers, events, ends. */
#include "tracing.h"

static volatile int word = 77;

static void *stub(void *none)
{
    return none;
}

static void signals(void)
{
    puts("-- signals");
    pid_t pid = CHILD({
        SHOW(request(TRACEME, 0, 0, 0));
        SHOW(request(TRACEME, 0, 0, 0));
        fflush(stdout);
        signal(SIGUSR1, SIG_IGN);
        raise(SIGSTOP);
        raise(SIGUSR1);
        raise(SIGUSR2);
        _exit(3);
    });
    wait_for("first", pid);
    show_information(pid);
    SHOW(request(ATTACH, pid, 0, 0));
    SHOW(request(0x7777, pid, 0, 0));
    SHOW(request(CONT, pid, 0, 65));
    SHOW(request(CONT, pid, 0, 0));
    wait_for("an ignored one", pid);
    show_information(pid);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    const char *status = get_text(path);
    printf("%.24s\n", strstr(status, "State:"));
    int tracer = 0;
    sscanf(strstr(status, "TracerPid:"), "TracerPid: %d", &tracer);
    TRUE(tracer == getpid());
    SHOW(request(CONT, pid, 0, 0));
    wait_for("one that kills", pid);
    SHOW(request(CONT, pid, 0, SIGCONT));
    wait_for("end", pid);
    SHOW(request(CONT, pid, 0, 0));

    puts("-- who is told of nothing");
    pid = CHILD({
        request(TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        raise(SIGTERM);
    });
    wait_for("stop", pid);
    siginfo_t information;
    memset(&information, 0, sizeof information);
    SHOW(waitid(P_PID, pid, &information, WEXITED | WNOHANG));
    printf("pid %d\n", information.si_pid != 0);
    request(CONT, pid, 0, 0);
    SHOW(waitid(P_PID, pid, &information, WSTOPPED | WNOWAIT));
    printf("signal %d code %d status %d\n", information.si_signo, information.si_code, information.si_status);
    wait_for("again", pid);
    information.si_code = -5;
    information.si_int = 42;
    SHOW(request(SETSIGINFO, pid, 0, &information));
    show_information(pid);
    SHOW(request(CONT, pid, 0, SIGTERM));
    wait_for("killed", pid);
}

static void registers(void)
{
    puts("-- registers and memory");
    pid_t pid = CHILD({
        request(TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        printf("word is %d\n", word);
    });
    wait_for("stop", pid);
    struct user_regs_struct regs;
    SHOW(request(GETREGS, pid, 0, &regs));
    printf("cs %llx ss %llx ds %llx flags %llx orig_rax %lld rax %lld\n", regs.cs, regs.ss, regs.ds, regs.eflags & 0x302, (long long)regs.orig_rax,
           (long long)regs.rax);
    SHOW(request(SETREGS, pid, 0, &regs));
    long value = 0;
    SHOW(request(PEEKUSR, pid, offsetof(struct user, regs.rip), &value));
    TRUE(value == (long)regs.rip);
    SHOW(request(PEEKUSR, pid, 3, &value));
    SHOW(request(PEEKUSR, pid, sizeof(struct user), &value));
    SHOW(request(PEEKUSR, pid, offsetof(struct user, u_comm), &value));
    SHOW(request(POKEUSR, pid, offsetof(struct user, u_comm), 0));
    SHOW(request(POKEUSR, pid, offsetof(struct user, regs.cs), 0));
    SHOW(request(POKEUSR, pid, offsetof(struct user, regs.cs), 8));
    SHOW(request(POKEUSR, pid, offsetof(struct user, regs.fs_base), -1));
    SHOW(request(PEEKDATA, pid, &word, &value));
    printf("word %d\n", (int)value);
    SHOW(request(POKEDATA, pid, &word, (value & ~0xffffffffl) | 78));
    SHOW(request(PEEKDATA, pid, 8, &value));
    SHOW(request(POKEDATA, pid, 8, 1));
    SHOW(request(PEEKDATA, pid, &word, 8));
    struct user_fpregs_struct fp;
    memset(&fp, 0, sizeof fp);
    SHOW(request(GETFPREGS, pid, 0, &fp));
    printf("control %x mxcsr %x\n", fp.cwd, fp.mxcsr);
    SHOW(request(SETFPREGS, pid, 0, &fp));
    struct iovec vector = { &regs, sizeof regs };
    SHOW(request(GETREGSET, pid, 1, &vector));
    printf("length %zu\n", vector.iov_len);
    vector.iov_len = 1000;
    char big[4096];
    vector.iov_base = big;
    SHOW(request(GETREGSET, pid, 1, &vector));
    printf("length %zu\n", vector.iov_len);
    vector.iov_len = 20;
    SHOW(request(GETREGSET, pid, 1, &vector));
    vector.iov_len = 16;
    SHOW(request(GETREGSET, pid, 1, &vector));
    SHOW(request(GETREGSET, pid, 0x9999, &vector));
    vector.iov_len = 512;
    SHOW(request(GETREGSET, pid, 2, &vector));
    SHOW(request(SETREGSET, pid, 2, &vector));
    vector.iov_len = 256;
    SHOW(request(SETREGSET, pid, 2, &vector));
    vector.iov_len = sizeof big;
    SHOW(request(GETREGSET, pid, 0x202, &vector));
    TRUE(vector.iov_len >= 576);
    SHOW(request(SETREGSET, pid, 0x202, &vector));
    vector.iov_len = 512;
    SHOW(request(SETREGSET, pid, 0x202, &vector));
    uint64_t mask = 0;
    SHOW(request(GETSIGMASK, pid, 8, &mask));
    SHOW(request(GETSIGMASK, pid, 4, &mask));
    mask |= 1ull << (SIGUSR2 - 1) | 1ull << (SIGKILL - 1);
    SHOW(request(SETSIGMASK, pid, 8, &mask));
    SHOW(request(GETSIGMASK, pid, 8, &mask));
    printf("mask %#lx\n", (long)mask);
    kill(pid, SIGUSR2);
    struct { uint64_t off; uint32_t flags; int32_t nr; } peek = { 0, 1, 10 };
    siginfo_t pending[10];
    SHOW(request(PEEKSIGINFO, pid, &peek, pending));
    printf("pending %d\n", pending[0].si_signo);
    peek.flags = 0;
    SHOW(request(PEEKSIGINFO, pid, &peek, pending));
    peek.flags = 2;
    SHOW(request(PEEKSIGINFO, pid, &peek, pending));
    peek.flags = 0;
    peek.nr = -1;
    SHOW(request(PEEKSIGINFO, pid, &peek, pending));
    struct { uint64_t pointer; uint32_t size, signature, flags, pad; } rseq;
    SHOW(request(RSEQ, pid, sizeof rseq, &rseq));
    SHOW(request(RSEQ, pid, 8, &rseq));
    SHOW(request(SETOPTIONS, pid, 0, 0x40000000));
    /* Its own line comes first. */
    int detached = request(DETACH, pid, 0, 0);
    wait_for("end", pid);
    SHOW(detached);
}

static void calls(void)
{
    puts("-- calls");
    int wanted[2];
    pipe(wanted);
    pid_t pid = CHILD({
        request(TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        long one = syscall(SYS_getppid);
        long two = syscall(SYS_getuid);
        long three = syscall(SYS_getgid);
        long four = syscall(777);
        printf("results %ld %ld %ld %ld\n", one, two, three, four);
        fflush(stdout);
        _exit(0);
    });
    wait_for("stop", pid);
    SHOW(request(SETOPTIONS, pid, 0, SYSGOOD));
    for (int i = 0; i < 8; i++) {
        request(CALL, pid, 0, 0);
        int status = wait_for(i % 2 ? "exit" : "entry", pid);
        if (!WIFSTOPPED(status))
            return;
        struct user_regs_struct regs;
        request(GETREGS, pid, 0, &regs);
        struct ptrace_syscall_info info;
        memset(&info, 0, sizeof info);
        long bytes = request(CALL_INFO, pid, sizeof info, &info);
        unsigned long message = 0;
        request(GETEVENTMSG, pid, 0, &message);
        printf("  call %lld, information of %ld bytes, operation %d, arch %x, message %lu\n", regs.orig_rax, bytes, info.op, info.arch, message);
        if (i % 2 == 0)
            printf("  number %lld, rax %lld\n", info.entry.nr, (long long)regs.rax);
        if (i == 0) {
            show_information(pid);
            /* getppid becomes a call that does not exist. */
            SHOW(request(POKEUSR, pid, offsetof(struct user, regs.orig_rax), -1));
            SHOW(request(POKEUSR, pid, offsetof(struct user, regs.rax), 1234));
        }
        if (i == 2)
            SHOW(request(POKEUSR, pid, offsetof(struct user, regs.orig_rax), 777));
        if (i == 5) {
            SHOW(request(POKEUSR, pid, offsetof(struct user, regs.rax), 55));
        }
        if (i == 7)
            printf("  error %d value %lld\n", info.exit.is_error, info.exit.rval);
    }
    struct ptrace_syscall_info info;
    request(EMULATE, pid, 0, 0);
    wait_for("emulated", pid);
    SHOW(request(CALL_INFO, pid, 24, &info) > 24);
    request(KILL, pid, 0, 0);
    wait_for("killed", pid);
}

static void restarts(void)
{
    puts("-- calls that start again");
    int ends[2];
    pipe(ends);
    pid_t pid = CHILD({
        request(TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        char byte;
        printf("read %zd\n", read(ends[0], &byte, 1));
        struct timespec nap = { 0, 20000000 };
        printf("slept %d\n", nanosleep(&nap, NULL));
    });
    wait_for("stop", pid);
    request(SETOPTIONS, pid, 0, SYSGOOD);
    request(CALL, pid, 0, 0);
    wait_for("entry", pid);
    request(CALL, pid, 0, 0);
    wait_state(pid, "S");
    kill(pid, SIGURG);
    wait_for("exit", pid);
    long rax = 0;
    request(PEEKUSR, pid, offsetof(struct user, regs.rax), &rax);
    printf("rax %ld\n", rax);
    request(CALL, pid, 0, 0);
    wait_for("signal", pid);
    request(PEEKUSR, pid, offsetof(struct user, regs.rax), &rax);
    printf("rax %ld\n", rax);
    request(CALL, pid, 0, SIGURG);
    wait_for("entry again", pid);
    request(PEEKUSR, pid, offsetof(struct user, regs.orig_rax), &rax);
    printf("call %ld\n", rax);
    tell(ends[1]);
    request(CALL, pid, 0, 0);
    wait_for("exit", pid);
    request(DETACH, pid, 0, 0);
    wait_for("end", pid);
}

static void events(void)
{
    puts("-- events");
    pid_t pid = CHILD({
        request(TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        pid_t child = fork();
        if (child == 0)
            _exit(4);
        waitpid(child, NULL, 0);
        child = vfork();
        if (child == 0)
            _exit(5);
        waitpid(child, NULL, 0);
        pthread_t thread;
        pthread_create(&thread, NULL, stub, NULL);
        pthread_join(thread, NULL);
        execl("/proc/self/exe", "ptrace_basic", "sub", NULL);
        _exit(9);
    });
    wait_for("stop", pid);
    SHOW(request(SETOPTIONS, pid, 0, FORK | VFORK | CLONE | EXEC | VFORKDONE | EXIT | EXITKILL));
    request(CONT, pid, 0, 0);
    pid_t child = 0;
    for (;;) {
        int status;
        pid_t who = waitpid(pid, &status, __WALL);
        if (who != pid || !WIFSTOPPED(status)) {
            printf("parent: %s\n", status_text(status));
            break;
        }
        int event = status >> 16;
        unsigned long message = 0;
        request(GETEVENTMSG, pid, 0, &message);
        printf("parent: %s\n", status_text(status));
        if (event == 1 || event == 2 || event == 3) {
            show_information(pid);
            child = message;
            wait_for("  child", child);
            SHOW(request(CONT, child, 0, 0));
            /* A vfork's child ends before its parent goes on by itself; others are waited for here, so that the order is the same always. */
            wait_for("  child", child);
            request(GETEVENTMSG, child, 0, &message);
            printf("  it ends with %#lx\n", message);
            request(CONT, child, 0, 0);
            wait_for("  child", child);
        } else if (event == 4)
            TRUE(message == (unsigned long)pid);
        else if (event == 5)
            TRUE(message == (unsigned long)child);
        else if (event == 6)
            printf("it ends with %#lx\n", message);
        request(CONT, pid, 0, WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status));
    }
    puts("-- exec without an event");
    pid = CHILD({
        request(TRACEME, 0, 0, 0);
        execl("/proc/self/exe", "ptrace_basic", "sub", NULL);
    });
    wait_for("exec", pid);
    show_information(pid);
    request(CALL, pid, 0, 0);
    wait_for("exit of exec", pid);
    long call = 0, rax = 1;
    request(PEEKUSR, pid, offsetof(struct user, regs.orig_rax), &call);
    request(PEEKUSR, pid, offsetof(struct user, regs.rax), &rax);
    printf("call %ld result %ld\n", call, rax);
    request(KILL, pid, 0, 0);
    wait_for("killed", pid);
}

static void attaching(void)
{
    puts("-- attach");
    SHOW(request(ATTACH, getpid(), 0, 0));
    SHOW(request(ATTACH, 4000000, 0, 0));
    SHOW(request(CONT, 4000000, 0, 0));
    SHOW(request(CONT, getpid(), 0, 0));
    int ends[2];
    pipe(ends);
    pid_t pid = CHILD({
        char byte;
        printf("read %zd\n", read(ends[0], &byte, 1));
    });
    wait_state(pid, "S");
    SHOW(request(ATTACH, pid, 0, 0));
    wait_for("attached", pid);
    show_information(pid);
    REAP(CHILD({
        SHOW(request(ATTACH, pid, 0, 0));
        SHOW(request(CONT, pid, 0, 0));
        SHOW(request(KILL, pid, 0, 0));
    }));
    SHOW(request(INTERRUPT, pid, 0, 0));
    SHOW(request(LISTEN, pid, 0, 0));
    SHOW(request(CONT, pid, 0, 0));
    SHOW(request(GETSIGINFO, pid, 0, ends));
    kill(pid, SIGSTOP);
    wait_for("signal", pid);
    request(CONT, pid, 0, SIGSTOP);
    wait_for("group stop", pid);
    show_information(pid);
    SHOW(request(DETACH, pid, 0, 65));
    SHOW(request(DETACH, pid, 0, 0));
    TRUE(wait_state(pid, "T"));
    SHOW(request(ATTACH, pid, 0, 0));
    wait_for("stopped already", pid);
    request(CONT, pid, 0, 0);
    wait_for("its own stop", pid);
    kill(pid, SIGCONT);
    SHOW(request(DETACH, pid, 0, 0));
    tell(ends[1]);
    wait_for("end", pid);
}

static int signals_heard;

static void heard(int number)
{
    (void)number;
    signals_heard++;
}

static void relations(void)
{
    puts("-- a tracer that is not the parent");
    int go[2], done[2];
    pipe(go);
    pipe(done);
    pid_t pid = CHILD({
        hear(go[0]);
        _exit(6);
    });
    wait_state(pid, "S");
    signal(SIGCHLD, heard);
    pid_t tracer = CHILD({
        SHOW(request(SEIZE, pid, 0, EXIT));
        tell(go[1]);
        wait_for("its last stop", pid);
        request(CONT, pid, 0, 0);
        siginfo_t information;
        SHOW(waitid(P_PID, pid, &information, WEXITED | WNOWAIT));
        printf("code %d status %d\n", information.si_code, information.si_status);
        fflush(stdout);
        tell(done[1]);
        pause();
    });
    hear(done[0]);
    /* It has ended, but the parent does not see it yet. */
    int status;
    SHOW(waitpid(pid, &status, WNOHANG));
    TRUE(signals_heard == 0);
    kill(tracer, SIGKILL);
    wait_for("child", pid);
    wait_for("tracer", tracer);
    signal(SIGCHLD, SIG_DFL);

    puts("-- a tracer that ends");
    for (int kills = 0; kills < 2; kills++) {
        pid = CHILD({
            hear(go[0]);
            _exit(7);
        });
        wait_state(pid, "S");
        REAP(CHILD({
            SHOW(request(SEIZE, pid, 0, kills ? EXITKILL : 0));
            SHOW(request(INTERRUPT, pid, 0, 0));
            wait_for("interrupted", pid);
        }));
        if (!kills)
            tell(go[1]);
        wait_for("child", pid);
    }
    puts("-- killed where it stands");
    pid = CHILD({
        request(TRACEME, 0, 0, 0);
        raise(SIGSTOP);
    });
    wait_for("stop", pid);
    kill(pid, SIGKILL);
    wait_for("killed", pid);
}

static void permissions(void)
{
    puts("-- who may");
    int ready[2];
    pipe(ready);
    pid_t pid = CHILD({
        setgroups(0, NULL);
        setresgid(101, 101, 101);
        setresuid(101, 101, 101);
        prctl(PR_SET_DUMPABLE, 1);
        tell(ready[1]);
        pause();
    });
    hear(ready[0]);
    static const struct { const char *name; uid_t user; } who[] = { { "another", 102 }, { "itself", 101 } };
    for (int i = 0; i < 2; i++) {
        puts(who[i].name);
        REAP(CHILD({
            setgroups(0, NULL);
            setresgid(who[i].user, who[i].user, who[i].user);
            setresuid(who[i].user, who[i].user, who[i].user);
            SHOW(request(SEIZE, pid, 0, 0));
            SHOW(request(SEIZE, pid, 8, 0));
            SHOW(request(SEIZE, pid, 0, 0x8000000));
        }));
    }
    kill(pid, SIGKILL);
    wait_for("end", pid);
}

int main(int count, char **arguments)
{
    if (count > 1 && !strcmp(arguments[1], "sub"))
        return 8;
    signals();
    registers();
    calls();
    restarts();
    events();
    attaching();
    relations();
    permissions();
    return 0;
}
