/* Instances that watch instances: how long a chain may be, in whatever order it is built, and what its end tells its beginning. */
#include "abi.h"

enum { LENGTH = 8 };

static int chain[LENGTH];

static int watch(int outer, int inner)
{
    struct epoll_event event = { EPOLLIN, { .u64 = (unsigned)inner } };
    return epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event);
}

static void create(void)
{
    for (int i = 0; i < LENGTH; i++)
        chain[i] = epoll_create1(0);
}

static void end(void)
{
    for (int i = 0; i < LENGTH; i++)
        close(chain[i]);
}

int main(void)
{
    printf("from the innermost out\n");
    create();
    for (int i = LENGTH - 1; i > 0; i--)
        SHOW(watch(chain[i - 1], chain[i]));
    end();

    printf("from the outermost in\n");
    create();
    for (int i = 0; i + 1 < LENGTH; i++)
        SHOW(watch(chain[i], chain[i + 1]));
    end();

    printf("from the middle\n");
    create();
    SHOW(watch(chain[2], chain[3]));
    SHOW(watch(chain[4], chain[5]));
    SHOW(watch(chain[6], chain[7]));
    SHOW(watch(chain[1], chain[2]));
    SHOW(watch(chain[5], chain[6]));
    SHOW(watch(chain[3], chain[4]));
    SHOW(watch(chain[0], chain[1]));
    printf("without a link there is room for another one\n");
    SHOW(epoll_ctl(chain[4], EPOLL_CTL_DEL, chain[5], NULL));
    SHOW(watch(chain[3], chain[4]));
    SHOW(watch(chain[0], chain[1]));
    SHOW(watch(chain[4], chain[5]));
    printf("circles\n");
    SHOW(watch(chain[4], chain[0]));
    SHOW(watch(chain[4], chain[4]));
    SHOW(watch(chain[1], chain[0]));
    end();

    printf("the end of one in the middle\n");
    create();
    for (int i = 0; i < 4; i++)
        SHOW(watch(chain[i], chain[i + 1]));
    SHOW(watch(chain[4], chain[5]));
    close(chain[2]);
    SHOW(watch(chain[4], chain[5]));
    SHOW(watch(chain[1], chain[3]));
    end();

    printf("what the last one hears is heard by the first\n");
    create();
    int ends[2];
    SHOW(pipe(ends));
    for (int i = 0; i < 4; i++)
        SHOW(watch(chain[i], chain[i + 1]));
    SHOW(watch(chain[4], ends[0]));
    struct epoll_event events[4];
    SHOW(epoll_wait(chain[0], events, 4, 0));
    SHOW(write(ends[1], "x", 1));
    SHOW(epoll_wait(chain[0], events, 4, -1));
    char byte;
    SHOW(read(ends[0], &byte, 1));
    SHOW(epoll_wait(chain[0], events, 4, 0));
    end();
    return 0;
}
