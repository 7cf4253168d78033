/* Fork bombs whose processes all leave for sessions of their own, without any limit: the kernel ends them by itself and gets the memory
 * back, and those who have nothing to do with them live on, also processes of the same user.
 *
 * abi: guest
 * abi: alone
 * abi: memory 128M
 * abi: limit 240
 */
#include "guest.h"

enum { BYSTANDERS = 5, USER = 1000 };

/* Each has memory of its own, and not its ancestors'. */
static void waste(void)
{
    static char *area;
    if (area)
        munmap(area, 1 << 20);
    area = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED)
        area = NULL;
    for (int i = 0; area && i < 16; i++)
        area[i << 16] = 1;
}

/* Everybody forks. */
static void everybody(void)
{
    for (;;) {
        pid_t child = fork();
        if (child == 0) {
            setsid();
            waste();
        }
        if (child < 0)
            sched_yield();
    }
}

/* One forks, the others sleep. */
static void one_of_many(void)
{
    for (;;) {
        pid_t child = fork();
        if (child == 0) {
            setsid();
            waste();
            for (;;)
                pause();
        }
        if (child < 0)
            sched_yield();
    }
}

/* Each forks twice and ends: nobody has a parent. */
static void orphans(void)
{
    for (;;) {
        int made = 0;
        while (made < 2) {
            pid_t child = fork();
            if (child == 0) {
                setsid();
                waste();
                made = 0;
                usleep(20000);
            } else if (child > 0) {
                made++;
            } else {
                sched_yield();
            }
        }
        usleep(100000);
        _exit(0);
    }
}

/* A long line: each forks once and sleeps. */
static void line(void)
{
    for (;;) {
        pid_t child = fork();
        if (child > 0)
            for (;;)
                pause();
        if (child == 0) {
            setsid();
            waste();
        } else {
            sched_yield();
        }
    }
}

static int count_processes(uid_t user)
{
    DIR *folder = opendir("/proc");
    struct dirent *entry;
    int found = folder ? 0 : 1000000;
    while (folder && (entry = readdir(folder))) {
        char path[300];
        struct stat status;
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9')
            continue;
        snprintf(path, sizeof path, "/proc/%s", entry->d_name);
        found += stat(path, &status) == 0 && status.st_uid == user;
    }
    if (folder)
        closedir(folder);
    return found;
}

static void explode(const char *what, void (*bomb)(void), int rest)
{
    pid_t bystanders[BYSTANDERS];
    long kills = figure("/proc/vmstat", "oom_kill");
    for (int index = 0; index < BYSTANDERS; index++)
        bystanders[index] = CHILD({
            uid_t user = index % 2 ? USER : 0;
            setresuid(user, user, user);
            waste();
            for (;;)
                usleep(index * 100000 + 100000);
        });
    /* They sleep when they have the memory that they waste. */
    for (int index = 0; index < BYSTANDERS; index++)
        EXPECT(wait_state(bystanders[index], "S"), "bystander %d does not sleep", index);
    long before = free_kib();
    progress("bomb of %s, MemFree %ld KiB", what, before);
    pid_t first = CHILD({
        setresuid(USER, USER, USER);
        bomb();
    });
    /* Until it has met the end of memory, and then until it is gone. */
    long long until = now_ms() + 250000;
    int left = 1000, most = 0;
    while (now_ms() < until && (figure("/proc/vmstat", "oom_kill") == kills || left > BYSTANDERS / 2 + rest)) {
        pause_ms(50);
        while (waitpid(first, NULL, WNOHANG) > 0)
            ;
        left = count_processes(USER);
        most = left > most ? left : most;
    }
    printf("%s: at most %d processes, %ld killed, %d left of the bomb\n", what, most,
           figure("/proc/vmstat", "oom_kill") - kills, left - BYSTANDERS / 2);
    EXPECT(figure("/proc/vmstat", "oom_kill") > kills, "%s did not use up the memory", what);
    EXPECT(left <= BYSTANDERS / 2 + rest, "%s goes on", what);
    for (int index = 0; index < BYSTANDERS; index++)
        EXPECT(kill(bystanders[index], 0) == 0 && waitpid(bystanders[index], NULL, WNOHANG) == 0,
               "%s: bystander %d was killed", what, index);
    if (rest == 0)
        memory_is_back(what, before);
    kill_user(USER);
    for (int index = 0; index < BYSTANDERS; index++) {
        kill(bystanders[index], SIGKILL);
        waitpid(bystanders[index], NULL, 0);
    }
    memory_is_back(what, before);
}

int main(int count, char **words)
{
    static const struct { const char *name; void (*bomb)(void); int rest; } all[] = {
        { "everybody", everybody, 0 },
        { "one_of_many", one_of_many, 0 },
        { "orphans", orphans, 0 },
        /* Its older half does nothing any more. */
        { "line", line, 1000 },
    };
    prctl(PR_SET_NAME, "bystander");
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (count < 2 || !strcmp(words[1], all[i].name))
            explode(all[i].name, all[i].bomb, all[i].rest);
    REAP(CHILD(execl("/abi/hello", "hello", "after", NULL)));
    return verdict_failed;
}
