/* Calls that are asked for terabytes: SIGKILL ends them soon. */
#include "abi.h"

enum { BIG_SHIFT = 40, PATIENCE_MS = 20000 };

static char *big;
static int sparse, null, zero, out;

static void send_file(void)
{
    for (;;)
        if (sendfile(null, sparse, NULL, 1ull << BIG_SHIFT) <= 0)
            lseek(sparse, 0, SEEK_SET);
}

static void copy_range(void)
{
    for (;;) {
        loff_t from = 0, to = 0;
        copy_file_range(sparse, &from, out, &to, 1ull << BIG_SHIFT, 0);
    }
}

static void populate(void)
{
    /* Only tables that lead to the page of zeros. */
    for (;;)
        madvise(big, 1ull << BIG_SHIFT, 22 /* MADV_POPULATE_READ */);
}

static void residents(void)
{
    for (;;)
        mincore(big, 1ull << BIG_SHIFT, (unsigned char *)big);
}

static void random_bytes(void)
{
    for (;;)
        if (syscall(SYS_getrandom, big, 1ull << 31, 0) < 0)
            madvise(big, 1ull << 31, MADV_DONTNEED);
}

static void read_zeros(void)
{
    for (;;)
        if (read(zero, big, 16 << 20) < 0)
            madvise(big, 16 << 20, MADV_DONTNEED);
}

static void dies(const char *name, void (*body)(void))
{
    pid_t child = fork();
    if (child == 0) {
        struct rlimit limit = { 1 << 20, 1 << 20 };
        setrlimit(RLIMIT_FSIZE, &limit);
        signal(SIGXFSZ, SIG_IGN);
        body();
    }
    pause_ms(30);
    kill(child, SIGKILL);
    long long until = now_ms() + PATIENCE_MS;
    int status = 0;
    pid_t found;
    while ((found = waitpid(child, &status, WNOHANG)) == 0 && now_ms() < until)
        pause_ms(5);
    printf("%s: %s\n", name, found == child ? how_ended(status) : "does not die");
}

int main(void)
{
    sparse = open("sparse", O_CREAT | O_RDWR, 0600);
    out = open("out", O_CREAT | O_RDWR, 0600);
    null = open("/dev/null", O_RDWR);
    zero = open("/dev/zero", O_RDWR);
    OK(ftruncate(sparse, 1ll << BIG_SHIFT));
    big = mmap(NULL, 1ull << BIG_SHIFT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TRUE(big != MAP_FAILED);
    dies("sendfile", send_file);
    dies("copy_file_range", copy_range);
    dies("MADV_POPULATE_READ", populate);
    dies("mincore", residents);
    dies("getrandom", random_bytes);
    dies("read", read_zeros);
    return 0;
}
