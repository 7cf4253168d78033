/* /proc/PID/mem and pagemap, names and scores that can be written, and what a set-id file keeps of its mode. */
#include "abi.h"

static void own_memory(void)
{
    char *area = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(area + 3 * 4096, 4096);
    strcpy(area, "as it was");
    strcpy(area + 4096 - 2, "over two pages");
    int fd = open("/proc/self/mem", O_RDWR);
    TRUE(fd >= 0);
    char text[64] = "";
    SHOW(pread(fd, text, 10, (off_t)area));
    printf("%s\n", text);
    SHOW(pread(fd, text, 20, (off_t)area + 4094));
    printf("%s\n", text);
    SHOW(pwrite(fd, "changed", 8, (off_t)area));
    printf("%s\n", area);
    SHOW(lseek(fd, (off_t)area, SEEK_SET) == (off_t)area);
    SHOW(read(fd, text, 8));
    SHOW(lseek(fd, 0, SEEK_CUR) == (off_t)area + 8);
    SHOW(lseek(fd, 0, SEEK_END));
    SHOW(pread(fd, text, 1, 0));
    SHOW(pwrite(fd, text, 1, 0));
    SHOW(pread(fd, text, 64, (off_t)area + 3 * 4096 - 10));
    SHOW(pread(fd, text, 0, 0));
    SHOW(pread(fd, (void *)8, 10, (off_t)area));
    SHOW(ftruncate(fd, 0));
    struct stat about;
    fstat(fd, &about);
    printf("%o %ld\n", about.st_mode, (long)about.st_size);
    pid_t child = CHILD({
        /* The parent's memory through a descriptor that was inherited, not the child's own. */
        strcpy(area, "child");
        SHOW(pread(fd, text, 8, (off_t)area));
        printf("%s\n", text);
    });
    REAP(child);
    close(fd);
}

static void of_others(void)
{
    char path[64], text[16] = "";
    char *area = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    strcpy(area, "parent");
    int ready[2];
    pipe(ready);
    pid_t child = CHILD({
        strcpy(area, "child");
        tell(ready[1]);
        while (strcmp(area, "told"))
            pause_ms(1);
        printf("the child was told\n");
    });
    hear(ready[0]);
    snprintf(path, sizeof path, "/proc/%d/mem", child);
    int fd = open(path, O_RDWR);
    SHOW(pread(fd, text, 6, (off_t)area));
    printf("%s\n", text);
    SHOW(pwrite(fd, "told", 5, (off_t)area));
    REAP(child);
    printf("%s\n", area);
    SHOW(pread(fd, text, 6, (off_t)area));
    close(fd);
    child = CHILD(for (;;) pause());
    snprintf(path, sizeof path, "/proc/%d/mem", child);
    REAP(CHILD({
        setresuid(1, 1, 1);
        OK(open(path, O_RDONLY));
        snprintf(path, sizeof path, "/proc/%d/pagemap", child);
        OK(open(path, O_RDONLY));
    }));
    kill(child, SIGKILL);
    REAP(child);
}

static void page_map(void)
{
    char *area = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    area[0] = 1;
    area[2 * 4096] = 1;
    int file = open("mapped", O_CREAT | O_RDWR, 0600);
    ftruncate(file, 4096);
    char *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    shared[0] = 1;
    int fd = open("/proc/self/pagemap", O_RDONLY);
    uint64_t entries[4];
    SHOW(pread(fd, entries, sizeof entries, (off_t)((uintptr_t)area / 4096 * 8)));
    for (int i = 0; i < 4; i++)
        printf("present %d file %d\n", (int)(entries[i] >> 63), (int)(entries[i] >> 61 & 1));
    SHOW(pread(fd, entries, 8, (off_t)((uintptr_t)shared / 4096 * 8)));
    printf("present %d file %d\n", (int)(entries[0] >> 63), (int)(entries[0] >> 61 & 1));
    SHOW(pread(fd, entries, 7, 0));
    SHOW(pread(fd, entries, 8, 4));
    SHOW(pread(fd, entries, 8, 0));
    printf("%d\n", (int)(entries[0] >> 63));
    OK(open("/proc/self/pagemap", O_WRONLY));
}

static void knobs(void)
{
    int fd = open("/proc/self/comm", O_WRONLY);
    SHOW(write(fd, "a name that is far too long", 27));
    close(fd);
    printf("%s", get_text("/proc/self/comm"));
    fd = open("/proc/self/oom_score_adj", O_RDWR);
    SHOW(write(fd, "500", 3));
    printf("%s", get_text("/proc/self/oom_score_adj"));
    SHOW(write(fd, "1001", 4));
    SHOW(write(fd, "x", 1));
    SHOW(write(fd, "600\n", 4));
    printf("%s", get_text("/proc/self/oom_score_adj"));
    printf("%s", get_text("/proc/self/cgroup")[0] ? "has a group\n" : "");
    printf("%s", get_text("/proc/self/setgroups"));
    OK(access("/proc/self/wchan", R_OK));
    OK(access("/proc/self/smaps_rollup", R_OK));
    OK(access("/proc/self/coredump_filter", R_OK));
    OK(access("/proc/self/oom_adj", R_OK));
    printf("%s", get_text("/proc/self/oom_adj"));
    printf("%s", get_text("/proc/self/coredump_filter"));
}

static void mode_of(const char *name)
{
    struct stat about;
    stat(name, &about);
    printf("%s %o\n", name, about.st_mode);
}

static void set_ids(void)
{
    put_text("s", "x");
    chmod("s", 06755);
    int fd = open("s", O_RDWR);
    pwrite(fd, "y", 1, 0);
    mode_of("s");
    ftruncate(fd, 5);
    mode_of("s");
    fallocate(fd, 0, 0, 100);
    mode_of("s");
    chown("s", 1, 1);
    chmod("s", 06755);
    chmod(".", 0777);
    REAP(CHILD({ setresgid(1, 1, 1); setresuid(1, 1, 1); pwrite(fd, "z", 1, 0); mode_of("s"); }));
    pwrite(fd, "z", 1, 0);
    mode_of("s");
}

int main(void)
{
    own_memory();
    of_others();
    page_map();
    knobs();
    set_ids();
    return 0;
}
