/* Signals that come at a bad moment: to a process whose leader is ending, and beside one that a thread waits for.
 * abi: limit 100
 */
#include "abi.h"

enum { ROUNDS = 200 };

static void spin(unsigned rounds)
{
    for (volatile unsigned i = 0; i < rounds; i++)
        ;
}

static void end_well(int number)
{
    (void)number;
    _exit(0);
}

static void *wait_for_signal(void *shared)
{
    atomic_store((atomic_int *)shared, 1);
    for (;;)
        pause();
    return NULL;
}

/* Who is left takes the signal that the leader had been chosen for. */
static int leader_ends(atomic_int *shared)
{
    int lost = 0;
    for (int round = 0; round < ROUNDS; round++) {
        atomic_store(shared, 0);
        pid_t child = fork();
        if (child == 0) {
            signal(SIGUSR1, end_well);
            pthread_t thread;
            pthread_create(&thread, NULL, wait_for_signal, shared);
            while (atomic_load(shared) != 2)
                ;
            syscall(SYS_exit, 0);
        }
        while (atomic_load(shared) != 1)
            sched_yield();
        pause_ms(round % 2);
        atomic_store(shared, 2);
        spin(round * 41 % 3000);
        kill(child, SIGUSR1);
        int status, tries = 0;
        while (waitpid(child, &status, WNOHANG) == 0 && tries++ < 5000)
            pause_ms(1);
        if (tries >= 5000) {
            lost++;
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
        }
    }
    return lost;
}

static atomic_int handled, taken, stop;

static void note(int number)
{
    (void)number;
    atomic_fetch_add(&handled, 1);
}

static void *take_signals(void *unused)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    while (!atomic_load(&stop)) {
        if (sigwaitinfo(&set, NULL) != SIGUSR1)
            continue;
        atomic_fetch_add(&taken, 1);
        /* The handler of the other signal runs although this thread makes no call. */
        long long since = now_ms();
        while (atomic_load(&handled) < atomic_load(&taken) && now_ms() - since < 10000)
            ;
        if (atomic_load(&handled) < atomic_load(&taken))
            atomic_store(&stop, 2);
    }
    return unused;
}

/* now_ms is no call into the kernel: the clock is read from user mode. */
static int beside_one_that_is_awaited(void)
{
    signal(SIGUSR2, note);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, take_signals, NULL);
    for (int round = 1; round <= ROUNDS && !atomic_load(&stop); round++) {
        pthread_kill(thread, SIGUSR1);
        spin(round * 23 % 3000);
        pthread_kill(thread, SIGUSR2);
        while ((atomic_load(&taken) < round || atomic_load(&handled) < round) && !atomic_load(&stop))
            sched_yield();
    }
    int lost = atomic_load(&stop) == 2;
    atomic_store(&stop, 1);
    pthread_kill(thread, SIGUSR1);
    atomic_fetch_add(&handled, 1);
    pthread_join(thread, NULL);
    return lost;
}

int main(void)
{
    atomic_int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    SHOW(leader_ends(shared));
    SHOW(beside_one_that_is_awaited());
    return 0;
}
