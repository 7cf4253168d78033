/* Control groups: the tree and its rules, moving, events, freezing, killing, limits of threads, delegation, name spaces.
 *
 * abi: guest
 * abi: limit 120
 */
#include "control_groups.h"
#include <linux/sched.h>
#include <sys/inotify.h>
#include <sys/vfs.h>

static pid_t sleeper(void)
{
    return CHILD({
        for (;;)
            pause();
    });
}

static void end(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static const char *place_of(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/cgroup", pid);
    return contents_of(path);
}

static void tree(void)
{
    struct statfs status;
    EXPECT(statfs(TREE, &status) == 0 && status.f_type == 0x63677270, "type %lx", (long)status.f_type);
    WORKS(make("t"));
    FAILS(EEXIST, make("t"));
    FAILS(EINVAL, make("t/a\nb"));
    WORKS(make("t/inner"));
    FAILS(EBUSY, take_away("t"));
    SAYS("t/cgroup.type", "domain\n");
    FAILS(EOPNOTSUPP, put("t/cgroup.type", "threaded"));
    FAILS(EINVAL, put("t/cgroup.type", "domain"));
    SAYS("t/cgroup.stat", "nr_descendants 1\nnr_dying_descendants 0\n");
    SAYS("t/cgroup.events", "populated 0\nfrozen 0\n");
    SAYS("t/cgroup.procs", "");
    FAILS(EACCES, open(TREE "/t/file", O_CREAT | O_WRONLY, 0644) < 0 ? errno : 0);
    FAILS(EPERM, symlink("x", TREE "/t/link") < 0 ? errno : 0);
    FAILS(EPERM, unlink(TREE "/t/cgroup.procs") < 0 ? errno : 0);
    FAILS(EPERM, rename(TREE "/t/inner", TREE "/t/other") < 0 ? errno : 0);
    FAILS(ENOENT, put("cgroup.freeze", "1"));
    WORKS(put("t/cgroup.max.depth", "1"));
    FAILS(EAGAIN, make("t/inner/deep"));
    WORKS(put("t/cgroup.max.depth", "max"));
    WORKS(put("t/cgroup.max.descendants", "1"));
    FAILS(EAGAIN, make("t/second"));
    FAILS(ERANGE, put("t/cgroup.max.descendants", "-1"));
    FAILS(EINVAL, put("t/cgroup.max.descendants", "many"));
    SAYS("t/cgroup.max.descendants", "1\n");
    int kept = open(TREE "/t/inner/cgroup.procs", O_RDWR);
    WORKS(take_away("t/inner"));
    FAILS(ENODEV, write(kept, "0", 1) < 0 ? errno : 0);
    char byte;
    FAILS(ENODEV, read(kept, &byte, 1) < 0 ? errno : 0);
    close(kept);
    SAYS("t/cgroup.stat", "nr_descendants 0\nnr_dying_descendants 0\n");
    WORKS(take_away("t"));
}

static void controllers(void)
{
    WORKS(make("c"));
    WORKS(make("c/inner"));
    EXPECT(strstr(get("cgroup.controllers"), "pids") != NULL, "%s", get("cgroup.controllers"));
    SAYS("c/cgroup.controllers", "\n");
    SAYS("c/pids.max", "ENOENT");
    FAILS(ENOENT, put("c/cgroup.subtree_control", "+pids"));
    FAILS(EINVAL, put("cgroup.subtree_control", "+nonsense"));
    FAILS(EINVAL, put("cgroup.subtree_control", "pids"));
    WORKS(put("cgroup.subtree_control", "+pids"));
    SAYS("c/pids.max", "max\n");
    SAYS("c/pids.current", "0\n");
    WORKS(put("c/cgroup.subtree_control", "+pids"));
    FAILS(EBUSY, put("cgroup.subtree_control", "-pids"));
    FAILS(EBUSY, put("c/cgroup.procs", "0"));
    WORKS(put("c/pids.max", "7"));
    FAILS(EINVAL, put("c/pids.max", "-1"));
    FAILS(EINVAL, put("c/pids.max", "4194305"));
    WORKS(put("c/cgroup.subtree_control", "-pids"));
    SAYS("c/inner/pids.max", "ENOENT");
    pid_t child = sleeper();
    WORKS(put_number("c/cgroup.procs", child));
    FAILS(EBUSY, put("c/cgroup.subtree_control", "+pids"));
    SAYS("c/pids.current", "1\n");
    end(child);
    WORKS(take_away("c/inner"));
    WORKS(take_away("c"));
}

static void moving(void)
{
    WORKS(make("m"));
    WORKS(make("m/inner"));
    pid_t child = sleeper();
    char expected[64];
    WORKS(put_number("m/inner/cgroup.procs", child));
    snprintf(expected, sizeof expected, "%d\n", child);
    SAYS("m/inner/cgroup.procs", expected);
    SAYS("m/inner/cgroup.threads", expected);
    EXPECT(!strcmp(place_of(child), "0::/m/inner\n"), "%s", place_of(child));
    SAYS("m/cgroup.events", "populated 1\nfrozen 0\n");
    FAILS(EBUSY, take_away("m/inner"));
    FAILS(EOPNOTSUPP, put_number("m/cgroup.threads", child));
    WORKS(put_number("m/inner/cgroup.threads", child));
    FAILS(ESRCH, put("m/cgroup.procs", "4194303"));
    FAILS(EINVAL, put("m/cgroup.procs", "-1"));
    FAILS(EINVAL, put("m/cgroup.procs", "you"));
    int notices = inotify_init1(IN_NONBLOCK), events = open(TREE "/m/cgroup.events", O_RDONLY);
    inotify_add_watch(notices, TREE "/m/cgroup.events", IN_MODIFY);
    char text[64];
    struct pollfd polled = { events, POLLPRI, 0 };
    EXPECT(read(events, text, sizeof text) > 0, "events");
    EXPECT(poll(&polled, 1, 0) == 0, "nothing has changed");
    kill(child, SIGKILL);
    EXPECT(poll(&polled, 1, PATIENCE_CS * 10) == 1 && polled.revents & POLLPRI, "events %x", polled.revents);
    struct inotify_event event;
    EXPECT(read(notices, &event, sizeof event) == sizeof event && event.mask == IN_MODIFY, "a change is told");
    EXPECT(pread(events, text, sizeof text, 0) > 0 && !strncmp(text, "populated 0\n", 12), "%s", text);
    EXPECT(poll(&polled, 1, 0) == 0, "it was read");
    close(events);
    close(notices);
    /* A zombie keeps nothing. */
    WORKS(take_away("m/inner"));
    EXPECT(!strcmp(place_of(child), "0::/m/inner (deleted)\n"), "%s", place_of(child));
    SAYS("m/cgroup.stat", "nr_descendants 0\nnr_dying_descendants 1\n");
    waitpid(child, NULL, 0);
    WORKS(put("m/cgroup.procs", "0"));
    EXPECT(!strcmp(place_of(getpid()), "0::/m\n"), "%s", place_of(getpid()));
    child = sleeper();
    EXPECT(!strcmp(place_of(child), "0::/m\n"), "%s", place_of(child));
    end(child);
    WORKS(put("cgroup.procs", "0"));
    EXPECT(!strcmp(place_of(getpid()), "0::/\n"), "%s", place_of(getpid()));
    WORKS(take_away("m"));
}

static void freezing(void)
{
    _Atomic long *steps = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    WORKS(make("f"));
    WORKS(make("f/inner"));
    pid_t runner = CHILD({
        for (;;)
            ++*steps;
    });
    pid_t sleeping = sleeper();
    WORKS(put_number("f/inner/cgroup.procs", runner));
    WORKS(put_number("f/cgroup.procs", sleeping));
    WORKS(put("f/cgroup.freeze", "1"));
    FAILS(ERANGE, put("f/cgroup.freeze", "2"));
    EXPECT(comes_to("f/cgroup.events", "frozen", 1), "%s", get("f/cgroup.events"));
    EXPECT(comes_to("f/inner/cgroup.events", "frozen", 1), "%s", get("f/inner/cgroup.events"));
    SAYS("f/inner/cgroup.freeze", "0\n");
    long before = *steps;
    for (int turn = 0; turn < 50; turn++)
        sched_yield();
    pause_ms(50);
    EXPECT(*steps == before, "%ld steps in a frozen group", *steps - before);
    /* A stop and a continuation change nothing, and death comes through. */
    kill(runner, SIGSTOP);
    kill(runner, SIGCONT);
    pause_ms(20);
    EXPECT(*steps == before, "%ld steps in a frozen group", *steps - before);
    /* Who leaves goes on. */
    WORKS(put_number("cgroup.procs", runner));
    for (int tries = 0; tries < PATIENCE_CS && *steps == before; tries++)
        pause_ms(10);
    EXPECT(*steps != before, "it does not go on");
    WORKS(put_number("f/inner/cgroup.procs", runner));
    EXPECT(comes_to("f/cgroup.events", "frozen", 1), "%s", get("f/cgroup.events"));
    end(runner);
    EXPECT(comes_to("f/cgroup.events", "frozen", 1), "%s", get("f/cgroup.events"));
    WORKS(put("f/cgroup.freeze", "0"));
    EXPECT(comes_to("f/cgroup.events", "frozen", 0), "%s", get("f/cgroup.events"));
    WORKS(take_away("f/inner"));
    end(sleeping);
    WORKS(take_away("f"));
    munmap((void *)steps, 4096);
}

static void killing(void)
{
    WORKS(make("k"));
    WORKS(make("k/inner"));
    pid_t one = sleeper(), two = sleeper();
    WORKS(put_number("k/cgroup.procs", one));
    WORKS(put_number("k/inner/cgroup.procs", two));
    FAILS(ERANGE, put("k/cgroup.kill", "0"));
    WORKS(put("k/cgroup.freeze", "1"));
    WORKS(put("k/cgroup.kill", "1"));
    int status = 0;
    EXPECT(waitpid(one, &status, 0) == one && WTERMSIG(status) == SIGKILL, "status %x", status);
    EXPECT(waitpid(two, &status, 0) == two && WTERMSIG(status) == SIGKILL, "status %x", status);
    WORKS(take_away("k/inner"));
    WORKS(take_away("k"));
}

static void limits(void)
{
    WORKS(put("cgroup.subtree_control", "+pids"));
    WORKS(make("p"));
    WORKS(put("p/pids.max", "5"));
    pid_t bomb = CHILD({
        put("p/cgroup.procs", "0");
        for (;;)
            if (fork() < 0 && errno != EAGAIN)
                _exit(1);
    });
    for (int tries = 0; tries < PATIENCE_CS && number_in("p/pids.events", "max") < 100; tries++)
        pause_ms(10);
    EXPECT(number_in("p/pids.events", "max") >= 100, "%s", get("p/pids.events"));
    SAYS("p/pids.current", "5\n");
    pid_t outside = fork();
    if (outside == 0)
        _exit(0);
    EXPECT(outside > 0 && waitpid(outside, NULL, 0) == outside, "others fork");
    WORKS(put("p/cgroup.kill", "1"));
    waitpid(bomb, NULL, 0);
    EXPECT(is_taken_away("p"), "the bomb is gone");
}

static void delegation(void)
{
    WORKS(make("d"));
    WORKS(make("d/mine"));
    WORKS(make("d/mine/a"));
    WORKS(make("d/mine/b"));
    for (const char *const *file = (const char *const[]){ "", "/cgroup.procs", "/cgroup.subtree_control", "/a/cgroup.procs", "/b/cgroup.procs", NULL }; *file; file++) {
        char path[128];
        snprintf(path, sizeof path, TREE "/d/mine%s", *file);
        EXPECT(chown(path, 1000, 1000) == 0, "%s", path);
    }
    pid_t inside = sleeper(), outside = sleeper();
    WORKS(put_number("d/mine/a/cgroup.procs", inside));
    WORKS(put_number("d/cgroup.procs", outside));
    pid_t child = CHILD({
        verdict_failed = 0;
        if (setresgid(1000, 1000, 1000) < 0 || setresuid(1000, 1000, 1000) < 0)
            _exit(2);
        WORKS(put_number("d/mine/b/cgroup.procs", inside));
        FAILS(EACCES, put_number("d/mine/b/cgroup.procs", outside));
        FAILS(EACCES, put_number("d/cgroup.procs", inside));
        FAILS(EACCES, put("d/mine/cgroup.freeze", "1"));
        FAILS(EACCES, make("d/more"));
        WORKS(make("d/mine/c"));
        WORKS(put_number("d/mine/c/cgroup.procs", inside));
        WORKS(put_number("d/mine/b/cgroup.procs", inside));
        WORKS(take_away("d/mine/c"));
        _exit(verdict_failed);
    });
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT(status == 0, "status %x", status);
    end(inside);
    end(outside);
    for (const char *const *group = (const char *const[]){ "d/mine/a", "d/mine/b", "d/mine", "d", NULL }; *group; group++)
        WORKS(take_away(*group));
}

static void name_spaces(void)
{
    WORKS(make("n"));
    WORKS(make("n/inner"));
    char parent[64];
    snprintf(parent, sizeof parent, "/proc/%d/ns/cgroup", getpid());
    pid_t outside = sleeper();
    pid_t child = CHILD({
        verdict_failed = 0;
        WORKS(put("n/cgroup.procs", "0"));
        EXPECT(unshare(CLONE_NEWCGROUP | CLONE_NEWNS) == 0, "%s", strerror(errno));
        EXPECT(!strcmp(place_of(getpid()), "0::/\n"), "%s", place_of(getpid()));
        EXPECT(!strcmp(place_of(outside), "0::/..\n"), "%s", place_of(outside));
        EXPECT(mount("cgroup2", TREE, "cgroup2", 0, "") == 0, "%s", strerror(errno));
        EXPECT(access(TREE "/inner", F_OK) == 0 && access(TREE "/n", F_OK) < 0, "the name space's root");
        int own = open("/proc/self/ns/cgroup", O_RDONLY), first = open(parent, O_RDONLY);
        EXPECT(setns(first, CLONE_NEWCGROUP) == 0, "%s", strerror(errno));
        EXPECT(!strcmp(place_of(getpid()), "0::/n\n"), "%s", place_of(getpid()));
        EXPECT(setns(own, CLONE_NEWCGROUP) == 0, "%s", strerror(errno));
        EXPECT(!strcmp(place_of(getpid()), "0::/\n"), "%s", place_of(getpid()));
        _exit(verdict_failed);
    });
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT(status == 0, "status %x", status);
    end(outside);
    WORKS(take_away("n/inner"));
    WORKS(take_away("n"));
}

static long clone_into(int group)
{
    struct clone_args arguments = { .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (uint64_t)group };
    long child = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (child == 0)
        _exit(strcmp(place_of(getpid()), "0::/i\n") != 0);
    return child < 0 ? -errno : child;
}

static void into(void)
{
    WORKS(make("i"));
    int group = open(TREE "/i", O_RDONLY | O_DIRECTORY), other = open("/", O_RDONLY | O_DIRECTORY), status = 0;
    long child = clone_into(group);
    EXPECT(child > 0 && waitpid((pid_t)child, &status, 0) == child && status == 0, "%ld, status %x", child, status);
    FAILS(EBADF, (int)-clone_into(other));
    FAILS(EBADF, (int)-clone_into(900));
    WORKS(put("cgroup.subtree_control", "+pids"));
    WORKS(put("i/cgroup.subtree_control", "+pids"));
    FAILS(EBUSY, (int)-clone_into(group));
    WORKS(take_away("i"));
    FAILS(ENODEV, (int)-clone_into(group));
    close(group);
    close(other);
}

static void processor_time(void)
{
    WORKS(make("u"));
    pid_t child = CHILD({
        put("u/cgroup.procs", "0");
        struct timespec now = { 0, 0 };
        while (now.tv_nsec < 50000000 && now.tv_sec == 0)
            clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    });
    waitpid(child, NULL, 0);
    long used = number_in("u/cpu.stat", "usage_usec");
    EXPECT(used >= 40000, "%s", get("u/cpu.stat"));
    WORKS(take_away("u"));
    EXPECT(number_in("cpu.stat", "usage_usec") > used, "%s", get("cpu.stat"));
}

int main(void)
{
    mount_groups();
    /* Of who was here before. */
    put("cgroup.subtree_control", "-cpu -pids");
    void (*const parts[])(void) = { tree, controllers, moving, freezing, killing, limits, delegation, name_spaces, into, processor_time };
    for (size_t part = 0; part < sizeof parts / sizeof parts[0]; part++) {
        progress("control groups: part %zu", part);
        parts[part]();
    }
    return verdict_failed;
}
