/* Who mounts without end, or has mounts multiply by themselves, comes to the limit and no further; and what he made goes.
 *
 * abi: guest
 * abi: alone
 * abi: cpus 1,4
 * abi: limit 100
 * abi: args 4000
 * abi: long-args 100000
 */
#include "guest.h"

enum { LIMIT = 3000 };

static int mounts_here(void)
{
    static char line[4096];
    int count = 0;
    FILE *file = fopen("/proc/self/mountinfo", "r");
    while (fgets(line, sizeof line, file))
        count++;
    fclose(file);
    return count;
}

/* Each bind of the tree into itself doubles it. */
static void doubles(void)
{
    EXPECT(mkdir("/tmp/bomb", 0755) == 0, "%s", strerror(errno));
    EXPECT(mount("bomb", "/tmp/bomb", "tmpfs", 0, NULL) == 0, "%s", strerror(errno));
    EXPECT(mount(NULL, "/tmp/bomb", NULL, MS_SHARED, NULL) == 0, "%s", strerror(errno));
    int result = 0, turn = 0;
    for (; result == 0 && turn < 40; turn++) {
        char place[64];
        snprintf(place, sizeof place, "/tmp/bomb/%d", turn);
        mkdir(place, 0755);
        result = mount("/tmp/bomb", place, NULL, MS_BIND | MS_REC, NULL);
    }
    EXPECT(result == -1 && errno == ENOSPC, "%d %s", turn, strerror(errno));
    int count = mounts_here();
    EXPECT(count <= LIMIT && count > LIMIT / 8, "%d mounts", count);
    EXPECT(umount2("/tmp/bomb", MNT_DETACH) == 0, "%s", strerror(errno));
    EXPECT(rmdir("/tmp/bomb") == 0, "%s", strerror(errno));
}

/* One upon the other. */
static void stacks(int before)
{
    mkdir("/tmp/stack", 0755);
    int made = 0;
    while (mount("/tmp/stack", "/tmp/stack", NULL, MS_BIND, NULL) == 0 && made <= LIMIT)
        made++;
    EXPECT(errno == ENOSPC && made == LIMIT - before, "%d made: %s", made, strerror(errno));
    while (made-- > 0)
        EXPECT(umount("/tmp/stack") == 0, "%s", strerror(errno));
}

int main(int count, char **words)
{
    EXPECT(unshare(CLONE_NEWNS) == 0, "%s", strerror(errno));
    EXPECT(mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL) == 0, "%s", strerror(errno));
    int fd = open("/proc/sys/fs/mount-max", O_WRONLY);
    char limit[16];
    snprintf(limit, sizeof limit, "%d", LIMIT);
    EXPECT(write(fd, limit, strlen(limit)) > 0, "%s", strerror(errno));
    int before = mounts_here(), turns = count > 1 ? atoi(words[1]) : 1000;
    long free_before = free_kib();
    doubles();
    EXPECT(mounts_here() == before, "%d mounts, and %d before", mounts_here(), before);
    stacks(before);
    mkdir("/tmp/one", 0755);
    for (int turn = 0; turn < turns; turn++)
        if (mount("/tmp/one", "/tmp/one", NULL, MS_BIND, NULL) || umount2("/tmp/one", MNT_DETACH)) {
            EXPECT(0, "turn %d: %s", turn, strerror(errno));
            break;
        }
    EXPECT(mounts_here() == before, "%d mounts, and %d before", mounts_here(), before);
    EXPECT(memory_is_back("bombs", free_before), "memory is lost");
    return verdict_failed;
}
