/* Reading mountinfo. */
#include "spaces.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void decode(char *text)
{
    char *to = text;
    for (const char *from = text; *from;) {
        int is_octal = from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' && from[2] <= '7' && from[3] >= '0' && from[3] <= '7';
        if (is_octal) {
            *to++ = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'));
            from += 4;
        } else {
            *to++ = *from++;
        }
    }
    *to = 0;
}

/* `ID PARENT MAJOR:MINOR ROOT TARGET FLAGS [FIELD...] - TYPE SOURCE OPTIONS`. */
static int parse(char *line, struct entry *entry)
{
    char *end = NULL, *words[6];
    for (int index = 0; index < 6; index++) {
        words[index] = strtok_r(index ? NULL : line, " \n", &end);
        if (!words[index])
            return -1;
    }
    char *word = words[0];
    while (word && strcmp(word, "-"))
        word = strtok_r(NULL, " \n", &end);
    char *type = strtok_r(NULL, " \n", &end), *source = strtok_r(NULL, " \n", &end), *options = strtok_r(NULL, " \n", &end);
    if (!word || !type || sscanf(words[2], "%u:%u", &entry->major, &entry->minor) != 2)
        return -1;
    /* A mount may have no source at all. */
    if (source && !options) {
        options = source;
        source = "";
    }
    struct step flags = { .flags = 0 };
    take_options(&flags, words[5]);
    entry->id = atoi(words[0]);
    entry->flags = flags.flags;
    char **fields[] = { &entry->root, &entry->target, &entry->type, &entry->source, &entry->options };
    const char *texts[] = { words[3], words[4], type, source ? source : "", options ? options : "" };
    for (size_t index = 0; index < sizeof fields / sizeof *fields; index++) {
        *fields[index] = copy_of(texts[index]);
        decode(*fields[index]);
    }
    return 0;
}

struct table read_table(const char *path)
{
    struct table table = { .entries = NULL };
    FILE *file = fopen(path, "re");
    if (!file)
        fail_at(0, "%s", path);
    char *line = NULL;
    size_t room = 0, held = 0;
    while (getline(&line, &room, file) > 0) {
        if (table.length == held) {
            held = held ? held * 2 : 64;
            table.entries = realloc(table.entries, held * sizeof *table.entries);
            if (!table.entries)
                fail("no memory");
        }
        if (parse(line, &table.entries[table.length]) == 0)
            table.length++;
    }
    free(line);
    if (ferror(file))
        fail_at(0, "%s", path);
    fclose(file);
    return table;
}

const struct entry *mount_of(const struct table *table, int fd)
{
    char path[64], line[256];
    int id = -1;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *file = fopen(path, "re");
    if (!file)
        fail_at(0, "%s", path);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "mnt_id: %d", &id) == 1)
            break;
    fclose(file);
    for (size_t index = 0; index < table->length; index++)
        if (table->entries[index].id == id)
            return &table->entries[index];
    return NULL;
}
