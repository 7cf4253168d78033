/* prctl(PR_SET_MM, ...): a program says where its code, data, heap, arguments and environment are, and what its file is; /proc shows it. All at once, as
 * everybody may; what needs CAP_SYS_RESOURCE, which a host need not give, is in user/prctl_resource.c. */
#include "abi.h"
#include <linux/auxvec.h>
#include <linux/prctl.h>

/* struct prctl_mm_map: its header cannot stand beside sys/prctl.h on all systems. */
struct image {
    uint64_t start_code, end_code, start_data, end_data, start_brk, brk, start_stack, arg_start, arg_end, env_start, env_end;
    uint64_t *auxv;
    uint32_t auxv_size, exe_fd;
};

/* Fields of /proc/PID/stat by their numbers in proc(5). */
enum { START_CODE = 26, END_CODE, START_STACK, START_DATA = 45, END_DATA, START_BRK, ARG_START, ARG_END, ENV_START, ENV_END };

static unsigned long stat_field(int wanted)
{
    const char *at = strrchr(get_text("/proc/self/stat"), ')') + 1;
    for (int field = 3; field < wanted; field++)
        at = strchr(at + 1, ' ');
    return strtoul(at, NULL, 10);
}

static struct image current(void)
{
    struct image image = {
        .start_code = stat_field(START_CODE), .end_code = stat_field(END_CODE), .start_data = stat_field(START_DATA),
        .end_data = stat_field(END_DATA), .start_brk = stat_field(START_BRK), .brk = syscall(SYS_brk, 0),
        .start_stack = stat_field(START_STACK), .arg_start = stat_field(ARG_START), .arg_end = stat_field(ARG_END),
        .env_start = stat_field(ENV_START), .env_end = stat_field(ENV_END), .exe_fd = -1,
    };
    return image;
}

static int set_all(struct image image)
{
    return prctl(PR_SET_MM, PR_SET_MM_MAP, &image, sizeof image, 0);
}

#define WITH(...)                                                                                                      \
    ({                                                                                                                 \
        struct image image = current();                                                                                \
        __VA_ARGS__;                                                                                                   \
        set_all(image);                                                                                                \
    })

static void arguments(void)
{
    unsigned size = 0;
    SHOW(prctl(PR_SET_MM, PR_SET_MM_MAP_SIZE, &size, 0, 0));
    SHOW(size);
    SHOW(size == sizeof(struct image));
    SHOW(prctl(PR_SET_MM, PR_SET_MM_MAP_SIZE, 8, 0, 0));
    SHOW(prctl(PR_SET_MM, PR_SET_MM_MAP_SIZE, &size, 0, 1));
    struct image image = current();
    SHOW(prctl(PR_SET_MM, PR_SET_MM_MAP, &image, sizeof image - 8, 0));
    SHOW(prctl(PR_SET_MM, PR_SET_MM_MAP, 8, sizeof image, 0));
    SHOW(prctl(PR_SET_MM, PR_SET_MM_MAP, &image, sizeof image, 1));
    SHOW(prctl(PR_SET_MM, PR_SET_MM_BRK, image.brk, 1, 0));
    SHOW(prctl(PR_SET_MM, PR_SET_MM_BRK, image.brk, 0, 1));
    SHOW(WITH());
    SHOW(WITH(image.start_code = image.end_code));
    SHOW(WITH(image.start_data = image.end_data));
    SHOW(WITH(image.start_data = 0));
    SHOW(WITH(image.start_data = 0x7ffffffff000));
    SHOW(WITH(image.brk = image.start_brk - 1));
    SHOW(WITH(image.env_end = image.env_start));
    SHOW(WITH(image.env_end = 0x7fffffffe000));
    SHOW(WITH(image.auxv_size = 16));
    SHOW(WITH(image.auxv_size = 1 << 16; image.auxv = (void *)image.arg_start));
    SHOW(WITH(image.auxv_size = 16; image.auxv = (void *)8));
    SHOW(WITH(image.exe_fd = 99));
    REAP(CHILD({
        struct rlimit limit = { 0, 0 };
        SHOW(setrlimit(RLIMIT_DATA, &limit));
        SHOW(WITH());
    }));
}

#define MOVED(name, number, by)                                                                                        \
    do {                                                                                                               \
        int result_ = WITH(image.name += by);                                                                          \
        printf("%s: %d %d\n", #name, result_, moved(number, by));                                                     \
    } while (0)

/* Whether a field is shown so far away from where it was. */
static int moved(int number, long by)
{
    static unsigned long before[64];
    unsigned long now = stat_field(number);
    long difference = now - before[number];
    before[number] = now;
    return difference == by;
}

static void fields(void)
{
    for (int number = START_CODE; number <= ENV_END; number++)
        moved(number, 0);
    for (int sign = 1; sign >= -1; sign -= 2) {
        MOVED(start_code, START_CODE, 8 * sign);
        MOVED(end_code, END_CODE, -8 * sign);
        MOVED(start_data, START_DATA, 8 * sign);
        MOVED(end_data, END_DATA, 4096 * sign);
        MOVED(start_brk, START_BRK, -4096 * sign);
        MOVED(start_stack, START_STACK, -4096 * sign);
        MOVED(arg_start, ARG_START, sign);
        MOVED(arg_end, ARG_END, -sign);
        MOVED(env_start, ENV_START, sign);
        MOVED(env_end, ENV_END, -sign);
    }
}

static void show_strings(const char *path)
{
    char text[256];
    int fd = open(path, O_RDONLY);
    ssize_t count = read(fd, text, sizeof text);
    close(fd);
    printf("%s: %zd", path, count);
    for (ssize_t i = 0; i < count; i++)
        printf("%c", text[i] ? text[i] : '|');
    printf("\n");
}

static void strings(void)
{
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(page, "one\0two\0A=b\0C=d", 16);
    unsigned long at = (unsigned long)page;
    SHOW(WITH(image.arg_start = at; image.arg_end = image.env_start = at + 8; image.env_end = at + 16));
    show_strings("/proc/self/cmdline");
    show_strings("/proc/self/environ");
    REAP(CHILD({ show_strings("/proc/self/cmdline"); show_strings("/proc/self/environ"); TRUE(stat_field(ARG_START) == at); }));
    /* A title that goes on in the environment, and one that may not, as that is elsewhere. */
    page[7] = '+';
    show_strings("/proc/self/cmdline");
    SHOW(WITH(image.env_start = at + 9));
    show_strings("/proc/self/cmdline");
    SHOW(WITH(image.arg_start = at + 12; image.arg_end = at + 16; image.env_start = at; image.env_end = at + 4));
    show_strings("/proc/self/cmdline");
    show_strings("/proc/self/environ");
    munmap(page, 4096);
    show_strings("/proc/self/cmdline");
    show_strings("/proc/self/environ");
}

static void show_vector(void)
{
    uint64_t words[128];
    int fd = open("/proc/self/auxv", O_RDONLY);
    ssize_t count = read(fd, words, sizeof words);
    close(fd);
    printf("auxv:");
    for (int i = 0; i < count / 8; i++)
        printf(" %#lx", words[i]);
    printf("\n");
}

static void vector(void)
{
    uint64_t words[] = { AT_UID, 77, AT_PAGESZ, 4096, AT_NULL, 0, AT_GID, 3 };
    SHOW(WITH(image.auxv = words; image.auxv_size = sizeof words));
    show_vector();
    REAP(CHILD(show_vector()));
    words[1] = 78;
    SHOW(WITH(image.auxv = words; image.auxv_size = 16));
    show_vector();
}

static int is_named(unsigned long address, const char *name)
{
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        sscanf(line, "%lx-%lx", &start, &end);
        if (start <= address && address < end)
            found = strstr(line, name) != NULL;
    }
    fclose(maps);
    return found;
}

/* The break can be put anywhere, and moves from there. */
static void heap(void)
{
    unsigned long length = 64 << 12;
    unsigned long at = (unsigned long)mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned long stack = (unsigned long)&length;
    munmap((void *)(at + (32 << 12)), 32 << 12);
    SHOW(WITH(image.start_brk = at; image.brk = at + (32 << 12)));
    TRUE(syscall(SYS_brk, 0) == (long)(at + (32 << 12)));
    TRUE(is_named(at, "[heap]"));
    TRUE(syscall(SYS_brk, at + (40 << 12)) == (long)(at + (40 << 12)));
    *(char *)(at + (40 << 12) - 1) = 1;
    TRUE(syscall(SYS_brk, at - 1) == (long)(at + (40 << 12)));
    TRUE(syscall(SYS_brk, at + 4096) == (long)(at + 4096));
    SHOW(msync((void *)(at + 4096), 4096, MS_ASYNC));
    TRUE(is_named(stack, "[stack]"));
    SHOW(WITH(image.start_stack = at));
    TRUE(is_named(stack, "[stack]"));
}

/* Puts copies in anonymous memory in the place of what is mapped of the program's file. */
static void leave_file(void)
{
    char line[512], path[256], *all = strdup(get_text("/proc/self/maps"));
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    path[length] = 0;
    for (char *next, *at = all; *at; at = next) {
        next = strchr(at, '\n') + 1;
        memcpy(line, at, next - at);
        line[next - at - 1] = 0;
        unsigned long start, end;
        char rights[5];
        sscanf(line, "%lx-%lx %4s", &start, &end, rights);
        if (!strstr(line, path))
            continue;
        int protection = (rights[0] == 'r' ? PROT_READ : 0) | (rights[1] == 'w' ? PROT_WRITE : 0) | (rights[2] == 'x' ? PROT_EXEC : 0);
        char *copy = mmap(NULL, end - start, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memcpy(copy, (void *)start, end - start);
        mprotect(copy, end - start, protection);
        if (mremap(copy, end - start, end - start, MREMAP_MAYMOVE | MREMAP_FIXED, start) == MAP_FAILED)
            printf("mremap: %s\n", ERRNO_NAME(errno));
    }
    free(all);
}

static void show_file(void)
{
    char path[256] = "";
    SHOW(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
    printf("%s\n", path);
}

static void file(void)
{
    SHOW(mkdir("/tmp/image", 0755));
    SHOW(chdir("/tmp/image"));
    put_text("program", "program");
    chmod("program", 0755);
    put_text("data", "data");
    SHOW(WITH(image.exe_fd = -2));
    int data = open("data", O_RDONLY), program = open("program", O_RDONLY), directory = open(".", O_RDONLY);
    SHOW(WITH(image.exe_fd = data) );
    SHOW(WITH(image.exe_fd = directory));
    SHOW(WITH(image.exe_fd = open("/dev/null", O_RDONLY)));
    SHOW(WITH(image.exe_fd = program));
    REAP(CHILD({
        leave_file();
        int writer = open("program", O_WRONLY);
        SHOW(WITH(image.exe_fd = program));
        close(writer);
        SHOW(WITH(image.exe_fd = program));
        show_file();
        SHOW(open("program", O_WRONLY));
        REAP(CHILD(show_file()));
        SHOW(rename("program", "other"));
        show_file();
        SHOW(WITH(image.exe_fd = data));
        SHOW(chmod("data", 0711));
        SHOW(WITH(image.exe_fd = data));
        show_file();
        SHOW(open("other", O_WRONLY) >= 0);
        SHOW(open("data", O_WRONLY));
        SHOW(WITH(image.exe_fd = open("data", O_PATH)));
        SHOW(mount("tmpfs", ".", "tmpfs", MS_NOEXEC, ""));
        put_text("/tmp/image/program", "");
        chmod("/tmp/image/program", 0755);
        SHOW(WITH(image.exe_fd = open("/tmp/image/program", O_RDONLY)));
        SHOW(umount2("/tmp/image", MNT_DETACH));
    }));
    SHOW(open("data", O_WRONLY) >= 0);
}

static void rights(void)
{
    int program = open("/tmp/image/other", O_RDONLY);
    REAP(CHILD({
        setresgid(1, 1, 1);
        setresuid(1, 1, 1);
        prctl(PR_SET_DUMPABLE, 1);
        SHOW(prctl(PR_SET_MM, PR_SET_MM_START_STACK, stat_field(START_STACK), 0, 0));
        SHOW(prctl(PR_SET_MM, 77, 0, 0, 0));
        SHOW(prctl(PR_SET_MM, PR_SET_MM_EXE_FILE, program, 0, 0));
        SHOW(prctl(PR_SET_MM, PR_SET_MM_AUXV, 8, 8, 0));
        SHOW(prctl(PR_SET_MM, PR_SET_MM_BRK, 0, 8, 0));
        unsigned size = 0;
        SHOW(prctl(PR_SET_MM, PR_SET_MM_MAP_SIZE, &size, 0, 0));
        SHOW(WITH(image.env_end -= 1));
        SHOW(WITH(image.exe_fd = 99));
        SHOW(unshare(CLONE_NEWUSER));
        SHOW(prctl(PR_SET_MM, PR_SET_MM_START_STACK, stat_field(START_STACK), 0, 0));
        SHOW(WITH(image.exe_fd = 99));
        SHOW(WITH(image.exe_fd = program));
        leave_file();
        SHOW(WITH(image.exe_fd = program));
        show_file();
    }));
}

int main(int count, char **words)
{
    if (count > 1) {
        show_strings("/proc/self/cmdline");
        show_file();
        return words[1][0] - '0';
    }
    REAP(CHILD(arguments()));
    fields();
    REAP(CHILD(strings()));
    REAP(CHILD(vector()));
    REAP(CHILD(heap()));
    file();
    rights();
    /* A new program begins anew. */
    REAP(CHILD({
        char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        SHOW(WITH(image.arg_start = (unsigned long)page));
        fflush(stdout);
        execl("/proc/self/exe", "again", "7", NULL);
    }));
    return 0;
}
