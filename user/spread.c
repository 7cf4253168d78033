/* Two busy processes on two CPUs each get a whole CPU within 20 ms of their fork.
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
    int bad = 0;
    for (int round = 0; round < ROUNDS; round++) {
        double start = wall_ms();
        pid_t children[2];
        for (int i = 0; i < 2; i++)
            children[i] = CHILD({
                while (wall_ms() < start + SETTLE_MS)
                    ;
                double cpu = cpu_ms(), wall = wall_ms();
                while (wall_ms() < start + SETTLE_MS + WINDOW_MS)
                    ;
                shares[i] = (cpu_ms() - cpu) / (wall_ms() - wall);
            });
        for (int i = 0; i < 2; i++)
            waitpid(children[i], NULL, 0);
        for (int i = 0; i < 2; i++) {
            worst = shares[i] < worst ? shares[i] : worst;
            bad += shares[i] < 0.9;
        }
        printf("round %d: %.0f %% and %.0f %% of a CPU\n", round, shares[0] * 100, shares[1] * 100);
    }
    printf("worst share %.1f %%\n", worst * 100);
    EXPECT(bad == 0, "%d of %d processes had less than 90 %% of a CPU from 20 ms after the fork", bad, ROUNDS * 2);
    return verdict_failed;
}
