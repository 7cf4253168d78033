/* What prctl does for those who have CAP_SYS_RESOURCE, which a host need not give: PR_SET_MM of one field (see prctl_memory for the rest), and
 * PR_SET_IO_FLUSHER.
 *
 * abi: guest
 */
#include "guest.h"
#include <linux/auxvec.h>
#include <linux/prctl.h>

/* Fields of /proc/PID/stat by their numbers in proc(5). */
enum { START_CODE = 26, END_CODE, START_STACK, START_DATA = 45, END_DATA, START_BRK, ARG_START, ARG_END, ENV_START, ENV_END };

static unsigned long stat_field(int wanted)
{
    const char *at = strrchr(get_text("/proc/self/stat"), ')') + 1;
    for (int field = 3; field < wanted; field++)
        at = strchr(at + 1, ' ');
    return strtoul(at, NULL, 10);
}

/* What setting it says: 0, or the error. */
static int set(int what, unsigned long address)
{
    return prctl(PR_SET_MM, what, address, 0, 0) ? errno : 0;
}

#define GIVES(expected, what, address)                                                                                 \
    do {                                                                                                               \
        int result_ = set(what, address);                                                                              \
        EXPECT(result_ == expected, "%s", result_ ? ERRNO_NAME(result_) : "0");                                        \
    } while (0)

static void refusals(void)
{
    unsigned long brk = syscall(SYS_brk, 0);
    GIVES(EINVAL, 0, brk);
    GIVES(EINVAL, 16, brk);
    GIVES(EINVAL, PR_SET_MM_BRK, 0);
    GIVES(EINVAL, PR_SET_MM_BRK, 0xffff);
    GIVES(EINVAL, PR_SET_MM_BRK, 0x7ffffffff000);
    GIVES(EINVAL, PR_SET_MM_BRK, -1ul);
    GIVES(EINVAL, PR_SET_MM_BRK, stat_field(START_BRK) - 1);
    GIVES(EINVAL, PR_SET_MM_START_BRK, brk + 1);
    GIVES(EINVAL, PR_SET_MM_START_CODE, stat_field(END_CODE));
    GIVES(EINVAL, PR_SET_MM_START_DATA, stat_field(END_DATA) + 1);
    GIVES(EINVAL, PR_SET_MM_END_DATA, stat_field(START_DATA) - 1);
    GIVES(EINVAL, PR_SET_MM_ARG_START, stat_field(ARG_END) + 1);
    GIVES(EINVAL, PR_SET_MM_ENV_END, stat_field(ENV_START) - 1);
    /* No memory at or above it, where there must be some. */
    GIVES(EFAULT, PR_SET_MM_ENV_END, 0x7fffffffe000);
    GIVES(EFAULT, PR_SET_MM_ARG_END, 0x7fffffffe000);
    GIVES(EFAULT, PR_SET_MM_START_STACK, 0x7fffffffe000);
    unsigned long end = stat_field(END_DATA);
    GIVES(0, PR_SET_MM_END_DATA, 0x7fffffffe000);
    GIVES(0, PR_SET_MM_END_DATA, end);
    struct rlimit limit, none = { 0, RLIM_INFINITY };
    getrlimit(RLIMIT_DATA, &limit);
    setrlimit(RLIMIT_DATA, &none);
    GIVES(EINVAL, PR_SET_MM_START_STACK, stat_field(START_STACK));
    setrlimit(RLIMIT_DATA, &limit);
    GIVES(0, PR_SET_MM_START_STACK, stat_field(START_STACK));
}

static void fields(void)
{
    static const struct { int what, number; long by; } all[] = {
        { PR_SET_MM_START_CODE, START_CODE, 8 }, { PR_SET_MM_END_CODE, END_CODE, -8 },
        { PR_SET_MM_START_DATA, START_DATA, 8 }, { PR_SET_MM_END_DATA, END_DATA, 4096 },
        { PR_SET_MM_START_BRK, START_BRK, -4096 }, { PR_SET_MM_START_STACK, START_STACK, -4096 },
        { PR_SET_MM_ARG_START, ARG_START, 1 }, { PR_SET_MM_ARG_END, ARG_END, -1 },
        { PR_SET_MM_ENV_START, ENV_START, 1 }, { PR_SET_MM_ENV_END, ENV_END, -1 },
    };
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        unsigned long before = stat_field(all[i].number);
        GIVES(0, all[i].what, before + all[i].by);
        EXPECT(stat_field(all[i].number) == before + all[i].by, "field %d", all[i].number);
        GIVES(0, all[i].what, before);
        EXPECT(stat_field(all[i].number) == before, "field %d", all[i].number);
    }
    unsigned long brk = syscall(SYS_brk, 0);
    GIVES(0, PR_SET_MM_BRK, brk + 12345);
    EXPECT(syscall(SYS_brk, 0) == (long)brk + 12345, "the break has not moved");
    GIVES(0, PR_SET_MM_BRK, brk);
}

static uint64_t words[128];

static int vector(void)
{
    int fd = open("/proc/self/auxv", O_RDONLY);
    ssize_t count = read(fd, words, sizeof words);
    close(fd);
    return count / 8;
}

static void auxiliary(void)
{
    uint64_t own[] = { AT_UID, 77, AT_PAGESZ, 4096, AT_NULL, 0, AT_GID, 3 }, before[2];
    vector();
    memcpy(before, words + 2, 16);
    /* Only what is given is replaced. */
    EXPECT(prctl(PR_SET_MM, PR_SET_MM_AUXV, own, 16, 0) == 0, "%s", ERRNO_NAME(errno));
    EXPECT(vector() > 20 && !memcmp(own, words, 16) && !memcmp(before, words + 2, 16), "%lu %lu", words[0], words[1]);
    EXPECT(prctl(PR_SET_MM, PR_SET_MM_AUXV, own, sizeof own, 0) == 0, "%s", ERRNO_NAME(errno));
    EXPECT(vector() == 6 && !memcmp(own, words, 48), "%lu %lu", words[0], words[1]);
    EXPECT(prctl(PR_SET_MM, PR_SET_MM_AUXV, own, 0, 0) == 0, "%s", ERRNO_NAME(errno));
    EXPECT(vector() == 6, "%lu %lu", words[0], words[1]);
    EXPECT(prctl(PR_SET_MM, PR_SET_MM_AUXV, own, 1 << 16, 0) < 0 && errno == EINVAL, "%s", ERRNO_NAME(errno));
    EXPECT(prctl(PR_SET_MM, PR_SET_MM_AUXV, 8, 16, 0) < 0 && errno == EFAULT, "%s", ERRNO_NAME(errno));
}

static void file(void)
{
    GIVES(EBADF, PR_SET_MM_EXE_FILE, -1);
    GIVES(EACCES, PR_SET_MM_EXE_FILE, open("/", O_RDONLY));
    GIVES(EBUSY, PR_SET_MM_EXE_FILE, open("/proc/self/exe", O_RDONLY));
}

static int flusher(int option, unsigned long value, unsigned long rest)
{
    int result = prctl(option, value, rest, 0, 0);
    return result < 0 ? -errno : result;
}

static void flushers(void)
{
    enum { SET = 57, GET = 58 };
    EXPECT(flusher(GET, 0, 0) == 0, "%d", flusher(GET, 0, 0));
    EXPECT(flusher(GET, 1, 0) == -EINVAL, "%d", flusher(GET, 1, 0));
    EXPECT(flusher(GET, 0, 1) == -EINVAL, "%d", flusher(GET, 0, 1));
    EXPECT(flusher(SET, 2, 0) == -EINVAL, "%d", flusher(SET, 2, 0));
    EXPECT(flusher(SET, 1, 1) == -EINVAL, "%d", flusher(SET, 1, 1));
    EXPECT(flusher(SET, 1, 0) == 0, "%s", ERRNO_NAME(errno));
    EXPECT(flusher(GET, 0, 0) == 1, "%d", flusher(GET, 0, 0));
    /* A child is what its parent is. */
    pid_t child = fork();
    if (child == 0)
        _exit(flusher(GET, 0, 0) == 1 && flusher(SET, 0, 0) == 0 && flusher(GET, 0, 0) == 0);
    int status = 0;
    EXPECT(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 1, "status %x", status);
    EXPECT(flusher(SET, 0, 0) == 0 && flusher(GET, 0, 0) == 0, "%s", ERRNO_NAME(errno));
}

int main(void)
{
    refusals();
    fields();
    file();
    auxiliary();
    flushers();
    return verdict_failed;
}
