/* Who asked to be told of messages by a signal and then executes another program is not told any more: that one has not asked. */
#include "abi.h"
#include <mqueue.h>

enum { QUEUE_FD = 30 };

static void show_status(void)
{
    char line[200] = "";
    int how = -1, signo = -1, pid = -1;
    TRUE(pread(QUEUE_FD, line, sizeof line - 1, 0) > 0);
    sscanf(line, "QSIZE:%*d NOTIFY:%d SIGNO:%d NOTIFY_PID:%d", &how, &signo, &pid);
    printf("%d %d %s\n", how, signo, pid == getpid() ? "own" : pid ? "other" : "nobody");
}

int main(int count, char **words)
{
    if (count > 1) {
        show_status();
        SHOW(mq_send(QUEUE_FD, "text", 4, 0));
        show_status();
        return 7;
    }
    mqd_t queue = mq_open("/told", O_CREAT | O_RDWR, 0600, NULL);
    SHOW(mq_unlink("/told"));
    SHOW(dup2(queue, QUEUE_FD));
    mq_close(queue);
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
    pid_t child = CHILD({
        SHOW(mq_notify(QUEUE_FD, &event));
        fflush(stdout);
        execl("/proc/self/exe", words[0], "again", NULL);
    });
    REAP(child);
    show_status();
    return 0;
}
