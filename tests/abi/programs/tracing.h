#ifndef ABI_TRACING_H
#define ABI_TRACING_H
/* What programs about ptrace(2) share: requests by name, which must not go through the C library, and statuses in words. */
#include "abi.h"
#include <linux/ptrace.h>
#include <sys/user.h>
#undef PTRACE_GETREGS
#define request(what, pid, address, data) syscall(SYS_ptrace, (long)(what), (long)(pid), (long)(address), (long)(data))

enum {
    TRACEME, PEEKTEXT, PEEKDATA, PEEKUSR, POKETEXT, POKEDATA, POKEUSR, CONT, KILL, SINGLESTEP, GETREGS = 12, SETREGS, GETFPREGS,
    SETFPREGS, ATTACH, DETACH, CALL = 24, EMULATE = 31,
    SETOPTIONS = 0x4200, GETEVENTMSG, GETSIGINFO, SETSIGINFO, GETREGSET, SETREGSET, SEIZE, INTERRUPT, LISTEN, PEEKSIGINFO,
    GETSIGMASK, SETSIGMASK, GET_FILTER, GET_METADATA, CALL_INFO, RSEQ
};
enum { SYSGOOD = 1, FORK = 2, VFORK = 4, CLONE = 8, EXEC = 16, VFORKDONE = 32, EXIT = 64, EXITKILL = 1 << 20 };

static inline const char *status_text(int status)
{
    static char text[4][96];
    static int turn;
    char *to = text[turn++ % 4];
    if (WIFSTOPPED(status) && status >> 8 != WSTOPSIG(status))
        snprintf(to, 96, "stopped by %s, event %d", signal_name(WSTOPSIG(status) & 0x7f), status >> 16);
    else
        snprintf(to, 96, "%s", how_ended(status));
    if (WIFSTOPPED(status) && WSTOPSIG(status) & 0x80)
        snprintf(to, 96, "stopped at a call");
    return to;
}

static inline int wait_for(const char *what, pid_t pid)
{
    int status = 0;
    pid_t got;
    do
        got = waitpid(pid, &status, __WALL);
    while (got < 0 && errno == EINTR);
    printf("%s: %s\n", what, got < 0 ? ERRNO_NAME(errno) : status_text(status));
    return status;
}

static inline void show_information(pid_t pid)
{
    siginfo_t information;
    memset(&information, 0, sizeof information);
    if (request(GETSIGINFO, pid, 0, &information) < 0)
        printf("  information: %s\n", ERRNO_NAME(errno));
    else
        printf("  information: signal %d code %#x errno %d\n", information.si_signo, information.si_code, information.si_errno);
}
#endif
