/* Pages of a file that has its home elsewhere, a loop device: what drop_caches takes and what it leaves, what counts as dirty, what has reached the home when
 * a call returns, and maps beside transfers past the pages.
 *
 * abi: guest
 * abi: alone
 */
#include "guest.h"
#include <linux/loop.h>

#define PAGE 4096
#define PAGES 256

static int home, disk, direct;
static char *map;
static char block[PAGE] __attribute__((aligned(PAGE)));

/* Writes to a file below /proc/sys/vm; returns 0 or errno. */
static int set(const char *name, const char *text)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/sys/vm/%s", name);
    int fd = open(path, O_WRONLY), error = 0;
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        error = errno;
    close(fd);
    return error;
}

static int resident(void)
{
    unsigned char pages[PAGES];
    int count = 0;
    EXPECT(mincore(map, PAGES * PAGE, pages) == 0, "%s", ERRNO_NAME(errno));
    for (int i = 0; i < PAGES; i++)
        count += pages[i] & 1;
    return count;
}

static void expect_resident(const char *when, int pages)
{
    int found = resident();
    EXPECT(found == pages, "%s: %d pages are in memory, not %d", when, found, pages);
}

/* Of a part of the disk, as cachestat(2) has it. */
static void expect_census(const char *when, uint64_t start, uint64_t bytes, uint64_t cached, uint64_t unwritten)
{
    uint64_t range[2] = { start, bytes }, count[5];
    memset(count, 0xff, sizeof count);
    EXPECT(syscall(451, disk, range, count, 0) == 0, "%s: %s", when, ERRNO_NAME(errno));
    EXPECT(count[0] == cached && count[1] == unwritten && count[2] == 0 && count[3] == 0 && count[4] == 0,
        "%s: %lu, %lu, %lu, %lu, %lu", when, count[0], count[1], count[2], count[3], count[4]);
}

static long dirty(void)
{
    return figure("/proc/meminfo", "Dirty") / 4;
}

static void read_all(void)
{
    for (int i = 0; i < PAGES; i++)
        EXPECT(pread(disk, block, PAGE, i * PAGE) == PAGE, "%s", ERRNO_NAME(errno));
}

/* What the home has at the beginning of a page. */
static const char *at_home(int page)
{
    static char text[16];
    memset(text, 0, sizeof text);
    EXPECT(pread(home, text, 6, page * PAGE) == 6, "%s", ERRNO_NAME(errno));
    return text;
}

#define AT_HOME(page, what) EXPECT(!strcmp(at_home(page), what), "page %d is %s", page, at_home(page))
#define WRITE(fd, page, what, flags)                                                                                   \
    do {                                                                                                               \
        struct iovec vector_ = { what, 6 };                                                                            \
        EXPECT(pwritev2(fd, &vector_, 1, (page) * PAGE, flags) == 6, "%s", ERRNO_NAME(errno));                         \
    } while (0)

static void caches(void)
{
    read_all();
    expect_resident("read", PAGES);
    expect_census("all", 0, 0, PAGES, 0);
    expect_census("a byte", 5 * PAGE + 17, 1, 1, 0);
    expect_census("two pages of a byte each", 5 * PAGE - 1, 2, 2, 0);
    expect_census("the end", (PAGES - 1) * PAGE, 100 * PAGE, 1, 0);
    expect_census("beyond", PAGES * PAGE, 0, 0, 0);
    EXPECT(set("drop_caches", "0") == EINVAL, "0 is taken");
    EXPECT(set("drop_caches", "5") == EINVAL, "5 is taken");
    EXPECT(set("drop_caches", "2") == 0, "2 is refused");
    expect_resident("entries were dropped", PAGES);
    EXPECT(set("drop_caches", "4") == 0, "4 is refused");
    expect_resident("nothing was dropped", PAGES);
    EXPECT(dirty() == 0, "%ld pages are dirty", dirty());
    WRITE(disk, 3, "dirty3", 0);
    EXPECT(dirty() == 1, "%ld pages are dirty", dirty());
    expect_census("one is dirty", 0, 0, PAGES, 1);
    expect_census("it is another one", 0, 3 * PAGE, 3, 0);
    EXPECT(set("drop_caches", "1") == 0, "1 is refused");
    expect_resident("pages were dropped, one is dirty", 1);
    expect_census("pages were dropped, one is dirty", 0, 0, 1, 1);
    read_all();
    EXPECT(set("drop_caches", "3") == 0, "3 is refused");
    expect_resident("all was dropped, one is dirty", 1);
    AT_HOME(3, "home..");
    sync();
    EXPECT(dirty() == 0 && figure("/proc/meminfo", "Writeback") == 0, "%ld pages are dirty", dirty());
    AT_HOME(3, "dirty3");
    expect_census("it was written", 0, 0, 1, 0);
    EXPECT(set("drop_caches", "1") == 0, "1 is refused");
    expect_resident("nothing is dirty", 0);
    expect_census("nothing is dirty", 0, 0, 0, 0);
    uint64_t range[2] = { 0, 0 }, count[5];
    EXPECT(syscall(451, disk, range, count, 1) == -1 && errno == EINVAL, "%s", ERRNO_NAME(errno));
    EXPECT(syscall(451, -1, range, count, 0) == -1 && errno == EBADF, "%s", ERRNO_NAME(errno));
    EXPECT(syscall(451, disk, 8, count, 0) == -1 && errno == EFAULT, "%s", ERRNO_NAME(errno));
    EXPECT(syscall(451, disk, range, 8, 0) == -1 && errno == EFAULT, "%s", ERRNO_NAME(errno));
    EXPECT(!memcmp(map + 3 * PAGE, "dirty3", 6), "%.6s", map + 3 * PAGE);
    EXPECT(set("drop_caches", "3") == 0, "3 is refused");
    expect_resident("a clean page that is mapped goes, too", 0);
    read_all();
    EXPECT(posix_fadvise(disk, 0, 16 * PAGE, POSIX_FADV_DONTNEED) == 0, "advice");
    expect_resident("so many are not needed", PAGES - 16);
}

static void synchronous(void)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", disk);
    int synced = open(path, O_RDWR | O_SYNC), data_synced = open(path, O_RDWR | O_DSYNC);
    EXPECT(synced >= 0 && data_synced >= 0, "%s", ERRNO_NAME(errno));
    WRITE(disk, 9, "later.", 0);
    AT_HOME(9, "home..");
    WRITE(synced, 10, "O_SYNC", 0);
    AT_HOME(10, "O_SYNC");
    WRITE(data_synced, 11, "ODSYNC", 0);
    AT_HOME(11, "ODSYNC");
    WRITE(disk, 12, "R_SYNC", RWF_SYNC);
    AT_HOME(12, "R_SYNC");
    WRITE(disk, 13, "RDSYNC", RWF_DSYNC);
    AT_HOME(13, "RDSYNC");
    WRITE(disk, 14, "range.", 0);
    WRITE(disk, 16, "beyond", 0);
    EXPECT(sync_file_range(disk, 14 * PAGE, PAGE, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WAIT_AFTER) == 0, "%s",
           ERRNO_NAME(errno));
    AT_HOME(14, "home..");
    EXPECT(sync_file_range(disk, 14 * PAGE, PAGE, SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER) == 0, "%s",
           ERRNO_NAME(errno));
    AT_HOME(14, "range.");
    AT_HOME(16, "home..");
    EXPECT(fdatasync(disk) == 0, "%s", ERRNO_NAME(errno));
    AT_HOME(16, "beyond");
    memcpy(map + 17 * PAGE, "stored", 6);
    EXPECT(dirty() == 1, "%ld pages are dirty", dirty());
    EXPECT(msync(map + 17 * PAGE, PAGE, MS_ASYNC) == 0, "%s", ERRNO_NAME(errno));
    EXPECT(msync(map, 16 * PAGE, MS_SYNC) == 0, "%s", ERRNO_NAME(errno));
    AT_HOME(17, "home..");
    EXPECT(msync(map + 17 * PAGE, PAGE, MS_SYNC) == 0, "%s", ERRNO_NAME(errno));
    AT_HOME(17, "stored");
    memcpy(map + 17 * PAGE, "again.", 6);
    EXPECT(dirty() == 1, "a store after it was written is noticed: %ld pages are dirty", dirty());
    EXPECT(fsync(disk) == 0, "%s", ERRNO_NAME(errno));
    AT_HOME(17, "again.");
    close(synced);
    close(data_synced);
}

static void past_the_pages(void)
{
    EXPECT(pread(direct, block, 100, 0) == -1 && errno == EINVAL, "a part of a block");
    EXPECT(pread(direct, block + 1, 512, 0) == -1 && errno == EINVAL, "memory between blocks");
    EXPECT(pread(direct, block, 512, 100) == -1 && errno == EINVAL, "a position between blocks");
    memcpy(map + 20 * PAGE, "stored", 6);
    EXPECT(pread(direct, block, PAGE, 20 * PAGE) == PAGE && !memcmp(block, "stored", 6), "%.6s", block);
    memcpy(block, "direct", 6);
    EXPECT(pwrite(direct, block, PAGE, 20 * PAGE) == PAGE, "%s", ERRNO_NAME(errno));
    AT_HOME(20, "direct");
    EXPECT(!memcmp(map + 20 * PAGE, "direct", 6), "the map has %.6s", map + 20 * PAGE);
    EXPECT(pread(disk, block, PAGE, 20 * PAGE) == PAGE && !memcmp(block, "direct", 6), "%.6s", block);
    memcpy(map + 20 * PAGE, "mapped", 6);
    EXPECT(pread(direct, block, PAGE, 20 * PAGE) == PAGE && !memcmp(block, "mapped", 6), "%.6s", block);
    /* The buffer is a map of what is read and written. */
    EXPECT(pwrite(direct, map + 20 * PAGE, PAGE, 21 * PAGE) == PAGE, "%s", ERRNO_NAME(errno));
    EXPECT(!memcmp(map + 21 * PAGE, "mapped", 6), "the map has %.6s", map + 21 * PAGE);
    EXPECT(pread(direct, map + 22 * PAGE, PAGE, 20 * PAGE) == PAGE, "%s", ERRNO_NAME(errno));
    EXPECT(!memcmp(map + 22 * PAGE, "mapped", 6), "the map has %.6s", map + 22 * PAGE);
    EXPECT(fsync(disk) == 0, "%s", ERRNO_NAME(errno));
    AT_HOME(21, "mapped");
    AT_HOME(22, "mapped");
}

int main(void)
{
    char path[32];
    home = open("home", O_RDWR | O_CREAT | O_TRUNC, 0600);
    memcpy(block, "home..", 6);
    for (int i = 0; i < PAGES; i++)
        EXPECT(write(home, block, PAGE) == PAGE, "%s", ERRNO_NAME(errno));
    int control = open("/dev/loop-control", O_RDWR), number = ioctl(control, LOOP_CTL_GET_FREE);
    snprintf(path, sizeof path, "/dev/loop%d", number);
    disk = open(path, O_RDWR);
    EXPECT(ioctl(disk, LOOP_SET_FD, home) == 0, "%s", ERRNO_NAME(errno));
    direct = open(path, O_RDWR | O_DIRECT);
    map = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, disk, 0);
    EXPECT(direct >= 0 && map != MAP_FAILED, "%s", ERRNO_NAME(errno));
    /* Nothing is written because it is old. */
    EXPECT(set("dirty_writeback_centisecs", "0") == 0, "the period");
    caches();
    synchronous();
    past_the_pages();
    munmap(map, PAGES * PAGE);
    ioctl(disk, LOOP_CLR_FD, 0);
    return verdict_failed;
}
