/* `bind`: shows a directory or file at another place of this name space, alone or in a union with what is there. */
#include "spaces.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] = "usage: bind [-b | -a] [-c] [-R] [-w WORK] [-o OPTION,...] NEW OLD";

int bind_main(int count, char **words)
{
    struct step step = { .order = ORDER_REPLACE };
    for (int letter; (letter = getopt(count, words, "+abcRw:o:")) != -1;) {
        if (letter == 'a' || letter == 'b') {
            if (step.order != ORDER_REPLACE)
                fail("%s", usage);
            step.order = letter == 'a' ? ORDER_AFTER : ORDER_BEFORE;
        } else if (letter == 'c') {
            step.creation = 1;
        } else if (letter == 'R') {
            step.recursive = 1;
        } else if (letter == 'w') {
            step.work = optarg;
        } else if (letter == 'o') {
            take_options(&step, optarg);
        } else {
            fail("%s", usage);
        }
    }
    if (count - optind != 2)
        fail("%s", usage);
    if (step.options)
        fail("%s: a bind has no such option", step.options);
    step.source = words[optind];
    step.target = words[optind + 1];
    mount_all(&step, 1, AT_FDCWD, 0);
    return 0;
}
