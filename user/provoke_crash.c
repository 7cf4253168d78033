/* provoke-crash/DIRECT: who exhausts its kernel stack or runs into a guard ends; everything else goes on.
 *
 * abi: guest
 * abi: alone
 */
#include "guest.h"

#define DEBUG "/sys/kernel/debug"

static int ask(const char *fault)
{
    int fd = open(DEBUG "/provoke-crash/DIRECT", O_WRONLY);
    ssize_t count = write(fd, fault, strlen(fault));
    close(fd);
    return count < 0 ? errno : 0;
}

/* The signal that ends a child that asks for this fault. The report goes to /proc/kstack_overflow only. */
static int ends_with(const char *fault)
{
    pid_t child = fork();
    if (child == 0) {
        int fd = open("/dev/kstack_test", O_RDONLY);
        ioctl(fd, 0x4b04, 1);
        _exit(ask(fault));
    }
    int status;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void *asks(void *fault)
{
    return (void *)(long)ends_with(fault);
}

int main(void)
{
    EXPECT(mount("debugfs", DEBUG, "debugfs", 0, NULL) == 0, "%s", ERRNO_NAME(errno));
    EXPECT(strstr(contents_of(DEBUG "/provoke-crash/DIRECT"), "\nEXHAUST_STACK\n"), "the names are not listed");
    EXPECT(ask("NO_SUCH_FAULT") == EINVAL, "an unknown name is taken");
    EXPECT(ask("REPORT_STACK\n") == 0, "%s", ERRNO_NAME(errno));
    static char *const faults[] = { "EXHAUST_STACK", "STACK_GUARD_PAGE_LEADING", "STACK_GUARD_PAGE_TRAILING" };
    for (int i = 0; i < 3; i++) {
        int signal = ends_with(faults[i]);
        const char *report = contents_of("/proc/kstack_overflow");
        printf("%s: signal %d\n%s", faults[i], signal, report);
        EXPECT(signal != 0, "%s does not end its process", faults[i]);
        EXPECT(strstr(report, i == 2 ? "kernel stack underflow: thread " : "kernel stack overflow: thread "), "no report");
        EXPECT(strstr(report, "kstack::exercise::"), "the report names no function");
    }
    pthread_t all[8];
    for (int i = 0; i < 8; i++)
        pthread_create(&all[i], NULL, asks, faults[i % 3]);
    for (int i = 0; i < 8; i++) {
        void *signal;
        pthread_join(all[i], &signal);
        EXPECT(signal, "%s beside others does not end its process", faults[i % 3]);
    }
    pid_t child = fork();
    if (child == 0) {
        if (setresuid(65534, 65534, 65534) != 0)
            _exit(0);
        _exit(access(DEBUG "/provoke-crash/DIRECT", F_OK) < 0 ? errno : 0);
    }
    int status;
    waitpid(child, &status, 0);
    EXPECT(WEXITSTATUS(status) == EACCES, "others than root may enter");
    /* The ended threads were in the midst of writing: what they held there nobody gives back. */
    EXPECT(umount2(DEBUG, MNT_DETACH) == 0, "%s", ERRNO_NAME(errno));
    return verdict_failed;
}
