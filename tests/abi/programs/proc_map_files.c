/* /proc/PID/map_files: links to what is mapped, and who may list, read and follow them. */
#include "abi.h"
#include <dirent.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#define AT 0x500000000000

static char own[64];

static void look(const char *range)
{
    char path[256], target[256];
    snprintf(path, sizeof path, "%s/%s", own, range);
    printf("%s: ", range);
    struct stat about;
    if (lstat(path, &about) < 0) {
        printf("%s\n", ERRNO_NAME(errno));
        return;
    }
    int length = readlink(path, target, sizeof target - 1);
    target[length < 0 ? 0 : length] = 0;
    printf("%o %d, %s, ", about.st_mode, (int)about.st_size, length < 0 ? ERRNO_NAME(errno) : strrchr(target, '/') ? strrchr(target, '/') : target);
    int fd = open(path, O_RDONLY);
    if (fd < 0) {
        printf("open: %s\n", ERRNO_NAME(errno));
        return;
    }
    char byte = '-';
    printf("read %d", (int)read(fd, &byte, 1));
    printf(" '%c'\n", byte);
    close(fd);
}

/* How many names of the test's ranges are listed. */
static int count(void)
{
    DIR *folder = opendir(own);
    if (!folder) {
        printf("opendir: %s\n", ERRNO_NAME(errno));
        return -1;
    }
    int found = 0;
    errno = 0;
    for (struct dirent *entry; (entry = readdir(folder));)
        if (!strncmp(entry->d_name, "5000000", 7)) {
            printf("  %s %d\n", entry->d_name, entry->d_type);
            found++;
        }
    if (errno)
        printf("readdir: %s\n", ERRNO_NAME(errno));
    closedir(folder);
    return found;
}

int main(void)
{
    snprintf(own, sizeof own, "/proc/%d/map_files", getpid());
    int fd = open("mapped", O_RDWR | O_CREAT, 0600);
    OK(write(fd, "contents", 8));
    OK(ftruncate(fd, 0x4000));
    char *at = (char *)AT;
    SHOW(mmap(at, 0x1000, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == at);
    SHOW(mmap(at + 0x2000, 0x2000, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == at + 0x2000);
    SHOW(mmap(at + 0x5000, 0x1000, PROT_NONE, MAP_SHARED | MAP_FIXED, fd, 0) == at + 0x5000);
    SHOW(mmap(at + 0x6000, 0x1000, PROT_READ, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0) == at + 0x6000);
    struct stat about;
    OK(stat(own, &about));
    printf("directory %o\n", about.st_mode);
    SHOW(access("/proc/thread-self/map_files", F_OK));
    SHOW(count());
    look("500000000000-500000001000");
    look("500000002000-500000004000");
    look("500000005000-500000006000");
    look("500000006000-500000007000");
    look("500000002000-500000003000");
    look("0500000000000-500000001000");
    look("500000000000");
    look("nothing");
    OK(unlink("mapped"));
    look("500000000000-500000001000");
    OK(munmap(at + 0x3000, 0x1000));
    look("500000002000-500000004000");
    look("500000002000-500000003000");
    SHOW(count());
    fflush(stdout);
    pid_t other = CHILD({
        OK(setuid(12345));
        count();
        look("500000000000-500000001000");
    });
    REAP(other);
    OK(setuid(12345));
    OK(prctl(PR_SET_DUMPABLE, 1));
    SHOW(count());
    look("500000000000-500000001000");
    return 0;
}
