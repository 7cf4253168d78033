/* Instances of epoll that are made to hurt: in long chains, in chains of closed ones, and reached by millions of ways.
 *
 * abi: guest
 * abi: limit 120
 */
#include "guest.h"
#include <sys/epoll.h>

enum { CHAIN = 400, ENDED = 30000, COPIES = 120, LEVELS = 4 };

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
    return verdict_failed;
}
