/* Messages are received once each while senders and receivers give up after moments, are interrupted, and poll.
 * abi: limit 100
 */
#include "abi.h"
#include <mqueue.h>

enum { SENDERS = 4, RECEIVERS = 4, MESSAGES = 1500 };

static _Atomic unsigned char *seen;
static _Atomic int *left, *odd;

static struct timespec soon(long ns)
{
    struct timespec when;
    clock_gettime(CLOCK_REALTIME, &when);
    when.tv_nsec += ns;
    when.tv_sec += when.tv_nsec / 1000000000;
    when.tv_nsec %= 1000000000;
    return when;
}

static void nothing(int number)
{
    (void)number;
}

static void send_all(mqd_t queue, int sender)
{
    for (int number = 0; number < MESSAGES; number++) {
        int message = sender * MESSAGES + number;
        for (;;) {
            struct timespec when = soon(1000 * (number % 200));
            if (mq_timedsend(queue, (char *)&message, sizeof message, number % 3, &when) == 0)
                break;
            *odd += errno != ETIMEDOUT && errno != EINTR;
        }
    }
}

static void receive_all(mqd_t queue, int receiver)
{
    while (*left > 0) {
        int message;
        unsigned priority;
        struct timespec when = soon(1000 * (receiver * 50 % 300));
        struct pollfd poller = { queue, POLLIN, 0 };
        if (receiver % 2)
            poll(&poller, 1, 1);
        if (mq_timedreceive(queue, (char *)&message, sizeof message, &priority, &when) != sizeof message) {
            *odd += errno != ETIMEDOUT && errno != EINTR;
            continue;
        }
        *odd += priority != (unsigned)(message % MESSAGES % 3);
        seen[message]++;
        --*left;
    }
}

int main(void)
{
    SHOW(unshare(CLONE_NEWIPC));
    char *shared = mmap(NULL, 4096 + SENDERS * MESSAGES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    left = (void *)shared;
    odd = left + 1;
    seen = (void *)(shared + 4096);
    *left = SENDERS * MESSAGES;
    struct sigaction action = { .sa_handler = nothing };
    sigaction(SIGUSR1, &action, NULL);
    struct mq_attr wished = { .mq_maxmsg = 3, .mq_msgsize = sizeof(int) };
    mqd_t queue = mq_open("/race", O_CREAT | O_RDWR, 0600, &wished);
    pid_t workers[SENDERS + RECEIVERS];
    for (int i = 0; i < SENDERS; i++)
        workers[i] = CHILD(send_all(queue, i));
    for (int i = 0; i < RECEIVERS; i++)
        workers[SENDERS + i] = CHILD(receive_all(queue, i));
    for (unsigned turn = 0; *left > 0; turn++) {
        kill(workers[turn % (SENDERS + RECEIVERS)], SIGUSR1);
        pause_ms(1);
    }
    int failed = 0;
    for (int i = 0; i < SENDERS + RECEIVERS; i++) {
        int status;
        waitpid(workers[i], &status, 0);
        failed += status != 0;
    }
    SHOW(failed);
    SHOW(*odd);
    int wrong = 0;
    for (int i = 0; i < SENDERS * MESSAGES; i++)
        wrong += seen[i] != 1;
    SHOW(wrong);
    struct mq_attr about;
    mq_getattr(queue, &about);
    SHOW(about.mq_curmsgs);
    mq_unlink("/race");
    return 0;
}
