/* The controller io: what a group may transfer to and from a disk, which is a file here, and what it has transferred. Judged by counts, by what goes on and
 * what does not, and by times only where something would be too fast.
 *
 * abi: guest
 * abi: limit 120
 */
#include "control_groups.h"
#include <linux/loop.h>

#define MIB (1L << 20)
#define PAGE 4096

static int number, binding;
static char disk[32];

static void make_disk(void)
{
    int control = open("/dev/loop-control", O_RDWR), file = memfd_create("disk", 0);
    EXPECT(ftruncate(file, 8 * MIB) == 0, "no file");
    number = ioctl(control, LOOP_CTL_GET_FREE);
    snprintf(disk, sizeof disk, "/dev/loop%d", number);
    binding = open(disk, O_RDWR);
    EXPECT(binding >= 0 && ioctl(binding, LOOP_SET_FD, file) == 0, "%s: %s", disk, ERRNO_NAME(errno));
    close(file);
    close(control);
}

static int limit(const char *group, const char *words)
{
    char path[64], line[128];
    snprintf(path, sizeof path, "%s/io.max", group);
    snprintf(line, sizeof line, "7:%d %s", number, words);
    return put(path, line);
}

/* The number behind `name=` in a group's io.stat for the disk. */
static long counted(const char *group, const char *name)
{
    char path[64], start[32], key[16];
    snprintf(path, sizeof path, "%s/io.stat", group);
    snprintf(start, sizeof start, "7:%d ", number);
    snprintf(key, sizeof key, " %s=", name);
    const char *line = strstr(get(path), start), *at = line ? strstr(line, key) : NULL;
    return at ? strtol(at + strlen(key), NULL, 10) : -1;
}

static void enter(const char *group)
{
    char path[64];
    snprintf(path, sizeof path, "%s/cgroup.procs", group);
    if (put(path, "0"))
        _exit(8);
}

static int how_it_ends(pid_t child)
{
    int status = -1;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* Writes so much to the disk as a group. */
static pid_t writer(const char *group, long offset, long bytes, int sync)
{
    return CHILD({
        enter(group);
        static char piece[64 * 1024];
        int fd = open(disk, O_WRONLY);
        for (long at = 0; at < bytes; at += sizeof piece)
            if (pwrite(fd, piece, sizeof piece, offset + at) != sizeof piece)
                _exit(1);
        _exit(sync && fsync(fd) < 0 ? 2 : 0);
    });
}

static void knobs(void)
{
    char shown[128];
    WORKS(put("cgroup.subtree_control", "+io"));
    SAYS("io.max", "ENOENT");
    WORKS(make("k"));
    SAYS("k/io.max", "");
    SAYS("k/io.stat", "");
    SAYS("k/memory.max", "ENOENT");
    FAILS(ERANGE, limit("k", "rbps=0"));
    FAILS(EINVAL, limit("k", "rbps=-1"));
    FAILS(EINVAL, limit("k", "speed=1"));
    FAILS(EINVAL, limit("k", "rbps"));
    FAILS(ENODEV, put("k/io.max", "99:99 rbps=1"));
    FAILS(EINVAL, put("k/io.max", "loop0 rbps=1"));
    WORKS(limit("k", "wbps=1048576 riops=7"));
    snprintf(shown, sizeof shown, "7:%d rbps=max wbps=1048576 riops=7 wiops=max\n", number);
    SAYS("k/io.max", shown);
    WORKS(limit("k", "riops=max"));
    snprintf(shown, sizeof shown, "7:%d rbps=max wbps=1048576 riops=max wiops=max\n", number);
    SAYS("k/io.max", shown);
    WORKS(limit("k", "wbps=max"));
    SAYS("k/io.max", "");
    WORKS(take_away("k"));
}

/* No more than is allowed in the time that it took. */
static void rates(void)
{
    WORKS(make("r"));
    WORKS(put("r/cgroup.subtree_control", "+io"));
    WORKS(make("r/s"));
    /* The limit is the parent's. */
    WORKS(limit("r", "wbps=1048576"));
    long began_ms = (long)now_ms();
    EXPECT(how_it_ends(writer("r/s", 0, 3 * MIB, 1)) == 0, "the writer");
    /* What comes first begins at once: a transfer of a megabyte at most. */
    EXPECT((long)now_ms() - began_ms >= 1900, "3 MiB in %ld ms", (long)now_ms() - began_ms);
    EXPECT(counted("r/s", "wbytes") >= 3 * MIB && counted("r/s", "wios") >= 3, "%s", get("r/s/io.stat"));
    EXPECT(counted("r", "wbytes") == counted("r/s", "wbytes"), "%s", get("r/io.stat"));
    WORKS(limit("r", "wbps=max riops=20"));
    began_ms = (long)now_ms();
    pid_t reader = CHILD({
        enter("r/s");
        int fd = open(disk, O_RDONLY | O_DIRECT);
        char *page = aligned_alloc(PAGE, PAGE);
        /* Beyond what was written, which is in memory. */
        for (int count = 0; count < 15; count++)
            if (pread(fd, page, PAGE, 4 * MIB + count * 64 * PAGE) != PAGE)
                _exit(1);
        _exit(0);
    });
    EXPECT(how_it_ends(reader) == 0, "the reader");
    EXPECT((long)now_ms() - began_ms >= 650, "15 reads in %ld ms", (long)now_ms() - began_ms);
    EXPECT(counted("r/s", "rios") >= 15, "%s", get("r/s/io.stat"));
    WORKS(take_away("r/s"));
    EXPECT(counted("r", "wbytes") >= 3 * MIB, "what a removed group transferred is its parent's, too");
    WORKS(take_away("r"));
}

static void read_as_nobody(void)
{
    int fd = open(disk, O_RDONLY | O_DIRECT);
    char *page = aligned_alloc(PAGE, PAGE);
    EXPECT(pread(fd, page, PAGE, 6 * MIB) == PAGE, "%s", ERRNO_NAME(errno));
    free(page);
    close(fd);
}

/* Who is held back waits alone, until the limit is another one, or he is killed and his group gone. */
static void held(void)
{
    WORKS(make("h"));
    WORKS(limit("h", "wbps=2048"));
    pid_t child = writer("h", 4 * MIB, MIB, 1);
    for (int tries = 0; tries < PATIENCE_CS && counted("h", "wbytes") <= 0; tries++)
        pause_ms(10);
    EXPECT(counted("h", "wbytes") > 0, "%s", get("h/io.stat"));
    read_as_nobody();
    EXPECT(waitpid(child, NULL, WNOHANG) == 0, "a megabyte has passed at two kilobytes a second");
    WORKS(limit("h", "wbps=max"));
    EXPECT(how_it_ends(child) == 0, "the writer");
    /* Pages that a group made dirty, and was the first to use, are written at its pace by whoever writes them, until it is removed. */
    WORKS(limit("h", "wbps=2048"));
    EXPECT(how_it_ends(writer("h", 5 * MIB, MIB, 0)) == 0, "the writer of dirty pages");
    pid_t flusher = CHILD({
        int fd = open(disk, O_WRONLY);
        _exit(fsync(fd) < 0);
    });
    read_as_nobody();
    pause_ms(50);
    EXPECT(waitpid(flusher, NULL, WNOHANG) == 0, "others' pages were written without a limit");
    WORKS(take_away("h"));
    EXPECT(how_it_ends(flusher) == 0, "the flusher");
}

int main(void)
{
    mount_groups();
    make_disk();
    void (*const parts[])(void) = { knobs, rates, held };
    for (size_t part = 0; part < sizeof parts / sizeof parts[0]; part++) {
        progress("transfers of control groups: part %zu", part);
        parts[part]();
    }
    WORKS(put("cgroup.subtree_control", "-io"));
    EXPECT(ioctl(binding, LOOP_CLR_FD) == 0, "%s", ERRNO_NAME(errno));
    return verdict_failed;
}
