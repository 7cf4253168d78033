/* ptrace(2): tracees that are seized: interrupts, stops of their process, listening, threads, and an execve that another thread makes. */
#include "tracing.h"

static void *sleeper(void *none)
{
    for (;;)
        pause();
    return none;
}

static void *executes(void *none)
{
    execl("/proc/self/exe", "ptrace_seize", "sub", NULL);
    return none;
}

static void orders(void)
{
    puts("-- orders");
    int ends[2];
    pipe(ends);
    pid_t pid = CHILD({
        char byte;
        /* SIGTSTP stops nobody whose group has no parent in its session. */
        setpgid(0, 0);
        long got = read(ends[0], &byte, 1);
        printf("read %ld\n", got);
    });
    wait_state(pid, "S");
    SHOW(request(SEIZE, pid, 0, SYSGOOD));
    SHOW(waitpid(pid, NULL, WNOHANG | __WALL));
    SHOW(request(CONT, pid, 0, 0));
    SHOW(request(INTERRUPT, pid, 0, 0));
    wait_for("interrupted", pid);
    show_information(pid);
    long rax = 0, call = 0;
    request(PEEKUSR, pid, offsetof(struct user, regs.rax), &rax);
    request(PEEKUSR, pid, offsetof(struct user, regs.orig_rax), &call);
    printf("rax %ld call %ld\n", rax, call);
    SHOW(request(CONT, pid, 0, 0));
    wait_state(pid, "S");

    puts("-- its process stops");
    kill(pid, SIGSTOP);
    wait_for("signal", pid);
    SHOW(request(LISTEN, pid, 0, 0));
    request(CONT, pid, 0, SIGSTOP);
    wait_for("stop", pid);
    show_information(pid);
    SHOW(request(LISTEN, pid, 0, 0));
    SHOW(request(CONT, pid, 0, 0));
    SHOW(waitpid(pid, NULL, WNOHANG | __WALL));
    SHOW(request(INTERRUPT, pid, 0, 0));
    wait_for("interrupted in it", pid);
    SHOW(request(LISTEN, pid, 0, 0));
    kill(pid, SIGCONT);
    wait_for("continued", pid);
    show_information(pid);
    request(CONT, pid, 0, 0);
    wait_for("signal", pid);
    request(CONT, pid, 0, SIGCONT);
    wait_state(pid, "S");

    puts("-- it runs although its process is stopped");
    kill(pid, SIGTSTP);
    wait_for("signal", pid);
    request(CONT, pid, 0, SIGTSTP);
    wait_for("stop", pid);
    SHOW(request(CONT, pid, 0, 0));
    wait_state(pid, "S");
    tell(ends[1]);
    wait_for("end", pid);

    puts("-- seized in a stop");
    pid = CHILD({
        raise(SIGSTOP);
        _exit(2);
    });
    int status;
    SHOW(waitpid(pid, &status, WUNTRACED) == pid);
    SHOW(request(SEIZE, pid, 0, 0));
    wait_for("stopped", pid);
    show_information(pid);
    SHOW(request(DETACH, pid, 0, 0));
    TRUE(wait_state(pid, "T"));
    kill(pid, SIGCONT);
    wait_for("end", pid);
}

static void threads(void)
{
    puts("-- threads");
    int ready[2];
    pipe(ready);
    pid_t pid = CHILD({
        raise(SIGSTOP);
        pthread_t one;
        pthread_t two;
        pthread_create(&one, NULL, sleeper, NULL);
        pthread_create(&two, NULL, sleeper, NULL);
        tell(ready[1]);
        pause();
    });
    int status;
    waitpid(pid, &status, WUNTRACED);
    SHOW(request(SEIZE, pid, 0, CLONE | EXIT));
    wait_for("stopped", pid);
    kill(pid, SIGCONT);
    request(CONT, pid, 0, 0);
    wait_for("continued", pid);
    request(CONT, pid, 0, 0);
    wait_for("signal", pid);
    request(CONT, pid, 0, 0);
    unsigned long thread[2];
    for (int i = 0; i < 2; i++) {
        wait_for("leader", pid);
        request(GETEVENTMSG, pid, 0, &thread[i]);
        wait_for("thread", thread[i]);
        SHOW(request(CONT, thread[i], 0, 0));
        request(CONT, pid, 0, 0);
    }
    hear(ready[0]);
    SHOW(request(INTERRUPT, thread[1], 0, 0));
    wait_for("thread", thread[1]);
    /* Only who traces a thread waits for it by its number. */
    SHOW(waitpid(thread[0], &status, WNOHANG | __WALL));
    SHOW(waitpid(thread[0], &status, WNOHANG));
    SHOW(request(DETACH, thread[1], 0, 0));
    SHOW(waitpid(thread[1], &status, WNOHANG | __WALL));
    kill(pid, SIGKILL);
    wait_for("the first thread", thread[0]);
    request(CONT, thread[0], 0, 0);
    wait_for("the first thread", thread[0]);
    wait_for("the leader", pid);
    request(CONT, pid, 0, 0);
    wait_for("the leader", pid);
}

static void execution(void)
{
    puts("-- execve by another thread than the leader");
    pid_t pid = CHILD({
        raise(SIGSTOP);
        pthread_t one;
        pthread_create(&one, NULL, executes, NULL);
        pause();
    });
    int status;
    waitpid(pid, &status, WUNTRACED);
    request(SEIZE, pid, 0, CLONE | EXEC);
    wait_for("stopped", pid);
    kill(pid, SIGCONT);
    request(CONT, pid, 0, 0);
    wait_for("continued", pid);
    request(CONT, pid, 0, 0);
    wait_for("signal", pid);
    request(CONT, pid, 0, 0);
    wait_for("clone", pid);
    unsigned long thread = 0, former = 0;
    request(GETEVENTMSG, pid, 0, &thread);
    wait_for("thread", thread);
    request(CONT, pid, 0, 0);
    wait_state(pid, "S");
    request(CONT, thread, 0, 0);
    wait_for("it is the leader now", pid);
    SHOW(request(GETEVENTMSG, pid, 0, &former));
    TRUE(former == thread);
    SHOW(waitpid(thread, &status, WNOHANG | __WALL));
    request(CONT, pid, 0, 0);
    wait_for("end", pid);
}

static void children(void)
{
    puts("-- children of those that are seized");
    pid_t pid = CHILD({
        raise(SIGSTOP);
        pid_t child = fork();
        if (child == 0)
            _exit(4);
        waitpid(child, NULL, 0);
        _exit(5);
    });
    int status;
    waitpid(pid, &status, WUNTRACED);
    SHOW(request(SEIZE, pid, 0, FORK | SYSGOOD));
    wait_for("stopped", pid);
    kill(pid, SIGCONT);
    request(CONT, pid, 0, 0);
    wait_for("continued", pid);
    request(CONT, pid, 0, 0);
    wait_for("signal", pid);
    request(CONT, pid, 0, 0);
    wait_for("fork", pid);
    unsigned long child = 0;
    request(GETEVENTMSG, pid, 0, &child);
    wait_for("child", child);
    show_information(child);
    /* The end of the call in which it stands, although nobody wanted to know of its beginning. */
    request(CALL, pid, 0, 0);
    wait_for("end of the call", pid);
    long rax = 0;
    request(PEEKUSR, pid, offsetof(struct user, regs.rax), &rax);
    TRUE(rax == (long)child);
    request(CONT, pid, 0, 0);
    wait_state(pid, "S");
    request(CONT, child, 0, 0);
    wait_for("child", child);
    wait_for("signal", pid);
    request(CONT, pid, 0, SIGCHLD);
    wait_for("end", pid);
}

int main(int count, char **arguments)
{
    if (count > 1 && !strcmp(arguments[1], "sub"))
        return 8;
    orders();
    threads();
    execution();
    children();
    return 0;
}
