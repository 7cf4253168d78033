/* Many processes and threads at once: ping-pong, trees, kills in flight; nothing is lost. */
#include "abi.h"

static void ping_pong(void)
{
    int there[2], back[2];
    pipe(there);
    pipe(back);
    pid_t child = CHILD({
        int value;
        while (read(there[0], &value, sizeof value) == sizeof value) {
            value++;
            write(back[1], &value, sizeof value);
            if (value >= 4000)
                break;
        }
    });
    int value = 0;
    while (value < 4000) {
        write(there[1], &value, sizeof value);
        read(back[0], &value, sizeof value);
        value++;
    }
    SHOW(value >= 4000);
    close(there[1]);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static int tree(int depth)
{
    if (depth == 0)
        return 1;
    int sum = 1, status;
    pid_t children[3];
    for (int i = 0; i < 3; i++) {
        children[i] = fork();
        if (children[i] == 0)
            _exit(tree(depth - 1));
    }
    for (int i = 0; i < 3; i++) {
        waitpid(children[i], &status, 0);
        sum += WIFEXITED(status) ? WEXITSTATUS(status) : 100000;
    }
    return sum;
}

static void *churn(void *argument)
{
    long sum = 0;
    for (int i = 0; i < 12; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit((int)((long)argument + i) & 127);
        int status;
        if (waitpid(child, &status, 0) == child && WIFEXITED(status))
            sum += WEXITSTATUS(status);
    }
    return (void *)sum;
}

static void kills_in_flight(void)
{
    int killed = 0, exited = 0, strange = 0;
    for (int i = 0; i < 60; i++) {
        pid_t child = fork();
        if (child == 0) {
            char *area = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            for (int j = 0; j < 256; j++)
                area[j * 4096] = 1;
            for (int j = 0; j < i * 3; j++)
                sched_yield();
            _exit(0);
        }
        for (int j = 0; j < i; j++)
            sched_yield();
        kill(child, SIGKILL);
        int status;
        waitpid(child, &status, 0);
        killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        exited += WIFEXITED(status) && WEXITSTATUS(status) == 0;
        strange += !WIFSIGNALED(status) && !WIFEXITED(status);
    }
    SHOW(killed + exited);
    SHOW(strange);
}

static void *token(void *argument)
{
    int *ends = argument;
    int value;
    while (read(ends[0], &value, sizeof value) == sizeof value) {
        int next = value + 1;
        write(ends[3], &next, sizeof next);
        if (value >= 2000)
            break;
    }
    return NULL;
}

static void ring(void)
{
    enum { MEMBERS = 16 };
    static int pipes[MEMBERS + 1][2];
    static int pairs[MEMBERS][4];
    pthread_t threads[MEMBERS];
    for (int i = 0; i < MEMBERS; i++)
        pipe(pipes[i]);
    for (int i = 0; i < MEMBERS; i++) {
        pairs[i][0] = pipes[i][0];
        pairs[i][3] = pipes[(i + 1) % MEMBERS][1];
        pthread_create(&threads[i], NULL, token, pairs[i]);
    }
    int start = 0;
    write(pipes[0][1], &start, sizeof start);
    for (int i = 0; i < MEMBERS; i++)
        pthread_join(threads[i], NULL);
    printf("ring done\n");
}

int main(void)
{
    ping_pong();
    SHOW(tree(4));
    pthread_t threads[6];
    long sum = 0;
    for (long i = 0; i < 6; i++)
        pthread_create(&threads[i], NULL, churn, (void *)(i * 20));
    for (int i = 0; i < 6; i++) {
        void *result;
        pthread_join(threads[i], &result);
        sum += (long)result;
    }
    SHOW(sum);
    kills_in_flight();
    ring();
    SHOW(wait(NULL));
    return 0;
}
