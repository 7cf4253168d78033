/* splice, tee, vmsplice, sendfile between pipes and files. */
#include "abi.h"

int main(void)
{
    int one[2], two[2];
    pipe(one);
    pipe(two);
    static char big[50000], back[50000];
    for (unsigned i = 0; i < sizeof big; i++)
        big[i] = (char)(i * 31 >> 3);
    int file = open("file", O_CREAT | O_RDWR, 0600), out = open("out", O_CREAT | O_RDWR, 0600);
    write(file, big, sizeof big);
    loff_t offset = 100;
    SHOW(splice(file, &offset, one[1], NULL, 20000, 0));
    SHOW(offset);
    SHOW(tee(one[0], two[1], 5000, 0));
    SHOW(read(two[0], back, sizeof back));
    TRUE(memcmp(back, big + 100, 5000) == 0);
    int count = 0;
    ioctl(one[0], FIONREAD, &count);
    SHOW(count);
    loff_t to = 7;
    SHOW(splice(one[0], NULL, out, &to, 50000, 0));
    SHOW(to);
    SHOW(pread(out, back, sizeof back, 7));
    TRUE(memcmp(back, big + 100, 20000) == 0);
    lseek(file, 49990, SEEK_SET);
    SHOW(splice(file, NULL, one[1], NULL, 100, 0));
    SHOW(splice(file, NULL, one[1], NULL, 100, 0));
    SHOW(splice(one[0], NULL, two[1], NULL, 4, 0));
    SHOW(read(two[0], back, 100));
    SHOW(read(one[0], back, 100));
    SHOW(splice(one[0], NULL, two[1], NULL, 10, SPLICE_F_NONBLOCK));
    SHOW(tee(one[0], two[1], 10, SPLICE_F_NONBLOCK));
    struct iovec parts[2] = { { "vm", 2 }, { "splice", 6 } };
    SHOW(vmsplice(one[1], parts, 2, 0));
    SHOW(read(one[0], back, 100));
    printf("%.8s\n", back);
    write(one[1], "downward", 8);
    struct iovec into = { back + 100, 8 };
    SHOW(vmsplice(one[0], &into, 1, 0));
    printf("%.8s\n", back + 100);
    SHOW(splice(file, NULL, out, NULL, 10, 0));
    SHOW(splice(one[0], &to, two[1], NULL, 10, 0));
    SHOW(splice(one[0], NULL, one[1], NULL, 10, 0));
    SHOW(tee(one[0], one[1], 10, 0));
    SHOW(tee(file, one[1], 10, 0));
    SHOW(splice(-1, NULL, one[1], NULL, 10, 0));
    SHOW(splice(one[1], NULL, two[1], NULL, 10, 0));
    SHOW(splice(file, NULL, one[1], NULL, 10, 0x100));
    SHOW(splice(file, NULL, one[1], NULL, 0, 0));
    int append = open("out", O_WRONLY | O_APPEND);
    write(one[1], "x", 1);
    SHOW(splice(one[0], NULL, append, NULL, 1, 0));
    read(one[0], back, 1);
    offset = 0;
    SHOW(sendfile(one[1], file, &offset, 3000));
    SHOW(read(one[0], back, 3000));
    TRUE(memcmp(back, big, 3000) == 0);
    SHOW(sendfile(out, one[0], NULL, 1));
    close(one[1]);
    SHOW(splice(one[0], NULL, two[1], NULL, 10, 0));
    close(two[0]);
    signal(SIGPIPE, SIG_IGN);
    lseek(file, 0, SEEK_SET);
    SHOW(splice(file, NULL, two[1], NULL, 10, 0));
    int zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY);
    int three[2];
    pipe(three);
    SHOW(splice(zero, NULL, three[1], NULL, 4096, 0));
    SHOW(splice(three[0], NULL, null, NULL, 4096, 0));
    /* A relay: producer, splice in the middle, consumer. */
    int in[2], end[2];
    pipe(in);
    pipe(end);
    pid_t producer = CHILD({ close(in[0]); for (int i = 0; i < 50; i++) write(in[1], big, 10000); });
    close(in[1]);
    pid_t relay = CHILD({
        close(end[0]);
        long sum = 0;
        long moved;
        while ((moved = splice(in[0], NULL, end[1], NULL, 65536, 0)) > 0)
            sum += moved;
        printf("relayed %ld\n", sum);
    });
    close(end[1]);
    close(in[0]);
    long sum = 0, wrong = 0;
    ssize_t got;
    while ((got = read(end[0], back, sizeof back)) > 0)
        for (int i = 0; i < got; i++, sum++)
            wrong += back[i] != big[sum % 10000];
    REAP(producer);
    REAP(relay);
    SHOW(sum);
    SHOW(wrong);
    return 0;
}
