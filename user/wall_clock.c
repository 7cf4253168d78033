/* Setting the time of day: files are stamped by the new one, and whoever waits for a time of day waits for another moment, while relative
 * waits go on as they were.
 *
 * abi: guest
 * abi: limit 120
 */
#include "guest.h"
#include <linux/futex.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <time.h>

#define HOUR 3600

static struct timespec after(clockid_t clock, long seconds, long milliseconds)
{
    struct timespec time;
    clock_gettime(clock, &time);
    time.tv_sec += seconds;
    time.tv_nsec += milliseconds * 1000000;
    time.tv_sec += time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

static void move_clock(long seconds)
{
    struct timespec time = after(CLOCK_REALTIME, seconds, 0);
    EXPECT(clock_settime(CLOCK_REALTIME, &time) == 0, "%s", strerror(errno));
}

static void let_pass(long milliseconds)
{
    struct timespec time = after(CLOCK_MONOTONIC, 0, milliseconds);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
        ;
}

enum way { SLEEP, CONDITION, VECTOR, WAYS };

struct sleeper {
    enum way way;
    struct timespec until;
    atomic_int began, ended;
    int result;
};

static int wait_in_vector(const struct timespec *until)
{
    static uint32_t word;
    struct futex_waitv one = {.val = 0, .uaddr = (uintptr_t)&word, .flags = FUTEX_32 | FUTEX_PRIVATE_FLAG};
    return syscall(SYS_futex_waitv, &one, 1, 0, until, CLOCK_REALTIME) < 0 ? errno : 0;
}

static int wait_for_condition(const struct timespec *until)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&mutex);
    int result;
    while ((result = pthread_cond_timedwait(&condition, &mutex, until)) == 0)
        ;
    pthread_mutex_unlock(&mutex);
    return result;
}

static void *run_sleeper(void *argument)
{
    struct sleeper *mine = argument;
    atomic_store(&mine->began, 1);
    switch (mine->way) {
    case SLEEP:
        mine->result = clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &mine->until, NULL);
        break;
    case CONDITION:
        mine->result = wait_for_condition(&mine->until);
        break;
    default:
        mine->result = wait_in_vector(&mine->until);
        break;
    }
    atomic_store(&mine->ended, 1);
    return NULL;
}

/* All ways to sleep until a time of day, for so many milliseconds by the clock of now. False if a busy host let them pass before the clock
 * was set. */
static int sleepers(long milliseconds, long first_move, int sleep_on)
{
    int in_time = 1;
    struct timespec end = after(CLOCK_MONOTONIC, milliseconds / 1000, milliseconds % 1000), now;
    static struct sleeper all[WAYS];
    pthread_t threads[WAYS];
    memset(all, 0, sizeof all);
    for (int way = 0; way < WAYS; way++) {
        all[way].way = way;
        all[way].until = after(CLOCK_REALTIME, milliseconds / 1000, milliseconds % 1000);
        pthread_create(&threads[way], NULL, run_sleeper, &all[way]);
    }
    for (int way = 0; way < WAYS; way++)
        while (!atomic_load(&all[way].began))
            sched_yield();
    /* Mostly they sleep by now; if not, they see the new time when they begin to. */
    let_pass(20);
    move_clock(first_move);
    if (sleep_on) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        in_time = now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec);
        let_pass(milliseconds + 200);
        for (int way = 0; way < WAYS; way++)
            EXPECT(!in_time || !atomic_load(&all[way].ended), "way %d ended early: %s", way, strerror(all[way].result));
        move_clock(-first_move);
    }
    for (int way = 0; way < WAYS; way++) {
        pthread_join(threads[way], NULL);
        EXPECT(all[way].result == (way == SLEEP ? 0 : ETIMEDOUT), "way %d: %s", way, strerror(all[way].result));
    }
    if (!sleep_on)
        move_clock(-first_move);
    return in_time;
}

static int timer_descriptor(long seconds, int flags)
{
    int fd = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK);
    struct itimerspec setting = {.it_value = after(CLOCK_REALTIME, seconds, 0)};
    EXPECT(timerfd_settime(fd, flags, &setting, NULL) == 0, "%s", strerror(errno));
    return fd;
}

static void descriptors(void)
{
    uint64_t ticks = 0;
    int plain = timer_descriptor(HOUR, TFD_TIMER_ABSTIME);
    int cancelled = timer_descriptor(10 * HOUR, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET);
    int relative = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK);
    struct itimerspec setting = {.it_value = {.tv_sec = HOUR}};
    EXPECT(timerfd_settime(relative, 0, &setting, NULL) == 0, "%s", strerror(errno));
    EXPECT(read(plain, &ticks, sizeof ticks) == -1 && errno == EAGAIN, "early");
    move_clock(2 * HOUR);
    struct pollfd ready = {.fd = plain, .events = POLLIN};
    EXPECT(poll(&ready, 1, PATIENCE_CS * 10) == 1, "never came");
    EXPECT(read(plain, &ticks, sizeof ticks) == sizeof ticks && ticks == 1, "%llu", (unsigned long long)ticks);
    EXPECT(read(cancelled, &ticks, sizeof ticks) == -1 && errno == ECANCELED, "%s", strerror(errno));
    EXPECT(read(cancelled, &ticks, sizeof ticks) == -1 && errno == EAGAIN, "%s", strerror(errno));
    EXPECT(timerfd_gettime(cancelled, &setting) == 0 && setting.it_value.tv_sec <= 8 * HOUR, "%ld left",
           setting.it_value.tv_sec);
    EXPECT(timerfd_gettime(relative, &setting) == 0 && setting.it_value.tv_sec > HOUR / 2, "%ld left",
           setting.it_value.tv_sec);
    move_clock(-2 * HOUR);
    EXPECT(timerfd_gettime(cancelled, &setting) == 0 && setting.it_value.tv_sec > 9 * HOUR, "%ld left",
           setting.it_value.tv_sec);
    close(plain), close(cancelled), close(relative);
}

static timer_t signal_timer(int signal, int flags, struct timespec value)
{
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = signal};
    EXPECT(timer_create(CLOCK_REALTIME, &event, &timer) == 0, "%s", strerror(errno));
    struct itimerspec setting = {.it_value = value};
    EXPECT(timer_settime(timer, flags, &setting, NULL) == 0, "%s", strerror(errno));
    return timer;
}

static void signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigaddset(&set, SIGALRM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    struct itimerspec left;
    timer_t absolute = signal_timer(SIGUSR1, TIMER_ABSTIME, after(CLOCK_REALTIME, HOUR, 0));
    timer_t relative = signal_timer(SIGUSR2, 0, (struct timespec){.tv_sec = HOUR});
    move_clock(2 * HOUR);
    siginfo_t information;
    struct timespec patience = {.tv_sec = PATIENCE_CS / 100};
    EXPECT(sigtimedwait(&set, &information, &patience) == SIGUSR1, "%s", strerror(errno));
    EXPECT(timer_gettime(relative, &left) == 0 && left.it_value.tv_sec > HOUR / 2, "%ld left", left.it_value.tv_sec);
    /* What is relative comes in its time although the clock is set back. */
    timer_t soon = signal_timer(SIGALRM, 0, (struct timespec){.tv_nsec = 50000000});
    move_clock(-2 * HOUR);
    EXPECT(sigtimedwait(&set, &information, &patience) == SIGALRM, "%s", strerror(errno));
    timer_delete(absolute), timer_delete(relative), timer_delete(soon);
}

static void files(void)
{
    struct stat status;
    move_clock(5 * HOUR);
    struct timespec before = after(CLOCK_REALTIME, -1, 0);
    int fd = open("/tmp/stamped", O_CREAT | O_TRUNC | O_WRONLY, 0600);
    EXPECT(fd >= 0 && fstat(fd, &status) == 0, "%s", strerror(errno));
    EXPECT(status.st_mtim.tv_sec >= before.tv_sec, "%ld before %ld", status.st_mtim.tv_sec, before.tv_sec);
    move_clock(-5 * HOUR);
    EXPECT(write(fd, "x", 1) == 1 && fstat(fd, &status) == 0, "%s", strerror(errno));
    EXPECT(status.st_mtim.tv_sec < before.tv_sec, "%ld after %ld", status.st_mtim.tv_sec, before.tv_sec);
    close(fd);
    unlink("/tmp/stamped");
}

static void refusals(void)
{
    struct timespec wanted = {0};
    EXPECT(clock_settime(CLOCK_REALTIME, &wanted) == -1 && errno == EINVAL, "before the machine was started");
    wanted.tv_sec = 8277292037;
    EXPECT(clock_settime(CLOCK_REALTIME, &wanted) == -1 && errno == EINVAL, "too late");
    wanted = after(CLOCK_REALTIME, 0, 0);
    EXPECT(clock_settime(CLOCK_MONOTONIC, &wanted) == -1 && errno == EINVAL, "the monotonic clock");
    if (fork() == 0) {
        int refused = setresuid(99, 99, 99) == 0 && clock_settime(CLOCK_REALTIME, &wanted) == -1 && errno == EPERM;
        _exit(refused ? 0 : 1);
    }
    int status;
    EXPECT(wait(&status) > 0 && status == 0, "%x", status);
}

int main(void)
{
    refusals();
    files();
    sleepers(HOUR * 1000L, 2 * HOUR, 0);
    for (int tries = 0; tries < 20 && !sleepers(200, -HOUR, 1); tries++)
        ;
    descriptors();
    signals();
    printf("%s\n", verdict_failed ? "failed" : "passed");
    return verdict_failed;
}
