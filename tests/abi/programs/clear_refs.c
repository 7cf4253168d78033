/* /proc/PID/clear_refs: which pages count as used, and the peak of memory, begin anew. */
#include "abi.h"

enum { PAGES = 8, BYTES = PAGES * 4096 };

static char *own, *of_file;

static int put(const char *words)
{
    int fd = open("/proc/self/clear_refs", O_WRONLY);
    int result = write(fd, words, strlen(words));
    close(fd);
    return result;
}

/* Kilobytes behind a name: of the region that begins at an address in smaps, or in status. */
static long amount(const char *file, const void *region, const char *name)
{
    char line[512];
    long found = -1;
    int is_there = region == NULL;
    FILE *lines = fopen(file, "r");
    while (found < 0 && fgets(line, sizeof line, lines)) {
        unsigned long start, end;
        char rest;
        if (region && sscanf(line, "%lx-%lx%c", &start, &end, &rest) == 3)
            is_there = start == (unsigned long)region;
        else if (is_there && !strncmp(line, name, strlen(name)))
            found = atol(line + strlen(name) + 1);
    }
    fclose(lines);
    return found;
}

static long used(const char *region) { return amount("/proc/self/smaps", region, "Referenced:"); }

/* Uses the pages, and has the processors forget that they knew them. */
static void use(char *region, int pages)
{
    mprotect(region, BYTES, PROT_NONE);
    mprotect(region, BYTES, PROT_READ);
    for (int i = 0; i < pages; i++)
        (void)((volatile char *)region)[i * 4096];
}

static void regions(void)
{
    int fd = open("clear_refs", O_RDWR | O_CREAT, 0644);
    SHOW(ftruncate(fd, BYTES));
    /* Apart from their neighbours by what may be done with them. */
    own = mmap(NULL, BYTES + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    own += 4096;
    mprotect(own, BYTES, PROT_READ | PROT_WRITE);
    memset(own, 1, BYTES);
    of_file = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
    for (const char *words = "1"; words; words = *words == '1' ? "2" : *words == '2' ? "3" : *words == '3' ? "4" : NULL) {
        use(own, PAGES), use(of_file, PAGES);
        printf("used %ld %ld\n", used(own), used(of_file));
        printf("put %s: %d\n", words, put(words));
        printf("used %ld %ld\n", used(own), used(of_file));
        use(own, 3), use(of_file, 5);
        printf("used again %ld %ld\n", used(own), used(of_file));
        SHOW(amount("/proc/self/smaps", own, "Rss:"));
    }
    TRUE(own[0] == 1 && own[BYTES - 1] == 1);
    /* Nothing is told of pages that were written to. */
    uint64_t entry = 0;
    int map = open("/proc/self/pagemap", O_RDONLY);
    pread(map, &entry, 8, (unsigned long)own / 4096 * 8);
    SHOW((entry >> 63) & 1);
    SHOW((entry >> 55) & 1);
    close(map), close(fd);
}

static void peak(void)
{
    long length = 16 << 20;
    char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 1, length);
    munmap(memory, length);
    long before = amount("/proc/self/status", NULL, "VmHWM:");
    SHOW(put("5"));
    long after = amount("/proc/self/status", NULL, "VmHWM:");
    TRUE(before >= length / 1024);
    TRUE(after < before - length / 2048);
    TRUE(amount("/proc/self/status", NULL, "VmHWM:") >= amount("/proc/self/status", NULL, "VmRSS:"));
}

static void refusals(void)
{
    static const char *const words[] = { "0", "6", "-1", "x", " 2 \n", "3\n", "99999999999", "1 2", "0x1" };
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
        SHOW(put(words[i]));
    char byte;
    struct stat status;
    SHOW(read(open("/proc/self/clear_refs", O_RDONLY), &byte, 1));
    stat("/proc/self/clear_refs", &status);
    printf("%o\n", status.st_mode);
    OK(access("/proc/self/task/self/clear_refs", F_OK));
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/clear_refs", getpid());
    OK(access(path, F_OK));
    REAP(CHILD({
        snprintf(path, sizeof path, "/proc/%d/clear_refs", getppid());
        OK(setuid(12345));
        OK(open(path, O_WRONLY));
    }));
    pid_t gone = CHILD();
    snprintf(path, sizeof path, "/proc/%d/clear_refs", gone);
    int fd = open(path, O_WRONLY);
    REAP(gone);
    SHOW(write(fd, "1", 1));
}

int main(void)
{
    regions();
    peak();
    refusals();
    return 0;
}
