/* A PMI-2 client written from the wire protocol: one line, then messages behind their length of six digits.
 * Each rank tells the others something and reads it back; prints one line, exits 0. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fd;
static char in[20000];

static void die(const char *why)
{
    fprintf(stderr, "pmi2: %s: %s\n", why, in);
    exit(1);
}

static void read_all(char *to, size_t want)
{
    while (want > 0) {
        ssize_t got = read(fd, to, want);
        if (got <= 0)
            die("the server is gone");
        to += got;
        want -= (size_t)got;
    }
}

/* Sends a message and reads the answer, which must begin with `expected`. */
static const char *ask(const char *text, const char *expected)
{
    char length[7];
    size_t size;

    if (dprintf(fd, "%6zu%s", strlen(text), text) < 0)
        die("cannot write");
    read_all(length, 6);
    length[6] = 0;
    size = strtoul(length, NULL, 10);
    if (size == 0 || size >= sizeof in)
        die("bad length");
    read_all(in, size);
    in[size] = 0;
    if (strncmp(in, expected, strlen(expected)) != 0)
        die(expected);
    return in;
}

/* Copies the field `key` of the last answer. */
static void field(const char *key, char *to, size_t size)
{
    char name[64];
    const char *at;

    snprintf(name, sizeof name, ";%s=", key);
    at = strstr(in, name);
    if (at == NULL)
        die(key);
    at += strlen(name);
    while (*at && size > 1) {
        if (*at == ';' && *++at != ';')
            break;
        *to++ = *at++;
        size--;
    }
    *to = 0;
}

int main(void)
{
    char line[256], text[2048], value[1024], job[256], wanted[1024];
    size_t at = 0;
    int rank = atoi(getenv("PMI_RANK")), size;

    fd = atoi(getenv("PMI_FD"));
    dprintf(fd, "cmd=init pmi_version=2 pmi_subversion=0\n");
    do
        read_all(line + at, 1);
    while (line[at++] != '\n' && at < sizeof line - 1);
    line[at] = 0;
    if (strcmp(line, "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n") != 0)
        die(line);

    snprintf(text, sizeof text, "cmd=fullinit;pmirank=%d;threaded=FALSE;", rank);
    ask(text, "cmd=fullinit-response;");
    field("rank", value, sizeof value);
    if (atoi(value) != rank)
        die("rank");
    field("size", value, sizeof value);
    size = atoi(value);
    ask("cmd=job-getid;", "cmd=job-getid-response;jobid=");
    field("jobid", job, sizeof job);
    ask("cmd=info-getjobattr;key=PMI_process_mapping;", "cmd=info-getjobattr-response;found=TRUE;");
    ask("cmd=info-getjobattr;key=nothing;", "cmd=info-getjobattr-response;found=FALSE;");

    /* The first rank of a node tells the others of it something; they may ask before. */
    if (atoi(getenv("FTB_LOCAL_RANK")) == 0) {
        snprintf(text, sizeof text, "cmd=info-putnodeattr;key=first;value=%d;", rank);
        ask(text, "cmd=info-putnodeattr-response;rc=0;");
    }
    ask("cmd=info-getnodeattr;key=first;wait=TRUE;", "cmd=info-getnodeattr-response;found=TRUE;");
    field("value", value, sizeof value);
    if (atoi(value) != rank - atoi(getenv("FTB_LOCAL_RANK")))
        die("first of the node");

    /* Three fences, so that a late one would be seen; a value with every sign that has a meaning. */
    for (int round = 0; round < 3; round++) {
        snprintf(text, sizeof text, "cmd=kvs-put;key=r%d-%d;value=a=%d;; b, \"%d\";", rank, round, rank, round);
        ask(text, "cmd=kvs-put-response;rc=0;");
        ask("cmd=kvs-fence;", "cmd=kvs-fence-response;rc=0;");
        for (int other = 0; other < size; other++) {
            snprintf(text, sizeof text, "cmd=kvs-get;jobid=%s;srcid=%d;key=r%d-%d;", job, other, other, round);
            ask(text, "cmd=kvs-get-response;found=TRUE;");
            field("value", value, sizeof value);
            snprintf(wanted, sizeof wanted, "a=%d; b, \"%d\"", other, round);
            if (strcmp(value, wanted) != 0)
                die(wanted);
        }
    }
    ask("cmd=finalize;", "cmd=finalize-response;rc=0;");
    printf("rank %d of %d\n", rank, size);
    return 0;
}
