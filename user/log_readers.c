/* Who may read the kernel's log: with kernel.dmesg_restrict, which is on at first, only who has CAP_SYSLOG or CAP_SYS_ADMIN. Who writes to it need not.
 *
 * abi: guest
 * abi: alone
 */
#include "guest.h"

#define RESTRICT "/proc/sys/kernel/dmesg_restrict"
enum { READ_ALL = 3, SIZE_UNREAD = 9, SIZE_BUFFER = 10 };

/* 0 or errno. */
static int set(const char *text)
{
    int file = open(RESTRICT, O_WRONLY);
    if (file < 0)
        return errno;
    int error = write(file, text, strlen(text)) < 0 ? errno : 0;
    close(file);
    return error;
}

static int ask(int action)
{
    static char buffer[4096];
    return syscall(SYS_syslog, action, buffer, sizeof buffer) < 0 ? errno : 0;
}

static int open_log(int flags)
{
    int file = open("/dev/kmsg", flags);
    if (file < 0)
        return errno;
    close(file);
    return 0;
}

/* What somebody without capabilities is told. */
static void others(int readable)
{
    int refused = readable ? 0 : EPERM;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (setgid(1000) || setuid(1000))
            _exit(2);
        EXPECT(ask(READ_ALL) == refused, "restricted: %d", !readable);
        EXPECT(ask(SIZE_BUFFER) == refused, "restricted: %d", !readable);
        EXPECT(ask(SIZE_UNREAD) == EPERM, "restricted: %d", !readable);
        EXPECT(open_log(O_RDONLY | O_NONBLOCK) == refused, "restricted: %d", !readable);
        EXPECT(open_log(O_WRONLY) == EACCES, "the mode is in the way");
        EXPECT(set("0") == EACCES, "the mode is in the way");
        fflush(stdout);
        _exit(verdict_failed);
    }
    int status = 0;
    EXPECT(waitpid(child, &status, 0) == child && status == 0, "status %#x", status);
}

int main(void)
{
    EXPECT(*contents_of(RESTRICT) == '1', "it is on at first");
    EXPECT(ask(READ_ALL) == 0 && ask(SIZE_UNREAD) == 0 && open_log(O_RDONLY) == 0, "the superuser reads");
    others(0);
    EXPECT(set("2") == EINVAL && set("-1") == EINVAL && set("x") == EINVAL, "it is a switch");
    EXPECT(set("0") == 0, "it can be switched off");
    others(1);
    /* Who has the file open but not the capability changes nothing. */
    int file = open(RESTRICT, O_WRONLY);
    pid_t child = fork();
    if (child == 0) {
        if (setgid(1000) || setuid(1000))
            _exit(2);
        _exit(write(file, "1", 1) == -1 && errno == EPERM ? 0 : 1);
    }
    int status = 0;
    EXPECT(waitpid(child, &status, 0) == child && status == 0, "status %#x", status);
    EXPECT(*contents_of(RESTRICT) == '0', "nothing has changed");
    EXPECT(set("1") == 0, "it can be switched on again");
    return verdict_failed;
}
