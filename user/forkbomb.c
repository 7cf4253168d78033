/* Fork bombs: under RLIMIT_NPROC and without any limit. The machine stays alive and gets its memory back.
 *
 * abi: guest
 * abi: alone
 * abi: memory 128M
 * abi: limit 180
 */
#include "guest.h"

static void bomb(int threads)
{
    for (;;) {
        pid_t child = fork();
        if (child == 0 && threads) {
            char *waste = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (waste != MAP_FAILED)
                for (int i = 0; i < 16; i++)
                    waste[i << 16] = 1;
        }
        if (child < 0)
            sched_yield();
    }
}

static void explode(const char *what, uid_t user, long processes, int seconds)
{
    long before = free_kib();
    progress("forkbomb %s", what);
    pid_t child = CHILD({
        if (processes) {
            struct rlimit limit = { (rlim_t)processes, (rlim_t)processes };
            setrlimit(RLIMIT_NPROC, &limit);
        }
        setresuid(user, user, user);
        bomb(1);
    });
    (void)child;
    long long until = now_ms() + seconds * 1000;
    int forked = 0, refused = 0;
    while (now_ms() < until) {
        pid_t probe = fork();
        if (probe == 0)
            _exit(7);
        int status = 0;
        if (probe < 0) {
            refused++;
        } else {
            while (waitpid(probe, &status, 0) < 0 && errno == EINTR)
                ;
            forked += WIFEXITED(status) && WEXITSTATUS(status) == 7;
        }
        pause_ms(50);
    }
    printf("%s: root's own forks meanwhile: %d worked, %d were refused\n", what, forked, refused);
    EXPECT(kill_user(user), "the bomb cannot be killed");
    memory_is_back(what, before);
}

int main(void)
{
    explode("with a limit of 200", 1000, 200, 3);
    explode("without a limit", 1001, 0, 8);
    pid_t after = CHILD(execl("/abi/hello", "hello", "after", NULL));
    REAP(after);
    return verdict_failed;
}
