/* A file server of 9P2000.L as a program of the machine, mounted over what it has open (`trans=fd`).
 *
 * It has files that nobody else could have: `counter`, which has another number each time that it is read; `user`, the name that the mount has told; `log`, which keeps what is written;
 * `slow`, whose reads are never answered. Mounts of two users over servers of their own see what each has told; who waits for `slow` can be killed; a server that ends, or talks
 * nonsense, is an error of who uses its mount, and of nobody else.
 *
 * abi: guest
 * abi: cpus 1,4
 * abi: limit 120
 */
#include "guest.h"
#include <sys/socket.h>

enum { VERSION = 100, ATTACH = 104, FLUSH = 108, WALK = 110, READ = 116, WRITE = 118, CLUNK = 120, STATFS = 8, OPEN = 12, GETATTR = 24, SETATTR = 26, READDIR = 40, FSYNC = 50, ERROR = 6 };
enum { FILES = 5, ROOT = 0, COUNTER, USER, LOG, SLOW };
enum { MESSAGE = 140000 };

static const char *const names[FILES] = { "", "counter", "user", "log", "slow" };
static unsigned char message[MESSAGE], answer[MESSAGE];
static size_t used, at;
static int fids[1000];
static char told[100], kept[100000];
static size_t kept_bytes;
static int counter;

/* What the server does wrong. */
enum fault { SOUND, SHORT_LENGTH, LONG_LENGTH, OTHER_TAG, NOISE, HALF };
static enum fault fault;

static void put(uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        answer[used++] = (unsigned char)(value >> 8 * i);
}

static uint64_t get(size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)message[at++] << 8 * i;
    return value;
}

static void put_identity(int file)
{
    put(file == ROOT ? 0x80 : 0, 1);
    put(0, 4);
    put((uint64_t)file + 1, 8);
}

static void put_name(const char *text)
{
    put(strlen(text), 2);
    memcpy(answer + used, text, strlen(text));
    used += strlen(text);
}

static void fail(int number)
{
    used = 7;
    answer[4] = ERROR + 1;
    put((uint64_t)number, 4);
}

static size_t size_of(int file)
{
    /* More than a read of `counter` has. */
    return file == LOG ? kept_bytes : file == USER ? strlen(told) : 20;
}

static void walk(void)
{
    int from = fids[get(4) % 1000], to = (int)(get(4) % 1000), count = (int)get(2);
    char name[100] = "";
    if (count == 1) {
        size_t length = get(2) % 99;
        memcpy(name, message + at, length);
    }
    int found = count == 0 ? from : -1;
    for (int i = 1; count == 1 && i < FILES; i++)
        if (!strcmp(names[i], name))
            found = i;
    if (found < 0)
        return fail(ENOENT);
    fids[to] = found;
    put((uint64_t)count, 2);
    if (count == 1)
        put_identity(found);
}

static void attributes(int file)
{
    put(0x7ff, 8);
    put_identity(file);
    put(file == ROOT ? 040755 : 0100644, 4);
    put(0, 4), put(0, 4);
    put(1, 8), put(0, 8), put(size_of(file), 8), put(4096, 8), put(1, 8);
    for (int i = 0; i < 8; i++)
        put(1000000000, 8);
    put(0, 8), put(0, 8);
}

static void read_file(void)
{
    int file = fids[get(4) % 1000];
    size_t offset = get(8), count = get(4);
    char text[32];
    const char *bytes = file == LOG ? kept : file == USER ? told : text;
    if (file == COUNTER && offset == 0)
        snprintf(text, sizeof text, "%d\n", ++counter);
    size_t length = file == COUNTER ? (offset ? 0 : strlen(text)) : size_of(file);
    size_t part = offset >= length ? 0 : length - offset < count ? length - offset : count;
    put(part, 4);
    memcpy(answer + used, bytes + (part ? offset : 0), part);
    used += part;
}

static void list(void)
{
    get(4);
    uint64_t offset = get(8);
    size_t start = used;
    put(0, 4);
    for (int i = (int)offset + 1; i < FILES; i++) {
        put_identity(i);
        put((uint64_t)i, 8);
        put(8, 1);
        put_name(names[i]);
    }
    size_t end = used;
    used = start;
    put(end - start - 4, 4);
    used = end;
}

/* Answers a request; false if it is left without an answer. */
static int serve_one(void)
{
    at = 4;
    int kind = (int)get(1);
    uint64_t tag = get(2);
    used = 4;
    put((uint64_t)kind + 1, 1);
    put(tag, 2);
    switch (kind) {
    case VERSION: put(get(4), 4), put_name("9P2000.L"); break;
    case ATTACH: {
        int fid = (int)(get(4) % 1000);
        get(4);
        size_t length = get(2) % 99;
        memcpy(told, message + at, length);
        told[length] = 0;
        fids[fid] = ROOT;
        put_identity(ROOT);
        break;
    }
    case WALK: walk(); break;
    case GETATTR: attributes(fids[get(4) % 1000]); break;
    case SETATTR: if (fids[get(4) % 1000] == LOG && get(4) & 8) { at += 12; kept_bytes = get(8) % sizeof kept; } break;
    case OPEN: put_identity(fids[get(4) % 1000]), put(0, 4); break;
    case READ:
        if (fids[get(4) % 1000] == SLOW)
            return 0;
        at -= 4;
        read_file();
        break;
    case WRITE: {
        int file = fids[get(4) % 1000];
        size_t offset = get(8), count = get(4);
        if (file != LOG || offset + count > sizeof kept)
            fail(EFBIG);
        else {
            memcpy(kept + offset, message + at, count);
            kept_bytes = offset + count > kept_bytes ? offset + count : kept_bytes;
            put(count, 4);
        }
        break;
    }
    case READDIR: list(); break;
    case STATFS: for (int i = 0; i < 9; i++) put(i < 2 ? 0x01021997 : 0, i < 2 || i == 8 ? 4 : 8); break;
    case FLUSH: case CLUNK: case FSYNC: break;
    default: fail(EOPNOTSUPP);
    }
    return 1;
}

static int all(int fd, unsigned char *bytes, size_t count, int writes)
{
    for (size_t done = 0; done < count;) {
        ssize_t part = writes ? write(fd, bytes + done, count - done) : read(fd, bytes + done, count - done);
        if (part <= 0)
            return 0;
        done += (size_t)part;
    }
    return 1;
}

/* Serves until the other end is closed. What is wrong is wrong after so many answers. */
static void serve(int from, int to, int sound_answers)
{
    while (all(from, message, 4, 0)) {
        at = 0;
        size_t length = get(4);
        if (length < 7 || length > sizeof message || !all(from, message + 4, length - 4, 0))
            _exit(1);
        if (!serve_one())
            continue;
        size_t total = used;
        used = 0, put(total, 4);
        if (sound_answers-- <= 0) {
            used = 0;
            switch (fault) {
            case SHORT_LENGTH: put(3, 4); break;
            case LONG_LENGTH: put(0x7fffffff, 4); break;
            case OTHER_TAG: used = 5, put(0x3333, 2); break;
            case NOISE: memset(answer, 0xa5, total); break;
            case HALF: all(to, answer, total / 2, 1), _exit(0);
            default: break;
            }
        }
        if (!all(to, answer, total, 1))
            _exit(1);
    }
    _exit(0);
}

static pid_t begin(int ends[2], int sound_answers)
{
    int there[2], back[2];
    if (ends[0] == 0) {
        socketpair(AF_UNIX, SOCK_STREAM, 0, there);
        back[0] = there[0], back[1] = there[1];
    } else {
        pipe(there), pipe(back);
        int swap = there[0];
        there[0] = there[1], there[1] = swap;
    }
    /* Ours: there[0] to write, back[0] to read. Of a pair both are one. */
    fflush(stdout);
    pid_t server = fork();
    if (server == 0) {
        close(there[0]), close(back[0]);
        serve(there[1], back[1], sound_answers);
    }
    close(there[1]);
    if (back[1] != there[1])
        close(back[1]);
    ends[0] = back[0], ends[1] = there[0];
    return server;
}

static int mount_over(int ends[2], const char *place, const char *more)
{
    char options[200];
    snprintf(options, sizeof options, "trans=fd,rfdno=%d,wfdno=%d,version=9p2000.L%s", ends[0], ends[1], more);
    mkdir(place, 0755);
    int result = mount("none", place, "9p", 0, options);
    int why = errno;
    close(ends[0]);
    if (ends[1] != ends[0])
        close(ends[1]);
    errno = why;
    return result;
}

static int reap(pid_t server)
{
    int status = -1;
    waitpid(server, &status, 0);
    return status;
}

#define WORKS(expr) EXPECT((expr) >= 0, "%s", ERRNO_NAME(errno))
#define SAYS(path, text)                                                                                               \
    do {                                                                                                               \
        const char *said_ = contents_of(path);                                                                         \
        EXPECT(!strcmp(said_, text), "%s says \"%s\"", path, said_);                                                    \
    } while (0)

/* Over pipes and over a socket: nothing is kept, each mount has told its own user, what is written is there. */
static void sound(int by_pipes)
{
    int one[2] = { by_pipes }, other[2] = { by_pipes };
    pid_t first = begin(one, INT_MAX);
    WORKS(mount_over(one, "/tmp/one", ",uname=alice,cache=none"));
    /* Now nobody but the mount has the first one's ends. */
    pid_t second = begin(other, INT_MAX);
    WORKS(mount_over(other, "/tmp/other", ",uname=bob,access=user,msize=8192"));
    SAYS("/tmp/one/counter", "1\n");
    SAYS("/tmp/one/counter", "2\n");
    SAYS("/tmp/other/counter", "1\n");
    SAYS("/tmp/one/user", "alice");
    SAYS("/tmp/other/user", "bob");
    int count = 0;
    DIR *directory = opendir("/tmp/one");
    for (struct dirent *entry; directory && (entry = readdir(directory));)
        count += entry->d_name[0] != '.';
    if (directory)
        closedir(directory);
    EXPECT(count == FILES - 1, "%d names", count);
    EXPECT(strstr(contents_of("/proc/mounts"), "trans=fd,rfd="), "%s", contents_of("/proc/mounts"));
    /* Larger than a message, and than what a pipe or a socket keeps. */
    static char bytes[90000], back[90000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 7 + i / 251);
    const char *logs[] = { "/tmp/one/log", "/tmp/other/log" };
    for (int i = 0; i < 2; i++) {
        int fd = open(logs[i], O_RDWR);
        EXPECT(write(fd, bytes, sizeof bytes) == sizeof bytes, "%s", ERRNO_NAME(errno));
        EXPECT(pread(fd, back, sizeof back, 0) == sizeof back && !memcmp(bytes, back, sizeof back), "other bytes in %s", logs[i]);
        WORKS(fsync(fd));
        close(fd);
    }
    /* Several at a time, which one server answers one after the other. */
    pid_t readers[4];
    for (int i = 0; i < 4; i++)
        readers[i] = CHILD(for (int turn = 0; turn < 50; turn++) {
            int fd = open("/tmp/one/log", O_RDONLY);
            if (read(fd, back, sizeof back) != sizeof back || memcmp(bytes, back, sizeof back))
                _exit(1);
            close(fd);
        });
    for (int i = 0; i < 4; i++)
        EXPECT(reap(readers[i]) == 0, "a reader saw other bytes");
    /* Who waits for an answer that never comes is killed; others go on. More often than there are requests at a time: what was given up leaves nothing. */
    for (int turn = 0; turn < 80; turn++) {
        int asks[2];
        char byte;
        pipe(asks);
        pid_t waiter = CHILD(int fd = open("/tmp/one/slow", O_RDONLY); close(asks[0]); close(asks[1]); read(fd, back, 10));
        close(asks[1]);
        EXPECT(read(asks[0], &byte, 1) == 0, "%s", ERRNO_NAME(errno));
        close(asks[0]);
        wait_state(waiter, "SD");
        SAYS("/tmp/one/user", "alice");
        kill(waiter, SIGKILL);
        EXPECT(WIFSIGNALED(reap(waiter)), "it ended by itself");
    }
    SAYS("/tmp/one/user", "alice");
    WORKS(umount("/tmp/one"));
    EXPECT(reap(first) == 0, "the server was not let go of");
    /* A server that ends. */
    int open_file = open("/tmp/other/log", O_RDONLY);
    kill(second, SIGKILL);
    reap(second);
    EXPECT(read(open_file, back, 10) == -1 && errno == EIO, "%s", ERRNO_NAME(errno));
    EXPECT(open("/tmp/other/user", O_RDONLY) == -1 && errno == EIO, "%s", ERRNO_NAME(errno));
    close(open_file);
    WORKS(umount("/tmp/other"));
}

/* A server that breaks the rules after so many answers: EIO, at the mount or later, and an end. */
static void broken(int by_pipes)
{
    for (fault = SHORT_LENGTH; fault <= HALF; fault++)
        for (int answers = 0; answers < 12; answers += 1 + answers / 4) {
            int ends[2] = { by_pipes };
            pid_t server = begin(ends, answers);
            int mounted = mount_over(ends, "/tmp/one", "");
            EXPECT(mounted == 0 || errno == EIO, "%d after %d: %s", fault, answers, ERRNO_NAME(errno));
            if (mounted == 0) {
                int failed = 0;
                for (int turn = 0; turn < 20 && !failed; turn++) {
                    int fd = open("/tmp/one/user", O_RDONLY);
                    char byte;
                    failed = fd < 0 || read(fd, &byte, 1) < 0 ? errno : 0;
                    close(fd);
                }
                EXPECT(failed == EIO, "%d after %d: %s", fault, answers, ERRNO_NAME(failed));
                WORKS(umount("/tmp/one"));
            }
            reap(server);
        }
    fault = SOUND;
}

static void refusals(void)
{
    int ends[2] = { -1, -1 };
    mkdir("/tmp/one", 0755);
    EXPECT(mount("none", "/tmp/one", "9p", 0, "trans=fd") == -1 && errno == EINVAL, "%s", ERRNO_NAME(errno));
    EXPECT(mount("none", "/tmp/one", "9p", 0, "trans=fd,rfdno=900,wfdno=901") == -1 && errno == EIO, "%s", ERRNO_NAME(errno));
    pipe(ends);
    char options[100];
    snprintf(options, sizeof options, "trans=fd,rfdno=%d,wfdno=%d", ends[1], ends[0]);
    EXPECT(mount("none", "/tmp/one", "9p", 0, options) == -1 && errno == EIO, "%s", ERRNO_NAME(errno));
    /* Nobody is there any more. */
    int other[2];
    pipe(other);
    snprintf(options, sizeof options, "trans=fd,rfdno=%d,wfdno=%d", ends[0], other[1]);
    close(ends[1]), close(other[0]);
    EXPECT(mount("none", "/tmp/one", "9p", 0, options) == -1 && errno == EIO, "%s", ERRNO_NAME(errno));
    close(ends[0]), close(other[1]);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    mkdir("/tmp", 01777);
    refusals();
    for (int by_pipes = 0; by_pipes < 2; by_pipes++) {
        sound(by_pipes);
        broken(by_pipes);
    }
    return verdict_failed;
}
