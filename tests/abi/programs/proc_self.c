/* /proc: the files of a process, read by itself, by its parent and by another user; the files of the system. */
#include "abi.h"

/* The value of a "Key: value" line. */
static const char *field(const char *path, const char *key)
{
    static char value[4][256];
    static int turn;
    char *found = value[turn++ % 4];
    const char *text = get_text(path);
    size_t length = strlen(key);
    strcpy(found, "(none)");
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (!strncmp(line, key, length) && line[length] == ':') {
            line += length + 1;
            while (*line == ' ' || *line == '\t')
                line++;
            size_t count = strcspn(line, "\n");
            snprintf(found, 256, "%.*s", (int)(count < 255 ? count : 255), line);
            break;
        }
    return found;
}

static int count_words(const char *text)
{
    int words = 0, inside = 0;
    for (; *text && *text != '\n'; text++) {
        words += *text != ' ' && !inside;
        inside = *text != ' ';
    }
    return words;
}

static void link_text(const char *path)
{
    char target[256];
    ssize_t count = readlink(path, target, sizeof target - 1);
    target[count < 0 ? 0 : count] = 0;
    printf("%s -> %s\n", path, count < 0 ? ERRNO_NAME(errno) : target);
}

static void own_files(void)
{
    char path[64], text[64];
    printf("comm %s", get_text("/proc/self/comm"));
    int fd = open("/proc/self/cmdline", O_RDONLY);
    ssize_t count = read(fd, text, sizeof text);
    printf("cmdline %zd %s\n", count, text);
    close(fd);
    fd = open("/proc/self/environ", O_RDONLY);
    count = read(fd, text, sizeof text);
    printf("environ %zd %s\n", count, text);
    close(fd);
    link_text("/proc/self/exe");
    link_text("/proc/self/cwd");
    link_text("/proc/self/root");
    link_text("/proc/self/fd/0");
    snprintf(path, sizeof path, "%d", getpid());
    ssize_t length = readlink("/proc/self", text, sizeof text);
    TRUE(length == (ssize_t)strlen(path) && !memcmp(path, text, (size_t)length));
    length = readlink("/proc/thread-self", text, sizeof text - 1);
    text[length < 0 ? 0 : length] = 0;
    char expected[64];
    snprintf(expected, sizeof expected, "%d/task/%d", getpid(), getpid());
    TRUE(strcmp(text, expected) == 0);
    const char *status = "/proc/self/status";
    printf("Name %s\n", field(status, "Name"));
    printf("State %s\n", field(status, "State"));
    TRUE(atoi(field(status, "Pid")) == getpid());
    TRUE(atoi(field(status, "Tgid")) == getpid());
    TRUE(atoi(field(status, "PPid")) == getppid());
    printf("Uid %s\nGid %s\n", field(status, "Uid"), field(status, "Gid"));
    printf("Threads %s\n", field(status, "Threads"));
    printf("Umask %s\n", field(status, "Umask"));
    printf("SigBlk %s\n", field(status, "SigBlk"));
    printf("SigIgn %s\n", field(status, "SigIgn"));
    printf("SigCgt %s\n", field(status, "SigCgt"));
    signal(SIGUSR1, SIG_IGN);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGUSR2);
    printf("SigBlk %s SigIgn %s SigPnd %s ShdPnd %s\n", field(status, "SigBlk"), field(status, "SigIgn"),
           field(status, "SigPnd"), field(status, "ShdPnd"));
    TRUE(atoi(field(status, "VmRSS")) > 0);
    TRUE(atoi(field(status, "VmSize")) >= atoi(field(status, "VmRSS")));
    const char *stat = get_text("/proc/self/stat");
    TRUE(atoi(stat) == getpid());
    const char *after = strrchr(stat, ')');
    printf("stat has %d fields, state %c\n", 2 + count_words(after + 1), after[2]);
    printf("statm has %d fields\n", count_words(get_text("/proc/self/statm")));
    printf("limits: %.25s\n", get_text("/proc/self/limits"));
    OK(open("/proc/self/mem", O_RDONLY));
    OK(access("/proc/self/mounts", R_OK));
    OK(access("/proc/self/mountinfo", R_OK));
    OK(access("/proc/self/smaps", R_OK));
    OK(access("/proc/self/oom_score_adj", R_OK));
    OK(open("/proc/self/nothing", O_RDONLY));
    OK(open("/proc/0x7/stat", O_RDONLY));
    OK(open("/proc/1073741823", O_RDONLY));
    OK(open("/proc/self/comm/x", O_RDONLY));
    OK(mkdir("/proc/new", 0755));
    OK(unlink("/proc/self/comm"));
    OK(open("/proc/new", O_CREAT | O_RDWR, 0600));
    fd = open("/proc/self/comm", O_RDWR);
    SHOW(write(fd, "written", 7));
    close(fd);
    printf("comm %s", get_text("/proc/self/comm"));
}

static void memory_map(void)
{
    char *area = mmap(NULL, 5 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(area + 4096, 4096, PROT_READ);
    mprotect(area + 3 * 4096, 4096, PROT_NONE);
    int fd = open("mapped", O_CREAT | O_RDWR, 0600);
    ftruncate(fd, 8192);
    char *file = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 4096);
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int stack = 0, heap = 0, vdso = 0, sorted = 1;
    unsigned long last = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long start, end, offset, inode;
        unsigned major_number, minor_number;
        char rights[8], name[256] = "";
        if (sscanf(line, "%lx-%lx %7s %lx %x:%x %lu %255s", &start, &end, rights, &offset, &major_number, &minor_number,
                   &inode, name) < 7)
            printf("bad line %s", line);
        sorted &= start >= last && end > start;
        last = end;
        stack += !strcmp(name, "[stack]");
        heap += !strcmp(name, "[heap]");
        vdso += !strcmp(name, "[vdso]");
        if ((char *)start >= area && (char *)end <= area + 5 * 4096)
            printf("area +%lu %lu %s\n", (char *)start - area, end - start, rights);
        if ((char *)start == file)
            printf("file %lu %s offset %lx inode %d name %s\n", end - start, rights, offset, inode != 0, name);
    }
    fclose(maps);
    printf("stack %d heap %d vdso %d sorted %d\n", stack, heap, vdso, sorted);
    TRUE(strstr(get_text("/proc/self/smaps"), "Private_Dirty:") != NULL);
}

static void others(void)
{
    char path[64];
    pid_t child = CHILD({ prctl(PR_SET_NAME, "odd ) name("); for (;;) pause(); });
    wait_state(child, "S");
    snprintf(path, sizeof path, "/proc/%d/stat", child);
    const char *stat = get_text(path);
    printf("%.15s\n", strchr(stat, '('));
    snprintf(path, sizeof path, "/proc/%d/status", child);
    printf("%s | %s\n", field(path, "Name"), field(path, "State"));
    kill(child, SIGSTOP);
    waitpid(child, NULL, WUNTRACED);
    printf("%s\n", field(path, "State"));
    kill(child, SIGKILL);
    wait_state(child, "Z");
    printf("%s\n", field(path, "State"));
    snprintf(path, sizeof path, "/proc/%d/cmdline", child);
    printf("cmdline of a zombie: [%s]\n", get_text(path));
    snprintf(path, sizeof path, "/proc/%d/exe", child);
    OK(readlink(path, path + 40, 10));
    REAP(child);
    snprintf(path, sizeof path, "/proc/%d/stat", child);
    printf("%s\n", get_text(path));
    child = CHILD({ for (;;) pause(); });
    REAP(CHILD({
        setresuid(1, 1, 1);
        snprintf(path, sizeof path, "/proc/%d/environ", child);
        OK(open(path, O_RDONLY));
        snprintf(path, sizeof path, "/proc/%d/fd", child);
        OK(open(path, O_RDONLY));
        snprintf(path, sizeof path, "/proc/%d/maps", child);
        OK(open(path, O_RDONLY));
        snprintf(path, sizeof path, "/proc/%d/stat", child);
        OK(open(path, O_RDONLY));
        snprintf(path, sizeof path, "/proc/%d/cwd", child);
        OK(readlink(path, path + 40, 10));
    }));
    /* A descriptor of a process that is gone. */
    snprintf(path, sizeof path, "/proc/%d/status", child);
    int fd = open(path, O_RDONLY);
    snprintf(path, sizeof path, "/proc/%d", child);
    int folder = open(path, O_RDONLY);
    kill(child, SIGKILL);
    REAP(child);
    char byte;
    SHOW(read(fd, &byte, 1));
    OK(openat(folder, "stat", O_RDONLY));
    /* Descriptors as a folder. */
    int ends[2];
    pipe(ends);
    DIR *list = opendir("/proc/self/fd");
    struct dirent *entry;
    int seen = 0;
    while ((entry = readdir(list)))
        seen += entry->d_name[0] != '.' && atoi(entry->d_name) != dirfd(list) && fcntl(atoi(entry->d_name), F_GETFD) < 0;
    printf("listed and not open: %d\n", seen);
    closedir(list);
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[1]);
    struct stat link;
    SHOW(lstat(path, &link));
    SHOW((int)link.st_size);
    int again = open(path, O_WRONLY);
    SHOW(write(again, "x", 1));
    SHOW(read(ends[0], &byte, 1));
    char target[64] = "";
    readlink(path, target, 63);
    printf("%.6s\n", target);
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", ends[1]);
    printf("flags %s\n", field(path, "flags"));
}

static void system_files(void)
{
    TRUE(strtod(get_text("/proc/uptime"), NULL) > 0);
    printf("loadavg has %d fields\n", count_words(get_text("/proc/loadavg")));
    TRUE(atol(field("/proc/meminfo", "MemTotal")) > 10000);
    TRUE(atol(field("/proc/meminfo", "MemFree")) > 1000);
    TRUE(atol(field("/proc/meminfo", "MemAvailable")) > 1000);
    TRUE(strncmp(get_text("/proc/stat"), "cpu ", 4) == 0);
    TRUE(strstr(get_text("/proc/stat"), "\nbtime ") != NULL);
    TRUE(strstr(get_text("/proc/stat"), "\nctxt ") != NULL);
    TRUE(strncmp(get_text("/proc/version"), "Linux version 6.", 16) == 0);
    TRUE(strstr(get_text("/proc/filesystems"), "\ttmpfs\n") != NULL);
    TRUE(strstr(get_text("/proc/mounts"), " /proc proc ") != NULL);
    TRUE(strstr(get_text("/proc/cpuinfo"), "processor\t: 0") != NULL);
    TRUE(strstr(get_text("/proc/vmstat"), "nr_free_pages ") != NULL);
    TRUE(strstr(get_text("/proc/interrupts"), "CPU0") != NULL);
    OK(access("/proc/cmdline", R_OK));
    OK(access("/proc/buddyinfo", R_OK));
    OK(access("/proc/sys/kernel/ostype", R_OK));
    printf("%s", get_text("/proc/sys/kernel/ostype"));
    printf("%s", get_text("/proc/sys/kernel/hostname"));
    TRUE(atoi(get_text("/proc/sys/kernel/pid_max")) >= 1000);
    TRUE(strlen(get_text("/proc/sys/kernel/random/boot_id")) == 37);
    /* The running process and its folder are found by listing. */
    DIR *list = opendir("/proc");
    struct dirent *entry;
    int self = 0, one = 0;
    while ((entry = readdir(list))) {
        self += atoi(entry->d_name) == getpid();
        one += !strcmp(entry->d_name, "1");
    }
    closedir(list);
    printf("self %d one %d\n", self, one);
    struct stat about;
    stat("/proc/self/stat", &about);
    printf("%o %d %ld\n", about.st_mode, about.st_uid, (long)about.st_size);
    char text[4];
    int fd = open("/proc/version", O_RDONLY);
    SHOW(pread(fd, text, 4, 1));
    printf("%.4s\n", text);
    SHOW(lseek(fd, 2, SEEK_SET));
    SHOW(read(fd, text, 3));
    printf("%.3s\n", text);
}

int main(void)
{
    own_files();
    memory_map();
    others();
    system_files();
    return 0;
}
