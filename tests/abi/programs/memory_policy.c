/* Memory policies on one node, where pages are, adjustments of the clock, kinds of file systems, keys: what is refused, and what is told. */
#include "abi.h"
#include <linux/mempolicy.h>
#include <sys/timex.h>

static long set(int mode, const unsigned long *nodes, unsigned long most) { return syscall(SYS_set_mempolicy, mode, nodes, most); }
static long get(int *mode, unsigned long *nodes, unsigned long most, void *at, unsigned long flags)
{
    return syscall(SYS_get_mempolicy, mode, nodes, most, at, flags);
}
static long binds(void *at, unsigned long length, int mode, const unsigned long *nodes, unsigned long most, unsigned flags)
{
    return syscall(SYS_mbind, at, length, mode, nodes, most, flags);
}

static void policies(void)
{
    unsigned long first = 1, none = 0, other = 2, nodes = 0;
    int mode = -1;
    SHOW(get(&mode, NULL, 0, NULL, 0));
    SHOW(mode);
    SHOW(set(MPOL_BIND, &first, 8));
    SHOW(get(&mode, NULL, 0, NULL, 0));
    SHOW(mode);
    SHOW(set(MPOL_BIND, &none, 8));
    SHOW(set(MPOL_BIND, NULL, 0));
    SHOW(set(MPOL_BIND, &other, 8));
    SHOW(set(MPOL_INTERLEAVE, &first, 8));
    SHOW(set(MPOL_INTERLEAVE, &none, 8));
    SHOW(set(MPOL_DEFAULT, &first, 8));
    SHOW(set(MPOL_LOCAL, &first, 8));
    SHOW(set(99, &first, 8));
    SHOW(set(MPOL_BIND, (void *)8, 8));
    SHOW(set(MPOL_BIND, &first, 1ul << 40));
    SHOW(set(MPOL_PREFERRED, NULL, 0));
    SHOW(get(&mode, NULL, 0, NULL, 0));
    SHOW(mode == MPOL_LOCAL || mode == MPOL_PREFERRED);
    SHOW(set(MPOL_INTERLEAVE, &first, 8));
    fflush(stdout);
    pid_t child = CHILD({
        SHOW(get(&mode, NULL, 0, NULL, 0));
        SHOW(mode);
    });
    REAP(child);
    SHOW(set(MPOL_DEFAULT, NULL, 0));
    SHOW(get(&mode, NULL, 0, &mode, 0));
    SHOW(get(&mode, NULL, 0, NULL, 64));
    SHOW(get(&mode, NULL, 0, (void *)8, MPOL_F_ADDR));
    SHOW(get(&mode, NULL, 0, &mode, MPOL_F_ADDR));
    SHOW(get(&mode, NULL, 0, &mode, MPOL_F_ADDR | MPOL_F_NODE));
    SHOW(mode);
    unsigned long allowed[128] = { 0 };
    SHOW(get(NULL, allowed, 8 * sizeof allowed, NULL, MPOL_F_MEMS_ALLOWED));
    SHOW(allowed[0]);
    SHOW(get(NULL, &nodes, 0, NULL, MPOL_F_MEMS_ALLOWED));
}

static void ranges(void)
{
    unsigned long first = 1;
    char *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memory[0] = 1;
    SHOW(binds(memory, 8192, MPOL_BIND, &first, 8, 0));
    SHOW(binds(memory + 1, 8192, MPOL_BIND, &first, 8, 0));
    SHOW(binds(memory, 8192, MPOL_BIND, NULL, 0, 0));
    SHOW(binds(memory, 8192, 99, &first, 8, 0));
    SHOW(binds(memory, 8192, MPOL_BIND, &first, 8, 1u << 20));
    SHOW(binds(memory, 0, MPOL_DEFAULT, NULL, 0, 0));
    void *pages[1] = { memory };
    int status[1] = { -1 }, node[1] = { 0 }, far[1] = { 5 };
    SHOW(syscall(SYS_move_pages, 0, 1ul, pages, NULL, status, 0));
    SHOW(status[0]);
    SHOW(syscall(SYS_move_pages, 0, 1ul, pages, node, status, MPOL_MF_MOVE));
    SHOW(status[0]);
    SHOW(syscall(SYS_move_pages, 0, 1ul, pages, far, status, MPOL_MF_MOVE));
    SHOW(syscall(SYS_move_pages, 0, 1ul, pages, NULL, status, 64));
    SHOW(syscall(SYS_migrate_pages, 0, 8ul, &first, &first));
}

static void ignored(int number)
{
    (void)number;
}

/* A signal does not end a call that moves pages. */
static void moves_under_signals(void)
{
    enum { PAGES = 256 };
    static void *pages[PAGES];
    static int status[PAGES];
    char *memory = mmap(NULL, PAGES * 4096ul, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < PAGES; i++)
        pages[i] = memory + i * 4096;
    memset(memory, 1, PAGES * 4096ul);
    signal(SIGALRM, ignored);
    struct itimerval often = { { 0, 200 }, { 0, 200 } }, never = { 0 };
    setitimer(ITIMER_REAL, &often, NULL);
    long refused = 0;
    for (int i = 0; i < 300; i++)
        refused += syscall(SYS_move_pages, 0, (unsigned long)PAGES, pages, NULL, status, 0) != 0;
    setitimer(ITIMER_REAL, &never, NULL);
    SHOW(refused);
    munmap(memory, PAGES * 4096ul);
}

static void clocks(void)
{
    struct timex t = { 0 };
    int state = adjtimex(&t);
    TRUE(state >= 0);
    SHOW(t.tick);
    SHOW(t.precision);
    TRUE(t.time.tv_sec > 1000000000);
    SHOW(syscall(SYS_adjtimex, NULL));
    SHOW(syscall(SYS_clock_adjtime, 9999, &t));
    pid_t child = CHILD({
        OK(setuid(12345));
        t.modes = ADJ_STATUS;
        SHOW(adjtimex(&t));
        t.modes = 0;
        TRUE(clock_adjtime(CLOCK_REALTIME, &t) >= 0);
    });
    REAP(child);
}

int main(void)
{
    policies();
    ranges();
    moves_under_signals();
    clocks();
    SHOW(syscall(SYS_sysfs, 1, "no such kind"));
    SHOW(syscall(SYS_sysfs, 9));
    TRUE(syscall(SYS_sysfs, 3) > 3);
    long tmpfs = syscall(SYS_sysfs, 1, "tmpfs");
    char name[64] = "";
    SHOW(syscall(SYS_sysfs, 2, tmpfs, name));
    printf("%s\n", name);
    SHOW(syscall(SYS_pkey_alloc, 1ul, 0ul));
    SHOW(syscall(SYS_pkey_alloc, 0ul, 64ul));
    return 0;
}
