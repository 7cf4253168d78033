/* Filters that ask a tracer, and what a tracer sees of filters. */
#include "tracing.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

static void filter(void)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE | 99),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getuid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 7),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog all = { sizeof program / sizeof *program, program };
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &all) < 0)
        puts("no filter");
}

#define RAX offsetof(struct user, regs.rax)
#define CALL_NUMBER offsetof(struct user, regs.orig_rax)

int main(void)
{
    puts("-- nobody to ask");
    REAP(CHILD({
        filter();
        SHOW(syscall(SYS_getppid));
        SHOW(syscall(SYS_getuid));
    }));
    puts("-- a tracer");
    pid_t pid = CHILD({
        request(TRACEME, 0, 0, 0);
        filter();
        raise(SIGSTOP);
        long parent = syscall(SYS_getppid);
        long refused = syscall(SYS_getppid);
        long skipped = syscall(SYS_getppid);
        long changed = syscall(SYS_getppid);
        long ended = syscall(SYS_getppid);
        printf("%d %ld %ld %ld %d\n", parent == getppid(), refused, skipped, changed, ended > 0);
        fflush(stdout);
        SHOW(syscall(SYS_getppid));
    });
    wait_for("stop", pid);
    SHOW(request(SETOPTIONS, pid, 0, 0x80 | SYSGOOD));
    for (int i = 0; i < 5; i++) {
        request(CONT, pid, 0, 0);
        int status = wait_for("a call", pid);
        if (!WIFSTOPPED(status))
            return 1;
        unsigned long message = 0;
        request(GETEVENTMSG, pid, 0, &message);
        struct ptrace_syscall_info info;
        memset(&info, 0, sizeof info);
        long bytes = request(CALL_INFO, pid, sizeof info, &info);
        long rax = 0;
        request(PEEKUSR, pid, RAX, &rax);
        printf("message %lu, %ld bytes, operation %d, number %lld, data %u, rax %ld\n", message, bytes, info.op, info.seccomp.nr,
               info.seccomp.ret_data, rax);
        if (i == 0)
            show_information(pid);
        if (i == 1)
            /* The filter sees what has become of it. */
            request(POKEUSR, pid, CALL_NUMBER, SYS_getuid);
        if (i == 2) {
            request(POKEUSR, pid, CALL_NUMBER, -1);
            request(POKEUSR, pid, RAX, 4321);
        }
        if (i == 3)
            request(POKEUSR, pid, CALL_NUMBER, SYS_getgid);
        if (i == 4) {
            request(CALL, pid, 0, 0);
            wait_for("its end", pid);
            bytes = request(CALL_INFO, pid, sizeof info, &info);
            printf("operation %d\n", info.op);
        }
    }
    struct sock_filter seen[16];
    long count = request(GET_FILTER, pid, 0, NULL);
    printf("instructions %ld\n", count);
    SHOW(request(GET_FILTER, pid, 0, seen));
    printf("last %#x\n", seen[5].k);
    SHOW(request(GET_FILTER, pid, 1, seen));
    struct { uint64_t number, flags; } metadata = { 0, 9 };
    SHOW(request(GET_METADATA, pid, sizeof metadata, &metadata));
    printf("flags %lu\n", (long)metadata.flags);
    SHOW(request(GET_METADATA, pid, 4, &metadata));
    SHOW(request(SETOPTIONS, pid, 0, 0));
    request(CONT, pid, 0, 0);
    wait_for("end", pid);
    return 0;
}
