/* The controller memory: who pays, limits that hold with real allocations, kills that stay in the group, and nothing left when all have ended.
 *
 * abi: guest
 * abi: limit 240
 * abi: memory 512M
 * abi: long-cpus 1,2,4,8
 */
#include "control_groups.h"
#include <ctype.h>
#include <poll.h>

#define PAGE 4096L
#define MIB (1L << 20)

static long value(const char *file)
{
    const char *text = get(file);
    return isdigit((unsigned char)*text) ? strtol(text, NULL, 10) : -1;
}

/* Waits until a file of a group shows a number. */
static int settles(const char *file, long wanted)
{
    for (int tries = 0; tries < PATIENCE_CS; tries++) {
        if (value(file) == wanted)
            return 1;
        pause_ms(10);
    }
    printf("%s is %s", file, get(file));
    return 0;
}

static char *touch(long bytes)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        _exit(9);
    for (long at = 0; at < bytes; at += PAGE)
        memory[at] = 1;
    return memory;
}

static void enter(const char *group)
{
    char path[64];
    snprintf(path, sizeof path, "%s/cgroup.procs", group);
    if (put(path, "0"))
        _exit(8);
}

/* How many have used their memory: a word that nobody in a group pays for. */
static int *ready;

/* Uses so much memory in a group, then stays until it is killed. */
static pid_t user_of(const char *group, long bytes)
{
    return CHILD({
        enter(group);
        touch(bytes);
        __atomic_add_fetch(ready, 1, __ATOMIC_SEQ_CST);
        for (;;)
            pause();
    });
}

static void await(int users)
{
    int tries = 0;
    while (__atomic_load_n(ready, __ATOMIC_SEQ_CST) < users && tries++ < PATIENCE_CS)
        pause_ms(10);
    EXPECT(*ready == users, "%d of %d have used their memory", *ready, users);
    *ready = 0;
}

static void end(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static int how_it_ends(pid_t child)
{
    int status = -1;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void knobs(void)
{
    WORKS(put("cgroup.subtree_control", "+memory"));
    EXPECT(strstr(get("cgroup.subtree_control"), "memory") != NULL, "%s", get("cgroup.subtree_control"));
    SAYS("memory.max", "ENOENT");
    EXPECT(number_in("memory.stat", "anon") > 0, "%s", get("memory.stat"));
    WORKS(make("k"));
    SAYS("k/memory.current", "0\n");
    SAYS("k/memory.peak", "0\n");
    SAYS("k/memory.min", "0\n");
    SAYS("k/memory.low", "0\n");
    SAYS("k/memory.high", "max\n");
    SAYS("k/memory.max", "max\n");
    SAYS("k/memory.swap.current", "0\n");
    SAYS("k/memory.swap.max", "max\n");
    SAYS("k/memory.oom.group", "0\n");
    SAYS("k/memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n");
    WORKS(put("k/memory.max", "1M"));
    SAYS("k/memory.max", "1048576\n");
    WORKS(put("k/memory.max", "8191"));
    SAYS("k/memory.max", "4096\n");
    WORKS(put("k/memory.max", "max"));
    SAYS("k/memory.max", "max\n");
    FAILS(EINVAL, put("k/memory.max", "-1"));
    FAILS(EINVAL, put("k/memory.max", "lots"));
    FAILS(EINVAL, put("k/memory.high", "1MB"));
    WORKS(put("k/memory.oom.group", "1"));
    SAYS("k/memory.oom.group", "1\n");
    FAILS(EINVAL, put("k/memory.oom.group", "2"));
    WORKS(put("k/memory.low", "2M"));
    SAYS("k/memory.low", "2097152\n");
    FAILS(EAGAIN, put("k/memory.reclaim", "1M"));
    FAILS(EINVAL, put("k/memory.reclaim", "-1"));
    int fd = open(TREE "/k/memory.current", O_WRONLY);
    EXPECT(fd < 0 || write(fd, "0", 1) < 0, "memory.current can be written");
    if (fd >= 0)
        close(fd);
    WORKS(put("cgroup.subtree_control", "-memory"));
    SAYS("k/memory.max", "ENOENT");
    WORKS(put("cgroup.subtree_control", "+memory"));
    SAYS("k/memory.low", "0\n");
    WORKS(take_away("k"));
}

/* What a group's tasks allocate is counted there and above, and gone with them. */
static void counts(void)
{
    WORKS(make("a"));
    WORKS(put("a/cgroup.subtree_control", "+memory"));
    WORKS(make("a/b"));
    WORKS(make("a/c"));
    pid_t one = user_of("a/b", 8 * MIB), other = user_of("a/c", 4 * MIB);
    await(2);
    long b = value("a/b/memory.current"), c = value("a/c/memory.current"), a = value("a/memory.current");
    EXPECT(b >= 8 * MIB && b < 9 * MIB, "%ld", b);
    EXPECT(c >= 4 * MIB && c < 5 * MIB, "%ld", c);
    EXPECT(a == b + c, "%ld is not %ld + %ld", a, b, c);
    long anon = number_in("a/b/memory.stat", "anon"), tables = number_in("a/b/memory.stat", "pagetables");
    EXPECT(anon >= 8 * MIB && tables > 0 && anon + tables <= b, "%s", get("a/b/memory.stat"));
    EXPECT(number_in("a/memory.stat", "anon") >= anon + 4 * MIB, "%s", get("a/memory.stat"));
    EXPECT(value("a/memory.peak") >= a, "%s", get("a/memory.peak"));
    /* A process that is moved takes nothing along. */
    WORKS(put_number("a/c/cgroup.procs", one));
    long left = value("a/b/memory.current");
    EXPECT(left >= 8 * MIB, "%ld", left);
    end(one);
    EXPECT(settles("a/b/memory.current", 0), "what was allocated before the move");
    end(other);
    EXPECT(settles("a/c/memory.current", 0), "a killed one");
    EXPECT(settles("a/memory.current", 0), "above");
    WORKS(take_away("a/b"));
    WORKS(take_away("a/c"));
    WORKS(take_away("a"));
}

/* Files in memory are paid for by who touches them first, and by a removed group's parent when that is gone. */
static void shared_memory(void)
{
    WORKS(make("s"));
    WORKS(put("s/cgroup.subtree_control", "+memory"));
    WORKS(make("s/t"));
    int file = memfd_create("kept", 0);
    pid_t child = CHILD({
        enter("s/t");
        static char page[PAGE];
        for (int count = 0; count < 512; count++)
            if (write(file, page, PAGE) != PAGE)
                _exit(1);
        _exit(0);
    });
    EXPECT(how_it_ends(child) == 0, "writing");
    EXPECT(settles("s/t/memory.current", 512 * PAGE), "the file outlives its writer");
    EXPECT(number_in("s/t/memory.stat", "shmem") == 512 * PAGE, "%s", get("s/t/memory.stat"));
    EXPECT(number_in("s/t/memory.stat", "file") == 512 * PAGE, "%s", get("s/t/memory.stat"));
    EXPECT(is_taken_away("s/t"), "a group that files are charged to can be removed");
    SAYS("s/memory.current", "2097152\n");
    EXPECT(number_in("s/memory.stat", "shmem") == 512 * PAGE, "%s", get("s/memory.stat"));
    /* Another group's process reads it: it stays where it is. */
    WORKS(make("s/u"));
    child = CHILD({
        enter("s/u");
        char page[PAGE];
        for (int count = 0; count < 512; count++)
            if (pread(file, page, PAGE, count * PAGE) != PAGE)
                _exit(1);
        if (number_in("s/u/memory.stat", "shmem") != 0)
            _exit(2);
        _exit(0);
    });
    EXPECT(how_it_ends(child) == 0, "reading");
    close(file);
    EXPECT(settles("s/memory.current", 0), "the file is gone");
    EXPECT(is_taken_away("s/u"), "u");
    WORKS(take_away("s"));
}

/* The one that exceeds the limit is killed, its neighbours and those outside are not. */
static void maximum(void)
{
    WORKS(make("m"));
    WORKS(make("n"));
    WORKS(put("m/memory.max", "16M"));
    /* Outside the group there is somebody bigger. */
    pid_t outside = user_of("n", 32 * MIB);
    pid_t small = user_of("m", 2 * MIB);
    await(2);
    int events = open(TREE "/m/memory.events", O_RDONLY);
    char text[256];
    EXPECT(read(events, text, sizeof text) > 0, "no events");
    pid_t hog = CHILD({
        enter("m");
        touch(64 * MIB);
        _exit(0);
    });
    EXPECT(how_it_ends(hog) == -SIGKILL, "it was not killed");
    struct pollfd poller = { .fd = events, .events = POLLPRI };
    EXPECT(poll(&poller, 1, 10000) == 1 && poller.revents & POLLPRI, "no change was told");
    close(events);
    EXPECT(kill(small, 0) == 0 && waitpid(small, NULL, WNOHANG) == 0, "the small one was killed");
    EXPECT(waitpid(outside, NULL, WNOHANG) == 0, "one outside was killed");
    EXPECT(number_in("m/memory.events", "oom_kill") == 1, "%s", get("m/memory.events"));
    EXPECT(number_in("m/memory.events", "oom") >= 1 && number_in("m/memory.events", "max") >= 1, "%s",
           get("m/memory.events"));
    EXPECT(number_in("n/memory.events", "oom_kill") == 0, "%s", get("n/memory.events"));
    EXPECT(value("m/memory.peak") <= 16 * MIB, "%s", get("m/memory.peak"));
    /* A limit that is set below what there is kills at once. */
    WORKS(put("m/memory.max", "1M"));
    EXPECT(how_it_ends(small) == -SIGKILL, "it fits no more");
    EXPECT(settles("m/memory.current", 0), "all have ended");
    /* System calls that need memory are in the same position as faults: reads into memory, forks. */
    WORKS(put("m/memory.max", "4M"));
    hog = CHILD({
        enter("m");
        int zero = open("/dev/zero", O_RDONLY);
        char *memory = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        _exit(read(zero, memory, 16 * MIB) == 16 * MIB ? 0 : 1);
    });
    int ended = how_it_ends(hog);
    EXPECT(ended == -SIGKILL, "%d", ended);
    /* tmpfs can't be reclaimed. */
    hog = CHILD({
        enter("m");
        int file = memfd_create("full", 0);
        static char piece[64 * 1024];
        for (int count = 0; count < 256; count++)
            if (write(file, piece, sizeof piece) <= 0)
                _exit(errno == ENOMEM ? 12 : 1);
        _exit(0);
    });
    ended = how_it_ends(hog);
    EXPECT(ended == -SIGKILL, "%d", ended);
    EXPECT(settles("m/memory.current", 0), "after all that");
    end(outside);
    EXPECT(settles("n/memory.current", 0), "outside");
    WORKS(take_away("m"));
    WORKS(take_away("n"));
}

/* All of a group that ends together, and nobody else. */
static void together(void)
{
    WORKS(make("g"));
    WORKS(put("g/cgroup.subtree_control", "+memory"));
    WORKS(make("g/h"));
    WORKS(make("g/i"));
    WORKS(put("g/memory.max", "16M"));
    WORKS(put("g/h/memory.oom.group", "1"));
    pid_t friend = user_of("g/h", MIB), other = user_of("g/i", MIB);
    await(2);
    pid_t hog = CHILD({
        enter("g/h");
        touch(64 * MIB);
        _exit(0);
    });
    EXPECT(how_it_ends(hog) == -SIGKILL, "the hog");
    EXPECT(how_it_ends(friend) == -SIGKILL, "who is in its group");
    EXPECT(waitpid(other, NULL, WNOHANG) == 0, "who is in another");
    EXPECT(number_in("g/h/memory.events", "oom_group_kill") == 1, "%s", get("g/h/memory.events"));
    EXPECT(number_in("g/h/memory.events", "oom_kill") == 2, "%s", get("g/h/memory.events"));
    EXPECT(number_in("g/memory.events", "oom_kill") == 2, "%s", get("g/memory.events"));
    EXPECT(number_in("g/memory.events.local", "oom_kill") == 0, "%s", get("g/memory.events.local"));
    EXPECT(number_in("g/memory.events.local", "oom") >= 1, "%s", get("g/memory.events.local"));
    end(other);
    EXPECT(settles("g/memory.current", 0), "all have ended");
    WORKS(take_away("g/h"));
    WORKS(take_away("g/i"));
    WORKS(take_away("g"));
}

/* Beyond the higher mark nobody is killed, but held up. */
static void mark(void)
{
    WORKS(make("h"));
    WORKS(put("h/memory.high", "4M"));
    pid_t child = CHILD({
        enter("h");
        touch(5 * MIB);
        _exit(0);
    });
    EXPECT(how_it_ends(child) == 0, "it was killed");
    EXPECT(number_in("h/memory.events", "high") > 0, "%s", get("h/memory.events"));
    EXPECT(number_in("h/memory.events", "oom_kill") == 0, "%s", get("h/memory.events"));
    EXPECT(settles("h/memory.current", 0), "it has ended");
    WORKS(take_away("h"));
}

/* A family of a hundred comes to the limit, again and again, on all processors; then all is given back. */
static void crowd(void)
{
    WORKS(make("f"));
    WORKS(put("f/memory.max", "12M"));
    pid_t families[4];
    for (int family = 0; family < 4; family++)
        families[family] = CHILD({
            enter("f");
            for (int round = 0; round < 25; round++) {
                pid_t child = CHILD({
                    char *memory = touch((1 + round % 5) * MIB);
                    munmap(memory, MIB / 2);
                    touch(MIB / 2);
                    _exit(0);
                });
                waitpid(child, NULL, 0);
            }
            _exit(0);
        });
    for (int family = 0; family < 4; family++)
        how_it_ends(families[family]);
    EXPECT(value("f/memory.peak") <= 12 * MIB, "%s", get("f/memory.peak"));
    EXPECT(settles("f/memory.current", 0), "after the crowd");
    EXPECT(number_in("f/memory.stat", "anon") == 0 && number_in("f/memory.stat", "kernel") == 0, "%s",
           get("f/memory.stat"));
    WORKS(take_away("f"));
}

/* Charging, moving and removing at the same time: a process allocates while it is moved between groups that are made and removed. */
static void moves(void)
{
    WORKS(make("v"));
    WORKS(put("v/cgroup.subtree_control", "+memory"));
    pid_t child = CHILD({
        for (;;) {
            char *memory = touch(MIB / 4);
            munmap(memory, MIB / 4);
            int file = memfd_create("small", 0);
            if (write(file, "x", 1) != 1)
                _exit(1);
            close(file);
        }
    });
    char group[32], path[64];
    for (int round = 0; round < 300; round++) {
        snprintf(group, sizeof group, "v/%d", round);
        WORKS(make(group));
        snprintf(path, sizeof path, "%s/cgroup.procs", group);
        WORKS(put_number(path, child));
        if (round % 7 == 0)
            pause_ms(1);
        if (round > 0) {
            snprintf(group, sizeof group, "v/%d", round - 1);
            EXPECT(is_taken_away(group), "%s", group);
        }
    }
    end(child);
    EXPECT(is_taken_away("v/299"), "the last one");
    EXPECT(settles("v/memory.current", 0), "what removed groups had is given back");
    EXPECT(number_in("v/memory.stat", "anon") == 0, "%s", get("v/memory.stat"));
    WORKS(take_away("v"));
}

/* A user who was given a part of the tree sets limits below, not of what he was given. */
static void delegation(void)
{
    WORKS(make("d"));
    WORKS(put("d/memory.max", "32M"));
    EXPECT(chown(TREE "/d", 1000, 1000) == 0 && chown(TREE "/d/cgroup.procs", 1000, 1000) == 0
               && chown(TREE "/d/cgroup.subtree_control", 1000, 1000) == 0,
           "it can't be given away");
    pid_t child = CHILD({
        if (setgid(1000) || setuid(1000))
            _exit(1);
        if (put("d/memory.max", "64M") != EACCES)
            _exit(2);
        if (put("d/cgroup.subtree_control", "+memory") || make("d/own") || put("d/own/memory.max", "8M"))
            _exit(3);
        if (put("d/memory.reclaim", "1M") != EACCES)
            _exit(4);
        _exit(0);
    });
    int ended = how_it_ends(child);
    EXPECT(ended == 0, "%d", ended);
    child = CHILD({
        enter("d/own");
        touch(16 * MIB);
        _exit(0);
    });
    EXPECT(how_it_ends(child) == -SIGKILL, "the user's limit does not hold");
    EXPECT(number_in("d/memory.events", "oom_kill") == 1, "%s", get("d/memory.events"));
    EXPECT(settles("d/memory.current", 0), "delegated");
    WORKS(take_away("d/own"));
    WORKS(take_away("d"));
}

int main(void)
{
    mount_groups();
    ready = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *ready = 0;
    void (*const parts[])(void) = { knobs, counts, shared_memory, maximum, together, mark, crowd, moves, delegation };
    for (size_t part = 0; part < sizeof parts / sizeof parts[0]; part++) {
        progress("memory of control groups: part %zu", part);
        parts[part]();
    }
    WORKS(put("cgroup.subtree_control", "-memory"));
    return verdict_failed;
}
