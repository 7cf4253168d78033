/* The controller cpu: weights of groups that compete for one processor, and quotas. Judged by the processor time that the groups say they had.
 *
 * abi: guest
 * abi: limit 120
 */
#include "control_groups.h"

/* Computes in a group, on the first processor. */
static pid_t hog(const char *group)
{
    char path[64];
    snprintf(path, sizeof path, "%s/cgroup.procs", group);
    return CHILD({
        cpu_set_t first;
        CPU_ZERO(&first);
        CPU_SET(0, &first);
        sched_setaffinity(0, sizeof first, &first);
        if (put(path, "0"))
            _exit(1);
        for (volatile long step = 0;; step++)
            ;
    });
}

static long used_us(const char *group)
{
    char path[64];
    snprintf(path, sizeof path, "%s/cpu.stat", group);
    return number_in(path, "usage_usec");
}

/* Waits until both groups together have had so much more. */
static void compete(const char *one, const char *other, long us, long *had_one, long *had_other)
{
    long one_before = used_us(one), other_before = used_us(other);
    do {
        pause_ms(20);
        *had_one = used_us(one) - one_before;
        *had_other = used_us(other) - other_before;
    } while (*had_one + *had_other < us);
}

static void end(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static void knobs(void)
{
    WORKS(put("cgroup.subtree_control", "+cpu"));
    WORKS(make("w"));
    SAYS("w/cpu.weight", "100\n");
    SAYS("w/cpu.weight.nice", "0\n");
    SAYS("w/cpu.max", "max 100000\n");
    WORKS(put("w/cpu.weight", "300"));
    SAYS("w/cpu.weight", "300\n");
    FAILS(ERANGE, put("w/cpu.weight", "0"));
    FAILS(ERANGE, put("w/cpu.weight", "10001"));
    FAILS(EINVAL, put("w/cpu.weight", "much"));
    WORKS(put("w/cpu.weight.nice", "-5"));
    SAYS("w/cpu.weight.nice", "-5\n");
    FAILS(ERANGE, put("w/cpu.weight.nice", "20"));
    WORKS(put("w/cpu.max", "20000 50000"));
    SAYS("w/cpu.max", "20000 50000\n");
    WORKS(put("w/cpu.max", "max"));
    SAYS("w/cpu.max", "max 50000\n");
    FAILS(EINVAL, put("w/cpu.max", "999"));
    FAILS(EINVAL, put("w/cpu.max", "max 1000001"));
    FAILS(EINVAL, put("w/cpu.max", "-1"));
    EXPECT(number_in("w/cpu.stat", "nr_throttled") == 0, "%s", get("w/cpu.stat"));
    WORKS(take_away("w"));
}

static void weights(void)
{
    long light, heavy;
    WORKS(make("light"));
    WORKS(make("heavy"));
    WORKS(put("heavy/cpu.weight", "300"));
    pid_t hogs[] = { hog("light"), hog("heavy"), 0, 0 };
    compete("light", "heavy", 200000, &light, &heavy);
    compete("light", "heavy", 1200000, &light, &heavy);
    progress("1 to 3: %ld and %ld us", light, heavy);
    EXPECT(heavy > light * 5 / 2 && heavy < light * 7 / 2, "%ld and %ld us", light, heavy);
    /* Three in one group have together what one in the other has. */
    WORKS(put("heavy/cpu.weight", "100"));
    hogs[2] = hog("heavy");
    hogs[3] = hog("heavy");
    compete("light", "heavy", 200000, &light, &heavy);
    compete("light", "heavy", 1200000, &light, &heavy);
    progress("1 to 1: %ld and %ld us", light, heavy);
    EXPECT(heavy > light * 3 / 4 && heavy < light * 4 / 3, "%ld and %ld us", light, heavy);
    for (int index = 0; index < 4; index++)
        end(hogs[index]);
    WORKS(take_away("light"));
    WORKS(take_away("heavy"));
}

static void quota(void)
{
    WORKS(make("q"));
    WORKS(put("q/cpu.max", "20000 100000"));
    pid_t one = hog("q");
    long long began = now_ms();
    long before = used_us("q");
    while (number_in("q/cpu.stat", "nr_throttled") < 15)
        pause_ms(20);
    long used = used_us("q") - before;
    long long passed = now_ms() - began;
    progress("%ld us in %lld ms", used, passed);
    EXPECT(used <= (passed / 100 + 2) * 20000 + 10000, "%ld us in %lld ms", used, passed);
    EXPECT(used >= 14 * 20000, "%ld us in 15 periods", used);
    EXPECT(number_in("q/cpu.stat", "throttled_usec") > 0, "%s", get("q/cpu.stat"));
    /* Who is held back dies at once, stands still when it shall, and goes on elsewhere. */
    WORKS(put("q/cgroup.freeze", "1"));
    EXPECT(comes_to("q/cgroup.events", "frozen", 1), "%s", get("q/cgroup.events"));
    WORKS(put("q/cgroup.freeze", "0"));
    WORKS(put("q/cpu.max", "1000 1000000"));
    pid_t other = hog("q");
    pause_ms(50);
    WORKS(put_number("cgroup.procs", other));
    end(other);
    end(one);
    WORKS(take_away("q"));
}

int main(void)
{
    mount_groups();
    void (*const parts[])(void) = { knobs, weights, quota };
    for (size_t part = 0; part < sizeof parts / sizeof parts[0]; part++) {
        progress("processors of control groups: part %zu", part);
        parts[part]();
    }
    return verdict_failed;
}
