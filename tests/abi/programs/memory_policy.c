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

static int mode_at(void *at)
{
    int mode = -1;
    return get(&mode, NULL, 0, at, MPOL_F_ADDR) ? -errno : mode;
}

static void show_nodes(char *at)
{
    char line[512], start[32];
    snprintf(start, sizeof start, "%08lx ", (unsigned long)at);
    FILE *maps = fopen("/proc/self/numa_maps", "r");
    while (fgets(line, sizeof line, maps))
        if (!strncmp(line, start, strlen(start)))
            printf("numa_maps: %.*s\n", (int)strcspn(line + strlen(start), " \n"), line + strlen(start));
    fclose(maps);
}

static long home(void *at, unsigned long length, unsigned long node, unsigned long flags)
{
    return syscall(450, at, length, node, flags);
}

/* What is said of a range is told of its pages, and goes with them. */
static void kept(void)
{
    unsigned long first = 1, nodes = 7;
    int mode = -1;
    char *memory = mmap(NULL, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(memory + 7 * 4096, 4096);
    mprotect(memory, 4096, PROT_NONE);
    memory += 4096;
    SHOW(mode_at(memory));
    SHOW(mode_at(memory - 4096));
    SHOW(mode_at(memory + 6 * 4096));
    SHOW(home(memory, 4096, 0, 0));
    SHOW(binds(memory + 4096, 4096, MPOL_BIND, &first, 8, 0));
    SHOW(mode_at(memory));
    SHOW(mode_at(memory + 4096));
    SHOW(mode_at(memory + 8191));
    SHOW(mode_at(memory + 8192));
    SHOW(get(&mode, &nodes, 1024, memory + 4096, MPOL_F_ADDR));
    SHOW(nodes);
    SHOW(get(&mode, &nodes, 1024, memory, MPOL_F_ADDR));
    SHOW(nodes);
    SHOW(get(&mode, NULL, 0, memory + 4096, MPOL_F_ADDR | MPOL_F_NODE));
    SHOW(mode);
    SHOW(home(memory, 3 * 4096, 0, 0));
    SHOW(home(memory, 3 * 4096, 0, 1));
    SHOW(home(memory, 3 * 4096, 77, 0));
    SHOW(home(memory + 1, 3 * 4096, 0, 0));
    SHOW(home(memory + 4096, 0, 0, 0));
    SHOW(home(memory + 4096, -4096ul, 0, 0));
    SHOW(home(memory + 4096, 1, 0, 0));
    SHOW(binds(memory + 8192, 4096, MPOL_INTERLEAVE | MPOL_F_STATIC_NODES, &first, 8, 0));
    SHOW(mode_at(memory + 8192) == (MPOL_INTERLEAVE | MPOL_F_STATIC_NODES));
    SHOW(home(memory, 5 * 4096, 0, 0));
    SHOW(binds(memory + 3 * 4096, 4096, MPOL_PREFERRED, &first, 8, 0));
    SHOW(mode_at(memory + 3 * 4096));
    SHOW(binds(memory + 4 * 4096, 4096, MPOL_LOCAL, NULL, 0, 0));
    SHOW(mode_at(memory + 4 * 4096));
    memset(memory, 1, 6 * 4096);
    for (int page = 0; page < 5; page++)
        show_nodes(memory + page * 4096);
    /* It goes with the pages, to a child and to another place. */
    REAP(CHILD({ SHOW(mode_at(memory + 4096)); SHOW(mode_at(memory)); }));
    char *moved = mremap(memory + 4096, 4096, 8192, MREMAP_MAYMOVE);
    SHOW(mode_at(moved));
    SHOW(mode_at(moved + 4096));
    SHOW(mode_at(memory + 4096));
    /* Ranges with holes. */
    SHOW(binds(memory, 4 * 4096, MPOL_BIND, &first, 8, 0));
    SHOW(mode_at(memory));
    SHOW(binds(memory + 5 * 4096, 2 * 4096, MPOL_BIND, &first, 8, 0));
    SHOW(binds(memory + 4096, 2 * 4096, MPOL_BIND, &first, 8, 0));
    SHOW(binds(memory + 4096, 4096, MPOL_BIND, &first, 8, 0));
    SHOW(binds(memory + 4096, 4096, MPOL_DEFAULT, NULL, 0, 0));
    SHOW(binds(memory, 4 * 4096, MPOL_DEFAULT, NULL, 0, 0));
    SHOW(mode_at(memory + 8192));
    SHOW(binds(memory, -4096ul, MPOL_BIND, &first, 8, 0));
    SHOW(binds(memory, 1ul << 50, MPOL_BIND, &first, 8, 0));
    REAP(CHILD({ setuid(12345); SHOW(binds(memory, 4096, MPOL_BIND, &first, 8, MPOL_MF_MOVE_ALL)); }));
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
    kept();
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
