/* The limits for dirty pages in /proc/sys/vm: a ratio and a number of bytes exclude each other, and what is out of range is refused and
 * changes nothing.
 *
 * abi: guest
 * abi: alone
 */
#include "guest.h"

static int wrong;

static long get(const char *name) {
    char path[64];
    long value = -1;
    snprintf(path, sizeof path, "/proc/sys/vm/%s", name);
    FILE *file = fopen(path, "r");
    if (!file || fscanf(file, "%ld", &value) != 1) {
        perror(path);
        exit(1);
    }
    fclose(file);
    return value;
}

/* Returns 0 or errno. */
static int set(const char *name, const char *text) {
    char path[64];
    snprintf(path, sizeof path, "/proc/sys/vm/%s", name);
    int file = open(path, O_WRONLY);
    if (file < 0) {
        perror(path);
        exit(1);
    }
    int error = write(file, text, strlen(text)) < 0 ? errno : 0;
    close(file);
    return error;
}

static void expect_set(const char *name, const char *text, int error) {
    int found = set(name, text);
    printf("%s = %s: %s\n", name, text, found ? strerror(found) : "done");
    if (found != error) {
        printf("expected %s\n", error ? strerror(error) : "that it is done");
        wrong = 1;
    }
}

static void expect(const char *name, long value) {
    long found = get(name);
    printf("%s is %ld\n", name, found);
    if (found != value) {
        printf("expected %ld\n", value);
        wrong = 1;
    }
}

int main(void) {
    long limit = get("dirty_ratio"), background = get("dirty_background_ratio");
    char text[32];

    /* Two pages are the least that may be dirty. */
    expect_set("dirty_bytes", "8191", EINVAL);
    expect_set("dirty_bytes", "0", EINVAL);
    expect("dirty_bytes", 0);
    expect("dirty_ratio", limit);
    expect_set("dirty_bytes", "8192", 0);
    expect("dirty_bytes", 8192);
    expect("dirty_ratio", 0);
    expect_set("dirty_ratio", "101", EINVAL);
    expect("dirty_bytes", 8192);
    snprintf(text, sizeof text, "%ld", limit);
    expect_set("dirty_ratio", text, 0);
    expect("dirty_bytes", 0);

    /* The threads may begin with the first byte. */
    expect_set("dirty_background_bytes", "0", EINVAL);
    expect("dirty_background_ratio", background);
    expect_set("dirty_background_bytes", "1", 0);
    expect("dirty_background_bytes", 1);
    expect("dirty_background_ratio", 0);
    expect_set("dirty_background_ratio", "101", EINVAL);
    expect("dirty_background_bytes", 1);
    snprintf(text, sizeof text, "%ld", background);
    expect_set("dirty_background_ratio", text, 0);
    expect("dirty_background_bytes", 0);

    /* One kind of limit leaves the other alone. */
    expect("dirty_ratio", limit);
    return wrong;
}
