/* Round trips of messages between two threads, with and without a processor between them.
 *
 * usage: pingpong [-c CPU,CPU] [-n ROUNDS] [-p] [-s]
 *   -c  the processors of the client and the server (0,0)
 *   -n  round trips (100000)
 *   -p  the process is partitioned
 *   -s  separate sends and receives instead of call and reply-and-wait
 * Without arguments: a short run of each kind, for the tests.
 *
 * abi: guest
 * abi: cpus 1,2,4
 * abi: limit 120
 */
#include "guest.h"
#include "ipc/include/starling_ipc.h"
#include <sched.h>

struct game {
    int cpus[2], rounds, partitioned, separate;
    ipc_id ids[2];
    atomic_int ready;
    long wrong;
};

static uint64_t stamp(void)
{
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void take_place(struct game *game, int who)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(game->cpus[who], &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        game->wrong++;
    int64_t id = ipc_self(game->partitioned ? IPC_PARTITIONED : 0);
    if (id <= 0)
        printf("ipc_self: %s\n", strerror((int)-id)), game->wrong++;
    game->ids[who] = (ipc_id)id;
    atomic_fetch_add(&game->ready, 1);
    while (atomic_load(&game->ready) < 2)
        sched_yield();
}

static void *server(void *argument)
{
    struct game *game = argument;
    take_place(game, 1);
    struct ipc_message message = { 0 };
    long result = ipc_wait(&message, IPC_NEVER);
    for (int round = 0; round < game->rounds; round++) {
        if (IPC_FAILED(result) || message.partner != game->ids[0] || message.words[0] != (uint64_t)round)
            game->wrong++;
        message.words[1] = message.words[0] + 1;
        if (round == game->rounds - 1 || game->separate)
            result = ipc_send(&message, game->separate ? IPC_NEVER : IPC_ZERO);
        else
            result = ipc_reply_and_wait(&message, IPC_ZERO, IPC_NEVER);
        if (game->separate && !IPC_FAILED(result) && round < game->rounds - 1)
            result = ipc_wait(&message, IPC_NEVER);
    }
    return NULL;
}

static int play(struct game *game)
{
    static const char *const kinds[] = { "call and reply-and-wait", "send and receive" };
    pthread_t thread;
    if (pthread_create(&thread, NULL, server, game) != 0)
        return 1;
    take_place(game, 0);
    struct ipc_message message = { .partner = game->ids[1] };
    double begin = now();
    uint64_t first = stamp(), shortest = UINT64_MAX;
    for (int round = 0; round < game->rounds; round++) {
        message = (struct ipc_message) { .partner = game->ids[1], .words = { (uint64_t)round, 0, 7 } };
        uint64_t before = stamp();
        long result;
        if (game->separate) {
            result = ipc_send(&message, IPC_NEVER);
            if (!IPC_FAILED(result))
                result = ipc_receive(&message, IPC_NEVER);
        } else {
            result = ipc_call(&message, IPC_NEVER, IPC_NEVER);
        }
        uint64_t spent = stamp() - before;
        shortest = spent < shortest ? spent : shortest;
        if (IPC_FAILED(result) || message.words[1] != (uint64_t)round + 1 || message.words[2] != 7)
            game->wrong++;
        if (game->wrong > 5)
            _exit(1);
    }
    uint64_t cycles = stamp() - first;
    double seconds = now() - begin;
    pthread_join(thread, NULL);
    printf("CPU %d and %d, %s%s: %d round trips, mean %.0f cycles (%.2f us), shortest %lu\n", game->cpus[0], game->cpus[1],
           kinds[game->separate], game->partitioned ? ", partitioned" : "", game->rounds, (double)cycles / game->rounds,
           seconds / game->rounds * 1e6, (unsigned long)shortest);
    if (game->wrong)
        printf("FAILED: %ld things went wrong\n", game->wrong);
    return game->wrong != 0;
}

int main(int count, char **words)
{
    struct game game = { .rounds = 100000 };
    int option, cpus = (int)sysconf(_SC_NPROCESSORS_ONLN), failed = 0;
    if (count > 1) {
        while ((option = getopt(count, words, "c:n:ps")) != -1)
            switch (option) {
            case 'c': failed |= sscanf(optarg, "%d,%d", &game.cpus[0], &game.cpus[1]) != 2; break;
            case 'n': game.rounds = atoi(optarg); break;
            case 'p': game.partitioned = 1; break;
            case 's': game.separate = 1; break;
            default: failed = 1;
            }
        if (failed)
            return 2;
        /* A partitioned process stays so; each game has its own. */
        return play(&game);
    }
    for (int kind = 0; kind < 8; kind++) {
        if (kind & 1 && cpus < 2)
            continue;
        pid_t child = fork();
        if (child == 0) {
            struct game one = { .cpus = { 0, kind & 1 }, .rounds = 20000, .separate = kind >> 1 & 1, .partitioned = kind >> 2 };
            _exit(play(&one));
        }
        int status;
        waitpid(child, &status, 0);
        failed |= status != 0;
    }
    return failed;
}
