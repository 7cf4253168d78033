/* A small server in the manner of L4: one thread that answers one client and receives from the next in a single step.
 *
 * It keeps named counters for its clients, who call it from processes of their own. Nobody blocks it: it answers with
 * time-out zero, which succeeds because a client that calls is receiving the moment its request is taken.
 *
 * usage: counter_server [CLIENTS [REQUESTS]]
 *
 * abi: guest
 * abi: cpus 1,4
 * abi: limit 60
 */
#include "guest.h"
#include "ipc/include/starling_ipc.h"

enum { COUNTERS = 16 };
enum request { ADD, READ, STOP };

/* The answer to a request: a status, and the counter's value. */
static uint64_t answer_to(uint64_t counters[COUNTERS], const struct ipc_message *request, uint64_t *value)
{
    uint64_t number = request->words[1];
    if (number >= COUNTERS)
        return EINVAL;
    if (request->words[0] == ADD)
        counters[number] += request->words[2];
    *value = counters[number];
    return 0;
}

static void serve(void)
{
    uint64_t counters[COUNTERS] = { 0 };
    struct ipc_message message = { 0 };
    long result = ipc_wait(&message, IPC_NEVER);
    unsigned long served = 0, lost = 0;
    for (;;) {
        if (IPC_FAILED(result)) {
            /* The client has gone, or does not wait for its answer: its loss. */
            lost++;
            result = ipc_wait(&message, IPC_NEVER);
            continue;
        }
        served++;
        int last = message.words[0] == STOP;
        uint64_t value = 0;
        message.words[0] = answer_to(counters, &message, &value);
        message.words[1] = value;
        if (last) {
            ipc_send(&message, IPC_ZERO);
            break;
        }
        result = ipc_reply_and_wait(&message, IPC_ZERO, IPC_NEVER);
    }
    printf("server: %lu requests served, %lu answers lost\n", served, lost);
}

/* One request; -1 if it failed. */
static int64_t request(ipc_id server, enum request what, uint64_t number, uint64_t amount)
{
    struct ipc_message message = { .partner = server, .words = { what, number, amount } };
    long result = ipc_call(&message, IPC_NEVER, IPC_NEVER);
    return IPC_FAILED(result) || message.words[0] != 0 ? -1 : (int64_t)message.words[1];
}

int main(int count, char **words)
{
    int clients = count > 1 ? atoi(words[1]) : 4, requests = count > 2 ? atoi(words[2]) : 2000, channel[2], status, failed = 0;
    if (pipe(channel) != 0)
        return 1;
    pid_t server = fork();
    if (server == 0) {
        int64_t id = ipc_self(0);
        if (write(channel[1], &id, sizeof id) != sizeof id)
            _exit(1);
        serve();
        exit(0);
    }
    int64_t id = 0;
    if (read(channel[0], &id, sizeof id) != sizeof id || id <= 0)
        return 1;
    for (int client = 0; client < clients; client++)
        if (fork() == 0) {
            for (int i = 0; i < requests; i++)
                failed |= request((ipc_id)id, ADD, (uint64_t)client % COUNTERS, 1) < 0;
            failed |= request((ipc_id)id, READ, COUNTERS, 0) != -1;
            _exit(failed);
        }
    for (int client = 0; client < clients; client++)
        failed |= wait(&status) < 0 || status != 0;
    int64_t sum = 0;
    for (int number = 0; number < COUNTERS; number++)
        sum += request((ipc_id)id, READ, (uint64_t)number, 0);
    printf("%d clients with %d requests each: the counters' sum is %ld\n", clients, requests, (long)sum);
    failed |= sum != (int64_t)clients * requests || request((ipc_id)id, STOP, 0, 0) < 0;
    failed |= waitpid(server, &status, 0) != server || status != 0;
    return failed;
}
