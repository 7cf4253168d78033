/* Tracers and tracees that end, are killed, attach and let go at any moment: whatever the order, everybody is told of the end of its own, once.
 * abi: limit 60
 * abi: cpus 1,2,4,8
 */
#include "tracing.h"

enum { ROUNDS = 60 };

static unsigned turn(unsigned *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return *seed >> 16;
}

static void *busy(void *none)
{
    for (int i = 0; i < 50; i++) {
        syscall(SYS_getppid);
        sched_yield();
    }
    return none;
}

/* Forks, makes threads, calls, stops itself, ends in different ways. */
static void tracee(unsigned seed)
{
    for (int i = 0; i < 6; i++) {
        switch (turn(&seed) % 6) {
        case 0: {
            pid_t child = fork();
            if (child == 0)
                _exit(0);
            while (waitpid(child, NULL, __WALL) < 0 && errno == EINTR)
                ;
            break;
        }
        case 1: {
            pthread_t thread;
            if (pthread_create(&thread, NULL, busy, NULL) == 0 && turn(&seed) % 2)
                pthread_join(thread, NULL);
            break;
        }
        case 2:
            kill(getpid(), SIGUSR1);
            break;
        case 3:
            pause_ms(1);
            break;
        case 4: {
            pid_t child = vfork();
            if (child == 0)
                _exit(0);
            while (waitpid(child, NULL, __WALL) < 0 && errno == EINTR)
                ;
            break;
        }
        case 5:
            busy(NULL);
            break;
        }
    }
    if (turn(&seed) % 4 == 0)
        execl("/proc/self/exe", "race_ptrace", "sub", NULL);
    _exit(0);
}

/* Traces whatever stops, for some time, and then ends, lets go or kills. */
static void tracer(pid_t pid, unsigned seed)
{
    static const int how[] = { CONT, CALL, SINGLESTEP, CONT };
    int options = CLONE | FORK | VFORK | EXEC | VFORKDONE | EXIT | SYSGOOD | (turn(&seed) % 2 ? EXITKILL : 0);
    int seized = turn(&seed) % 2;
    if (request(seized ? SEIZE : ATTACH, pid, 0, seized ? options : 0) < 0)
        _exit(0);
    int stops = turn(&seed) % 200;
    for (int i = 0; i < stops; i++) {
        int status;
        if (seized && turn(&seed) % 4 == 0)
            request(INTERRUPT, pid, 0, 0);
        pid_t got = waitpid(-1, &status, __WALL);
        if (got < 0)
            _exit(0);
        if (!WIFSTOPPED(status))
            continue;
        if (!seized && i == 0)
            request(SETOPTIONS, got, 0, options);
        struct user_regs_struct registers;
        request(GETREGS, got, 0, &registers);
        request(SETREGS, got, 0, &registers);
        int number = WSTOPSIG(status) == SIGUSR1 ? SIGUSR1 : 0;
        unsigned choice = turn(&seed) % 32;
        if (choice == 0)
            request(DETACH, got, 0, number);
        else {
            if (choice == 1)
                kill(got, SIGKILL);
            /* Where it ends already it stands still. */
            request(how[choice % 4], got, 0, number);
        }
    }
    _exit(0);
}

static void ignored(int number)
{
    (void)number;
}

int main(int count, char **arguments)
{
    (void)arguments;
    if (count > 1)
        return 0;
    int ended = 0, killed = 0, tracers = 0;
    signal(SIGUSR1, ignored);
    for (unsigned round = 0; round < ROUNDS; round++) {
        pid_t pid = CHILD({
            setpgid(0, 0);
            tracee(round);
        });
        setpgid(pid, pid);
        pid_t one = CHILD(tracer(pid, round * 3 + 1));
        pid_t two = CHILD(tracer(pid, round * 7 + 2));
        unsigned seed = round;
        if (turn(&seed) % 3 == 0) {
            pause_ms(1 + turn(&seed) % 4);
            kill(turn(&seed) % 2 ? one : pid, SIGKILL);
        }
        for (int left = 3; left;) {
            int status;
            pid_t got = waitpid(-1, &status, WNOHANG | __WALL);
            if (got < 0) {
                printf("round %u: %s with %d left\n", round, ERRNO_NAME(errno), left);
                return 1;
            }
            if (got == 0) {
                /* Who was let go in a stop would stand for ever, and with it who waits for it. */
                kill(-pid, SIGCONT);
                pause_ms(1);
                continue;
            }
            left--;
            if (got != pid)
                tracers++;
            else if (WIFEXITED(status))
                ended++;
            else
                killed++;
        }
        if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD)
            printf("round %u: somebody is left\n", round);
    }
    printf("tracers %d, tracees %d\n", tracers, ended + killed);
    return 0;
}
