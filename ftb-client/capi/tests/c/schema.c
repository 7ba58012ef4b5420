/* Schema files. argv[1]: a folder for them. */
#include <sys/stat.h>

#include "check.h"

static const char *folder;
static char path[4096];

static const char *file(const char *text)
{
    snprintf(path, sizeof(path), "%s/schema.ftb", folder);
    FILE *f = fopen(path, "w");
    MUST(f);
    fputs(text, f);
    fclose(f);
    return path;
}

static void try(const char *label, const char *text, const char *event)
{
    FTB_client_handle_t handle = connected("FTB.Schema.Test", "", "FTB_SUBSCRIPTION_NONE");
    FTB_event_handle_t published;
    say(label, FTB_Declare_publishable_events(handle, file(text), NULL, 0));
    if (event) {
        char line[80];
        snprintf(line, sizeof(line), "    publish %s", event);
        say(line, FTB_Publish(handle, event, NULL, &published));
    }
    MUST(FTB_Disconnect(handle) == FTB_SUCCESS);
}

int main(int argc, char **argv)
{
    MUST(argc == 2);
    folder = argv[1];
    try("one", "start\nFTB.SCHEMA.TEST\nA info\nend\n", "a");
    try("comments", "# x\nstart # y\nftb.schema.test\n#B info\nA info #\nend", "B");
    try("two blocks", "start FTB.Schema.Test A info end start FTB.Schema.Test B fatal end", "B");
    try("words before the first block", "hello world start FTB.Schema.Test A info end", "A");
    try("twice the same", "start FTB.Schema.Test A info a fatal B info end", "B");
    try("no events", "start FTB.Schema.Test end", "A");
    try("empty", "", NULL);
    try("no end", "start FTB.Schema.Test A info", NULL);
    try("END", "start FTB.Schema.Test A info END", NULL);
    try("START", "START FTB.Schema.Test A info end", NULL);
    try("other event space", "start FTB.Schema.Other A info end", NULL);
    try("no severity", "start FTB.Schema.Test A end", NULL);
    try("comma behind the name", "start FTB.Schema.Test A, info end", NULL);
    try("bad severity", "start FTB.Schema.Test A bad end", NULL);
    try("name too long",
        "start FTB.Schema.Test A1234567890123456789012345678901 info end", NULL);
    try("a command", "start FTB.Schema.Test $(exit) info end", NULL);

    FTB_client_handle_t handle = connected("FTB.Schema.Test", "", "FTB_SUBSCRIPTION_NONE");
    say("no such file", FTB_Declare_publishable_events(handle, "/nonexistent/x", NULL, 0));
    say("a folder", FTB_Declare_publishable_events(handle, folder, NULL, 0));
    say("a device", FTB_Declare_publishable_events(handle, "/dev/zero", NULL, 0));
    snprintf(path, sizeof(path), "%s/pipe", folder);
    MUST(mkfifo(path, 0600) == 0);
    say("a pipe that nobody writes to", FTB_Declare_publishable_events(handle, path, NULL, 0));
    snprintf(path, sizeof(path), "%s/evil; touch %s/done", folder, folder);
    say("a name for a shell", FTB_Declare_publishable_events(handle, path, NULL, 0));
    char endless[10000];
    memset(endless, 'x', sizeof(endless) - 1);
    endless[sizeof(endless) - 1] = 0;
    say("a name without end", FTB_Declare_publishable_events(handle, endless, NULL, 0));
    FTB_event_info_t event = {"FROM_ARRAY", "info"};
    FTB_event_handle_t published;
    say("file and array", FTB_Declare_publishable_events(
                              handle, file("start FTB.Schema.Test A info end"), &event, 1));
    say("    publish what was in the array", FTB_Publish(handle, "FROM_ARRAY", NULL, &published));
    say("disconnect", FTB_Disconnect(handle));
    return 0;
}
