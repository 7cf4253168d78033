/* An idle machine wakes up fewer than five times a second, by /proc/interrupts.
 *
 * abi: guest
 * abi: alone
 * abi: limit 60
 */
#include "guest.h"

enum { SECONDS = 5, WINDOWS = 4 };

/* The sum of all counts; the text is kept for the report. */
static long count_all(char *copy, size_t room)
{
    const char *text = get_text("/proc/interrupts");
    snprintf(copy, room, "%s", text);
    long sum = 0;
    const char *line = strchr(text, '\n');
    int cpus = 0;
    for (const char *at = text; line && (at = strstr(at, "CPU")) && at < line; at += 3)
        cpus++;
    while (line && line[1]) {
        line++;
        const char *at = strchr(line, ':');
        if (!at)
            break;
        at++;
        for (int i = 0; i < cpus; i++) {
            char *end;
            long value = strtol(at, &end, 10);
            if (end == at)
                break;
            sum += value;
            at = end;
        }
        line = strchr(line, '\n');
    }
    return sum;
}

int main(void)
{
    static char before[16384], after[16384];
    double rate = 1e9;
    /* What the start left behind may take its time on a busy host: the first quiet window decides. */
    for (int window = 0; window < WINDOWS && rate >= 5; window++) {
        long first = count_all(before, sizeof before);
        struct timespec wanted = { SECONDS, 0 };
        nanosleep(&wanted, NULL);
        long second = count_all(after, sizeof after);
        rate = (double)(second - first) / SECONDS;
        printf("%ld interrupts in %d s of idling: %.1f a second\n", second - first, SECONDS, rate);
        EXPECT(first > 0, "/proc/interrupts counts nothing");
    }
    EXPECT(rate < 5, "not under five a second\nbefore:\n%safter:\n%s", before, after);
    return verdict_failed;
}
