/* What every program of the ABI tests includes: the headers, and macros that print a call as it is written with its
 * result, so that a line of output explains itself and the host's output is the expectation.
 *
 *   SHOW(expr)    "expr = 3" or "expr = -1 ENOENT"
 *   OK(expr)      "expr: ok" or "expr: ENOENT"; for results that differ between runs (addresses, process ids)
 *   TRUE(expr)    "expr: yes" or "expr: no"
 *   CHILD(body)   forks a process that runs the body and exits with 0
 *   REAP(pid)     waits for it and prints how it ended
 */
#ifndef ABI_H
#define ABI_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/param.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <termios.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define ERRNO_NAME(number) (strerrorname_np(number) ? strerrorname_np(number) : "?")

#define SHOW(...)                                                                                                      \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        long result_ = (long)(__VA_ARGS__);                                                                                   \
        int error_ = errno;                                                                                            \
        if (result_ == -1)                                                                                             \
            printf("%s = -1 %s\n", #__VA_ARGS__, ERRNO_NAME(error_));                                                         \
        else                                                                                                           \
            printf("%s = %ld\n", #__VA_ARGS__, result_);                                                                      \
    } while (0)

#define OK(...)                                                                                                        \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        long result_ = (long)(__VA_ARGS__);                                                                                   \
        int error_ = errno;                                                                                            \
        printf("%s: %s\n", #__VA_ARGS__, result_ == -1 ? ERRNO_NAME(error_) : "ok");                                          \
    } while (0)

#define TRUE(...) printf("%s: %s\n", #__VA_ARGS__, (__VA_ARGS__) ? "yes" : "no")

/* A call whose result is an error number (pthread functions). */
#define CODE(...)                                                                                                      \
    do {                                                                                                               \
        int code_ = (__VA_ARGS__);                                                                                            \
        printf("%s: %s\n", #__VA_ARGS__, code_ ? ERRNO_NAME(code_) : "ok");                                                   \
    } while (0)

#define CHILD(...)                                                                                                     \
    ({                                                                                                                 \
        fflush(stdout);                                                                                                \
        pid_t child_ = fork();                                                                                         \
        if (child_ == 0) {                                                                                             \
            __VA_ARGS__;                                                                                                      \
            fflush(stdout);                                                                                            \
            _exit(0);                                                                                                  \
        }                                                                                                              \
        child_;                                                                                                        \
    })

#define REAP(...) reap_(#__VA_ARGS__, __VA_ARGS__)

static inline const char *signal_name(int number)
{
    static char text[4][24];
    static int turn;
    char *name = text[turn++ % 4];
    if (sigabbrev_np(number))
        snprintf(name, sizeof text[0], "SIG%s", sigabbrev_np(number));
    else
        snprintf(name, sizeof text[0], "signal %d", number);
    return name;
}

static inline const char *how_ended(int status)
{
    static char text[80];
    if (WIFEXITED(status))
        snprintf(text, sizeof text, "exited %d", WEXITSTATUS(status));
    else if (WIFSIGNALED(status))
        snprintf(text, sizeof text, "killed by %s%s", signal_name(WTERMSIG(status)),
                 WCOREDUMP(status) ? " (core)" : "");
    else if (WIFSTOPPED(status))
        snprintf(text, sizeof text, "stopped by %s", signal_name(WSTOPSIG(status)));
    else if (WIFCONTINUED(status))
        snprintf(text, sizeof text, "continued");
    else
        snprintf(text, sizeof text, "status %#x", status);
    return text;
}

static inline void reap_(const char *words, pid_t pid)
{
    int status = 0;
    pid_t found;
    do
        found = waitpid(pid, &status, 0);
    while (found < 0 && errno == EINTR);
    if (found < 0)
        printf("%.70s: %s\n", words, ERRNO_NAME(errno));
    else
        printf("%.70s: %s\n", words, how_ended(status));
}

/* A pause for another thread or process to get somewhere; never what a result depends on being long enough. */
static inline void pause_ms(int milliseconds)
{
    struct timespec wanted = { milliseconds / 1000, milliseconds % 1000 * 1000000l };
    while (nanosleep(&wanted, &wanted) < 0 && errno == EINTR)
        ;
}

static inline long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000ll + now.tv_nsec / 1000000;
}

/* Times that one looks for what must happen, with at least a millisecond between: a busy host may take a processor away for seconds, and
 * what never happens hangs, which the case's time limit tells. */
#define LOOKS 100000

/* Waits until a process is in one of these states ("S", "T", "Z"...), read from /proc; false if it has ended and never will be. */
static inline int wait_state(pid_t pid, const char *states)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    for (int tries = 0; tries < LOOKS; tries++) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return 0;
        ssize_t count = read(fd, text, sizeof text - 1);
        close(fd);
        if (count > 0) {
            text[count] = 0;
            char *end = strrchr(text, ')');
            if (end && end[1] && strchr(states, end[2]))
                return 1;
            if (end && end[1] && end[2] == 'Z')
                return 0;
        }
        pause_ms(1);
    }
    return 0;
}

/* One byte through a pipe: "I am there". */
static inline void tell(int fd)
{
    char byte = 1;
    while (write(fd, &byte, 1) < 0 && errno == EINTR)
        ;
}

static inline int hear(int fd)
{
    char byte;
    ssize_t count;
    do
        count = read(fd, &byte, 1);
    while (count < 0 && errno == EINTR);
    return count == 1;
}

static inline void put_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        printf("cannot write %s: %s\n", path, ERRNO_NAME(errno));
    close(fd);
}

static inline const char *get_text(const char *path)
{
    static char text[65536];
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return ERRNO_NAME(errno);
    size_t used = 0;
    ssize_t count;
    while (used < sizeof text - 1 && (count = read(fd, text + used, sizeof text - 1 - used)) > 0)
        used += count;
    close(fd);
    text[used] = 0;
    return text;
}
#endif
