/* Small calls: ustat, vhangup; files of /proc/PID that have little to say: attr, autogroup, cpuset, numa_maps. */
#include "abi.h"

struct old_status {
    int blocks_free;
    unsigned long files_free;
    char names[12];
};

static void show(const char *path)
{
    char text[300];
    int fd = open(path, O_RDONLY);
    ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof text);
    if (length < 0)
        printf("%s: %s\n", path, strerrorname_np(errno));
    else
        printf("%s: %.*s\n", path, (int)length, text);
    if (fd >= 0)
        close(fd);
}

int main(void)
{
    struct old_status status;
    struct stat about;
    unshare(CLONE_NEWNS);
    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    mkdir("m", 0755);
    mount("none", "m", "tmpfs", 0, "size=64k,nr_inodes=10");
    stat("m", &about);
    memset(&status, 0x55, sizeof status);
    SHOW(syscall(SYS_ustat, about.st_dev, &status));
    printf("%d %lu %d\n", status.blocks_free, status.files_free, status.names[0]);
    SHOW(syscall(SYS_ustat, 0xfffff, &status));
    /* Neither who may not go there nor what covers it matters. */
    mkdir("closed", 0700);
    mkdir("closed/covered", 0700);
    SHOW(mount("none", "closed/covered", "tmpfs", 0, NULL));
    stat("closed/covered", &about);
    pid_t user = CHILD({
        if (setresgid(1000, 1000, 1000) || setresuid(1000, 1000, 1000))
            _exit(1);
        SHOW(syscall(SYS_ustat, about.st_dev, &status));
    });
    REAP(user);
    SHOW(mount("none", "closed/covered", "tmpfs", 0, NULL));
    SHOW(syscall(SYS_ustat, about.st_dev, &status));
    SHOW(syscall(SYS_ustat, about.st_dev, NULL));
    pid_t child = CHILD({
        TRUE(setsid() > 0);
        SHOW(syscall(SYS_vhangup));
        if (setresuid(1000, 1000, 1000))
            _exit(1);
        SHOW(syscall(SYS_vhangup));
    });
    REAP(child);
    show("/proc/self/cpuset");
    show("/proc/self/attr/fscreate");
    show("/proc/thread-self/attr/exec");
    SHOW(open("/proc/self/attr/nosuch", O_RDONLY));
    SHOW(access("/proc/thread-self/autogroup", F_OK));
    SHOW(access("/proc/self/arch_status", F_OK));
    SHOW(prctl(PR_SET_VMA, 77, 0, 0, 0));
    /* A page that was written is one of its own, on node 0. */
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), line[400], wanted[32];
    madvise(page, 8192, MADV_NOHUGEPAGE);
    page[0] = 1;
    snprintf(wanted, sizeof wanted, "%08lx ", (unsigned long)page);
    FILE *maps = fopen("/proc/self/numa_maps", "r");
    while (maps && fgets(line, sizeof line, maps)) {
        if (strncmp(line, wanted, strlen(wanted)) || !strstr(line, "anon=1"))
            continue;
        /* Whether a page counts as active so early is a matter of batches. */
        char *active = strstr(line, " active=0");
        if (active)
            memmove(active, active + 9, strlen(active + 9) + 1);
        printf("%s", strchr(line, ' '));
    }
    fclose(maps);
    /* What would look like the end of a name in the list is written as a number. */
    int fd = open("a b=c\td", O_CREAT | O_RDWR, 0600);
    SHOW(ftruncate(fd, 4096));
    char *mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    snprintf(wanted, sizeof wanted, "%08lx ", (unsigned long)mapped);
    maps = fopen("/proc/self/numa_maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        if (!strncmp(line, wanted, strlen(wanted)))
            printf("%s", strrchr(line, '/'));
    return maps == NULL;
}
