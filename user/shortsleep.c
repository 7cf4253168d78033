/* How long a nanosleep of 100 microseconds takes: the median of 1001 is under 300.
 *
 * abi: guest
 * abi: alone
 */
#include "guest.h"

enum { COUNT = 1001 };

static int compare(const void *one, const void *other)
{
    long a = *(const long *)one, b = *(const long *)other;
    return (a > b) - (a < b);
}

int main(void)
{
    static long taken[COUNT];
    for (int i = 0; i < COUNT; i++) {
        struct timespec wanted = { 0, 100000 }, start, end;
        clock_gettime(CLOCK_MONOTONIC, &start);
        nanosleep(&wanted, NULL);
        clock_gettime(CLOCK_MONOTONIC, &end);
        taken[i] = (end.tv_sec - start.tv_sec) * 1000000000l + end.tv_nsec - start.tv_nsec;
    }
    qsort(taken, COUNT, sizeof *taken, compare);
    printf("nanosleep(100 us): least %.1f, median %.1f, 90th %.1f, 99th percentile %.1f us\n", taken[0] / 1e3,
           taken[COUNT / 2] / 1e3, taken[COUNT * 9 / 10] / 1e3, taken[COUNT * 99 / 100] / 1e3);
    EXPECT(taken[0] >= 100000, "a sleep was too short");
    EXPECT(taken[COUNT / 2] < 300000, "the median is not under 300 us");
    return verdict_failed;
}
