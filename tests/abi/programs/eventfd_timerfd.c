/* eventfd and timerfd: counters, semaphores, overflow, blocking, expirations, cancelling. */
#include "abi.h"

static void events(void)
{
    uint64_t value;
    int fd = eventfd(3, EFD_NONBLOCK | EFD_CLOEXEC);
    SHOW(fcntl(fd, F_GETFD));
    SHOW(read(fd, &value, 8));
    SHOW(value);
    SHOW(read(fd, &value, 8));
    SHOW(read(fd, &value, 4));
    value = 5;
    SHOW(write(fd, &value, 8));
    SHOW(write(fd, &value, 8));
    SHOW(write(fd, &value, 7));
    SHOW(read(fd, &value, 100));
    SHOW(value);
    value = UINT64_MAX;
    SHOW(write(fd, &value, 8));
    value = UINT64_MAX - 1;
    SHOW(write(fd, &value, 8));
    value = 1;
    SHOW(write(fd, &value, 8));
    SHOW(poll(&(struct pollfd){ .fd = fd, .events = POLLOUT }, 1, 0));
    SHOW(read(fd, &value, 8));
    TRUE(value == UINT64_MAX - 1);
    value = 0;
    SHOW(write(fd, &value, 8));
    SHOW(lseek(fd, 0, SEEK_SET));
    int semaphore = eventfd(3, EFD_SEMAPHORE | EFD_NONBLOCK);
    for (int i = 0; i < 4; i++) {
        value = 99;
        SHOW(read(semaphore, &value, 8));
        SHOW(value);
    }
    SHOW(eventfd(0, 0x100));
    int blocking = eventfd(0, 0);
    pid_t child = CHILD({ uint64_t got; read(blocking, &got, 8); printf("child got %lu\n", got); });
    wait_state(child, "S");
    value = 12;
    write(blocking, &value, 8);
    REAP(child);
    value = UINT64_MAX - 1;
    write(blocking, &value, 8);
    child = CHILD({ uint64_t one = 1; write(blocking, &one, 8); printf("child wrote\n"); });
    wait_state(child, "S");
    read(blocking, &value, 8);
    REAP(child);
    read(blocking, &value, 8);
    SHOW(value);
}

static void timers(void)
{
    uint64_t count;
    struct itimerspec set = { 0 }, old;
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    SHOW(read(fd, &count, 8));
    SHOW(timerfd_gettime(fd, &old));
    printf("%ld %ld\n", old.it_value.tv_sec, old.it_interval.tv_sec);
    set.it_value.tv_sec = 100000;
    SHOW(timerfd_settime(fd, 0, &set, &old));
    SHOW(read(fd, &count, 8));
    set.it_value = (struct timespec){ 0, 20000000 };
    SHOW(timerfd_settime(fd, 0, &set, NULL));
    SHOW(poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, LOOKS));
    SHOW(read(fd, &count, 4));
    SHOW(read(fd, &count, 8));
    SHOW(count);
    SHOW(read(fd, &count, 8));
    set.it_interval.tv_nsec = 5000000;
    set.it_value.tv_nsec = 1;
    SHOW(timerfd_settime(fd, 0, &set, NULL));
    pause_ms(40);
    SHOW(read(fd, &count, 8));
    TRUE(count >= 7);
    timerfd_gettime(fd, &old);
    SHOW(old.it_interval.tv_nsec);
    TRUE(old.it_value.tv_nsec > 0 && old.it_value.tv_nsec <= 5000000);
    memset(&set, 0, sizeof set);
    SHOW(timerfd_settime(fd, 0, &set, &old));
    SHOW(old.it_interval.tv_nsec);
    SHOW(poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, 20));
    /* Long ago, also on a machine that was started just now. */
    set.it_value.tv_nsec = 1;
    SHOW(timerfd_settime(fd, TFD_TIMER_ABSTIME, &set, NULL));
    SHOW(poll(&(struct pollfd){ .fd = fd, .events = POLLIN }, 1, LOOKS));
    SHOW(read(fd, &count, 8));
    SHOW(count);
    set.it_value.tv_sec = 1000;
    SHOW(timerfd_settime(fd, 0, &set, NULL));
    timerfd_gettime(fd, &old);
    TRUE(old.it_value.tv_sec >= 990 && old.it_value.tv_sec <= 1000);
    set.it_value.tv_nsec = 1000000000;
    SHOW(timerfd_settime(fd, 0, &set, NULL));
    SHOW(timerfd_settime(fd, 0x100, &set, NULL));
    SHOW(timerfd_settime(fd, 0, (void *)8, NULL));
    SHOW(timerfd_create(77, 0));
    SHOW(timerfd_create(CLOCK_MONOTONIC, 0x10));
    SHOW(timerfd_settime(0, 0, &old, NULL));
    SHOW(timerfd_gettime(99, &old));
    SHOW(write(fd, &count, 8));
    int real = timerfd_create(CLOCK_REALTIME, 0);
    memset(&set, 0, sizeof set);
    clock_gettime(CLOCK_REALTIME, &set.it_value);
    set.it_value.tv_nsec += 20000000;
    if (set.it_value.tv_nsec >= 1000000000) {
        set.it_value.tv_nsec -= 1000000000;
        set.it_value.tv_sec++;
    }
    SHOW(timerfd_settime(real, TFD_TIMER_ABSTIME, &set, NULL));
    SHOW(read(real, &count, 8));
    SHOW(count);
    int epoll = epoll_create1(0);
    struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.u32 = 3 };
    epoll_ctl(epoll, EPOLL_CTL_ADD, real, &event);
    set = (struct itimerspec){ .it_value = { 0, 10000000 } };
    timerfd_settime(real, 0, &set, NULL);
    SHOW(epoll_wait(epoll, &event, 1, LOOKS));
    SHOW(epoll_wait(epoll, &event, 1, 0));
    timerfd_settime(real, 0, &set, NULL);
    SHOW(epoll_wait(epoll, &event, 1, LOOKS));
}

int main(void)
{
    events();
    timers();
    return 0;
}
