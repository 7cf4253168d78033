/* POSIX timers, interval timers, sleeping, clocks: order and arithmetic, never exact times. */
#include "abi.h"

static volatile int hits, value, overrun, code;
static volatile pid_t where;

static void full(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    hits++;
    value = info->si_value.sival_int;
    overrun = info->si_overrun;
    code = info->si_code;
    where = gettid();
}

static void simple(int number)
{
    (void)number;
    hits++;
}

static void until(int wanted)
{
    for (int i = 0; i < LOOKS && hits < wanted; i++)
        pause_ms(2);
}

static void posix_timers(void)
{
    struct sigaction action = { .sa_flags = SA_SIGINFO };
    action.sa_sigaction = full;
    sigaction(SIGRTMIN, &action, NULL);
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 123 };
    timer_t timer;
    SHOW(timer_create(CLOCK_MONOTONIC, &event, &timer));
    struct itimerspec set = { .it_value = { 0, 5000000 } }, old;
    SHOW(timer_settime(timer, 0, &set, NULL));
    until(1);
    printf("hits %d value %d code %d\n", hits, value, code == SI_TIMER);
    SHOW(timer_gettime(timer, &old));
    printf("%ld %ld\n", old.it_value.tv_sec, old.it_value.tv_nsec);
    hits = 0;
    set.it_interval.tv_nsec = 2000000;
    SHOW(timer_settime(timer, 0, &set, NULL));
    until(5);
    TRUE(hits >= 5);
    set = (struct itimerspec){ 0 };
    SHOW(timer_settime(timer, 0, &set, &old));
    SHOW(old.it_interval.tv_nsec);
    int before = hits;
    pause_ms(10);
    TRUE(hits == before);
    /* Expirations while the signal is blocked are one signal with an overrun. */
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    hits = 0;
    set = (struct itimerspec){ .it_value = { 0, 1000000 }, .it_interval = { 0, 1000000 } };
    timer_settime(timer, 0, &set, NULL);
    pause_ms(30);
    set = (struct itimerspec){ 0 };
    sigset_t pending;
    sigpending(&pending);
    SHOW(sigismember(&pending, SIGRTMIN));
    siginfo_t info;
    struct timespec none = { 0, 0 };
    SHOW(sigtimedwait(&mask, &info, &none));
    TRUE(info.si_overrun >= 20);
    TRUE(timer_getoverrun(timer) >= 20);
    timer_settime(timer, 0, &set, NULL);
    while (sigtimedwait(&mask, &info, &none) > 0)
        ;
    sigprocmask(SIG_UNBLOCK, &mask, NULL);
    SHOW(timer_delete(timer));
    SHOW(timer_delete(timer));
    SHOW(syscall(SYS_timer_gettime, 9999, &old));
    event.sigev_notify = SIGEV_NONE;
    SHOW(timer_create(CLOCK_REALTIME, &event, &timer));
    set.it_value.tv_sec = 100;
    timer_settime(timer, 0, &set, NULL);
    timer_gettime(timer, &old);
    TRUE(old.it_value.tv_sec >= 95 && old.it_value.tv_sec <= 100);
    clock_gettime(CLOCK_REALTIME, &set.it_value);
    set.it_value.tv_sec += 50;
    timer_settime(timer, TIMER_ABSTIME, &set, NULL);
    timer_gettime(timer, &old);
    TRUE(old.it_value.tv_sec >= 45 && old.it_value.tv_sec <= 50);
    timer_delete(timer);
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = 100;
    SHOW(timer_create(CLOCK_REALTIME, &event, &timer));
    event.sigev_signo = SIGRTMIN;
    SHOW(timer_create(77, &event, &timer));
    event.sigev_notify = 77;
    SHOW(timer_create(CLOCK_REALTIME, &event, &timer));
    event.sigev_notify = SIGEV_THREAD_ID;
    event._sigev_un._tid = gettid();
    SHOW(timer_create(CLOCK_MONOTONIC, &event, &timer));
    hits = 0;
    set = (struct itimerspec){ .it_value = { 0, 1000000 } };
    timer_settime(timer, 0, &set, NULL);
    until(1);
    TRUE(where == gettid());
    /* Timers do not survive fork. */
    REAP(CHILD({ struct itimerspec found; SHOW(timer_gettime(timer, &found)); }));
}

static void interval_timers(void)
{
    signal(SIGALRM, simple);
    signal(SIGVTALRM, simple);
    signal(SIGPROF, simple);
    struct itimerval set = { .it_value = { 0, 5000 } }, old;
    hits = 0;
    SHOW(setitimer(ITIMER_REAL, &set, NULL));
    until(1);
    SHOW(hits);
    set.it_value.tv_sec = 100;
    set.it_interval.tv_sec = 7;
    SHOW(setitimer(ITIMER_REAL, &set, NULL));
    SHOW(getitimer(ITIMER_REAL, &old));
    TRUE(old.it_value.tv_sec >= 95);
    SHOW(old.it_interval.tv_sec);
    SHOW(alarm(50) >= 95);
    SHOW(alarm(0) >= 45);
    SHOW(alarm(0));
    int kinds[] = { ITIMER_VIRTUAL, ITIMER_PROF };
    for (int i = 0; i < 2; i++) {
        hits = 0;
        set = (struct itimerval){ .it_value = { 0, 10000 } };
        SHOW(setitimer(kinds[i], &set, NULL));
        long long limit = now_ms() + LOOKS;
        while (!hits && now_ms() < limit)
            for (volatile int spin = 0; spin < 100000; spin++)
                ;
        SHOW(hits);
    }
    set.it_value.tv_usec = 1000000;
    SHOW(setitimer(ITIMER_REAL, &set, NULL));
    SHOW(setitimer(9, &set, NULL));
    SHOW(getitimer(9, &old));
    REAP(CHILD({ alarm(0); struct itimerval found; getitimer(ITIMER_REAL, &found); SHOW(found.it_value.tv_sec); }));
    alarm(100);
    REAP(CHILD({ struct itimerval found; getitimer(ITIMER_REAL, &found); SHOW(found.it_value.tv_sec); }));
    alarm(0);
}

static void sleeping(void)
{
    struct timespec wanted = { 0, 20000000 }, rest;
    long long start = now_ms();
    SHOW(nanosleep(&wanted, &rest));
    TRUE(now_ms() - start >= 20);
    struct timespec target;
    clock_gettime(CLOCK_MONOTONIC, &target);
    target.tv_nsec += 20000000;
    if (target.tv_nsec >= 1000000000) {
        target.tv_nsec -= 1000000000;
        target.tv_sec++;
    }
    SHOW(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &target, NULL));
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    TRUE(now.tv_sec > target.tv_sec || (now.tv_sec == target.tv_sec && now.tv_nsec >= target.tv_nsec));
    target.tv_sec = 1;
    SHOW(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &target, NULL));
    wanted.tv_nsec = 1000000000;
    SHOW(nanosleep(&wanted, NULL));
    wanted.tv_nsec = -1;
    SHOW(nanosleep(&wanted, NULL));
    SHOW(nanosleep((void *)8, NULL));
    SHOW(clock_nanosleep(77, 0, &target, NULL));
    SHOW(clock_nanosleep(CLOCK_THREAD_CPUTIME_ID, 0, &target, NULL));
    /* Children that sleep longer end later: none sleeps too short, and unless one is late, which a busy machine may make it,
     * they come in order. */
    enum { SLEEPERS = 5, STEP_MS = 60 };
    int ends[2];
    pipe(ends);
    long long common = now_ms();
    for (int i = SLEEPERS; i > 0; i--)
        CHILD({
            struct timespec until_then = { (common + i * STEP_MS) / 1000, (common + i * STEP_MS) % 1000 * 1000000 };
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until_then, NULL);
            int report[2];
            report[0] = i;
            report[1] = now_ms() < common + i * STEP_MS;
            write(ends[1], report, sizeof report);
        });
    int in_order = 1, early = 0, late = 0, reports[SLEEPERS][2];
    for (int i = 0; i < SLEEPERS; i++) {
        read(ends[0], reports[i], sizeof reports[i]);
        in_order &= reports[i][0] == i + 1;
        early += reports[i][1];
        late += now_ms() - common - reports[i][0] * STEP_MS >= STEP_MS;
    }
    SHOW(early);
    TRUE(in_order || late > 0);
    while (wait(NULL) > 0)
        ;
}

static void clocks(void)
{
    static const clockid_t ids[] = { CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID,
                                     CLOCK_MONOTONIC_RAW, CLOCK_REALTIME_COARSE, CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME, CLOCK_TAI };
    for (unsigned i = 0; i < sizeof ids / sizeof *ids; i++) {
        struct timespec one = { 0 }, other = { 0 }, resolution = { 0 };
        int result = clock_gettime(ids[i], &one);
        clock_gettime(ids[i], &other);
        printf("clock %d: %d forward %d valid %d", ids[i], result,
               other.tv_sec > one.tv_sec || (other.tv_sec == one.tv_sec && other.tv_nsec >= one.tv_nsec),
               one.tv_nsec >= 0 && one.tv_nsec < 1000000000);
        result = clock_getres(ids[i], &resolution);
        printf(" resolution %d %d\n", result, resolution.tv_sec == 0 && resolution.tv_nsec >= 1 && resolution.tv_nsec <= 10000000);
    }
    struct timespec time;
    SHOW(clock_gettime(77, &time));
    SHOW(clock_getres(77, &time));
    SHOW(syscall(SYS_clock_gettime, CLOCK_REALTIME, 8));
    SHOW(syscall(SYS_clock_getres, CLOCK_REALTIME, NULL));
    time.tv_nsec = 1000000000;
    SHOW(clock_settime(CLOCK_REALTIME, &time));
    SHOW(clock_settime(CLOCK_MONOTONIC, &time));
    struct timeval tv;
    SHOW(gettimeofday(&tv, NULL));
    TRUE(tv.tv_sec > 1700000000 && tv.tv_usec < 1000000);
    clock_gettime(CLOCK_REALTIME, &time);
    TRUE(labs(time.tv_sec - tv.tv_sec) <= 1);
    TRUE(labs(syscall(SYS_time, NULL) - tv.tv_sec) <= 1);
    clockid_t of_child;
    pid_t child = CHILD(pause());
    SHOW(clock_getcpuclockid(child, &of_child));
    SHOW(clock_gettime(of_child, &time));
    kill(child, SIGKILL);
    REAP(child);
    /* Cpu time grows when working, not when sleeping. */
    struct timespec before, after;
    /* The wall clock is looked at before and after the other one: what a host takes in between counts for both. */
    long long start = now_ms();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    long worked = 0;
    while (now_ms() - start < 60 || (worked < 5 && now_ms() - start < LOOKS)) {
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
        worked = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
    }
    long passed = now_ms() - start;
    TRUE(worked >= 5 && worked <= passed + 10);
    /* A processor that its host holds up counts as working: one quiet sleep of several decides. */
    worked = 1000;
    for (int tries = 0; tries < 10 && worked >= 20; tries++) {
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
        pause_ms(60);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
        worked = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
    }
    TRUE(worked < 20);
}

int main(void)
{
    posix_timers();
    interval_timers();
    sleeping();
    clocks();
    return 0;
}
