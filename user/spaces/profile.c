/* Reading a profile: a file that lists what a name space is made of.
 *
 *     # a comment
 *     mount TYPE SOURCE TARGET [OPTION,...]
 *     bind [-b | -a] [-c] [-R] SOURCE TARGET [OPTION,...]
 *
 * A blank in a path is written `\040`. The whole file is read and found well-formed before anything is mounted.
 */
#include "spaces.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char *contents(const char *path)
{
    /* What is no file must not hold the tool up. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat about;
    if (fd < 0 || fstat(fd, &about) < 0)
        fail_at(0, "%s", path);
    if (!S_ISREG(about.st_mode))
        fail("%s: no regular file", path);
    char *text = allocate(PROFILE_BYTES_MAX + 2);
    size_t used = 0;
    for (ssize_t count; used <= PROFILE_BYTES_MAX; used += (size_t)count) {
        count = read(fd, text + used, PROFILE_BYTES_MAX + 1 - used);
        if (count < 0)
            fail_at(0, "%s", path);
        if (count == 0)
            break;
    }
    close(fd);
    if (used > PROFILE_BYTES_MAX)
        fail("%s: more than %d bytes", path, PROFILE_BYTES_MAX);
    if (memchr(text, 0, used))
        fail("%s: a byte of 0 in it", path);
    return text;
}

static void take_letters(struct step *step, const char *word)
{
    for (const char *letter = word + 1; *letter; letter++) {
        if ((*letter == 'a' || *letter == 'b') && step->order == ORDER_REPLACE)
            step->order = *letter == 'a' ? ORDER_AFTER : ORDER_BEFORE;
        else if (*letter == 'c')
            step->creation = 1;
        else if (*letter == 'R')
            step->recursive = 1;
        else
            fail_at(step->line, "bind has no such option: %s", word);
    }
}

/* A line's words, as a step. */
static void take_words(struct step *step, char **words, size_t count)
{
    size_t next = 1, paths = 2;
    if (!strcmp(words[0], "mount")) {
        paths = 3;
    } else if (!strcmp(words[0], "bind")) {
        for (; next < count && words[next][0] == '-'; next++)
            take_letters(step, words[next]);
    } else {
        fail_at(step->line, "unknown word: %s", words[0]);
    }
    if (count - next < paths || count - next > paths + 1)
        fail_at(step->line, "%s", paths == 3 ? "mount TYPE SOURCE TARGET [OPTION,...]" : "bind [-b | -a] [-c] [-R] SOURCE TARGET [OPTION,...]");
    if (paths == 3)
        step->type = words[next++];
    step->source = words[next];
    step->target = words[next + 1];
    if (count > next + 2)
        take_options(step, words[next + 2]);
    if (step->options && !step->type)
        fail_at(step->line, "a bind has no such option: %s", step->options);
    if (step->target[0] != '/' || (!step->type && step->source[0] != '/'))
        fail_at(step->line, "paths must begin with a slash");
}

size_t read_profile(const char *path, struct step *steps)
{
    char *text = contents(path), *next;
    size_t made = 0;
    int number = 0;
    profile = path;
    errno = 0;
    for (char *line = text; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        number++;
        char *words[WORDS_MAX], *end = NULL;
        size_t count = 0;
        for (char *word = strtok_r(line, " \t", &end); word && word[0] != '#'; word = strtok_r(NULL, " \t", &end)) {
            if (count == WORDS_MAX)
                fail_at(number, "too many words");
            decode(word);
            words[count++] = word;
        }
        if (count == 0)
            continue;
        if (made == STEPS_MAX)
            fail_at(number, "more than %d lines", STEPS_MAX);
        steps[made] = (struct step){ .line = number };
        take_words(&steps[made++], words, count);
    }
    return made;
}
