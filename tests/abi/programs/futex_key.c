/* A shared futex whose memory is unmapped while a thread waits on it: new shared memory has other futexes, so that who is
 * woken there is never the old waiter.
 * abi: limit 60
 */
#include "abi.h"
#include <linux/futex.h>

enum { ROUNDS = 40 };

static long futex(uint32_t *word, int op, uint32_t value)
{
    return syscall(SYS_futex, word, op, value, NULL, NULL, 0);
}

static uint32_t *shared_page(void)
{
    return mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static atomic_int old_waiter;
static atomic_int old_returned;

static void interrupt(int number)
{
    (void)number;
}

static void *waits_on_old(void *page)
{
    atomic_store(&old_waiter, gettid());
    long result = futex(page, FUTEX_WAIT, 0);
    long error = result < 0 ? errno : 0;
    atomic_store(&old_returned, 1);
    return (void *)error;
}

static int old_sleeps(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", atomic_load(&old_waiter));
    const char *end = strrchr(get_text(path), ')');
    return end && end[2] == 'S';
}

/* Whether the child ends; one that nobody wakes is killed. */
static int ends(pid_t child)
{
    for (int look = 0; look < 2500; look++) {
        if (waitpid(child, NULL, WNOHANG) == child)
            return 1;
        pause_ms(2);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return 0;
}

int main(void)
{
    struct sigaction action = { .sa_handler = interrupt };
    sigaction(SIGUSR1, &action, NULL);
    int lost = 0, stray = 0, not_asleep = 0, other_end = 0;
    for (int round = 0; round < ROUNDS && !lost; round++) {
        atomic_store(&old_waiter, 0);
        atomic_store(&old_returned, 0);
        uint32_t *old = shared_page();
        pthread_t thread;
        pthread_create(&thread, NULL, waits_on_old, old);
        int look = 0;
        while (look < LOOKS && !(atomic_load(&old_waiter) && old_sleeps())) {
            look++;
            pause_ms(1);
        }
        not_asleep += look == LOOKS;
        munmap(old, 4096);

        uint32_t *fresh = shared_page();
        pid_t child = fork();
        if (child == 0) {
            futex(fresh, FUTEX_WAIT, 0);
            _exit(0);
        }
        not_asleep += !wait_state(child, "S");
        while (futex(fresh, FUTEX_WAKE, 1) == 0)
            sched_yield();
        lost += !ends(child);
        stray += atomic_load(&old_returned) || !old_sleeps();

        void *error = NULL;
        while (!atomic_load(&old_returned)) {
            pthread_kill(thread, SIGUSR1);
            sched_yield();
        }
        pthread_join(thread, &error);
        other_end += (long)error != EINTR;
        munmap(fresh, 4096);
    }
    SHOW(lost);
    SHOW(stray);
    SHOW(not_asleep);
    SHOW(other_end);
    return 0;
}
