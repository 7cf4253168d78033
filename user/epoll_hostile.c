/* Instances of epoll that are made to hurt: in long chains, in chains of closed ones, reached by millions of ways, by a user who wants more interests than he may
 * have, with very many ready ones, and very many of one file.
 *
 * abi: guest
 * abi: limit 120
 */
#include "guest.h"
#include <sys/epoll.h>

#define LIMIT "/proc/sys/fs/epoll/max_user_watches"
enum { CHAIN = 400, ENDED = 30000, COPIES = 120, LEVELS = 4, READY = 100000, FIRST_COPY = 1000, WATCHERS = 3000 };

static int watch(int outer, int inner)
{
    struct epoll_event event = { EPOLLIN, { 0 } };
    return epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event);
}

/* Built from the outermost in, each link seems short. */
static void long_chain(void)
{
    int chain[CHAIN], ends[2], refused = 0;
    pipe(ends);
    for (int i = 0; i < CHAIN; i++)
        chain[i] = epoll_create1(0);
    for (int i = 0; i + 1 < CHAIN; i++)
        refused += watch(chain[i], chain[i + 1]) != 0 && errno == ELOOP;
    EXPECT(refused > CHAIN / 10, "%d refused", refused);
    EXPECT(watch(chain[CHAIN - 1], ends[0]) == 0, "%s", strerror(errno));
    EXPECT(write(ends[1], "x", 1) == 1, "%s", strerror(errno));
    for (int i = 0; i < CHAIN; i++)
        close(chain[i]);
    close(ends[0]);
    close(ends[1]);
}

/* Each is watched by one that is closed then. What they take must not add up, nor their ends be one in another. */
static void ended_chain(void)
{
    int ends[2];
    pipe(ends);
    for (int round = 0; round < 2; round++) {
        int last = epoll_create1(0);
        EXPECT(round == 0 || watch(last, ends[0]) == 0, "%s", strerror(errno));
        for (int i = 0; i < ENDED; i++) {
            int next = epoll_create1(0);
            EXPECT(watch(last, next) == 0, "%s", strerror(errno));
            close(last);
            last = next;
        }
        close(last);
        EXPECT(write(ends[1], "x", 1) == 1, "%s", strerror(errno));
    }
    close(ends[0]);
    close(ends[1]);
}

/* Each level watches many descriptors of the next one: as many ways as there are steps in a day. */
static void many_ways(void)
{
    int levels[LEVELS + 1];
    for (int i = 0; i <= LEVELS; i++)
        levels[i] = epoll_create1(0);
    int copies[LEVELS][COPIES];
    for (int i = LEVELS - 1; i > 0; i--)
        for (int copy = 0; copy < COPIES; copy++) {
            copies[i][copy] = dup(levels[i + 1]);
            int result = watch(levels[i], copies[i][copy]);
            EXPECT(result == 0 || errno == EINVAL, "%s", strerror(errno));
        }
    EXPECT(watch(levels[0], levels[1]) == 0, "%s", strerror(errno));
    int ends[2];
    pipe(ends);
    EXPECT(watch(levels[LEVELS], ends[0]) == 0, "%s", strerror(errno));
    EXPECT(write(ends[1], "x", 1) == 1, "%s", strerror(errno));
    struct epoll_event event;
    EXPECT(epoll_wait(levels[0], &event, 1, -1) == 1, "%s", strerror(errno));
}

static void set_limit(const char *text)
{
    int file = open(LIMIT, O_WRONLY | O_CLOEXEC);
    EXPECT(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text), "%s", strerror(errno));
    close(file);
}

static int refused(int outer, int inner)
{
    return watch(outer, inner) == -1 && errno == ENOSPC;
}

/* A user may have three interests, in whatever instances, whoever watches besides. */
static void use_up(void)
{
    EXPECT(setresuid(4711, 4711, 4711) == 0, "%s", strerror(errno));
    int first = epoll_create1(0), second = epoll_create1(0), files[4];
    for (int i = 0; i < 4; i++)
        files[i] = eventfd(0, 0);
    for (int i = 0; i < 3; i++)
        EXPECT(watch(i == 2 ? second : first, files[i]) == 0, "%s", strerror(errno));
    EXPECT(refused(first, files[3]) && refused(second, files[3]), "more than there may be");
    EXPECT(watch(first, files[0]) == -1 && errno == EEXIST, "%s", strerror(errno));
    struct epoll_event event = { EPOLLIN, { 0 } };
    EXPECT(epoll_ctl(first, EPOLL_CTL_MOD, files[0], &event) == 0, "%s", strerror(errno));
    /* One that is removed makes room, as does one whose file is closed, or whose instance is. */
    EXPECT(epoll_ctl(first, EPOLL_CTL_DEL, files[0], NULL) == 0, "%s", strerror(errno));
    EXPECT(watch(first, files[3]) == 0 && refused(first, files[0]), "one for one removed");
    close(files[1]);
    EXPECT(watch(first, files[0]) == 0, "one for one closed: %s", strerror(errno));
    close(first);
    first = epoll_create1(0);
    uint64_t one = 1;
    EXPECT(write(files[3], &one, 8) == 8, "%s", strerror(errno));
    EXPECT(watch(first, files[3]) == 0 && refused(first, eventfd(0, 0)) == 0, "room after an instance");
    _exit(verdict_failed);
}

static void limited(void)
{
    char before[32];
    snprintf(before, sizeof before, "%s", contents_of(LIMIT));
    set_limit("3");
    pid_t child = fork();
    if (child == 0)
        use_up();
    int status;
    EXPECT(waitpid(child, &status, 0) == child && status == 0, "status %x", status);
    /* Root is another user, who has some, and nobody who is gone has any. */
    child = fork();
    if (child == 0)
        use_up();
    EXPECT(waitpid(child, &status, 0) == child && status == 0, "status %x", status);
    set_limit(before);
}

/* The end of an instance takes a time that grows as its interests do, not as their square. */
static long long life_ms(int count, int ready)
{
    int set = epoll_create1(0);
    long long start = now_ms();
    for (int i = 0; i < count; i++)
        EXPECT(watch(set, FIRST_COPY + i) == 0, "%d: %s", i, strerror(errno));
    long long added = now_ms();
    close(set);
    long long closed = now_ms();
    printf("%d interests, ready %d: %lld ms to add, %lld ms to end\n", count, ready, added - start, closed - added);
    return closed - added;
}

static void many_ready(void)
{
    long most = strtol(contents_of(LIMIT), NULL, 10);
    int count = most < READY ? (int)most * 3 / 4 : READY;
    struct rlimit files = { READY + 2 * FIRST_COPY, READY + 2 * FIRST_COPY };
    EXPECT(setrlimit(RLIMIT_NOFILE, &files) == 0, "%s", strerror(errno));
    for (int i = 0; i < count; i++)
        dup2(i % 256 ? FIRST_COPY + i - 1 : eventfd(1, 0), FIRST_COPY + i);
    long long few = life_ms(count / 8, 1), many = life_ms(count, 1);
    EXPECT(many < 24 * few + 200, "%lld ms, and %lld for an eighth", many, few);
    close_range(FIRST_COPY, ~0u, 0);
}

/* A file that very many watch tells all of them, though not all at once. */
static void many_watch(void)
{
    static struct epoll_event events[WATCHERS + 1];
    int set = epoll_create1(0), file = eventfd(0, 0);
    for (int i = 0; i < WATCHERS; i++) {
        int copy = dup2(file, FIRST_COPY + i);
        EXPECT(watch(set, copy) == 0, "%d: %s", i, strerror(errno));
    }
    for (int round = 0; round < 20; round++) {
        uint64_t count = 1;
        EXPECT(epoll_wait(set, events, WATCHERS, 0) == 0, "ready before");
        EXPECT(write(file, &count, 8) == 8, "%s", strerror(errno));
        int told = epoll_wait(set, events, WATCHERS + 1, 0);
        EXPECT(told == WATCHERS, "%d of %d", told, WATCHERS);
        EXPECT(read(file, &count, 8) == 8, "%s", strerror(errno));
    }
    close(set);
    close(file);
    close_range(FIRST_COPY, ~0u, 0);
}

int main(void)
{
    struct rlimit files = { 4096, 4096 };
    setrlimit(RLIMIT_NOFILE, &files);
    progress("long chain");
    long_chain();
    progress("ended chain");
    ended_chain();
    progress("many ways");
    many_ways();
    progress("limited");
    limited();
    progress("many watch");
    many_watch();
    progress("many ready");
    many_ready();
    return verdict_failed;
}
