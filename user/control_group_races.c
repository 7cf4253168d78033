/* Control groups under attack: processes that fork, make threads and end while they are moved, groups that are removed while somebody enters, kills and
 * freezes of a bomb, and ten thousand groups made and removed. In the end nothing is counted any more, and the memory is back.
 *
 * abi: guest
 * abi: cpus 2
 * abi: long-cpus 1,2,4,8
 * abi: limit 240
 */
#include "control_groups.h"

enum { ROUNDS = 300, GROUPS = 10000, AT_ONCE = 500 };

static void *nothing(void *argument)
{
    return argument;
}

/* Forks, makes threads and ends, as fast as it can. */
static void restless(void)
{
    for (;;) {
        pid_t child = fork();
        if (child == 0) {
            pthread_t thread;
            if (pthread_create(&thread, NULL, nothing, NULL) == 0)
                pthread_join(thread, NULL);
            _exit(0);
        }
        while (waitpid(-1, NULL, child < 0 ? 0 : WNOHANG) > 0)
            ;
    }
}

static void move_members(const char *from, const char *to)
{
    char path[64], line[32];
    snprintf(path, sizeof path, TREE "/%s", from);
    FILE *list = fopen(path, "re");
    while (list && fgets(line, sizeof line, list))
        put(to, line);
    if (list)
        fclose(list);
}

static void moved_while_forking(void)
{
    WORKS(put("cgroup.subtree_control", "+pids"));
    WORKS(make("a"));
    WORKS(make("b"));
    pid_t restless_ones[3];
    for (int index = 0; index < 3; index++) {
        restless_ones[index] = CHILD(restless());
        put_number("a/cgroup.procs", restless_ones[index]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        move_members("a/cgroup.procs", "b/cgroup.procs");
        move_members("b/cgroup.procs", round % 3 ? "a/cgroup.procs" : "cgroup.procs");
        for (int index = 0; round % 3 == 0 && index < 3; index++)
            put_number("a/cgroup.procs", restless_ones[index]);
        if (round % 50 == 0) {
            WORKS(put("a/cgroup.freeze", "1"));
            EXPECT(comes_to("a/cgroup.events", "frozen", 1), "%s", get("a/cgroup.events"));
            WORKS(put("a/cgroup.freeze", "0"));
        }
    }
    for (int index = 0; index < 3; index++)
        kill(restless_ones[index], SIGKILL);
    WORKS(put("a/cgroup.kill", "1"));
    WORKS(put("b/cgroup.kill", "1"));
    for (int index = 0; index < 3; index++)
        waitpid(restless_ones[index], NULL, 0);
    EXPECT(comes_to("a/cgroup.events", "populated", 0) && comes_to("b/cgroup.events", "populated", 0), "somebody is left");
    for (int tries = 0; tries < PATIENCE_CS && (atol(get("a/pids.current")) || atol(get("b/pids.current"))); tries++)
        pause_ms(10);
    SAYS("a/pids.current", "0\n");
    SAYS("b/pids.current", "0\n");
    WORKS(take_away("a"));
    WORKS(take_away("b"));
}

/* Enters a group that another process removes and makes anew. */
static void entered_while_removed(void)
{
    pid_t remover = CHILD({
        for (int round = 0;; round++) {
            make("r");
            sched_yield();
            for (volatile int step = 0; step < round % 64 * 1000; step++)
                ;
            take_away("r");
        }
    });
    int entered = 0, refused = 0;
    for (int round = 0; round < ROUNDS * 4; round++) {
        int error = put("r/cgroup.procs", "0");
        EXPECT(error == 0 || error == ENOENT || error == ENODEV, "%s", strerrorname_np(error));
        entered += error == 0;
        refused += error != 0;
        if (error == 0) {
            EXPECT(!strcmp(contents_of("/proc/self/cgroup"), "0::/r\n"), "%s", contents_of("/proc/self/cgroup"));
            pid_t child = fork();
            if (child == 0)
                _exit(0);
            waitpid(child, NULL, 0);
            WORKS(put("cgroup.procs", "0"));
        }
    }
    kill(remover, SIGKILL);
    waitpid(remover, NULL, 0);
    progress("entered %d times, refused %d times", entered, refused);
    int error = take_away("r");
    EXPECT(error == 0 || error == ENOENT, "%s", strerrorname_np(error));
}

static void bomb_is_killed(void)
{
    WORKS(make("k"));
    WORKS(put("k/pids.max", "60"));
    for (int round = 0; round < 10; round++) {
        pid_t bomb = CHILD({
            put("k/cgroup.procs", "0");
            for (;;)
                fork();
        });
        for (int tries = 0; tries < PATIENCE_CS && atol(get("k/pids.current")) < 30; tries++)
            pause_ms(10);
        if (round % 2)
            WORKS(put("k/cgroup.freeze", "1"));
        WORKS(put("k/cgroup.kill", "1"));
        waitpid(bomb, NULL, 0);
        EXPECT(comes_to("k/cgroup.events", "populated", 0), "one kill is enough: %s", get("k/cgroup.procs"));
        WORKS(put("k/cgroup.freeze", "0"));
    }
    EXPECT(is_taken_away("k"), "the bombs are gone");
}

static void many(void)
{
    char name[32];
    for (int index = 0; index < AT_ONCE; index++) {
        snprintf(name, sizeof name, "many%d", index);
        WORKS(make(name));
        get("many0/cgroup.events");
    }
    for (int index = 0; index < GROUPS; index++) {
        snprintf(name, sizeof name, "many%d", index);
        WORKS(take_away(name));
        snprintf(name, sizeof name, "many%d", index + AT_ONCE);
        WORKS(make(name));
    }
    for (int index = GROUPS; index < GROUPS + AT_ONCE; index++) {
        snprintf(name, sizeof name, "many%d", index);
        WORKS(take_away(name));
    }
    SAYS("cgroup.stat", "nr_descendants 0\nnr_dying_descendants 0\n");
}

int main(void)
{
    mount_groups();
    make("first");
    take_away("first");
    long before = free_kib();
    void (*const parts[])(void) = { moved_while_forking, entered_while_removed, bomb_is_killed, many };
    for (size_t part = 0; part < sizeof parts / sizeof parts[0]; part++) {
        progress("races of control groups: part %zu", part);
        parts[part]();
    }
    memory_is_back("control groups", before);
    return verdict_failed;
}
