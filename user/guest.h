/* What the programs that judge the machine itself share: progress that survives a crash, memory figures, verdicts. */
#ifndef GUEST_H
#define GUEST_H
#include "abi.h"

#define PROGRESS_FD 9

/* One line on the machine's way out, so that it is known what was done last. */
__attribute__((format(printf, 1, 2))) static inline void progress(const char *format, ...)
{
    char line[256];
    va_list list;
    va_start(list, format);
    int count = vsnprintf(line, sizeof line - 1, format, list);
    va_end(list);
    if (count > (int)sizeof line - 2)
        count = sizeof line - 2;
    line[count++] = '\n';
    if (write(PROGRESS_FD, line, (size_t)count) < 0)
        return;
}

/* How long what must happen soon may take, in hundredths of a second: a busy host may take the processors away for seconds. */
#define PATIENCE_CS 6000

static int verdict_failed;

#define EXPECT(condition, ...)                                                                                         \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            verdict_failed = 1;                                                                                        \
            printf("FAILED: %s: ", #condition);                                                                        \
            printf(__VA_ARGS__);                                                                                       \
            printf("\n");                                                                                              \
        }                                                                                                              \
    } while (0)

/* A figure of /proc/meminfo in KiB, or of another file with lines of a name and a number; -1 when it is missing. */
static inline long figure(const char *path, const char *name)
{
    static char text[32768];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    ssize_t count;
    while (fd >= 0 && used < sizeof text - 1 && (count = read(fd, text + used, sizeof text - 1 - used)) > 0)
        used += (size_t)count;
    close(fd);
    text[used] = 0;
    size_t length = strlen(name);
    for (char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (!strncmp(line, name, length) && (line[length] == ':' || line[length] == ' '))
            return atol(line + length + 1 + strspn(line + length + 1, " \t"));
    return -1;
}

/* The beginning of a file, empty if it can't be read; good until the next call. */
static inline const char *contents_of(const char *path)
{
    static char text[8192];
    int fd = open(path, O_RDONLY);
    ssize_t count = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    close(fd);
    text[count > 0 ? count : 0] = 0;
    return text;
}

static inline long free_kib(void)
{
    return figure("/proc/meminfo", "MemFree");
}

/* Waits until free memory is back within one per cent of all memory; says how it ended. */
static inline int memory_is_back(const char *what, long before_kib)
{
    long total = figure("/proc/meminfo", "MemTotal"), now = 0;
    for (int tries = 0; tries < PATIENCE_CS / 10; tries++) {
        now = free_kib();
        if (now >= before_kib - total / 100)
            break;
        pause_ms(100);
    }
    int good = now >= before_kib - total / 100;
    printf("%s: MemFree %ld KiB before, %ld KiB after, of %ld KiB: %s\n", what, before_kib, now, total, good ? "back" : "NOT BACK");
    if (!good) {
        verdict_failed = 1;
        /* Where files could be that nobody has taken away, and how many are open. */
        printf("%s", contents_of("/proc/mounts"));
        printf("open files: %s", contents_of("/proc/sys/fs/file-nr"));
    }
    return good;
}

/* Whether some process belongs to the user, zombies included. */
static inline int has_processes(uid_t user)
{
    DIR *folder = opendir("/proc");
    struct dirent *entry;
    int found = folder == NULL;
    while (folder && !found && (entry = readdir(folder))) {
        char path[300];
        struct stat status;
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
            continue;
        snprintf(path, sizeof path, "/proc/%s", entry->d_name);
        found = stat(path, &status) == 0 && status.st_uid == user;
    }
    if (folder)
        closedir(folder);
    return found;
}

/* Kills all processes of a user, reaping those that are ours; 0 when some live on. */
static inline int kill_user(uid_t user)
{
    for (int round = 0; round < PATIENCE_CS; round++) {
        pid_t killer = fork();
        if (killer == 0) {
            if (setresuid(user, user, user) < 0)
                _exit(2);
            kill(-1, SIGKILL);
            _exit(0);
        }
        if (killer > 0)
            waitpid(killer, NULL, 0);
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        if (killer > 0 && !has_processes(user))
            return 1;
        pause_ms(10);
    }
    return 0;
}

/* A number generator whose whole state is printed and given back to replay a run. */
static inline uint64_t next_random(uint64_t *state)
{
    uint64_t value = *state += 0x9e3779b97f4a7c15ull;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
    return value ^ (value >> 31);
}
#endif
