/* Two busy processes on two CPUs each get a whole CPU within 20 ms of their fork.
 *
 * Both figures are the guest's own, so a host that takes a processor away stops both. But it may take it just when that should come for a
 * waiting process: half of the rounds must be good, which a scheduler that leaves the processes where they are doesn't reach.
 *
 * abi: guest
 * abi: alone
 * abi: cpus 2,4
 * abi: limit 60
 */
#include "guest.h"

enum { ROUNDS = 10, SETTLE_MS = 20, WINDOW_MS = 200 };

static double cpu_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static double wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

int main(void)
{
    double *shares = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    double worst = 2;
    int good = 0;
    for (int round = 0; round < ROUNDS; round++) {
        double start = wall_ms();
        pid_t children[2];
        for (int i = 0; i < 2; i++)
            children[i] = CHILD({
                while (wall_ms() < start + SETTLE_MS)
                    ;
                double cpu = cpu_ms(), wall = wall_ms();
                while (wall_ms() < wall + WINDOW_MS)
                    ;
                shares[i] = (cpu_ms() - cpu) / (wall_ms() - wall);
            });
        for (int i = 0; i < 2; i++)
            waitpid(children[i], NULL, 0);
        for (int i = 0; i < 2; i++)
            worst = shares[i] < worst ? shares[i] : worst;
        good += shares[0] >= 0.9 && shares[1] >= 0.9;
        printf("round %d: %.0f %% and %.0f %% of a CPU\n", round, shares[0] * 100, shares[1] * 100);
    }
    printf("worst share %.1f %%\n", worst * 100);
    EXPECT(good >= ROUNDS / 2, "in %d of %d rounds both had 90 %% of a CPU from 20 ms after the fork", good, ROUNDS);
    return verdict_failed;
}
